//! Reading: the tail from memory, everything else as slices of files whose bytes have been verified.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::Offset;
use riverlog_wire::batch::BatchHeader;

use super::epochs::Epochs;
use super::scan::{Step, Walker};
use super::segment::{Segment, Trust};
use super::verify::{Damage, damage_at, damage_between};
use super::{Log, ReadError};
use crate::{DiskError, DiskFile, Volume};

/// A piece of a segment: whole batches as stored.
#[derive(Clone, Debug)]
pub enum Slice {
    /// In memory.
    Memory(Bytes),
    /// In a file that has been verified, `at..at + len`; the file stays open and its bytes stay as they are (unless a
    /// follower cuts them off, which it does only above the high watermark).
    File {
        /// The segment.
        file: Arc<dyn DiskFile>,
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
        if let [Slice::Memory(bytes)] = &self.parts[..] {
            return Ok(bytes.clone());
        }
        let mut out = BytesMut::with_capacity(self.len);
        for part in &self.parts {
            match part {
                Slice::Memory(bytes) => out.extend_from_slice(bytes),
                Slice::File { file, at, len } => {
                    let from = out.len();
                    out.resize(from + len, 0);
                    let failed = |source: std::io::Error| DiskError {
                        action: "read",
                        path: "a segment".to_owned(),
                        source: Arc::new(source),
                    };
                    let n = file
                        .read_at(out.get_mut(from..).unwrap_or(&mut []), *at)
                        .map_err(failed)?;
                    if n < *len {
                        let cut = std::io::ErrorKind::UnexpectedEof.into();
                        return Err(failed(cut).into());
                    }
                }
            }
        }
        Ok(out.freeze())
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
    pub(super) reader: Reader,
    from: Offset,
    until: Offset,
    max_bytes: usize,
}

impl Log {
    /// Batches from the one that holds `from`, up to `until` (exclusive: high watermark, last stable offset or log end) and
    /// about `max_bytes`. The first batch comes whole even when larger (KIP-74).
    ///
    /// Never gives what is not written yet, whatever `until` says: it could still be taken back.
    pub fn read(
        &mut self,
        from: Offset,
        until: Offset,
        max_bytes: usize,
    ) -> Result<Read, ReadError> {
        if from < self.start || from > self.end {
            return Err(ReadError::OffsetOutOfRange {
                asked: from,
                start: self.start,
                end: self.end,
            });
        }
        let until = until.min(self.written);
        if from >= until {
            return Ok(Read::Ready(Slices {
                next: from,
                ..Slices::default()
            }));
        }
        if let Some(slices) = self.loaded_mut()?.tail.read(from, until, max_bytes) {
            return Ok(Read::Ready(slices));
        }
        Ok(Read::Plan(ReadPlan {
            reader: self.reader()?,
            from,
            until,
            max_bytes,
        }))
    }

    /// What a reader needs when it works without the lock.
    pub(super) fn reader(&mut self) -> Result<Reader, DiskError> {
        let volume = self.volume.clone();
        let log = self.loaded_mut()?;
        Ok(Reader {
            volume,
            segments: log.segments.clone(),
            epochs: log.epochs.clone(),
        })
    }
}

impl ReadPlan {
    /// Finds the batches; verifies what has not been verified in this process's life.
    pub fn run(self) -> Result<Slices, ReadError> {
        self.reader.read(self.from, self.until, self.max_bytes)
    }
}

/// The log as it was when a reader began.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) volume: Arc<Volume>,
    pub(super) segments: Arc<Vec<Arc<Segment>>>,
    pub(super) epochs: Epochs,
}

impl Reader {
    pub(super) fn read(
        &self,
        from: Offset,
        until: Offset,
        max_bytes: usize,
    ) -> Result<Slices, ReadError> {
        let after = self.segments.partition_point(|s| s.base <= from);
        for segment in self.segments.iter().skip(after.saturating_sub(1)) {
            if segment.base >= until {
                break;
            }
            let later = self.segments.last().is_some_and(|last| last.base > from);
            if active(Mutant::BatchSkippedAtRoll) && segment.base == from && later {
                continue;
            }
            let found = SegmentReader::open(self, segment)?.read(from, until, max_bytes)?;
            // A gap: what comes next is in a later segment.
            if let Some(slices) = found {
                return Ok(slices);
            }
        }
        Ok(Slices {
            next: from,
            ..Slices::default()
        })
    }
}

/// A segment, open for reading.
pub(super) struct SegmentReader<'a> {
    pub(super) volume: &'a Volume,
    pub(super) epochs: &'a Epochs,
    pub(super) segment: &'a Arc<Segment>,
    /// `None`: the file is gone.
    pub(super) file: Option<Arc<dyn DiskFile>>,
    /// Bytes of the segment, and the offset after its last record.
    pub(super) size: u64,
    pub(super) next: Offset,
    gaps: bool,
}

