//! ShareFetch: read what can be acquired, wait until something can.
//!
//! A fetch that acquires nothing waits in the lists of its partitions (for new records) and of what is in flight there
//! (for records that are given back). Whatever may change its answer wakes it; it then looks at everything again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::TopicRef;
use riverlog_core::share::{Acquire, AcquireMode, Acquired, FetchedBatch, ShareKey};
use riverlog_log::{Slice, Slices};
use riverlog_wire::batch::{Batch, EndTxnMarker, batches};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerId, TopicId};

use super::held::{Held, Stage};
use crate::caller::Parked;
use crate::command::{
    FetchAnswer, FetchCommand, FetchPartition, FetchedPartition, Isolation, Reply,
};
use crate::node::Node;
use crate::timers::{Timer, TimerId};

/// Bytes read from one partition at a time. More records than a member takes at once seldom need more, and what isn't acquired was
/// read for nothing.
const PARTITION_BYTES: usize = 1 << 20;

/// Bytes that a control batch may open to.
const CONTROL_LIMIT: usize = 1 << 16;

/// Bytes that a batch may open to whose keys are looked at.
const OPENED_LIMIT: usize = 64 << 20;

/// Looks that gave nothing though there was something to read, after which a fetch waits.
const ROUNDS: u32 = 64;

/// A list of waiting fetches is swept when it is longer than this and than twice what lived last time.
const SWEEP: usize = 8;

/// Acquire records of several partitions, waiting for some.
#[derive(Clone, Debug)]
pub struct ShareFetchCommand {
    /// Group.
    pub group: String,
    /// Member.
    pub member: String,
    /// Where from, in the order of the answer.
    pub partitions: Vec<(TopicId, i32)>,
    /// Which of them is looked at first, modulo their number: so that each has its turn.
    pub first: usize,
    /// How long to wait for a record.
    pub max_wait: Duration,
    /// Bytes of the whole answer; soft for the first batch. 0: no records at all.
    pub max_bytes: usize,
    /// Records in all, as far as the mode keeps to it.
    pub max_records: i64,
    /// Records after which a new range of acquired records begins.
    pub batch_size: i64,
    /// How closely `max_records` is kept to.
    pub mode: AcquireMode,
}

/// The answer to a share fetch: one for each partition asked, in order.
#[derive(Debug)]
pub struct ShareFetchAnswer {
    /// In the order asked.
    pub partitions: Vec<ShareFetched>,
    /// How long the member has acquired records.
    pub lock_duration: Duration,
}

/// What was acquired of one partition.
#[derive(Debug)]
pub struct ShareFetched {
    /// NONE, or why there is nothing.
    pub error: ErrorCode,
    /// Whole batches; they may hold records that weren't acquired.
    pub records: Slices,
    /// In order.
    pub acquired: Vec<Acquired>,
}

impl Default for ShareFetched {
    fn default() -> Self {
        ShareFetched {
            error: ErrorCode::NONE,
            records: Slices::default(),
            acquired: Vec::new(),
        }
    }
}

/// A share fetch under way.
pub(crate) struct ShareWaiting {
    command: ShareFetchCommand,
    deadline: Duration,
    isolation: Isolation,
    answered: AtomicBool,
    state: Mutex<Progress>,
}

impl ShareWaiting {
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }
}

struct Progress {
    /// `None` once answered.
    reply: Option<Reply<ShareFetchAnswer>>,
    timer: Option<TimerId>,
    /// Somebody looks for records right now; only they answer.
    busy: bool,
    /// Something changed meanwhile.
    again: bool,
    /// It counts as parked.
    counted: bool,
    rounds: u32,
}

/// Fetches that wait for something to acquire. The list doesn't own them.
#[derive(Default)]
pub(crate) struct ShareList {
    list: Vec<Weak<ShareWaiting>>,
    /// Length of the list after the last sweep.
    live: usize,
}

impl ShareList {
    fn add(&mut self, waiting: &Arc<ShareWaiting>) {
        let same = |w: &Weak<ShareWaiting>| std::ptr::eq(w.as_ptr(), Arc::as_ptr(waiting));
        if self.list.len() >= SWEEP.max(2 * self.live) {
            let open = |w: &Weak<ShareWaiting>| {
                let waiting = w.upgrade();
                waiting.is_some_and(|w| !w.is_answered())
            };
            self.list.retain(|w| !same(w) && open(w));
            self.live = self.list.len();
        }
        if !self.list.iter().rev().take(SWEEP).any(same) {
            self.list.push(Arc::downgrade(waiting));
        }
    }

    /// Those that wait, for who wakes them.
    pub(crate) fn take(&mut self) -> Vec<Arc<ShareWaiting>> {
        let list = std::mem::take(&mut self.list);
        list.iter().filter_map(Weak::upgrade).collect()
    }

