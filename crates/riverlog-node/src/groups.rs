//! The group coordinator, on the shards of `__consumer_offsets`.

pub(crate) mod least;
mod query;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use riverlog_core::Now;
use riverlog_core::groups::{
    AnswerShape, Decision, GroupAnswer, GroupCommand, GroupShard, InTransaction, Soft, Token,
    TopicPartition, partition_for,
};
use riverlog_core::metadata::MetadataImage;
use riverlog_core::transactions::TransactionShard;
use riverlog_log::LogKey;
use riverlog_wire::{BrokerId, ErrorCode, Offset, PartitionIndex, ProducerId, TopicId};

use crate::command::Reply;
use crate::groups::least::Commit;
use crate::node::Node;
use crate::partition::Partition;
use crate::quorum::Quorum;
use crate::shards::{Coordinator, Shard, Shards};
use crate::timers::Timer;

/// The topic that keeps groups and their offsets.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

impl Coordinator for GroupShard {
    type Command = GroupCommand;
    type Answer = GroupAnswer;
    type Soft = Soft;
    type Effect = Infallible;
    type Shape = AnswerShape;

    const TOPIC: &'static str = OFFSETS_TOPIC;
    const SEGMENT_BYTES_KEY: &'static str = "offsets.topic.segment.bytes";
    const LOADS_AT_ONCE: bool = false;

    fn new(node: &Node) -> Self {
        GroupShard::new(node.settings.groups.clone())
    }
    fn shards(node: &Node) -> &ArcSwapOption<Shards<Self>> {
        &node.shards
    }
    fn partitions(node: &Node) -> i32 {
        node.settings.offsets_partitions
    }
    fn timer(index: i32) -> Timer {
        Timer::Shard(index)
    }
    fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, now: Now) {
        GroupShard::apply(self, key, value, at, now);
    }
    fn apply_in_transaction(
        &mut self,
        producer: ProducerId,
        key: &[u8],
        value: Option<&[u8]>,
        at: Offset,
        now: Now,
    ) {
        GroupShard::apply_in_transaction(self, producer, key, value, at, now);
    }
    fn end_transaction(&mut self, producer: ProducerId, committed: bool, at: Offset) {
        GroupShard::end_transaction(self, producer, committed, at);
    }
    fn transaction(command: &GroupCommand) -> Option<InTransaction> {
        match command {
            GroupCommand::TxnCommit { transaction, .. } => Some(*transaction),
            _ => None,
        }
    }
    fn loaded(&mut self, now: Now) {
        GroupShard::loaded(self, now);
    }
    fn decide(
        &self,
        command: GroupCommand,
        token: Token,
        image: &MetadataImage,
        now: Now,
    ) -> Decision {
        GroupShard::decide(self, command, token, image, now)
    }
    fn soft(&mut self, change: Soft, _now: Now) {
        GroupShard::soft(self, change);
    }
    fn decide_timers(&self, image: &MetadataImage, now: Now) -> Decision {
        GroupShard::decide_timers(self, image, now)
    }
    fn decide_topics_changed(&self, image: &MetadataImage, now: Now) -> Decision {
        GroupShard::decide_topics_changed(self, image, now)
    }
    fn next_deadline(&self) -> Option<Duration> {
        GroupShard::next_deadline(self)
    }
    fn hold(&mut self, until: Duration) {
        self.hold_sessions(until);
    }
    fn refuse(shape: AnswerShape, error: ErrorCode) -> GroupAnswer {
        shape.refuse(error, None)
    }
    fn bounded_commits(node: &Node, command: &GroupCommand) -> Vec<TopicPartition> {
        match command {
            GroupCommand::Commit { offsets, .. } if node.has_bounded_topics() => {
                offsets.iter().map(|(at, _)| at.clone()).collect()
            }
            GroupCommand::DeleteOffsets { partitions, .. } if node.has_bounded_topics() => {
                partitions.clone()
            }
            _ => Vec::new(),
        }
    }
    fn commits_of(&self, command: &GroupCommand, image: &MetadataImage) -> Vec<Commit> {
        let (GroupCommand::Commit { group, offsets, .. }
        | GroupCommand::TxnCommit { group, offsets, .. }) = command
        else {
            return Vec::new();
        };
        let each = offsets.iter().filter_map(|(at, committed)| {
            let topic = match at.id {
                TopicId::ZERO => image.topic(&at.topic),
                id => image.topics.get(&id),
            };
            let topic = topic?;
            let (partition, offset) = (at.partition, committed.offset);
            Some(Commit {
                key: LogKey {
                    topic: topic.id,
                    partition: PartitionIndex(partition),
                },
                offset,
                is_lower: self.is_lower(group, (&topic.name, topic.id, partition), offset),
            })
        });
        each.collect()
    }
    fn perform(_node: &Node, _shard: &Arc<Shard<Self>>, effect: Infallible, _now: Now) {
        match effect {}
    }
}

