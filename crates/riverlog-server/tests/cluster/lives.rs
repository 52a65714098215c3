//! What becomes of sends while nodes are restarted one after the other, and of a partition whose in-sync replicas are all gone.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::metadata_response::MetadataResponsePartition;
use riverlog_wire::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use riverlog_wire::messages::{FetchRequest, MetadataRequest, OffsetForLeaderEpochRequest};

use crate::common::{eventually, try_ask};
use crate::trio::{Trio, find_leader, partitions_at, produce};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);

/// Sends records one after the other until it is told to stop: each to the leader that was last heard of, and once that fails to whoever
/// leads then. Returns the values by their offsets, and the most sends that one took.
fn write_on(places: &[String], partition: i32, stop: &AtomicBool) -> (BTreeMap<i64, String>, u32) {
    let mut kept = BTreeMap::new();
    let mut most = 0;
    let mut leader: Option<String> = None;
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut sends = 0;
        let mut failed_at: Option<String> = None;
        loop {
            let Some(place) = leader
                .take()
                .or_else(|| another(places, partition, failed_at.as_deref()))
            else {
                panic!("nobody leads partition {partition}");
            };
            sends += 1;
            let value = format!("{partition}/{number}/{sends}");
            if let Some(offset) = produce(&place, "t", partition, std::slice::from_ref(&value)) {
                kept.insert(offset, value);
                leader = Some(place);
                break;
            }
            failed_at = Some(place);
        }
        most = most.max(sends);
        thread::sleep(Duration::from_millis(5));
    }
    (kept, most)
}

/// Who leads, once that is another one than who has just refused.
fn another(places: &[String], partition: i32, than: Option<&str>) -> Option<String> {
    let mut found = None;
    let mut number = 0;
    eventually(|| {
        number += 1;
        found = find_leader(places, "t", partition, number);
        found.is_some() && found.as_deref() != than
    });
    found
}

#[test]
fn every_send_gets_through_while_all_nodes_are_restarted() {
    let mut trio = Trio::form();
    let make = [
        "topic",
        "create",
        "t",
        "-p",
        "3",
        "-r",
        "3",
        "-c",
        "min.insync.replicas=2",
    ];
    trio.up()[0].ok(&make);
    trio.in_sync("t");
    let stop = AtomicBool::new(false);
    let places = trio.places.clone();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|partition| {
                let (places, stop) = (&places, &stop);
                scope.spawn(move || write_on(places, partition, stop))
            })
            .collect();
        for id in 1..=3 {
            thread::sleep(Duration::from_millis(300));
            trio.stop(id);
            thread::sleep(Duration::from_millis(300));
            trio.start(id);
            trio.in_sync("t");
            // As an operator would: the work goes back to where it was.
            trio.run(&["cluster", "elect"]);
        }
        stop.store(true, Ordering::Relaxed);
        let written: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        let there = trio.read("t");
        for (partition, (kept, most)) in (0..).zip(written) {
            // One retry, mostly. The leadership that was given away may go back while that is under way, and who is asked may not have heard
            // of the one or the other yet.
            assert!(
                most <= 6,
                "a record of partition {partition} took {most} sends"
            );
            assert!(kept.len() > 20, "{}", kept.len());
            for (offset, value) in kept {
                let found = there.get(&(partition, offset));
                assert_eq!(
                    found,
                    Some(&value),
                    "partition {partition}, offset {offset}"
                );
            }
        }
    });
}

/// What a consumer of partition 0 is told that has read up to an offset in an epoch: where that epoch ends, and what a fetch there comes to.
fn truncated(place: &str, leader_epoch: i32, offset: i64) -> Option<(i64, ErrorCode)> {
    let ends = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: "t".to_owned(),
            partitions: vec![OffsetForLeaderPartition {
                partition: 0,
                current_leader_epoch: -1,
                leader_epoch,
            }],
        }],
    };
    let ends = try_ask(place, 4, &ends, REQUEST).ok()?;
    let end = ends.topics.first()?.partitions.first()?.end_offset;
    let fetch = FetchRequest {
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
    let fetched = try_ask(place, 12, &fetch, REQUEST).ok()?;
    let error = fetched.responses.first()?.partitions.first()?.error_code;
    Some((end, error))
}

/// So patient that silence tells nothing while the test runs.
fn patient(_: usize) -> Vec<String> {
    ["--set", "broker.session.timeout.ms=300000"]
        .map(str::to_owned)
        .into()
}

#[test]
fn a_node_whose_process_has_ended_is_followed_long_before_its_session_is_over() {
    let mut trio = Trio::form_with(patient);
    let make = ["topic", "create", "t", "-p", "3", "-r", "3"];
    trio.up()[0].ok(&make);
    trio.in_sync("t");
    let controller = trio.controller();
    let other = controller % 3 + 1;
    // One that leads some partitions only, and one that leads the quorum as well.
    for id in [other, controller] {
        trio.kill(id);
        let gone = i32::try_from(id).unwrap();
        trio.partitions("t", |p| p.leader_id > 0 && p.leader_id != gone);
        assert_ne!(trio.controller(), id);
        trio.start(id);
        trio.in_sync("t");
    }
}

