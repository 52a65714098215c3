//! Bounded partitions and idempotent producers that have several batches under way.

mod common;

use std::time::Duration;

use common::*;
use riverlog_log::disk::CrashDisk;
use riverlog_node::PartitionRef;
use riverlog_node::harness::{Answer, Harness};
use riverlog_wire::{ErrorCode, Offset, ProducerId};

/// A topic `t` that holds one record, and a producer.
fn one_fits(when_full: &str) -> (Harness, PartitionRef, ProducerId) {
    let mut host = open(&CrashDisk::new(1));
    let bound = [
        ("riverlog.max.records", "1"),
        ("riverlog.when.full", when_full),
    ];
    create(&mut host, "t", 1, &bound);
    let to = partition(&host, "t", 0);
    let id = host.get(|node, now, reply| node.init_producer(now, reply));
    let (id, _) = id.unwrap().unwrap();
    (host, to, id)
}

/// Sends the batches of these sequences, a record each, one behind the other.
fn pipeline(
    host: &mut Harness,
    to: &PartitionRef,
    id: ProducerId,
    sequences: impl IntoIterator<Item = i32>,
) -> Vec<Answer<Appended>> {
    let each = sequences.into_iter();
    let sent = each.map(|sequence| {
        let value = format!("{id}:{sequence}");
        send(host, to, idempotent(host, id, sequence, &[&value]), -1)
    });
    let sent = sent.collect();
    host.run();
    sent
}

fn offset(answer: &Answer<Appended>) -> i64 {
    answer.take().expect("answered").unwrap().base_offset.0
}

fn error(answer: &Answer<Appended>) -> ErrorCode {
    answer.take().expect("answered").unwrap_err().error
}

#[test]
fn what_follows_a_blocked_batch_waits_behind_it() {
    let (mut host, to, id) = one_fits("block");
    let sent = pipeline(&mut host, &to, id, 0..5);
    assert_eq!(offset(&sent[0]), 0);
    assert!(sent[1..].iter().all(|answer| !answer.is_ready()));
    // What is stored is known at once.
    let again = pipeline(&mut host, &to, id, [0]);
    assert!(again[0].take().unwrap().unwrap().duplicate);
    for (at, answer) in (1..).zip(&sent[1..]) {
        assert!(!answer.is_ready());
        commit_from_outside(&mut host, "g", "t", at);
        assert_eq!(offset(answer), at);
    }
}

#[test]
fn what_waits_and_is_sent_again_is_stored_once() {
    let (mut host, to, id) = one_fits("block");
    let first = pipeline(&mut host, &to, id, 0..3);
    // As after a connection that broke.
    let again = pipeline(&mut host, &to, id, 0..4);
    assert_eq!(offset(&first[0]), 0);
    assert!(again[0].take().unwrap().unwrap().duplicate);
    set(&mut host, "t", "riverlog.max.records", "10");
    let offsets: Vec<i64> = first[1..].iter().map(offset).collect();
    assert_eq!(offsets, [1, 2]);
    for (at, answer) in (1..).zip(&again[1..3]) {
        let answer = answer.take().unwrap().unwrap();
        assert!(answer.duplicate);
        assert_eq!(answer.base_offset, Offset(at));
    }
    assert_eq!(offset(&again[3]), 3);
}

