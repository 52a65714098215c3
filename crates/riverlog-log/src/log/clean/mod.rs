//! Compaction: of each key only the newest record stays (KIP-58, KIP-354, KIP-534).
//!
//! A pass over a log has two parts. First the dirty part is read, and the newest offset of each of its keys is put into a map
//! of bounded size. Then all segments up to where the map reaches are copied, oldest first, without the records that the map
//! knows a newer one for; small neighbours become one. Each copy takes the place of what it was made from before the next is
//! begun, so that a tombstone never goes before what it deletes.
//!
//! Records keep their offsets. A batch that loses all its records stays without any when it is its producer's last, begins a
//! leader epoch, or ends its segment: so sequences, epochs and ends are told by what is stored.

mod copy;
mod map;
mod txn;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::batch::{Batch, BatchError, batches};
use riverlog_wire::{Offset, ProducerEpoch, ProducerId};

use self::copy::{Copy, Keep};
use self::map::OffsetMap;
use self::txn::{Aborted, Seen};
use super::index::MAX_ENTRIES;
use super::load::Loaded;
use super::queue::Gate;
use super::read::Reader;
use super::segment::{Segment, disk_error, remove_file};
use super::swap::{CLEANED, Swap};
use super::{Log, ReadError, Upkeep};
use crate::{DiskError, Volume};

/// Bytes that one batch may take once it is decompressed.
const RECORDS_LIMIT: usize = 256 << 20;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// What a pass over a log is to follow.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanRules {
    /// Wall clock, ms since the epoch.
    pub now_ms: i64,
    /// Nothing at or above it is touched: the high watermark, or the last stable offset when that is less.
    pub until: Offset,
    /// Everything before it was cleaned by an earlier pass; see [`crate::CleanerOffsets`].
    pub cleaned: Offset,
    /// `min.compaction.lag.ms`: segments with newer records stay as they are.
    pub min_lag_ms: u64,
    /// `max.compaction.lag.ms`: the last segment is closed once its first record has waited for so long, whether anybody writes
    /// or not. `None`: it is closed by the append that no longer fits it.
    pub max_lag_ms: Option<u64>,
    /// `delete.retention.ms`: how long tombstones and markers stay once they are all that is left.
    pub delete_retention_ms: u64,
    /// Bytes that the map of keys may take. When it is full, the rest is for the next pass.
    pub map_bytes: usize,
}

impl CleanRules {
    /// Whether a segment with such a timestamp has to wait.
    fn is_too_new(&self, timestamp: i64) -> bool {
        let age = self.now_ms.saturating_sub(timestamp);
        self.min_lag_ms > 0
            && !active(Mutant::CompactionLagIgnored)
            && !u64::try_from(age).is_ok_and(|age| age >= self.min_lag_ms)
    }
}

/// Whether a pass is to begin now, or after a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Now,
    AfterSync,
}

/// What a pass over a log would find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleanable {
    /// Bytes of the segments that earlier passes have cleaned.
    pub clean_bytes: u64,
    /// Bytes of those that wait, and may be cleaned now.
    pub dirty_bytes: u64,
    /// The largest timestamp of the first batch that waits, in a segment that is full or not; `None` when none waits.
    pub oldest_dirty_ms: Option<i64>,
}

impl Cleanable {
    /// The dirty share of what a pass would go over, 0 to 1.
    pub fn dirty_ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        if all == 0 {
            return 0.0;
        }
        self.dirty_bytes as f64 / all as f64
    }
}

/// Why a pass ended early. Nothing is lost: the log is as it was, but for the segments that have been replaced.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CleanError {
    /// The log was cut or closed meanwhile.
    #[error("the log was cut meanwhile; the next pass begins anew")]
    Void,
    /// Something in the log can't be read, or would not fit.
    #[error("{0}")]
    Unreadable(String),
    /// The disk said no.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl From<ReadError> for CleanError {
    fn from(error: ReadError) -> CleanError {
        match error {
            ReadError::Disk(error) => CleanError::Disk(error),
            other => CleanError::Unreadable(other.to_string()),
        }
    }
}

