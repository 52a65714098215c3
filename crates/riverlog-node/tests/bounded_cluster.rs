//! Bounded partitions on three nodes: what groups have committed is known to several coordinators, of which none may be the partition's leader.

mod common;
#[path = "common/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod nodes;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use nodes::Cluster;
use riverlog_core::groups::GroupAnswer;
use riverlog_core::metadata::{MetadataRecord, PartitionImage};
use riverlog_node::harness::Answer;
use riverlog_node::{ClusterSettings, NodeSettings};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};

const TOPIC: TopicId = TopicId([7; 16]);

/// The topic that keeps groups.
const GROUPS: &str = "__consumer_offsets";

/// The node that leads the topic at first.
const LEADER: i32 = 1;

/// The kind of a leader's answer to its followers.
const RECORDS: u8 = 4;
/// Of a question about commits.
const LEAST_ASK: u8 = 13;
/// And of its answer.
const LEAST: u8 = 14;
/// Of the word that there may be room.
const ROOM: u8 = 15;

fn second() -> Duration {
    Duration::from_secs(1)
}

/// Three nodes, each of which coordinates a third of the groups, and a topic that holds two records.
fn three(when_full: &str) -> Cluster {
    three_with(when_full, |_| {})
}

/// The same with other settings.
fn three_with(when_full: &str, change: impl FnOnce(&mut NodeSettings)) -> Cluster {
    let mut settings = NodeSettings {
        cluster: ClusterSettings {
            max_lag: Duration::from_secs(2),
            ..ClusterSettings::default()
        },
        offsets_partitions: 3,
        ..settings()
    };
    change(&mut settings);
    let mut cluster = Cluster::new(3, settings);
    let bound = [
        ("riverlog.max.records", "2"),
        ("riverlog.when.full", when_full),
    ];
    cluster.create("t", TOPIC, &[[1, 2, 3]], &bound);
    for id in 1..=3 {
        // Makes the topic of groups, whoever is asked.
        let node = cluster.node(id);
        node.node().group_coordinator("any", node.now());
    }
    cluster.run(second());
    cluster
}

fn coordinator(cluster: &Cluster, group: &str) -> Option<i32> {
    let up = cluster.nodes.iter().flatten().next()?;
    let id = up.node().group_coordinator(group, up.now())?.0;
    cluster.nodes[id as usize - 1].is_some().then_some(id)
}

/// A group that a node coordinates.
fn group_at(cluster: &Cluster, id: i32) -> String {
    let names = (0..1_000).map(|n| format!("group{n}"));
    let mut found = names.filter(|name| coordinator(cluster, name) == Some(id));
    found.next().expect("the node coordinates something")
}

/// Another one.
fn other_group_at(cluster: &Cluster, id: i32) -> String {
    let names = (0..1_000).map(|n| format!("other{n}"));
    let mut found = names.filter(|name| coordinator(cluster, name) == Some(id));
    found.next().expect("the node coordinates something")
}

fn commit_once(cluster: &mut Cluster, id: i32, group: &str, offset: i64) -> ErrorCode {
    let command = outside_commit(group, "t", offset);
    let node = cluster.node(id);
    let answer = node.ask(|node, now, reply| node.group(command, now, reply));
    match cluster.wait(&answer) {
        GroupAnswer::Partitions(ErrorCode::NONE, each) => each[0],
        GroupAnswer::Partitions(error, _) => error,
        other => panic!("{other:?}"),
    }
}

/// As clients do: again and again, until it is done.
fn commit(cluster: &mut Cluster, group: &str, offset: i64) {
    for _ in 0..200 {
        if let Some(id) = coordinator(cluster, group) {
            let error = commit_once(cluster, id, group, offset);
            if error == ErrorCode::NONE {
                return;
            }
            assert!(error.retriable(), "{error}");
        }
        cluster.run(Duration::from_millis(100));
    }
    panic!("the commit never succeeded");
}

