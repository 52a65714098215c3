//! Transactions over several partitions, and what becomes of them when the node dies in between.

mod common;

use std::time::Duration;

use common::*;
use riverlog_core::transactions::{
    TransactionAnswer, TransactionCommand, TransactionFilter, TransactionState, TransactionVersion,
};
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::{Answer, Harness};
use riverlog_node::{AppendTo, Isolation, NodeSettings, PartitionRef, Reply};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

const ID: &str = "pay";

fn start(disk: &CrashDisk) -> Harness {
    let settings = NodeSettings {
        transactions_partitions: 2,
        ..settings()
    };
    open_with(disk, settings)
}

fn tell(host: &mut Harness, command: &TransactionCommand) -> TransactionAnswer {
    for _ in 0..100 {
        let command = command.clone();
        let answer = host
            .get(|node, now, reply| node.transaction(command, now, reply))
            .expect("the coordinator answers");
        let error = match &answer {
            TransactionAnswer::Producer { error, .. } | TransactionAnswer::Error(error) => *error,
            _ => ErrorCode::NONE,
        };
        match error {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS | ErrorCode::CONCURRENT_TRANSACTIONS => {
                host.advance(Duration::from_millis(100));
            }
            _ => return answer,
        }
    }
    panic!("the coordinator never gets ready");
}

fn init(host: &mut Harness) -> (ProducerId, ProducerEpoch) {
    let command = TransactionCommand::Init {
        id: ID.to_owned(),
        timeout_ms: 10_000,
        resume: None,
        fresh: None,
    };
    match tell(host, &command) {
        TransactionAnswer::Producer {
            error: ErrorCode::NONE,
            producer_id,
            epoch,
        } => (producer_id, epoch),
        other => panic!("{other:?}"),
    }
}

fn end(who: (ProducerId, ProducerEpoch), commit: bool) -> TransactionCommand {
    TransactionCommand::End {
        id: ID.to_owned(),
        producer_id: who.0,
        epoch: who.1,
        commit,
        version: TransactionVersion::TWO,
        fresh: None,
    }
}

fn part_of(
    host: &Harness,
    who: (ProducerId, ProducerEpoch),
    sequence: i32,
    value: &str,
) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    batch.producer(who.0, who.1, Sequence(sequence));
    batch.transactional();
    batch.push(host.now().wall_ms, None, Some(value.as_bytes()), &[]);
    batch.build()
}

fn write(
    host: &mut Harness,
    to: &PartitionRef,
    who: (ProducerId, ProducerEpoch),
    sequence: i32,
) -> Appended {
    let batch = part_of(host, who, sequence, &format!("v{sequence}"));
    host.get(|node, now, reply| {
        node.append_in_transaction(to, ID, true, command(batch, -1), now, reply);
    })
    .expect("the append is answered")
}

/// Values that a reader of committed records gets, and whether everything is stable.
fn committed(host: &mut Harness, topic: &str, index: i32) -> (Vec<String>, bool) {
    let mut fetch_all = fetch_command(vec![ask_from(topic, index, 0)], 0);
    fetch_all.isolation = Isolation::ReadCommitted;
    let answer = fetch(host, fetch_all);
    committed_values(answer.partitions.into_iter().next().expect("a partition"))
}

fn state(host: &Harness) -> TransactionState {
    let all = host
        .node()
        .transactions(&TransactionFilter::all(), host.now())
        .expect("loaded");
    all[0].value.state
}

#[test]
fn what_is_decided_is_carried_out_wherever_the_node_dies() {
    for commit in [true, false] {
        for seed in 0..24 {
            let disk = CrashDisk::new(seed);
            let mut host = start(&disk);
            create(&mut host, "t", 3, &[]);
            let who = init(&mut host);
            for index in 0..3 {
                let to = partition(&host, "t", index);
                write(&mut host, &to, who, 0).expect("stored");
            }
            let ended = host.ask(|node, now, reply| node.transaction(end(who, commit), now, reply));
            while !ended.is_ready() {
                assert!(host.run_job(0), "the end waits for nothing");
            }
            let answer = ended.take().expect("an answer");
            let next = (who.0, ProducerEpoch(who.1.0 + 1));
            let expected = TransactionAnswer::Producer {
                error: ErrorCode::NONE,
                producer_id: next.0,
                epoch: next.1,
            };
            assert_eq!(answer, expected);
            // A few steps into the markers, and the power is gone.
            for _ in 0..seed % 8 {
                host.run_job(0);
            }
            let after = disk.crash(seed);
            disk.power_off();
            drop(host);

            let mut host = start(&after);
            host.advance(Duration::from_secs(2));
            let whole = if commit {
                vec!["v0".to_owned()]
            } else {
                Vec::new()
            };
            for index in 0..3 {
                let found = committed(&mut host, "t", index);
                assert_eq!(
                    found,
                    (whole.clone(), true),
                    "seed {seed}, partition {index}"
                );
            }
            let done = match commit {
                true => TransactionState::CompleteCommit,
                false => TransactionState::CompleteAbort,
            };
            assert_eq!(state(&host), done);
            // The answer may have been lost with the node: it is given again.
            assert_eq!(tell(&mut host, &end(who, commit)), expected);
            // And the producer goes on, which it doesn't with its old epoch.
            let to = partition(&host, "t", 0);
            let late = write(&mut host, &to, who, 1).expect_err("a late frame");
            assert_eq!(late.error, ErrorCode::PRODUCER_FENCED);
            write(&mut host, &to, next, 0).expect("the next transaction");
        }
    }
}

