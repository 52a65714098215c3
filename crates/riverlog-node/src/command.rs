//! What goes into a node, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::groups::{CommittedOffset, StableOffsets, TopicPartition};
use riverlog_core::metadata::TopicRef;
use riverlog_log::Slices;
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};

use crate::caller::Caller;
use crate::node::PartitionRef;

/// Where an answer goes; completed exactly once, from any thread, without any lock of the node held. Dropped without an
/// answer only when the node itself is dropped, or its [`Caller`] has left.
pub struct Reply<T> {
    send: Option<Box<dyn FnOnce(T) + Send>>,
    caller: Option<Arc<Caller>>,
}

impl<T> Reply<T> {
    /// A reply that calls `f`.
    pub fn new(f: impl FnOnce(T) + Send + 'static) -> Reply<T> {
        Reply {
            send: Some(Box::new(f)),
            caller: None,
        }
    }
    /// The same, of somebody who may leave before.
    #[must_use]
    pub fn of(mut self, caller: &Arc<Caller>) -> Reply<T> {
        self.caller = Some(caller.clone());
        self
    }
    pub(crate) fn caller(&self) -> Option<&Arc<Caller>> {
        self.caller.as_ref()
    }
    /// Completes it.
    pub fn send(mut self, answer: T) {
        if let Some(f) = self.send.take() {
            f(answer);
        }
    }
}

impl<T> std::fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

/// The answer to an OffsetFetch: each partition asked for, with what is committed there.
pub type CommittedAnswer = Result<Vec<(TopicPartition, Option<CommittedOffset>)>, ErrorCode>;

/// The answer to an OffsetFetch that wants stable offsets: UNSTABLE_OFFSET_COMMIT where a transaction may change one.
pub type StableAnswer = Result<StableOffsets, ErrorCode>;

/// Append one batch to one partition.
#[derive(Debug)]
pub struct AppendCommand {
    /// One whole batch of format 2, checked by `riverlog_wire::batch`'s produce check (CRC included).
    pub batch: Vec<u8>,
    /// −1 all in-sync replicas, 1 the leader, 0 nobody.
    pub acks: i16,
    /// How long the answer may take; then REQUEST_TIMED_OUT (the write may have happened).
    pub timeout: Duration,
}

/// One batch of several that are appended together.
#[derive(Debug)]
pub struct AppendTo {
    /// Where it goes.
    pub partition: PartitionRef,
    /// The batch.
    pub command: AppendCommand,
    /// Where its answer goes.
    pub reply: Reply<Result<AppendAnswer, AppendFailure>>,
}

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAnswer {
    /// Offset of the first record; −1 for a duplicate of a batch that lies so far back that its place isn't known any more.
    pub base_offset: Offset,
    /// −1 under CreateTime.
    pub log_append_time_ms: i64,
    /// First readable offset of the partition.
    pub log_start_offset: Offset,
    /// It was stored before.
    pub duplicate: bool,
}

/// Why a batch was not stored (or may have been, for REQUEST_TIMED_OUT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendFailure {
    /// Kafka's code.
    pub error: ErrorCode,
    /// What was found, expected, and what to do.
    pub message: String,
    /// Records that are to blame (index in the batch, why).
    pub records: Vec<(i32, String)>,
    /// For THROTTLING_QUOTA_EXCEEDED of a full bounded partition: when to try again.
    pub retry_after: Option<Duration>,
}

/// What a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Up to the high watermark.
    #[default]
    ReadUncommitted,
    /// Up to the last stable offset.
    ReadCommitted,
}

/// Read from several partitions, waiting for data.
#[derive(Clone, Debug)]
pub struct FetchCommand {
    /// What to read, in the client's order: earlier partitions get their bytes first.
    pub partitions: Vec<FetchPartition>,
    /// How long to wait for `min_bytes`.
    pub max_wait: Duration,
    /// Bytes that are worth an answer.
    pub min_bytes: usize,
    /// Bytes of the whole answer; soft for the first batch (KIP-74).
    pub max_bytes: usize,
    /// What may be seen.
    pub isolation: Isolation,
    /// Set by followers.
    pub replica: Option<BrokerId>,
}

/// Read from one partition.
#[derive(Clone, Debug)]
pub struct FetchPartition {
    /// Topic.
    pub topic: TopicRef,
    /// Partition.
    pub partition: i32,
    /// The first offset wanted.
    pub from: Offset,
    /// Bytes of this partition.
    pub max_bytes: usize,
    /// The leader epoch that the client knows; −1 none (KIP-320).
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record that the client has; −1 none.
    pub last_fetched_epoch: LeaderEpoch,
}

/// The answer to a fetch: one for each partition asked, in order.
#[derive(Debug)]
pub struct FetchAnswer {
    /// In the order asked.
    pub partitions: Vec<FetchedPartition>,
}

/// What was read from one partition.
#[derive(Debug)]
pub struct FetchedPartition {
    /// NONE, or why there is nothing.
    pub error: ErrorCode,
    /// −1 on errors.
    pub high_watermark: Offset,
    /// −1 on errors.
    pub last_stable_offset: Offset,
    /// −1 on errors.
    pub log_start_offset: Offset,
    /// Whole batches.
    pub records: Slices,
    /// Under read committed: producer id and first offset of aborted transactions in the range.
    pub aborted: Vec<(i64, Offset)>,
    /// KIP-595: the client's log has diverged: epoch and its end.
    pub diverging_epoch: Option<(LeaderEpoch, Offset)>,
    /// KIP-392: read it at that node, which is nearer; nothing was read here.
    pub preferred: Option<BrokerId>,
}

/// What ListOffsets asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    /// −2.
    Earliest,
    /// −1.
    Latest,
    /// −3.
    MaxTimestamp,
    /// −4: the earliest that is still on this node's disk.
    EarliestLocal,
    /// −5: the last that is in the object store.
    LatestTiered,
    /// −6: the earliest that waits to be uploaded.
    EarliestPendingUpload,
    /// The first record at or after this time.
    AtTime(i64),
}

/// The answer to ListOffsets; offset and timestamp −1 when there is no such record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// Error.
    pub error: ErrorCode,
    /// Offset.
    pub offset: Offset,
    /// Timestamp.
    pub timestamp: i64,
    /// Epoch of the record at that offset.
    pub leader_epoch: LeaderEpoch,
}

/// A partition as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Topic.
    pub topic: TopicId,
    /// Number.
    pub partition: i32,
    /// Current epoch.
    pub leader_epoch: LeaderEpoch,
    /// First readable offset.
    pub log_start_offset: Offset,
    /// Next offset to be written.
    pub log_end_offset: Offset,
    /// Everything before it is acknowledged.
    pub high_watermark: Offset,
    /// Below it no transaction is open; of a log that nobody has used since the start, the high watermark.
    pub last_stable_offset: Offset,
    /// Bytes of all segments.
    pub size_bytes: u64,
    /// Why it refuses appends, when it does.
    pub failed: Option<String>,
}

/// A copy of a partition on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyDescription {
    /// It leads; else it follows.
    pub leads: bool,
    /// As this node knows it: a follower's high watermark comes a little later than its leader's.
    pub partition: PartitionDescription,
}
