//! Keys in order: of the records of one key, only the first that isn't done with may be given out.
//!
//! Keys aren't kept by the coordinator. After a fail-over the records between start and end are read again, in order, and until
//! the key of one is known nothing after it is given out.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_mutants::{Mutant, active};

/// What can become of a record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can be given out when it is the first of its key.
    Available,
    /// It can't be given out now, and the rest of its key waits for it.
    Waiting,
    /// The next of its key has its turn.
    Done,
}

/// The keys of records that aren't done with.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// All before it are known.
    known_to: i64,
    entries: BTreeMap<i64, Entry>,
    /// Offsets of each key.
    queues: BTreeMap<u64, BTreeSet<i64>>,
    /// Available, and the first of their key or without one.
    free: BTreeSet<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Option<u64>,
    available: bool,
}

impl Keys {
    pub(super) fn new(start: i64) -> Keys {
        Keys {
            known_to: start,
            entries: BTreeMap::new(),
            queues: BTreeMap::new(),
            free: BTreeSet::new(),
        }
    }

    pub(super) fn known_to(&self) -> i64 {
        self.known_to
    }

    pub(super) fn first_free(&self) -> Option<i64> {
        self.free.first().copied()
    }

    pub(super) fn is_free(&self, at: i64) -> bool {
        self.free.contains(&at)
    }

    /// The record at an offset was seen. Only the first that isn't known brings news.
    pub(super) fn learn(&mut self, at: i64, key: Option<u64>, standing: Standing) {
        if at != self.known_to {
            return;
        }
        self.known_to = at + 1;
        if standing == Standing::Done {
            return;
        }
        let available = standing == Standing::Available;
        self.entries.insert(at, Entry { key, available });
        if let Some(key) = key {
            self.queues.entry(key).or_default().insert(at);
        }
        self.look_at(at);
    }

    /// There are no records there.
    pub(super) fn nothing_in(&mut self, first: i64, last: i64) {
        if first <= self.known_to {
            self.known_to = self.known_to.max(last + 1);
        }
    }

    /// Everything before it is done with.
    pub(super) fn starts_at(&mut self, start: i64) {
        self.known_to = self.known_to.max(start);
        while let Some((at, _)) = self.entries.first_key_value()
            && *at < start
        {
            let at = *at;
            self.set(at, at, Standing::Done);
        }
    }

    pub(super) fn set(&mut self, first: i64, last: i64, standing: Standing) {
        if first > last {
            return;
        }
        let known = self.entries.range(first..=last);
        let known: Vec<i64> = known.map(|(at, _)| *at).collect();
        for at in known {
            if standing != Standing::Done {
                if let Some(entry) = self.entries.get_mut(&at) {
                    entry.available = standing == Standing::Available;
                }
                self.look_at(at);
                continue;
            }
            self.free.remove(&at);
            let Some(Entry { key: Some(key), .. }) = self.entries.remove(&at) else {
                continue;
            };
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            queue.remove(&at);
            match queue.first().copied() {
                Some(next) => self.look_at(next),
                None => {
                    self.queues.remove(&key);
                }
            }
        }
    }

    /// Whether it is free now.
    fn look_at(&mut self, at: i64) {
        let is_first = |key| self.queues.get(&key).and_then(|queue| queue.first()) == Some(&at);
        let goes = |key| is_first(key) || active(Mutant::ShareKeyLockIgnored);
        let entry = self.entries.get(&at);
        if entry.is_some_and(|e| e.available && e.key.is_none_or(goes)) {
            self.free.insert(at);
        } else {
            self.free.remove(&at);
        }
    }
}
