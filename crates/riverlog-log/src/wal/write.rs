//! Writing groups, and zeros ahead of them.

use std::sync::Arc;

use riverlog_mutants::{Mutant, active};

use super::format::{BLOCK, Crc, ENTRY_HEAD, GROUP_HEADER, GroupHeader, Logged, group_bytes};
use super::ring::{Segment, Unready, slot_path};
use super::{FlushError, State, SyncedEnds, Wal, WalEntry};
use crate::disk::failed;
use crate::{DiskError, DiskFile};

/// A group to be written.
pub(super) struct Group {
    file: Arc<dyn DiskFile>,
    slot: usize,
    header: GroupHeader,
    entries: Vec<Logged>,
}

impl Wal {
    /// A group of the first `count` entries, at the end of the current segment.
    pub(super) fn group(&self, state: &State, count: usize) -> Option<Group> {
        let Segment {
            number,
            slot,
            bytes: offset,
            ..
        } = *state.ring.current()?;
        let entries: Vec<Logged> = state
            .queue
            .iter()
            .take(count)
            .map(|(_, entry)| entry.clone())
            .collect();
        Some(Group {
            file: state.ring.slots.get(slot)?.file.clone(),
            slot,
            header: GroupHeader {
                slots: state.ring.slots.len() as u16,
                volume: self.volume,
                segment: number,
                offset,
                lsn: state.durable,
                released: state.released,
                entries: count as u32,
                len: entries.iter().map(Logged::len).sum::<u64>() as u32,
                previous: state.previous,
                body_crc: 0,
            },
            entries,
        })
    }
    /// Writes and syncs a group, then takes its entries off the queue.
    pub(super) fn write(&self, group: &Group) -> Result<(), DiskError> {
        let (bytes, crc) = match write_group(group) {
            Ok(done) => done,
            Err(error) => {
                // Without room nothing has been relied on: the group is written again, whole, where it was.
                if !error.is_full() {
                    self.end(error.clone());
                }
                return Err(error);
            }
        };
        let mut state = self.state.lock();
        for _ in &group.entries {
            if let Some((end, entry)) = state.queue.pop_front() {
                state.queued_bytes -= entry.len() as usize;
                state.durable = end;
                note_synced(&mut state.synced, &entry);
            }
        }
        state.previous = crc;
        state.group_end = group.header.end();
        state.persisted = group.header.released;
        if let Some(segment) = state.ring.segments.back_mut() {
            segment.bytes += bytes;
        }
        if let Some(slot) = state.ring.slots.get_mut(group.slot) {
            slot.written = slot.written.max(group.header.offset + bytes);
        }
        state.ring.release_held();
        let persisted = state.persisted;
        state.ring.reclaim(persisted);
        Ok(())
    }
    /// Makes durable what is released, in a group without entries. Needed before the first change after a clean stop: a
    /// recovery that comes to read the log must know that nothing in it is about what has been made since.
    pub(crate) fn note_released(&self) -> Result<(), FlushError> {
        let _one = self.flushing.lock();
        let group = {
            let mut state = self.state.lock();
            if let Some(error) = &state.failed {
                return Err(error.clone().into());
            }
            let durable = state.durable;
            if state.ring.current().is_none() && !state.ring.begin(durable) {
                return Err(FlushError::Full);
            }
            self.group(&state, 0).ok_or(FlushError::Full)?
        };
        Ok(self.write(&group)?)
    }
    /// Nothing is written any more once this returns: the files may be another's.
    pub(crate) fn close(&self) {
        let _one = self.flushing.lock();
        let closed = std::io::Error::other("the volume has been closed");
        self.end(failed("write", "wal")(closed));
    }
    /// Nothing becomes durable any more.
    pub(crate) fn end(&self, error: DiskError) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        state.queue.clear();
        state.queued_bytes = 0;
    }
}

/// What fills the last block of a group.
pub(super) fn padding(len: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    &ZEROS[..(len.next_multiple_of(BLOCK) - len) as usize]
}

/// Writes and syncs; the bytes that it took, and the CRC of its header.
fn write_group(group: &Group) -> Result<(u64, u32), DiskError> {
    let mut heads = Vec::with_capacity(group.entries.len() * ENTRY_HEAD);
    let mut bodies = Vec::with_capacity(group.entries.len());
    let mut crc = Crc::new();
    for entry in &group.entries {
        let head = entry.head();
        heads.extend_from_slice(&head);
        crc.update(&head);
        let body = entry.body();
        crc.update(&body);
        bodies.push(body);
    }
    let header = GroupHeader {
        body_crc: crc.finish(),
        ..group.header
    };
    let (header_bytes, header_crc) = header.encode();
    let mut bufs: Vec<&[u8]> = Vec::with_capacity(2 * group.entries.len() + 2);
    bufs.push(&header_bytes);
    for (head, body) in heads.chunks_exact(ENTRY_HEAD).zip(&bodies) {
        bufs.push(head);
        bufs.push(body);
    }
    let len = u64::from(header.len);
    bufs.push(padding(GROUP_HEADER as u64 + len));
    let path = slot_path(group.slot);
    group
        .file
        .write_at(&bufs, header.offset)
        .map_err(failed("write", &path))?;
    match group.file.sync() {
        Err(_) if active(Mutant::SyncFailureIgnored) => {}
        other => other.map_err(failed("sync", &path))?,
    }
    Ok((group_bytes(len), header_crc))
}

/// Gives a free file its length: zeros behind what has been written, or the cut.
pub(super) fn fit(unready: &Unready) -> Result<(), DiskError> {
    let path = slot_path(unready.slot);
    let file = &unready.file;
    if unready.written > unready.wanted {
        file.set_len(unready.wanted).map_err(failed("cut", &path))?;
    } else {
        let zeros = vec![0; 1 << 20];
        let mut at = unready.written;
        while at < unready.wanted {
            let n = (unready.wanted - at).min(zeros.len() as u64);
            file.write_at(&[&zeros[..n as usize]], at)
                .map_err(failed("write", &path))?;
            at += n;
        }
    }
    file.sync().map_err(failed("sync", &path))
}

fn note_synced(synced: &mut SyncedEnds, entry: &Logged) {
    match entry {
        Logged::Entry(WalEntry::Append { key, next, .. }) => {
            synced.insert(*key, *next);
        }
        Logged::Entry(WalEntry::Truncate { key, to }) => {
            synced.insert(*key, *to);
        }
        Logged::Entry(WalEntry::StartOffset { key, to }) => {
            let end = synced.entry(*key).or_insert(*to);
            *end = (*end).max(*to);
        }
        Logged::Deleted(key) => {
            synced.remove(key);
        }
        Logged::Mark(..) => {}
    }
}
