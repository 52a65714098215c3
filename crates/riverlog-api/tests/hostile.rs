//! Frames that nobody would send: an answer or an end, never a panic, and the node goes on.

mod support;

use std::time::Duration;

use riverlog_checks::{Client, Connection as _, Received, numbered};
use riverlog_wire::frame::encode_any_request;
use riverlog_wire::messages::create_topics_request::CreatableTopic;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::join_group_request::JoinGroupRequestProtocol;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{
    AnyRequest, AnyResponse, ApiKey, ApiVersionsRequest, CreateTopicsRequest, FetchRequest,
    JoinGroupRequest, MetadataRequest, OffsetCommitRequest, ProduceRequest,
};
use riverlog_wire::primitives::Reader;
use support::InMemory;

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }
}

/// Requests with something in them, beside the empty ones of every API.
fn rich() -> Vec<(AnyRequest, i16)> {
    let name = || "topic".to_owned();
    let produce = ProduceRequest {
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: name(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(numbered(0, 3).into()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let fetch = FetchRequest {
        session_epoch: 0,
        topics: vec![FetchTopic {
            topic: name(),
            partitions: vec![FetchPartition {
                partition_max_bytes: 100,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let metadata = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    let create = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name(),
            num_partitions: 1,
            replication_factor: 1,
            ..CreatableTopic::default()
        }],
        ..CreateTopicsRequest::default()
    };
    let join = JoinGroupRequest {
        group_id: "group".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            ..JoinGroupRequestProtocol::default()
        }],
        ..JoinGroupRequest::default()
    };
    let commit = OffsetCommitRequest {
        group_id: "group".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: name(),
            partitions: vec![OffsetCommitRequestPartition::default()],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    vec![
        (produce.clone().into(), 3),
        (produce.into(), 9),
        (fetch.clone().into(), 7),
        (fetch.into(), 12),
        (metadata.clone().into(), 4),
        (metadata.into(), 12),
        (create.clone().into(), 2),
        (create.into(), 7),
        (join.clone().into(), 3),
        (join.into(), 9),
        (commit.clone().into(), 2),
        (commit.into(), 9),
    ]
}

fn frames(served: &[(ApiKey, i16, i16)]) -> Vec<(ApiKey, i16, Vec<u8>)> {
    let mut requests = rich();
    for (key, from, to) in served {
        for version in *from..=*to {
            requests.push((AnyRequest::default_of(*key), version));
        }
    }
    let encode = |(request, version): (AnyRequest, i16)| {
        let mut bytes = Vec::new();
        encode_any_request(&mut bytes, version, 1, Some("hostile"), &request).unwrap();
        (request.key(), version, bytes)
    };
    requests.into_iter().map(encode).collect()
}

fn served() -> Vec<(ApiKey, i16, i16)> {
    let mut broker = InMemory::new();
    let mut client = Client::new(&mut broker, String::new()).unwrap();
    let answer = client.ask(0, &ApiVersionsRequest::default()).unwrap();
    let known = |api: &riverlog_wire::messages::api_versions_response::ApiVersion| {
        let key = ApiKey::from_i16(api.api_key)?;
        Some((key, api.min_version.max(key.min_version()), api.max_version))
    };
    answer.api_keys.iter().filter_map(known).collect()
}

/// Changes some bytes behind the length; keeps the frame's length right.
fn mutate(dice: &mut Dice, frame: &mut Vec<u8>) {
    for _ in 0..=dice.below(4) {
        let at = 4 + dice.below(frame.len() - 4);
        match dice.below(6) {
            0 => frame[at] = dice.roll() as u8,
            1 => frame[at] ^= 1 << dice.below(8),
            2 => frame.truncate(at.max(5)),
            3 => frame.insert(at, dice.roll() as u8),
            4 => {
                // A count or length that is too much, too little, or below zero.
                let extremes = [i32::MAX, i32::MIN, -1, 0, 1 << 20];
                let value = extremes[dice.below(extremes.len())].to_be_bytes();
                let end = frame.len().min(at + 4);
                frame[at..end].copy_from_slice(&value[..end - at]);
            }
            _ => {
                let again = frame[at..].to_vec();
                frame.extend_from_slice(&again[..again.len().min(64)]);
            }
        }
    }
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
}

#[test]
fn mutated_frames_are_answered_or_end_the_connection() {
    let frames = frames(&served());
    let mut broker = InMemory::new();
    let mut dice = Dice(0x5eed_0000_0001);
    let (mut answers, mut ends) = (0, 0);
    for round in 0..6_000 {
        // A node that has seen much is as good as a new one, but slower to look at.
        if round % 1_500 == 0 {
            broker = InMemory::new();
        }
        let (_, _, frame) = &frames[dice.below(frames.len())];
        let mut frame = frame.clone();
        mutate(&mut dice, &mut frame);
        let mut connection = broker.open();
        connection.send(&frame);
        match connection.receive(Duration::from_millis(1)) {
            Received::Frame(answer) => {
                // It answers what was asked, whatever that has become.
                let key = ApiKey::from_i16(i16::from_be_bytes([frame[4], frame[5]])).unwrap();
                let version = i16::from_be_bytes([frame[6], frame[7]]);
                let known = key.versions().contains(&version);
                let version = if known { version } else { 0 };
                let mut reader = Reader::shared(&answer);
                riverlog_wire::frame::ResponseHeader::decode(&mut reader, key, version).unwrap();
                AnyResponse::decode(key, version, &mut reader).unwrap();
                assert_eq!(reader.remaining(), 0, "{key:?} v{version}");
                answers += 1;
            }
            Received::Closed => {
                assert!(!connection.closed().unwrap().is_empty());
                ends += 1;
            }
            // A fetch or a join that waits, or acks=0.
            Received::Nothing => {}
        }
    }
    // Were one of them rare, the mutations would be too wild or too tame to mean something.
    assert!(
        answers > 500 && ends > 500,
        "{answers} answers, {ends} ends"
    );
    let mut client = Client::new(&mut broker, String::new()).unwrap();
    client.is_healthy().unwrap();
}

#[test]
fn frames_cut_short_anywhere_never_panic() {
    let broker = InMemory::new();
    for (key, version, frame) in frames(&served()) {
        for cut in 5..frame.len() {
            let mut short = frame[..cut].to_vec();
            let length = (cut - 4) as u32;
            short[..4].copy_from_slice(&length.to_be_bytes());
            let mut connection = broker.open();
            connection.send(&short);
            let answer = connection.receive(Duration::ZERO);
            assert_ne!(answer, Received::Nothing, "{key:?} v{version} cut at {cut}");
        }
    }
}