#[test]
fn who_lacks_records_leads_only_when_that_is_commanded_and_the_loss_is_said() {
    let mut trio = Trio::form();
    let alone = "min.insync.replicas=1";
    trio.up()[0].ok(&["topic", "create", "t", "-p", "1", "-r", "2", "-c", alone]);
    let two = |p: &riverlog_wire::messages::metadata_response::MetadataResponsePartition| {
        p.leader_id > 0 && p.isr_nodes.len() == 2
    };
    let partition = trio.partitions("t", two).remove(0);
    let ahead = usize::try_from(partition.leader_id).unwrap();
    let behind = partition
        .replica_nodes
        .iter()
        .find(|id| **id != partition.leader_id);
    let behind = usize::try_from(*behind.unwrap()).unwrap();
    let send = |trio: &Trio, value: &str| {
        let place = find_leader(&trio.places, "t", 0, 1).or(find_leader(&trio.places, "t", 0, 2));
        place.and_then(|place| produce(&place, "t", 0, &[value.to_owned()]))
    };
    assert_eq!(send(&trio, "kept"), Some(0));
    trio.kill(behind);
    trio.partitions("t", |p| p.isr_nodes.len() == 1);
    assert!(eventually(|| send(&trio, "lost").is_some()));
    trio.kill(ahead);
    trio.start(behind);
    // It is up, and it doesn't lead: it lacks what was acknowledged.
    trio.partitions("t", |p| p.leader_id < 0);
    let health = || String::from_utf8(trio.run(&["cluster", "health"]).stdout).unwrap();
    assert!(eventually(|| health().contains("t-0")), "{}", health());
    let preferred = trio.run(&["cluster", "elect", "--topic", "t", "--partition", "0"]);
    assert_eq!(preferred.status.code(), Some(1), "{preferred:?}");
    // Nobody is there to agree.
    let asked = trio.run(&["cluster", "elect", "--unclean", "--topic", "t"]);
    assert!(!asked.status.success());
    let words = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(words.contains("lose"), "{words}");
    trio.partitions("t", |p| p.leader_id < 0);

    let done = trio.run(&["cluster", "elect", "--unclean", "--topic", "t", "--yes"]);
    assert!(done.status.success(), "{done:?}");
    let number = i32::try_from(behind).unwrap();
    trio.partitions("t", |p| p.leader_id == number);
    assert!(eventually(|| trio
        .up()
        .iter()
        .any(|node| node.has_said("unclean"))));
    // A consumer that had read what is lost hears of it: where the records of its epoch end now, and that there is nothing where it was.
    let place = &trio.places[behind - 1];
    let heard = || {
        let (end, fetched) = truncated(place, partition.leader_epoch, 2)?;
        Some((end, fetched.name()))
    };
    assert!(
        eventually(|| heard() == Some((1, "OFFSET_OUT_OF_RANGE"))),
        "{:?}",
        heard()
    );
    assert!(eventually(|| send(&trio, "new").is_some()));
    // The one before comes back, and gives up what it has alone.
    trio.start(ahead);
    trio.partitions("t", two);
    let all = trio.read("t");
    let mut values: Vec<&str> = all.values().map(String::as_str).collect();
    // A send without an answer may have been stored, and was sent again.
    values.dedup();
    assert_eq!(values, ["kept", "new"]);
}

#[test]
fn clients_that_take_all_connections_of_a_node_keep_no_other_node_out() {
    let few = |id| match id {
        1 => ["--set", "max.connections=12"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    };
    let mut trio = Trio::form_with(few);
    trio.up()[1].ok(&["topic", "create", "t", "-p", "3", "-r", "3"]);
    trio.in_sync("t");
    let full = trio.places[0].clone();
    let idle = || (0..30).filter_map(|_| TcpStream::connect(&full).ok());
    let mut clients: Vec<TcpStream> = idle().collect();
    trio.kill(2);
    // They take its places, too.
    clients.extend(idle());
    let in_sync = |trio: &Trio, number: usize| {
        let told = partitions_at(&trio.places[2], "t");
        let all = |p: &MetadataResponsePartition| p.isr_nodes.len() == number;
        told.is_some_and(|partitions| partitions.iter().all(all))
    };
    assert!(eventually(|| in_sync(&trio, 2)));
    trio.start(2);
    assert!(eventually(|| in_sync(&trio, 3)));
    // Clients are still refused.
    let metadata = MetadataRequest::default();
    assert!(try_ask(&full, 9, &metadata, Duration::from_secs(5)).is_err());
    drop(clients);
}
