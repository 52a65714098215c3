//! One segment as it is shared between the log, its readers, its writer and its upkeep.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use riverlog_wire::Offset;

use super::check::{BLOCK, BlockCrc, CheckSeed, Summary};
use super::crc::Crc;
use super::facts::{Facts, Marks};
use super::index::{IndexEntry, TimeEntry};
use super::proof::Hurt;
use super::transactions::AbortedTransaction;
use crate::volume::EndCheck;
use crate::{DiskError, DiskFile, LogKey, OpenMode, Volume};

/// Entries that are kept in memory before they are written beside the segment: 4 KiB of index.
const PENDING: usize = 512;

/// Blocks after which a sync of the segment makes their entries durable too: 16 MiB.
const NOTED: u64 = 256;

/// What the system said, with the file that it was about.
pub(super) fn disk_error(
    action: &'static str,
    path: &str,
) -> impl FnOnce(std::io::Error) -> DiskError {
    move |source| DiskError {
        action,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}

/// A segment. The log's lock guards what is in it; the locks inside are held for moments and never across I/O, except
/// `side_io`, which keeps two writers of the files beside the segment apart.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) base: Offset,
    pub(super) seed: CheckSeed,
    dir: Arc<str>,
    state: Mutex<State>,
    pub(super) side_io: Mutex<()>,
    /// Set before the file is removed while readers still want it.
    pub(super) pinned: OnceLock<Arc<dyn DiskFile>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) facts: Facts,
    /// Held while the file has bytes that no sync has covered, so that no descriptor with unsynced bytes is ever closed.
    pub(super) unsynced: Option<Arc<dyn DiskFile>>,
    /// The file was made (or found).
    pub(super) made: bool,
    /// No batch is added any more.
    pub(super) sealed: bool,
    /// Entries of the files beside the segment that were cut, and could come back at a power cut, are not synced yet.
    pub(super) sync_check: bool,
    /// The entries of so many blocks are durable, or will be with the sync that `sync_check` asks for.
    pub(super) noted: u64,
    /// CRC over the CRCs of the whole blocks behind them; `None`: not known.
    pub(super) since: Option<Crc>,
    /// The files beside the segment go on beyond what was flushed, with entries that mean nothing any more.
    pub(super) cut_side: bool,
    /// Bytes that the summary on disk is about; `u64::MAX`: there is none.
    pub(super) summarized: u64,
    /// Counts how often the segment was cut or scanned anew: a summary that was made before must not be written after.
    pub(super) life: u32,
    /// The indexes' CRCs have been compared in this life.
    pub(super) trust: Trust,
    pub(super) block: BlockCrc,
    /// Everything from here on was written, or checked batch by batch, in this life.
    pub(super) own_from: u64,
    /// Blocks before `own_from` that were verified in this life.
    pub(super) verified: Vec<u64>,
    pub(super) flushed: Flushed,
    pub(super) pending_index: Vec<IndexEntry>,
    pub(super) pending_time: Vec<TimeEntry>,
    pub(super) pending_checks: Vec<Option<u32>>,
    /// Transactions that were aborted by a marker in this segment, in order of the markers. All of them: few are.
    pub(super) aborted: Vec<AbortedTransaction>,
    /// Whether these are known: a scan finds that there are markers, but not what they abort.
    pub(super) knows_aborted: bool,
}

/// Whether the index files are those that the summary means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Unchecked,
    Good,
    /// They are not, and could not be made again: readers scan.
    Bad,
}

/// Entries that are in the files beside the segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flushed {
    pub(super) index: u32,
    pub(super) time: u32,
    pub(super) checks: u64,
    pub(super) aborted: u32,
}

/// What a block is compared with.
pub(super) enum BlockCheck {
    /// Verified before, or written in this life.
    Verified,
    /// Its first `len` bytes have this CRC.
    Crc { len: u64, crc: u32 },
    /// Nothing to compare with that can be trusted.
    Missing,
}

