//! The files beside a segment: what is pending for them, and looking things up in them.
//!
//! Nothing durable depends on them: what can't be written stays pending, and what can't be read or doesn't fit is made
//! again from the segment, or done without.

use std::sync::Arc;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{LeaderEpoch, Offset};

use super::check::{BLOCK, CHECK_ENTRY, CHECK_HEADER, Summary};
use super::crc::crc32c;
use super::index::{INDEX_ENTRY, IndexEntry, TIME_ENTRY, TimeEntry};
use super::scan::{ScanRules, from_start, scan};
use super::segment::{BlockCheck, PendingSummary, Segment, Trust, disk_error, remove_file};
use super::transactions::{ABORTED_ENTRY, AbortedTransaction, parse_aborted};
use crate::{DiskError, DiskFile, OpenMode, Volume};

/// Kafka's default for `index.interval.bytes`: indexes that are made again are as dense as that.
const REBUILD_INTERVAL: u32 = 4096;

impl Segment {
    /// The summary in the file beside the segment, when there is one that is whole and of this segment.
    pub(super) fn read_summary(&self, volume: &Volume) -> Result<Option<Summary>, DiskError> {
        let bytes = self.read_side(volume, "check", 0, CHECK_HEADER)?;
        Ok(bytes.and_then(|b| self.seed.parse_header(&b)))
    }

    /// The aborted transactions that a summary means; `None` when the file beside the segment doesn't hold them.
    pub(super) fn read_aborted(
        &self,
        volume: &Volume,
        (entries, crc): (u32, u32),
    ) -> Result<Option<Vec<AbortedTransaction>>, DiskError> {
        let len = (entries as usize).saturating_mul(ABORTED_ENTRY);
        let bytes = self.read_side(volume, "txnindex", 0, len)?;
        let sound = |bytes: &Vec<u8>| crc32c(bytes) == crc || active(Mutant::IndexTrusted);
        Ok(bytes.filter(sound).and_then(|b| parse_aborted(&b)))
    }

    /// Writes what is pending into the files beside the segment; with a summary, that too. On an error everything stays
    /// pending: nothing durable depends on it.
    pub(super) fn flush_side(
        &self,
        volume: &Volume,
        summary: Option<PendingSummary>,
    ) -> Result<(), DiskError> {
        let _io = self.side_io.lock();
        let (flushed, cut, index, time, checks, aborted, summary) = {
            let state = self.state();
            if !state.made || self.pinned.get().is_some() {
                return Ok(());
            }
            (
                state.flushed,
                state.cut_side,
                state.pending_index.clone(),
                state.pending_time.clone(),
                state.pending_checks.clone(),
                state.aborted.clone(),
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
        let known = flushed.aborted as usize;
        if aborted.is_empty() && cut {
            // Kafka has none either where nothing was aborted.
            remove_file(volume, &self.path("txnindex"))?;
        } else if cut || known < aborted.len() {
            let new = aborted.get(known..).unwrap_or_default();
            let bytes: Vec<u8> = new.iter().flat_map(|a| a.encode()).collect();
            let path = self.path("txnindex");
            let file = volume.file(&path, OpenMode::Create)?;
            let at = (known * ABORTED_ENTRY) as u64;
            if cut || known == 0 {
                file.set_len(at).map_err(disk_error("cut", &path))?;
            }
            file.write_at(&[&bytes], at)
                .map_err(disk_error("write", &path))?;
        }
        if let Some(pending) = &summary {
            let path = self.path("check");
            let file = volume.file(&path, OpenMode::Create)?;
            file.write_at(&[&self.seed.encode_header(&pending.summary)], 0)
                .map_err(disk_error("write", &path))?;
        }
        let mut state = self.state();
        state.cut_side = false;
        state.pending_index.drain(..index.len());
        state.pending_time.drain(..time.len());
        state.pending_checks.drain(..checks.len());
        state.flushed.index += index.len() as u32;
        state.flushed.time += time.len() as u32;
        state.flushed.checks += checks.len() as u64;
        state.flushed.aborted = aborted.len() as u32;
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

    /// Removes what a segment of the same name left: a summary of an earlier life must not come back at a power cut.
    pub(super) fn clear_side(&self, volume: &Volume) -> Result<(), DiskError> {
        for extension in ["index", "timeindex", "txnindex", "check"] {
            remove_file(volume, &self.path(extension))?;
        }
        Ok(())
    }

    /// Makes the entries durable that replace cut ones.
    pub(super) fn sync_check(&self, volume: &Volume) -> Result<(), DiskError> {
        if !self.state().sync_check {
            return Ok(());
        }
        let path = self.path("check");
        let file = volume.file(&path, OpenMode::Create)?;
        file.sync().map_err(disk_error("sync", &path))?;
        self.state().sync_check = false;
        Ok(())
    }

    /// Compares the index files with the CRCs in the summary.
    pub(super) fn check_indexes(&self, volume: &Volume) -> Result<bool, DiskError> {
        let (facts, flushed, pending) = {
            let state = self.state();
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
        // Where the name means another segment by now, readers do without.
        if self.state().trust != Trust::Unchecked || self.pinned.get().is_some() {
            return Ok(());
        }
        let (facts, block) = from_start(self);
        let next = self.facts().next;
        let rules = ScanRules {
            trusted: next,
            limit: next,
            reach: Offset(i64::MAX),
            gaps_until: Offset(0),
            whole_until: Offset(0),
            epoch: LeaderEpoch(i32::MAX),
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
            self.state().trust = Trust::Bad;
            return Ok(());
        }
        {
            let mut state = self.state();
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

    /// Bytes of a file beside the segment, as many as there are.
    pub(super) fn read_side_up_to(
        &self,
        volume: &Volume,
        extension: &str,
        at: u64,
        len: usize,
    ) -> Result<Vec<u8>, DiskError> {
        let path = self.path(extension);
        let file = match volume.file(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let there = file.len().map_err(disk_error("look at", &path))?;
        let there = usize::try_from(there.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(there)];
        let n = file
            .read_at(&mut bytes, at)
            .map_err(disk_error("read", &path))?;
        bytes.truncate(n);
        Ok(bytes)
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
            let state = self.state();
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
            let state = self.state();
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
            let state = self.state();
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
        if self.pinned.get().is_some() {
            // The name may mean another segment by now, and the entry another block.
            return Ok(BlockCheck::Missing);
        }
        Ok(
            match entry.and_then(|e| self.seed.parse_entry(number, &e)) {
                Some(crc) => BlockCheck::Crc { len: BLOCK, crc },
                None => BlockCheck::Missing,
            },
        )
    }

    /// Block `number` is sound.
    pub(super) fn set_verified(&self, number: u64) {
        let mut state = self.state();
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
        if self.pinned.get().is_some() || number >= self.state().flushed.checks {
            return Ok(());
        }
        let path = self.path("check");
        let file = volume.file(&path, OpenMode::Create)?;
        let at = CHECK_HEADER as u64 + number * CHECK_ENTRY as u64;
        file.write_at(&[&self.seed.entry(number, crc)], at)
            .map_err(disk_error("write", &path))
    }
}

fn bit(words: &[u64], number: u64) -> bool {
    words
        .get((number / 64) as usize)
        .is_some_and(|word| word >> (number % 64) & 1 == 1)
}
