//! Share groups, in what no other broker must do alike: restarts, connections that end, offsets set anew.

mod support;

use std::time::Duration;

use bytes::Bytes;
use riverlog_checks::{Client, Topic, numbered};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use riverlog_wire::messages::share_fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::{
    AlterShareGroupOffsetsRequest, ProduceRequest, ShareAcknowledgeRequest, ShareFetchRequest,
    ShareGroupHeartbeatRequest,
};
use support::InMemory;

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;

fn client(broker: &mut InMemory) -> Client<'_> {
    Client::new(broker, "share".to_owned()).unwrap()
}

fn produce(client: &mut Client<'_>, topic: &Topic, records: Vec<u8>) {
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
    let error = answer.responses[0].partition_responses[0].error_code;
    assert_eq!(error, ErrorCode::NONE);
}

/// A request of a member of a share group to read partition 0.
fn request(group: &str, topic: &Topic, epoch: i32) -> ShareFetchRequest {
    ShareFetchRequest {
        group_id: Some(group.to_owned()),
        member_id: Some("member".to_owned()),
        share_session_epoch: epoch,
        max_wait_ms: 500,
        max_bytes: 1 << 20,
        max_records: 100,
        batch_size: 100,
        topics: vec![FetchTopic {
            topic_id: topic.id,
            partitions: vec![FetchPartition::default()],
        }],
        ..ShareFetchRequest::default()
    }
}

/// What it acquires.
fn fetch(client: &mut Client<'_>, group: &str, topic: &Topic, epoch: i32) -> Vec<(i64, i64, i16)> {
    let request = request(group, topic, epoch);
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

fn acknowledge(
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
    assert_eq!(fetch(&mut before, "g", &topic, 0), []);
    produce(&mut before, &topic, numbered(0, 6));
    assert_eq!(fetch(&mut before, "g", &topic, 1), [(2, 7, 1)]);
    acknowledge(&mut before, "g", &topic, 2, (2, 3, ACCEPT));
    acknowledge(&mut before, "g", &topic, 3, (5, 5, ACCEPT));
    acknowledge(&mut before, "g", &topic, 4, (6, 6, RELEASE));
    drop(before);

    let mut broker = broker.restart();
    let mut after = client(&mut broker);
    // What nobody said anything of was given back with the connection, 6 before.
    let acquired = fetch(&mut after, "g", &topic, 0);
    assert_eq!(acquired, [(4, 4, 2), (6, 7, 2)]);
    acknowledge(&mut after, "g", &topic, 1, (4, 4, ACCEPT));
    acknowledge(&mut after, "g", &topic, 2, (6, 7, ACCEPT));
    drop(after);

    let mut broker = broker.restart();
    let mut after = client(&mut broker);
    assert_eq!(fetch(&mut after, "g", &topic, 0), []);
    produce(&mut after, &topic, numbered(0, 1));
    assert_eq!(fetch(&mut after, "g", &topic, 1), [(8, 8, 1)]);
}

#[test]
fn what_a_connection_held_goes_to_others_when_it_ends() {
    let mut broker = InMemory::new();
    let mut first = client(&mut broker);
    let topic = first.topic(1).unwrap();
    assert_eq!(fetch(&mut first, "g", &topic, 0), []);
    produce(&mut first, &topic, numbered(0, 3));
    assert_eq!(fetch(&mut first, "g", &topic, 1), [(0, 2, 1)]);
    assert_eq!(fetch(&mut first, "g", &topic, 2), []);
    drop(first);
    // Its session went with it, and long before the lock's time is up.
    let mut second = client(&mut broker);
    assert_eq!(fetch(&mut second, "g", &topic, 0), [(0, 2, 2)]);
}

#[test]
fn offsets_set_anew_count_for_what_is_in_memory_too() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    let group = client.group().unwrap();
    for member_epoch in [0, -1] {
        let request = ShareGroupHeartbeatRequest {
            group_id: group.clone(),
            member_id: "member".to_owned(),
            member_epoch,
            subscribed_topic_names: Some(vec![topic.name.clone()]),
            ..ShareGroupHeartbeatRequest::default()
        };
        assert_eq!(client.ask(1, &request).unwrap().error_code, ErrorCode::NONE);
    }
    assert_eq!(fetch(&mut client, &group, &topic, 0), []);
    produce(&mut client, &topic, numbered(0, 3));
    assert_eq!(fetch(&mut client, &group, &topic, 1), [(0, 2, 1)]);
    acknowledge(&mut client, &group, &topic, 2, (0, 1, ACCEPT));
    let request = AlterShareGroupOffsetsRequest {
        group_id: group.clone(),
        topics: vec![AlterShareGroupOffsetsRequestTopic {
            topic_name: topic.name.clone(),
            partitions: vec![AlterShareGroupOffsetsRequestPartition {
                partition_index: 0,
                start_offset: 1,
            }],
        }],
    };
    let answer = client.ask(0, &request).unwrap();
    let result = &answer.responses[0].partitions[0];
    assert_eq!(result.error_code, ErrorCode::NONE);
    assert_eq!(fetch(&mut client, &group, &topic, 3), [(1, 2, 1)]);
}

#[test]
fn a_fetch_that_waits_gets_what_another_member_gives_back() {
    let mut broker = InMemory::new();
    let mut client = client(&mut broker);
    let topic = client.topic(1).unwrap();
    assert_eq!(fetch(&mut client, "g", &topic, 0), []);
    produce(&mut client, &topic, numbered(0, 1));
    assert_eq!(fetch(&mut client, "g", &topic, 1), [(0, 0, 1)]);
    let mut other = client.connect().unwrap();
    let mut request = request("g", &topic, 0);
    request.member_id = Some("other".to_owned());
    request.max_wait_ms = 60_000;
    let asked = other.say(1, &request).unwrap();
    client.broker().pass(Duration::from_secs(1));
    acknowledge(&mut client, "g", &topic, 2, (0, 0, RELEASE));
    let answer = other.answer::<ShareFetchRequest>(1, asked, Duration::from_secs(1));
    let answer = answer.unwrap().responses.remove(0).partitions.remove(0);
    let acquired = &answer.acquired_records[0];
    assert_eq!((acquired.first_offset, acquired.delivery_count), (0, 2));
}
