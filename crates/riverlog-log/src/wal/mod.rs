//! The write-ahead log of a volume: batches of all `sync` partitions in one recycled file set, one
//! `fdatasync` a group. Format and recovery: `docs/format/wal.md`.

mod format;
mod open;
mod ring;
mod scan;
mod write;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::Offset;

pub(crate) use self::format::Mark;
use self::format::{BLOCK, ENTRY_HEAD, Logged, group_bytes};
pub(crate) use self::open::{REMEDY, Recovered, WalStart};
use self::ring::Ring;
use self::write::{Group, fit};
use crate::DiskError;
use crate::volume::LogKey;

/// A place in the write-ahead log: counts bytes since the volume was made and never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Lsn(pub u64);

/// What recovery must do again. Entries of one log are in the order in which they were submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalEntry {
    /// One or more whole batches, as they lie in the segment, `base..next`.
    Append {
        /// The log.
        key: LogKey,
        /// Offset of the first record.
        base: Offset,
        /// Offset after the last record.
        next: Offset,
        /// Their bytes.
        batches: Bytes,
    },
    /// The log was cut: nothing at or after `to` is left.
    Truncate {
        /// The log.
        key: LogKey,
        /// The new end.
        to: Offset,
    },
    /// Nothing before `to` can be read any more; `to` may be the end, or beyond it (start anew there).
    StartOffset {
        /// The log.
        key: LogKey,
        /// The new start.
        to: Offset,
    },
}

impl WalEntry {
    /// Whose entry it is.
    pub(crate) fn key(&self) -> LogKey {
        match self {
            WalEntry::Append { key, .. }
            | WalEntry::Truncate { key, .. }
            | WalEntry::StartOffset { key, .. } => *key,
        }
    }
    /// Bytes that it takes in the stream of entries.
    pub(crate) fn stream_bytes(&self) -> u64 {
        let batches = match self {
            WalEntry::Append { batches, .. } => batches.len(),
            WalEntry::Truncate { .. } | WalEntry::StartOffset { .. } => 0,
        };
        (ENTRY_HEAD + batches) as u64
    }
}

/// The write-ahead log. Its calls may come from several threads; at most one flush runs at a time.
#[derive(Debug)]
pub(crate) struct Wal {
    settings: WalSettings,
    volume: u128,
    state: Mutex<State>,
    /// Held by the one flush that runs.
    flushing: Mutex<()>,
}

/// Settings of the write-ahead log.
#[derive(Clone, Debug)]
pub(crate) struct WalSettings {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes of each recycled file; rounded to blocks, and so that there are at least two files.
    pub segment_bytes: u64,
}

impl WalSettings {
    fn rounded(self) -> WalSettings {
        let segment_bytes = self.segment_bytes.next_multiple_of(BLOCK).max(4 * BLOCK);
        WalSettings {
            capacity: self.capacity.max(2 * segment_bytes),
            segment_bytes,
        }
    }
    fn slots(&self) -> usize {
        (self.capacity / self.segment_bytes).min(u64::from(u16::MAX)) as usize
    }
}

/// What a checkpoint knows of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalPlace {
    /// End of its last durable group.
    pub durable: Lsn,
    /// The segment being written.
    pub segment: u64,
    /// Header CRC of the last group.
    pub previous: u32,
}

/// Durable ends by log, of those that moved.
pub(crate) type SyncedEnds = BTreeMap<LogKey, Offset>;

#[derive(Debug)]
struct State {
    ring: Ring,
    queue: VecDeque<(Lsn, Logged)>,
    queued_bytes: usize,
    /// Ends that became durable and that nobody has asked for yet.
    synced: SyncedEnds,
    submitted: Lsn,
    durable: Lsn,
    released: Lsn,
    /// What the last durable group says of `released`.
    persisted: Lsn,
    /// Header CRC, and end, of the last durable group. The end can lie before `durable`, at a start that skipped places.
    previous: u32,
    group_end: Lsn,
    /// A flush found no free slot; cleared when one may be.
    blocked: bool,
    failed: Option<DiskError>,
}

