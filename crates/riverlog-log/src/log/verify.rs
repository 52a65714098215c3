//! Verifying blocks when they are first read from a device, and telling which offsets a damaged block takes.
//!
//! A block is compared with its entry in the `.check` file. Where there is none that can be trusted, its batches speak for
//! it: their CRCs, their offsets one after the other, and the epochs that the log knows for them.

use std::ops::Range;
use std::sync::Arc;

use riverlog_wire::Offset;
use riverlog_wire::batch::BatchHeader;

use super::check::BLOCK;
use super::index::IndexEntry;
use super::proof::{Hurt, SECTOR};
use super::read::SegmentReader;
use super::scan::Step;
use super::segment::{BlockCheck, disk_error};
use crate::{DiskError, DiskFile};

/// Bytes that are read at once to be verified.
const READ_BLOCKS: u64 = 16;

/// A range of a segment that can't be read.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// Its bytes, from where a batch begins (or should) to where the next readable one does.
    pub(super) at: Range<u64>,
    /// Its offsets.
    pub(super) offsets: Range<Offset>,
    pub(super) reason: String,
}

/// How a block was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// It differs from its entry.
    Differs,
    /// There is nothing to compare it with.
    Unknown,
    /// The device gave an error.
    Unreadable,
    /// A walk over headers could not go on in it.
    Stuck,
}

/// Verifies the blocks that hold the bytes `from..to`, and returns the damage in them.
pub(super) fn damage_between(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    from: u64,
    to: u64,
) -> Result<Vec<Damage>, DiskError> {
    let mut damage = Vec::new();
    if riverlog_mutants::active(riverlog_mutants::Mutant::DamageServed) {
        return Ok(damage);
    }
    let mut blocks = Blocks::new(reader, file, to.div_ceil(BLOCK));
    let (mut block, last) = (from / BLOCK, to.div_ceil(BLOCK));
    while block < last {
        match blocks.doubt(block)? {
            None => block += 1,
            Some(Doubt::Unknown) => {
                damage.extend(examine(reader, file, block..block + 1, Doubt::Unknown)?);
                block += 1;
            }
            Some(doubt) => {
                // What was written to the wrong place may be larger than a block: neighbours that differ belong together.
                let mut run = block..block + 1;
                while run.start > 0 && blocks.differs(run.start - 1)? {
                    run.start -= 1;
                }
                while run.end * BLOCK < reader.size && blocks.differs(run.end)? {
                    run.end += 1;
                }
                block = run.end;
                damage.extend(examine(reader, file, run, doubt)?);
            }
        }
    }
    Ok(damage)
}

/// Blocks of a segment, read a few at a time.
struct Blocks<'a> {
    reader: &'a SegmentReader<'a>,
    file: &'a Arc<dyn DiskFile>,
    /// Blocks from here on aren't read ahead.
    last: u64,
    buffer: Vec<u8>,
    buffered: Range<u64>,
}

