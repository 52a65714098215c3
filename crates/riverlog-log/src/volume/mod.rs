//! A data folder: lock, format version, write-ahead log, checkpoint, and the logs in it. Its files:
//! `docs/format/volume.md`.

mod checkpoint;
mod cleaner;
mod delete;
mod files;
mod kept;
mod loss;
mod start;
mod table;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::{Offset, PartitionIndex, TopicId};

pub use self::cleaner::CleanerOffsets;
use self::files::{CLEAN, Files};
use self::table::{LogState, Table};
use crate::disk::failed;
use crate::log::{Log, LogSettings};
use crate::wal::{FlushError, Lsn, Wal, WalEntry};
use crate::{Disk, DiskError};

/// Which log. Its folder is `<topic id>/<partition>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKey {
    /// The topic, for life.
    pub topic: TopicId,
    /// Its partition.
    pub partition: PartitionIndex,
}

impl LogKey {
    /// Its folder within the volume.
    pub fn folder(&self) -> String {
        format!("{}/{}", self.topic, self.partition)
    }
}

/// Settings of a volume.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Bytes of the write-ahead log. Default 64 MiB, at least 32 KiB. No more than this waits in memory for a flush:
    /// beyond, appends are refused as on a full disk until a flush has made room.
    pub wal_bytes: u64,
    /// Bytes that recent batches of all logs may take in memory. Default 64 MiB.
    pub tail_cache_bytes: usize,
    /// Files that may be open at once. Default 4,000.
    pub open_files: usize,
}

impl Default for VolumeSettings {
    fn default() -> Self {
        VolumeSettings {
            wal_bytes: 64 << 20,
            tail_cache_bytes: 64 << 20,
            open_files: 4_000,
        }
    }
}

