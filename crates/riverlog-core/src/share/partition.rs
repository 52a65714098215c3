//! One partition as one share group sees it: which records are in flight, who has them, how often they were given out.
//!
//! Offsets from the *start* to the *end* have a state each: available, delayed until it may be given out again, acquired by a
//! member for a time, archiving while it becomes a dead letter, acknowledged or archived. What lies below the start is done with,
//! what lies from the end on was never given out. Acquired is what no fail-over keeps: a new leader offers those records again. All else
//! is told to the coordinator as a [`StateUpdate`], and whoever acknowledged waits for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, Offset};

use super::ranges::Ranges;
use super::records::{DeliveryState, StateBatch};
use crate::Now;
use acquire::Acquiring;
use keys::{Keys, Standing};

mod acquire;
mod keys;
#[cfg(test)]
mod tests;

/// No record is kept back for longer, whatever the clocks say.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a group may do on one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// `share.partition.max.record.locks`: offsets from the start to the end.
    pub max_locks: i64,
    /// `share.delivery.count.limit`: how often a record is given out before it is archived.
    pub delivery_limit: i16,
    /// `share.record.lock.duration.ms`.
    pub lock_duration: Duration,
    /// `riverlog.share.backoff.ms`: how long a record that was given back for the first time is kept back; twice that the next time.
    pub backoff: Duration,
    /// `riverlog.share.backoff.max.ms`: no longer than this.
    pub max_backoff: Duration,
    /// `riverlog.share.key.order`: of the records of a key only the first that isn't done with is given out.
    pub key_order: bool,
    /// `errors.deadletterqueue.topic.name` is set: what can't be delivered becomes a dead letter before it is archived.
    pub dead_letters: bool,
}

impl ShareLimits {
    /// How long a record is kept back that was given out so many times.
    fn delay(&self, count: i16) -> Duration {
        let doublings = u32::try_from(count.saturating_sub(1)).unwrap_or(0).min(30);
        let delay = self.backoff.saturating_mul(1 << doublings);
        delay.min(self.max_backoff).min(LONGEST_DELAY)
    }
}

impl Default for ShareLimits {
    fn default() -> Self {
        ShareLimits {
            max_locks: 2_000,
            delivery_limit: 5,
            lock_duration: Duration::from_secs(30),
            backoff: Duration::ZERO,
            max_backoff: Duration::from_secs(300),
            key_order: false,
            dead_letters: false,
        }
    }
}

/// How closely `max_records` is kept to (KIP-1206).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AcquireMode {
    /// Whole batches, the last of which may go beyond the limit.
    #[default]
    BatchOptimized,
    /// Never more than the limit.
    RecordLimit,
}

/// Who wants records, and how many.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The member.
    pub member: Arc<str>,
    /// How many at most, as far as the mode keeps to it.
    pub max_records: i64,
    /// Records after which a new range of acquired records begins, at the next batch.
    pub batch_size: i64,
    /// How closely `max_records` is kept to.
    pub mode: AcquireMode,
}

/// A batch as the log has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedBatch {
    /// First offset.
    pub first: Offset,
    /// Last offset.
    pub last: Offset,
    /// It has records for readers: no control batch, and under read committed not of an aborted transaction.
    pub visible: bool,
    /// Its records, by offset, with a hash of their key, as far as the group has keys in order; `None`: unknown.
    pub keys: Option<Vec<(i64, Option<u64>)>>,
}

/// Records that a member has from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// First offset.
    pub first: Offset,
    /// Last offset.
    pub last: Offset,
    /// How often they have been given out, this time included.
    pub delivery_count: i16,
}

/// What a member says of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// 0: there is no record at that offset.
    Gap,
    /// 1: it is done.
    Accept,
    /// 2: somebody else shall try.
    Release,
    /// Somebody shall try again, but not before this time is over. Only a program in the same process can say that.
    ReleaseAfter(Duration),
    /// 3: nobody shall try again.
    Reject,
    /// 4: more time is needed (KIP-1222).
    Renew,
}

