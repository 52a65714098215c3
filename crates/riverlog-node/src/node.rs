//! The box.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, GroupDescription, TopicPartition,
};
use riverlog_core::metadata::{AdminAnswer, AdminCommand, MetadataImage, TopicRef};
use riverlog_log::{Disk, OpenError};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::command::{
    AppendAnswer, AppendCommand, AppendFailure, FetchAnswer, FetchCommand, Isolation, OffsetAnswer,
    OffsetQuery, PartitionDescription, Reply,
};
use crate::settings::{Entropy, NodeSettings};

/// What a node asks of its host.
pub trait Host: Send + Sync {
    /// [`Node::take_jobs`] has something. Called without locks held, from any thread; must not call the node.
    fn jobs_ready(&self);
    /// [`Node::next_deadline`] came closer. Called without locks held, from any thread; must not call the node.
    fn deadline_changed(&self);
}

/// Why a node can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data folder.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The metadata log.
    #[error("the metadata log can't be read: {reason}; {remedy}")]
    Metadata {
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// Which jobs may hold each other up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The group commit: one thread of its own.
    Flush,
    /// Writes of segments that a caller didn't do itself.
    Write,
    /// Reads from files.
    Read,
    /// Syncs of segments, retention, checkpoints.
    Upkeep,
}

/// Work on the disk, to be run by the host without any lock, and handed back to [`Node::on_job_done`].
#[derive(Debug)]
pub struct Job {
    _private: (),
}

/// What a job did.
#[derive(Debug)]
pub struct JobDone {
    _private: (),
}

impl Job {
    /// Where it runs.
    pub fn lane(&self) -> Lane {
        todo!()
    }
    /// Does it. Blocking.
    pub fn run(self) -> JobDone {
        todo!()
    }
}

/// A partition that is led here; found once, used many times. Stays valid when the topic is deleted (calls then answer
/// UNKNOWN_TOPIC_OR_PARTITION).
#[derive(Clone, Debug)]
pub struct PartitionRef(pub(crate) Arc<()>);

/// One node.
pub struct Node {
    _private: (),
}

