//! One segment as it is shared between the log, its readers, its writer and its upkeep.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use riverlog_wire::Offset;

use super::check::{BLOCK, BlockCrc, CHECK_ENTRY, CHECK_HEADER, CheckSeed, Summary};
use super::crc::crc32c;
use super::facts::{Facts, Marks};
use super::index::{INDEX_ENTRY, IndexEntry, TIME_ENTRY, TimeEntry};
use super::scan::{ScanRules, from_start, scan};
use crate::{DiskError, DiskFile, LogKey, OpenMode, Volume};

/// Entries that are kept in memory before they are written beside the segment: 4 KiB of index.
const PENDING: usize = 512;

/// Kafka's default for `index.interval.bytes`: indexes that are made again are as dense as that.
const REBUILD_INTERVAL: u32 = 4096;

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
    side_io: Mutex<()>,
    /// Set before the file is removed while readers still want it.
    pinned: OnceLock<Arc<dyn DiskFile>>,
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
    verified: Vec<u64>,
    flushed: Flushed,
    pending_index: Vec<IndexEntry>,
    pending_time: Vec<TimeEntry>,
    pending_checks: Vec<Option<u32>>,
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
struct Flushed {
    index: u32,
    time: u32,
    checks: u64,
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
            state.flushed = Flushed {
                index: summary.index.0,
                time: summary.time.0,
                checks: summary.size / BLOCK,
            };
        }
        segment
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
        state.pending_checks.extend(done.blocks);
    }

    /// Whether enough is pending to be written beside the segment.
    pub(super) fn wants_flush(&self) -> bool {
        let state = self.state.lock();
        state.pending_index.len() >= PENDING || state.pending_checks.len() >= PENDING
    }

    /// No batch is added from now on. Kafka closes a time index with the segment's largest timestamp.
    pub(super) fn seal(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.sealed, true)
            && let Some(entry) = state.facts.mark_time(self.base)
        {
            state.pending_time.push(entry);
        }
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

    /// The summary in the file beside the segment, when there is one that is whole and of this segment.
    pub(super) fn read_summary(&self, volume: &Volume) -> Result<Option<Summary>, DiskError> {
        let bytes = self.read_side(volume, "check", 0, CHECK_HEADER)?;
        Ok(bytes.and_then(|b| self.seed.parse_header(&b)))
    }

    /// Goes on with what a scan found behind the bytes that the summary is about. `doubtful`: entries of an earlier life may
    /// lie in the files beside the segment.
    pub(super) fn extended(&self, scan: &mut Rebuilt, doubtful: bool) {
        let mut state = self.state.lock();
        state.facts = scan.facts;
        state.block = scan.block;
        state.own_from = scan.own_from;
        state.cut_side |= doubtful;
        state.sync_check |= doubtful;
        state.pending_index.append(&mut scan.index);
        state.pending_time.append(&mut scan.time);
        state.pending_checks.append(&mut scan.blocks);
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
        state.sync_check = true;
        state.flushed = Flushed::default();
        state.cut_side = true;
        state.pending_index = std::mem::take(&mut scan.index);
        state.pending_time = std::mem::take(&mut scan.time);
        state.pending_checks = std::mem::take(&mut scan.blocks);
    }

    /// Writes what is pending into the files beside the segment; with a summary, that too. On an error everything stays
    /// pending: nothing durable depends on it.
    pub(super) fn flush_side(
        &self,
        volume: &Volume,
        summary: Option<PendingSummary>,
    ) -> Result<(), DiskError> {
        let _io = self.side_io.lock();
        let (flushed, cut, index, time, checks, summary) = {
            let state = self.state.lock();
            if !state.made || self.pinned.get().is_some() {
                return Ok(());
            }
            (
                state.flushed,
                state.cut_side,
                state.pending_index.clone(),
                state.pending_time.clone(),
                state.pending_checks.clone(),
                summary.filter(|s| s.life == state.life),
            )
        };
        let write = |extension: &str, bytes: &[u8], at: u64| -> Result<(), DiskError> {
            if bytes.is_empty() && !cut {
                return Ok(());
            }
            let path = self.path(extension);
            let file = volume.file(&path, OpenMode::Create)?;
            if cut {
                file.set_len(at).map_err(disk_error("cut", &path))?;
            }
            if !bytes.is_empty() {
                file.write_at(&[bytes], at)
                    .map_err(disk_error("write", &path))?;
            }
            Ok(())
        };
        let bytes: Vec<u8> = index.iter().flat_map(|e| e.encode()).collect();
        let at = u64::from(flushed.index) * INDEX_ENTRY as u64;
        write("index", &bytes, at)?;
        let bytes: Vec<u8> = time.iter().flat_map(|e| e.encode()).collect();
        let at = u64::from(flushed.time) * TIME_ENTRY as u64;
        write("timeindex", &bytes, at)?;
        let bytes: Vec<u8> = checks
            .iter()
            .zip(flushed.checks..)
            .flat_map(|(crc, block)| match crc {
                Some(crc) => self.seed.entry(block, *crc),
                None => self.seed.no_entry(block),
            })
            .collect();
        let at = CHECK_HEADER as u64 + flushed.checks * CHECK_ENTRY as u64;
        write("check", &bytes, at)?;
        if let Some(pending) = &summary {
            let path = self.path("check");
            let file = volume.file(&path, OpenMode::Create)?;
            file.write_at(&[&self.seed.encode_header(&pending.summary)], 0)
                .map_err(disk_error("write", &path))?;
        }
        let mut state = self.state.lock();
        state.cut_side = false;
        state.pending_index.drain(..index.len());
        state.pending_time.drain(..time.len());
        state.pending_checks.drain(..checks.len());
        state.flushed.index += index.len() as u32;
        state.flushed.time += time.len() as u32;
        state.flushed.checks += checks.len() as u64;
        if let Some(pending) = summary {
            state.summarized = pending.summary.size;
        }
        if state.sealed {
            state.pending_index.shrink_to_fit();
            state.pending_time.shrink_to_fit();
            state.pending_checks.shrink_to_fit();
        }
        Ok(())
    }

    /// Makes the entries durable that replace cut ones.
    pub(super) fn sync_check(&self, volume: &Volume) -> Result<(), DiskError> {
        if !self.state.lock().sync_check {
            return Ok(());
        }
        let path = self.path("check");
        let file = volume.file(&path, OpenMode::Create)?;
        file.sync().map_err(disk_error("sync", &path))?;
        self.state.lock().sync_check = false;
        Ok(())
    }

    /// Compares the index files with the CRCs in the summary.
    pub(super) fn check_indexes(&self, volume: &Volume) -> Result<bool, DiskError> {
        let (facts, flushed, pending) = {
            let state = self.state.lock();
            (
                state.facts,
                state.flushed,
                state.pending_index.len() + state.pending_time.len(),
            )
        };
        // Only a segment whose entries all come from an earlier life is unchecked.
        if pending > 0 {
            return Ok(false);
        }
        let whole = |extension: &str, len: usize, crc: u32| -> Result<bool, DiskError> {
            if len == 0 {
                return Ok(true);
            }
            match self.read_side(volume, extension, 0, len)? {
                Some(bytes) => Ok(crc32c(&bytes) == crc),
                None => Ok(false),
            }
        };
        Ok(whole(
            "index",
            flushed.index as usize * INDEX_ENTRY,
            facts.index_crc.value(),
        )? && whole(
            "timeindex",
            flushed.time as usize * TIME_ENTRY,
            facts.time_crc.value(),
        )?)
    }

    /// Makes the index files of a segment of an earlier life again, from its batches. When that isn't possible readers
    /// do without.
    pub(super) fn rebuild_indexes(
        &self,
        volume: &Volume,
        file: &Arc<dyn DiskFile>,
    ) -> Result<(), DiskError> {
        let _io = self.side_io.lock();
        if self.state.lock().trust != Trust::Unchecked {
            return Ok(());
        }
        let (facts, block) = from_start(self);
        let rules = ScanRules {
            trusted: Offset(i64::MAX),
            limit: Offset(i64::MAX),
            crc: false,
            interval: REBUILD_INTERVAL,
        };
        let scanned = scan(self, file.clone(), facts, block, rules, |_| {})?.rebuilt;
        let index: Vec<u8> = scanned.index.iter().flat_map(|e| e.encode()).collect();
        let time: Vec<u8> = scanned.time.iter().flat_map(|e| e.encode()).collect();
        let replace = |extension: &str, bytes: &[u8]| -> Result<(), DiskError> {
            let path = self.path(extension);
            let file = volume.file(&path, OpenMode::Create)?;
            file.set_len(0).map_err(disk_error("cut", &path))?;
            file.write_at(&[bytes], 0)
                .map_err(disk_error("write", &path))
        };
        let replaced = replace("index", &index).and_then(|()| replace("timeindex", &time));
        if replaced.is_err() {
            self.state.lock().trust = Trust::Bad;
            return Ok(());
        }
        {
            let mut state = self.state.lock();
            state.trust = Trust::Good;
            state.flushed.index = scanned.index.len() as u32;
            state.flushed.time = scanned.time.len() as u32;
            let known = scanned.facts;
            state.facts.index_entries = known.index_entries;
            state.facts.index_crc = known.index_crc;
            state.facts.time_entries = known.time_entries;
            state.facts.time_crc = known.time_crc;
            state.facts.last_time = known.last_time;
        }
        // So that the next life finds them right. Without it they are made again.
        if let Some(mut summary) = self.read_summary(volume)? {
            summary.index = (scanned.index.len() as u32, crc32c(&index));
            summary.time = (scanned.time.len() as u32, crc32c(&time));
            summary.last_time = scanned.facts.last_time;
            let path = self.path("check");
            let file = volume.file(&path, OpenMode::Create)?;
            let _ = file.write_at(&[&self.seed.encode_header(&summary)], 0);
        }
        Ok(())
    }

    /// Goes back to the first `facts.size` bytes, which `scan` (headers only) has described; `block` is the CRC of the
    /// unfinished block there.
    pub(super) fn cut(&self, scan: Rebuilt, block: BlockCrc, file: Arc<dyn DiskFile>) {
        let _io = self.side_io.lock();
        let mut state = self.state.lock();
        let blocks = scan.facts.size / BLOCK;
        state.life += 1;
        state.facts = scan.facts;
        state.block = block;
        state.unsynced = Some(file);
        state.sealed = false;
        state.trust = Trust::Good;
        state.summarized = u64::MAX;
        state.cut_side = true;
        state.sync_check = true;
        state.own_from = state.own_from.min(scan.facts.size);
        state.flushed.index = 0;
        state.flushed.time = 0;
        state.pending_index = scan.index;
        state.pending_time = scan.time;
        let pending = blocks.saturating_sub(state.flushed.checks) as usize;
        state.pending_checks.truncate(pending);
        state.flushed.checks = state.flushed.checks.min(blocks);
    }

    /// Bytes of a file beside the segment; `None` when it is missing or shorter.
    fn read_side(
        &self,
        volume: &Volume,
        extension: &str,
        at: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, DiskError> {
        let path = self.path(extension);
        let file = match volume.file(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        // A large read is only worth its memory when the file is that large.
        if len > (1 << 20) && file.len().map_err(disk_error("look at", &path))? < at + len as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        let n = file
            .read_at(&mut bytes, at)
            .map_err(disk_error("read", &path))?;
        Ok((n == len).then_some(bytes))
    }

    /// The last entry of the offset index for which `before` holds; entries are asked in rising order.
    pub(super) fn floor_index(
        &self,
        volume: &Volume,
        before: impl Fn(&IndexEntry) -> bool,
    ) -> Result<Option<IndexEntry>, DiskError> {
        let flushed = {
            let state = self.state.lock();
            if state.trust != Trust::Good {
                return Ok(None);
            }
            let n = state.pending_index.partition_point(&before);
            if let Some(entry) = n.checked_sub(1).and_then(|i| state.pending_index.get(i)) {
                return Ok(Some(*entry));
            }
            state.flushed.index as usize
        };
        self.floor_side(volume, "index", INDEX_ENTRY, flushed, |bytes| {
            IndexEntry::decode(bytes).filter(&before)
        })
    }

    /// The last entry of the time index for which `before` holds.
    pub(super) fn floor_time(
        &self,
        volume: &Volume,
        before: impl Fn(&TimeEntry) -> bool,
    ) -> Result<Option<TimeEntry>, DiskError> {
        let flushed = {
            let state = self.state.lock();
            if state.trust != Trust::Good {
                return Ok(None);
            }
            let n = state.pending_time.partition_point(&before);
            if let Some(entry) = n.checked_sub(1).and_then(|i| state.pending_time.get(i)) {
                return Ok(Some(*entry));
            }
            state.flushed.time as usize
        };
        self.floor_side(volume, "timeindex", TIME_ENTRY, flushed, |bytes| {
            TimeEntry::decode(bytes).filter(&before)
        })
    }

    /// Binary search in the first `count` entries of a file for the last one that `keep` keeps.
    fn floor_side<T>(
        &self,
        volume: &Volume,
        extension: &str,
        width: usize,
        count: usize,
        keep: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, DiskError> {
        /// Entries that are read at once when the search has come down to them.
        const PAGE: usize = 256;
        let (mut low, mut high) = (0, count);
        while high - low > PAGE {
            let middle = low + (high - low) / 2;
            let Some(bytes) = self.read_side(volume, extension, (middle * width) as u64, width)?
            else {
                return Ok(None);
            };
            if keep(&bytes).is_some() {
                low = middle;
            } else {
                high = middle;
            }
        }
        let Some(bytes) = self.read_side(
            volume,
            extension,
            (low * width) as u64,
            (high - low) * width,
        )?
        else {
            return Ok(None);
        };
        Ok(bytes.chunks_exact(width).map_while(&keep).last())
    }

    /// What block `number` is compared with.
    pub(super) fn block_check(
        &self,
        volume: &Volume,
        number: u64,
    ) -> Result<BlockCheck, DiskError> {
        let start = number * BLOCK;
        {
            let state = self.state.lock();
            if start >= state.own_from || bit(&state.verified, number) {
                return Ok(BlockCheck::Verified);
            }
            if number >= state.flushed.checks {
                let pending = (number - state.flushed.checks) as usize;
                let at = state.block.position();
                let (crc, len) = match state.pending_checks.get(pending) {
                    Some(crc) => (*crc, BLOCK),
                    None if at / BLOCK == number && at > start => {
                        (state.block.tail_crc(), at - start)
                    }
                    None => (None, 0),
                };
                return Ok(match crc {
                    Some(crc) => BlockCheck::Crc { len, crc },
                    None => BlockCheck::Missing,
                });
            }
        }
        let at = CHECK_HEADER as u64 + number * CHECK_ENTRY as u64;
        let entry = self.read_side(volume, "check", at, CHECK_ENTRY)?;
        Ok(
            match entry.and_then(|e| self.seed.parse_entry(number, &e)) {
                Some(crc) => BlockCheck::Crc { len: BLOCK, crc },
                None => BlockCheck::Missing,
            },
        )
    }

    /// Block `number` is sound.
    pub(super) fn set_verified(&self, number: u64) {
        let mut state = self.state.lock();
        let word = (number / 64) as usize;
        if state.verified.len() <= word {
            state.verified.resize(word + 1, 0);
        }
        if let Some(word) = state.verified.get_mut(word) {
            *word |= 1 << (number % 64);
        }
    }

    /// Writes the entry of a finished block that was found sound batch by batch.
    pub(super) fn repair_check(
        &self,
        volume: &Volume,
        number: u64,
        crc: u32,
    ) -> Result<(), DiskError> {
        let _io = self.side_io.lock();
        if self.pinned.get().is_some() || number >= self.state.lock().flushed.checks {
            return Ok(());
        }
        let path = self.path("check");
        let file = volume.file(&path, OpenMode::Create)?;
        let at = CHECK_HEADER as u64 + number * CHECK_ENTRY as u64;
        file.write_at(&[&self.seed.entry(number, crc)], at)
            .map_err(disk_error("write", &path))
    }
}

/// A summary that is to be written, and the life of the segment that it is true for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSummary {
    summary: Summary,
    life: u32,
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
}

fn bit(words: &[u64], number: u64) -> bool {
    words
        .get((number / 64) as usize)
        .is_some_and(|word| word >> (number % 64) & 1 == 1)
}

/// Removes a file, and the open handle that the volume may keep of it.
pub(super) fn remove_file(volume: &Volume, path: &str) -> Result<(), DiskError> {
    volume
        .disk()
        .remove_file(path)
        .map_err(disk_error("remove", path))
}
