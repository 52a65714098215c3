//! ListGroups v0–v5 (KIP-518, 848). Filters that name no state or type match nothing.

use riverlog_node::Reply;
use riverlog_wire::messages::list_groups_response::ListedGroup;
use riverlog_wire::messages::{ListGroupsRequest, ListGroupsResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: ListGroupsRequest, responder: Responder) {
    let version = context.version;
    let wanted = |filter: &[String], value: &str| {
        filter.is_empty() || filter.iter().any(|f| f.eq_ignore_ascii_case(value))
    };
    let reply = Reply::new(move |answer| {
        let response = match answer {
            Err(error_code) => ListGroupsResponse {
                error_code,
                ..ListGroupsResponse::default()
            },
            Ok(groups) => {
                let groups: Vec<riverlog_core::groups::GroupDescription> = groups;
                let listed = groups
                    .into_iter()
                    .filter(|g| {
                        wanted(&request.states_filter, g.state)
                            && wanted(&request.types_filter, g.group_type)
                    })
                    .map(|g| ListedGroup {
                        group_id: g.group,
                        protocol_type: g.protocol_type,
                        group_state: if version >= 4 {
                            g.state.to_owned()
                        } else {
                            String::new()
                        },
                        group_type: if version >= 5 {
                            g.group_type.to_owned()
                        } else {
                            String::new()
                        },
                    });
                ListGroupsResponse {
                    groups: listed.collect(),
                    ..ListGroupsResponse::default()
                }
            }
        };
        responder.send(&response);
    });
    context.door.node.groups(context.now, reply);
}
