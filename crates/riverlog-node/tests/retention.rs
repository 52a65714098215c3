//! Keeping and dropping data: retention, deleted and re-created topics, changed settings.

mod common;

use std::time::Duration;

use common::*;
use riverlog_core::metadata::TopicRef;
use riverlog_log::Disk;
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::Harness;
use riverlog_wire::{ErrorCode, Offset};

fn start_of(host: &Harness, name: &str) -> i64 {
    let at = partition(host, name, 0);
    host.node().describe_partition(&at).log_start_offset.0
}

#[test]
fn retention_by_count_is_exact() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[("riverlog.retention.records", "10")]);
    let to = partition(&host, "t", 0);
    for i in 0..25 {
        produce(&mut host, &to, &[&i.to_string()]).unwrap();
        let held = read_all(&mut host, "t", 0).len();
        assert!(held <= 11, "{held}");
    }
    host.advance(Duration::from_secs(3));
    let all = read_all(&mut host, "t", 0);
    assert_eq!(all.len(), 10);
    assert_eq!(all[0], (15, "15".to_owned()));
    let answer = fetch(&mut host, fetch_command(vec![ask_from("t", 0, 14)], 0));
    assert_eq!(answer.partitions[0].error, ErrorCode::OFFSET_OUT_OF_RANGE);
}

#[test]
fn retention_by_size_drops_old_segments() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let configs = [("retention.bytes", "5000")];
    create(&mut host, "t", 1, &configs);
    let to = partition(&host, "t", 0);
    let value = "v".repeat(400);
    for _ in 0..40 {
        produce(&mut host, &to, &[&value]).unwrap();
    }
    host.advance(Duration::from_secs(3));
    let described = host.node().describe_partition(&to);
    assert!(described.size_bytes < 7_000, "{}", described.size_bytes);
    assert!(described.log_start_offset > Offset(20));
    assert_eq!(described.log_end_offset, Offset(40));
    let before = described.log_start_offset;
    let host = open(&disk.crash(2));
    assert!(
        Offset(start_of(&host, "t")) >= before,
        "deleted data stays deleted"
    );
}

#[test]
fn retention_by_age_also_reaches_partitions_that_nobody_writes_to() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let configs = [("retention.ms", "60000"), ("segment.ms", "10000")];
    create(&mut host, "t", 1, &configs);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    host.advance(Duration::from_secs(20));
    produce(&mut host, &to, &["b"]).unwrap();
    host.advance(Duration::from_secs(30));
    assert_eq!(start_of(&host, "t"), 0);
    host.advance(Duration::from_secs(15));
    assert_eq!(start_of(&host, "t"), 1, "a is older than a minute");
    host.advance(Duration::from_secs(60));
    assert_eq!(start_of(&host, "t"), 2, "and then b");
    let mut host = open(&disk.crash(1));
    assert!(read_all(&mut host, "t", 0).is_empty());
    let to = partition(&host, "t", 0);
    assert_eq!(
        produce(&mut host, &to, &["c"]).unwrap().base_offset,
        Offset(2)
    );
}

#[test]
fn a_lowered_retention_takes_effect_at_once() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    for i in 0..8 {
        produce(&mut host, &to, &[&i.to_string()]).unwrap();
    }
    let waiting = host.ask(|node, now, reply| {
        node.fetch(fetch_command(vec![ask_from("t", 0, 8)], 60_000), now, reply);
    });
    set(&mut host, "t", "riverlog.retention.records", "3");
    host.run();
    assert_eq!(start_of(&host, "t"), 5);
    assert!(!waiting.is_ready(), "its position is still there");
}

#[test]
fn a_deleted_topic_answers_everyone_and_leaves_no_file() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let id = create(&mut host, "t", 2, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    let waiting = host.ask(|node, now, reply| {
        node.fetch(fetch_command(vec![ask_from("t", 0, 1)], 60_000), now, reply);
    });
    assert!(!disk.list(&id.to_string()).unwrap().is_empty());
    delete(&mut host, "t").unwrap();
    let answer = waiting.take().expect("woken by the deletion");
    assert_eq!(
        answer.partitions[0].error,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    let late = send(&host, &to, batch(&host, &["b"]), -1);
    assert_eq!(
        late.take().unwrap().unwrap_err().error,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    host.run();
    assert!(disk.list(&id.to_string()).unwrap().is_empty());
    assert!(
        host.node()
            .partition(&TopicRef::Name("t".to_owned()), 0)
            .is_err()
    );
    assert_eq!(
        delete(&mut host, "t"),
        Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    );
}

#[test]
fn a_topic_made_anew_is_empty_and_has_another_id() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let old = create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["old"]).unwrap();
    // The append is in flight while the topic goes.
    let lost = send(&host, &to, batch(&host, &["in flight"]), -1);
    delete(&mut host, "t").unwrap();
    assert!(lost.is_ready());
    let new = create(&mut host, "t", 1, &[]);
    assert_ne!(old, new);
    assert!(read_all(&mut host, "t", 0).is_empty());
    let to = partition(&host, "t", 0);
    assert_eq!(
        produce(&mut host, &to, &["new"]).unwrap().base_offset,
        Offset(0)
    );
    let mut host = open(&disk.crash(3));
    assert_eq!(read_all(&mut host, "t", 0), [(0, "new".to_owned())]);
    let by_id = host.node().partition(&TopicRef::Id(old), 0);
    assert_eq!(by_id.unwrap_err(), ErrorCode::UNKNOWN_TOPIC_ID);
}

#[test]
fn durability_can_be_changed_while_records_come() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[("riverlog.durability", "page-cache")]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    set(&mut host, "t", "riverlog.durability", "sync");
    produce(&mut host, &to, &["b"]).unwrap();
    let mut after = open(&disk.crash(6));
    assert_eq!(
        read_all(&mut after, "t", 0).len(),
        2,
        "both, since b was synced"
    );
    set(&mut host, "t", "riverlog.durability", "page-cache");
    let to = partition(&host, "t", 0);
    let sent = send(&host, &to, batch(&host, &["c"]), -1);
    host.run();
    assert!(sent.take().unwrap().is_ok());
    assert_eq!(read_all(&mut host, "t", 0).len(), 3);
}

#[test]
fn the_metadata_log_is_cut_to_what_is_needed() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "keep", 3, &[("retention.ms", "1234567")]);
    let to = partition(&host, "keep", 2);
    produce(&mut host, &to, &["x"]).unwrap();
    for i in 0..60 {
        create(
            &mut host,
            "come",
            100,
            &[("retention.ms", &format!("{}", 100_000 + i))],
        );
        delete(&mut host, "come").unwrap();
        host.advance(Duration::from_secs(2));
    }
    let before = host.node().image();
    let mut host = open(&disk.crash(1));
    let after = host.node().image();
    assert!(after.position > before.position);
    assert_eq!(after.cluster_id, before.cluster_id);
    assert_eq!(after.topics.len(), before.topics.len());
    let topic = after.topic("keep").unwrap();
    assert_eq!(topic.configs.get("retention.ms").unwrap(), "1234567");
    assert_eq!(read_all(&mut host, "keep", 2).len(), 1);
    let written: usize = disk
        .list(&format!("{}/0", riverlog_wire::TopicId::METADATA))
        .unwrap()
        .len();
    assert!(written > 0);
}