fn send_to(cluster: &Cluster, id: i32, value: &str) -> Answer<Appended> {
    let to = cluster.led(id, "t");
    cluster.send(id, &to, batch(cluster.node(id), &[value]), -1)
}

fn put(cluster: &mut Cluster, value: &str) -> Result<i64, ErrorCode> {
    let answer = send_to(cluster, cluster.leader("t"), value);
    let answer = cluster.wait(&answer);
    answer.map(|a| a.base_offset.0).map_err(|f| f.error)
}

fn fill(cluster: &mut Cluster) {
    for value in ["a", "b"] {
        put(cluster, value).unwrap();
    }
}

/// Where the copy of a node begins.
fn start(cluster: &Cluster, id: i32) -> i64 {
    let copy = cluster.node(id).node().describe_copy(TOPIC, 0);
    copy.expect("a copy").partition.log_start_offset.0
}

#[test]
fn an_append_that_waits_is_acknowledged_once_a_group_elsewhere_has_committed() {
    let mut cluster = three("block");
    let group = group_at(&cluster, 2);
    fill(&mut cluster);
    let third = send_to(&cluster, LEADER, "c");
    cluster.run(second());
    assert!(!third.is_ready());
    commit(&mut cluster, &group, 2);
    cluster.run(Duration::from_millis(500));
    let third = third.take().expect("there is room").unwrap();
    assert_eq!(third.base_offset, Offset(2));
    // Followers hear of it, so that no later leader brings the records back.
    cluster.run(second());
    assert_eq!([1, 2, 3].map(|id| start(&cluster, id)), [2, 2, 2]);
}

#[test]
fn when_full_is_error_the_next_append_after_a_commit_elsewhere_is_acknowledged() {
    let mut cluster = three("error");
    let group = group_at(&cluster, 2);
    fill(&mut cluster);
    assert_eq!(put(&mut cluster, "c"), Err(ErrorCode::POLICY_VIOLATION));
    commit(&mut cluster, &group, 1);
    assert_eq!(put(&mut cluster, "c"), Ok(2));
    assert_eq!(put(&mut cluster, "d"), Err(ErrorCode::POLICY_VIOLATION));
    commit(&mut cluster, &group, 3);
    assert_eq!(put(&mut cluster, "d"), Ok(3));
    assert_eq!(put(&mut cluster, "e"), Ok(4));
    assert_eq!(start(&cluster, LEADER), 3);
}

#[test]
fn nothing_is_dropped_that_a_group_of_another_coordinator_has_not_committed() {
    let mut cluster = three("block");
    let groups = [1, 2, 3].map(|id| group_at(&cluster, id));
    for group in &groups {
        commit(&mut cluster, group, 0);
    }
    fill(&mut cluster);
    let third = send_to(&cluster, LEADER, "c");
    commit(&mut cluster, &groups[0], 2);
    commit(&mut cluster, &groups[1], 2);
    cluster.run(3 * second());
    assert!(!third.is_ready());
    assert_eq!(start(&cluster, LEADER), 0);
    commit(&mut cluster, &groups[2], 1);
    cluster.run(Duration::from_millis(500));
    assert!(third.take().expect("there is room").is_ok());
    assert_eq!(start(&cluster, LEADER), 1);
}

#[test]
fn messages_that_come_twice_or_get_lost_now_and_then_change_nothing() {
    let mut cluster = three("block");
    cluster.repeats = true;
    // The word that there is room never arrives, and of the questions and answers every other one.
    let count = std::cell::Cell::new(0);
    cluster.loses = Box::new(move |_, _, bytes| match bytes[1] {
        ROOM => true,
        LEAST_ASK | LEAST => {
            count.set(count.get() + 1);
            count.get() % 3 == 0
        }
        _ => false,
    });
    let (fast, slow) = (group_at(&cluster, 2), group_at(&cluster, 3));
    commit(&mut cluster, &fast, 0);
    commit(&mut cluster, &slow, 0);
    fill(&mut cluster);
    let third = send_to(&cluster, LEADER, "c");
    commit(&mut cluster, &fast, 2);
    cluster.run(5 * second());
    assert!(!third.is_ready());
    commit(&mut cluster, &slow, 1);
    assert!(cluster.wait(&third).is_ok());
    assert_eq!(start(&cluster, LEADER), 1);
}

