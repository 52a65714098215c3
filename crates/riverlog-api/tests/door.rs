//! Stories of the door that are not in the table of checks: what is ours alone, what Kafka does differently, and how a connection
//! behaves.

mod support;

use std::time::Duration;

use bytes::Bytes;
use riverlog_api::kafka::KafkaSettings;
use riverlog_checks::{Client, Connection as _, Received, Topic, numbered};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::frame::encode_request;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::produce_response::PartitionProduceResponse;
use riverlog_wire::messages::{
    ApiVersionsRequest, FetchRequest, FindCoordinatorRequest, InitProducerIdRequest,
    MetadataRequest, OffsetCommitRequest, ProduceRequest, ProduceResponse, Request,
};
use riverlog_wire::{ErrorCode, TopicId};
use support::InMemory;

fn client(broker: &mut InMemory) -> Client<'_> {
    Client::new(broker, "door".to_owned()).unwrap()
}

fn produce(topic: &str, acks: i16, records: Option<Vec<u8>>) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: records.map(Bytes::from),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

fn first(answer: ProduceResponse) -> PartitionProduceResponse {
    let mut partitions = answer
        .responses
        .into_iter()
        .flat_map(|t| t.partition_responses);
    partitions.next().expect("one partition was asked")
}

fn fetch(topics: &[&Topic]) -> FetchRequest {
    let topics = topics.iter().map(|topic| FetchTopic {
        topic: topic.name.clone(),
        partitions: vec![FetchPartition {
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        }],
        ..FetchTopic::default()
    });
    FetchRequest {
        topics: topics.collect(),
        ..FetchRequest::default()
    }
}

fn encoded<R: Request>(version: i16, correlation: i32, request: &R) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(&mut bytes, version, correlation, Some("door"), request).unwrap();
    bytes
}

/// The correlation id of a response.
fn correlation(received: Received) -> i32 {
    match received {
        Received::Frame(frame) => i32::from_be_bytes(frame[..4].try_into().unwrap()),
        other => panic!("{other:?}"),
    }
}

// Transactions.

#[test]
fn a_transactional_batch_names_its_transaction() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    let mut batch = BatchBuilder::new(Compression::None);
    let (id, epoch, sequence) = (7.into(), 0.into(), 0.into());
    batch.producer(id, epoch, sequence).transactional();
    batch.push(0, None, Some(b"value"), &[]);
    let request = produce(&topic.name, -1, Some(batch.build()));
    let answer = first(client.ask(12, &request).unwrap());
    assert_eq!(answer.error_code, ErrorCode::INVALID_TXN_STATE);
    assert!(answer.error_message.unwrap().contains("transactional id"));
    // A plain batch of a transactional producer is none of its transaction's.
    let mut request = produce(&topic.name, -1, Some(numbered(0, 1)));
    request.transactional_id = Some("tx".to_owned());
    let answer = first(client.ask(12, &request).unwrap());
    assert_eq!(answer.error_code, ErrorCode::NONE);
}

#[test]
fn half_a_producer_is_refused() {
    let mut broker = InMemory::new();
    let request = InitProducerIdRequest {
        transactional_id: None,
        producer_id: 5,
        ..InitProducerIdRequest::default()
    };
    let answer = client(&mut broker).ask(4, &request).unwrap();
    assert_eq!(answer.error_code, ErrorCode::INVALID_REQUEST);
    assert_eq!((answer.producer_id, answer.producer_epoch), (-1, -1));
}

// Produce.

#[test]
fn null_records_are_answered_where_kafka_is_silent() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    for version in 3..=12 {
        let request = produce(&topic.name, -1, None);
        let answer = first(client.ask(version, &request).unwrap());
        assert_eq!(answer.error_code, ErrorCode::INVALID_RECORD);
    }
}

