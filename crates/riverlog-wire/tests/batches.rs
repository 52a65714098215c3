//! Record batches against those that Kafka's own Java client and log cleaner make.
//!
//! The files are made by `golden_batches/MakeBatches.java` (kafka-clients 4.4.0); this test needs no Java.

use bytes::Bytes;
use riverlog_wire::batch::{
    Batch, BatchBuilder, ControlType, EndTxnMarker, Filtered, HEADER_LEN, RecordView, Records,
    TimestampType, filter, set_base_offset, set_leader_epoch, set_log_append_time,
    validate_produce,
};
use riverlog_wire::compression::Compression;
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

const TIME: i64 = 1_700_000_000_000;
const LIMIT: usize = 1 << 20;

macro_rules! golden {
    ($name:literal) => {
        include_bytes!(concat!("golden_batches/", $name, ".bin"))
    };
}

const MIXED: [(Compression, &[u8]); 5] = [
    (Compression::None, golden!("mixed-none")),
    (Compression::Gzip, golden!("mixed-gzip")),
    (Compression::Snappy, golden!("mixed-snappy")),
    (Compression::Lz4, golden!("mixed-lz4")),
    (Compression::Zstd, golden!("mixed-zstd")),
];

const LARGE: [(Compression, &[u8]); 4] = [
    (Compression::Gzip, golden!("large-gzip")),
    (Compression::Snappy, golden!("large-snappy")),
    (Compression::Lz4, golden!("large-lz4")),
    (Compression::Zstd, golden!("large-zstd")),
];

fn pattern() -> Vec<u8> {
    (0..3_000_u32).map(|i| (i * 31 % 251) as u8).collect()
}

fn build_mixed(codec: Compression) -> Vec<u8> {
    let headers: [(&[u8], Option<&[u8]>); 4] = [
        (b"trace", Some(b"abc")),
        (b"trace", Some(b"def")),
        (b"empty", Some(b"")),
        (b"null", None),
    ];
    BatchBuilder::new(codec)
        .push(TIME, Some(b"key-0"), Some(b"value-0"), &headers)
        .push(TIME + 1, None, Some(b"no key"), &[])
        .push(TIME + 2_000, Some(b"k"), None, &[])
        .push(TIME - 5_000, Some(b""), Some(b""), &[])
        .push(TIME + 7, Some(b"pattern"), Some(&pattern()), &[])
        .build()
}

fn build_large(codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for i in 0..1_000 {
        let key = format!("key-{i}");
        let value = format!("{};", i * 7919 % 1_000).repeat(30);
        builder.push(TIME + i, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    builder.build()
}

fn read(bytes: &[u8]) -> Vec<RecordView> {
    let batch = Batch::parse(bytes).unwrap();
    assert_eq!(batch.bytes.len(), bytes.len());
    batch.check_crc().unwrap();
    let records: Vec<_> = batch
        .records(LIMIT)
        .unwrap()
        .iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(records.len(), batch.header.record_count as usize);
    records
}

/// Key, value and number of headers.
type Fields<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, usize);

fn fields(records: &[RecordView]) -> Vec<Fields<'_>> {
    records
        .iter()
        .map(|r| (r.key.as_deref(), r.value.as_deref(), r.headers.len()))
        .collect()
}

#[test]
fn every_field_of_javas_batches_is_read() {
    for (codec, bytes) in MIXED {
        let h = validate_produce(bytes).unwrap().header;
        assert_eq!(h.attributes.compression(), Some(codec));
        assert_eq!(h.attributes.timestamp_type(), TimestampType::CreateTime);
        assert!(!h.attributes.is_transactional() && !h.attributes.is_control());
        assert_eq!(
            (h.base_offset, h.last_offset_delta, h.record_count),
            (Offset(0), 4, 5)
        );
        assert_eq!(h.leader_epoch, LeaderEpoch::NONE);
        assert_eq!((h.base_timestamp, h.max_timestamp), (TIME, TIME + 2_000));
        assert_eq!(h.producer_id, ProducerId::NONE);
        assert_eq!(h.producer_epoch, ProducerEpoch::NONE);
        assert_eq!(h.base_sequence, Sequence::NONE);
        assert_eq!(h.size(), bytes.len());

        let records = read(bytes);
        assert_eq!(
            fields(&records),
            [
                (Some(&b"key-0"[..]), Some(&b"value-0"[..]), 4),
                (None, Some(b"no key"), 0),
                (Some(b"k"), None, 0),
                (Some(b""), Some(b""), 0),
                (Some(b"pattern"), Some(&pattern()), 0),
            ]
        );
        let times: Vec<_> = records.iter().map(|r| r.timestamp - TIME).collect();
        assert_eq!(times, [0, 1, 2_000, -5_000, 7]);
        let offsets: Vec<_> = records.iter().map(|r| r.offset.0).collect();
        assert_eq!(offsets, [0, 1, 2, 3, 4]);
        let headers: Vec<_> = records[0].headers.iter().collect();
        let bytes = Bytes::from_static;
        assert_eq!(
            headers,
            [
                (bytes(b"trace"), Some(bytes(b"abc"))),
                (bytes(b"trace"), Some(bytes(b"def"))),
                (bytes(b"empty"), Some(bytes(b""))),
                (bytes(b"null"), None),
            ]
        );
    }
}