#[test]
fn an_open_transaction_runs_out_also_when_the_node_was_down_meanwhile() {
    let disk = CrashDisk::new(5);
    let mut host = start(&disk);
    create(&mut host, "t", 1, &[]);
    let who = init(&mut host);
    let to = partition(&host, "t", 0);
    write(&mut host, &to, who, 0).expect("stored");
    assert_eq!(committed(&mut host, "t", 0), (Vec::new(), false));
    let after = disk.kill();
    drop(host);
    let mut host = start(&after);
    host.advance(Duration::from_secs(9));
    assert_eq!(state(&host), TransactionState::Ongoing);
    host.advance(Duration::from_secs(3));
    assert_eq!(state(&host), TransactionState::CompleteAbort);
    assert_eq!(committed(&mut host, "t", 0), (Vec::new(), true));
    let answer = tell(&mut host, &end(who, true));
    let fenced = TransactionAnswer::no_producer(ErrorCode::PRODUCER_FENCED);
    assert!(
        answer == fenced || answer == TransactionAnswer::no_producer(ErrorCode::INVALID_TXN_STATE),
        "{answer:?}"
    );
}

#[test]
fn a_deleted_topic_holds_no_transaction_up() {
    let disk = CrashDisk::new(6);
    let mut host = start(&disk);
    create(&mut host, "stays", 1, &[]);
    create(&mut host, "goes", 1, &[]);
    let who = init(&mut host);
    for name in ["stays", "goes"] {
        let to = partition(&host, name, 0);
        write(&mut host, &to, who, 0).expect("stored");
    }
    delete(&mut host, "goes").expect("deleted");
    tell(&mut host, &end(who, true));
    host.advance(Duration::from_secs(1));
    assert_eq!(state(&host), TransactionState::CompleteCommit);
    assert_eq!(
        committed(&mut host, "stays", 0),
        (vec!["v0".to_owned()], true)
    );
}

