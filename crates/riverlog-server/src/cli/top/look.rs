//! What a cluster is like at one moment, as Kafka's protocol tells it; and what changed between two moments.

use std::collections::BTreeMap;
use std::time::Instant;

use riverlog_wire::messages::DescribeLogDirsRequest;
use serde::Serialize;

use crate::cli::consume::committed_of;
use crate::cli::group;
use crate::cli::values::now_ms;
use crate::client::Client;
use crate::failure::Failure;

/// Groups that are looked at; each is asked for its commits.
const MOST_GROUPS: usize = 1_000;

/// A cluster at one moment.
pub(super) struct Look {
    at: Instant,
    now_ms: i64,
    cluster: String,
    brokers: Vec<Broker>,
    topics: BTreeMap<String, Topic>,
    groups: BTreeMap<String, Group>,
    /// All groups, looked at or not.
    groups_total: usize,
}

struct Broker {
    id: i32,
    address: String,
    rack: Option<String>,
    leads: usize,
    replicas: usize,
    size: Option<i64>,
}

#[derive(Default)]
struct Topic {
    partitions: usize,
    replicas: usize,
    under_replicated: usize,
    offline: usize,
    /// Records that are there.
    records: i64,
    /// Where its partitions end, summed up.
    end: i64,
    size: Option<i64>,
}

struct Group {
    state: String,
    topics: usize,
    committed: i64,
    lag: i64,
}

impl Look {
    /// Asks the brokers. `internal`: internal topics too.
    pub(super) fn take(client: &mut Client, internal: bool) -> Result<Look, Failure> {
        let at = Instant::now();
        let metadata = client.metadata(None, false)?;
        let mut brokers: Vec<Broker> = metadata
            .brokers
            .iter()
            .map(|b| Broker {
                id: b.node_id,
                address: format!("{}:{}", b.host, b.port),
                rack: b.rack.clone(),
                leads: 0,
                replicas: 0,
                size: None,
            })
            .collect();
        brokers.sort_by_key(|b| b.id);
        let mut topics: BTreeMap<String, Topic> = BTreeMap::new();
        let mut led = Vec::new();
        for topic in metadata.topics {
            let Some(name) = topic.name else { continue };
            for p in &topic.partitions {
                if p.leader_id >= 0 {
                    led.push((name.clone(), p.partition_index, p.leader_id));
                }
                for broker in &mut brokers {
                    broker.leads += usize::from(p.leader_id == broker.id);
                    broker.replicas += usize::from(p.replica_nodes.contains(&broker.id));
                }
            }
            if topic.is_internal && !internal {
                continue;
            }
            let partitions = || topic.partitions.iter();
            let seen = Topic {
                partitions: topic.partitions.len(),
                replicas: partitions()
                    .map(|p| p.replica_nodes.len())
                    .max()
                    .unwrap_or(0),
                under_replicated: partitions()
                    .filter(|p| p.isr_nodes.len() < p.replica_nodes.len())
                    .count(),
                offline: partitions().filter(|p| p.leader_id < 0).count(),
                ..Topic::default()
            };
            topics.insert(name, seen);
        }
        let bounds = bounds(client, &led)?;
        for ((name, _), (start, end)) in &bounds {
            if let Some(topic) = topics.get_mut(name) {
                topic.records += (end - start).max(0);
                topic.end += end;
            }
        }
        sizes(client, &mut brokers, &mut topics)?;
        let (groups, groups_total) = groups(client, &bounds)?;
        Ok(Look {
            at,
            now_ms: now_ms(),
            cluster: metadata.cluster_id.unwrap_or_default(),
            brokers,
            topics,
            groups,
            groups_total,
        })
    }
}

type Bounds = BTreeMap<(String, i32), (i64, i64)>;

/// First offset and end of each partition that has a leader.
fn bounds(client: &mut Client, led: &[(String, i32, i32)]) -> Result<Bounds, Failure> {
    let ask = |time: i64| -> Vec<(String, i32, i32, i64)> {
        let one = |(topic, partition, leader): &(String, i32, i32)| {
            (topic.clone(), *partition, *leader, time)
        };
        led.iter().map(one).collect()
    };
    let starts = client.offsets(&ask(-2))?;
    let ends = client.offsets(&ask(-1))?;
    Ok(starts
        .into_iter()
        .filter_map(|(place, (start, _))| {
            let (end, _) = *ends.get(&place)?;
            Some((place, (start, end)))
        })
        .collect())
}

