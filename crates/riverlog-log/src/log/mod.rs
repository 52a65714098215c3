//! One partition's copy: segments, indexes, epochs, producer state, and the queue of what is being written.
//!
//! | file | idea |
//! |---|---|
//! | `append` | offsets, epochs, sequences, rolling; into the queue |
//! | `write` | from the queue into the segment |
//! | `read`, `time`, `verify` | out of memory or out of files that have been verified |
//! | `upkeep`, `retain` | syncs, snapshots, removal of what is too old |
//! | `clean`, `swap` | compaction; replacing segments |
//! | `truncate` | cutting the tail |
//! | `transactions` | what is open, markers, what was aborted |
//! | `load`, `recover`, `scan` | what the folder holds, after a clean stop and after a crash |
//! | `segment`, `side`, `facts`, `check`, `index`, `epochs`, `producers`, `snapshot` | the parts |
//!
//! The files are described in `docs/format/segment.md`.

mod append;
mod bytes_at;
mod check;
mod clean;
mod crc;
mod epochs;
mod facts;
pub mod format;
mod index;
mod load;
mod producers;
mod proof;
mod queue;
mod read;
mod recover;
mod retain;
mod scan;
mod segment;
mod side;
mod snapshot;
mod swap;
mod tail;
mod time;
mod transactions;
mod truncate;
mod upkeep;
mod verify;
mod write;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::batch::BatchError;
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use crate::volume::{EndCheck, LogMark};
use crate::wal::Lsn;
use crate::{DiskError, LogKey, Volume};
use load::{LoadRules, Loaded, load};
use producers::Looked;

pub use clean::{Clean, CleanDone, CleanError, CleanRules, CleanStep, Cleanable, Cleaned};
pub use read::{Read, ReadPlan, Slice, Slices};
pub use time::TimePlan;
pub use transactions::{AbortedTransaction, Marker};
pub use upkeep::{Upkeep, UpkeepDone};
pub use write::{Write, Written};

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
    /// As `Leader`, and the batch may begin a transaction: its coordinator was asked, and knows the partition as part of it.
    Transaction {
        /// The epoch to stamp.
        epoch: LeaderEpoch,
        /// Wall clock, ms since the epoch.
        now_ms: i64,
        /// The log's end when the coordinator was asked; a marker since then refuses the batch.
        verified: Offset,
    },
    /// As `Transaction`, and the batch is the broker's own: its sequence means nothing.
    Coordinator {
        /// The epoch to stamp.
        epoch: LeaderEpoch,
        /// Wall clock, ms since the epoch.
        now_ms: i64,
        /// The log's end when the coordinator was asked; a marker since then refuses the batch.
        verified: Offset,
    },
    /// Offsets and epochs are kept; they must go on where the log ends.
    Follower,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record; −1 for a duplicate of a batch that is older than those that are remembered.
    pub first: Offset,
    /// Offset after the last record, or one that lies behind it: an answer waits until the high watermark has reached it.
    pub next: Offset,
    /// The broker's time, under log append time (also that of the first append, for a duplicate).
    pub log_append_time_ms: Option<i64>,
    /// The batch was stored before: nothing was appended.
    pub duplicate: bool,
}

/// Why nothing was appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// KIP-98 window of five batches per producer.
    #[error(
        "producer {producer} sent sequence {got} but {expected} comes next here; an earlier batch was lost, or came before what is known of this producer"
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
    /// A later coordinator has written a marker.
    #[error(
        "a coordinator of epoch {current} has ended a transaction of producer {producer} here, the marker is of epoch {got}; another node coordinates it now"
    )]
    FencedCoordinator {
        /// Whose transaction.
        producer: ProducerId,
        /// In the marker.
        got: i32,
        /// Known here.
        current: i32,
    },
    /// The batch doesn't fit the producer's transaction here.
    #[error("producer {producer} {reason}")]
    TransactionState {
        /// Whose.
        producer: ProducerId,
        /// What doesn't fit.
        reason: &'static str,
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
    /// Of the coordinator that wrote its last marker; −1 for none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction.
    pub transaction_start: Option<Offset>,
}

