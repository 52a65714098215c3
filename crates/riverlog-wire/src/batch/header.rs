//! The 61 bytes before the records.

use super::BatchError;
use crate::compression::Compression;
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

/// Bytes before the records.
pub const HEADER_LEN: usize = 61;

/// Bytes up to and with the length field, which doesn't count them.
const LENGTH_OVERHEAD: usize = 12;

/// The least that a batch's length field says: the header without what [`LENGTH_OVERHEAD`] covers.
const MIN_BATCH_LENGTH: i32 = (HEADER_LEN - LENGTH_OVERHEAD) as i32;

pub(super) const BASE_OFFSET: usize = 0;
pub(super) const BATCH_LENGTH: usize = 8;
pub(super) const LEADER_EPOCH: usize = 12;
pub(super) const MAGIC: usize = 16;
pub(super) const CRC: usize = 17;
pub(super) const ATTRIBUTES: usize = 21;
pub(super) const LAST_OFFSET_DELTA: usize = 23;
pub(super) const BASE_TIMESTAMP: usize = 27;
pub(super) const MAX_TIMESTAMP: usize = 35;
pub(super) const PRODUCER_ID: usize = 43;
pub(super) const PRODUCER_EPOCH: usize = 51;
pub(super) const BASE_SEQUENCE: usize = 53;
pub(super) const RECORD_COUNT: usize = 57;

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
    pub(super) const COMPRESSION: i16 = 0x07;
    pub(super) const LOG_APPEND_TIME: i16 = 0x08;
    pub(super) const TRANSACTIONAL: i16 = 0x10;
    pub(super) const CONTROL: i16 = 0x20;
    pub(super) const DELETE_HORIZON: i16 = 0x40;

    /// `None`: a codec number that doesn't exist.
    pub fn compression(self) -> Option<Compression> {
        Compression::from_bits(self.0)
    }
    /// Bit 3.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }
    /// Bit 4: part of a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }
    /// Bit 5: markers of the log itself, never shown to applications.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }
    /// Bit 6: base timestamp is the delete horizon of a compacted batch.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    pub(super) fn without_compression(self) -> Attributes {
        Attributes(self.0 & !Self::COMPRESSION)
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
    /// What the records are compressed with; an error for a number that no codec has.
    pub(super) fn codec(&self) -> Result<Compression, BatchError> {
        self.attributes.compression().ok_or(BatchError::Field {
            field: "compression codec",
            value: i64::from(self.attributes.0 & Attributes::COMPRESSION),
        })
    }
    /// Bytes of the whole batch, header and length field included.
    pub fn size(&self) -> usize {
        self.batch_length as usize + LENGTH_OVERHEAD
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
    /// When a compacted batch's tombstones may go, in ms since the epoch; `None` while that is not settled.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.attributes
            .has_delete_horizon()
            .then_some(self.base_timestamp)
    }

    /// Reads a header from the start of `bytes`: needs [`HEADER_LEN`] bytes, magic 2, a batch length of at
    /// least 49 and a last offset delta and record count of at least 0. The records need not be there.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let header = BatchHeader::read(bytes)?;
        header.check()?;
        Ok(header)
    }

    /// The part of [`BatchHeader::parse`] that finds the batch's end; its other fields may say anything.
    pub(super) fn read(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        // Older formats have other fields from here on, and may be shorter.
        if let Some(&magic) = bytes.get(MAGIC)
            && magic != 2
        {
            return Err(BatchError::Magic(magic as i8));
        }
        let Some(fixed) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(BatchError::Short {
                needed: HEADER_LEN,
                have: bytes.len(),
            });
        };
        let header = BatchHeader {
            base_offset: Offset(i64::from_be_bytes(get(fixed, BASE_OFFSET))),
            batch_length: i32::from_be_bytes(get(fixed, BATCH_LENGTH)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(get(fixed, LEADER_EPOCH))),
            crc: u32::from_be_bytes(get(fixed, CRC)),
            attributes: Attributes(i16::from_be_bytes(get(fixed, ATTRIBUTES))),
            last_offset_delta: i32::from_be_bytes(get(fixed, LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(get(fixed, BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(get(fixed, MAX_TIMESTAMP)),
            producer_id: ProducerId(i64::from_be_bytes(get(fixed, PRODUCER_ID))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(get(fixed, PRODUCER_EPOCH))),
            base_sequence: Sequence(i32::from_be_bytes(get(fixed, BASE_SEQUENCE))),
            record_count: i32::from_be_bytes(get(fixed, RECORD_COUNT)),
        };
        at_least(MIN_BATCH_LENGTH, "length", header.batch_length)?;
        Ok(header)
    }

    /// The other part of [`BatchHeader::parse`].
    pub(super) fn check(&self) -> Result<(), BatchError> {
        at_least(0, "last offset delta", self.last_offset_delta)?;
        at_least(0, "record count", self.record_count)
    }

    /// Writes the fields to the start of `batch`, which is one whole batch, with the length and CRC that
    /// `batch` really has.
    pub(super) fn seal(&self, batch: &mut [u8]) {
        let length = batch.len().saturating_sub(LENGTH_OVERHEAD);
        put(batch, BASE_OFFSET, self.base_offset.0.to_be_bytes());
        put(batch, BATCH_LENGTH, (length as i32).to_be_bytes());
        put(batch, LEADER_EPOCH, self.leader_epoch.0.to_be_bytes());
        put(batch, MAGIC, [2]);
        put(batch, ATTRIBUTES, self.attributes.0.to_be_bytes());
        let last_offset_delta = self.last_offset_delta.to_be_bytes();
        put(batch, LAST_OFFSET_DELTA, last_offset_delta);
        put(batch, BASE_TIMESTAMP, self.base_timestamp.to_be_bytes());
        put(batch, MAX_TIMESTAMP, self.max_timestamp.to_be_bytes());
        put(batch, PRODUCER_ID, self.producer_id.0.to_be_bytes());
        put(batch, PRODUCER_EPOCH, self.producer_epoch.0.to_be_bytes());
        put(batch, BASE_SEQUENCE, self.base_sequence.0.to_be_bytes());
        put(batch, RECORD_COUNT, self.record_count.to_be_bytes());
        set_crc(batch);
    }
}

fn at_least(least: i32, field: &'static str, value: i32) -> Result<(), BatchError> {
    if value < least {
        return Err(BatchError::Field {
            field,
            value: i64::from(value),
        });
    }
    Ok(())
}

/// The field of `N` bytes at `at`. All callers name constants that lie within the header.
fn get<const N: usize>(header: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    header
        .get(at..)
        .and_then(|field| field.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

/// Overwrites the field at `at`. `batch` starts with a whole header.
pub(super) fn put<const N: usize>(batch: &mut [u8], at: usize, field: [u8; N]) {
    assert!(batch.len() >= HEADER_LEN, "a batch starts with its header");
    batch[at..at + N].copy_from_slice(&field);
}

/// The CRC that one whole batch ought to have.
pub(super) fn crc_of(batch: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(batch.get(ATTRIBUTES..).unwrap_or_default())
}

pub(super) fn set_crc(batch: &mut [u8]) {
    let crc = crc_of(batch);
    put(batch, CRC, crc.to_be_bytes());
}
