//! Leaders that nobody hears, and leaders whose disk is full, failed or slow: others go on.

mod common;
#[path = "common/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod nodes;

use std::time::Duration;

use common::*;
use nodes::Cluster;
use riverlog_core::metadata::{AdminCommand, TopicRef};
use riverlog_log::disk::{FaultOn, Times};
use riverlog_node::{
    AppendAnswer, AppendCommand, AppendFailure, ClusterSettings, FetchCommand, FetchPartition,
    Isolation, Lane, NodeSettings, OffsetQuery, PartitionRef, Reply,
};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};

const TOPIC: TopicId = TopicId(*b"t, of this test.");

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Led by node 1, the controller is node 3.
fn three() -> Cluster {
    let settings = NodeSettings {
        cluster: ClusterSettings {
            max_lag: s(2),
            ..ClusterSettings::default()
        },
        ..settings()
    };
    let mut cluster = Cluster::new(3, settings);
    cluster.create("t", TOPIC, &[[1, 2, 3]], &[]);
    cluster.led_at(3);
    cluster.run(s(1));
    cluster
}

fn put(cluster: &mut Cluster, value: &str) -> Result<i64, ErrorCode> {
    let leader = cluster.leader("t");
    let to = cluster.led(leader, "t");
    let batch = batch(cluster.node(leader), &[value]);
    let answer = cluster.send(leader, &to, batch, -1);
    let answer = cluster.wait(&answer);
    answer.map(|a| a.base_offset.0).map_err(|f| f.error)
}

fn end(cluster: &mut Cluster, id: i32, of: &PartitionRef) -> Result<i64, ErrorCode> {
    let isolation = Isolation::ReadUncommitted;
    let answer = cluster.node(id).ask(|node, now, reply| {
        node.saw(now);
        node.offset(of, OffsetQuery::Latest, isolation, LeaderEpoch::NONE, reply);
    });
    let answer = cluster.wait(&answer);
    match answer.error {
        ErrorCode::NONE => Ok(answer.offset.0),
        error => Err(error),
    }
}

/// What a consumer gets, and how much of it.
fn fetch(cluster: &mut Cluster, id: i32, from: i64) -> (ErrorCode, usize) {
    let command = FetchCommand {
        partitions: vec![FetchPartition {
            topic: TopicRef::Id(TOPIC),
            partition: 0,
            from: Offset(from),
            max_bytes: 1 << 20,
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
        }],
        max_wait: s(1),
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation: Isolation::ReadUncommitted,
        replica: None,
    };
    let answer = cluster
        .node(id)
        .ask(|node, now, reply| node.fetch_near(command, "", now, reply));
    let answer = cluster.wait(&answer);
    let part = &answer.partitions[0];
    (part.error, part.records.len)
}

fn cut_off(cluster: &mut Cluster, id: i32) {
    for other in (1..=3).filter(|other| *other != id) {
        cluster.cut.extend([(id, other), (other, id)]);
    }
    cluster.deaf.insert(id);
}

fn heal(cluster: &mut Cluster) {
    cluster.cut.clear();
    cluster.deaf.clear();
    cluster.hand();
}

#[test]
fn a_leader_that_nobody_hears_sends_clients_away_and_tells_no_old_end() {
    let mut cluster = three();
    assert_eq!(put(&mut cluster, "a"), Ok(0));
    let known = cluster.led(1, "t");
    assert_eq!(end(&mut cluster, 1, &known), Ok(1));
    cut_off(&mut cluster, 1);
    // Nobody can be elected before its session is over: what it tells is the truth.
    cluster.run(s(1));
    assert_eq!(end(&mut cluster, 1, &known), Ok(1));
    let waits = cluster.send(1, &known, batch(cluster.node(1), &["lost"]), -1);
    cluster.run(s(3));
    assert_eq!(cluster.leader("t"), 2);
    assert_eq!(put(&mut cluster, "b"), Ok(1));
    // Who waits there is sent away, and who asks.
    let moved = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    assert_eq!(waits.take().expect("answered").unwrap_err().error, moved);
    assert_eq!(end(&mut cluster, 1, &known), Err(moved));
    let topic = TopicRef::Id(TOPIC);
    let there = cluster.node(1).node().clone();
    assert_eq!(there.partition(&topic, 0).unwrap_err(), moved);
    assert!(there.stands_aside(TOPIC, 0));
    // What it has of what was acknowledged stays readable; what comes next doesn't come there.
    let (error, bytes) = fetch(&mut cluster, 1, 0);
    assert_eq!((error, bytes > 0), (ErrorCode::NONE, true));
    assert_eq!(fetch(&mut cluster, 1, 1), (moved, 0));
    heal(&mut cluster);
    cluster.run(s(3));
    assert!(!there.stands_aside(TOPIC, 0));
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(put(&mut cluster, "c"), Ok(2));
}

