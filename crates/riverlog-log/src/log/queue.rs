//! What is appended and not yet written, and the gate that keeps a cut and a write apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_wire::Offset;
use smallvec::SmallVec;

use super::facts::BatchInfo;
use super::producers::Undo;
use super::segment::Segment;
use crate::wal::Lsn;

/// Batches of one append that go into one segment.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) segment: Arc<Segment>,
    pub(super) base: Offset,
    pub(super) next: Offset,
    pub(super) bytes: Bytes,
    pub(super) batches: SmallVec<[QueuedBatch; 1]>,
    /// The place after its entry in the write-ahead log; `None` for a log without.
    pub(super) lsn: Option<Lsn>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct QueuedBatch {
    pub(super) info: BatchInfo,
    pub(super) undo: Undo,
}

/// A write and an upkeep hold the gate while they run; a cut makes those of the life before void, and waits for what runs.
#[derive(Debug, Default)]
pub(super) struct Gate {
    life: AtomicU64,
    write: Mutex<()>,
    upkeep: Mutex<()>,
}

impl Gate {
    pub(super) fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }
    /// Makes every write and upkeep that is out void.
    pub(super) fn end_life(&self) {
        self.life.fetch_add(1, Ordering::AcqRel);
    }
    /// Waits for what runs.
    pub(super) fn wait(&self) {
        drop(self.write.lock());
        drop(self.upkeep.lock());
    }
    /// Runs a write if `life` hasn't ended.
    pub(super) fn pass_write<T>(&self, life: u64, f: impl FnOnce() -> T) -> Option<T> {
        let _running = self.write.lock();
        (self.life() == life).then(f)
    }
    /// Runs an upkeep if `life` hasn't ended.
    pub(super) fn pass_upkeep<T>(&self, life: u64, f: impl FnOnce() -> T) -> Option<T> {
        let _running = self.upkeep.lock();
        (self.life() == life).then(f)
    }
}
