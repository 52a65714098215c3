//! What `reassign`, `drain` and `rebalance` have in common: where copies are, what moves, how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use riverlog_core::balance::{Copies, Move, Place};
use riverlog_wire::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use riverlog_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use riverlog_wire::messages::{
    AlterPartitionReassignmentsRequest, DescribeLogDirsRequest, ElectLeadersRequest,
    IncrementalAlterConfigsRequest, ListPartitionReassignmentsRequest, MetadataResponse,
    elect_leaders_request,
};
use riverlog_wire::{BrokerId, ErrorCode};
use serde_json::json;

use super::Context;
use super::health::nodes;
use crate::cli::interrupt;
use crate::cli::output::Table;
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// How often what moves is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often that is told.
const TELL: Duration = Duration::from_secs(5);

/// A topic's partition.
pub(super) type At = (String, i32);

/// A partition that is being reassigned.
pub(super) struct Moving {
    pub(super) at: At,
    pub(super) replicas: Vec<i32>,
    pub(super) adding: Vec<i32>,
    pub(super) removing: Vec<i32>,
}

impl Moving {
    /// Where its copies are to be.
    pub(super) fn target(&self) -> Vec<i32> {
        let stays = |b: &&i32| !self.removing.contains(b);
        self.replicas.iter().filter(stays).copied().collect()
    }
}

/// Everything that moves, in order.
pub(super) fn moving(client: &mut Client) -> Result<Vec<Moving>, Failure> {
    let request = ListPartitionReassignmentsRequest {
        timeout_ms: client.timeout_ms(),
        topics: None,
    };
    let answer = client.ask(&request)?;
    if answer.error_code != ErrorCode::NONE {
        let message = answer.error_message.as_deref();
        return Err(Failure::kafka(
            "what moves can't be listed",
            answer.error_code,
            message,
        ));
    }
    let of_topics = answer.topics.into_iter().flat_map(|topic| {
        let name = topic.name;
        topic.partitions.into_iter().map(move |p| Moving {
            at: (name.clone(), p.partition_index),
            replicas: p.replicas,
            adding: p.adding_replicas,
            removing: p.removing_replicas,
        })
    });
    let mut all: Vec<Moving> = of_topics.collect();
    all.sort_by(|a, b| a.at.cmp(&b.at));
    Ok(all)
}

/// Bytes that the new copies have, and bytes that they are to have, as far as nodes tell.
pub(super) fn copied(client: &mut Client, moving: &[Moving]) -> BTreeMap<At, (u64, u64)> {
    let nodes: BTreeSet<i32> = moving.iter().flat_map(|m| m.replicas.clone()).collect();
    let mut sizes: BTreeMap<(At, i32), u64> = BTreeMap::new();
    for node in nodes {
        // One that is down has nothing to tell.
        let Ok(answer) = client.ask_node(node, &DescribeLogDirsRequest { topics: None }) else {
            continue;
        };
        for topic in answer.results.into_iter().flat_map(|dir| dir.topics) {
            for p in topic.partitions {
                let size = u64::try_from(p.partition_size).unwrap_or(0);
                sizes.insert(((topic.name.clone(), p.partition_index), node), size);
            }
        }
    }
    let of = |m: &Moving| {
        let size = |node: &i32| sizes.get(&(m.at.clone(), *node)).copied().unwrap_or(0);
        let old = m.replicas.iter().filter(|b| !m.adding.contains(b));
        let whole = old.map(size).max().unwrap_or(0);
        let done: u64 = m.adding.iter().map(|node| size(node).min(whole)).sum();
        (done, whole * m.adding.len() as u64)
    };
    moving.iter().map(|m| (m.at.clone(), of(m))).collect()
}