#[test]
fn a_partition_at_its_bound_says_when_to_come_again() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic_with(&[("riverlog.max.records", "1")]).unwrap();
    let request = produce(&topic.name, -1, Some(numbered(0, 1)));
    let answer = client.ask(12, &request).unwrap();
    assert_eq!(first(answer).error_code, ErrorCode::NONE);
    let answer = client.ask(12, &request).unwrap();
    assert!(answer.throttle_time_ms > 0);
    let refused = first(answer).error_code;
    // librdkafka and others take THROTTLING_QUOTA_EXCEEDED for the end of the records, and send again after this.
    assert_eq!(refused, ErrorCode::NOT_ENOUGH_REPLICAS);
}

#[test]
fn produce_requests_behind_each_other_append_in_their_order() {
    let mut broker = InMemory::new();
    let topic = client(&mut broker).topic(1).unwrap();
    let mut connection = broker.open();
    let mut bytes = Vec::new();
    for n in 0..5 {
        let request = produce(&topic.name, -1, Some(numbered(0, 2)));
        bytes.extend(encoded(9, n, &request));
    }
    connection.send(&bytes);
    for n in 0..5 {
        let Received::Frame(frame) = connection.receive(Duration::from_secs(1)) else {
            panic!("no answer");
        };
        assert_eq!(i32::from_be_bytes(frame[..4].try_into().unwrap()), n);
        let mut reader = riverlog_wire::primitives::Reader::shared(&frame);
        reader.raw(5).unwrap();
        let answer = first(ProduceResponse::decode(&mut reader, 9).unwrap());
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (ErrorCode::NONE, i64::from(n) * 2)
        );
    }
}

#[test]
fn a_failure_with_acks_0_ends_the_connection_behind_the_answers_before_it() {
    let mut broker = InMemory::new();
    let topic = client(&mut broker).topic(1).unwrap();
    let mut connection = broker.open();
    let good = produce(&topic.name, -1, Some(numbered(0, 1)));
    connection.send(&encoded(9, 1, &good));
    connection.send(&encoded(9, 2, &produce("nowhere", 0, Some(numbered(0, 1)))));
    assert_eq!(correlation(connection.receive(Duration::from_secs(1))), 1);
    assert_eq!(connection.receive(Duration::from_secs(1)), Received::Closed);
    let reason = connection.closed().unwrap();
    assert!(reason.contains("UNKNOWN_TOPIC_OR_PARTITION"), "{reason}");
}

// Fetch.

#[test]
fn an_old_reader_of_a_zstd_topic_is_told_and_gets_the_others() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let zstd = client.topic_with(&[("compression.type", "zstd")]).unwrap();
    let plain = client.topic(1).unwrap();
    for topic in [&zstd, &plain] {
        let mut batch = BatchBuilder::new(Compression::Zstd);
        batch.push(0, None, Some(b"value"), &[]);
        let request = produce(&topic.name, -1, Some(batch.build()));
        let answer = first(client.ask(9, &request).unwrap());
        assert_eq!(answer.error_code, ErrorCode::NONE);
    }
    for (version, error) in [
        (9, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (10, ErrorCode::NONE),
    ] {
        let answer = client.ask(version, &fetch(&[&zstd, &plain])).unwrap();
        let parts = answer.responses.iter().flat_map(|t| &t.partitions);
        let got: Vec<_> = parts
            .map(|p| {
                (
                    p.error_code,
                    p.records.as_ref().is_some_and(|r| !r.is_empty()),
                )
            })
            .collect();
        let told = error == ErrorCode::NONE;
        assert_eq!(got, [(error, told), (ErrorCode::NONE, true)]);
    }
}