#[test]
fn while_a_coordinator_cannot_be_reached_nothing_is_dropped() {
    let mut cluster = three("error");
    let (near, far) = (group_at(&cluster, 1), group_at(&cluster, 3));
    commit(&mut cluster, &far, 0);
    fill(&mut cluster);
    commit(&mut cluster, &near, 2);
    // Also round by way of the controller, which is this node.
    cluster.cut.extend([(LEADER, 3), (3, LEADER)]);
    assert_eq!(put(&mut cluster, "c"), Err(ErrorCode::POLICY_VIOLATION));
    assert_eq!(start(&cluster, LEADER), 0);
    cluster.cut.clear();
    commit(&mut cluster, &far, 1);
    assert_eq!(put(&mut cluster, "c"), Ok(2));
    assert_eq!(start(&cluster, LEADER), 1);
}

#[test]
fn a_coordinator_that_only_the_controller_hears_is_asked_by_way_of_it() {
    let mut cluster = three("error");
    cluster.led_at(2);
    let far = group_at(&cluster, 3);
    fill(&mut cluster);
    commit(&mut cluster, &far, 1);
    cluster.cut.extend([(LEADER, 3), (3, LEADER)]);
    // Node 3 follows neither node 1 nor the other way round: they leave each other out of their in-sync sets.
    cluster.run(5 * second());
    let done = (0..5).find_map(|_| put(&mut cluster, "c").ok());
    assert_eq!(done, Some(2));
    assert_eq!(start(&cluster, LEADER), 1);
}

#[test]
fn a_node_that_does_not_know_the_question_keeps_everything() {
    let mut cluster = three_with("error", |settings| settings.offsets_partitions = 1);
    fill(&mut cluster);
    commit(&mut cluster, "g", 2);
    let leads = coordinator(&cluster, "g");
    // It coordinates nothing, and may be the next that does: it would let groups begin before what others have promised to be dropped.
    let other = (2..=3).find(|id| Some(*id) != leads).expect("one is left");
    cluster.loses = Box::new(move |_, to, bytes| to == other && bytes[1] == LEAST_ASK);
    assert_eq!(put(&mut cluster, "c"), Err(ErrorCode::POLICY_VIOLATION));
    assert_eq!(start(&cluster, LEADER), 0);
    cluster.loses = Box::new(|_, _, _| false);
    assert_eq!(put(&mut cluster, "c"), Ok(2));
    // Who is gone isn't waited for.
    cluster.kill(other);
    cluster.run(12 * second());
    commit(&mut cluster, "g", 3);
    assert_eq!(put(&mut cluster, "d"), Ok(3));
}

#[test]
fn a_commit_that_is_not_for_good_does_not_count() {
    let mut cluster = three("error");
    let group = group_at(&cluster, 2);
    commit(&mut cluster, &group, 0);
    fill(&mut cluster);
    // Nobody gets what node 2 writes, and it answers what it is asked.
    cluster.loses = Box::new(|from, _, bytes| from == 2 && bytes[1] == RECORDS);
    let node = cluster.node(2);
    let command = outside_commit(&group, "t", 2);
    let committed = node.ask(|node, now, reply| node.group(command, now, reply));
    assert_eq!(put(&mut cluster, "c"), Err(ErrorCode::POLICY_VIOLATION));
    assert_eq!(start(&cluster, LEADER), 0);
    assert!(!committed.is_ready());
}