/// Why a data folder can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the data folder is in use by another riverlog process; stop it, or choose another folder"
    )]
    InUse,
    /// There is something in the folder, and it isn't a data folder.
    #[error(
        "the folder holds {found:?}, and no data of riverlog; name an empty folder or a new one"
    )]
    Foreign {
        /// One of the names in it.
        found: String,
    },
    /// Written by a newer release.
    #[error(
        "the data folder has format {found}, but this release reads up to {known}; start a newer release"
    )]
    Newer {
        /// In the folder.
        found: u32,
        /// The newest we know.
        known: u32,
    },
    /// A file that must be right is not.
    #[error("{path} is damaged: {reason}; {remedy}")]
    Damaged {
        /// Path within the folder.
        path: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The disk said no.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl OpenError {
    /// Whether acknowledged records or deletions may be missing: what the file `accept-loss` is for.
    pub fn is_damage(&self) -> bool {
        match self {
            OpenError::Damaged { .. } => true,
            // A bad sector.
            OpenError::Disk(error) => error.action == "read",
            OpenError::InUse | OpenError::Foreign { .. } | OpenError::Newer { .. } => false,
        }
    }
}

/// A data folder in use. Shared by its logs and the host; all calls may come from several threads.
pub struct Volume {
    settings: VolumeSettings,
    id: u128,
    loss: Option<String>,
    /// Of which records it is known that they are gone, after an accepted loss.
    lost: Mutex<BTreeMap<LogKey, Range<Offset>>>,
    files: Arc<Files>,
    /// `files`, as the logs get it.
    disk: Arc<dyn Disk>,
    wal: Arc<Wal>,
    /// Locked before the write-ahead log's own state.
    table: Mutex<Table>,
    recovery: Mutex<Recovery>,
    /// Files with entries of logs that are out of order. Locked before the table.
    kept: Mutex<kept::KeptFiles>,
    /// Logs that nobody can sync.
    stuck: Mutex<BTreeSet<LogKey>>,
    /// The host has a [`Flush`].
    flushing: AtomicBool,
    /// Sequence of the last checkpoint; held while one is written.
    checkpoint: Mutex<u64>,
    tail_bytes: AtomicUsize,
    /// Kept until [`Volume::close`], or until everything else is gone.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("id", &format_args!("{:032x}", self.id))
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// What start found and has not been handed to a log yet.
#[derive(Debug)]
struct Recovery {
    /// The last stop was clean.
    clean: bool,
    entries: BTreeMap<LogKey, Vec<(Lsn, WalEntry)>>,
    /// Logs that were deleted, and whose folder may still be there.
    leftovers: BTreeSet<LogKey>,
    /// Logs that could not be opened.
    failed: BTreeSet<LogKey>,
}

/// What [`Log::open`] gets.
#[derive(Debug)]
struct Handed {
    mark: Option<LogMark>,
    untouched: bool,
    /// Not opened before in this process's life.
    first: bool,
    entries: Vec<(Lsn, WalEntry)>,
}

/// A group commit to be run by the host, without locks of partitions. At most one exists at a time.
#[derive(Debug)]
pub struct Flush {
    volume: Arc<Volume>,
}

/// What a group commit did.
#[derive(Debug)]
pub struct FlushDone {
    /// For each log whose durable end moved: hand it to [`Log::on_synced`] under that partition's lock. Also after an error.
    pub synced: Vec<Synced>,
    /// After an error no log of this volume may answer with durability any more: all logs with unsynced bytes
    /// are failed, and the volume refuses further appends until it is opened anew. (A full disk is not that:
    /// it is reported here too, but [`DiskError::is_full`], the entries are kept and a later flush tries again.)
    pub error: Option<DiskError>,
}

/// The durable end of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Which log.
    pub key: LogKey,
    /// Everything before it survives a power cut.
    pub to: Offset,
}

impl Flush {
    /// One vectored write and one sync for each group; one group, but where a file of the write-ahead log ends.
    pub fn run(self) -> FlushDone {
        let error = match self.volume.run_flush() {
            // Nothing to report: there is no flush to take until segments have been synced, see `wants_sync`.
            Ok(()) | Err(FlushError::Full) => None,
            Err(FlushError::Disk(error)) => Some(error),
        };
        let synced = self.volume.wal.take_synced();
        let synced = synced.into_iter().map(|(key, to)| Synced { key, to });
        FlushDone {
            synced: synced.collect(),
            error,
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.volume.flushing.store(false, Ordering::Release);
    }
}

impl Volume {
    /// Opens or makes a data folder: takes its lock, checks its format version, reads checkpoint and write-ahead
    /// log. Logs are recovered one by one by [`Volume::open_log`].
    pub fn open(disk: Arc<dyn Disk>, settings: VolumeSettings) -> Result<Arc<Volume>, OpenError> {
        start::open(disk, settings)
    }
    /// The error after which nothing in this volume may be appended. One of a full disk ([`DiskError::is_full`]) passes:
    /// more than [`VolumeSettings::wal_bytes`] waits for a flush, and what is refused now can be tried again.
    pub fn failed(&self) -> Option<DiskError> {
        self.wal.failed().or_else(|| {
            let queued = self.wal.queued() as u64;
            (queued > self.settings.wal_bytes)
                .then(|| full("wal", "too much waits for the next flush"))
        })
    }
    /// Opens one log. Where the checkpoint says that it was closed cleanly, no file is touched until it is first used;
    /// otherwise its tail is checked and its entries of the write-ahead log are done again. A log that has never been
    /// appended to has no files.
    pub fn open_log(
        self: &Arc<Self>,
        key: LogKey,
        settings: LogSettings,
    ) -> Result<Log, OpenError> {
        let handed = self.hand_over(key)?;
        let Handed {
            mark,
            untouched,
            first,
            entries,
        } = handed;
        let mut log = Log::open(self.clone(), key, settings, mark, untouched, entries);
        self.handed_over(key, first, log.is_ok());
        if let Ok(log) = &mut log {
            log.end_recovered_cut();
        }
        log
    }
    /// What start found of a log.
    fn hand_over(&self, key: LogKey) -> Result<Handed, OpenError> {
        if let Some(Err(reason)) = self.kept.lock().get(&key) {
            let error = kept::damaged(key, reason.clone());
            self.recovery.lock().failed.insert(key);
            return Err(error);
        }
        let (entries, clean, leftover) = {
            let recovery = self.recovery.lock();
            (
                recovery.entries.get(&key).cloned().unwrap_or_default(),
                recovery.clean,
                recovery.leftovers.contains(&key),
            )
        };
        if leftover {
            self.remove_folders(&[key])?;
            self.recovery.lock().leftovers.remove(&key);
        }
        self.made_anew(key)?;
        let mut table = self.table.lock();
        if table.get(key).is_none() {
            table.insert(key, LogState::new(None, self.wal.submitted()));
        }
        let (mut mark, mut first) = (None, true);
        if let Some(state) = table.get_mut(key) {
            mark = state.known.then_some(state.mark);
            first = !std::mem::replace(&mut state.opened, true);
        }
        Ok(Handed {
            mark,
            // What the stop left is the truth for a log that nobody has touched since.
            untouched: clean && first,
            first,
            entries,
        })
    }
    fn handed_over(&self, key: LogKey, first: bool, well: bool) {
        let mut recovery = self.recovery.lock();
        if well {
            recovery.entries.remove(&key);
            recovery.failed.remove(&key);
            self.stuck.lock().remove(&key);
        } else {
            recovery.failed.insert(key);
            drop(recovery);
            self.is_stuck(key);
            if first && let Some(state) = self.table.lock().get_mut(key) {
                state.opened = false;
            }
        }
    }
    /// All logs that exist have been opened, or were tried to be: what the write-ahead log still holds for others belongs
    /// to deleted topics and is forgotten; their files are removed. A log that could not be opened keeps its files and its
    /// entries: it can be opened again once the disk lets it, in this life or the next.
    pub fn recovered(&self) -> Result<(), OpenError> {
        let (clean, failed) = {
            let mut recovery = self.recovery.lock();
            let failed = recovery.failed.clone();
            recovery.entries.retain(|key, _| failed.contains(key));
            recovery.leftovers.retain(|key| failed.contains(key));
            (recovery.clean, failed)
        };
        let mut unknown: BTreeSet<LogKey> = {
            let table = self.table.lock();
            let unopened = table.iter().filter(|(_, state)| !state.opened);
            unopened.map(|(key, _)| *key).collect()
        };
        if !clean {
            let there = self.folders()?;
            let table = self.table.lock();
            let unopened = |key: &LogKey| table.get(*key).is_none_or(|state| !state.opened);
            unknown.extend(there.into_iter().filter(unopened));
        }
        let failed = match active(Mutant::BrokenLogDeleted) {
            true => BTreeSet::new(),
            false => failed,
        };
        let unknown: Vec<LogKey> = unknown.difference(&failed).copied().collect();
        self.delete_logs(&unknown)?;
        self.table.lock().folders_gone_except(&failed);
        Ok(())
    }
    /// The logs that there are, in order: by their folders, the checkpoint and the write-ahead log. For a host that doesn't know
    /// yet which to expect.
    pub fn logs(&self) -> Result<Vec<LogKey>, DiskError> {
        let mut logs: BTreeSet<LogKey> = self.folders()?.into_iter().collect();
        logs.extend(self.table.lock().iter().map(|(key, _)| *key));
        let recovery = self.recovery.lock();
        logs.extend(recovery.entries.keys());
        Ok(logs.difference(&recovery.leftovers).copied().collect())
    }
    /// The folder's own id, drawn when it was made (`disk epoch`: a replaced or emptied disk has another).
    pub fn disk_id(&self) -> u128 {
        self.id
    }
    /// What was wrong with the folder when it was opened, and how much of the write-ahead log can't be read, when it was opened
    /// all the same because an operator had put the file `accept-loss` into it. For the host to say loudly.
    pub fn accepted_loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }
    /// After an accepted loss: offsets that were there, by checkpoint or write-ahead log, and are not any more. Complete once all
    /// logs are open. More may be gone of which nothing is left to tell.
    pub fn lost_records(&self) -> Vec<(LogKey, Range<Offset>)> {
        let lost = self.lost.lock();
        lost.iter()
            .map(|(key, range)| (*key, range.clone()))
            .collect()
    }
    pub(crate) fn lost(&self, key: LogKey, range: Range<Offset>) {
        if self.loss.is_some() && range.start < range.end {
            self.lost.lock().insert(key, range);
        }
    }
    /// A flush to run, when entries are queued and none is running. `None` also while the write-ahead log is full
    /// ([`Volume::wants_sync`] says what to do then), and after it has failed.
    pub fn take_flush(self: &Arc<Self>) -> Option<Flush> {
        if !self.wal.wants_flush() || self.flushing.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Flush {
            volume: self.clone(),
        })
    }
    fn run_flush(&self) -> Result<(), FlushError> {
        if let Err(error) = self.files.will_change() {
            let error = failed("remove", CLEAN)(error);
            if !error.is_full() {
                self.wal.end(error.clone());
            }
            return Err(error.into());
        }
        self.wal.flush().map(drop)
    }
    /// Bytes that wait in memory for a flush, or are in one.
    pub fn queued_bytes(&self) -> usize {
        self.wal.queued()
    }
    /// How far the write-ahead log has come, in places that only grow: everything before the first survives a power cut,
    /// everything that any log has queued lies before the second.
    pub fn progress(&self) -> (u64, u64) {
        let (durable, submitted) = (self.wal.durable(), self.wal.submitted());
        (durable.0, submitted.0)
    }
    /// Bytes of the write-ahead log that are in use, and that it may have.
    pub fn wal_bytes(&self) -> (u64, u64) {
        (self.wal.used(), self.wal.capacity())
    }
    /// Bytes that recent batches of all logs take in memory, and that they may take.
    pub fn tail_bytes(&self) -> (usize, usize) {
        let used = self.tail_bytes.load(Ordering::Relaxed);
        (used, self.settings.tail_cache_bytes)
    }
    /// Whether the write-ahead log wants room: more than half is used, or a flush found none. Files that end before they are
    /// full count too little in [`Volume::wal_bytes`] to tell.
    pub fn is_pressed(&self) -> bool {
        self.wal.pressing().is_some()
    }
    /// Logs whose segments should be synced next so that the oldest part of the write-ahead log can be used again;
    /// the host asks each for an [`crate::Upkeep`] of kind sync. Empty while less than half is used.
    pub fn wants_sync(&self) -> Vec<LogKey> {
        match self.wal.pressing() {
            Some(before) => self.table.lock().unsynced_before(before),
            None => Vec::new(),
        }
    }
    /// Writes the checkpoint: per log its start, end, synced segment end and epoch. Called now and then by the
    /// host, and at a clean stop with `clean` after all logs have been synced, which makes the next start
    /// touch no log at all. No log may be used after that. When some log turns out not to have been synced, the stop isn't
    /// clean, and the next start recovers.
    pub fn checkpoint(&self, clean: bool) -> Result<(), DiskError> {
        if let Some(error) = self.wal.failed() {
            return Err(error);
        }
        let mut sequence = self.checkpoint.lock();
        // What the marks know must not be in this checkpoint only: should it be damaged, the one before it and
        // the write-ahead log have to lead to the same. Where the log has no room, a second checkpoint does it.
        let logged = match self.make_durable(self.wal.submitted()) {
            Err(error) if error.is_full() => false,
            other => other.map(|()| true)?,
        };
        let mut crc = self.write_checkpoint(&mut sequence, false)?;
        // A log that has failed may hold more than its mark says, and without any entry when it opted out of syncing.
        let settled = self.stuck.lock().is_empty() && !self.table.lock().any_entries();
        let clean = clean && settled;
        if clean || !logged {
            // Before the write-ahead log is used anew at the next start both must be up to date.
            crc = self.write_checkpoint(&mut sequence, clean)?;
        }
        if !clean {
            return Ok(());
        }
        let mark = checkpoint::encode_clean(self.id, *sequence, crc);
        start::replace(&*self.disk, CLEAN, &mark)?;
        self.files.marked_clean();
        Ok(())
    }
    /// `last`: the one before it says the same, and all segments are synced, so that whoever reads it needs nothing of the
    /// write-ahead log. Returns the checkpoint's CRC.
    fn write_checkpoint(&self, sequence: &mut u64, last: bool) -> Result<u32, DiskError> {
        let next = *sequence + 1;
        let (bytes, crc) = {
            let mut table = self.table.lock();
            table.checkpoint_begun(self.wal.durable());
            let (place, _) = self.wal.place();
            let head = checkpoint::Head {
                volume: self.id,
                sequence: next,
                place,
                released: match table.oldest() {
                    Some(oldest) if !last => oldest,
                    _ => self.wal.submitted(),
                },
            };
            checkpoint::encode(
                &head,
                table.iter().map(|(key, state)| (*key, state.found())),
            )
        };
        let result = start::replace(&*self.disk, checkpoint::path(next), &bytes);
        let mut table = self.table.lock();
        table.checkpoint_done(result.is_ok());
        table.released(self.wal.persisted());
        self.release(&table);
        drop(table);
        result?;
        *sequence = next;
        self.tidy_kept();
        Ok(crc)
    }
    fn release(&self, table: &Table) {
        self.wal
            .release(table.oldest().unwrap_or(self.wal.submitted()));
    }
    /// Small work that keeps the write-ahead log quick and free: writes its next file through ahead of use, and a
    /// checkpoint when only that frees its oldest part. What it holds of logs that could not be opened or have failed, and that would
    /// keep it from being used again, it puts into files of their own. The host calls it every now and then on a thread that may wait for the disk,
    /// again at once while it returns `true`. A file that can't be written through for lack of room is no error; a checkpoint
    /// that can't be made is, since nothing else frees the write-ahead log: the host calls again when there may be room.
    pub fn upkeep(&self) -> Result<bool, DiskError> {
        let prepared = match self.wal.prepare() {
            Err(error) if error.is_full() => false,
            other => other?,
        };
        let pressing = self.wal.pressing();
        let kept = match pressing {
            Some(before) => self.keep_aside(before)?,
            None => false,
        };
        let marks = pressing.is_some_and(|before| {
            let table = self.table.lock();
            // What the life before had still to let go of: at a start nothing else would do it.
            let (_, released) = self.wal.place();
            let needed = table.oldest().unwrap_or(self.wal.submitted());
            table.unmarked_before(before, self.wal.durable())
                || (released < before && released < needed)
        });
        if marks {
            self.checkpoint(false)?;
        }
        Ok(prepared || marks || kept)
    }
    /// Gives the folder's lock back, so that another process (or this one) can open it while this value still lives somewhere.
    /// Waits for a flush and a checkpoint that are under way. The logs have been dropped; the volume refuses what it is
    /// asked afterwards.
    pub fn close(&self) {
        let _checkpoint = self.checkpoint.lock();
        self.wal.close();
        *self.lock.lock() = None;
    }
    /// Bytes free on the disk.
    pub fn available(&self) -> Result<u64, DiskError> {
        self.disk.available().map_err(failed("ask for room on", ""))
    }
}