impl Acknowledge {
    /// From the number in requests.
    pub fn from_number(number: i8) -> Option<Acknowledge> {
        match number {
            0 => Some(Acknowledge::Gap),
            1 => Some(Acknowledge::Accept),
            2 => Some(Acknowledge::Release),
            3 => Some(Acknowledge::Reject),
            4 => Some(Acknowledge::Renew),
            _ => None,
        }
    }
}

/// What a member says of the records of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// First offset.
    pub first: Offset,
    /// Last offset.
    pub last: Offset,
    /// One for each offset, or one for all.
    pub types: Vec<Acknowledge>,
}

impl Acknowledgement {
    /// Neighbouring offsets of one kind together; INVALID_REQUEST.
    fn runs(&self) -> Result<Vec<(i64, i64, Acknowledge)>, ErrorCode> {
        let (first, last) = (self.first.0, self.last.0);
        if first < 0 || last < first || last == i64::MAX {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if let [one] = self.types.as_slice() {
            return Ok(vec![(first, last, *one)]);
        }
        if i64::try_from(self.types.len()) != Ok(last - first + 1) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let mut runs: Vec<(i64, i64, Acknowledge)> = Vec::new();
        for (at, kind) in (first..).zip(&self.types) {
            match runs.last_mut() {
                Some((_, end, same)) if same == kind => *end = at,
                _ => runs.push((at, at, *kind)),
            }
        }
        Ok(runs)
    }
}

/// A change that the coordinator has to keep.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StateUpdate {
    /// Everything before it is done with.
    pub start: Offset,
    /// Offsets from the start on that are done with.
    pub complete: i32,
    /// What has become of some records, in order.
    pub batches: Vec<StateBatch>,
}

/// Why a record is not delivered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathCause {
    /// A member has rejected it.
    Rejected,
    /// It was given out as often as it may be.
    TooOften,
}

/// Neighbouring records that are to become dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead {
    /// First offset.
    pub first: Offset,
    /// Last offset.
    pub last: Offset,
    /// How often they were given out.
    pub delivery_count: i16,
    /// Why.
    pub cause: DeathCause,
}

/// One partition as one share group sees it.
#[derive(Clone, Debug)]
pub struct SharePartition {
    start: i64,
    /// Exclusive. Every offset from the start up to it has a state.
    end: i64,
    records: Ranges<Record>,
    available: i64,
    complete: i64,
    /// Acquired and delayed records by when their time is up.
    times: BTreeMap<Duration, i64>,
    /// Ranges whose state isn't told yet.
    untold: Vec<(i64, i64)>,
    /// The start was not told yet.
    moved: bool,
    /// Ranges that are archiving and that nobody has taken yet.
    dead: Vec<(i64, i64)>,
    /// While keys are kept in order.
    keys: Option<Keys>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    state: State,
    /// How often it was given out; 0 once it is done with.
    count: i16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Available,
    Delayed { until: Duration },
    Acquired { member: Arc<str>, until: Duration },
    Archiving(DeathCause),
    Acknowledged,
    Archived,
}

impl State {
    /// When it ends by itself.
    fn until(&self) -> Option<Duration> {
        match self {
            State::Acquired { until, .. } | State::Delayed { until } => Some(*until),
            _ => None,
        }
    }

    /// What becomes of the keys of such records.
    fn standing(&self) -> Standing {
        match self {
            State::Available => Standing::Available,
            State::Delayed { .. } | State::Acquired { .. } => Standing::Waiting,
            // The next record of its key need not wait for a dead letter.
            State::Archiving(_) | State::Acknowledged | State::Archived => Standing::Done,
        }
    }
}

impl Record {
    const ARCHIVED: Record = Record {
        state: State::Archived,
        count: 0,
    };

    fn is_complete(&self) -> bool {
        matches!(self.state, State::Acknowledged | State::Archived)
    }

