//! Heartbeat v0–v4 (KIP-345).

use riverlog_core::groups::{GroupAnswer, GroupCommand};
use riverlog_node::Reply;
use riverlog_wire::messages::{HeartbeatRequest, HeartbeatResponse};
use riverlog_wire::{ErrorCode, Generation};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: HeartbeatRequest, responder: Responder) {
    let command = GroupCommand::Heartbeat {
        group: request.group_id,
        generation: Generation(request.generation_id),
        member: request.member_id,
        instance: request.group_instance_id,
    };
    let reply = Reply::new(move |answer| {
        let error_code = match answer {
            GroupAnswer::Error(code) => code,
            _ => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        responder.send(&HeartbeatResponse {
            throttle_time_ms: 0,
            error_code,
        });
    });
    context.door.node.group(command, context.now, reply);
}
