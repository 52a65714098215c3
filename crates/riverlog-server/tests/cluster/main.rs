//! Real servers that form a cluster, lose nodes, and take them in again.

#[path = "../common/mod.rs"]
mod common;
mod doors;
mod groups;
mod lives;
#[path = "../common/members.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod members;
mod moving;
mod page;
mod share;
mod tls;
#[allow(unreachable_pub, reason = "a module of tests")]
mod trio;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

use common::{Server, eventually, http, riverlog, run_with, signal, wait};
use riverlog_wire::messages::metadata_response::MetadataResponsePartition;
use trio::{
    Trio, Writers, agree, create, has_topic, members, partitions_at, places, start, voting_disk,
};

#[test]
fn what_was_acknowledged_survives_the_kill_of_any_node_and_of_all() {
    let mut trio = Trio::form();
    let least = ["-c", "min.insync.replicas=2"];
    let make = [
        "topic", "create", "t", "-p", "3", "-r", "3", least[0], least[1],
    ];
    assert!(eventually(
        || trio.run(&make).status.success() || has_topic(trio.up()[0], "t")
    ));
    let partitions = trio.in_sync("t");
    // Leaderships are spread.
    let leaders: BTreeSet<i32> = partitions.iter().map(|p| p.leader_id).collect();
    assert_eq!(leaders.len(), 3, "{partitions:?}");
    let writers = Writers::start(&trio.places, "t", 3);
    writers.go_on();

    let lose = |trio: &mut Trio, id: usize| {
        let before = trio.in_sync("t");
        trio.kill(id);
        // Others lead, and go on with the two that are left.
        writers.go_on();
        assert_ne!(trio.controller(), id);
        let gone = i32::try_from(id).unwrap();
        let after = trio.partitions("t", |p| p.leader_id > 0 && p.leader_id != gone);
        for (before, after) in before.iter().zip(&after) {
            let moved = before.leader_id == gone;
            assert!(!moved || after.leader_epoch > before.leader_epoch);
        }
        writers.check(trio);
        trio.start(id);
        trio.in_sync("t");
        writers.go_on();
        writers.check(trio);
    };
    // The leader of the first partition, then one that follows there and doesn't lead the quorum, then the one that does.
    let leader = usize::try_from(partitions[0].leader_id).unwrap();
    lose(&mut trio, leader);
    let (leads, controls) = (trio.in_sync("t")[0].leader_id, trio.controller());
    let follows = |id: &usize| i32::try_from(*id).unwrap() != leads && *id != controls;
    let follower = (1..=3).find(follows).unwrap();
    lose(&mut trio, follower);
    let controller = trio.controller();
    lose(&mut trio, controller);

    trio.kill_all();
    for id in 1..=3 {
        trio.start(id);
    }
    trio.in_sync("t");
    writers.go_on();
    writers.check(&trio);
    writers.stop();
}

