//! One partition as one share group sees it: which records are in flight, who has them, how often they were given out.
//!
//! Offsets from the *start* to the *end* have a state each: available, acquired by a member for a time, acknowledged or
//! archived. What lies below the start is done with, what lies from the end on was never given out. Acquired is what no fail-over
//! keeps: a new leader offers those records again. All else is told to the coordinator as a [`StateUpdate`], and whoever
//! acknowledged waits for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::{ErrorCode, Offset};

use super::ranges::Ranges;
use super::records::{DeliveryState, StateBatch};

#[cfg(test)]
mod tests;

/// What a group may do on one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// `share.partition.max.record.locks`: offsets from the start to the end.
    pub max_locks: i64,
    /// `share.delivery.count.limit`: how often a record is given out before it is archived.
    pub delivery_limit: i16,
    /// `share.record.lock.duration.ms`.
    pub lock_duration: Duration,
}

impl Default for ShareLimits {
    fn default() -> Self {
        ShareLimits {
            max_locks: 2_000,
            delivery_limit: 5,
            lock_duration: Duration::from_secs(30),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedBatch {
    /// First offset.
    pub first: Offset,
    /// Last offset.
    pub last: Offset,
    /// It has records for readers: no control batch, and under read committed not of an aborted transaction.
    pub visible: bool,
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

/// One partition as one share group sees it.
#[derive(Clone, Debug)]
pub struct SharePartition {
    start: i64,
    /// Exclusive. Every offset from the start up to it has a state.
    end: i64,
    records: Ranges<Record>,
    available: i64,
    complete: i64,
    /// Acquired records by when their time is up.
    locks: BTreeMap<Duration, i64>,
    /// Ranges whose state isn't told yet.
    untold: Vec<(i64, i64)>,
    /// The start was not told yet.
    moved: bool,
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
    Acquired { member: Arc<str>, until: Duration },
    Acknowledged,
    Archived,
}

impl Record {
    const ARCHIVED: Record = Record {
        state: State::Archived,
        count: 0,
    };

    fn is_complete(&self) -> bool {
        matches!(self.state, State::Acknowledged | State::Archived)
    }

    /// Given back: offered again, unless it was given out often enough.
    fn released(count: i16, limits: &ShareLimits) -> Record {
        if count >= limits.delivery_limit {
            return Record::ARCHIVED;
        }
        Record {
            state: State::Available,
            count,
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
            locks: BTreeMap::new(),
            untold: Vec::new(),
            moved: true,
        }
    }

    /// As the coordinator kept it. What lies between its batches was given out, and nobody said anything of it.
    pub fn restored(start: Offset, batches: &[StateBatch]) -> SharePartition {
        let mut partition = SharePartition::new(start);
        partition.moved = false;
        for batch in batches {
            let (first, last) = (batch.first.0.max(partition.end), batch.last.0);
            if last < first || last == i64::MAX {
                continue;
            }
            let unsaid = (partition.end, first - 1);
            if unsaid.0 <= unsaid.1 {
                let fresh = Record {
                    state: State::Available,
                    count: 0,
                };
                partition.put(unsaid.0, unsaid.1, fresh);
            }
            let record = match batch.state {
                DeliveryState::Available => Record {
                    state: State::Available,
                    count: batch.delivery_count,
                },
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
    pub fn next_fetch(&self, limits: &ShareLimits) -> Option<Offset> {
        if self.available > 0 {
            let mut records = self.records.iter();
            let first = records.find(|(_, _, record)| record.state == State::Available);
            return first.map(|(first, ..)| Offset(first));
        }
        (self.end - self.start < limits.max_locks).then_some(Offset(self.end))
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
        let mut acquiring = Acquiring {
            ask,
            limits,
            until: now.saturating_add(limits.lock_duration),
            left: ask.max_records,
            acquired: Vec::new(),
        };
        let mut next = from.0.max(self.start);
        if next > self.end {
            return Vec::new();
        }
        for batch in fetched {
            let (first, last) = (batch.first.0.max(next), batch.last.0);
            if last < first {
                continue;
            }
            if acquiring.left <= 0 || last == i64::MAX {
                break;
            }
            if first > next {
                self.skip(next, first - 1, limits);
            }
            if batch.visible {
                acquiring.batch(self, first, last);
            } else {
                self.skip(first, last, limits);
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
            (record.state == State::Available).then_some(Record::ARCHIVED)
        });
        let first = first.max(self.end);
        if first <= last && first == self.end && self.end - self.start < limits.max_locks {
            self.put(first, last, Record::ARCHIVED);
            self.untold.push((first, last));
            self.end = last + 1;
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
                    Acknowledge::Gap | Acknowledge::Reject => Record::ARCHIVED,
                    Acknowledge::Release => Record::released(record.count, limits),
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
        pieces.all(|(_, _, record)| {
                matches!(&record.state, State::Acquired { member: by, .. } if **by == *member)
            })
    }

    /// A member's session is over: what it has is given back.
    pub fn release(&mut self, member: &str, limits: &ShareLimits) {
        self.change(self.start, self.end - 1, |record| {
            let held =
                matches!(&record.state, State::Acquired { member: by, .. } if **by == *member);
            held.then(|| Record::released(record.count, limits))
        });
        self.advance();
    }

    /// Gives back records whose time is up.
    pub fn expire(&mut self, now: Duration, limits: &ShareLimits) {
        if self.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.change(self.start, self.end - 1, |record| {
            let over = matches!(&record.state, State::Acquired { until, .. } if *until <= now);
            over.then(|| Record::released(record.count, limits))
        });
        self.advance();
    }

    /// When the time of some record is up.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.locks.first_key_value().map(|(at, _)| *at)
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
    pub fn take_update(&mut self) -> Option<StateUpdate> {
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
                let state = match record.state {
                    State::Available => DeliveryState::Available,
                    State::Acknowledged => DeliveryState::Acknowledged,
                    State::Archived => DeliveryState::Archived,
                    State::Acquired { .. } => continue,
                };
                batches.push(StateBatch {
                    first: Offset(first),
                    last: Offset(last),
                    state,
                    delivery_count: record.count,
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
            self.put(first, last, record);
        }
    }

    fn take(&mut self, first: i64, last: i64) {
        for (first, last, record) in self.records.take(first, last) {
            let count = last - first + 1;
            match record.state {
                State::Available => self.available -= count,
                State::Acknowledged | State::Archived => self.complete -= count,
                State::Acquired { until, .. } => {
                    if let Some(locked) = self.locks.get_mut(&until) {
                        *locked -= count;
                        if *locked <= 0 {
                            self.locks.remove(&until);
                        }
                    }
                }
            }
        }
    }

    fn put(&mut self, first: i64, last: i64, record: Record) {
        let count = last - first + 1;
        match &record.state {
            State::Available => self.available += count,
            State::Acknowledged | State::Archived => self.complete += count,
            State::Acquired { until, .. } => *self.locks.entry(*until).or_default() += count,
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
    }
}

/// Records that are being given out.
struct Acquiring<'a> {
    ask: &'a Acquire,
    limits: &'a ShareLimits,
    until: Duration,
    left: i64,
    acquired: Vec<Acquired>,
}

impl Acquiring<'_> {
    /// Gives out what can be of a batch.
    fn batch(&mut self, partition: &mut SharePartition, first: i64, last: i64) {
        let mut fresh_range = true;
        let offered = partition.records.within(first, last.min(partition.end - 1));
        let offered: Vec<(i64, i64, i16)> = offered
            .filter(|(_, _, record)| record.state == State::Available)
            .map(|(first, last, record)| (first, last, record.count))
            .collect();
        for (first, last, count) in offered {
            let Some(last) = self.until(first, last) else {
                return;
            };
            partition.take(first, last);
            self.give(partition, first, last, count, &mut fresh_range);
        }
        let first = first.max(partition.end);
        let room = self.limits.max_locks - (partition.end - partition.start);
        if first > last || first != partition.end || room <= 0 {
            return;
        }
        let last = match self.ask.mode {
            AcquireMode::BatchOptimized => last,
            AcquireMode::RecordLimit => last.min(first.saturating_add(room - 1)),
        };
        if let Some(last) = self.until(first, last) {
            partition.end = last + 1;
            self.give(partition, first, last, 0, &mut fresh_range);
        }
    }

    /// How far a range may be given out.
    fn until(&self, first: i64, last: i64) -> Option<i64> {
        match self.ask.mode {
            AcquireMode::BatchOptimized => Some(last),
            AcquireMode::RecordLimit if self.left <= 0 => None,
            AcquireMode::RecordLimit => Some(last.min(first.saturating_add(self.left - 1))),
        }
    }

    fn give(
        &mut self,
        partition: &mut SharePartition,
        first: i64,
        last: i64,
        count: i16,
        fresh_range: &mut bool,
    ) {
        let delivery_count = count.saturating_add(1);
        let record = Record {
            state: State::Acquired {
                member: self.ask.member.clone(),
                until: self.until,
            },
            count: delivery_count,
        };
        partition.put(first, last, record);
        self.left -= last - first + 1;
        let (first, last) = (Offset(first), Offset(last));
        // A range that is large enough ends where a batch does.
        let may_split = std::mem::take(fresh_range);
        if let Some(before) = self.acquired.last_mut()
            && before.last.0 + 1 == first.0
            && before.delivery_count == delivery_count
            && !(may_split && before.last.0 - before.first.0 + 1 >= self.ask.batch_size)
        {
            before.last = last;
        } else {
            self.acquired.push(Acquired {
                first,
                last,
                delivery_count,
            });
        }
    }
}