#[test]
fn a_coordinator_fails_over_while_an_append_waits() {
    let mut cluster = three("block");
    let (group, slow) = (group_at(&cluster, 2), group_at(&cluster, 3));
    commit(&mut cluster, &group, 0);
    commit(&mut cluster, &slow, 0);
    fill(&mut cluster);
    let third = send_to(&cluster, LEADER, "c");
    commit(&mut cluster, &group, 2);
    cluster.kill(2);
    // Until others coordinate what it did.
    cluster.run(12 * second());
    assert!(coordinator(&cluster, &group).is_some_and(|id| id != 2));
    assert!(!third.is_ready());
    assert_eq!(start(&cluster, LEADER), 0);
    commit(&mut cluster, &slow, 1);
    assert!(cluster.wait(&third).is_ok());
    assert_eq!(start(&cluster, LEADER), 1);
}

#[test]
fn the_leader_of_the_partition_fails_over_and_the_next_one_makes_room() {
    let mut cluster = three("error");
    let group = group_at(&cluster, 2);
    commit(&mut cluster, &group, 0);
    fill(&mut cluster);
    commit(&mut cluster, &group, 1);
    cluster.led_at(2);
    cluster.kill(LEADER);
    cluster.run(12 * second());
    let leader = cluster.leader("t");
    assert_ne!(leader, LEADER);
    assert_eq!(put(&mut cluster, "c"), Ok(2));
    assert_eq!(start(&cluster, leader), 1);
    assert_eq!(put(&mut cluster, "d"), Err(ErrorCode::POLICY_VIOLATION));
}

/// A question as the leader of the topic puts it, see `docs/protocol/peer.md`.
fn question(start: i64, drops: i64, shards: &[(i32, i32)]) -> Bytes {
    let mut bytes = vec![1, LEAST_ASK];
    bytes.extend(77_i64.to_be_bytes());
    bytes.extend([TOPIC.0.as_slice(), &0_i32.to_be_bytes()].concat());
    bytes.extend([start.to_be_bytes(), drops.to_be_bytes()].concat());
    bytes.push(shards.len() as u8 + 1);
    for (index, epoch) in shards {
        bytes.extend([index.to_be_bytes(), epoch.to_be_bytes()].concat());
    }
    bytes.push(0);
    bytes.into()
}

/// What a node leads of the topic that keeps groups.
fn shards_of(cluster: &Cluster, id: i32) -> Vec<(i32, i32)> {
    let image = cluster.node(LEADER).node().image();
    let topic = image.topic(GROUPS).expect("it was made");
    let numbered = (0..).zip(&topic.partitions);
    let led = numbered.filter(|(_, p)| p.leader == Some(BrokerId(id)));
    led.map(|(index, p)| (index, p.leader_epoch.0)).collect()
}

#[test]
fn no_group_begins_before_what_a_leader_is_about_to_drop() {
    let mut cluster = three("block");
    let (known, new) = (group_at(&cluster, 2), other_group_at(&cluster, 2));
    fill(&mut cluster);
    commit(&mut cluster, &known, 2);
    let shards = shards_of(&cluster, 2);
    let ask = |cluster: &Cluster, start, drops| {
        let node = cluster.node(2);
        let question = question(start, drops, &shards);
        node.node().on_peer(BrokerId(LEADER), &question, node.now());
    };
    // Somebody who only asks holds up nobody.
    ask(&cluster, 0, -1);
    assert_eq!(commit_once(&mut cluster, 2, &known, 2), ErrorCode::NONE);
    ask(&cluster, 0, 2);
    let wait = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
    assert_eq!(commit_once(&mut cluster, 2, &new, 1), wait);
    // Nor does one go back.
    assert_eq!(commit_once(&mut cluster, 2, &known, 0), wait);
    assert_eq!(commit_once(&mut cluster, 2, &known, 3), ErrorCode::NONE);
    cluster.run(Duration::from_millis(4_800));
    assert_eq!(commit_once(&mut cluster, 2, &new, 1), wait);
    cluster.run(Duration::from_millis(300));
    assert_eq!(commit_once(&mut cluster, 2, &new, 1), ErrorCode::NONE);
    // With a group behind it nothing is promised.
    ask(&cluster, 0, 2);
    assert_eq!(commit_once(&mut cluster, 2, &known, 0), ErrorCode::NONE);
    commit(&mut cluster, &known, 2);
    commit(&mut cluster, &new, 2);
    // What is gone is no reason to wait any longer.
    ask(&cluster, 0, 2);
    assert_eq!(commit_once(&mut cluster, 2, &new, 1), wait);
    ask(&cluster, 2, -1);
    assert_eq!(commit_once(&mut cluster, 2, &new, 1), ErrorCode::NONE);
}