    /// Given back: offered again after a while, unless it was given out often enough.
    fn released(
        count: i16,
        after: Option<Duration>,
        now: Duration,
        limits: &ShareLimits,
    ) -> Record {
        if count >= limits.delivery_limit && !active(Mutant::ShareLimitIgnored) {
            return Record::ended(count, DeathCause::TooOften, limits);
        }
        let delay = after.unwrap_or_else(|| limits.delay(count));
        let state = match delay.min(LONGEST_DELAY) {
            Duration::ZERO => State::Available,
            delay => State::Delayed {
                until: now.saturating_add(delay),
            },
        };
        Record { state, count }
    }

    /// Not to be delivered any more.
    fn ended(count: i16, cause: DeathCause, limits: &ShareLimits) -> Record {
        match limits.dead_letters {
            true => Record {
                state: State::Archiving(cause),
                count,
            },
            false => Record::ARCHIVED,
        }
    }
}

impl SharePartition {
    /// Nothing was given out; the first record is that at `start`, which is still to be told.
    pub fn new(start: Offset) -> SharePartition {
        SharePartition {
            start: start.0,
            end: start.0,
            records: Ranges::default(),
            available: 0,
            complete: 0,
            times: BTreeMap::new(),
            untold: Vec::new(),
            moved: true,
            dead: Vec::new(),
            keys: None,
        }
    }

    /// As the coordinator kept it. What lies between its batches was given out, and nobody said anything of it.
    pub fn restored(
        start: Offset,
        batches: &[StateBatch],
        now: Now,
        limits: &ShareLimits,
    ) -> SharePartition {
        let mut partition = SharePartition::new(start);
        partition.moved = false;
        for batch in batches {
            let (first, last) = (batch.first.0.max(partition.end), batch.last.0);
            if last < first || last == i64::MAX {
                continue;
            }
            let unsaid = (partition.end, first - 1);
            if unsaid.0 <= unsaid.1 {
                let fresh = match active(Mutant::ShareGapsArchived) {
                    true => Record::ARCHIVED,
                    false => Record {
                        state: State::Available,
                        count: 0,
                    },
                };
                partition.put(unsaid.0, unsaid.1, fresh);
            }
            let count = batch.delivery_count;
            let record = match batch.state {
                DeliveryState::Available => {
                    let left = batch.not_before.saturating_sub(now.wall_ms);
                    // A wall clock that was set back meanwhile makes no rest longer than it was.
                    let left = match batch.rest {
                        0 => left,
                        rest => left.min(rest),
                    };
                    let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
                    let state = match left.min(LONGEST_DELAY) {
                        Duration::ZERO => State::Available,
                        left => State::Delayed {
                            until: now.mono.saturating_add(left),
                        },
                    };
                    Record { state, count }
                }
                DeliveryState::Archiving => {
                    let cause = match count >= limits.delivery_limit {
                        true => DeathCause::TooOften,
                        false => DeathCause::Rejected,
                    };
                    partition.dead.push((first, last));
                    let state = State::Archiving(cause);
                    Record { state, count }
                }
                DeliveryState::Acknowledged => Record {
                    state: State::Acknowledged,
                    count: 0,
                },
                DeliveryState::Archived => Record::ARCHIVED,
            };
            partition.put(first, last, record);
            partition.end = last + 1;
        }
        partition.advance();
        partition
    }

    /// Everything before it is done with.
    pub fn start(&self) -> Offset {
        Offset(self.start)
    }

    /// Nothing from it on was ever given out.
    pub fn end(&self) -> Offset {
        Offset(self.end)
    }

    /// From where to read what can be acquired; `None` while nothing can, whatever the log has.
    pub fn next_fetch(&mut self, limits: &ShareLimits) -> Option<Offset> {
        self.keep_order(limits.key_order);
        if let Some(keys) = &self.keys {
            // What is there must be known before anything after it can be given out.
            if keys.known_to() < self.end {
                return Some(Offset(keys.known_to()));
            }
            if let Some(first) = keys.first_free() {
                return Some(Offset(first));
            }
        } else if self.available > 0 {
            let mut records = self.records.iter();
            let first = records.find(|(_, _, record)| record.state == State::Available);
            return first.map(|(first, ..)| Offset(first));
        }
        (self.end - self.start < limits.max_locks).then_some(Offset(self.end))
    }

