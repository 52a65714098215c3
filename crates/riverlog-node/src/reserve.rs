//! Room that is kept for the node itself, so that topics can be deleted, and groups go on, on a full disk.
//!
//! A file of a megabyte lies in the data folder. When a write finds no room, the file is removed and appends from outside
//! are refused; what the node has to write itself (metadata, offsets of groups) then has that room. When enough is free
//! again, the file is made anew and appends are taken again. A start on a full disk gives it up before logs are recovered: what
//! only the write-ahead log has of them takes room in their segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riverlog_core::Now;
use riverlog_log::{Disk, OpenMode};
use riverlog_mutants::{Mark, sometimes};

use crate::jobs::Work;
use crate::node::Node;
use crate::notice::Notice;

const PATH: &str = "reserve";
const BYTES: u64 = 1 << 20;

/// Free bytes at which appends are taken again.
const ENOUGH: u64 = 4 * BYTES;

/// What a job shall do with the file.
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    release: bool,
}

pub(crate) struct ReserveDone {
    release: bool,
    /// There is room: the file is there, or isn't needed.
    room: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Tight {
    /// A write found no room, and appends are refused.
    pub(crate) now: AtomicBool,
    /// A job is out.
    out: AtomicBool,
}

/// Removes the file where there is too little beside it. The folder's lock is held, and nobody writes yet.
pub(crate) fn give_up_where_full(disk: &dyn Disk) {
    let Ok(len) = disk.open(PATH, OpenMode::Read).and_then(|file| file.len()) else {
        return;
    };
    let available = disk.available().unwrap_or(u64::MAX);
    if len > 0 && available.saturating_add(len) < ENOUGH {
        // A failure shows where the room is missing.
        let _failed = disk.remove_file(PATH);
    }
}

impl Reserve {
    pub(crate) fn run(self) -> ReserveDone {
        let room = if self.release {
            // A failure shows as no room at the next look.
            let _failed = self.disk.remove_file(PATH);
            false
        } else {
            self.make().is_ok_and(|made| made)
        };
        ReserveDone {
            release: self.release,
            room,
        }
    }

    fn make(&self) -> std::io::Result<bool> {
        let available = self.disk.available()?;
        if available == u64::MAX {
            // A disk in memory has no end of its own.
            return Ok(true);
        }
        let file = self.disk.open(PATH, OpenMode::Create)?;
        let len = file.len()?;
        if available.saturating_add(len) < ENOUGH {
            return Ok(false);
        }
        let zeros = [0; 64 << 10];
        let mut at = len;
        while at < BYTES {
            let part = zeros.len().min(usize::try_from(BYTES - at).unwrap_or(0));
            file.write_at(&[zeros.get(..part).unwrap_or_default()], at)?;
            at += part as u64;
        }
        Ok(true)
    }
}

impl Node {
    fn reserve(&self, release: bool) {
        if !self.tight.out.swap(true, Ordering::Relaxed) {
            let disk = self.disk.clone();
            self.run_job(Work::Reserve(Reserve { disk, release }));
        }
    }

    /// Makes the file when there is room for it.
    pub(crate) fn make_reserve(&self) {
        self.reserve(false);
    }

    /// A write found no room.
    pub(crate) fn tighten(&self, now: Now) {
        if !self.tight.now.swap(true, Ordering::Relaxed) {
            sometimes(Mark::FullDiskRefused);
            self.host.notice(Notice::DiskFull);
            self.reserve(true);
        }
        self.retry_later(now);
    }

    /// Whether there is room for more than the node's own needs.
    pub(crate) fn has_room(&self) -> bool {
        let room = self.disk.available();
        !self.is_tight() && room.is_ok_and(|room| room >= ENOUGH)
    }

    pub(crate) fn is_tight(&self) -> bool {
        self.tight.now.load(Ordering::Relaxed)
    }

    /// Looks whether there is room again.
    pub(crate) fn look_for_room(&self, now: Now) {
        let never = riverlog_mutants::active(riverlog_mutants::Mutant::FullForEver);
        if self.is_tight() && !never {
            self.reserve(false);
            self.retry_later(now);
        }
    }

    pub(crate) fn reserve_done(&self, done: ReserveDone, now: Now) {
        self.tight.out.store(false, Ordering::Relaxed);
        if done.room {
            if self.tight.now.swap(false, Ordering::Relaxed) {
                sometimes(Mark::FullDiskRecovered);
                self.host.notice(Notice::DiskHasRoom);
                self.open_broken(now);
                // The write-ahead log may wait for a checkpoint that found no room; no group commit comes before it.
                self.upkeep_of_wal(true);
            }
        } else if !done.release {
            // Also at the start: the disk is full already.
            if !self.tight.now.swap(true, Ordering::Relaxed) {
                self.host.notice(Notice::DiskFull);
            }
            self.retry_later(now);
        }
    }
}
