//! Replicas that move from node to node: nothing is lost on the way, and nothing is left behind.

mod common;
#[path = "common/cluster.rs"]
#[allow(
    unreachable_pub,
    dead_code,
    reason = "a module of tests, of which each uses some"
)]
mod nodes;

use std::time::Duration;

use common::*;
use nodes::Cluster;
use riverlog_core::metadata::{AdminAnswer, AdminCommand, ConfigResource, Reassignment};
use riverlog_log::{Disk, LogKey, OpenMode};
use riverlog_node::{ClusterSettings, NodeSettings};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{BrokerId, ErrorCode, PartitionIndex, TopicId};

fn second() -> Duration {
    Duration::from_secs(1)
}

fn ids(brokers: &[i32]) -> Vec<BrokerId> {
    brokers.iter().copied().map(BrokerId).collect()
}

/// Some nodes, and a topic with copies on the first three.
fn cluster(nodes: i32) -> Cluster {
    let settings = NodeSettings {
        cluster: ClusterSettings {
            max_lag: 2 * second(),
            ..ClusterSettings::default()
        },
        ..settings()
    };
    let mut cluster = Cluster::new(nodes, settings);
    cluster.create("t", TopicId([9; 16]), &[[1, 2, 3]], &[]);
    cluster.run(Duration::from_millis(50));
    cluster
}

/// At a node, which need not be the controller.
fn reassign(cluster: &mut Cluster, at: i32, replicas: Option<&[i32]>) -> ErrorCode {
    let command = AdminCommand::Reassign {
        partitions: vec![Reassignment {
            topic: "t".to_owned(),
            index: 0,
            replicas: replicas.map(ids),
        }],
        factor_may_change: true,
    };
    let node = cluster.node(at);
    let answer = node.ask(|node, now, reply| node.admin(command, now, reply));
    match cluster.wait(&answer) {
        Ok(AdminAnswer::Results(results)) => results[0].error,
        other => panic!("{other:?}"),
    }
}

fn put(cluster: &mut Cluster, value: &str) -> i64 {
    let leader = cluster.leader("t");
    let to = cluster.led(leader, "t");
    let batch = batch(cluster.node(leader), &[value]);
    let answer = cluster.send(leader, &to, batch, -1);
    let answer = cluster.wait(&answer);
    answer.expect("acknowledged").base_offset.0
}

fn all(cluster: &mut Cluster) -> Vec<String> {
    let leader = cluster.leader("t");
    let node = cluster.nodes[leader as usize - 1].as_mut().unwrap();
    let read = read_all(node, "t", 0);
    read.into_iter().map(|(_, value)| value).collect()
}

/// Where the log of a node's copy ends; `None`: it has none.
fn end_at(cluster: &Cluster, id: i32) -> Option<i64> {
    let copy = cluster.node(id).node().describe_copy(TopicId([9; 16]), 0)?;
    Some(copy.partition.log_end_offset.0)
}

/// Whether files of the partition are in a node's folder.
fn has_files(cluster: &Cluster, id: i32) -> bool {
    let key = LogKey {
        topic: TopicId([9; 16]),
        partition: PartitionIndex(0),
    };
    let files = cluster.disks[id as usize - 1].list(&key.folder());
    !files.expect("the disk reads").is_empty()
}

#[test]
fn a_partition_moves_while_it_is_written_and_what_it_leaves_is_removed() {
    let mut cluster = cluster(5);
    let mut written = Vec::new();
    let mut write = |cluster: &mut Cluster, value: &str| {
        assert_eq!(put(cluster, value), written.len() as i64);
        written.push(value.to_owned());
    };
    for value in ["a", "b", "c"] {
        write(&mut cluster, value);
    }
    assert_eq!(reassign(&mut cluster, 2, Some(&[4, 5, 3])), ErrorCode::NONE);
    for value in ["d", "e"] {
        write(&mut cluster, value);
    }
    cluster.run(2 * second());
    let image = cluster.image("t");
    assert_eq!(image.replicas, ids(&[4, 5, 3]));
    assert_eq!(image.isr.len(), 3);
    assert!(!image.is_moving());
    write(&mut cluster, "f");
    cluster.run(second());
    let ends: Vec<_> = (1..=5).map(|id| end_at(&cluster, id)).collect();
    assert_eq!(ends, [None, None, Some(6), Some(6), Some(6)]);
    let files: Vec<_> = (1..=5).map(|id| has_files(&cluster, id)).collect();
    assert_eq!(files, [false, false, true, true, true]);
    // Without those that had it before.
    for id in [1, 2, 3] {
        if id == 3 {
            cluster.led_at(4);
        }
        cluster.kill(id);
    }
    cluster.run(4 * second());
    assert_eq!(all(&mut cluster), ["a", "b", "c", "d", "e", "f"]);
}

