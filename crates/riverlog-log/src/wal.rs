//! The write-ahead log of a volume: batches of all `sync` partitions in one recycled file set, one
//! `fdatasync` a group. Format: `docs/format/wal.md`.

use std::sync::Arc;

use bytes::Bytes;
use riverlog_wire::Offset;

use crate::volume::LogKey;
use crate::{Disk, DiskError};

/// A place in the write-ahead log: counts bytes since the volume was made and never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Lsn(pub u64);

/// What recovery must do again. Entries of one log are in the order in which they were submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalEntry {
    /// One or more whole batches, as they lie in the segment, `base..next`.
    Append {
        /// The log.
        key: LogKey,
        /// Offset of the first record.
        base: Offset,
        /// Offset after the last record.
        next: Offset,
        /// Their bytes.
        batches: Bytes,
    },
    /// The log was cut: nothing at or after `to` is left.
    Truncate {
        /// The log.
        key: LogKey,
        /// The new end.
        to: Offset,
    },
    /// Nothing before `to` can be read any more; `to` may be the end, or beyond it (start anew there).
    StartOffset {
        /// The log.
        key: LogKey,
        /// The new start.
        to: Offset,
    },
}

/// The write-ahead log. Its calls may come from several threads; at most one flush runs at a time.
#[derive(Debug)]
pub(crate) struct Wal {
    _private: (),
}

/// Settings of the write-ahead log.
#[derive(Clone, Debug)]
pub(crate) struct WalSettings {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes of each recycled file.
    pub segment_bytes: u64,
}

impl Wal {
    /// Opens or makes the log, and returns the entries that recovery must do again, oldest first. Damage that a torn
    /// last write explains ends the log there; an entry is only returned whole and with its checksum right.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        settings: WalSettings,
    ) -> Result<(Wal, Vec<(Lsn, WalEntry)>), DiskError> {
        todo!("{disk:?} {settings:?}")
    }
    /// Queues an entry in memory (no I/O) and returns the place just after it. The entry is durable once
    /// [`Wal::durable`] has reached that place.
    pub(crate) fn submit(&self, entry: WalEntry) -> Lsn {
        todo!("{entry:?}")
    }
    /// Bytes queued and not yet handed to a flush.
    pub(crate) fn queued(&self) -> usize {
        todo!()
    }
    /// Everything before this place survives a power cut.
    pub(crate) fn durable(&self) -> Lsn {
        todo!()
    }
    /// Writes what is queued with one vectored write and one sync (the host runs it on its own thread, without locks
    /// of partitions). Returns the new durable place. `Full`: the oldest part is still needed, see [`Wal::release`];
    /// the queue is kept and the call can be made again. Any other error ends the log for good: later flushes
    /// give the same error.
    pub(crate) fn flush(&self) -> Result<Lsn, FlushError> {
        todo!()
    }
    /// Nothing before `before` is needed any more: every log's segments are synced beyond it.
    pub(crate) fn release(&self, before: Lsn) {
        todo!("{before:?}")
    }
    /// Bytes between the oldest needed entry and the newest.
    pub(crate) fn used(&self) -> u64 {
        todo!()
    }
    /// Makes the next recycled file ready (written through, so that a later `fdatasync` has no metadata to write).
    /// Cheap when there is nothing to do; the host calls it from upkeep.
    pub(crate) fn prepare(&self) -> Result<(), DiskError> {
        todo!()
    }
}

/// Why a flush could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum FlushError {
    /// The oldest part is still needed.
    #[error("the write-ahead log is full until the oldest segments are synced")]
    Full,
    /// The disk failed, or had no room.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