#[test]
fn a_gap_behind_what_waits_is_answered_after_it() {
    let (mut host, to, id) = one_fits("block");
    let sent = pipeline(&mut host, &to, id, [0, 1, 3]);
    assert!(!sent[1].is_ready() && !sent[2].is_ready());
    set(&mut host, "t", "riverlog.max.records", "10");
    assert_eq!(offset(&sent[1]), 1);
    assert_eq!(error(&sent[2]), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    // Where nobody waits it is answered at once, full or not.
    set(&mut host, "t", "riverlog.max.records", "2");
    let gap = pipeline(&mut host, &to, id, [3]);
    assert_eq!(error(&gap[0]), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
}

#[test]
fn what_waits_behind_a_batch_whose_time_ends_is_refused_with_it() {
    let (mut host, to, id) = one_fits("block");
    let other = ProducerId(id.0 + 1);
    produce(&mut host, &to, &["full"]).unwrap();
    let mut first = command(idempotent(&host, id, 0, &["0"]), -1);
    first.timeout = Duration::from_millis(500);
    let first = host.ask(|node, now, reply| node.append(&to, first, now, reply));
    let behind = pipeline(&mut host, &to, id, 1..3);
    let others = pipeline(&mut host, &to, other, 0..2);
    host.advance(Duration::from_millis(600));
    for answer in [&first, &behind[0], &behind[1]] {
        let failure = answer.take().expect("answered").unwrap_err();
        assert_eq!(failure.error, ErrorCode::THROTTLING_QUOTA_EXCEEDED);
        assert!(failure.retry_after.is_some());
    }
    assert!(others.iter().all(|answer| !answer.is_ready()));
    // There is room now. A batch that was under way meanwhile would be the first of its producer.
    set(&mut host, "t", "riverlog.max.records", "10");
    assert_eq!([offset(&others[0]), offset(&others[1])], [1, 2]);
    let late = pipeline(&mut host, &to, id, [3]);
    assert_eq!(error(&late[0]), ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    let again = pipeline(&mut host, &to, id, 0..4);
    let offsets: Vec<i64> = again.iter().map(offset).collect();
    assert_eq!(offsets, [3, 4, 5, 6]);
}

#[test]
fn a_refused_batch_that_comes_again_is_waited_behind() {
    let (mut host, to, id) = one_fits("block");
    set(&mut host, "t", "riverlog.when.full.timeout.ms", "500");
    let sent = pipeline(&mut host, &to, id, 0..3);
    host.advance(Duration::from_millis(600));
    for answer in &sent[1..] {
        assert_eq!(error(answer), ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    }
    let early = pipeline(&mut host, &to, id, [2]);
    assert_eq!(error(&early[0]), ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    let again = pipeline(&mut host, &to, id, 1..3);
    assert!(again.iter().all(|answer| !answer.is_ready()));
    commit_from_outside(&mut host, "g", "t", 1);
    assert_eq!(offset(&again[0]), 1);
    commit_from_outside(&mut host, "g", "t", 2);
    assert_eq!(offset(&again[1]), 2);
}

#[test]
fn when_full_is_error_all_that_is_under_way_is_refused_as_full() {
    let (mut host, to, id) = one_fits("error");
    let sent = pipeline(&mut host, &to, id, 0..4);
    assert_eq!(offset(&sent[0]), 0);
    for answer in &sent[1..] {
        assert_eq!(error(answer), ErrorCode::POLICY_VIOLATION);
    }
    set(&mut host, "t", "riverlog.max.records", "3");
    let next = pipeline(&mut host, &to, id, 1..4);
    assert_eq!([offset(&next[0]), offset(&next[1])], [1, 2]);
    assert_eq!(error(&next[2]), ErrorCode::POLICY_VIOLATION);
}

#[test]
fn settings_that_change_find_what_waits_in_order() {
    let (mut host, to, id) = one_fits("block");
    let sent = pipeline(&mut host, &to, id, 0..6);
    set(&mut host, "t", "riverlog.max.records", "3");
    assert_eq!([offset(&sent[1]), offset(&sent[2])], [1, 2]);
    assert!(sent[3..].iter().all(|answer| !answer.is_ready()));
    set(&mut host, "t", "riverlog.when.full", "error");
    for answer in &sent[3..] {
        assert_eq!(error(answer), ErrorCode::POLICY_VIOLATION);
    }
    set(&mut host, "t", "riverlog.when.full", "block");
    let again = pipeline(&mut host, &to, id, 3..6);
    assert!(again.iter().all(|answer| !answer.is_ready()));
    set(&mut host, "t", "riverlog.max.records", "-1");
    let offsets: Vec<i64> = again.iter().map(offset).collect();
    assert_eq!(offsets, [3, 4, 5]);
}
