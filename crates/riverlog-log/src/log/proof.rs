//! Telling at recovery whether what a segment holds is what was written: a sound batch may still be another partition's, or say
//! another base offset.
//!
//! Whole blocks are compared with their entries in the `.check` file. Behind those that are durable, where a power cut may have
//! taken the file's end, the mark has a CRC over all (see [`EndCheck`]). What differs stays so for readers: it gets an entry that
//! its bytes don't fit.

use std::ops::Range;
use std::sync::Arc;

use riverlog_wire::batch::{HEADER_LEN, set_base_offset, set_leader_epoch};
use riverlog_wire::{LeaderEpoch, Offset};

use super::check::{BLOCK, BlockCrc, CHECK_ENTRY, CHECK_HEADER, Summary};
use super::crc::{Crc, POLYNOMIAL};
use super::segment::{Rebuilt, Segment};
use crate::volume::EndCheck;
use crate::{DiskError, DiskFile, Volume};

/// What is known of a segment's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// They are as they were synced, and end there: all entries count.
    Settled,
    /// The mark has a check of them.
    Checked(EndCheck),
    Nothing,
}

/// Compares a scan with what is known, and corrects what it says of blocks. `first`: the first block that it is about. True:
/// the unfinished block isn't what was written, so that nothing must be added to it.
pub(super) fn compare(
    volume: &Volume,
    segment: &Segment,
    file: &Arc<dyn DiskFile>,
    known: Known,
    first: u64,
    scan: &mut Rebuilt,
) -> Result<bool, DiskError> {
    let (until, check) = match known {
        Known::Nothing => return Ok(false),
        Known::Settled => (first + scan.blocks.len() as u64, None),
        Known::Checked(check) => (u64::from(check.size) / BLOCK, Some(check)),
    };
    let from = check.map_or(first, |check| first.min(u64::from(check.blocks)));
    let entries = segment.entries(volume, from..until)?;
    let mut wrong_until = 0;
    for (number, entry) in (from..).zip(&entries) {
        let found = number
            .checked_sub(first)
            .and_then(|i| scan.blocks.get_mut(i as usize));
        if let (Some(found), Some(entry)) = (found, entry)
            && *found != Some(*entry)
        {
            *found = Some(*entry);
            wrong_until = number + 1;
        }
    }
    let mut spoiled = false;
    let read = check.and_then(|check| Some((check, Read::of(segment, file, check)?)));
    if let Some((check, mut read)) = read {
        let first_read = u64::from(check.blocks);
        // What has an entry is settled.
        let known = entries.iter().skip((first_read - from) as usize);
        for (crc, known) in read.crcs.iter_mut().zip(known) {
            *crc = known.unwrap_or(*crc);
        }
        if read.sum().value() == check.crc {
            read.crcs.clear();
        }
        let region = first_read * BLOCK..u64::from(check.size);
        let mut bad = scan.bad.clone();
        let scanned = scan.facts.size;
        if scanned < region.end {
            // Behind it the scan has found nothing.
            bad.push(Hurt {
                at: scanned..region.end,
                base: scan.facts.next,
                epoch: None,
            });
        }
        bad.retain(|hurt| hurt.at.start < region.end && hurt.at.end > region.start);
        let one = one_hurt(segment, file, check, &read, &bad);
        let range = match &one {
            _ if read.crcs.is_empty() => 0..0,
            Some((number, _)) => *number..number + 1,
            // Whichever of them it is.
            None => first_read..until + 1,
        };
        for number in range {
            let known = number
                .checked_sub(from)
                .and_then(|i| entries.get(i as usize));
            if known.is_some_and(Option::is_some) {
                continue;
            }
            let there = read.crcs.get((number - first_read) as usize);
            let crc = match (one, there) {
                (Some((_, crc)), _) => crc,
                (None, Some(there)) => !there,
                (None, None) => continue,
            };
            wrong_until = wrong_until.max(number + 1);
            if number >= scanned / BLOCK && scanned < region.end {
                if number == scanned / BLOCK && one.is_none() {
                    scan.block.spoil();
                    spoiled = true;
                }
                continue;
            }
            if number == until {
                spoiled = replace_unfinished(segment, file, check, crc, first, scan);
                continue;
            }
            match number
                .checked_sub(first)
                .and_then(|i| scan.blocks.get_mut(i as usize))
            {
                Some(found) => *found = Some(crc),
                None => segment.repair_check(volume, number, crc)?,
            }
        }
    }
    if wrong_until > 0 {
        // Readers compare all up to there.
        scan.own_from = scan.own_from.max(wrong_until * BLOCK);
    }
    Ok(spoiled)
}

