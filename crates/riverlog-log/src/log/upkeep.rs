//! Upkeep: syncing segments, snapshots of producer state, the epoch checkpoint, removal of files.

use std::sync::Arc;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{Offset, ProducerId};

use super::Log;
use super::epochs::encode_epochs;
use super::load::{EPOCHS_FILE, Loaded, producers_at, snapshot_path};
use super::producers::Seen;
use super::queue::Gate;
use super::segment::{PendingSummary, Segment, disk_error, remove_file};
use super::snapshot::encode_snapshot;
use super::swap::Swap;
use crate::volume::EndCheck;
use crate::wal::Lsn;
use crate::{DiskError, DiskFile, OpenMode, Volume};

/// Work that keeps a log in shape: sync of segments, removal of old ones, snapshots. Run without the partition's lock; at
/// most one exists a log.
#[derive(Debug)]
pub struct Upkeep {
    volume: Arc<Volume>,
    gate: Arc<Gate>,
    life: u64,
    dir: Arc<str>,
    sync: Option<Sync>,
    /// A segment without a byte whose file must be there before the others go: its name carries the log's end.
    make: Option<Arc<Segment>>,
    /// A cleaned segment to be put in its place. Nothing is removed meanwhile: names change their meaning.
    swap: Option<Arc<Swap>>,
    remove: Vec<Arc<Segment>>,
    /// What the records that go say of their producers must be in a snapshot first: where it is to be, and an older one.
    base_snapshot: Option<BaseSnapshot>,
    remove_snapshots: Vec<Offset>,
    /// The new start must be durable before the files go: a crash may leave any of them.
    start_lsn: Option<Lsn>,
    sync_folder: bool,
}

#[derive(Debug)]
struct BaseSnapshot {
    at: Offset,
    older: Option<Offset>,
    /// When producers were last heard of: the records don't say.
    seen: Vec<(ProducerId, Seen)>,
}

/// The part that makes segments durable.
#[derive(Debug)]
pub(super) struct Sync {
    segments: Vec<SyncSegment>,
    /// Everything before it is durable afterwards, and the log's entries of the write-ahead log before that place are
    /// not needed any more.
    to: Offset,
    /// What the segment that ends there has then.
    check: EndCheck,
    lsn: Option<Lsn>,
    epochs: Option<String>,
    /// Epochs that are only queued are not among them.
    more_epochs: bool,
    snapshot: Option<(Offset, Vec<u8>)>,
}

#[derive(Debug)]
struct SyncSegment {
    segment: Arc<Segment>,
    /// `None`: only the files beside it are behind.
    file: Option<Arc<dyn DiskFile>>,
    size: u64,
    summary: PendingSummary,
}

/// What an [`Upkeep`] did.
#[derive(Debug)]
pub struct UpkeepDone {
    life: u64,
    sync: Option<Sync>,
    /// What could not be removed and is tried again.
    left: Vec<Arc<Segment>>,
    base_snapshot: Option<Offset>,
    make: Option<Arc<Segment>>,
    removed_snapshots: Vec<Offset>,
    /// The segments and their places in the folder are durable, whatever else went wrong.
    durable: bool,
    error: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    error: DiskError,
    /// Bytes of a segment may be lost: the log can't be trusted any more.
    fatal: bool,
}

impl Upkeep {
    /// Touches the disk.
    pub fn run(self) -> UpkeepDone {
        let mut done = UpkeepDone {
            life: self.life,
            sync: None,
            left: Vec::new(),
            base_snapshot: None,
            make: None,
            removed_snapshots: Vec::new(),
            durable: false,
            error: None,
        };
        let gate = self.gate.clone();
        let mut may_remove = true;
        let result = gate.pass_upkeep(self.life, || {
            self.keep(&mut done.durable)?;
            may_remove = self.start_is_durable()?;
            Ok(())
        });
        // Files of a life that has ended still have to go, and so has what they wait for.
        let result_void = result.is_none();
        done.error = match result {
            Some(Ok(())) => {
                done.base_snapshot = self.base_snapshot.as_ref().map(|b| b.at);
                None
            }
            Some(Err(failure)) => Some(failure),
            None => None,
        };
        if done.error.is_some() || result_void {
            done.left = self.remove;
            done.make = self.make;
        } else {
            let (remove, left) = match may_remove {
                true => (self.remove, Vec::new()),
                false => (Vec::new(), self.remove),
            };
            done.left = left;
            for segment in remove {
                if let Err(error) = segment.remove(&self.volume) {
                    done.error = Some(Failure {
                        error,
                        fatal: false,
                    });
                    done.left.push(segment);
                }
            }
            for at in self.remove_snapshots {
                if remove_file(&self.volume, &snapshot_path(&self.dir, at)).is_ok() {
                    done.removed_snapshots.push(at);
                }
            }
        }
        done.sync = self.sync;
        done
    }

