//! Fetches: read what there is, park until there is enough.
//!
//! A fetch that finds less than `min_bytes` is parked on every partition that it asks for. Whatever may change its answer (the
//! high watermark, the log start, a failure, deletion) wakes it; it then looks at all its partitions again, and is answered
//! or parked anew. At its deadline it is answered with what there is. Partitions keep woken and answered fetches in
//! their lists until the next sweep, so that an answer costs nothing on the partitions that had no part in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::config::BrokerValues;
use riverlog_log::{Read, ReadError, ReadPlan, Slices};
use riverlog_mutants::Mutant;
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::caller::Parked;
use crate::command::{
    FetchAnswer, FetchCommand, FetchPartition, FetchedPartition, Isolation, Reply,
};
use crate::errors::read_code;
use crate::jobs::Work;
use crate::node::Node;
use crate::partition::{Owed, Partition, State, epoch_end};
use crate::share::ShareList;
use crate::timers::{Timer, TimerId};

/// A partition's list of parked fetches is swept when it is longer than this and than twice what lived last time.
const SWEEP: usize = 8;

/// Kafka's name for choosing a copy in the reader's rack.
const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// How long a fetch at least waits for the budget of cold reads before it is answered without them.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);

/// A parked fetch.
pub(crate) struct Waiting {
    /// `None` once answered.
    pending: Mutex<Option<Pending>>,
    answered: AtomicBool,
}

impl Waiting {
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }
}

struct Pending {
    request: Request,
    reply: Reply<FetchAnswer>,
    timer: Option<TimerId>,
}

/// A fetch with its partitions found.
struct Request {
    command: FetchCommand,
    partitions: Vec<Result<Arc<Partition>, ErrorCode>>,
    /// Copies that don't lead are read as well.
    any_copy: bool,
    /// Places in `partitions` of those that had better be read at another node.
    nearer: BTreeMap<usize, BrokerId>,
}

/// What a look at all partitions gave.
struct Plan {
    partitions: Vec<FetchedPartition>,
    /// Place in `partitions`, and the read that needs the disk.
    cold: Vec<(usize, ReadPlan)>,
    /// What each partition's version was.
    versions: Vec<u64>,
    /// Bytes in memory, and bytes that cold reads may give.
    bytes: usize,
    cold_bytes: usize,
    failed: bool,
}

impl Plan {
    /// Whether it is worth an answer now. What is on disk is: reading it again after a wait would cost more than it saves.
    fn is_enough(&self, min_bytes: usize) -> bool {
        self.failed || !self.cold.is_empty() || self.bytes >= min_bytes
    }
}

/// Reads from files, to be run as a job.
pub(crate) struct ColdFetch {
    asked: Vec<Result<Arc<Partition>, ErrorCode>>,
    partitions: Vec<FetchedPartition>,
    plans: Vec<(usize, ReadPlan)>,
    limits: Limits,
    bytes: usize,
    /// Until then it waits for others to give bytes back.
    deadline: Duration,
    reply: Reply<FetchAnswer>,
}

/// What the reads gave.
pub(crate) struct ColdFetched {
    partitions: Vec<FetchedPartition>,
    failed: Vec<(Arc<Partition>, ReadError)>,
    limits: Limits,
    bytes: usize,
    reply: Reply<FetchAnswer>,
}

struct Limits {
    max_bytes: usize,
    partitions: Vec<usize>,
}

impl ColdFetch {
    /// Bytes that it counts for in the budget.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn run(self) -> ColdFetched {
        let mut partitions = self.partitions;
        let mut failed = Vec::new();
        for (at, plan) in self.plans {
            let Some(partition) = partitions.get_mut(at) else {
                continue;
            };
            match plan.run() {
                Ok(slices) => {
                    partition.aborted.retain(|(_, first)| *first < slices.next);
                    partition.records = slices;
                }
                Err(error) => {
                    *partition = refused(read_code(&error));
                    if let Some(Ok(of)) = self.asked.get(at) {
                        failed.push((of.clone(), error));
                    }
                }
            }
        }
        ColdFetched {
            partitions,
            failed,
            limits: self.limits,
            bytes: self.bytes,
            reply: self.reply,
        }
    }
}