/// What a step of a pass ended with.
#[derive(Debug)]
pub enum CleanStep {
    /// There is more to do.
    More,
    /// A copy is written. [`Log::replace_cleaned`] puts it in its place; the pass goes on once that is done.
    Replace(Cleaned),
    /// The pass is over.
    Done(CleanDone),
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanDone {
    /// Everything before it is clean now.
    pub cleaned: Offset,
    /// Bytes of the segments that it went over, before and after.
    pub bytes_before: u64,
    /// After.
    pub bytes_after: u64,
    /// Records that were there before and after.
    pub records_before: u64,
    /// After.
    pub records_after: u64,
}

/// A cleaned copy of some segments, synced, that waits for its place.
#[derive(Debug)]
pub struct Cleaned {
    swap: Swap,
    life: u64,
}

/// A producer's last batch.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// Its records end here.
    At(Offset),
    /// Only a marker of this epoch is known.
    Marker(ProducerEpoch),
}

/// A pass over a log. Run without the partition's lock; at most one exists a log.
#[derive(Debug)]
pub struct Clean {
    volume: Arc<Volume>,
    gate: Arc<Gate>,
    life: u64,
    dir: Arc<str>,
    reader: Reader,
    /// Of `reader.segments`: those that may be cleaned.
    segments: Range<usize>,
    start: Offset,
    /// How far the log was written when the pass began; what is behind may still be on its way.
    written: Offset,
    interval: u32,
    segment_bytes: u64,
    rules: CleanRules,
    lasts: BTreeMap<ProducerId, Last>,
    phase: Phase,
    map: OffsetMap,
    /// The map has every key from `rules.cleaned` up to here.
    mapped: Offset,
    aborted: Option<Aborted>,
    /// A transaction begins here that hasn't ended: it is for a later pass.
    open_from: Option<Offset>,
    seen: Seen,
    groups: VecDeque<Range<usize>>,
    done: CleanDone,
    moved: u64,
}

#[derive(Debug)]
enum Phase {
    Begin,
    Map,
    Copy,
    Copying(Box<Copy>),
    Over,
}

impl Log {
    /// What a pass would find once the segments are synced. Does I/O when the log isn't in use.
    pub fn cleanable(&mut self, rules: &CleanRules) -> Result<Cleanable, DiskError> {
        let fresh = self.loaded.get().is_none();
        // What the next sync makes cleanable counts as dirty, so that a pass asks for that sync.
        let mut range = self.cleanable_segments(rules, Look::AfterSync)?;
        if self.closes_last(rules, self.written, &range) {
            range.end += 1;
        }
        let cleaned = self.cleaned(rules);
        let Some(log) = self.loaded.get() else {
            return Ok(Cleanable::default());
        };
        let mut found = Cleanable::default();
        for (at, segment) in log.segments.iter().enumerate() {
            let facts = segment.facts();
            let dirty = facts.next > cleaned && !facts.is_empty();
            if dirty && found.oldest_dirty_ms.is_none() {
                found.oldest_dirty_ms = Some(facts.first_timestamp);
            }
            match (range.contains(&at), dirty) {
                (true, true) => found.dirty_bytes += facts.size,
                (true, false) => found.clean_bytes += facts.size,
                (false, _) => {}
            }
        }
        if fresh && self.is_quiet() {
            // A log that was only looked at goes back to sleep.
            self.loaded = Default::default();
        }
        Ok(found)
    }

    /// Where the dirty part begins. What an earlier life has noted may be of records that were cut or deleted since.
    fn cleaned(&self, rules: &CleanRules) -> Offset {
        if rules.cleaned > self.end || rules.cleaned < self.start {
            return self.start;
        }
        rules.cleaned
    }

    /// Up to where recovery needs nothing but the segments: what it would do again there from the write-ahead log would
    /// not be what it finds.
    fn settled(&self) -> Offset {
        let told = self
            .told
            .map_or(Offset(0), |(mark, _)| mark.segments_synced);
        told.min(self.segments_synced)
    }

    /// Where the segment begins that recovery compares with what it was. The next sync tells of a later one.
    fn checked(&self) -> Option<Offset> {
        let (mark, _) = self.told?;
        let records = i64::from(mark.check.records);
        (mark.check.size > 0).then(|| mark.segments_synced + -records)
    }

