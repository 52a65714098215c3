//! Several nodes, a quorum played by the test, and a network that does as it is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::metadata::{
    AdminCommand, ConfigResource, MetadataRecord, NewTopic, PartitionImage, TopicRef, Way,
};
use riverlog_log::Disk;
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::{Answer, Harness, START_MS};
use riverlog_node::quorum::{Quorum, QuorumEvent};
use riverlog_node::{NodeSettings, PartitionDescription, PartitionRef};
use riverlog_wire::{BrokerId, TopicId};

use super::common::{Appended, command, config, new_topic};

/// Whether a message is lost: of whom, to whom, and what it is.
pub type Loses = Box<dyn Fn(i32, i32, &[u8]) -> bool>;

pub struct Cluster {
    pub nodes: Vec<Option<Harness>>,
    pub disks: Vec<CrashDisk>,
    now: Duration,
    term: u64,
    controller: i32,
    entries: Vec<(u64, Vec<Bytes>)>,
    /// Each life draws its own.
    starts: u64,
    /// Directions in which nothing goes through.
    pub cut: BTreeSet<(i32, i32)>,
    /// Which messages don't arrive.
    pub loses: Loses,
    /// All messages arrive twice.
    pub repeats: bool,
    /// Nodes that hear nothing of the quorum.
    pub deaf: BTreeSet<i32>,
    /// What didn't reach a node that wasn't there, and of whom it was.
    pub lost: Vec<(i32, i32, Bytes)>,
    /// How long the messages were that copies catch up with.
    pub caught_up_with: Vec<usize>,
    /// Entries that each node was handed.
    handed: Vec<usize>,
    settings: NodeSettings,
}

/// How finely time passes.
const STEP: Duration = Duration::from_millis(5);