    fn keep_order(&mut self, on: bool) {
        if on && self.keys.is_none() {
            let known_to = match active(Mutant::ShareKeysNotReadAgain) {
                true => self.end,
                false => self.start,
            };
            self.keys = Some(Keys::new(known_to));
        } else if !on {
            self.keys = None;
        }
    }

    /// Gives out records. `fetched` are the batches that the log has from `from` on, without holes: offsets between
    /// them are those of records that no longer exist.
    pub fn acquire(
        &mut self,
        ask: &Acquire,
        from: Offset,
        fetched: &[FetchedBatch],
        now: Duration,
        limits: &ShareLimits,
    ) -> Vec<Acquired> {
        self.keep_order(limits.key_order);
        let mut acquiring = Acquiring::new(ask, limits, now);
        let mut next = from.0.max(self.start);
        let past = self.keys.as_ref().map_or(self.end, |k| k.known_to());
        if next > past.min(self.end) {
            return Vec::new();
        }
        for batch in fetched {
            let (first, last) = (batch.first.0.max(next), batch.last.0);
            if last < first {
                continue;
            }
            if acquiring.is_full() || last == i64::MAX {
                break;
            }
            if first > next {
                self.skip(next, first - 1, limits);
            }
            if !batch.visible {
                self.skip(first, last, limits);
            } else if self.keys.is_some() {
                acquiring.by_key(self, first, last, batch.keys.as_deref());
            } else {
                acquiring.batch(self, first, last);
            }
            next = last + 1;
            if next > self.end {
                // The window is full, or the limit lies within the batch.
                break;
            }
        }
        self.advance();
        acquiring.acquired
    }

    /// Offsets without a record that anybody could get.
    fn skip(&mut self, first: i64, last: i64, limits: &ShareLimits) {
        self.change(first, last.min(self.end - 1), |record| {
            let offered = matches!(record.state, State::Available | State::Delayed { .. });
            offered.then_some(Record::ARCHIVED)
        });
        let fresh = first.max(self.end);
        if fresh <= last && fresh == self.end && self.end - self.start < limits.max_locks {
            self.put(fresh, last, Record::ARCHIVED);
            self.untold.push((fresh, last));
            self.end = last + 1;
        }
        if let Some(keys) = &mut self.keys {
            keys.nothing_in(first, last.min(self.end - 1));
        }
    }

    /// Takes what a member says of records that it has: all of it, or nothing.
    ///
    /// What it changed must be kept by the coordinator before the member gets its answer. Records before the start are
    /// done with, and nothing is said against them.
    ///
    /// - INVALID_REQUEST: ranges that overlap, are out of order, have another number of types than of offsets, or hold records
    ///   that nobody was ever given.
    /// - INVALID_RECORD_STATE: the member doesn't have all these records (any more).
    pub fn acknowledge(
        &mut self,
        member: &str,
        acknowledgements: &[Acknowledgement],
        now: Duration,
        limits: &ShareLimits,
    ) -> Result<(), ErrorCode> {
        let mut runs = Vec::new();
        for acknowledgement in acknowledgements {
            let more = acknowledgement.runs()?;
            let before: Option<&(i64, i64, Acknowledge)> = runs.last();
            if before.is_some_and(|(_, end, _)| acknowledgement.first.0 <= *end) {
                return Err(ErrorCode::INVALID_REQUEST);
            }
            runs.extend(more);
        }
        if runs.last().is_some_and(|(_, last, _)| *last >= self.end) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        for (first, last, _) in &runs {
            if !self.has(member, (*first).max(self.start), *last) {
                return Err(ErrorCode::INVALID_RECORD_STATE);
            }
        }
        let until = now.saturating_add(limits.lock_duration);
        for (first, last, kind) in runs {
            let first = first.max(self.start);
            self.change(first, last, |record| {
                let State::Acquired { member, .. } = &record.state else {
                    return None;
                };
                let done = |state| Record { state, count: 0 };
                Some(match kind {
                    Acknowledge::Accept => done(State::Acknowledged),
                    Acknowledge::Gap => Record::ARCHIVED,
                    Acknowledge::Reject => {
                        Record::ended(record.count, DeathCause::Rejected, limits)
                    }
                    Acknowledge::Release => Record::released(record.count, None, now, limits),
                    Acknowledge::ReleaseAfter(delay) => {
                        Record::released(record.count, Some(delay), now, limits)
                    }
                    Acknowledge::Renew => Record {
                        state: State::Acquired {
                            member: member.clone(),
                            until,
                        },
                        count: record.count,
                    },
                })
            });
        }
        self.advance();
        Ok(())
    }

