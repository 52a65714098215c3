//! What tools that look after a cluster are told; not in the numbered list, and observed on Kafka 4.4.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use riverlog_wire::messages::create_acls_request::AclCreation;
use riverlog_wire::messages::delete_acls_request::DeleteAclsFilter;
use riverlog_wire::messages::describe_log_dirs_request::DescribableLogDirTopic;
use riverlog_wire::messages::describe_producers_request::TopicRequest;
use riverlog_wire::messages::describe_quorum_request::{PartitionData, TopicData};
use riverlog_wire::messages::elect_leaders_request::TopicPartitions;
use riverlog_wire::messages::update_features_request::FeatureUpdateKey;
use riverlog_wire::messages::{
    AlterReplicaLogDirsRequest, CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest,
    DescribeClusterRequest, DescribeGroupsRequest, DescribeLogDirsRequest,
    DescribeProducersRequest, DescribeQuorumRequest, ElectLeadersRequest,
    ListConfigResourcesRequest, ListPartitionReassignmentsRequest, MetadataRequest,
    UnregisterBrokerRequest, UpdateFeaturesRequest,
};

use super::metadata::named;
use super::{Check, produce};
use crate::client::{Client, Outcome, holds, only, same};
use crate::records::{numbered, of_producer};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "t-1",
        name: "the-cluster-is-described-by-its-brokers",
        run: cluster,
    },
    Check {
        number: "t-2",
        name: "the-quorum-of-the-metadata-log-is-described",
        run: quorum,
    },
    Check {
        number: "t-3",
        name: "data-folders-show-sizes-and-take-only-what-exists",
        run: log_dirs,
    },
    Check {
        number: "t-4",
        name: "a-partition-that-is-led-needs-no-election",
        run: elections,
    },
    Check {
        number: "t-5",
        name: "features-go-down-by-leave-only",
        run: features,
    },
    Check {
        number: "t-6",
        name: "resources-with-configs-are-listed",
        run: resources,
    },
    Check {
        number: "t-7",
        name: "producers-of-a-partition-are-shown",
        run: producers,
    },
    Check {
        number: "t-8",
        name: "a-broker-that-is-not-there-can-not-go",
        run: unregister,
    },
    Check {
        number: "t-9",
        name: "authorized-operations-are-told-when-asked",
        run: operations,
    },
    Check {
        number: "t-10",
        name: "access-rules-without-an-authorizer-are-refused",
        run: access_rules,
    },
];

fn cluster(client: &mut Client<'_>) -> Outcome {
    for version in 0..=2 {
        let answer = client.ask(version, &DescribeClusterRequest::default())?;
        same("error", answer.error_code, ErrorCode::NONE)?;
        holds(!answer.cluster_id.is_empty(), || "no cluster id".to_owned())?;
        let ids: Vec<i32> = answer.brokers.iter().map(|b| b.broker_id).collect();
        holds(ids.contains(&answer.controller_id), || {
            format!("the controller is {}, of {ids:?}", answer.controller_id)
        })?;
        let operations = answer.cluster_authorized_operations;
        same("operations nobody asked for", operations, i32::MIN)?;
    }
    for (endpoint_type, error) in [
        (2, ErrorCode::MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode::UNSUPPORTED_ENDPOINT_TYPE),
    ] {
        let request = DescribeClusterRequest {
            endpoint_type,
            ..DescribeClusterRequest::default()
        };
        let answer = client.ask(1, &request)?;
        same("another endpoint type", answer.error_code, error)?;
    }
    Ok(())
}

fn quorum(client: &mut Client<'_>) -> Outcome {
    let request = DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: "__cluster_metadata".to_owned(),
            partitions: vec![PartitionData { partition_index: 0 }],
        }],
    };
    for version in 0..=2 {
        let answer = client.ask(version, &request)?;
        same("error", answer.error_code, ErrorCode::NONE)?;
        let topic = only("topics", answer.topics)?;
        let quorum = only("partitions", topic.partitions)?;
        same("error", quorum.error_code, ErrorCode::NONE)?;
        let voters: Vec<i32> = quorum.current_voters.iter().map(|v| v.replica_id).collect();
        holds(voters.contains(&quorum.leader_id), || {
            format!("the leader is {}, of {voters:?}", quorum.leader_id)
        })?;
        let listed = !answer.nodes.is_empty();
        same("nodes are listed", listed, version >= 2)?;
    }
    Ok(())
}