impl Segment {
    /// A segment without a byte, whose file is made by the first write.
    pub(super) fn new(key: LogKey, dir: Arc<str>, base: Offset) -> Segment {
        let seed = CheckSeed { key, base };
        Segment {
            base,
            seed,
            dir,
            state: Mutex::new(State {
                facts: Facts::new(base),
                unsynced: None,
                made: false,
                sealed: false,
                sync_check: false,
                noted: 0,
                since: Some(Crc::default()),
                cut_side: true,
                summarized: u64::MAX,
                life: 0,
                trust: Trust::Good,
                block: BlockCrc::start(seed),
                own_from: 0,
                verified: Vec::new(),
                flushed: Flushed::default(),
                pending_index: Vec::new(),
                pending_time: Vec::new(),
                pending_checks: Vec::new(),
                aborted: Vec::new(),
                knows_aborted: true,
            }),
            side_io: Mutex::new(()),
            pinned: OnceLock::new(),
        }
    }

    /// A segment whose file and summary were found.
    pub(super) fn found(key: LogKey, dir: Arc<str>, base: Offset, summary: &Summary) -> Segment {
        let segment = Segment::new(key, dir, base);
        {
            let mut state = segment.state.lock();
            state.facts = Facts::from_summary(summary);
            state.made = true;
            state.summarized = summary.size;
            state.trust = Trust::Unchecked;
            state.cut_side = false;
            state.block = BlockCrc::resume(segment.seed, summary.size, summary.tail_crc);
            state.own_from = u64::MAX;
            state.noted = summary.size / BLOCK;
            state.since = None;
            state.flushed = Flushed {
                index: summary.index.0,
                time: summary.time.0,
                checks: summary.size / BLOCK,
                aborted: 0,
            };
            state.knows_aborted = summary.aborted.0 == 0;
        }
        segment
    }

    /// What the index of aborted transactions was found to hold: its first entries are those that the summary means.
    pub(super) fn found_aborted(&self, all: Vec<AbortedTransaction>) {
        let mut state = self.state.lock();
        state.flushed.aborted = all.len() as u32;
        state.aborted = all;
        state.knows_aborted = true;
    }

    /// What markers abort, made again from the log; written beside the segment with the next summary.
    pub(super) fn rebuilt_aborted(&self, all: Vec<AbortedTransaction>) {
        let _io = self.side_io.lock();
        let mut state = self.state.lock();
        state.life += 1;
        state.facts.set_aborted(&all);
        state.flushed.aborted = 0;
        state.aborted = all;
        state.knows_aborted = true;
        state.summarized = u64::MAX;
    }

    pub(super) fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
    pub(super) fn facts(&self) -> Facts {
        self.state.lock().facts
    }

    pub(super) fn path(&self, extension: &str) -> String {
        format!("{}/{:020}.{extension}", self.dir, self.base.0)
    }