    /// The segments that may be cleaned: all but the last, and below every bound. For a pass that begins now they also lie before
    /// the one that recovery compares with its check, and the file of the next one is there: its name says where they end.
    fn cleanable_segments(
        &mut self,
        rules: &CleanRules,
        look: Look,
    ) -> Result<Range<usize>, DiskError> {
        // Nobody else may have looked since the write-ahead log went past it.
        self.end_cut();
        // The next sync brings a cut to its end too, and of a log that nobody writes to only the cleaner asks for one.
        let cut = look == Look::Now && self.cut.is_some();
        let (bound, checked) = match look {
            Look::AfterSync => (self.written, None),
            Look::Now => (self.settled(), self.checked()),
        };
        let until = rules.until.min(bound);
        let cleaned = self.cleaned(rules);
        let log = self.loaded_mut()?;
        if cut {
            // Recovery might do the cut again.
            return Ok(0..0);
        }
        let mut end = 0;
        // The last one is written to; so is one before it while records for it are queued.
        for (segment, next) in log.segments.iter().zip(log.segments.iter().skip(1)) {
            let facts = segment.facts();
            let known = checked == Some(segment.base);
            let planned = look == Look::Now && !next.state().made;
            let open = known || planned || facts.next != next.base || facts.next > until;
            let dirty = facts.next > cleaned;
            if open || (dirty && rules.is_too_new(facts.max_timestamp)) {
                break;
            }
            end += 1;
        }
        Ok(0..end)
    }

    /// Whether the last segment is to be closed: a record in it has waited for compaction as long as it may, and nothing but
    /// that it is the last keeps it from being cleaned with those `before` it.
    fn closes_last(&self, rules: &CleanRules, bound: Offset, before: &Range<usize>) -> bool {
        let (Some(max), Some(log)) = (rules.max_lag_ms, self.loaded.get()) else {
            return false;
        };
        let facts = log.active().facts();
        let waited = rules.now_ms.saturating_sub(facts.first_timestamp);
        let overdue = u64::try_from(waited).is_ok_and(|ms| ms >= max);
        // After a failed write the file is longer than what counts, until the next write to it.
        let quiet = log.queue.is_empty() && log.in_flight.is_empty() && !log.needs_cut;
        let whole = facts.next > self.cleaned(rules) && facts.next <= rules.until.min(bound);
        let next = before.end + 1 == log.segments.len();
        let stored = !facts.is_empty() && !rules.is_too_new(facts.max_timestamp);
        overdue && quiet && whole && next && stored
    }

    /// Begins another segment behind the last one. The next sync makes its file, and moves what recovery compares on to it; until
    /// then the one before isn't cleaned.
    fn close_last(&mut self) {
        let key = self.key;
        if let Some(log) = self.loaded.get_mut() {
            sometimes(Mark::IdleSegmentClosed);
            log.active().seal();
            let end = log.active().facts().next;
            let next = Arc::new(Segment::new(key, log.dir.clone(), end));
            log.make = Some(next.clone());
            log.push_segment(next);
        }
    }

    /// Begins a pass. `None`: nothing is dirty that is in synced segments ([`Log::sync_segments`] makes more so), or another
    /// pass is under way.
    pub fn clean(&mut self, rules: CleanRules) -> Result<Option<Clean>, DiskError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let segments = self.cleanable_segments(&rules, Look::Now)?;
        let busy = self.loaded.get().is_some_and(|l| l.upkeep_out.is_some());
        // Only what is synced: the entries of the write-ahead log are needed for the rest.
        let quiet = !busy && self.cut.is_none();
        if quiet && self.closes_last(&rules, self.settled(), &segments) {
            self.close_last();
            return Ok(None);
        }
        let rules = CleanRules {
            cleaned: self.cleaned(&rules),
            ..rules
        };
        let reader = self.reader()?;
        let (start, written, volume) = (self.start, self.written, self.volume.clone());
        let (interval, segment_bytes) = (
            self.settings.index_interval_bytes,
            self.settings.segment_bytes.min(i32::MAX as u64),
        );
        let log = self.loaded_mut()?;
        let end = segments
            .end
            .checked_sub(1)
            .and_then(|i| log.segments.get(i));
        let end = end.map_or(start, |s| s.facts().next);
        if log.cleaning || log.swap.is_some() || end <= rules.cleaned {
            return Ok(None);
        }
        let seed = volume
            .disk()
            .draw_id()
            .map_err(disk_error("draw a seed for", &log.dir))?;
        let keys = u64::try_from(end - rules.cleaned).unwrap_or(0);
        log.cleaning = true;
        Ok(Some(Clean {
            volume,
            gate: log.gate.clone(),
            life: log.gate.life(),
            dir: log.dir.clone(),
            lasts: last_batches(log),
            map: OffsetMap::new(rules.map_bytes, keys, seed),
            mapped: rules.cleaned,
            reader,
            segments,
            start,
            written,
            interval,
            segment_bytes,
            rules,
            phase: Phase::Begin,
            aborted: None,
            open_from: None,
            seen: Seen::default(),
            groups: VecDeque::new(),
            done: CleanDone::default(),
            moved: 0,
        }))
    }

    /// Puts a cleaned copy in the place of what it was made from, with the upkeep that is returned; `None`: another one is
    /// out, and the next one does it. [`Log::is_replacing`] says whether it is done.
    pub fn replace_cleaned(&mut self, cleaned: Cleaned) -> Option<Upkeep> {
        let log = self.loaded.get_mut()?;
        if cleaned.life != log.gate.life() || log.swap.is_some() {
            return None;
        }
        log.swap = Some(Arc::new(cleaned.swap));
        if log.upkeep_out.is_some() {
            return None;
        }
        self.upkeep(None, false)
    }

    /// Whether a cleaned copy still waits for its place.
    pub fn is_replacing(&self) -> bool {
        self.loaded.get().is_some_and(|log| log.swap.is_some())
    }

    /// The pass is over, or given up.
    pub fn clean_over(&mut self) {
        if let Some(log) = self.loaded.get_mut() {
            log.cleaning = false;
        }
    }
}

