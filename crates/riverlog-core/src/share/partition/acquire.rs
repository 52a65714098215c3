//! Which records a member is given.

use std::time::Duration;

use riverlog_wire::Offset;

use super::{Acquire, AcquireMode, Acquired, Record, ShareLimits, SharePartition, State};

/// Records that are being given out.
pub(super) struct Acquiring<'a> {
    ask: &'a Acquire,
    limits: &'a ShareLimits,
    until: Duration,
    left: i64,
    pub(super) acquired: Vec<Acquired>,
}

impl<'a> Acquiring<'a> {
    pub(super) fn new(ask: &'a Acquire, limits: &'a ShareLimits, now: Duration) -> Self {
        Acquiring {
            ask,
            limits,
            until: now.saturating_add(limits.lock_duration),
            left: ask.max_records,
            acquired: Vec::new(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.left <= 0
    }

    /// Looks at the records of a batch one by one, and gives out those whose keys are free. `keys`: `None` for a batch
    /// that can't be read, of which each offset counts as a record without a key.
    pub(super) fn by_key(
        &mut self,
        partition: &mut SharePartition,
        first: i64,
        last: i64,
        keys: Option<&[(i64, Option<u64>)]>,
    ) {
        let plain: Vec<(i64, Option<u64>)>;
        let records = match keys {
            Some(records) => records,
            None => {
                // A look at more than the window holds would be for nothing.
                let until = last.min(first.saturating_add(self.limits.max_locks));
                plain = (first..=until).map(|at| (at, None)).collect();
                &plain
            }
        };
        let mut fresh_range = true;
        let mut next = first;
        for (at, key) in records {
            let at = *at;
            if at < next || at > last {
                continue;
            }
            if at > next {
                partition.skip(next, at - 1, self.limits);
            }
            if self.is_full() {
                return;
            }
            if at >= partition.end {
                if at > partition.end || partition.end - partition.start >= self.limits.max_locks {
                    return;
                }
                let fresh = Record {
                    state: State::Available,
                    count: 0,
                };
                partition.put(at, at, fresh);
                partition.end = at + 1;
            }
            let record = partition.records.within(at, at).next();
            let record = record.map(|(_, _, record)| record.clone());
            let (Some(record), Some(order)) = (record, &mut partition.keys) else {
                return;
            };
            order.learn(at, *key, record.state.standing());
            if order.is_free(at) {
                partition.take(at, at);
                self.give(partition, at, at, record.count, &mut fresh_range);
            }
            next = at + 1;
        }
        if next <= last && keys.is_some() {
            partition.skip(next, last, self.limits);
        }
    }

    /// Gives out what can be of a batch.
    pub(super) fn batch(&mut self, partition: &mut SharePartition, first: i64, last: i64) {
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