/// Where an answer lies.
struct Found {
    at: u64,
    end: u64,
    next: Offset,
}

/// How a walk ended.
enum Walked {
    Found(Found),
    /// Nothing at or after the asked offset, and before the bound, in the bytes up to a position.
    Nothing(u64),
    /// What lies at a position can't be read.
    Trouble {
        at: u64,
        offset: Offset,
        reason: String,
    },
}

impl<'a> SegmentReader<'a> {
    pub(super) fn open(
        reader: &'a Reader,
        segment: &'a Arc<Segment>,
    ) -> Result<SegmentReader<'a>, DiskError> {
        let facts = segment.facts();
        let file = match segment.file(&reader.volume) {
            Ok(file) => Some(file),
            Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        Ok(SegmentReader {
            volume: &reader.volume,
            epochs: &reader.epochs,
            segment,
            file,
            size: facts.size,
            next: facts.next,
            gaps: facts.gaps,
        })
    }

    fn damaged(&self, from: Offset, to: Offset, reason: &str) -> ReadError {
        ReadError::Damaged {
            path: self.segment.path("log"),
            from,
            to,
            reason: reason.to_owned(),
        }
    }

    /// `None`: nothing at or after `from` here.
    pub(super) fn read(
        &self,
        from: Offset,
        until: Offset,
        max_bytes: usize,
    ) -> Result<Option<Slices>, ReadError> {
        let Some(file) = &self.file else {
            if from < self.next {
                let from = from.max(self.segment.base);
                return Err(self.damaged(from, self.next, "the file is missing"));
            }
            return Ok(None);
        };
        self.trust_indexes(file)?;
        let (start, start_offset) = self.floor(file, from)?;
        let mut damage: Vec<Damage> = Vec::new();
        loop {
            let walked = self.walk(
                file,
                (start, start_offset),
                (from, until, max_bytes),
                &damage,
            )?;
            let known = damage.len();
            match walked {
                Walked::Nothing(end) => {
                    // Only if what was passed over says so rightly.
                    let new = damage_between(self, file, start, end)?;
                    merge(&mut damage, new);
                    if damage.len() == known {
                        return Ok(None);
                    }
                }
                Walked::Found(found) => {
                    let new = damage_between(self, file, start, found.end)?;
                    merge(&mut damage, new);
                    if damage.len() == known {
                        let len = (found.end - found.at) as usize;
                        return Ok(Some(Slices {
                            parts: vec![Slice::File {
                                file: file.clone(),
                                at: found.at,
                                len,
                            }],
                            len,
                            next: found.next,
                        }));
                    }
                }
                Walked::Trouble { at, offset, reason } => {
                    // Damage that is known already, and in the way.
                    if let Some(hit) = damage.iter().find(|d| d.at.start == at) {
                        return Err(self.damaged(hit.offsets.start, hit.offsets.end, &hit.reason));
                    }
                    // A header that lies leads astray until it doesn't: the fault may be anywhere on the way.
                    let way = damage_between(self, file, start, (at + 1).min(self.size))?;
                    merge(&mut damage, way);
                    if damage.len() == known {
                        merge(&mut damage, damage_at(self, file, at)?);
                    }
                    if damage.len() == known {
                        return Err(self.damaged(offset, self.next, &reason));
                    }
                }
            }
        }
    }

    /// Makes sure that the index files are those of this segment; makes them again when they aren't.
    pub(super) fn trust_indexes(&self, file: &Arc<dyn DiskFile>) -> Result<(), DiskError> {
        if self.segment.state().trust != Trust::Unchecked {
            return Ok(());
        }
        if active(Mutant::IndexTrusted) || self.segment.check_indexes(self.volume).unwrap_or(false)
        {
            self.segment.state().trust = Trust::Good;
            return Ok(());
        }
        sometimes(Mark::IndexRebuilt);
        self.segment.rebuild_indexes(self.volume, file)
    }

    /// Where a batch begins at or before the one that holds `offset`, and an offset that it isn't below.
    pub(super) fn floor(
        &self,
        file: &Arc<dyn DiskFile>,
        offset: Offset,
    ) -> Result<(u64, Offset), DiskError> {
        let base = self.segment.base;
        let entry = self
            .segment
            .floor_index(self.volume, |e| e.last_offset(base) <= offset)?;
        if let Some(entry) = entry
            && active(Mutant::IndexTrusted)
        {
            return Ok((entry.position as u64, entry.last_offset(base)));
        }
        if let Some(entry) = entry
            && let Some(header) = self.batch_of(file, entry.position, entry.last_offset(base))?
        {
            return Ok((entry.position as u64, header.base_offset));
        }
        Ok((0, base))
    }

