//! The event loop: clients, jobs, time and faults, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::groups::{CommittedOffset, GroupAnswer, TopicPartition};
use riverlog_core::metadata::{AdminAnswer, AdminCommand, NewTopic, TopicRef};
use riverlog_log::disk::{CrashDisk, Random};
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::harness::Seeded;
use riverlog_node::{
    AppendAnswer, AppendFailure, FetchAnswer, FetchCommand, FetchPartition, FetchedPartition, Host,
    Isolation, Job, JobDone, Node, PartitionRef, Reply, StableAnswer,
};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId};

use crate::clients::{Client, records_of};
use crate::faults::{self, Fault};
use crate::host::SimHost;
use crate::model::{Model, Place, Violation};
use crate::swarm::Swarm;
use crate::trace::Trace;
use crate::transactions::{self, Transactions, committed_of};

/// What a client is told.
#[derive(Debug)]
pub(crate) enum Outcome {
    Append(Result<AppendAnswer, AppendFailure>),
    Producer(Result<(ProducerId, ProducerEpoch), ErrorCode>),
    Fetch(FetchAnswer),
    Group(GroupAnswer),
    Committed(Result<Vec<(TopicPartition, Option<CommittedOffset>)>, ErrorCode>),
    Deleted(Result<Offset, ErrorCode>),
    Marker(Result<(), ErrorCode>),
    Stable(StableAnswer),
    /// The node died first: what was asked may or may not have happened.
    Lost,
}

enum Event {
    Client(usize),
    Run(u64, Job),
    Done(u64, JobDone),
    Tick(u64),
    /// The power goes now, after a while in which the disk has failed already.
    PowerCut,
    Start,
    HealDisk,
}

/// Everything but the clients.
pub(crate) struct Core {
    pub(crate) random: Random,
    pub(crate) swarm: Swarm,
    pub(crate) model: Model,
    pub(crate) trace: Trace,
    pub(crate) clock: Duration,
    pub(crate) healing: bool,
    pub(crate) operations: u64,
    pub(crate) disk: CrashDisk,
    node: Option<Arc<Node>>,
    host: Arc<SimHost>,
    /// Counts the starts of the node; answers and jobs of an earlier life are dropped.
    life: u64,
    queue: BTreeMap<(Duration, u64), Event>,
    events: u64,
    inbox: Arc<Mutex<Vec<(u64, usize, Outcome)>>>,
    slow_until: Duration,
    /// The disk is failing on its own; the node is restarted after a while.
    pub(crate) faulty: bool,
    crashes: u64,
    power_cuts: u64,
    /// Clients have stopped: what is there is counted.
    stopped: bool,
    /// The disk has failed since the node started.
    erred: bool,
    places: Vec<Place>,
    /// Found in this life; `None` while a log can't be opened.
    found: Vec<Option<PartitionRef>>,
    /// When the node is called next because of the time.
    next_tick: Option<Duration>,
    holders: BTreeMap<Place, String>,
    pub(crate) transactions: Transactions,
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
    /// Deaths of the process.
    pub crashes: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// The broken promise, if any.
    pub violation: Option<Violation>,
}

/// Runs one seed. `show` prints the trace.
pub fn run(seed: u64, show: bool) -> Report {
    let mut random = Random::new(seed);
    let swarm = Swarm::draw(&mut random).with_transactions(seed);
    let core = Core {
        disk: CrashDisk::new(random.next_u64()),
        random,
        model: Model::default(),
        trace: Trace::new(show),
        clock: Duration::ZERO,
        healing: false,
        operations: 0,
        node: None,
        host: Arc::default(),
        life: 0,
        queue: BTreeMap::new(),
        events: 0,
        inbox: Arc::default(),
        slow_until: Duration::ZERO,
        faulty: false,
        crashes: 0,
        power_cuts: 0,
        stopped: false,
        erred: false,
        places: swarm.places(),
        found: Vec::new(),
        next_tick: None,
        holders: BTreeMap::new(),
        transactions: Transactions::default(),
        swarm,
    };
    let mut world = World {
        clients: Client::all(&core.swarm),
        core,
    };
    let violation = world.run().err();
    let core = world.core;
    Report {
        seed,
        trace: core.trace.hash(),
        virtual_time: core.clock,
        operations: core.operations,
        checked: core.model.checked,
        crashes: core.crashes,
        power_cuts: core.power_cuts,
        violation,
    }
}