impl Node {
    pub(crate) fn fetch_partitions(
        &self,
        command: FetchCommand,
        now: Now,
        reply: Reply<FetchAnswer>,
    ) {
        self.metrics.fetch_requests.fetch_add(1, Ordering::Relaxed);
        let partitions = command
            .partitions
            .iter()
            .map(|p| self.tables.find(&p.topic, p.partition))
            .map(|found| found.map_err(|error| self.or_not_yet(error)))
            .collect();
        let request = Request {
            command,
            partitions,
            any_copy: false,
            nearer: BTreeMap::new(),
        };
        self.start_fetch(request, now, reply);
    }

    /// As [`Node::fetch`], of a reader that also reads from copies that follow, up to where they know that records are acknowledged (KIP-392).
    /// With `replica.selector.class` of Kafka's rack-aware selector, who leads sends a reader from another rack to a copy that is in its own.
    ///
    /// `rack`: the reader's; empty: not said.
    pub fn fetch_near(
        &self,
        command: FetchCommand,
        rack: &str,
        now: Now,
        reply: Reply<FetchAnswer>,
    ) {
        self.saw(now);
        self.metrics.fetch_requests.fetch_add(1, Ordering::Relaxed);
        let asked = command.partitions.iter();
        let partitions = asked
            .map(|p| self.tables.find_copy(&p.topic, p.partition))
            .map(|found| found.map_err(|error| self.or_not_yet(error)));
        let mut request = Request {
            partitions: partitions.collect(),
            command,
            any_copy: true,
            nearer: BTreeMap::new(),
        };
        if !rack.is_empty() && self.selects_by_rack() {
            request.nearer = self.nearer(&request, rack);
        }
        self.start_fetch(request, now, reply);
    }

    fn selects_by_rack(&self) -> bool {
        let selector = BrokerValues(&self.settings.configs).text("replica.selector.class");
        selector.is_some_and(|class| class == RACK_AWARE)
    }

    /// Partitions that are led here, of which a copy that is in sync and has what is asked for is in the reader's rack, when this node isn't.
    fn nearer(&self, request: &Request, rack: &str) -> BTreeMap<usize, BrokerId> {
        let image = self.image.load();
        let is_near = |id: BrokerId| {
            let broker = image.brokers.get(&id);
            broker.is_some_and(|b| b.rack.as_deref() == Some(rack) && !b.fenced)
        };
        if is_near(self.settings.broker) {
            return BTreeMap::new();
        }
        let asked = request.command.partitions.iter().zip(&request.partitions);
        let each = asked.enumerate().filter_map(|(at, (asked, partition))| {
            let mut state = partition.as_ref().ok()?.state.lock();
            let near = state.nearest(asked.from, is_near)?;
            Some((at, near))
        });
        each.collect()
    }

    fn start_fetch(&self, request: Request, now: Now, reply: Reply<FetchAnswer>) {
        let plan = request.plan();
        if plan.is_enough(request.command.min_bytes)
            || request.command.max_wait.is_zero()
            || self.is_closing()
        {
            return self.answer_fetch(request, plan, now, reply);
        }
        // Over the budget nobody waits: an answer with nothing is what the client gets at the end of its wait too.
        if !self.parked.take(1) {
            return self.answer_fetch(request, plan, now, reply);
        }
        self.park_fetch(request, plan, now, reply);
    }

    fn park_fetch(&self, request: Request, plan: Plan, now: Now, reply: Reply<FetchAnswer>) {
        let deadline = now.mono.saturating_add(request.command.max_wait);
        let waiting = Arc::new(Waiting {
            pending: Mutex::new(None),
            answered: AtomicBool::new(false),
        });
        if let Some(caller) = reply.caller() {
            caller.parks(Parked::Fetch(Arc::downgrade(&waiting)));
        }
        let mut changed = false;
        let first;
        {
            // Held while it is put in the lists, so that who wakes it meanwhile finds it whole.
            let mut pending = waiting.pending.lock();
            let timer;
            (timer, first) = self.timers.add(deadline, Timer::Fetch(waiting.clone()));
            for (partition, version) in request.partitions.iter().zip(&plan.versions) {
                let Ok(partition) = partition else { continue };
                let mut state = partition.state.lock();
                let list = state.waiting(request.command.isolation);
                changed |= list.version != *version;
                list.add(&waiting);
            }
            *pending = Some(Pending {
                request,
                reply,
                timer: Some(timer),
            });
        }
        if first {
            self.host.deadline_changed();
        }
        if changed {
            self.look_again(&waiting, now);
        }
    }

