//! Zstandard, one frame or several.
//!
//! Decompressed in one step into `out`, so that no window is allocated: a frame may announce one of 128 MiB
//! and hold ten bytes.

use std::io::Cursor;

use zstd::zstd_safe;

use super::{Compression, CompressionError, likely_size};

const CODEC: Compression = Compression::Zstd;

/// Kafka's default.
const LEVEL: i32 = 3;

/// How zstd names the one error that a larger buffer mends.
const TOO_SMALL: &str = "Destination buffer is too small";

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let start = out.len();
    out.reserve(zstd_safe::compress_bound(input.len()));
    let mut space = Cursor::new(out);
    space.set_position(start as u64);
    zstd_safe::compress(&mut space, input, LEVEL)
        .map_err(|code| CODEC.damaged(zstd_safe::get_error_name(code)))?;
    Ok(())
}

pub(super) fn decompress(
    input: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let start = out.len();
    let too_large = CompressionError::TooLarge {
        codec: CODEC,
        limit,
    };
    if input.is_empty() {
        return Err(CODEC.damaged("it is empty"));
    }
    // Announced sizes only shorten the way: to a refusal, or to a reservation that the input's own size
    // already allows.
    let announced = zstd_safe::get_frame_content_size(input).ok().flatten();
    let mut room = likely_size(input, limit).max(LEAST_ROOM.min(limit));
    if let Some(size) = announced {
        if size > limit as u64 {
            return Err(too_large);
        }
        room = (size as usize)
            .min(input.len().saturating_mul(32))
            .max(room);
    }
    let mut context =
        zstd_safe::DCtx::try_create().ok_or_else(|| CODEC.damaged("no memory for the decoder"))?;
    loop {
        // A slice of exactly `room` bytes: a Vec's spare capacity could take more than the limit.
        out.resize(start + room, 0);
        let space = out.get_mut(start..).unwrap_or_default();
        match context.decompress(space, input) {
            Ok(n) => {
                out.truncate(start + n);
                return Ok(());
            }
            Err(code) => {
                let reason = zstd_safe::get_error_name(code);
                if reason != TOO_SMALL {
                    return Err(CODEC.damaged(reason));
                }
                if room >= limit {
                    return Err(too_large);
                }
                room = room.saturating_mul(4).min(limit);
            }
        }
    }
}

/// Not worth a second attempt for less.
const LEAST_ROOM: usize = 16 * 1024;
