//! Many clients that ask for everything at once, as after a restart of the broker (RC-34).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use riverlog_api::kafka::{KafkaDoor, KafkaSettings, Part, Peer, Session};
use riverlog_core::metadata::{AdminAnswer, AdminCommand, NewTopic};
use riverlog_log::disk::MemoryDisk;
use riverlog_node::NodeSettings;
use riverlog_node::harness::Harness;
use riverlog_wire::frame::{encode_request, split_frame};
use riverlog_wire::messages::metadata_request::MetadataRequest;
use riverlog_wire::{ErrorCode, TopicId};

const CLIENTS: u16 = 1_000;
const TOPICS: u32 = 100;
const PARTITIONS: i32 = 100;

/// Makes these topics at once.
fn make(host: &mut Harness, numbers: std::ops::Range<u32>) {
    let topics = numbers.map(|n| NewTopic {
        name: format!("topic-{n}"),
        partitions: PARTITIONS,
        replication_factor: -1,
        id: TopicId(host.node().random().to_be_bytes()),
        ..NewTopic::default()
    });
    let command = AdminCommand::CreateTopics {
        topics: topics.collect(),
        validate_only: false,
    };
    let answer = host
        .get(|node, now, reply| node.admin(command, now, reply))
        .expect("the controller answers");
    let Ok(AdminAnswer::Results(results)) = answer else {
        panic!("results expected");
    };
    assert!(results.iter().all(|r| r.error == ErrorCode::NONE));
}

/// Everyone asks for all topics, and then takes the answer: its bytes as they are handed out, not copied.
fn everyone_asks(host: &Harness, door: &Arc<KafkaDoor>, version: i16) -> Vec<Vec<Part>> {
    let all = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    let mut frame = Vec::new();
    encode_request(&mut frame, version, 7, Some("many"), &all).unwrap();
    let mut sessions: Vec<Session> = (0..CLIENTS)
        .map(|n| {
            let address = SocketAddr::from(([127, 0, 0, 1], 20_000 + n));
            Session::new(Arc::clone(door), Peer { address }, || {})
        })
        .collect();
    for session in &mut sessions {
        let mut received = BytesMut::from(&frame[..]);
        let request = split_frame(&mut received, usize::MAX).unwrap().unwrap();
        session.on_frame(&request, host.now()).unwrap();
    }
    let take = |mut session: Session| {
        let mut parts = Vec::new();
        session.take(&mut parts).unwrap();
        parts
    };
    sessions.into_iter().map(take).collect()
}

/// Where the large pieces of the answers lie, and how many bytes all the small ones have.
fn places(answers: &[Vec<Part>]) -> (BTreeSet<(usize, usize)>, usize) {
    let (mut large, mut small) = (BTreeSet::new(), 0);
    for part in answers.iter().flatten() {
        let Part::Bytes(bytes) = part else {
            panic!("no records are asked for");
        };
        if bytes.len() < 64 {
            small += bytes.len();
        } else {
            large.insert((bytes.as_ptr() as usize, bytes.len()));
        }
    }
    (large, small)
}

#[test]
fn a_thousand_clients_that_ask_for_all_topics_share_one_answer() {
    let settings = NodeSettings {
        listeners: vec![("PLAINTEXT".to_owned(), "broker.test".to_owned(), 9092)],
        ..NodeSettings::default()
    };
    let mut host = Harness::open(Arc::new(MemoryDisk::new()), settings, 1).unwrap();
    make(&mut host, 0..TOPICS);
    let door = KafkaDoor::new(Arc::clone(host.node()), KafkaSettings::default());
    for version in [9, 13] {
        let answers = everyone_asks(&host, &door, version);
        let (large, small) = places(&answers);
        assert_eq!(large.len(), 1, "v{version}: one body for {CLIENTS} clients");
        let (_, len) = large.into_iter().next().unwrap();
        // Each partition has its number, leader, replicas and the in-sync ones.
        assert!(
            len > 20 * (TOPICS as usize) * PARTITIONS as usize,
            "{len} bytes"
        );
        assert!(
            small <= 32 * usize::from(CLIENTS),
            "{small} bytes beside it"
        );
    }
    // A change is in the next answer, and that is shared too, though the others are still held by slow readers.
    let held = everyone_asks(&host, &door, 13);
    make(&mut host, TOPICS..TOPICS + 1);
    host.advance(Duration::from_millis(1));
    let (before, _) = places(&held);
    let (after, _) = places(&everyone_asks(&host, &door, 13));
    assert_eq!((before.len(), after.len()), (1, 1));
    assert!(after.is_disjoint(&before));
}
