use proptest::prelude::*;

use super::*;

const PLENTY: usize = 64 << 20;

fn packed(codec: Compression, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec, input, &mut out).unwrap();
    out
}

fn unpacked(codec: Compression, input: &[u8], limit: usize) -> Result<Vec<u8>, CompressionError> {
    // Something lies in `out` already and must stay.
    let mut out = b"before".to_vec();
    let done = decompress(codec, input, limit, &mut out);
    assert!(out.starts_with(b"before"));
    let appended = out.split_off(6);
    match done {
        Ok(()) => {
            assert!(appended.len() <= limit);
            Ok(appended)
        }
        Err(e) => {
            assert!(appended.is_empty());
            Err(e)
        }
    }
}

/// Text that compresses somewhat, like records do.
fn text(len: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|i| {
            format!("record {} of {}; ", i.wrapping_mul(2_654_435_761), i % 7).into_bytes()
        })
        .take(len)
        .collect()
}

#[test]
fn names_and_numbers_are_kafkas() {
    for (bits, name) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().enumerate() {
        let codec = Compression::from_bits(bits as i16 | 0x38).unwrap();
        assert_eq!(codec.bits(), bits as i16);
        assert_eq!(codec.name(), *name);
        assert_eq!(Compression::from_name(name), Some(codec));
    }
    for bits in 5..8 {
        assert_eq!(Compression::from_bits(bits), None);
    }
    assert_eq!(Compression::from_bits(-1), None);
    assert_eq!(Compression::from_name("lzma"), None);
}

#[test]
fn every_codec_gives_back_what_it_got() {
    for codec in Compression::ALL {
        for len in [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 300_000] {
            let input = text(len);
            let packed = packed(codec, &input);
            assert_eq!(unpacked(codec, &packed, len), Ok(input), "{codec:?} {len}");
        }
    }
}

#[test]
fn one_byte_over_the_limit_is_refused() {
    for codec in Compression::ALL {
        for len in [1, 1000, 64 * 1024, 200_000] {
            let packed = packed(codec, &text(len));
            let limit = len - 1;
            assert_eq!(
                unpacked(codec, &packed, limit),
                Err(CompressionError::TooLarge { codec, limit }),
            );
        }
    }
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let zeros = vec![0; 50 << 20];
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let bomb = packed(codec, &zeros);
        let limit = 1 << 20;
        let mut out = Vec::new();
        assert_eq!(
            decompress(codec, &bomb, limit, &mut out),
            Err(CompressionError::TooLarge { codec, limit }),
        );
        assert!(out.capacity() <= 4 * limit, "{codec:?}: {}", out.capacity());
    }
}

/// A zstd frame by a streaming encoder: it announces no content size.
fn zstd_stream(input: &[u8]) -> Vec<u8> {
    ::zstd::stream::encode_all(input, 3).unwrap()
}

#[test]
fn zstd_frames_without_a_size_and_several_of_them_are_read() {
    let zeros = vec![0; 3_000_000];
    let frame = zstd_stream(&zeros);
    assert!(frame.len() < 1000, "the first guess must be too small");
    assert_eq!(unpacked(Compression::Zstd, &frame, PLENTY), Ok(zeros));
    let mut two = zstd_stream(b"abc");
    two.extend(packed(Compression::Zstd, b"def"));
    assert_eq!(
        unpacked(Compression::Zstd, &two, PLENTY),
        Ok(b"abcdef".to_vec())
    );
    assert_eq!(
        unpacked(Compression::Zstd, &two, 5),
        Err(CompressionError::TooLarge {
            codec: Compression::Zstd,
            limit: 5
        })
    );
}