fn log_dirs(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let batch = numbered(client.broker().wall_ms(), 3);
    let size = batch.len() as i64;
    produce::stored(client, 12, &topic, batch)?;
    let mut folder = String::new();
    for version in 1..=5 {
        let asked = |name: &str| DescribableLogDirTopic {
            topic: name.to_owned(),
            partitions: vec![0, 9],
        };
        let request = DescribeLogDirsRequest {
            topics: Some(vec![asked(&topic.name), asked("nowhere")]),
        };
        let answer = client.ask(version, &request)?;
        same("error", answer.error_code, ErrorCode::NONE)?;
        let dir = only("folders", answer.results)?;
        folder = dir.log_dir;
        let found = only("topics", dir.topics)?;
        let partition = only("partitions", found.partitions)?;
        same("the size", partition.partition_size, size)?;
        let got = (partition.offset_lag, partition.is_future_key);
        same("lag, and whether it is to come", got, (0, false))?;
    }
    for (path, partition, error) in [
        (folder.as_str(), 0, ErrorCode::NONE),
        ("/elsewhere", 0, ErrorCode::LOG_DIR_NOT_FOUND),
    ] {
        let request = AlterReplicaLogDirsRequest {
            dirs: vec![AlterReplicaLogDir {
                path: path.to_owned(),
                topics: vec![AlterReplicaLogDirTopic {
                    name: topic.name.clone(),
                    partitions: vec![partition],
                }],
            }],
        };
        let answer = only("topics", client.ask(2, &request)?.results)?;
        let answer = only("partitions", answer.partitions)?;
        same(&format!("into {path}"), answer.error_code, error)?;
    }
    Ok(())
}

fn elections(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    for version in 0..=2 {
        let request = ElectLeadersRequest {
            topic_partitions: Some(vec![TopicPartitions {
                topic: topic.name.clone(),
                partitions: vec![0, 9],
            }]),
            timeout_ms: 5_000,
            ..ElectLeadersRequest::default()
        };
        let answer = client.ask(version, &request)?;
        same("error", answer.error_code, ErrorCode::NONE)?;
        let result = only("topics", answer.replica_election_results)?;
        let mut codes: Vec<_> = result
            .partition_result
            .iter()
            .map(|p| (p.partition_id, p.error_code))
            .collect();
        codes.sort_unstable();
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        let expected = vec![(0, ErrorCode::ELECTION_NOT_NEEDED), (9, unknown)];
        same("results", codes, expected)?;
        let all = ElectLeadersRequest {
            topic_partitions: None,
            timeout_ms: 5_000,
            ..ElectLeadersRequest::default()
        };
        let answer = client.ask(version, &all)?;
        let of_all = answer.replica_election_results;
        let mine = of_all.iter().find(|r| r.topic == topic.name);
        same("of all", mine.map(|m| m.partition_result.len()), Some(0))?;
    }
    let answer = client.ask(0, &ListPartitionReassignmentsRequest::default())?;
    let got = (answer.error_code, answer.topics.len());
    same("replicas on the move", got, (ErrorCode::NONE, 0))
}

fn features(client: &mut Client<'_>) -> Outcome {
    let request = |feature: &str, level: i16, upgrade_type: i8| UpdateFeaturesRequest {
        timeout_ms: 5_000,
        feature_updates: vec![FeatureUpdateKey {
            feature: feature.to_owned(),
            max_version_level: level,
            upgrade_type,
            ..FeatureUpdateKey::default()
        }],
        validate_only: true,
    };
    let refused = ErrorCode::INVALID_UPDATE_VERSION;
    let down = client.ask(2, &request("metadata.version", 7, 1))?;
    same("down without leave", down.error_code, refused)?;
    let unknown = client.ask(2, &request("no.such.feature", 1, 1))?;
    same("an unknown feature", unknown.error_code, refused)
}

fn resources(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let mut ask = |version: i16, resource_types: Vec<i8>| {
        let request = ListConfigResourcesRequest { resource_types };
        let answer = client.ask(version, &request)?;
        let named = answer.config_resources.into_iter();
        let named: Vec<_> = named.map(|r| (r.resource_type, r.resource_name)).collect();
        Outcome::Ok((answer.error_code, named))
    };
    same(
        "client metrics",
        ask(0, Vec::new())?,
        (ErrorCode::NONE, Vec::new()),
    )?;
    let (error, all) = ask(1, Vec::new())?;
    same("error", error, ErrorCode::NONE)?;
    let mine = (2, topic.name);
    holds(all.contains(&mine), || format!("{mine:?} isn't among all"))?;
    let brokers = all.iter().filter(|(kind, _)| *kind == 4).count();
    let loggers = all.iter().filter(|(kind, _)| *kind == 8).count();
    same("brokers and their loggers", brokers, loggers)?;
    let (error, topics) = ask(1, vec![2])?;
    same("error", error, ErrorCode::NONE)?;
    holds(topics.iter().all(|(kind, _)| *kind == 2), || {
        format!("more than topics: {topics:?}")
    })?;
    let unknown = ErrorCode::UNSUPPORTED_VERSION;
    same("an unknown kind", ask(1, vec![99])?, (unknown, Vec::new()))
}

