//! AlterConfigs v0–v2 (KIP-133): what isn't named goes back to its default. IncrementalAlterConfigs has a file of its own.

use riverlog_core::metadata::{AdminAnswer, AdminCommand, ConfigChange, ConfigResource};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::alter_configs_response::AlterConfigsResourceResponse;
use riverlog_wire::messages::{AlterConfigsRequest, AlterConfigsResponse};

use super::configs;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: AlterConfigsRequest, responder: Responder) {
    let asked: Vec<(i8, String)> = request
        .resources
        .iter()
        .map(|r| (r.resource_type, r.resource_name.clone()))
        .collect();
    let resources = request.resources.into_iter().map(|resource| {
        let changes = resource
            .configs
            .into_iter()
            .map(|c| ConfigChange::Set(c.name, c.value))
            .collect();
        (
            named(resource.resource_type, resource.resource_name),
            changes,
        )
    });
    let command = AdminCommand::AlterConfigs {
        resources: resources.collect(),
        replace: true,
        validate_only: request.validate_only,
    };
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let results = super::results(answer, asked.len());
        let responses =
            asked
                .into_iter()
                .zip(results)
                .map(
                    |((resource_type, resource_name), result)| AlterConfigsResourceResponse {
                        error_code: result.error,
                        error_message: result.message,
                        resource_type,
                        resource_name,
                    },
                );
        responder.send(&AlterConfigsResponse {
            throttle_time_ms: 0,
            responses: responses.collect(),
        });
    });
    context.door.node.admin(command, context.now, reply);
}

/// A resource by its kind's number.
pub(super) fn named(kind: i8, name: String) -> ConfigResource {
    match kind {
        configs::TOPIC => ConfigResource::Topic(name),
        configs::BROKER => ConfigResource::Broker(name),
        configs::GROUP => ConfigResource::Group(name),
        other => ConfigResource::Other(other, name),
    }
}