/// Asks for reassignments; `None` takes one back. Says for each what is wrong, if something is.
pub(super) fn alter(
    client: &mut Client,
    wanted: &[(At, Option<Vec<i32>>)],
) -> Result<BTreeMap<At, String>, Failure> {
    let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
    for ((topic, index), replicas) in wanted {
        topics
            .entry(topic)
            .or_default()
            .push(ReassignablePartition {
                partition_index: *index,
                replicas: replicas.clone(),
            });
    }
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: client.timeout_ms(),
        allow_replication_factor_change: true,
        topics: topics
            .into_iter()
            .map(|(name, partitions)| ReassignableTopic {
                name: name.to_owned(),
                partitions,
            })
            .collect(),
    };
    let answer = client.ask(&request)?;
    if answer.error_code != ErrorCode::NONE {
        let message = answer.error_message.as_deref();
        return Err(Failure::kafka(
            "nothing was reassigned",
            answer.error_code,
            message,
        ));
    }
    let mut wrong = BTreeMap::new();
    for topic in answer.responses {
        for p in topic.partitions {
            if p.error_code != ErrorCode::NONE {
                let words = p.error_message.unwrap_or_default();
                let words = match words.is_empty() {
                    true => p.error_code.name().to_owned(),
                    false => format!("{}: {words}", p.error_code.name()),
                };
                wrong.insert((topic.name.clone(), p.partition_index), words);
            }
        }
    }
    Ok(wrong)
}