#[test]
fn an_announced_size_reserves_nothing() {
    // Raw snappy that announces 4 GiB − 1 in five bytes, and xerial framing around it.
    let raw = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x06".to_vec();
    framed.extend(raw);
    // A zstd frame with a content size of 1 GiB and no blocks.
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40];
    for (codec, bytes) in [
        (Compression::Snappy, &raw[..]),
        (Compression::Snappy, &framed),
        (Compression::Zstd, &zstd),
    ] {
        let mut out = Vec::new();
        let err = decompress(codec, bytes, usize::MAX, &mut out).unwrap_err();
        assert!(
            matches!(err, CompressionError::Damaged { .. }),
            "{codec:?} {err}"
        );
        assert!(out.capacity() <= 64 * 1024, "{codec:?} {}", out.capacity());
    }
}

#[test]
fn gzip_with_several_members_is_read() {
    let mut two = packed(Compression::Gzip, b"abc");
    two.extend(packed(Compression::Gzip, b""));
    two.extend(packed(Compression::Gzip, b"def"));
    assert_eq!(unpacked(Compression::Gzip, &two, 6), Ok(b"abcdef".to_vec()));
}

#[test]
fn snappy_is_read_raw_framed_and_reframed() {
    let input = text(1000);
    let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
    assert_eq!(unpacked(Compression::Snappy, &raw, 1000), Ok(input.clone()));

    let mut twice = packed(Compression::Snappy, &input);
    twice.extend(packed(Compression::Snappy, &input));
    assert_eq!(
        unpacked(Compression::Snappy, &twice, 2000),
        Ok([&input[..], &input].concat())
    );

    let mut newer = packed(Compression::Snappy, &input);
    newer[15] = 2;
    assert!(unpacked(Compression::Snappy, &newer, 2000).is_err());
}

#[test]
fn lz4_frames_of_other_writers_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let input = text(700_000);
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            let info = FrameInfo::new()
                .block_mode(mode)
                .block_size(size)
                .block_checksums(true)
                .content_checksum(true)
                .content_size(Some(input.len() as u64));
            let mut frame = FrameEncoder::with_frame_info(info, Vec::new());
            frame.write_all(&input).unwrap();
            let mut frame = frame.finish().unwrap();
            assert_eq!(
                unpacked(Compression::Lz4, &frame, input.len()),
                Ok(input.clone())
            );
            frame.push(0);
            assert!(unpacked(Compression::Lz4, &frame, input.len()).is_err());
            // Cut off right before the end mark and the content checksum.
            frame.truncate(frame.len() - 9);
            assert!(unpacked(Compression::Lz4, &frame, input.len()).is_err());
        }
    }
}

#[test]
fn our_lz4_frames_have_kafkas_header() {
    // Version 1, independent blocks, no checksums; blocks of 64 KiB; header checksum.
    assert_eq!(
        packed(Compression::Lz4, b"abc")[..7],
        [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]
    );
}

#[test]
fn empty_input_is_no_compressed_data() {
    for codec in Compression::ALL {
        let empty = unpacked(codec, b"", 10);
        assert_eq!(empty.is_ok(), codec == Compression::None, "{codec:?}");
    }
}

proptest! {
    #[test]
    fn damaged_data_gives_bytes_within_the_limit_or_an_error(
        codec in 1..5_i16,
        len in 0..5000_usize,
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<proptest::sample::Index>(),
        limit in 0..6000_usize,
    ) {
        let codec = Compression::from_bits(codec).unwrap();
        let mut bytes = packed(codec, &text(len));
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = unpacked(codec, &bytes, limit);
        bytes.truncate(cut.index(bytes.len()));
        let _ = unpacked(codec, &bytes, limit);
    }

    #[test]
    fn arbitrary_bytes_give_bytes_within_the_limit_or_an_error(
        codec in 1..5_i16,
        prefix in 0..5_usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let codec = Compression::from_bits(codec).unwrap();
        let magic: &[u8] = match prefix {
            0 => b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
            1 => b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01",
            2 => b"\x04\x22\x4d\x18\x60\x40\x82",
            3 => b"\x28\xb5\x2f\xfd",
            _ => b"",
        };
        let _ = unpacked(codec, &[magic, &bytes].concat(), 10_000);
    }
}
