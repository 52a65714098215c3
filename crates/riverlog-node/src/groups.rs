//! The group coordinator: one shard for each partition of `__consumer_offsets`.
//!
//! A command takes its shard's lock, is decided, appended, applied and perhaps answered; answers wait until what they reveal lies below
//! the high watermark of the shard's partition. A shard is loaded by a job when it is first asked for; until then
//! everything is answered COORDINATOR_LOAD_IN_PROGRESS, never "no offset". When appended records are lost, the shard is dropped,
//! whoever waits is answered NOT_COORDINATOR, and it is loaded anew: nothing is rolled back.

mod load;
mod query;
mod shard;

use std::sync::Arc;

use riverlog_core::Now;
use riverlog_core::groups::{GroupAnswer, GroupCommand, JoinAnswer, partition_for};
use riverlog_core::metadata::{AdminCommand, NewTopic};
use riverlog_wire::{ErrorCode, Generation, Offset, TopicId};

use crate::command::Reply;
use crate::controller::AdminReply;
use crate::node::Node;
use crate::partition::Partition;

pub(crate) use load::{ShardLoad, ShardLoaded, replay};
pub(crate) use shard::Shard;

/// The topic that keeps groups and their offsets.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// All shards. Their number is that of the topic's partitions when it was made or first seen; a group's place depends on it.
pub(crate) struct Shards {
    pub(crate) topic: TopicId,
    /// By partition; `None` where the partition's log can't be opened.
    pub(crate) shards: Vec<Option<Arc<Shard>>>,
}

impl Shards {
    fn of(&self, group: &str) -> Option<&Arc<Shard>> {
        let count = i32::try_from(self.shards.len()).ok()?;
        self.shards
            .get(usize::try_from(partition_for(group, count)).ok()?)?
            .as_ref()
    }

    fn open(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.shards.iter().flatten()
    }
}

impl Node {
    /// A command to a group.
    pub(crate) fn group_command(&self, command: GroupCommand, now: Now, reply: Reply<GroupAnswer>) {
        let shape = Shape::of(&command);
        if self.is_closing() {
            return reply.send(shape.error(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let Some(shards) = self.shards.load_full() else {
            self.make_offsets_topic(now);
            return reply.send(shape.error(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
        };
        match shards.of(group_of(&command)) {
            Some(shard) => self.shard_command(shard, command, shape, now, reply),
            None => reply.send(shape.error(ErrorCode::COORDINATOR_NOT_AVAILABLE)),
        }
    }

    /// Makes `__consumer_offsets` on first use.
    fn make_offsets_topic(&self, now: Now) {
        let configs = [
            ("cleanup.policy", "compact"),
            ("riverlog.durability", "sync"),
            ("compression.type", "producer"),
        ];
        let topic = NewTopic {
            name: OFFSETS_TOPIC.to_owned(),
            partitions: self.settings.offsets_partitions,
            replication_factor: 1,
            configs: configs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned())))
                .collect(),
            id: TopicId(self.entropy.next_u128().to_be_bytes()),
            internal: true,
            ..NewTopic::default()
        };
        let command = AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: false,
        };
        // Asking again while it is being made is answered TOPIC_ALREADY_EXISTS, and harmless.
        self.submit(command, AdminReply::Nobody, now);
    }

    /// The topic's partitions are here: groups can be served.
    pub(crate) fn open_shards(
        &self,
        topic: TopicId,
        partitions: Vec<Option<Arc<Partition>>>,
        now: Now,
    ) {
        // Those that are open stay as they are when a log could only be opened later.
        let before = self.shards.load_full().filter(|s| s.topic == topic);
        let open = |at: usize| before.as_ref()?.shards.get(at)?.clone();
        let each = partitions.into_iter().enumerate();
        let shards = Shards {
            topic,
            shards: each
                .map(|(at, partition)| open(at).or(partition.map(Shard::new)))
                .collect(),
        };
        let shards = Arc::new(shards);
        self.shards.store(Some(shards.clone()));
        for shard in shards.open() {
            // A shard without records needs no job, and is ready when the first group comes.
            let empty = {
                let state = shard.partition.state.lock();
                state
                    .log
                    .as_ref()
                    .is_some_and(|log| log.log_start_offset() == log.log_end_offset())
            };
            if empty {
                self.load_shard(shard, now);
            }
        }
    }

    /// The topic was deleted: all groups are gone.
    pub(crate) fn close_shards(&self, topic: TopicId, now: Now) {
        let Some(shards) = self.shards.load_full() else {
            return;
        };
        if shards.topic == topic {
            self.shards.store(None);
            for shard in shards.open() {
                self.drop_shard(shard, false, now);
            }
        }
    }

    pub(crate) fn shard(&self, index: i32) -> Option<Arc<Shard>> {
        let shards = self.shards.load();
        let shards = shards.as_ref()?;
        shards
            .shards
            .get(usize::try_from(index).ok()?)
            .cloned()
            .flatten()
    }

    /// Topics were made, grown or deleted.
    pub(crate) fn tell_shards_of_topics(&self, deleted: bool, now: Now) {
        let Some(shards) = self.shards.load_full() else {
            return;
        };
        for shard in shards.open() {
            self.shard_topics_changed(shard, deleted, now);
        }
    }

    /// The least offset that all groups with one on the partition have committed; `None` when no group has, or while
    /// some shard isn't loaded (which this starts).
    pub(crate) fn least_committed(&self, partition: &Partition, now: Now) -> Option<Offset> {
        let shards = self.shards.load_full()?;
        let mut least = None;
        let mut all = shards.shards.iter().all(Option::is_some);
        for shard in shards.open() {
            match self.shard_least_committed(shard, partition) {
                Some(committed) => least = committed.into_iter().chain(least).min(),
                None => {
                    self.load_shard(shard, now);
                    all = false;
                }
            }
        }
        least.filter(|_| all)
    }
}

/// The group that a command is about.
fn group_of(command: &GroupCommand) -> &str {
    match command {
        GroupCommand::Join(join) => &join.group,
        GroupCommand::Sync(sync) => &sync.group,
        GroupCommand::ConsumerHeartbeat(heartbeat) => &heartbeat.group,
        GroupCommand::Heartbeat { group, .. }
        | GroupCommand::Leave { group, .. }
        | GroupCommand::Commit { group, .. }
        | GroupCommand::DeleteOffsets { group, .. }
        | GroupCommand::DeleteGroup { group } => group,
    }
}

/// What the answer to a command looks like when it is an error of the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Join(String),
    Sync,
    Error,
    Leave(usize),
    Consumer(String, i32),
    Partitions(usize),
}