impl Node {
    /// Opens the data folder, recovers its logs, reads the metadata log, registers this node (a new leader epoch for all
    /// it leads), loads its coordinators lazily. Does I/O on the calling thread.
    pub fn open(
        disk: Arc<dyn Disk>,
        entropy: Arc<dyn Entropy>,
        host: Arc<dyn Host>,
        settings: NodeSettings,
        now: Now,
    ) -> Result<Arc<Node>, StartError> {
        let _ = (disk, entropy, host, settings, now);
        todo!()
    }
    /// Settings it was opened with.
    pub fn settings(&self) -> &NodeSettings {
        todo!()
    }
    /// Committed metadata.
    pub fn image(&self) -> Arc<MetadataImage> {
        todo!()
    }
    /// A partition that is led here; UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID or NOT_LEADER_OR_FOLLOWER otherwise.
    pub fn partition(&self, topic: &TopicRef, partition: i32) -> Result<PartitionRef, ErrorCode> {
        todo!("{topic:?} {partition}")
    }
    /// Appends a batch. Checks size, timestamps, bounds and epochs; answers by `acks`. The calling thread writes to the page
    /// cache; group commit is a job.
    pub fn append(
        &self,
        partition: &PartitionRef,
        command: AppendCommand,
        now: Now,
        reply: Reply<Result<AppendAnswer, AppendFailure>>,
    ) {
        todo!("{partition:?} {command:?} {now:?} {reply:?}")
    }
    /// Reads, or parks until there is enough to read. Hot data is answered on the calling thread; cold reads are jobs.
    pub fn fetch(&self, command: FetchCommand, now: Now, reply: Reply<FetchAnswer>) {
        todo!("{command:?} {now:?} {reply:?}")
    }
    /// ListOffsets for one partition.
    pub fn offset(
        &self,
        partition: &PartitionRef,
        query: OffsetQuery,
        isolation: Isolation,
        current_leader_epoch: LeaderEpoch,
        reply: Reply<OffsetAnswer>,
    ) {
        todo!("{partition:?} {query:?} {isolation:?} {current_leader_epoch} {reply:?}")
    }
    /// OffsetForLeaderEpoch for one partition: epoch and end offset, (−1, −1) where unknown.
    pub fn epoch_end(
        &self,
        partition: &PartitionRef,
        epoch: LeaderEpoch,
        current_leader_epoch: LeaderEpoch,
    ) -> Result<(LeaderEpoch, Offset), ErrorCode> {
        todo!("{partition:?} {epoch} {current_leader_epoch}")
    }
    /// DeleteRecords for one partition: nothing before `before` (−1: the high watermark) can be read any more; answers the new
    /// log start offset once that is durable.
    pub fn delete_records(
        &self,
        partition: &PartitionRef,
        before: Offset,
        now: Now,
        reply: Reply<Result<Offset, ErrorCode>>,
    ) {
        todo!("{partition:?} {before} {now:?} {reply:?}")
    }
    /// A partition as it is now.
    pub fn describe_partition(&self, partition: &PartitionRef) -> PartitionDescription {
        todo!("{partition:?}")
    }
    /// A fresh producer id with epoch 0 (InitProducerId without a transactional id).
    pub fn init_producer(
        &self,
        now: Now,
        reply: Reply<Result<(ProducerId, ProducerEpoch), ErrorCode>>,
    ) {
        todo!("{now:?} {reply:?}")
    }
    /// A command to a group; loads its shard (and makes `__consumer_offsets`) when needed. While it loads: COORDINATOR_LOAD_IN_PROGRESS.
    pub fn group(&self, command: GroupCommand, now: Now, reply: Reply<GroupAnswer>) {
        todo!("{command:?} {now:?} {reply:?}")
    }
    /// OffsetFetch for one group: durable commits only, in the order asked; `None`: all. An offset that was never committed is `None`.
    pub fn committed(
        &self,
        group: &str,
        partitions: Option<Vec<TopicPartition>>,
        member: Option<(String, i32)>,
        now: Now,
        reply: Reply<Result<Vec<(TopicPartition, Option<CommittedOffset>)>, ErrorCode>>,
    ) {
        todo!("{group} {partitions:?} {member:?} {now:?} {reply:?}")
    }
    /// All groups, in order of name.
    pub fn groups(&self, now: Now, reply: Reply<Result<Vec<GroupDescription>, ErrorCode>>) {
        todo!("{now:?} {reply:?}")
    }
    /// One group; `None` when there is none.
    pub fn describe_group(
        &self,
        group: &str,
        now: Now,
        reply: Reply<Result<Option<GroupDescription>, ErrorCode>>,
    ) {
        todo!("{group} {now:?} {reply:?}")
    }
    /// A command to the controller. Answered once the change is committed and applied here.
    pub fn admin(
        &self,
        command: AdminCommand,
        now: Now,
        reply: Reply<Result<AdminAnswer, ErrorCode>>,
    ) {
        todo!("{command:?} {now:?} {reply:?}")
    }
    /// 128 fresh random bits (for ids that are part of commands).
    pub fn random(&self) -> u128 {
        todo!()
    }
    /// Jobs to run. Jobs of one lane may run side by side, except [`Lane::Flush`].
    pub fn take_jobs(&self) -> Vec<Job> {
        todo!()
    }
    /// Takes a finished job back; completes what waited for it.
    pub fn on_job_done(&self, done: JobDone, now: Now) {
        todo!("{done:?} {now:?}")
    }
    /// Does what time brings: parked answers, sessions, retention, checkpoints. Returns the next deadline on the monotonic clock.
    pub fn tick(&self, now: Now) -> Option<Duration> {
        todo!("{now:?}")
    }
    /// The next deadline on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        todo!()
    }
    /// A clean stop: refuses new commands, answers the parked ones, syncs everything and writes a clean checkpoint. Does I/O on
    /// the calling thread, after the host has run its last jobs.
    pub fn close(&self, now: Now) -> Result<(), OpenError> {
        todo!("{now:?}")
    }
}
