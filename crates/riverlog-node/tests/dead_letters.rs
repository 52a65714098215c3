//! Dead letters of share groups (KIP-1191): where the records go that nobody shall try again.

mod common;

use std::time::Duration;

use common::*;
use riverlog_core::metadata::ConfigResource;
use riverlog_core::share::{Acknowledge, Acknowledgement, AcquireMode, ShareKey};
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::Harness;
use riverlog_node::{FetchCommand, ShareFetchCommand};
use riverlog_wire::batch::{BatchBuilder, RecordView, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{Offset, TopicId};

const DLQ: &str = "dlq.t";

fn wait<T: Send + 'static>(host: &mut Harness, answer: &riverlog_node::harness::Answer<T>) -> T {
    for _ in 0..100 {
        host.run();
        if let Some(answer) = answer.take() {
            return answer;
        }
        host.advance(Duration::from_millis(20));
    }
    panic!("no answer");
}

fn acquire(host: &mut Harness, topic: TopicId) -> i64 {
    let command = ShareFetchCommand {
        group: "g".to_owned(),
        member: "m".to_owned(),
        partitions: vec![(topic, 0)],
        first: 0,
        max_wait: Duration::from_millis(300),
        max_bytes: 8 << 20,
        max_records: 2_000,
        batch_size: 100,
        mode: AcquireMode::RecordLimit,
    };
    let answer = host.ask(|node, now, reply| node.share_fetch(command, now, reply));
    let answer = wait(host, &answer);
    let acquired = &answer.partitions[0].acquired;
    acquired
        .iter()
        .map(|range| range.last.0 - range.first.0 + 1)
        .sum()
}

fn reject(host: &mut Harness, topic: TopicId, first: i64, last: i64) {
    let key = ShareKey {
        group: "g".to_owned(),
        topic,
        partition: 0,
    };
    let said = [Acknowledgement {
        first: Offset(first),
        last: Offset(last),
        types: vec![Acknowledge::Reject],
    }];
    let answer = host.ask(|node, now, reply| {
        node.share_acknowledge(&key, "m", &said, now, reply);
    });
    wait(host, &answer).expect("rejected");
}

/// A topic `t`, and a group `g` that copies what it rejects to [`DLQ`].
fn copying(configs: &[(&str, &str)], dlq: &[(&str, &str)]) -> (Harness, TopicId) {
    let mut settings = settings();
    let backoff = ("log.cleaner.backoff.ms".to_owned(), "100".to_owned());
    settings.configs.extend([backoff]);
    let mut host = open_with(&CrashDisk::new(1), settings);
    let topic = create(&mut host, "t", 1, configs);
    let allows = ("errors.deadletterqueue.group.enable", "true");
    create(&mut host, DLQ, 1, &[&[allows], dlq].concat());
    for (key, value) in [
        ("errors.deadletterqueue.topic.name", DLQ),
        ("errors.deadletterqueue.copy.record.enable", "true"),
    ] {
        let group = ConfigResource::Group("g".to_owned());
        admin(&mut host, config(group, key, Some(value))).unwrap();
    }
    assert_eq!(acquire(&mut host, topic), 0);
    (host, topic)
}

fn put(host: &mut Harness, values: &[&str]) {
    let mut batch = BatchBuilder::new(Compression::None);
    let now = host.now().wall_ms;
    for value in values {
        batch.push(now, Some(b"k"), Some(value.as_bytes()), &[]);
    }
    let (to, batch) = (partition(host, "t", 0), batch.build());
    let stored = host.get(|node, now, reply| node.append(&to, command(batch, -1), now, reply));
    stored.expect("an answer").expect("stored");
}

/// All records of a partition, with all that can be read of it.
fn records(host: &mut Harness, name: &str) -> Vec<RecordView> {
    let here = partition(host, name, 0);
    let end = host.node().describe_partition(&here).high_watermark.0;
    let (mut at, mut all) = (0, Vec::new());
    while at < end {
        let command = FetchCommand {
            max_bytes: 8 << 20,
            ..fetch_command(vec![ask_from(name, 0, at)], 0)
        };
        let bytes = fetch(host, command).partitions.remove(0).records;
        for batch in batches(&bytes.into_bytes().expect("readable")) {
            let batch = batch.expect("a batch");
            at = batch.header.next_offset().0;
            let each = batch.records(8 << 20).expect("records").into_iter();
            all.extend(each.map(|record| record.expect("a record")));
        }
    }
    all
}

