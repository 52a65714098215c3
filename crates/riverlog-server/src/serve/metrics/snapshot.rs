//! What a scrape looks at, gathered once for all the names that it goes out by.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::groups::{CommittedOffset, GroupDescription, ShareTopics, TopicPartition};
use riverlog_core::metadata::TopicRef;
use riverlog_core::share::{ShareKey, ShareSummary};
use riverlog_node::{FetchCommand, FetchPartition, Isolation, Node, PartitionRef, Reply, Slice};
use riverlog_wire::batch::{BatchHeader, batches};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

use crate::serve::http::Health;

/// How long groups may take to answer; without them the rest is still told.
const GROUPS_WAIT: Duration = Duration::from_secs(2);
/// Times of waiting records that one scrape looks up; others are known from the scrape before, or come with the next.
const LOOKUPS: usize = 500;
/// Times that are kept.
const KEPT: usize = 200_000;

/// A partition as it is now; positions are `None` where it isn't led here.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) leader: i32,
    pub(super) preferred: bool,
    pub(super) replicas: usize,
    pub(super) isr: usize,
    /// In-sync replicas that acks=all needs.
    pub(super) min_isr: usize,
    pub(super) positions: Option<Positions>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    pub(super) start: i64,
    pub(super) high_watermark: i64,
    pub(super) size_bytes: u64,
    pub(super) failed: bool,
}

#[derive(Debug)]
pub(super) struct TopicState {
    pub(super) name: String,
    pub(super) internal: bool,
    pub(super) compact: bool,
    pub(super) partitions: Vec<PartitionState>,
}

/// What a group has committed in one partition.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// `None` where the partition can't be asked.
    pub(super) lag: Option<i64>,
    /// How long the first waiting record waits; `None` while that isn't known.
    pub(super) seconds: Option<f64>,
}

#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) description: GroupDescription,
    pub(super) commits: Vec<Commit>,
}

/// A registered node.
#[derive(Debug)]
pub(super) struct BrokerState {
    pub(super) id: i32,
    pub(super) address: String,
    pub(super) rack: String,
    pub(super) fenced: bool,
    /// Its disk is full, failed or slow.
    pub(super) ailing: bool,
}

/// Everything that a scrape tells of.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) cluster_id: String,
    pub(super) this: i32,
    pub(super) brokers: Vec<BrokerState>,
    pub(super) topics: Vec<TopicState>,
    pub(super) groups: Vec<GroupState>,
}

/// When the record at an offset was written: it never changes, so it is read once for each commit that stands still.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<BTreeMap<(TopicId, i32, i64), i64>>);

impl Snapshot {
    pub(super) async fn take(health: &Health) -> Snapshot {
        let node = &health.driver.node;
        let image = node.image();
        let mut brokers = Vec::new();
        for broker in image.brokers.values() {
            let address = broker.listeners.first();
            let address = address.map_or_else(String::new, |(_, host, port)| {
                crate::client::place(host, *port)
            });
            let rack = broker.rack.clone().unwrap_or_default();
            brokers.push(BrokerState {
                id: broker.id.0,
                address,
                rack,
                fenced: broker.fenced,
                ailing: broker.ailing,
            });
        }
        let mut topics = Vec::new();
        let mut led: BTreeMap<(String, i32), (PartitionRef, Positions)> = BTreeMap::new();
        // By name, so that lines come in the same order after each start.
        for topic in image.names.values().filter_map(|id| image.topics.get(id)) {
            let mut partitions = Vec::new();
            let key = "min.insync.replicas";
            let set = topic.configs.get(key).or(node.settings().configs.get(key));
            let min_isr = set.and_then(|value| value.parse::<usize>().ok());
            for (index, partition) in (0..).zip(&topic.partitions) {
                let found = node.partition(&TopicRef::Id(topic.id), index).ok();
                let positions = found.map(|found| {
                    let described = node.describe_partition(&found);
                    let positions = Positions {
                        start: described.log_start_offset.0,
                        high_watermark: described.high_watermark.0,
                        size_bytes: described.size_bytes,
                        failed: described.failed.is_some(),
                    };
                    led.insert((topic.name.clone(), index), (found, positions));
                    positions
                });
                partitions.push(PartitionState {
                    leader: partition.leader.map_or(-1, |b| b.0),
                    preferred: partition.leader == partition.replicas.first().copied(),
                    replicas: partition.replicas.len(),
                    isr: partition.isr.len(),
                    min_isr: min_isr.unwrap_or(partition.replicas.len() / 2 + 1),
                    positions,
                });
            }
            let policy = topic.configs.get("cleanup.policy");
            topics.push(TopicState {
                name: topic.name.clone(),
                internal: topic.internal,
                compact: policy.is_some_and(|p| p.contains("compact")),
                partitions,
            });
        }
        let groups = groups(health, &led).await;
        Snapshot {
            cluster_id: image.cluster_id.clone(),
            this: node.settings().broker.0,
            brokers,
            topics,
            groups,
        }
    }
}

/// Asks the node, and waits without holding up a thread.
async fn asked<T: Send + 'static>(ask: impl FnOnce(Reply<T>)) -> Option<T> {
    let (send, receive) = tokio::sync::oneshot::channel();
    ask(Reply::new(move |answer| {
        // Nobody waits any more: the answer came too late.
        let _ = send.send(answer);
    }));
    tokio::time::timeout(GROUPS_WAIT, receive).await.ok()?.ok()
}

