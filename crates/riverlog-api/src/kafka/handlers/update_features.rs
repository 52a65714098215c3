//! UpdateFeatures v0–v2 (KIP-584, 1022). All or nothing; from v2 on the answer has no results for single features.

use riverlog_core::metadata::{AdminAnswer, AdminCommand, AdminResult, MetadataImage};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::update_features_request::FeatureUpdateKey;
use riverlog_wire::messages::update_features_response::UpdatableFeatureResult;
use riverlog_wire::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// Upgrade types by their numbers.
const UPGRADE: i8 = 1;
const UNSAFE_DOWNGRADE: i8 = 3;

pub(super) fn handle(context: &Context<'_>, request: UpdateFeaturesRequest, responder: Responder) {
    let version = context.version;
    let image = context.door.node.image();
    let names: Vec<String> = request
        .feature_updates
        .iter()
        .map(|update| update.feature.clone())
        .collect();
    let wrong = request
        .feature_updates
        .iter()
        .find_map(|update| Some((update.feature.clone(), direction(version, &image, update)?)));
    if let Some((feature, message)) = wrong {
        let failed = |name: &String| AdminResult {
            error: ErrorCode::INVALID_UPDATE_VERSION,
            message: Some(if *name == feature {
                message.clone()
            } else {
                format!("nothing was changed, since feature {feature} can't be changed as asked")
            }),
            topic: None,
        };
        let results = names.iter().map(failed).collect();
        return responder.send(&response(version, names, results));
    }
    let command = AdminCommand::UpdateFeatures {
        features: request
            .feature_updates
            .into_iter()
            .map(|update| (update.feature, update.max_version_level))
            .collect(),
        validate_only: version >= 1 && request.validate_only,
    };
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let results = super::results(answer, names.len());
        responder.send(&response(version, names, results));
    });
    context.door.node.admin(command, context.now, reply);
}

/// Why the level can't be meant: down without leave to, or a kind of change that doesn't exist.
fn direction(version: i16, image: &MetadataImage, update: &FeatureUpdateKey) -> Option<String> {
    let may_go_down = if version == 0 {
        update.allow_downgrade
    } else if (UPGRADE..=UNSAFE_DOWNGRADE).contains(&update.upgrade_type) {
        update.upgrade_type != UPGRADE
    } else {
        return Some(format!(
            "upgrade type {} doesn't exist; use 1 (upgrade), 2 (safe downgrade) or 3 (unsafe downgrade)",
            update.upgrade_type
        ));
    };
    let now = image.features.get(&update.feature).copied().unwrap_or(0);
    let level = update.max_version_level;
    (level < now && !may_go_down).then(|| {
        format!(
            "feature {} is at level {now}, and {level} is lower; ask for a downgrade if that is meant",
            update.feature
        )
    })
}

fn response(version: i16, names: Vec<String>, results: Vec<AdminResult>) -> UpdateFeaturesResponse {
    let failed = results.iter().find(|r| r.error != ErrorCode::NONE);
    let (error_code, error_message) = match failed {
        // The older versions tell it feature by feature.
        Some(result) if version >= 2 => (result.error, result.message.clone()),
        _ => (ErrorCode::NONE, None),
    };
    let results = names
        .into_iter()
        .zip(results)
        .map(|(feature, result)| UpdatableFeatureResult {
            feature,
            error_code: result.error,
            error_message: result.message,
        });
    UpdateFeaturesResponse {
        throttle_time_ms: 0,
        error_code,
        error_message,
        results: if version < 2 {
            results.collect()
        } else {
            Vec::new()
        },
    }
}
