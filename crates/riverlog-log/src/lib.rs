//! One copy of one partition on a disk, and the write-ahead log of a volume.
//!
//! A [`Volume`] is a data folder: its lock, its format version, its write-ahead log and its checkpoint.
//! A [`Log`] is one partition's copy in it. Both are driven from outside: nothing here starts a thread,
//! reads a clock or waits. Calls that take `&mut Log` touch no disk on the hot path; work on the disk is
//! handed out as values ([`Write`], [`ReadPlan`], [`Flush`], [`Upkeep`]) that the host runs without holding
//! the partition's lock, and whose results it hands back.
//!
//! ```text
//! append ──► offsets assigned, queued in memory ──► take_write ► Write::run ► write_done   (written ▲)
//!        └─► entry queued in the volume's WAL ────► take_flush ► Flush::run ► flush_done   (synced ▲)
//! ```

pub mod disk;
mod log;
mod volume;
mod wal;

pub use disk::{Disk, DiskFile, OpenMode};
pub use log::format;
pub use log::{
    AbortedTransaction, AppendAs, AppendError, Appended, Clean, CleanDone, CleanError, CleanRules,
    CleanStep, Cleanable, Cleaned, EpochEnd, Log, LogSettings, Marker, OffsetAt, ProducerSummary,
    Read, ReadError, ReadPlan, Slice, Slices, TimePlan, Upkeep, UpkeepDone, Write, Written,
};
pub use volume::{
    CleanerOffsets, Flush, FlushDone, LogKey, OpenError, Synced, Volume, VolumeSettings,
};

/// A disk call that failed, with the file it was about.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{action} {path} failed: {source}")]
pub struct DiskError {
    /// What was tried: "write", "sync", …
    pub action: &'static str,
    /// Path within the volume.
    pub path: String,
    /// The system's answer.
    pub source: std::sync::Arc<std::io::Error>,
}

impl DiskError {
    /// Whether the disk had no room; everything else means that the file can no longer be trusted.
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        )
    }
}
