//! Reading the log at start: where it begins, where it ends, and whether what is missing can be a torn write.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use riverlog_mutants::{Mark, Mutant, active, sometimes};

use super::format::{BLOCK, GROUP_HEADER, GroupHeader, Logged, decode_body, group_bytes};
use super::ring::{Segment, slot_path};
use super::{Lsn, WalStart};
use crate::disk::failed;
use crate::{DiskError, DiskFile};

/// The log as it was found.
#[derive(Debug)]
pub(super) struct Scan {
    /// Those still needed, the last one to be written on; empty when nothing at all is there.
    pub(super) segments: VecDeque<Segment>,
    /// The highest number seen, right or not.
    pub(super) last_number: Option<u64>,
    pub(super) end: Lsn,
    /// Header CRC of the last group.
    pub(super) previous: u32,
    pub(super) released: Lsn,
    /// What the groups say of it, without the checkpoint.
    pub(super) persisted: Lsn,
    /// Entries that end after `released`.
    pub(super) entries: Vec<(Lsn, Logged)>,
    /// Slot, offset and bytes of the last group.
    pub(super) last_group: Option<(usize, u64, Bytes)>,
    /// Why more must have been there.
    pub(super) damage: Option<Damage>,
}

/// What is wrong, and with which file.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) path: String,
    pub(super) reason: String,
}

struct Files<'a> {
    files: &'a [Option<Arc<dyn DiskFile>>],
    volume: u128,
}

/// A group that is right in itself.
struct Group {
    header: GroupHeader,
    crc: u32,
    entries: Vec<(Lsn, Logged)>,
}

impl Files<'_> {
    fn read(&self, slot: usize, limit: Option<usize>) -> Result<Bytes, DiskError> {
        let Some(Some(file)) = self.files.get(slot) else {
            return Ok(Bytes::new());
        };
        let path = slot_path(slot);
        let len = file.len().map_err(failed("read", &path))? as usize;
        let mut bytes = vec![0; limit.unwrap_or(len).min(len)];
        let n = file.read_at(&mut bytes, 0).map_err(failed("read", &path))?;
        bytes.truncate(n);
        Ok(bytes.into())
    }
    /// As `read`, where blocks that can't be read are zeros.
    fn read_lossy(&self, slot: usize) -> Result<Bytes, DiskError> {
        let Some(Some(file)) = self.files.get(slot) else {
            return Ok(Bytes::new());
        };
        let path = slot_path(slot);
        let len = file.len().map_err(failed("read", &path))? as usize;
        let mut bytes = vec![0; len];
        for (i, block) in bytes.chunks_mut(BLOCK as usize).enumerate() {
            if file.read_at(block, i as u64 * BLOCK).is_err() {
                block.fill(0);
            }
        }
        Ok(bytes.into())
    }
    /// A header that belongs where it is.
    fn header(&self, bytes: &[u8], offset: u64) -> Option<(GroupHeader, u32)> {
        let (header, crc) = GroupHeader::decode(bytes)?;
        (header.volume == self.volume && header.offset == offset).then_some((header, crc))
    }
    fn group(&self, bytes: &Bytes, segment: u64, offset: u64) -> Option<Group> {
        let from = usize::try_from(offset).ok()?;
        let (header, crc) = self.header(bytes.get(from..)?, offset)?;
        let body = from + GROUP_HEADER;
        let until = body.checked_add(header.len as usize)?;
        if header.segment != segment || until > bytes.len() {
            return None;
        }
        let body = bytes.slice(body..until);
        let torn = crc_fast::crc32_iscsi(&body) != header.body_crc;
        if torn && !active(Mutant::TornGroupAccepted) {
            sometimes(Mark::TornGroupRefused);
            return None;
        }
        let entries = decode_body(&header, body)?;
        Some(Group {
            header,
            crc,
            entries,
        })
    }
    /// The first header of each slot, by segment.
    fn heads(&self) -> Result<BTreeMap<u64, (usize, GroupHeader)>, DiskError> {
        let mut heads = BTreeMap::new();
        for slot in 0..self.files.len() {
            let bytes = self.read(slot, Some(GROUP_HEADER))?;
            if let Some((header, _)) = self.header(&bytes, 0) {
                heads.insert(header.segment, (slot, header));
            }
        }
        Ok(heads)
    }
    /// The first right group after `from` in a file.
    fn later_group(&self, bytes: &Bytes, segment: u64, from: u64, end: Lsn) -> Option<Group> {
        let mut offset = from + BLOCK;
        while offset < bytes.len() as u64 {
            let group = self.group(bytes, segment, offset);
            if let Some(group) = group.filter(|group| group.header.lsn >= end) {
                return Some(group);
            }
            offset += BLOCK;
        }
        None
    }
}

