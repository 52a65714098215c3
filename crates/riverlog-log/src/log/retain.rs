//! Retention and deletion from the front.

use std::sync::Arc;

use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::{LeaderEpoch, Offset};

use super::epochs::Epochs;
use super::load::Loaded;
use super::producers::Producers;
use super::segment::Segment;
use super::{Log, LogSettings, Upkeep};
use crate::DiskError;
use crate::volume::EndCheck;
use crate::wal::WalEntry;

impl Log {
    /// Nothing before `before` can be read any more; it may lie inside a batch. Never goes back. Durable once
    /// the entry that it queues in the write-ahead log is (for a log with or without `sync`).
    ///
    /// Beyond the log's end the log starts anew, empty, at `before`, and forgets its epochs and producers: a follower whose
    /// leader has moved on. Files go at the next [`Log::retain`].
    pub fn delete_records(&mut self, before: Offset) -> Result<(), DiskError> {
        if before <= self.start {
            return Ok(());
        }
        if before > self.end {
            self.loaded_mut()?;
            self.start_anew(before);
            let lsn = self.volume.submit(WalEntry::StartOffset {
                key: self.key,
                to: before,
            });
            self.last_lsn = Some(lsn);
            self.start_lsn = Some(lsn);
            self.cut = Some(None);
            self.cut_lsn = Some(lsn);
        } else {
            self.move_start(before.min(self.written));
        }
        Ok(())
    }

    fn move_start(&mut self, to: Offset) {
        if to <= self.start {
            return;
        }
        self.start = to;
        if let Some(log) = self.loaded.get_mut() {
            log.tail.start_at(&self.volume, to);
        }
        let lsn = self
            .volume
            .submit(WalEntry::StartOffset { key: self.key, to });
        self.last_lsn = Some(lsn);
        self.start_lsn = Some(lsn);
    }

    /// Everything goes; the next record gets `at`. No I/O: files are removed by the next upkeep.
    fn start_anew(&mut self, at: Offset) {
        let key = self.key;
        if let Some(log) = self.loaded.get_mut() {
            log.gate.end_life();
            log.upkeep_out = None;
            log.queue.clear();
            log.in_flight.clear();
            log.tail.clear(&self.volume);
            log.doomed.extend(log.segments.iter().cloned());
            log.segments = Arc::new(Vec::new());
            log.push_segment(Arc::new(Segment::new(key, log.dir.clone(), at)));
            log.make = Some(log.active().clone());
            // Whatever has become of it: the files have the names of those that go.
            log.swap = None;
            log.needs_cut = false;
            log.check = EndCheck::default();
            log.epochs = Epochs::default();
            log.epochs_dirty = true;
            log.producers = Producers::default();
        }
        (self.start, self.end, self.written) = (at, at, at);
        (self.segments_synced, self.wal_synced) = (at, at);
        self.wal_pending.clear();
        self.size_bytes = 0;
        self.last_epoch = LeaderEpoch::NONE;
    }

    /// What retention wants at `now_ms` and with the high watermark: moves the start offset now, and returns the removal
    /// of files. `None`: nothing to do, or another upkeep is out (the files go with the next one).
    ///
    /// - By age: a segment goes when its largest timestamp is older than `retention_ms`. A record from the future, or one
    ///   without a time, counts as old as its append.
    /// - By bytes: whole segments, as long as more than `retention_bytes` are left.
    /// - By records: to the record.
    ///
    /// Nothing at or above the high watermark goes. When all of the last segment is to go, an empty one takes its place.
    pub fn retain(&mut self, now_ms: i64, high_watermark: Offset) -> Option<Upkeep> {
        let fresh = self.loaded.get().is_none();
        if fresh && self.start == self.end && self.size_bytes == 0 {
            return None;
        }
        // An error shows when the log is next used in earnest.
        self.loaded_mut().ok()?;
        let limit = high_watermark.min(self.written);
        let (settings, start) = (self.settings.clone(), self.start);
        let log = self.loaded.get_mut()?;
        note_strange_times(log, now_ms);
        let wanted = if settings.delete {
            wanted_start(log, &settings, now_ms, limit).max(start)
        } else {
            start
        };
        self.move_start(wanted);
        let upkeep = self.drop_segments();
        let log = self.loaded.get()?;
        self.oldest_ms = log.segments.first().map(|s| s.facts().age_ms());
        // A log that was only looked at goes back to sleep.
        if fresh && upkeep.is_none() && self.is_quiet() {
            self.loaded = Default::default();
        }
        upkeep
    }

    /// When [`Log::retain`] next has something to do by age, in ms since the epoch; `None`: not by age. In the past for a
    /// log that has not been looked at since it was opened, which `retain` does (with I/O).
    pub fn next_retention_ms(&self) -> Option<i64> {
        let retention = i64::try_from(self.settings.retention_ms?).unwrap_or(i64::MAX);
        if !self.settings.delete || self.start == self.end {
            return None;
        }
        let oldest = match self.loaded.get() {
            Some(log) => log.segments.first().map(|s| s.facts().age_ms()),
            None => self.oldest_ms,
        };
        match oldest {
            Some(oldest) if oldest >= 0 => Some(oldest.saturating_add(retention).saturating_add(1)),
            _ => Some(0),
        }
    }

