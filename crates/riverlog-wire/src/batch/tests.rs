use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::{ProducerEpoch, ProducerId, Sequence};

pub(super) const PLENTY: usize = 64 << 20;

type OwnedHeaders = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A record of its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: OwnedHeaders,
}

impl Owned {
    fn push(&self, builder: &mut BatchBuilder) {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(k, v)| (&k[..], v.as_deref()))
            .collect();
        let (key, value) = (self.key.as_deref(), self.value.as_deref());
        let size = builder.record_size(self.timestamp, key, value, &headers);
        let before = builder.size();
        builder.push(self.timestamp, key, value, &headers);
        assert_eq!(builder.size(), before + size);
    }

    fn of(view: &RecordView) -> Owned {
        assert_eq!(view.headers.len(), view.headers.iter().count());
        Owned {
            timestamp: view.timestamp,
            key: view.key.as_ref().map(|b| b.to_vec()),
            value: view.value.as_ref().map(|b| b.to_vec()),
            headers: view
                .headers
                .iter()
                .map(|(k, v)| (k.to_vec(), v.map(|v| v.to_vec())))
                .collect(),
        }
    }
}

pub(super) fn plain(timestamp: i64, key: &str, value: &str) -> Owned {
    Owned {
        timestamp,
        key: Some(key.into()),
        value: Some(value.into()),
        headers: Vec::new(),
    }
}

pub(super) fn built(codec: Compression, records: &[Owned]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    records.iter().for_each(|r| r.push(&mut builder));
    builder.build()
}

pub(super) fn three(codec: Compression) -> Vec<u8> {
    built(
        codec,
        &[
            plain(1000, "a", "first"),
            plain(1500, "b", "second"),
            plain(900, "a", "third"),
        ],
    )
}

/// Sets a field and the CRC anew.
pub(super) fn with<const N: usize>(mut batch: Vec<u8>, at: usize, field: [u8; N]) -> Vec<u8> {
    header::put(&mut batch, at, field);
    header::set_crc(&mut batch);
    batch
}

pub(super) fn read(batch: &[u8]) -> Result<Vec<RecordView>, BatchError> {
    let batch = Batch::parse(batch)?;
    batch.records(PLENTY)?.iter().collect()
}

pub(super) fn offsets(batch: &[u8]) -> Vec<i64> {
    read(batch).unwrap().iter().map(|r| r.offset.0).collect()
}

#[test]
fn a_batch_has_the_fields_it_was_built_with() {
    let mut builder = BatchBuilder::new(Compression::None);
    assert!(builder.is_empty());
    assert_eq!(builder.size(), HEADER_LEN);
    builder
        .producer(ProducerId(7), ProducerEpoch(2), Sequence(40))
        .transactional()
        .push(1000, None, Some(b"x"), &[])
        .push(3000, Some(b""), None, &[(b"h", None), (b"h", Some(b""))])
        .push(2000, Some(b"k"), Some(b""), &[]);
    assert_eq!(builder.len(), 3);
    let size = builder.size();
    let bytes = builder.build();
    assert_eq!(bytes.len(), size);

    let batch = Batch::parse(&bytes).unwrap();
    batch.check_crc().unwrap();
    let h = batch.header;
    assert_eq!(h.size(), bytes.len());
    assert_eq!((h.base_offset, h.last_offset()), (Offset(0), Offset(2)));
    assert_eq!(h.next_offset(), Offset(3));
    assert_eq!(h.leader_epoch, LeaderEpoch::NONE);
    assert_eq!((h.base_timestamp, h.max_timestamp), (1000, 3000));
    assert_eq!(
        (h.producer_id, h.producer_epoch),
        (ProducerId(7), ProducerEpoch(2))
    );
    assert_eq!(
        (h.base_sequence, h.last_sequence()),
        (Sequence(40), Sequence(42))
    );
    assert_eq!(h.record_count, 3);
    assert_eq!(h.attributes.compression(), Some(Compression::None));
    assert_eq!(h.attributes.timestamp_type(), TimestampType::CreateTime);
    assert!(h.attributes.is_transactional() && !h.attributes.is_control());

    let records = read(&bytes).unwrap();
    assert_eq!(
        (records[0].key.as_deref(), records[0].value.as_deref()),
        (None, Some(&b"x"[..]))
    );
    assert_eq!(
        (records[1].key.as_deref(), records[1].value.as_deref()),
        (Some(&b""[..]), None)
    );
    assert_eq!(records[1].headers.len(), 2);
    let headers: Vec<_> = records[1].headers.iter().collect();
    assert_eq!(
        headers,
        [("h".into(), None), ("h".into(), Some(Bytes::new()))]
    );
    assert_eq!(records[2].value.as_deref(), Some(&b""[..]));
    let timestamps: Vec<_> = records.iter().map(|r| r.timestamp).collect();
    assert_eq!(timestamps, [1000, 3000, 2000]);
}

