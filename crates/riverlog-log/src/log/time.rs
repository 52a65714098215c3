//! Look-ups by time, to the record.

use riverlog_wire::batch::{BatchHeader, TimestampType, batches};
use riverlog_wire::{LeaderEpoch, Offset};

use super::read::{Reader, SegmentReader};
use super::{Log, OffsetAt, ReadError};

/// Bytes that a look-up reads at a time.
const STEP_BYTES: usize = 256 * 1024;
/// Bytes that one batch may take once it is decompressed.
const RECORDS_LIMIT: usize = 256 << 20;

/// A look-up by time. Pins the log's segments.
#[derive(Debug)]
pub struct TimePlan {
    reader: Reader,
    start: Offset,
    until: Offset,
    wanted: Wanted,
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    AtOrAfter(i64),
    Largest,
}

impl Log {
    /// A look-up of the first record at or after `timestamp`, before `until`.
    pub fn find_time(&mut self, timestamp: i64, until: Offset) -> Result<TimePlan, ReadError> {
        self.time_plan(Wanted::AtOrAfter(timestamp), until)
    }
    /// The record with the largest timestamp before `until` (KIP-734); the first one of several, and none when all records
    /// are without a time.
    pub fn find_max_timestamp(&mut self, until: Offset) -> Result<TimePlan, ReadError> {
        self.time_plan(Wanted::Largest, until)
    }
    fn time_plan(&mut self, wanted: Wanted, until: Offset) -> Result<TimePlan, ReadError> {
        Ok(TimePlan {
            reader: self.reader()?,
            start: self.start,
            until: until.min(self.written),
            wanted,
        })
    }
}

impl TimePlan {
    /// The first record whose timestamp is at least the asked one, to the record (not the batch); `None` when there is none.
    pub fn run(self) -> Result<Option<OffsetAt>, ReadError> {
        match self.wanted {
            Wanted::AtOrAfter(timestamp) => self.first_at_or_after(timestamp),
            Wanted::Largest => self.largest(),
        }
    }

    fn first_at_or_after(&self, timestamp: i64) -> Result<Option<OffsetAt>, ReadError> {
        for segment in self.reader.segments.iter() {
            let facts = segment.facts();
            if facts.next <= self.start || facts.max_timestamp < timestamp {
                continue;
            }
            if segment.base >= self.until {
                break;
            }
            let open = SegmentReader::open(&self.reader, segment)?;
            if let Some(file) = &open.file {
                open.trust_indexes(file)?;
            }
            // No batch up to that entry has a timestamp that large.
            let entry = segment.floor_time(&self.reader.volume, |e| e.timestamp < timestamp)?;
            let behind = entry.map_or(segment.base, |e| segment.base + (i64::from(e.relative) + 1));
            let from = behind.max(self.start).max(segment.base);
            let found = self.each_batch(from, facts.next, |header, bytes| {
                if header.max_timestamp < timestamp {
                    return Ok(None);
                }
                self.record(header, bytes, |t| t >= timestamp)
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn largest(&self) -> Result<Option<OffsetAt>, ReadError> {
        let mut best: Option<OffsetAt> = None;
        for segment in self.reader.segments.iter() {
            let facts = segment.facts();
            let larger =
                |best: &Option<OffsetAt>| facts.max_timestamp > best.map_or(-1, |b| b.timestamp);
            if facts.next <= self.start || segment.base >= self.until || !larger(&best) {
                continue;
            }
            let whole = segment.base >= self.start && facts.next <= self.until;
            // The segment knows its largest only for all of its records.
            let from = if whole {
                facts.max_timestamp_at
            } else {
                self.start.max(segment.base)
            };
            self.each_batch(from, facts.next, |header, bytes| {
                let known = best.map_or(-1, |b| b.timestamp);
                if header.max_timestamp > known {
                    let found = self.largest_record(header, bytes)?;
                    if found.is_some_and(|f| f.timestamp > known) {
                        best = found;
                    }
                }
                Ok(None)
            })?;
        }
        Ok(best)
    }

    /// Gives the batches from the one that holds `from` on, until `to`, or until one of them is the answer.
    fn each_batch(
        &self,
        mut from: Offset,
        to: Offset,
        mut each: impl FnMut(&BatchHeader, &[u8]) -> Result<Option<OffsetAt>, ReadError>,
    ) -> Result<Option<OffsetAt>, ReadError> {
        let to = to.min(self.until);
        while from < to {
            let slices = self.reader.read(from, to, STEP_BYTES)?;
            if slices.parts.is_empty() {
                break;
            }
            from = slices.next;
            for batch in batches(&slices.into_bytes()?) {
                let Ok(batch) = batch else { break };
                let found = each(&batch.header, batch.bytes)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// The first record of a batch that is part of the log here and whose time `fits`.
    fn record(
        &self,
        header: &BatchHeader,
        bytes: &[u8],
        fits: impl Fn(i64) -> bool,
    ) -> Result<Option<OffsetAt>, ReadError> {
        let mut found = None;
        self.each_record(header, bytes, |at| {
            if fits(at.timestamp) {
                found = Some(at);
            }
            found.is_none()
        })?;
        Ok(found)
    }

    fn largest_record(
        &self,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> Result<Option<OffsetAt>, ReadError> {
        let mut best: Option<OffsetAt> = None;
        self.each_record(header, bytes, |at| {
            if best.is_none_or(|b| at.timestamp > b.timestamp) {
                best = Some(at);
            }
            true
        })?;
        Ok(best)
    }

    /// Gives the records of a batch that can be read, until `each` says stop.
    fn each_record(
        &self,
        header: &BatchHeader,
        bytes: &[u8],
        mut each: impl FnMut(OffsetAt) -> bool,
    ) -> Result<(), ReadError> {
        let epoch = header.leader_epoch;
        let readable = |offset: Offset| offset >= self.start && offset < self.until;
        // All records of such a batch have the same time: no need to open it.
        if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
            let offset = header.base_offset.max(self.start);
            if readable(offset) && offset <= header.last_offset() {
                each(at(offset, header.max_timestamp, epoch));
            }
            return Ok(());
        }
        let damaged = |reason: String| ReadError::Damaged {
            path: "a batch".to_owned(),
            from: header.base_offset,
            to: header.next_offset(),
            reason,
        };
        let batch = riverlog_wire::batch::Batch {
            header: *header,
            bytes,
        };
        let records = batch
            .records(RECORDS_LIMIT)
            .map_err(|e| damaged(e.to_string()))?;
        for record in records.iter() {
            let record = record.map_err(|e| damaged(e.to_string()))?;
            if readable(record.offset) && !each(at(record.offset, record.timestamp, epoch)) {
                break;
            }
        }
        Ok(())
    }
}

fn at(offset: Offset, timestamp: i64, epoch: LeaderEpoch) -> OffsetAt {
    OffsetAt {
        offset,
        timestamp,
        epoch,
    }
}