    /// Something changed on a partition that the fetch asks for.
    pub(crate) fn look_again(&self, waiting: &Arc<Waiting>, now: Now) {
        if waiting.answered.load(Ordering::Acquire) {
            return;
        }
        loop {
            let mut guard = waiting.pending.lock();
            let Some(pending) = guard.as_ref() else {
                return;
            };
            let plan = pending.request.plan();
            if plan.is_enough(pending.request.command.min_bytes) || self.is_closing() {
                let pending = guard.take();
                drop(guard);
                if let Some(pending) = pending {
                    self.finish_fetch(waiting, pending, plan, now);
                }
                return;
            }
            // Waking took it out of the lists of the partitions that woke it.
            let mut changed = false;
            for (partition, version) in pending.request.partitions.iter().zip(&plan.versions) {
                let Ok(partition) = partition else { continue };
                let mut state = partition.state.lock();
                let list = state.waiting(pending.request.command.isolation);
                changed |= list.version != *version;
                list.add(waiting);
            }
            if !changed {
                return;
            }
        }
    }

    /// Its wait is over.
    pub(crate) fn fetch_timed_out(&self, waiting: &Arc<Waiting>, now: Now) {
        let pending = waiting.pending.lock().take();
        if let Some(mut pending) = pending {
            pending.timer = None;
            let plan = pending.request.plan();
            self.finish_fetch(waiting, pending, plan, now);
        }
    }

    fn finish_fetch(&self, waiting: &Waiting, pending: Pending, plan: Plan, now: Now) {
        self.unpark_fetch(waiting, &pending);
        self.answer_fetch(pending.request, plan, now, pending.reply);
    }

    fn unpark_fetch(&self, waiting: &Waiting, pending: &Pending) {
        waiting.answered.store(true, Ordering::Release);
        self.parked.give(1);
        if let Some(timer) = pending.timer {
            self.timers.remove(timer);
        }
    }

    /// Who asked has left.
    pub(crate) fn drop_fetch(&self, waiting: &Waiting) {
        let pending = waiting.pending.lock().take();
        if let Some(pending) = pending {
            self.unpark_fetch(waiting, &pending);
        }
    }

    /// The node stops: nothing more comes.
    pub(crate) fn answer_parked_fetches(&self, now: Now) {
        for waiting in self.timers.fetches() {
            self.look_again(&waiting, now);
        }
    }

    fn answer_fetch(&self, request: Request, plan: Plan, now: Now, reply: Reply<FetchAnswer>) {
        if plan.cold.is_empty() {
            return self.send_fetch(plan.partitions, reply);
        }
        self.metrics.cold_fetches.fetch_add(1, Ordering::Relaxed);
        let limits = Limits {
            max_bytes: request.command.max_bytes,
            partitions: request
                .command
                .partitions
                .iter()
                .map(|p| p.max_bytes)
                .collect(),
        };
        let cold = ColdFetch {
            asked: request.partitions,
            partitions: plan.partitions,
            plans: plan.cold,
            limits,
            bytes: plan.cold_bytes,
            deadline: now.mono + request.command.max_wait.max(QUEUE_PATIENCE),
            reply,
        };
        self.start_cold(cold);
    }

    fn start_cold(&self, cold: ColdFetch) {
        {
            let mut queue = self.cold_queue.lock();
            // In order of arrival: a large read isn't overtaken for ever by small ones.
            if !queue.is_empty() || !self.cold_bytes.take(cold.bytes()) {
                let (_, first) = self.timers.add(cold.deadline, Timer::Cold);
                queue.push_back(cold);
                drop(queue);
                if first {
                    self.host.deadline_changed();
                }
                return;
            }
        }
        self.run_job(Work::Read(Box::new(cold)));
    }

    /// Somebody has waited long enough for the budget of cold reads: what is in memory is the answer.
    pub(crate) fn expire_cold(&self, now: Now) {
        let mut expired = Vec::new();
        {
            let mut queue = self.cold_queue.lock();
            for cold in std::mem::take(&mut *queue) {
                if cold.deadline <= now.mono {
                    expired.push(cold);
                } else {
                    queue.push_back(cold);
                }
            }
        }
        for cold in expired {
            self.send_fetch(cold.partitions, cold.reply);
        }
    }

    /// Cold reads came back.
    pub(crate) fn cold_done(&self, mut done: ColdFetched) {
        self.cold_bytes.give(done.bytes);
        let mut started = false;
        {
            let mut queue = self.cold_queue.lock();
            while let Some(next) = queue.pop_front_if(|next| self.cold_bytes.take(next.bytes())) {
                self.jobs.push(Work::Read(Box::new(next)));
                started = true;
            }
        }
        if started {
            self.host.jobs_ready();
        }
        for (partition, error) in &done.failed {
            self.read_failed(partition, error);
        }
        done.limits.apply(&mut done.partitions);
        self.send_fetch(done.partitions, done.reply);
    }

