//! DeleteShareGroupOffsets v0 (KIP-932). The group must have no members.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverlog_core::groups::{GroupAnswer, GroupCommand, ShareTopics};
use riverlog_core::share::ShareKey;
use riverlog_node::Reply;
use riverlog_wire::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use riverlog_wire::messages::{DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse};
use riverlog_wire::{ErrorCode, TopicId};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: DeleteShareGroupOffsetsRequest,
    responder: Responder,
) {
    let (node, now) = (&context.door.node, context.now);
    let image = node.image();
    let topics: Vec<(String, Option<TopicId>)> = request
        .topics
        .into_iter()
        .map(|topic| {
            let id = image.topic(&topic.topic_name).map(|known| known.id);
            (topic.topic_name, id)
        })
        .collect();
    let group = request.group_id;
    let of = Arc::downgrade(node);
    let kept = Reply::new({
        let group = group.clone();
        move |kept: Result<ShareTopics, ErrorCode>| {
            let Some(node) = of.upgrade() else { return };
            let kept: BTreeMap<TopicId, Vec<i32>> = match kept {
                Ok(kept) => kept.into_iter().collect(),
                Err(error) => return refuse(responder, error),
            };
            let command = GroupCommand::ShareTopics {
                group: group.clone(),
                add: Vec::new(),
                remove: topics.iter().filter_map(|(_, id)| *id).collect(),
            };
            let reply = Reply::new(move |answer| match answer {
                GroupAnswer::Error(ErrorCode::NONE) => {
                    let Some(node) = of.upgrade() else { return };
                    let mut gather = Gather::new(move |responses| {
                        responder.send(&DeleteShareGroupOffsetsResponse {
                            responses,
                            ..DeleteShareGroupOffsetsResponse::default()
                        });
                    });
                    for (name, id) in topics {
                        let partitions = id.and_then(|id| kept.get(&id));
                        match (id, partitions) {
                            (Some(id), Some(partitions)) => {
                                let done = gather.reply(move |error| result(name, id, error));
                                forget(&node, &group, id, partitions, now, done);
                            }
                            (Some(id), None) => gather.ready(result(name, id, ErrorCode::NONE)),
                            (None, _) => {
                                let error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                                gather.ready(result(name, TopicId::ZERO, error));
                            }
                        }
                    }
                    gather.seal();
                }
                GroupAnswer::Error(error) => refuse(responder, error),
                _ => refuse(responder, ErrorCode::UNKNOWN_SERVER_ERROR),
            });
            node.group(command, now, reply);
        }
    });
    node.share_topics(&group, now, kept);
}

fn forget(
    node: &riverlog_node::Node,
    group: &str,
    topic: TopicId,
    partitions: &[i32],
    now: riverlog_core::Now,
    done: Reply<ErrorCode>,
) {
    let mut gather = Gather::new(move |errors: Vec<ErrorCode>| {
        let failed = errors.into_iter().find(|e| *e != ErrorCode::NONE);
        done.send(failed.unwrap_or(ErrorCode::NONE));
    });
    for partition in partitions {
        let key = ShareKey {
            group: group.to_owned(),
            topic,
            partition: *partition,
        };
        let reply =
            gather.reply(|kept: Result<(), ErrorCode>| kept.err().unwrap_or(ErrorCode::NONE));
        node.share_forget(key, now, reply);
    }
    gather.seal();
}

fn refuse(responder: Responder, error_code: ErrorCode) {
    responder.send(&DeleteShareGroupOffsetsResponse {
        error_code,
        error_message: Some(error_code.message().to_owned()),
        ..DeleteShareGroupOffsetsResponse::default()
    });
}

fn result(
    topic_name: String,
    topic_id: TopicId,
    error_code: ErrorCode,
) -> DeleteShareGroupOffsetsResponseTopic {
    DeleteShareGroupOffsetsResponseTopic {
        topic_name,
        topic_id,
        error_code,
        error_message: (error_code != ErrorCode::NONE).then(|| error_code.message().to_owned()),
    }
}
