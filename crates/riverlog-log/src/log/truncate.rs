//! Cutting the tail: what a follower has to do when its leader's log went another way.

use std::sync::Arc;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{LeaderEpoch, Offset};

use super::Log;
use super::check::{BLOCK, BlockCrc};
use super::facts::Facts;
use super::load::load_producers;
use super::read::{Reader, SegmentReader};
use super::scan::{ScanRules, Step, from_start, scan};
use super::segment::{Segment, disk_error};
use super::verify::damage_between;
use crate::volume::{EndCheck, LogMark};
use crate::wal::Lsn;
use crate::{DiskError, DiskFile};

impl Log {
    /// Cuts everything at and after `to` (a follower's); rebuilds producer state. Does I/O, and waits for a write or an
    /// upkeep that runs. A batch that holds `to` goes as a whole: see [`Log::log_end_offset`]. After an error of a full disk
    /// ([`DiskError::is_full`]) the log is as it was, unless it has [failed](Log::failed).
    pub fn truncate(&mut self, to: Offset) -> Result<(), DiskError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.close_cut()?;
        let to = to.max(self.start);
        if to >= self.end {
            return Ok(());
        }
        if to >= self.written {
            self.end = self.cut_queue(to)?;
            self.last_epoch = self.loaded_mut()?.epochs.last();
            if self.through_wal {
                self.submit_truncate(self.end);
            }
            return Ok(());
        }
        let end = self.place_of_cut(to)?;
        // Nothing has changed yet: without room for anything the log goes on as it was, and this can be tried again.
        let told = self.tell_of_cut(end)?;
        self.log_cut(end, told)?;
        if let Err(error) = self.cut_segments(to) {
            // Half done: recovery makes one of it.
            self.fail(error.clone());
            return Err(error);
        }
        self.cut_is_open = !active(Mutant::CutNotLogged);
        self.close_cut()
    }

    /// Syncs what a cut has left, and has the write-ahead log, or where it is full both checkpoints, say that it is over, so that recovery doesn't
    /// cut what comes next. Nothing may come before that: where there is no room the log stays as it is, and this is tried again.
    pub(super) fn close_cut(&mut self) -> Result<(), DiskError> {
        if !self.cut_is_open {
            return Ok(());
        }
        if let Err(error) = self.make_cut_durable() {
            if !error.is_full() {
                self.fail(error.clone());
            }
            return Err(error);
        }
        self.cut_is_open = false;
        self.end_cut();
        Ok(())
    }

    fn make_cut_durable(&mut self) -> Result<(), DiskError> {
        if let Some(upkeep) = self.sync_segments() {
            self.upkeep_done(upkeep.run())?;
        }
        match self.volume.make_durable(self.volume.submitted()) {
            Err(error) if error.is_full() => {
                self.volume.checkpoint(false)?;
                // Both checkpoints cover the entry.
                self.cut = None;
                Ok(())
            }
            other => other,
        }
    }

    /// The write-ahead log must say so before files are cut: the checkpoint that a crash finds promises more than is left, and would make it look
    /// like lost data. Where it is full, checkpoints do (`told`: they have).
    fn log_cut(&mut self, end: Offset, told: bool) -> Result<(), DiskError> {
        if active(Mutant::CutNotLogged) {
            return Ok(());
        }
        let cut = self.queue_truncate(end);
        let logged = match told {
            true => Ok(()),
            false => self.make_durable_or_tell(end, cut),
        };
        if let Err(error) = &logged
            && error.is_full()
            && self.volume.withdraw_cut(cut)
        {
            return logged;
        }
        self.truncate_counts(end, cut);
        if let Err(error) = &logged {
            // Perhaps done in the write-ahead log only: recovery does the rest.
            self.fail(error.clone());
        }
        logged
    }

    fn make_durable_or_tell(&mut self, end: Offset, cut: Lsn) -> Result<(), DiskError> {
        match self.volume.make_durable(cut) {
            // It has become full just now.
            Err(error) if error.is_full() => self.tell_of_cut(end).map(|_| ()),
            other => other,
        }
    }

    /// Whether two checkpoints say that the log ends at `end`: they must where the write-ahead log is full and can't. What
    /// lies beyond is then a tail that a crash may leave.
    fn tell_of_cut(&mut self, end: Offset) -> Result<bool, DiskError> {
        let volume = self.volume.clone();
        match volume.make_durable(volume.submitted()) {
            Err(error) if error.is_full() => {}
            other => return other.map(|()| false),
        }
        let known = self.mark();
        let (_, before) = self.told.unwrap_or((known, None));
        let shorter = LogMark {
            end,
            segments_synced: known.segments_synced.min(end),
            last_epoch: self.epoch_at(end + -1),
            check: EndCheck::default(),
            ..known
        };
        let before = before.unwrap_or_default();
        volume.segments_synced(self.key, shorter, before);
        let result = volume.checkpoint(false);
        if result.is_err() {
            volume.segments_synced(self.key, known, before);
        }
        self.told = None;
        result.map(|()| true)
    }

    /// Where the log will end.
    fn place_of_cut(&mut self, to: Offset) -> Result<Offset, DiskError> {
        let reader = self.reader()?;
        let at = reader.segments.partition_point(|s| s.base <= to);
        match reader.segments.get(at.saturating_sub(1)) {
            Some(segment) => Ok(place_of(&reader, segment, to)?.1),
            None => Ok(to),
        }
    }

    /// Takes queued batches back. Those that stay are written again: a write that was out may have been half done.
    fn cut_queue(&mut self, to: Offset) -> Result<Offset, DiskError> {
        let (mut end, interval) = (self.written, self.settings.index_interval_bytes);
        let log = self.loaded_mut()?;
        log.gate.end_life();
        log.gate.wait();
        let queue = std::mem::take(&mut log.queue);
        let mut kept = std::mem::take(&mut log.in_flight);
        log.needs_cut |= !kept.is_empty();
        kept.extend(queue);
        while let Some(mut item) = kept.pop_back_if(|item| item.next > to) {
            let mut bytes = item.bytes.len();
            while item.batches.last().is_some_and(|b| b.info.next > to) {
                if let Some(batch) = item.batches.pop() {
                    if !active(Mutant::ProducersSurviveCut) {
                        log.producers.undo(&batch.undo);
                    }
                    bytes -= batch.info.size as usize;
                }
            }
            if let Some(last) = item.batches.last() {
                item.next = last.info.next;
                item.bytes.truncate(bytes);
                kept.push_back(item);
                break;
            }
        }
        if let Some(last) = kept.back() {
            end = last.next;
        }
        super::write::drop_segments_from(log, end);
        let active = log.active().clone();
        for item in kept.iter().filter(|i| Arc::ptr_eq(&i.segment, &active)) {
            for batch in &item.batches {
                log.planned.add(active.base, &batch.info, interval);
            }
        }
        log.queue = kept;
        log.epochs.truncate(end);
        Ok(end)
    }

    /// Cuts files, and makes what is in memory again.
    pub(super) fn cut_segments(&mut self, to: Offset) -> Result<Offset, DiskError> {
        let volume = self.volume.clone();
        let (start, opening) = (self.start, self.opening);
        let interval = self.settings.index_interval_bytes;
        let log = self.loaded_mut()?;
        log.gate.end_life();
        log.gate.wait();
        self.drop_swap();
        let log = self.loaded_mut()?;
        log.queue.clear();
        log.in_flight.clear();
        log.upkeep_out = None;
        let at = log
            .segments
            .partition_point(|s| s.base <= to)
            .saturating_sub(1);
        let reader = Reader {
            volume: volume.clone(),
            segments: log.segments.clone(),
            epochs: log.epochs.clone(),
        };
        let Some(segment) = reader.segments.get(at) else {
            return Ok(start);
        };
        let (cut_at, end) = place_of(&reader, segment, to)?;
        for gone in log.segments.iter().skip(at + 1).rev() {
            gone.remove(&volume)?;
        }
        match cut_at {
            Some(cut_at) => cut_segment(&reader, segment, cut_at, end, interval)?,
            // Within a hole, perhaps.
            None => segment.state().facts.next = end,
        }
        Arc::make_mut(&mut log.segments).truncate(at + 1);
        if segment.base > end {
            // Everything is gone, and a segment's name says where it begins.
            segment.remove(&volume)?;
            let key = segment.seed.key;
            log.segments = Arc::new(Vec::new());
            log.push_segment(Arc::new(Segment::new(key, log.dir.clone(), end)));
        }
        if segment.state().sealed {
            // Its end is where the log now ends; what follows goes into a segment of its own.
            let key = segment.seed.key;
            log.push_segment(Arc::new(Segment::new(key, log.dir.clone(), end)));
        }
        let mut end = end;
        if end < start && !opening {
            // The batch that holds the start is gone as well: the log is empty there.
            let key = segment.seed.key;
            log.active().state().sealed = true;
            let empty = Arc::new(Segment::new(key, log.dir.clone(), start));
            log.make = Some(empty.clone());
            log.push_segment(empty);
            end = start;
        }
        log.planned = log.active().facts();
        log.needs_cut = false;
        log.folder_unsynced = true;
        log.check = EndCheck::default();
        log.tail.truncate(&volume, end);
        if opening || !active(Mutant::EpochsSurviveCut) {
            log.epochs.truncate(end);
        }
        log.epochs_dirty = true;
        if opening || !active(Mutant::ProducersSurviveCut) {
            log.producers = load_producers(&volume, log, end, None)?;
        }
        let (size, last_epoch) = (log.written_bytes(), log.epochs.last());
        self.size_bytes = size;
        self.last_epoch = last_epoch;
        self.written = end;
        self.end = end;
        self.segments_synced = self.segments_synced.min(end);
        self.wal_synced = self.wal_synced.min(end);
        self.wal_pending.retain(|(_, next)| *next <= end);
        Ok(end)
    }
}