    /// The segment's file, open for reading.
    pub(super) fn file(&self, volume: &Volume) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open(volume, OpenMode::Read)
    }
    /// The segment's file, open for writing.
    pub(super) fn file_to_write(&self, volume: &Volume) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open(volume, OpenMode::Write)
    }
    fn open(&self, volume: &Volume, mode: OpenMode) -> Result<Arc<dyn DiskFile>, DiskError> {
        if let Some(file) = self.pinned.get() {
            return Ok(file.clone());
        }
        if let Some(file) = &self.state.lock().unsynced {
            return Ok(file.clone());
        }
        let opened = volume.file(&self.path("log"), mode);
        // Upkeep may have removed it between the two looks.
        match (opened, self.pinned.get()) {
            (_, Some(file)) => Ok(file.clone()),
            (opened, None) => opened,
        }
    }

    /// Opens the file for those who still read it, and removes all files of the segment.
    pub(super) fn remove(self: &Arc<Self>, volume: &Volume) -> Result<(), DiskError> {
        let _io = self.side_io.lock();
        let log = self.path("log");
        if Arc::strong_count(self) > 1
            && let Ok(file) = self.file(volume)
        {
            let _ = self.pinned.set(file);
        }
        for path in [
            log,
            self.path("index"),
            self.path("timeindex"),
            self.path("txnindex"),
            self.path("check"),
        ] {
            remove_file(volume, &path)?;
        }
        self.state.lock().unsynced = None;
        Ok(())
    }

    /// Takes the effects of a finished write in.
    pub(super) fn written(&self, done: WrittenPart) {
        let mut state = self.state.lock();
        state.facts = done.facts;
        state.block = done.block;
        state.made = true;
        state.unsynced = Some(done.file);
        state
            .pending_index
            .extend(done.marks.iter().filter_map(|m| m.index));
        state
            .pending_time
            .extend(done.marks.iter().filter_map(|m| m.time));
        state
            .aborted
            .extend(done.marks.iter().filter_map(|m| m.aborted));
        for block in &done.blocks {
            state.since = match (state.since, block) {
                (Some(mut crc), Some(block)) => {
                    crc.update(&block.to_be_bytes());
                    Some(crc)
                }
                _ => None,
            };
        }
        state.pending_checks.extend(done.blocks);
    }

    /// What is about to be synced: now and then the entries of its blocks are, too.
    pub(super) fn note(&self) {
        let mut state = self.state.lock();
        let whole = state.facts.size / BLOCK;
        if state.since.is_none() || whole >= state.noted + NOTED {
            state.note_all();
        }
    }

    /// What a mark says of the segment, whose bytes are synced as they are; their end has offset `synced`.
    pub(super) fn end_check(&self, synced: Offset) -> EndCheck {
        let state = self.state.lock();
        let (Some(mut crc), Some(tail)) = (state.since, state.block.tail_crc()) else {
            return EndCheck::default();
        };
        crc.update(&tail.to_be_bytes());
        let numbers = (
            u32::try_from(synced - self.base),
            u32::try_from(state.noted),
            u32::try_from(state.facts.size),
        );
        match numbers {
            (Ok(records), Ok(blocks), Ok(size)) if state.facts.next == synced => EndCheck {
                records,
                blocks,
                size,
                crc: crc.value(),
            },
            _ => EndCheck::default(),
        }
    }

    /// Whether enough is pending to be written beside the segment.
    pub(super) fn wants_flush(&self) -> bool {
        let state = self.state.lock();
        state.pending_index.len() >= PENDING || state.pending_checks.len() >= PENDING
    }

    /// No batch is added from now on. Kafka closes a time index with the segment's largest timestamp.
    pub(super) fn seal(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.sealed, true) {
            return;
        }
        if let Some(entry) = state.facts.mark_time(self.base) {
            state.pending_time.push(entry);
        }
        // Its entries have come to an end, and the marks are about the next segment.
        state.sync_check = true;
    }

    /// The summary as things are, to be handed to [`Segment::flush_side`].
    pub(super) fn summary(&self, epochs_crc: u32, producers: u32) -> PendingSummary {
        let state = self.state.lock();
        PendingSummary {
            summary: state
                .facts
                .summary(state.block.tail_crc(), epochs_crc, producers),
            life: state.life,
        }
    }

    /// Goes on with what a scan found behind the bytes that the summary is about. `doubtful`: entries of an earlier life may
    /// lie in the files beside the segment.
    pub(super) fn extended(&self, scan: &mut Rebuilt, doubtful: bool) {
        let mut state = self.state.lock();
        state.facts = scan.facts;
        state.block = scan.block;
        state.own_from = scan.own_from;
        state.knows_aborted &= !scan.markers;
        state.cut_side |= doubtful;
        state.pending_index.append(&mut scan.index);
        state.pending_time.append(&mut scan.time);
        state.pending_checks.append(&mut scan.blocks);
        state.note_all();
    }

    /// Starts over with what a scan of the segment gave: `facts`, its index entries, its blocks (`None` where no CRC can be
    /// told), and the unfinished block. Everything from `own_from` on was checked by the scan.
    pub(super) fn rebuilt(&self, scan: &mut Rebuilt) {
        let _io = self.side_io.lock();
        let mut state = self.state.lock();
        state.life += 1;
        state.facts = scan.facts;
        state.made = true;
        state.trust = Trust::Good;
        state.block = scan.block;
        state.own_from = scan.own_from;
        state.verified.clear();
        state.summarized = u64::MAX;
        // An older life's entries may lie in the file beyond these.
        state.note_all();
        state.flushed = Flushed::default();
        state.aborted.clear();
        state.knows_aborted = !scan.markers;
        state.cut_side = true;
        state.pending_index = std::mem::take(&mut scan.index);
        state.pending_time = std::mem::take(&mut scan.time);
        state.pending_checks = std::mem::take(&mut scan.blocks);
    }

    /// Goes back to the first `facts.size` bytes, which `scan` (headers only) has described; `block` is the CRC of the
    /// unfinished block there.
    pub(super) fn cut(&self, scan: Rebuilt, block: BlockCrc, file: Arc<dyn DiskFile>) {
        let _io = self.side_io.lock();
        let mut state = self.state.lock();
        let blocks = scan.facts.size / BLOCK;
        let next = scan.facts.next;
        state.life += 1;
        state.facts = scan.facts;
        state.aborted.retain(|a| a.last < next);
        let State { facts, aborted, .. } = &mut *state;
        facts.set_aborted(aborted);
        state.flushed.aborted = 0;
        state.block = block;
        state.unsynced = Some(file);
        state.sealed = false;
        state.trust = Trust::Good;
        state.summarized = u64::MAX;
        state.cut_side = true;
        state.note_all();
        state.own_from = state.own_from.min(scan.facts.size);
        state.flushed.index = 0;
        state.flushed.time = 0;
        state.pending_index = scan.index;
        state.pending_time = scan.time;
        let pending = blocks.saturating_sub(state.flushed.checks) as usize;
        state.pending_checks.truncate(pending);
        state.flushed.checks = state.flushed.checks.min(blocks);
    }
}

