//! ListConfigResources v0–v1 (KIP-714, 1142). v0 lists client metrics alone, of which there are none.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::list_config_resources_response::ConfigResource;
use riverlog_wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::configs::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: ListConfigResourcesRequest,
    responder: Responder,
) {
    const ALL: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
    let wanted: Vec<i8> = match (context.version, request.resource_types) {
        (0, _) => vec![CLIENT_METRICS],
        (_, asked) if asked.is_empty() => ALL.to_vec(),
        (_, asked) => asked,
    };
    if wanted.iter().any(|kind| !ALL.contains(kind)) {
        return responder.send(&ListConfigResourcesResponse {
            error_code: ErrorCode::UNSUPPORTED_VERSION,
            ..ListConfigResourcesResponse::default()
        });
    }
    let image = context.door.node.image();
    let mut resources = Vec::new();
    // In the order of their numbers, whatever the order of the request, and each once.
    for kind in ALL.into_iter().filter(|kind| wanted.contains(kind)) {
        let mut names: Vec<String> = match kind {
            TOPIC => image.topics.values().map(|t| t.name.clone()).collect(),
            BROKER | BROKER_LOGGER => image.brokers.keys().map(|b| b.0.to_string()).collect(),
            GROUP => image.group_configs.keys().cloned().collect(),
            _ => Vec::new(),
        };
        names.sort();
        resources.extend(names.into_iter().map(|resource_name| ConfigResource {
            resource_name,
            resource_type: kind,
        }));
    }
    responder.send(&ListConfigResourcesResponse {
        config_resources: resources,
        ..ListConfigResourcesResponse::default()
    });
}