fn producers(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let id = client.producer()?;
    let now = client.broker().wall_ms();
    produce::stored(client, 12, &topic, of_producer(now, id, 0, 4))?;
    let request = DescribeProducersRequest {
        topics: vec![TopicRequest {
            name: topic.name,
            partition_indexes: vec![0, 9],
        }],
    };
    let answer = only("topics", client.ask(0, &request)?.topics)?;
    for partition in answer.partitions {
        if partition.partition_index == 9 {
            let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            same("partition 9 of 1", partition.error_code, unknown)?;
            continue;
        }
        same("error", partition.error_code, ErrorCode::NONE)?;
        let producer = only("producers", partition.active_producers)?;
        let got = (producer.producer_id, producer.producer_epoch);
        same("the producer", got, (id, 0))?;
        same("its sequence", producer.last_sequence, 4)?;
        let open = producer.current_txn_start_offset;
        same("its transaction", open, -1)?;
    }
    Ok(())
}

fn unregister(client: &mut Client<'_>) -> Outcome {
    let request = UnregisterBrokerRequest { broker_id: 7_777 };
    let answer = client.ask(0, &request)?;
    let unknown = ErrorCode::BROKER_ID_NOT_REGISTERED;
    same("error", answer.error_code, unknown)
}

/// What everybody may do where there are no access rules, as bit fields.
const ON_TOPIC: i32 = 3576;
const ON_GROUP: i32 = 3400;
const ON_CLUSTER: i32 = 8096;

fn operations(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let ghost = client.name();
    for version in 8..=13 {
        let request = MetadataRequest {
            topics: Some(vec![named(&topic.name), named(&ghost)]),
            allow_auto_topic_creation: false,
            include_topic_authorized_operations: true,
            include_cluster_authorized_operations: version <= 10,
        };
        let answer = client.ask(version, &request)?;
        let cluster = if version <= 10 { ON_CLUSTER } else { i32::MIN };
        let what = format!("on the cluster, v{version}");
        same(&what, answer.cluster_authorized_operations, cluster)?;
        for of in answer.topics {
            let what = format!("on {:?}, v{version}", of.name);
            same(&what, of.topic_authorized_operations, ON_TOPIC)?;
        }
    }
    let request = DescribeClusterRequest {
        include_cluster_authorized_operations: true,
        ..DescribeClusterRequest::default()
    };
    let answer = client.ask(1, &request)?;
    same(
        "on the cluster",
        answer.cluster_authorized_operations,
        ON_CLUSTER,
    )?;
    let request = DescribeGroupsRequest {
        groups: vec![client.group()?],
        include_authorized_operations: true,
    };
    for version in 3..=5 {
        let group = only("groups", client.ask(version, &request)?.groups)?;
        same("on a group", group.authorized_operations, ON_GROUP)?;
    }
    Ok(())
}

fn access_rules(client: &mut Client<'_>) -> Outcome {
    let disabled = ErrorCode::SECURITY_DISABLED;
    // Any resource, any pattern, any operation, any permission.
    let describe = DescribeAclsRequest {
        resource_type_filter: 1,
        pattern_type_filter: 1,
        operation: 1,
        permission_type: 1,
        ..DescribeAclsRequest::default()
    };
    let answer = client.ask(3, &describe)?;
    same("describing", answer.error_code, disabled)?;
    let create = CreateAclsRequest {
        creations: vec![AclCreation {
            resource_type: 2,
            resource_name: "t".to_owned(),
            resource_pattern_type: 3,
            principal: "User:a".to_owned(),
            host: "*".to_owned(),
            operation: 3,
            permission_type: 3,
        }],
    };
    let answer = only("rules made", client.ask(3, &create)?.results)?;
    same("making one", answer.error_code, disabled)?;
    let delete = DeleteAclsRequest {
        filters: vec![DeleteAclsFilter {
            resource_type_filter: 1,
            pattern_type_filter: 1,
            operation: 1,
            permission_type: 1,
            ..DeleteAclsFilter::default()
        }],
    };
    let answer = only("filters", client.ask(3, &delete)?.filter_results)?;
    same("deleting", answer.error_code, disabled)
}