impl State {
    /// The next sync makes the entries of all whole blocks durable.
    fn note_all(&mut self) {
        self.sync_check = true;
        self.noted = self.facts.size / BLOCK;
        self.since = Some(Crc::default());
    }
}

/// A summary that is to be written, and the life of the segment that it is true for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSummary {
    pub(super) summary: Summary,
    pub(super) life: u32,
}

/// The effects of a finished write, for [`Segment::written`].
#[derive(Debug)]
pub(super) struct WrittenPart {
    pub(super) facts: Facts,
    pub(super) block: BlockCrc,
    pub(super) marks: Vec<Marks>,
    pub(super) blocks: Vec<Option<u32>>,
    pub(super) file: Arc<dyn DiskFile>,
}

/// The result of a scan, for [`Segment::rebuilt`].
#[derive(Debug)]
pub(super) struct Rebuilt {
    pub(super) facts: Facts,
    pub(super) index: Vec<IndexEntry>,
    pub(super) time: Vec<TimeEntry>,
    pub(super) blocks: Vec<Option<u32>>,
    pub(super) block: BlockCrc,
    pub(super) own_from: u64,
    /// Transactions end in the bytes that were scanned.
    pub(super) markers: bool,
    /// What can't be batches of the log, and was passed over.
    pub(super) bad: Vec<Hurt>,
}

/// Removes a file, and the open handle that the volume may keep of it.
pub(super) fn remove_file(volume: &Volume, path: &str) -> Result<(), DiskError> {
    volume
        .disk()
        .remove_file(path)
        .map_err(disk_error("remove", path))
}