#[test]
fn a_builder_can_be_used_again_and_counts_sequences_on() {
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new(codec);
        assert_eq!(builder.build(), b"");
        builder.producer(ProducerId(1), ProducerEpoch(0), Sequence(i32::MAX - 1));
        for (sequence, value) in [(i32::MAX - 1, b"one"), (1, b"two")] {
            for timestamp in [5, 6, 7] {
                builder.push(timestamp, None, Some(value), &[]);
            }
            let bytes = builder.build();
            let header = Batch::parse(&bytes).unwrap().header;
            assert_eq!(header.base_sequence, Sequence(sequence));
            assert_eq!(header.base_timestamp, 5);
            assert!(
                read(&bytes)
                    .unwrap()
                    .iter()
                    .all(|r| r.value.as_deref() == Some(value))
            );
            assert!(builder.is_empty());
        }
    }
}

#[test]
fn offset_epoch_and_append_time_are_patched_in_place() {
    let mut bytes = three(Compression::Zstd);
    set_base_offset(&mut bytes, Offset(1 << 40));
    set_leader_epoch(&mut bytes, LeaderEpoch(9));
    let batch = Batch::parse(&bytes).unwrap();
    batch.check_crc().unwrap();
    assert_eq!(batch.header.leader_epoch, LeaderEpoch(9));
    assert_eq!(offsets(&bytes), [1 << 40, (1 << 40) + 1, (1 << 40) + 2]);

    set_log_append_time(&mut bytes, 77_000);
    let batch = Batch::parse(&bytes).unwrap();
    batch.check_crc().unwrap();
    assert_eq!(
        batch.header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(
        batch.header.attributes.compression(),
        Some(Compression::Zstd)
    );
    assert_eq!(
        (batch.header.base_timestamp, batch.header.max_timestamp),
        (1000, 77_000)
    );
    assert!(read(&bytes).unwrap().iter().all(|r| r.timestamp == 77_000));
}

#[test]
fn batches_are_read_one_after_the_other_until_something_is_wrong() {
    let mut bytes = three(Compression::None);
    let one = bytes.len();
    bytes.extend(three(Compression::Gzip));
    let two = bytes.len();
    bytes.extend(three(Compression::Lz4));
    let sizes: Vec<_> = batches(&bytes).map(|b| b.unwrap().bytes.len()).collect();
    assert_eq!(sizes, [one, two - one, bytes.len() - two]);

    let cut: Vec<_> = batches(&bytes[..bytes.len() - 1]).collect();
    assert_eq!(cut.len(), 3);
    assert!(matches!(cut[2], Err(BatchError::Short { .. })));

    bytes[one + 16] = 1;
    let old: Vec<_> = batches(&bytes).collect();
    assert_eq!(old.len(), 2);
    assert!(matches!(old[1], Err(BatchError::Magic(1))));
    assert_eq!(batches(&[]).count(), 0);
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let bytes = three(Compression::None);
    for have in 0..HEADER_LEN {
        let needed = HEADER_LEN;
        let short = BatchError::Short { needed, have };
        assert_eq!(BatchHeader::parse(&bytes[..have]), Err(short));
    }
    assert!(BatchHeader::parse(&bytes[..HEADER_LEN]).is_ok());
    // An old, short message is told apart from a batch that was cut off.
    assert_eq!(BatchHeader::parse(&[0; 17]), Err(BatchError::Magic(0)));
    for (at, field, name, value) in [
        (header::BATCH_LENGTH, 48, "length", 48),
        (header::BATCH_LENGTH, -1, "length", -1),
        (header::BATCH_LENGTH, i32::MIN, "length", i32::MIN.into()),
        (header::LAST_OFFSET_DELTA, -1, "last offset delta", -1),
        (header::RECORD_COUNT, -1, "record count", -1),
    ] {
        let bad = with(bytes.clone(), at, i32::to_be_bytes(field));
        let err = Batch::parse(&bad).unwrap_err();
        assert_eq!(err, BatchError::Field { field: name, value });
    }
    let long = with(bytes.clone(), header::BATCH_LENGTH, i32::MAX.to_be_bytes());
    assert_eq!(
        Batch::parse(&long).unwrap_err(),
        BatchError::Short {
            needed: i32::MAX as usize + 12,
            have: bytes.len()
        }
    );
}

#[test]
fn one_flipped_bit_anywhere_under_the_crc_is_found() {
    let bytes = three(Compression::None);
    for at in header::CRC..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let batch = Batch::cut(BatchHeader::read(&bad).unwrap(), &bad).unwrap();
            assert!(
                matches!(batch.check_crc(), Err(BatchError::Crc { .. })),
                "{at} {bit}"
            );
        }
    }
}

