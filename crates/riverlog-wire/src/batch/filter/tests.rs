use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::tests::{PLENTY, a_codec, a_record, built, offsets, read, three};
use super::super::{set_base_offset, set_leader_epoch, set_log_append_time};
use super::*;
use crate::{LeaderEpoch, Offset};

#[test]
fn a_filtered_batch_keeps_everything_but_the_records() {
    for codec in Compression::ALL {
        let mut bytes = three(codec);
        set_base_offset(&mut bytes, Offset(100));
        set_leader_epoch(&mut bytes, LeaderEpoch(4));
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(filter(&batch, PLENTY, None, |_| true), Ok(Filtered::Same));

        let Ok(Filtered::Batch(kept)) = filter(&batch, PLENTY, None, |r| r.key != Some(b"b"))
        else {
            panic!("two records stay");
        };
        let new = Batch::parse(&kept).unwrap();
        new.check_crc().unwrap();
        assert_eq!(offsets(&kept), [100, 102]);
        assert_eq!(new.header.last_offset(), Offset(102));
        assert_eq!(new.header.leader_epoch, LeaderEpoch(4));
        assert_eq!(new.header.attributes, batch.header.attributes);
        assert_eq!(new.header.max_timestamp, 1000);
        assert_eq!(new.header.record_count, 2);
        let times: Vec<_> = read(&kept).unwrap().iter().map(|r| r.timestamp).collect();
        assert_eq!(times, [1000, 900]);

        let Ok(Filtered::Batch(last)) = filter(&new, PLENTY, None, |r| r.offset == Offset(102))
        else {
            panic!("one record stays");
        };
        assert_eq!(offsets(&last), [102]);
        assert_eq!(read(&last).unwrap()[0].timestamp, 900);

        let Ok(Filtered::Empty(empty)) = filter(&new, PLENTY, Some(5), |_| false) else {
            panic!("none stays");
        };
        let header = Batch::parse(&empty).unwrap().header;
        assert_eq!(empty.len(), HEADER_LEN);
        assert_eq!(
            (header.record_count, header.next_offset()),
            (0, Offset(103))
        );
        assert_eq!(header.attributes.compression(), Some(Compression::None));
        assert_eq!(read(&empty), Ok(Vec::new()));
        let empty = Batch::parse(&empty).unwrap();
        assert_eq!(filter(&empty, PLENTY, None, |_| true), Ok(Filtered::Same));
    }
}

#[test]
fn a_delete_horizon_is_set_once_and_keeps_the_timestamps() {
    let bytes = three(Compression::None);
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!(batch.header.delete_horizon_ms(), None);
    let Ok(Filtered::Batch(marked)) = filter(&batch, PLENTY, Some(50_000), |_| true) else {
        panic!("the horizon is new");
    };
    let new = Batch::parse(&marked).unwrap();
    assert_eq!(new.header.delete_horizon_ms(), Some(50_000));
    assert_eq!(read(&marked), read(&bytes));
    assert_eq!(
        filter(&new, PLENTY, Some(60_000), |_| true),
        Ok(Filtered::Same)
    );
    let Ok(Filtered::Batch(fewer)) = filter(&new, PLENTY, Some(60_000), |r| r.offset_delta > 0)
    else {
        panic!("two records stay");
    };
    let header = Batch::parse(&fewer).unwrap().header;
    assert_eq!(header.delete_horizon_ms(), Some(50_000));
    assert_eq!(read(&fewer).unwrap()[..], read(&bytes).unwrap()[1..]);
}

#[test]
fn a_filtered_batch_with_append_time_keeps_its_time() {
    let mut bytes = three(Compression::None);
    set_log_append_time(&mut bytes, 5000);
    let batch = Batch::parse(&bytes).unwrap();
    let Ok(Filtered::Batch(kept)) = filter(&batch, PLENTY, None, |r| r.offset_delta == 1) else {
        panic!("one record stays");
    };
    assert_eq!(read(&kept).unwrap()[0].timestamp, 5000);
    assert_eq!(BatchHeader::parse(&kept).unwrap().max_timestamp, 5000);
}

proptest! {
    #[test]
    fn a_filter_keeps_what_it_is_told(
        codec in a_codec(),
        records in proptest::collection::vec(a_record(), 1..20),
        keep in any::<u32>(),
        horizon in proptest::option::of(0..i64::MAX),
    ) {
        let bytes = built(codec, &records);
        let batch = Batch::parse(&bytes).unwrap();
        let wanted = |delta: i64| keep >> delta & 1 == 1;
        let all: BTreeMap<_, _> = read(&bytes).unwrap().into_iter().map(|r| (r.offset.0, r)).collect();
        let expected: Vec<_> = all.into_iter().filter(|(o, _)| wanted(*o)).map(|(_, r)| r).collect();
        let kept = match filter(&batch, PLENTY, horizon, |r| wanted(r.offset.0)).unwrap() {
            Filtered::Same => bytes.clone(),
            Filtered::Batch(b) | Filtered::Empty(b) => b,
        };
        Batch::parse(&kept).unwrap().check_crc().unwrap();
        prop_assert_eq!(read(&kept).unwrap(), expected);
    }
}

#[test]
fn a_header_stands_for_offsets_that_hold_nothing() {
    let bytes = vacant(Offset(5), Offset(9), LeaderEpoch(3));
    let batch = Batch::parse(&bytes).unwrap();
    batch.check_crc().unwrap();
    let header = batch.header;
    assert_eq!(
        (header.base_offset, header.next_offset()),
        (Offset(5), Offset(9))
    );
    assert_eq!(
        (header.leader_epoch, header.record_count),
        (LeaderEpoch(3), 0)
    );
    assert_eq!(batch.records(0).unwrap().iter().count(), 0);
    assert_eq!(vacant(Offset(5), Offset(5), LeaderEpoch(3)), b"");
    assert_eq!(vacant(Offset(5), Offset(4), LeaderEpoch(3)), b"");
    let far = vacant(Offset(0), Offset(1 << 40), LeaderEpoch(3));
    let far = BatchHeader::parse(&far).unwrap();
    assert_eq!(far.next_offset(), Offset(1 << 31));
}