fn last_batches(log: &Loaded) -> BTreeMap<ProducerId, Last> {
    log.producers
        .iter()
        .map(|(id, producer)| {
            let last = match producer.window.last() {
                Some(batch) => Last::At(batch.last_offset),
                None => Last::Marker(producer.epoch),
            };
            (id, last)
        })
        .collect()
}

impl Clean {
    /// Does about `bytes` of reading and writing. Touches the disk.
    pub fn step(&mut self, bytes: u64) -> Result<CleanStep, CleanError> {
        let until = self.moved.saturating_add(bytes.max(1));
        while self.moved < until {
            if self.gate.life() != self.life {
                return Err(CleanError::Void);
            }
            match &mut self.phase {
                Phase::Begin => self.begin()?,
                Phase::Map => self.map_some()?,
                Phase::Copy => match self.groups.pop_front() {
                    None => {
                        self.phase = Phase::Over;
                    }
                    Some(group) => self.begin_copy(group)?,
                },
                Phase::Copying(_) => {
                    if let Some(cleaned) = self.copy_some()? {
                        return Ok(CleanStep::Replace(cleaned));
                    }
                }
                Phase::Over => return Ok(CleanStep::Done(self.done)),
            }
        }
        Ok(CleanStep::More)
    }

    /// Bytes that the pass has read and written so far.
    pub fn moved_bytes(&self) -> u64 {
        self.moved
    }

    /// Gives the pass up: removes what it was writing, and a copy that was not put into its place. Touches the disk.
    pub fn abandon(self, cleaned: Option<Cleaned>) {
        let writing = match &self.phase {
            Phase::Copying(copy) => Some(copy.segment()),
            _ => None,
        };
        let written = cleaned.as_ref().map(|cleaned| &*cleaned.swap.new);
        for copy in writing.into_iter().chain(written) {
            // Left over, it would be removed when the log is next opened.
            let _ = remove_file(&self.volume, &copy.path(CLEANED));
        }
    }

    /// What a crash finds must not be older than what is cleaned: recovery takes a gap for the end of the log where it isn't
    /// told that all is durable. Either checkpoint may be the one that it finds.
    fn begin(&mut self) -> Result<(), CleanError> {
        self.volume.checkpoint(false)?;
        self.volume.checkpoint(false)?;
        self.phase = Phase::Map;
        self.moved += 1;
        Ok(())
    }

    fn end(&self) -> Offset {
        let last = self.segments.end.checked_sub(1);
        let last = last.and_then(|i| self.reader.segments.get(i));
        last.map_or(self.start, |s| s.facts().next)
    }

    fn map_some(&mut self) -> Result<(), CleanError> {
        let end = self.end();
        let mut full = false;
        if self.mapped < end {
            let bytes = self.read(self.mapped, end)?;
            for batch in batches(&bytes) {
                let batch = sound(batch)?;
                if !self.map_batch(&batch)? {
                    full = true;
                    break;
                }
            }
        }
        if full || self.mapped >= end {
            self.done.cleaned = self.mapped;
            self.phase = match self.mapped > self.rules.cleaned {
                true => Phase::Copy,
                false => Phase::Over,
            };
            self.groups = self.group();
        }
        Ok(())
    }

