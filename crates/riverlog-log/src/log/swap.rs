//! Putting a cleaned segment in the place of those that it was made from, so that a crash leaves the old ones or the new one.
//!
//! 1. `<base>.log.cleaned` is written and synced; a crash before the next step leaves it, and it is removed.
//! 2. It is renamed to `<base>.log.swap`, durably: from here on the new segment counts.
//! 3. The old segments go, durably: all files but the first one's `.log`.
//! 4. `<base>.log.swap` is renamed to `<base>.log`, which replaces that one.
//!
//! [`finish_swaps`] does what a crash has left of steps 3 and 4.

use std::sync::Arc;

use parking_lot::Mutex;
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::Offset;

use super::Log;
use super::scan::{Step, Walker};
use super::segment::{Segment, disk_error, remove_file};
use super::upkeep::sync_folder;
use crate::{DiskError, LogKey, OpenMode, Volume};

/// Being written.
pub(super) const CLEANED: &str = "log.cleaned";
/// Whole, and on its way to its place.
const SWAP: &str = "log.swap";

/// Files beside a segment.
const BESIDE: [&str; 4] = ["index", "timeindex", "txnindex", "check"];

/// A cleaned segment and those that it replaces.
#[derive(Debug)]
pub(super) struct Swap {
    /// Neighbours in the log; the first one has the new one's name.
    pub(super) old: Vec<Arc<Segment>>,
    pub(super) new: Arc<Segment>,
    pub(super) dir: Arc<str>,
    /// CRC of the epochs that begin in it.
    pub(super) epochs_crc: u32,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Written,
    Counts,
    OldGone,
    Done,
}

impl Swap {
    pub(super) fn new(
        old: Vec<Arc<Segment>>,
        new: Arc<Segment>,
        dir: Arc<str>,
        epochs_crc: u32,
    ) -> Swap {
        Swap {
            old,
            new,
            dir,
            epochs_crc,
            stage: Mutex::new(Stage::Written),
        }
    }

    /// Nothing has happened yet that shows.
    pub(super) fn is_untouched(&self) -> bool {
        *self.stage.lock() == Stage::Written
    }
    /// The new segment has its place on the disk.
    pub(super) fn is_done(&self) -> bool {
        *self.stage.lock() == Stage::Done
    }
    fn replaces(&self, segment: &Arc<Segment>) -> bool {
        self.old.iter().any(|old| Arc::ptr_eq(old, segment))
    }

    /// Does it, or goes on where an error ended it. Readers of the old segments keep them.
    pub(super) fn run(&self, volume: &Volume) -> Result<(), DiskError> {
        let mut stage = self.stage.lock();
        let rename = |from: &str, to: &str| {
            let (from, to) = (self.new.path(from), self.new.path(to));
            let result = volume.disk().rename(&from, &to);
            result.map_err(disk_error("rename", &from))
        };
        if *stage == Stage::Written {
            for old in &self.old {
                old.pin(volume)?;
            }
            rename(CLEANED, SWAP)?;
            sync_folder(volume, &self.dir)?;
            *stage = Stage::Counts;
        }
        if *stage == Stage::Counts {
            for (at, old) in self.old.iter().enumerate() {
                if at > 0 {
                    remove_file(volume, &old.path("log"))?;
                }
                remove_beside(volume, old)?;
            }
            sync_folder(volume, &self.dir)?;
            *stage = Stage::OldGone;
        }
        if *stage == Stage::OldGone {
            rename(SWAP, "log")?;
            *stage = Stage::Done;
        }
        // Nothing depends on it: what is missing is made again.
        let summary = self.new.summary(self.epochs_crc, u32::MAX);
        // Made durable all the same: of what lies between gaps nothing else tells whether it is what was written.
        if self.new.flush_side(volume, Some(summary)).is_ok() {
            let _ = self.new.sync_check(volume);
        }
        sync_folder(volume, &self.dir)
    }
}

fn remove_beside(volume: &Volume, segment: &Segment) -> Result<(), DiskError> {
    for extension in BESIDE {
        remove_file(volume, &segment.path(extension))?;
    }
    Ok(())
}

impl Segment {
    /// Opens the file for those who read it now, since its name will mean another one.
    fn pin(&self, volume: &Volume) -> Result<(), DiskError> {
        // Whoever writes beside the segment is done, or sees that it must not.
        let _io = self.side_io.lock();
        let file = self.file(volume)?;
        let _ = self.pinned.set(file);
        Ok(())
    }
}

