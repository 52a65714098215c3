//! Recent batches in memory, so that readers at the tail touch no file.

use std::collections::VecDeque;

use bytes::Bytes;
use riverlog_wire::Offset;
use riverlog_wire::batch::BatchHeader;

use super::{Slice, Slices};
use crate::Volume;

/// Bytes that one log keeps at most, so that one busy log leaves room for others.
const MAX_BYTES: usize = 16 << 20;

/// The newest written batches, without a gap up to what is written.
#[derive(Debug, Default)]
pub(super) struct Tail {
    chunks: VecDeque<Chunk>,
    bytes: usize,
}

/// The batches of one append, in one buffer that isn't more than twice as large.
#[derive(Debug)]
struct Chunk {
    base: Offset,
    next: Offset,
    bytes: Bytes,
}

impl Tail {
    /// Adds what was just written. Over the budget the oldest go; if that isn't enough nothing is kept.
    pub(super) fn push(&mut self, volume: &Volume, base: Offset, next: Offset, bytes: Bytes) {
        if self.chunks.back().is_some_and(|last| last.next != base) {
            self.clear(volume);
        }
        let size = bytes.len();
        while self.bytes + size > MAX_BYTES && self.drop_oldest(volume) {}
        if !volume.tail_take(size) {
            // Others are over the budget as well: give as much as is taken, or keep nothing.
            let before = self.bytes;
            while before - self.bytes < size && self.drop_oldest(volume) {}
            if before - self.bytes < size {
                volume.tail_give(size);
                return;
            }
        }
        self.bytes += size;
        self.chunks.push_back(Chunk { base, next, bytes });
    }
    fn drop_oldest(&mut self, volume: &Volume) -> bool {
        let Some(oldest) = self.chunks.pop_front() else {
            return false;
        };
        self.bytes -= oldest.bytes.len();
        volume.tail_give(oldest.bytes.len());
        true
    }
    pub(super) fn clear(&mut self, volume: &Volume) {
        volume.tail_give(self.bytes);
        *self = Tail::default();
    }
    /// Forgets what lies at or after `to`.
    pub(super) fn truncate(&mut self, volume: &Volume, to: Offset) {
        while let Some(last) = self.chunks.pop_back_if(|last| last.next > to) {
            self.bytes -= last.bytes.len();
            volume.tail_give(last.bytes.len());
        }
    }
    /// Forgets what lies before `start`.
    pub(super) fn start_at(&mut self, volume: &Volume, start: Offset) {
        while self.chunks.front().is_some_and(|c| c.next <= start) {
            self.drop_oldest(volume);
        }
    }

    /// Batches from the one that holds `from` on; `None` when it isn't here. `until` is beyond `from`.
    pub(super) fn read(&self, from: Offset, until: Offset, max_bytes: usize) -> Option<Slices> {
        let first = self.chunks.partition_point(|c| c.next <= from);
        if self.chunks.get(first)?.base > from && first == 0 {
            return None;
        }
        let mut out = Slices {
            next: from,
            ..Slices::default()
        };
        for chunk in self.chunks.range(first..) {
            let (skip, len, next) = cut(&chunk.bytes, from, until, max_bytes, out.len);
            if len > 0 {
                out.parts
                    .push(Slice::Memory(chunk.bytes.slice(skip..skip + len)));
                out.len += len;
                out.next = next;
            }
            if next < chunk.next || out.len >= max_bytes {
                break;
            }
        }
        Some(out)
    }
}

/// Which whole batches of `bytes` an answer takes that has `have` bytes already: bytes to skip, bytes to take, and the
/// offset after them.
fn cut(
    bytes: &[u8],
    from: Offset,
    until: Offset,
    max_bytes: usize,
    have: usize,
) -> (usize, usize, Offset) {
    let (mut skip, mut len, mut next) = (0, 0, from);
    while let Some(rest) = bytes.get(skip + len..).filter(|r| !r.is_empty()) {
        let Ok(header) = BatchHeader::parse(rest) else {
            break;
        };
        let size = header.size().min(rest.len());
        if header.next_offset() <= from {
            skip += size;
            continue;
        }
        let first = have + len == 0;
        if header.base_offset >= until || (!first && have + len + size > max_bytes) {
            break;
        }
        len += size;
        next = header.next_offset();
    }
    (skip, len, next)
}
