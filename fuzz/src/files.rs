//! Bytes in place of the files beside a segment, and of the records of the internal logs.

use riverlog_core::groups::records::Record;
use riverlog_core::metadata::MetadataRecord;
use riverlog_log::LogKey;
use riverlog_log::format::{
    CheckSeed, parse_epochs, parse_offset_index, parse_snapshot, parse_time_index,
};
use riverlog_wire::{Offset, PartitionIndex, TopicId};

/// An offset index.
pub fn index(data: &[u8]) {
    let entries = parse_offset_index(data);
    assert!(entries.len() * 8 <= data.len());
    for pair in entries.windows(2) {
        assert!(pair[0].relative < pair[1].relative && pair[0].position < pair[1].position);
    }
}

/// A time index.
pub fn timeindex(data: &[u8]) {
    let entries = parse_time_index(data);
    assert!(entries.len() * 12 <= data.len());
    for pair in entries.windows(2) {
        assert!(pair[0].timestamp < pair[1].timestamp && pair[0].relative <= pair[1].relative);
    }
}

/// A `leader-epoch-checkpoint`.
pub fn epochs(data: &[u8]) {
    let Some(entries) = parse_epochs(data) else {
        return;
    };
    for pair in entries.windows(2) {
        assert!(pair[0].epoch < pair[1].epoch && pair[0].start < pair[1].start);
    }
    let mut text = format!("0\n{}\n", entries.len());
    for entry in &entries {
        text.push_str(&format!("{} {}\n", entry.epoch, entry.start));
    }
    assert_eq!(parse_epochs(text.as_bytes()), Some(entries));
}

/// A producer snapshot, as it is and with the CRC that would fit it.
pub fn snapshot(data: &[u8]) {
    let _ = parse_snapshot(data);
    let mut fitting = data.to_vec();
    if fitting.len() < 10 {
        return;
    }
    fitting[..2].copy_from_slice(&[0, 1]);
    let crc = crc32c(&fitting[6..]);
    fitting[2..6].copy_from_slice(&crc.to_be_bytes());
    if let Some(entries) = parse_snapshot(&fitting) {
        assert_eq!(10 + entries.len() * 46, fitting.len());
    }
}

/// Whose `.check` file the seeds are.
pub const CHECKED: CheckSeed = CheckSeed {
    key: LogKey {
        topic: TopicId(*b"riverlog-fuzzing"),
        partition: PartitionIndex(0),
    },
    base: Offset(0),
};

/// A `.check` file.
pub fn check(data: &[u8]) {
    let _ = CHECKED.parse_header(data);
    for (number, entry) in data.get(192..).unwrap_or_default().chunks(8).enumerate() {
        let _ = CHECKED.parse_entry(number as u64, entry);
    }
}

/// A record of the metadata log.
pub fn metadata(data: &[u8]) {
    if let Ok(Some(record)) = MetadataRecord::decode(data) {
        let again = MetadataRecord::decode(&record.encode());
        assert_eq!(again.expect("what was just written"), Some(record));
    }
}

/// A record of `__consumer_offsets`: the first byte is the length of the key; a value of no bytes is none.
pub fn offsets(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else {
        return;
    };
    let (key, value) = rest.split_at(usize::from(length).min(rest.len()));
    let value = (!value.is_empty()).then_some(value);
    let Ok(Some(record)) = Record::decode(key, value) else {
        return;
    };
    let Ok(stored) = record.encode() else {
        return;
    };
    let again = Record::decode(&stored.key, stored.value.as_deref());
    assert_eq!(again.expect("what was just written"), Some(record));
}

/// CRC-32C, bit by bit: the log's own one is what is tested.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}