impl<'a> Blocks<'a> {
    fn new(reader: &'a SegmentReader<'a>, file: &'a Arc<dyn DiskFile>, last: u64) -> Blocks<'a> {
        Blocks {
            reader,
            file,
            last,
            buffer: Vec::new(),
            buffered: 0..0,
        }
    }
    fn differs(&mut self, number: u64) -> Result<bool, DiskError> {
        Ok(matches!(
            self.doubt(number)?,
            Some(Doubt::Differs | Doubt::Unreadable)
        ))
    }
    /// `None`: the block is sound.
    fn doubt(&mut self, number: u64) -> Result<Option<Doubt>, DiskError> {
        let segment = self.reader.segment;
        let (len, expected) = match segment.block_check(self.reader.volume, number)? {
            BlockCheck::Verified => return Ok(None),
            BlockCheck::Missing => return Ok(Some(Doubt::Unknown)),
            BlockCheck::Crc { len, crc } => (len as usize, crc),
        };
        let mut crc = segment.seed.block(number);
        match self.bytes(number, len) {
            Some(bytes) => crc.update(bytes),
            None => return Ok(Some(Doubt::Unreadable)),
        }
        if crc.value() != expected {
            return Ok(Some(Doubt::Differs));
        }
        segment.set_verified(number);
        Ok(None)
    }
    /// The first `len` bytes of a block; `None` when the device doesn't give them.
    fn bytes(&mut self, number: u64, len: usize) -> Option<&[u8]> {
        if !self.buffered.contains(&number) {
            let end = self.last.min(number + READ_BLOCKS).max(number + 1);
            // One bad sector must not take its neighbours along.
            if !self.fill(number..end) && !self.fill(number..number + 1) {
                return None;
            }
        }
        let at = ((number - self.buffered.start) * BLOCK) as usize;
        self.buffer.get(at..at.checked_add(len)?)
    }
    fn fill(&mut self, blocks: Range<u64>) -> bool {
        let from = blocks.start * BLOCK;
        let to = (blocks.end * BLOCK).min(self.reader.size);
        self.buffer.resize(to.saturating_sub(from) as usize, 0);
        self.buffered = 0..0;
        let Ok(n) = self.file.read_at(&mut self.buffer, from) else {
            return false;
        };
        self.buffer.truncate(n);
        self.buffered = blocks;
        true
    }
}

/// The damage around a position where a walk could not go on.
pub(super) fn damage_at(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    at: u64,
) -> Result<Vec<Damage>, DiskError> {
    let block = at / BLOCK;
    examine(reader, file, block..block + 1, Doubt::Stuck)
}

/// Goes through the batches that reach into some blocks, and tells which of them are damaged.
///
/// When blocks differ from their entries, one damaged batch may explain it. Otherwise they look like bytes that were written to the
/// wrong place: their edges cut batches, and what lies between the edges is as sound as it is wrong. Then all between the
/// first and the last damaged batch is damage. Edges may also fall between two batches, see [`reach_to_edges`].
fn examine(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    blocks: Range<u64>,
    doubt: Doubt,
) -> Result<Vec<Damage>, DiskError> {
    let segment = reader.segment;
    let block = blocks.start * BLOCK..(blocks.end * BLOCK).min(reader.size);
    let entry = segment.floor_index(reader.volume, |e| {
        u64::try_from(e.position).is_ok_and(|p| p <= block.start)
    })?;
    let (mut at, mut offset) = (0, segment.base);
    if let Some(entry) = entry
        && let Some(header) =
            reader.batch_of(file, entry.position, entry.last_offset(segment.base))?
    {
        (at, offset) = (entry.position as u64, header.base_offset);
    }
    let mut walker = reader.walker(file, at, offset);
    let mut damage: Vec<Damage> = Vec::new();
    // Should nothing else explain the doubt, these are the batches that it falls on.
    let mut reached: Vec<Damage> = Vec::new();
    while walker.at < block.end || (block.is_empty() && walker.at <= block.end) {
        let (from, expected) = (walker.at, walker.expected);
        let step = match walker.next_checked() {
            Ok((step, _)) => step,
            Err(e) => Step::Bad {
                at: from,
                reason: e.to_string(),
            },
        };
        let reason = match step {
            Step::End => break,
            Step::Batch { header, .. } => match foreign(reader, &header) {
                None => {
                    if walker.at > block.start {
                        reached.push(Damage {
                            at: from..walker.at,
                            offsets: header.base_offset..header.next_offset(),
                            reason: "the block's checksum differs".to_owned(),
                        });
                    }
                    continue;
                }
                Some(reason) => {
                    walker.at = from;
                    walker.expected = expected;
                    reason
                }
            },
            Step::Bad { reason, .. } => reason,
        };
        let (to, next) = behind_damage(reader, file, from, expected)?;
        damage.push(Damage {
            at: from..to,
            offsets: expected..next,
            reason,
        });
        if to >= reader.size {
            break;
        }
        walker.at = to;
        walker.expected = next;
    }
    damage.retain(|d| d.at.end > block.start);
    match doubt {
        Doubt::Stuck => {}
        Doubt::Unknown if damage.is_empty() => vouch(reader, file, blocks.start, block)?,
        Doubt::Unknown => {}
        Doubt::Differs | Doubt::Unreadable => {
            let explained = match &damage[..] {
                [one] => is_explained(reader, file, &block, one),
                _ => false,
            };
            for number in blocks {
                let range = number * BLOCK..(number + 1) * BLOCK;
                let hit = |d: &Damage| d.at.start < range.end && d.at.end > range.start;
                if !damage.iter().any(hit) {
                    let of_block = |b: &&Damage| hit(b);
                    let mut sound = reached.iter().filter(of_block);
                    if let Some(mut whole) = sound.next().cloned() {
                        if let Some(last) = sound.next_back() {
                            whole.at.end = last.at.end;
                            whole.offsets.end = last.offsets.end;
                        }
                        damage.push(whole);
                    }
                }
            }
            damage.sort_by_key(|d| d.at.start);
            if let [first, .., last] = &damage[..] {
                let mut all = first.clone();
                all.at.end = last.at.end;
                all.offsets.end = last.offsets.end;
                damage = vec![all];
            }
            if let [one] = &mut damage[..]
                && doubt == Doubt::Differs
                && !explained
            {
                reach_to_edges(reader, &block, one, &reached);
            }
        }
    }
    Ok(damage)
}

/// Whether a damaged batch is all that is wrong with its block.
fn is_explained(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    blocks: &Range<u64>,
    damage: &Damage,
) -> bool {
    let number = blocks.start / BLOCK;
    let check = reader.segment.block_check(reader.volume, number);
    let Ok(BlockCheck::Crc { len, crc }) = check else {
        return false;
    };
    let mut bytes = vec![0; len as usize];
    let read = file.read_at(&mut bytes, blocks.start);
    if blocks.end > blocks.start + BLOCK || !read.is_ok_and(|n| n == bytes.len()) {
        return false;
    }
    let hurt = Hurt {
        at: damage.at.clone(),
        base: damage.offsets.start,
        epoch: Some(reader.epochs.epoch_at(damage.offsets.start)),
    };
    hurt.explains(reader.segment, number, bytes, crc)
}

/// Bytes of another place cut batches at their edges, but where a batch happens to begin or end at a sector's edge, or the
/// segment does: what lies between such a place and the damage is not to be believed either.
fn reach_to_edges(
    reader: &SegmentReader<'_>,
    blocks: &Range<u64>,
    damage: &mut Damage,
    reached: &[Damage],
) {
    let inside = |at: u64| (blocks.start..=blocks.end).contains(&at);
    let edge = |at: u64| inside(at) && (at.is_multiple_of(SECTOR) || at == reader.size);
    let before = reached.iter().filter(|b| b.at.end <= damage.at.start);
    let first = before
        .filter(|b| edge(b.at.start))
        .min_by_key(|b| b.at.start);
    let after = reached.iter().filter(|b| b.at.start >= damage.at.end);
    let last = after.filter(|b| edge(b.at.end)).max_by_key(|b| b.at.end);
    if let Some(first) = first {
        damage.at.start = first.at.start;
        damage.offsets.start = first.offsets.start;
    }
    if let Some(last) = last {
        damage.at.end = last.at.end;
        damage.offsets.end = last.offsets.end;
    }
}

/// Why a batch is not of this log at its place.
fn foreign(reader: &SegmentReader<'_>, header: &BatchHeader) -> Option<String> {
    let known = reader.epochs.epoch_at(header.base_offset);
    (known != header.leader_epoch).then(|| {
        format!(
            "the batch at offset {} is of leader epoch {}, but epoch {known} wrote there",
            header.base_offset, header.leader_epoch
        )
    })
}

/// Where the first readable batch behind a damaged one begins: by the index where it knows one, else by search.
fn behind_damage(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    at: u64,
    expected: Offset,
) -> Result<(u64, Offset), DiskError> {
    let mut walker = reader.walker(file, at, expected);
    loop {
        match walker.resync() {
            Ok(true) => {}
            Ok(false) => return Ok((reader.size, reader.next)),
            Err(_) => {
                // A sector that can't be read: go on behind its block.
                let behind = (walker.at / BLOCK + 1) * BLOCK;
                if behind >= reader.size {
                    return Ok((reader.size, reader.next));
                }
                walker.at = behind - 1;
                continue;
            }
        }
        match walker.look(4096)? {
            Step::Batch { header, at }
                if foreign(reader, &header).is_none() && index_agrees(reader, &header, at)? =>
            {
                return Ok((at, header.base_offset));
            }
            // What it says of offsets is not to be believed either.
            _ => walker.expected = expected,
        }
    }
}

/// Whether the index, where it knows batches nearby, knows lower offsets before this one and higher ones behind it.
fn index_agrees(
    reader: &SegmentReader<'_>,
    header: &BatchHeader,
    at: u64,
) -> Result<bool, DiskError> {
    let segment = reader.segment;
    let offset = |e: &IndexEntry| e.last_offset(segment.base);
    let is_before = |e: &IndexEntry| u64::try_from(e.position).is_ok_and(|p| p < at);
    let before = segment.floor_index(reader.volume, is_before)?;
    let lower = segment.floor_index(reader.volume, |e| offset(e) < header.base_offset)?;
    Ok(before.is_none_or(|e| offset(&e) < header.base_offset)
        && lower.is_none_or(|e| is_before(&e)))
}

/// All batches of a block are sound: that is as good as an entry, and makes one.
fn vouch(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    number: u64,
    block: Range<u64>,
) -> Result<(), DiskError> {
    if block.end - block.start == BLOCK {
        let path = reader.segment.path("log");
        let mut bytes = vec![0; BLOCK as usize];
        let n = file
            .read_at(&mut bytes, block.start)
            .map_err(disk_error("read", &path))?;
        if n as u64 == BLOCK {
            let mut crc = reader.segment.seed.block(number);
            crc.update(&bytes);
            // Lost again at the next crash at worst.
            let _ = reader
                .segment
                .repair_check(reader.volume, number, crc.value());
        }
    }
    reader.segment.set_verified(number);
    Ok(())
}
