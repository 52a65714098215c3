use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;

use super::*;

const REFUSED: ErrorCode = ErrorCode::NOT_ENOUGH_REPLICAS;
const P: ProducerId = ProducerId(7);
const E: ProducerEpoch = ProducerEpoch(2);

fn batch(producer: i64, epoch: i16, sequence: i32) -> BatchHeader {
    let mut batch = BatchBuilder::new(Compression::None);
    batch.producer(
        ProducerId(producer),
        ProducerEpoch(epoch),
        Sequence(sequence),
    );
    batch.push(0, None, Some(b"v"), &[]);
    BatchHeader::parse(&batch.build()).expect("a sound batch")
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn what_follows_a_refused_batch_is_refused_until_that_one_is_stored() {
    let mut refusals = Refusals::default();
    refusals.refused(&batch(7, 2, 10), REFUSED, at(0));
    assert_eq!(refusals.before(&batch(7, 2, 11), at(1)), Some(REFUSED));
    assert_eq!(refusals.before(&batch(7, 2, 10), at(1)), None);
    assert_eq!(refusals.before(&batch(7, 2, 9), at(1)), None);
    assert_eq!(refusals.before(&batch(8, 2, 11), at(1)), None);
    refusals.stored(P, E, Sequence(9));
    assert_eq!(refusals.before(&batch(7, 2, 11), at(1)), Some(REFUSED));
    refusals.stored(P, E, Sequence(10));
    assert_eq!(refusals.before(&batch(7, 2, 11), at(1)), None);
    assert!(refusals.is_empty());
}

#[test]
fn the_first_of_several_that_were_refused_counts() {
    let mut refusals = Refusals::default();
    for sequence in [12, 10, 14] {
        refusals.refused(&batch(7, 2, sequence), REFUSED, at(0));
    }
    assert_eq!(refusals.before(&batch(7, 2, 11), at(1)), Some(REFUSED));
    refusals.stored(P, E, Sequence(11));
    assert_eq!(refusals.before(&batch(7, 2, 12), at(1)), None);
}

#[test]
fn sequences_wrap() {
    let mut refusals = Refusals::default();
    refusals.refused(&batch(7, 2, i32::MAX), REFUSED, at(0));
    assert_eq!(refusals.before(&batch(7, 2, 0), at(1)), Some(REFUSED));
    assert_eq!(refusals.before(&batch(7, 2, i32::MAX - 1), at(1)), None);
    refusals.stored(P, E, Sequence(i32::MAX - 1));
    assert!(!refusals.is_empty());
    refusals.stored(P, E, Sequence(0));
    assert!(refusals.is_empty());
}

#[test]
fn another_epoch_is_another_count() {
    let mut refusals = Refusals::default();
    refusals.refused(&batch(7, 2, 10), REFUSED, at(0));
    assert_eq!(refusals.before(&batch(7, 3, 11), at(1)), None);
    // Nothing of the newer epoch is stored yet.
    refusals.refused(&batch(7, 3, 0), REFUSED, at(0));
    refusals.stored(P, E, Sequence(20));
    refusals.stored(P, ProducerEpoch(3), Sequence::NONE);
    assert_eq!(refusals.before(&batch(7, 3, 1), at(1)), Some(REFUSED));
    // What is late of the older one changes nothing.
    refusals.refused(&batch(7, 2, 5), REFUSED, at(0));
    assert_eq!(refusals.before(&batch(7, 3, 1), at(1)), Some(REFUSED));
    refusals.stored(P, ProducerEpoch(4), Sequence::NONE);
    assert!(refusals.is_empty());
}

#[test]
fn it_is_forgotten_in_time() {
    let mut refusals = Refusals::default();
    refusals.refused(&batch(7, 2, 10), REFUSED, at(0));
    assert_eq!(refusals.before(&batch(7, 2, 11), at(29)), Some(REFUSED));
    assert_eq!(refusals.before(&batch(7, 2, 11), at(30)), None);
    refusals.refused(&batch(8, 0, 0), REFUSED, at(30));
    assert_eq!(refusals.0.len(), 1);
}

#[test]
fn what_is_final_or_unnumbered_isnt_remembered_and_not_too_much_is() {
    let mut refusals = Refusals::default();
    refusals.refused(&batch(7, 2, 10), ErrorCode::INVALID_RECORD, at(0));
    refusals.refused(&batch(-1, -1, -1), REFUSED, at(0));
    assert!(refusals.is_empty());
    for producer in 0..300 {
        refusals.refused(&batch(producer, 0, 0), REFUSED, at(0));
    }
    assert_eq!(refusals.0.len(), MOST);
    assert_eq!(refusals.before(&batch(299, 0, 1), at(1)), Some(REFUSED));
}
