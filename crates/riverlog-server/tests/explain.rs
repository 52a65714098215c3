//! What `riverlog group explain` says that holds a partition, one case after another, against a real server.

mod common;

use std::net::TcpStream;
use std::time::Duration;

use common::{Server, answer_to, ask, eventually, open_transaction, produce, send};
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::consumer_protocol::{Subscription, encode_assignment, encode_subscription};
use riverlog_wire::messages::join_group_request::JoinGroupRequestProtocol;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::sync_group_request::SyncGroupRequestAssignment;
use riverlog_wire::messages::{
    ConsumerGroupHeartbeatRequest, JoinGroupRequest, OffsetCommitRequest, SyncGroupRequest,
};
use serde_json::Value;

/// A server without the wait for a group's first members.
fn server(folder: &tempfile::TempDir) -> Server {
    let server = Server::start(
        folder.path(),
        &["--set", "group.initial.rebalance.delay.ms=0"],
    );
    server.ok(&["topic", "create", "t"]);
    server
}

/// The only row of what is said of group `g`: its word, and its sentence.
fn explained(server: &Server, wait: &str) -> (String, String) {
    let args = ["group", "explain", "g", "--wait", wait, "-o", "json"];
    let answer: Value = serde_json::from_str(&server.ok(&args)).unwrap();
    let rows = answer["data"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{answer}");
    let text = |what: &str| rows[0][what].as_str().unwrap().to_owned();
    (text("state"), text("why"))
}

/// A member of the classic group `g`, which has the first partition of `t`.
struct Member {
    id: String,
    generation: i32,
}

fn join_request() -> JoinGroupRequest {
    let subscription = Subscription {
        topics: vec!["t".to_owned()],
        generation: -1,
        ..Subscription::default()
    };
    JoinGroupRequest {
        group_id: "g".to_owned(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: encode_subscription(&subscription),
        }],
        ..JoinGroupRequest::default()
    }
}

fn join(server: &Server) -> Member {
    let mut joined = ask(&server.kafka, 3, &join_request());
    // The coordinator's topic is made on the way.
    let ready = eventually(|| {
        let there = joined.error_code == ErrorCode::NONE;
        if !there {
            joined = ask(&server.kafka, 3, &join_request());
        }
        there
    });
    assert!(ready, "{joined:?}");
    let sync = SyncGroupRequest {
        group_id: "g".to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: joined.member_id.clone(),
            assignment: encode_assignment(&[("t".to_owned(), vec![0])].into()),
        }],
        ..SyncGroupRequest::default()
    };
    assert_eq!(ask(&server.kafka, 2, &sync).error_code, ErrorCode::NONE);
    Member {
        id: joined.member_id,
        generation: joined.generation_id,
    }
}

impl Member {
    fn commit(&self, server: &Server, offset: i64) {
        let commit = OffsetCommitRequest {
            group_id: "g".to_owned(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.id.clone(),
            topics: vec![OffsetCommitRequestTopic {
                name: "t".to_owned(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: 0,
                    committed_offset: offset,
                    ..OffsetCommitRequestPartition::default()
                }],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        let answer = ask(&server.kafka, 8, &commit);
        let error = answer.topics[0].partitions[0].error_code;
        assert_eq!(error, ErrorCode::NONE);
    }
}

/// A batch whose checksum is right and whose records nobody can decompress.
fn poison() -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None)
        .push(0, None, Some(b"not what gzip writes"), &[])
        .build();
    batch[22] = 1;
    let mut crc = u32::MAX;
    for byte in &batch[21..] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    batch[17..21].copy_from_slice(&(!crc).to_be_bytes());
    batch
}

#[test]
fn an_open_transaction_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    server.ok_with(&["produce", "t"], "before\n");
    let pay = open_transaction(&server, "pay");
    let member = join(&server);
    member.commit(&server, 1);
    let (state, why) = explained(&server, "0s");
    assert_eq!(state, "transaction", "{why}");
    for told in [
        format!("\"pay\" (producer {}, epoch {})", pay.id, pay.epoch),
        "open since offset 1".to_owned(),
    ] {
        assert!(why.contains(&told), "{why}");
    }
    // What lies before it doesn't wait for it.
    member.commit(&server, 0);
    assert_ne!(explained(&server, "0s").0, "transaction");
}