#[test]
fn what_a_coordinator_has_promised_the_next_one_keeps_without_knowing_of_it() {
    let mut cluster = three("block");
    let (known, new) = (group_at(&cluster, 2), other_group_at(&cluster, 2));
    fill(&mut cluster);
    commit(&mut cluster, &known, 1);
    cluster.kill(2);
    let next = loop {
        cluster.run(Duration::from_millis(20));
        if let Some(id) = coordinator(&cluster, &known)
            && commit_once(&mut cluster, id, &known, 2) == ErrorCode::NONE
        {
            break id;
        }
    };
    // Whoever goes on does so at once, and who begins has to wait.
    let wait = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
    assert_eq!(commit_once(&mut cluster, next, &new, 1), wait);
    cluster.run(Duration::from_millis(4_500));
    assert_eq!(commit_once(&mut cluster, next, &new, 1), wait);
    cluster.run(Duration::from_millis(600));
    assert_eq!(commit_once(&mut cluster, next, &new, 1), ErrorCode::NONE);
}

#[test]
fn a_coordinator_that_others_have_gone_beyond_does_not_count() {
    // Node 3 acknowledges what it has alone, and nobody steps aside.
    let mut cluster = three_with("error", |settings| {
        let min_isr = ("min.insync.replicas".to_owned(), "1".to_owned());
        settings.configs.extend([min_isr]);
        settings.cluster.session = 60 * second();
    });
    cluster.led_at(3);
    let group = group_at(&cluster, 2);
    fill(&mut cluster);
    commit(&mut cluster, &group, 2);
    // Nodes 1 and 2 don't hear that node 3 leads alone what node 2 did.
    cluster.deaf.extend([1, 2]);
    let image = cluster.node(3).node().image();
    let topic = image.topic(GROUPS).expect("it was made");
    for (index, epoch) in shards_of(&cluster, 2) {
        cluster.agree(&[MetadataRecord::Partition {
            topic: topic.id,
            index,
            partition: PartitionImage {
                leader: Some(BrokerId(3)),
                isr: vec![BrokerId(3)],
                leader_epoch: LeaderEpoch(epoch + 1),
                partition_epoch: 100,
                ..topic.partitions[index as usize].clone()
            },
        }]);
    }
    cluster.run(3 * second());
    let begins = (0..100).any(|_| {
        cluster.run(Duration::from_millis(100));
        commit_once(&mut cluster, 3, &group, 0) == ErrorCode::NONE
    });
    assert!(begins);
    assert_eq!(coordinator(&cluster, &group), Some(2), "by node 1");
    // It has all that the group had committed there.
    assert_eq!(
        put_at(&mut cluster, LEADER),
        Err(ErrorCode::POLICY_VIOLATION)
    );
    assert_eq!(start(&cluster, LEADER), 0);
}

fn put_at(cluster: &mut Cluster, id: i32) -> Result<i64, ErrorCode> {
    let answer = send_to(cluster, id, "c");
    let answer = cluster.wait(&answer);
    answer.map(|a| a.base_offset.0).map_err(|f| f.error)
}
