//! ShareGroupHeartbeat v1 (KIP-932).

use riverlog_core::groups::{ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand, ShareHeartbeat};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use riverlog_wire::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: ShareGroupHeartbeatRequest,
    responder: Responder,
) {
    let heartbeat = ShareHeartbeat {
        group: request.group_id,
        member: request.member_id,
        member_epoch: request.member_epoch,
        rack: request.rack_id,
        subscribed_topics: request.subscribed_topic_names,
        client_id: context.client_id.to_owned(),
        client_host: context.client_host(),
    };
    let reply = Reply::new(move |answer| {
        responder.send(&match answer {
            GroupAnswer::ConsumerHeartbeat(answer) => response(answer),
            GroupAnswer::Error(error_code) => failed(error_code),
            _ => failed(ErrorCode::UNKNOWN_SERVER_ERROR),
        });
    });
    let command = GroupCommand::ShareHeartbeat(heartbeat);
    context.door.node.group(command, context.now, reply);
}

fn failed(error_code: ErrorCode) -> ShareGroupHeartbeatResponse {
    ShareGroupHeartbeatResponse {
        error_code,
        ..ShareGroupHeartbeatResponse::default()
    }
}

fn response(answer: ConsumerHeartbeatAnswer) -> ShareGroupHeartbeatResponse {
    if answer.error != ErrorCode::NONE {
        return ShareGroupHeartbeatResponse {
            error_message: answer.message,
            ..failed(answer.error)
        };
    }
    let interval = answer.heartbeat_interval.as_millis();
    ShareGroupHeartbeatResponse {
        member_id: Some(answer.member),
        member_epoch: answer.member_epoch,
        heartbeat_interval_ms: i32::try_from(interval).unwrap_or(i32::MAX),
        assignment: answer.assignment.map(|topics| Assignment {
            topic_partitions: topics
                .into_iter()
                .map(|(topic_id, partitions)| TopicPartitions {
                    topic_id,
                    partitions,
                })
                .collect(),
        }),
        ..ShareGroupHeartbeatResponse::default()
    }
}
