//! How far groups are behind, why, and what can be done with their commits.

mod common;

use common::{Server, try_ask};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::share_fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::{MetadataRequest, ShareFetchRequest, ShareGroupHeartbeatRequest};
use serde_json::Value;

fn rows(server: &Server, args: &[&str]) -> Vec<Value> {
    let mut all = args.to_vec();
    all.extend(["-o", "json"]);
    let answer: Value = serde_json::from_str(&server.ok(&all)).unwrap();
    answer["data"].as_array().unwrap().clone()
}

/// Topic `t` with three records in partition 0, one of them read by group `g`, and none in partition 1.
fn late(server: &Server) {
    server.ok(&[
        "topic",
        "create",
        "t",
        "-p",
        "2",
        "-c",
        "retention.ms=3600000",
    ]);
    server.ok_with(&["produce", "t", "-p", "0"], "a\nb\nc\n");
    server.ok(&["group", "reset", "g", "-t", "t", "--to", "1", "--yes"]);
}

#[test]
fn lag_is_told_in_records_in_seconds_and_by_what_retention_will_take() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    late(&server);
    let rows = rows(&server, &["group", "lag", "g"]);
    let late = &rows[0];
    assert_eq!((&late["lag"], &late["lost"]), (&2.into(), &0.into()));
    let seconds = late["seconds"].as_f64().unwrap();
    assert!((0.0..600.0).contains(&seconds), "{late}");
    let left = late["time_to_loss"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&left), "{late}");
    let done = &rows[1];
    assert_eq!(done["lag"], 0);
    assert_eq!(done["seconds"], 0.0);
    assert!(done["time_to_loss"].is_null());

    server.ok(&["topic", "trim", "t", "--before", "2", "-p", "0", "--yes"]);
    let rows = self::rows(&server, &["group", "lag", "g"]);
    assert_eq!((&rows[0]["lag"], &rows[0]["lost"]), (&1.into(), &1.into()));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn what_holds_a_partition_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &["--set", "group.initial.rebalance.delay.ms=0"],
    );
    late(&server);
    let states = |server: &Server| -> Vec<String> {
        rows(server, &["group", "explain", "g", "--wait", "0s"])
            .iter()
            .map(|row| row["state"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(states(&server), ["no-member", "caught-up"]);
    let check = server.run(&["group", "explain", "g", "--check"]);
    assert_eq!(check.status.code(), Some(1));
    server.ok(&["topic", "trim", "t", "--before", "2", "-p", "0", "--yes"]);
    assert_eq!(states(&server), ["overtaken", "caught-up"]);
    // What is left is read all the same.
    assert_eq!(server.ok(&["consume", "t", "--group", "g", "-e"]), "c\n");
    assert_eq!(states(&server), ["caught-up", "caught-up"]);
    server.ok(&["group", "explain", "g", "--check"]);
    server.ok(&["topic", "delete", "t", "--yes"]);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn commits_are_copied_to_another_group() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    late(&server);
    let dry = server.ok(&["group", "copy", "g", "h", "--dry-run"]);
    assert!(dry.starts_with("t\t0\t-\t1\tfalse\n"), "{dry}");
    let missing = server.run(&["group", "lag", "h"]);
    assert_ne!(missing.status.code(), Some(0));
    server.ok(&["group", "copy", "g", "h"]);
    let rows = rows(&server, &["group", "lag", "h"]);
    assert_eq!(
        (&rows[0]["committed"], &rows[0]["lag"]),
        (&1.into(), &2.into())
    );
    let twice = server.run(&["group", "copy", "g", "g"]);
    assert_eq!(twice.status.code(), Some(2));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_group_is_watched_for_as_long_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    late(&server);
    let args = [
        "group", "watch", "g", "-c", "2", "-i", "10ms", "-o", "ndjson",
    ];
    let lines: Vec<Value> = server
        .ok(&args)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[1]["lag"], &lines[1]["members"]),
        (&2.into(), &0.into())
    );
    assert!(lines[0]["read_a_second"].is_null());
    assert_eq!(lines[1]["read_a_second"], 0.0);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_lag_of_a_share_group_is_what_nobody_has_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t", "-p", "1"]);
    let patience = std::time::Duration::from_secs(20);
    let metadata = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some("t".to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    let known = try_ask(&server.kafka, 12, &metadata, patience).unwrap();
    let topic_id = known.topics[0].topic_id;
    let join = ShareGroupHeartbeatRequest {
        group_id: "sharers".to_owned(),
        member_id: "m".to_owned(),
        subscribed_topic_names: Some(vec!["t".to_owned()]),
        ..ShareGroupHeartbeatRequest::default()
    };
    assert!(common::eventually(|| {
        let answer = try_ask(&server.kafka, 1, &join, patience).unwrap();
        answer.error_code == ErrorCode::NONE
    }));
    // The first fetch says where the group begins.
    let fetch = ShareFetchRequest {
        group_id: Some("sharers".to_owned()),
        member_id: Some("m".to_owned()),
        share_session_epoch: 0,
        max_wait_ms: 1_000,
        max_bytes: 1 << 20,
        max_records: 10,
        batch_size: 10,
        topics: vec![FetchTopic {
            topic_id,
            partitions: vec![FetchPartition::default()],
        }],
        ..ShareFetchRequest::default()
    };
    let answer = try_ask(&server.kafka, 1, &fetch, patience).unwrap();
    assert_eq!(answer.error_code, ErrorCode::NONE);
    server.ok_with(&["produce", "t"], "a\nb\nc\n");
    let rows = rows(&server, &["group", "lag", "sharers"]);
    assert_eq!(
        (&rows[0]["committed"], &rows[0]["lag"]),
        (&0.into(), &3.into())
    );
    let late = server.run(&["group", "lag", "sharers", "--max", "2"]);
    assert_eq!(late.status.code(), Some(1));
    assert_eq!(server.stop().0, Some(0));
}
