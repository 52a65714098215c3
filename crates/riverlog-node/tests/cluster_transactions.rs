//! Transactions whose coordinator, partitions and group are on different nodes.

mod common;
#[path = "common/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod nodes;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use nodes::Cluster;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, InTransaction, TopicPartition,
};
use riverlog_core::metadata::TopicRef;
use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_node::{Isolation, NodeSettings, PartitionRef, PeerMessage};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{
    BrokerId, ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence,
    TopicId,
};

const ID: &str = "pay";

type Producer = (ProducerId, ProducerEpoch);

/// Three nodes, each of which leads a partition of `t` that all have.
fn three() -> Cluster {
    let few = NodeSettings {
        transactions_partitions: 3,
        offsets_partitions: 3,
        ..settings()
    };
    let mut cluster = Cluster::new(3, few);
    let on = [[1, 2, 3], [2, 3, 1], [3, 1, 2]];
    cluster.create("t", TopicId([7; 16]), &on, &[]);
    cluster.run(Duration::from_secs(1));
    cluster
}

fn coordinator(cluster: &mut Cluster, ask: i32) -> i32 {
    for _ in 0..2_000 {
        let node = cluster.node(ask).node().clone();
        match node.transaction_coordinator(ID, cluster.node(ask).now()) {
            Some(broker) => return broker.0,
            None => cluster.run(Duration::from_millis(5)),
        }
    }
    panic!("no coordinator");
}

/// A command to the coordinator, until it can say something final.
fn tell(cluster: &mut Cluster, ask: i32, command: &TransactionCommand) -> Producer {
    for _ in 0..200 {
        let at = coordinator(cluster, ask);
        let again = command.clone();
        let node = cluster.node(at);
        let answer = node.ask(|node, now, reply| node.transaction(again, now, reply));
        let (error, made) = match cluster.wait(&answer) {
            TransactionAnswer::Producer {
                error,
                producer_id,
                epoch,
            } => (error, (producer_id, epoch)),
            TransactionAnswer::Error(error) => (error, (ProducerId(-1), ProducerEpoch(-1))),
            other => panic!("{other:?}"),
        };
        match error {
            ErrorCode::NONE => return made,
            error if error.retriable() => cluster.run(Duration::from_millis(50)),
            error => panic!("{error:?}"),
        }
    }
    panic!("the coordinator never gets ready");
}

fn init(cluster: &mut Cluster, ask: i32) -> Producer {
    let command = TransactionCommand::Init {
        id: ID.to_owned(),
        timeout_ms: 60_000,
        resume: None,
        fresh: None,
    };
    tell(cluster, ask, &command)
}

fn end_of(who: Producer, commit: bool) -> TransactionCommand {
    TransactionCommand::End {
        id: ID.to_owned(),
        producer_id: who.0,
        epoch: who.1,
        commit,
        version: TransactionVersion::TWO,
        fresh: None,
    }
}

fn end(cluster: &mut Cluster, ask: i32, who: Producer, commit: bool) -> Producer {
    tell(cluster, ask, &end_of(who, commit))
}

fn led(cluster: &Cluster, index: i32) -> (i32, PartitionRef) {
    let topic = TopicRef::Name("t".to_owned());
    for id in 1..=3 {
        if let Some(Some(node)) = cluster.nodes.get(id as usize - 1)
            && let Ok(found) = node.node().partition(&topic, index)
        {
            return (id, found);
        }
    }
    panic!("nobody leads partition {index}");
}

/// Appends a value to each partition, at its leader, as part of the producer's transaction.
fn write(cluster: &mut Cluster, who: Producer, value: &str, adds: bool) -> Vec<Appended> {
    let mut out = Vec::new();
    for index in 0..3 {
        let (at, to) = led(cluster, index);
        let mut batch = BatchBuilder::new(Compression::None);
        batch.producer(who.0, who.1, Sequence(0));
        batch.transactional();
        batch.push(
            cluster.node(at).now().wall_ms,
            None,
            Some(value.as_bytes()),
            &[],
        );
        let batch = batch.build();
        let node = cluster.node(at);
        let answer = node.ask(|node, now, reply| {
            node.append_in_transaction(&to, ID, adds, command(batch, -1), now, reply);
        });
        out.push(cluster.wait(&answer));
    }
    out
}

