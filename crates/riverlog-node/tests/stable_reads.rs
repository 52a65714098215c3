//! Transactions in the partitions of a node: what may be appended, what readers of committed records see, when markers are
//! answered, and offsets that are committed with them.

mod common;

use std::time::Duration;

use common::*;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, InTransaction, TopicPartition,
};
use riverlog_core::metadata::TopicRef;
use riverlog_log::disk::{CrashDisk, FaultOn, Times};
use riverlog_node::harness::Harness;
use riverlog_node::{
    AppendCommand, FetchAnswer, FetchCommand, FetchPartition, Isolation, Marker, OffsetQuery,
    PartitionRef,
};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{
    ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TopicId,
};

fn transactional(id: i64, epoch: i16, sequence: i32) -> AppendCommand {
    AppendCommand {
        batch: BatchBuilder::new(Compression::None)
            .producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence))
            .transactional()
            .push(1_000, None, Some(b"v"), &[])
            .build(),
        acks: -1,
        timeout: Duration::from_secs(5),
    }
}

/// As a broker does it: asks what is open, and (with a coordinator that knows of all) appends.
fn send(host: &mut Harness, to: &PartitionRef, id: i64, epoch: i16, sequence: i32) -> Appended {
    let open = host
        .node()
        .open_transaction(to, ProducerId(id), ProducerEpoch(epoch))
        .unwrap();
    let command = transactional(id, epoch, sequence);
    host.get(|node, now, reply| match open.open {
        true => node.append(to, command, now, reply),
        false => node.append_transactional(to, command, open.seen, now, reply),
    })
    .expect("an answer")
}

fn marker(id: i64, epoch: i16, committed: bool) -> Marker {
    Marker {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        coordinator_epoch: 1,
        transaction_version: 2,
        committed,
    }
}

fn end(host: &mut Harness, to: &PartitionRef, marker: Marker) -> Result<(), ErrorCode> {
    host.get(|node, now, reply| node.write_marker(to, marker, now, reply))
        .expect("an answer")
}

fn poll(topic: &str, from: i64, wait: u64) -> FetchCommand {
    FetchCommand {
        partitions: vec![FetchPartition {
            topic: TopicRef::Name(topic.to_owned()),
            partition: 0,
            from: Offset(from),
            max_bytes: 1 << 20,
            current_leader_epoch: LeaderEpoch(-1),
            last_fetched_epoch: LeaderEpoch(-1),
        }],
        max_wait: Duration::from_millis(wait),
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation: Isolation::ReadCommitted,
        replica: None,
    }
}

/// Offset after what is read, the aborted transactions, and the last stable offset.
fn seen(answer: FetchAnswer) -> (i64, Vec<(i64, i64)>, i64) {
    let partition = answer.partitions.into_iter().next().unwrap();
    assert_eq!(partition.error, ErrorCode::NONE);
    let aborted = partition.aborted.iter().map(|(id, o)| (*id, o.0)).collect();
    let bytes = partition.records.clone().into_bytes().unwrap();
    let last = batches(&bytes)
        .map(|b| b.unwrap().header.next_offset())
        .last();
    assert_eq!(
        last.unwrap_or(partition.records.next),
        partition.records.next
    );
    (
        partition.records.next.0,
        aborted,
        partition.last_stable_offset.0,
    )
}

fn read(host: &mut Harness, from: i64) -> (i64, Vec<(i64, i64)>, i64) {
    let answer = host.get(|node, now, reply| node.fetch(poll("t", from, 0), now, reply));
    seen(answer.expect("an answer"))
}

fn latest(host: &mut Harness, to: &PartitionRef, isolation: Isolation) -> i64 {
    let none = LeaderEpoch(-1);
    let answer = host.get(|node, _, reply| {
        node.offset(to, OffsetQuery::Latest, isolation, none, reply);
    });
    answer.unwrap().offset.0
}

