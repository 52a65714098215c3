//! Record batch v2 (magic 2, KIP-98): what producers send, what lies in a segment, what consumers get.
//!
//! A batch stays the bytes that the producer sent. Base offset and leader epoch lie outside the CRC and
//! are patched in place; everything else is read from the header without touching the records.
//!
//! ```text
//!  0 base offset i64         8 batch length i32 (bytes after this field)
//! 12 leader epoch i32       16 magic i8 = 2
//! 17 crc u32 (CRC-32C of everything from 21)
//! 21 attributes i16         23 last offset delta i32
//! 27 base timestamp i64     35 max timestamp i64
//! 43 producer id i64        51 producer epoch i16     53 base sequence i32
//! 57 record count i32       61 records
//! ```

use bytes::Bytes;

use crate::compression::{Compression, CompressionError};
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

/// Bytes before the records.
pub const HEADER_LEN: usize = 61;

/// Whose time a batch's timestamps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The broker's, at the append; all records of the batch carry the batch's max timestamp.
    LogAppendTime,
}

/// The attributes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    /// `None`: a codec number that doesn't exist.
    pub fn compression(self) -> Option<Compression> {
        Compression::from_bits(self.0)
    }
    /// Bit 3.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & 0x08 != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }
    /// Bit 4: part of a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & 0x10 != 0
    }
    /// Bit 5: markers of the log itself, never shown to applications.
    pub fn is_control(self) -> bool {
        self.0 & 0x20 != 0
    }
    /// Bit 6: base timestamp is the delete horizon of a compacted batch.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & 0x40 != 0
    }
}

/// The fixed fields of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Bytes after the length field itself.
    pub batch_length: i32,
    /// Epoch of the leader that appended it.
    pub leader_epoch: LeaderEpoch,
    /// CRC-32C over everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type, transactional, control.
    pub attributes: Attributes,
    /// Last offset minus base offset; kept by compaction.
    pub last_offset_delta: i32,
    /// Timestamp that the records' deltas are from, in ms since the epoch.
    pub base_timestamp: i64,
    /// Largest timestamp in the batch.
    pub max_timestamp: i64,
    /// −1 unless idempotent.
    pub producer_id: ProducerId,
    /// −1 unless idempotent.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record; −1 unless idempotent.
    pub base_sequence: Sequence,
    /// Records present; less than last offset delta + 1 after compaction.
    pub record_count: i32,
}

impl BatchHeader {
    /// Bytes of the whole batch, header and length field included.
    pub fn size(&self) -> usize {
        self.batch_length as usize + 12
    }
    /// Offset of the last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset + i64::from(self.last_offset_delta)
    }
    /// The offset after the last record.
    pub fn next_offset(&self) -> Offset {
        self.last_offset() + 1
    }
    /// Sequence of the last record.
    pub fn last_sequence(&self) -> Sequence {
        self.base_sequence.plus(self.last_offset_delta)
    }
    /// Reads a header from the start of `bytes`: needs [`HEADER_LEN`] bytes, magic 2, a batch length of at
    /// least 49 and a last offset delta and record count of at least 0. The records need not be there.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        todo!("{bytes:?}")
    }
}

/// Why bytes are not a batch.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// Fewer bytes than the header or the length field announce.
    #[error("the batch needs {needed} bytes but {have} are left; it was cut off")]
    Short {
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        have: usize,
    },
    /// Formats 0 and 1 from before Kafka 0.11, or garbage.
    #[error(
        "record format {0} is not supported; send record batches of format 2 (Kafka 0.11 and newer)"
    )]
    Magic(i8),
    /// A field that no sound batch has.
    #[error("the batch's {field} is {value}, which can't be; the bytes are damaged")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it said.
        value: i64,
    },
    /// CRC-32C differs.
    #[error(
        "the batch's CRC is {found:#010x} but its bytes give {computed:#010x}; they were damaged on the way"
    )]
    Crc {
        /// In the header.
        found: u32,
        /// From the bytes.
        computed: u32,
    },
    /// The records could not be decompressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// A record inside the batch is not well-formed.
    #[error("record {index} of the batch is damaged: {reason}")]
    Record {
        /// Its place in the batch.
        index: i32,
        /// What is wrong.
        reason: &'static str,
    },
}

