//! What goes wrong.

use std::time::Duration;

use riverlog_log::disk::CrashDisk;

use super::machine::Machine;
use super::world::{Event, World};

impl World {
    /// One fault, now and then.
    pub(super) fn perhaps_fail(&mut self) {
        if self.healing || self.random.below(1_000) >= self.swarm.faults {
            return;
        }
        let at = self.random.below(self.machines.len() as u64) as usize;
        let power = self.swarm.sync && self.random.chance(1, 2);
        match self.random.below(12) {
            0 | 1 => self.fell(at, power, 3_000),
            // It comes back at once, before anyone has noticed.
            2 => self.fell(at, power, 30),
            3 => {
                for at in 0..self.machines.len() {
                    self.fell(at, power, 500);
                }
            }
            4 => {
                let time = self.for_a_while();
                self.note(format!("node {at} stands still for {time:?}"));
                self.machines[at].frozen_until = self.clock + time;
            }
            5 => {
                let time = self.for_a_while();
                self.machines[at].slow_until = self.clock + time;
            }
            6 | 7 => self.isolate(at),
            8 => self.cut_some(),
            9 => self.depose(),
            10 => self.replace_disk(at),
            _ => {
                self.note("all links are whole");
                self.cuts.clear();
            }
        }
    }

    fn for_a_while(&mut self) -> Duration {
        Duration::from_millis(50) + self.within(6_000_000)
    }

    fn fell(&mut self, at: usize, power: bool, most_ms: u64) {
        self.down(at, power);
        let later = self.clock + Duration::from_millis(1) + self.within(1_000 * most_ms);
        self.schedule(later, Event::Start(at));
    }

    /// Nobody hears a node, it hears nobody, or both.
    fn isolate(&mut self, at: usize) {
        let way = self.random.below(3);
        self.note(format!("node {at} is cut off, {way}"));
        for other in (0..self.machines.len()).filter(|other| *other != at) {
            if way != 1 {
                self.cuts.insert((at, other));
            }
            if way != 2 {
                self.cuts.insert((other, at));
            }
        }
        let later = self.clock + self.for_a_while();
        self.schedule(later, Event::Link(at));
    }

    /// Any links in any direction: bridges, halves.
    fn cut_some(&mut self) {
        let all = self.machines.len();
        for from in 0..all {
            for to in 0..all {
                if from != to && self.random.chance(1, 4) {
                    self.cuts.insert((from, to));
                }
            }
            let later = self.clock + self.for_a_while();
            self.schedule(later, Event::Link(from));
        }
        let cuts = self.cuts.clone();
        self.note(format!("cut: {cuts:?}"));
    }

    /// An empty disk in place of the one that the node had. One is lost at a time, and only where that can't be the last that has all.
    fn replace_disk(&mut self, at: usize) {
        // Nobody has to notice another loss first.
        let is_in = |m: &Machine| m.node.as_ref().is_some_and(|n| n.is_let_in());
        if !self.swarm.sync || !self.all_in_sync() || !self.machines.iter().all(is_in) {
            return;
        }
        self.note(format!("node {at} gets an empty disk"));
        self.down(at, false);
        self.machines[at].disk = CrashDisk::new(self.random.next_u64());
        self.disks_lost += 1;
        let later = self.clock + self.within(500_000);
        self.schedule(later, Event::Start(at));
    }
}
