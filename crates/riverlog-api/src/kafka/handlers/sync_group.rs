//! SyncGroup v0–v5 (KIP-345, 559).

use bytes::Bytes;
use riverlog_core::groups::{GroupAnswer, GroupCommand, Sync};
use riverlog_node::Reply;
use riverlog_wire::messages::{SyncGroupRequest, SyncGroupResponse};
use riverlog_wire::{ErrorCode, Generation};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: SyncGroupRequest, responder: Responder) {
    let version = context.version;
    if version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        // KIP-559: from here on a member says what it believes to be part of.
        return responder.send(&SyncGroupResponse {
            error_code: ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
            ..SyncGroupResponse::default()
        });
    }
    let sync = Sync {
        group: request.group_id,
        generation: Generation(request.generation_id),
        member: request.member_id,
        instance: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignments: request
            .assignments
            .into_iter()
            .map(|a| (a.member_id, a.assignment))
            .collect(),
    };
    let reply = Reply::new(move |answer| {
        let (error_code, protocol_type, protocol_name, assignment) = match answer {
            GroupAnswer::Sync {
                error,
                protocol_type,
                protocol_name,
                assignment,
            } => (error, protocol_type, protocol_name, assignment),
            GroupAnswer::Error(error) => (error, None, None, Bytes::new()),
            _ => (ErrorCode::UNKNOWN_SERVER_ERROR, None, None, Bytes::new()),
        };
        responder.send(&SyncGroupResponse {
            throttle_time_ms: 0,
            error_code,
            protocol_type: if version >= 5 { protocol_type } else { None },
            protocol_name: if version >= 5 { protocol_name } else { None },
            assignment,
        });
    });
    context
        .door
        .node
        .group(GroupCommand::Sync(sync), context.now, reply);
}
