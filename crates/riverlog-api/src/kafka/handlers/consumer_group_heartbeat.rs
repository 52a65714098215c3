//! ConsumerGroupHeartbeat v0–v1 (KIP-848, 1082). From v1 on the client draws the member's id.

use riverlog_core::groups::{
    ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand,
};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use riverlog_wire::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::millis;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: ConsumerGroupHeartbeatRequest,
    responder: Responder,
) {
    let owned = request.topic_partitions.map(|topics| {
        let topics = topics.into_iter();
        topics.map(|t| (t.topic_id, t.partitions)).collect()
    });
    let heartbeat = ConsumerHeartbeat {
        group: request.group_id,
        member: request.member_id,
        member_epoch: request.member_epoch,
        instance: request.instance_id,
        rack: request.rack_id,
        // −1: unchanged since the last heartbeat.
        rebalance_timeout: (request.rebalance_timeout_ms != -1)
            .then(|| millis(request.rebalance_timeout_ms)),
        subscribed_topics: request.subscribed_topic_names,
        subscribed_pattern: request.subscribed_topic_regex,
        assignor: request.server_assignor,
        owned,
        client_id: context.client_id.to_owned(),
        client_host: context.client_host(),
        random: context.door.node.random(),
        version: context.version,
    };
    let reply = Reply::new(move |answer| {
        responder.send(&match answer {
            GroupAnswer::ConsumerHeartbeat(answer) => response(answer),
            GroupAnswer::Error(error_code) => failed(error_code),
            _ => failed(ErrorCode::UNKNOWN_SERVER_ERROR),
        });
    });
    let command = GroupCommand::ConsumerHeartbeat(heartbeat);
    context.door.node.group(command, context.now, reply);
}

fn failed(error_code: ErrorCode) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse {
        error_code,
        ..ConsumerGroupHeartbeatResponse::default()
    }
}

fn response(answer: ConsumerHeartbeatAnswer) -> ConsumerGroupHeartbeatResponse {
    if answer.error != ErrorCode::NONE {
        return ConsumerGroupHeartbeatResponse {
            error_message: answer.message,
            ..failed(answer.error)
        };
    }
    let interval = answer.heartbeat_interval.as_millis();
    ConsumerGroupHeartbeatResponse {
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
        ..ConsumerGroupHeartbeatResponse::default()
    }
}
