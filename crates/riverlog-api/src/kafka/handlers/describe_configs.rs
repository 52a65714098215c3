//! DescribeConfigs v1–v4 (KIP-133, 226, 569): topics, brokers, groups.

use riverlog_core::config::Described;
use riverlog_wire::messages::describe_configs_request::DescribeConfigsResource;
use riverlog_wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use riverlog_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use riverlog_wire::{BrokerId, ErrorCode};

use super::configs;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: DescribeConfigsRequest, responder: Responder) {
    let show = Show {
        version: context.version,
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
    };
    let results = request
        .resources
        .into_iter()
        .map(|resource| describe(context, &show, resource))
        .collect();
    responder.send(&DescribeConfigsResponse {
        throttle_time_ms: 0,
        results,
    });
}

/// What the client wants to see.
struct Show {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

fn describe(
    context: &Context<'_>,
    show: &Show,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult {
    let mut result = DescribeConfigsResult {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
        ..DescribeConfigsResult::default()
    };
    match find(context, result.resource_type, &result.resource_name) {
        Ok(all) => {
            let wanted = |d: &Described| {
                resource
                    .configuration_keys
                    .as_ref()
                    .is_none_or(|keys| keys.iter().any(|k| k == d.key.name))
            };
            result.configs = all
                .into_iter()
                .filter(wanted)
                .map(|d| entry(show, d))
                .collect();
        }
        Err((error_code, message)) => {
            result.error_code = error_code;
            result.error_message = Some(message);
        }
    }
    result
}

fn find(
    context: &Context<'_>,
    kind: i8,
    name: &str,
) -> Result<Vec<Described>, (ErrorCode, String)> {
    let door = context.door;
    let invalid = |message: String| (ErrorCode::INVALID_REQUEST, message);
    match kind {
        configs::TOPIC => {
            let image = door.node.image();
            riverlog_core::metadata::check_topic_name(name)
                .map_err(|message| (ErrorCode::INVALID_TOPIC_EXCEPTION, message))?;
            let topic = image.topic(name).ok_or_else(|| {
                (
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    format!("topic {name:?} doesn't exist"),
                )
            })?;
            Ok(crate::configs::of_topic(&door.node, &topic.configs))
        }
        configs::BROKER if name.is_empty() => Ok(crate::configs::of_all_brokers(&door.node)),
        configs::BROKER => {
            let this = door.node.settings().broker;
            match name.parse() {
                Ok(id) if BrokerId(id) == this => Ok(crate::configs::of_broker(&door.node)),
                Ok(id) => Err(invalid(format!(
                    "node {id} can't be described here, this is node {this}; ask it"
                ))),
                Err(_) => Err(invalid(format!("broker id {name:?} isn't a number"))),
            }
        }
        configs::GROUP if name.is_empty() => Err(invalid(
            "a group without a name has no configs; the defaults of all groups are broker configs"
                .to_owned(),
        )),
        configs::GROUP => Ok(crate::configs::of_group(&door.node, name)),
        // Log levels and client metrics have no settings here; Kafka's tools take an empty list.
        configs::BROKER_LOGGER | configs::CLIENT_METRICS => Ok(Vec::new()),
        other => Err(invalid(format!(
            "resources of kind {other} have no configs; use topic, broker or group"
        ))),
    }
}

fn entry(show: &Show, described: Described) -> DescribeConfigsResourceResult {
    let synonyms = described
        .synonyms
        .into_iter()
        .map(|synonym| DescribeConfigsSynonym {
            name: synonym.name.to_owned(),
            value: synonym.value,
            source: synonym.source as i8,
        });
    DescribeConfigsResourceResult {
        name: described.key.name.to_owned(),
        value: described.value,
        read_only: described.read_only,
        config_source: described.source as i8,
        is_sensitive: described.key.sensitive(),
        synonyms: if show.synonyms {
            synonyms.collect()
        } else {
            Vec::new()
        },
        config_type: if show.version >= 3 {
            described.key.kind.number()
        } else {
            0
        },
        documentation: (show.version >= 3 && show.documentation)
            .then(|| described.key.doc.to_owned()),
    }
}