/// Why a flush could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum FlushError {
    /// The oldest part is still needed.
    #[error("the write-ahead log is full until the oldest segments are synced")]
    Full,
    /// The disk failed, or had no room.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl Wal {
    /// Queues the end of a log's life: recovery forgets its earlier entries.
    pub(crate) fn submit_deleted(&self, key: LogKey) -> Range<Lsn> {
        self.push(Logged::Deleted(key))
    }
    /// Queues what is known of a log: recovery begins there.
    pub(crate) fn submit_mark(&self, key: LogKey, mark: Mark) -> Range<Lsn> {
        self.push(Logged::Mark(key, mark))
    }
    /// Queues an entry in memory (no I/O) and returns the places before and after it. The entry is durable once
    /// [`Wal::durable`] has reached the latter. After the log has failed, entries are dropped: they can't become durable.
    pub(crate) fn submit(&self, entry: WalEntry) -> Range<Lsn> {
        self.push(Logged::Entry(entry))
    }
    fn push(&self, logged: Logged) -> Range<Lsn> {
        let mut state = self.state.lock();
        let start = state.submitted;
        let end = Lsn(start.0 + logged.len());
        state.submitted = end;
        if state.failed.is_none() {
            state.queued_bytes += logged.len() as usize;
            state.queue.push_back((end, logged));
        }
        start..end
    }
    /// Takes back the cut whose place ends at `end`, if it has not come into a file: an entry that says nothing new takes its place.
    pub(crate) fn withdraw_cut(&self, end: Lsn) -> bool {
        let _no_group_is_on_its_way = self.flushing.lock();
        let mut state = self.state.lock();
        let queued = state.queue.iter_mut().find(|(at, _)| *at == end);
        let Some((_, Logged::Entry(entry))) = queued else {
            return false;
        };
        let WalEntry::Truncate { key, .. } = *entry else {
            return false;
        };
        let to = Offset::ZERO;
        *entry = WalEntry::StartOffset { key, to };
        true
    }
    /// Bytes queued that are not durable yet, in a flush or waiting for one.
    pub(crate) fn queued(&self) -> usize {
        self.state.lock().queued_bytes
    }
    /// Whether a flush has something to do and could do it, or something to tell.
    pub(crate) fn wants_flush(&self) -> bool {
        let state = self.state.lock();
        let could = !state.queue.is_empty() && !state.blocked && state.failed.is_none();
        could || !state.synced.is_empty()
    }
    /// The durable ends of logs that have moved since the last call, by all flushes together.
    pub(crate) fn take_synced(&self) -> SyncedEnds {
        std::mem::take(&mut self.state.lock().synced)
    }
    /// Everything before this place survives a power cut.
    pub(crate) fn durable(&self) -> Lsn {
        self.state.lock().durable
    }
    /// The place after the last entry that was submitted.
    pub(crate) fn submitted(&self) -> Lsn {
        self.state.lock().submitted
    }
    /// Recovery will find nothing that ends before it.
    pub(crate) fn persisted(&self) -> Lsn {
        self.state.lock().persisted
    }
    /// For a checkpoint: the durable place, and the place up to which entries were released.
    pub(crate) fn place(&self) -> (WalPlace, Lsn) {
        let state = self.state.lock();
        let place = WalPlace {
            durable: state.group_end,
            segment: match state.ring.current() {
                Some(segment) => segment.number,
                None => state.ring.next_number.saturating_sub(1),
            },
            previous: state.previous,
        };
        (place, state.released)
    }
    /// The error that ended the log.
    pub(crate) fn failed(&self) -> Option<DiskError> {
        self.state.lock().failed.clone()
    }
    /// Writes what is queued: for each group one vectored write and one sync (the host runs it on its own thread,
    /// without locks of partitions). Returns the new durable place; see also [`Wal::take_synced`], after an error too.
    /// `Full`: the oldest part is still needed, see [`Wal::release`]; the queue is kept and the call can be made again, as
    /// after a full disk. Any other error ends the log for good: later flushes give the same error.
    pub(crate) fn flush(&self) -> Result<Lsn, FlushError> {
        let _one = self.flushing.lock();
        let until = self.submitted();
        loop {
            let group = {
                let mut state = self.state.lock();
                if let Some(error) = &state.failed {
                    return Err(error.clone().into());
                }
                if state.durable >= until {
                    return Ok(state.durable);
                }
                let group = self.next_group(&mut state);
                state.blocked = group.is_none();
                group.ok_or(FlushError::Full)?
            };
            self.write(&group)?;
        }
    }
    /// The next group, in the next segment when the current one has no room; `None`: no slot is free.
    fn next_group(&self, state: &mut State) -> Option<Group> {
        let needed = group_bytes(state.queue.front().map_or(0, |(_, entry)| entry.len()));
        let fits = state.ring.room() >= needed
            // A segment that holds nothing yet takes an entry of any size.
            || state.ring.current().is_some_and(|s| s.bytes == 0);
        if !fits && !state.ring.begin(state.durable) {
            if !state.ring.reclaimable(state.released) {
                return None;
            }
            // Once this group is durable, recovery knows that the oldest segment isn't needed.
            return self.group(state, 0);
        }
        let room = state.ring.room().max(needed);
        let mut bytes = 0;
        let mut count = 0;
        for (_, entry) in &state.queue {
            if group_bytes(bytes + entry.len()) > room && count > 0 {
                break;
            }
            bytes += entry.len();
            count += 1;
        }
        self.group(state, count)
    }
    /// Nothing before `before` is needed any more: every log's segments are synced beyond it.
    pub(crate) fn release(&self, before: Lsn) {
        let mut state = self.state.lock();
        let before = match active(Mutant::WalReusedTooEarly) {
            true => state.durable,
            false => before,
        };
        state.released = state.released.max(before);
        if state.ring.reclaimable(state.released) {
            state.blocked = false;
        }
    }
    /// Bytes of the files that hold the oldest needed entry to the newest.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().ring.used()
    }
    /// The place before which the older half of the segments lies, once more than half of the capacity is used.
    pub(crate) fn pressing(&self) -> Option<Lsn> {
        let state = self.state.lock();
        let segments = &state.ring.segments;
        if state.ring.used() <= self.settings.capacity / 2 && !state.blocked {
            return None;
        }
        // One segment alone can be over half: with an entry larger than a segment.
        let newer = segments.get(segments.len().div_ceil(2));
        Some(newer.map_or(state.submitted, |segment| segment.first))
    }
    /// Bytes that the log may take.
    pub(crate) fn capacity(&self) -> u64 {
        self.settings.capacity
    }
    /// Makes the next recycled file ready (written through, so that a later `fdatasync` has no metadata to write).
    /// Cheap when there is nothing to do; the host calls it from upkeep. Returns whether there may be more to do.
    pub(crate) fn prepare(&self) -> Result<bool, DiskError> {
        let taken = {
            let mut state = self.state.lock();
            if state.failed.is_some() {
                return Ok(false);
            }
            state.ring.take_unready()
        };
        let Some(unready) = taken else {
            return Ok(false);
        };
        let result = fit(&unready);
        let mut state = self.state.lock();
        if let Some(slot) = state.ring.slots.get_mut(unready.slot) {
            slot.preparing = false;
            if result.is_ok() {
                slot.written = unready.wanted;
            }
        }
        state.blocked = false;
        drop(state);
        match result {
            Ok(()) => Ok(true),
            Err(error) => {
                if !error.is_full() {
                    self.end(error.clone());
                }
                Err(error)
            }
        }
    }
}
