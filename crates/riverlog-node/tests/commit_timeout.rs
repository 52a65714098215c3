//! Coordinators whose records don't become durable: whoever waits is answered, and what had been appended counts once it is.

mod common;
#[path = "common/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod nodes;

use std::time::Duration;

use common::*;
use nodes::Cluster;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, GroupSettings, Join, TopicPartition,
};
use riverlog_core::metadata::{AdminCommand, NewTopic};
use riverlog_node::harness::Answer;
use riverlog_node::{ClusterSettings, NodeSettings};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

const TOPIC: TopicId = TopicId([7; 16]);
const LAG: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(5);

/// Three nodes, each of which must have what groups do.
fn three() -> Cluster {
    let mut cluster = Cluster::new(3, needing(3));
    let topic = NewTopic {
        name: "t".to_owned(),
        partitions: 1,
        replication_factor: 3,
        id: TOPIC,
        ..NewTopic::default()
    };
    cluster.admin(AdminCommand::CreateTopics {
        topics: vec![topic],
        validate_only: false,
    });
    assert_eq!(commit(&mut cluster, 1), ErrorCode::NONE);
    cluster
}

fn needing(copies: u32) -> NodeSettings {
    let mut settings = NodeSettings {
        cluster: ClusterSettings {
            max_lag: LAG,
            ..ClusterSettings::default()
        },
        offsets_partitions: 1,
        commit_timeout: PATIENCE,
        groups: GroupSettings {
            initial_rebalance_delay: Duration::ZERO,
            ..GroupSettings::default()
        },
        ..settings()
    };
    let key = "min.insync.replicas".to_owned();
    settings.configs.insert(key, copies.to_string());
    settings
}

fn coordinator(cluster: &Cluster) -> Option<i32> {
    let up = cluster.nodes.iter().flatten().next()?;
    Some(up.node().group_coordinator("g", up.now())?.0)
}

fn place() -> TopicPartition {
    TopicPartition {
        topic: "t".to_owned(),
        partition: 0,
        id: TOPIC,
    }
}

fn send_commit(cluster: &Cluster, offset: i64) -> Answer<GroupAnswer> {
    let offset = CommittedOffset {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch::NONE,
        metadata: String::new(),
        commit_timestamp: -1,
        expire_timestamp: None,
    };
    let command = GroupCommand::Commit {
        group: "g".to_owned(),
        generation: Generation(-1),
        member: String::new(),
        instance: None,
        offsets: vec![(place(), offset)],
        version: 9,
    };
    let id = coordinator(cluster).unwrap_or(1);
    let node = cluster.node(id);
    node.ask(|node, now, reply| node.group(command, now, reply))
}

fn send_join(cluster: &Cluster, random: u128) -> Answer<GroupAnswer> {
    let join = GroupCommand::Join(Join {
        group: "h".to_owned(),
        client_id: "test".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout: Duration::from_secs(600),
        rebalance_timeout: Duration::from_secs(600),
        random,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), bytes::Bytes::from_static(b"topics"))],
        ..Join::default()
    });
    let node = cluster.node(coordinator(cluster).expect("a coordinator"));
    node.ask(|node, now, reply| node.group(join, now, reply))
}

fn error_of(answer: &GroupAnswer) -> ErrorCode {
    match answer {
        GroupAnswer::Partitions(error, each) => each
            .iter()
            .copied()
            .chain([*error])
            .find(|error| *error != ErrorCode::NONE)
            .unwrap_or(ErrorCode::NONE),
        GroupAnswer::Join(join) => join.error,
        other => panic!("{other:?}"),
    }
}

/// Again while the coordinator isn't there yet.
fn commit(cluster: &mut Cluster, offset: i64) -> ErrorCode {
    let mut error = ErrorCode::NONE;
    for _ in 0..100 {
        let answer = send_commit(cluster, offset);
        error = error_of(&cluster.wait(&answer));
        if error == ErrorCode::NONE || !error.retriable() {
            return error;
        }
        cluster.run(Duration::from_millis(100));
    }
    panic!("{} for ever", error.name());
}

fn committed(cluster: &mut Cluster) -> Result<i64, ErrorCode> {
    let answer = ask_committed(cluster);
    let found = cluster.wait(&answer)?;
    Ok(found[0].1.as_ref().expect("an offset").offset.0)
}

type Found = Result<Vec<(TopicPartition, Option<CommittedOffset>)>, ErrorCode>;

fn ask_committed(cluster: &Cluster) -> Answer<Found> {
    let node = cluster.node(coordinator(cluster).expect("a coordinator"));
    node.ask(|node, now, reply| node.committed("g", Some(vec![place()]), None, now, reply))
}

/// A follower of the coordinator stops to hear it, and the other way round. Not the controller, node 1, which would elect another one.
fn cut_one_off(cluster: &mut Cluster) {
    let leader = coordinator(cluster).expect("a coordinator");
    let other = (2..=3).find(|id| *id != leader).expect("another one");
    cluster.cut.extend([(leader, other), (other, leader)]);
}

#[test]
fn who_waits_for_copies_that_do_not_come_is_answered_and_the_commit_counts_later() {
    let mut cluster = three();
    let first = send_join(&cluster, 1);
    assert_eq!(error_of(&cluster.wait(&first)), ErrorCode::NONE);
    cut_one_off(&mut cluster);
    let waits = send_commit(&cluster, 2);
    let asks = ask_committed(&cluster);
    // It waits for the other member, which may take ten minutes: but not where that would become of no use.
    let joins = send_join(&cluster, 2);
    cluster.run(PATIENCE - Duration::from_millis(100));
    assert!(!waits.is_ready(), "it may still become durable");
    let early = joins.take();
    assert!(
        early.is_none(),
        "the other member may still come: {early:?}"
    );
    cluster.run(Duration::from_millis(3_000));
    let not_available = ErrorCode::COORDINATOR_NOT_AVAILABLE;
    assert_eq!(error_of(&waits.take().expect("an answer")), not_available);
    assert_eq!(asks.take().expect("an answer").err(), Some(not_available));
    assert_eq!(error_of(&joins.take().expect("an answer")), not_available);

    // The copies are there again: nothing that was appended was taken back.
    cluster.cut.clear();
    cluster.run(Duration::from_secs(4));
    assert_eq!(committed(&mut cluster), Ok(2));
    assert_eq!(commit(&mut cluster, 3), ErrorCode::NONE);
    assert_eq!(committed(&mut cluster), Ok(3));
}

#[test]
fn a_commit_with_too_few_copies_in_sync_is_refused_at_once() {
    let mut cluster = three();
    cut_one_off(&mut cluster);
    cluster.run(LAG * 3);
    let refused = send_commit(&cluster, 2);
    let refused = refused.take().expect("it waits for nothing");
    assert_eq!(error_of(&refused), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(committed(&mut cluster), Ok(1));

    cluster.cut.clear();
    cluster.run(Duration::from_secs(4));
    assert_eq!(committed(&mut cluster), Ok(1));
    assert_eq!(commit(&mut cluster, 2), ErrorCode::NONE);
}
