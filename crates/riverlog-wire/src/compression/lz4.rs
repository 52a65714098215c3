//! LZ4 frames. Written as Kafka's Java client writes them: independent blocks of 64 KiB, no checksums beyond the
//! header's. Read with any block size, linked blocks, content size, block and content checksums; no
//! dictionaries, no legacy frames, one frame only.

use std::io::{BufRead, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::{Compression, CompressionError, likely_size};

const CODEC: Compression = Compression::Lz4;
const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .block_mode(BlockMode::Independent);
    let mut frame = FrameEncoder::with_frame_info(info, &mut *out);
    frame.write_all(input).map_err(|e| CODEC.damaged(e))?;
    frame.finish().map_err(|e| CODEC.damaged(e))?;
    Ok(())
}

/// In the frame's flags: no block leans on the one before.
const INDEPENDENT: u8 = 1 << 5;

/// Whether every block of a frame stands alone, by its flags. Kafka's own clients can't read others.
pub(super) fn is_independent(frame: &[u8]) -> bool {
    let flags = frame.strip_prefix(&MAGIC).and_then(|rest| rest.first());
    flags.is_some_and(|flags| flags & INDEPENDENT != 0)
}

pub(super) fn decompress(
    input: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    if !input.starts_with(&MAGIC) {
        return Err(CODEC.damaged("it does not begin with the LZ4 frame magic"));
    }
    let start = out.len();
    out.reserve(likely_size(input, limit));
    // The decoder's own buffers are bounded by the largest block that the format has, 4 MiB.
    let mut frame = FrameDecoder::new(input);
    loop {
        let piece = frame.fill_buf().map_err(|e| CODEC.damaged(e))?;
        if piece.is_empty() {
            break;
        }
        if piece.len() > limit - (out.len() - start) {
            return Err(CompressionError::TooLarge {
                codec: CODEC,
                limit,
            });
        }
        out.extend_from_slice(piece);
        let n = piece.len();
        frame.consume(n);
    }
    let rest = frame.into_inner();
    if !rest.is_empty() {
        return Err(CODEC.damaged(format!("{} bytes follow the frame", rest.len())));
    }
    // The decoder takes a frame that was cut off between two blocks for a whole one.
    if !ends_with_end_mark(input) {
        return Err(CODEC.damaged("the frame was cut off"));
    }
    Ok(())
}

/// The end mark is four zero bytes; the content checksum, if the header says that there is one, follows it.
fn ends_with_end_mark(frame: &[u8]) -> bool {
    const CONTENT_CHECKSUM: u8 = 0x04;
    let has_checksum = frame
        .get(4)
        .is_some_and(|flags| flags & CONTENT_CHECKSUM != 0);
    let trailer = if has_checksum { 4 } else { 0 };
    frame
        .len()
        .checked_sub(trailer)
        .and_then(|end| frame.get(..end))
        .is_some_and(|body| body.ends_with(&[0; 4]))
}