/// One whole batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Its fixed fields.
    pub header: BatchHeader,
    /// All its bytes, exactly `header.size()`.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The first batch of `bytes`; more may follow it. The CRC is not looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Batch<'a>, BatchError> {
        todo!("{bytes:?}")
    }
    /// Compares the CRC with the bytes.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        todo!()
    }
    /// The records, decompressed to at most `limit` bytes. Iteration is lazy; errors come where they are met.
    pub fn records(&self, limit: usize) -> Result<Records, BatchError> {
        todo!("{limit}")
    }
}

/// The batches that lie one after the other in `bytes`, without a look at their CRCs. Ends at the first error.
pub fn batches(bytes: &[u8]) -> impl Iterator<Item = Result<Batch<'_>, BatchError>> {
    std::iter::once_with(move || Batch::parse(bytes))
}

/// Writes the base offset; it lies outside the CRC. `batch` starts with a whole header.
pub fn set_base_offset(batch: &mut [u8], offset: Offset) {
    todo!("{batch:?} {offset}")
}

/// Writes the leader epoch; it lies outside the CRC. `batch` starts with a whole header.
pub fn set_leader_epoch(batch: &mut [u8], epoch: LeaderEpoch) {
    todo!("{batch:?} {epoch}")
}

/// Turns a batch into one with log append time `now_ms`: sets the attribute and the max timestamp, and a new CRC.
pub fn set_log_append_time(batch: &mut [u8], now_ms: i64) {
    todo!("{batch:?} {now_ms}")
}

/// The records of one batch, decompressed.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    bytes: Bytes,
}

impl Records {
    /// Goes through the records in order. Exactly `record_count` items, or an error that ends it.
    pub fn iter(&self) -> impl Iterator<Item = Result<RecordView, BatchError>> + '_ {
        let _ = (&self.header, &self.bytes);
        std::iter::empty()
    }
}

/// One record: slices of the batch's (decompressed) bytes, without a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Base offset plus its delta.
    pub offset: Offset,
    /// In ms since the epoch; the batch's max timestamp under log append time.
    pub timestamp: i64,
    /// Absent and empty differ.
    pub key: Option<Bytes>,
    /// Absent (a tombstone) and empty differ.
    pub value: Option<Bytes>,
    /// In order, duplicates and null values kept.
    pub headers: Headers,
}

/// A record's headers, still encoded; well-formed, since the record was checked when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Headers {
    count: i32,
    bytes: Bytes,
}

impl Headers {
    /// Number of headers.
    pub fn len(&self) -> usize {
        self.count as usize
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// In order: key, and value or null.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> + '_ {
        let _ = &self.bytes;
        std::iter::empty()
    }
}

/// Makes one batch of records.
///
/// ```text
/// let mut b = BatchBuilder::new(Compression::None);
/// b.push(now_ms, Some(b"key"), Some(b"value"), &[("trace", Some(b"1"))]);
/// let bytes = b.build();            // base offset 0, leader epoch −1
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    _private: (),
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new(compression: Compression) -> BatchBuilder {
        todo!("{compression:?}")
    }
    /// Marks it as of an idempotent producer.
    pub fn producer(
        &mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: Sequence,
    ) -> &mut Self {
        todo!("{id} {epoch} {base_sequence}")
    }
    /// Marks it as part of a transaction.
    pub fn transactional(&mut self) -> &mut Self {
        todo!()
    }
    /// Marks it as control records.
    pub fn control(&mut self) -> &mut Self {
        todo!()
    }
    /// Adds a record. `timestamp` in ms since the epoch, −1 for none.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> &mut Self {
        todo!("{timestamp} {key:?} {value:?} {headers:?}")
    }
    /// Records so far.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Uncompressed bytes so far, header included.
    pub fn size(&self) -> usize {
        todo!()
    }
    /// The finished batch with base offset 0 and leader epoch −1. The builder is empty afterwards and can be used again.
    pub fn build(&mut self) -> Vec<u8> {
        todo!()
    }
}