/// A producer, and what it has appended everywhere in a transaction that is open.
fn begin(cluster: &mut Cluster, value: &str) -> Producer {
    let who = init(cluster, 1);
    goes_on(cluster, who, value);
    who
}

fn goes_on(cluster: &mut Cluster, who: Producer, value: &str) {
    for appended in write(cluster, who, value, true) {
        appended.expect("appended");
    }
}

/// Why nothing is appended, once the coordinator is sure of it.
fn refusals(cluster: &mut Cluster, who: Producer, value: &str, adds: bool) -> Vec<ErrorCode> {
    for _ in 0..50 {
        let all = write(cluster, who, value, adds).into_iter();
        let errors: Vec<_> = all.map(|a| a.expect_err("refused").error).collect();
        if errors.iter().all(|error| !error.retriable()) {
            return errors;
        }
        cluster.run(Duration::from_millis(50));
    }
    panic!("the coordinator is never sure");
}

/// What a reader of committed records gets of each partition at its leader; `None` while something isn't decided.
fn committed(cluster: &mut Cluster) -> Vec<Option<Vec<String>>> {
    (0..3)
        .map(|index| {
            let (at, _) = led(cluster, index);
            let mut ask = fetch_command(vec![ask_from("t", index, 0)], 0);
            ask.isolation = Isolation::ReadCommitted;
            let node = cluster.node(at);
            let answer = node.ask(|node, now, reply| node.fetch(ask, now, reply));
            let part = cluster.wait(&answer).partitions.remove(0);
            let (values, is_decided) = committed_values(part);
            is_decided.then_some(values)
        })
        .collect()
}

fn everywhere(values: &[&str]) -> Vec<Option<Vec<String>>> {
    let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
    vec![Some(values); 3]
}

#[test]
fn a_transaction_spans_partitions_of_all_nodes() {
    let mut cluster = three();
    let who = begin(&mut cluster, "a");
    assert_eq!(committed(&mut cluster), [None, None, None]);
    let who = end(&mut cluster, 1, who, true);
    cluster.run(Duration::from_secs(1));
    assert_eq!(committed(&mut cluster), everywhere(&["a"]));
    // The next one is aborted, and nobody reads it.
    goes_on(&mut cluster, who, "b");
    end(&mut cluster, 1, who, false);
    cluster.run(Duration::from_secs(1));
    let aborted = committed(&mut cluster);
    assert!(aborted.iter().all(Option::is_some), "{aborted:?}");
    for values in aborted.into_iter().flatten() {
        assert!(!values.contains(&"b".to_owned()), "{values:?}");
    }
}

#[test]
fn a_leader_appends_nothing_to_a_transaction_that_its_coordinator_doesnt_know() {
    let mut cluster = three();
    let who = init(&mut cluster, 1);
    // These clients say themselves which partitions are part of it, and have said none.
    for error in refusals(&mut cluster, who, "a", false) {
        assert_eq!(error, ErrorCode::TRANSACTION_ABORTABLE);
    }
    let old = who;
    let who = init(&mut cluster, 1);
    assert!(who.1 > old.1 || who.0 != old.0);
    for error in refusals(&mut cluster, old, "b", true) {
        assert_eq!(error, ErrorCode::PRODUCER_FENCED);
    }
    assert_eq!(committed(&mut cluster), everywhere(&[]));
}

#[test]
fn what_was_decided_is_carried_out_though_coordinator_and_leaders_change() {
    let mut cluster = three();
    let who = begin(&mut cluster, "a");
    // The decision is made, and no other node hears of it from the coordinator but as a follower of its log.
    let coordinator = coordinator(&mut cluster, 1);
    let others: Vec<i32> = (1..=3).filter(|id| *id != coordinator).collect();
    cluster.led_at(others[0]);
    cluster.run(Duration::from_millis(600));
    let node = cluster.node(coordinator);
    let command = end_of(who, true);
    let decided = node.ask(|node, now, reply| node.transaction(command, now, reply));
    for _ in 0..1_000 {
        if decided.is_ready() {
            break;
        }
        cluster.run(Duration::from_millis(5));
    }
    // It dies as soon as it has answered, whatever markers it has got out.
    assert!(decided.is_ready());
    cluster.kill(coordinator);
    cluster.run(Duration::from_secs(8));
    assert_eq!(committed(&mut cluster), everywhere(&["a"]));
    cluster.start(coordinator);
    cluster.run(Duration::from_secs(3));
    assert_eq!(committed(&mut cluster), everywhere(&["a"]));
}