    /// The header at `position`, if it is that of the batch which ends with `last`.
    pub(super) fn batch_of(
        &self,
        file: &Arc<dyn DiskFile>,
        position: i32,
        last: Offset,
    ) -> Result<Option<BatchHeader>, DiskError> {
        let Ok(at) = u64::try_from(position) else {
            return Ok(None);
        };
        // Which offset lies there is the question.
        let mut walker = Walker::new(
            self.segment,
            file.clone(),
            at,
            self.size,
            self.segment.base,
            true,
        );
        Ok(match walker.look(riverlog_wire::batch::HEADER_LEN)? {
            Step::Batch { header, .. } if header.last_offset() == last => Some(header),
            _ => None,
        })
    }

    pub(super) fn walker(&self, file: &Arc<dyn DiskFile>, at: u64, expected: Offset) -> Walker {
        let (size, gaps) = (self.size, self.gaps);
        let mut walker = Walker::new(self.segment, file.clone(), at, size, expected, gaps);
        walker.until = self.next;
        walker
    }

    /// Walks headers from `start` to where the answer begins and on to where it ends, around known damage.
    fn walk(
        &self,
        file: &Arc<dyn DiskFile>,
        start: (u64, Offset),
        (from, until, max_bytes): (Offset, Offset, usize),
        damage: &[Damage],
    ) -> Result<Walked, DiskError> {
        let mut walker = self.walker(file, start.0, start.1);
        let mut found: Option<Found> = None;
        loop {
            // The index may lead into the middle of it.
            let covers = |d: &&Damage| d.at.start == walker.at || d.at.contains(&walker.at);
            if let Some(hit) = damage.iter().find(covers) {
                if hit.offsets.end <= from {
                    walker.at = hit.at.end;
                    walker.expected = hit.offsets.end;
                    continue;
                }
                return Ok(match found {
                    Some(found) => Walked::Found(found),
                    None => Walked::Trouble {
                        at: hit.at.start,
                        offset: hit.offsets.start,
                        reason: hit.reason.clone(),
                    },
                });
            }
            let expected = walker.expected;
            let (header, at) = match walker.look(4096)? {
                Step::Batch { header, at } => (header, at),
                Step::Bad { at, reason } => {
                    return Ok(match found {
                        Some(found) => Walked::Found(found),
                        None => Walked::Trouble {
                            at,
                            offset: expected,
                            reason,
                        },
                    });
                }
                Step::End => {
                    return Ok(match found {
                        Some(found) => Walked::Found(found),
                        None if from < self.next => Walked::Trouble {
                            at: self.size,
                            offset: expected,
                            reason: "the end of the segment is missing".to_owned(),
                        },
                        None => Walked::Nothing(walker.at),
                    });
                }
            };
            walker.pass(&header);
            if header.next_offset() <= from {
                continue;
            }
            match &mut found {
                None if header.base_offset >= until => return Ok(Walked::Nothing(walker.at)),
                None => {
                    let mut first = Found {
                        at,
                        end: walker.at,
                        next: header.next_offset(),
                    };
                    if damage.is_empty() {
                        self.jump(file, &mut first, until, max_bytes)?;
                        walker.at = first.end;
                        walker.expected = first.next;
                    }
                    found = Some(first);
                }
                Some(found) => {
                    let len = walker.at - found.at;
                    if header.base_offset >= until || len > max_bytes as u64 {
                        break;
                    }
                    found.end = walker.at;
                    found.next = header.next_offset();
                }
            }
        }
        Ok(match found {
            Some(found) => Walked::Found(found),
            None => Walked::Nothing(walker.at),
        })
    }

    /// Takes in at once what the index knows to fit, instead of walking over it.
    fn jump(
        &self,
        file: &Arc<dyn DiskFile>,
        found: &mut Found,
        until: Offset,
        max_bytes: usize,
    ) -> Result<(), DiskError> {
        let base = self.segment.base;
        let limit = found.at.saturating_add(max_bytes as u64);
        let entry = self.segment.floor_index(self.volume, |e| {
            e.last_offset(base) < until && u64::try_from(e.position).is_ok_and(|p| p <= limit)
        })?;
        if let Some(entry) = entry
            && entry.position as u64 > found.end
            && let Some(header) = self.batch_of(file, entry.position, entry.last_offset(base))?
        {
            found.end = entry.position as u64;
            found.next = header.base_offset;
        }
        Ok(())
    }
}

/// Adds damage that isn't known yet, in order of position.
fn merge(damage: &mut Vec<Damage>, new: Vec<Damage>) {
    for one in new {
        let overlaps = |d: &Damage| {
            d.at.start < one.at.end.max(one.at.start + 1)
                && one.at.start < d.at.end.max(d.at.start + 1)
        };
        if !damage.iter().any(overlaps) {
            damage.push(one);
        }
    }
    damage.sort_by_key(|d| d.at.start);
}
