//! Snappy, raw or in the framing of the Java library (xerial).
//!
//! ```text
//! 82 'SNAPPY' 00   version i32   least compatible version i32   then blocks: length i32, raw snappy
//! ```
//!
//! Java writes the framing, librdkafka and others have written raw blocks; readers take both.

use super::{Compression, CompressionError};
use crate::primitives::Reader;

const CODEC: Compression = Compression::Snappy;
const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const VERSION: i32 = 1;

/// Uncompressed bytes in a block, as the Java library's default.
const BLOCK: usize = 32 * 1024;

/// A copy element of three bytes yields at most 64, so raw snappy can't expand further than this.
const MAX_EXPANSION: usize = 22;

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(BLOCK) {
        let len_at = out.len();
        let start = len_at + 4;
        out.resize(start + snap::raw::max_compress_len(block.len()), 0);
        let (head, space) = out.split_at_mut(start);
        let n = encoder
            .compress(block, space)
            .map_err(|e| CODEC.damaged(e))?;
        if let Some(len) = head.get_mut(len_at..) {
            len.copy_from_slice(&(n as u32).to_be_bytes());
        }
        out.truncate(start + n);
    }
    Ok(())
}

pub(super) fn decompress(
    input: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    if !input.starts_with(MAGIC) {
        return block(input, limit, out);
    }
    let mut left = limit;
    let mut r = Reader::new(input);
    while r.remaining() > 0 {
        // A stream that was flushed and reopened carries its header again.
        if r.rest().starts_with(MAGIC) {
            r.raw(MAGIC.len() + 4).map_err(|e| CODEC.damaged(e))?;
            let least = r.i32().map_err(|e| CODEC.damaged(e))?;
            if least > VERSION {
                return Err(CODEC.damaged(format!("framing version {least} is not known")));
            }
            continue;
        }
        let compressed = r.bytes().map_err(|e| CODEC.damaged(e))?;
        let before = out.len();
        block(compressed, left, out).map_err(|e| match e {
            CompressionError::TooLarge { codec, .. } => CompressionError::TooLarge { codec, limit },
            damaged => damaged,
        })?;
        left = left.saturating_sub(out.len() - before);
    }
    Ok(())
}

/// One raw block; its first bytes announce its size.
fn block(input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let size = snap::raw::decompress_len(input).map_err(|e| CODEC.damaged(e))?;
    if size > input.len().saturating_mul(MAX_EXPANSION) {
        return Err(CODEC.damaged("it announces more bytes than it can hold"));
    }
    if size > limit {
        return Err(CompressionError::TooLarge {
            codec: CODEC,
            limit,
        });
    }
    if input.is_empty() {
        return Err(CODEC.damaged("it is empty"));
    }
    let start = out.len();
    out.resize(start + size, 0);
    let space = out.get_mut(start..).unwrap_or_default();
    snap::raw::Decoder::new()
        .decompress(input, space)
        .map_err(|e| CODEC.damaged(e))?;
    Ok(())
}
