//! Compacted topics: checks 28 and 60.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;

use super::{Check, fetch, offsets, produce};
use crate::client::{Client, Outcome, Topic, holds, same};
use crate::records::{Batches, keyed, of_producer_keyed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "28",
        name: "a-compacted-topic-refuses-records-without-a-key",
        run: keyless,
    },
    Check {
        number: "60",
        name: "compaction-leaves-gaps-that-readers-get-over",
        run: gaps,
    },
];

const COMPACT: (&str, &str) = ("cleanup.policy", "compact");

fn keyless(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic_with(&[COMPACT])?;
    let now = client.broker().wall_ms();
    for version in [8, 12] {
        let answer = produce::one(client, version, &topic, 0, keyed(now, None, Some(b"value")))?;
        same("no key", answer.error_code, ErrorCode::INVALID_RECORD)?;
        let told: Vec<i32> = answer.record_errors.iter().map(|e| e.batch_index).collect();
        same("which record", told, vec![0])?;
    }
    // All of a batch is refused for one of its records, and that one is named.
    let mixed = BatchBuilder::new(Compression::None)
        .push(now, Some(b"key"), Some(b"value"), &[])
        .push(now, None, Some(b"value"), &[])
        .build();
    let answer = produce::one(client, 12, &topic, 0, mixed)?;
    same("one without", answer.error_code, ErrorCode::INVALID_RECORD)?;
    let told: Vec<i32> = answer.record_errors.iter().map(|e| e.batch_index).collect();
    same("which of them", told, vec![1])?;
    same("the end", offsets::latest(client, &topic, 0)?, 0)?;
    let empty = keyed(now, Some(b""), None);
    same(
        "an empty key",
        produce::stored(client, 12, &topic, empty)?,
        0,
    )
}

fn gaps(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic_with(&[
        COMPACT,
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ])?;
    let id = client.producer()?;
    let of_id = |now| of_producer_keyed(now, id, 0, 0, b"a");
    let one = |key: &'static [u8], value: Option<&'static [u8]>| {
        move |now: i64| keyed(now, Some(key), value)
    };
    let rounds: [&dyn Fn(i64) -> Vec<u8>; 6] = [
        &one(b"a", Some(b"0")),
        &one(b"b", Some(b"0")),
        &of_id,
        &one(b"a", Some(b"2")),
        &one(b"b", None),
        &one(b"end", Some(b"0")),
    ];
    // Each makes a segment.
    for (at, round) in (0..).zip(rounds) {
        let batch = round(client.broker().wall_ms());
        same("a record", produce::stored(client, 12, &topic, batch)?, at)?;
        client.broker().pass(Duration::from_millis(300));
    }
    let kept = vec![3, 4, 5];
    let mut found = read(client, &topic, 0)?;
    // The cleaner looks every fifteen seconds.
    for _ in 0..60 {
        if found == kept {
            break;
        }
        client.broker().pass(Duration::from_secs(1));
        found = read(client, &topic, 0)?;
    }
    same("what stays", &found, &kept)?;
    for from in 0..=5 {
        let rest: Vec<i64> = kept.iter().copied().filter(|at| *at >= from).collect();
        same("from any offset on", read(client, &topic, from)?, rest)?;
    }
    same("the end", offsets::latest(client, &topic, 0)?, 6)?;
    // Of its producer's last batch nothing is left but what tells it when it comes again.
    let again = of_id(client.broker().wall_ms());
    let answer = produce::one(client, 12, &topic, 0, again)?;
    let answer = (answer.error_code, answer.base_offset);
    same("a batch again", answer, (ErrorCode::NONE, 2))?;
    same("the end", offsets::latest(client, &topic, 0)?, 6)
}

/// The offsets of all records from one on, as a reader gets them.
fn read(client: &mut Client<'_>, topic: &Topic, from: i64) -> Outcome<Vec<i64>> {
    let (mut at, mut found) = (from, Vec::new());
    loop {
        let part = fetch::one(client, 12, topic, at)?;
        let read = Batches(part.records.unwrap_or_default());
        found.extend(read.offsets()?.into_iter().filter(|offset| *offset >= at));
        let next = read.batches()?.last().map(|b| b.header.next_offset().0);
        let next = next.unwrap_or(at);
        if next >= part.high_watermark {
            return Ok(found);
        }
        holds(next > at, || format!("no way on from offset {at}"))?;
        at = next;
    }
}
