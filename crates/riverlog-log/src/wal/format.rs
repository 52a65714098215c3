//! The bytes of groups and entries, as in `docs/format/wal.md`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use riverlog_wire::{LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::{Lsn, WalEntry};
use crate::volume::{EndCheck, LogKey, LogMark};

/// Groups begin at multiples of it.
pub(super) const BLOCK: u64 = 4096;
/// Bytes of a group's header.
pub(super) const GROUP_HEADER: usize = 80;
/// Bytes of an entry's head.
pub(super) const ENTRY_HEAD: usize = 44;

const MAGIC: u32 = u32::from_be_bytes(*b"RLWG");
const VERSION: u16 = 1;

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupHeader {
    pub(super) slots: u16,
    pub(super) volume: u128,
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) lsn: Lsn,
    pub(super) released: Lsn,
    pub(super) entries: u32,
    pub(super) len: u32,
    pub(super) previous: u32,
    pub(super) body_crc: u32,
}

impl GroupHeader {
    /// The bytes, and the CRC that the next group repeats.
    pub(super) fn encode(&self) -> ([u8; GROUP_HEADER], u32) {
        let mut bytes = [0; GROUP_HEADER];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC.to_be_bytes());
        put(&VERSION.to_be_bytes());
        put(&self.slots.to_be_bytes());
        put(&self.volume.to_be_bytes());
        put(&self.segment.to_be_bytes());
        put(&self.offset.to_be_bytes());
        put(&self.lsn.0.to_be_bytes());
        put(&self.released.0.to_be_bytes());
        put(&self.entries.to_be_bytes());
        put(&self.len.to_be_bytes());
        put(&self.previous.to_be_bytes());
        put(&self.body_crc.to_be_bytes());
        put(&[0; 4]);
        let crc = crc32_iscsi(&bytes[..GROUP_HEADER - 4]);
        bytes[GROUP_HEADER - 4..].copy_from_slice(&crc.to_be_bytes());
        (bytes, crc)
    }
    /// The header and its CRC, when magic, version and CRC are right.
    pub(super) fn decode(bytes: &[u8]) -> Option<(GroupHeader, u32)> {
        let (mut fields, mut crc) = bytes.get(..GROUP_HEADER)?.split_at(GROUP_HEADER - 4);
        let crc = crc.get_u32();
        // Most blocks that are looked at are none of ours: the magic tells at once.
        if !fields.starts_with(&MAGIC.to_be_bytes()) || crc32_iscsi(fields) != crc {
            return None;
        }
        fields.advance(4);
        if fields.get_u16() != VERSION {
            return None;
        }
        let header = GroupHeader {
            slots: fields.get_u16(),
            volume: fields.get_u128(),
            segment: fields.get_u64(),
            offset: fields.get_u64(),
            lsn: Lsn(fields.get_u64()),
            released: Lsn(fields.get_u64()),
            entries: fields.get_u32(),
            len: fields.get_u32(),
            previous: fields.get_u32(),
            body_crc: fields.get_u32(),
        };
        Some((header, crc))
    }
    /// The place after the last entry.
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.lsn.0.saturating_add(u64::from(self.len)))
    }
}

/// Bytes that a group with so many bytes of entries takes in its file.
pub(super) fn group_bytes(len: u64) -> u64 {
    (GROUP_HEADER as u64 + len).next_multiple_of(BLOCK)
}

/// A CRC over pieces.
pub(super) struct Crc(Digest);

impl Crc {
    pub(super) fn new() -> Crc {
        Crc(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    pub(super) fn finish(self) -> u32 {
        // The algorithm is one of 32 bits.
        self.0.finalize() as u32
    }
}

/// What the log holds beside the entries that recovery does again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Logged {
    Entry(WalEntry),
    /// The end of a log's life.
    Deleted(LogKey),
    /// See [`Mark`].
    Mark(LogKey, Mark),
}

/// What a checkpoint would say of one log, sooner than the next checkpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) mark: LogMark,
    /// Entries that end at or before it are in the mark and in synced segments.
    pub(crate) covered: Lsn,
}

/// Bytes of the rest of a mark, behind its entry's head; and what it was before there were checks of the end.
const MARK_REST: usize = MARK_REST_OLD + EndCheck::BYTES;
const MARK_REST_OLD: usize = 28;

