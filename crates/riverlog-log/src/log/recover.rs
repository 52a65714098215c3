//! Opening a log: at once after a clean stop, and by recovery after a crash.
//!
//! Recovery begins at the checkpoint's mark. Segments are durable up to `segments_synced`: what is missing or doesn't fit
//! there is damage, and stays a hole that readers are told of. From there on the segments hold what the system happened to
//! write: batches count as long as they are whole, sound, and go on from each other. Then the entries of the write-ahead
//! log are done again; where they differ from the segments they are right, unless the segment's batch is of a newer epoch.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::batch::{BatchHeader, batches};
use riverlog_wire::{LeaderEpoch, Offset};

use super::load::{LoadRules, load, producers_at, rebuild_aborted, replay, snapshot_path};
use super::producers::{Producers, Told};
use super::segment::{Segment, disk_error};
use super::snapshot::encode_snapshot;
use super::transactions::marker_of;
use super::upkeep::{replace, sync_folder};
use super::{Log, LogSettings, ReadError};
use crate::volume::{EndCheck, LogMark};
use crate::wal::{Lsn, WalEntry};
use crate::{DiskError, LogKey, OpenError, OpenMode, Volume};

/// Bytes that are written again at once.
const REWRITE_BYTES: usize = 1 << 20;

impl Log {
    /// Called by [`crate::Volume::open_log`]. `mark`: what the checkpoint says, `None` for a log it doesn't know. `clean`:
    /// the volume was closed cleanly, so the mark is the truth and no file need be touched before first use. Otherwise the
    /// tail after `mark.segments_synced` is checked batch by batch, then `entries` are done again: where they differ from
    /// what the segments hold, the entries are right.
    pub(crate) fn open(
        volume: Arc<Volume>,
        key: LogKey,
        settings: LogSettings,
        mark: Option<LogMark>,
        clean: bool,
        entries: Vec<(Lsn, WalEntry)>,
    ) -> Result<Log, OpenError> {
        let known = mark.unwrap_or(LogMark {
            start: Offset(0),
            end: Offset(0),
            segments_synced: Offset(0),
            size_bytes: 0,
            last_epoch: LeaderEpoch::NONE,
            check: EndCheck::default(),
        });
        let mut log = Log {
            volume,
            key,
            // What recovery does again comes from the write-ahead log, which has it already.
            through_wal: false,
            settings,
            start: known.start,
            end: known.end,
            written: known.end,
            segments_synced: known.segments_synced,
            wal_synced: known.segments_synced,
            wal_pending: Default::default(),
            cut: None,
            cut_is_open: false,
            cut_lsn: None,
            start_lsn: None,
            last_lsn: None,
            written_lsn: None,
            told: None,
            opening: true,
            size_bytes: known.size_bytes,
            last_epoch: known.last_epoch,
            failed: None,
            oldest_ms: None,
            loaded: OnceLock::new(),
        };
        if mark.is_some() && clean {
            log.told = mark.map(|mark| (mark, None));
        } else {
            log.recover(known, entries)?;
        }
        log.through_wal = log.settings.sync;
        log.opening = false;
        Ok(log)
    }

