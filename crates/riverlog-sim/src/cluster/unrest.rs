//! Leaderships that go to and fro though nobody is down, and disks that fill up.
//!
//! Between two leaderships that follow each other soon, nodes may hear nothing of the one in between, and what was said in an earlier one comes late: what
//! only epochs can tell apart.

use std::time::Duration;

use riverlog_core::metadata::{AdminCommand, Reassignment};
use riverlog_log::disk::Random;
use riverlog_node::Reply;
use riverlog_wire::BrokerId;

use super::model::TOPIC;
use super::transactors;
use super::world::{Event, World};

/// How soon at most a leadership ends that was made for a moment.
const SOON_US: u64 = 60_000;
/// For how long at most a disk has no room.
const FULL_US: u64 = 4_000_000;

/// Draws from a source of its own, so that a seed without any is what it would be without this.
pub(super) struct Unrest {
    random: Random,
    /// Of 1,000 steps of clients; 0: there is none.
    often: u64,
    /// Disks fill up as well.
    fills: bool,
}

impl Unrest {
    /// Every third seed.
    pub(super) fn draw(seed: u64) -> Unrest {
        let mut random = Random::new(seed ^ 0x75_6e_72_65);
        let often = match random.chance(1, 3) {
            true => 10 + random.below(60),
            false => 0,
        };
        let fills = random.chance(1, 3);
        Unrest {
            random,
            often,
            fills,
        }
    }
}

impl World {
    /// Now and then another node that is in sync is to lead, perhaps for a moment only.
    pub(super) fn perhaps_unsettle(&mut self) {
        if self.healing
            || self.unrest.often == 0
            || self.unrest.random.below(1_000) >= self.unrest.often
        {
            return;
        }
        if self.unrest.fills && self.unrest.random.chance(1, 20) {
            return self.fill_a_disk();
        }
        let topics: &[&'static str] = match self.groups.has_transactors() {
            true => &[TOPIC, transactors::STATE, crate::transactions::TOPIC],
            false => &[TOPIC],
        };
        let name = topics[self.unrest.random.below(topics.len() as u64) as usize];
        let image = self.newest_image();
        let Some(topic) = image.as_ref().and_then(|i| i.topic(name)) else {
            return;
        };
        let index = self.unrest.random.below(topic.partitions.len() as u64) as i32;
        let Some(partition) = topic.partitions.get(index as usize) else {
            return;
        };
        let Some(leader) = partition.leader else {
            return;
        };
        let others: Vec<BrokerId> = partition
            .isr
            .iter()
            .copied()
            .filter(|b| *b != leader)
            .collect();
        if others.is_empty() {
            return;
        }
        let next = others[self.unrest.random.below(others.len() as u64) as usize];
        let place = |b: BrokerId| b.0 as usize - 1;
        let (next, back) = (place(next), place(leader));
        if self.unrest.random.chance(1, 2) && !self.cuts.contains(&(back, next)) {
            // Who led doesn't hear of it from the next one.
            self.cuts.extend([(back, next), (next, back)]);
            let later = Duration::from_micros(1 + self.unrest.random.below(10 * SOON_US));
            self.schedule(self.clock + later, Event::Link(next));
        }
        self.let_lead(name, index, next);
        if self.unrest.random.chance(3, 4) {
            let later = Duration::from_micros(1 + self.unrest.random.below(SOON_US));
            let (topic, at) = (name, back);
            self.schedule(self.clock + later, Event::Lead { topic, index, at });
        }
    }

    /// Makes a node the first replica of a partition, and so its leader, where it is in sync.
    pub(super) fn let_lead(&mut self, name: &'static str, index: i32, at: usize) {
        let Some((node, now)) = self.controller().and_then(|of| self.node(of)) else {
            return;
        };
        let image = node.image();
        let topic = image.topic(name);
        let Some(partition) = topic.and_then(|t| t.partitions.get(index as usize)) else {
            return;
        };
        let first = BrokerId(at as i32 + 1);
        if partition.is_moving() || !partition.isr.contains(&first) {
            return;
        }
        self.note(format_args!("{name} {index} is to be led by {at}"));
        let mut replicas = partition.replicas.clone();
        replicas.retain(|b| *b != first);
        replicas.insert(0, first);
        let reorder = AdminCommand::Reassign {
            partitions: vec![Reassignment {
                topic: name.to_owned(),
                index,
                replicas: Some(replicas),
            }],
            factor_may_change: false,
        };
        let elect = AdminCommand::ElectLeaders {
            partitions: vec![(name.to_owned(), index)],
            unclean: false,
        };
        for command in [reorder, elect] {
            node.admin(command, now, Reply::new(|_| {}));
        }
    }

    fn fill_a_disk(&mut self) {
        let at = self.unrest.random.below(self.machines.len() as u64) as usize;
        if self.machines[at].node.is_none() || self.machines[at].ill {
            return;
        }
        self.note(format_args!("the disk of node {at} is full"));
        self.faults += 1;
        self.machines[at].disk.fill_up();
        let later = Duration::from_micros(1 + self.unrest.random.below(FULL_US));
        self.schedule(self.clock + later, Event::Room(at));
    }
}