/// One partition's copy. The host holds the partition's lock for each call; none of them does I/O except where said, and
/// except that the first use of a log that was closed cleanly reads what its folder holds (a listing, and a few small
/// reads for each segment).
#[derive(Debug)]
pub struct Log {
    volume: Arc<Volume>,
    key: LogKey,
    settings: LogSettings,
    start: Offset,
    end: Offset,
    written: Offset,
    segments_synced: Offset,
    /// Everything before it is durable in the write-ahead log or in synced segments; may be ahead of `written`.
    wal_synced: Offset,
    /// Entries in the write-ahead log that are not known to be durable: the place after each, and the log's end there.
    wal_pending: VecDeque<(Lsn, Offset)>,
    /// The log was cut, or begun anew, by an entry of the write-ahead log. Until recovery can't do that again (from this
    /// place on, `None`: not known yet) nothing counts as durable by segments alone.
    cut: Option<Option<Lsn>>,
    /// Nothing says yet that the last cut is over: see [`Log::close_cut`].
    cut_is_open: bool,
    /// The place after the newest entry that did.
    cut_lsn: Option<Lsn>,
    /// The place after the entry for the start offset.
    start_lsn: Option<Lsn>,
    /// The place after this log's newest entry, after the newest that is written to a segment, and what the volume was told.
    last_lsn: Option<Lsn>,
    written_lsn: Option<Lsn>,
    told: Option<(LogMark, Option<Lsn>)>,
    size_bytes: u64,
    last_epoch: LeaderEpoch,
    /// Appends go through the write-ahead log; follows `settings.sync` when that can be done without a gap.
    through_wal: bool,
    failed: Option<DiskError>,
    /// Being opened: the volume waits for the result and isn't told anything meanwhile.
    opening: bool,
    /// Found when the log was last looked at; `None`: not yet.
    oldest_ms: Option<i64>,
    /// A log that has not been used since it was opened has nothing more than this.
    loaded: OnceLock<Box<Loaded>>,
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(log) = self.loaded.get_mut() {
            log.tail.clear(&self.volume);
        }
    }
}