/// The letters: which record each speaks of, and the copy of its value.
fn letters(host: &mut Harness) -> Vec<(i64, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let each = records(host, DLQ).into_iter().map(|letter| {
        let mut headers = letter.headers.iter();
        let about = headers.find(|(name, _)| name == "__dlq.errors.offset");
        let about = text(&about.expect("an offset").1.expect("a value"));
        let about = about.parse().expect("a number");
        (about, letter.value.as_deref().map(text))
    });
    each.collect()
}

fn metric(host: &Harness, name: &str) -> f64 {
    let metrics = host.node().metrics();
    let found = metrics.iter().find(|m| m.name == name);
    found.expect("a metric").value
}

#[test]
fn what_is_rejected_becomes_a_letter_once() {
    let (mut host, topic) = copying(&[], &[]);
    put(&mut host, &["a", "b", "c"]);
    assert_eq!(acquire(&mut host, topic), 3);
    reject(&mut host, topic, 0, 1);
    host.advance(Duration::from_secs(1));
    let copied = |at: i64, value: &str| (at, Some(value.to_owned()));
    assert_eq!(letters(&mut host), [copied(0, "a"), copied(1, "b")]);
    assert_eq!(metric(&host, "share_dead_letters_total"), 2.0);
    assert_eq!(metric(&host, "share_dead_letter_failures_total"), 0.0);
}

#[test]
fn letters_go_in_batches_that_their_topic_takes() {
    let (mut host, topic) = copying(&[], &[("max.message.bytes", "2000")]);
    let large = "x".repeat(3_000);
    let values: Vec<String> = (0..1_200).map(|i| format!("{i:0100}")).collect();
    for some in values.chunks(100) {
        put(
            &mut host,
            &some.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    put(&mut host, &[&large, "last"]);
    assert_eq!(acquire(&mut host, topic), 1_202);
    reject(&mut host, topic, 0, 1_201);
    host.advance(Duration::from_secs(5));
    let mut all: Vec<_> = (0..).zip(values).map(|(at, v)| (at, Some(v))).collect();
    // It says where the record is, though it can't have it.
    all.push((1_200, None));
    all.push((1_201, Some("last".to_owned())));
    let mut letters = letters(&mut host);
    // Pieces of a long range go side by side.
    letters.sort();
    assert_eq!(letters, all);
    assert_eq!(metric(&host, "share_dead_letters_total"), 1_202.0);
}

#[test]
fn what_was_compacted_away_meanwhile_is_archived_without_a_letter() {
    let full = [
        ("riverlog.max.records", "1"),
        ("riverlog.when.full", "block"),
    ];
    let compact = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
    ];
    let (mut host, topic) = copying(&compact, &full);
    let dlq = partition(&host, DLQ, 0);
    produce(&mut host, &dlq, &["full"]).unwrap();
    let value = "v".repeat(500);
    for _ in 0..3 {
        put(&mut host, &[&value]);
    }
    assert_eq!(acquire(&mut host, topic), 3);
    reject(&mut host, topic, 0, 2);
    for _ in 0..40 {
        put(&mut host, &[&value]);
    }
    host.advance(Duration::from_secs(10));
    let first = records(&mut host, "t")[0].offset.0;
    assert!(first > 2, "nothing was compacted: {first}");
    assert_eq!(metric(&host, "share_dead_letters_total"), 0.0);
    set(&mut host, DLQ, "riverlog.max.records", "-1");
    host.advance(Duration::from_secs(10));
    // Time goes on, and nothing is left to be done.
    assert_eq!(letters_behind_the_first(&mut host), 0);
    assert_eq!(metric(&host, "share_dead_letter_failures_total"), 0.0);
    assert!(acquire(&mut host, topic) > 0);
}

/// Letters behind the record that filled the topic.
fn letters_behind_the_first(host: &mut Harness) -> i64 {
    let here = partition(host, DLQ, 0);
    host.node().describe_partition(&here).high_watermark.0 - 1
}

#[test]
fn without_room_for_letters_records_are_archived_after_a_while() {
    let full = [
        ("riverlog.max.records", "1"),
        ("riverlog.when.full", "block"),
    ];
    let (mut host, topic) = copying(&[], &full);
    let dlq = partition(&host, DLQ, 0);
    produce(&mut host, &dlq, &["full"]).unwrap();
    put(&mut host, &["a", "b"]);
    assert_eq!(acquire(&mut host, topic), 2);
    reject(&mut host, topic, 0, 1);
    host.advance(Duration::from_secs(20));
    assert_eq!(metric(&host, "share_dead_letter_failures_total"), 0.0);
    host.advance(Duration::from_secs(40));
    assert_eq!(metric(&host, "share_dead_letter_failures_total"), 2.0);
    assert_eq!(metric(&host, "share_dead_letters_total"), 0.0);
}