/// The volume that the first right header names.
pub(super) fn volume_of(files: &[Option<Arc<dyn DiskFile>>]) -> Result<Option<u128>, DiskError> {
    let files = Files { files, volume: 0 };
    for slot in 0..files.files.len() {
        let bytes = files.read(slot, Some(GROUP_HEADER))?;
        if let Some((header, _)) = GroupHeader::decode(&bytes) {
            return Ok(Some(header.volume));
        }
    }
    Ok(None)
}

/// Where the segment lies that was the newest at a clean stop.
pub(super) fn slot_of_segment(
    files: &[Option<Arc<dyn DiskFile>>],
    start: &WalStart,
) -> Option<usize> {
    let files = Files {
        files,
        volume: start.volume,
    };
    (0..files.files.len()).find(|slot| {
        // One that can't be read is no worse than before.
        let bytes = files.read(*slot, Some(GROUP_HEADER)).unwrap_or_default();
        let head = files.header(&bytes, 0);
        head.is_some_and(|(header, _)| header.segment == start.place.segment)
    })
}

/// The entries of segments that are in use: all of their groups are durable, so that one which isn't right is damage.
pub(super) fn read_back(
    files: &[Option<Arc<dyn DiskFile>>],
    volume: u128,
    segments: &[Segment],
) -> Result<Vec<(Lsn, Logged)>, DiskError> {
    let files = Files { files, volume };
    let mut entries = Vec::new();
    for segment in segments {
        let bytes = files.read(segment.slot, None)?;
        let mut offset = 0;
        while offset < segment.bytes {
            let group = files.group(&bytes, segment.number, offset).ok_or_else(|| {
                let reason = format!("no right group at byte {offset}");
                let damage = std::io::Error::new(std::io::ErrorKind::InvalidData, reason);
                failed("read", &slot_path(segment.slot))(damage)
            })?;
            offset += group_bytes(u64::from(group.header.len));
            entries.extend(group.entries);
        }
    }
    Ok(entries)
}

/// What can be read of a damaged log: each whole group, wherever it is.
pub(super) fn salvage(
    files: &[Option<Arc<dyn DiskFile>>],
    start: &WalStart,
) -> Result<Salvage, DiskError> {
    let files = Files {
        files,
        volume: start.volume,
    };
    let mut groups: BTreeMap<Lsn, (Lsn, Vec<(Lsn, Logged)>)> = BTreeMap::new();
    let mut left = Salvage {
        entries: Vec::new(),
        lost: Vec::new(),
        beyond: start.released,
        last_number: start.place.segment,
    };
    let mut released = start.released;
    for slot in 0..files.files.len() {
        let bytes = files.read_lossy(slot)?;
        for offset in (0..bytes.len() as u64).step_by(BLOCK as usize) {
            let header = bytes
                .get(offset as usize..)
                .and_then(|bytes| files.header(bytes, offset));
            let Some((header, _)) = header else {
                continue;
            };
            released = released.max(header.released);
            left.beyond = left.beyond.max(header.end());
            left.last_number = left.last_number.max(header.segment);
            if let Some(group) = files.group(&bytes, header.segment, offset)
                && !group.entries.is_empty()
            {
                groups.insert(header.lsn, (header.end(), group.entries));
            }
        }
    }
    let mut at = released;
    for (lsn, (end, _)) in &groups {
        if *lsn > at {
            left.lost.push(at..*lsn);
        }
        at = at.max(*end);
    }
    if left.beyond > at {
        left.lost.push(at..left.beyond);
    }
    left.entries = groups
        .into_values()
        .flat_map(|(_, entries)| entries)
        .collect();
    left.entries.retain(|(end, _)| *end > released);
    left.beyond = left.beyond.max(released).max(start.beyond);
    Ok(left)
}

/// See [`salvage`].
#[derive(Debug)]
pub(super) struct Salvage {
    pub(super) entries: Vec<(Lsn, Logged)>,
    /// Places of which nothing can be read; some may never have been written.
    pub(super) lost: Vec<Range<Lsn>>,
    /// No place before it may be used again.
    pub(super) beyond: Lsn,
    pub(super) last_number: u64,
}

