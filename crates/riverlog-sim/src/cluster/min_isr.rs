//! How many copies an acknowledgement asks for changes under load: what is decided of the in-sync set goes by one number, and what is acknowledged
//! must go by the same.

use std::time::Duration;

use riverlog_core::metadata::{AdminCommand, ConfigChange, ConfigResource};
use riverlog_log::disk::Random;
use riverlog_node::Reply;

use super::model::TOPIC;
use super::world::{Event, World};

const KEY: &str = "min.insync.replicas";

/// How long at most followers hear nothing before they are out, and their leader dies after that.
const SOON_US: u64 = 80_000;

/// Draws from a source of its own, so that a seed without any is what it would be without this.
pub(super) struct MinIsr {
    random: Random,
    /// Of 1,000 steps of clients; 0: it stays what it is.
    often: u64,
}

impl MinIsr {
    /// Every fourth seed.
    pub(super) fn draw(seed: u64) -> MinIsr {
        let mut random = Random::new(seed ^ 0x6d_69_6e_69);
        let often = match random.chance(1, 4) {
            true => 10 + random.below(100),
            false => 0,
        };
        MinIsr { random, often }
    }
}

impl World {
    /// Now and then acknowledgements ask for more copies or fewer.
    pub(super) fn perhaps_ask_for_more(&mut self) {
        let min_isr = &mut self.min_isr;
        if self.healing || min_isr.often == 0 || min_isr.random.below(1_000) >= min_isr.often {
            return;
        }
        let value = ["1", "2"][min_isr.random.below(2) as usize];
        let in_one = min_isr.random.chance(1, 4);
        match in_one {
            true => self.prepare_to_ask_for_more(),
            false => self.set(KEY, value),
        }
    }

    /// A leader goes by one, and its followers don't hear it for a moment.
    fn prepare_to_ask_for_more(&mut self) {
        let Some(image) = self.newest_image() else {
            return;
        };
        let partitions = image.topic(TOPIC).map_or(&[][..], |t| &t.partitions);
        let index = self.min_isr.random.below(1 + partitions.len() as u64) as usize;
        let Some(leader) = partitions.get(index).and_then(|p| p.leader) else {
            return;
        };
        let at = leader.0 as usize - 1;
        if self.controller() == Some(at) || !self.is_up(at) {
            return;
        }
        self.set(KEY, "1");
        for other in (0..self.machines.len()).filter(|other| *other != at) {
            if self.controller() != Some(other) {
                self.cuts.extend([(at, other), (other, at)]);
            }
        }
        let later = Duration::from_micros(1 + self.min_isr.random.below(SOON_US));
        let index = index as i32;
        self.schedule(self.clock + later, Event::AskForMore { index });
        self.schedule(self.clock + 2 * later, Event::Link(at));
    }

    /// One entry says that acknowledgements ask for more copies, and that a leader is in sync alone; and that dies.
    pub(super) fn ask_for_more(&mut self, index: i32) {
        let Some((node, now)) = self.controller().and_then(|at| self.node(at)) else {
            return;
        };
        let image = node.image();
        let partition = image
            .topic(TOPIC)
            .and_then(|t| t.partitions.get(index as usize));
        let Some((partition, leader)) = partition.and_then(|p| Some((p, p.leader?))) else {
            return;
        };
        let at = leader.0 as usize - 1;
        // One that isn't let in yet may have lost its disk, and would be the only one to have had all.
        let led = self.machines[at].node.as_ref();
        let is_in = led.is_some_and(|n| n.is_let_in());
        if self.controller() == Some(at) || !self.is_up(at) || !is_in {
            return;
        }
        self.note(format_args!("more is asked for as {at} is left alone"));
        self.faults += 1;
        // While this is on its way, what follows waits and is decided together.
        let idle = self.min_isr.random.below(1_000).to_string();
        self.set("index.interval.bytes", &idle);
        self.set(KEY, "2");
        for other in partition.isr.iter().filter(|other| **other != leader) {
            if let Some(known) = image.brokers.get(other) {
                let (broker, epoch) = (known.id, known.epoch);
                let fence = AdminCommand::Fence { broker, epoch };
                node.admin(fence, now, Reply::new(|_| {}));
            }
        }
        let life = self.machines[at].life;
        self.machines[at].ill = true;
        let later = Duration::from_micros(8_000 + self.min_isr.random.below(20_000));
        self.schedule(self.clock + later, Event::Restart { at, life });
    }

    fn set(&mut self, key: &str, value: &str) {
        let Some((node, now)) = self.controller().and_then(|at| self.node(at)) else {
            return;
        };
        self.note(format_args!("{key} becomes {value}"));
        let change = ConfigChange::Set(key.to_owned(), Some(value.to_owned()));
        let command = AdminCommand::AlterConfigs {
            resources: vec![(ConfigResource::Topic(TOPIC.to_owned()), vec![change])],
            replace: false,
            validate_only: false,
        };
        node.admin(command, now, Reply::new(|_| {}));
    }
}