impl Node {
    /// The node that coordinates a group; makes `__consumer_offsets` when there is none. `None` while nobody does.
    pub fn group_coordinator(&self, group: &str, now: Now) -> Option<BrokerId> {
        self.coordinator_node::<GroupShard>(group, now)
    }

    /// The number of the partition of `__consumer_offsets` that keeps a group's offsets, whichever node leads it.
    /// COORDINATOR_LOAD_IN_PROGRESS while the topic is being made.
    pub fn group_place(&self, group: &str, now: Now) -> Result<i32, ErrorCode> {
        self.saw(now);
        let image = self.image();
        let Some(topic) = image.topic(GroupShard::TOPIC) else {
            self.make_coordinator_topic::<GroupShard>(now);
            return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        };
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        Ok(partition_for(group, count))
    }

    /// The node that coordinates a transactional id; makes `__transaction_state` when there is none. `None` while nobody does.
    pub fn transaction_coordinator(&self, id: &str, now: Now) -> Option<BrokerId> {
        self.coordinator_node::<TransactionShard>(id, now)
    }

    pub(crate) fn coordinator_node<C: Coordinator>(
        &self,
        name: &str,
        now: Now,
    ) -> Option<BrokerId> {
        self.saw(now);
        if self.settings.quorum == Quorum::Own {
            return Some(self.settings.broker);
        }
        let image = self.image();
        let Some(topic) = image.topic(C::TOPIC) else {
            self.make_coordinator_topic::<C>(now);
            return None;
        };
        let count = i32::try_from(topic.partitions.len()).ok()?;
        let index = partition_for(name, count);
        let partition = topic.partitions.get(usize::try_from(index).ok()?)?;
        partition
            .leader
            .filter(|_| !self.stands_aside(topic.id, index))
    }

    /// A command to a group.
    pub(crate) fn group_command(&self, command: GroupCommand, now: Now, reply: Reply<GroupAnswer>) {
        if let GroupCommand::DeleteGroup { group } = command {
            return self.delete_group(group, now, reply);
        }
        let shape = AnswerShape::of(&command);
        let group = command.group().to_owned();
        self.coordinate::<GroupShard>(&group, command, shape, now, reply);
    }

    /// The partition of `__consumer_offsets` that keeps a group; makes the topic on first use.
    pub(crate) fn partition_of_group(
        &self,
        group: &str,
        now: Now,
    ) -> Result<Arc<Partition>, ErrorCode> {
        if self.is_closing() {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        let Some(shards) = self.shards.load_full() else {
            self.make_coordinator_topic::<GroupShard>(now);
            return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        };
        let shard = shards.of(group).ok_or_else(|| self.coordinates_not())?;
        Ok(shard.partition.clone())
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

    /// Topics were deleted.
    pub(crate) fn tell_share_state_of_topics(&self, now: Now) {
        let Some(shards) = self.share_shards.load_full() else {
            return;
        };
        for shard in shards.open() {
            self.shard_topics_changed(shard, true, now);
        }
    }

    /// The least offset that all groups with one on the partition have committed; `None` when no group has, or while
    /// some shard isn't loaded (which this starts). Of a node alone; others have to [ask](least).
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
