//! Coordinators: one shard for each partition of the internal topic that keeps their state.
//!
//! A command takes its shard's lock, is decided, appended, applied and perhaps answered; answers and effects wait until what they
//! reveal lies below the high watermark of the shard's partition. A shard is loaded by a job when it is first asked for (those of
//! transactions at once); until then everything is answered COORDINATOR_LOAD_IN_PROGRESS, never "there is nothing". When appended
//! records are lost, the shard is dropped, whoever waits is answered NOT_COORDINATOR, and it is loaded anew: nothing is rolled back.

mod load;
mod shard;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use riverlog_core::Now;
use riverlog_core::config::BrokerValues;
use riverlog_core::coordinator::{Decision, Token};
use riverlog_core::groups::{InTransaction, TopicPartition, partition_for};
use riverlog_core::metadata::{AdminCommand, MetadataImage, NewTopic};
use riverlog_wire::{ErrorCode, Offset, ProducerId, TopicId};

use crate::controller::AdminReply;
use crate::groups::least::Commit;
use crate::node::Node;
use crate::partition::Partition;
use crate::quorum::Quorum;
use crate::timers::Timer;

pub(crate) use load::{LoadDone, LoadJob, Replayed, replay};
pub(crate) use shard::{Shard, ShardState};

/// What a coordinator decides.
pub(crate) type DecisionOf<C> =
    Decision<<C as Coordinator>::Soft, <C as Coordinator>::Answer, <C as Coordinator>::Effect>;

/// The rules of one kind of coordinator, as far as a node that hosts them must know.
pub(crate) trait Coordinator: Sized + Send + 'static {
    /// Asked from outside, or by the node itself.
    type Command;
    /// Its answer.
    type Answer: Send + 'static;
    /// What a fail-over may forget.
    type Soft;
    /// What the node does once it is durable.
    type Effect: Send;
    /// What the answer to a command looks like when it is an error.
    type Shape: Clone + Send;

    /// The topic that keeps them.
    const TOPIC: &'static str;
    /// The broker key for the size of its segments.
    const SEGMENT_BYTES_KEY: &'static str;
    /// How old records of the topic go.
    const CLEANUP: &'static [(&'static str, &'static str)] = &[("cleanup.policy", "compact")];
    /// Shards are loaded when their partitions are opened, also when nobody asks.
    const LOADS_AT_ONCE: bool;

    fn new(node: &Node) -> Self;
    /// Where a node has its shards.
    fn shards(node: &Node) -> &ArcSwapOption<Shards<Self>>;
    /// Partitions of the topic when it is made.
    fn partitions(node: &Node) -> i32;
    /// The timer of one shard.
    fn timer(index: i32) -> Timer;
    /// How long an answer waits for what it tells to become durable.
    fn patience(node: &Node) -> Duration {
        node.settings.commit_timeout
    }

    fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, now: Now);
    /// A record of a producer's transaction.
    fn apply_in_transaction(
        &mut self,
        _producer: ProducerId,
        key: &[u8],
        value: Option<&[u8]>,
        at: Offset,
        now: Now,
    ) {
        self.apply(key, value, at, now);
    }
    /// The marker that ends a producer's transaction.
    fn end_transaction(&mut self, _producer: ProducerId, _committed: bool, _at: Offset) {}
    /// The transaction that a command's records are part of.
    fn transaction(_command: &Self::Command) -> Option<InTransaction> {
        None
    }
    fn loaded(&mut self, now: Now);
    fn decide(
        &self,
        command: Self::Command,
        token: Token,
        image: &MetadataImage,
        now: Now,
    ) -> DecisionOf<Self>;
    fn soft(&mut self, change: Self::Soft, now: Now);
    fn decide_timers(&self, image: &MetadataImage, now: Now) -> DecisionOf<Self>;
    /// After a load, and when topics were made, grown or deleted.
    fn decide_topics_changed(&self, image: &MetadataImage, now: Now) -> DecisionOf<Self>;
    fn next_deadline(&self) -> Option<Duration>;
    /// Appends lag, or can't be made: nothing runs out before `until`.
    fn hold(&mut self, until: Duration);
    fn refuse(shape: Self::Shape, error: ErrorCode) -> Self::Answer;
    /// What a command commits on bounded topics.
    fn bounded_commits(_node: &Node, _command: &Self::Command) -> Vec<TopicPartition> {
        Vec::new()
    }
    /// What a command commits, in partitions of topics that are known.
    fn commits_of(&self, _command: &Self::Command, _image: &MetadataImage) -> Vec<Commit> {
        Vec::new()
    }
    /// Does an effect; no lock is held.
    fn perform(node: &Node, shard: &Arc<Shard<Self>>, effect: Self::Effect, now: Now);
}

