//! Writing what is queued: one vectored write for all batches of one segment.

use std::sync::Arc;

use bytes::Bytes;
use riverlog_wire::Offset;
use smallvec::SmallVec;

use super::Log;
use super::check::BlockCrc;
use super::facts::{BatchInfo, Facts, Marks};
use super::queue::Gate;
use super::segment::{Segment, WrittenPart, disk_error};
use crate::wal::{Lsn, WalEntry};
use crate::{DiskError, OpenMode, Volume};

/// Bytes and buffers of one write, so that its memory and its time are bounded.
const WRITE_BYTES: usize = 8 << 20;
const WRITE_BUFFERS: usize = 512;

/// A vectored write of everything queued, to be run without the partition's lock; at most one exists a log.
#[derive(Debug)]
pub struct Write {
    volume: Arc<Volume>,
    gate: Arc<Gate>,
    life: u64,
    segment: Arc<Segment>,
    facts: Facts,
    block: BlockCrc,
    interval: u32,
    /// The folder, when it has to be made.
    folder: Option<Arc<str>>,
    /// The file goes on beyond `facts`.
    cut: bool,
    /// The segment before, when this is the first write after it.
    seal: Option<Arc<Segment>>,
    /// One batch is the common case, and needs no memory of its own.
    buffers: SmallVec<[Bytes; 1]>,
    batches: SmallVec<[BatchInfo; 1]>,
}

/// What a [`Write`] did.
#[derive(Debug)]
pub struct Written {
    life: u64,
    segment: Arc<Segment>,
    /// `None`: the log was cut before the write ran.
    result: Option<Result<WrittenPart, DiskError>>,
}

impl Write {
    /// Makes files as needed, writes batches and index entries.
    pub fn run(self) -> Written {
        let result = self.gate.pass_write(self.life, || self.write());
        Written {
            life: self.life,
            segment: self.segment,
            result,
        }
    }

    fn write(&self) -> Result<WrittenPart, DiskError> {
        let volume = &*self.volume;
        if let Some(folder) = &self.folder {
            volume
                .disk()
                .create_dir_all(folder)
                .map_err(disk_error("make", folder))?;
        }
        if let Some(before) = &self.seal {
            before.seal();
            // What can't be written now stays pending, and is made again when the log is opened without it. The summary waits for
            // a sync: recovery believes only one about what is durable.
            let _ = before.flush_side(volume, None);
        }
        let path = || self.segment.path("log");
        let made = self.segment.state().made;
        let file = if made {
            self.segment.file_to_write(volume)?
        } else {
            self.segment.clear_side(volume)?;
            volume.file(&path(), OpenMode::Create)?
        };
        let failed = |action| move |error| disk_error(action, &path())(error);
        if self.cut || (!made && file.len().map_err(failed("look at"))? > 0) {
            file.set_len(self.facts.size).map_err(failed("cut"))?;
        }
        let buffers: SmallVec<[&[u8]; 4]> = self.buffers.iter().map(|b| &b[..]).collect();
        file.write_at(&buffers, self.facts.size)
            .map_err(failed("write"))?;
        let (mut facts, mut block) = (self.facts, self.block);
        let mut blocks = Vec::new();
        for buffer in &self.buffers {
            block.update(buffer, &mut blocks);
        }
        let marks: Vec<Marks> = self
            .batches
            .iter()
            .map(|b| facts.add(self.segment.base, b, self.interval))
            .filter(|m| !m.is_empty())
            .collect();
        if self.segment.wants_flush() {
            let _ = self.segment.flush_side(volume, None);
        }
        Ok(WrittenPart {
            facts,
            block,
            marks,
            blocks,
            file,
        })
    }
}