/// Of a whole cluster that has lost its controller nobody has another leader.
#[test]
fn a_leader_that_followers_ask_goes_on_without_a_controller() {
    let mut cluster = three();
    assert_eq!(put(&mut cluster, "a"), Ok(0));
    let known = cluster.led(1, "t");
    cluster.kill(3);
    cluster.run(s(20));
    let there = cluster.node(1).node().clone();
    assert!(!there.stands_aside(TOPIC, 0));
    assert_eq!(end(&mut cluster, 1, &known), Ok(1));
    // Until the last of them is silent as well.
    cluster.cut.insert((2, 1));
    cluster.run(s(4));
    assert!(there.stands_aside(TOPIC, 0));
    cluster.cut.clear();
    cluster.run(s(2));
    assert!(!there.stands_aside(TOPIC, 0));
    assert_eq!(end(&mut cluster, 1, &known), Ok(1));
}

/// A process that stood still answers what waits at its sockets before any of its timers. There may be asks of its followers from before they had
/// another leader.
#[test]
fn a_leader_that_stood_still_tells_nothing_before_it_has_heard_again() {
    let mut cluster = three();
    let known = cluster.led(1, "t");
    let frozen = cluster.nodes[0].take().unwrap();
    cluster.run(s(4));
    assert_eq!(cluster.leader("t"), 2);
    assert_eq!(put(&mut cluster, "a"), Ok(0));
    let now = cluster.node(2).now();
    let (sender, receiver) = std::sync::mpsc::channel();
    frozen.node().saw(now);
    let waiting = cluster.lost.iter().filter(|(_, to, _)| *to == 1);
    let asked_before = waiting
        .filter(|(from, _, bytes)| {
            frozen.node().on_peer(BrokerId(*from), bytes, now);
            bytes[1] == 3
        })
        .count();
    assert!(asked_before > 0);
    frozen.node().offset(
        &known,
        OffsetQuery::Latest,
        Isolation::ReadUncommitted,
        LeaderEpoch::NONE,
        Reply::new(move |answer: riverlog_node::OffsetAnswer| {
            sender.send(answer.error).expect("somebody waits");
        }),
    );
    assert_eq!(receiver.recv(), Ok(ErrorCode::NOT_LEADER_OR_FOLLOWER));
}

