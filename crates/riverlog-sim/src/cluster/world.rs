//! The event loop, and the network between the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_core::metadata::{AdminAnswer, AdminCommand, NewTopic};
use riverlog_log::disk::{CrashDisk, Random};
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::quorum::Proposal;
use riverlog_node::{Job, JobDone, PartitionDescription, PeerMessage, Reply};
use riverlog_wire::{BrokerId, ErrorCode, Offset};

use super::clients::{Client, Outcome};
use super::compacted::Compacted;
use super::echoes::Echoes;
use super::groups::{Due, Groups};
use super::listed::Listed;
use super::machine::Machine;
use super::min_isr::MinIsr;
use super::model::{Model, TOPIC, topic_id};
use super::moves::Mover;
use super::overtaken::Overtaken;
use super::pipelines::{Behind, Pipelines};
use super::quorum::Quorum;
use super::swarm::Swarm;
use super::unrest::Unrest;
use super::ways::Ways;
use crate::model::Violation;
use crate::trace::Trace;

/// No run takes as long, unless something is waited for that never comes.
const LONGEST: Duration = Duration::from_secs(3_600);

pub(super) enum Event {
    Client(usize),
    /// A client has waited long enough.
    Impatient {
        me: usize,
        number: u64,
    },
    Run {
        at: usize,
        life: u64,
        job: Job,
    },
    Done {
        at: usize,
        life: u64,
        done: JobDone,
    },
    Tick {
        at: usize,
        life: u64,
    },
    /// A message arrives.
    Peer {
        from: usize,
        to: usize,
        bytes: Bytes,
    },
    Commit {
        from: usize,
        proposal: Proposal,
    },
    /// The quorum has the next piece for a node.
    Tell {
        at: usize,
        life: u64,
    },
    /// A node looks at its ways to the others.
    Dial {
        at: usize,
        life: u64,
    },
    Elect,
    Start(usize),
    /// The power of a node goes.
    PowerCut {
        at: usize,
        life: u64,
    },
    /// A node whose disk has failed is started anew.
    Restart {
        at: usize,
        life: u64,
    },
    /// A node is to stop as it should.
    Stop {
        at: usize,
        life: u64,
        patience: Duration,
    },
    /// All links of a node are whole again.
    Link(usize),
    /// A partition is to be led by a node, if it can.
    Lead {
        topic: &'static str,
        index: i32,
        at: usize,
    },
    /// Acknowledgements ask for more copies while a partition's leader is left alone.
    AskForMore {
        index: i32,
    },
    /// A disk has room again.
    Room(usize),
    /// A member of a group.
    Group(Due),
    /// A client of the compacted topic.
    Compacted(Due),
    /// What a producer has sent behind another batch comes to a node.
    Behind(Box<Behind>),
    /// A partition is to have these replicas.
    Place {
        index: i32,
        replicas: Vec<BrokerId>,
    },
}

/// A disk that a process left, and where its copies stood then.
type Left = (usize, CrashDisk, Vec<(i32, PartitionDescription)>);

type Inbox = Arc<Mutex<Vec<(usize, u64, Outcome)>>>;

pub(super) struct World {
    pub(super) random: Random,
    pub(super) swarm: Swarm,
    pub(super) mover: Mover,
    pub(super) unrest: Unrest,
    pub(super) min_isr: MinIsr,
    pub(super) overtaken: Overtaken,
    pub(super) listed: Listed,
    pub(super) ways: Ways,
    pub(super) echoes: Echoes,
    pub(super) pipelines: Pipelines,
    pub(super) groups: Groups,
    pub(super) compacted: Compacted,
    pub(super) clock: Duration,
    trace: Trace,
    pub(super) queue: BTreeMap<(Duration, u64), Event>,
    events: u64,
    pub(super) machines: Vec<Machine>,
    /// Directions in which nothing goes through.
    pub(super) cuts: BTreeSet<(usize, usize)>,
    pub(super) quorum: Quorum,
    pub(super) clients: Vec<Client>,
    pub(super) inbox: Inbox,
    /// Ends of partitions that were told just now.
    pub(super) told: Arc<Mutex<Vec<(usize, i32, Offset)>>>,
    pub(super) requests: u64,
    /// Which request each client waits for, and at which node.
    pub(super) asking: BTreeMap<usize, u64>,
    pub(super) asked_at: BTreeMap<usize, usize>,
    pub(super) model: Model,
    pub(super) healing: bool,
    pub(super) stopped: bool,
    pub(super) operations: u64,
    pub(super) faults: u64,
    pub(super) crashes: u64,
    pub(super) power_cuts: u64,
    pub(super) disks_lost: u64,
    /// What was left by processes that have just died.
    pub(super) left: Vec<Left>,
}

