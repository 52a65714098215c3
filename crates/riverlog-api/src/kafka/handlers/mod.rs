//! One file for each API, headed by the versions that it serves and what it leaves out.

mod alter_configs;
mod api_versions;
mod configs;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_configs;
mod describe_groups;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod metadata;
mod offset_commit;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod sync_group;

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::{AdminAnswer, AdminResult, MetadataImage, TopicImage};
use riverlog_wire::messages::{ApiKey, Request};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, TopicId};

use super::responder::{Close, Responder};
use super::session::Context;

/// What a field of authorized operations says when nobody asked.
const NO_OPERATIONS: i32 = i32::MIN;

/// Every API that is served, in one place: what isn't here isn't advertised, and a request for it ends the connection.
macro_rules! served {
    (decoded { $($api:ident => $module:ident,)* } raw { $($raw:ident => $raw_module:ident,)* }) => {
        /// Whether an API is served.
        pub(crate) fn is_served(key: ApiKey) -> bool {
            matches!(key, $(ApiKey::$api)|* $(| ApiKey::$raw)*)
        }
        /// Decodes a request and gives it to its handler.
        pub(crate) fn dispatch(
            key: ApiKey,
            context: &Context<'_>,
            reader: &mut Reader<'_>,
            responder: Responder,
        ) -> Result<(), Close> {
            match key {
                ApiKey::ApiVersions if !key.versions().contains(&context.version) => {
                    api_versions::refuse_version(responder);
                }
                $(ApiKey::$api => $module::handle(context, decode(context, reader)?, responder),)*
                $(ApiKey::$raw => $raw_module::handle(context, reader, responder)?,)*
                other => return Err(Close::new(format!("{} isn't served here", other.name()))),
            }
            Ok(())
        }
    };
}

served! {
    decoded {
        Fetch => fetch,
        ListOffsets => list_offsets,
        Metadata => metadata,
        OffsetCommit => offset_commit,
        OffsetFetch => offset_fetch,
        FindCoordinator => find_coordinator,
        JoinGroup => join_group,
        Heartbeat => heartbeat,
        LeaveGroup => leave_group,
        SyncGroup => sync_group,
        DescribeGroups => describe_groups,
        ListGroups => list_groups,
        ApiVersions => api_versions,
        CreateTopics => create_topics,
        DeleteTopics => delete_topics,
        DeleteRecords => delete_records,
        InitProducerId => init_producer_id,
        OffsetForLeaderEpoch => offset_for_leader_epoch,
        DescribeConfigs => describe_configs,
        AlterConfigs => alter_configs,
        CreatePartitions => create_partitions,
        DeleteGroups => delete_groups,
        IncrementalAlterConfigs => incremental_alter_configs,
    }
    raw {
        Produce => produce,
    }
}

/// Reads a request body; bytes after it are tolerated, as Kafka does.
fn decode<R: Request>(context: &Context<'_>, reader: &mut Reader<'_>) -> Result<R, Close> {
    R::decode(reader, context.version).map_err(|e| {
        let client = context.client_id;
        Close::new(format!(
            "{} v{} of client {client:?} can't be read: {e}",
            R::KEY.name(),
            context.version
        ))
    })
}

/// Milliseconds of a request; below zero counts as zero.
fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A topic by id (from the version on that has ids) or by name.
fn topic_by<'a>(
    image: &'a MetadataImage,
    by_id: bool,
    id: TopicId,
    name: &str,
) -> Result<&'a Arc<TopicImage>, ErrorCode> {
    if by_id {
        image.topics.get(&id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
    } else {
        image
            .topic(name)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }
}

/// The results of a command about `count` things; a command that failed as a whole failed for each of them.
fn results(answer: Result<AdminAnswer, ErrorCode>, count: usize) -> Vec<AdminResult> {
    let error = match answer {
        Ok(AdminAnswer::Results(results)) if results.len() == count => return results,
        Ok(_) => ErrorCode::UNKNOWN_SERVER_ERROR,
        Err(error) => error,
    };
    let failed = AdminResult {
        error,
        message: Some(error.message().to_owned()),
        topic: None,
    };
    vec![failed; count]
}