    fn keep(&self, durable: &mut bool) -> Result<(), Failure> {
        let volume = &*self.volume;
        let minor = |error| Failure {
            error,
            fatal: false,
        };
        if let Some(segment) = &self.make {
            volume
                .disk()
                .create_dir_all(&self.dir)
                .map_err(disk_error("make", &self.dir))
                .map_err(minor)?;
            if !segment.state().made {
                segment.clear_side(volume).map_err(minor)?;
            }
            volume
                .file(&segment.path("log"), OpenMode::Create)
                .map_err(minor)?;
            segment.state().made = true;
        }
        for part in self.sync.iter().flat_map(|sync| &sync.segments) {
            if let Some(file) = &part.file {
                file.sync()
                    .map_err(disk_error("sync", &part.segment.path("log")))
                    .map_err(|error| Failure { error, fatal: true })?;
            }
        }
        // On a full disk what lies beside the segments can't be written; the segments count all the same.
        let beside = self.keep_beside();
        if self.sync_folder {
            sync_folder(volume, &self.dir).map_err(minor)?;
        }
        *durable = true;
        beside.map_err(minor)?;
        if let Some(swap) = &self.swap {
            swap.run(volume).map_err(minor)?;
        }
        Ok(())
    }

    /// Whether files before the start may go. When the write-ahead log has no room for the entry that says so, they stay until
    /// the next upkeep, and what this one has synced counts all the same: it is what makes room.
    fn start_is_durable(&self) -> Result<bool, Failure> {
        let Some(lsn) = self.start_lsn.filter(|_| !active(Mutant::FilesBeforeStart)) else {
            return Ok(true);
        };
        match self.volume.make_durable(lsn) {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => Ok(false),
            Err(error) => Err(Failure {
                error,
                fatal: false,
            }),
        }
    }

    /// Summaries, snapshots and epochs.
    fn keep_beside(&self) -> Result<(), DiskError> {
        let volume = &*self.volume;
        if let Some(sync) = &self.sync {
            for part in &sync.segments {
                part.segment.flush_side(volume, Some(part.summary))?;
                part.segment.sync_check(volume)?;
            }
            if let Some((at, bytes)) = &sync.snapshot {
                replace(volume, &snapshot_path(&self.dir, *at), bytes)?;
            }
            if let Some(text) = &sync.epochs {
                let path = format!("{}/{EPOCHS_FILE}", self.dir);
                replace(volume, &path, text.as_bytes())?;
            }
        }
        if let Some(BaseSnapshot { at, older, seen }) = &self.base_snapshot {
            let mut producers = producers_at(volume, &self.dir, &self.remove, *older, *at)?;
            producers.set_seen(seen);
            let path = snapshot_path(&self.dir, *at);
            replace(volume, &path, &encode_snapshot(&producers))?;
        }
        Ok(())
    }
}

