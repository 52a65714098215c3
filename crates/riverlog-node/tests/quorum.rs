//! A node behind a quorum that is played by the test.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, ConfigChange, ConfigResource, NewTopic, TopicRef,
};
use riverlog_log::Disk;
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::Harness;
use riverlog_node::quorum::{MetadataSnapshot, Quorum, QuorumEvent};
use riverlog_node::{NodeSettings, Notice};
use riverlog_wire::{BrokerId, ErrorCode, Offset, TopicId};

fn settings_of(id: i32) -> NodeSettings {
    NodeSettings {
        broker: BrokerId(id),
        quorum: Quorum::Shared,
        ..settings()
    }
}

/// The entries of a quorum, and who leads it.
#[derive(Default)]
struct Entries {
    term: u64,
    leader: i32,
    entries: Vec<(u64, Vec<Bytes>)>,
}

impl Entries {
    fn lead(&mut self, leader: i32, nodes: &[&Harness]) {
        self.term += 1;
        self.leader = leader;
        for node in nodes {
            self.tell(node);
        }
    }
    fn tell(&self, node: &Harness) {
        let event = QuorumEvent::Leader {
            term: self.term,
            leader: Some(BrokerId(self.leader)),
        };
        node.node().on_quorum(event, node.now());
    }
    fn hand(&self, node: &Harness, index: usize) {
        let (term, records) = self.entries[index - 1].clone();
        let event = QuorumEvent::Committed {
            index: index as u64,
            term,
            records,
        };
        node.node().on_quorum(event, node.now());
    }
    /// Everything that anyone wants to say is said and committed.
    fn settle(&mut self, nodes: &mut [&mut Harness]) {
        for _ in 0..50 {
            for at in 0..nodes.len() {
                // Heartbeats come by themselves.
                nodes[at].advance(Duration::from_millis(20));
                for proposal in nodes[at].node().take_proposals() {
                    assert_eq!(proposal.term, self.term);
                    self.entries.push((proposal.term, proposal.records));
                    for node in nodes.iter() {
                        self.hand(node, self.entries.len());
                    }
                }
                let from = nodes[at].node().settings().broker;
                for message in nodes[at].node().take_outbox() {
                    for node in nodes.iter() {
                        if node.node().settings().broker == message.to {
                            node.node().on_peer(from, &message.bytes, node.now());
                        }
                    }
                }
            }
        }
    }
}

fn open_node(disk: &CrashDisk, id: i32) -> Harness {
    open_again(disk, id, id as u64)
}

/// Each life draws its own.
fn open_again(disk: &CrashDisk, id: i32, life: u64) -> Harness {
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    Harness::open(disk, settings_of(id), life).expect("the node opens")
}

fn topic(name: &str, on: i32) -> AdminCommand {
    let topic = NewTopic {
        name: name.to_owned(),
        partitions: -1,
        replication_factor: -1,
        assignments: vec![(0, vec![BrokerId(on)])],
        id: TopicId(*b"a topic's own id"),
        ..NewTopic::default()
    };
    AdminCommand::CreateTopics {
        topics: vec![topic],
        validate_only: false,
    }
}

fn delete_topic(name: &str) -> AdminCommand {
    let topics = vec![TopicRef::Name(name.to_owned())];
    AdminCommand::DeleteTopics { topics }
}

/// Two registered nodes, the first of which is the controller.
fn pair(disks: &[CrashDisk; 2]) -> (Entries, Harness, Harness) {
    let (mut one, mut two) = (open_node(&disks[0], 1), open_node(&disks[1], 2));
    let mut quorum = Entries::default();
    quorum.lead(1, &[&one, &two]);
    quorum.settle(&mut [&mut one, &mut two]);
    assert_eq!(one.node().image().brokers.len(), 2);
    assert!(one.node().is_let_in() && two.node().is_let_in());
    (quorum, one, two)
}

#[test]
fn nodes_register_with_the_controller_and_apply_the_same() {
    let disks = [CrashDisk::new(1), CrashDisk::new(2)];
    let (mut quorum, mut one, mut two) = pair(&disks);
    assert!(one.node().is_controller() && !two.node().is_controller());
    assert_eq!(two.node().controller_id(), Some(BrokerId(1)));

    let made = one.ask(|node, now, reply| node.admin(topic("t", 2), now, reply));
    assert!(!made.is_ready(), "answered before it is committed");
    quorum.settle(&mut [&mut one, &mut two]);
    made.take().expect("answered").expect("made");
    assert_eq!(one.node().image().position, two.node().image().position);
    assert_eq!(
        one.node().metadata_snapshot(),
        two.node().metadata_snapshot()
    );

    let here = partition(&two, "t", 0);
    assert_eq!(produce(&mut two, &here, &["a"]).unwrap().base_offset.0, 0);
    let elsewhere = one.node().partition(&TopicRef::Name("t".to_owned()), 0);
    assert_eq!(elsewhere.unwrap_err(), ErrorCode::NOT_LEADER_OR_FOLLOWER);

    // Producer ids come from the controller, through the other node.
    let id = two.ask(|node, now, reply| node.init_producer(now, reply));
    quorum.settle(&mut [&mut one, &mut two]);
    id.take().expect("answered").expect("an id");
}