    /// The same without a look at them.
    pub(crate) fn wake(&mut self, woken: &mut Vec<Weak<ShareWaiting>>) {
        woken.append(&mut self.list);
    }
}

/// Where a look reads: place in the command, what is in flight there, and the first offset.
type Reads = Vec<(usize, Arc<Held>, Offset)>;

impl Node {
    /// Acquires records for a member of a share group, or waits until some can be acquired.
    pub fn share_fetch(
        &self,
        command: ShareFetchCommand,
        now: Now,
        reply: Reply<ShareFetchAnswer>,
    ) {
        self.saw(now);
        // Over the budget nobody waits.
        let counted = !command.max_wait.is_zero() && self.parked.take(1);
        let wait = match counted {
            true => command.max_wait,
            false => Duration::ZERO,
        };
        let caller = reply.caller().filter(|_| counted).cloned();
        let waiting = Arc::new(ShareWaiting {
            deadline: now.mono.saturating_add(wait),
            isolation: self.share_isolation(&command.group),
            command,
            answered: AtomicBool::new(false),
            state: Mutex::new(Progress {
                reply: Some(reply),
                timer: None,
                busy: true,
                again: false,
                counted,
                rounds: 0,
            }),
        });
        if let Some(caller) = caller {
            caller.parks(Parked::Share(Arc::downgrade(&waiting)));
        }
        self.share_look(&waiting, now);
    }

    /// Something changed on a partition that the fetch asks for.
    pub(crate) fn share_look_again(&self, waiting: &Arc<ShareWaiting>, now: Now) {
        if waiting.answered.load(Ordering::Acquire) {
            return;
        }
        {
            let mut state = waiting.state.lock();
            if state.reply.is_none() {
                return;
            }
            if state.busy {
                state.again = true;
                return;
            }
            state.busy = true;
        }
        self.share_look(waiting, now);
    }

    /// Its wait is over.
    pub(crate) fn share_timed_out(&self, waiting: &Arc<ShareWaiting>, now: Now) {
        waiting.state.lock().timer = None;
        self.share_look_again(waiting, now);
    }

    /// Looks at all partitions; the caller has made it busy.
    fn share_look(&self, waiting: &Arc<ShareWaiting>, now: Now) {
        let command = &waiting.command;
        let count = command.partitions.len();
        let mut results: Vec<ShareFetched> = Vec::new();
        results.resize_with(count, ShareFetched::default);
        let mut reads: Reads = Vec::new();
        let mut partitions = Vec::new();
        let mut failed = false;
        let limits = self.share_limits(&command.group);
        for turn in 0..count {
            let at = (command.first % count + turn) % count;
            let Some((topic, index)) = command.partitions.get(at) else {
                continue;
            };
            let key = ShareKey {
                group: command.group.clone(),
                topic: *topic,
                partition: *index,
            };
            match self.share_read_from(waiting, &key, &limits, now) {
                Ok(None) => {}
                Ok(Some((held, from))) => {
                    partitions.push(FetchPartition {
                        topic: TopicRef::Id(*topic),
                        partition: *index,
                        from,
                        max_bytes: PARTITION_BYTES.min(command.max_bytes),
                        current_leader_epoch: LeaderEpoch::NONE,
                        last_fetched_epoch: LeaderEpoch::NONE,
                    });
                    reads.push((at, held, from));
                }
                Err(error) => {
                    failed = true;
                    if let Some(result) = results.get_mut(at) {
                        result.error = error;
                    }
                }
            }
        }
        if reads.is_empty() {
            return match failed {
                true => self.answer_share(waiting, results),
                false => self.share_found_nothing(waiting, false, now),
            };
        }
        let read = FetchCommand {
            partitions,
            max_wait: Duration::ZERO,
            min_bytes: 0,
            max_bytes: command.max_bytes,
            isolation: waiting.isolation,
            replica: None,
        };
        let (node, of) = (self.this.clone(), waiting.clone());
        let reply = Reply::new(move |answer: FetchAnswer| {
            if let Some(node) = node.upgrade() {
                node.share_take(&of, &reads, results, answer, node.as_of(now));
            }
        });
        self.fetch_partitions(read, now, reply);
    }

