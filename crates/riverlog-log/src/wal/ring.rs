//! Which file holds which part of the log, and which may be used next.

use std::collections::VecDeque;
use std::sync::Arc;

use riverlog_mutants::{Mark, sometimes};

use super::Lsn;
use super::format::BLOCK;
use crate::DiskFile;

/// Path of a slot's file.
pub(super) fn slot_path(slot: usize) -> String {
    format!("wal/{slot:016}.wal")
}

/// Which slot a file is, by its name.
pub(super) fn slot_of(name: &str) -> Option<usize> {
    let digits = name.strip_suffix(".wal")?;
    let plain = digits.len() == 16 && digits.bytes().all(|c| c.is_ascii_digit());
    // The header counts slots in 16 bits.
    digits
        .parse()
        .ok()
        .filter(|slot| plain && *slot < usize::from(u16::MAX))
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) file: Arc<dyn DiskFile>,
    /// Bytes from the start of the file that have been written since it was made.
    pub(super) written: u64,
    pub(super) used: bool,
    /// Zeros are being written to it.
    pub(super) preparing: bool,
}

/// One use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) slot: usize,
    /// Place of its first entry.
    pub(super) first: Lsn,
    /// Bytes of its groups.
    pub(super) bytes: u64,
}

/// The slots, and the segments that are still needed.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) slots: Vec<Slot>,
    /// From the oldest that is needed to the one being written.
    pub(super) segments: VecDeque<Segment>,
    pub(super) next_number: u64,
    pub(super) segment_bytes: u64,
    /// Slots that may be used: later ones are from a time when the log was larger.
    pub(super) limit: usize,
    /// The slot of what was the newest segment at a clean stop. Nothing in it is needed, but without another durable group a
    /// recovery looks for the log's end there.
    pub(super) held: Option<usize>,
}

/// What [`Ring::take_unready`] found.
pub(super) struct Unready {
    pub(super) slot: usize,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) written: u64,
    /// The length that it should have.
    pub(super) wanted: u64,
}

impl Ring {
    pub(super) fn current(&self) -> Option<&Segment> {
        self.segments.back()
    }
    /// Bytes that groups take in the segments that are needed.
    pub(super) fn used(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
    /// Bytes left for entries and headers in the current segment, keeping the last block free.
    pub(super) fn room(&self) -> u64 {
        let bytes = self.current().map_or(u64::MAX, |segment| segment.bytes);
        self.segment_bytes
            .saturating_sub(BLOCK)
            .saturating_sub(bytes)
    }
    /// Whether the oldest segment isn't needed once everything before `released` isn't.
    pub(super) fn reclaimable(&self, released: Lsn) -> bool {
        self.segments
            .get(1)
            .is_some_and(|second| second.first <= released)
    }
    /// Keeps a slot as it is until a group is durable in another.
    pub(super) fn hold(&mut self, slot: usize) {
        if let Some(found) = self.slots.get_mut(slot) {
            found.used = true;
            self.held = Some(slot);
        }
    }
    /// A group is durable.
    pub(super) fn release_held(&mut self) {
        if let Some(slot) = self.held.take().and_then(|held| self.slots.get_mut(held)) {
            slot.used = false;
        }
    }
    /// Frees what lies before a place that a durable group calls released. Whether anything was.
    pub(super) fn reclaim(&mut self, persisted: Lsn) -> bool {
        let mut any = false;
        while self.reclaimable(persisted) {
            if let Some(oldest) = self.segments.pop_front()
                && let Some(slot) = self.slots.get_mut(oldest.slot)
            {
                slot.used = false;
                any = true;
            }
        }
        any
    }
    fn free(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let slots = self.slots.iter().enumerate().take(self.limit);
        slots.filter(|(_, slot)| !slot.used && !slot.preparing)
    }
    /// Begins a segment in a free slot, one that has been written through if there is one.
    pub(super) fn begin(&mut self, first: Lsn) -> bool {
        let ready = self
            .free()
            .find(|(_, slot)| slot.written >= self.segment_bytes);
        let Some((slot, _)) = ready.or_else(|| self.free().next()) else {
            return false;
        };
        if self.next_number as usize >= self.slots.len() {
            sometimes(Mark::WalLapped);
        }
        self.slots[slot].used = true;
        self.segments.push_back(Segment {
            number: self.next_number,
            slot,
            first,
            bytes: 0,
        });
        self.next_number += 1;
        true
    }
    /// A free slot that hasn't the right length, so long as another is free for a flush meanwhile.
    pub(super) fn take_unready(&mut self) -> Option<Unready> {
        let too_many = self.slots.iter().enumerate().skip(self.limit);
        let surplus = too_many
            .filter(|(_, slot)| !slot.used && !slot.preparing && slot.written > 0)
            .map(|(i, _)| (i, 0))
            .next();
        let unready = || {
            self.free()
                .find(|(_, slot)| slot.written != self.segment_bytes)
                .filter(|_| self.free().count() > 1)
                .map(|(i, _)| (i, self.segment_bytes))
        };
        let (slot, wanted) = surplus.or_else(unready)?;
        let found = &mut self.slots[slot];
        found.preparing = true;
        Some(Unready {
            slot,
            file: found.file.clone(),
            written: found.written,
            wanted,
        })
    }
}
