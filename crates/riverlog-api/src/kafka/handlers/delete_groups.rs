//! DeleteGroups v0–v3 (KIP-229; an error's words from v3).

use std::collections::BTreeSet;

use riverlog_core::groups::{GroupAnswer, GroupCommand};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::delete_groups_response::DeletableGroupResult;
use riverlog_wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: DeleteGroupsRequest, responder: Responder) {
    let version = context.version;
    let mut gather = Gather::new(move |results| {
        responder.send(&DeleteGroupsResponse {
            throttle_time_ms: 0,
            results,
        });
    });
    let mut asked = BTreeSet::new();
    for group_id in request.groups_names {
        // One answer for each group, also when it was asked twice.
        if !asked.insert(group_id.clone()) {
            continue;
        }
        let command = GroupCommand::DeleteGroup {
            group: group_id.clone(),
        };
        let reply = gather.reply(move |answer| {
            let error_code = match answer {
                GroupAnswer::Error(code) => code,
                _ => ErrorCode::UNKNOWN_SERVER_ERROR,
            };
            DeletableGroupResult {
                group_id,
                error_code,
                error_message: (version >= 3 && error_code != ErrorCode::NONE)
                    .then(|| error_code.message().to_owned()),
            }
        });
        context.door.node.group(command, context.now, reply);
    }
    gather.seal();
}