    fn send_fetch(&self, partitions: Vec<FetchedPartition>, reply: Reply<FetchAnswer>) {
        let bytes: usize = partitions.iter().map(|p| p.records.len).sum();
        self.metrics
            .bytes_out
            .fetch_add(bytes as u64, Ordering::Relaxed);
        reply.send(FetchAnswer { partitions });
    }
}

impl Limits {
    /// The first batch comes whole however large it is; what follows keeps to the limits (KIP-74).
    fn apply(&self, partitions: &mut [FetchedPartition]) {
        let mut total = 0;
        for (partition, limit) in partitions.iter_mut().zip(&self.partitions) {
            let len = partition.records.len;
            let limit = (*limit).min(self.max_bytes.saturating_sub(total));
            if total > 0 && len > limit {
                partition.records = Slices::default();
                partition.aborted.clear();
            } else {
                total += len;
            }
        }
    }
}

impl Request {
    /// A look at all partitions in order.
    fn plan(&self) -> Plan {
        let mut plan = Plan {
            partitions: Vec::with_capacity(self.partitions.len()),
            cold: Vec::new(),
            versions: Vec::with_capacity(self.partitions.len()),
            bytes: 0,
            cold_bytes: 0,
            failed: false,
        };
        let asked = self.command.partitions.iter().zip(&self.partitions);
        for (at, (asked, partition)) in asked.enumerate() {
            let nearer = self.nearer.get(&at).copied();
            let left = self
                .command
                .max_bytes
                .saturating_sub(plan.bytes + plan.cold_bytes);
            let first = plan.bytes + plan.cold_bytes == 0;
            let looked = match partition {
                Err(error) => Err(*error),
                Ok(partition) => {
                    let mut state = partition.state.lock();
                    plan.versions
                        .push(state.waiting(self.command.isolation).version);
                    // Who is to read elsewhere gets nothing here, and at once.
                    let (left, first) = match nearer {
                        Some(_) => (0, false),
                        None => (left, first),
                    };
                    let aside = partition.stands_aside(&state);
                    let looked =
                        state.look(asked, self.command.isolation, self.any_copy, left, first);
                    match looked {
                        // What comes next comes to somebody else.
                        Ok((fetched, None)) if aside && fetched.diverging_epoch.is_none() => {
                            Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)
                        }
                        looked => looked,
                    }
                }
            };
            if partition.is_err() {
                plan.versions.push(0);
            }
            match looked {
                Err(error) => {
                    plan.failed = true;
                    plan.partitions.push(refused(error));
                }
                Ok((mut fetched, read)) => {
                    fetched.preferred = nearer;
                    plan.failed |= fetched.diverging_epoch.is_some() || nearer.is_some();
                    match read {
                        None => {}
                        Some(Read::Ready(slices)) => {
                            plan.bytes += slices.len;
                            fetched.records = slices;
                        }
                        Some(Read::Plan(read)) => {
                            // At least something, so that those behind it know that they aren't first.
                            plan.cold_bytes += asked.max_bytes.min(left).max(1);
                            plan.cold.push((plan.partitions.len(), read));
                        }
                    }
                    plan.partitions.push(fetched);
                }
            }
        }
        plan
    }
}

