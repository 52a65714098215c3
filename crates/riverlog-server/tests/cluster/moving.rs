//! Partitions that move between real servers, nodes that come and go, readers that read nearby.

use std::collections::BTreeSet;
use std::path::PathBuf;

use riverlog_wire::messages::FetchRequest;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::fetch_response::PartitionData;
use riverlog_wire::messages::metadata_response::MetadataResponsePartition;
use riverlog_wire::{ErrorCode, TopicId};

use crate::common::{ask, eventually, run_with, segments};
use crate::trio::{Trio, Writers, partitions_at};

fn make(trio: &Trio, topic: &str, partitions: &str) {
    let least = "min.insync.replicas=2";
    trio.ok(&[
        "topic", "create", topic, "-p", partitions, "-r", "3", "-c", least,
    ]);
    trio.in_sync(topic);
}

/// Whether all replicas are among these, and in sync.
fn is_on(nodes: &[i32]) -> impl Fn(&MetadataResponsePartition) -> bool + '_ {
    move |p| {
        let replicas: BTreeSet<&i32> = p.replica_nodes.iter().collect();
        let in_sync: BTreeSet<&i32> = p.isr_nodes.iter().collect();
        p.leader_id > 0 && replicas == in_sync && replicas.iter().all(|id| nodes.contains(id))
    }
}

/// Segments of topics in a node's folder; its own metadata log, of when it was alone, isn't one.
fn copies(trio: &Trio, id: usize) -> usize {
    let own = TopicId::METADATA.to_string();
    let of_topic = |path: &PathBuf| !path.to_string_lossy().contains(&own);
    segments(&trio.data(id))
        .iter()
        .filter(|p| of_topic(p))
        .count()
}

#[test]
fn partitions_move_under_load_and_nothing_that_was_acknowledged_is_lost() {
    let mut trio = Trio::form();
    make(&trio, "t", "3");
    let writers = Writers::start(&trio.places, "t", 3);
    writers.go_on();
    assert_eq!(trio.grow(), 4);

    let plan = trio.rows(&[
        "cluster",
        "reassign",
        "t",
        "--replicas",
        "4,2,3",
        "--dry-run",
    ]);
    assert_eq!(plan.len(), 3);
    assert_eq!(plan[1]["to"], "2,3,4");
    trio.partitions("t", is_on(&[1, 2, 3]));
    let throttled = ["--throttle", "50MiB", "--wait"];
    let move_all = ["cluster", "reassign", "t", "--replicas", "4,2,3"];
    trio.ok(&[&move_all[..], &throttled].concat());
    writers.go_on();
    trio.partitions("t", is_on(&[2, 3, 4]));
    assert!(trio.rows(&["cluster", "reassign", "--status"]).is_empty());
    let rates = trio.ok(&["config", "get", "cluster", "--set-only"]);
    assert!(!rates.contains("throttled"), "{rates}");
    writers.check(&trio);

    // By a plan in the form of Kafka's tool, on standard input.
    let plan = r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,4],"log_dirs":["any","any"]}]}"#;
    let brokers = trio.places.join(",");
    let by_plan = [
        "-b", &brokers, "cluster", "reassign", "--plan", "-", "--wait",
    ];
    let output = run_with(&by_plan, plan);
    assert!(output.status.success(), "{output:?}");
    let of_first =
        |p: &MetadataResponsePartition| p.partition_index != 0 || p.replica_nodes == [1, 4];
    trio.partitions("t", of_first);
    writers.go_on();
    // The copies that moved are as good as those before.
    trio.kill(3);
    writers.go_on();
    writers.check(&trio);
    trio.start(3);
    trio.partitions("t", is_on(&[1, 2, 3, 4]));
    writers.stop();
}

