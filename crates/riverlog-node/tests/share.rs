//! Share groups on a node: what members hold and say, over power cuts, and the log of their state that is cut off.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use riverlog_core::metadata::{ConfigResource, TopicRef};
use riverlog_core::share::{Acknowledge, Acknowledgement, AcquireMode, Acquired, ShareKey};
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::Harness;
use riverlog_node::{ShareFetchAnswer, ShareFetchCommand};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};

const MEMBERS: [&str; 3] = ["a", "b", "c"];

fn key(topic: TopicId) -> ShareKey {
    ShareKey {
        group: "g".to_owned(),
        topic,
        partition: 0,
    }
}

/// What a member acquires; nothing when there is nothing.
fn fetch(host: &mut Harness, topic: TopicId, member: &str, max_records: i64) -> Vec<Acquired> {
    fetch_bytes(host, topic, member, max_records, 1 << 20)
}

fn fetch_bytes(
    host: &mut Harness,
    topic: TopicId,
    member: &str,
    max_records: i64,
    max_bytes: usize,
) -> Vec<Acquired> {
    let command = ShareFetchCommand {
        group: "g".to_owned(),
        member: member.to_owned(),
        partitions: vec![(topic, 0)],
        first: 0,
        max_wait: Duration::from_millis(300),
        max_bytes,
        max_records,
        batch_size: 100,
        mode: AcquireMode::RecordLimit,
    };
    let answer = host.ask(|node, now, reply| node.share_fetch(command, now, reply));
    for _ in 0..10 {
        host.run();
        if answer.is_ready() {
            break;
        }
        host.advance(Duration::from_millis(100));
    }
    let answer: ShareFetchAnswer = answer.take().expect("a share fetch is answered");
    let part = &answer.partitions[0];
    assert_eq!(part.error, ErrorCode::NONE);
    // The records are there, whole batches around what was acquired.
    assert_eq!(part.records.len > 0, !part.acquired.is_empty());
    part.acquired.clone()
}

fn say(
    host: &mut Harness,
    topic: TopicId,
    member: &str,
    at: i64,
    kind: Acknowledge,
) -> Result<(), ErrorCode> {
    let said = [Acknowledgement {
        first: Offset(at),
        last: Offset(at),
        types: vec![kind],
    }];
    host.get(|node, now, reply| node.share_acknowledge(&key(topic), member, &said, now, reply))
        .expect("an acknowledgement is answered")
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// Accepted or rejected, and told so.
    done: bool,
    /// As last told, in this life of the node.
    count: i16,
    /// The highest count that was ever told.
    most: i16,
}

fn story(seed: u64) {
    let mut random = Random(seed | 1);
    let mut disk = CrashDisk::new(seed);
    let mut host = open(&disk);
    let topic = create(&mut host, "t", 1, &[]);
    assert_eq!(fetch(&mut host, topic, "a", 1), []);
    let mut seen: BTreeMap<i64, Seen> = BTreeMap::new();
    let mut held: BTreeMap<i64, &str> = BTreeMap::new();
    let acquired = |seen: &mut BTreeMap<i64, Seen>, ranges: Vec<Acquired>| {
        let mut offsets = Vec::new();
        for range in ranges {
            for at in range.first.0..=range.last.0 {
                let known = seen.entry(at).or_default();
                assert!(
                    !known.done,
                    "seed {seed}: {at} comes again though it is done with"
                );
                if known.count > 0 {
                    assert_eq!(range.delivery_count, known.count + 1, "seed {seed}: {at}");
                }
                assert!(range.delivery_count <= 5, "seed {seed}: {at} too often");
                known.count = range.delivery_count;
                known.most = known.most.max(range.delivery_count);
                offsets.push(at);
            }
        }
        offsets
    };
    let mut stored = 0;
    for step in 0..60 {
        match random.below(10) {
            0 | 1 => {
                let to = partition(&host, "t", 0);
                let values = ["a", "b", "c"];
                let count = 1 + random.below(3) as usize;
                produce(&mut host, &to, &values[..count]).unwrap();
                stored += count as i64;
            }
            2..5 => {
                let member = MEMBERS[random.below(3) as usize];
                let max = 1 + random.below(4) as i64;
                let ranges = fetch(&mut host, topic, member, max);
                for at in acquired(&mut seen, ranges) {
                    held.insert(at, member);
                }
            }
            5..9 => {
                let Some((at, member)) = held.pop_first() else {
                    continue;
                };
                let kind = match random.below(5) {
                    0 | 1 => Acknowledge::Release,
                    2 => Acknowledge::Reject,
                    _ => Acknowledge::Accept,
                };
                // Late ones are refused.
                let result = say(&mut host, topic, member, at, kind);
                if result.is_ok() && kind != Acknowledge::Release {
                    seen.entry(at).or_default().done = true;
                }
            }
            _ if random.below(3) == 0 => {
                disk = disk.crash(seed + step);
                host = open(&disk);
                held.clear();
                // What was given out and not acknowledged isn't remembered.
                for known in seen.values_mut() {
                    known.count = 0;
                }
            }
            _ => {
                host.advance(Duration::from_secs(31));
                held.clear();
            }
        }
    }
    // In the end each record is done with, or was given out as often as it may be.
    host.advance(Duration::from_secs(31));
    for _ in 0..200 {
        let ranges = fetch(&mut host, topic, "a", 10);
        if ranges.is_empty() {
            break;
        }
        for at in acquired(&mut seen, ranges) {
            assert_eq!(say(&mut host, topic, "a", at, Acknowledge::Accept), Ok(()));
            seen.entry(at).or_default().done = true;
        }
    }
    for at in 0..stored {
        let known = seen.get(&at).cloned().unwrap_or_default();
        assert!(
            known.done || known.most >= 5,
            "seed {seed}: {at} is {known:?}"
        );
    }
    let summary = host
        .get(|node, now, reply| node.share_summary(&key(topic), now, reply))
        .expect("an answer")
        .expect("the coordinator is here")
        .expect("something is kept");
    assert_eq!(
        (summary.start.0, summary.complete),
        (stored, 0),
        "seed {seed}"
    );
}

