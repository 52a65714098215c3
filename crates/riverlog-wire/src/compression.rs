//! The four codecs of Kafka's record batches, with bounded expansion.

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
    /// By the number in a batch's attributes (KIP-98, KIP-110); `None` for numbers without a codec.
    pub fn from_bits(bits: i16) -> Option<Compression> {
        todo!("{bits}")
    }
}

/// Appends the compressed form of `input` to `out`.
pub fn compress(
    codec: Compression,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    todo!("{codec:?} {input:?} {out:?}")
}

/// Appends the decompressed form of `input` to `out`, at most `limit` bytes.
pub fn decompress(
    codec: Compression,
    input: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    todo!("{codec:?} {input:?} {limit} {out:?}")
}
