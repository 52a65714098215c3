//! OffsetForLeaderEpoch v2–v4 (KIP-101, 279, 320). An epoch that isn't known gives (−1, −1) without an error.

use riverlog_core::metadata::TopicRef;
use riverlog_wire::ErrorCode;
use riverlog_wire::LeaderEpoch;
use riverlog_wire::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use riverlog_wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use riverlog_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: OffsetForLeaderEpochRequest,
    responder: Responder,
) {
    let topics = request.topics.into_iter().map(|topic| {
        let reference = TopicRef::Name(topic.topic.clone());
        let partitions = topic
            .partitions
            .iter()
            .map(|partition| find(context, &reference, partition))
            .collect();
        OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions,
        }
    });
    responder.send(&OffsetForLeaderEpochResponse {
        throttle_time_ms: 0,
        topics: topics.collect(),
    });
}

fn find(
    context: &Context<'_>,
    topic: &TopicRef,
    asked: &OffsetForLeaderPartition,
) -> EpochEndOffset {
    let node = &context.door.node;
    let found = node
        .partition(topic, asked.partition)
        .and_then(|partition| {
            let current = LeaderEpoch(asked.current_leader_epoch);
            node.epoch_end(&partition, LeaderEpoch(asked.leader_epoch), current)
        });
    let (error_code, leader_epoch, end_offset) = match found {
        Ok((epoch, end)) => (ErrorCode::NONE, epoch.0, end.0),
        Err(error) => (error, -1, -1),
    };
    EpochEndOffset {
        error_code,
        partition: asked.partition,
        leader_epoch,
        end_offset,
    }
}