/// What it refuses by what it knew could be final for a client: that its producer is fenced, say.
#[test]
fn a_leader_that_stood_still_refuses_nobody_by_what_it_knew() {
    let mut cluster = three();
    let known = cluster.led(1, "t");
    let id = cluster
        .node(1)
        .ask(|node, now, reply| node.init_producer(now, reply));
    let (id, _) = cluster.wait(&id).expect("an id");
    let numbered =
        |cluster: &Cluster, on: i32, sequence| idempotent(cluster.node(on), id, sequence, &["a"]);
    for sequence in 0..2 {
        let batch = numbered(&cluster, 1, sequence);
        let answer = cluster.send(1, &known, batch, -1);
        assert!(cluster.wait(&answer).is_ok());
    }
    let frozen = cluster.nodes[0].take().unwrap();
    cluster.run(s(4));
    let now_led = cluster.led(2, "t");
    for sequence in 2..4 {
        let batch = numbered(&cluster, 2, sequence);
        let answer = cluster.send(2, &now_led, batch, -1);
        assert!(cluster.wait(&answer).is_ok());
    }
    // By what it knew a batch is missing.
    let batch = numbered(&cluster, 2, 4);
    let now = cluster.node(2).now();
    let (sender, receiver) = std::sync::mpsc::channel();
    let command = AppendCommand {
        batch,
        acks: -1,
        timeout: s(10),
    };
    let reply = Reply::new(move |answer: Result<AppendAnswer, AppendFailure>| {
        sender.send(answer).expect("somebody waits");
    });
    frozen.node().append(&known, command, now, reply);
    let refused = receiver.try_recv().expect("an answer at once");
    let refused = refused.expect_err("it doesn't lead");
    assert_eq!(refused.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn what_a_full_disk_leads_is_led_by_others_until_it_has_had_room_for_a_while() {
    let mut cluster = three();
    assert_eq!(put(&mut cluster, "a"), Ok(0));
    cluster.disks[0].fill_up();
    let known = cluster.led(1, "t");
    let big = "x".repeat(100_000);
    for _ in 0..60 {
        // Until it finds that there is no room.
        let sent = cluster.send(1, &known, batch(cluster.node(1), &[&big]), -1);
        cluster.wait(&sent).map(drop).unwrap_or_default();
    }
    cluster.run(s(1));
    assert_eq!(cluster.leader("t"), 2);
    assert_eq!(cluster.image("t").isr, [BrokerId(2), BrokerId(3)]);
    assert!(put(&mut cluster, "b").is_ok());
    let elect = AdminCommand::ElectLeaders {
        partitions: vec![("t".to_owned(), 0)],
        unclean: false,
    };
    cluster.admin(elect.clone());
    assert_eq!(cluster.leader("t"), 2, "it can't lead yet");
    cluster.disks[0].set_capacity(None);
    cluster.run(s(5));
    assert_eq!(cluster.image("t").isr.len(), 3);
    cluster.admin(elect);
    assert_eq!(cluster.leader("t"), 1);
    assert!(put(&mut cluster, "c").is_ok());
}

#[test]
fn what_a_failed_disk_leads_is_led_by_others() {
    let mut cluster = three();
    assert_eq!(put(&mut cluster, "a"), Ok(0));
    let broken = std::io::ErrorKind::Other;
    cluster.disks[0].fail(FaultOn::Sync, Times::Forever, broken, |_| true);
    let refused = put(&mut cluster, "b");
    assert_eq!(refused, Err(ErrorCode::KAFKA_STORAGE_ERROR));
    cluster.run(s(1));
    assert_eq!(cluster.leader("t"), 2);
    // What was refused may be there, where others had it.
    assert!(put(&mut cluster, "c").is_ok());
}

#[test]
fn what_a_slow_disk_leads_is_led_by_others() {
    let mut cluster = three();
    assert_eq!(put(&mut cluster, "a"), Ok(0));
    let known = cluster.led(1, "t");
    let hold = |cluster: &mut Cluster, lane| cluster.nodes[0].as_mut().unwrap().hold(lane);
    hold(&mut cluster, Some(Lane::Flush));
    let waits = cluster.send(1, &known, batch(cluster.node(1), &["b"]), -1);
    cluster.run(Duration::from_millis(900));
    assert_eq!(cluster.leader("t"), 1);
    cluster.run(s(1));
    assert_eq!(cluster.leader("t"), 2);
    let refused = waits.take().expect("answered").unwrap_err();
    assert_eq!(refused.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert!(put(&mut cluster, "c").is_ok());
    assert_eq!(cluster.image("t").isr, [BrokerId(2), BrokerId(3)]);
    // It keeps out until it has been well for a while.
    hold(&mut cluster, None);
    cluster.run(s(1));
    assert_eq!(cluster.image("t").isr, [BrokerId(2), BrokerId(3)]);
    cluster.run(s(4));
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(cluster.leader("t"), 2);
}

/// With one other copy, and two of them needed, it stays in sync: slowly is better than not at all.
#[test]
fn a_slow_disk_stays_in_sync_where_it_is_needed() {
    let mut cluster = three();
    cluster.kill(3);
    cluster.led_at(2);
    cluster.run(s(5));
    assert_eq!(cluster.image("t").isr, [BrokerId(1), BrokerId(2)]);
    let known = cluster.led(1, "t");
    cluster.nodes[0].as_mut().unwrap().hold(Some(Lane::Flush));
    let waits = cluster.send(1, &known, batch(cluster.node(1), &["b"]), -1);
    cluster.run(Duration::from_millis(1_600));
    assert_eq!(cluster.leader("t"), 2);
    assert_eq!(cluster.image("t").isr, [BrokerId(1), BrokerId(2)]);
    assert!(waits.take().expect("answered").is_err());
    cluster.nodes[0].as_mut().unwrap().hold(None);
    assert!(put(&mut cluster, "c").is_ok());
}