struct World {
    core: Core,
    clients: Vec<Client>,
}

impl World {
    fn run(&mut self) -> Result<(), Violation> {
        let swarm = format!("{:?}", self.core.swarm);
        self.core.note(&swarm);
        self.core.start_node()?;
        self.create_topics()?;
        for client in 0..self.clients.len() {
            self.core.think(client);
        }
        while self.core.operations < self.core.swarm.operations {
            self.step()?;
        }
        self.heal_and_progress()?;
        self.check_everything()
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
        if self.core.swarm.transactors > 0 {
            topics.push(NewTopic {
                name: transactions::TOPIC.to_owned(),
                partitions: transactions::PARTITIONS,
                replication_factor: 1,
                id: TopicId(*b"of-transactions!"),
                ..NewTopic::default()
            });
        }
        let done: Arc<Mutex<Option<Result<AdminAnswer, ErrorCode>>>> = Arc::default();
        let out = Arc::clone(&done);
        let command = AdminCommand::CreateTopics {
            topics,
            validate_only: false,
        };
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
    fn step(&mut self) -> Result<(), Violation> {
        self.core.collect_jobs();
        let Some(((at, _), event)) = self.core.queue.pop_first() else {
            return Err(Violation::new(
                "something is always due",
                "the event queue is empty".to_owned(),
            ));
        };
        self.core.clock = self.core.clock.max(at);
        match event {
            Event::Client(_) if self.core.stopped => {}
            Event::Client(client) => {
                self.clients[client].step(&mut self.core, client)?;
                if !self.core.healing {
                    self.maybe_fault()?;
                }
            }
            Event::Run(life, job) if life == self.core.life => self.core.run_job(job),
            Event::Done(life, done) if life == self.core.life => {
                if let Some((node, now)) = self.core.node() {
                    node.on_job_done(done, now);
                }
            }
            Event::Tick(life) if life == self.core.life && self.core.next_tick == Some(at) => {
                self.core.next_tick = None;
                if let Some((node, now)) = self.core.node() {
                    let next = node.tick(now);
                    self.core.schedule_tick(next);
                }
            }
            Event::Run(..) | Event::Done(..) | Event::Tick(_) => {}
            Event::PowerCut => self.power_cut()?,
            Event::Start => self.core.start_node()?,
            Event::HealDisk => {
                self.core.disk.heal();
                self.core.disk.set_capacity(None);
                if self.core.faulty {
                    // A disk that has failed is trusted again after a restart has read it.
                    self.core.faulty = false;
                    self.die("after a disk fault")?;
                }
            }
        }
        self.deliver()?;
        self.core.check_positions()
    }

    /// Gives the answers to the clients that asked.
    fn deliver(&mut self) -> Result<(), Violation> {
        loop {
            let answers = std::mem::take(&mut *self.core.inbox.lock());
            if answers.is_empty() {
                return Ok(());
            }
            for (life, client, outcome) in answers {
                if life == self.core.life {
                    self.clients[client].outcome(&mut self.core, client, outcome)?;
                    self.core.think(client);
                }
            }
        }
    }

    fn maybe_fault(&mut self) -> Result<(), Violation> {
        match faults::draw(&mut self.core) {
            None => Ok(()),
            Some(Fault::Kill) => self.die("killed"),
            Some(Fault::Flip) => {
                faults::flip(&mut self.core);
                Ok(())
            }
            Some(Fault::PowerCut) => self.power_cut(),
            Some(Fault::PowerFails { changes }) => {
                self.core.disk.fail_after(changes);
                let later = self.core.clock + Duration::from_micros(self.core.random.below(5_000));
                self.core.schedule(later, Event::PowerCut);
                Ok(())
            }
            Some(Fault::Disk) => {
                self.core.faulty = true;
                self.core.erred = true;
                let later = self.core.clock + Duration::from_millis(self.core.random.below(500));
                self.core.schedule(later, Event::HealDisk);
                Ok(())
            }
            Some(Fault::Full) => {
                let later = self.core.clock + Duration::from_millis(self.core.random.below(2_000));
                self.core.schedule(later, Event::HealDisk);
                Ok(())
            }
            Some(Fault::Slow) => {
                self.core.slow_until =
                    self.core.clock + Duration::from_millis(self.core.random.below(3_000));
                Ok(())
            }
        }
    }

    /// The process dies: what was written stays.
    fn die(&mut self, why: &str) -> Result<(), Violation> {
        if self.core.node.is_some() {
            self.core.note(&format!("the process dies, {why}"));
            self.core.crashes += 1;
            self.core.disk = self.core.disk.kill();
            self.down()?;
        }
        Ok(())
    }

    /// The power goes: what wasn't synced survives in any subset.
    fn power_cut(&mut self) -> Result<(), Violation> {
        if self.core.node.is_some() {
            self.core.note("the power is cut");
            self.core.power_cuts += 1;
            let seed = self.core.random.next_u64();
            let after = self.core.disk.crash(seed);
            self.core.disk.power_off();
            self.core.disk = after;
            for topic in 0..self.core.swarm.topics.len() {
                if !self.core.swarm.topics[topic].sync {
                    self.core.model.power_cut_of_page_cache(topic);
                    for client in &mut self.clients {
                        client.topic_lost(topic);
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
        self.core.node = None;
        self.core.found.clear();
        self.core.next_tick = None;
        self.core.life += 1;
        self.core.inbox.lock().clear();
        for client in 0..self.clients.len() {
            if self.clients[client].waits() {
                self.clients[client].outcome(&mut self.core, client, Outcome::Lost)?;
                self.core.think(client);
            }
        }
        let later = self.core.clock + Duration::from_millis(1 + self.core.random.below(50));
        self.core.schedule(later, Event::Start);
        Ok(())
    }

    /// No more faults: within 30 s every producer sends and every consumer reaches the end.
    fn heal_and_progress(&mut self) -> Result<(), Violation> {
        self.core.note("all faults are healed");
        self.core.healing = true;
        self.core.disk.heal();
        self.core.disk.set_capacity(None);
        self.core.slow_until = Duration::ZERO;
        // From a full disk alone a node recovers by itself.
        if self.core.erred || self.core.random.chance(1, 2) {
            self.die("to begin anew after all faults")?;
        }
        self.progress()
    }

    fn progress(&mut self) -> Result<(), Violation> {
        let mut goals = BTreeMap::new();
        for client in &mut self.clients {
            client.heal();
        }
        let deadline = self.core.clock + Duration::from_secs(60);
        while !self.clients.iter().all(|c| c.has_progressed()) || !self.all_read(&mut goals) {
            self.step()?;
            if self.core.clock > deadline {
                let mut stuck: Vec<_> = self
                    .clients
                    .iter()
                    .filter(|c| !c.has_progressed())
                    .collect();
                if stuck.is_empty() {
                    stuck = self
                        .clients
                        .iter()
                        .filter(|c| c.holds().is_some())
                        .collect();
                }
                return Err(Violation::new(
                    "everyone progresses after healing",
                    format!("{stuck:?}"),
                ));
            }
        }
        Ok(())
    }

    /// Whether each partition is held by one consumer, who has read what was there when all was healed.
    fn all_read(&mut self, goals: &mut BTreeMap<Place, Offset>) -> bool {
        let Some((node, _)) = self.core.node() else {
            return false;
        };
        for place in self.core.places() {
            let Some(reference) = self.core.partition(place) else {
                return false;
            };
            let goal = goals
                .entry(place)
                .or_insert_with(|| node.describe_partition(&reference).high_watermark);
            let positions = self.clients.iter().filter_map(|c| c.holds()?.get(&place));
            if !positions.clone().any(|position| position >= goal) {
                return false;
            }
        }
        true
    }

    /// Reads all partitions from their start, once after a restart.
    fn check_everything(&mut self) -> Result<(), Violation> {
        self.core.stopped = true;
        self.die("before the last check")?;
        while self.core.node.is_none() {
            self.step()?;
        }
        for place in self.core.places() {
            let (start, found) = self.read_whole(place)?;
            self.core.model.read_whole(place, start, &found)?;
        }
        if self.core.swarm.transactors > 0 {
            for partition in 0..transactions::PARTITIONS {
                let found = self.read_committed(partition)?;
                self.core.transactions.read_whole(partition, &found)?;
            }
        }
        Ok(())
    }

    /// All that a reader of committed records finds in a partition that transactors have written to.
    fn read_committed(&mut self, partition: i32) -> Result<Vec<String>, Violation> {
        let mut from = Offset::ZERO;
        let mut found = Vec::new();
        loop {
            let topic = TopicRef::Name(transactions::TOPIC.to_owned());
            let mut command = fetch_one(topic, partition, from, 64 << 10, Duration::ZERO);
            command.isolation = Isolation::ReadCommitted;
            let part = self.fetch_now(command)?;
            let Some(part) = part.filter(|p| p.error == ErrorCode::NONE) else {
                return Err(Violation::new(
                    "what was committed is there",
                    format!("partition {partition} at {from}"),
                ));
            };
            if part.last_stable_offset != part.high_watermark {
                let what = format!(
                    "partition {partition}: stable to {} of {}",
                    part.last_stable_offset, part.high_watermark
                );
                return Err(Violation::new(
                    "transactions that have ended hold nothing up",
                    what,
                ));
            }
            let end = part.high_watermark;
            let (values, next) = committed_of(part, from)?;
            found.extend(values);
            if next >= end {
                return Ok(found);
            }
            if next <= from {
                let what = format!("partition {partition} at {from} of {end}");
                return Err(Violation::new("what was committed is there", what));
            }
            from = next;
        }
    }

    /// What a fetch of one partition is answered.
    fn fetch_now(&mut self, command: FetchCommand) -> Result<Option<FetchedPartition>, Violation> {
        let done: Arc<Mutex<Option<FetchAnswer>>> = Arc::default();
        let out = Arc::clone(&done);
        if let Some((node, now)) = self.core.node() {
            node.fetch(
                command,
                now,
                Reply::new(move |answer| *out.lock() = Some(answer)),
            );
        }
        while done.lock().is_none() {
            self.step()?;
        }
        let answer = done.lock().take();
        Ok(answer.into_iter().flat_map(|a| a.partitions).next())
    }

    fn read_whole(&mut self, place: Place) -> Result<(Offset, Vec<(Offset, String)>), Violation> {
        let Some(reference) = self.core.partition(place) else {
            return Err(Violation::new("topics are kept", format!("{place:?}")));
        };
        let Some((node, _)) = self.core.node() else {
            return Ok((Offset::ZERO, Vec::new()));
        };
        let description = node.describe_partition(&reference);
        let mut from = description.log_start_offset;
        let mut found = Vec::new();
        while from < description.high_watermark {
            let topic = TopicRef::Name(self.core.swarm.topics[place.0].name.clone());
            let command = fetch_one(topic, place.1, from, 64 << 10, Duration::ZERO);
            let part = self.fetch_now(command)?;
            let Some(part) = part.filter(|p| p.error == ErrorCode::NONE && p.records.len > 0)
            else {
                return Err(Violation::new(
                    "what was acknowledged is there",
                    format!("{place:?} at {from}"),
                ));
            };
            let next = part.records.next;
            let records = records_of(part.records, from)?;
            from = records
                .last()
                .map_or(next, |(offset, _)| *offset + 1)
                .max(next);
            found.extend(records);
        }
        Ok((description.log_start_offset, found))
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

impl Core {
    pub(crate) fn now(&self) -> Now {
        Now {
            mono: self.clock,
            wall_ms: 1_700_000_000_000 + self.clock.as_millis() as i64,
        }
    }
    pub(crate) fn node(&self) -> Option<(Arc<Node>, Now)> {
        self.node.clone().map(|node| (node, self.now()))
    }
    /// The node, when it lives; counts an operation of a client.
    pub(crate) fn operate(&mut self) -> Option<(Arc<Node>, Now)> {
        let found = self.node()?;
        self.operations += 1;
        Some(found)
    }
    pub(crate) fn note(&mut self, what: &str) {
        self.trace.note(self.clock, what);
    }
    /// A reply that reaches `client`.
    pub(crate) fn reply<T: 'static>(
        &self,
        client: usize,
        wrap: impl FnOnce(T) -> Outcome + Send + 'static,
    ) -> Reply<T> {
        let (inbox, life) = (Arc::clone(&self.inbox), self.life);
        Reply::new(move |answer| inbox.lock().push((life, client, wrap(answer))))
    }
    /// The client's next step, after some thought.
    pub(crate) fn think(&mut self, client: usize) {
        let mean = self.swarm.think.as_micros() as u64;
        let later = self.clock + Duration::from_micros(1 + self.random.below(2 * mean));
        self.schedule(later, Event::Client(client));
    }
    fn schedule(&mut self, at: Duration, event: Event) {
        self.events += 1;
        self.queue.insert((at, self.events), event);
    }
    fn schedule_tick(&mut self, at: Option<Duration>) {
        if let Some(at) = at {
            let at = at.max(self.clock + Duration::from_micros(10));
            // One at a time: an earlier one takes the place of a later one.
            if self.next_tick.is_none_or(|next| at < next) {
                self.next_tick = Some(at);
                self.schedule(at, Event::Tick(self.life));
            }
        }
    }
    /// All partitions of all topics.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.places.clone()
    }
    pub(crate) fn partition(&self, place: Place) -> Option<PartitionRef> {
        let topic = TopicRef::Name(self.swarm.topics.get(place.0)?.name.clone());
        self.node.as_ref()?.partition(&topic, place.1).ok()
    }

    fn start_node(&mut self) -> Result<(), Violation> {
        self.host = Arc::default();
        let entropy = Arc::new(Seeded::new(self.random.next_u64()));
        let host = Arc::clone(&self.host) as Arc<dyn Host>;
        let disk = Arc::new(self.disk.clone());
        match Node::open(disk, entropy, host, self.swarm.settings.clone(), self.now()) {
            Ok(node) => {
                self.note("the node starts");
                let deadline = node.next_deadline();
                self.node = Some(node);
                self.schedule_tick(deadline.or(Some(self.clock)));
                Ok(())
            }
            // While the device is failing or full a start may be refused; it is tried again.
            Err(error) if !self.healing => {
                self.note(&format!("the node can't start: {error}"));
                self.disk.heal();
                self.disk.set_capacity(None);
                self.disk = self.disk.kill();
                let later = self.clock + Duration::from_millis(100);
                self.schedule(later, Event::Start);
                Ok(())
            }
            Err(error) => Err(Violation::new(
                "the node starts after any crash",
                error.to_string(),
            )),
        }
    }

    fn collect_jobs(&mut self) {
        let Some(node) = self.node.clone() else {
            return;
        };
        if self.host.take_jobs() {
            for job in node.take_jobs() {
                // Jobs begin a little later, in an order that the seed decides.
                let later = self.clock + Duration::from_micros(1 + self.random.below(50));
                self.schedule(later, Event::Run(self.life, job));
            }
        }
        if self.host.take_deadline() {
            self.schedule_tick(node.next_deadline());
        }
    }

    /// The job touches the disk now; the node hears of it when the device would have been done.
    fn run_job(&mut self, job: Job) {
        let before = self.disk.counts();
        let name = format!("{job:?}");
        let done = job.run();
        let after = self.disk.counts();
        let syncs = (after.syncs - before.syncs) as u32;
        let calls = (after.reads - before.reads + after.writes - before.writes) as u32;
        let mut cost = self.swarm.sync * syncs + Duration::from_micros(5) * calls;
        if self.slow_until > self.clock {
            cost *= self.swarm.slow;
        }
        let cost = cost.mul_f64(0.5 + self.random.below(1_000) as f64 / 1_000.0);
        self.note(&format!("{name}, for {cost:?}"));
        let later = self.clock + cost;
        self.schedule(later, Event::Done(self.life, done));
    }

    /// A consumer begins to read there.
    pub(crate) fn now_held(&mut self, place: Place, who: &str) {
        let before = self.holders.insert(place, who.to_owned());
        if before.is_some_and(|before| before != who) {
            sometimes(Mark::PartitionMoved);
        }
    }

    fn check_positions(&mut self) -> Result<(), Violation> {
        let Some(node) = self.node.clone() else {
            return Ok(());
        };
        if self.found.len() < self.places.len()
            || (self.found.iter().any(Option::is_none) && self.events.is_multiple_of(16))
        {
            self.found = self
                .places
                .iter()
                .map(|place| self.partition(*place))
                .collect();
        }
        for (place, found) in self.places.iter().zip(&self.found) {
            if let Some(reference) = found {
                let (start, high_watermark) = node.positions(reference);
                self.model.positions(*place, start, high_watermark)?;
            }
        }
        Ok(())
    }
}