/// What a run of a cluster did.
#[derive(Clone, Debug)]
pub struct ClusterReport {
    /// The seed.
    pub seed: u64,
    /// Equal for equal seeds.
    pub trace: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Client operations.
    pub operations: u64,
    /// Batches that were acknowledged.
    pub acknowledged: u64,
    /// Answers to readers that were checked.
    pub read: u64,
    /// Changes of leadership that were seen.
    pub leaders: u64,
    /// Times that something was looked at that must be true.
    pub checked: u64,
    /// Faults that began.
    pub faults: u64,
    /// Deaths of processes.
    pub crashes: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Disks that were replaced by empty ones.
    pub disks_lost: u64,
    /// The broken promise, if any.
    pub violation: Option<Violation>,
}

/// Runs a cluster from a seed. `show` prints what happens.
pub fn run_cluster(seed: u64, show: bool) -> ClusterReport {
    let mut random = Random::new(seed ^ 0xc1_05_7e_12);
    let mut swarm = Swarm::draw(&mut random);
    let mover = Mover::draw(seed, &mut swarm);
    let groups = Groups::draw(seed, &mut swarm);
    let overtaken = Overtaken::draw(seed, groups.has_transactors(), &mut swarm);
    let compacted = Compacted::draw(seed, groups.has_transactors(), &mut swarm);
    let machines = (0..swarm.nodes)
        .map(|_| Machine::new(random.next_u64()))
        .collect();
    let mut world = World {
        clients: Client::all(swarm.producers, swarm.readers, swarm.partitions),
        random,
        swarm,
        mover,
        unrest: Unrest::draw(seed),
        min_isr: MinIsr::draw(seed),
        overtaken,
        listed: Listed::default(),
        ways: Ways::draw(seed),
        echoes: Echoes::draw(seed),
        pipelines: Pipelines::draw(seed),
        groups,
        compacted,
        clock: Duration::from_secs(1),
        trace: Trace::new(show),
        queue: BTreeMap::new(),
        events: 0,
        machines,
        cuts: BTreeSet::new(),
        quorum: Quorum::default(),
        inbox: Arc::default(),
        told: Arc::default(),
        requests: 0,
        asking: BTreeMap::new(),
        asked_at: BTreeMap::new(),
        model: Model::default(),
        healing: false,
        stopped: false,
        operations: 0,
        faults: 0,
        crashes: 0,
        power_cuts: 0,
        disks_lost: 0,
        left: Vec::new(),
    };
    let violation = world.run().err();
    ClusterReport {
        seed,
        trace: world.trace.hash(),
        virtual_time: world.clock,
        operations: world.operations,
        acknowledged: world.model.acknowledged,
        read: world.model.read,
        leaders: world.model.leaders,
        checked: world.model.checked + world.groups.checked(),
        faults: world.faults,
        crashes: world.crashes,
        power_cuts: world.power_cuts,
        disks_lost: world.disks_lost,
        violation,
    }
}

impl World {
    /// Clients among faults, then none, and everyone must move; then all copies are compared.
    fn run(&mut self) -> Result<(), Violation> {
        let swarm = format!("{:?}", self.swarm);
        self.note(swarm);
        for at in 0..self.machines.len() {
            self.start(at)?;
        }
        self.make_topic()?;
        self.make_groups()?;
        self.make_compacted()?;
        for client in 0..self.clients.len() {
            self.think(client);
        }
        while self.operations < self.swarm.operations {
            self.step()?;
        }
        self.heal_and_progress()?;
        self.go_on_without_one()?;
        self.compare_copies()
    }

