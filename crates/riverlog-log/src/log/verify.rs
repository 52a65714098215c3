//! Verifying blocks when they are first read from a device, and telling which offsets a damaged block takes.
//!
//! A block is compared with its entry in the `.check` file. Where there is none that can be trusted, its batches speak for
//! it: their CRCs, their offsets one after the other, and the epochs that the log knows for them.

use std::ops::Range;
use std::sync::Arc;

use riverlog_wire::Offset;
use riverlog_wire::batch::BatchHeader;

use super::check::BLOCK;
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
    let mut block = from / BLOCK;
    let last = to.div_ceil(BLOCK);
    let mut buffer: Vec<u8> = Vec::new();
    let mut buffered: Range<u64> = 0..0;
    while block < last {
        let number = block;
        block += 1;
        let (len, crc) = match reader.segment.block_check(reader.volume, number)? {
            BlockCheck::Verified => continue,
            BlockCheck::Crc { len, crc } => (len, crc),
            BlockCheck::Missing => {
                damage.extend(examine(reader, file, number, Doubt::Unknown)?);
                continue;
            }
        };
        if !buffered.contains(&number) {
            let until = last.min(number + READ_BLOCKS);
            let bytes = ((until - number) * BLOCK).min(reader.size.saturating_sub(number * BLOCK));
            buffer.resize(bytes as usize, 0);
            match file.read_at(&mut buffer, number * BLOCK) {
                Ok(n) => buffer.truncate(n),
                // Block by block below, so that one bad sector doesn't take its neighbours along.
                Err(_) => buffer.clear(),
            }
            buffered = number..until;
        }
        let at = ((number - buffered.start) * BLOCK) as usize;
        let whole;
        let bytes = match buffer.get(at..at + len as usize) {
            Some(bytes) => bytes,
            None => {
                let mut one = vec![0; len as usize];
                match file.read_at(&mut one, number * BLOCK) {
                    Ok(n) => one.truncate(n),
                    Err(_) => {
                        damage.extend(examine(reader, file, number, Doubt::Unreadable)?);
                        continue;
                    }
                }
                whole = one;
                &whole
            }
        };
        let mut computed = reader.segment.seed.block(number);
        computed.update(bytes);
        if computed.value() == crc && bytes.len() as u64 == len {
            reader.segment.set_verified(number);
        } else {
            damage.extend(examine(reader, file, number, Doubt::Differs)?);
        }
    }
    Ok(damage)
}

/// The damage around a position where a walk could not go on.
pub(super) fn damage_at(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    at: u64,
) -> Result<Vec<Damage>, DiskError> {
    examine(reader, file, at / BLOCK, Doubt::Stuck)
}

/// Goes through the batches that reach into a block, and tells which of them are damaged.
fn examine(
    reader: &SegmentReader<'_>,
    file: &Arc<dyn DiskFile>,
    number: u64,
    doubt: Doubt,
) -> Result<Vec<Damage>, DiskError> {
    let segment = reader.segment;
    let block = number * BLOCK..((number + 1) * BLOCK).min(reader.size);
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
    let mut reached: Option<Damage> = None;
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
                    // Should nothing else explain the doubt, these are the batches that it falls on.
                    if walker.at > block.start {
                        let whole = reached.get_or_insert_with(|| Damage {
                            at: from..from,
                            offsets: header.base_offset..header.base_offset,
                            reason: "the block's checksum differs".to_owned(),
                        });
                        whole.at.end = walker.at;
                        whole.offsets.end = header.next_offset();
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
    if !damage.is_empty() {
        return Ok(damage);
    }
    match doubt {
        Doubt::Unknown => {
            vouch(reader, file, number, block)?;
            Ok(Vec::new())
        }
        Doubt::Differs | Doubt::Unreadable => Ok(reached.into_iter().collect()),
        Doubt::Stuck => Ok(Vec::new()),
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
            Step::Batch { header, at } if foreign(reader, &header).is_none() => {
                return Ok((at, header.base_offset));
            }
            _ => {}
        }
    }
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