impl Logged {
    pub(super) fn key(&self) -> LogKey {
        match self {
            Logged::Entry(entry) => entry.key(),
            Logged::Deleted(key) | Logged::Mark(key, _) => *key,
        }
    }
    /// What follows the head.
    pub(super) fn body(&self) -> Bytes {
        match self {
            Logged::Entry(WalEntry::Append { batches, .. }) => batches.clone(),
            Logged::Mark(_, Mark { mark, covered }) => {
                let mut rest = BytesMut::with_capacity(MARK_REST);
                rest.put_i64(mark.segments_synced.0);
                rest.put_u64(mark.size_bytes);
                rest.put_i32(mark.last_epoch.0);
                rest.put_u64(covered.0);
                mark.check.encode(&mut rest);
                rest.freeze()
            }
            Logged::Entry(_) | Logged::Deleted(_) => Bytes::new(),
        }
    }
    /// Bytes in the stream.
    pub(super) fn len(&self) -> u64 {
        match self {
            Logged::Entry(entry) => entry.stream_bytes(),
            Logged::Mark(..) => (ENTRY_HEAD + MARK_REST) as u64,
            Logged::Deleted(_) => ENTRY_HEAD as u64,
        }
    }
    pub(super) fn head(&self) -> [u8; ENTRY_HEAD] {
        let (kind, first, second) = match self {
            Logged::Entry(WalEntry::Append { base, next, .. }) => (1, base.0, next.0),
            Logged::Entry(WalEntry::Truncate { to, .. }) => (2, to.0, 0),
            Logged::Entry(WalEntry::StartOffset { to, .. }) => (3, to.0, 0),
            Logged::Deleted(_) => (4, 0, 0),
            Logged::Mark(_, Mark { mark, .. }) => (5, mark.start.0, mark.end.0),
        };
        let key = self.key();
        let mut head = [0; ENTRY_HEAD];
        head[..4].copy_from_slice(&((self.len() - ENTRY_HEAD as u64) as u32).to_be_bytes());
        head[4] = kind;
        head[8..24].copy_from_slice(&key.topic.0);
        head[24..28].copy_from_slice(&key.partition.0.to_be_bytes());
        head[28..36].copy_from_slice(&first.to_be_bytes());
        head[36..44].copy_from_slice(&second.to_be_bytes());
        head
    }
    /// Takes the next entry off the front of a group's body; `None` when it isn't one.
    fn decode(body: &mut Bytes) -> Option<Logged> {
        let len = body.try_get_u32().ok()? as usize;
        let kind = body.try_get_u8().ok()?;
        if body.len() < ENTRY_HEAD - 5 {
            return None;
        }
        body.advance(3);
        let mut topic = [0; 16];
        body.copy_to_slice(&mut topic);
        let key = LogKey {
            topic: TopicId(topic),
            partition: PartitionIndex(body.get_i32()),
        };
        let (first, second) = (Offset(body.get_i64()), Offset(body.get_i64()));
        if len > body.len() {
            return None;
        }
        let mut rest = body.split_to(len);
        match kind {
            1 => Some(Logged::Entry(WalEntry::Append {
                key,
                base: first,
                next: second,
                batches: rest,
            })),
            2 if len == 0 => Some(Logged::Entry(WalEntry::Truncate { key, to: first })),
            3 if len == 0 => Some(Logged::Entry(WalEntry::StartOffset { key, to: first })),
            4 if len == 0 => Some(Logged::Deleted(key)),
            5 if len == MARK_REST || len == MARK_REST_OLD => {
                let segments_synced = Offset(rest.get_i64());
                let size_bytes = rest.get_u64();
                let last_epoch = LeaderEpoch(rest.get_i32());
                let covered = Lsn(rest.get_u64());
                let check = match len {
                    MARK_REST => EndCheck::decode(&mut rest),
                    _ => EndCheck::default(),
                };
                let mark = LogMark {
                    start: first,
                    end: second,
                    segments_synced,
                    size_bytes,
                    last_epoch,
                    check,
                };
                Some(Logged::Mark(key, Mark { mark, covered }))
            }
            _ => None,
        }
    }
}

impl WalEntry {
    /// Adds its bytes, as in a group.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let logged = Logged::Entry(self.clone());
        out.extend_from_slice(&logged.head());
        out.extend_from_slice(&logged.body());
    }
    /// Takes the next entry off the front; `None` when it isn't one.
    pub(crate) fn decode(bytes: &mut Bytes) -> Option<WalEntry> {
        match Logged::decode(bytes)? {
            Logged::Entry(entry) => Some(entry),
            Logged::Deleted(_) | Logged::Mark(..) => None,
        }
    }
}

/// The entries of a group, each with the place after it; `None` when they are not what the header says.
pub(super) fn decode_body(header: &GroupHeader, mut body: Bytes) -> Option<Vec<(Lsn, Logged)>> {
    let mut entries = Vec::new();
    let mut lsn = header.lsn;
    while !body.is_empty() {
        let entry = Logged::decode(&mut body)?;
        lsn = Lsn(lsn.0.checked_add(entry.len())?);
        entries.push((lsn, entry));
    }
    (entries.len() == header.entries as usize).then_some(entries)
}
