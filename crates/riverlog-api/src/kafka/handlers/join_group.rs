//! JoinGroup v0–v9 (KIP-62, 345, 394, 559, 800, 814).

use riverlog_core::groups::{GroupAnswer, GroupCommand, Join, JoinAnswer};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::join_group_response::JoinGroupResponseMember;
use riverlog_wire::messages::{JoinGroupRequest, JoinGroupResponse};

use super::millis;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: JoinGroupRequest, responder: Responder) {
    let version = context.version;
    let session_timeout = millis(request.session_timeout_ms);
    let join = Join {
        group: request.group_id,
        member: request.member_id,
        // A static member has a stable name; it needs no handshake for its id.
        require_known_member: version >= 4 && request.group_instance_id.is_none(),
        instance: request.group_instance_id,
        client_id: context.client_id.to_owned(),
        client_host: context.client_host(),
        session_timeout,
        // v0 has one time-out for both.
        rebalance_timeout: if version == 0 {
            session_timeout
        } else {
            millis(request.rebalance_timeout_ms)
        },
        protocol_type: request.protocol_type,
        protocols: request
            .protocols
            .into_iter()
            .map(|p| (p.name, p.metadata))
            .collect(),
        can_skip_assignment: version >= 9,
        random: context.door.node.random(),
    };
    let reply = Reply::new(move |answer| {
        let response = match answer {
            GroupAnswer::Join(join) => response(version, join),
            GroupAnswer::Error(error_code) => failed(version, error_code),
            _ => failed(version, ErrorCode::UNKNOWN_SERVER_ERROR),
        };
        responder.send(&response);
    });
    context
        .door
        .node
        .group(GroupCommand::Join(join), context.now, reply);
}

fn failed(version: i16, error_code: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code,
        generation_id: -1,
        protocol_name: (version < 7).then(String::new),
        ..JoinGroupResponse::default()
    }
}

fn response(version: i16, join: JoinAnswer) -> JoinGroupResponse {
    let members = join
        .members
        .into_iter()
        .map(
            |(member_id, group_instance_id, metadata)| JoinGroupResponseMember {
                member_id,
                group_instance_id: if version >= 5 {
                    group_instance_id
                } else {
                    None
                },
                metadata,
            },
        );
    JoinGroupResponse {
        throttle_time_ms: 0,
        error_code: join.error,
        generation_id: join.generation.0,
        protocol_type: if version >= 7 {
            join.protocol_type
        } else {
            None
        },
        // Null only where the version has a null.
        protocol_name: if version >= 7 {
            join.protocol_name
        } else {
            Some(join.protocol_name.unwrap_or_default())
        },
        leader: join.leader,
        skip_assignment: version >= 9 && join.skip_assignment,
        member_id: join.member,
        members: members.collect(),
    }
}