/// All shards of a kind. Their number is that of the topic's partitions when it was made or first seen; a name's place depends on it.
pub(crate) struct Shards<C: Coordinator> {
    pub(crate) topic: TopicId,
    /// By partition; `None` where another node leads, or the partition's log can't be opened.
    pub(crate) shards: Vec<Option<Arc<Shard<C>>>>,
}

impl<C: Coordinator> Shards<C> {
    /// The partition that keeps `name`.
    pub(crate) fn index_of(&self, name: &str) -> i32 {
        partition_for(name, i32::try_from(self.shards.len()).unwrap_or(i32::MAX))
    }

    pub(crate) fn of(&self, name: &str) -> Option<&Arc<Shard<C>>> {
        let index = usize::try_from(self.index_of(name)).ok()?;
        self.shards.get(index)?.as_ref()
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &Arc<Shard<C>>> {
        self.shards.iter().flatten()
    }
}

impl Node {
    /// A command to the shard that keeps `name`; makes the topic on first use.
    pub(crate) fn coordinate<C: Coordinator>(
        &self,
        name: &str,
        command: C::Command,
        shape: C::Shape,
        now: Now,
        reply: crate::command::Reply<C::Answer>,
    ) {
        if self.is_closing() {
            return reply.send(C::refuse(shape, ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let Some(shards) = C::shards(self).load_full() else {
            self.make_coordinator_topic::<C>(now);
            return reply.send(C::refuse(shape, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
        };
        match shards.of(name) {
            Some(shard) => self.shard_command(shard, command, shape, now, reply),
            None => reply.send(C::refuse(shape, self.coordinates_not())),
        }
    }

    /// Makes the topic that keeps a kind of coordinators on first use.
    pub(crate) fn make_coordinator_topic<C: Coordinator>(&self, now: Now) {
        // Small segments are compacted soon, and loaded fast.
        let segment_bytes = BrokerValues(&self.settings.configs)
            .text(C::SEGMENT_BYTES_KEY)
            .unwrap_or("104857600");
        let configs = [
            ("riverlog.durability", "sync"),
            ("compression.type", "producer"),
            ("segment.bytes", segment_bytes),
        ];
        let topic = NewTopic {
            name: C::TOPIC.to_owned(),
            partitions: C::partitions(self),
            replication_factor: match self.settings.quorum {
                Quorum::Own => 1,
                Quorum::Shared => -1,
            },
            configs: C::CLEANUP
                .iter()
                .chain(&configs)
                .map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned())))
                .collect(),
            id: self.new_topic_id(),
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

    /// The topic's partitions are here: its coordinators can be served.
    pub(crate) fn open_shards<C: Coordinator>(
        &self,
        topic: TopicId,
        partitions: Vec<Option<Arc<Partition>>>,
        now: Now,
    ) {
        // Those that are open stay as they are when a log could only be opened later.
        let before = C::shards(self).load_full().filter(|s| s.topic == topic);
        let of_before = |at: usize| before.as_ref()?.shards.get(at)?.clone();
        let mut closed = Vec::new();
        let each = partitions.into_iter().enumerate();
        let shards = Shards {
            topic,
            shards: each
                .map(|(at, partition)| match (of_before(at), partition) {
                    (Some(open), Some(_)) => Some(open),
                    (open, None) => {
                        closed.extend(open);
                        None
                    }
                    (None, Some(partition)) => Some(Shard::<C>::new(partition)),
                })
                .collect(),
        };
        let shards = Arc::new(shards);
        C::shards(self).store(Some(shards.clone()));
        for shard in closed {
            self.drop_shard(&shard, false, now);
        }
        for shard in shards.open() {
            // A shard without records needs no job, and is ready when the first command comes.
            let empty = {
                let state = shard.partition.state.lock();
                state
                    .log
                    .as_ref()
                    .is_some_and(|log| log.log_start_offset() == log.log_end_offset())
            };
            if empty || C::LOADS_AT_ONCE {
                self.load_shard(shard, now);
            }
        }
    }

    /// The topic was deleted, or the node stops: nothing is coordinated any more.
    pub(crate) fn close_shards<C: Coordinator>(&self, topic: Option<TopicId>, now: Now) {
        let Some(shards) = C::shards(self).load_full() else {
            return;
        };
        if topic.is_none_or(|topic| shards.topic == topic) {
            C::shards(self).store(None);
            for shard in shards.open() {
                self.drop_shard(shard, false, now);
            }
        }
    }

    pub(crate) fn shard<C: Coordinator>(&self, index: i32) -> Option<Arc<Shard<C>>> {
        let shards = C::shards(self).load();
        let shards = shards.as_ref()?;
        shards
            .shards
            .get(usize::try_from(index).ok()?)
            .cloned()
            .flatten()
    }
}