/// Makes a log's folder and the entries in it durable.
pub(super) fn sync_folder(volume: &Volume, dir: &str) -> Result<(), DiskError> {
    if active(Mutant::FolderNotSynced) {
        return Ok(());
    }
    let mut path = dir;
    loop {
        volume
            .disk()
            .sync_dir(path)
            .map_err(disk_error("sync", path))?;
        if path.is_empty() {
            return Ok(());
        }
        path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
}

/// Replaces a small file, so that a crash leaves the old one or the new one once the folder is synced.
pub(super) fn replace(volume: &Volume, path: &str, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = format!("{path}.tmp");
    let file = volume
        .disk()
        .open(&temporary, OpenMode::Create)
        .map_err(disk_error("open", &temporary))?;
    file.set_len(0).map_err(disk_error("cut", &temporary))?;
    file.write_at(&[bytes], 0)
        .map_err(disk_error("write", &temporary))?;
    file.sync().map_err(disk_error("sync", &temporary))?;
    volume
        .disk()
        .rename(&temporary, path)
        .map_err(disk_error("rename", &temporary))
}

impl Log {
    /// Makes every segment durable and snapshots producer state. `None`: nothing unsynced, or an upkeep is out already.
    pub fn sync_segments(&mut self) -> Option<Upkeep> {
        if self.failed.is_some() {
            return None;
        }
        let lsn = self.covered_lsn();
        let to = self.written;
        let Some(log) = self.loaded.get_mut() else {
            self.tell_volume(lsn);
            return None;
        };
        if log.upkeep_out.is_some() {
            return None;
        }
        let Loaded {
            segments, epochs, ..
        } = &**log;
        let producers = state_as_written(log);
        let mut parts = Vec::new();
        for segment in segments.iter() {
            let (file, size, behind) = {
                let state = segment.state();
                let closed = state.sealed && state.sync_check;
                let behind = state.made && (state.summarized != state.facts.size || closed);
                (state.unsynced.clone(), state.facts.size, behind)
            };
            if file.is_none() && !behind {
                continue;
            }
            segment.note();
            let last = Arc::ptr_eq(segment, log.active());
            let known = if last {
                producers.len() as u32
            } else {
                u32::MAX
            };
            let crc = epochs.crc_between(segment.base, segment.facts().next);
            parts.push(SyncSegment {
                segment: segment.clone(),
                file,
                size,
                summary: segment.summary(crc, known),
            });
        }
        let mut known = epochs.clone();
        let queued = known.truncate(to);
        let epochs = (log.epochs_dirty && log.folder_made).then(|| encode_epochs(known.entries()));
        let idle = parts.is_empty() && epochs.is_none() && !log.folder_unsynced;
        if idle && log.doomed.is_empty() && log.make.is_none() && log.swap.is_none() {
            self.tell_volume(lsn);
            return None;
        }
        let wanted = log.folder_made && producers.len() > 0;
        let snapshot =
            (wanted && !log.snapshots.contains(&to)).then(|| (to, encode_snapshot(&producers)));
        let sync_folder = log.folder_unsynced || snapshot.is_some() || epochs.is_some();
        let active = log.active();
        let covered = parts.iter().any(|p| Arc::ptr_eq(&p.segment, active));
        let check = match covered || !active.state().sync_check {
            true => active.end_check(to),
            // The entries of its blocks aren't durable yet.
            false => EndCheck::default(),
        };
        let sync = Sync {
            segments: parts,
            to,
            check,
            lsn,
            epochs,
            more_epochs: queued,
            snapshot,
        };
        self.upkeep(Some(sync), sync_folder)
    }

    /// Puts an upkeep together; takes what waits for removal along.
    pub(super) fn upkeep(&mut self, sync: Option<Sync>, sync_folder: bool) -> Option<Upkeep> {
        let volume = self.volume.clone();
        let (start, start_lsn) = (self.start, self.start_lsn);
        let log = self.loaded.get_mut()?;
        let make = log.make.take();
        let swap = log.swap.clone();
        let remove = match &swap {
            Some(_) => Vec::new(),
            None => std::mem::take(&mut log.doomed),
        };
        log.upkeep_out = Some(log.gate.life());
        if let Some(sync) = &sync {
            // What comes from now on is for the next one.
            log.epochs_dirty &= sync.epochs.is_none() || sync.more_epochs;
            log.folder_unsynced = false;
        }
        let newest = sync.as_ref().and_then(|s| Some(s.snapshot.as_ref()?.0));
        let first = log.segments.first().map_or(start, |s| s.base);
        let missing =
            !remove.is_empty() && log.producers.len() > 0 && !log.snapshots.contains(&first);
        let wanted = missing && !active(Mutant::HeadWithoutSnapshot);
        let base_snapshot = wanted.then(|| BaseSnapshot {
            at: first,
            older: log.snapshots.range(..first).next_back().copied(),
            seen: log.producers.iter().map(|(id, p)| (id, p.seen)).collect(),
        });
        let remove_snapshots = superfluous(log, newest, start);
        Some(Upkeep {
            volume,
            gate: log.gate.clone(),
            life: log.gate.life(),
            dir: log.dir.clone(),
            sync_folder: sync_folder || make.is_some() || missing,
            base_snapshot,
            start_lsn: start_lsn.filter(|_| !remove.is_empty()),
            sync,
            make,
            swap,
            remove,
            remove_snapshots,
        })
    }

    /// Takes upkeep back.
    pub fn upkeep_done(&mut self, done: UpkeepDone) -> Result<(), DiskError> {
        let Some(log) = self.loaded.get_mut() else {
            return Ok(());
        };
        if log.upkeep_out == Some(done.life) {
            log.upkeep_out = None;
        }
        log.doomed.extend(done.left);
        if done.life != log.gate.life() {
            log.swap.take_if(|swap| swap.is_untouched());
        }
        self.settle_swap();
        let Some(log) = self.loaded.get_mut() else {
            return Ok(());
        };
        log.make = log.make.take().or(done.make);
        if done.life == log.gate.life() {
            log.snapshots.extend(done.base_snapshot);
        }
        for at in &done.removed_snapshots {
            log.snapshots.remove(at);
        }
        if let Some(failure) = done.error {
            log.epochs_dirty = true;
            log.folder_unsynced = true;
            if failure.fatal || !failure.error.is_full() {
                self.fail(failure.error.clone());
            } else if let Some(sync) = done.sync.filter(|_| done.durable)
                && done.life == log.gate.life()
                && (self.cut.is_none() || self.opening)
            {
                // Recovery would find it all, from where it begins now.
                self.wal_synced = self.wal_synced.max(sync.to);
            }
            return Err(failure.error);
        }
        let (Some(sync), true) = (done.sync, done.life == log.gate.life()) else {
            // The log was cut meanwhile: what was synced says nothing about what it holds now.
            log.epochs_dirty = true;
            log.folder_unsynced = true;
            return Ok(());
        };
        for part in sync.segments {
            let mut state = part.segment.state();
            if state.facts.size == part.size {
                state.unsynced = None;
            }
        }
        log.snapshots.extend(sync.snapshot.map(|(at, _)| at));
        log.check = sync.check;
        self.segments_synced = self.segments_synced.max(sync.to);
        if self.opening {
            // Recovery finds all of this once more, with its cuts: from segments that were synced, and from the entries behind
            // each cut.
            self.wal_synced = self.wal_synced.max(sync.to);
        }
        self.tell_volume(sync.lsn);
        self.end_cut();
        Ok(())
    }

    /// The place in the write-ahead log before which every entry of this log is about what is written.
    fn covered_lsn(&self) -> Option<Lsn> {
        match self.loaded.get() {
            Some(log) if !log.queue.is_empty() || !log.in_flight.is_empty() => self.written_lsn,
            _ => self.last_lsn,
        }
    }

    /// A cut that recovery did again: once the write-ahead log has a mark behind it, synced segments count. Nobody else
    /// may ever ask for that, of a log that isn't written to.
    pub(crate) fn end_recovered_cut(&mut self) {
        if self.cut == Some(None) && self.segments_synced == self.end {
            self.tell_volume(self.covered_lsn());
        }
    }

    /// Tells the volume what its checkpoint is to say, when that is news.
    pub(super) fn tell_volume(&mut self, lsn: Option<Lsn>) {
        if self.opening {
            return;
        }
        let mark = self.mark();
        let before = self.told.map_or(lsn, |(_, told)| lsn.max(told));
        if self.told != Some((mark, before)) {
            self.told = Some((mark, before));
            self.volume
                .segments_synced(self.key, mark, before.unwrap_or_default());
        }
        if self.cut == Some(None) && self.cut_lsn <= before {
            // The mark that recovery will begin with lies before this place.
            self.cut = Some(Some(self.volume.submitted()));
        }
    }
}

/// Producer state without what is only queued.
fn state_as_written(log: &Loaded) -> std::borrow::Cow<'_, super::producers::Producers> {
    let undos = log
        .queue
        .iter()
        .rev()
        .chain(log.in_flight.iter().rev())
        .flat_map(|item| item.batches.iter().rev())
        .map(|batch| &batch.undo);
    if log.producers.touched(undos.clone()) {
        std::borrow::Cow::Owned(log.producers.before(undos))
    } else {
        std::borrow::Cow::Borrowed(&log.producers)
    }
}

/// Snapshots that are not needed any more: kept are the newest two, and, for logs that are cut back, the newest one up to the
/// start (records before it may be missing) and the newest one within each segment.
fn superfluous(log: &Loaded, newest: Option<Offset>, start: Offset) -> Vec<Offset> {
    let mut all: Vec<Offset> = log.snapshots.iter().copied().chain(newest).collect();
    all.dedup();
    let candidates = all.len().saturating_sub(2);
    let at_start = all.iter().rev().find(|at| **at <= start).copied();
    let segment_of = |at: Offset| log.segments.partition_point(|s| s.base < at);
    all.iter()
        .zip(all.iter().skip(1))
        .take(candidates)
        .filter(|(at, next)| segment_of(**at) == segment_of(**next) && Some(**at) != at_start)
        .map(|(at, _)| *at)
        .collect()
}
