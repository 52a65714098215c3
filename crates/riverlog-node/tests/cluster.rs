//! Stories of a few nodes: copies, acknowledgements, fail-over, what is cut and what is kept.

mod common;
#[path = "common/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod nodes;

use std::time::Duration;

use common::*;
use nodes::Cluster;
use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, MetadataRecord, NewTopic, PartitionImage, Resource, TopicRef, Way,
};
use riverlog_log::disk::CrashDisk;
use riverlog_node::{ClusterSettings, NodeSettings};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{BrokerId, ErrorCode, Generation, LeaderEpoch, Offset, ProducerId, TopicId};

fn second() -> Duration {
    Duration::from_secs(1)
}

fn quick() -> NodeSettings {
    NodeSettings {
        cluster: ClusterSettings {
            max_lag: Duration::from_secs(2),
            ..ClusterSettings::default()
        },
        ..settings()
    }
}

fn three() -> Cluster {
    let mut cluster = Cluster::new(3, quick());
    make(&mut cluster, "t", &[]);
    cluster
}

fn make(cluster: &mut Cluster, name: &str, configs: &[(&str, &str)]) {
    let mut id = [9; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    cluster.create(name, TopicId(id), &[[1, 2, 3]], configs);
    cluster.run(Duration::from_millis(50));
}

/// Sends values to the leader, and says what came of it.
fn put(cluster: &mut Cluster, value: &str) -> Result<i64, ErrorCode> {
    let leader = cluster.leader("t");
    let to = cluster.led(leader, "t");
    let batch = batch(cluster.node(leader), &[value]);
    let answer = cluster.send(leader, &to, batch, -1);
    let answer = cluster.wait(&answer);
    answer.map(|a| a.base_offset.0).map_err(|f| f.error)
}

/// So patient that silence tells nothing within a test.
fn patient() -> Cluster {
    let cluster = ClusterSettings {
        session: 60 * second(),
        ..ClusterSettings::default()
    };
    let mut cluster = Cluster::new(
        3,
        NodeSettings {
            cluster,
            ..settings()
        },
    );
    make(&mut cluster, "t", &[]);
    for (id, of) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
        assert!(!cluster.sees(id, of, Way::Stands));
    }
    cluster
}