#[test]
fn a_marker_is_written_once_its_leader_can_be_reached_again() {
    let mut cluster = three();
    let who = begin(&mut cluster, "a");
    let coordinator = coordinator(&mut cluster, 1);
    let other = (1..=3).find(|id| *id != coordinator).unwrap();
    let third = 6 - coordinator - other;
    cluster.led_at(third);
    // Messages between these two are lost for a while, in one direction.
    cluster.cut = [(coordinator, other)].into();
    end(&mut cluster, third, who, true);
    cluster.run(Duration::from_millis(500));
    let undecided = committed(&mut cluster);
    assert!(undecided.contains(&None), "{undecided:?}");
    cluster.cut.clear();
    cluster.run(Duration::from_secs(10));
    assert_eq!(committed(&mut cluster), everywhere(&["a"]));
}

/// Runs transactions while two nodes, the coordinator among them, don't hear each other in some directions, and the third one is the controller.
fn transactions_across(cut: impl Fn(i32, i32) -> Vec<(i32, i32)>) -> Cluster {
    let mut cluster = three();
    let mut who = init(&mut cluster, 1);
    let coordinator = coordinator(&mut cluster, 1);
    let other = coordinator % 3 + 1;
    let third = 6 - coordinator - other;
    cluster.led_at(third);
    cluster.run(Duration::from_secs(1));
    cluster.cut = cut(coordinator, other).into_iter().collect();
    // Longer than any session.
    cluster.run(Duration::from_secs(5));
    let mut values = Vec::new();
    for value in ["a", "b", "c"] {
        // As a client: a retry of the same batch is stored once. A leader waits for who doesn't follow it until that one is out of sync.
        let written = (0..5).any(|_| {
            let all = write(&mut cluster, who, value, true);
            all.iter().all(Result::is_ok)
        });
        assert!(written, "{value}");
        who = end(&mut cluster, third, who, true);
        cluster.run(Duration::from_secs(4));
        values.push(value);
        assert_eq!(committed(&mut cluster), everywhere(&values));
    }
    assert_eq!(self::coordinator(&mut cluster, third), coordinator);
    assert_eq!(led(&cluster, other - 1).0, other);
    assert!(passed_on(&cluster, third) > 0);
    cluster.cut.clear();
    cluster.run(Duration::from_secs(12));
    // Once they hear each other nothing goes round for long.
    let before = passed_on(&cluster, third);
    goes_on(&mut cluster, who, "d");
    end(&mut cluster, third, who, true);
    cluster.run(Duration::from_secs(2));
    values.push("d");
    assert_eq!(committed(&mut cluster), everywhere(&values));
    assert_eq!(passed_on(&cluster, third), before);
    cluster
}

/// The state of a node that nobody hears may be one that others have gone beyond: what it would refuse for good is in doubt until its followers
/// ask again.
fn refused_once_heard(
    cluster: &mut Cluster,
    at: i32,
    ask: impl Fn(&mut Cluster) -> ErrorCode,
    meanwhile: ErrorCode,
    for_good: ErrorCode,
) {
    for other in (1..=3).filter(|id| *id != at) {
        cluster.cut.insert((other, at));
    }
    // Longer than a follower's ask waits for an answer: what waits isn't heard again.
    for _ in 0..15 {
        assert_eq!(ask(cluster), meanwhile);
        cluster.run(Duration::from_millis(100));
    }
    cluster.cut.clear();
    let mut at_last = (0..30).map(|_| {
        cluster.run(Duration::from_millis(100));
        ask(cluster)
    });
    assert!(at_last.any(|error| error == for_good));
}

/// It hears an instance that a newer one has fenced.
#[test]
fn a_coordinator_that_nobody_hears_refuses_nothing_for_good() {
    let mut cluster = three();
    let first = init(&mut cluster, 1);
    let second = init(&mut cluster, 1);
    assert_ne!(first, second);
    let at = coordinator(&mut cluster, 1);
    let late = end_of(first, true);
    let ask = |cluster: &mut Cluster| {
        let command = late.clone();
        let answer = cluster
            .node(at)
            .ask(|node, now, reply| node.transaction(command, now, reply));
        match cluster.wait(&answer) {
            TransactionAnswer::Producer { error, .. } => error,
            other => panic!("{other:?}"),
        }
    };
    let meanwhile = ErrorCode::NOT_COORDINATOR;
    refused_once_heard(&mut cluster, at, ask, meanwhile, ErrorCode::PRODUCER_FENCED);
}

