//! The four codecs of Kafka's record batches, with bounded expansion.
//!
//! Decompression stops at a limit that the caller names. What it reserves follows from bytes that are there
//! or were really produced, never from a size that the compressed bytes announce.

mod lz4;
mod snappy;
mod zstd;

#[cfg(test)]
mod tests;

use std::io::{Read, Write};

/// How the records of a batch are compressed: the low three bits of a batch's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// RFC 1952, several members allowed.
    Gzip,
    /// Snappy in the Java (xerial) framing or raw.
    Snappy,
    /// LZ4 frame format.
    Lz4,
    /// RFC 8878.
    Zstd,
}

/// Why bytes could not be compressed or decompressed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CompressionError {
    /// The bytes are not of that codec.
    #[error(
        "the {codec:?} data is damaged: {reason}; send the batch again, or send it uncompressed"
    )]
    Damaged {
        /// The codec named by the batch.
        codec: Compression,
        /// The decoder's own words.
        reason: String,
    },
    /// Expanding would pass the limit.
    #[error("the {codec:?} data expands beyond {limit} bytes; send smaller batches")]
    TooLarge {
        /// The codec named by the batch.
        codec: Compression,
        /// The bound that was given.
        limit: usize,
    },
}

impl Compression {
    /// Every codec, in the order of their numbers.
    pub const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    /// By the number in a batch's attributes (KIP-98, KIP-110); `None` for numbers without a codec.
    pub fn from_bits(bits: i16) -> Option<Compression> {
        Compression::ALL.get((bits & 0x07) as usize).copied()
    }

    /// The number in a batch's attributes.
    pub fn bits(self) -> i16 {
        self as i16
    }

    /// As in Kafka's `compression.type`: `none`, `gzip`, `snappy`, `lz4`, `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// By its name; `None` for names without a codec.
    pub fn from_name(name: &str) -> Option<Compression> {
        Compression::ALL.into_iter().find(|c| c.name() == name)
    }

    fn damaged(self, reason: impl ToString) -> CompressionError {
        CompressionError::Damaged {
            codec: self,
            reason: reason.to_string(),
        }
    }
}

/// Appends the compressed form of `input` to `out`, at the codec's default level: what Kafka's own producer
/// writes. Nothing is appended on an error, which no codec has for input of a size that a batch can have.
pub fn compress(
    codec: Compression,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let start = out.len();
    let done = match codec {
        Compression::None => {
            out.extend_from_slice(input);
            Ok(())
        }
        Compression::Gzip => {
            let mut gz = flate2::write::GzEncoder::new(&mut *out, flate2::Compression::default());
            gz.write_all(input)
                .and_then(|()| gz.finish().map(drop))
                .map_err(|e| codec.damaged(e))
        }
        Compression::Snappy => snappy::compress(input, out),
        Compression::Lz4 => lz4::compress(input, out),
        Compression::Zstd => zstd::compress(input, out),
    };
    if done.is_err() {
        out.truncate(start);
    }
    done
}

/// Whether clients of Kafka can read data of that codec, as far as its first bytes tell: an LZ4 frame must have independent
/// blocks.
pub fn is_common(codec: Compression, input: &[u8]) -> bool {
    codec != Compression::Lz4 || lz4::is_independent(input)
}

/// Appends the decompressed form of `input` to `out`, at most `limit` bytes. Nothing is appended on an error.
pub fn decompress(
    codec: Compression,
    input: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let start = out.len();
    let done = match codec {
        Compression::None if input.len() > limit => {
            Err(CompressionError::TooLarge { codec, limit })
        }
        Compression::None => {
            out.extend_from_slice(input);
            Ok(())
        }
        Compression::Gzip => gunzip(input, limit, out),
        Compression::Snappy => snappy::decompress(input, limit, out),
        Compression::Lz4 => lz4::decompress(input, limit, out),
        Compression::Zstd => zstd::decompress(input, limit, out),
    };
    if done.is_err() {
        out.truncate(start);
    }
    done
}

fn gunzip(input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let codec = Compression::Gzip;
    // One byte more than allowed tells "too large" from "just fits".
    let bound = (limit as u64).saturating_add(1);
    out.reserve(likely_size(input, limit));
    let n = flate2::bufread::MultiGzDecoder::new(input)
        .take(bound)
        .read_to_end(out)
        .map_err(|e| codec.damaged(e))?;
    if n > limit {
        return Err(CompressionError::TooLarge { codec, limit });
    }
    Ok(())
}

/// What to reserve at first: a few times the bytes that are there.
fn likely_size(input: &[u8], limit: usize) -> usize {
    input.len().saturating_mul(4).min(limit)
}
