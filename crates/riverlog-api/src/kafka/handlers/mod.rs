//! One file for each API, headed by the versions that it serves and what it leaves out.

mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod add_raft_voter;
mod alter_configs;
mod alter_partition_reassignments;
mod alter_replica_log_dirs;
mod alter_share_group_offsets;
mod api_versions;
mod commits;
mod configs;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_acls;
mod create_partitions;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_share_group_offsets;
mod delete_topics;
mod describe_acls;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_share_group_offsets;
mod describe_topic_partitions;
mod describe_transactions;
mod elect_leaders;
mod end_txn;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leaders;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod list_transactions;
mod metadata;
mod named;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod operations;
mod produce;
mod remove_raft_voter;
mod sasl_handshake;
mod share;
mod share_acknowledge;
mod share_fetch;
mod share_group_describe;
mod share_group_heartbeat;
mod streams_group_describe;
mod streams_group_heartbeat;
mod streams_group_topology_description_update;
mod sync_group;
mod transactions;
mod txn_offset_commit;
mod unregister_broker;
mod update_features;
mod voters;
mod write_txn_markers;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::{AdminAnswer, AdminResult, MetadataImage, TopicImage};
use riverlog_node::Isolation;
use riverlog_wire::messages::{ApiKey, Request};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, TopicId};

use self::named::Named;
use super::context::Context;
use super::responder::{Close, Responder};

/// Every API that is served, in one place: what isn't here isn't advertised, and a request for it ends the connection.
macro_rules! served {
    (
        decoded { $($api:ident => $module:ident,)* }
        named { $($by_name:ident => $by_name_module:ident,)* }
        raw { $($raw:ident => $raw_module:ident,)* }
    ) => {
        /// Whether an API is served.
        pub(crate) fn is_served(key: ApiKey) -> bool {
            matches!(key, $(ApiKey::$api)|* $(| ApiKey::$by_name)* $(| ApiKey::$raw)*)
        }
        /// Decodes a request and gives it to its handler.
        pub(crate) fn dispatch(
            key: ApiKey,
            context: &Context<'_>,
            reader: &mut Reader<'_>,
            responder: Responder,
        ) -> Result<(), Close> {
            let served = key.min_version()..=key.max_stable_version();
            if !served.contains(&context.version) {
                if key == ApiKey::ApiVersions {
                    api_versions::refuse_version(responder);
                    return Ok(());
                }
                let close = wrong_version(key, context.version);
                return Err(responder.refuse(close));
            }
            match key {
                $(ApiKey::$api => match decode(context, reader) {
                    Ok(request) => $module::handle(context, request, responder),
                    Err(close) => return Err(responder.refuse(close)),
                },)*
                $(ApiKey::$by_name => match decode_bounded(context, reader) {
                    Ok(request) => $by_name_module::handle(context, request, responder),
                    Err(close) => return Err(responder.refuse(close)),
                },)*
                $(ApiKey::$raw => return $raw_module::handle(context, reader, responder),)*
                other => {
                    let close = Close::new(format!("{} isn't served here", other.name()));
                    return Err(responder.refuse(close));
                }
            }
            Ok(())
        }
    };
}

