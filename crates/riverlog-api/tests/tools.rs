//! What the tools that look after a cluster are told by one node.

mod support;

use riverlog_checks::{Client, numbered};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use riverlog_wire::messages::describe_configs_request::DescribeConfigsResource;
use riverlog_wire::messages::describe_log_dirs_request::DescribableLogDirTopic;
use riverlog_wire::messages::describe_producers_request::TopicRequest;
use riverlog_wire::messages::describe_quorum_request::{PartitionData, TopicData};
use riverlog_wire::messages::elect_leaders_request::TopicPartitions;
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::update_features_request::FeatureUpdateKey;
use riverlog_wire::messages::{
    AlterReplicaLogDirsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, DescribeProducersRequest, DescribeQuorumRequest, ElectLeadersRequest,
    ListConfigResourcesRequest, ListPartitionReassignmentsRequest, ProduceRequest,
    UnregisterBrokerRequest, UpdateFeaturesRequest,
};
use support::InMemory;

fn client(broker: &mut InMemory) -> Client<'_> {
    Client::new(broker, "tools".to_owned()).unwrap()
}

fn produce(client: &mut Client<'_>, topic: &str, records: Vec<u8>) {
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(records.into()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let answer = client.ask(9, &request).unwrap();
    let error = answer.responses[0].partition_responses[0].error_code;
    assert_eq!(error, ErrorCode::NONE);
}

#[test]
fn the_cluster_is_this_node_and_controllers_are_asked_for_elsewhere() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    for version in 0..=2 {
        let request = DescribeClusterRequest {
            include_fenced_brokers: version >= 2,
            ..DescribeClusterRequest::default()
        };
        let answer = client.ask(version, &request).unwrap();
        assert_eq!(answer.error_code, ErrorCode::NONE);
        assert_eq!(answer.controller_id, 1);
        assert!(!answer.cluster_id.is_empty());
        let one = &answer.brokers[0];
        let got = (one.broker_id, one.host.as_str(), one.port, one.is_fenced);
        assert_eq!(got, (1, "broker.test", 9092, false));
    }
    for (endpoint_type, error) in [
        (2, ErrorCode::MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode::UNSUPPORTED_ENDPOINT_TYPE),
    ] {
        let request = DescribeClusterRequest {
            endpoint_type,
            ..DescribeClusterRequest::default()
        };
        assert_eq!(client.ask(1, &request).unwrap().error_code, error);
    }
}

#[test]
fn the_quorum_has_one_voter_and_other_topics_have_none() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = |name: &str| TopicData {
        topic_name: name.to_owned(),
        partitions: vec![PartitionData { partition_index: 0 }],
    };
    let request = DescribeQuorumRequest {
        topics: vec![topic("__cluster_metadata"), topic("elsewhere")],
    };
    for version in 0..=2 {
        let answer = client.ask(version, &request).unwrap();
        assert_eq!(answer.error_code, ErrorCode::NONE);
        let quorum = &answer.topics[0].partitions[0];
        assert_eq!((quorum.error_code, quorum.leader_id), (ErrorCode::NONE, 1));
        assert!(quorum.high_watermark > 0 && quorum.leader_epoch > 0);
        let voter = &quorum.current_voters[0];
        assert_eq!(
            (voter.replica_id, voter.log_end_offset),
            (1, quorum.high_watermark)
        );
        let other = &answer.topics[1].partitions[0];
        assert_eq!(other.error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(answer.nodes.len(), usize::from(version >= 2));
    }
}