    fn recover(&mut self, mark: LogMark, entries: Vec<(Lsn, WalEntry)>) -> Result<(), DiskError> {
        let volume = self.volume.clone();
        let mut trusted = mark.segments_synced;
        let mut snapshots_until = Offset(i64::MAX);
        let mut start = mark.start;
        if active(Mutant::StartOffsetForgotten) {
            start = Offset(0);
        }
        for (_, entry) in &entries {
            match entry {
                WalEntry::Truncate { to, .. } => {
                    trusted = trusted.min(*to);
                    // Perhaps not finished: its snapshots may still be there.
                    snapshots_until = *to;
                }
                WalEntry::StartOffset { .. } if active(Mutant::StartOffsetForgotten) => {}
                WalEntry::StartOffset { to, .. } => start = start.max(*to),
                WalEntry::Append { .. } => snapshots_until = Offset(i64::MAX),
            }
        }
        // Much has happened since a cut that lies before the start.
        if snapshots_until < start {
            snapshots_until = Offset(i64::MAX);
        }
        let mut loaded = load(
            &volume,
            LoadRules {
                key: self.key,
                start,
                trusted,
                limit: Offset(i64::MAX),
                epoch: mark.last_epoch,
                snapshots_until,
                interval: self.settings.index_interval_bytes,
                // It is about what was there before a cut.
                check: match trusted == mark.segments_synced {
                    true => mark.check,
                    false => EndCheck::default(),
                },
            },
        )?;
        // A later segment may get the name of one that goes.
        let mut removed = std::mem::take(&mut loaded.folder_unsynced);
        for segment in std::mem::take(&mut loaded.doomed) {
            segment.remove(&volume)?;
            removed = true;
        }
        if removed {
            // What a power cut brings back would go on from what is written from now on, when that ends where it begins.
            sync_folder(&volume, &loaded.dir)?;
        }
        // A tail that a killed process wrote is in the system's hands and no further: the next sync must cover it.
        for segment in loaded.segments.iter() {
            let facts = segment.facts();
            let again = !active(Mutant::TailNotWrittenAgain);
            if facts.next > trusted && !facts.is_empty() && again {
                match write_again(&volume, segment, trusted) {
                    // Some file systems want room for that too. Reading comes first, and the sync covers what it can.
                    Err(error) if error.is_full() => {}
                    other => other?,
                }
            }
            loaded.folder_unsynced |= facts.next > trusted;
        }
        self.end = loaded.planned.next;
        self.written = self.end;
        self.start = start;
        self.segments_synced = trusted.min(self.end);
        self.wal_synced = self.segments_synced;
        self.last_epoch = loaded.epochs.last();
        self.size_bytes = loaded.written_bytes();
        self.loaded = OnceLock::from(Box::new(loaded));

        let mut deleted: Vec<Told> = Vec::new();
        let mut told = mark.end;
        for (lsn, entry) in net(entries) {
            match entry {
                WalEntry::Append { base, batches, .. } => {
                    told = told.max(last_next(&batches).unwrap_or(base));
                    self.redo_append(base, batches, &mut deleted)?;
                }
                WalEntry::Truncate { to, .. } => {
                    told = told.min(to);
                    self.redo_truncate(to)?;
                    self.cut = Some(None);
                    self.cut_lsn = Some(lsn);
                }
                WalEntry::StartOffset { to, .. } if to > self.end => self.skip_to(to)?,
                // Known already.
                WalEntry::StartOffset { .. } => {}
            }
            self.last_lsn = Some(lsn);
            self.written_lsn = Some(lsn);
        }
        if self.end < self.start {
            self.skip_to(self.start)?;
        }
        // Only after an accepted loss: otherwise what is told of and isn't there was never acknowledged.
        self.volume.lost(self.key, self.end..told);
        self.tell_of_deleted(deleted)?;
        rebuild_aborted(&volume, self.loaded_mut()?)?;
        self.last_epoch = self.loaded_mut()?.epochs.last();
        // Batches that were acknowledged and whose entries have been released are in synced segments; but which those
        // are, the mark may not say yet.
        if self.settings.sync
            && self.synced() < self.end
            && let Some(upkeep) = self.sync_segments()
            && let Err(error) = self.upkeep_done(upkeep.run())
            // On a full disk only the files beside the segments are missing, and they are made later.
            && (self.failed.is_some() || self.synced() < self.end)
        {
            return Err(error);
        }
        if self.is_quiet() {
            self.loaded = OnceLock::new();
        }
        Ok(())
    }

    /// Makes sure that the log holds what an entry says.
    fn redo_append(
        &mut self,
        base: Offset,
        mut rest: Bytes,
        deleted: &mut Vec<Told>,
    ) -> Result<(), DiskError> {
        let mut at = base;
        while !rest.is_empty() && at < self.end {
            let there = self.stored(at, rest.len())?;
            let same = common(&there, &rest);
            if same > 0 {
                let _ = rest.split_to(same);
                at = last_next(&there[..same]).unwrap_or(at);
                continue;
            }
            let Ok(header) = BatchHeader::parse(&rest) else {
                return Ok(());
            };
            let missing = !BatchHeader::parse(&there).is_ok_and(|h| h.base_offset <= at);
            if missing && header.next_offset() <= self.start {
                // Deleted meanwhile, and gone from the segments. It may be all that is known of its producer, unless another
                // batch took its place.
                if header.leader_epoch >= self.loaded_mut()?.epochs.epoch_at(header.base_offset) {
                    let marker = marker_of(&header, &rest);
                    deleted.push(Told { header, marker });
                }
                at = header.next_offset();
                let _ = rest.split_to(header.size().min(rest.len()));
                continue;
            }
            if self.is_newer(&there, &rest) {
                return Ok(());
            }
            self.cut_segments(at)?;
            break;
        }
        // Entries from between were released when their segments were synced, and those were removed when the start moved.
        if self.end < at.min(self.start) {
            self.skip_to(at.min(self.start))?;
        }
        if !rest.is_empty() {
            // What doesn't lead on from here was never acknowledged: the log was not going through the write-ahead log
            // before it.
            if at != self.end || self.append_follower(rest.to_vec()).is_err() {
                return Ok(());
            }
            sometimes(Mark::EntryDoneAgain);
            while let Some(write) = self.take_write() {
                self.write_done(write.run())?;
            }
        }
        self.wal_synced = self
            .wal_synced
            .max(self.end.min(last_next(&rest).unwrap_or(at)));
        Ok(())
    }

