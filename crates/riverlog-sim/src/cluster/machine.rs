//! Nodes on their disks: start, jobs, time, death.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_log::disk::CrashDisk;
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::harness::Seeded;
use riverlog_node::{Host, Job, Node, NodeSettings};
use riverlog_wire::BrokerId;

use super::quorum::Told;
use super::world::{Event, World};
use crate::host::SimHost;
use crate::model::Violation;
use crate::wall::Wall;

/// How many times longer a slow disk takes for everything.
const SLOW: u32 = 100;

pub(super) struct Machine {
    pub(super) disk: CrashDisk,
    pub(super) node: Option<Arc<Node>>,
    host: Arc<SimHost>,
    /// Counts the starts; what comes for an earlier life is dropped.
    pub(super) life: u64,
    pub(super) next_tick: Option<Duration>,
    /// Until then it does nothing.
    pub(super) frozen_until: Duration,
    pub(super) slow_until: Duration,
    /// Its machine has no power.
    pub(super) powerless: bool,
    /// It is about to be stopped, or started anew.
    pub(super) ill: bool,
    pub(super) told: Told,
    pub(super) wall: Wall,
    /// Where its monotonic clock stood when everything began: another one in each life, and nobody else's.
    booted: Duration,
}

impl Machine {
    pub(super) fn new(seed: u64) -> Machine {
        Machine {
            disk: CrashDisk::new(seed),
            node: None,
            host: Arc::default(),
            life: 0,
            next_tick: None,
            frozen_until: Duration::ZERO,
            slow_until: Duration::ZERO,
            powerless: false,
            ill: false,
            told: Told::default(),
            wall: Wall::new(),
            booted: Duration::ZERO,
        }
    }
}

impl World {
    /// As the clocks of a node have it.
    fn now(&self, at: usize) -> Now {
        let machine = &self.machines[at];
        Now {
            mono: self.clock + machine.booted,
            wall_ms: machine.wall.at(self.clock),
        }
    }

    pub(super) fn node(&self, at: usize) -> Option<(Arc<Node>, Now)> {
        Some((self.machines[at].node.clone()?, self.now(at)))
    }

    /// Who takes itself for the controller.
    pub(super) fn controller(&self) -> Option<usize> {
        let controls = |m: &Machine| m.node.as_ref().is_some_and(|n| n.is_controller());
        self.machines.iter().position(controls)
    }

    /// Runs, and isn't frozen.
    pub(super) fn is_up(&self, at: usize) -> bool {
        let machine = &self.machines[at];
        machine.node.is_some() && machine.frozen_until <= self.clock
    }

