use super::super::tests::{built, plain, raw, three, with};
use super::super::{HEADER_LEN, header, set_base_offset};
use super::*;
use crate::compression::Compression;

#[test]
fn a_producers_batch_must_keep_the_rules() {
    let good = built(Compression::Lz4, &[plain(1, "a", "b"), plain(2, "c", "d")]);
    assert_eq!(validate_produce(&good).unwrap().bytes, good);
    let refused = |bytes: Vec<u8>| validate_produce(&bytes).unwrap_err();

    assert_eq!(refused(Vec::new()), ProduceError::Empty);
    let extra = good.len();
    assert_eq!(
        refused([&good[..], &good].concat()),
        ProduceError::MoreThanOne { extra }
    );
    assert_eq!(
        refused([&good[..], &[0]].concat()),
        ProduceError::MoreThanOne { extra: 1 }
    );
    assert!(matches!(
        refused(good[..good.len() - 1].to_vec()),
        ProduceError::Batch(BatchError::Short { .. })
    ));
    for magic in [0, 1, 3, -1] {
        let mut old = good.clone();
        old[header::MAGIC] = magic as u8;
        assert_eq!(refused(old), BatchError::Magic(magic).into());
    }
    let mut shifted = good.clone();
    set_base_offset(&mut shifted, Offset(55));
    assert_eq!(refused(shifted), ProduceError::BaseOffset(Offset(55)));

    for (at, value) in [
        (header::RECORD_COUNT, 3),
        (header::LAST_OFFSET_DELTA, 2),
        (header::RECORD_COUNT, 0),
        (header::LAST_OFFSET_DELTA, i32::MAX),
    ] {
        let bad = with(good.clone(), at, i32::to_be_bytes(value));
        assert!(matches!(refused(bad), ProduceError::Count { .. }));
    }
    let empty = raw(0, 0, &[]);
    assert!(matches!(refused(empty), ProduceError::Count { .. }));
    let control = with(good.clone(), header::ATTRIBUTES, [0, 0x23]);
    assert_eq!(refused(control), ProduceError::Control);
    let codec = with(good.clone(), header::ATTRIBUTES, [0, 0x05]);
    assert_eq!(refused(codec), ProduceError::Codec(5));
    let transactional = with(good.clone(), header::ATTRIBUTES, [0, 0x13]);
    assert!(matches!(
        refused(transactional),
        ProduceError::Producer { .. }
    ));
    let unnumbered = with(good.clone(), header::PRODUCER_ID, 9_i64.to_be_bytes());
    assert!(matches!(refused(unnumbered), ProduceError::Producer { .. }));
}

#[test]
fn a_batch_has_no_more_records_than_its_bytes_can_hold() {
    let claims = |bytes: Vec<u8>, count: i32| {
        let bytes = with(bytes, header::RECORD_COUNT, count.to_be_bytes());
        let delta = count.saturating_sub(1).to_be_bytes();
        with(bytes, header::LAST_OFFSET_DELTA, delta)
    };
    let most = i32::MAX;
    assert_eq!(
        validate_produce(&claims(raw(0, 0, &[]), most)).unwrap_err(),
        ProduceError::Overstated {
            record_count: most,
            bytes: 0
        }
    );
    // Records are seven bytes at least, and these are.
    let mut smallest = super::super::BatchBuilder::new(Compression::None);
    for _ in 0..3 {
        smallest.push(1, None, None, &[]);
    }
    let smallest = smallest.build();
    assert_eq!(smallest.len(), HEADER_LEN + 3 * MIN_RECORD_LEN);
    validate_produce(&smallest).unwrap();
    assert_eq!(
        validate_produce(&claims(smallest, 4)).unwrap_err(),
        ProduceError::Overstated {
            record_count: 4,
            bytes: 21
        }
    );
    // How many are in compressed bytes, only opening them would show.
    validate_produce(&claims(three(Compression::Gzip), 1_000)).unwrap();
}

#[test]
fn damage_on_the_way_is_told_from_a_batch_made_wrong() {
    // A sign bit flipped in the count: both the CRC and the count are wrong, and sending again helps.
    let mut flipped = three(Compression::None);
    flipped[header::RECORD_COUNT] ^= 0x80;
    assert!(matches!(
        validate_produce(&flipped),
        Err(ProduceError::Batch(BatchError::Crc { .. }))
    ));
    header::set_crc(&mut flipped);
    assert!(matches!(
        validate_produce(&flipped),
        Err(ProduceError::Batch(BatchError::Field { .. }))
    ));
}