impl Cluster {
    pub fn new(nodes: i32, settings: NodeSettings) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            disks: (0..nodes).map(|n| CrashDisk::new(n as u64)).collect(),
            now: Duration::from_secs(1),
            term: 1,
            controller: 1,
            entries: Vec::new(),
            starts: 0,
            cut: BTreeSet::new(),
            loses: Box::new(|_, _, _| false),
            repeats: false,
            deaf: BTreeSet::new(),
            lost: Vec::new(),
            caught_up_with: Vec::new(),
            handed: vec![0; nodes as usize],
            settings,
        };
        for id in 1..=nodes {
            cluster.nodes.push(None);
            cluster.start(id);
        }
        cluster.run(Duration::from_secs(2));
        assert!((1..=nodes).all(|id| cluster.node(id).node().is_let_in()));
        cluster
    }

    pub fn node(&self, id: i32) -> &Harness {
        self.nodes[id as usize - 1].as_ref().expect("it runs")
    }

    pub fn start(&mut self, id: i32) {
        let settings = NodeSettings {
            broker: BrokerId(id),
            quorum: Quorum::Shared,
            ..self.settings.clone()
        };
        let now = Now {
            mono: self.now,
            wall_ms: START_MS + self.now.as_millis() as i64,
        };
        self.starts += 1;
        let disk = Arc::new(self.disks[id as usize - 1].clone()) as Arc<dyn Disk>;
        let node = Harness::open_at(disk, settings, self.starts, now).expect("the node opens");
        self.nodes[id as usize - 1] = Some(node);
        self.handed[id as usize - 1] = 0;
        self.hand();
        self.tell(id);
    }

    fn tell(&self, id: i32) {
        let event = QuorumEvent::Leader {
            term: self.term,
            leader: Some(BrokerId(self.controller)),
        };
        let node = self.node(id);
        node.node().on_quorum(event, node.now());
    }

    /// Another node is the controller.
    pub fn led_at(&mut self, controller: i32) {
        self.term += 1;
        self.controller = controller;
        for id in 1..=self.nodes.len() as i32 {
            if self.nodes[id as usize - 1].is_some() {
                self.tell(id);
            }
        }
    }

    /// The process dies; what was written stays.
    pub fn kill(&mut self, id: i32) {
        let at = id as usize - 1;
        self.disks[at] = self.disks[at].kill();
        self.nodes[at] = None;
    }

    /// What a node sees of its way to another one.
    pub fn sees(&self, id: i32, of: i32, way: Way) -> bool {
        let node = self.node(id);
        node.node().on_way(BrokerId(of), way, node.now())
    }

    /// All the others find that nobody listens any more where a node was.
    pub fn are_refused(&mut self, of: i32) {
        let up = |id: &i32| self.nodes[*id as usize - 1].is_some();
        let others: Vec<i32> = (1..=self.nodes.len() as i32)
            .filter(|id| *id != of && up(id))
            .collect();
        for id in &others {
            assert!(!self.sees(*id, of, Way::Ended));
            assert!(!self.sees(*id, of, Way::Refused));
        }
        self.run(Duration::from_millis(50));
        for id in &others {
            assert!(self.sees(*id, of, Way::Refused));
        }
    }

    /// The power goes.
    pub fn power_cut(&mut self, id: i32, seed: u64) {
        let at = id as usize - 1;
        let after = self.disks[at].crash(seed);
        self.disks[at].power_off();
        self.disks[at] = after;
        self.nodes[at] = None;
    }

    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            for at in 0..self.nodes.len() {
                if let Some(node) = &mut self.nodes[at] {
                    let behind = self.now.saturating_sub(node.now().mono);
                    node.advance(behind);
                }
                self.carry(at);
            }
        }
    }

    fn carry(&mut self, at: usize) {
        let Some(node) = &mut self.nodes[at] else {
            return;
        };
        node.run();
        let from = at as i32 + 1;
        if from == self.controller && !self.deaf.contains(&from) {
            let silent = Duration::ZERO;
            node.node()
                .on_quorum(QuorumEvent::Majority { silent }, node.now());
        }
        for proposal in node.node().take_proposals() {
            if (proposal.term, from) == (self.term, self.controller) {
                self.entries.push((proposal.term, proposal.records));
                self.hand();
            }
        }
        let messages = self.node(from).node().take_outbox();
        for message in messages {
            if message.catches_up {
                self.caught_up_with.push(message.bytes.len());
            }
            let is_lost = (self.loses)(from, message.to.0, &message.bytes);
            if is_lost || self.cut.contains(&(from, message.to.0)) {
                continue;
            }
            if let Some(Some(to)) = self.nodes.get(message.to.0 as usize - 1) {
                let (node, now) = (to.node().clone(), to.now());
                for _ in 0..1 + i32::from(self.repeats) {
                    node.on_peer(BrokerId(from), &message.bytes, now);
                }
            } else {
                self.lost.push((from, message.to.0, message.bytes));
            }
        }
    }

    /// All who hear get what they don't have.
    pub fn hand(&mut self) {
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = node
                .as_ref()
                .filter(|_| !self.deaf.contains(&(at as i32 + 1)))
            else {
                continue;
            };
            while self.handed[at] < self.entries.len() {
                self.handed[at] += 1;
                hand(&self.entries, node, self.handed[at]);
            }
        }
    }

    /// The quorum agrees on an entry as it is.
    pub fn agree(&mut self, records: &[MetadataRecord]) {
        let records = records.iter().map(MetadataRecord::encode).collect();
        self.entries.push((self.term, records));
        self.hand();
    }

    pub fn admin(&mut self, command: AdminCommand) {
        let controller = self.node(self.controller);
        let answer = controller.ask(|node, now, reply| node.admin(command, now, reply));
        self.wait(&answer).expect("done");
    }

    /// A topic whose partitions are on these nodes, each led by the first of its row.
    pub fn create(&mut self, name: &str, id: TopicId, on: &[[i32; 3]], configs: &[(&str, &str)]) {
        let rows = on.iter().map(|row| row.map(BrokerId).to_vec());
        let topic = NewTopic {
            assignments: (0..).zip(rows).collect(),
            ..new_topic(name, id, configs)
        };
        self.admin(AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: false,
        });
    }

    pub fn group_config(&mut self, group: &str, key: &str, value: &str) {
        let group = ConfigResource::Group(group.to_owned());
        self.admin(config(group, key, Some(value)));
    }

    pub fn wait<T: Send + 'static>(&mut self, answer: &Answer<T>) -> T {
        for _ in 0..4_000 {
            if let Some(answer) = answer.take() {
                return answer;
            }
            self.run(STEP);
        }
        panic!("no answer");
    }

    pub fn image(&self, topic: &str) -> PartitionImage {
        let image = self.node(self.controller).node().image();
        image.topic(topic).expect("a topic").partitions[0].clone()
    }

    pub fn leader(&self, topic: &str) -> i32 {
        self.image(topic).leader.expect("a leader").0
    }

    pub fn led(&self, id: i32, topic: &str) -> PartitionRef {
        let topic = TopicRef::Name(topic.to_owned());
        let found = self.node(id).node().partition(&topic, 0);
        found.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends to a node, which need not lead.
    pub fn send(&self, id: i32, to: &PartitionRef, batch: Vec<u8>, acks: i16) -> Answer<Appended> {
        let node = self.node(id);
        node.ask(|node, now, reply| node.append(to, command(batch, acks), now, reply))
    }

    pub fn describe(&self, id: i32, partition: &PartitionRef) -> PartitionDescription {
        self.node(id).node().describe_partition(partition)
    }
}

fn hand(entries: &[(u64, Vec<Bytes>)], node: &Harness, index: usize) {
    let (term, records) = entries[index - 1].clone();
    let event = QuorumEvent::Committed {
        index: index as u64,
        term,
        records,
    };
    node.node().on_quorum(event, node.now());
}
