use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::TopicId;

/// What `write` writes.
fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    write(&mut w);
    w.finish().unwrap();
    out
}

#[test]
fn numbers_are_big_endian() {
    let out = written(|w| {
        w.i8(-1);
        w.u8(254);
        w.i16(-2);
        w.u16(0xfedc);
        w.i32(-3);
        w.u32(0xfedc_ba98);
        w.i64(-4);
        w.f64(1.5);
        w.bool(true);
        w.bool(false);
        w.uuid(TopicId::METADATA);
    });
    assert_eq!(out[..6], [0xff, 0xfe, 0xff, 0xfe, 0xfe, 0xdc]);
    let mut r = Reader::new(&out);
    assert_eq!(r.i8(), Ok(-1));
    assert_eq!(r.u8(), Ok(254));
    assert_eq!(r.i16(), Ok(-2));
    assert_eq!(r.u16(), Ok(0xfedc));
    assert_eq!(r.i32(), Ok(-3));
    assert_eq!(r.u32(), Ok(0xfedc_ba98));
    assert_eq!(r.i64(), Ok(-4));
    assert_eq!(r.f64(), Ok(1.5));
    assert_eq!(r.bool(), Ok(true));
    assert_eq!(r.bool(), Ok(false));
    assert_eq!(r.uuid(), Ok(TopicId::METADATA));
    assert_eq!((r.remaining(), r.position()), (0, out.len()));
    assert_eq!(
        r.i16(),
        Err(DecodeError::Short {
            at: out.len(),
            needed: 2,
            have: 0
        })
    );
    assert_eq!(Reader::new(&[7]).bool(), Ok(true));
}