/// A leader that others have gone beyond has a transaction open that ended there.
#[test]
fn a_leader_that_nobody_hears_refuses_no_transaction_for_good() {
    let mut cluster = three();
    let (id, epoch) = begin(&mut cluster, "a");
    let (at, to) = led(&cluster, 0);
    let send = |cluster: &mut Cluster| {
        let node = cluster.node(at);
        let mut next = BatchBuilder::new(Compression::None);
        next.producer(id, ProducerEpoch(epoch.0 + 1), Sequence(0));
        next.transactional();
        next.push(node.now().wall_ms, None, Some(b"b"), &[]);
        let seen = cluster.describe(at, &to).log_end_offset;
        let answer = node.ask(|node, now, reply| {
            node.append_transactional(&to, command(next.build(), -1), seen, now, reply);
        });
        cluster.wait(&answer).expect_err("refused").error
    };
    let meanwhile = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    refused_once_heard(
        &mut cluster,
        at,
        send,
        meanwhile,
        ErrorCode::INVALID_TXN_STATE,
    );
}

fn counted(cluster: &Cluster, id: i32, name: &str) -> f64 {
    let metrics = cluster.node(id).node().metrics();
    let found = metrics.iter().find(|metric| metric.name == name);
    found.expect("a counter").value
}

fn passed_on(cluster: &Cluster, id: i32) -> u64 {
    counted(cluster, id, "peer_messages_passed_on_total") as u64
}

#[test]
fn transactions_end_while_coordinator_and_leader_dont_hear_each_other() {
    transactions_across(|one, other| vec![(one, other), (other, one)]);
}

#[test]
fn transactions_end_while_a_leader_doesnt_hear_the_coordinator() {
    transactions_across(|coordinator, leader| vec![(coordinator, leader)]);
}

#[test]
fn transactions_end_while_a_coordinator_doesnt_hear_the_leader() {
    transactions_across(|coordinator, leader| vec![(leader, coordinator)]);
}

/// A message that is to be passed on to a node (`docs/protocol/peer.md`).
fn pass_on(kind: u8, node: u8, message: &[u8]) -> Bytes {
    let len = u8::try_from(message.len() + 1).unwrap();
    [&[1, kind, 0, 0, 0, node, len], message, &[0]]
        .concat()
        .into()
}

