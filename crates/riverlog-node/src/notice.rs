//! What an operator should know and no client may be there to be told: the node hands it to its host once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::groups::GroupShard;
use riverlog_core::share::ShareShard;
use riverlog_core::transactions::TransactionShard;
use riverlog_log::{DiskError, LogKey, ReadError};
use riverlog_wire::{Offset, TopicId};

use crate::node::Node;
use crate::partition::Partition;
use crate::shards::{Coordinator, Shard};

/// Damaged ranges that are remembered; more are told and counted only.
const REMEMBERED: usize = 1_000;

/// Something that happened to the node, told when it happens and not again while it lasts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The data folder was damaged, and opened all the same because its operator had accepted the loss.
    LossAccepted {
        /// Which files, and what is wrong with them.
        reason: String,
        /// Partitions of which records are known to be gone.
        lost: Vec<LostRange>,
    },
    /// Records can't be read: the bytes on the disk are not what was written.
    Damaged(Damage),
    /// A read failed, and may work the next time.
    ReadFailed {
        /// Topic's name.
        topic: String,
        /// Its partition.
        partition: i32,
        /// The disk's words.
        error: DiskError,
    },
    /// The log of a partition can't be opened; it is tried again.
    NotOpened {
        /// Topic's name.
        topic: String,
        /// Its partition.
        partition: i32,
        /// Why.
        reason: String,
    },
    /// A log that could not be opened is open now.
    Opened {
        /// Topic's name.
        topic: String,
        /// Its partition.
        partition: i32,
    },
    /// What one partition of an internal topic keeps (groups, say) can't be served; it is tried again.
    CoordinatorUnavailable {
        /// The topic.
        topic: &'static str,
        /// The partition.
        partition: i32,
        /// Why.
        reason: String,
    },
    /// It is served again.
    CoordinatorAvailable {
        /// The topic.
        topic: &'static str,
        /// The partition.
        partition: i32,
    },
    /// A partition can't be compacted, and is set aside; all others are.
    NotCompacted {
        /// Topic's name.
        topic: String,
        /// Its partition.
        partition: i32,
        /// Why.
        reason: String,
    },
    /// Retention deletes records before long that a group hasn't committed.
    GroupNearLoss {
        /// The group.
        group: String,
        /// Topic's name.
        topic: String,
        /// Its partition.
        partition: i32,
        /// What the group has committed.
        committed: Offset,
        /// Where the log will begin then.
        until: Offset,
        /// Until then.
        within: Duration,
    },
    /// Retention has deleted records that a group hadn't committed.
    GroupOvertaken {
        /// The group.
        group: String,
        /// Topic's name.
        topic: String,
        /// Its partition.
        partition: i32,
        /// What the group has committed.
        committed: Offset,
        /// Where the log begins now.
        start: Offset,
    },
    /// A metadata record of the cluster can't be read: this node applies none any more, and must be replaced by a release
    /// that can.
    MetadataUnreadable {
        /// What is wrong with it.
        reason: String,
    },
    /// This node leads a partition by an unclean election: it was neither in sync nor eligible, and what it lacks is lost.
    UncleanLeader {
        /// Topic's name.
        topic: String,
        /// Its partition.
        partition: i32,
        /// Where its copy ends: what was acknowledged from here on is gone.
        end: Offset,
    },
    /// No controller has confirmed this node's session, and too few followers ask: others may lead what it leads. Clients are sent there.
    SteppedAside {
        /// How many partitions.
        partitions: usize,
    },
    /// The controller, or followers, hear this node again: it serves what it leads.
    HeardAgain,
    /// The disk takes what it is given too slowly: in a cluster other nodes lead what this one led, where they can.
    DiskSlow,
    /// It isn't slow any more, takes writes again, and may lead again.
    DiskWell,
    /// The disk has no room: appends are refused until it has.
    DiskFull,
    /// Appends are taken again.
    DiskHasRoom,
    /// A sync failed: nothing becomes durable any more until a restart.
    DiskFailed {
        /// The disk's words.
        error: DiskError,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::LossAccepted { reason, lost } => write!(
                f,
                "acknowledged records may be lost: {reason}; {} partitions are known to have lost some",
                lost.len()
            ),
            Notice::Damaged(damage) => write!(
                f,
                "{}-{} is damaged: offsets {}..{} can't be read ({} in {})",
                damage.topic, damage.partition, damage.from, damage.to, damage.reason, damage.path
            ),
            Notice::ReadFailed {
                topic,
                partition,
                error,
            } => write!(f, "a read of {topic}-{partition} failed: {error}"),
            Notice::NotOpened {
                topic,
                partition,
                reason,
            } => write!(f, "{topic}-{partition} can't be opened: {reason}"),
            Notice::Opened { topic, partition } => {
                write!(f, "{topic}-{partition} is open again")
            }
            Notice::CoordinatorUnavailable {
                topic,
                partition,
                reason,
            } => write!(
                f,
                "what {topic}-{partition} keeps can't be served: {reason}"
            ),
            Notice::CoordinatorAvailable { topic, partition } => {
                write!(f, "what {topic}-{partition} keeps is served again")
            }
            Notice::NotCompacted {
                topic,
                partition,
                reason,
            } => write!(
                f,
                "{topic}-{partition} is not compacted any more, all others are: {reason}; repair it, then restart or change a setting of the topic"
            ),
            Notice::GroupNearLoss {
                group,
                topic,
                partition,
                committed,
                until,
                within,
            } => write!(
                f,
                "group {group:?} is about to lose records of {topic}-{partition}: offsets {committed} to {until} go within {within:?} and are not committed; \
                 raise retention.ms, or let the group read faster (`riverlog group explain` says what holds it)"
            ),
            Notice::GroupOvertaken {
                group,
                topic,
                partition,
                committed,
                start,
            } => write!(
                f,
                "group {group:?} has lost records of {topic}-{partition}: retention deleted offsets {committed} to {start} before they were committed; \
                 its next reader goes on as its auto.offset.reset says"
            ),
            Notice::MetadataUnreadable { reason } => write!(
                f,
                "the cluster's metadata can't be read any more: {reason}; start the release that the other nodes run"
            ),
            Notice::UncleanLeader {
                topic,
                partition,
                end,
            } => write!(
                f,
                "this node leads {topic}-{partition} by an unclean election: it had left the in-sync replicas, and records that were acknowledged at offset {end} or later are lost; \
                 consumers that were beyond go back there"
            ),
            Notice::SteppedAside { partitions } => write!(
                f,
                "neither the controller nor enough followers hear this node, and others may lead its {partitions} partitions by now: \
                 clients are sent to look for them; look at the network between the nodes, and whether a majority of them runs"
            ),
            Notice::HeardAgain => f.write_str("the other nodes hear this one again: it serves what it leads"),
            Notice::DiskSlow => f.write_str(
                "the disk is slow: other nodes lead what this one led, where they are in sync; look at what else uses it, and at its health",
            ),
            Notice::DiskWell => f.write_str("the disk has been well for a while: this node may lead again"),
            Notice::DiskFull => {
                f.write_str("the disk is full: records are refused until there is room")
            }
            Notice::DiskHasRoom => f.write_str("the disk has room again: records are taken"),
            Notice::DiskFailed { error } => write!(
                f,
                "the disk failed: {error}; nothing can be written until a restart"
            ),
        }
    }
}