#[test]
fn what_is_under_way_outlives_its_controller_and_a_node_that_restarts() {
    let mut cluster = cluster(4);
    put(&mut cluster, "a");
    cluster.cut = [(1, 4), (2, 4), (3, 4)].into();
    assert_eq!(reassign(&mut cluster, 1, Some(&[2, 3, 4])), ErrorCode::NONE);
    put(&mut cluster, "b");
    assert!(cluster.image("t").is_moving());
    assert_eq!(cluster.image("t").adding, ids(&[4]));
    cluster.led_at(3);
    cluster.kill(1);
    cluster.run(4 * second());
    put(&mut cluster, "c");
    cluster.kill(4);
    cluster.start(4);
    cluster.cut.clear();
    cluster.start(1);
    cluster.run(4 * second());
    assert_eq!(cluster.image("t").replicas, ids(&[2, 3, 4]));
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(end_at(&cluster, 4), Some(3));
    assert_eq!(end_at(&cluster, 1), None);
    assert!(!has_files(&cluster, 1));
    assert_eq!(all(&mut cluster), ["a", "b", "c"]);
}

#[test]
fn what_is_taken_back_leaves_nothing_and_may_come_again() {
    let mut cluster = cluster(4);
    put(&mut cluster, "a");
    assert_eq!(
        reassign(&mut cluster, 1, None),
        ErrorCode::NO_REASSIGNMENT_IN_PROGRESS
    );
    // It has some of it, and can't say so.
    cluster.cut = [(4, 1)].into();
    assert_eq!(reassign(&mut cluster, 1, Some(&[1, 2, 4])), ErrorCode::NONE);
    cluster.run(second());
    assert!(end_at(&cluster, 4).is_some());
    assert_eq!(reassign(&mut cluster, 4 - 1, None), ErrorCode::NONE);
    assert_eq!(cluster.image("t").replicas, ids(&[1, 2, 3]));
    cluster.cut.clear();
    // At once again: what is there is removed before it is made anew.
    assert_eq!(reassign(&mut cluster, 1, Some(&[1, 2, 4])), ErrorCode::NONE);
    cluster.run(2 * second());
    assert_eq!(cluster.image("t").replicas, ids(&[1, 2, 4]));
    assert_eq!(put(&mut cluster, "b"), 1);
    cluster.run(second());
    assert_eq!(end_at(&cluster, 4), Some(2));
    assert_eq!(end_at(&cluster, 3), None);
    assert!(!has_files(&cluster, 3));
}

#[test]
fn a_partition_gets_by_with_fewer_copies_and_takes_more() {
    let mut cluster = cluster(3);
    for (replicas, value) in [
        (&[2][..], "a"),
        (&[3, 1, 2], "b"),
        (&[1, 3], "c"),
        (&[2, 1, 3], "d"),
    ] {
        assert_eq!(reassign(&mut cluster, 1, Some(replicas)), ErrorCode::NONE);
        put(&mut cluster, value);
        cluster.run(2 * second());
        assert_eq!(cluster.image("t").replicas, ids(replicas));
        assert_eq!(cluster.image("t").isr.len(), replicas.len());
        put(&mut cluster, value);
    }
    let ends: Vec<_> = (1..=3).map(|id| end_at(&cluster, id)).collect();
    assert_eq!(ends, [Some(8), Some(8), Some(8)]);
}

#[test]
fn catching_up_keeps_to_its_rate_and_the_tail_doesnt_feel_it() {
    for key in ["leader", "follower"] {
        let mut cluster = cluster(4);
        for _ in 0..20 {
            put(&mut cluster, &"x".repeat(10_000));
        }
        let key = &format!("{key}.replication.throttled.rate");
        let rate = |value| config(ConfigResource::Broker(String::new()), key, value);
        cluster.admin(rate(Some("20000")));
        cluster.run(second());
        assert_eq!(reassign(&mut cluster, 1, Some(&[1, 2, 4])), ErrorCode::NONE);
        cluster.run(4 * second());
        // 200 kB at 20 kB/s take ten seconds.
        let some = end_at(&cluster, 4).unwrap();
        assert!((4..16).contains(&some), "{key}: {some}");
        assert!(cluster.image("t").is_moving());
        let to = cluster.led(1, "t");
        let sent = cluster.send(1, &to, batch(cluster.node(1), &["y"]), -1);
        cluster.run(Duration::from_millis(200));
        assert!(sent.is_ready(), "{key}: those in sync wait for who isn't");
        cluster.run(10 * second());
        assert_eq!(cluster.image("t").replicas, ids(&[1, 2, 4]), "{key}");
    }
}

