//! Bounded partitions: `riverlog.max.records`, `riverlog.max.bytes`, `riverlog.when.full`.

mod common;

use std::time::Duration;

use common::*;
use riverlog_log::disk::CrashDisk;
use riverlog_wire::{ErrorCode, Offset};

#[test]
fn when_full_is_error_a_batch_is_refused_until_readers_have_committed() {
    let mut host = open(&CrashDisk::new(1));
    let bound = [
        ("riverlog.max.records", "4"),
        ("riverlog.when.full", "error"),
    ];
    create(&mut host, "t", 1, &bound);
    let to = partition(&host, "t", 0);
    for _ in 0..2 {
        produce(&mut host, &to, &["a", "b"]).unwrap();
    }
    let failure = produce(&mut host, &to, &["c"]).unwrap_err();
    assert_eq!(failure.error, ErrorCode::POLICY_VIOLATION);
    commit_from_outside(&mut host, "fast", "t", 4);
    commit_from_outside(&mut host, "slow", "t", 1);
    // One record is committed by all: one fits.
    produce(&mut host, &to, &["c"]).unwrap();
    assert_eq!(
        host.node().describe_partition(&to).log_start_offset,
        Offset(1)
    );
    assert!(produce(&mut host, &to, &["d"]).is_err());
    let failure = produce(&mut host, &to, &["1", "2", "3", "4", "5"]).unwrap_err();
    assert_eq!(failure.error, ErrorCode::POLICY_VIOLATION);
    assert!(failure.message.contains("whole partition"));
}

#[test]
fn when_full_is_block_an_append_waits_for_room_in_order() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[("riverlog.max.records", "2")]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a", "b"]).unwrap();
    let third = send(&host, &to, batch(&host, &["c"]), -1);
    let fourth = send(&host, &to, batch(&host, &["d"]), -1);
    host.advance(Duration::from_secs(1));
    assert!(!third.is_ready() && !fourth.is_ready());
    commit_from_outside(&mut host, "g", "t", 1);
    assert_eq!(third.take().unwrap().unwrap().base_offset, Offset(2));
    assert!(!fourth.is_ready());
    commit_from_outside(&mut host, "g", "t", 3);
    assert_eq!(fourth.take().unwrap().unwrap().base_offset, Offset(3));
}

#[test]
fn a_blocked_append_ends_with_its_time() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[("riverlog.max.records", "1")]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    let mut blocked = command(batch(&host, &["b"]), -1);
    blocked.timeout = Duration::from_millis(500);
    let blocked = host.ask(|node, now, reply| node.append(&to, blocked, now, reply));
    host.advance(Duration::from_millis(490));
    assert!(!blocked.is_ready());
    host.advance(Duration::from_millis(20));
    let failure = blocked.take().unwrap().unwrap_err();
    assert_eq!(failure.error, ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    assert!(failure.retry_after.is_some());
    assert_eq!(read_all(&mut host, "t", 0).len(), 1);
}

#[test]
fn deleting_records_or_raising_the_bound_makes_room() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[("riverlog.max.records", "2")]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a", "b"]).unwrap();
    let third = send(&host, &to, batch(&host, &["c"]), -1);
    host.run();
    assert!(!third.is_ready());
    let deleted = host.get(|node, now, reply| node.delete_records(&to, Offset(1), now, reply));
    assert_eq!(deleted, Some(Ok(Offset(1))));
    assert_eq!(third.take().unwrap().unwrap().base_offset, Offset(2));
    let fourth = send(&host, &to, batch(&host, &["d"]), -1);
    host.run();
    assert!(!fourth.is_ready());
    set(&mut host, "t", "riverlog.max.records", "10");
    assert_eq!(fourth.take().unwrap().unwrap().base_offset, Offset(3));
}

#[test]
fn a_bound_in_bytes_holds_through_a_restart() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let bound = [
        ("riverlog.max.bytes", "10000"),
        ("riverlog.when.full", "error"),
    ];
    create(&mut host, "t", 1, &bound);
    let value = "v".repeat(930);
    let to = partition(&host, "t", 0);
    let mut fit = 0;
    while produce(&mut host, &to, &[&value]).is_ok() {
        fit += 1;
    }
    assert!(
        (9..=10).contains(&fit),
        "{fit} batches of about 1,000 bytes"
    );
    let mut host = open(&disk.kill());
    let to = partition(&host, "t", 0);
    assert!(produce(&mut host, &to, &[&value]).is_err());
    commit_from_outside(&mut host, "g", "t", 5);
    let mut more = 0;
    while produce(&mut host, &to, &[&value]).is_ok() {
        more += 1;
    }
    assert!((4..=6).contains(&more), "{more} batches fit in place of 5");
}

#[test]
fn a_duplicate_is_recognised_while_the_partition_is_full() {
    let mut host = open(&CrashDisk::new(1));
    let bound = [
        ("riverlog.max.records", "2"),
        ("riverlog.when.full", "error"),
    ];
    create(&mut host, "t", 1, &bound);
    let to = partition(&host, "t", 0);
    let (id, _) = host
        .get(|node, now, reply| node.init_producer(now, reply))
        .unwrap()
        .unwrap();
    let first = send(&host, &to, idempotent(&host, id, 0, &["a", "b"]), -1);
    host.run();
    first.take().unwrap().unwrap();
    let again = send(&host, &to, idempotent(&host, id, 0, &["a", "b"]), -1);
    host.run();
    assert!(again.take().unwrap().unwrap().duplicate);
    let next = send(&host, &to, idempotent(&host, id, 2, &["c"]), -1);
    host.run();
    assert_eq!(
        next.take().unwrap().unwrap_err().error,
        ErrorCode::POLICY_VIOLATION
    );
}