#[test]
fn records_that_do_not_fit_their_header_are_refused() {
    let bytes = three(Compression::None);
    let count = |n: i32| with(bytes.clone(), header::RECORD_COUNT, n.to_be_bytes());
    let reason = |batch: &[u8]| match read(batch).unwrap_err() {
        BatchError::Record { index, reason } => (index, reason),
        other => panic!("{other}"),
    };
    assert_eq!(reason(&count(2)), (2, "bytes follow the last record"));
    assert_eq!(reason(&count(0)), (0, "bytes follow the last record"));
    assert_eq!(reason(&count(4)), (3, "a length in it goes beyond its end"));
    for n in [100, i32::MAX] {
        let value = n.into();
        let field = "record count";
        assert_eq!(
            read(&count(n)).unwrap_err(),
            BatchError::Field { field, value }
        );
    }
    let last = |n: i32| with(bytes.clone(), header::LAST_OFFSET_DELTA, n.to_be_bytes());
    assert_eq!(
        reason(&last(1)),
        (2, "its offset is above the batch's last offset")
    );
    // Gaps are legal: compaction leaves them.
    assert_eq!(offsets(&last(1000)), [0, 1, 2]);

    for codec in 5..8 {
        let bad = with(bytes.clone(), header::ATTRIBUTES, i16::to_be_bytes(codec));
        let err = read(&bad).unwrap_err();
        assert_eq!(
            err,
            BatchError::Field {
                field: "compression codec",
                value: codec.into()
            }
        );
    }
}

/// One batch of the given record bytes, count and last offset delta as told.
pub(super) fn raw(count: i32, last: i32, records: &[u8]) -> Vec<u8> {
    let bytes = [&three(Compression::None)[..HEADER_LEN], records].concat();
    let mut header = BatchHeader::parse(&bytes).unwrap();
    header.record_count = count;
    header.last_offset_delta = last;
    let mut bytes = bytes;
    header.seal(&mut bytes);
    bytes
}

#[test]
fn malformed_records_are_refused_with_their_reason() {
    // Length, attributes, timestamp delta, offset delta, key length, value length, headers.
    let good = raw(1, 0, &[12, 0, 0, 0, 1, 1, 0]);
    assert_eq!(offsets(&good), [0]);
    for (records, reason) in [
        (&[11, 0, 0, 0, 1, 1, 0][..], "its length is negative"),
        (
            &[14, 0, 0, 0, 1, 1, 0],
            "a length in it goes beyond its end",
        ),
        (
            &[14, 0, 0, 0, 1, 1, 0, 0],
            "its length is more than its fields take",
        ),
        (
            &[12, 0, 0, 1, 1, 1, 0],
            "its offset is not above that of the record before it",
        ),
        (
            &[12, 0, 0, 2, 1, 1, 0],
            "its offset is above the batch's last offset",
        ),
        (&[12, 0, 0, 0, 3, 1, 0], "a length in it is below -1"),
        (
            &[12, 0, 0, 0, 2, 1, 0],
            "a length in it goes beyond its end",
        ),
        (&[12, 0, 0, 0, 1, 3, 0], "a length in it is below -1"),
        (&[12, 0, 0, 0, 1, 1, 1], "its header count is negative"),
        (
            &[12, 0, 0, 0, 1, 1, 2],
            "its header count is more than its bytes can hold",
        ),
        (&[16, 0, 0, 0, 1, 1, 2, 1, 1], "a header's key is null"),
        (&[16, 0, 0, 0, 1, 1, 2, 0, 3], "a length in it is below -1"),
        (
            &[0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0],
            "a number in it is too large for its type",
        ),
    ] {
        let err = read(&raw(1, 0, records)).unwrap_err();
        assert_eq!(err, BatchError::Record { index: 0, reason }, "{records:?}");
    }
    let twice = raw(2, 1, &[12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 0, 1, 1, 0]);
    let reason = "its offset is not above that of the record before it";
    assert_eq!(
        read(&twice).unwrap_err(),
        BatchError::Record { index: 1, reason }
    );
}

#[test]
fn headers_are_equal_when_they_say_the_same() {
    // The header key's length 0 in one byte and, as no one ought to write it, in two.
    let short = raw(1, 0, &[16, 0, 0, 0, 1, 1, 2, 0, 1]);
    let long = raw(1, 0, &[18, 0, 0, 0, 1, 1, 2, 0x80, 0, 1]);
    let null = raw(1, 0, &[16, 0, 0, 0, 1, 1, 2, 0, 0]);
    assert_eq!(read(&short), read(&long));
    assert_ne!(read(&short), read(&null));
}

