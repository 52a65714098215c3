//! Writing the copy of some segments, without what is not needed any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::Offset;
use riverlog_wire::batch::{Batch, BatchHeader, Filtered, Records, emptied, filter_records};

use super::CleanError;
use crate::log::check::BlockCrc;
use crate::log::facts::{BatchInfo, Facts, Marks};
use crate::log::read::Reader;
use crate::log::segment::{Segment, WrittenPart, disk_error, remove_file};
use crate::log::swap::{CLEANED, Swap};
use crate::log::transactions::AbortedTransaction;
use crate::{DiskError, DiskFile, OpenMode, Volume};

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// What stays of a batch.
#[derive(Debug)]
pub(super) enum Keep {
    /// All of it.
    AsIs,
    /// All of it until this time, which the copy says from now on.
    Until(i64),
    /// Those records that `stay` says, tombstones among them until `horizon`.
    Some {
        records: Records,
        stay: Vec<bool>,
        horizon: Option<i64>,
    },
    /// Its header: what it says of offsets, sequences or epochs is needed.
    Header,
    Nothing,
}

impl Keep {
    pub(super) fn nothing(needed: bool) -> Keep {
        if needed { Keep::Header } else { Keep::Nothing }
    }
}

/// A copy that is being written.
#[derive(Debug)]
pub(super) struct Copy {
    old: Vec<Arc<Segment>>,
    new: Segment,
    file: Arc<dyn DiskFile>,
    interval: u32,
    at: Offset,
    end: Offset,
    facts: Facts,
    block: BlockCrc,
    marks: Vec<Marks>,
    blocks: Vec<Option<u32>>,
    buffer: Vec<u8>,
    /// By their markers.
    aborted: BTreeMap<Offset, AbortedTransaction>,
    /// Not the same as what it is made from.
    changed: bool,
}

/// A copy that is whole.
pub(super) struct Finished {
    /// Bytes.
    pub(super) size: u64,
    /// `None`: nothing has changed.
    pub(super) swap: Option<Swap>,
}

impl Copy {
    /// Begins a copy of `old` (neighbours, up to `end`), without what lies before `from`.
    pub(super) fn begin(
        volume: &Volume,
        old: Vec<Arc<Segment>>,
        new: Segment,
        from: Offset,
        end: Offset,
        interval: u32,
    ) -> Result<Copy, DiskError> {
        let path = new.path(CLEANED);
        let file = volume
            .disk()
            .open(&path, OpenMode::Create)
            .map_err(disk_error("make", &path))?;
        file.set_len(0).map_err(disk_error("cut", &path))?;
        Ok(Copy {
            changed: old.len() > 1 || from > new.base,
            facts: Facts::new(new.base),
            block: BlockCrc::start(new.seed),
            aborted: aborted_in(&old),
            old,
            new,
            file,
            interval,
            at: from,
            end,
            marks: Vec::new(),
            blocks: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// The offset that the next batch holds.
    pub(super) fn at(&self) -> Offset {
        self.at
    }
    pub(super) fn end(&self) -> Offset {
        self.end
    }
    pub(super) fn segment(&self) -> &Segment {
        &self.new
    }

    /// Takes what stays of a batch. Returns bytes and records of that.
    pub(super) fn take(&mut self, batch: &Batch<'_>, keep: Keep) -> Result<(u64, u64), CleanError> {
        self.at = batch.header.next_offset();
        let filtered = match keep {
            Keep::AsIs => Filtered::Same,
            Keep::Header if batch.header.record_count == 0 => Filtered::Same,
            Keep::Header => Filtered::Empty(emptied(&batch.header)),
            Keep::Until(horizon) => {
                let records = batch.records(super::RECORDS_LIMIT);
                let records = records.map_err(super::unreadable)?;
                filter_records(&records, Some(horizon), |_| true).map_err(super::unreadable)?
            }
            Keep::Some {
                records,
                stay,
                horizon,
            } => {
                let mut stay = stay.into_iter();
                filter_records(&records, horizon, |_| stay.next().unwrap_or(true))
                    .map_err(super::unreadable)?
            }
            Keep::Nothing => {
                self.changed = true;
                return Ok((0, 0));
            }
        };
        let bytes = match &filtered {
            Filtered::Same => batch.bytes,
            Filtered::Batch(bytes) | Filtered::Empty(bytes) => {
                self.changed = true;
                bytes
            }
        };
        let header = BatchHeader::parse(bytes).map_err(super::unreadable)?;
        let mut info = BatchInfo::new(&header, -1);
        if header.record_count > 0 {
            // A reader who is told of it must meet its marker: else it would wait for that for ever.
            info.aborted = self.aborted.remove(&header.last_offset());
        }
        if self.facts.size + bytes.len() as u64 > i32::MAX as u64 {
            return Err(CleanError::Unreadable(
                "the segment would grow beyond 2 GiB when its batches are compressed again"
                    .to_owned(),
            ));
        }
        let marks = self.facts.add(self.new.base, &info, self.interval);
        if !marks.is_empty() {
            self.marks.push(marks);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        let records = u64::try_from(header.record_count).unwrap_or(0);
        Ok((bytes.len() as u64, records))
    }

    fn write(&mut self) -> Result<(), DiskError> {
        let path = self.new.path(CLEANED);
        self.file
            .write_at(&[&self.buffer], self.block.position())
            .map_err(disk_error("write", &path))?;
        self.block.update(&self.buffer, &mut self.blocks);
        self.buffer.clear();
        Ok(())
    }

    /// Makes the copy durable, or removes it when it is the same as what it was made from.
    pub(super) fn finish(
        mut self,
        volume: &Volume,
        reader: &Reader,
    ) -> Result<Finished, CleanError> {
        let path = self.new.path(CLEANED);
        if self.facts.next != self.end {
            return Err(CleanError::Unreadable(format!(
                "the records end at offset {} where {} was expected",
                self.facts.next, self.end
            )));
        }
        if !self.changed {
            remove_file(volume, &path)?;
            return Ok(Finished {
                size: self.facts.size,
                swap: None,
            });
        }
        self.write()?;
        if !active(Mutant::CleanedNotSynced) {
            self.file.sync().map_err(disk_error("sync", &path))?;
        }
        let appended = self.old.iter().map(|s| s.facts().appended_ms).max();
        self.facts.appended_ms = appended.unwrap_or(-1);
        // Its first batch may be of a later one.
        self.facts.first_epoch = reader.epochs.epoch_at(self.new.base);
        let size = self.facts.size;
        self.new.written(WrittenPart {
            facts: self.facts,
            block: self.block,
            marks: self.marks,
            blocks: self.blocks,
            file: self.file,
        });
        self.new.state().unsynced = None;
        self.new.seal();
        let dir = self.new.path("log");
        let dir = dir.rsplit_once('/').map_or("", |(dir, _)| dir);
        let crc = reader.epochs.crc_between(self.new.base, self.end);
        let swap = Swap::new(self.old, Arc::new(self.new), dir.into(), crc);
        Ok(Finished {
            size,
            swap: Some(swap),
        })
    }
}

/// The aborted transactions that segments know, by the offset of the marker.
fn aborted_in(segments: &[Arc<Segment>]) -> BTreeMap<Offset, AbortedTransaction> {
    let mut all = BTreeMap::new();
    for segment in segments {
        let state = segment.state();
        all.extend(state.aborted.iter().map(|a| (a.last, *a)));
    }
    all
}
