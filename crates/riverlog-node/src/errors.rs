//! Errors of the log, as Kafka's codes. One table a kind, without a `_` arm: a new error must choose its code.

use std::time::Duration;

use riverlog_log::{AppendError, DiskError, ReadError};
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchError;

use crate::command::AppendFailure;

/// When to send a batch again that was refused because too many bytes are under way.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What helps against a full disk.
const FULL_REMEDY: &str =
    "delete topics or records, lower a retention or make room, writing then works by itself";

impl AppendFailure {
    /// A failure of the whole batch.
    pub(crate) fn new(error: ErrorCode, message: impl Into<String>) -> AppendFailure {
        AppendFailure {
            error,
            message: message.into(),
            records: Vec::new(),
            retry_after: None,
        }
    }

    /// The partition's topic is gone.
    pub(crate) fn deleted() -> AppendFailure {
        AppendFailure::new(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            "the topic was deleted; refresh metadata",
        )
    }

    /// Another node leads.
    pub(crate) fn moved() -> AppendFailure {
        AppendFailure::new(
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
            "another node leads the partition now; refresh metadata and send the batch there",
        )
    }

    /// Perhaps another node leads.
    pub(crate) fn unsure() -> AppendFailure {
        AppendFailure::new(
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
            "this node has not heard from enough followers to be sure that it still leads the partition; refresh metadata and send the batch again",
        )
    }

    /// The write was queued, but what it waited for can't come any more.
    pub(crate) fn lost(why: &DiskError) -> AppendFailure {
        let remedy = if why.is_full() {
            FULL_REMEDY
        } else {
            "restart the broker once the disk is well again: it recovers what is on it"
        };
        AppendFailure::new(
            ErrorCode::KAFKA_STORAGE_ERROR,
            format!("the batch was not made durable: {why}; {remedy}"),
        )
    }

    /// Nothing is taken while there is no room.
    pub(crate) fn disk_full() -> AppendFailure {
        AppendFailure::new(
            ErrorCode::KAFKA_STORAGE_ERROR,
            format!("the disk is full; {FULL_REMEDY}"),
        )
    }

    /// The node stops.
    pub(crate) fn stopping() -> AppendFailure {
        AppendFailure::new(
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
            "this node is stopping; refresh metadata and send the batch to the new leader",
        )
    }
}

/// Why the log refused a batch.
pub(crate) fn append_failure(error: &AppendError) -> AppendFailure {
    let code = match error {
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        AppendError::FencedProducer { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        AppendError::FencedCoordinator { .. } => ErrorCode::TRANSACTION_COORDINATOR_FENCED,
        AppendError::TransactionState { .. } => ErrorCode::INVALID_TXN_STATE,
        // Only followers append at offsets of someone else's choice.
        AppendError::Gap { .. } => ErrorCode::UNKNOWN_SERVER_ERROR,
        AppendError::Batch(e) => batch_code(e),
        // An append touches no disk: too much waits for the group commit.
        AppendError::Disk(e) if e.is_full() => {
            return AppendFailure {
                retry_after: Some(RETRY_AFTER),
                ..AppendFailure::new(ErrorCode::THROTTLING_QUOTA_EXCEEDED, error.to_string())
            };
        }
        AppendError::Disk(_) => ErrorCode::KAFKA_STORAGE_ERROR,
    };
    AppendFailure::new(code, error.to_string())
}

/// Bytes that are not a sound batch.
pub(crate) fn batch_code(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::Short { .. } | BatchError::Crc { .. } | BatchError::Compression(_) => {
            ErrorCode::CORRUPT_MESSAGE
        }
        BatchError::Magic(_) | BatchError::Field { .. } | BatchError::Record { .. } => {
            ErrorCode::INVALID_RECORD
        }
    }
}

/// Why nothing was read.
pub(crate) fn read_code(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        ReadError::Damaged { .. } => ErrorCode::CORRUPT_MESSAGE,
        ReadError::Disk(_) => ErrorCode::KAFKA_STORAGE_ERROR,
    }
}