type Committed = Vec<(TopicPartition, Option<CommittedOffset>)>;

async fn groups(
    health: &Health,
    led: &BTreeMap<(String, i32), (PartitionRef, Positions)>,
) -> Vec<GroupState> {
    let (node, driver) = (&health.driver.node, &health.driver);
    let answer: Option<Result<Vec<GroupDescription>, ErrorCode>> =
        asked(|reply| node.groups(driver.now(), reply)).await;
    let Some(Ok(descriptions)) = answer else {
        return Vec::new();
    };
    let now_ms = driver.now().wall_ms;
    let mut lookups = LOOKUPS;
    let mut groups = Vec::new();
    for description in descriptions {
        let standing = match description.group_type {
            "share" => share_standing(health, &description.group).await,
            _ => standing(health, &description.group).await,
        };
        let mut commits = Vec::new();
        for (at, offset, done) in standing {
            let found = led.get(&(at.topic.clone(), at.partition));
            let lag = found.map(|(_, p)| (p.high_watermark - offset.max(p.start) - done).max(0));
            let seconds = match (lag, found) {
                (Some(0), _) => Some(0.0),
                (Some(_), Some((partition, p))) => {
                    let from = offset.max(p.start);
                    let written =
                        health
                            .times
                            .of(node, driver.now(), partition, from, &mut lookups);
                    let written = written.await;
                    written.map(|ms| now_ms.saturating_sub(ms).max(0) as f64 / 1e3)
                }
                _ => None,
            };
            commits.push(Commit {
                topic: at.topic,
                partition: at.partition,
                offset,
                lag,
                seconds,
            });
        }
        groups.push(GroupState {
            description,
            commits,
        });
    }
    groups
}

/// What a group has committed: from each offset on everything waits.
async fn standing(health: &Health, group: &str) -> Vec<(TopicPartition, i64, i64)> {
    let (node, driver) = (&health.driver.node, &health.driver);
    let answer: Option<Result<Committed, ErrorCode>> =
        asked(|reply| node.committed(group, None, None, driver.now(), reply)).await;
    let all = answer.and_then(Result::ok).unwrap_or_default().into_iter();
    all.filter_map(|(at, committed)| Some((at, committed?.offset.0, 0)))
        .collect()
}

/// Where a share group is: the first record that it isn't done with, and how many after that it is done with already (KIP-1226).
async fn share_standing(health: &Health, group: &str) -> Vec<(TopicPartition, i64, i64)> {
    let (node, driver) = (&health.driver.node, &health.driver);
    let answer: Option<Result<ShareTopics, ErrorCode>> =
        asked(|reply| node.share_topics(group, driver.now(), reply)).await;
    let image = node.image();
    let mut standing = Vec::new();
    for (id, partitions) in answer.and_then(Result::ok).unwrap_or_default() {
        let Some(topic) = image.topics.get(&id) else {
            continue;
        };
        for partition in partitions {
            let key = ShareKey {
                group: group.to_owned(),
                topic: id,
                partition,
            };
            let summary: Option<Result<Option<ShareSummary>, ErrorCode>> =
                asked(|reply| node.share_summary(&key, driver.now(), reply)).await;
            let summary = summary.and_then(Result::ok).flatten();
            // Nobody has read it yet, or it isn't known how much is done.
            let Some(summary) = summary.filter(|s| s.start.0 >= 0 && s.complete >= 0) else {
                continue;
            };
            let at = TopicPartition {
                topic: topic.name.to_string(),
                id,
                partition,
            };
            standing.push((at, summary.start.0, i64::from(summary.complete)));
        }
    }
    standing
}

impl Times {
    /// When the record at an offset, or the first behind it, was written: ms since the epoch.
    async fn of(
        &self,
        node: &Node,
        now: riverlog_core::Now,
        partition: &PartitionRef,
        offset: i64,
        lookups: &mut usize,
    ) -> Option<i64> {
        let key = (partition.topic(), partition.index(), offset);
        if let Some(known) = self.0.lock().get(&key) {
            return Some(*known);
        }
        *lookups = lookups.checked_sub(1)?;
        let command = FetchCommand {
            partitions: vec![FetchPartition {
                topic: TopicRef::Id(key.0),
                partition: key.1,
                from: Offset(offset),
                max_bytes: 1,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            }],
            max_wait: Duration::ZERO,
            min_bytes: 1,
            max_bytes: 1,
            isolation: Isolation::ReadUncommitted,
            replica: None,
        };
        let answer = asked(|reply| node.fetch(command, now, reply)).await?;
        let slices = answer.partitions.into_iter().next()?.records;
        // The header is enough: the records of a batch were written at about the same time.
        let header = match slices.parts.first()? {
            Slice::Memory(bytes) => batches(bytes).next()?.ok()?.header,
            Slice::File { file, at, .. } => {
                let mut head = [0; riverlog_wire::batch::HEADER_LEN];
                file.read_at(&mut head, *at).ok()?;
                BatchHeader::parse(&head).ok()?
            }
        };
        let time = Some(header.base_timestamp).filter(|ms| *ms >= 0)?;
        let mut known = self.0.lock();
        // Commits move on and leave their times behind.
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, time);
        Some(time)
    }
}