#[test]
fn what_a_copy_catches_up_with_comes_in_small_pieces_that_can_be_told_from_all_else() {
    let mut cluster = cluster(4);
    for _ in 0..150 {
        put(&mut cluster, &"x".repeat(10_000));
    }
    // All who follow are in sync.
    let pieces = std::mem::take(&mut cluster.caught_up_with);
    assert!(pieces.iter().sum::<usize>() < 10_000, "{pieces:?}");
    assert_eq!(reassign(&mut cluster, 1, Some(&[1, 2, 4])), ErrorCode::NONE);
    cluster.run(4 * second());
    assert_eq!(end_at(&cluster, 4), Some(150));
    let pieces = &cluster.caught_up_with;
    assert!(pieces.iter().sum::<usize>() > 1_500_000, "{pieces:?}");
    assert!(pieces.iter().all(|len| *len < 600_000), "{pieces:?}");
}

/// What a node hears of after a start begins long before it went: by that its copy had been taken away once, and was here again since. It
/// was removed then, with what it alone might have had.
#[test]
fn a_node_that_starts_keeps_a_copy_that_had_been_away_and_come_back() {
    let mut cluster = cluster(3);
    put(&mut cluster, "a");
    for replicas in [&[2, 3][..], &[1, 2, 3]] {
        assert_eq!(reassign(&mut cluster, 1, Some(replicas)), ErrorCode::NONE);
        cluster.run(3 * second());
    }
    assert_eq!(cluster.image("t").isr.len(), 3);
    put(&mut cluster, "b");
    cluster.led_at(1);
    for id in 1..=3 {
        cluster.kill(id);
    }
    cluster.start(1);
    assert_eq!(end_at(&cluster, 1), Some(2));
    assert!(has_files(&cluster, 1));
    cluster.run(second());
    assert_eq!(end_at(&cluster, 1), Some(2));
    // One that has gone for good goes when the node knows of all that came meanwhile.
    cluster.start(2);
    cluster.start(3);
    cluster.run(5 * second());
    assert_eq!(all(&mut cluster), ["a", "b"]);
    cluster.kill(3);
    assert_eq!(reassign(&mut cluster, 1, Some(&[1, 2])), ErrorCode::NONE);
    cluster.run(5 * second());
    cluster.start(3);
    assert!(has_files(&cluster, 3));
    cluster.run(3 * second());
    assert_eq!(end_at(&cluster, 3), None);
    assert!(!has_files(&cluster, 3));
    assert_eq!(all(&mut cluster), ["a", "b"]);
}

#[test]
fn what_was_cleaned_of_a_copy_is_forgotten_when_that_moves_away() {
    let settings = NodeSettings {
        configs: [("log.cleaner.backoff.ms".to_owned(), "100".to_owned())].into(),
        ..settings()
    };
    let mut cluster = Cluster::new(4, settings);
    let compact = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
    ];
    cluster.create("t", TopicId([9; 16]), &[[1, 2, 3]], &compact);
    cluster.run(Duration::from_millis(50));
    for i in 0..20 {
        let to = cluster.led(1, "t");
        let mut batch = BatchBuilder::new(Compression::None);
        let (now, value) = (cluster.node(1).now().wall_ms, format!("{i:0300}"));
        batch.push(now, Some(b"k"), Some(value.as_bytes()), &[]);
        let sent = cluster.send(1, &to, batch.build(), -1);
        assert!(cluster.wait(&sent).is_ok());
    }
    let key = LogKey {
        topic: TopicId([9; 16]),
        partition: PartitionIndex(0),
    };
    let known = |cluster: &Cluster, id: i32| {
        let disk = &cluster.disks[id as usize - 1];
        let Ok(file) = disk.open("cleaner-offset-checkpoint", OpenMode::Read) else {
            return false;
        };
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        text.contains(&key.topic.to_string())
    };
    cluster.run(5 * second());
    assert!(known(&cluster, 2) && known(&cluster, 3));
    assert_eq!(reassign(&mut cluster, 1, Some(&[1, 2, 4])), ErrorCode::NONE);
    cluster.run(5 * second());
    assert!(!has_files(&cluster, 3));
    assert!(known(&cluster, 2) && !known(&cluster, 3));
}