    /// From where to read, when something there can be acquired. Enters the fetch in the lists first, so that no change is
    /// missed.
    fn share_read_from(
        &self,
        waiting: &Arc<ShareWaiting>,
        key: &ShareKey,
        limits: &riverlog_core::share::ShareLimits,
        now: Now,
    ) -> Result<Option<(Arc<Held>, Offset)>, ErrorCode> {
        let held = self.held(key, now)?;
        let (start, until) = {
            let mut state = held.partition.state.lock();
            state.waiting(waiting.isolation).shares.add(waiting);
            state.readable(waiting.isolation)?
        };
        let mut state = held.state.lock();
        state.waiting.add(waiting);
        let machine = match &mut state.stage {
            Stage::Ready { machine, .. } => machine,
            Stage::Failed(error) => return Err(*error),
            Stage::Loading | Stage::Gone => return Ok(None),
        };
        machine.log_starts_at(start);
        // The first batch comes whole, however few bytes are asked for; but who asks for none gets none, as with Kafka.
        let wants = waiting.command.max_bytes > 0;
        let from = machine.next_fetch(limits);
        let from = from.filter(|from| wants && *from < until);
        drop(state);
        Ok(from.map(|from| (held, from)))
    }

    /// Acquires what was read.
    fn share_take(
        &self,
        waiting: &Arc<ShareWaiting>,
        reads: &Reads,
        mut results: Vec<ShareFetched>,
        answer: FetchAnswer,
        now: Now,
    ) {
        let command = &waiting.command;
        let limits = self.share_limits(&command.group);
        let mut ask = Acquire {
            member: command.member.as_str().into(),
            max_records: command.max_records,
            batch_size: command.batch_size,
            mode: command.mode,
        };
        let mut worth = results.iter().any(|r| r.error != ErrorCode::NONE);
        let mut changed = Vec::new();
        for ((at, held, from), fetched) in reads.iter().zip(answer.partitions) {
            let Some(result) = results.get_mut(*at) else {
                continue;
            };
            // Who has left meanwhile acquires nothing.
            if ask.max_records <= 0 || waiting.is_answered() {
                break;
            }
            let found = match Found::new(fetched, limits.key_order) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) => {
                    result.error = error;
                    worth = true;
                    continue;
                }
            };
            let timer = {
                let mut state = held.state.lock();
                let Stage::Ready { machine, .. } = &mut state.stage else {
                    continue;
                };
                // From where it was read: what lies before the first batch is known not to be there from that offset on only.
                result.acquired = machine.acquire(&ask, *from, &found.batches, now.mono, &limits);
                if !machine.is_told() {
                    changed.push(held.clone());
                }
                let deadline = machine.next_deadline();
                state.arm(deadline)
            };
            self.arm_held(held, timer);
            if let (Some(first), Some(last)) = (result.acquired.first(), result.acquired.last()) {
                let acquired = result.acquired.iter();
                let records: i64 = acquired.map(|a| a.last.0 - a.first.0 + 1).sum();
                ask.max_records = ask.max_records.saturating_sub(records);
                result.records = found.cut(first.first, last.last);
                worth = true;
            }
        }
        for held in changed {
            self.write_held(&held, now);
        }
        match worth {
            true => self.answer_share(waiting, results),
            false => self.share_found_nothing(waiting, true, now),
        }
    }

    /// Nothing was acquired: looks again when there is reason to, or waits. `read`: there was something to read.
    fn share_found_nothing(&self, waiting: &Arc<ShareWaiting>, read: bool, now: Now) {
        let mut first = false;
        let over = now.mono >= waiting.deadline || self.is_closing();
        let look = {
            let mut state = waiting.state.lock();
            let look = std::mem::take(&mut state.again) || read;
            state.rounds += u32::from(look);
            // Who asked may have left meanwhile: then nobody waits.
            let look = look && state.rounds < ROUNDS && state.reply.is_some();
            if !look && !over && state.reply.is_some() {
                if state.timer.is_none() {
                    let timer = Timer::ShareFetch(waiting.clone());
                    let (id, is_first) = self.timers.add(waiting.deadline, timer);
                    state.timer = Some(id);
                    first = is_first;
                }
                state.busy = false;
                state.rounds = 0;
            }
            look
        };
        if first {
            self.host.deadline_changed();
        }
        if look {
            self.share_look(waiting, now);
        } else if over {
            let mut nothing = Vec::new();
            let count = waiting.command.partitions.len();
            nothing.resize_with(count, ShareFetched::default);
            self.answer_share(waiting, nothing);
        }
    }

    fn answer_share(&self, waiting: &ShareWaiting, partitions: Vec<ShareFetched>) {
        let Some(reply) = self.unpark_share_fetch(waiting) else {
            return;
        };
        reply.send(ShareFetchAnswer {
            partitions,
            lock_duration: self.share_limits(&waiting.command.group).lock_duration,
        });
    }

    /// Ends its wait; nothing when somebody else has.
    fn unpark_share_fetch(&self, waiting: &ShareWaiting) -> Option<Reply<ShareFetchAnswer>> {
        waiting.answered.store(true, Ordering::Release);
        let (reply, timer, counted) = {
            let mut state = waiting.state.lock();
            (state.reply.take(), state.timer.take(), state.counted)
        };
        if let Some(timer) = timer {
            self.timers.remove(timer);
        }
        if counted && reply.is_some() {
            self.parked.give(1);
        }
        reply
    }

    /// Who asked has left: it acquires nothing more.
    pub(crate) fn drop_share_fetch(&self, waiting: &ShareWaiting) {
        drop(self.unpark_share_fetch(waiting));
    }

    /// The node stops: nothing more comes.
    pub(crate) fn answer_parked_share_fetches(&self, now: Now) {
        for waiting in self.timers.share_fetches() {
            self.share_look_again(&waiting, now);
        }
    }
}

