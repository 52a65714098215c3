//! A data folder: lock, format version, write-ahead log, checkpoint, and the logs in it.

use std::sync::Arc;

use riverlog_wire::{Offset, PartitionIndex, TopicId};

use crate::log::{Log, LogSettings};
use crate::{Disk, DiskError};

/// Which log. Its folder is `<topic id>/<partition>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKey {
    /// The topic, for life.
    pub topic: TopicId,
    /// Its partition.
    pub partition: PartitionIndex,
}

/// Settings of a volume.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Bytes of the write-ahead log. Default 64 MiB.
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

/// A data folder in use. Shared by its logs and the host; all calls may come from several threads.
#[derive(Debug)]
pub struct Volume {
    _private: (),
}

/// A group commit to be run by the host, without locks of partitions. At most one exists at a time.
#[derive(Debug)]
pub struct Flush {
    _private: (),
}

/// What a group commit did.
#[derive(Debug)]
pub struct FlushDone {
    /// For each log whose durable end moved: hand it to [`Log::on_synced`] under that partition's lock.
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
    /// One vectored write and one sync.
    pub fn run(self) -> FlushDone {
        todo!()
    }
}

impl Volume {
    /// Opens or makes a data folder: takes its lock, checks its format version, reads checkpoint and write-ahead
    /// log. Logs are recovered one by one by [`Volume::open_log`].
    pub fn open(disk: Arc<dyn Disk>, settings: VolumeSettings) -> Result<Arc<Volume>, OpenError> {
        todo!("{disk:?} {settings:?}")
    }
    /// Opens one log. Where the checkpoint says that it was closed cleanly, no file is touched until it is first used;
    /// otherwise its tail is checked and its entries of the write-ahead log are done again. A log that has never been
    /// appended to has no files.
    pub fn open_log(
        self: &Arc<Self>,
        key: LogKey,
        settings: LogSettings,
    ) -> Result<Log, OpenError> {
        todo!("{key:?} {settings:?}")
    }
    /// All logs that exist have been opened: what the write-ahead log still holds for others belongs to deleted
    /// topics and is forgotten; files of logs that weren't opened are removed.
    pub fn recovered(&self) -> Result<(), OpenError> {
        todo!()
    }
    /// The folder's own id, drawn when it was made (`disk epoch`: a replaced or emptied disk has another).
    pub fn disk_id(&self) -> u128 {
        todo!()
    }
    /// A flush to run, when entries are queued and none is running.
    pub fn take_flush(self: &Arc<Self>) -> Option<Flush> {
        todo!()
    }
    /// Logs whose segments should be synced next so that the oldest part of the write-ahead log can be used again;
    /// the host asks each for an [`crate::Upkeep`] of kind sync. Empty while less than half is used.
    pub fn wants_sync(&self) -> Vec<LogKey> {
        todo!()
    }
    /// Writes the checkpoint: per log its start, end, synced segment end and producer snapshot. Called now and then
    /// by the host, and at a clean stop with `clean` after all logs have been synced, which makes the next start
    /// touch no log at all.
    pub fn checkpoint(&self, clean: bool) -> Result<(), DiskError> {
        todo!("{clean}")
    }
    /// Removes a log's folder for good. The [`Log`] must have been dropped; readers that still hold slices of its
    /// files keep them open.
    pub fn delete_log(&self, key: LogKey) -> Result<(), DiskError> {
        todo!("{key:?}")
    }
    /// Bytes free on the disk.
    pub fn available(&self) -> Result<u64, DiskError> {
        todo!()
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
}

/// What the logs of a volume ask of it.
impl Volume {
    /// The files below.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        todo!()
    }
    /// Queues an entry for the write-ahead log; the log counts as needing a segment sync until
    /// [`Volume::segments_synced`] passes the place that is returned.
    pub(crate) fn submit(&self, entry: crate::wal::WalEntry) -> crate::wal::Lsn {
        todo!("{entry:?}")
    }
    /// Every entry of `key` before `before` is covered by synced segments; `mark` is what the checkpoint says from now on.
    pub(crate) fn segments_synced(&self, key: LogKey, mark: LogMark, before: crate::wal::Lsn) {
        todo!("{key:?} {mark:?} {before:?}")
    }
    /// An open file from the bounded set of descriptors (least recently used goes first). A file with unsynced
    /// bytes is kept open by its log holding the `Arc`; the set only drops its own.
    pub(crate) fn file(
        &self,
        path: &str,
        mode: crate::OpenMode,
    ) -> Result<Arc<dyn crate::DiskFile>, DiskError> {
        todo!("{path} {mode:?}")
    }
    /// Takes `bytes` from the tail cache's budget; `false`: over it, the log should let go of its oldest cached batches.
    pub(crate) fn tail_take(&self, bytes: usize) -> bool {
        todo!("{bytes}")
    }
    /// Gives bytes back to the tail cache's budget.
    pub(crate) fn tail_give(&self, bytes: usize) {
        todo!("{bytes}")
    }
    /// The error after which nothing in this volume may be appended.
    pub(crate) fn failed(&self) -> Option<DiskError> {
        todo!()
    }
}