#[test]
fn varints_are_as_in_kafkas_own_tests() {
    for (value, bytes) in [
        (0, &[0][..]),
        (-1, &[1]),
        (1, &[2]),
        (63, &[0x7e]),
        (-64, &[0x7f]),
        (64, &[0x80, 0x01]),
        (8191, &[0xfe, 0x7f]),
        (-8193, &[0x81, 0x80, 0x01]),
        (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        assert_eq!(written(|w| w.varint(value)), bytes);
        assert_eq!(Reader::new(bytes).varint(), Ok(value));
        assert_eq!(varint_size(value), bytes.len());
        assert_eq!(written(|w| w.varlong(value.into())), bytes);
        assert_eq!(Reader::new(bytes).varlong(), Ok(value.into()));
    }
    let least = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(written(|w| w.varlong(i64::MIN)), least);
    assert_eq!(Reader::new(&least).varlong(), Ok(i64::MIN));
    assert_eq!(varlong_size(i64::MIN), 10);
}

#[test]
fn varints_past_their_type_or_cut_off_are_errors() {
    let past = DecodeError::Varint { at: 0, bits: 32 };
    for bytes in [
        &[0xff, 0xff, 0xff, 0xff, 0x10][..],
        &[0xff, 0xff, 0xff, 0xff, 0x8f],
        &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
    ] {
        assert_eq!(Reader::new(bytes).unsigned_varint(), Err(past));
        assert_eq!(Reader::new(bytes).varint(), Err(past));
    }
    let past = DecodeError::Varint { at: 0, bits: 64 };
    assert_eq!(Reader::new(&[0xff; 20]).varlong(), Err(past));
    let mut bytes = [0xff; 10];
    bytes[9] = 0x02;
    assert_eq!(Reader::new(&bytes).varlong(), Err(past));

    for cut in 0..5 {
        let err = Reader::new(&[0xff; 5][..cut]).unsigned_varint();
        let needed = cut + 1;
        assert_eq!(
            err,
            Err(DecodeError::Short {
                at: 0,
                needed,
                have: cut
            })
        );
    }
}

#[test]
fn null_and_empty_differ_in_every_form() {
    let out = written(|w| {
        w.nullable_string(None);
        w.nullable_string(Some(""));
        w.compact_nullable_string(None);
        w.compact_nullable_string(Some(""));
        w.nullable_bytes(None);
        w.nullable_bytes(Some(b""));
        w.compact_nullable_bytes(None);
        w.compact_nullable_bytes(Some(b""));
        w.nullable_array_len(None);
        w.nullable_array_len(Some(0));
        w.compact_nullable_array_len(None);
        w.compact_nullable_array_len(Some(0));
    });
    let mut r = Reader::new(&out);
    assert_eq!(r.nullable_string(), Ok(None));
    assert_eq!(r.nullable_string(), Ok(Some("")));
    assert_eq!(r.compact_nullable_string(), Ok(None));
    assert_eq!(r.compact_nullable_string(), Ok(Some("")));
    assert_eq!(r.nullable_bytes(), Ok(None));
    assert_eq!(r.nullable_bytes(), Ok(Some(&[][..])));
    assert_eq!(r.compact_nullable_shared_bytes(), Ok(None));
    assert_eq!(r.compact_nullable_shared_bytes(), Ok(Some(Bytes::new())));
    assert_eq!(r.nullable_array_len(1), Ok(None));
    assert_eq!(r.nullable_array_len(1), Ok(Some(0)));
    assert_eq!(r.compact_nullable_array_len(1), Ok(None));
    assert_eq!(r.compact_nullable_array_len(1), Ok(Some(0)));
    assert_eq!(r.remaining(), 0);
}

#[test]
fn null_is_refused_where_there_is_none() {
    let null = |what| DecodeError::Null { at: 0, what };
    assert_eq!(Reader::new(&[0xff, 0xff]).string(), Err(null("string")));
    assert_eq!(Reader::new(&[0]).compact_string(), Err(null("string")));
    assert_eq!(Reader::new(&[0xff; 4]).bytes(), Err(null("byte field")));
    assert_eq!(
        Reader::new(&[0]).compact_shared_bytes(),
        Err(null("byte field"))
    );
    assert_eq!(Reader::new(&[0xff; 4]).array_len(1), Err(null("array")));
    assert_eq!(Reader::new(&[0]).compact_array_len(1), Err(null("array")));
}

#[test]
fn lengths_below_null_or_past_the_end_are_errors() {
    assert_eq!(
        Reader::new(&[0xff, 0xfe, 0, 0]).nullable_string(),
        Err(DecodeError::NegativeLength {
            at: 0,
            what: "string",
            value: -2
        })
    );
    assert_eq!(
        Reader::new(&[0x80, 0, 0, 0]).nullable_bytes(),
        Err(DecodeError::NegativeLength {
            at: 0,
            what: "byte field",
            value: i32::MIN.into()
        })
    );
    assert_eq!(
        Reader::new(&[0, 3, b'a', b'b']).string(),
        Err(DecodeError::TooLong {
            at: 0,
            what: "string",
            value: 3,
            have: 2
        })
    );
    assert_eq!(
        Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1]).compact_bytes(),
        Err(DecodeError::TooLong {
            at: 0,
            what: "byte field",
            value: u64::from(u32::MAX) - 1,
            have: 1
        })
    );
}

#[test]
fn an_array_that_the_bytes_cannot_hold_is_refused_before_it_is_read() {
    // 2³¹−1 and 2³²−1, as an attacker sends them.
    for bytes in [
        &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3][..],
        &[0, 0, 0, 4, 1, 2, 3],
    ] {
        assert!(matches!(
            Reader::new(bytes).array_len(1),
            Err(DecodeError::TooLong { .. })
        ));
    }
    assert!(matches!(
        Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1]).compact_array_len(0),
        Err(DecodeError::TooLong { .. })
    ));
    assert_eq!(Reader::new(&[0, 0, 0, 3, 1, 2, 3]).array_len(1), Ok(3));
    assert!(Reader::new(&[0, 0, 0, 3, 1, 2, 3]).array_len(2).is_err());

    let mut bytes = vec![0; 4 + MAX_ARRAY_LEN + 1];
    bytes[..4].copy_from_slice(&(MAX_ARRAY_LEN as i32).to_be_bytes());
    assert_eq!(Reader::new(&bytes).array_len(1), Ok(MAX_ARRAY_LEN));
    bytes[..4].copy_from_slice(&(MAX_ARRAY_LEN as i32 + 1).to_be_bytes());
    assert_eq!(
        Reader::new(&bytes).array_len(1),
        Err(DecodeError::TooMany {
            at: 0,
            what: "array",
            count: MAX_ARRAY_LEN as u64 + 1,
            max: MAX_ARRAY_LEN
        })
    );
}