#[test]
fn the_data_folder_holds_what_was_produced_and_nothing_moves_out_of_it() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(2).unwrap();
    let batch = numbered(0, 3);
    let size = batch.len() as i64;
    produce(&mut client, &topic.name, batch);
    let asked = |name: &str| DescribableLogDirTopic {
        topic: name.to_owned(),
        partitions: vec![0, 1, 9],
    };
    let mut folder = String::new();
    for version in 1..=5 {
        let request = DescribeLogDirsRequest {
            topics: Some(vec![asked(&topic.name), asked("nowhere")]),
        };
        let answer = client.ask(version, &request).unwrap();
        let dir = &answer.results[0];
        assert_eq!(dir.error_code, ErrorCode::NONE);
        folder.clone_from(&dir.log_dir);
        assert_eq!(dir.topics.len(), 1);
        let sizes: Vec<_> = dir.topics[0]
            .partitions
            .iter()
            .map(|p| (p.partition_index, p.partition_size))
            .collect();
        assert_eq!(sizes, [(0, size), (1, 0)]);
    }
    let all = client
        .ask(5, &DescribeLogDirsRequest { topics: None })
        .unwrap();
    assert_eq!(all.results[0].topics.len(), 1);
    assert!(!folder.is_empty());

    for (path, partition, error) in [
        (folder.as_str(), 0, ErrorCode::NONE),
        (folder.as_str(), 9, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
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
        let answer = client.ask(2, &request).unwrap();
        assert_eq!(answer.results[0].partitions[0].error_code, error);
    }
}

#[test]
fn a_partition_that_is_led_needs_no_election() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    for version in 0..=2 {
        let request = ElectLeadersRequest {
            topic_partitions: Some(vec![TopicPartitions {
                topic: topic.name.clone(),
                partitions: vec![0, 9],
            }]),
            ..ElectLeadersRequest::default()
        };
        let answer = client.ask(version, &request).unwrap();
        let codes: Vec<_> = answer.replica_election_results[0]
            .partition_result
            .iter()
            .map(|p| p.error_code)
            .collect();
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        assert_eq!(codes, [ErrorCode::ELECTION_NOT_NEEDED, unknown]);
        let all = ElectLeadersRequest {
            topic_partitions: None,
            ..ElectLeadersRequest::default()
        };
        let answer = client.ask(version, &all).unwrap();
        let of_all = &answer.replica_election_results[0];
        assert!(of_all.partition_result.is_empty());
    }
    let odd = ElectLeadersRequest {
        election_type: 7,
        ..ElectLeadersRequest::default()
    };
    assert_eq!(
        client.ask(2, &odd).unwrap().error_code,
        ErrorCode::INVALID_REQUEST
    );
    let moving = ListPartitionReassignmentsRequest::default();
    assert!(client.ask(0, &moving).unwrap().topics.is_empty());
}

#[test]
fn features_change_by_leave_and_all_together() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let update = |feature: &str, level: i16, upgrade_type: i8| FeatureUpdateKey {
        feature: feature.to_owned(),
        max_version_level: level,
        upgrade_type,
        ..FeatureUpdateKey::default()
    };
    let mut ask = |version: i16, feature_updates: Vec<FeatureUpdateKey>| {
        let request = UpdateFeaturesRequest {
            timeout_ms: 1_000,
            feature_updates,
            validate_only: false,
        };
        client.ask(version, &request).unwrap()
    };
    let down = ask(2, vec![update("group.version", 0, 1)]);
    assert_eq!(down.error_code, ErrorCode::INVALID_UPDATE_VERSION);
    assert!(down.error_message.unwrap().contains("downgrade"));
    let odd = ask(2, vec![update("group.version", 0, 9)]);
    assert_eq!(odd.error_code, ErrorCode::INVALID_UPDATE_VERSION);

    // The older versions answer feature by feature; one that can't be keeps the others from changing.
    let both = ask(
        1,
        vec![update("group.version", 0, 2), update("no.such", 1, 1)],
    );
    let codes: Vec<_> = both.results.iter().map(|r| r.error_code).collect();
    let refused = ErrorCode::INVALID_UPDATE_VERSION;
    assert_eq!(
        (both.error_code, codes),
        (ErrorCode::NONE, vec![refused, refused])
    );
    let fine = ask(2, vec![update("group.version", 0, 2)]);
    assert_eq!(fine.error_code, ErrorCode::NONE);
    let again = ask(2, vec![update("group.version", 1, 1)]);
    assert_eq!(again.error_code, ErrorCode::NONE);
}

