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
use riverlog_wire::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use riverlog_wire::messages::share_fetch_request;
use riverlog_wire::messages::{
    FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, ShareAcknowledgeRequest, ShareFetchRequest,
};
use support::InMemory;

fn client(broker: &mut InMemory) -> Client<'_> {
    Client::new(broker, "restart".to_owned()).unwrap()
}

fn produce(client: &mut Client<'_>, topic: &Topic, records: Vec<u8>) -> (ErrorCode, i64) {
    let request = ProduceRequest {
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
    };
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
    assert_eq!(error, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
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

/// A request of a member of a share group to read partition 0.
fn share_fetch(
    client: &mut Client<'_>,
    group: &str,
    topic: &Topic,
    epoch: i32,
) -> Vec<(i64, i64, i16)> {
    let request = ShareFetchRequest {
        group_id: Some(group.to_owned()),
        member_id: Some("member".to_owned()),
        share_session_epoch: epoch,
        max_wait_ms: 500,
        max_bytes: 1 << 20,
        max_records: 100,
        batch_size: 100,
        topics: vec![share_fetch_request::FetchTopic {
            topic_id: topic.id,
            partitions: vec![share_fetch_request::FetchPartition::default()],
        }],
        ..ShareFetchRequest::default()
    };
    let answer = client.ask(1, &request).unwrap();
    assert_eq!(answer.error_code, ErrorCode::NONE);
    let partitions = answer.responses.into_iter().flat_map(|t| t.partitions);
    partitions
        .flat_map(|p| {
            assert_eq!(p.error_code, ErrorCode::NONE);
            let ranges = p.acquired_records.into_iter();
            ranges.map(|r| (r.first_offset, r.last_offset, r.delivery_count))
        })
        .collect()
}

fn share_acknowledge(
    client: &mut Client<'_>,
    group: &str,
    topic: &Topic,
    epoch: i32,
    (first_offset, last_offset, kind): (i64, i64, i8),
) {
    let request = ShareAcknowledgeRequest {
        group_id: Some(group.to_owned()),
        member_id: Some("member".to_owned()),
        share_session_epoch: epoch,
        topics: vec![AcknowledgeTopic {
            topic_id: topic.id,
            partitions: vec![AcknowledgePartition {
                partition_index: 0,
                acknowledgement_batches: vec![AcknowledgementBatch {
                    first_offset,
                    last_offset,
                    acknowledge_types: vec![kind],
                }],
            }],
        }],
        ..ShareAcknowledgeRequest::default()
    };
    let answer = client.ask(1, &request).unwrap();
    let error = answer.responses[0].partitions[0].error_code;
    assert_eq!(error, ErrorCode::NONE);
}

#[test]
fn a_share_group_goes_on_where_it_was_and_what_was_accepted_never_comes_again() {
    let mut broker = InMemory::new();
    let mut before = client(&mut broker);
    let topic = before.topic(1).unwrap();
    // It begins with what comes after its first look.
    produce(&mut before, &topic, numbered(0, 2));
    assert_eq!(share_fetch(&mut before, "g", &topic, 0), []);
    produce(&mut before, &topic, numbered(0, 6));
    assert_eq!(share_fetch(&mut before, "g", &topic, 1), [(2, 7, 1)]);
    share_acknowledge(&mut before, "g", &topic, 2, (2, 3, 1));
    share_acknowledge(&mut before, "g", &topic, 3, (5, 5, 1));
    share_acknowledge(&mut before, "g", &topic, 4, (6, 6, 2));
    drop(before);

    let mut broker = broker.restart();
    let mut after = client(&mut broker);
    // The session is gone, and with it what nobody said anything of; 6 was released once.
    let acquired = share_fetch(&mut after, "g", &topic, 0);
    assert_eq!(acquired, [(4, 4, 1), (6, 6, 2), (7, 7, 1)]);
    share_acknowledge(&mut after, "g", &topic, 1, (4, 4, 1));
    share_acknowledge(&mut after, "g", &topic, 2, (6, 7, 1));
    drop(after);

    let mut broker = broker.restart();
    let mut after = client(&mut broker);
    assert_eq!(share_fetch(&mut after, "g", &topic, 0), []);
    produce(&mut after, &topic, numbered(0, 1));
    assert_eq!(share_fetch(&mut after, "g", &topic, 1), [(8, 8, 1)]);
}
