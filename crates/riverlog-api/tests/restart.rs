//! What clients find after the node was stopped and started again.

mod support;

use bytes::Bytes;
use riverlog_checks::{Client, Topic, numbered};
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::fetch_response::PartitionData;
use riverlog_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::offset_fetch_request::OffsetFetchRequestTopic;
use riverlog_wire::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{
    FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProduceRequest,
};
use support::InMemory;

fn client(broker: &mut InMemory) -> Client<'_> {
    Client::new(broker, "restart".to_owned()).unwrap()
}

fn produce_request(topic: &Topic, records: Vec<u8>) -> ProduceRequest {
    ProduceRequest {
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: topic.name.clone(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Bytes::from(records)),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

fn produce(client: &mut Client<'_>, topic: &Topic, records: Vec<u8>) -> (ErrorCode, i64) {
    let request = produce_request(topic, records);
    let answer = client.ask(9, &request).unwrap();
    let partition = &answer.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

/// Reads from offset 0, knowing the leader of that epoch.
fn fetch(client: &mut Client<'_>, topic: &Topic, epoch: i32) -> PartitionData {
    let request = FetchRequest {
        topics: vec![FetchTopic {
            topic: topic.name.clone(),
            partitions: vec![FetchPartition {
                current_leader_epoch: epoch,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let mut answer = client.ask(12, &request).unwrap();
    answer.responses.remove(0).partitions.remove(0)
}

/// Id and leader epoch, as metadata tells them.
fn leader_of(client: &mut Client<'_>, topic: &Topic) -> (riverlog_wire::TopicId, i32) {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.name.clone()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    let answer = client.ask(12, &request).unwrap();
    let found = &answer.topics[0];
    (found.topic_id, found.partitions[0].leader_epoch)
}

#[test]
fn a_restarted_leader_has_a_new_epoch_and_tells_where_the_old_one_ended() {
    let mut broker = InMemory::new();
    let mut before = client(&mut broker);
    let topic = before.topic(1).unwrap();
    assert_eq!(
        produce(&mut before, &topic, numbered(1_000, 3)),
        (ErrorCode::NONE, 0)
    );
    let (_, old) = leader_of(&mut before, &topic);
    drop(before);

    let mut broker = broker.restart();
    let mut after = client(&mut broker);
    let (id, new) = leader_of(&mut after, &topic);
    assert_eq!(id, topic.id);
    assert!(new > old, "{old} then {new}");
    assert_eq!(
        produce(&mut after, &topic, numbered(2_000, 2)),
        (ErrorCode::NONE, 3)
    );

    // Whoever still believes in the old leader is told, whoever asks without a belief is served.
    let fenced = fetch(&mut after, &topic, old).error_code;
    assert_eq!(fenced, ErrorCode::FENCED_LEADER_EPOCH);
    for epoch in [-1, new] {
        let read = fetch(&mut after, &topic, epoch);
        assert_eq!((read.error_code, read.high_watermark), (ErrorCode::NONE, 5));
    }
    let ends = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: topic.name.clone(),
            partitions: vec![OffsetForLeaderPartition {
                partition: 0,
                current_leader_epoch: new,
                leader_epoch: old,
            }],
        }],
    };
    let answer = after.ask(4, &ends).unwrap();
    let end = &answer.topics[0].partitions[0];
    assert_eq!(
        (end.error_code, end.leader_epoch, end.end_offset),
        (ErrorCode::NONE, old, 3)
    );
    // The epoch of an offset is the one it was written under, not the one of now.
    for (timestamp, offset, epoch) in [(1_000, 0, old), (2_000, 3, new)] {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: topic.name.clone(),
                partitions: vec![ListOffsetsPartition {
                    timestamp,
                    ..ListOffsetsPartition::default()
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let answer = after.ask(8, &request).unwrap();
        let found = &answer.topics[0].partitions[0];
        assert_eq!((found.offset, found.leader_epoch), (offset, epoch));
    }
}

#[test]
fn what_an_idempotent_producer_sends_again_after_a_restart_is_not_stored_twice() {
    let batch = |sequence: i32| {
        let mut batch = BatchBuilder::new(Compression::None);
        batch.producer(9.into(), 0.into(), sequence.into());
        batch.push(0, None, Some(b"value"), &[]);
        batch.build()
    };
    let mut broker = InMemory::new();
    let mut before = client(&mut broker);
    let topic = before.topic(1).unwrap();
    for sequence in 0..7 {
        let stored = produce(&mut before, &topic, batch(sequence));
        assert_eq!(stored, (ErrorCode::NONE, i64::from(sequence)));
    }
    drop(before);

    let mut broker = broker.restart();
    let mut after = client(&mut broker);
    for sequence in 2..7 {
        let again = produce(&mut after, &topic, batch(sequence));
        assert_eq!(again, (ErrorCode::NONE, i64::from(sequence)));
    }
    let (error, _) = produce(&mut after, &topic, batch(1));
    // Whether its place before the five is still known or not, it isn't stored again.
    let told = [
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode::DUPLICATE_SEQUENCE_NUMBER,
    ];
    assert!(told.contains(&error), "{error:?}");
    assert_eq!(produce(&mut after, &topic, batch(7)), (ErrorCode::NONE, 7));
}

#[test]
fn committed_offsets_are_there_again() {
    let mut broker = InMemory::new();
    let mut before = client(&mut broker);
    let topic = before.topic(1).unwrap();
    let group = before.group().unwrap();
    let commit = OffsetCommitRequest {
        group_id: group.clone(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.name.clone(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 5,
                committed_leader_epoch: 2,
                committed_metadata: Some("words".to_owned()),
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    let answer = before.ask(8, &commit).unwrap();
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::NONE);
    drop(before);

    let mut broker = broker.restart();
    let mut after = client(&mut broker);
    // The answer comes once the coordinator has read its log; until then it says so, in whatever place the version has.
    let mut found = None;
    for version in [1, 2, 7, 1, 2, 7] {
        let request = OffsetFetchRequest {
            group_id: group.clone(),
            topics: Some(vec![OffsetFetchRequestTopic {
                name: topic.name.clone(),
                partition_indexes: vec![0],
            }]),
            ..OffsetFetchRequest::default()
        };
        let answer = after.ask(version, &request).unwrap();
        let partition = answer.topics.first().map(|t| t.partitions[0].clone());
        let error = match &partition {
            Some(partition) => partition.error_code,
            None => answer.error_code,
        };
        match error {
            ErrorCode::NONE => found = partition,
            loading => assert_eq!(loading, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        }
        after.broker().pass(std::time::Duration::from_millis(10));
    }
    let found = found.expect("the coordinator is ready in the end");
    let words = found.metadata.as_deref();
    let got = (found.committed_offset, found.committed_leader_epoch, words);
    assert_eq!(got, (5, 2, Some("words")));
}

/// What waits in a node must not keep the node: whoever drops it in the middle would never get its memory and its files back.
#[test]
fn a_node_that_is_dropped_takes_requests_under_way_along() {
    let mut broker = InMemory::new();
    let node = broker.node();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    let waits = FetchRequest {
        max_wait_ms: 60_000,
        min_bytes: 1,
        topics: vec![FetchTopic {
            topic: topic.name.clone(),
            partitions: vec![FetchPartition {
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let mut other = client.connect().unwrap();
    other.say(12, &waits).unwrap();
    let appends = produce_request(&topic, numbered(0, 1));
    client.connect().unwrap().say(9, &appends).unwrap();
    drop(client);
    drop((other, broker));
    assert!(node.upgrade().is_none());
}
