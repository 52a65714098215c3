//! Everything but the clients: the node, its disk, the clocks, and what is due when.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_api::kafka::KafkaDoor;
use riverlog_checker::What;
use riverlog_core::Now;
use riverlog_core::metadata::TopicRef;
use riverlog_log::disk::{CrashDisk, Random};
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::harness::Seeded;
use riverlog_node::{Host, Job, Node, PartitionRef};
use riverlog_wire::Offset;

use crate::classic::ClassicGroup;
use crate::files;
use crate::groups::Known;
use crate::history::{History, place_of};
use crate::host::SimHost;
use crate::keyed::Keyed;
use crate::model::{Model, Place, Violation};
use crate::shares::Shares;
use crate::subscribers::Subscribers;
use crate::swarm::{Ending, Swarm};
use crate::trace::Trace;
use crate::transactions::Transactions;
use crate::wall::Wall;
use crate::wire;
use crate::world::{Event, Options, Outcome};

/// Answers on their way: to whom, to which request.
pub(crate) type Inbox = Arc<Mutex<Vec<(usize, u64, Outcome)>>>;

/// A healthy disk may be refused so often: each start may still find what a failing one has left.
const STARTS: u64 = 10;

/// A partition whose log is open.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    reference: PartitionRef,
    /// Start and high watermark when last looked at.
    seen: Option<(Offset, Offset)>,
}

pub(crate) struct Core {
    pub(crate) random: Random,
    pub(crate) swarm: Swarm,
    pub(crate) model: Model,
    pub(crate) transactions: Transactions,
    pub(crate) keyed: Keyed,
    pub(crate) classic: ClassicGroup,
    pub(crate) subscribers: Subscribers,
    pub(crate) shares: Shares,
    pub(crate) groups: Known,
    pub(crate) trace: Trace,
    pub(crate) history: History,
    pub(crate) clock: Duration,
    pub(crate) wall: Wall,
    pub(crate) healing: bool,
    pub(crate) operations: u64,
    pub(crate) disk: CrashDisk,
    pub(crate) node: Option<Arc<Node>>,
    /// For clients that speak Kafka's protocol.
    pub(crate) door: Option<Arc<KafkaDoor>>,
    host: Arc<SimHost>,
    /// Counts the starts of the node; jobs of an earlier life are dropped.
    pub(crate) life: u64,
    pub(crate) queue: BTreeMap<(Duration, u64), Event>,
    events: u64,
    pub(crate) inbox: Inbox,
    /// Counts requests; which one each client waits for.
    pub(crate) requests: u64,
    pub(crate) asking: BTreeMap<usize, u64>,
    /// Counts the times that all connections were cut: what was on its way then is lost.
    pub(crate) connections: u64,
    pub(crate) slow_until: Duration,
    /// Until then the node does nothing.
    pub(crate) frozen_until: Duration,
    /// The disk is failing on its own; the node is restarted after a while.
    pub(crate) faulty: bool,
    /// Faults that have begun.
    pub(crate) faults: u64,
    pub(crate) crashes: u64,
    pub(crate) power_cuts: u64,
    /// Clients have stopped: what is there is counted.
    pub(crate) stopped: bool,
    /// The disk has failed since the node started.
    pub(crate) erred: bool,
    /// The power goes with the next cleaned segment that takes the place of others, after so many changes of the disk.
    pub(crate) swap_cut: Option<u64>,
    /// The power goes with the next group of the write-ahead log.
    pub(crate) group_cut: bool,
    places: Vec<Place>,
    /// Found in this life; `None` while a log can't be opened.
    pub(crate) found: Vec<Option<Found>>,
    /// What files held at some moment of the run.
    pub(crate) older: BTreeMap<String, Vec<u8>>,
    /// Starts that were refused, one after the other.
    refused_starts: u64,
    /// When the node is called next because of the time.
    pub(crate) next_tick: Option<Duration>,
    holders: BTreeMap<Place, String>,
    /// The client that was just refused waits a while before it tries again.
    pub(crate) back_off: bool,
}