#[test]
fn three_empty_nodes_form_one_cluster_and_outlive_its_leader() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(3);
    let mut nodes: Vec<Option<Server>> = (1..=3)
        .map(|id| Some(start(folder.path(), &places, id)))
        .collect();
    let all: Vec<&Server> = nodes.iter().flatten().collect();
    let first = agree(&all);
    create(all[0], "before", "1");
    for node in &all {
        assert!(eventually(|| has_topic(node, "before")));
    }
    // The same cluster for all of them.
    let ids: BTreeSet<String> = all
        .iter()
        .map(|node| node.ok(&["cluster", "status", "-o", "json"]))
        .map(|json| serde_json::from_str::<serde_json::Value>(&json).unwrap())
        .map(|table| table["data"][0]["cluster_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 1);

    let at = usize::try_from(first - 1).unwrap();
    nodes[at].take().unwrap().kill();
    let left: Vec<&Server> = nodes.iter().flatten().collect();
    // They notice that it is gone, and agree on another one.
    assert!(eventually(|| agree(&left) != first));
    create(left[0], "without", "1");
    for node in &left {
        assert!(eventually(|| has_topic(node, "without")));
    }

    nodes[at] = Some(start(folder.path(), &places, at + 1));
    let back = nodes[at].as_ref().unwrap();
    for name in ["before", "without"] {
        assert!(eventually(|| has_topic(back, name)), "{name}");
    }
    for node in nodes.iter_mut() {
        let (code, log) = node.take().unwrap().stop();
        assert_eq!(code, Some(0), "{log}");
    }

    // All of them again: the cluster is there without being formed anew.
    let nodes: Vec<Server> = (1..=3)
        .map(|id| start(folder.path(), &places, id))
        .collect();
    agree(&nodes.iter().collect::<Vec<_>>());
    for node in &nodes {
        for name in ["before", "without"] {
            assert!(eventually(|| has_topic(node, name)), "{name}");
        }
    }
}

#[test]
fn a_node_alone_grows_to_three_and_keeps_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(3);
    let alone = Server::start_at(&folder.path().join("1"), &places[0], &[]);
    alone.ok(&["topic", "create", "t", "-p", "1"]);
    alone.ok_with(&["produce", "t"], "one\ntwo\nthree\n");
    assert_eq!(alone.stop().0, Some(0));

    let first = start(folder.path(), &places, 1);
    assert!(eventually(|| {
        let read = first.run(&["consume", "t", "-e", "-f", "%s\\n"]);
        read.stdout == b"one\ntwo\nthree\n"
    }));
    let second = start(folder.path(), &places, 2);
    let third = start(folder.path(), &places, 3);
    agree(&[&first, &second, &third]);
    for node in [&second, &third] {
        assert!(eventually(|| has_topic(node, "t")));
    }
    assert_eq!(
        first.ok(&["consume", "t", "-e", "-f", "%s\\n"]),
        "one\ntwo\nthree\n"
    );
}

#[test]
fn a_node_with_an_emptied_disk_is_taken_in_again_and_copies_what_it_lacks() {
    let mut trio = Trio::form();
    create(trio.up()[0], "t", "3");
    trio.in_sync("t");
    let writers = Writers::start(&trio.places, "t", 3);
    writers.go_on();
    let emptied = if trio.controller() == 3 { 2 } else { 3 };
    let disk = voting_disk(trio.up()[0], emptied).unwrap();
    trio.kill(emptied);
    trio.empty(emptied);
    trio.start(emptied);
    // Until its new disk votes, it and one more are no majority.
    let votes = || voting_disk(trio.up()[0], emptied).is_some_and(|votes| votes != disk);
    assert!(eventually(votes));
    trio.in_sync("t");
    writers.go_on();
    // It has everything: with the others gone it leads, and one that comes back follows it.
    for other in (1..=3).filter(|id| *id != emptied) {
        trio.kill(other);
    }
    trio.start(if emptied == 3 { 2 } else { 3 });
    trio.partitions("t", |p| p.leader_id > 0 && p.isr_nodes.len() == 2);
    writers.go_on();
    writers.check(&trio);
    writers.stop();
}

/// Starts one with a key of its own making.
fn with_key(folder: &Path, places: &[String], id: usize, key: &str) -> Server {
    let path = folder.join(format!("key-of-{id}"));
    std::fs::write(&path, key.repeat(40)).unwrap();
    let (number, seeds) = (id.to_string(), places.join(","));
    let path = path.to_str().unwrap();
    let more = [
        "--node-id",
        &number,
        "--seeds",
        &seeds,
        "--cluster-key",
        path,
    ];
    Server::start_at(&folder.join(&number), &places[id - 1], &more)
}

#[test]
fn nodes_with_different_keys_turn_each_other_away() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(2);
    let one = with_key(folder.path(), &places, 1, "a");
    for wrong in ["b", ""] {
        let two = match wrong {
            "" => start(folder.path(), &places, 2),
            key => with_key(folder.path(), &places, 2, key),
        };
        assert!(eventually(|| two.has_said("--cluster-key")));
        assert!(members(&one).is_empty() && members(&two).is_empty());
        assert_eq!(http(&one.http, "/livez", "localhost").0, 200);
        let (_, log) = two.stop();
        assert!(!log.contains("bbbbbbbb"), "a key is in the log");
    }
    assert!(one.has_said("--cluster-key"));
    // With the same key they form a cluster.
    let two = with_key(folder.path(), &places, 2, "a");
    assert!(eventually(
        || members(&one).len() == 2 && members(&two).len() == 2
    ));
}