impl Shape {
    pub(crate) fn of(command: &GroupCommand) -> Shape {
        match command {
            GroupCommand::Join(join) => Shape::Join(join.member.clone()),
            GroupCommand::Sync(_) => Shape::Sync,
            GroupCommand::Heartbeat { .. } | GroupCommand::DeleteGroup { .. } => Shape::Error,
            GroupCommand::Leave { members, .. } => Shape::Leave(members.len()),
            GroupCommand::ConsumerHeartbeat(h) => Shape::Consumer(h.member.clone(), h.member_epoch),
            GroupCommand::Commit { offsets, .. } => Shape::Partitions(offsets.len()),
            GroupCommand::DeleteOffsets { partitions, .. } => Shape::Partitions(partitions.len()),
        }
    }

    pub(crate) fn error(self, error: ErrorCode) -> GroupAnswer {
        match self {
            Shape::Join(member) => GroupAnswer::Join(JoinAnswer {
                error,
                generation: Generation(-1),
                protocol_type: None,
                protocol_name: None,
                leader: String::new(),
                skip_assignment: false,
                member,
                members: Vec::new(),
            }),
            Shape::Sync => GroupAnswer::Sync {
                error,
                protocol_type: None,
                protocol_name: None,
                assignment: bytes::Bytes::new(),
            },
            Shape::Error => GroupAnswer::Error(error),
            Shape::Leave(count) => GroupAnswer::Leave(error, vec![error; count]),
            Shape::Consumer(member, member_epoch) => {
                GroupAnswer::ConsumerHeartbeat(riverlog_core::groups::ConsumerHeartbeatAnswer {
                    error,
                    message: None,
                    member,
                    member_epoch,
                    heartbeat_interval: std::time::Duration::ZERO,
                    assignment: None,
                })
            }
            Shape::Partitions(count) => GroupAnswer::Partitions(error, vec![error; count]),
        }
    }
}