#[test]
fn a_member_that_does_not_get_on_is_told_from_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    server.ok_with(&["produce", "t"], "a\nb\nc\n");
    let member = join(&server);
    let (state, why) = explained(&server, "0s");
    assert_eq!(state, "no-commit", "{why}");
    assert!(why.contains(&member.id), "{why}");
    member.commit(&server, 1);
    let (state, why) = explained(&server, "100ms");
    assert_eq!(state, "stuck", "{why}");
    assert!(why.contains(&member.id), "{why}");
    assert!(why.contains("paused"), "{why}");
    assert!(why.contains("--from 1 -n 1"), "{why}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1_500));
            member.commit(&server, 2);
        });
        let (state, why) = explained(&server, "6s");
        assert_eq!(state, "moving", "{why}");
    });
    member.commit(&server, 3);
    assert_eq!(explained(&server, "0s").0, "caught-up");
}

#[test]
fn members_that_change_places_are_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    server.ok_with(&["produce", "t"], "a\nb\nc\n");
    let member = join(&server);
    member.commit(&server, 1);
    // A second one comes, and the first doesn't join again.
    let mut second: TcpStream = send(&server.kafka, 3, &join_request());
    let mut said = (String::new(), String::new());
    let told = eventually(|| {
        said = explained(&server, "0s");
        said.0 == "rebalancing"
    });
    assert!(told, "{said:?}");
    assert!(said.1.contains("PreparingRebalance"), "{said:?}");
    server.ok(&["group", "explain", "g", "--wait", "0s"]);
    let check = server.run(&["group", "explain", "g", "--wait", "0s", "--check"]);
    assert_eq!(check.status.code(), Some(1));
    // Once the first is back, both are told.
    let mut first = join_request();
    first.member_id = member.id;
    let first = ask(&server.kafka, 3, &first);
    let second = answer_to::<JoinGroupRequest>(&mut second, 3);
    assert_eq!(first.generation_id, second.generation_id);
}

#[test]
fn a_record_that_nobody_can_read_is_named_with_the_way_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    server.ok_with(&["produce", "t"], "a\nb\n");
    assert_eq!(produce(&server, None, "t", poison()), ErrorCode::NONE);
    server.ok_with(&["produce", "t"], "c\n");
    let member = join(&server);
    // It has read on to the bad record, and committed what it was done with: the one before.
    member.commit(&server, 1);
    for _ in 0..2 {
        let (state, why) = explained(&server, "0s");
        assert_eq!(state, "poison", "{why}");
        assert!(why.contains("at offset 2"), "{why}");
        assert!(why.contains("group reset g -t t -p 0 --to 3"), "{why}");
        // Then it stands right before it. Its age isn't known, and everything else is.
        member.commit(&server, 2);
        let lag = server.ok(&["group", "lag", "g", "-o", "json"]);
        let lag: Value = serde_json::from_str(&lag).unwrap();
        assert_eq!(lag["data"][0]["lag"], 2, "{lag}");
        assert!(lag["data"][0]["seconds"].is_null(), "{lag}");
    }
    // What lies before it is shown before the command ends with it.
    let consumed = server.run(&["consume", "t", "--from", "0", "-e"]);
    assert_eq!(String::from_utf8_lossy(&consumed.stdout), "a\nb\n");
    assert_eq!(consumed.status.code(), Some(1));
    assert_eq!(server.ok(&["consume", "t", "--from", "3", "-e"]), "c\n");
}

#[test]
fn members_of_the_consumer_protocol_are_seen_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    server.ok_with(&["produce", "t"], "a\nb\n");
    server.ok(&["group", "reset", "g", "-t", "t", "--to", "1", "--yes"]);
    assert_eq!(explained(&server, "0s").0, "no-member");
    let join = ConsumerGroupHeartbeatRequest {
        group_id: "g".to_owned(),
        member_id: "mine".to_owned(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["t".to_owned()]),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    };
    let answer = ask(&server.kafka, 1, &join);
    assert_eq!(answer.error_code, ErrorCode::NONE, "{answer:?}");
    let (state, why) = explained(&server, "100ms");
    assert_eq!(state, "stuck", "{why}");
    assert!(why.contains("\"mine\""), "{why}");
}