    fn make_topic(&mut self) -> Result<(), Violation> {
        let durability = if self.swarm.sync {
            "sync"
        } else {
            "page-cache"
        };
        let config = (
            "riverlog.durability".to_owned(),
            Some(durability.to_owned()),
        );
        loop {
            let up = |at: &usize| {
                let node = self.machines[*at].node.as_ref();
                node.is_some_and(|n| {
                    n.is_controller() && n.image().brokers.values().all(|b| !b.fenced)
                })
            };
            let all = self.machines.len();
            let ready = (0..all).find(up).filter(|at| {
                let image = self.machines[*at].node.as_ref().map(|n| n.image());
                image.is_some_and(|i| i.brokers.len() == all)
            });
            let Some((node, now)) = ready.and_then(|at| self.node(at)) else {
                self.step()?;
                continue;
            };
            let topic = NewTopic {
                name: TOPIC.to_owned(),
                partitions: self.swarm.partitions,
                replication_factor: 3,
                configs: vec![config.clone()],
                id: topic_id(),
                ..NewTopic::default()
            };
            let command = AdminCommand::CreateTopics {
                topics: vec![topic],
                validate_only: false,
            };
            let done: Arc<Mutex<Option<Result<AdminAnswer, ErrorCode>>>> = Arc::default();
            let out = Arc::clone(&done);
            node.admin(
                command,
                now,
                Reply::new(move |answer| *out.lock() = Some(answer)),
            );
            while done.lock().is_none() {
                self.step()?;
            }
            let answer = done.lock().take();
            if let Some(Ok(AdminAnswer::Results(results))) = answer
                && let Some(result) = results.first()
                && [ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS].contains(&result.error)
            {
                return Ok(());
            }
        }
    }

    pub(super) fn note(&mut self, what: impl std::fmt::Display) {
        self.trace.note(self.clock, what);
    }

    pub(super) fn within(&mut self, most_us: u64) -> Duration {
        Duration::from_micros(1 + self.random.below(most_us.max(1)))
    }

    pub(super) fn schedule(&mut self, at: Duration, event: Event) {
        self.events += 1;
        self.queue.insert((at, self.events), event);
    }

    pub(super) fn is_linked(&self, from: usize, to: usize) -> bool {
        !self.cuts.contains(&(from, to)) && !self.cuts.contains(&(to, from))
    }

    /// One event, and what follows from it at once.
    pub(super) fn step(&mut self) -> Result<(), Violation> {
        self.collect();
        self.look_after_quorum();
        let Some(((at, _), event)) = self.queue.pop_first() else {
            let what = "the event queue is empty".to_owned();
            return Err(Violation::new("something is always due", what));
        };
        self.clock = self.clock.max(at);
        if self.clock > LONGEST {
            let what = format!("not even after {LONGEST:?}");
            return Err(Violation::new("everything is answered in the end", what));
        }
        if let Some(event) = self.unless_frozen(at, event) {
            self.happen(at, event)?;
            self.deliver()?;
            self.deliver_to_members()?;
            self.deliver_compacted()?;
            self.check_positions()?;
            self.look_at_what_is_left()?;
        }
        Ok(())
    }

    /// What a node would do while it stands still comes afterwards.
    fn unless_frozen(&mut self, due: Duration, event: Event) -> Option<Event> {
        let of = match &event {
            Event::Run { at, .. }
            | Event::Done { at, .. }
            | Event::Tick { at, .. }
            | Event::Tell { at, .. }
            | Event::Dial { at, .. }
            | Event::Stop { at, .. } => *at,
            Event::Peer { to, .. } => *to,
            Event::Commit { from, .. } => *from,
            _ => return Some(event),
        };
        let until = self.machines[of].frozen_until;
        if self.clock >= until {
            return Some(event);
        }
        if let Event::Tick { at, life } = event {
            let machine = &mut self.machines[at];
            if life != machine.life || machine.next_tick != Some(due) {
                return None;
            }
            machine.next_tick = Some(until);
        }
        self.schedule(until, event);
        None
    }