/// Whether the unfinished block at the end of what a summary is about is what it says.
pub(super) fn ends_as(segment: &Segment, file: &Arc<dyn DiskFile>, summary: &Summary) -> bool {
    let end = EndCheck {
        blocks: u32::try_from(summary.size / BLOCK).unwrap_or(u32::MAX),
        size: u32::try_from(summary.size).unwrap_or(u32::MAX),
        ..EndCheck::default()
    };
    let tail = Read::of(segment, file, end).and_then(|read| read.crcs.first().copied());
    tail.is_some() && tail == summary.tail_crc
}

/// The only block that isn't what it was, and its CRC then: when one damaged batch explains that.
fn one_hurt(
    segment: &Segment,
    file: &Arc<dyn DiskFile>,
    check: EndCheck,
    read: &Read,
    bad: &[Hurt],
) -> Option<(u64, u32)> {
    let [hurt] = bad else { return None };
    let blocks = hurt.at.start / BLOCK..(hurt.at.end.saturating_sub(1)) / BLOCK + 1;
    for number in blocks {
        let i = number.checked_sub(u64::from(check.blocks))? as usize;
        let start = number * BLOCK;
        let end = (start + BLOCK).min(u64::from(check.size));
        let mut bytes = vec![0; end.checked_sub(start)? as usize];
        let n = file.read_at(&mut bytes, start).ok()?;
        let crc = read.solved(i, check.crc)?;
        if n == bytes.len() && hurt.explains(segment, number, bytes, crc) {
            return Some((number, crc));
        }
    }
    None
}

/// What disks write in one piece begins and ends at multiples of it.
pub(super) const SECTOR: u64 = 512;

/// Where no batch of the log can be read.
#[derive(Clone, Debug)]
pub(super) struct Hurt {
    /// Its bytes, from where a batch begins to where the next readable one does.
    pub(super) at: Range<u64>,
    /// The offset that belongs there.
    pub(super) base: Offset,
    /// The epoch that belongs there, where it is known.
    pub(super) epoch: Option<LeaderEpoch>,
}

impl Hurt {
    /// Whether this is all that is wrong with a block: with one bit of it flipped back, or its header mended, the block's CRC is
    /// `expected`. Sectors of zeros in it are taken for an explanation, too. `bytes`: what the CRC is about.
    pub(super) fn explains(
        &self,
        segment: &Segment,
        number: u64,
        mut bytes: Vec<u8>,
        expected: u32,
    ) -> bool {
        let start = number * BLOCK;
        let end = start + bytes.len() as u64;
        let (from, to) = (self.at.start.max(start), self.at.end.min(end));
        if from >= to {
            return false;
        }
        let zeros = |at: u64| {
            let at = (at - start) as usize;
            let sector = bytes.get(at..at + SECTOR as usize);
            sector.is_some_and(|s| s.iter().all(|b| *b == 0))
        };
        let mut sectors = (from.next_multiple_of(SECTOR)..to).step_by(SECTOR as usize);
        if sectors.any(zeros) {
            return true;
        }
        let crc_of = |bytes: &[u8]| {
            let mut crc = segment.seed.block(number);
            crc.update(bytes);
            crc.value()
        };
        let flipped = flipped_bit(crc_of(&bytes) ^ expected, bytes.len() as u64);
        if flipped.is_some_and(|byte| (from..to).contains(&(start + byte))) {
            return true;
        }
        // Its own checksum doesn't cover what the log knows better.
        let at = self.at.start.checked_sub(start);
        let header = at.and_then(|at| bytes.get_mut(at as usize..));
        let Some(header) = header.filter(|bytes| bytes.len() >= HEADER_LEN) else {
            return false;
        };
        set_base_offset(header, self.base);
        if let Some(epoch) = self.epoch {
            set_leader_epoch(header, epoch);
        }
        crc_of(&bytes) == expected
    }
}