/// What brokers and topics take on disks; unknown where a broker doesn't say.
fn sizes(
    client: &mut Client,
    brokers: &mut [Broker],
    topics: &mut BTreeMap<String, Topic>,
) -> Result<(), Failure> {
    for broker in brokers {
        let request = DescribeLogDirsRequest { topics: None };
        let response = match client.ask_node(broker.id, &request) {
            Ok(response) => response,
            Err(why) if why.is_passing() => return Err(why),
            // It is too old to know, or doesn't tell everybody.
            Err(_) => continue,
        };
        for topic in response.results.into_iter().flat_map(|dir| dir.topics) {
            let size: i64 = topic.partitions.iter().map(|p| p.partition_size).sum();
            *broker.size.get_or_insert(0) += size;
            if let Some(seen) = topics.get_mut(&topic.name) {
                *seen.size.get_or_insert(0) += size;
            }
        }
    }
    Ok(())
}

fn groups(
    client: &mut Client,
    bounds: &Bounds,
) -> Result<(BTreeMap<String, Group>, usize), Failure> {
    let all = group::all(client)?;
    let total = all.len();
    let mut out = BTreeMap::new();
    for (name, state, _, _) in all.into_iter().take(MOST_GROUPS) {
        let committed = committed_of(client, &name, None)?;
        let mut group = Group {
            state,
            topics: 0,
            committed: 0,
            lag: 0,
        };
        let mut last = None;
        for (place, offset) in &committed {
            group.topics += usize::from(last != Some(&place.0));
            last = Some(&place.0);
            group.committed += offset;
            if let Some((start, end)) = bounds.get(place) {
                // What is deleted already won't be read.
                group.lag += (end - (*offset).max(*start)).max(0);
            }
        }
        out.insert(name, group);
    }
    Ok((out, total))
}

/// What is shown: a look, with what changed since the one before.
#[derive(Serialize)]
pub(super) struct Shown {
    /// ms since the epoch.
    pub(super) at: i64,
    pub(super) cluster_id: String,
    /// Records a second into all topics shown; `None` before two looks, as all rates.
    pub(super) records_in: Option<f64>,
    /// Bytes a second that these grew by; less than came in where retention deletes.
    pub(super) bytes_in: Option<f64>,
    /// Records a second that groups commit.
    pub(super) read: Option<f64>,
    pub(super) lag: i64,
    pub(super) under_replicated: usize,
    pub(super) offline: usize,
    pub(super) topics: Vec<TopicRow>,
    pub(super) groups: Vec<GroupRow>,
    pub(super) groups_total: usize,
    pub(super) brokers: Vec<BrokerRow>,
}

