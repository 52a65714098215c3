//! DeleteRecords v0–v2 (KIP-107, 204). −1 means the high watermark; an offset below the start changes nothing.

use riverlog_core::metadata::TopicRef;
use riverlog_wire::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use riverlog_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use riverlog_wire::{ErrorCode, Offset};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: DeleteRecordsRequest, responder: Responder) {
    let shape: Vec<(String, usize)> = request
        .topics
        .iter()
        .map(|t| (t.name.clone(), t.partitions.len()))
        .collect();
    let mut gather = Gather::new(move |answers: Vec<DeleteRecordsPartitionResult>| {
        let mut answers = answers.into_iter();
        let topics = shape
            .into_iter()
            .map(|(name, count)| DeleteRecordsTopicResult {
                name,
                partitions: answers.by_ref().take(count).collect(),
            })
            .collect();
        responder.send(&DeleteRecordsResponse {
            throttle_time_ms: 0,
            topics,
        });
    });
    for topic in request.topics {
        let reference = TopicRef::Name(topic.name);
        for partition in topic.partitions {
            let index = partition.partition_index;
            match context.door.node.partition(&reference, index) {
                Err(error) => gather.ready(result(index, Err(error))),
                Ok(found) => {
                    let reply = gather.reply(move |answer| result(index, answer));
                    context.door.node.delete_records(
                        &found,
                        Offset(partition.offset),
                        context.now,
                        reply,
                    );
                }
            }
        }
    }
    gather.seal();
}

fn result(partition_index: i32, answer: Result<Offset, ErrorCode>) -> DeleteRecordsPartitionResult {
    match answer {
        Ok(start) => DeleteRecordsPartitionResult {
            partition_index,
            low_watermark: start.0,
            error_code: ErrorCode::NONE,
        },
        Err(error_code) => DeleteRecordsPartitionResult {
            partition_index,
            low_watermark: -1,
            error_code,
        },
    }
}