impl Log {
    /// The next write to run, when something is queued and none is out.
    pub fn take_write(&mut self) -> Option<Write> {
        if self.failed.is_some() {
            return None;
        }
        let volume = self.volume.clone();
        let interval = self.settings.index_interval_bytes;
        let log = self.loaded.get_mut()?;
        if !log.in_flight.is_empty() {
            return None;
        }
        let segment = log.queue.front()?.segment.clone();
        let (mut buffers, mut batches, mut bytes) = (SmallVec::new(), SmallVec::new(), 0);
        while let Some(next) = log.queue.front() {
            let fits = buffers.is_empty()
                || (bytes + next.bytes.len() <= WRITE_BYTES && buffers.len() < WRITE_BUFFERS);
            if !Arc::ptr_eq(&next.segment, &segment) || !fits {
                break;
            }
            bytes += next.bytes.len();
            buffers.push(next.bytes.clone());
            batches.extend(next.batches.iter().map(|b| b.info));
            log.in_flight.extend(log.queue.pop_front());
        }
        let at = log
            .segments
            .iter()
            .position(|s| Arc::ptr_eq(s, &segment))
            .unwrap_or(0);
        let before = at.checked_sub(1).and_then(|i| log.segments.get(i));
        let seal = before.filter(|s| !s.state().sealed).cloned();
        let (facts, block) = {
            let state = segment.state();
            (state.facts, state.block)
        };
        Some(Write {
            volume,
            gate: log.gate.clone(),
            life: log.gate.life(),
            facts,
            block,
            segment,
            interval,
            folder: (!log.folder_made).then(|| log.dir.clone()),
            cut: log.needs_cut,
            seal,
            buffers,
            batches,
        })
    }

    /// Takes a write back: `written` moves, or the log is failed (a full disk fails only what was queued:
    /// the log goes back to `written` and can be appended to again). The error is for the appends that
    /// were in flight; they were not acknowledged.
    pub fn write_done(&mut self, done: Written) -> Result<(), DiskError> {
        let Some(log) = self.loaded.get_mut() else {
            return Ok(());
        };
        let (Some(result), true) = (done.result, done.life == log.gate.life()) else {
            return Ok(());
        };
        match result {
            Ok(part) => {
                log.folder_unsynced |= !log.folder_made || !done.segment.state().made;
                log.folder_made = true;
                log.needs_cut = false;
                let before = done.segment.facts().size;
                self.size_bytes += part.facts.size - before;
                self.written = part.facts.next;
                done.segment.written(part);
                while let Some(item) = log.in_flight.pop_front() {
                    self.written_lsn = self.written_lsn.max(item.lsn);
                    log.tail
                        .push(&self.volume, item.base, item.next, item.bytes);
                }
                Ok(())
            }
            Err(error) => {
                log.needs_cut = true;
                self.roll_back();
                if !error.is_full() {
                    self.fail(error.clone());
                }
                Err(error)
            }
        }
    }

    /// Forgets what is queued: it could not be written.
    fn roll_back(&mut self) {
        let to = self.written;
        let Some(log) = self.loaded.get_mut() else {
            return;
        };
        let mut logged = false;
        for item in log
            .queue
            .drain(..)
            .rev()
            .chain(log.in_flight.drain(..).rev())
        {
            logged |= item.lsn.is_some();
            for batch in item.batches.iter().rev() {
                log.producers.undo(&batch.undo);
            }
        }
        drop_segments_from(log, to);
        log.epochs.truncate(to);
        self.last_epoch = log.epochs.last();
        self.end = to;
        if logged && !riverlog_mutants::active(riverlog_mutants::Mutant::TakenBackNotLogged) {
            // The write-ahead log may hold them; after a restart they must not come back over what is appended next.
            self.submit_truncate(to);
        }
    }

    pub(super) fn submit_truncate(&mut self, to: Offset) {
        let lsn = self.queue_truncate(to);
        self.truncate_counts(to, lsn);
    }

    /// Queues a cut for the write-ahead log, which may still be withdrawn. Returns the place after it.
    pub(super) fn queue_truncate(&mut self, to: Offset) -> Lsn {
        let lsn = self.volume.submit(WalEntry::Truncate { key: self.key, to });
        self.last_lsn = Some(lsn);
        lsn
    }

    /// Recovery may find the cut that ends at `lsn`: what lies beyond isn't durable by what was logged before.
    pub(super) fn truncate_counts(&mut self, to: Offset, lsn: Lsn) {
        self.wal_pending.retain(|(_, next)| *next <= to);
        self.wal_synced = self.wal_synced.min(to);
        self.cut = Some(None);
        self.cut_lsn = Some(lsn);
    }
}

/// Forgets planned segments that begin beyond `to`; nothing was written to them.
pub(super) fn drop_segments_from(log: &mut super::load::Loaded, to: Offset) {
    let keep = log.segments.partition_point(|s| s.base <= to).max(1);
    if keep < log.segments.len() {
        Arc::make_mut(&mut log.segments).truncate(keep);
    }
    log.planned = log.active().facts();
}