/// What was read of one partition, batch by batch.
struct Found {
    bytes: Bytes,
    batches: Vec<FetchedBatch>,
    /// Where each batch ends in the bytes.
    ends: Vec<usize>,
}

impl Found {
    /// `None`: nothing. `by_key`: with the keys of the records.
    fn new(fetched: FetchedPartition, by_key: bool) -> Result<Option<Found>, ErrorCode> {
        match fetched.error {
            ErrorCode::NONE => {}
            // The log's start moved: the next look knows.
            ErrorCode::OFFSET_OUT_OF_RANGE => return Ok(None),
            error => return Err(error),
        }
        if fetched.records.len == 0 {
            return Ok(None);
        }
        let storage = ErrorCode::KAFKA_STORAGE_ERROR;
        let bytes = fetched.records.into_bytes().map_err(|_| storage)?;
        let mut aborted = Aborted::new(fetched.aborted);
        let mut found = Found {
            batches: Vec::new(),
            ends: Vec::new(),
            bytes: Bytes::new(),
        };
        let mut end = 0;
        for batch in batches(&bytes) {
            let batch = batch.map_err(|_| storage)?;
            end += batch.bytes.len();
            found.ends.push(end);
            // A header without records may stand for all that was compacted away: nobody is to work on that.
            let visible = aborted.is_visible(&batch) && batch.header.record_count > 0;
            found.batches.push(FetchedBatch {
                first: batch.header.base_offset,
                last: batch.header.last_offset(),
                visible,
                keys: (by_key && visible).then(|| keys(&batch)).flatten(),
            });
        }
        found.bytes = bytes;
        Ok(Some(found))
    }

    /// The batches that hold these offsets.
    fn cut(self, first: Offset, last: Offset) -> Slices {
        let mut from = 0;
        let mut to = self.bytes.len();
        let mut next = first;
        for (batch, end) in self.batches.iter().zip(&self.ends) {
            if batch.last < first {
                from = *end;
            }
            next = batch.last.plus(1);
            if batch.last >= last {
                to = *end;
                break;
            }
        }
        let bytes = self.bytes.slice(from..to.max(from));
        Slices {
            len: bytes.len(),
            parts: vec![Slice::Memory(bytes)],
            next,
        }
    }
}

/// Which batches readers of committed records don't see.
struct Aborted {
    /// First offset and producer of transactions that begin later, the earliest last.
    later: Vec<(Offset, i64)>,
    open: BTreeSet<ProducerId>,
}

impl Aborted {
    fn new(aborted: Vec<(i64, Offset)>) -> Aborted {
        let mut later: Vec<(Offset, i64)> = aborted.into_iter().map(|(id, at)| (at, id)).collect();
        later.sort_unstable();
        later.reverse();
        Aborted {
            later,
            open: BTreeSet::new(),
        }
    }

    fn is_visible(&mut self, batch: &Batch<'_>) -> bool {
        let header = &batch.header;
        while let Some((_, id)) = self
            .later
            .pop_if(|(first, _)| *first <= header.last_offset())
        {
            self.open.insert(ProducerId(id));
        }
        if header.attributes.is_control() {
            if aborts(batch) {
                self.open.remove(&header.producer_id);
            }
            return false;
        }
        !(header.attributes.is_transactional() && self.open.contains(&header.producer_id))
    }
}

/// Offsets and hashes of keys; `None` for a batch that can't be opened, which is its reader's to tell.
fn keys(batch: &Batch<'_>) -> Option<Vec<(i64, Option<u64>)>> {
    let records = batch.records(OPENED_LIMIT).ok()?;
    let each = records.iter_refs().map(|record| {
        let record = record.ok()?;
        let key = record.key.map(rapidhash::v3::rapidhash_v3);
        Some((record.offset.0, key))
    });
    each.collect()
}

fn aborts(batch: &Batch<'_>) -> bool {
    let Ok(records) = batch.records(CONTROL_LIMIT) else {
        return false;
    };
    let marker = records.iter().next().and_then(Result::ok);
    let marker = marker.map(|r| EndTxnMarker::parse(r.key.as_deref(), r.value.as_deref()));
    matches!(marker, Some(Ok(Some(marker))) if !marker.committed)
}