/// The byte of which one bit is flipped, when that makes the CRCs of `len` bytes differ by `difference`.
fn flipped_bit(difference: u32, len: u64) -> Option<u64> {
    // What a flip of the very last bit changes.
    let mut change = POLYNOMIAL;
    for behind in 0..len * 8 {
        if change == difference {
            return Some(len - 1 - behind / 8);
        }
        change = (change >> 1) ^ if change & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    None
}

/// `crc` is that of the block which was unfinished at the end of what `check` is about. True: it still is.
fn replace_unfinished(
    segment: &Segment,
    file: &Arc<dyn DiskFile>,
    check: EndCheck,
    crc: u32,
    first: u64,
    scan: &mut Rebuilt,
) -> bool {
    let at = u64::from(check.size);
    let number = at / BLOCK;
    let end = ((number + 1) * BLOCK).min(scan.facts.size);
    let mut block = BlockCrc::resume(segment.seed, at, Some(crc));
    let mut bytes = vec![0; (end.saturating_sub(at)) as usize];
    let mut done = Vec::new();
    match file.read_at(&mut bytes, at) {
        Ok(n) if n == bytes.len() => block.update(&bytes, &mut done),
        _ => block.skip(bytes.len() as u64, &mut done),
    }
    match number
        .checked_sub(first)
        .and_then(|i| scan.blocks.get_mut(i as usize))
    {
        Some(found) => *found = done.first().copied().flatten(),
        None => scan.block = block,
    }
    scan.facts.size / BLOCK == number
}

impl Segment {
    /// The CRCs in the entries of some blocks; `None` where there is no whole one.
    fn entries(&self, volume: &Volume, blocks: Range<u64>) -> Result<Vec<Option<u32>>, DiskError> {
        let count = blocks.end.saturating_sub(blocks.start) as usize;
        let at = CHECK_HEADER as u64 + blocks.start * CHECK_ENTRY as u64;
        let bytes = self.read_side_up_to(volume, "check", at, count * CHECK_ENTRY)?;
        let entry = |number: u64| {
            let from = (number - blocks.start) as usize * CHECK_ENTRY;
            self.seed
                .parse_entry(number, bytes.get(from..from + CHECK_ENTRY)?)
        };
        Ok(blocks.clone().map(entry).collect())
    }
    /// Whether all blocks that `check` is about have an entry.
    pub(super) fn has_entries(&self, volume: &Volume, check: EndCheck) -> Result<bool, DiskError> {
        let whole = u64::from(check.size) / BLOCK;
        let entries = self.entries(volume, u64::from(check.blocks)..whole)?;
        Ok(entries.iter().all(Option::is_some))
    }
}

/// What a check is about, as it is now.
struct Read {
    /// CRCs of the whole blocks, and that of the unfinished one.
    crcs: Vec<u32>,
}

impl Read {
    /// `None` when it can't be read.
    fn of(segment: &Segment, file: &Arc<dyn DiskFile>, check: EndCheck) -> Option<Read> {
        let (mut at, end) = (u64::from(check.blocks) * BLOCK, u64::from(check.size));
        let start = segment.seed.block(at / BLOCK).value();
        let mut running = BlockCrc::resume(segment.seed, at, Some(start));
        let mut done = Vec::new();
        let mut buffer = vec![0; BLOCK as usize];
        while at < end {
            let want = (end - at).min(BLOCK) as usize;
            let chunk = buffer.get_mut(..want)?;
            if file.read_at(chunk, at).ok()? < want {
                return None;
            }
            running.update(chunk, &mut done);
            at += want as u64;
        }
        done.push(running.tail_crc());
        let crcs = done.into_iter().collect::<Option<_>>()?;
        Some(Read { crcs })
    }
    /// To be compared with [`EndCheck::crc`].
    fn sum(&self) -> Crc {
        sum_of(&self.crcs)
    }
    /// What one of the CRCs must have been, when the others are right and the sum of all was `sum`.
    fn solved(&self, i: usize, sum: u32) -> Option<u32> {
        let before = sum_of(self.crcs.get(..i)?);
        let mut after = Crc::resume(sum);
        for crc in self.crcs.get(i + 1..)?.iter().rev() {
            after.take_back(&crc.to_be_bytes());
        }
        Some(u32::from_be_bytes(before.bytes_to(after)))
    }
}

fn sum_of(crcs: &[u32]) -> Crc {
    let mut sum = Crc::default();
    for crc in crcs {
        sum.update(&crc.to_be_bytes());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::crc::crc32c;
    use super::*;

    #[test]
    fn one_crc_is_told_by_the_others_and_their_sum() {
        let was = [7, 1 << 31, 0, 0xdead_beef, 12_345];
        let sum = sum_of(&was).value();
        for i in 0..was.len() {
            let mut read = Read { crcs: was.to_vec() };
            read.crcs[i] ^= 0x1234_5678;
            assert_ne!(read.sum().value(), sum);
            assert_eq!(read.solved(i, sum), Some(was[i]));
        }
        assert_eq!(Read { crcs: was.to_vec() }.solved(5, sum), None);
    }

    #[test]
    fn a_flipped_bit_is_found_by_what_it_does_to_the_crc() {
        let bytes: Vec<u8> = (0..3_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let len = bytes.len() as u64;
        for at in [0, 1, 100, 2_998, 2_999] {
            for bit in 0..8 {
                let mut hurt = bytes.clone();
                hurt[at] ^= 1 << bit;
                let difference = crc32c(&bytes) ^ crc32c(&hurt);
                assert_eq!(flipped_bit(difference, len), Some(at as u64));
                hurt[(at + 500) % 3_000] ^= 64;
                let difference = crc32c(&bytes) ^ crc32c(&hurt);
                assert_eq!(flipped_bit(difference, len), None);
            }
        }
    }
}