    /// Adds what only the write-ahead log says of producers, of records before the start that the segments don't have, and makes
    /// a snapshot of it: these entries go.
    fn tell_of_deleted(&mut self, mut deleted: Vec<Told>) -> Result<(), DiskError> {
        let volume = self.volume.clone();
        let log = self.loaded_mut()?;
        let from = log.producers_since;
        deleted.retain(|t| t.header.base_offset >= from);
        let Some(at) = deleted.iter().map(|t| t.header.next_offset()).max() else {
            return Ok(());
        };
        // The segments may have later batches of the same producer: all of them in order, from the beginning.
        deleted.sort_by_key(|t| t.header.base_offset);
        let mut producers = match log.snapshots.contains(&from) {
            true => producers_at(&volume, &log.dir, &[], Some(from), from)?,
            false => Producers::default(),
        };
        replay(&volume, &log.segments, from..at, &deleted, &mut producers)?;
        let path = snapshot_path(&log.dir, at);
        match replace(&volume, &path, &encode_snapshot(&producers)) {
            Ok(()) => {
                log.snapshots.insert(at);
                log.folder_unsynced = true;
            }
            // The entries stay until the next snapshot, of all of it.
            Err(error) if error.is_full() => {}
            Err(error) => return Err(error),
        }
        let all = Offset(i64::MAX);
        replay(&volume, &log.segments, at..all, &[], &mut producers)?;
        log.producers = producers;
        log.producers_since = at;
        Ok(())
    }

    /// Records before the start may never have become durable; the next one goes behind it all the same.
    fn skip_to(&mut self, start: Offset) -> Result<(), DiskError> {
        let key = self.key;
        let log = self.loaded_mut()?;
        {
            let mut state = log.active().state();
            state.facts.next = start;
            state.sealed = true;
        }
        let segment = Arc::new(Segment::new(key, log.dir.clone(), start));
        log.make = Some(segment.clone());
        log.push_segment(segment);
        log.needs_cut = false;
        log.check = EndCheck::default();
        (self.end, self.written) = (start, start);
        self.segments_synced = start;
        self.wal_synced = start;
        Ok(())
    }

    fn redo_truncate(&mut self, to: Offset) -> Result<(), DiskError> {
        // What is before the start, and when it was cut, is of no interest; what came later is.
        if to >= self.start && to < self.end {
            self.cut_segments(to)?;
        }
        Ok(())
    }

    /// The batches that the segments hold from `at` on; nothing when they are damaged.
    fn stored(&mut self, at: Offset, max_bytes: usize) -> Result<Bytes, DiskError> {
        let end = self.written;
        let read = self
            .reader()?
            .read(at, end, max_bytes)
            .and_then(|slices| slices.into_bytes());
        match read {
            Ok(bytes) => Ok(bytes),
            Err(ReadError::Disk(error)) => Err(error),
            Err(_) => Ok(Bytes::new()),
        }
    }

    /// Whether the segments' batch was written after the entry's: a newer epoch never comes before an older one.
    fn is_newer(&self, there: &[u8], entry: &[u8]) -> bool {
        match (BatchHeader::parse(there), BatchHeader::parse(entry)) {
            (Ok(there), Ok(entry)) => there.leader_epoch > entry.leader_epoch,
            _ => false,
        }
    }
}

/// Writes what a segment's file shows from `from` on once more. Where a sync has failed in an earlier life the system shows
/// bytes that it won't write again (Linux marks their pages clean), and a later sync would say that all is well.
fn write_again(volume: &Volume, segment: &Segment, from: Offset) -> Result<(), DiskError> {
    let path = segment.path("log");
    let size = segment.facts().size;
    let before = segment.floor_index(volume, |e| e.last_offset(segment.base) < from)?;
    let mut at = before.map_or(0, |e| e.position as u64).min(size);
    let file = volume.file(&path, OpenMode::Write)?;
    segment.state().unsynced = Some(file.clone());
    let mut buffer = vec![0; REWRITE_BYTES.min(usize::try_from(size - at).unwrap_or(usize::MAX))];
    while at < size {
        let want = buffer
            .len()
            .min(usize::try_from(size - at).unwrap_or(usize::MAX));
        let chunk = &mut buffer[..want];
        let n = file.read_at(chunk, at).map_err(disk_error("read", &path))?;
        if n == 0 {
            break;
        }
        file.write_at(&[&chunk[..n]], at)
            .map_err(disk_error("write", &path))?;
        at += n as u64;
    }
    Ok(())
}

/// Bytes of the whole batches with which both begin.
fn common(a: &[u8], b: &[u8]) -> usize {
    let mut same = 0;
    for (x, y) in batches(a).zip(batches(b)) {
        match (x, y) {
            (Ok(x), Ok(y)) if x.bytes == y.bytes => same += x.bytes.len(),
            _ => break,
        }
    }
    same
}

fn last_next(bytes: &[u8]) -> Option<Offset> {
    batches(bytes)
        .map_while(Result::ok)
        .last()
        .map(|b| b.header.next_offset())
}

/// Leaves out what a later truncation took back, so that it needs no room on a disk that may be full.
fn net(entries: Vec<(Lsn, WalEntry)>) -> Vec<(Lsn, WalEntry)> {
    let mut out: Vec<(Lsn, WalEntry)> = Vec::with_capacity(entries.len());
    for (lsn, entry) in entries {
        if let WalEntry::Truncate { to, .. } = &entry {
            out.retain(|(_, e)| !matches!(e, WalEntry::Append { base, .. } if base >= to));
        }
        out.push((lsn, entry));
    }
    out
}
