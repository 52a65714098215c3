//! Batches to produce, and what was fetched.

use bytes::Bytes;
use riverlog_wire::batch::{Batch, BatchBuilder, RecordView};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ProducerEpoch, ProducerId, Sequence};

use crate::client::{Failure, Outcome};

/// More than any batch of a check takes, decompressed.
const LIMIT: usize = 64 << 20;

/// One uncompressed batch of `count` small records of the given time.
pub fn numbered(timestamp: i64, count: i32) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    for n in 0..count {
        let value = format!("value-{n}");
        batch.push(timestamp, Some(b"key"), Some(value.as_bytes()), &[]);
    }
    batch.build()
}

/// One batch of one record.
pub fn keyed(timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(timestamp, key, value, &[]);
    batch.build()
}

/// One batch of one record by an idempotent producer.
pub(crate) fn of_producer(timestamp: i64, id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    batch.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    batch.push(timestamp, None, Some(b"value"), &[]);
    batch.build()
}

/// One batch of one record with a key by an idempotent producer.
pub(crate) fn of_producer_keyed(
    timestamp: i64,
    id: i64,
    epoch: i16,
    sequence: i32,
    key: &[u8],
) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    batch.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    batch.push(timestamp, Some(key), Some(b"value"), &[]);
    batch.build()
}

/// One batch of one record by a transactional producer.
pub(crate) fn in_transaction(timestamp: i64, id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    batch.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    batch.transactional();
    batch.push(timestamp, None, Some(b"value"), &[]);
    batch.build()
}

/// A batch whose records are replaced by what `pack` makes of them, as of the codec with that number.
pub(crate) fn repacked(
    batch: &[u8],
    codec: u8,
    pack: impl FnOnce(&[u8]) -> Vec<u8>,
) -> Outcome<Vec<u8>> {
    let (header, records) = batch
        .split_at_checked(HEADER_BYTES)
        .ok_or_else(|| Failure::Wrong("a batch without a header".to_owned()))?;
    let mut out = [header, &pack(records)].concat();
    let length = u32::try_from(out.len() - 12).unwrap_or(u32::MAX);
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[22] = out[22] & !7 | codec;
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &out[21..]);
    let crc = u32::try_from(crc).unwrap_or_default();
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    Ok(out)
}

/// Of a record batch.
const HEADER_BYTES: usize = 61;

/// Batches as fetched.
#[derive(Clone, Debug)]
pub struct Batches(pub Bytes);

impl Batches {
    /// The offsets of all records.
    pub fn offsets(&self) -> Outcome<Vec<i64>> {
        Ok(self.records()?.iter().map(|r| r.offset.0).collect())
    }
    /// All records.
    pub fn records(&self) -> Outcome<Vec<RecordView>> {
        let mut records = Vec::new();
        for batch in self.batches()? {
            let damaged = |e| Failure::Wrong(format!("fetched records can't be read: {e}"));
            let of_batch = batch.records(LIMIT).map_err(damaged)?;
            for record in of_batch.iter() {
                records.push(record.map_err(damaged)?);
            }
        }
        Ok(records)
    }
    /// The batches, their CRCs checked.
    pub fn batches(&self) -> Outcome<Vec<Batch<'_>>> {
        let mut batches = Vec::new();
        for batch in riverlog_wire::batch::batches(&self.0) {
            let damaged = |e| Failure::Wrong(format!("a fetched batch is damaged: {e}"));
            let batch = batch.map_err(damaged)?;
            batch.check_crc().map_err(damaged)?;
            batches.push(batch);
        }
        Ok(batches)
    }
}