#[test]
fn readers_of_committed_records_stop_at_what_is_open_and_are_told_what_was_aborted() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    // Nobody has asked the coordinator.
    let refused = host.get(|node, now, reply| node.append(&to, transactional(7, 0, 0), now, reply));
    assert_eq!(
        refused.unwrap().unwrap_err().error,
        ErrorCode::INVALID_TXN_STATE
    );
    send(&mut host, &to, 7, 0, 0).unwrap();
    send(&mut host, &to, 7, 0, 1).unwrap();
    produce(&mut host, &to, &["b"]).unwrap();
    assert_eq!(read(&mut host, 0), (1, vec![], 1));
    assert_eq!(read(&mut host, 1), (1, vec![], 1));
    assert_eq!(latest(&mut host, &to, Isolation::ReadCommitted), 1);
    assert_eq!(latest(&mut host, &to, Isolation::ReadUncommitted), 4);
    let known = host.node().describe_producers(&to);
    assert_eq!(known[0].transaction_start, Some(Offset(1)));
    end(&mut host, &to, marker(7, 1, false)).unwrap();
    assert_eq!(read(&mut host, 0), (5, vec![(7, 1)], 5));
    assert_eq!(read(&mut host, 4), (5, vec![(7, 1)], 5));
    // Once more: the answer is the same, and nothing is written.
    end(&mut host, &to, marker(7, 1, false)).unwrap();
    assert_eq!(latest(&mut host, &to, Isolation::ReadUncommitted), 5);
    // A late batch of before, and markers of before.
    let late = send(&mut host, &to, 7, 0, 2).unwrap_err();
    assert_eq!(late.error, ErrorCode::INVALID_PRODUCER_EPOCH);
    send(&mut host, &to, 7, 1, 0).unwrap();
    let again = end(&mut host, &to, marker(7, 1, true));
    assert_eq!(again, Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    let older = Marker {
        coordinator_epoch: 0,
        ..marker(7, 2, true)
    };
    let fenced = end(&mut host, &to, older);
    assert_eq!(fenced, Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED));
    end(&mut host, &to, marker(7, 2, true)).unwrap();
    assert_eq!(read(&mut host, 5), (7, vec![], 7));
    // So it is after a restart, from files.
    host.close().unwrap();
    let mut host = open(&disk);
    assert_eq!(read(&mut host, 0), (7, vec![(7, 1)], 7));
    assert_eq!(read(&mut host, 5), (7, vec![], 7));
}

#[test]
fn whoever_reads_is_told_what_is_open_also_of_a_log_that_nobody_used_since_the_start() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    send(&mut host, &to, 7, 0, 0).unwrap();
    host.close().unwrap();
    for from in [0, 2] {
        let mut host = open(&disk);
        let command = fetch_command(vec![ask_from("t", 0, from)], 0);
        let answer = fetch(&mut host, command);
        let part = &answer.partitions[0];
        assert_eq!(
            (part.high_watermark, part.last_stable_offset),
            (Offset(2), Offset(1)),
            "from {from}"
        );
        host.close().unwrap();
    }
}

#[test]
fn a_waiting_reader_is_woken_by_the_end_and_not_by_what_it_may_not_see() {
    let disk = CrashDisk::new(2);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    send(&mut host, &to, 7, 0, 0).unwrap();
    let waiting = host.ask(|node, now, reply| node.fetch(poll("t", 0, 60_000), now, reply));
    for i in 1..20 {
        send(&mut host, &to, 7, 0, i).unwrap();
        produce(&mut host, &to, &["x"]).unwrap();
    }
    assert!(!waiting.is_ready());
    end(&mut host, &to, marker(7, 1, true)).unwrap();
    let answer = waiting.take().expect("the marker wakes it");
    assert_eq!(seen(answer), (40, vec![], 40));
}

#[test]
fn a_marker_is_answered_when_it_is_durable_and_survives_then() {
    let disk = CrashDisk::new(3);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    send(&mut host, &to, 7, 0, 0).unwrap();
    disk.fail(
        FaultOn::Sync,
        Times::Once,
        std::io::ErrorKind::Other,
        |_| true,
    );
    let failed = end(&mut host, &to, marker(7, 1, true));
    assert_eq!(failed, Err(ErrorCode::KAFKA_STORAGE_ERROR));
    let after = disk.crash(5);
    disk.power_off();
    drop(host);
    let mut host = open(&after);
    let to = partition(&host, "t", 0);
    // Whether it got there or not: again does it.
    end(&mut host, &to, marker(7, 1, true)).unwrap();
    let next = read(&mut host, 0);
    let again = after.crash(6);
    after.power_off();
    drop(host);
    let mut host = open(&again);
    assert_eq!(read(&mut host, 0), next);
    assert_eq!(next.1, vec![]);
    let to = partition(&host, "t", 0);
    let refused = send(&mut host, &to, 7, 0, 1).unwrap_err();
    assert_eq!(refused.error, ErrorCode::INVALID_PRODUCER_EPOCH);
}

fn at_zero() -> TopicPartition {
    TopicPartition {
        topic: "t".to_owned(),
        id: TopicId::ZERO,
        partition: 0,
    }
}

