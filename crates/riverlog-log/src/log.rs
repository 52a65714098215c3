//! One partition's copy: segments, indexes, epochs, producer state, and the queue of what is being written.

use bytes::Bytes;
use riverlog_wire::batch::BatchError;
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use crate::DiskError;

/// Settings of one log; may change while it runs ([`Log::set_settings`]).
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is rolled when its first record is older.
    pub segment_ms: Option<u64>,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `retention.ms`; `None` keeps for ever.
    pub retention_ms: Option<u64>,
    /// `retention.bytes`; `None` keeps all.
    pub retention_bytes: Option<u64>,
    /// `riverlog.retention.records`; `None` keeps all. Exact: the start moves record by record.
    pub retention_records: Option<u64>,
    /// Whether `cleanup.policy` has `delete`. Without it only [`Log::delete_records`] moves the start.
    pub delete: bool,
    /// `riverlog.durability`: `true` for `sync` (through the write-ahead log), `false` for `page-cache`.
    pub sync: bool,
    /// `message.timestamp.type` is LogAppendTime.
    pub log_append_time: bool,
    /// `producer.id.expiration.ms`.
    pub producer_expiration_ms: u64,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            segment_bytes: 1 << 30,
            segment_ms: Some(7 * 24 * 3_600_000),
            index_interval_bytes: 4096,
            retention_ms: Some(7 * 24 * 3_600_000),
            retention_bytes: None,
            retention_records: None,
            delete: true,
            sync: true,
            log_append_time: false,
            producer_expiration_ms: 24 * 3_600_000,
        }
    }
}

/// In which role batches are appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendAs {
    /// Offsets are assigned, the epoch is stamped, sequences are checked, log append time is set.
    Leader {
        /// The epoch to stamp.
        epoch: LeaderEpoch,
        /// Wall clock, ms since the epoch.
        now_ms: i64,
    },
    /// Offsets and epochs are kept; they must go on where the log ends.
    Follower,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub first: Offset,
    /// Offset after the last record: an answer waits until the high watermark has reached it.
    pub next: Offset,
    /// The broker's time, under log append time (also that of the first append, for a duplicate).
    pub log_append_time_ms: Option<i64>,
    /// The batch was stored before, at these offsets: nothing was appended.
    pub duplicate: bool,
}

/// Why nothing was appended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// KIP-98 window of five batches per producer.
    #[error(
        "producer {producer} sent sequence {got} but {expected} comes next here; an earlier batch was lost or is too old to be recognised"
    )]
    OutOfOrderSequence {
        /// Whose.
        producer: ProducerId,
        /// In the batch.
        got: Sequence,
        /// What would have been right.
        expected: Sequence,
    },
    /// A newer instance of the producer has written.
    #[error(
        "producer {producer} has epoch {current} here, the batch says {got}; a newer instance has taken over"
    )]
    FencedProducer {
        /// Whose.
        producer: ProducerId,
        /// In the batch.
        got: ProducerEpoch,
        /// Known here.
        current: ProducerEpoch,
    },
    /// Only for followers.
    #[error("the batch begins at offset {got} but the log ends at {end}")]
    Gap {
        /// In the batch.
        got: Offset,
        /// Log end.
        end: Offset,
    },
    /// Not one whole sound batch of format 2.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The log's disk failed earlier, or has no room.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why nothing was read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Outside `start..=end`.
    #[error(
        "offset {asked} is outside {start}..={end}; start at the earliest or the latest offset"
    )]
    OffsetOutOfRange {
        /// Asked for.
        asked: Offset,
        /// Log start offset.
        start: Offset,
        /// Log end offset, or the bound that was given.
        end: Offset,
    },
    /// A checksum found damage.
    #[error(
        "{path} is damaged at offsets {from}..{to}: {reason}; copy that range from a backup, or skip to offset {to}"
    )]
    Damaged {
        /// File within the volume.
        path: String,
        /// First offset that can't be read.
        from: Offset,
        /// First offset after the damage.
        to: Offset,
        /// What was found.
        reason: String,
    },
    /// The disk said no.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// A piece of a segment: whole batches as stored.
#[derive(Clone, Debug)]
pub enum Slice {
    /// In memory.
    Memory(Bytes),
    /// In a file that has been verified, `at..at + len`; the file stays open and its bytes stay as they are.
    File {
        /// The segment.
        file: std::sync::Arc<dyn crate::DiskFile>,
        /// Position of the first byte.
        at: u64,
        /// Bytes.
        len: usize,
    },
}