/// Where the first batch begins that reaches beyond `to` (`None`: no such batch in this segment), and the log's end then.
fn place_of(
    reader: &Reader,
    segment: &Arc<Segment>,
    to: Offset,
) -> Result<(Option<u64>, Offset), DiskError> {
    let open = SegmentReader::open(reader, segment)?;
    let Some(file) = &open.file else {
        return Ok((None, open.next.min(to)));
    };
    open.trust_indexes(file)?;
    let (at, offset) = open.floor(file, to)?;
    let mut walker = open.walker(file, at, offset);
    let mut end = segment.base;
    loop {
        match walker.look(4096)? {
            Step::Batch { header, at } => {
                if header.next_offset() > to {
                    return Ok((Some(at), header.base_offset.min(to)));
                }
                end = header.next_offset();
                walker.pass(&header);
            }
            Step::End => return Ok((None, open.next.min(to).max(end))),
            Step::Bad { at, .. } => {
                // Batches that stay may lie behind some that look as if they came later.
                walker.until = to;
                let stays = walker.resync()?;
                walker.until = open.next;
                if !stays && !walker.resync()? {
                    return Ok((Some(at), end));
                }
            }
        }
    }
}

/// Cuts a segment's file, and makes its facts again.
fn cut_segment(
    reader: &Reader,
    segment: &Arc<Segment>,
    cut_at: u64,
    end: Offset,
    interval: u32,
) -> Result<(), DiskError> {
    let path = segment.path("log");
    let open = SegmentReader::open(reader, segment)?;
    let file = segment.file_to_write(&reader.volume)?;
    let block_start = cut_at / BLOCK * BLOCK;
    let (block, damaged) = tail_block(&open, &file, block_start, cut_at)?;
    file.set_len(cut_at).map_err(disk_error("cut", &path))?;
    let (facts, start) = from_start(segment);
    let rules = ScanRules {
        trusted: end,
        limit: end,
        reach: end,
        gaps_until: Offset(0),
        whole_until: Offset(0),
        epoch: LeaderEpoch(i32::MAX),
        crc: false,
        interval,
    };
    let appended_ms = segment.facts().appended_ms;
    let mut scanned = scan(segment, file.clone(), facts, start, rules, |_| {})?.rebuilt;
    scanned.facts = Facts {
        size: cut_at,
        next: end,
        appended_ms,
        ..scanned.facts
    };
    segment.cut(scanned, block, file);
    // Nothing is added to a block that isn't what was written: what comes would be doubted with it.
    segment.state().sealed = damaged;
    Ok(())
}

/// The CRC of the bytes that stay in the block which is cut, and whether some of them are damaged: then it doesn't fit them.
fn tail_block(
    open: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    from: u64,
    to: u64,
) -> Result<(BlockCrc, bool), DiskError> {
    let seed = open.segment.seed;
    let mut block = BlockCrc::resume(seed, from, Some(seed.block(from / BLOCK).value()));
    let mut done = Vec::new();
    if from == to {
        return Ok((block, false));
    }
    let damaged = damage_between(open, file, from, to)?
        .iter()
        .any(|d| d.at.start < to);
    let mut bytes = vec![0; (to - from) as usize];
    let n = file
        .read_at(&mut bytes, from)
        .map_err(disk_error("read", &open.segment.path("log")))?;
    if n < bytes.len() {
        block.skip(to - from, &mut done);
        return Ok((block, true));
    }
    block.update(&bytes, &mut done);
    if damaged {
        block.spoil();
    }
    Ok((block, damaged))
}