impl State {
    fn look(
        &mut self,
        asked: &FetchPartition,
        isolation: Isolation,
        any_copy: bool,
        left: usize,
        first: bool,
    ) -> Result<(FetchedPartition, Option<Read>), ErrorCode> {
        match any_copy {
            true => self.check_epoch_of_copy(asked.current_leader_epoch)?,
            false => self.check_epoch(asked.current_leader_epoch)?,
        }
        self.know_transactions()?;
        let high_watermark = self.high_watermark();
        let last_stable_offset = self.last_stable_offset();
        let until = match isolation {
            Isolation::ReadUncommitted => high_watermark,
            Isolation::ReadCommitted => last_stable_offset,
        };
        let until = until + i64::from(riverlog_mutants::active(Mutant::WatermarkTooFar));
        let leads = self.epoch();
        let log = self
            .log
            .as_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let start = log.log_start_offset();
        let mut fetched = FetchedPartition {
            error: ErrorCode::NONE,
            high_watermark,
            last_stable_offset,
            log_start_offset: start,
            records: Slices {
                next: asked.from,
                ..Slices::default()
            },
            aborted: Vec::new(),
            diverging_epoch: None,
            preferred: None,
        };
        if asked.last_fetched_epoch.0 >= 0 {
            // A client may have read of a leadership that is to come.
            let known = Some(asked.last_fetched_epoch).filter(|epoch| *epoch <= leads);
            let known = known.and_then(|epoch| epoch_end(log, epoch));
            let (epoch, end) = known.map_or((LeaderEpoch::NONE, Offset(-1)), |e| (e.epoch, e.end));
            if epoch < asked.last_fetched_epoch || end < asked.from {
                fetched.diverging_epoch = Some((epoch, end));
                return Ok((fetched, None));
            }
        }
        if asked.from < start || asked.from > log.log_end_offset() {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        let limit = asked.max_bytes.min(left);
        if asked.from >= until || (limit == 0 && !first) {
            return Ok((fetched, None));
        }
        let read = log
            .read(asked.from, until, limit)
            .map_err(|e| read_code(&e))?;
        self.upkeep.used |= matches!(&read, Read::Ready(_));
        if !first && matches!(&read, Read::Ready(slices) if slices.len > limit) {
            return Ok((fetched, None));
        }
        if isolation == Isolation::ReadCommitted {
            let end = match &read {
                Read::Ready(slices) => slices.next,
                // What lies behind the batches that will be read is left out then.
                Read::Plan(_) => until,
            };
            let aborted = log.aborted(asked.from, end);
            fetched.aborted = aborted.iter().map(|a| (a.producer_id.0, a.first)).collect();
        }
        Ok((fetched, Some(read)))
    }

    /// Readers are told up to where everything is decided, also of a log that was not used since the start.
    pub(crate) fn know_transactions(&mut self) -> Result<(), ErrorCode> {
        match &mut self.log {
            Some(log) => log
                .know_transactions()
                .map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR),
            None => Ok(()),
        }
    }

    /// KIP-320: what the client knows of the leader epoch must be what it is.
    pub(crate) fn check_epoch(&self, current: LeaderEpoch) -> Result<(), ErrorCode> {
        if self.log.is_some() && !self.leads() {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        self.check_epoch_of_copy(current)
    }

    /// As [`State::check_epoch`], where a copy that follows will do as well.
    fn check_epoch_of_copy(&self, current: LeaderEpoch) -> Result<(), ErrorCode> {
        let known = self.epoch();
        if current.0 < 0 || current == known {
            Ok(())
        } else if current < known {
            Err(ErrorCode::FENCED_LEADER_EPOCH)
        } else {
            Err(ErrorCode::UNKNOWN_LEADER_EPOCH)
        }
    }
}

/// Parked fetches of one partition.
///
/// The list doesn't own them: a fetch owns the partitions that it asks for.
#[derive(Default)]
pub(crate) struct WaitList {
    /// Grows with whatever they should look at again.
    version: u64,
    list: Vec<Weak<Waiting>>,
    /// Length of the list after the last sweep.
    live: usize,
    /// Those of share groups.
    pub(crate) shares: ShareList,
}

impl WaitList {
    pub(crate) fn wake(&mut self, owed: &mut Owed) {
        self.version += 1;
        self.shares.wake(&mut owed.woken_shares);
        owed.woken.append(&mut self.list);
    }

    /// Puts a fetch in the list, and sweeps out those that were answered through other partitions.
    fn add(&mut self, waiting: &Arc<Waiting>) {
        let same = |w: &Weak<Waiting>| std::ptr::eq(w.as_ptr(), Arc::as_ptr(waiting));
        if self.list.len() >= SWEEP.max(2 * self.live) {
            let open = |w: &Weak<Waiting>| w.upgrade().is_some_and(|w| !w.is_answered());
            self.list.retain(|w| !same(w) && open(w));
            self.live = self.list.len();
        }
        // A fetch that was woken by another partition is still in this list.
        if !self.list.iter().rev().take(SWEEP).any(same) {
            self.list.push(Arc::downgrade(waiting));
        }
    }
}

fn refused(error: ErrorCode) -> FetchedPartition {
    FetchedPartition {
        error,
        high_watermark: Offset(-1),
        last_stable_offset: Offset(-1),
        log_start_offset: Offset(-1),
        records: Slices::default(),
        aborted: Vec::new(),
        diverging_epoch: None,
        preferred: None,
    }
}