#[test]
fn an_error_ends_the_iteration() {
    let bad = raw(2, 1, &[12, 0, 0, 0, 1, 1, 0, 11, 0, 0, 2, 1, 1, 0]);
    let records = Batch::parse(&bad).unwrap().records(PLENTY).unwrap();
    let items: Vec<_> = records.iter().map(|r| r.is_ok()).collect();
    assert_eq!(items, [true, false]);
    let items: Vec<_> = records.into_iter().map(|r| r.is_ok()).collect();
    assert_eq!(items, [true, false]);
}

#[test]
fn records_expand_to_the_limit_and_no_further() {
    let value = "x".repeat(100_000);
    for codec in Compression::ALL {
        let bytes = built(codec, &[plain(0, "k", &value)]);
        let batch = Batch::parse(&bytes).unwrap();
        let size = batch.records(PLENTY).unwrap().size();
        assert!(size > 100_000);
        assert!(batch.records(size).is_ok());
        let too_large = CompressionError::TooLarge {
            codec,
            limit: size - 1,
        };
        assert_eq!(
            batch.records(size - 1).unwrap_err(),
            too_large.clone().into()
        );
        let err = Records::shared(&bytes.clone().into(), size - 1).unwrap_err();
        assert_eq!(err, too_large.into());
    }
}

#[test]
fn shared_records_are_slices_of_the_batch() {
    let bytes = Bytes::from([three(Compression::None), three(Compression::Snappy)].concat());
    let records = Records::shared(&bytes, PLENTY).unwrap();
    let range = bytes.as_ptr_range();
    for record in records.iter() {
        assert!(range.contains(&record.unwrap().value.unwrap().as_ptr()));
    }
    let copied = Batch::parse(&bytes).unwrap().records(PLENTY).unwrap();
    assert!(copied.iter().eq(records.into_iter()));
}

#[test]
fn a_batch_without_records_is_legal_in_a_log() {
    let empty = raw(0, 5, &[]);
    assert_eq!(read(&empty), Ok(Vec::new()));
    let header = BatchHeader::parse(&empty).unwrap();
    assert_eq!(header.next_offset(), Offset(6));
    let mut compressed = empty.clone();
    compressed[header::ATTRIBUTES + 1] |= 4;
    assert_eq!(read(&compressed), Ok(Vec::new()));
}

pub(super) fn some_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

prop_compose! {
    pub(super) fn a_record()(
        timestamp in prop_oneof![Just(-1), 0..i64::MAX, 1_700_000_000_000..1_700_000_100_000_i64],
        key in proptest::option::of(some_bytes(20)),
        value in proptest::option::of(some_bytes(300)),
        headers in proptest::collection::vec(
            (prop_oneof![Just(b"same".to_vec()), some_bytes(10)], proptest::option::of(some_bytes(20))),
            0..5,
        ),
    ) -> Owned {
        Owned { timestamp, key, value, headers }
    }
}

pub(super) fn a_codec() -> impl Strategy<Value = Compression> {
    proptest::sample::select(&Compression::ALL[..])
}

proptest! {
    #[test]
    fn what_is_built_is_read(codec in a_codec(), records in proptest::collection::vec(a_record(), 1..20)) {
        let bytes = built(codec, &records);
        let batch = validate_produce(&bytes).unwrap();
        prop_assert_eq!(batch.header.attributes.compression(), Some(codec));
        prop_assert_eq!(batch.header.max_timestamp, records.iter().map(|r| r.timestamp).max().unwrap());
        let views = read(&bytes).unwrap();
        let again: Vec<_> = views.iter().map(Owned::of).collect();
        prop_assert_eq!(&again, &records);
        prop_assert!(views.iter().enumerate().all(|(i, r)| r.offset == Offset(i as i64)));
    }

    #[test]
    fn mutated_batches_give_records_or_an_error(
        codec in a_codec(),
        records in proptest::collection::vec(a_record(), 1..6),
        flips in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let mut bytes = built(codec, &records);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = validate_produce(&bytes);
        for batch in batches(&bytes).take(10).flatten() {
            let limit = 1 << 20;
            if let Ok(records) = batch.records(limit) {
                prop_assert!(records.size() <= limit);
                let good = records.iter().filter(|r| r.is_ok()).count();
                prop_assert!(good <= batch.header.record_count as usize);
            }
            let _ = filter(&batch, limit, Some(0), |r| r.offset_delta % 2 == 0);
        }
    }

    #[test]
    fn arbitrary_records_under_a_good_header_give_records_or_an_error(
        count in 0..10,
        last in 0..10,
        records in some_bytes(100),
    ) {
        let bytes = raw(count, last, &records);
        if let Ok(records) = read(&bytes) {
            prop_assert_eq!(records.len(), count as usize);
            prop_assert!(records.iter().map(|r| r.offset).is_sorted());
        }
    }
}