served! {
    decoded {
        ListOffsets => list_offsets,
        Metadata => metadata,
        FindCoordinator => find_coordinator,
        JoinGroup => join_group,
        Heartbeat => heartbeat,
        LeaveGroup => leave_group,
        SyncGroup => sync_group,
        DescribeGroups => describe_groups,
        ListGroups => list_groups,
        SaslHandshake => sasl_handshake,
        ApiVersions => api_versions,
        CreateTopics => create_topics,
        DeleteTopics => delete_topics,
        InitProducerId => init_producer_id,
        OffsetForLeaderEpoch => offset_for_leader_epoch,
        DescribeAcls => describe_acls,
        CreateAcls => create_acls,
        DeleteAcls => delete_acls,
        AddOffsetsToTxn => add_offsets_to_txn,
        EndTxn => end_txn,
        DescribeConfigs => describe_configs,
        AlterConfigs => alter_configs,
        AlterReplicaLogDirs => alter_replica_log_dirs,
        DescribeLogDirs => describe_log_dirs,
        CreatePartitions => create_partitions,
        DeleteGroups => delete_groups,
        IncrementalAlterConfigs => incremental_alter_configs,
        ListPartitionReassignments => list_partition_reassignments,
        DescribeQuorum => describe_quorum,
        UpdateFeatures => update_features,
        ConsumerGroupHeartbeat => consumer_group_heartbeat,
        ConsumerGroupDescribe => consumer_group_describe,
        DescribeCluster => describe_cluster,
        DescribeProducers => describe_producers,
        UnregisterBroker => unregister_broker,
        ListConfigResources => list_config_resources,
        DescribeTopicPartitions => describe_topic_partitions,
        DescribeTransactions => describe_transactions,
        ListTransactions => list_transactions,
        AddRaftVoter => add_raft_voter,
        RemoveRaftVoter => remove_raft_voter,
        ShareGroupHeartbeat => share_group_heartbeat,
        ShareGroupDescribe => share_group_describe,
        ShareFetch => share_fetch,
        ShareAcknowledge => share_acknowledge,
        DeleteShareGroupOffsets => delete_share_group_offsets,
        StreamsGroupHeartbeat => streams_group_heartbeat,
        StreamsGroupDescribe => streams_group_describe,
        StreamsGroupTopologyDescriptionUpdate => streams_group_topology_description_update,
    }
    named {
        Fetch => fetch,
        OffsetCommit => offset_commit,
        OffsetFetch => offset_fetch,
        DeleteRecords => delete_records,
        AddPartitionsToTxn => add_partitions_to_txn,
        WriteTxnMarkers => write_txn_markers,
        TxnOffsetCommit => txn_offset_commit,
        AlterPartitionReassignments => alter_partition_reassignments,
        ElectLeaders => elect_leaders,
        OffsetDelete => offset_delete,
        DescribeShareGroupOffsets => describe_share_group_offsets,
        AlterShareGroupOffsets => alter_share_group_offsets,
    }
    raw {
        Produce => produce,
    }
}

fn wrong_version(key: ApiKey, version: i16) -> Close {
    let (from, to) = (key.min_version(), key.max_stable_version());
    Close::new(format!(
        "{} v{version} isn't served, v{from} to v{to} are; a client that asks ApiVersions first chooses one of them",
        key.name()
    ))
}

/// Reads a request body; bytes after it are tolerated, as Kafka does.
fn decode<R: Request>(context: &Context<'_>, reader: &mut Reader<'_>) -> Result<R, Close> {
    R::decode(reader, context.version).map_err(|e| unreadable::<R>(context, &e))
}

/// The same, of one that names partitions.
fn decode_bounded<R: Named>(context: &Context<'_>, reader: &mut Reader<'_>) -> Result<R, Close> {
    let request: R = decode(context, reader)?;
    match request.is_bounded() {
        Ok(()) => Ok(request),
        Err(why) => Err(unreadable::<R>(context, &why)),
    }
}

fn unreadable<R: Request>(context: &Context<'_>, why: &dyn Display) -> Close {
    let client = context.client_id;
    Close::new(format!(
        "{} v{} of client {client:?} can't be read: {why}",
        R::KEY.name(),
        context.version
    ))
}

/// Milliseconds of a request; below zero counts as zero.
fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A request's isolation level.
fn isolation(level: i8) -> Isolation {
    if level == 1 {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    }
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
    vec![failed(error); count]
}

fn failed(error: ErrorCode) -> AdminResult {
    AdminResult {
        error,
        message: Some(error.message().to_owned()),
        topic: None,
    }
}

/// The result of something that the answer to its command doesn't mention.
fn lost() -> AdminResult {
    failed(ErrorCode::UNKNOWN_SERVER_ERROR)
}