    fn has(&self, member: &str, first: i64, last: i64) -> bool {
        let mut pieces = self.records.within(first, last);
        pieces.all(|(_, _, record)| match &record.state {
            State::Acquired { member: by, .. } => {
                **by == *member || active(Mutant::ShareStrangerHeard)
            }
            _ => false,
        })
    }

    /// A member's session is over: what it has is given back.
    pub fn release(&mut self, member: &str, now: Duration, limits: &ShareLimits) {
        self.change(self.start, self.end - 1, |record| {
            let held =
                matches!(&record.state, State::Acquired { member: by, .. } if **by == *member);
            held.then(|| Record::released(record.count, None, now, limits))
        });
        self.advance();
    }

    /// Gives back records whose time is up, and offers those that were kept back for long enough.
    pub fn expire(&mut self, now: Duration, limits: &ShareLimits) {
        if self.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.change(self.start, self.end - 1, |record| {
            let over = matches!(&record.state, State::Acquired { until, .. } if *until <= now);
            let over = over && !active(Mutant::ShareLockForEver);
            over.then(|| Record::released(record.count, None, now, limits))
        });
        let is_over =
            |record: &Record| matches!(record.state, State::Delayed { until } if until <= now);
        let over = self.records.within(self.start, self.end - 1);
        let over = over.filter(|(_, _, record)| is_over(record));
        let over: Vec<(i64, i64, i16)> = over.map(|(f, l, record)| (f, l, record.count)).collect();
        // The coordinator knows from when on they are offered.
        for (first, last, count) in over {
            self.take(first, last);
            let state = State::Available;
            self.put(first, last, Record { state, count });
        }
        self.advance();
    }

    /// Records that are to become dead letters, each once.
    pub fn take_dead(&mut self) -> Vec<Dead> {
        let mut dead = Vec::new();
        for (first, last) in std::mem::take(&mut self.dead) {
            for (first, last, record) in self.records.within(first, last) {
                if let State::Archiving(cause) = record.state {
                    dead.push(Dead {
                        first: Offset(first),
                        last: Offset(last),
                        delivery_count: record.count,
                        cause,
                    });
                }
            }
        }
        dead
    }

    /// They are dead letters now, or can't be made ones.
    pub fn bury(&mut self, first: Offset, last: Offset) {
        self.change(first.0, last.0, |record| {
            matches!(record.state, State::Archiving(_)).then_some(Record::ARCHIVED)
        });
        self.advance();
    }