#[test]
fn what_was_accepted_never_comes_again_and_nothing_is_left_out_over_power_cuts() {
    for seed in 1..40 {
        story(seed * 7919);
    }
}

#[test]
fn who_asks_for_no_bytes_acquires_nothing_and_who_asks_for_one_gets_a_batch() {
    let mut host = open(&CrashDisk::new(1));
    let topic = create(&mut host, "t", 1, &[]);
    assert_eq!(fetch(&mut host, topic, "a", 1), []);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["x", "y"]).unwrap();
    assert_eq!(fetch_bytes(&mut host, topic, "a", 10, 0), []);
    let acquired = fetch_bytes(&mut host, topic, "a", 10, 1);
    assert_eq!(acquired.len(), 1);
    assert_eq!(
        (acquired[0].first, acquired[0].last),
        (Offset(0), Offset(1))
    );
    assert_eq!(acquired[0].delivery_count, 1);
}

#[test]
fn the_log_of_share_groups_is_cut_off() {
    let disk = CrashDisk::new(1);
    let mut few = settings();
    for (key, value) in [
        ("share.coordinator.state.topic.num.partitions", "1"),
        (
            "share.coordinator.snapshot.update.records.per.snapshot",
            "5",
        ),
    ] {
        few.configs.insert(key.to_owned(), value.to_owned());
    }
    let mut host = open_with(&disk, few.clone());
    let topic = create(&mut host, "t", 1, &[]);
    assert_eq!(fetch(&mut host, topic, "a", 1), []);
    let to = partition(&host, "t", 0);
    for at in 0..60 {
        produce(&mut host, &to, &["x"]).unwrap();
        assert_eq!(fetch(&mut host, topic, "a", 1).len(), 1);
        assert_eq!(say(&mut host, topic, "a", at, Acknowledge::Accept), Ok(()));
    }
    host.advance(Duration::from_secs(121));
    host.run();
    let state = TopicRef::Name("__share_group_state".to_owned());
    let state = host.node().partition(&state, 0).expect("its partition");
    let (start, end) = host.node().positions(&state);
    assert!(end.0 > 60 && end - start < 20, "{start} to {end}");
    let mut host = open_with(&disk.kill(), few);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["y"]).unwrap();
    let acquired = fetch(&mut host, topic, "a", 1);
    assert_eq!(
        (acquired[0].first, acquired[0].delivery_count),
        (Offset(60), 1)
    );
}

#[test]
fn offsets_that_were_compacted_away_are_given_to_nobody() {
    let mut settings = settings();
    let backoff = ("log.cleaner.backoff.ms".to_owned(), "100".to_owned());
    settings.configs.extend([backoff]);
    let mut host = open_with(&CrashDisk::new(1), settings);
    let compact = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
    ];
    let topic = create(&mut host, "t", 1, &compact);
    let group = ConfigResource::Group("g".to_owned());
    let earliest = config(group, "share.auto.offset.reset", Some("earliest"));
    admin(&mut host, earliest).unwrap();
    let to = partition(&host, "t", 0);
    let value = "v".repeat(300);
    for i in 0..40 {
        let mut batch = BatchBuilder::new(Compression::None);
        let now = host.now().wall_ms;
        // Each producer's last batch leaves its header.
        batch.producer(ProducerId(i), ProducerEpoch(0), Sequence(0));
        let batch = batch.push(now, Some(b"k"), Some(value.as_bytes()), &[]);
        let batch = batch.build();
        let stored = host.get(|node, now, reply| node.append(&to, command(batch, -1), now, reply));
        stored.unwrap().unwrap();
    }
    host.advance(Duration::from_secs(10));
    let (mut at, mut emptied, mut there) = (0, 0, Vec::new());
    while at < 40 {
        let command = fetch_command(vec![ask_from("t", 0, at)], 0);
        let mut answer = common::fetch(&mut host, command);
        let bytes = answer.partitions.remove(0).records.into_bytes().unwrap();
        assert!(!bytes.is_empty(), "no way on from {at}");
        for batch in batches(&bytes) {
            let batch = batch.unwrap();
            at = batch.header.next_offset().0;
            emptied += usize::from(batch.header.record_count == 0);
            let records = batch.records(1 << 20).unwrap();
            there.extend(records.iter().map(|record| record.unwrap().offset.0));
        }
    }
    assert!(emptied > 3, "{emptied}");
    assert_eq!(there.last(), Some(&39));
    let mut acquired = Vec::new();
    loop {
        let some = fetch(&mut host, topic, "a", 100);
        if some.is_empty() {
            break;
        }
        acquired.extend(some.into_iter().flat_map(|r| r.first.0..=r.last.0));
    }
    assert_eq!(acquired, there);
}