/// Reads what recovery needs. `files`: by slot, `None` for one that is missing.
pub(super) fn scan(
    files: &[Option<Arc<dyn DiskFile>>],
    start: &WalStart,
) -> Result<Scan, DiskError> {
    let files = Files {
        files,
        volume: start.volume,
    };
    let heads = files.heads()?;
    let mut found = Scan {
        segments: VecDeque::new(),
        last_number: heads.last_key_value().map(|(number, _)| *number),
        end: start.place.durable,
        previous: start.place.previous,
        released: start.released,
        persisted: Lsn(0),
        entries: Vec::new(),
        last_group: None,
        damage: None,
    };
    let Some(newest) = found.last_number else {
        found.damage = Some(Damage {
            path: slot_path(0),
            reason: "no file of the write-ahead log begins with a group".to_owned(),
        });
        return Ok(found);
    };
    // Those that follow one another without a gap, newest first.
    let candidates: Vec<(u64, GroupHeader)> = (0..=newest)
        .rev()
        .map_while(|number| Some((number, heads.get(&number)?.1)))
        .collect();
    for (_, header) in &candidates {
        found.persisted = found.persisted.max(header.released);
    }
    // What only the checkpoint releases is read too: the checkpoint before it may need it, so that it must not be taken for
    // free and written over.
    let begin = candidates
        .iter()
        .find(|(_, header)| header.lsn <= found.persisted)
        .or(candidates.last());
    let Some((mut number, first)) = begin.copied() else {
        return Ok(found);
    };
    let mut begins_at = first.lsn;
    let mut broken = None;
    found.end = first.lsn;
    found.previous = first.previous;
    let mut slots = 0;
    while let Some((slot, head)) = heads.get(&number) {
        let bytes = files.read(*slot, None)?;
        let mut offset = 0;
        while let Some(group) = files
            .group(&bytes, number, offset)
            .filter(|group| group.header.lsn >= found.end)
            .filter(|group| group.header.previous == found.previous)
        {
            let from = offset as usize;
            let until = from + GROUP_HEADER + group.header.len as usize;
            found.last_group = Some((*slot, offset, bytes.slice(from..until)));
            offset += group_bytes(u64::from(group.header.len));
            found.end = group.header.end();
            found.previous = group.crc;
            found.persisted = found.persisted.max(group.header.released);
            found.entries.extend(group.entries);
            slots = slots.max(group.header.slots);
        }
        found.segments.push_back(Segment {
            number,
            slot: *slot,
            first: head.lsn,
            bytes: offset,
        });
        match heads.get(&(number + 1)) {
            Some((_, next)) if next.lsn >= found.end && next.previous == found.previous => {
                number += 1;
            }
            Some((_, next)) => {
                // Damage, unless a later group says that all before is released: then the slot was free and something
                // has begun to overwrite it.
                broken = Some(Damage {
                    path: slot_path(*slot),
                    reason: format!(
                        "no right group at byte {offset}, but another file goes on from {}",
                        next.lsn.0
                    ),
                });
                begins_at = next.lsn;
                found.end = next.lsn;
                found.previous = next.previous;
                found.segments.clear();
                found.entries.clear();
                number += 1;
            }
            None => {
                let later = files.later_group(&bytes, number, offset, found.end);
                found.damage = later.map(|group| Damage {
                    path: slot_path(*slot),
                    reason: format!(
                        "no right group at byte {offset}, but there is a later one at byte {}",
                        group.header.offset
                    ),
                });
                break;
            }
        }
    }
    found.released = found.released.max(found.persisted);
    let missing = (0..usize::from(slots)).find(|s| !matches!(files.files.get(*s), Some(Some(_))));
    if let Some(slot) = missing {
        found.damage.get_or_insert_with(|| Damage {
            path: slot_path(slot),
            reason: "the file is missing".to_owned(),
        });
    }
    if found.end < start.place.durable {
        found.damage.get_or_insert_with(|| Damage {
            path: found
                .segments
                .back()
                .map_or(slot_path(0), |s| slot_path(s.slot)),
            reason: format!(
                "the log ends at {}, but was durable up to {}",
                found.end.0, start.place.durable.0
            ),
        });
    }
    if begins_at > found.released {
        let missing = || Damage {
            path: "wal".to_owned(),
            reason: format!(
                "entries from {} to {} are needed, but the files begin after them",
                found.released.0, begins_at.0
            ),
        };
        let damage = broken.unwrap_or_else(missing);
        found.damage.get_or_insert(damage);
    }
    // No segment may be written over before a group says that it isn't needed.
    let persisted = found.persisted;
    let needless = |second: Option<&Segment>| second.is_some_and(|s| s.first <= persisted);
    while needless(found.segments.get(1)) {
        found.segments.pop_front();
    }
    let released = found.released;
    found.entries.retain(|(end, _)| *end > released);
    Ok(found)
}