#[test]
fn a_number_that_is_taken_is_refused_and_harms_nobody() {
    let trio = Trio::form();
    create(trio.up()[0], "t", "3");
    let before = trio.in_sync("t");
    // It knows of one node only, and that one has another number.
    let folder = tempfile::tempdir().unwrap();
    let place = places(1).remove(0);
    let more = ["--node-id", "3", "--seeds", &trio.places[0]];
    let double = Server::start_at(folder.path(), &place, &more);
    let (code, log) = double.ended();
    assert_eq!(code, Some(6), "{log}");
    assert!(log.contains("node.id"), "{log}");
    trio.up()[2].ok(&["topic", "create", "u", "-p", "1", "-r", "3"]);
    assert_eq!(trio.in_sync("t"), before);
}

#[test]
fn members_of_two_clusters_dont_speak() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(2);
    let begin = |id: usize, seeds: &str| {
        let number = id.to_string();
        let more = ["--node-id", &number, "--seeds", seeds];
        Server::start_at(&folder.path().join(&number), &places[id - 1], &more)
    };
    let (one, two) = (begin(1, &places[0]), begin(2, &places[1]));
    for node in [&one, &two] {
        assert!(eventually(|| members(node).len() == 1));
        create(node, "t", "1");
    }
    assert_eq!(two.stop().0, Some(0));
    let two = begin(2, &places.join(","));
    assert!(eventually(|| two.has_said("another cluster")));
    assert!(eventually(
        || members(&two).len() == 1 && has_topic(&two, "t")
    ));
    assert_eq!(members(&one).len(), 1);
}

#[test]
fn a_members_folder_isnt_opened_alone_and_others_arent_let_in_unseen() {
    let folder = tempfile::tempdir().unwrap();
    let place = places(1).remove(0);
    let node = Server::start_at(folder.path(), &place, &["--seeds", &place]);
    assert!(eventually(|| members(&node).len() == 1));
    create(&node, "t", "1");
    assert_eq!(node.stop().0, Some(0));
    let data = folder.path().to_str().unwrap();
    let alone = run_with(&["recover", data], "");
    let words = String::from_utf8_lossy(&alone.stderr);
    assert_eq!(alone.status.code(), Some(6), "{words}");
    assert!(words.contains("member of a cluster"), "{words}");
    // As a member it needs no seeds any more.
    let node = Server::start_at(folder.path(), &place, &[]);
    assert!(eventually(|| has_topic(&node, "t")));

    let open = [
        "serve",
        "--listen",
        "0.0.0.0:0",
        "--seeds",
        "127.0.0.1:1",
        "--data",
        "x",
    ];
    let refused = run_with(&open, "");
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert!(
        words.contains("--insecure") && words.contains("--cluster-key"),
        "{words}"
    );
}

#[test]
fn any_node_takes_an_administrators_request_and_knows_what_came_of_it() {
    let trio = Trio::form();
    for node in trio.up() {
        let partitions = || partitions_at(&node.kafka, "t").map(|p| p.len());
        let made = node.ok(&["topic", "create", "t", "-p", "2", "-r", "3", "-o", "json"]);
        assert!(made.contains("\"t\""), "{made}");
        assert_eq!(partitions(), Some(2));
        let twice = node.run(&["topic", "create", "t", "-p", "2", "-r", "3"]);
        assert_eq!(twice.status.code(), Some(6));
        node.ok(&["topic", "alter", "t", "--set", "retention.ms=1234"]);
        assert!(
            node.ok(&["topic", "config", "t", "--set-only"])
                .contains("1234")
        );
        node.ok(&["topic", "add-partitions", "t", "--to", "3", "--yes"]);
        assert_eq!(partitions(), Some(3));
        node.ok(&["topic", "delete", "t", "--yes"]);
        assert_eq!(partitions(), None);
    }
}