    /// Puts a batch's keys into the map. False: not all have room, or it is of a transaction that hasn't ended.
    fn map_batch(&mut self, batch: &Batch<'_>) -> Result<bool, CleanError> {
        let header = &batch.header;
        let aborted = self.is_aborted(batch)?;
        if self
            .open_from
            .is_some_and(|open| header.base_offset >= open)
        {
            return Ok(false);
        }
        if !header.attributes.is_control() && !aborted {
            let records = batch.records(RECORDS_LIMIT).map_err(unreadable)?;
            for record in records.iter_refs() {
                let record = record.map_err(unreadable)?;
                if record.offset < self.mapped {
                    continue;
                }
                if let Some(key) = record.key
                    && !self.map.put(key, record.offset)
                {
                    self.mapped = record.offset;
                    return Ok(false);
                }
            }
        }
        self.mapped = self.mapped.max(header.next_offset());
        Ok(true)
    }

    /// Whether a batch of the dirty part belongs to a transaction that was aborted.
    fn is_aborted(&mut self, batch: &Batch<'_>) -> Result<bool, CleanError> {
        let header = &batch.header;
        if !header.attributes.is_transactional() || header.attributes.is_control() {
            return Ok(false);
        }
        if self.aborted.is_none() {
            self.aborted = Some(self.find_aborted(header.base_offset)?);
        }
        Ok(self.aborted.as_ref().is_some_and(|a| a.has(header)))
    }

    /// Looks for transactions that were aborted, from the first batch of a transaction on: to the end of what is cleaned, and
    /// on to the markers that lie beyond it, perhaps above a younger transaction that is still open.
    fn find_aborted(&mut self, from: Offset) -> Result<Aborted, CleanError> {
        let end = self.end();
        let mut aborted = Aborted::default();
        let mut at = from;
        while at < end || (aborted.open_from().is_some() && at < self.written) {
            let bytes = self.read(at, self.written)?;
            for batch in batches(&bytes) {
                let batch = sound(batch)?;
                aborted.on_batch(&batch);
                at = batch.header.next_offset();
            }
        }
        self.open_from = aborted.open_from();
        Ok(aborted)
    }

    /// Batches from the one that holds `from` on; at least one.
    fn read(&mut self, from: Offset, until: Offset) -> Result<bytes::Bytes, CleanError> {
        let bytes = self
            .reader
            .read(from, until, READ_BYTES)?
            .into_bytes()
            .map_err(CleanError::from)?;
        if bytes.is_empty() {
            return Err(CleanError::Unreadable(format!(
                "nothing is stored at offsets {from}..{until}"
            )));
        }
        self.moved += bytes.len() as u64;
        Ok(bytes)
    }

    /// Neighbours that make one segment together.
    fn group(&self) -> VecDeque<Range<usize>> {
        let mut groups: VecDeque<Range<usize>> = VecDeque::new();
        let (mut bytes, mut index, mut time, mut base) = (0_u64, 0_u64, 0_u64, Offset(0));
        for at in self.segments.clone() {
            let Some(segment) = self.reader.segments.get(at) else {
                break;
            };
            let facts = segment.facts();
            if segment.base >= self.mapped {
                break;
            }
            // A mark at most for each that is merged in, beside those that it has.
            let marks = (
                u64::from(facts.index_entries) + 1,
                u64::from(facts.time_entries) + 1,
            );
            let joins = bytes + facts.size <= self.segment_bytes
                && index + marks.0 <= u64::from(MAX_ENTRIES)
                && time + marks.1 <= u64::from(MAX_ENTRIES)
                && facts.next - base <= i64::from(i32::MAX);
            match groups.back_mut() {
                Some(group) if joins => group.end = at + 1,
                _ => {
                    (bytes, index, time, base) = (0, 0, 0, segment.base);
                    groups.push_back(at..at + 1);
                }
            }
            bytes += facts.size;
            index += marks.0;
            time += marks.1;
        }
        groups
    }

    fn begin_copy(&mut self, group: Range<usize>) -> Result<(), CleanError> {
        let old = self.reader.segments.get(group).unwrap_or_default().to_vec();
        let (Some(first), Some(last)) = (old.first(), old.last()) else {
            return Ok(());
        };
        let end = last.facts().next;
        let from = first.base.max(self.start);
        self.done.bytes_before += old.iter().map(|s| s.facts().size).sum::<u64>();
        if from >= end {
            // All of it lies before the start: retention takes it.
            self.done.bytes_after += old.iter().map(|s| s.facts().size).sum::<u64>();
            return Ok(());
        }
        let new = Segment::new(first.seed.key, self.dir.clone(), first.base);
        let copy = Copy::begin(&self.volume, old, new, from, end, self.interval)?;
        self.phase = Phase::Copying(Box::new(copy));
        Ok(())
    }

