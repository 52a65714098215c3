//! LeaveGroup v0–v5 (KIP-345, 800).

use riverlog_core::groups::{GroupAnswer, GroupCommand};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::leave_group_request::MemberIdentity;
use riverlog_wire::messages::leave_group_response::MemberResponse;
use riverlog_wire::messages::{LeaveGroupRequest, LeaveGroupResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: LeaveGroupRequest, responder: Responder) {
    // Before v3 one member leaves, and its error is the whole answer.
    let batch = context.version >= 3;
    let members = if batch {
        request.members
    } else {
        vec![MemberIdentity {
            member_id: request.member_id,
            ..MemberIdentity::default()
        }]
    };
    let asked: Vec<_> = members
        .iter()
        .map(|m| {
            (
                m.member_id.clone(),
                m.group_instance_id.clone(),
                m.reason.clone(),
            )
        })
        .collect();
    let reply = Reply::new(move |answer| {
        let (error, each) = match answer {
            GroupAnswer::Leave(error, each) => (error, each),
            GroupAnswer::Error(error) => (error, Vec::new()),
            _ => (ErrorCode::UNKNOWN_SERVER_ERROR, Vec::new()),
        };
        let response = if !batch {
            let first = if error == ErrorCode::NONE {
                each.first().copied().unwrap_or(error)
            } else {
                error
            };
            LeaveGroupResponse {
                error_code: first,
                ..LeaveGroupResponse::default()
            }
        } else {
            let members =
                members
                    .into_iter()
                    .zip(each)
                    .map(|(member, error_code)| MemberResponse {
                        member_id: member.member_id,
                        group_instance_id: member.group_instance_id,
                        error_code,
                    });
            LeaveGroupResponse {
                throttle_time_ms: 0,
                error_code: error,
                members: members.collect(),
            }
        };
        responder.send(&response);
    });
    let command = GroupCommand::Leave {
        group: request.group_id,
        members: asked,
    };
    context.door.node.group(command, context.now, reply);
}