#[test]
fn a_running_node_is_not_unregistered_and_a_ghost_is_not_there() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    for (broker_id, error) in [
        (1, ErrorCode::INVALID_REQUEST),
        (77, ErrorCode::BROKER_ID_NOT_REGISTERED),
    ] {
        let answer = client
            .ask(0, &UnregisterBrokerRequest { broker_id })
            .unwrap();
        assert_eq!(answer.error_code, error);
        assert!(answer.error_message.is_some());
    }
}

#[test]
fn resources_with_configs_are_listed_by_kind() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    let mut ask = |version: i16, resource_types: Vec<i8>| {
        let request = ListConfigResourcesRequest { resource_types };
        let answer = client.ask(version, &request).unwrap();
        let named = answer.config_resources.into_iter();
        let named: Vec<_> = named.map(|r| (r.resource_type, r.resource_name)).collect();
        (answer.error_code, named)
    };
    let (topics, broker_1) = ((2, topic.name.clone()), (4, "1".to_owned()));
    let none = ErrorCode::NONE;
    assert_eq!(ask(0, Vec::new()), (none, Vec::new()));
    let all = vec![topics.clone(), broker_1.clone(), (8, "1".to_owned())];
    assert_eq!(ask(1, Vec::new()), (none, all));
    assert_eq!(ask(1, vec![4, 2]), (none, vec![topics, broker_1]));
    assert_eq!(
        ask(1, vec![99]),
        (ErrorCode::UNSUPPORTED_VERSION, Vec::new())
    );
}

#[test]
fn idempotent_producers_of_a_partition_are_shown() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    let mut batch = riverlog_wire::batch::BatchBuilder::new(Default::default());
    batch.producer(40.into(), 2.into(), 0.into());
    for _ in 0..3 {
        batch.push(0, None, Some(b"value"), &[]);
    }
    produce(&mut client, &topic.name, batch.build());
    let request = DescribeProducersRequest {
        topics: vec![TopicRequest {
            name: topic.name,
            partition_indexes: vec![0, 9],
        }],
    };
    let answer = client.ask(0, &request).unwrap();
    let partitions = &answer.topics[0].partitions;
    assert_eq!(partitions[0].error_code, ErrorCode::NONE);
    let producer = &partitions[0].active_producers[0];
    let got = (
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
    );
    assert_eq!(got, (40, 2, 2));
    assert_eq!(producer.current_txn_start_offset, -1);
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(partitions[1].error_code, unknown);
}

#[test]
fn configs_of_nodes_and_groups_are_described_and_others_are_not_here() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let mut ask = |resource_type: i8, name: &str, key: Option<&str>| {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type,
                resource_name: name.to_owned(),
                configuration_keys: key.map(|k| vec![k.to_owned()]),
            }],
            include_synonyms: true,
            include_documentation: true,
        };
        let mut answer = client.ask(4, &request).unwrap();
        answer.results.pop().expect("one resource was asked")
    };
    let node = ask(4, "1", Some("default.replication.factor"));
    // One node can keep one copy: the size of the cluster decides.
    assert_eq!(node.configs[0].value.as_deref(), Some("1"));
    assert!(ask(4, "1", None).configs.len() > 20);
    // Nothing was set for all nodes.
    assert!(ask(4, "", None).configs.is_empty());
    let other = ask(4, "2", None);
    assert_eq!(other.error_code, ErrorCode::INVALID_REQUEST);
    assert!(other.error_message.unwrap().contains("node 2"));
    assert_eq!(ask(4, "one", None).error_code, ErrorCode::INVALID_REQUEST);
    assert!(!ask(32, "group", None).configs.is_empty());
    assert_eq!(ask(32, "", None).error_code, ErrorCode::INVALID_REQUEST);
    assert_eq!(ask(99, "x", None).error_code, ErrorCode::INVALID_REQUEST);
}