/// A range of a partition that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Topic's name.
    pub topic: String,
    /// Topic's id.
    pub topic_id: TopicId,
    /// Its partition.
    pub partition: i32,
    /// The file, within the data folder.
    pub path: String,
    /// The first offset that can't be read.
    pub from: Offset,
    /// The first offset behind it that can.
    pub to: Offset,
    /// What is wrong.
    pub reason: String,
}

/// Records that are gone for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Topic's name.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// The first that is gone.
    pub from: Offset,
    /// The first after it that isn't.
    pub to: Offset,
}

/// What was found damaged in this process's life, by place.
#[derive(Debug, Default)]
pub(crate) struct Damages(Mutex<BTreeMap<(LogKey, Offset), Damage>>);

impl Node {
    /// Tells of a read that failed. Which of its callers asked matters to nobody, so each damage is told once.
    pub(crate) fn read_failed(&self, partition: &Arc<Partition>, error: &ReadError) {
        let (topic, index) = (partition.topic.name.clone(), partition.key.partition.0);
        match error {
            ReadError::OffsetOutOfRange { .. } => {}
            ReadError::Disk(error) => {
                self.metrics.read_failures.fetch_add(1, Ordering::Relaxed);
                self.host.notice(Notice::ReadFailed {
                    topic,
                    partition: index,
                    error: error.clone(),
                });
            }
            ReadError::Damaged {
                path,
                from,
                to,
                reason,
            } => {
                let damage = Damage {
                    topic,
                    topic_id: partition.key.topic,
                    partition: index,
                    path: path.clone(),
                    from: *from,
                    to: *to,
                    reason: reason.clone(),
                };
                {
                    let mut known = self.damages.0.lock();
                    let at = (partition.key, *from);
                    if known.contains_key(&at) {
                        return;
                    }
                    if known.len() < REMEMBERED {
                        known.insert(at, damage.clone());
                    }
                }
                self.metrics.damage_found.fetch_add(1, Ordering::Relaxed);
                self.host.notice(Notice::Damaged(damage));
            }
        }
    }

