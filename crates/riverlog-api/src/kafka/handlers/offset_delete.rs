//! OffsetDelete v0 (KIP-496).

use riverlog_core::groups::{GroupAnswer, GroupCommand, TopicPartition};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use riverlog_wire::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: OffsetDeleteRequest, responder: Responder) {
    let image = context.door.node.image();
    let mut response = OffsetDeleteResponse::default();
    let mut partitions = Vec::new();
    // Where the group's answer for each partition belongs.
    let mut places = Vec::new();
    for (t, topic) in request.topics.into_iter().enumerate() {
        let known = image.topic(&topic.name);
        let count = known.map_or(0, |k| k.partitions.len());
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for (p, partition) in topic.partitions.into_iter().enumerate() {
            let index = partition.partition_index;
            let exists = usize::try_from(index).is_ok_and(|index| index < count);
            let error_code = match known {
                Some(known) if exists => {
                    places.push((t, p));
                    partitions.push(TopicPartition {
                        topic: topic.name.clone(),
                        id: known.id,
                        partition: index,
                    });
                    ErrorCode::NONE
                }
                _ => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            };
            answers.push(OffsetDeleteResponsePartition {
                partition_index: index,
                error_code,
            });
        }
        response.topics.push(OffsetDeleteResponseTopic {
            name: topic.name,
            partitions: answers,
        });
    }
    let reply = Reply::new(move |answer| {
        let (error, each) = match answer {
            GroupAnswer::Partitions(error, each) => (error, each),
            GroupAnswer::Error(error) => (error, Vec::new()),
            _ => (ErrorCode::UNKNOWN_SERVER_ERROR, Vec::new()),
        };
        if error != ErrorCode::NONE {
            return responder.send(&OffsetDeleteResponse {
                error_code: error,
                ..OffsetDeleteResponse::default()
            });
        }
        for ((t, p), code) in places.into_iter().zip(each) {
            let topic = response.topics.get_mut(t);
            if let Some(place) = topic.and_then(|topic| topic.partitions.get_mut(p)) {
                place.error_code = code;
            }
        }
        responder.send(&response);
    });
    let command = GroupCommand::DeleteOffsets {
        group: request.group_id,
        partitions,
    };
    context.door.node.group(command, context.now, reply);
}