/// What a group's transactional commit is answered.
fn commit(host: &mut Harness, id: i64, epoch: i16, offset: i64) -> ErrorCode {
    for _ in 0..100 {
        let seen = host.get(|node, now, reply: riverlog_node::Reply<_>| {
            let asked = node.group_partition("g", now);
            let id = ProducerId(id);
            reply.send(asked.and_then(|p| node.open_transaction(&p, id, ProducerEpoch(epoch))));
        });
        let error = match seen.unwrap() {
            Err(error) => error,
            Ok(open) => {
                let committed = CommittedOffset {
                    offset: Offset(offset),
                    leader_epoch: LeaderEpoch(-1),
                    metadata: String::new(),
                    commit_timestamp: 0,
                    expire_timestamp: None,
                };
                let command = GroupCommand::TxnCommit {
                    group: "g".to_owned(),
                    generation: Generation(-1),
                    member: String::new(),
                    instance: None,
                    offsets: vec![(at_zero(), committed)],
                    version: 5,
                    transaction: InTransaction {
                        producer_id: ProducerId(id),
                        producer_epoch: ProducerEpoch(epoch),
                        verified: open.seen,
                    },
                };
                let answer = host.get(|node, now, reply| node.group(command, now, reply));
                match answer.unwrap() {
                    GroupAnswer::Partitions(ErrorCode::NONE, each) => each[0],
                    GroupAnswer::Partitions(error, _) => error,
                    other => panic!("{other:?}"),
                }
            }
        };
        if error != ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
            return error;
        }
        host.advance(Duration::from_millis(100));
    }
    panic!("the coordinator never came");
}

/// The group's offset, plainly and for those who want it stable.
fn committed(host: &mut Harness) -> (Option<i64>, Result<Option<i64>, ErrorCode>) {
    loop {
        let asked = Some(vec![at_zero()]);
        let plain = host.get(|node, now, reply| node.committed("g", asked, None, now, reply));
        let asked = Some(vec![at_zero()]);
        let stable =
            host.get(|node, now, reply| node.committed_stable("g", asked, None, now, reply));
        if let (Ok(plain), Ok(stable)) = (plain.unwrap(), stable.unwrap()) {
            let value = |c: &Option<CommittedOffset>| c.as_ref().map(|c| c.offset.0);
            return (value(&plain[0].1), stable[0].1.clone().map(|c| value(&c)));
        }
        host.advance(Duration::from_millis(100));
    }
}

fn end_group(host: &mut Harness, marker: Marker) -> Result<(), ErrorCode> {
    loop {
        let now = host.now();
        let to = host.node().group_partition("g", now).unwrap();
        match end(host, &to, marker) {
            Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS) => {
                host.advance(Duration::from_millis(100));
            }
            other => return other,
        }
    }
}

#[test]
fn offsets_count_with_their_transaction_also_after_a_crash() {
    const UNSTABLE: Result<Option<i64>, ErrorCode> = Err(ErrorCode::UNSTABLE_OFFSET_COMMIT);
    let disk = CrashDisk::new(4);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    assert_eq!(commit(&mut host, 7, 0, 5), ErrorCode::NONE);
    assert_eq!(committed(&mut host), (None, UNSTABLE));
    let crashed = disk.crash(1);
    disk.power_off();
    drop(host);
    let mut host = open(&crashed);
    assert_eq!(committed(&mut host), (None, UNSTABLE));
    end_group(&mut host, marker(7, 1, true)).unwrap();
    assert_eq!(committed(&mut host), (Some(5), Ok(Some(5))));
    // The frames of before don't get into what comes next.
    assert_eq!(
        commit(&mut host, 7, 0, 6),
        ErrorCode::INVALID_PRODUCER_EPOCH
    );
    assert_eq!(commit(&mut host, 7, 1, 7), ErrorCode::NONE);
    end_group(&mut host, marker(7, 2, false)).unwrap();
    assert_eq!(committed(&mut host), (Some(5), Ok(Some(5))));
    assert_eq!(commit(&mut host, 7, 2, 8), ErrorCode::NONE);
    host.close().unwrap();
    let mut host = open(&crashed);
    assert_eq!(committed(&mut host), (Some(5), UNSTABLE));
    end_group(&mut host, marker(7, 3, true)).unwrap();
    end_group(&mut host, marker(7, 3, true)).unwrap();
    let again = crashed.crash(2);
    crashed.power_off();
    drop(host);
    let mut host = open(&again);
    assert_eq!(committed(&mut host), (Some(8), Ok(Some(8))));
}