#[test]
fn batches_sent_ahead_keep_their_order_behind_the_coordinator() {
    let disk = CrashDisk::new(7);
    let mut host = start(&disk);
    create(&mut host, "t", 1, &[]);
    let who = init(&mut host);
    let to = partition(&host, "t", 0);
    let sent: Vec<_> = (0..5)
        .map(|sequence| {
            let batch = part_of(&host, who, sequence, &format!("v{sequence}"));
            host.ask(|node, now, reply| {
                node.append_in_transaction(&to, ID, true, command(batch, -1), now, reply);
            })
        })
        .collect();
    host.run();
    for (offset, answer) in (0..).zip(sent) {
        let appended = answer.take().expect("answered").expect("stored");
        assert_eq!(appended.base_offset.0, offset);
    }
    // One that no transaction knows is refused with all that follow it.
    let stranger = (ProducerId(4_000), ProducerEpoch(0));
    let refused: Vec<_> = (0..2)
        .map(|sequence| {
            let batch = part_of(&host, stranger, sequence, "x");
            host.ask(|node, now, reply| {
                node.append_in_transaction(&to, ID, true, command(batch, -1), now, reply);
            })
        })
        .collect();
    host.run();
    for answer in refused {
        let failure = answer.take().expect("answered").expect_err("refused");
        assert_eq!(failure.error, ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    }
    tell(&mut host, &end(who, true));
    host.advance(Duration::from_secs(1));
    let all: Vec<String> = (0..5).map(|n| format!("v{n}")).collect();
    assert_eq!(committed(&mut host, "t", 0), (all, true));
}

#[test]
fn a_late_batch_that_is_refused_takes_none_of_the_next_transaction_along() {
    let disk = CrashDisk::new(9);
    let mut host = start(&disk);
    create(&mut host, "t", 2, &[]);
    let before = init(&mut host);
    let to = [partition(&host, "t", 0), partition(&host, "t", 1)];
    write(&mut host, &to[0], before, 0).expect("stored");
    tell(&mut host, &end(before, true));
    host.advance(Duration::from_secs(1));
    let next = (before.0, ProducerEpoch(before.1.0 + 1));

    let send = |index: usize, who, value: &str| {
        let batch = part_of(&host, who, 0, value);
        host.ask(|node, now, reply| {
            node.append_in_transaction(&to[index], ID, true, command(batch, -1), now, reply);
        })
    };
    // What the coordinator says of the late one waits until this one's partition is durably in the transaction.
    let first = send(0, next, "first");
    let late = send(1, before, "late");
    assert!(!late.is_ready());
    let second = send(1, next, "second");
    host.run();
    let failure = late.take().expect("answered").expect_err("refused");
    assert_eq!(failure.error, ErrorCode::PRODUCER_FENCED);
    for answer in [first, second] {
        answer.take().expect("answered").expect("stored");
    }
    tell(&mut host, &end(next, true));
    host.advance(Duration::from_secs(1));
    let second = vec!["second".to_owned()];
    assert_eq!(committed(&mut host, "t", 1), (second, true));
}

/// Records of `__transaction_state`, in all its partitions.
fn decisions(host: &mut Harness) -> i64 {
    let ask = |index| ask_from("__transaction_state", index, 0);
    let answer = fetch(host, fetch_command(vec![ask(0), ask(1)], 0));
    answer.partitions.iter().map(|p| p.high_watermark.0).sum()
}

/// A client sends the batches of all partitions in one request.
#[test]
fn the_coordinator_is_asked_once_about_all_partitions_of_a_request() {
    let mut host = start(&CrashDisk::new(8));
    create(&mut host, "t", 6, &[]);
    let who = init(&mut host);
    let before = decisions(&mut host);
    let stranger = (ProducerId(4_000), ProducerEpoch(0));
    let (answers, batches): (Vec<_>, Vec<_>) = (0..6)
        .map(|index| {
            let (answer, reply) = Answer::new();
            let who = if index == 2 { stranger } else { who };
            let to = AppendTo {
                partition: partition(&host, "t", index),
                command: command(part_of(&host, who, 0, "v"), -1),
                reply,
            };
            (answer, to)
        })
        .unzip();
    let (node, now) = (host.node().clone(), host.now());
    node.append_all_in_transaction(ID, true, batches, now);
    host.run();
    for (index, answer) in (0..).zip(answers) {
        let answer = answer.take().expect("answered");
        match index {
            2 => {
                let error = answer.expect_err("refused").error;
                assert_eq!(error, ErrorCode::INVALID_PRODUCER_ID_MAPPING);
            }
            _ => assert_eq!(answer.expect("stored").base_offset.0, 0),
        }
    }
    assert_eq!(decisions(&mut host), before + 1);
    tell(&mut host, &end(who, true));
    host.advance(Duration::from_secs(1));
    for index in 0..6 {
        let (values, stable) = committed(&mut host, "t", index);
        assert_eq!((values.len(), stable), (usize::from(index != 2), true));
    }
}

/// The end of a transaction is answered before its markers are written: a client may be back in between.
#[test]
fn the_next_transaction_begins_while_the_last_one_is_ended() {
    for commit in [true, false] {
        let mut host = start(&CrashDisk::new(1));
        create(&mut host, "a", 1, &[]);
        let to = partition(&host, "a", 0);
        let who = init(&mut host);
        write(&mut host, &to, who, 0).expect("appended");
        let next = (who.0, ProducerEpoch(who.1.0 + 1));
        let batch = part_of(&host, next, 0, "next");
        let (written, reply) = Answer::new();
        let (node, now) = (host.node().clone(), host.now());
        let went_on = Reply::new(move |answer| {
            let expected = TransactionAnswer::Producer {
                error: ErrorCode::NONE,
                producer_id: next.0,
                epoch: next.1,
            };
            assert_eq!(answer, expected);
            node.append_in_transaction(&to, ID, true, command(batch, -1), now, reply);
        });
        host.node().transaction(end(who, commit), now, went_on);
        host.advance(Duration::from_secs(1));
        written.take().expect("an answer").expect("appended");
        tell(&mut host, &end(next, true));
        host.advance(Duration::from_secs(1));
        assert_eq!(state(&host), TransactionState::CompleteCommit);
        assert!(committed(&mut host, "a", 0).1, "something is open");
    }
}