impl Core {
    pub(crate) fn new(mut random: Random, swarm: Swarm, options: Options) -> Core {
        Core {
            disk: CrashDisk::new(random.next_u64()),
            random,
            model: Model::new(&swarm),
            transactions: Transactions::default(),
            keyed: Keyed::new(),
            classic: ClassicGroup::default(),
            subscribers: Subscribers::default(),
            shares: Shares::default(),
            groups: Known::default(),
            trace: Trace::new(options.show),
            history: History::new(options.history, &swarm),
            clock: Duration::ZERO,
            wall: Wall::new(),
            healing: false,
            operations: 0,
            node: None,
            door: None,
            host: Arc::default(),
            life: 0,
            queue: BTreeMap::new(),
            events: 0,
            inbox: Arc::default(),
            requests: 0,
            asking: BTreeMap::new(),
            connections: 0,
            slow_until: Duration::ZERO,
            frozen_until: Duration::ZERO,
            faulty: false,
            faults: 0,
            crashes: 0,
            power_cuts: 0,
            stopped: false,
            erred: false,
            swap_cut: None,
            group_cut: false,
            places: swarm.places(),
            found: Vec::new(),
            older: BTreeMap::new(),
            refused_starts: 0,
            next_tick: None,
            holders: BTreeMap::new(),
            back_off: false,
            swarm,
        }
    }
    pub(crate) fn now(&self) -> Now {
        Now {
            mono: self.clock,
            wall_ms: self.wall.at(self.clock),
        }
    }
    pub(crate) fn node(&self) -> Option<(Arc<Node>, Now)> {
        self.node.clone().map(|node| (node, self.now()))
    }
    pub(crate) fn note(&mut self, what: impl Display) {
        self.trace.note(self.clock, what);
    }
    /// For who looks on; the fingerprint is the same without.
    pub(crate) fn show(&self, what: impl Display) {
        self.trace.show(self.clock, what);
    }
    /// Something that a client did or was told about a partition, for the history.
    pub(crate) fn tell_history(
        &mut self,
        client: &str,
        there: Place,
        what: impl FnOnce(riverlog_checker::Place) -> What,
    ) {
        if self.history.keeps(there) {
            let place = place_of(&self.swarm, there);
            self.history.note(self.clock, client, what(place));
        }
    }
    /// Perhaps the files of now are those that an older copy will be of.
    pub(crate) fn perhaps_copy(&mut self) {
        if self.swarm.ending == Ending::Older && self.random.chance(1, 4) {
            let mut paths = files::of_logs(&self.disk);
            paths.extend(files::of_volume(&self.disk));
            self.older = files::contents(&self.disk, paths);
        }
    }
    /// The node that stands still goes on now, and with it what was put off until then.
    pub(crate) fn thaw(&mut self) {
        let until = std::mem::replace(&mut self.frozen_until, self.clock);
        let sooner = until.saturating_sub(self.clock);
        if sooner.is_zero() {
            return;
        }
        if self.next_tick == Some(until) {
            self.next_tick = Some(self.clock);
        }
        for ((at, number), event) in std::mem::take(&mut self.queue) {
            let put_off = match event {
                // Some of these are late as well.
                Event::Arrive(..) => at >= until,
                Event::Run(..) | Event::Done(..) | Event::Tick(_) => at == until,
                _ => false,
            };
            let at = if put_off { at - sooner } else { at };
            self.queue.insert((at, number), event);
        }
    }
    /// The client's next step, after some thought.
    pub(crate) fn think(&mut self, client: usize) {
        let mut mean = self.swarm.think.as_micros() as u64;
        if self.healing {
            // What is asked for then is that everyone moves: they are neither lazy nor in a hurry.
            mean = mean.clamp(1_000, 10_000);
        }
        if std::mem::take(&mut self.back_off) {
            mean = mean.max(50_000);
        }
        self.schedule_in(2 * mean, Event::Client(client));
    }
    pub(crate) fn schedule(&mut self, at: Duration, event: Event) {
        self.events += 1;
        self.queue.insert((at, self.events), event);
    }
    /// Within so many microseconds.
    pub(crate) fn schedule_in(&mut self, most_us: u64, event: Event) {
        let later = self.clock + Duration::from_micros(1 + self.random.below(most_us));
        self.schedule(later, event);
    }
    pub(crate) fn schedule_tick(&mut self, at: Option<Duration>) {
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
    /// From now on nothing is promised of what can be read, but that it is right.
    pub(crate) fn watch_no_more(&mut self) -> Vec<Place> {
        self.found.clear();
        std::mem::take(&mut self.places)
    }
    pub(crate) fn partition(&self, place: Place) -> Option<PartitionRef> {
        let known = self.places.iter().zip(&self.found);
        if let Some((_, Some(found))) = known.into_iter().find(|(p, _)| **p == place) {
            return Some(found.reference.clone());
        }
        let topic = TopicRef::Name(self.swarm.topics.get(place.0)?.name.clone());
        self.node.as_ref()?.partition(&topic, place.1).ok()
    }

    pub(crate) fn start_node(&mut self) -> Result<(), Violation> {
        self.host = Arc::default();
        let entropy = Arc::new(Seeded::new(self.random.next_u64()));
        let host = Arc::clone(&self.host) as Arc<dyn Host>;
        let disk = Arc::new(self.disk.clone());
        if !self.healing {
            self.await_swap();
        }
        match Node::open(disk, entropy, host, self.swarm.settings.clone(), self.now()) {
            Ok(node) => {
                self.note("the node starts");
                self.refused_starts = 0;
                let deadline = node.next_deadline();
                self.door = self.swarm.wire.then(|| wire::door(&node));
                self.node = Some(node);
                self.schedule_tick(deadline.or(Some(self.clock)));
                Ok(())
            }
            // While the device is failing or full a start may be refused; it is tried again.
            Err(error) if !self.healing && self.refused_starts < STARTS => {
                self.refused_starts += 1;
                self.note(format!("the node can't start: {error}"));
                if self.disk.is_off() {
                    self.swap_cut = None;
                }
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

    /// The disk of this life is to fail with the next cleaned segment that takes the place of others, when that has been asked for.
    pub(crate) fn await_swap(&self) {
        if let Some(changes) = self.swap_cut {
            let swap = |path: &str| path.ends_with(".log.swap");
            self.disk.fail_after_meeting(changes, swap);
        }
    }

    pub(crate) fn collect_jobs(&mut self) {
        let Some(node) = self.node.clone() else {
            return;
        };
        for notice in self.host.take_notices() {
            self.note(format_args!("the node says: {notice}"));
        }
        if self.host.take_jobs() {
            for job in node.take_jobs() {
                // Jobs begin a little later, in an order that the seed decides.
                self.schedule_in(self.swarm.lag, Event::Run(self.life, Box::new(job)));
            }
        }
        if self.host.take_deadline() {
            self.schedule_tick(node.next_deadline());
        }
    }

    /// The job touches the disk now; the node hears of it when the device would have been done.
    pub(crate) fn run_job(&mut self, job: Job) {
        let before = self.disk.counts();
        let name = match self.trace.shows() {
            true => format!("{job:?}"),
            false => String::new(),
        };
        let done = job.run();
        if self.disk.is_off() && (self.swap_cut.is_some() || self.group_cut) {
            self.swap_cut = None;
            self.group_cut = false;
            self.schedule(self.clock, Event::PowerCut);
        }
        let after = self.disk.counts();
        let syncs = (after.syncs - before.syncs) as u32;
        let calls = (after.reads - before.reads + after.writes - before.writes) as u32;
        let mut cost = self.swarm.sync * syncs + Duration::from_micros(5) * calls;
        if self.slow_until > self.clock {
            cost *= self.swarm.slow;
        }
        let cost = cost.mul_f64(0.5 + self.random.below(1_000) as f64 / 1_000.0);
        self.trace.job(self.clock, &name, cost);
        let later = self.clock + cost;
        self.schedule(later, Event::Done(self.life, Box::new(done)));
    }

    /// Does what the host has in its hands before it stops the node.
    pub(crate) fn finish_jobs(&mut self) {
        let Some((node, now)) = self.node() else {
            return;
        };
        loop {
            self.collect_jobs();
            let mine = |event: &Event| matches!(event, Event::Run(..) | Event::Done(..));
            let Some(at) = self.queue.iter().find(|(_, e)| mine(e)).map(|(at, _)| *at) else {
                return;
            };
            match self.queue.remove(&at) {
                Some(Event::Run(life, job)) if life == self.life => {
                    node.on_job_done(job.run(), now);
                }
                Some(Event::Done(life, done)) if life == self.life => {
                    node.on_job_done(*done, now);
                }
                _ => {}
            }
        }
    }

    /// A consumer begins to read there.
    pub(crate) fn now_held(&mut self, place: Place, who: &str) {
        let before = self.holders.insert(place, who.to_owned());
        if before.is_some_and(|before| before != who) {
            sometimes(Mark::PartitionMoved);
        }
    }

    /// Looks for those that aren't known yet in this life.
    fn find_partitions(&mut self, node: &Node) {
        self.found.resize(self.places.len(), None);
        for at in 0..self.places.len() {
            if self.found[at].is_some() {
                continue;
            }
            let place = self.places[at];
            if let Some(reference) = self.partition(place) {
                let end = node.describe_partition(&reference).log_end_offset;
                self.model.opened(place, end);
                self.found[at] = Some(Found {
                    reference,
                    seen: None,
                });
            }
        }
    }

    pub(crate) fn check_positions(&mut self) -> Result<(), Violation> {
        let Some(node) = self.node.clone() else {
            return Ok(());
        };
        if self.found.len() < self.places.len()
            || (self.events.is_multiple_of(16) && self.found.iter().any(Option::is_none))
        {
            self.find_partitions(&node);
        }
        for (place, found) in self.places.iter().zip(&mut self.found) {
            if let Some(found) = found {
                let now = node.positions(&found.reference);
                if found.seen.replace(now) != Some(now) {
                    self.model.positions(*place, now.0, now.1)?;
                }
            }
        }
        Ok(())
    }
}