    fn copy_some(&mut self) -> Result<Option<Cleaned>, CleanError> {
        let Phase::Copying(mut copy) = std::mem::replace(&mut self.phase, Phase::Copy) else {
            return Ok(None);
        };
        let (at, end) = (copy.at(), copy.end());
        if at < end {
            let bytes = self.read(at, end)?;
            for batch in batches(&bytes) {
                let batch = sound(batch)?;
                let header = &batch.header;
                let keep = self.decide(&batch, end)?;
                let records = u64::try_from(header.record_count).unwrap_or(0);
                self.done.records_before += records;
                let (written, left) = copy.take(&batch, keep)?;
                self.done.records_after += left;
                self.moved += written;
            }
            self.phase = Phase::Copying(copy);
            return Ok(None);
        }
        let finished = copy.finish(&self.volume, &self.reader)?;
        self.done.bytes_after += finished.size;
        Ok(finished.swap.map(|swap| Cleaned {
            swap,
            life: self.life,
        }))
    }

    /// What stays of a batch of the segment that ends before `end`.
    fn decide(&mut self, batch: &Batch<'_>, end: Offset) -> Result<Keep, CleanError> {
        let header = &batch.header;
        let begins = self
            .reader
            .epochs
            .between(header.base_offset, header.base_offset + 1);
        let ends = header.next_offset() >= end && !active(Mutant::SegmentEndNotKept);
        let needed = self.is_last_of_producer(batch) || !begins.is_empty() || ends;
        let now = self.rules.now_ms;
        let retention = i64::try_from(self.rules.delete_retention_ms).unwrap_or(i64::MAX);
        let horizon = now.saturating_add(retention);
        let over = header.delete_horizon_ms().is_some_and(|at| at <= now);
        if header.attributes.is_control() {
            return Ok(match self.seen.on_marker(batch) {
                false => Keep::AsIs,
                true if header.record_count == 0 || over => Keep::nothing(needed),
                true if header.delete_horizon_ms().is_some() => Keep::AsIs,
                true => Keep::Until(horizon),
            });
        }
        self.seen.on_batch(header);
        if header.base_offset >= self.mapped {
            return Ok(Keep::AsIs);
        }
        if header.record_count == 0
            || (header.base_offset >= self.rules.cleaned && self.is_aborted(batch)?)
        {
            return Ok(Keep::nothing(needed));
        }
        let records = batch.records(RECORDS_LIMIT).map_err(unreadable)?;
        let mut stay = Vec::new();
        let (mut all, mut tombstones, mut later) = (true, false, false);
        for record in records.iter_refs() {
            let record = record.map_err(unreadable)?;
            let stays = record.offset >= self.mapped
                || record.key.is_some_and(|key| {
                    let newest = self.map.get(key).is_none_or(|newest| {
                        match active(Mutant::NewestCleanedAway) {
                            true => record.offset > newest,
                            false => record.offset >= newest,
                        }
                    });
                    let over = over || active(Mutant::TombstoneGoneAtOnce);
                    let gone = record.value.is_none() && over;
                    newest && !gone
                });
            all &= stays;
            tombstones |= stays && record.value.is_none();
            later |= record.offset >= self.mapped && record.value.is_none();
            stay.push(stays);
        }
        // What a tombstone deletes must be gone before its time begins: one that isn't in the map yet has deleted nothing.
        let begins = tombstones && !later && header.delete_horizon_ms().is_none();
        let horizon = begins.then_some(horizon);
        if all && horizon.is_none() {
            return Ok(Keep::AsIs);
        }
        if !stay.contains(&true) {
            return Ok(Keep::nothing(needed));
        }
        Ok(Keep::Some {
            records,
            stay,
            horizon,
        })
    }

    fn is_last_of_producer(&self, batch: &Batch<'_>) -> bool {
        let header = &batch.header;
        match self.lasts.get(&header.producer_id) {
            Some(Last::At(offset)) => header.last_offset() == *offset,
            Some(Last::Marker(epoch)) => {
                header.attributes.is_control() && header.producer_epoch == *epoch
            }
            None => false,
        }
    }
}

/// A batch that may be written again: what is damaged must not get a checksum that fits it.
fn sound(batch: Result<Batch<'_>, BatchError>) -> Result<Batch<'_>, CleanError> {
    let batch = batch.map_err(unreadable)?;
    batch.check_crc().map_err(unreadable)?;
    Ok(batch)
}

fn unreadable(error: BatchError) -> CleanError {
    CleanError::Unreadable(error.to_string())
}
