//! What goes wrong: one function a fault, and how often each begins.

use std::io::ErrorKind;
use std::time::Duration;

use riverlog_log::disk::{CrashDisk, FaultOn, Times};
use riverlog_mutants::{Mark, sometimes};

use super::machine::Machine;
use super::world::{Event, World};

/// A fault that begins at a node.
type Fault = fn(&mut World, usize);

/// A seed draws a weight for each.
pub(super) const ALL: &[Fault] = &[
    away_for_a_while,
    back_at_once,
    all_at_once,
    in_the_middle_of_a_write,
    stand_still,
    slow_disk,
    isolate,
    cut_some,
    whole_links,
    depose,
    empty_disk,
    failing_syncs,
    wall_jumps,
    clean_stop,
];

impl World {
    /// One fault, now and then, by the weights of the seed.
    pub(super) fn perhaps_fail(&mut self) {
        if self.healing || self.random.below(1_000) >= self.swarm.faults {
            return;
        }
        let all: u64 = self.swarm.weights.iter().sum();
        let mut at = self.random.below(all.max(1));
        let node = self.random.below(self.machines.len() as u64) as usize;
        for (weight, begin) in self.swarm.weights.clone().iter().zip(ALL) {
            if at < *weight {
                self.faults += 1;
                return begin(self, node);
            }
            at -= weight;
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

    /// The power goes with the process. What a `page-cache` topic acknowledges may be lost with it, so there it stays.
    fn takes_power(&mut self) -> bool {
        self.swarm.sync && self.random.chance(1, 2)
    }

    /// Cuts the links of a node with all others: what it says, what it hears, or both.
    pub(super) fn cut_off(&mut self, at: usize, says: bool, hears: bool) {
        for other in (0..self.machines.len()).filter(|other| *other != at) {
            if says {
                self.cuts.insert((at, other));
            }
            if hears {
                self.cuts.insert((other, at));
            }
        }
    }
}

fn away_for_a_while(world: &mut World, at: usize) {
    let power = world.takes_power();
    world.fell(at, power, 3_000);
}

/// Before anyone has noticed.
fn back_at_once(world: &mut World, at: usize) {
    let power = world.takes_power();
    world.fell(at, power, 30);
}

fn all_at_once(world: &mut World, _: usize) {
    let power = world.takes_power();
    if power {
        sometimes(Mark::AllPowerless);
    }
    for at in 0..world.machines.len() {
        world.fell(at, power, 500);
    }
}

/// The power goes after a few more changes of the disk.
fn in_the_middle_of_a_write(world: &mut World, at: usize) {
    if world.swarm.sync && world.machines[at].node.is_some() {
        let changes = world.random.below(6);
        world.machines[at].disk.fail_after(changes);
        world.machines[at].ill = true;
        let later = world.clock + Duration::from_millis(5);
        let life = world.machines[at].life;
        world.schedule(later, Event::PowerCut { at, life });
    }
}

fn stand_still(world: &mut World, at: usize) {
    let time = world.for_a_while();
    world.note(format!("node {at} stands still for {time:?}"));
    world.machines[at].frozen_until = world.clock + time;
    if time > world.swarm.settings.cluster.session {
        sometimes(Mark::NodeFrozen);
    }
}

fn slow_disk(world: &mut World, at: usize) {
    let time = world.for_a_while();
    world.machines[at].slow_until = world.clock + time;
}

/// Nobody hears a node, it hears nobody, or both.
fn isolate(world: &mut World, at: usize) {
    let way = world.random.below(3);
    world.note(format!("node {at} is cut off, {way}"));
    world.cut_off(at, way != 1, way != 2);
    sometimes(match way {
        0 => Mark::CutBothWays,
        _ => Mark::CutOneWay,
    });
    let later = world.clock + world.for_a_while();
    world.schedule(later, Event::Link(at));
}

/// Any links in any direction: bridges, halves.
fn cut_some(world: &mut World, _: usize) {
    let all = world.machines.len();
    for from in 0..all {
        for to in 0..all {
            if from != to && world.random.chance(1, 4) {
                world.cuts.insert((from, to));
            }
        }
        let later = world.clock + world.for_a_while();
        world.schedule(later, Event::Link(from));
    }
    let cuts = world.cuts.clone();
    world.note(format!("cut: {cuts:?}"));
}

fn whole_links(world: &mut World, _: usize) {
    world.note("all links are whole");
    world.cuts.clear();
}

fn depose(world: &mut World, _: usize) {
    world.depose();
}

/// An empty disk in place of the one that the node had. One is lost at a time, and only where that can't be the last that has all.
fn empty_disk(world: &mut World, at: usize) {
    // Nobody has to notice another loss first.
    let is_in = |m: &Machine| m.node.as_ref().is_some_and(|n| n.is_let_in());
    if !world.swarm.sync || !world.all_in_sync() || !world.machines.iter().all(is_in) {
        return;
    }
    world.note(format!("node {at} gets an empty disk"));
    world.down(at, false);
    world.machines[at].disk = CrashDisk::new(world.random.next_u64());
    world.disks_lost += 1;
    sometimes(Mark::DiskEmptied);
    let later = world.clock + world.within(500_000);
    world.schedule(later, Event::Start(at));
}

/// The disk refuses to sync, once or until the node is started anew, which it is soon.
fn failing_syncs(world: &mut World, at: usize) {
    if !world.swarm.sync || world.machines[at].node.is_none() {
        return;
    }
    let times = match world.random.chance(1, 2) {
        true => Times::Once,
        false => Times::Forever,
    };
    world.note(format!("the disk of node {at} refuses to sync, {times:?}"));
    let machine = &mut world.machines[at];
    machine.ill = true;
    machine
        .disk
        .fail(FaultOn::Sync, times, ErrorKind::Other, |_| true);
    sometimes(Mark::SyncsFailed);
    let life = machine.life;
    let later = world.clock + world.within(2_000_000);
    world.schedule(later, Event::Restart { at, life });
}

/// From then on it goes at another rate.
fn wall_jumps(world: &mut World, at: usize) {
    let far = match world.random.chance(1, 2) {
        true => 1_000,
        false => 20 * 60_000,
    };
    let jump = world.random.below(2 * far) as i64 - far as i64;
    let drift = world.random.below(400) as i64 - 200;
    let clock = world.clock;
    world.machines[at].wall.jump(clock, jump, drift);
    world.note(format!("the wall clock of node {at} jumps by {jump} ms"));
    sometimes(Mark::WallsApart);
}

/// It gives its leaderships away, or runs out of patience, and stops as it should.
fn clean_stop(world: &mut World, at: usize) {
    let Some((node, now)) = world.node(at).filter(|_| world.is_up(at)) else {
        return;
    };
    world.note(format!("node {at} is to stop"));
    node.prepare_to_stop(now);
    world.machines[at].ill = true;
    let life = world.machines[at].life;
    let patience = world.clock + Duration::from_secs(2);
    let soon = world.clock + Duration::from_millis(10);
    world.schedule(soon, Event::Stop { at, life, patience });
}