/// Whole batches in order of offset, beginning with the one that holds the asked offset.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// The pieces in order.
    pub parts: Vec<Slice>,
    /// Bytes in all.
    pub len: usize,
    /// Offset after the last batch; the asked offset when there is none.
    pub next: Offset,
}

impl Slices {
    /// All bytes in one piece; reads what is still in files.
    pub fn into_bytes(self) -> Result<Bytes, ReadError> {
        todo!()
    }
}

/// The answer to [`Log::read`].
#[derive(Debug)]
pub enum Read {
    /// Everything was in memory (or there is nothing between the asked offset and the bound).
    Ready(Slices),
    /// Files must be looked at first: run it without the partition's lock.
    Plan(ReadPlan),
}

/// A read that needs the disk. Pins its segment.
#[derive(Debug)]
pub struct ReadPlan {
    _private: (),
}

impl ReadPlan {
    /// Finds the batches; verifies what has not been verified in this process's life.
    pub fn run(self) -> Result<Slices, ReadError> {
        todo!()
    }
}

/// A look-up by time. Pins the log's segments.
#[derive(Debug)]
pub struct TimePlan {
    _private: (),
}

/// An offset with its record's time and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAt {
    /// The record's offset.
    pub offset: Offset,
    /// Its timestamp in ms.
    pub timestamp: i64,
    /// The epoch of the batch that holds it.
    pub epoch: LeaderEpoch,
}

impl TimePlan {
    /// The first record whose timestamp is at least the asked one, to the record (not the batch); `None` when there is none.
    pub fn run(self) -> Result<Option<OffsetAt>, ReadError> {
        todo!()
    }
}

/// The end of an epoch (KIP-101): the largest epoch at or below the asked one, and the offset after its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// That epoch.
    pub epoch: LeaderEpoch,
    /// The start of the next epoch, or the log end.
    pub end: Offset,
}

/// What is known of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSummary {
    /// Its id.
    pub id: ProducerId,
    /// Its newest epoch here.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// When it last wrote, ms since the epoch.
    pub last_timestamp: i64,
}

/// A vectored write of everything queued, to be run without the partition's lock; at most one exists a log.
#[derive(Debug)]
pub struct Write {
    _private: (),
}

/// What a [`Write`] did.
#[derive(Debug)]
pub struct Written {
    _private: (),
}

impl Write {
    /// Makes files as needed, writes batches and index entries.
    pub fn run(self) -> Written {
        todo!()
    }
}

/// Work that keeps a log in shape: sync of segments, removal of old ones, snapshots. Run without the partition's lock.
#[derive(Debug)]
pub struct Upkeep {
    _private: (),
}

/// What an [`Upkeep`] did.
#[derive(Debug)]
pub struct UpkeepDone {
    _private: (),
}

impl Upkeep {
    /// Touches the disk.
    pub fn run(self) -> UpkeepDone {
        todo!()
    }
}

impl Log {
    /// Called by [`crate::Volume::open_log`]. `mark`: what the checkpoint says, `None` for a log it doesn't know. `clean`:
    /// the volume was closed cleanly, so the mark is the truth and no file need be touched before first use. Otherwise the
    /// tail after `mark.segments_synced` is checked batch by batch, then `entries` are done again: where they differ from
    /// what the segments hold, the entries are right.
    pub(crate) fn open(
        volume: std::sync::Arc<crate::Volume>,
        key: crate::LogKey,
        settings: LogSettings,
        mark: Option<crate::volume::LogMark>,
        clean: bool,
        entries: Vec<(crate::wal::Lsn, crate::wal::WalEntry)>,
    ) -> Result<Log, crate::OpenError> {
        todo!("{volume:?} {key:?} {settings:?} {mark:?} {clean} {entries:?}")
    }
}

/// One partition's copy. The host holds the partition's lock for each call; none of them does I/O except where said.
#[derive(Debug)]
pub struct Log {
    _private: (),
}