/// What the checkpoint keeps of a log. Also the answer to "which logs exist".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogMark {
    /// Log start offset.
    pub start: Offset,
    /// Log end offset when the mark was made.
    pub end: Offset,
    /// Everything before it is synced in the segments: recovery begins here.
    pub segments_synced: Offset,
    /// Bytes of all segments.
    pub size_bytes: u64,
    /// Epoch of the last batch.
    pub last_epoch: riverlog_wire::LeaderEpoch,
    /// What the last of the segments holds before `segments_synced`.
    pub check: EndCheck,
}

/// What the segment that holds the end of a log's durable part had when it was synced. A batch's own CRC covers neither its
/// base offset nor whose it is, and a power cut may take what lies beside the segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndCheck {
    /// Offsets from the base offset of the segment to `segments_synced`.
    pub records: u32,
    /// Blocks from the start of the segment on whose entries are durable in its check file.
    pub blocks: u32,
    /// Bytes of the segment up to `segments_synced`; 0: nothing is known.
    pub size: u32,
    /// CRC over the CRCs of the blocks behind those, and that of the unfinished one.
    pub crc: u32,
}

/// What the logs of a volume ask of it.
impl Volume {
    /// The files below. Names that are removed or renamed through it are forgotten by [`Volume::file`].
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }
    /// Queues an entry for the write-ahead log; the log counts as needing a segment sync until
    /// [`Volume::segments_synced`] passes the place that is returned.
    ///
    /// Appends of a log without `sync` are not in the write-ahead log, so that a [`WalEntry::Truncate`] which is done again
    /// would cut what was appended after it. Such a log truncates otherwise: [`Volume::segments_synced`] with the shorter mark,
    /// [`Volume::make_durable`], and only then the files. A crash in between keeps the old tail, which does no harm.
    pub(crate) fn submit(&self, entry: WalEntry) -> Lsn {
        let key = entry.key();
        let marked = !matches!(entry, WalEntry::Append { .. });
        // Under the table's lock: a release in between must not pass over the entry.
        let mut table = self.table.lock();
        let range = self.wal.submit(entry);
        table.submitted(key, range.clone(), marked);
        range.end
    }
    /// Takes back a [`WalEntry::Truncate`] that was queued up to `end`: `false` where it may be in a file.
    pub(crate) fn withdraw_cut(&self, end: Lsn) -> bool {
        self.wal.withdraw_cut(end)
    }
    /// Every entry of `key` up to `before` (a place that [`Volume::submit`] returned) is covered by synced segments; `mark` is
    /// what the checkpoint says from now on.
    pub(crate) fn segments_synced(&self, key: LogKey, mark: LogMark, before: Lsn) {
        let mut table = self.table.lock();
        if let Some(mark) = table.covered(key, mark, before) {
            let range = self.wal.submit_mark(key, mark);
            table.mark_submitted(key, range);
        }
        self.release(&table);
    }
    /// The place after the last entry of any log.
    pub(crate) fn submitted(&self) -> Lsn {
        self.wal.submitted()
    }
    /// Everything before it survives a power cut. A log that was cut after it submitted appends compares with this place when
    /// it hears of a durable end: the end may be that of an append from before.
    pub(crate) fn durable(&self) -> Lsn {
        self.wal.durable()
    }
    /// Flushes the write-ahead log until `until` is durable; the host hears of the ends from its next [`Flush`]. Waits for the disk. An error of a full disk also when the
    /// write-ahead log has no room.
    pub(crate) fn make_durable(&self, until: Lsn) -> Result<(), DiskError> {
        if self.wal.durable() >= until {
            return Ok(());
        }
        self.run_flush().map_err(|error| match error {
            FlushError::Disk(error) => error,
            FlushError::Full => full("wal", "it is full until the oldest segments are synced"),
        })
    }
    /// An open file from the bounded set of descriptors (least recently used goes first). A file with unsynced
    /// bytes is kept open by its log holding the `Arc`; the set only drops its own.
    pub(crate) fn file(
        &self,
        path: &str,
        mode: crate::OpenMode,
    ) -> Result<Arc<dyn crate::DiskFile>, DiskError> {
        self.files.file(path, mode).map_err(failed("open", path))
    }
    /// Takes `bytes` from the tail cache's budget, in any case; `false`: over it, the log should let go of its oldest cached
    /// batches.
    pub(crate) fn tail_take(&self, bytes: usize) -> bool {
        let before = self.tail_bytes.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= self.settings.tail_cache_bytes
    }
    /// Gives bytes back to the tail cache's budget.
    pub(crate) fn tail_give(&self, bytes: usize) {
        self.tail_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn full(path: &str, why: &'static str) -> DiskError {
    failed("write", path)(std::io::Error::new(std::io::ErrorKind::StorageFull, why))
}
