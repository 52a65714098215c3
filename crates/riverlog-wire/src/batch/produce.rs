//! What a producer may send for one partition.

#[cfg(test)]
mod tests;

use super::{Batch, BatchError, BatchHeader};
use crate::compression::{Compression, is_common};
use crate::{Offset, ProducerId, Sequence};

/// The least bytes of a record: its length, attributes, timestamp, offset, the lengths of key and value, and the number of headers.
const MIN_RECORD_LEN: usize = 7;

/// Why a producer's bytes are refused. Kafka answers CORRUPT_MESSAGE to [`BatchError::Crc`] and INVALID_RECORD
/// to the rest.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProduceError {
    /// No bytes at all.
    #[error("there is no record batch for the partition; send exactly one")]
    Empty,
    /// Bytes behind the first batch.
    #[error("{extra} bytes follow the record batch; send exactly one batch for each partition")]
    MoreThanOne {
        /// How many.
        extra: usize,
    },
    /// Not a batch, an older format, cut off, or damaged.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The broker assigns offsets.
    #[error("the batch's base offset is {0}; producers count from 0")]
    BaseOffset(Offset),
    /// Record count and last offset delta contradict each other, or there are no records.
    #[error(
        "the batch says that it has {record_count} records and that the last one's offset is {last_offset_delta}; send at least one, numbered from 0 without gaps"
    )]
    Count {
        /// Records announced.
        record_count: i32,
        /// Offset of the last.
        last_offset_delta: i32,
    },
    /// More records than its bytes could hold: they would move the partition's end past offsets that nobody ever reads.
    #[error(
        "the batch says that it has {record_count} records, and holds {bytes} bytes of them, less than 7 for each; send as many records as it says"
    )]
    Overstated {
        /// Records announced.
        record_count: i32,
        /// Bytes behind the header.
        bytes: usize,
    },
    /// Control records come from the broker alone.
    #[error("the batch is marked as control records, which producers can't write")]
    Control,
    /// A codec number that doesn't exist.
    #[error("compression codec {0} doesn't exist; use none, gzip, snappy, lz4 or zstd (0 to 4)")]
    Codec(i16),
    /// An LZ4 frame that Kafka's own clients can't read.
    #[error(
        "the records aren't an LZ4 frame of independent blocks; write blocks that don't lean on each other"
    )]
    LinkedBlocks,
    /// A producer id without epoch or sequence, or a transaction without a producer id.
    #[error(
        "the batch has producer id {id}, epoch {epoch}, sequence {sequence}; an idempotent producer sends all three, a transactional one too"
    )]
    Producer {
        /// Producer id.
        id: ProducerId,
        /// Its epoch.
        epoch: i16,
        /// Sequence of the first record.
        sequence: Sequence,
    },
}

/// Checks what a producer sent for one partition by its header and CRC: exactly one batch of format 2, undamaged,
/// base offset 0, as many records as its offsets say and (unless compressed) as its bytes can hold, no control records, a codec that exists, in a form that clients read. The
/// records themselves are not opened.
pub fn validate_produce(bytes: &[u8]) -> Result<Batch<'_>, ProduceError> {
    if bytes.is_empty() {
        return Err(ProduceError::Empty);
    }
    let header = BatchHeader::read(bytes)?;
    let batch = Batch::cut(header, bytes)?;
    let extra = bytes.len() - batch.bytes.len();
    if extra > 0 {
        return Err(ProduceError::MoreThanOne { extra });
    }
    // The CRC before the fields that it covers: bytes damaged on the way can be sent again, bytes that were
    // made wrong can't.
    batch.check_crc()?;
    header.check()?;
    if header.base_offset != Offset::ZERO {
        return Err(ProduceError::BaseOffset(header.base_offset));
    }
    if i64::from(header.record_count) != i64::from(header.last_offset_delta) + 1 {
        return Err(ProduceError::Count {
            record_count: header.record_count,
            last_offset_delta: header.last_offset_delta,
        });
    }
    if header.attributes.is_control() {
        return Err(ProduceError::Control);
    }
    let Some(codec) = header.attributes.compression() else {
        return Err(ProduceError::Codec(header.attributes.0 & 0x07));
    };
    let records = batch.encoded_records();
    let most = records.len() / MIN_RECORD_LEN;
    if codec == Compression::None && usize::try_from(header.record_count).unwrap_or(0) > most {
        return Err(ProduceError::Overstated {
            record_count: header.record_count,
            bytes: records.len(),
        });
    }
    if !is_common(codec, records) {
        return Err(ProduceError::LinkedBlocks);
    }
    let has_producer = header.producer_id.0 >= 0;
    let numbered = header.producer_epoch.0 >= 0 && header.base_sequence.0 >= 0;
    if (has_producer && !numbered) || (header.attributes.is_transactional() && !has_producer) {
        return Err(ProduceError::Producer {
            id: header.producer_id,
            epoch: header.producer_epoch.0,
            sequence: header.base_sequence,
        });
    }
    Ok(batch)
}