impl Log {
    /// Settings from now on. A change to `sync` takes effect at the next append, once everything before it is durable.
    pub fn set_settings(&mut self, settings: LogSettings) {
        todo!("{settings:?}")
    }
    /// The first offset that can be read.
    pub fn log_start_offset(&self) -> Offset {
        todo!()
    }
    /// The offset that the next record gets.
    pub fn log_end_offset(&self) -> Offset {
        todo!()
    }
    /// Everything before it is in the operating system's hands.
    pub fn written(&self) -> Offset {
        todo!()
    }
    /// Everything before it survives a power cut.
    pub fn synced(&self) -> Offset {
        todo!()
    }
    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
    /// The epoch of the last batch; −1 for an empty log.
    pub fn last_epoch(&self) -> LeaderEpoch {
        todo!()
    }
    /// See [`EpochEnd`]; `None` where nothing is known of such an epoch.
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        todo!("{epoch}")
    }
    /// The epoch that wrote `offset`; −1 where unknown.
    pub fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        todo!("{offset}")
    }
    /// The first error after which this log refuses appends; reads go on.
    pub fn failed(&self) -> Option<&DiskError> {
        todo!()
    }
    /// Appends one batch (leader) or any number (follower): checks producer state, assigns offsets, patches the batch
    /// in place, queues it for the segment and, for a `sync` log, for the write-ahead log. The caller has checked the CRC.
    pub fn append(&mut self, batches: Vec<u8>, how: AppendAs) -> Result<Appended, AppendError> {
        todo!("{batches:?} {how:?}")
    }
    /// The next write to run, when something is queued and none is out.
    pub fn take_write(&mut self) -> Option<Write> {
        todo!()
    }
    /// Takes a write back: `written` moves, or the log is failed (a full disk fails only what was queued:
    /// the log goes back to `written` and can be appended to again). The error is for the appends that
    /// were in flight; they were not acknowledged.
    pub fn write_done(&mut self, done: Written) -> Result<(), DiskError> {
        todo!("{done:?}")
    }
    /// From [`crate::FlushDone::synced`]. For a log without `sync`, `synced` moves by upkeep alone.
    pub fn on_synced(&mut self, to: Offset) {
        todo!("{to}")
    }
    /// Batches from the one that holds `from`, up to `until` (exclusive: high watermark, last stable offset or log end) and
    /// about `max_bytes`. The first batch comes whole even when larger (KIP-74).
    pub fn read(
        &mut self,
        from: Offset,
        until: Offset,
        max_bytes: usize,
    ) -> Result<Read, ReadError> {
        todo!("{from} {until} {max_bytes}")
    }
    /// A look-up of the first record at or after `timestamp`, before `until`.
    pub fn find_time(&mut self, timestamp: i64, until: Offset) -> Result<TimePlan, ReadError> {
        todo!("{timestamp} {until}")
    }
    /// The record with the largest timestamp before `until` (KIP-734).
    pub fn find_max_timestamp(&mut self, until: Offset) -> Result<TimePlan, ReadError> {
        todo!("{until}")
    }
    /// Nothing before `before` can be read any more; it may lie inside a batch. Never goes back. Durable once
    /// the entry that it queues in the write-ahead log is (for a log with or without `sync`).
    pub fn delete_records(&mut self, before: Offset) -> Result<(), DiskError> {
        todo!("{before}")
    }
    /// Cuts everything at and after `to` (a follower's); rebuilds producer state. Does I/O.
    pub fn truncate(&mut self, to: Offset) -> Result<(), DiskError> {
        todo!("{to}")
    }
    /// What retention wants at `now_ms` and with the high watermark: moves the start offset now, and returns the removal
    /// of files. `None`: nothing to do.
    pub fn retain(&mut self, now_ms: i64, high_watermark: Offset) -> Option<Upkeep> {
        todo!("{now_ms} {high_watermark}")
    }
    /// When [`Log::retain`] next has something to do by age, in ms since the epoch; `None`: not by age.
    pub fn next_retention_ms(&self) -> Option<i64> {
        todo!()
    }
    /// Makes every segment durable and snapshots producer state. `None`: nothing unsynced.
    pub fn sync_segments(&mut self) -> Option<Upkeep> {
        todo!()
    }
    /// Takes upkeep back.
    pub fn upkeep_done(&mut self, done: UpkeepDone) -> Result<(), DiskError> {
        todo!("{done:?}")
    }
    /// Forgets producers that have been silent for `producer_expiration_ms`.
    pub fn expire_producers(&mut self, now_ms: i64) {
        todo!("{now_ms}")
    }
    /// The producers known here.
    pub fn producers(&self) -> Vec<ProducerSummary> {
        todo!()
    }
}