#[test]
fn strings_must_be_utf8_and_at_most_32767_bytes() {
    assert_eq!(
        Reader::new(&[0, 2, 0xc3, 0x28]).string(),
        Err(DecodeError::Utf8 { at: 2 })
    );
    let mut w_out = Vec::new();
    let mut w = Writer::new(&mut w_out);
    w.compact_bytes(&vec![b'a'; MAX_STRING_LEN + 1]);
    w.finish().unwrap();
    assert!(matches!(
        Reader::new(&w_out).compact_string(),
        Err(DecodeError::TooMany { what: "string", .. })
    ));
}

#[test]
fn what_cannot_be_written_is_told_at_the_end_and_leaves_nothing() {
    let long = "a".repeat(MAX_STRING_LEN + 1);
    let mut out = b"before".to_vec();
    let mut w = Writer::new(&mut out);
    w.i32(1);
    w.string(&long);
    w.compact_string(&long);
    assert_eq!(
        w.finish(),
        Err(EncodeError::TooLong {
            what: "string",
            len: MAX_STRING_LEN + 1,
            max: MAX_STRING_LEN
        })
    );
    assert_eq!(out, b"before");
}

#[test]
fn shared_fields_are_slices_of_their_parent() {
    let out = Bytes::from(written(|w| {
        w.bytes(b"abc");
        w.compact_bytes(b"def");
        w.tagged_fields_len(1);
        w.tagged_field(9, |w| w.bytes(b"ghi"));
    }));
    let mut r = Reader::shared(&out);
    let abc = r.shared_bytes().unwrap();
    let def = r.compact_shared_bytes().unwrap();
    let mut ghi = Bytes::new();
    r.tagged_fields(|_, r| {
        ghi = r.shared_bytes()?;
        Ok(true)
    })
    .unwrap();
    let range = out.as_ptr_range();
    for (slice, want) in [(abc, b"abc"), (def, b"def"), (ghi, b"ghi")] {
        assert_eq!(slice, want[..]);
        assert!(range.contains(&slice.as_ptr()));
    }
}

#[test]
fn known_tags_are_read_and_unknown_ones_kept_or_skipped() {
    let out = written(|w| {
        w.tagged_fields_len(3);
        w.tagged_field(0, |w| w.i32(5));
        w.tagged_field(3, |w| w.raw(&[7; 300]));
        w.tagged_field(1000, |_| ());
        w.i8(42);
    });
    let mut r = Reader::new(&out);
    let mut unknown = Vec::new();
    let mut five = 0;
    r.tagged_fields_keeping(&mut unknown, |tag, r| {
        if tag == 0 {
            five = r.i32()?;
        }
        Ok(tag == 0)
    })
    .unwrap();
    assert_eq!(five, 5);
    assert_eq!(r.i8(), Ok(42));
    let again = written(|w| {
        w.tagged_fields_len(1 + unknown.len());
        w.tagged_field(0, |w| w.i32(5));
        unknown.iter().for_each(|f| w.raw_tagged_field(f));
        w.i8(42);
    });
    assert_eq!(again, out);

    let mut r = Reader::new(&out);
    r.skip_tagged_fields().unwrap();
    assert_eq!(r.i8(), Ok(42));
}

#[test]
fn tags_must_ascend_and_be_read_to_their_end() {
    for bytes in [&[2, 5, 0, 5, 0][..], &[2, 5, 0, 4, 0]] {
        assert!(matches!(
            Reader::new(bytes).skip_tagged_fields(),
            Err(DecodeError::TagOrder { previous: 5, .. })
        ));
    }
    assert_eq!(
        Reader::new(&[1, 0, 3, 1, 2, 3]).tagged_fields(|_, r| r.i16().map(|_| true)),
        Err(DecodeError::TagSize {
            at: 6,
            tag: 0,
            left: 1
        })
    );
    // A field can't read on into what follows it.
    assert!(matches!(
        Reader::new(&[1, 0, 1, 1, 2, 3]).tagged_fields(|_, r| r.i16().map(|_| true)),
        Err(DecodeError::Short { .. })
    ));
    assert!(matches!(
        Reader::new(&[1, 0, 9, 1]).skip_tagged_fields(),
        Err(DecodeError::TooLong { .. })
    ));
    assert!(matches!(
        Reader::new(&[0xff, 0xff, 0x03, 0, 0]).skip_tagged_fields(),
        Err(DecodeError::TooLong { .. })
    ));
}

