//! Leaving records out of a stored batch: compaction and erasure.

#[cfg(test)]
mod tests;

use super::builder::{NO_TIMESTAMP, compressed};
use super::encode::{Fields, append_record};
use super::{
    Attributes, Batch, BatchError, BatchHeader, HEADER_LEN, RecordRef, Records, TimestampType,
};
use crate::compression::Compression;
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

/// What [`filter`] made of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// All records stay and the delete horizon is as wanted: use the batch as it is.
    Same,
    /// The batch without some of its records.
    Batch(Vec<u8>),
    /// No record stays. The header alone, without records: kept where it still says something, such as the
    /// last sequence of a producer or the last offset of a segment, dropped otherwise.
    Empty(Vec<u8>),
}

/// Copies a batch with the records for which `keep` returns true.
///
/// - Offsets, timestamps, codec, producer, leader epoch and marks stay; so does the last offset delta, since
///   whoever reads the batch goes on after it.
/// - `delete_horizon_ms`: when the batch's tombstones or marker may go (KIP-534); set in the copy unless the
///   batch has one already. `None` leaves it as it is.
/// - `limit`: the most that the records may decompress to.
/// - Errors: those of [`Batch::records`]; the CRC is not looked at.
pub fn filter(
    batch: &Batch<'_>,
    limit: usize,
    delete_horizon_ms: Option<i64>,
    keep: impl FnMut(&RecordRef<'_>) -> bool,
) -> Result<Filtered, BatchError> {
    filter_records(&batch.records(limit)?, delete_horizon_ms, keep)
}

/// As [`filter`], for a batch whose records have been opened already.
pub fn filter_records(
    records: &Records,
    delete_horizon_ms: Option<i64>,
    mut keep: impl FnMut(&RecordRef<'_>) -> bool,
) -> Result<Filtered, BatchError> {
    let old = *records.header();
    let codec = old.codec()?;
    let new_horizon = delete_horizon_ms.filter(|_| old.delete_horizon_ms().is_none());
    let log_append_time = old.attributes.timestamp_type() == TimestampType::LogAppendTime;

    let mut bytes = vec![0; HEADER_LEN];
    let mut count = 0;
    let mut base_timestamp = new_horizon.or(old.delete_horizon_ms());
    let mut max_timestamp = None;
    for record in records.iter_refs() {
        let record = record?;
        if !keep(&record) {
            continue;
        }
        let base = *base_timestamp.get_or_insert(record.timestamp);
        max_timestamp = max_timestamp.max(Some(record.timestamp));
        let fields = Fields {
            timestamp_delta: record.timestamp.wrapping_sub(base),
            offset_delta: record.offset_delta,
            key: record.key,
            value: record.value,
        };
        append_record(&mut bytes, &fields, &record.headers);
        count += 1;
    }
    if count == old.record_count && new_horizon.is_none() {
        return Ok(Filtered::Same);
    }

    let mut attributes = old.attributes;
    if count == 0 {
        return Ok(Filtered::Empty(emptied(&old)));
    }
    if new_horizon.is_some() {
        attributes.0 |= Attributes::DELETE_HORIZON;
    }
    if codec != Compression::None {
        match compressed(codec, &bytes) {
            Some(compressed) => bytes = compressed,
            None => attributes = attributes.without_compression(),
        }
    }
    BatchHeader {
        attributes,
        base_timestamp: base_timestamp.unwrap_or(old.base_timestamp),
        max_timestamp: if log_append_time {
            old.max_timestamp
        } else {
            max_timestamp.unwrap_or(old.max_timestamp)
        },
        record_count: count,
        ..old
    }
    .seal(&mut bytes);
    Ok(Filtered::Batch(bytes))
}

/// A batch's header alone, as Kafka keeps emptied batches: without codec, delete horizon and base timestamp.
pub fn emptied(old: &BatchHeader) -> Vec<u8> {
    let attributes = old.attributes.without_compression();
    let mut bytes = vec![0; HEADER_LEN];
    BatchHeader {
        attributes: Attributes(attributes.0 & !Attributes::DELETE_HORIZON),
        base_timestamp: NO_TIMESTAMP,
        record_count: 0,
        ..*old
    }
    .seal(&mut bytes);
    bytes
}

/// A header without records, as of a batch that was emptied, for the offsets `from..to`, of which a compacted log holds nothing any more: with it a copy
/// has no hole there. It reaches as far as one batch can, which may be less than `to`. Nothing where the range is empty.
pub fn vacant(from: Offset, to: Offset, leader_epoch: LeaderEpoch) -> Vec<u8> {
    let Ok(offsets) = u64::try_from(to.0.saturating_sub(from.0)) else {
        return Vec::new();
    };
    if offsets == 0 {
        return Vec::new();
    }
    let mut bytes = vec![0; HEADER_LEN];
    BatchHeader {
        base_offset: from,
        batch_length: 0,
        leader_epoch,
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: i32::try_from(offsets - 1).unwrap_or(i32::MAX),
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: NO_TIMESTAMP,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        record_count: 0,
    }
    .seal(&mut bytes);
    bytes
}
