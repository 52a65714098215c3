//! What OffsetCommit and TxnOffsetCommit have in common.

use std::sync::Arc;

use riverlog_core::groups::{GroupAnswer, TopicPartition};
use riverlog_core::metadata::TopicImage;
use riverlog_wire::ErrorCode;

/// Where an offset of a topic belongs, or that the topic has no such partition.
pub(super) fn place(
    known: &Result<&Arc<TopicImage>, ErrorCode>,
    partition: i32,
) -> Result<TopicPartition, ErrorCode> {
    let topic = known.as_ref().map_err(|code| *code)?;
    match usize::try_from(partition) {
        Ok(index) if index < topic.partitions.len() => Ok(TopicPartition {
            topic: topic.name.clone(),
            id: topic.id,
            partition,
        }),
        _ => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    }
}

/// The code for each of `count` offsets, in their order.
pub(super) fn codes(answer: GroupAnswer, count: usize) -> Vec<ErrorCode> {
    let (error, mut each) = match answer {
        GroupAnswer::Partitions(error, each) => (error, each),
        GroupAnswer::Error(error) => (error, Vec::new()),
        _ => (ErrorCode::UNKNOWN_SERVER_ERROR, Vec::new()),
    };
    if error != ErrorCode::NONE {
        each.clear();
    }
    each.resize(count, error);
    each
}