#[derive(Serialize)]
pub(super) struct TopicRow {
    pub(super) topic: String,
    pub(super) partitions: usize,
    pub(super) replicas: usize,
    pub(super) under_replicated: usize,
    pub(super) offline: usize,
    pub(super) records: i64,
    pub(super) size_bytes: Option<i64>,
    pub(super) records_in: Option<f64>,
    pub(super) bytes_in: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct GroupRow {
    pub(super) group: String,
    pub(super) state: String,
    pub(super) topics: usize,
    pub(super) lag: i64,
    pub(super) read: Option<f64>,
    /// Seconds until it has caught up, at the pace of the last moments; `None` when it doesn't.
    pub(super) caught_up_in: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct BrokerRow {
    pub(super) broker: i32,
    pub(super) address: String,
    pub(super) rack: Option<String>,
    pub(super) leads: usize,
    pub(super) replicas: usize,
    pub(super) size_bytes: Option<i64>,
    pub(super) bytes_in: Option<f64>,
}

impl Shown {
    /// `before`: an earlier look at the same cluster.
    pub(super) fn new(before: Option<&Look>, now: &Look) -> Shown {
        let before = before.filter(|b| b.cluster == now.cluster);
        let seconds = before.map(|b| now.at.duration_since(b.at).as_secs_f64().max(0.001));
        let rate = |new: i64, old: Option<i64>| Some((new - old?).max(0) as f64 / seconds?);
        let topics: Vec<TopicRow> = now
            .topics
            .iter()
            .map(|(name, topic)| {
                let old = before.and_then(|b| b.topics.get(name));
                let grown = |size: i64| rate(size, old.and_then(|o| o.size));
                TopicRow {
                    topic: name.clone(),
                    partitions: topic.partitions,
                    replicas: topic.replicas,
                    under_replicated: topic.under_replicated,
                    offline: topic.offline,
                    records: topic.records,
                    size_bytes: topic.size,
                    records_in: rate(topic.end, old.map(|o| o.end)),
                    bytes_in: topic.size.and_then(grown),
                }
            })
            .collect();
        let groups: Vec<GroupRow> = now
            .groups
            .iter()
            .map(|(name, group)| {
                let old = before.and_then(|b| b.groups.get(name));
                let falls = old.and_then(|old| Some((old.lag - group.lag) as f64 / seconds?));
                GroupRow {
                    group: name.clone(),
                    state: group.state.clone(),
                    topics: group.topics,
                    lag: group.lag,
                    read: rate(group.committed, old.map(|o| o.committed)),
                    caught_up_in: match group.lag {
                        0 => Some(0.0),
                        lag => falls.filter(|f| *f > 0.0).map(|falls| lag as f64 / falls),
                    },
                }
            })
            .collect();
        let brokers = now.brokers.iter().map(|b| BrokerRow {
            broker: b.id,
            address: b.address.clone(),
            rack: b.rack.clone(),
            leads: b.leads,
            replicas: b.replicas,
            size_bytes: b.size,
            bytes_in: b.size.and_then(|size| {
                let old = before.and_then(|look| look.brokers.iter().find(|o| o.id == b.id));
                rate(size, old.and_then(|o| o.size))
            }),
        });
        let sum = |rates: &mut dyn Iterator<Item = Option<f64>>| {
            seconds.map(|_| rates.flatten().sum::<f64>())
        };
        Shown {
            at: now.now_ms,
            cluster_id: now.cluster.clone(),
            records_in: sum(&mut topics.iter().map(|t| t.records_in)),
            bytes_in: sum(&mut topics.iter().map(|t| t.bytes_in)),
            read: sum(&mut groups.iter().map(|g| g.read)),
            lag: groups.iter().map(|g| g.lag).sum(),
            under_replicated: topics.iter().map(|t| t.under_replicated).sum(),
            offline: topics.iter().map(|t| t.offline).sum(),
            brokers: brokers.collect(),
            groups_total: now.groups_total,
            topics,
            groups,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// A cluster with a topic that ends at `end` and a group that has committed `committed` of it.
    pub(in crate::cli::top) fn look(at: Instant, end: i64, committed: i64) -> Look {
        let topic = |end: i64| Topic {
            partitions: 3,
            replicas: 1,
            records: end,
            end,
            size: Some(end * 100),
            ..Topic::default()
        };
        Look {
            at,
            now_ms: 1_767_225_600_000,
            cluster: "c".to_owned(),
            brokers: vec![Broker {
                id: 1,
                address: "localhost:9092".to_owned(),
                rack: None,
                leads: 5,
                replicas: 5,
                size: Some(end * 100),
            }],
            topics: [
                ("orders".to_owned(), topic(end)),
                ("quiet".to_owned(), topic(7)),
            ]
            .into(),
            groups: [(
                "billing".to_owned(),
                Group {
                    state: "Stable".to_owned(),
                    topics: 1,
                    committed,
                    lag: end - committed,
                },
            )]
            .into(),
            groups_total: 1,
        }
    }

    #[test]
    fn rates_are_what_changed_between_two_looks_and_the_first_has_none() {
        let begin = Instant::now();
        let (first, second) = (
            look(begin, 1_000, 0),
            look(begin + Duration::from_secs(2), 1_400, 600),
        );
        let shown = Shown::new(None, &first);
        assert_eq!(
            (shown.records_in, shown.read, shown.lag),
            (None, None, 1_000)
        );
        let shown = Shown::new(Some(&first), &second);
        assert_eq!(
            (shown.records_in, shown.bytes_in, shown.read),
            (Some(200.0), Some(20_000.0), Some(300.0))
        );
        assert_eq!((shown.lag, shown.topics[0].records_in), (800, Some(200.0)));
        // 200 in two seconds.
        assert_eq!(shown.groups[0].caught_up_in, Some(8.0));
        // Made anew meanwhile: nothing is known of what was written.
        let shown = Shown::new(Some(&second), &look(begin + Duration::from_secs(4), 10, 0));
        assert_eq!(shown.topics[0].records_in, Some(0.0));
    }
}