#[test]
fn an_answer_is_never_larger_than_the_node_allows() {
    let two_batches = 2 * numbered(0, 1).len();
    let mut broker = InMemory::with(KafkaSettings {
        max_fetch_bytes: two_batches,
        ..KafkaSettings::default()
    });
    let mut client = client(&mut broker);
    let topics = [client.topic(1).unwrap(), client.topic(1).unwrap()];
    for topic in &topics {
        for _ in 0..4 {
            let request = produce(&topic.name, -1, Some(numbered(0, 1)));
            client.ask(9, &request).unwrap();
        }
    }
    let mut request = fetch(&[&topics[0], &topics[1]]);
    // More than can ever come: the wait must not be for that.
    (request.max_wait_ms, request.min_bytes) = (60_000, i32::MAX);
    let answer = client.ask(12, &request).unwrap();
    let parts = answer.responses.iter().flat_map(|t| &t.partitions);
    let records = parts.filter_map(|p| p.records.as_ref());
    assert_eq!(records.map(Bytes::len).sum::<usize>(), two_batches);
}

#[test]
fn without_room_for_sessions_readers_go_on_without() {
    let mut broker = InMemory::with(KafkaSettings {
        fetch_sessions: 1,
        ..KafkaSettings::default()
    });
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    let open = FetchRequest {
        session_epoch: 0,
        ..fetch(&[&topic])
    };
    assert_ne!(client.ask(12, &open).unwrap().session_id, 0);
    let second = client.ask(12, &open).unwrap();
    assert_eq!((second.error_code, second.session_id), (ErrorCode::NONE, 0));
    assert_eq!(second.responses.len(), 1);
}

// Groups.

#[test]
fn commits_are_answered_in_the_order_of_the_request_where_kafka_puts_the_failed_first() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let (a, b) = (client.topic(1).unwrap(), client.topic(1).unwrap());
    let group = client.group().unwrap();
    let topic = |name: &str| OffsetCommitRequestTopic {
        name: name.to_owned(),
        partitions: vec![OffsetCommitRequestPartition::default()],
        ..OffsetCommitRequestTopic::default()
    };
    let request = OffsetCommitRequest {
        group_id: group,
        generation_id_or_member_epoch: -1,
        topics: vec![topic(&b.name), topic("nowhere"), topic(&a.name)],
        ..OffsetCommitRequest::default()
    };
    let answer = client.ask(8, &request).unwrap();
    let got: Vec<_> = answer
        .topics
        .iter()
        .map(|t| (t.name.as_str(), t.partitions[0].error_code))
        .collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let none = ErrorCode::NONE;
    assert_eq!(
        got,
        [
            (b.name.as_str(), none),
            ("nowhere", unknown),
            (&a.name, none)
        ]
    );
}

#[test]
fn a_listener_that_clients_can_not_reach_has_no_coordinators() {
    let mut broker = InMemory::with(KafkaSettings {
        listener: "ELSEWHERE".to_owned(),
        ..KafkaSettings::default()
    });
    let mut client = client(&mut broker);
    let find = FindCoordinatorRequest {
        key: "group".to_owned(),
        ..FindCoordinatorRequest::default()
    };
    for version in 0..=3 {
        let found = client.ask(version, &find).unwrap();
        assert_eq!(found.error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
        assert_eq!((found.node_id, found.port), (-1, -1));
    }
    let metadata = client.ask(12, &MetadataRequest::default()).unwrap();
    assert!(metadata.brokers.is_empty());
}

#[test]
fn keys_of_other_kinds_have_no_coordinator() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    for key_type in [2, 3, -1] {
        let find = FindCoordinatorRequest {
            key_type,
            coordinator_keys: vec!["a".to_owned(), "b".to_owned()],
            ..FindCoordinatorRequest::default()
        };
        let found = client.ask(6, &find).unwrap().coordinators;
        let codes: Vec<_> = found
            .iter()
            .map(|c| (c.key.as_str(), c.error_code))
            .collect();
        let invalid = ErrorCode::INVALID_REQUEST;
        assert_eq!(codes, [("a", invalid), ("b", invalid)]);
    }
}

// Metadata.

fn named(name: &str) -> MetadataRequest {
    MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name.to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    }
}

#[test]
fn a_topic_that_can_not_be_made_says_why() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    client.topic_named("a.b", 1, &[]).unwrap();
    let answer = client.ask(12, &named("a_b")).unwrap();
    let error = answer.topics[0].error_code;
    assert_eq!(error, ErrorCode::INVALID_TOPIC_EXCEPTION);
}

