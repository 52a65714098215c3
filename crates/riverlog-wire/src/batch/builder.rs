//! Making batches.

use super::encode::{EncodeHeaders, Fields, append_record};
use super::{Attributes, BatchHeader, HEADER_LEN};
use crate::compression::{self, Compression};
use crate::primitives::varint_size;
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

/// Makes one batch of records.
///
/// ```
/// use riverlog_wire::batch::{Batch, BatchBuilder};
/// use riverlog_wire::compression::Compression;
///
/// let mut b = BatchBuilder::new(Compression::Lz4);
/// b.push(1_700_000_000_000, Some(b"key"), Some(b"value"), &[(b"trace", Some(b"1"))]);
/// let bytes = b.build(); // base offset 0, leader epoch −1
/// assert_eq!(Batch::parse(&bytes).unwrap().header.record_count, 1);
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    /// Room for the header, then the records, uncompressed.
    bytes: Vec<u8>,
    compression: Compression,
    attributes: i16,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: Sequence,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
    /// Bytes of the batch before, which the next one is likely to take too.
    likely_size: usize,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new(compression: Compression) -> BatchBuilder {
        BatchBuilder {
            bytes: Vec::new(),
            compression,
            attributes: 0,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            count: 0,
            likely_size: 0,
        }
    }

    /// Marks it as of an idempotent producer.
    pub fn producer(
        &mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: Sequence,
    ) -> &mut Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Marks it as part of a transaction.
    pub fn transactional(&mut self) -> &mut Self {
        self.attributes |= Attributes::TRANSACTIONAL;
        self
    }

    /// Marks it as control records.
    pub fn control(&mut self) -> &mut Self {
        self.attributes |= Attributes::CONTROL;
        self
    }

    /// Adds a record. `timestamp` in ms since the epoch, −1 for none.
    ///
    /// Panics when the batch would pass 2 GiB, which its length field can't say; whoever fills a batch stops at
    /// a far smaller [`BatchBuilder::size`].
    #[inline]
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> &mut Self {
        if self.count == 0 {
            self.begin(timestamp);
        }
        let fields = Fields {
            timestamp_delta: timestamp.wrapping_sub(self.base_timestamp),
            offset_delta: self.count,
            key,
            value,
        };
        append_record(&mut self.bytes, &fields, headers);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count += 1;
        self
    }

    fn begin(&mut self, timestamp: i64) {
        self.base_timestamp = timestamp;
        self.max_timestamp = timestamp;
        self.bytes.clear();
        self.bytes.reserve(self.likely_size.max(HEADER_LEN));
        self.bytes.resize(HEADER_LEN, 0);
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Uncompressed bytes so far, header included.
    pub fn size(&self) -> usize {
        self.bytes.len().max(HEADER_LEN)
    }

    /// Bytes that [`BatchBuilder::push`] would add, uncompressed.
    pub fn record_size(
        &self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> usize {
        let base_timestamp = if self.count == 0 {
            timestamp
        } else {
            self.base_timestamp
        };
        let fields = Fields {
            timestamp_delta: timestamp.wrapping_sub(base_timestamp),
            offset_delta: self.count,
            key,
            value,
        };
        let body_len = fields.size() + headers.size();
        varint_size(body_len as i32) + body_len
    }

    /// The finished batch with base offset 0 and leader epoch −1; nothing at all when there are no records.
    /// The builder is empty afterwards and can be used again: codec, producer and marks stay, and the base
    /// sequence of an idempotent producer has moved on past these records.
    pub fn build(&mut self) -> Vec<u8> {
        if self.count == 0 {
            return Vec::new();
        }
        let mut batch = std::mem::take(&mut self.bytes);
        self.likely_size = batch.len();
        let mut attributes = self.attributes;
        if self.compression != Compression::None
            && let Some(compressed) = compressed(self.compression, &batch)
        {
            attributes |= self.compression.bits();
            self.bytes = std::mem::replace(&mut batch, compressed);
            self.bytes.clear();
        }
        BatchHeader {
            base_offset: Offset::ZERO,
            batch_length: 0,
            leader_epoch: LeaderEpoch::NONE,
            crc: 0,
            attributes: Attributes(attributes),
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.count,
        }
        .seal(&mut batch);
        if self.base_sequence != Sequence::NONE {
            self.base_sequence = self.base_sequence.plus(self.count);
        }
        self.count = 0;
        batch
    }
}

/// The batch with its records compressed; `None` should the codec fail, since uncompressed records are right too.
pub(super) fn compressed(codec: Compression, batch: &[u8]) -> Option<Vec<u8>> {
    let records = batch.get(HEADER_LEN..)?;
    let mut out = Vec::with_capacity(HEADER_LEN + records.len() / 2);
    out.resize(HEADER_LEN, 0);
    compression::compress(codec, records, &mut out).ok()?;
    Some(out)
}

/// The producer gave none.
pub(super) const NO_TIMESTAMP: i64 = -1;
