//! The event loop: clients, jobs, time and faults, one after the other.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::groups::{CommittedOffset, GroupAnswer, TopicPartition};
use riverlog_core::metadata::{AdminAnswer, AdminCommand, NewTopic, TopicRef};
use riverlog_core::transactions::TransactionAnswer;
use riverlog_log::disk::Random;
use riverlog_node::{
    AppendAnswer, AppendFailure, FetchAnswer, FetchCommand, FetchPartition, Isolation, Job,
    JobDone, Reply, ShareFetchAnswer, StableAnswer,
};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId};

use crate::classic;
use crate::clients::Client;
pub(crate) use crate::core::Core;
use crate::faults;
use crate::keyed;
use crate::model::Violation;
use crate::network::Request;
use crate::shares;
use crate::subscribers;
use crate::swarm::Swarm;
use crate::transactions;

/// No run takes as long, unless something is waited for that never comes.
const LONGEST: Duration = Duration::from_secs(1_800);

/// What a client is told.
#[derive(Debug)]
pub(crate) enum Outcome {
    Append(Result<AppendAnswer, AppendFailure>),
    Producer(Result<(ProducerId, ProducerEpoch), ErrorCode>),
    Fetch(FetchAnswer),
    Group(GroupAnswer),
    Committed(Result<Vec<(TopicPartition, Option<CommittedOffset>)>, ErrorCode>),
    Deleted(Result<Offset, ErrorCode>),
    Admin(Result<AdminAnswer, ErrorCode>),
    Marker(Result<(), ErrorCode>),
    Stable(StableAnswer),
    Transaction(TransactionAnswer),
    Shared(ShareFetchAnswer),
    /// The connection is gone, or the node: what was asked may or may not have happened.
    Lost,
}

pub(crate) enum Event {
    Client(usize),
    /// A request comes to the node, unless its connection was cut meanwhile.
    Arrive(u64, Request),
    /// The client hears that nothing will come of its request.
    Lost(usize, u64),
    // Boxed: events are moved about in the queue a lot more often than they happen.
    Run(u64, Box<Job>),
    Done(u64, Box<JobDone>),
    Tick(u64),
    /// The power goes now, after a while in which the disk has failed already.
    PowerCut,
    /// The machine is switched off.
    Unplug,
    /// The process dies soon after the head of a partition has gone.
    Kill,
    Start,
    HealDisk,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Equal for equal seeds.
    pub trace: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Client operations.
    pub operations: u64,
    /// Answers and reads that were checked.
    pub checked: u64,
    /// Faults that began while clients were at work.
    pub faults: u64,
    /// Deaths of the process.
    pub crashes: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// What clients did and were told, if it was wanted.
    pub history: Vec<riverlog_checker::Event>,
    /// The broken promise, if any.
    pub violation: Option<Violation>,
}

/// How a seed is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Prints the trace.
    pub show: bool,
    /// Keeps what clients did and were told, for the checker.
    pub history: bool,
    /// Operations a second that all clients together begin while there are faults, instead of what the seed draws.
    pub pace: Option<u64>,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Report {
    let mut random = Random::new(seed);
    let mut swarm = Swarm::draw(&mut random)
        .with_transactions(seed)
        .with_more(seed)
        .with_coordinators(seed)
        .with_subscribers(seed)
        .with_shares(seed)
        .with_groups(seed)
        .with_timed_faults(seed)
        .with_lost_heads(seed);
    let clients = Client::all(&swarm);
    if let Some(pace) = options.pace {
        swarm.think = Duration::from_secs(clients.len() as u64) / pace.max(1) as u32;
    }
    let core = Core::new(random, swarm, options);
    let mut world = World { clients, core };
    let violation = world.run().err();
    let mut core = world.core;
    Report {
        seed,
        trace: core.trace.hash(),
        history: core.history.take(),
        virtual_time: core.clock,
        operations: core.operations,
        checked: core.model.checked,
        faults: core.faults,
        crashes: core.crashes,
        power_cuts: core.power_cuts,
        violation,
    }
}

pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) clients: Vec<Client>,
}

impl World {
    /// Two phases: clients among faults, then none, and everyone must move; then all is read, and at last damaged.
    fn run(&mut self) -> Result<(), Violation> {
        let swarm = format!("{:?}", self.core.swarm);
        self.core.note(&swarm);
        self.core.start_node()?;
        self.create_topics()?;
        for client in 0..self.clients.len() {
            self.clients[client].open(&mut self.core);
            self.core.think(client);
        }
        while self.core.operations < self.core.swarm.operations {
            self.step()?;
        }
        self.heal_and_progress()?;
        self.check_everything()?;
        self.damage_and_read()
    }