#[test]
fn an_operator_sees_what_is_wrong_gives_leaderships_back_and_replaces_a_node() {
    let mut trio = Trio::form();
    trio.up()[0].ok(&["topic", "create", "t", "-p", "3", "-r", "3"]);
    trio.in_sync("t");
    trio.up()[0].ok(&["cluster", "health"]);
    let gone = if trio.controller() == 3 { 2 } else { 3 };
    let number = gone.to_string();
    let running = trio.run(&["cluster", "remove-voter", &number]);
    let words = String::from_utf8_lossy(&running.stderr).into_owned();
    assert_eq!(running.status.code(), Some(2), "{words}");
    assert!(words.contains("stop it"), "{words}");

    trio.kill(gone);
    let sick = || String::from_utf8(trio.run(&["cluster", "health"]).stdout).unwrap();
    let down = format!("node {gone}");
    assert!(
        eventually(|| sick().contains(&down) && sick().contains("t-0")),
        "{}",
        sick()
    );
    let code = trio.run(&["cluster", "health"]).status.code();
    assert_eq!(code, Some(1));

    trio.start(gone);
    trio.in_sync("t");
    let first = |p: &MetadataResponsePartition| p.replica_nodes.first() == Some(&p.leader_id);
    assert!(eventually(|| {
        trio.run(&["cluster", "elect"]);
        partitions_at(&trio.places[0], "t").is_some_and(|all| all.iter().all(first))
    }));
    trio.partitions("t", first);
    trio.up()[0].ok(&["cluster", "health"]);

    // Without a majority nobody leads, and that is said; with one again somebody does.
    let other = if gone == 3 { 2 } else { 3 };
    trio.kill(gone);
    trio.kill(other);
    assert!(eventually(|| members(trio.up()[0]).is_empty()));
    assert_eq!(trio.run(&["cluster", "health"]).status.code(), Some(1));
    trio.start(other);
    assert!(eventually(|| !members(trio.up()[0]).is_empty()));

    // Out of the quorum for good.
    assert!(eventually(|| trio
        .run(&["cluster", "remove-voter", &number])
        .status
        .success()));
    let left = |node: &Server| members(node).len() == 2;
    assert!(eventually(|| trio.up().iter().all(|node| left(node))));
    // Another one comes in its place: an observer, since nobody names it as a seed, until an operator lets it vote.
    let folder = tempfile::tempdir().unwrap();
    let place = places(1).remove(0);
    let more = ["--node-id", "4", "--seeds", &trio.places.join(",")];
    let fourth = Server::start_at(folder.path(), &place, &more);
    let voting =
        |votes| move |node: &Server| members(node).iter().any(|m| m.0 == 4 && m.1 == votes);
    assert!(eventually(|| voting(false)(&fourth)));
    assert!(eventually(|| trio
        .run(&["cluster", "add-voter", "4"])
        .status
        .success()));
    assert!(eventually(|| voting(true)(&fourth)));
    assert!(eventually(|| has_topic(&fourth, "t")));
}

/// A process that ends with its test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended already is no trouble.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn dev_runs_three_nodes_as_processes_and_ends_them() {
    let place = places(3);
    let mut command = riverlog(&["dev", "--nodes", "3", "--listen", &place[0]]);
    let dev = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut dev = Killed(dev);
    let mut lines = BufReader::new(dev.0.stdout.take().unwrap()).lines();
    let mut nodes = Vec::new();
    while nodes.len() < 3 {
        let line = lines.next().expect("it says where its nodes are").unwrap();
        if let Some(place) = line.strip_prefix("node ") {
            nodes.push(place.split_whitespace().nth(1).unwrap().to_owned());
        }
    }
    let made = run_with(&["-b", &nodes[1], "topic", "create", "t", "-r", "3"], "");
    assert!(made.status.success(), "{made:?}");
    signal(&dev.0, "INT");
    assert_eq!(wait(&mut dev.0), Some(0));
    // None of them is left behind.
    for node in &nodes {
        assert!(std::net::TcpStream::connect(node).is_err(), "{node}");
    }
}
