//! Offset index and time index: Kafka's own sparse maps beside a segment.
//!
//! Both can be made again from the segment, so they are never trusted: what a look-up finds is compared with the batch
//! that it leads to, and a file whose CRC differs from the segment's summary is made again.

use riverlog_wire::Offset;

use super::bytes_at::{get_i32, get_i64};

/// Bytes of an entry of the offset index.
pub(super) const INDEX_ENTRY: usize = 8;
/// Bytes of an entry of the time index.
pub(super) const TIME_ENTRY: usize = 12;
/// Entries after which a segment is rolled: Kafka's `segment.index.bytes` of 10 MiB.
pub(super) const MAX_ENTRIES: u32 = (10 << 20) / INDEX_ENTRY as u32;

/// Where a batch begins, by the offset of its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Last offset of the batch, relative to the segment's base offset.
    pub relative: i32,
    /// Position of the batch's first byte in the segment.
    pub position: i32,
}

/// The largest timestamp up to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// In ms since the epoch; no batch up to `relative` has a larger one.
    pub timestamp: i64,
    /// Last offset of the batch that has it, relative to the segment's base offset.
    pub relative: i32,
}

impl IndexEntry {
    pub(super) fn encode(self) -> [u8; INDEX_ENTRY] {
        let mut out = [0; INDEX_ENTRY];
        out[..4].copy_from_slice(&self.relative.to_be_bytes());
        out[4..].copy_from_slice(&self.position.to_be_bytes());
        out
    }
    /// The entry at the start of `bytes`.
    pub(super) fn decode(bytes: &[u8]) -> Option<IndexEntry> {
        Some(IndexEntry {
            relative: get_i32(bytes, 0)?,
            position: get_i32(bytes, 4)?,
        })
    }
    pub(super) fn last_offset(self, base: Offset) -> Offset {
        base + i64::from(self.relative)
    }
}

impl TimeEntry {
    pub(super) fn encode(self) -> [u8; TIME_ENTRY] {
        let mut out = [0; TIME_ENTRY];
        out[..8].copy_from_slice(&self.timestamp.to_be_bytes());
        out[8..].copy_from_slice(&self.relative.to_be_bytes());
        out
    }
    /// The entry at the start of `bytes`.
    pub(super) fn decode(bytes: &[u8]) -> Option<TimeEntry> {
        Some(TimeEntry {
            timestamp: get_i64(bytes, 0)?,
            relative: get_i32(bytes, 8)?,
        })
    }
}

/// The entries of an offset index, for as long as they rise. A tail of zeros (Kafka reserves its files) or of a torn
/// entry ends it.
pub fn parse_offset_index(bytes: &[u8]) -> Vec<IndexEntry> {
    let mut out: Vec<IndexEntry> = Vec::new();
    for entry in bytes
        .chunks_exact(INDEX_ENTRY)
        .filter_map(IndexEntry::decode)
    {
        let rises = match out.last() {
            Some(last) => entry.relative > last.relative && entry.position > last.position,
            None => entry.relative >= 0 && entry.position >= 0,
        };
        if !rises {
            break;
        }
        out.push(entry);
    }
    out
}

/// The entries of a time index, for as long as they rise. A tail of zeros or of a torn entry ends it.
pub fn parse_time_index(bytes: &[u8]) -> Vec<TimeEntry> {
    let mut out: Vec<TimeEntry> = Vec::new();
    for entry in bytes.chunks_exact(TIME_ENTRY).filter_map(TimeEntry::decode) {
        let rises = match out.last() {
            Some(last) => entry.timestamp > last.timestamp && entry.relative >= last.relative,
            None => entry.relative >= 0 && entry.timestamp >= 0,
        };
        if !rises {
            break;
        }
        out.push(entry);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by Apache Kafka 4.4.0 with index.interval.bytes=4096 and batches of 16 KiB.
    const KAFKA_INDEX: [u8; 24] = [
        0, 0, 0, 0x1f, 0, 0, 0x3f, 0x4d, 0, 0, 0, 0x2f, 0, 0, 0x7e, 0x9a, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    const KAFKA_TIME: [u8; 24] = [
        0, 0, 1, 0xa2, 0x27, 0xa4, 0xe8, 0x51, 0, 0, 0, 0x1f, 0, 0, 1, 0xa2, 0x27, 0xa4, 0xe8,
        0x57, 0, 0, 0, 0x2f,
    ];

    #[test]
    fn kafkas_own_files_are_read_and_written_the_same() {
        let entries = parse_offset_index(&KAFKA_INDEX);
        assert_eq!(
            entries,
            [
                IndexEntry {
                    relative: 31,
                    position: 0x3f4d
                },
                IndexEntry {
                    relative: 47,
                    position: 0x7e9a
                },
            ]
        );
        let back: Vec<u8> = entries.iter().flat_map(|e| e.encode()).collect();
        assert_eq!(back, KAFKA_INDEX[..16]);
        let times = parse_time_index(&KAFKA_TIME);
        assert_eq!(times.len(), 2);
        assert_eq!(times[1].relative, 47);
        let back: Vec<u8> = times.iter().flat_map(|e| e.encode()).collect();
        assert_eq!(back, KAFKA_TIME);
    }

    #[test]
    fn a_torn_or_falling_entry_ends_an_index() {
        assert_eq!(parse_offset_index(&KAFKA_INDEX[..15]).len(), 1);
        assert_eq!(parse_offset_index(&[0xff; 8]), []);
        assert_eq!(parse_time_index(&KAFKA_TIME[..23]).len(), 1);
        assert_eq!(parse_time_index(&[0; 24]).len(), 1);
    }
}
