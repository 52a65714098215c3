//! IncrementalAlterConfigs v0–v1 (KIP-339).

use riverlog_core::metadata::{AdminAnswer, AdminCommand, AdminResult, ConfigChange};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::incremental_alter_configs_request::AlterConfigsResource;
use riverlog_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use riverlog_wire::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alter_configs::named;
use super::configs;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: IncrementalAlterConfigsRequest,
    responder: Responder,
) {
    let asked: Vec<(i8, String)> = request
        .resources
        .iter()
        .map(|r| (r.resource_type, r.resource_name.clone()))
        .collect();
    // An operation that doesn't exist fails its resource; the others go on.
    let mut resources = Vec::new();
    let mut unknown = Vec::new();
    for resource in request.resources {
        match changes(resource) {
            Ok(changes) => {
                unknown.push(None);
                resources.push(changes);
            }
            Err(operation) => unknown.push(Some(operation)),
        }
    }
    let command = AdminCommand::AlterConfigs {
        resources,
        replace: false,
        validate_only: request.validate_only,
    };
    let sent = unknown.iter().filter(|u| u.is_none()).count();
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let mut results = super::results(answer, sent).into_iter();
        let responses =
            asked
                .into_iter()
                .zip(unknown)
                .map(|((resource_type, resource_name), unknown)| {
                    let result = match unknown {
                        None => results.next(),
                        Some(operation) => Some(AdminResult {
                            error: ErrorCode::INVALID_REQUEST,
                            message: Some(format!(
                                "config operation {operation} doesn't exist; use 0 to 3"
                            )),
                            topic: None,
                        }),
                    };
                    let (error_code, error_message) = result
                        .map_or((ErrorCode::UNKNOWN_SERVER_ERROR, None), |r| {
                            (r.error, r.message)
                        });
                    AlterConfigsResourceResponse {
                        error_code,
                        error_message,
                        resource_type,
                        resource_name,
                    }
                });
        let responses = responses.collect();
        responder.send(&IncrementalAlterConfigsResponse {
            throttle_time_ms: 0,
            responses,
        });
    });
    context.door.node.admin(command, context.now, reply);
}

type Changes = (riverlog_core::metadata::ConfigResource, Vec<ConfigChange>);

fn changes(resource: AlterConfigsResource) -> Result<Changes, i8> {
    let changes = resource
        .configs
        .into_iter()
        .map(|c| configs::change(c.config_operation, c.name, c.value).ok_or(c.config_operation))
        .collect::<Result<Vec<_>, i8>>()?;
    Ok((
        named(resource.resource_type, resource.resource_name),
        changes,
    ))
}