#[test]
fn an_entry_counts_once_and_nothing_counts_after_a_lost_leadership() {
    let disks = [CrashDisk::new(1), CrashDisk::new(2)];
    let (mut quorum, mut one, mut two) = pair(&disks);
    let position = one.node().image().position;
    for index in 1..=quorum.entries.len() {
        quorum.hand(&one, index);
    }
    assert_eq!(one.node().image().position, position);

    let made = one.ask(|node, now, reply| node.admin(topic("t", 2), now, reply));
    quorum.lead(2, &[&one, &two]);
    assert_eq!(made.take().unwrap().unwrap_err(), ErrorCode::NOT_CONTROLLER);
    assert!(one.node().take_proposals().is_empty(), "of an earlier term");
    // What is asked of another node goes to the one that leads.
    let unknown = one.ask(|node, now, reply| node.admin(delete_topic("u"), now, reply));
    let made = two.ask(|node, now, reply| node.admin(topic("t", 2), now, reply));
    quorum.settle(&mut [&mut one, &mut two]);
    made.take().expect("answered").expect("made");
    assert!(one.node().image().topic("t").is_some());
    match unknown.take().expect("answered").expect("decided") {
        AdminAnswer::Results(results) => {
            assert_eq!(results[0].error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        other => panic!("{other:?}"),
    }

    // One that the quorum can't take is answered, and the next one is decided.
    let made = two.ask(|node, now, reply| node.admin(delete_topic("t"), now, reply));
    let number = two.node().take_proposals()[0].number;
    two.node()
        .on_quorum(QuorumEvent::Refused { number }, two.now());
    assert_eq!(
        made.take().unwrap().unwrap_err(),
        ErrorCode::REQUEST_TIMED_OUT
    );
}

#[test]
fn logs_wait_for_metadata_and_are_not_taken_for_leftovers() {
    let disks = [CrashDisk::new(1), CrashDisk::new(2)];
    let (mut quorum, mut one, mut two) = pair(&disks);
    let made = one.ask(|node, now, reply| node.admin(topic("t", 2), now, reply));
    quorum.settle(&mut [&mut one, &mut two]);
    made.take().expect("answered").expect("made");
    let here = partition(&two, "t", 0);
    produce(&mut two, &here, &["a", "b"]).expect("acknowledged");

    for clean in [false, true] {
        match clean {
            true => two.close().expect("a clean stop"),
            false => drop(two),
        }
        let disk = disks[1].crash(5);
        two = open_again(&disk, 2, 10 + u64::from(clean));
        two.advance(Duration::from_millis(100));
        assert!(two.node().image().topics.is_empty());
        // Entries before the last one are gone meanwhile.
        let snapshot = one.node().metadata_snapshot();
        two.node()
            .on_quorum(QuorumEvent::Snapshot(snapshot), two.now());
        quorum.tell(&two);
        quorum.settle(&mut [&mut one, &mut two]);
        let read = read_all(&mut two, "t", 0);
        assert_eq!(read, [(0, "a".to_owned()), (1, "b".to_owned())]);
    }

    // What a snapshot doesn't name any more is gone.
    let empty = MetadataSnapshot {
        index: 1_000,
        position: Offset(2_000),
        records: Vec::new(),
    };
    two.node()
        .on_quorum(QuorumEvent::Snapshot(empty), two.now());
    assert!(two.node().image().topics.is_empty());
    assert_eq!(two.node().image().position, Offset(2_000));
}

#[test]
fn metadata_of_a_newer_release_stops_the_node_and_is_told() {
    let node = open_node(&CrashDisk::new(1), 1);
    let event = |index, bytes: &'static [u8]| QuorumEvent::Committed {
        index,
        term: 1,
        records: vec![Bytes::from_static(bytes)],
    };
    node.node().on_quorum(event(1, &[1, 99, 0, 0]), node.now());
    let told = node.take_notices();
    assert!(
        matches!(&told[..], [Notice::MetadataUnreadable { .. }]),
        "{told:?}"
    );
    node.node()
        .on_quorum(event(2, &[1, 3, 0, 0, 0, 0, 9, 0]), node.now());
    assert_eq!(node.node().image().position, Offset(0));
}

#[test]
fn a_proposal_ends_at_a_megabyte_and_what_could_not_be_carried_is_refused() {
    let disks = [CrashDisk::new(1), CrashDisk::new(2)];
    let (mut quorum, mut one, mut two) = pair(&disks);
    // So many groups get a config of thirty kilobytes.
    let ask = |one: &Harness, name: &str, groups: usize| {
        let value = "x".repeat(30 << 10);
        let resources = (0..groups).map(|i| {
            let key = "errors.deadletterqueue.topic.name".to_owned();
            let change = ConfigChange::Set(key, Some(value.clone()));
            (ConfigResource::Group(format!("{name}{i}")), vec![change])
        });
        let command = AdminCommand::AlterConfigs {
            resources: resources.collect(),
            replace: false,
            validate_only: false,
        };
        one.ask(|node, now, reply| node.admin(command, now, reply))
    };
    // One is in flight, and the others wait.
    let mut asked = vec![ask(&one, "first", 1)];
    asked.extend((0..5).map(|i| ask(&one, &format!("{i}-"), 14)));
    let large = ask(&one, "large", 1_200);
    asked.push(ask(&one, "last", 1));
    let before = quorum.entries.len();
    quorum.settle(&mut [&mut one, &mut two]);
    for answer in asked {
        answer.take().expect("answered").expect("decided");
    }
    let refused = large.take().expect("answered");
    assert_eq!(refused.err(), Some(ErrorCode::POLICY_VIOLATION));
    let sizes: Vec<usize> = quorum.entries[before..]
        .iter()
        .map(|(_, records)| records.iter().map(Bytes::len).sum())
        .collect();
    assert!(sizes.iter().all(|bytes| *bytes < 3 << 19), "{sizes:?}");
    assert!(sizes.iter().any(|bytes| *bytes > 1 << 20), "{sizes:?}");
}