    /// When the time of some record is up.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.times.first_key_value().map(|(at, _)| *at)
    }

    /// The log begins at `start` now: what lay before it can't be given out, and needs no acknowledgement.
    pub fn log_starts_at(&mut self, start: Offset) {
        if start.0 <= self.start {
            return;
        }
        self.take(self.start, start.0 - 1);
        self.start = start.0;
        self.end = self.end.max(start.0);
        self.moved = true;
        self.advance();
    }

    /// Whether the coordinator knows everything.
    pub fn is_told(&self) -> bool {
        self.untold.is_empty() && !self.moved
    }

    /// What the coordinator doesn't know yet.
    pub fn take_update(&mut self, now: Now) -> Option<StateUpdate> {
        if self.is_told() {
            return None;
        }
        self.moved = false;
        let mut batches = Vec::new();
        let mut untold = std::mem::take(&mut self.untold);
        untold.sort_unstable();
        let mut next = self.start;
        for (first, last) in untold {
            for (first, last, record) in self.records.within(first.max(next), last) {
                let (mut not_before, mut rest) = (0, 0);
                let mut delivery_count = record.count;
                let state = match record.state {
                    State::Available => DeliveryState::Available,
                    State::Delayed { until } => {
                        let left = until.saturating_sub(now.mono).as_millis();
                        let left = i64::try_from(left).unwrap_or(i64::MAX);
                        if left > 0 && !active(Mutant::ShareRestForgotten) {
                            (not_before, rest) = (now.wall_ms.saturating_add(left), left);
                        }
                        DeliveryState::Available
                    }
                    State::Archiving(_) => DeliveryState::Archiving,
                    State::Acknowledged => DeliveryState::Acknowledged,
                    State::Archived => DeliveryState::Archived,
                    // It was given back, and somebody has it again already. That it was given out before is what whoever gave it back is
                    // promised; what is under way counts when it ends.
                    State::Acquired { .. } => {
                        delivery_count = delivery_count.saturating_sub(1);
                        DeliveryState::Available
                    }
                };
                batches.push(StateBatch {
                    first: Offset(first),
                    last: Offset(last),
                    state,
                    delivery_count: match active(Mutant::ShareCountForgotten) {
                        true => 0,
                        false => delivery_count,
                    },
                    not_before,
                    rest,
                });
            }
            next = next.max(last + 1);
        }
        Some(StateUpdate {
            start: Offset(self.start),
            complete: i32::try_from(self.complete).unwrap_or(i32::MAX),
            batches,
        })
    }

    /// Replaces records of a range by what `to` makes of them; `None` leaves them.
    fn change(&mut self, first: i64, last: i64, to: impl Fn(&Record) -> Option<Record>) {
        let concerned = self.records.within(first, last);
        let changes: Vec<(i64, i64, Record)> = concerned
            .filter_map(|(first, last, record)| Some((first, last, to(record)?)))
            .collect();
        for (first, last, record) in changes {
            self.take(first, last);
            if !matches!(record.state, State::Acquired { .. }) {
                self.untold.push((first, last));
            }
            if matches!(record.state, State::Archiving(_)) {
                self.dead.push((first, last));
            }
            self.put(first, last, record);
        }
    }

    fn take(&mut self, first: i64, last: i64) {
        for (first, last, record) in self.records.take(first, last) {
            let count = last - first + 1;
            match record.state {
                State::Available => self.available -= count,
                State::Acknowledged | State::Archived => self.complete -= count,
                State::Delayed { until } | State::Acquired { until, .. } => {
                    if let Some(number) = self.times.get_mut(&until) {
                        *number -= count;
                        if *number <= 0 {
                            self.times.remove(&until);
                        }
                    }
                }
                State::Archiving(_) => {}
            }
        }
    }

    fn put(&mut self, first: i64, last: i64, record: Record) {
        let count = last - first + 1;
        match &record.state {
            State::Available => self.available += count,
            State::Acknowledged | State::Archived => self.complete += count,
            state => {
                // Nobody is to be woken for a time that never comes.
                let never =
                    matches!(state, State::Acquired { .. }) && active(Mutant::ShareLockForEver);
                if let Some(until) = state.until().filter(|_| !never) {
                    *self.times.entry(until).or_default() += count;
                }
            }
        }
        if let Some(keys) = &mut self.keys {
            keys.set(first, last, record.state.standing());
        }
        self.records.put(first, last, record);
    }

    /// The start moves over what is done with.
    fn advance(&mut self) {
        while let Some((first, last, record)) = self.records.first()
            && record.is_complete()
        {
            self.take(first, last);
            self.start = last + 1;
            self.moved = true;
        }
        if let Some(keys) = &mut self.keys {
            keys.starts_at(self.start);
        }
    }
}