#[test]
fn what_moves_can_be_looked_at_and_taken_back() {
    let mut trio = Trio::form();
    make(&trio, "t", "2");
    let fourth = trio.grow();
    let writers = Writers::start(&trio.places, "t", 2);
    writers.go_on();
    // It can't arrive while the new node is away.
    trio.kill(fourth);
    trio.ok(&["cluster", "reassign", "t", "--replicas", "4,1,2"]);
    let moving = trio.rows(&["cluster", "reassign", "--status"]);
    assert_eq!(moving.len(), 2, "{moving:?}");
    assert_eq!(moving[0]["adding"], "4");
    assert_eq!(moving[0]["removing"], "3");
    writers.go_on();
    let nowhere = trio.run(&["cluster", "reassign", "t:0", "--replicas", "9"]);
    assert_eq!(nowhere.status.code(), Some(1));
    let unknown = trio.run(&["cluster", "reassign", "t:7", "--replicas", "1"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert_eq!(
        trio.rows(&["cluster", "reassign", "--cancel", "t:1"]).len(),
        1
    );
    assert_eq!(trio.rows(&["cluster", "reassign", "--status"]).len(), 1);
    // What is left goes on when the node is back.
    trio.start(fourth);
    assert!(eventually(|| trio
        .rows(&["cluster", "reassign", "--status"])
        .is_empty()));
    let target = |p: &MetadataResponsePartition| match p.partition_index {
        0 => p.replica_nodes == [4, 1, 2],
        _ => is_on(&[1, 2, 3])(p),
    };
    trio.partitions("t", target);
    writers.go_on();
    writers.check(&trio);
    writers.stop();
}

#[test]
fn a_drained_node_leaves_without_being_missed() {
    let mut trio = Trio::form();
    make(&trio, "t", "4");
    trio.ok(&["topic", "create", "alone", "-p", "3", "-r", "1"]);
    let writers = Writers::start(&trio.places, "t", 4);
    writers.go_on();
    let number = if trio.controller() == 3 { 2 } else { 3 };
    let node = number.to_string();
    let stuck = trio.run(&["cluster", "drain", &node]);
    let words = String::from_utf8_lossy(&stuck.stderr).into_owned();
    assert_eq!(stuck.status.code(), Some(6), "{words}");
    assert!(words.contains("start another node"), "{words}");
    trio.grow();
    let would = trio.rows(&["cluster", "drain", &node, "--dry-run"]);
    assert!(would.len() >= 4, "{would:?}");
    trio.ok(&["cluster", "drain", &node, "--at-once", "2"]);
    writers.go_on();
    let left: Vec<i32> = (1..=4).filter(|id| *id != number).collect();
    for topic in ["t", "alone"] {
        trio.partitions(topic, is_on(&left));
    }
    let up = trio.run(&["cluster", "unregister", &node]);
    assert_eq!(up.status.code(), Some(6));
    let number = usize::try_from(number).unwrap();
    trio.stop(number);
    assert_eq!(copies(&trio, number), 0);
    for command in ["remove-voter", "unregister"] {
        let leaves = || trio.run(&["cluster", command, &node]).status.success();
        assert!(eventually(leaves), "{command}");
    }
    trio.ok(&["cluster", "health"]);
    writers.go_on();
    writers.check(&trio);
    writers.stop();
}

#[test]
fn a_new_node_takes_its_share_when_asked_and_by_itself() {
    let mut trio = Trio::form();
    make(&trio, "t", "4");
    let writers = Writers::start(&trio.places, "t", 4);
    writers.go_on();
    trio.grow();
    let before = trio.partitions("t", is_on(&[1, 2, 3]));
    let would = trio.rows(&["cluster", "rebalance", "--dry-run"]);
    assert!(!would.is_empty());
    assert_eq!(trio.partitions("t", is_on(&[1, 2, 3])), before);
    trio.ok(&["cluster", "rebalance"]);
    let share = |node: i32| {
        let all = partitions_at(&trio.places[0], "t").unwrap_or_default();
        let copies = all
            .iter()
            .filter(|p| p.replica_nodes.contains(&node))
            .count();
        let leads = all.iter().filter(|p| p.leader_id == node).count();
        (copies, leads)
    };
    trio.partitions("t", is_on(&[1, 2, 3, 4]));
    for node in 1..=4 {
        assert_eq!(share(node), (3, 1), "{node}");
    }
    assert!(trio.rows(&["cluster", "rebalance"]).is_empty());
    writers.go_on();
    writers.check(&trio);

    trio.ok(&["config", "set", "cluster", "riverlog.rebalance=true"]);
    let fifth = trio.grow();
    let share = |node: i32| {
        let all = partitions_at(&trio.places[0], "t").unwrap_or_default();
        all.iter()
            .filter(|p| p.replica_nodes.contains(&node))
            .count()
    };
    let fifth = i32::try_from(fifth).unwrap();
    assert!(eventually(|| share(fifth) == 2));
    trio.partitions("t", is_on(&[1, 2, 3, 4, 5]));
    writers.go_on();
    writers.check(&trio);
    writers.stop();
}

/// A node in each zone.
fn zones(id: usize) -> Vec<String> {
    let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let words = format!("--rack zone-{id} --set replica.selector.class={selector}");
    words.split(' ').map(str::to_owned).collect()
}

fn read(at: &str, version: i16, rack: &str, offset: i64) -> PartitionData {
    let request = FetchRequest {
        max_wait_ms: 3_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        rack_id: rack.to_owned(),
        topics: vec![FetchTopic {
            topic: "t".to_owned(),
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let answer = ask(at, version, &request);
    answer.responses[0].partitions[0].clone()
}

#[test]
fn readers_are_sent_to_the_copy_in_their_zone_and_read_what_is_acknowledged() {
    let trio = Trio::form_with(zones);
    make(&trio, "t", "1");
    let brokers = trio.places.join(",");
    let send = |words: &str| {
        let output = run_with(&["-b", &brokers, "produce", "t"], words);
        assert!(output.status.success(), "{output:?}");
    };
    send("one\ntwo\n");
    let leader = trio.in_sync("t")[0].leader_id;
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let at = |id: i32| trio.places[usize::try_from(id).unwrap() - 1].clone();
    let zone = |id: i32| format!("zone-{id}");

    // Who says nothing, is in the leader's zone, or in none that has a copy, reads from the leader.
    for rack in ["".to_owned(), zone(leader), zone(9)] {
        let here = read(&at(leader), 12, &rack, 0);
        assert_eq!(
            (here.error_code, here.preferred_read_replica),
            (ErrorCode::NONE, -1)
        );
        assert!(here.records.is_some_and(|r| !r.is_empty()));
    }
    let sent = read(&at(leader), 12, &zone(follower), 0);
    assert_eq!(sent.error_code, ErrorCode::NONE);
    assert_eq!(sent.preferred_read_replica, follower);
    assert!(sent.records.is_none_or(|r| r.is_empty()));

    let whole = |data: &PartitionData| data.records.as_ref().map_or(0, |r| r.len());
    let there = read(&at(follower), 12, &zone(follower), 0);
    assert_eq!(there.error_code, ErrorCode::NONE);
    assert_eq!(there.high_watermark, 2);
    assert!(whole(&there) > 0);
    // A reader that waits there is woken by what is acknowledged, not before.
    let place = at(follower);
    let waits = std::thread::spawn(move || read(&place, 12, &zone(follower), 2));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let began = std::time::Instant::now();
    send("three\n");
    let woken = waits.join().unwrap();
    assert!(whole(&woken) > 0, "{woken:?}");
    assert_eq!(woken.high_watermark, 3);
    assert!(began.elapsed().as_secs() < 2);
    // One that asks for more than there is goes back to the leader, as Kafka's clients do on this error.
    let beyond = read(&at(follower), 12, &zone(follower), 50);
    assert_eq!(beyond.error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    // Older readers know nothing of it.
    let old = read(&at(follower), 10, "", 0);
    assert_eq!(old.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
}