    pub(super) fn start(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].node.is_some() {
            return Ok(());
        }
        let settings = NodeSettings {
            broker: BrokerId(at as i32 + 1),
            ..self.swarm.settings.clone()
        };
        let entropy = Arc::new(Seeded::new(self.random.next_u64()));
        let host: Arc<SimHost> = Arc::default();
        let disk = Arc::new(self.machines[at].disk.clone());
        self.machines[at].booted = self.within(1_000_000_000);
        let now = self.now(at);
        let opened = Node::open(
            disk,
            entropy,
            Arc::clone(&host) as Arc<dyn Host>,
            settings,
            now,
        );
        let node = opened.map_err(|error| {
            Violation::new("a node starts after any crash", format!("{at}: {error}"))
        })?;
        self.note(format!("node {at} starts"));
        let deadline = node.next_deadline();
        let machine = &mut self.machines[at];
        machine.host = host;
        machine.node = Some(node);
        machine.told = Told::default();
        machine.powerless = false;
        self.model.began(at);
        self.dial_later(at);
        self.schedule_tick(at, deadline);
        Ok(())
    }

    /// The process dies. With the power, what wasn't synced survives in any subset. What its copies hold is looked at.
    pub(super) fn down(&mut self, at: usize, power: bool) {
        if self.machines[at].node.is_none() {
            return;
        }
        let known = self.copies_of(at);
        self.note(format!(
            "node {at} {}",
            if power { "loses its power" } else { "dies" }
        ));
        let seed = self.random.next_u64();
        let machine = &mut self.machines[at];
        let after = match power {
            true => machine.disk.crash(seed),
            false => machine.disk.kill(),
        };
        if power {
            machine.disk.power_off();
            self.power_cuts += 1;
        }
        sometimes(match power {
            true => Mark::NodePowerless,
            false => Mark::NodeKilled,
        });
        let found = after.kill();
        machine.disk = after.kill();
        machine.node = None;
        machine.life += 1;
        machine.next_tick = None;
        machine.frozen_until = Duration::ZERO;
        machine.ill = false;
        machine.powerless = power;
        self.crashes += 1;
        self.hang_up(at);
        self.echo_the_dead(at);
        if self.quorum.leader == Some(at) {
            // Whoever starts anew doesn't lead on in the same term.
            self.depose();
        }
        self.lose_answers_of(at);
        self.left.push((at, found, known));
    }

    /// It stops as it should, once nobody counts on it any more.
    pub(super) fn stop(&mut self, at: usize, patience: Duration) {
        let Some((node, now)) = self.node(at) else {
            return;
        };
        if !node.may_stop() && self.clock < patience {
            let life = self.machines[at].life;
            let soon = self.clock + Duration::from_millis(50);
            return self.schedule(soon, Event::Stop { at, life, patience });
        }
        if node.may_stop() {
            sometimes(Mark::NodeStopped);
        }
        self.finish_jobs(at);
        // A disk that fails keeps it from being clean; the next start recovers.
        let _clean = node.close(now);
        self.down(at, false);
        let later = self.clock + self.within(1_000_000);
        self.schedule(later, Event::Start(at));
    }

    /// What was handed out to threads is done.
    fn finish_jobs(&mut self, at: usize) {
        let Some((node, now)) = self.node(at) else {
            return;
        };
        let life = self.machines[at].life;
        loop {
            let mine = |event: &Event| match event {
                Event::Run {
                    at: of, life: l, ..
                }
                | Event::Done {
                    at: of, life: l, ..
                } => (*of, *l) == (at, life),
                _ => false,
            };
            let due = self.queue.iter().find(|(_, event)| mine(event));
            match due
                .map(|(when, _)| *when)
                .map(|when| self.queue.remove(&when))
            {
                Some(Some(Event::Run { job, .. })) => node.on_job_done(job.run(), now),
                Some(Some(Event::Done { done, .. })) => node.on_job_done(done, now),
                _ => {
                    let jobs = node.take_jobs();
                    if jobs.is_empty() {
                        return;
                    }
                    for job in jobs {
                        node.on_job_done(job.run(), now);
                    }
                }
            }
        }
    }

    /// No disk is slow any more: what one has begun ends as soon as it would elsewhere.
    pub(super) fn hasten_disks(&mut self) {
        let begun = self.queue.iter();
        let begun = begun.filter(|(_, event)| matches!(event, Event::Done { .. }));
        let begun: Vec<_> = begun.map(|(due, _)| *due).collect();
        for due in begun {
            if let Some(event) = self.queue.remove(&due) {
                let left = due.0.saturating_sub(self.clock);
                self.schedule(self.clock + left / SLOW, event);
            }
        }
    }

    pub(super) fn schedule_tick(&mut self, at: usize, deadline: Option<Duration>) {
        let Some(deadline) = deadline else { return };
        let deadline = deadline.saturating_sub(self.machines[at].booted);
        let when = deadline.max(self.clock + Duration::from_micros(10));
        let machine = &mut self.machines[at];
        if machine.next_tick.is_none_or(|next| when < next) {
            machine.next_tick = Some(when);
            let life = machine.life;
            self.schedule(when, Event::Tick { at, life });
        }
    }

    /// What nodes have to do and to say.
    pub(super) fn collect(&mut self) {
        for at in 0..self.machines.len() {
            let Some(node) = self.machines[at].node.clone() else {
                continue;
            };
            let life = self.machines[at].life;
            if self.machines[at].host.take_jobs() {
                for job in node.take_jobs() {
                    let later = self.clock + self.within(50);
                    self.schedule(later, Event::Run { at, life, job });
                }
            }
            if self.machines[at].host.take_deadline() {
                self.schedule_tick(at, node.next_deadline());
            }
            if self.machines[at].host.take_said() {
                for message in node.take_outbox() {
                    self.send(at, message);
                }
                for proposal in node.take_proposals() {
                    let later = self.clock + self.within(4_000);
                    self.schedule(later, Event::Commit { from: at, proposal });
                }
            }
        }
    }

    /// The job touches the disk now; the node hears of it when the device would have been done.
    pub(super) fn run_job(&mut self, at: usize, job: Job) {
        let machine = &self.machines[at];
        let before = machine.disk.counts();
        let done = job.run();
        let after = machine.disk.counts();
        let calls = (after.reads - before.reads + after.writes - before.writes) as u32;
        let syncs = (after.syncs - before.syncs) as u32;
        let mut cost = self.swarm.sync_cost * syncs + Duration::from_micros(5) * calls;
        if machine.slow_until > self.clock {
            cost *= SLOW;
        }
        let life = machine.life;
        let cost = cost.mul_f64(0.5 + self.random.below(1_000) as f64 / 1_000.0);
        self.schedule(self.clock + cost, Event::Done { at, life, done });
    }
}