impl Log {
    /// Takes a swap in that has been run.
    pub(super) fn settle_swap(&mut self) {
        let volume = self.volume.clone();
        let Some(log) = self.loaded.get_mut() else {
            return;
        };
        let Some(swap) = log.swap.take_if(|swap| swap.is_done()) else {
            return;
        };
        // Their files are gone; the first one's name means the new segment.
        log.doomed.retain(|s| !swap.replaces(s));
        let first = log.segments.iter().position(|s| swap.replaces(s));
        let Some(first) = first else {
            log.doomed.push(swap.new.clone());
            return;
        };
        let segments = Arc::make_mut(&mut log.segments);
        let before: u64 = segments.iter().map(|s| s.facts().size).sum();
        segments.retain(|s| !swap.replaces(s));
        segments.insert(first, swap.new.clone());
        let after: u64 = segments.iter().map(|s| s.facts().size).sum();
        sometimes(Mark::SegmentsCleaned);
        // What was cleaned away must not be read from memory either.
        log.tail.start_at(&volume, swap.new.facts().next);
        self.size_bytes = (self.size_bytes + after).saturating_sub(before);
    }

    /// The log is cut, or begins anew: what was cleaned is of the life before. Nothing runs.
    pub(super) fn drop_swap(&mut self) {
        self.settle_swap();
        if let Some(log) = self.loaded.get_mut() {
            log.swap = None;
        }
    }
}

/// Finishes swaps that a crash has interrupted, and removes what was not finished. `names`: the folder's files. True: something
/// was done, and the folder is to be looked at again.
pub(super) fn finish_swaps(
    volume: &Volume,
    key: LogKey,
    dir: &Arc<str>,
    names: &[&str],
) -> Result<bool, DiskError> {
    let base_of = |name: &str, extension: &str| super::load::base_of(name, extension);
    let mut done = false;
    for base in names.iter().filter_map(|name| base_of(name, CLEANED)) {
        let unfinished = Segment::new(key, dir.clone(), base);
        remove_file(volume, &unfinished.path(CLEANED))?;
        done = true;
    }
    let bases: Vec<Offset> = names.iter().filter_map(|n| base_of(n, "log")).collect();
    for base in names.iter().filter_map(|name| base_of(name, SWAP)) {
        done = true;
        let new = Segment::new(key, dir.clone(), base);
        // A process that died may have left the name in the system's memory only.
        sync_folder(volume, dir)?;
        let next = match end_of(volume, &new, SWAP)?.filter(|next| bases.contains(next)) {
            Some(next) => next,
            // It isn't what was written, so that nobody knows what it replaces.
            None if goes_on_to_the_last(volume, &new, dir, &bases)? => {
                remove_file(volume, &new.path(SWAP))?;
                continue;
            }
            // Some of the old segments have gone: those that are there lie behind them, and what it says of theirs isn't read.
            None => base,
        };
        remove_beside(volume, &new)?;
        let replaced = |old: &&Offset| **old > base && **old < next;
        for old in bases.iter().filter(replaced) {
            sometimes(Mark::ReplacedAfterCrash);
            if active(Mutant::ReplacedSegmentsStay) {
                continue;
            }
            let old = Segment::new(key, dir.clone(), *old);
            remove_file(volume, &old.path("log"))?;
            remove_beside(volume, &old)?;
        }
        sync_folder(volume, dir)?;
        let (from, to) = (new.path(SWAP), new.path("log"));
        let renamed = volume.disk().rename(&from, &to);
        renamed.map_err(disk_error("rename", &from))?;
    }
    if done {
        sync_folder(volume, dir)?;
    }
    Ok(done)
}

/// The offset after the last batch of a segment's file; `None` when it is damaged. A segment that waits for its place was synced
/// before it got that name, and ends where the next one begins.
fn end_of(
    volume: &Volume,
    segment: &Segment,
    extension: &str,
) -> Result<Option<Offset>, DiskError> {
    let path = segment.path(extension);
    let file = match volume.disk().open(&path, OpenMode::Read) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(disk_error("open", &path))?,
    };
    let len = file.len().map_err(disk_error("look at", &path))?;
    let mut walker = Walker::new(segment, file, 0, len, segment.base, true);
    loop {
        // A sector that can't be read is damage as well, and must not keep the log from being opened.
        match walker.next_checked().map(|(step, _)| step) {
            Ok(Step::Batch { .. }) => {}
            Ok(Step::End) => return Ok(Some(walker.expected)),
            Ok(Step::Bad { .. }) | Err(_) => return Ok(None),
        }
    }
}

/// Whether none is missing of the segments from that of `first`'s name on: each ends where the next one begins.
fn goes_on_to_the_last(
    volume: &Volume,
    first: &Segment,
    dir: &Arc<str>,
    bases: &[Offset],
) -> Result<bool, DiskError> {
    let mut bases: Vec<Offset> = bases
        .iter()
        .filter(|b| **b >= first.base)
        .copied()
        .collect();
    bases.sort();
    for pair in bases.windows(2) {
        let [base, next] = *pair else { continue };
        let segment = Segment::new(first.seed.key, dir.clone(), base);
        let told = segment.read_summary(volume)?;
        // Most need not be read.
        if told.is_none_or(|summary| summary.next != next)
            && end_of(volume, &segment, "log")? != Some(next)
        {
            return Ok(false);
        }
    }
    Ok(bases.first() == Some(&first.base))
}