    fn happen(&mut self, due: Duration, event: Event) -> Result<(), Violation> {
        match event {
            Event::Client(_) | Event::Group(_) | Event::Compacted(_) if self.stopped => {}
            Event::Group(due) => self.group_event(due)?,
            Event::Compacted(due) => self.compacted_event(due),
            Event::Behind(behind) => self.arrive_behind(*behind),
            Event::Client(me) => {
                self.client_step(me);
                self.check_listed(self.operations as usize % self.machines.len())?;
                self.perhaps_fail();
                self.perhaps_move();
                self.perhaps_unsettle();
                self.perhaps_ask_for_more();
            }
            Event::Impatient { me, number } => {
                if self.asking.get(&me) == Some(&number) {
                    self.give_up(me);
                }
            }
            Event::Run { at, life, job } if life == self.machines[at].life => {
                self.run_job(at, job);
            }
            Event::Done { at, life, done } if life == self.machines[at].life => {
                if let Some((node, now)) = self.node(at) {
                    node.on_job_done(done, now);
                }
            }
            Event::Tick { at, life } if life == self.machines[at].life => {
                if self.machines[at].next_tick != Some(due) {
                    return Ok(());
                }
                self.machines[at].next_tick = None;
                if let Some((node, now)) = self.node(at) {
                    let next = node.tick(now);
                    self.schedule_tick(at, next);
                }
            }
            Event::Tell { at, life } if life == self.machines[at].life => self.tell(at)?,
            Event::Dial { at, life } if life == self.machines[at].life => self.dial(at),
            Event::PowerCut { at, life } | Event::Restart { at, life }
                if life == self.machines[at].life && self.machines[at].ill =>
            {
                let power = matches!(event, Event::PowerCut { .. });
                self.down(at, power);
                let later = self.clock + self.within(1_000_000);
                self.schedule(later, Event::Start(at));
            }
            Event::Stop { at, life, patience } if life == self.machines[at].life => {
                self.stop(at, patience);
            }
            Event::Run { .. }
            | Event::Done { .. }
            | Event::Tick { .. }
            | Event::Tell { .. }
            | Event::Dial { .. }
            | Event::PowerCut { .. }
            | Event::Restart { .. }
            | Event::Stop { .. } => {}
            Event::Peer { from, to, bytes } => {
                if let Some((node, now)) = self.node(to) {
                    node.on_peer(BrokerId(from as i32 + 1), &bytes, now);
                }
            }
            Event::Commit { from, proposal } => self.commit(from, proposal)?,
            Event::Elect => self.elect(),
            Event::Start(at) => self.start(at)?,
            Event::Lead { .. } if self.healing => {}
            Event::Lead { topic, index, at } => self.let_lead(topic, index, at),
            Event::Place { .. } if self.healing => {}
            Event::Place { index, replicas } => self.place(index, replicas),
            Event::Room(at) => self.machines[at].disk.set_capacity(None),
            Event::AskForMore { .. } if self.healing => {}
            Event::AskForMore { index } => self.ask_for_more(index),
            Event::Link(_) if self.healing => {}
            Event::Link(at) => self.cuts.retain(|(from, to)| *from != at && *to != at),
        }
        Ok(())
    }

    /// A message goes out: it may be lost, late, or come twice.
    pub(super) fn send(&mut self, from: usize, message: PeerMessage) {
        let to = message.to.0 as usize - 1;
        if to >= self.machines.len() || self.cuts.contains(&(from, to)) {
            return;
        }
        let times = match self.random.below(1_000) {
            _ if self.healing => 1,
            n if n < self.swarm.lost => 0,
            n if n < self.swarm.lost + self.swarm.twice => 2,
            _ => 1,
        };
        match times {
            0 => sometimes(Mark::MessageLost),
            2 => sometimes(Mark::MessageTwice),
            _ => {}
        }
        let held = self.echo(from, to, &message.bytes);
        for _ in 0..times {
            let late = !self.healing && self.random.below(1_000) < self.swarm.late;
            if late {
                sometimes(Mark::MessageLate);
            }
            let later = held + self.within(if late { 800_000 } else { 400 });
            let bytes = message.bytes.clone();
            self.schedule(self.clock + later, Event::Peer { from, to, bytes });
        }
    }

    /// Gives the answers to the clients that asked.
    fn deliver(&mut self) -> Result<(), Violation> {
        let oldest = self.swarm.settings.cluster.session;
        for (at, index, end) in std::mem::take(&mut *self.told.lock()) {
            self.model.end_told(at, index, end, self.clock, oldest)?;
        }
        self.deliver_behind()?;
        loop {
            let answers = std::mem::take(&mut *self.inbox.lock());
            if answers.is_empty() {
                return Ok(());
            }
            for (me, number, outcome) in answers {
                if self.asking.get(&me) == Some(&number) {
                    self.asking.remove(&me);
                    self.asked_at.remove(&me);
                    self.answered(me, outcome)?;
                    self.think(me);
                }
            }
        }
    }

    /// Whoever waits for an answer of a node that is gone hears of that.
    pub(super) fn lose_answers_of(&mut self, at: usize) {
        let waiting = self.asked_at.iter().filter(|(_, of)| **of == at);
        let waiting: Vec<usize> = waiting.map(|(me, _)| *me).collect();
        for me in waiting {
            self.give_up(me);
        }
        self.lose_members_of(at);
        self.lose_compacted_of(at);
    }
}
