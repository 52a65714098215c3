//! DescribeProducers v0 (KIP-664). Transactions aren't served yet: no producer has one open.

use riverlog_core::metadata::TopicRef;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use riverlog_wire::messages::{DescribeProducersRequest, DescribeProducersResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: DescribeProducersRequest,
    responder: Responder,
) {
    let topics = request.topics.into_iter().map(|topic| {
        let reference = TopicRef::Name(topic.name.clone());
        let partitions = topic
            .partition_indexes
            .iter()
            .map(|index| describe(context, &reference, *index));
        TopicResponse {
            partitions: partitions.collect(),
            name: topic.name,
        }
    });
    responder.send(&DescribeProducersResponse {
        throttle_time_ms: 0,
        topics: topics.collect(),
    });
}

fn describe(context: &Context<'_>, topic: &TopicRef, partition_index: i32) -> PartitionResponse {
    let node = &context.door.node;
    let partition = match node.partition(topic, partition_index) {
        Ok(partition) => partition,
        Err(error_code) => {
            return PartitionResponse {
                partition_index,
                error_code,
                error_message: Some(error_code.message().to_owned()),
                ..PartitionResponse::default()
            };
        }
    };
    let producers = node.describe_producers(&partition).into_iter();
    let producers = producers.map(|producer| ProducerState {
        producer_id: producer.id.0,
        producer_epoch: i32::from(producer.epoch.0),
        last_sequence: producer.last_sequence.0,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.transaction_start.map_or(-1, |offset| offset.0),
    });
    PartitionResponse {
        partition_index,
        error_code: ErrorCode::NONE,
        error_message: None,
        active_producers: producers.collect(),
    }
}
