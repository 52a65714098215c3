//! DescribeGroups v0–v6 (KIP-345, 430, 1043). A missing group is "Dead" without an error up to v5, and
//! GROUP_ID_NOT_FOUND from v6 on.

use bytes::Bytes;
use riverlog_core::groups::GroupDescription;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use riverlog_wire::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::operations;
use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: DescribeGroupsRequest, responder: Responder) {
    let version = context.version;
    let operations = operations::on_group(version >= 3 && request.include_authorized_operations);
    let mut gather = Gather::new(move |groups| {
        responder.send(&DescribeGroupsResponse {
            throttle_time_ms: 0,
            groups,
        });
    });
    for group in request.groups {
        let name = group.clone();
        let reply = gather.reply(move |answer| describe(version, operations, name, answer));
        context.door.node.describe_group(&group, context.now, reply);
    }
    gather.seal();
}

fn describe(
    version: i16,
    authorized_operations: i32,
    group_id: String,
    answer: Result<Option<GroupDescription>, ErrorCode>,
) -> DescribedGroup {
    let empty = DescribedGroup {
        group_id,
        authorized_operations,
        ..DescribedGroup::default()
    };
    let group = match answer {
        Ok(Some(group)) if group.group_type == "classic" => group,
        Ok(_) => {
            let missing = version >= 6;
            let error_code = if missing {
                ErrorCode::GROUP_ID_NOT_FOUND
            } else {
                ErrorCode::NONE
            };
            let error_message =
                missing.then(|| format!("there is no classic group {:?}", empty.group_id));
            return DescribedGroup {
                group_state: "Dead".to_owned(),
                error_code,
                error_message,
                ..empty
            };
        }
        Err(error_code) => {
            return DescribedGroup {
                error_code,
                ..empty
            };
        }
    };
    // Only a stable group has chosen a protocol that all its members know.
    let stable = group.state == "Stable";
    let members = group
        .members
        .into_iter()
        .map(|member| DescribedGroupMember {
            member_id: member.member,
            group_instance_id: if version >= 4 { member.instance } else { None },
            client_id: member.client_id,
            client_host: member.client_host,
            member_metadata: if stable {
                member.metadata
            } else {
                Bytes::new()
            },
            member_assignment: member.assignment,
        });
    DescribedGroup {
        group_state: group.state.to_owned(),
        protocol_type: group.protocol_type,
        protocol_data: if stable {
            group.protocol
        } else {
            String::new()
        },
        members: members.collect(),
        ..empty
    }
}