#[test]
fn a_node_that_makes_no_topics_by_itself_makes_none() {
    let mut broker = InMemory::with(KafkaSettings {
        auto_create_topics: false,
        ..KafkaSettings::default()
    });
    let mut client = client(&mut broker);
    for version in [1, 4, 12] {
        let answer = client.ask(version, &named("wanted")).unwrap();
        let error = answer.topics[0].error_code;
        assert_eq!(error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
}

#[test]
fn the_list_of_all_topics_is_never_older_than_the_last_answer() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    for n in 1..=3 {
        client.topic(1).unwrap();
        for version in [0, 1, 9, 13] {
            let all = MetadataRequest {
                topics: (version == 0).then(Vec::new),
                ..MetadataRequest::default()
            };
            let answer = client.ask(version, &all).unwrap();
            assert_eq!(answer.topics.len(), n, "v{version}");
        }
    }
}

#[test]
fn only_features_that_are_served_are_shown() {
    let mut broker = InMemory::new();
    let request = ApiVersionsRequest {
        client_software_name: "door".to_owned(),
        client_software_version: "1".to_owned(),
        ..ApiVersionsRequest::default()
    };
    let answer = client(&mut broker).ask(4, &request).unwrap();
    let supported: Vec<_> = answer
        .supported_features
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    let finalized = answer.finalized_features.iter();
    let finalized: Vec<_> = finalized.map(|f| f.name.as_str()).collect();
    let served = [
        "group.version",
        "metadata.version",
        "share.version",
        "streams.version",
        "transaction.version",
    ];
    assert_eq!(supported, served);
    assert_eq!(finalized, served);
}

// Connections.

#[test]
fn a_frame_that_can_not_be_read_ends_the_connection_behind_the_answers_before_it() {
    let broker = InMemory::new();
    let mut connection = broker.open();
    let mut bytes = encoded(9, 1, &MetadataRequest::default());
    let mut broken = encoded(9, 2, &named("x"));
    broken.truncate(broken.len() - 4);
    let length = (broken.len() - 4) as u32;
    broken[..4].copy_from_slice(&length.to_be_bytes());
    bytes.extend(broken);
    bytes.extend(encoded(9, 3, &MetadataRequest::default()));
    connection.send(&bytes);
    assert_eq!(correlation(connection.receive(Duration::ZERO)), 1);
    assert_eq!(connection.receive(Duration::from_secs(1)), Received::Closed);
    let reason = connection.closed().unwrap();
    assert!(
        reason.contains("Metadata v9 of client \"door\""),
        "{reason}"
    );
}

#[test]
fn a_connection_with_many_requests_under_way_is_not_read_from() {
    let mut broker = InMemory::with(KafkaSettings {
        max_in_flight: 3,
        ..KafkaSettings::default()
    });
    let topic = client(&mut broker).topic(1).unwrap();
    let mut connection = broker.open();
    let wait = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        ..fetch(&[&topic])
    };
    connection.send(&encoded(12, 0, &wait));
    for n in 1..3 {
        assert!(!connection.is_busy());
        connection.send(&encoded(9, n, &MetadataRequest::default()));
    }
    assert!(connection.is_busy());
    for n in 0..3 {
        assert_eq!(correlation(connection.receive(Duration::from_secs(1))), n);
    }
    assert!(!connection.is_busy());
}

#[test]
fn unknown_topic_ids_of_every_kind_are_unknown() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let request = FetchRequest {
        topics: vec![FetchTopic {
            topic_id: TopicId([1; 16]),
            partitions: vec![FetchPartition::default()],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let answer = client.ask(13, &request).unwrap();
    let part = &answer.responses[0].partitions[0];
    assert_eq!(part.error_code, ErrorCode::UNKNOWN_TOPIC_ID);
    assert_eq!((part.high_watermark, part.log_start_offset), (-1, -1));
}
