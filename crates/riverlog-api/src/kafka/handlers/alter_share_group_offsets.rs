//! AlterShareGroupOffsets v0 (KIP-932). The group must have no members.

use std::sync::Arc;

use riverlog_core::groups::{GroupAnswer, GroupCommand};
use riverlog_core::share::ShareKey;
use riverlog_node::Reply;
use riverlog_wire::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use riverlog_wire::messages::{AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse};
use riverlog_wire::{ErrorCode, Offset};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: AlterShareGroupOffsetsRequest,
    responder: Responder,
) {
    let (node, now) = (&context.door.node, context.now);
    let image = node.image();
    let mut add = Vec::new();
    for topic in &request.topics {
        if let Some(known) = image.topic(&topic.topic_name) {
            let count = known.partitions.len();
            let indices = topic.partitions.iter().map(|p| p.partition_index);
            let exist = indices.filter(|p| usize::try_from(*p).is_ok_and(|p| p < count));
            add.extend(exist.map(|p| (known.id, p)));
        }
    }
    let command = GroupCommand::ShareTopics {
        group: request.group_id.clone(),
        add: add.clone(),
        remove: Vec::new(),
    };
    let of = Arc::downgrade(node);
    let reply = Reply::new(move |answer| {
        let Some(node) = of.upgrade() else { return };
        let error_code = match answer {
            GroupAnswer::Error(error) => error,
            _ => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        if error_code != ErrorCode::NONE {
            return responder.send(&AlterShareGroupOffsetsResponse {
                error_code,
                error_message: Some(error_code.message().to_owned()),
                ..AlterShareGroupOffsetsResponse::default()
            });
        }
        let mut response = AlterShareGroupOffsetsResponse::default();
        for topic in &request.topics {
            let known = image.topic(&topic.topic_name);
            response
                .responses
                .push(AlterShareGroupOffsetsResponseTopic {
                    topic_name: topic.topic_name.clone(),
                    topic_id: known.map(|k| k.id).unwrap_or_default(),
                    partitions: Vec::new(),
                });
        }
        let mut gather = Gather::new(
            move |done: Vec<(usize, AlterShareGroupOffsetsResponsePartition)>| {
                for (at, partition) in done {
                    if let Some(topic) = response.responses.get_mut(at) {
                        topic.partitions.push(partition);
                    }
                }
                responder.send(&response);
            },
        );
        for (at, topic) in request.topics.into_iter().enumerate() {
            let id = image.topic(&topic.topic_name).map(|k| k.id);
            for p in topic.partitions {
                let index = p.partition_index;
                let Some(id) = id.filter(|id| add.contains(&(*id, index))) else {
                    let error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                    gather.ready((at, result(index, Err(error))));
                    continue;
                };
                let key = ShareKey {
                    group: request.group_id.clone(),
                    topic: id,
                    partition: index,
                };
                let reply = gather.reply(move |kept| (at, result(index, kept)));
                node.share_begin(key, Offset(p.start_offset), now, reply);
            }
        }
        gather.seal();
    });
    node.group(command, now, reply);
}

fn result(
    partition_index: i32,
    kept: Result<(), ErrorCode>,
) -> AlterShareGroupOffsetsResponsePartition {
    let error_code = kept.err().unwrap_or(ErrorCode::NONE);
    AlterShareGroupOffsetsResponsePartition {
        partition_index,
        error_code,
        error_message: (error_code != ErrorCode::NONE).then(|| error_code.message().to_owned()),
    }
}