    fn create_topics(&mut self) -> Result<(), Violation> {
        let topics = self.core.swarm.topics.clone();
        let mut topics: Vec<NewTopic> = topics
            .into_iter()
            .map(|plan| NewTopic {
                name: plan.name,
                partitions: plan.partitions,
                replication_factor: 1,
                configs: plan.configs,
                id: TopicId(u128::from(self.core.random.next_u64()).to_be_bytes()),
                ..NewTopic::default()
            })
            .collect();
        if self.core.swarm.has_transactions() {
            topics.push(NewTopic {
                name: transactions::TOPIC.to_owned(),
                partitions: transactions::PARTITIONS,
                replication_factor: 1,
                id: TopicId(*b"of-transactions!"),
                ..NewTopic::default()
            });
        }
        if let Some(plan) = self.core.swarm.keyed {
            topics.push(NewTopic {
                name: keyed::TOPIC.to_owned(),
                partitions: keyed::PARTITIONS,
                replication_factor: 1,
                configs: plan.configs(),
                id: keyed::ID,
                ..NewTopic::default()
            });
        }
        if self.core.swarm.classic > 0 {
            topics.push(NewTopic {
                name: classic::GROUP.to_owned(),
                partitions: classic::PARTITIONS,
                replication_factor: 1,
                id: TopicId(*b"of-classic-group"),
                ..NewTopic::default()
            });
        }
        if self.core.swarm.subscribers > 0 {
            let read = subscribers::TOPICS;
            topics.extend(read.map(|(name, partitions, id)| NewTopic {
                name: name.to_owned(),
                partitions,
                replication_factor: 1,
                id,
                ..NewTopic::default()
            }));
        }
        if self.core.swarm.shares.is_some() {
            topics.push(NewTopic {
                name: shares::TOPIC.to_owned(),
                partitions: shares::PARTITIONS,
                replication_factor: 1,
                id: shares::ID,
                ..NewTopic::default()
            });
        }
        topics.extend(self.core.swarm.groups.topics(1));
        self.admin(AdminCommand::CreateTopics {
            topics,
            validate_only: false,
        })?;
        match self.core.swarm.shares {
            Some(plan) => self.admin(plan.configs()),
            None => Ok(()),
        }
    }

    /// Something that must succeed before clients begin.
    fn admin(&mut self, command: AdminCommand) -> Result<(), Violation> {
        let done: Arc<Mutex<Option<Result<AdminAnswer, ErrorCode>>>> = Arc::default();
        let out = Arc::clone(&done);
        if let Some((node, now)) = self.core.node() {
            node.admin(
                command,
                now,
                Reply::new(move |answer| *out.lock() = Some(answer)),
            );
        }
        while done.lock().is_none() {
            self.step()?;
        }
        let answer = done.lock().take();
        match answer {
            Some(Ok(AdminAnswer::Results(results)))
                if results.iter().all(|r| r.error == ErrorCode::NONE) =>
            {
                Ok(())
            }
            other => Err(Violation::new("topics can be made", format!("{other:?}"))),
        }
    }

    /// One event, and what follows from it at once.
    pub(crate) fn step(&mut self) -> Result<(), Violation> {
        self.core.collect_jobs();
        let Some(((at, _), event)) = self.core.queue.pop_first() else {
            return Err(Violation::new(
                "something is always due",
                "the event queue is empty".to_owned(),
            ));
        };
        self.core.clock = self.core.clock.max(at);
        if self.core.clock > LONGEST {
            let what = format!("not even after {LONGEST:?}");
            return Err(Violation::new("everything is answered in the end", what));
        }
        if let Some(event) = self.unless_frozen(at, event) {
            self.happen(at, event)?;
            self.deliver()?;
            self.core.check_positions()?;
        }
        Ok(())
    }

    /// What the node would do while it stands still comes afterwards.
    fn unless_frozen(&mut self, at: Duration, event: Event) -> Option<Event> {
        let core = &mut self.core;
        let until = core.frozen_until;
        if core.clock >= until {
            return Some(event);
        }
        match event {
            Event::Tick(life) if life != core.life || core.next_tick != Some(at) => return None,
            Event::Tick(_) => core.next_tick = Some(until),
            Event::Run(..) | Event::Done(..) | Event::Arrive(..) => {}
            _ => return Some(event),
        }
        core.schedule(until, event);
        None
    }

