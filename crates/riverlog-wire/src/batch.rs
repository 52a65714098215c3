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

mod aborted;
mod builder;
mod control;
mod encode;
mod filter;
mod header;
mod produce;
mod records;

#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::compression::{self, Compression, CompressionError};
use crate::{LeaderEpoch, Offset};

pub use aborted::Aborted;
pub use builder::BatchBuilder;
pub use control::{ControlType, EndTxnMarker};
pub use filter::{Filtered, emptied, filter, filter_records, vacant};
pub use header::{Attributes, BatchHeader, HEADER_LEN, TimestampType};
pub use produce::{ProduceError, validate_produce};
pub use records::{HeaderRefs, Headers, RecordRef, RecordView, Records};

/// Why bytes are not a batch.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
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
        let header = BatchHeader::parse(bytes)?;
        Batch::cut(header, bytes)
    }

    fn cut(header: BatchHeader, bytes: &'a [u8]) -> Result<Batch<'a>, BatchError> {
        match bytes.get(..header.size()) {
            Some(bytes) => Ok(Batch { header, bytes }),
            None => Err(BatchError::Short {
                needed: header.size(),
                have: bytes.len(),
            }),
        }
    }

    /// Compares the CRC with the bytes.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let computed = header::crc_of(self.bytes);
        if computed != self.header.crc {
            return Err(BatchError::Crc {
                found: self.header.crc,
                computed,
            });
        }
        Ok(())
    }

    /// The records, decompressed to at most `limit` bytes. Iteration is lazy; errors come where they are met.
    /// Uncompressed records are copied once; [`Records::shared`] doesn't.
    pub fn records(&self, limit: usize) -> Result<Records, BatchError> {
        let encoded = self.encoded_records();
        let bytes = match self.codec()? {
            Compression::None if encoded.len() <= limit => Bytes::copy_from_slice(encoded),
            codec => expand(codec, encoded, limit)?,
        };
        Records::new(self.header, bytes)
    }

    /// The records as they lie in the batch, compressed or not.
    pub fn encoded_records(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    fn codec(&self) -> Result<Compression, BatchError> {
        self.header.codec()
    }
}

/// Decompresses a batch's records.
fn expand(codec: Compression, encoded: &[u8], limit: usize) -> Result<Bytes, BatchError> {
    let mut records = Vec::new();
    // A batch that compaction emptied may still name a codec.
    if !encoded.is_empty() {
        compression::decompress(codec, encoded, limit, &mut records)?;
    }
    // Slices of these bytes may be kept for long; let them not pin much more than they are.
    if records.capacity() / 2 > records.len() {
        records.shrink_to_fit();
    }
    Ok(records.into())
}

/// The batches that lie one after the other in `bytes`, without a look at their CRCs. Ends at the first error.
pub fn batches(bytes: &[u8]) -> impl Iterator<Item = Result<Batch<'_>, BatchError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let batch = Batch::parse(rest);
        rest = match &batch {
            Ok(batch) => rest.get(batch.bytes.len()..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(batch)
    })
}

/// Writes the base offset; it lies outside the CRC. `batch` starts with a whole header.
pub fn set_base_offset(batch: &mut [u8], offset: Offset) {
    header::put(batch, header::BASE_OFFSET, offset.0.to_be_bytes());
}

/// Writes the leader epoch; it lies outside the CRC. `batch` starts with a whole header.
pub fn set_leader_epoch(batch: &mut [u8], epoch: LeaderEpoch) {
    header::put(batch, header::LEADER_EPOCH, epoch.0.to_be_bytes());
}

/// Turns a batch into one with log append time `now_ms`: sets the attribute and the max timestamp, and a new CRC.
/// `batch` is exactly one whole batch.
pub fn set_log_append_time(batch: &mut [u8], now_ms: i64) {
    // The flag is in the low byte.
    if let Some(low) = batch.get_mut(header::ATTRIBUTES + 1) {
        *low |= Attributes::LOG_APPEND_TIME as u8;
    }
    header::put(batch, header::MAX_TIMESTAMP, now_ms.to_be_bytes());
    header::set_crc(batch);
}