#[test]
fn our_uncompressed_batches_are_javas_byte_for_byte() {
    assert_eq!(build_mixed(Compression::None), golden!("mixed-none"));

    let mut stored = build_mixed(Compression::None);
    set_base_offset(&mut stored, Offset(123_456_789_012));
    set_leader_epoch(&mut stored, LeaderEpoch(5));
    assert_eq!(stored, golden!("stored"));

    let untimed = BatchBuilder::new(Compression::None)
        .push(-1, None, Some(b"a"), &[])
        .push(-1, None, Some(b"b"), &[])
        .build();
    assert_eq!(untimed, golden!("untimed"));

    let mut builder = BatchBuilder::new(Compression::None);
    for transactional in [false, true] {
        builder.producer(
            ProducerId(4_000_000_000),
            ProducerEpoch(7),
            Sequence(2_147_483_646),
        );
        if transactional {
            builder.transactional();
        }
        for i in 0..3 {
            let (key, value) = (format!("k{i}"), format!("v{i}"));
            builder.push(TIME + i, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
        }
        let java: &[u8] = if transactional {
            golden!("transactional")
        } else {
            golden!("idempotent")
        };
        assert_eq!(builder.build(), java);
        let header = Batch::parse(java).unwrap().header;
        assert_eq!(header.attributes.is_transactional(), transactional);
        assert_eq!(header.last_sequence(), Sequence(0));
    }
}

#[test]
fn our_compressed_batches_hold_what_javas_do() {
    for (codec, java) in MIXED {
        assert_eq!(read(&build_mixed(codec)), read(java), "{codec:?}");
    }
    for (codec, java) in LARGE {
        let records = read(java);
        assert_eq!(records.len(), 1_000);
        assert_eq!(records, read(&build_large(codec)), "{codec:?}");
        assert_eq!(records, read(&build_large(Compression::None)), "{codec:?}");
        // As small as Java's, give or take.
        let ours = build_large(codec).len();
        assert!(
            ours < java.len() * 5 / 4,
            "{codec:?}: {ours}, Java {}",
            java.len()
        );
    }
}

#[test]
fn append_time_is_the_time_of_all_records() {
    let java = golden!("append-time");
    let header = Batch::parse(java).unwrap().header;
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(header.max_timestamp, TIME + 60_000);
    let mut ours = build_mixed(Compression::None);
    set_log_append_time(&mut ours, TIME + 60_000);
    assert_eq!(read(java), read(&ours));
    assert!(read(java).iter().all(|r| r.timestamp == TIME + 60_000));
}

#[test]
fn transaction_markers_are_javas_byte_for_byte() {
    for (committed, java) in [
        (true, &golden!("marker-commit")[..]),
        (false, golden!("marker-abort")),
    ] {
        let marker = EndTxnMarker {
            committed,
            coordinator_epoch: 42,
        };
        let ours = marker.batch(ProducerId(4_000_000_000), ProducerEpoch(7), TIME);
        assert_eq!(ours, java);
        let records = Records::shared(&Bytes::from_static(java), LIMIT).unwrap();
        let record = records.iter_refs().next().unwrap().unwrap();
        assert_eq!(EndTxnMarker::of(&record), Ok(Some(marker)));
    }
}

#[test]
fn a_leader_change_is_a_control_record_but_no_marker() {
    let java = golden!("leader-change");
    let header = Batch::parse(java).unwrap().header;
    assert!(header.attributes.is_control() && !header.attributes.is_transactional());
    let records = read(java);
    let (key, value) = (records[0].key.as_deref(), records[0].value.as_deref());
    assert_eq!(
        ControlType::parse(key.unwrap()),
        Ok(ControlType::LeaderChange)
    );
    assert_eq!(EndTxnMarker::parse(key, value), Ok(None));
}

#[test]
fn a_filtered_batch_is_the_log_cleaners_byte_for_byte() {
    let stored = Batch::parse(golden!("stored")).unwrap();
    // A tombstone stays, so the cleaner settles when it may go.
    let horizon = TIME + 100_000 + 86_400_000;
    let kept = filter(&stored, LIMIT, Some(horizon), |r| r.offset_delta != 1);
    assert_eq!(kept, Ok(Filtered::Batch(golden!("cleaned").to_vec())));
    assert_eq!(read(golden!("cleaned")).len(), 4);

    let emptied = filter(&stored, LIMIT, None, |_| false);
    assert_eq!(emptied, Ok(Filtered::Empty(golden!("emptied").to_vec())));
    assert_eq!(golden!("emptied").len(), HEADER_LEN);
}
