//! What is kept of a segment while batches are added to it.

use riverlog_wire::batch::BatchHeader;
use riverlog_wire::{LeaderEpoch, Offset};

use super::check::Summary;
use super::crc::Crc;
use super::index::{IndexEntry, TimeEntry};
use super::transactions::AbortedTransaction;

/// What a segment needs to know of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchInfo {
    pub(super) base: Offset,
    pub(super) next: Offset,
    pub(super) size: u32,
    pub(super) max_timestamp: i64,
    pub(super) epoch: LeaderEpoch,
    /// Wall clock of the append; −1 where unknown.
    pub(super) appended_ms: i64,
    /// The transaction that this batch aborts.
    pub(super) aborted: Option<AbortedTransaction>,
}

impl BatchInfo {
    pub(super) fn new(header: &BatchHeader, appended_ms: i64) -> BatchInfo {
        BatchInfo {
            base: header.base_offset,
            next: header.next_offset(),
            // A batch length is an i32, so that the sum fits.
            size: header.size() as u32,
            // One that compaction has emptied has no record of that time.
            max_timestamp: match header.record_count {
                0 => -1,
                _ => header.max_timestamp,
            },
            epoch: header.leader_epoch,
            appended_ms,
            aborted: None,
        }
    }
}

/// True for the first `size` bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) size: u64,
    /// Offset after the last record; the segment's base while it is empty.
    pub(super) next: Offset,
    pub(super) first_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) max_timestamp_at: Offset,
    pub(super) appended_ms: i64,
    pub(super) first_epoch: LeaderEpoch,
    pub(super) last_epoch: LeaderEpoch,
    pub(super) index_entries: u32,
    pub(super) index_crc: Crc,
    pub(super) time_entries: u32,
    pub(super) time_crc: Crc,
    pub(super) last_time: i64,
    pub(super) since_index: u32,
    /// Offsets are missing between batches: compaction and erasure do that, appends don't.
    pub(super) gaps: bool,
    pub(super) aborted_entries: u32,
    pub(super) aborted_crc: Crc,
}

/// Index entries that a batch brings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) index: Option<IndexEntry>,
    pub(super) time: Option<TimeEntry>,
    pub(super) aborted: Option<AbortedTransaction>,
}

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_none() && self.time.is_none() && self.aborted.is_none()
    }
}

impl Facts {
    pub(super) fn new(base: Offset) -> Facts {
        Facts {
            size: 0,
            next: base,
            first_timestamp: -1,
            max_timestamp: -1,
            max_timestamp_at: base,
            appended_ms: -1,
            first_epoch: LeaderEpoch::NONE,
            last_epoch: LeaderEpoch::NONE,
            index_entries: 0,
            index_crc: Crc::default(),
            time_entries: 0,
            time_crc: Crc::default(),
            last_time: -1,
            since_index: 0,
            gaps: false,
            aborted_entries: 0,
            aborted_crc: Crc::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Adds the batch that follows, in a segment that begins at `base`. Index entries come where Kafka writes them: before
    /// a batch, once more than `interval` bytes lie between.
    pub(super) fn add(&mut self, base: Offset, batch: &BatchInfo, interval: u32) -> Marks {
        self.gaps |= batch.base != self.next;
        if self.is_empty() {
            self.first_timestamp = batch.max_timestamp;
            self.first_epoch = batch.epoch;
        }
        let last = batch.next + -1;
        if batch.max_timestamp > self.max_timestamp {
            self.max_timestamp = batch.max_timestamp;
            self.max_timestamp_at = last;
        }
        let mut marks = Marks::default();
        if let Some(aborted) = &batch.aborted {
            self.mark_aborted(aborted);
            marks.aborted = Some(*aborted);
        }
        if self.since_index > interval {
            let entry = IndexEntry {
                relative: relative(base, last),
                position: i32::try_from(self.size).unwrap_or(i32::MAX),
            };
            self.index_crc.update(&entry.encode());
            self.index_entries += 1;
            self.since_index = 0;
            marks.index = Some(entry);
            marks.time = self.mark_time(base);
        }
        self.size += u64::from(batch.size);
        self.since_index = self.since_index.saturating_add(batch.size);
        self.next = batch.next;
        self.last_epoch = batch.epoch;
        self.appended_ms = self.appended_ms.max(batch.appended_ms);
        marks
    }

    /// The entry for the largest timestamp so far, unless the time index has it.
    pub(super) fn mark_time(&mut self, base: Offset) -> Option<TimeEntry> {
        if self.max_timestamp <= self.last_time {
            return None;
        }
        let entry = TimeEntry {
            timestamp: self.max_timestamp,
            relative: relative(base, self.max_timestamp_at),
        };
        self.time_crc.update(&entry.encode());
        self.time_entries += 1;
        self.last_time = self.max_timestamp;
        Some(entry)
    }

    fn mark_aborted(&mut self, aborted: &AbortedTransaction) {
        self.aborted_crc.update(&aborted.encode());
        self.aborted_entries += 1;
    }

    /// The index of aborted transactions has these entries.
    pub(super) fn set_aborted(&mut self, all: &[AbortedTransaction]) {
        self.aborted_entries = 0;
        self.aborted_crc = Crc::default();
        for aborted in all {
            self.mark_aborted(aborted);
        }
    }

    /// The time that counts for retention by age. Records from the future, or without a time, count from their append.
    pub(super) fn age_ms(&self) -> i64 {
        let strange = self.max_timestamp < 0
            || (self.appended_ms >= 0 && self.max_timestamp > self.appended_ms);
        if strange {
            self.appended_ms
        } else {
            self.max_timestamp
        }
    }

    pub(super) fn summary(
        &self,
        tail_crc: Option<u32>,
        epochs_crc: u32,
        producers: u32,
    ) -> Summary {
        Summary {
            size: self.size,
            next: self.next,
            first_timestamp: self.first_timestamp,
            max_timestamp: self.max_timestamp,
            max_timestamp_at: self.max_timestamp_at,
            appended_ms: self.appended_ms,
            first_epoch: self.first_epoch,
            last_epoch: self.last_epoch,
            epochs_crc,
            index: (self.index_entries, self.index_crc.value()),
            time: (self.time_entries, self.time_crc.value()),
            tail_crc,
            since_index: self.since_index,
            last_time: self.last_time,
            gaps: self.gaps,
            producers,
            aborted: (self.aborted_entries, self.aborted_crc.value()),
        }
    }

    pub(super) fn from_summary(summary: &Summary) -> Facts {
        Facts {
            size: summary.size,
            next: summary.next,
            first_timestamp: summary.first_timestamp,
            max_timestamp: summary.max_timestamp,
            max_timestamp_at: summary.max_timestamp_at,
            appended_ms: summary.appended_ms,
            first_epoch: summary.first_epoch,
            last_epoch: summary.last_epoch,
            index_entries: summary.index.0,
            index_crc: Crc::resume(summary.index.1),
            time_entries: summary.time.0,
            time_crc: Crc::resume(summary.time.1),
            last_time: summary.last_time,
            since_index: summary.since_index,
            gaps: summary.gaps,
            aborted_entries: summary.aborted.0,
            aborted_crc: Crc::resume(summary.aborted.1),
        }
    }
}

/// Rolling keeps every offset of a segment within reach of an i32.
fn relative(base: Offset, offset: Offset) -> i32 {
    i32::try_from(offset - base).unwrap_or(i32::MAX)
}
