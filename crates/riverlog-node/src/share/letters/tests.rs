use bytes::Bytes;
use riverlog_wire::TopicId;
use riverlog_wire::batch::{HEADER_LEN, set_base_offset};

use super::*;

const LIMIT: usize = 1 << 20;

fn key() -> ShareKey {
    ShareKey {
        group: "g".to_owned(),
        topic: TopicId::ZERO,
        partition: 3,
    }
}

fn dead(first: i64, last: i64) -> Dead {
    Dead {
        first: Offset(first),
        last: Offset(last),
        delivery_count: 2,
        cause: DeathCause::Rejected,
    }
}

/// A batch of these values from an offset on.
fn stored(base: i64, values: &[&str]) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    for value in values {
        batch.push(1_000, Some(b"k"), Some(value.as_bytes()), &[]);
    }
    let mut batch = batch.build();
    set_base_offset(&mut batch, Offset(base));
    batch
}

/// What letters say: the offset that each speaks of, and the copy, where it has one.
fn said(written: &Written) -> Vec<(i64, Option<String>)> {
    let Some(bytes) = &written.batch else {
        assert_eq!(written.count, 0);
        return Vec::new();
    };
    let batch = batches(bytes).next().unwrap().unwrap();
    let records = batch.records(LIMIT).unwrap();
    let letters: Vec<_> = records
        .iter()
        .map(|letter| {
            let letter = letter.unwrap();
            let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            let mut headers = letter.headers.iter();
            let at = headers.find(|(name, _)| name == "__dlq.errors.offset");
            let at = text(at.unwrap().1.unwrap()).parse().unwrap();
            assert_eq!(letter.key.is_some(), letter.value.is_some());
            (at, letter.value.map(text))
        })
        .collect();
    assert_eq!(letters.len() as u64, written.count);
    letters
}

fn copied(at: i64, value: &str) -> (i64, Option<String>) {
    (at, Some(value.to_owned()))
}

fn copies(dead: Dead, limit: usize, bytes: &[u8]) -> Option<Written> {
    Letters::new(dead, &key(), "t", limit, 2_000).copies(bytes)
}

#[test]
fn a_letter_for_each_record_of_the_range_and_for_nothing_else() {
    let bytes = [stored(4, &["a", "b", "c"]), stored(7, &["d", "e"])].concat();
    let written = copies(dead(5, 7), LIMIT, &bytes).unwrap();
    assert_eq!(
        said(&written),
        [copied(5, "b"), copied(6, "c"), copied(7, "d")]
    );
    assert_eq!(written.told, Offset(7));
    let bare = Letters::new(dead(5, 9), &key(), "t", LIMIT, 2_000).bare(Offset(6));
    assert_eq!(said(&bare), [(5, None), (6, None)]);
    assert_eq!(bare.told, Offset(6));
}

#[test]
fn of_an_answer_without_batches_nothing_is_told() {
    assert_eq!(copies(dead(5, 7), LIMIT, b""), None);
    // Nor of one that doesn't reach them.
    assert_eq!(copies(dead(5, 7), LIMIT, &stored(3, &["a", "b"])), None);
}

#[test]
fn what_was_compacted_away_needs_no_letter() {
    // All of it.
    let written = copies(dead(5, 7), LIMIT, &stored(20, &["a"])).unwrap();
    assert_eq!((said(&written), written.told), (Vec::new(), Offset(7)));
    // What lay between.
    let bytes = [stored(5, &["a"]), stored(9, &["b"])].concat();
    let written = copies(dead(5, 9), LIMIT, &bytes).unwrap();
    assert_eq!(said(&written), [copied(5, "a"), copied(9, "b")]);
    assert_eq!(written.told, Offset(9));
    // What was read ends before the range does: the rest is asked for again.
    let written = copies(dead(5, 9), LIMIT, &stored(5, &["a", "b"])).unwrap();
    assert_eq!(written.told, Offset(6));
}

#[test]
fn a_batch_holds_no_more_than_its_topic_takes_and_the_rest_goes_on_behind_it() {
    let bytes = stored(0, &["a", "b", "c", "d", "e"]);
    let all = copies(dead(0, 4), LIMIT, &bytes).unwrap();
    let limit = all.batch.unwrap().len() - 1;
    let mut next = 0;
    let mut seen = Vec::new();
    while next <= 4 {
        let written = copies(dead(next, 4), limit, &bytes).unwrap();
        assert!(written.batch.as_ref().unwrap().len() <= limit);
        seen.extend(said(&written));
        next = written.told.0 + 1;
    }
    let each = ["a", "b", "c", "d", "e"];
    let each: Vec<_> = (0..).zip(each).map(|(at, v)| copied(at, v)).collect();
    assert_eq!(seen, each);
}

#[test]
fn a_record_that_is_too_large_for_the_topic_is_told_of_without_its_copy() {
    let large = "x".repeat(10_000);
    let bytes = stored(0, &["a", &large, "c"]);
    let mut next = 0;
    let mut seen = Vec::new();
    while next <= 2 {
        let written = copies(dead(next, 2), 2_000, &bytes).unwrap();
        seen.extend(said(&written));
        next = written.told.0 + 1;
    }
    assert_eq!(seen, [copied(0, "a"), (1, None), copied(2, "c")]);
}

#[test]
fn what_can_not_be_opened_is_told_of_without_copies() {
    let mut batch = BatchBuilder::new(Compression::Gzip);
    let batch = batch.push(1, None, Some(b"a"), &[]);
    let mut broken = batch.push(1, None, Some(b"b"), &[]).build();
    broken[HEADER_LEN] ^= 0xff;
    let bytes = [broken, stored(2, &["c"])].concat();
    let written = copies(dead(0, 2), LIMIT, &bytes).unwrap();
    assert_eq!(said(&written), [(0, None), (1, None), copied(2, "c")]);
}