    /// How long before [`Log::next_retention_ms`] a warning of `ahead_ms` comes: for a short retention a quarter of it.
    pub fn warning_ms(&self, ahead_ms: i64) -> i64 {
        let retention = self.settings.retention_ms.map(|ms| ms / 4);
        let most = retention.and_then(|ms| i64::try_from(ms).ok());
        ahead_ms.min(most.unwrap_or(i64::MAX)).max(0)
    }

    /// Where the log will begin at `at_ms`, when nothing is appended and retention by age and size has its way; not before
    /// where it begins now. Does I/O when the log isn't in use.
    pub fn start_at(&mut self, at_ms: i64, high_watermark: Offset) -> Result<Offset, DiskError> {
        if !self.settings.delete || self.start == self.end {
            return Ok(self.start);
        }
        let fresh = self.loaded.get().is_none();
        let limit = high_watermark.min(self.written);
        let (settings, start) = (self.settings.clone(), self.start);
        let wanted = wanted_start(self.loaded_mut()?, &settings, at_ms, limit);
        if fresh && self.is_quiet() {
            // A log that was only looked at goes back to sleep.
            self.loaded = Default::default();
        }
        Ok(wanted.max(start))
    }

    /// Nothing is under way or unsaved, so that everything in memory can be had from the folder again.
    pub(super) fn is_quiet(&self) -> bool {
        let Some(log) = self.loaded.get() else {
            return true;
        };
        let saved = |s: &Arc<Segment>| {
            let state = s.state();
            state.unsynced.is_none() && (!state.made || state.summarized == state.facts.size)
        };
        log.queue.is_empty()
            && log.in_flight.is_empty()
            && log.upkeep_out.is_none()
            && log.doomed.is_empty()
            && log.make.is_none()
            && log.swap.is_none()
            && !log.cleaning
            && !log.epochs_dirty
            && !log.folder_unsynced
            && !log.needs_cut
            && self.segments_synced == self.end
            && log.segments.iter().all(saved)
    }

    /// Takes the segments that lie before the start out of the log.
    fn drop_segments(&mut self) -> Option<Upkeep> {
        let (start, end) = (self.start, self.end);
        let key = self.key;
        let log = self.loaded.get_mut()?;
        // A segment goes when the next one begins at or before the start; the last one when all of it may go.
        let mut gone = log
            .segments
            .partition_point(|s| s.base <= start)
            .saturating_sub(1);
        let busy = !log.queue.is_empty() || !log.in_flight.is_empty();
        let last = gone + 1 == log.segments.len();
        if last && !busy && start == end && log.active().base < end {
            gone += 1;
        }
        let mut make = None;
        if gone > 0 {
            sometimes(Mark::SegmentsRetired);
            if gone == log.segments.len() {
                let segment = Arc::new(Segment::new(key, log.dir.clone(), end));
                make = Some(segment.clone());
                log.push_segment(segment);
                log.needs_cut = false;
            }
            let dropped: Vec<_> = Arc::make_mut(&mut log.segments).drain(..gone).collect();
            let bytes: u64 = dropped.iter().map(|s| s.facts().size).sum();
            self.size_bytes = self.size_bytes.saturating_sub(bytes);
            log.doomed.extend(dropped);
            let first = log.segments.first().map_or(end, |s| s.base);
            if log.epochs.start_at(first) {
                log.epochs_dirty = true;
            }
        }
        let log = self.loaded.get_mut()?;
        if log.doomed.is_empty() {
            return None;
        }
        log.make = make.or(log.make.take());
        if log.upkeep_out.is_some() {
            return None;
        }
        self.upkeep(None, false)
    }
}

/// Remembers when segments were first seen whose records' times say nothing about their age.
fn note_strange_times(log: &Loaded, now_ms: i64) {
    for segment in log.segments.iter() {
        let mut state = segment.state();
        let facts = &mut state.facts;
        if facts.appended_ms < 0
            && !facts.is_empty()
            && (facts.max_timestamp < 0 || facts.max_timestamp > now_ms)
        {
            facts.appended_ms = now_ms;
        }
    }
}

/// The start offset that the settings want, at most `limit`.
fn wanted_start(log: &Loaded, settings: &LogSettings, now_ms: i64, limit: Offset) -> Offset {
    let mut wanted = Offset(0);
    let mut bytes = log.written_bytes();
    let mut older = true;
    for segment in log.segments.iter() {
        let facts = segment.facts();
        if facts.is_empty() || facts.next > limit {
            break;
        }
        let aged = older
            && settings.retention_ms.is_some_and(|ms| {
                let age = now_ms.saturating_sub(facts.age_ms());
                facts.age_ms() >= 0 && u64::try_from(age).is_ok_and(|age| age > ms)
            });
        older = aged;
        let too_many = settings
            .retention_bytes
            .is_some_and(|keep| bytes >= keep.saturating_add(facts.size));
        if !aged && !too_many {
            break;
        }
        bytes -= facts.size;
        wanted = facts.next;
    }
    if let Some(keep) = settings.retention_records {
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        let more = i64::from(riverlog_mutants::active(
            riverlog_mutants::Mutant::RetentionOneTooMany,
        ));
        wanted = wanted.max(limit + -keep + more);
    }
    wanted.min(limit)
}