#[test]
fn what_is_passed_on_goes_from_one_member_to_another_and_no_further() {
    let cluster = three();
    let node = cluster.node(3);
    let told = [1, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
    let hears = |from: i32, bytes: Bytes| {
        node.node().on_peer(BrokerId(from), &bytes, node.now());
        let refused = counted(&cluster, 3, "peer_messages_refused_total");
        let round = |message: &PeerMessage| matches!(message.bytes[1], 11 | 12);
        let sent = node.node().take_outbox();
        (refused, sent.into_iter().filter(round).collect::<Vec<_>>())
    };
    let passed = PeerMessage {
        to: BrokerId(2),
        bytes: pass_on(12, 1, &told),
        catches_up: false,
    };
    assert_eq!(hears(1, pass_on(11, 2, &told)), (0.0, vec![passed]));
    // To itself, back, to a stranger, from a stranger.
    assert_eq!(hears(1, pass_on(11, 3, &told)), (1.0, vec![]));
    assert_eq!(hears(1, pass_on(11, 1, &told)), (2.0, vec![]));
    assert_eq!(hears(1, pass_on(11, 4, &told)), (3.0, vec![]));
    assert_eq!(hears(4, pass_on(11, 2, &told)), (4.0, vec![]));
    // What isn't to go round: something that has gone round already, a report of a follower, noise.
    let again = pass_on(11, 2, &told);
    assert_eq!(hears(1, pass_on(11, 2, &again)), (5.0, vec![]));
    let report = [1, 5, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0];
    assert_eq!(hears(1, pass_on(11, 2, &report)), (6.0, vec![]));
    assert_eq!(hears(1, pass_on(11, 2, b"noise")), (7.0, vec![]));
    // The same for what has been passed on to this node.
    assert_eq!(hears(2, pass_on(12, 1, &told)), (7.0, vec![]));
    assert_eq!(hears(2, pass_on(12, 2, &told)), (8.0, vec![]));
    assert_eq!(hears(2, pass_on(12, 3, &told)), (9.0, vec![]));
    assert_eq!(hears(2, pass_on(12, 1, &report)), (10.0, vec![]));
    assert_eq!(hears(2, pass_on(12, 1, &again)), (11.0, vec![]));
    // Only its beginning is looked at on the way; who is meant looks at the rest.
    let cut = &told[..9];
    let passed = PeerMessage {
        to: BrokerId(2),
        bytes: pass_on(12, 1, cut),
        catches_up: false,
    };
    assert_eq!(hears(1, pass_on(11, 2, cut)), (11.0, vec![passed]));
    assert_eq!(hears(2, pass_on(12, 1, cut)), (12.0, vec![]));
}

#[test]
fn offsets_are_committed_in_a_transaction_of_another_coordinator() {
    let mut cluster = three();
    // Of several groups at least one is coordinated elsewhere.
    let groups: Vec<String> = (0..12).map(|n| format!("g{n}")).collect();
    let mut who = init(&mut cluster, 1);
    let coordinator = coordinator(&mut cluster, 1);
    let mut elsewhere = 0;
    for group in &groups {
        let at = group_coordinator(&mut cluster, group);
        elsewhere += i32::from(at != coordinator);
        assert_eq!(commit(&mut cluster, group, who, 7), ErrorCode::NONE);
        assert_eq!(offset_of(&mut cluster, group), None);
        who = end(&mut cluster, 1, who, true);
        cluster.run(Duration::from_secs(1));
        assert_eq!(offset_of(&mut cluster, group), Some(7));
    }
    assert!(elsewhere > 0, "all are where the transactions are");
}

fn group_coordinator(cluster: &mut Cluster, group: &str) -> i32 {
    for _ in 0..2_000 {
        let node = cluster.node(1).node().clone();
        match node.group_coordinator(group, cluster.node(1).now()) {
            Some(broker) => return broker.0,
            None => cluster.run(Duration::from_millis(5)),
        }
    }
    panic!("no coordinator");
}

fn place(cluster: &Cluster) -> TopicPartition {
    TopicPartition {
        id: cluster.node(1).node().image().topic("t").unwrap().id,
        topic: "t".to_owned(),
        partition: 0,
    }
}

fn commit(cluster: &mut Cluster, group: &str, who: Producer, offset: i64) -> ErrorCode {
    for _ in 0..200 {
        let at = group_coordinator(cluster, group);
        let committed = CommittedOffset {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            metadata: String::new(),
            commit_timestamp: 0,
            expire_timestamp: None,
        };
        let command = GroupCommand::TxnCommit {
            group: group.to_owned(),
            generation: Generation(-1),
            member: String::new(),
            instance: None,
            offsets: vec![(place(cluster), committed)],
            version: 5,
            transaction: InTransaction {
                producer_id: who.0,
                producer_epoch: who.1,
                verified: Offset::ZERO,
            },
        };
        let node = cluster.node(at);
        let answer =
            node.ask(|node, now, reply| node.commit_in_transaction(ID, true, command, now, reply));
        let error = match cluster.wait(&answer) {
            GroupAnswer::Partitions(ErrorCode::NONE, each) => each[0],
            GroupAnswer::Partitions(error, _) | GroupAnswer::Error(error) => error,
            other => panic!("{other:?}"),
        };
        if !error.retriable() {
            return error;
        }
        cluster.run(Duration::from_millis(50));
    }
    panic!("it is never committed");
}

fn offset_of(cluster: &mut Cluster, group: &str) -> Option<i64> {
    let at = group_coordinator(cluster, group);
    let asked = vec![place(cluster)];
    let node = cluster.node(at);
    let answer = node.ask(|node, now, reply| {
        node.committed(group, Some(asked), None, now, reply);
    });
    let found = cluster.wait(&answer).expect("the coordinator is there");
    found[0].1.as_ref().map(|c| c.offset.0)
}