#[test]
fn a_leader_whose_process_has_ended_is_followed_at_once() {
    let mut cluster = patient();
    cluster.led_at(3);
    put(&mut cluster, "a").expect("acknowledged");
    let before = cluster.image("t").leader_epoch;
    assert_eq!(cluster.leader("t"), 1);
    cluster.kill(1);
    cluster.are_refused(1);
    cluster.run(Duration::from_millis(50));
    let image = cluster.image("t");
    assert_eq!(image.leader, Some(BrokerId(2)));
    assert_eq!(image.isr, [BrokerId(2), BrokerId(3)]);
    assert!(image.leader_epoch > before);
    assert_eq!(put(&mut cluster, "b"), Ok(1));
    cluster.start(1);
    cluster.run(3 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(all(&mut cluster), ["a", "b"]);
}

#[test]
fn a_controller_that_takes_over_knows_who_has_gone_before() {
    let mut cluster = patient();
    put(&mut cluster, "a").expect("acknowledged");
    // The controller, which leads as well.
    cluster.kill(1);
    cluster.are_refused(1);
    cluster.run(second());
    cluster.led_at(2);
    cluster.run(Duration::from_millis(50));
    assert_eq!(cluster.leader("t"), 2);
    assert_eq!(put(&mut cluster, "b"), Ok(1));
}

#[test]
fn who_is_refused_and_lives_is_let_in_again_and_loses_nothing() {
    let mut cluster = patient();
    cluster.led_at(3);
    put(&mut cluster, "a").expect("acknowledged");
    // Something on the way refuses in its name, and it hears and says everything.
    for way in [Way::Ended, Way::Refused] {
        assert!(!cluster.sees(3, 1, way));
    }
    // It is heard: that counts anew.
    cluster.run(second());
    assert!(!cluster.sees(3, 1, Way::Refused));
    assert_eq!(cluster.leader("t"), 1);
    // Nothing is heard of it for a moment.
    cluster.cut = [(1, 3)].into();
    cluster.run(Duration::from_millis(50));
    assert!(cluster.sees(3, 1, Way::Refused));
    cluster.run(Duration::from_millis(50));
    assert_eq!(cluster.leader("t"), 2);
    cluster.cut.clear();
    cluster.run(3 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(put(&mut cluster, "b"), Ok(1));
    // Once is enough: it is still refused, and silent for a while.
    cluster.cut = [(1, 3)].into();
    for _ in 0..10 {
        cluster.run(Duration::from_millis(100));
        assert!(!cluster.sees(3, 1, Way::Refused));
    }
    cluster.cut.clear();
    assert_eq!(all(&mut cluster), ["a", "b"]);
}

fn all(cluster: &mut Cluster) -> Vec<String> {
    let leader = cluster.leader("t");
    let node = cluster.nodes[leader as usize - 1].as_mut().unwrap();
    let read = read_all(node, "t", 0);
    read.into_iter().map(|(_, value)| value).collect()
}

#[test]
fn a_record_is_acknowledged_once_all_that_are_in_sync_have_it() {
    let mut cluster = three();
    assert_eq!(put(&mut cluster, "a"), Ok(0));
    // A follower that doesn't hear of it holds the answer back, until it leaves the in-sync set.
    cluster.cut = [(1, 3)].into();
    let to = cluster.led(1, "t");
    let sent = cluster.send(1, &to, batch(cluster.node(1), &["b"]), -1);
    cluster.run(second());
    assert!(!sent.is_ready());
    assert_eq!(cluster.describe(1, &to).high_watermark.0, 1);
    cluster.run(3 * second());
    assert_eq!(sent.take().expect("answered").unwrap().base_offset.0, 1);
    assert_eq!(cluster.image("t").isr, [BrokerId(1), BrokerId(2)]);
    // It comes back once it has everything.
    cluster.cut.clear();
    cluster.run(3 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(put(&mut cluster, "c"), Ok(2));
    assert_eq!(all(&mut cluster), ["a", "b", "c"]);
    let topic = TopicRef::Name("t".to_owned());
    let elsewhere = cluster.node(2).node().partition(&topic, 0);
    assert_eq!(elsewhere.unwrap_err(), ErrorCode::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn a_killed_leader_is_followed_by_one_that_has_everything_and_comes_back_behind_it() {
    let mut cluster = three();
    cluster.led_at(3);
    for value in ["a", "b", "c"] {
        put(&mut cluster, value).expect("acknowledged");
    }
    cluster.kill(1);
    cluster.run(4 * second());
    assert_eq!(cluster.leader("t"), 2);
    assert_eq!(put(&mut cluster, "d"), Ok(3));
    assert_eq!(all(&mut cluster), ["a", "b", "c", "d"]);
    cluster.start(1);
    cluster.run(3 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    cluster.kill(2);
    cluster.run(4 * second());
    assert_ne!(cluster.leader("t"), 2);
    assert_eq!(all(&mut cluster), ["a", "b", "c", "d"]);
}

#[test]
fn what_a_superseded_leader_has_alone_is_cut_and_never_acknowledged() {
    let mut cluster = three();
    cluster.led_at(3);
    put(&mut cluster, "a").expect("acknowledged");
    let old = cluster.led(1, "t");
    // The leader hears nobody, and nobody hears it.
    cluster.cut = [(1, 2), (2, 1), (1, 3), (3, 1)].into();
    let lost = cluster.send(1, &old, batch(cluster.node(1), &["lost"]), -1);
    cluster.run(4 * second());
    assert_eq!(cluster.leader("t"), 2);
    put(&mut cluster, "b").expect("acknowledged");
    cluster.cut.clear();
    cluster.run(3 * second());
    // It has heard of the new leader by metadata.
    let answer = lost.take().expect("answered");
    assert_eq!(answer.unwrap_err().error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(cluster.image("t").isr.len(), 3);
    put(&mut cluster, "c").expect("acknowledged");
    cluster.run(second());
    // Led there again, it shows what the others had.
    let elect = AdminCommand::ElectLeaders {
        partitions: vec![("t".to_owned(), 0)],
        unclean: false,
    };
    cluster.admin(elect);
    cluster.run(second());
    assert_eq!(cluster.leader("t"), 1);
    assert_eq!(all(&mut cluster), ["a", "b", "c"]);
}

/// One entry holds what was decided of several commands: a min ISR that was raised, and then an in-sync set that is too small for it.
#[test]
fn an_in_sync_set_counts_with_the_min_isr_that_it_was_decided_with() {
    let mut cluster = Cluster::new(3, quick());
    make(&mut cluster, "t", &[("min.insync.replicas", "1")]);
    cluster.led_at(3);
    put(&mut cluster, "a").expect("acknowledged");
    cluster.cut = [(2, 1), (3, 1), (1, 3)].into();
    let to = cluster.led(1, "t");
    let waits = cluster.send(1, &to, batch(cluster.node(1), &["b"]), -1);
    cluster.run(Duration::from_millis(50));
    assert!(!waits.is_ready(), "others may have it");
    let image = cluster.node(3).node().image();
    let topic = image.topic("t").expect("a topic");
    let before = &topic.partitions[0];
    let alone = PartitionImage {
        isr: vec![BrokerId(1)],
        elr: vec![BrokerId(2), BrokerId(3)],
        partition_epoch: before.partition_epoch + 1,
        ..before.clone()
    };
    cluster.agree(&[
        MetadataRecord::Config {
            resource: Resource::Topic(topic.id),
            key: "min.insync.replicas".to_owned(),
            value: Some("2".to_owned()),
        },
        MetadataRecord::Partition {
            topic: topic.id,
            index: 0,
            partition: alone,
        },
    ]);
    cluster.run(Duration::from_millis(50));
    assert_eq!(cluster.describe(1, &to).high_watermark, Offset(1));
    let few = ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND;
    assert_eq!(waits.take().expect("answered").unwrap_err().error, few);
}

/// Somebody has elected a leader that lacks much, and records of the others were deleted beyond its end.
#[test]
fn a_copy_that_begins_behind_its_leaders_end_is_made_anew() {
    let mut cluster = three();
    put(&mut cluster, "a").expect("acknowledged");
    cluster.kill(2);
    cluster.run(4 * second());
    for value in ["b", "c", "d"] {
        put(&mut cluster, value).expect("acknowledged");
    }
    let to = cluster.led(1, "t");
    let deleted = cluster
        .node(1)
        .ask(|node, now, reply| node.delete_records(&to, Offset(3), now, reply));
    assert_eq!(cluster.wait(&deleted), Ok(Offset(3)));
    cluster.led_at(2);
    for id in [1, 3] {
        cluster.kill(id);
    }
    cluster.start(2);
    cluster.run(4 * second());
    let elect = AdminCommand::ElectLeaders {
        partitions: vec![("t".to_owned(), 0)],
        unclean: true,
    };
    cluster.admin(elect);
    cluster.run(second());
    assert_eq!(cluster.leader("t"), 2);
    for id in [1, 3] {
        cluster.start(id);
    }
    cluster.run(4 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    put(&mut cluster, "e").expect("acknowledged");
    assert_eq!(all(&mut cluster), ["a", "e"]);
    let starts: Vec<i64> = (1..=3).map(|id| start_at(&cluster, id)).collect();
    assert_eq!(starts, [0, 0, 0]);
}

#[test]
fn a_power_cut_of_all_nodes_loses_nothing_that_was_acknowledged() {
    let mut cluster = three();
    for value in ["a", "b", "c"] {
        put(&mut cluster, value).expect("acknowledged");
    }
    for id in 1..=3 {
        cluster.power_cut(id, 40 + id as u64);
    }
    cluster.run(second());
    for id in [3, 2, 1] {
        cluster.start(id);
        cluster.run(second());
    }
    cluster.run(5 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(all(&mut cluster), ["a", "b", "c"]);
    assert_eq!(put(&mut cluster, "d"), Ok(3));
}

#[test]
fn with_too_few_in_sync_nothing_is_promised() {
    let mut cluster = three();
    cluster.led_at(1);
    put(&mut cluster, "a").expect("acknowledged");
    cluster.kill(2);
    cluster.kill(3);
    let to = cluster.led(1, "t");
    let waits = cluster.send(1, &to, batch(cluster.node(1), &["b"]), -1);
    cluster.run(6 * second());
    let failure = waits.take().expect("answered").unwrap_err();
    assert_eq!(failure.error, ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND);
    assert_eq!(put(&mut cluster, "c"), Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    assert_eq!(cluster.describe(1, &to).high_watermark.0, 1);
    let image = cluster.image("t");
    // Both left at once, so both had everything.
    assert_eq!((image.isr.len(), image.elr.len()), (1, 2));
    cluster.start(3);
    cluster.run(4 * second());
    assert_eq!(put(&mut cluster, "d"), Ok(2));
    assert_eq!(all(&mut cluster), ["a", "b", "d"]);
}

#[test]
fn a_node_that_stops_gives_its_leaderships_away_without_a_failed_send() {
    let mut cluster = three();
    cluster.led_at(2);
    put(&mut cluster, "a").expect("acknowledged");
    let node = cluster.node(1);
    node.node().prepare_to_stop(node.now());
    assert!(!node.node().may_stop());
    cluster.run(2 * second());
    assert!(cluster.node(1).node().may_stop());
    assert_ne!(cluster.leader("t"), 1);
    put(&mut cluster, "b").expect("acknowledged");
    let stopped = cluster.nodes[0].take().unwrap();
    stopped.close().expect("a clean stop");
    put(&mut cluster, "c").expect("acknowledged");
    cluster.start(1);
    cluster.run(3 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    assert_eq!(all(&mut cluster), ["a", "b", "c"]);
}

#[test]
fn another_disk_counts_for_nothing_until_it_has_caught_up() {
    let mut cluster = three();
    cluster.led_at(1);
    for value in ["a", "b"] {
        put(&mut cluster, value).expect("acknowledged");
    }
    cluster.kill(3);
    cluster.disks[2] = riverlog_log::disk::CrashDisk::new(77);
    cluster.start(3);
    let mut left = false;
    for _ in 0..40 {
        cluster.run(Duration::from_millis(5));
        left |= !cluster.image("t").isr.contains(&BrokerId(3));
    }
    assert!(left, "it was taken for the one before");
    cluster.run(3 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    cluster.led_at(3);
    cluster.kill(1);
    cluster.kill(2);
    cluster.run(4 * second());
    cluster.start(1);
    cluster.run(4 * second());
    assert_eq!(all(&mut cluster), ["a", "b"]);
}

#[test]
fn offsets_of_a_group_move_with_their_partition() {
    let mut cluster = three();
    cluster.led_at(2);
    let coordinator = |cluster: &mut Cluster, of: i32| {
        for _ in 0..2_000 {
            let node = cluster.node(of).node().clone();
            match node.group_coordinator("g", cluster.node(of).now()) {
                Some(broker) => return broker.0,
                None => cluster.run(Duration::from_millis(5)),
            }
        }
        panic!("no coordinator");
    };
    let at = TopicPartition {
        id: cluster.node(2).node().image().topic("t").unwrap().id,
        topic: "t".to_owned(),
        partition: 0,
    };
    let commit = |at: &TopicPartition| {
        let committed = CommittedOffset {
            offset: Offset(7),
            leader_epoch: LeaderEpoch(0),
            metadata: String::new(),
            commit_timestamp: 0,
            expire_timestamp: None,
        };
        GroupCommand::Commit {
            group: "g".to_owned(),
            generation: Generation(-1),
            member: String::new(),
            instance: None,
            offsets: vec![(at.clone(), committed)],
            version: 8,
        }
    };
    let here = coordinator(&mut cluster, 2);
    cluster.run(second());
    let topic = cluster.node(2).node().image();
    let topic = topic.topic("__consumer_offsets").unwrap();
    assert!(topic.partitions.iter().all(|p| p.replicas.len() == 3));
    let node = cluster.node(here);
    let answer = node.ask(|node, now, reply| node.group(commit(&at), now, reply));
    let answer = cluster.wait(&answer);
    assert_eq!(
        answer,
        GroupAnswer::Partitions(ErrorCode::NONE, vec![ErrorCode::NONE])
    );

    // Another node doesn't coordinate it, and says so.
    let other = (1..=3).find(|id| *id != here).unwrap();
    let node = cluster.node(other);
    let refused = node.ask(|node, now, reply| node.group(commit(&at), now, reply));
    let refused = format!("{:?}", cluster.wait(&refused));
    assert!(
        refused.contains("NOT_COORDINATOR") || refused.contains("(16)"),
        "{refused}"
    );

    cluster.led_at(other);
    cluster.kill(here);
    cluster.run(4 * second());
    let there = coordinator(&mut cluster, other);
    assert_ne!(there, here);
    for _ in 0..100 {
        let node = cluster.node(there);
        let asked = vec![at.clone()];
        let answer = node.ask(|node, now, reply| {
            node.committed("g", Some(asked), None, now, reply);
        });
        match cluster.wait(&answer) {
            Ok(found) => {
                let offset = found[0].1.as_ref().map(|c| c.offset);
                return assert_eq!(offset, Some(Offset(7)));
            }
            Err(error) => assert_eq!(error, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        }
        cluster.run(Duration::from_millis(5));
    }
    panic!("it never loads");
}

#[test]
fn a_deletion_is_answered_once_all_that_are_in_sync_have_followed() {
    let mut cluster = three();
    for value in ["a", "b", "c"] {
        put(&mut cluster, value).expect("acknowledged");
    }
    cluster.cut = [(1, 3)].into();
    let to = cluster.led(1, "t");
    let delete = |cluster: &Cluster, before| {
        let node = cluster.node(1);
        node.ask(|node, now, reply| node.delete_records(&to, Offset(before), now, reply))
    };
    let deleted = delete(&cluster, 2);
    cluster.run(second());
    assert!(!deleted.is_ready(), "the third node still has them");
    cluster.cut.clear();
    cluster.run(2 * second());
    assert_eq!(deleted.take(), Some(Ok(Offset(2))));
    let starts: Vec<i64> = (1..=3).map(|id| start_at(&cluster, id)).collect();
    assert_eq!(starts, [2, 2, 2]);
    // Whoever leaves the in-sync set isn't waited for; it follows when it comes back.
    cluster.cut = [(1, 3), (3, 1)].into();
    let deleted = delete(&cluster, 3);
    cluster.run(4 * second());
    assert_eq!(deleted.take(), Some(Ok(Offset(3))));
    assert_eq!(start_at(&cluster, 3), 2);
    cluster.cut.clear();
    cluster.run(3 * second());
    assert_eq!(start_at(&cluster, 3), 3);
    // A leader that is none any more can't say what became of it.
    put(&mut cluster, "d").expect("acknowledged");
    cluster.cut = [(1, 2), (1, 3), (2, 1), (3, 1)].into();
    let deleted = delete(&cluster, -1);
    cluster.led_at(2);
    cluster.run(5 * second());
    cluster.cut.clear();
    cluster.run(3 * second());
    assert_ne!(cluster.leader("t"), 1);
    assert_eq!(deleted.take(), Some(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)));
}

fn start_at(cluster: &Cluster, id: i32) -> i64 {
    let topic = cluster.node(id).node().image().topic("t").unwrap().id;
    let copy = cluster.node(id).node().describe_copy(topic, 0).unwrap();
    copy.partition.log_start_offset.0
}

#[test]
fn any_node_takes_commands_and_answers_once_it_knows_what_they_changed() {
    let mut cluster = three();
    for id in 1..=3 {
        let name = format!("n{id}");
        let topic = NewTopic {
            name: name.clone(),
            partitions: 1,
            replication_factor: 3,
            id: TopicId([id as u8; 16]),
            ..NewTopic::default()
        };
        let ask = |cluster: &mut Cluster, command| {
            let node = cluster.node(id);
            let answer = node.ask(|node, now, reply| node.admin(command, now, reply));
            match cluster.wait(&answer) {
                Ok(AdminAnswer::Results(results)) => results,
                other => panic!("{other:?}"),
            }
        };
        let image = |cluster: &Cluster| cluster.node(id).node().image();
        let create = AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: false,
        };
        let made = ask(&mut cluster, create.clone()).remove(0);
        assert_eq!(made.error, ErrorCode::NONE);
        assert_eq!(made.topic, image(&cluster).topic(&name).cloned());
        assert!(made.topic.is_some());
        let twice = ask(&mut cluster, create).remove(0);
        assert_eq!(twice.error, ErrorCode::TOPIC_ALREADY_EXISTS);
        let more = AdminCommand::CreatePartitions {
            topics: vec![(name.clone(), 2, None)],
            validate_only: false,
        };
        ask(&mut cluster, more);
        assert_eq!(image(&cluster).topic(&name).unwrap().partitions.len(), 2);
        let delete = AdminCommand::DeleteTopics {
            topics: vec![TopicRef::Id(TopicId([id as u8; 16]))],
        };
        let gone = ask(&mut cluster, delete).remove(0);
        assert_eq!(gone.topic.unwrap().name, name);
        assert!(image(&cluster).topic(&name).is_none());
    }
}

/// Two partitions on nodes 1, 2 and 4, led by 1 and 2; node 3 is the controller.
fn two_partitions() -> Cluster {
    let mut settings = quick();
    // Who isn't heard stays for as long as the story needs.
    settings.cluster.session = Duration::from_secs(8);
    let mut cluster = Cluster::new(4, settings);
    cluster.create("t", TopicId([7; 16]), &[[1, 2, 4], [2, 1, 4]], &[]);
    cluster.run(second());
    cluster.led_at(3);
    cluster
}

fn isr_of(cluster: &Cluster, partition: usize) -> Vec<i32> {
    let image = cluster.node(3).node().image();
    let topic = image.topic("t").expect("a topic");
    topic.partitions[partition]
        .isr
        .iter()
        .map(|b| b.0)
        .collect()
}

#[test]
fn who_is_asked_for_counts_though_another_partition_changes() {
    let mut cluster = two_partitions();
    // Node 4 hears no leader, and leaves both in-sync sets.
    cluster.cut = [(1, 4), (4, 1), (2, 4), (4, 2)].into();
    let topic = TopicRef::Name("t".to_owned());
    for (leader, index) in [(1, 0), (2, 1)] {
        let to = cluster
            .node(leader)
            .node()
            .partition(&topic, index)
            .unwrap();
        let sent = cluster.send(leader, &to, batch(cluster.node(leader), &["a"]), -1);
        assert!(cluster.wait(&sent).is_ok());
    }
    assert_eq!(isr_of(&cluster, 0), [1, 2]);
    cluster.run(second());
    assert_eq!(isr_of(&cluster, 1), [2, 1]);
    // It catches up with node 1, which asks for it. The controller doesn't hear that.
    cluster.cut = [(1, 3), (2, 4), (4, 2)].into();
    cluster.run(Duration::from_millis(1_500));
    assert_eq!(isr_of(&cluster, 0), [1, 2]);
    // Meanwhile the other partition's in-sync set changes.
    cluster.cut = [(1, 3)].into();
    cluster.run(Duration::from_millis(1_500));
    assert_eq!(isr_of(&cluster, 1), [2, 1, 4]);
    assert_eq!(isr_of(&cluster, 0), [1, 2]);
    // What is asked for may still be granted: nothing is acknowledged that node 4 doesn't have.
    cluster.cut = [(1, 3), (1, 4)].into();
    let to = cluster.led(1, "t");
    let sent = cluster.send(1, &to, batch(cluster.node(1), &["b"]), -1);
    cluster.run(Duration::from_millis(300));
    assert!(!sent.is_ready());
    cluster.cut.clear();
    cluster.run(8 * second());
    assert_eq!(sent.take().expect("answered").unwrap().base_offset.0, 1);
    assert_eq!(isr_of(&cluster, 0).len(), 3);
}

#[test]
fn what_a_dead_controller_was_told_is_told_to_the_next_one() {
    let mut cluster = Cluster::new(3, quick());
    cluster.led_at(3);
    cluster.run(second());
    let is_fenced = |cluster: &Cluster, id: i32| {
        let image = cluster.node(1).node().image();
        image.brokers[&BrokerId(id)].fenced
    };
    // All have a heartbeat on its way to it when it dies.
    cluster.cut = [(1, 3), (2, 3)].into();
    cluster.run(second());
    cluster.kill(3);
    cluster.cut.clear();
    cluster.led_at(1);
    // Longer than a session, and less than a client's answer is waited for.
    for _ in 0..16 {
        cluster.run(Duration::from_millis(250));
        assert!(!is_fenced(&cluster, 1) && !is_fenced(&cluster, 2));
    }
    assert!(is_fenced(&cluster, 3));
}

#[test]
fn what_follows_a_refused_batch_is_refused_in_the_same_words() {
    let mut cluster = three();
    cluster.led_at(1);
    put(&mut cluster, "a").expect("acknowledged");
    cluster.kill(2);
    cluster.kill(3);
    cluster.run(6 * second());
    let to = cluster.led(1, "t");
    let batches = |cluster: &Cluster, from: i32| {
        let node = cluster.node(1);
        [from, from + 1].map(|s| idempotent(node, ProducerId(9), s, &[&format!("s{s}")]))
    };
    let [first, second_one] = batches(&cluster, 0);
    let refused = cluster.send(1, &to, first.clone(), -1);
    let refused = cluster.wait(&refused).unwrap_err().error;
    assert_eq!(refused, ErrorCode::NOT_ENOUGH_REPLICAS);
    cluster.start(3);
    cluster.run(4 * second());
    // The leader has enough copies again, but knows nothing of this producer: its second batch isn't its first.
    let behind = cluster.send(1, &to, second_one.clone(), -1);
    let behind = cluster.wait(&behind).unwrap_err().error;
    assert_eq!(behind, refused);
    for batch in [first, second_one] {
        let answer = cluster.send(1, &to, batch, -1);
        cluster.wait(&answer).expect("acknowledged");
    }
    assert_eq!(all(&mut cluster), ["a", "s0", "s1"]);
    // A gap that nothing was refused in is one.
    let [_, far] = batches(&cluster, 4);
    let answer = cluster.send(1, &to, far, -1);
    let failure = cluster.wait(&answer).unwrap_err();
    assert_eq!(failure.error, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
}

/// Each record that can be read of a copy: offset, key, value.
fn copy_of(cluster: &mut Cluster, id: i32, topic: &str) -> Vec<(i64, Vec<u8>, Vec<u8>)> {
    let to = cluster.led(id, topic);
    let end = cluster.describe(id, &to).log_end_offset.0;
    let mut all = Vec::new();
    let mut at = 0;
    while at < end {
        let node = cluster.node(id);
        let command = fetch_command(vec![ask_from(topic, 0, at)], 0);
        let answer = node.ask(|node, now, reply| node.fetch(command, now, reply));
        let part = cluster.wait(&answer).partitions.remove(0);
        assert_eq!(part.error, ErrorCode::NONE);
        let bytes = part.records.into_bytes().expect("readable");
        assert!(!bytes.is_empty(), "no way on from {at} to {end}");
        for batch in batches(&bytes) {
            let batch = batch.expect("a batch");
            at = batch.header.next_offset().0;
            for record in batch.records(1 << 20).expect("records").iter() {
                let record = record.expect("a record");
                let [key, value] = [record.key, record.value].map(|part| part.unwrap_or_default());
                all.push((record.offset.0, key.to_vec(), value.to_vec()));
            }
        }
    }
    all
}

/// Three nodes that compact soon, and what puts records of three keys there.
fn compacting() -> Cluster {
    let mut settings = quick();
    let backoff = ("log.cleaner.backoff.ms".to_owned(), "100".to_owned());
    settings.configs.extend([backoff]);
    let mut cluster = Cluster::new(3, settings);
    let compact = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
        ("min.insync.replicas", "1"),
    ];
    make(&mut cluster, "t", &compact);
    cluster
}

fn put_keys(cluster: &mut Cluster, records: std::ops::Range<usize>) {
    let leader = cluster.leader("t");
    let to = cluster.led(leader, "t");
    for i in records {
        let mut batch = BatchBuilder::new(Compression::None);
        let (key, value) = (format!("k{}", i % 3), format!("{i:0300}"));
        let now = cluster.node(leader).now().wall_ms;
        batch.push(now, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
        let sent = cluster.send(leader, &to, batch.build(), -1);
        assert!(cluster.wait(&sent).is_ok());
    }
}

#[test]
fn a_copy_that_was_away_while_its_leader_was_compacted_comes_back() {
    let mut cluster = compacting();
    put_keys(&mut cluster, 0..20);
    // One has a part of it, and one comes back with an empty disk.
    cluster.kill(2);
    cluster.kill(3);
    cluster.disks[2] = CrashDisk::new(33);
    cluster.run(4 * second());
    put_keys(&mut cluster, 20..60);
    cluster.run(5 * second());
    let compacted = copy_of(&mut cluster, 1, "t");
    assert!(compacted.len() < 40, "{}", compacted.len());
    for id in [2, 3] {
        cluster.start(id);
    }
    cluster.run(8 * second());
    assert_eq!(cluster.image("t").isr.len(), 3);
    put_keys(&mut cluster, 60..70);
    let leaders = copy_of(&mut cluster, 1, "t");
    // Those who lead next have all of it.
    cluster.kill(1);
    cluster.led_at(2);
    cluster.run(8 * second());
    let next = cluster.leader("t");
    assert_ne!(next, 1);
    let last: std::collections::BTreeMap<_, _> = leaders
        .into_iter()
        .map(|(at, key, value)| (key, (at, value)))
        .collect();
    let copied: std::collections::BTreeMap<_, _> = copy_of(&mut cluster, next, "t")
        .into_iter()
        .map(|(at, key, value)| (key, (at, value)))
        .collect();
    assert_eq!(copied, last);
}

#[test]
fn a_copy_whose_end_lies_in_a_hole_that_its_leader_has_filled_comes_back() {
    let mut cluster = compacting();
    put_keys(&mut cluster, 0..20);
    cluster.kill(2);
    cluster.kill(3);
    // It comes back empty, takes what is left, and fills the holes.
    cluster.disks[1] = CrashDisk::new(33);
    cluster.run(4 * second());
    put_keys(&mut cluster, 20..60);
    cluster.run(5 * second());
    assert!(copy_of(&mut cluster, 1, "t").len() < 40);
    cluster.start(2);
    cluster.run(8 * second());
    assert_eq!(cluster.image("t").isr.len(), 2);
    cluster.kill(1);
    cluster.led_at(2);
    cluster.run(8 * second());
    assert_eq!(cluster.leader("t"), 2);
    // Its own end lies within one of them.
    cluster.start(3);
    cluster.run(8 * second());
    assert_eq!(cluster.image("t").isr.len(), 2);
    put_keys(&mut cluster, 60..61);
}

#[test]
fn records_are_not_told_deleted_while_one_may_lead_that_still_has_them() {
    let mut cluster = Cluster::new(3, quick());
    make(&mut cluster, "t", &[("min.insync.replicas", "2")]);
    for value in ["a", "b", "c"] {
        put(&mut cluster, value).unwrap();
    }
    cluster.kill(2);
    cluster.kill(3);
    cluster.run(8 * second());
    assert_eq!(cluster.image("t").isr.len(), 1);
    let to = cluster.led(1, "t");
    let node = cluster.node(1);
    let deleted = node.ask(|node, now, reply| node.delete_records(&to, Offset(2), now, reply));
    cluster.run(60 * second());
    let answer = deleted.take().expect("answered");
    assert_eq!(answer, Err(ErrorCode::REQUEST_TIMED_OUT));
    cluster.start(2);
    cluster.run(8 * second());
    let node = cluster.node(1);
    let deleted = node.ask(|node, now, reply| node.delete_records(&to, Offset(2), now, reply));
    assert_eq!(cluster.wait(&deleted), Ok(Offset(2)));
}