/// Waits until nothing of these moves any more, and says how far it is. Ctrl-C ends the wait, not the moves.
pub(super) fn wait(
    client: &mut Client,
    context: &Context,
    of: &BTreeSet<At>,
) -> Result<(), Failure> {
    interrupt::watch();
    let mut told = Instant::now();
    loop {
        let patience = client.settings.timeout;
        let left = client.insist(patience, interrupt::asked, moving)?;
        let left: Vec<Moving> = left.into_iter().filter(|m| of.contains(&m.at)).collect();
        if left.is_empty() {
            return Ok(());
        }
        if interrupt::asked() {
            context.note("the moves go on; `riverlog cluster reassign --status` shows them");
            return Err(Failure::silent(Exit::Interrupted));
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            let copied = copied(client, &left);
            let (done, all) = copied
                .values()
                .fold((0, 0), |(d, a), (done, all)| (d + done, a + all));
            context.note(&format!(
                "{} of {} partitions move still, {}",
                left.len(),
                of.len(),
                share(done, all)
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// `12.0 MiB of 40.0 MiB`.
pub(super) fn share(done: u64, all: u64) -> String {
    let size = |bytes| bytesize::ByteSize(bytes).display().iec().to_string();
    format!("{} of {} copied", size(done), size(all))
}

/// Nodes with their racks; those that are down take nothing.
pub(super) fn places(client: &mut Client) -> Result<Vec<Place>, Failure> {
    let place =
        |b: riverlog_wire::messages::describe_cluster_response::DescribeClusterBroker| Place {
            id: BrokerId(b.broker_id),
            rack: b.rack,
            takes: !b.is_fenced,
        };
    let mut places: Vec<Place> = nodes(client)?.into_iter().map(place).collect();
    places.sort_by_key(|p| p.id);
    Ok(places)
}

/// Where all copies are, or are to be once what moves has moved.
pub(super) fn copies(metadata: &MetadataResponse, moving: &[Moving]) -> Vec<Copies> {
    let targets: BTreeMap<&At, Vec<i32>> = moving.iter().map(|m| (&m.at, m.target())).collect();
    let mut all = Vec::new();
    for topic in &metadata.topics {
        let name = topic.name.clone().unwrap_or_default();
        for p in &topic.partitions {
            let at = (name.clone(), p.partition_index);
            let replicas = targets.get(&at).unwrap_or(&p.replica_nodes);
            all.push(Copies {
                topic: at.0,
                index: at.1,
                replicas: replicas.iter().copied().map(BrokerId).collect(),
            });
        }
    }
    all.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
    all
}

pub(super) fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|b| b.0).collect()
}

/// Shows a plan.
pub(super) fn show(
    kind: &'static str,
    moves: &[Move],
    results: &BTreeMap<At, String>,
    done: &str,
    context: &Context,
) -> Result<(), Failure> {
    let mut table = Table::new(kind, &["topic", "partition", "from", "to", "result"]);
    for m in moves {
        let at = (m.topic.clone(), m.index);
        let result = results.get(&at).map_or(done, String::as_str);
        table.row(vec![
            json!(m.topic),
            json!(m.index),
            json!(list(&ids(&m.from))),
            json!(list(&ids(&m.to))),
            json!(result),
        ]);
    }
    table.print(context.output)
}

pub(super) fn list(ids: &[i32]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(",")
}

/// Carries moves out, so many partitions at once, and waits for them. Returns what went wrong, by partition.
pub(super) fn carry_out(
    client: &mut Client,
    context: &Context,
    moves: &[Move],
    at_once: usize,
) -> Result<BTreeMap<At, String>, Failure> {
    let mut wrong = BTreeMap::new();
    // What only changes its order is done at once.
    let (long, short): (Vec<&Move>, Vec<&Move>) = moves.iter().partition(|m| m.copies());
    for some in std::iter::once(&short[..]).chain(long.chunks(at_once.max(1))) {
        if some.is_empty() {
            continue;
        }
        let wanted: Vec<(At, Option<Vec<i32>>)> = some
            .iter()
            .map(|m| ((m.topic.clone(), m.index), Some(ids(&m.to))))
            .collect();
        let of: BTreeSet<At> = wanted.iter().map(|(at, _)| at.clone()).collect();
        wrong.extend(alter(client, &wanted)?);
        wait(client, context, &of)?;
    }
    Ok(wrong)
}

/// Gives partitions to their first replicas, where those are in sync.
pub(super) fn elect(client: &mut Client, moves: &[Move]) -> Result<(), Failure> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for m in moves {
        topics.entry(&m.topic).or_default().push(m.index);
    }
    let topics = topics.into_iter();
    let request = ElectLeadersRequest {
        election_type: 0,
        topic_partitions: Some(
            topics
                .map(
                    |(topic, partitions)| elect_leaders_request::TopicPartitions {
                        topic: topic.to_owned(),
                        partitions,
                    },
                )
                .collect(),
        ),
        timeout_ms: client.timeout_ms(),
    };
    let answer = client.ask(&request)?;
    match answer.error_code {
        ErrorCode::NONE => Ok(()),
        code => Err(Failure::kafka("no leader was elected", code, None)),
    }
}

/// Bounds the bytes a second that catching up may take, on each node, in both directions; `None` takes the bound back.
pub(super) fn throttle(client: &mut Client, rate: Option<usize>) -> Result<(), Failure> {
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    const BROKER: i8 = 4;
    let key = |name: &str| AlterableConfig {
        name: name.to_owned(),
        config_operation: if rate.is_some() { SET } else { DELETE },
        value: rate.map(|rate| rate.to_string()),
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: BROKER,
            // All of them.
            resource_name: String::new(),
            configs: vec![
                key("leader.replication.throttled.rate"),
                key("follower.replication.throttled.rate"),
            ],
        }],
        validate_only: false,
    };
    let answer = client.ask(&request)?;
    for result in answer.responses {
        if result.error_code != ErrorCode::NONE {
            let message = result.error_message.as_deref();
            return Err(Failure::kafka(
                "the bound can't be set",
                result.error_code,
                message,
            ));
        }
    }
    Ok(())
}

/// How a command ends of which something may have gone wrong.
pub(super) fn end(wrong: usize, of: usize) -> Result<(), Failure> {
    match wrong {
        0 => Ok(()),
        n if n == of => Err(Failure::silent(Exit::Finding)),
        _ => Err(Failure::silent(Exit::Partial)),
    }
}
