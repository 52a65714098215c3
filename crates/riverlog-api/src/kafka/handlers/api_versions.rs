//! ApiVersions v0–v5 (KIP-35, 511, 584, 1242).

use riverlog_core::metadata::SUPPORTED;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use riverlog_wire::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use super::is_served;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: ApiVersionsRequest, responder: Responder) {
    let image = context.door.node.image();
    let error_code = check(context, &request, &image.cluster_id);
    if error_code != ErrorCode::NONE {
        return responder.send(&ApiVersionsResponse {
            error_code,
            ..ApiVersionsResponse::default()
        });
    }
    // Before v4 clients can't take a feature that may be off (KAFKA-17492): 0 is left out of its range.
    let lowest = if context.version < 4 { 1 } else { 0 };
    let supported = SUPPORTED.iter().filter(|feature| is_there(feature.name));
    let finalized = image.features.iter().filter(|(name, _)| is_there(name));
    responder.send(&ApiVersionsResponse {
        api_keys: served(),
        supported_features: supported
            .map(|feature| SupportedFeatureKey {
                name: feature.name.to_owned(),
                min_version: feature.min.max(lowest),
                max_version: feature.max,
            })
            .collect(),
        finalized_features_epoch: image.position.0,
        finalized_features: finalized
            .map(|(name, level)| FinalizedFeatureKey {
                name: name.clone(),
                max_version_level: *level,
                min_version_level: *level,
            })
            .collect(),
        ..ApiVersionsResponse::default()
    });
}

/// Whether this door serves what a feature stands for. Clients use what they are told of, so nothing else is said.
fn is_there(feature: &str) -> bool {
    match feature {
        "group.version" => is_served(ApiKey::ConsumerGroupHeartbeat),
        "share.version" => is_served(ApiKey::ShareFetch),
        "streams.version" => is_served(ApiKey::StreamsGroupHeartbeat),
        _ => true,
    }
}

/// A version that nobody speaks is answered in version 0, with the range of this API alone: the client picks one and
/// asks again over the same connection.
pub(super) fn refuse_version(responder: Responder) {
    let range = ApiKey::ApiVersions.versions();
    let this = ApiVersion {
        api_key: ApiKey::ApiVersions.number(),
        min_version: *range.start(),
        max_version: *range.end(),
    };
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        api_keys: vec![this],
        ..ApiVersionsResponse::default()
    };
    responder.send_in(0, &response);
}

fn served() -> Vec<ApiVersion> {
    let entry = |key: &ApiKey| ApiVersion {
        api_key: key.number(),
        // librdkafka takes a floor above 0 for "no produce at all" (KAFKA-18659); versions 0–2 end the connection.
        min_version: if *key == ApiKey::Produce {
            0
        } else {
            key.min_version()
        },
        max_version: key.max_stable_version(),
    };
    ApiKey::ALL
        .iter()
        .filter(|key| is_served(**key))
        .map(entry)
        .collect()
}

fn check(context: &Context<'_>, request: &ApiVersionsRequest, cluster_id: &str) -> ErrorCode {
    if context.version >= 3
        && !(is_software(&request.client_software_name)
            && is_software(&request.client_software_version))
    {
        return ErrorCode::INVALID_REQUEST;
    }
    // KIP-1242: a client names both the cluster and the node that it means, or neither.
    match (&request.cluster_id, request.node_id) {
        (None, -1) => ErrorCode::NONE,
        (Some(_), -1) | (None, _) => ErrorCode::INVALID_REQUEST,
        (Some(cluster), node) => {
            let here = cluster == cluster_id && node == context.door.node.settings().broker.0;
            if here {
                ErrorCode::NONE
            } else {
                ErrorCode::REBOOTSTRAP_REQUIRED
            }
        }
    }
}

/// KIP-511: letters, digits, `-` and `.`, with a letter or digit at both ends.
fn is_software(name: &str) -> bool {
    let inner = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    inner && ends(name.bytes().next()) && ends(name.bytes().last())
}