impl Log {
    /// Settings from now on. A change to `sync` takes effect at an append that finds everything before it durable (for
    /// `sync`: in synced segments) and nothing queued.
    pub fn set_settings(&mut self, settings: LogSettings) {
        self.settings = settings;
    }
    /// The first offset that can be read.
    pub fn log_start_offset(&self) -> Offset {
        self.start
    }
    /// The offset that the next record gets.
    pub fn log_end_offset(&self) -> Offset {
        self.end
    }
    /// Everything before it is in the operating system's hands.
    pub fn written(&self) -> Offset {
        self.written
    }
    /// Everything before it survives a power cut. Never beyond [`Log::written`]: what is in the write-ahead log but could
    /// not be written to its segment may still be taken back.
    pub fn synced(&self) -> Offset {
        let logged = self.wal_synced.min(self.written);
        match self.cut {
            Some(None) => logged,
            Some(Some(at)) if at > self.volume.durable() => logged,
            _ => self.segments_synced.max(logged),
        }
    }
    /// Bytes of all segments, without what is queued.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
    /// The epoch of the last batch that was appended, even when retention has removed it since; −1 when there never was one.
    pub fn last_epoch(&self) -> LeaderEpoch {
        self.last_epoch
    }
    /// See [`EpochEnd`]; `None` where nothing is known of such an epoch.
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let log = self.loaded().ok()?;
        let known = log.epochs.end_of(epoch, self.start..self.end);
        known.or_else(|| {
            // Where all records are gone, or the log has begun anew behind them, nothing says where an epoch began: what there was of
            // it ended where the log does.
            let gone = epoch <= self.last_epoch || (self.last_epoch.0 < 0 && self.end > Offset(0));
            let end = self.end;
            (epoch.0 >= 0 && gone).then_some(EpochEnd { epoch, end })
        })
    }
    /// The epoch that wrote `offset`; −1 where unknown.
    pub fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        match self.loaded() {
            Ok(log) if offset < self.end => log.epochs.epoch_at(offset),
            _ => LeaderEpoch::NONE,
        }
    }
    /// The first error after which this log refuses appends; reads go on.
    pub fn failed(&self) -> Option<&DiskError> {
        self.failed.as_ref()
    }
    /// From [`crate::FlushDone::synced`]. For a log without `sync`, `synced` moves by upkeep alone.
    pub fn on_synced(&mut self, to: Offset) {
        // What counts is which entries are durable: `to` may be of before a cut, and mean other records.
        let _ = to;
        let durable = self.volume.durable();
        while let Some((_, next)) = self.wal_pending.pop_front_if(|(lsn, _)| *lsn <= durable) {
            self.wal_synced = self.wal_synced.max(next);
        }
        self.end_cut();
    }
    /// Once recovery starts behind a cut, synced segments count again.
    fn end_cut(&mut self) {
        if let Some(Some(at)) = self.cut
            && at <= self.volume.durable()
        {
            self.cut = None;
        }
        if self.cut.is_none() {
            self.wal_synced = self.wal_synced.max(self.segments_synced);
        }
    }
    /// Forgets producers that have been silent for `producer_expiration_ms`. `mono` is a clock that isn't set: a wall clock that jumps makes
    /// nobody silent. The first look at a log leaves each of them an hour at least.
    pub fn expire_producers(&mut self, now_ms: i64, mono: Duration) {
        let (expiration, written) = (self.settings.producer_expiration_ms, self.written);
        // A log that isn't in use has none in memory.
        if let Some(log) = self.loaded.get_mut() {
            let now = Looked {
                wall_ms: now_ms,
                mono,
            };
            let last = log.looked.replace(now);
            log.producers.expire(last, now, expiration, written);
        }
    }
    /// The producers known here.
    pub fn producers(&self) -> Vec<ProducerSummary> {
        match self.loaded() {
            Ok(log) => log.producers.summaries(),
            Err(_) => Vec::new(),
        }
    }
    /// What is known of one producer; `None` also where the log can't be read.
    pub fn producer(&self, id: ProducerId) -> Option<ProducerSummary> {
        let log = self.loaded().ok()?;
        log.producers.get(id).map(|p| p.summary(id))
    }
    /// Gives the memory of recent batches back; readers get them from files. For logs that nobody reads or writes.
    pub fn release_tail(&mut self) {
        if let Some(log) = self.loaded.get_mut() {
            log.tail.clear(&self.volume);
        }
    }

    /// Nothing is written or synced any more.
    fn fail(&mut self, error: DiskError) {
        self.failed = Some(error);
        self.volume.is_stuck(self.key);
    }

    /// What the folder holds; read at the first use.
    fn loaded(&self) -> Result<&Loaded, DiskError> {
        if let Some(log) = self.loaded.get() {
            return Ok(log);
        }
        let rules = LoadRules {
            key: self.key,
            start: self.start,
            trusted: self.end,
            limit: self.end,
            epoch: self.last_epoch,
            snapshots_until: self.end,
            interval: self.settings.index_interval_bytes,
            // What lies beside the segments was whole at the stop.
            check: EndCheck::default(),
        };
        let mut log = load(&self.volume, rules)?;
        log.check = self.told.map_or(log.check, |(mark, _)| mark.check);
        Ok(self.loaded.get_or_init(|| Box::new(log)))
    }
    fn loaded_mut(&mut self) -> Result<&mut Loaded, DiskError> {
        if self.loaded.get().is_none() {
            let written = self.loaded()?.written_bytes();
            self.size_bytes = written;
        }
        // Set just now.
        self.loaded
            .get_mut()
            .map(|log| &mut **log)
            .ok_or_else(|| DiskError {
                action: "load",
                path: self.key.folder(),
                source: Arc::new(std::io::Error::other("the log is not loaded")),
            })
    }
    /// What the checkpoint is to say of this log.
    fn mark(&self) -> LogMark {
        LogMark {
            start: self.start,
            end: self.written,
            segments_synced: match active(Mutant::CheckpointAhead) {
                true => self.written,
                false => self.segments_synced,
            },
            size_bytes: self.size_bytes,
            last_epoch: match self.loaded.get() {
                Some(log) => log.epochs.epoch_at(self.written + -1),
                None => self.last_epoch,
            },
            check: match (self.loaded.get(), self.told) {
                (Some(log), _) => log.check,
                (None, Some((mark, _))) => mark.check,
                (None, None) => EndCheck::default(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