#[test]
fn a_length_can_be_set_when_it_is_known() {
    let mut out = BytesMut::from(&b"x"[..]);
    let mut w = Writer::new(&mut out);
    w.i32(0);
    w.string("abc");
    w.set_i32(0, 5);
    assert_eq!(w.finish(), Ok(9));
    assert_eq!(&out[..], b"x\0\0\0\x05\0\x03abc");
}

proptest! {
    #[test]
    fn varints_read_back_and_have_their_announced_size(v in any::<i64>(), shift in 0..64) {
        let v = v >> shift;
        let out = written(|w| w.varlong(v));
        prop_assert_eq!(out.len(), varlong_size(v));
        prop_assert_eq!(Reader::new(&out).varlong(), Ok(v));
        let v = v as i32;
        let out = written(|w| w.varint(v));
        prop_assert_eq!(out.len(), varint_size(v));
        prop_assert_eq!(Reader::new(&out).varint(), Ok(v));
        let v = v as u32;
        let out = written(|w| w.unsigned_varint(v));
        prop_assert_eq!(out.len(), unsigned_varint_size(v));
        prop_assert_eq!(Reader::new(&out).unsigned_varint(), Ok(v));
    }

    #[test]
    fn strings_and_bytes_read_back(s in proptest::option::of(".{0,200}"), b in proptest::collection::vec(any::<u8>(), 0..300)) {
        let out = written(|w| {
            w.nullable_string(s.as_deref());
            w.compact_nullable_string(s.as_deref());
            w.bytes(&b);
            w.compact_bytes(&b);
        });
        let mut r = Reader::new(&out);
        prop_assert_eq!(r.nullable_string(), Ok(s.as_deref()));
        prop_assert_eq!(r.compact_nullable_string(), Ok(s.as_deref()));
        prop_assert_eq!(r.bytes(), Ok(&b[..]));
        prop_assert_eq!(r.compact_bytes(), Ok(&b[..]));
        prop_assert_eq!(r.remaining(), 0);
    }

    #[test]
    fn hostile_bytes_give_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), calls in proptest::collection::vec(0..22_u8, 1..20)) {
        let shared = Bytes::from(bytes);
        let mut r = Reader::shared(&shared);
        for call in calls {
            let ok = match call {
                0 => r.i8().is_ok(),
                1 => r.i16().is_ok(),
                2 => r.i32().is_ok(),
                3 => r.i64().is_ok(),
                4 => r.uuid().is_ok(),
                5 => r.unsigned_varint().is_ok(),
                6 => r.varint().is_ok(),
                7 => r.varlong().is_ok(),
                8 => r.string().is_ok(),
                9 => r.nullable_string().is_ok(),
                10 => r.compact_string().is_ok(),
                11 => r.compact_nullable_string().is_ok(),
                12 => r.nullable_bytes().is_ok(),
                13 => r.compact_nullable_bytes().is_ok(),
                14 => r.nullable_shared_bytes().is_ok(),
                15 => r.compact_nullable_shared_bytes().is_ok(),
                16 => r.nullable_array_len(3).is_ok_and(|n| n.is_none_or(|n| n * 3 <= r.remaining())),
                17 => r.compact_nullable_array_len(0).is_ok_and(|n| n.is_none_or(|n| n <= r.remaining())),
                18 => r.skip_tagged_fields().is_ok(),
                19 => r.tagged_fields(|_, r| r.i32().map(|_| true)).is_ok(),
                20 => r.tagged_fields_keeping(&mut Vec::new(), |tag, _| Ok(tag & 1 == 0)).is_ok(),
                _ => r.sub(2).is_ok_and(|mut r| r.i32().is_err()),
            };
            prop_assert_eq!(r.position() + r.remaining(), shared.len());
            if !ok {
                break;
            }
        }
    }
}