    fn happen(&mut self, at: Duration, event: Event) -> Result<(), Violation> {
        match event {
            Event::Client(_) if self.core.stopped => {}
            Event::Client(client) => {
                self.clients[client].step(&mut self.core, client)?;
                if !self.core.healing {
                    faults::perhaps(self)?;
                }
            }
            Event::Arrive(connections, request) if connections == self.core.connections => {
                if let Some((node, now)) = self.core.node() {
                    request.arrive(&node, now);
                }
            }
            Event::Lost(client, number) => self.tell(client, number, Outcome::Lost)?,
            Event::Run(life, job) if life == self.core.life => self.core.run_job(*job),
            Event::Done(life, done) if life == self.core.life => {
                if let Some((node, now)) = self.core.node() {
                    node.on_job_done(*done, now);
                }
            }
            Event::Tick(life) if life == self.core.life && self.core.next_tick == Some(at) => {
                self.core.next_tick = None;
                if let Some((node, now)) = self.core.node() {
                    let next = node.tick(now);
                    self.core.schedule_tick(next);
                }
            }
            Event::Run(..) | Event::Done(..) | Event::Tick(_) | Event::Arrive(..) => {}
            Event::PowerCut => self.power_cut()?,
            Event::Unplug => faults::unplug(self)?,
            Event::Kill if self.core.healing => {}
            Event::Kill => self.die("killed after a head has gone")?,
            Event::Start => self.core.start_node()?,
            Event::HealDisk => {
                self.core.disk.heal();
                self.core.disk.set_capacity(None);
                if self.core.faulty {
                    // A disk that has failed is trusted again after a restart has read it.
                    self.core.faulty = false;
                    self.die("after a disk fault")?;
                    if self.core.swarm.unplugs && !self.core.healing {
                        self.core.schedule_in(600_000, Event::Unplug);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the answers to the clients that asked.
    pub(crate) fn deliver(&mut self) -> Result<(), Violation> {
        loop {
            let answers = std::mem::take(&mut *self.core.inbox.lock());
            if answers.is_empty() {
                return Ok(());
            }
            for (client, number, outcome) in answers {
                self.tell(client, number, outcome)?;
            }
        }
    }

    /// Tells a client, when it still waits for that.
    fn tell(&mut self, client: usize, number: u64, outcome: Outcome) -> Result<(), Violation> {
        if self.core.asking.get(&client) == Some(&number) {
            self.core.asking.remove(&client);
            self.clients[client].outcome(&mut self.core, outcome)?;
            self.core.think(client);
        }
        Ok(())
    }

    /// Whatever clients wait for, and what is on its way, is lost.
    pub(crate) fn lose_answers(&mut self) -> Result<(), Violation> {
        self.core.connections += 1;
        self.core.inbox.lock().clear();
        for (client, number) in std::mem::take(&mut self.core.asking) {
            self.core.asking.insert(client, number);
            self.tell(client, number, Outcome::Lost)?;
        }
        Ok(())
    }

    /// The process dies: what was written stays.
    pub(crate) fn die(&mut self, why: &str) -> Result<(), Violation> {
        if self.core.node.is_some() {
            self.core.note(format!("the process dies, {why}"));
            self.core.history.fault(self.core.clock, why);
            self.core.crashes += 1;
            self.core.disk = self.core.disk.kill();
            self.down()?;
        }
        Ok(())
    }

    /// The power goes: what wasn't synced survives in any subset.
    pub(crate) fn power_cut(&mut self) -> Result<(), Violation> {
        if self.core.node.is_some() {
            self.core.note("the power is cut");
            self.core.history.fault(self.core.clock, "the power is cut");
            self.core.power_cuts += 1;
            let seed = self.core.random.next_u64();
            let after = self.core.disk.crash(seed);
            self.core.disk.power_off();
            self.core.disk = after;
            for topic in 0..self.core.swarm.topics.len() {
                if !self.core.swarm.topics[topic].sync {
                    // A copy from before would bring back what this takes, and what is written next has the same offsets.
                    self.core.older.clear();
                    self.core.model.power_cut_of_page_cache(topic);
                    for client in &mut self.clients {
                        client.topic_lost(&mut self.core, topic);
                    }
                }
            }
            self.down()?;
        }
        Ok(())
    }

    fn down(&mut self) -> Result<(), Violation> {
        self.core.faulty = false;
        self.core.erred = false;
        self.core.group_cut = false;
        self.core.perhaps_copy();
        self.core.frozen_until = Duration::ZERO;
        self.core.node = None;
        self.core.door = None;
        self.core.found.clear();
        self.core.next_tick = None;
        self.core.life += 1;
        self.lose_answers()?;
        self.core.schedule_in(50_000, Event::Start);
        Ok(())
    }
}

pub(crate) fn fetch_one(
    topic: TopicRef,
    partition: i32,
    from: Offset,
    max_bytes: usize,
    max_wait: Duration,
) -> FetchCommand {
    FetchCommand {
        partitions: vec![FetchPartition {
            topic,
            partition,
            from,
            max_bytes,
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
        }],
        max_wait,
        min_bytes: 1,
        max_bytes,
        isolation: Isolation::ReadUncommitted,
        replica: None,
    }
}