    /// Damaged ranges that were found since the start and could still be asked for, in order of topic id, partition and offset;
    /// at most 1,000. What was deleted since isn't damaged any more.
    pub fn damages(&self) -> Vec<Damage> {
        let mut known = self.damages.0.lock();
        known.retain(|(key, _), damage| {
            self.by_key(*key).is_some_and(|partition| {
                let state = partition.state.lock();
                let start = state.log.as_ref().map(|log| log.log_start_offset());
                start.is_some_and(|start| damage.to > start)
            })
        });
        known.values().cloned().collect()
    }

    /// Partitions of internal topics whose groups (or what else they keep) can't be served, and why: topic, partition, reason; in
    /// order.
    pub fn unavailable_coordinators(&self) -> Vec<(&'static str, i32, String)> {
        let mut all = self.unavailable::<GroupShard>();
        all.extend(self.unavailable::<TransactionShard>());
        all.extend(self.unavailable::<ShareShard>());
        all
    }

    fn unavailable<C: Coordinator>(&self) -> Vec<(&'static str, i32, String)> {
        let Some(shards) = C::shards(self).load_full() else {
            return Vec::new();
        };
        let reason = |shard: &Option<Arc<Shard<C>>>| match shard {
            None => Some("its log can't be opened".to_owned()),
            Some(shard) => shard.state.lock().failed.clone(),
        };
        let each = (0..).zip(&shards.shards);
        each.filter_map(|(index, shard)| Some((C::TOPIC, index, reason(shard)?)))
            .collect()
    }

    /// Tells what is gone since somebody accepted the loss.
    pub(crate) fn tell_accepted_loss(&self) {
        let Some(reason) = self.volume.accepted_loss() else {
            return;
        };
        let lost = self.volume.lost_records().into_iter();
        let lost = lost.map(|(key, range)| {
            let name = |partition: Arc<Partition>| partition.topic.name.clone();
            LostRange {
                topic: self.by_key(key).map_or_else(|| key.topic.to_string(), name),
                partition: key.partition.0,
                from: range.start,
                to: range.end,
            }
        });
        self.host.notice(Notice::LossAccepted {
            reason: reason.to_owned(),
            lost: lost.collect(),
        });
    }
}
