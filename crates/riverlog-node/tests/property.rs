//! Random commands, jobs in random order, power cuts: every reply comes exactly once, nothing acknowledged is lost.

mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_core::metadata::{AdminCommand, NewTopic, TopicRef};
use riverlog_log::disk::{CrashDisk, FaultOn, Random, Times};
use riverlog_node::harness::{Answer, Harness};
use riverlog_node::{FetchAnswer, Isolation, OffsetAnswer, OffsetQuery};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

/// Answers that are owed, of all kinds.
#[derive(Default)]
struct Owed {
    appends: Vec<(usize, String, Answer<Appended>)>,
    fetches: Vec<(usize, i64, Answer<FetchAnswer>)>,
    offsets: Vec<Answer<OffsetAnswer>>,
    groups: Vec<(usize, usize, i64, Answer<GroupAnswer>)>,
    deletes: Vec<(usize, Answer<Result<Offset, ErrorCode>>)>,
    admin: Vec<Answer<Result<riverlog_core::metadata::AdminAnswer, ErrorCode>>>,
}

impl Owed {
    fn open(&self) -> usize {
        self.appends.len()
            + self.fetches.len()
            + self.offsets.len()
            + self.groups.len()
            + self.deletes.len()
            + self.admin.len()
    }

    /// Takes what has come; checks it against what is known.
    fn collect(&mut self, model: &mut Model) {
        self.appends.retain(|(topic, value, answer)| {
            assert!(!answer.is_lost(), "an append was never answered");
            let Some(result) = answer.take() else {
                return true;
            };
            if let Ok(appended) = result {
                let before = model
                    .acknowledged
                    .insert((*topic, appended.base_offset.0), value.clone());
                assert!(
                    before.is_none_or(|b| b == *value),
                    "two values at one offset"
                );
            }
            false
        });
        self.fetches.retain(|(topic, from, answer)| {
            assert!(!answer.is_lost(), "a fetch was never answered");
            let Some(result) = answer.take() else {
                return true;
            };
            if result.partitions[0].error == ErrorCode::NONE {
                let mut next = None;
                for (offset, value) in values(result, 0) {
                    assert!(next.is_none_or(|n| n == offset), "a gap");
                    next = Some(offset + 1);
                    if offset >= *from {
                        let seen = model.seen.insert((*topic, offset), value.clone());
                        assert!(seen.is_none_or(|s| s == value), "offset {offset} changed");
                    }
                }
            }
            false
        });
        self.deletes.retain(|(topic, answer)| {
            assert!(!answer.is_lost(), "a deletion was never answered");
            let Some(result) = answer.take() else {
                return true;
            };
            if let Ok(start) = result {
                let known = model.starts.entry(*topic).or_insert(0);
                *known = start.0.max(*known);
            }
            false
        });
        fn pending<T: Send + 'static>(list: &mut Vec<Answer<T>>) {
            list.retain(|answer| {
                assert!(!answer.is_lost(), "a command was never answered");
                answer.take().is_none()
            });
        }
        self.groups.retain(|(group, topic, offset, answer)| {
            assert!(!answer.is_lost(), "a commit was never answered");
            let Some(result) = answer.take() else {
                return true;
            };
            if result == GroupAnswer::Partitions(ErrorCode::NONE, vec![ErrorCode::NONE]) {
                // They grow, so an earlier one that is answered late changes nothing.
                let known = model.commits.entry((*group, *topic)).or_insert(0);
                *known = (*known).max(*offset);
            }
            false
        });
        pending(&mut self.offsets);
        pending(&mut self.admin);
    }
}

/// What must be true from now on. Topics are numbered by their creation, since names come again.
#[derive(Default)]
struct Model {
    acknowledged: BTreeMap<(usize, i64), String>,
    seen: BTreeMap<(usize, i64), String>,
    starts: BTreeMap<usize, i64>,
    /// Group and topic.
    commits: BTreeMap<(usize, usize), i64>,
}

const TOPICS: [&str; 2] = ["sync", "other"];

fn run(seed: u64, steps: usize, faults: bool) {
    let mut ill = false;
    let mut random = Random::new(seed);
    let mut disk = CrashDisk::new(seed);
    let mut host = open(&disk);
    let mut model = Model::default();
    let mut owed = Owed::default();
    for (name, roll) in TOPICS.iter().zip(["604800000", "1000"]) {
        create(&mut host, name, 1, &[("segment.ms", roll)]);
    }
    let mut written = 0;
    let mut committed = 0;
    for _ in 0..steps {
        let topic = random.below(2) as usize;
        let name = TOPICS[topic];
        match random.below(100) {
            0..30 => {
                written += 1;
                let value = format!("{seed}-{written}");
                let to = partition(&host, name, 0);
                let acks = [-1, -1, 1][random.below(3) as usize];
                let sent = send(&host, &to, batch(&host, &[&value]), acks);
                owed.appends.push((topic, value, sent));
            }
            30..50 => {
                let end = {
                    let at = partition(&host, name, 0);
                    host.node().describe_partition(&at).log_end_offset.0
                };
                let from = random.below(end as u64 + 1) as i64;
                let command = fetch_command(vec![ask_from(name, 0, from)], random.below(500));
                let fetched = host.ask(|node, now, reply| node.fetch(command, now, reply));
                owed.fetches.push((topic, from, fetched));
            }
            50..54 => {
                let to = partition(&host, name, 0);
                let high = host.node().describe_partition(&to).high_watermark.0;
                let before = Offset(random.below(high as u64 + 1) as i64);
                let deleted =
                    host.ask(|node, now, reply| node.delete_records(&to, before, now, reply));
                owed.deletes.push((topic, deleted));
            }
            54..58 => {
                let to = partition(&host, name, 0);
                let query = OffsetQuery::AtTime(host.now().wall_ms);
                owed.offsets.push(host.ask(|node, _, reply| {
                    let isolation = Isolation::ReadUncommitted;
                    node.offset(&to, query, isolation, LeaderEpoch(-1), reply);
                }));
            }
            58..66 => {
                let at = TopicPartition {
                    topic: name.to_owned(),
                    id: TopicId::ZERO,
                    partition: 0,
                };
                committed += 1;
                let group = random.below(5) as usize;
                let offset = CommittedOffset {
                    offset: Offset(committed),
                    leader_epoch: LeaderEpoch(-1),
                    metadata: String::new(),
                    commit_timestamp: 0,
                    expire_timestamp: None,
                };
                let command = GroupCommand::Commit {
                    group: format!("g{group}"),
                    generation: Generation(-1),
                    member: String::new(),
                    instance: None,
                    offsets: vec![(at, offset)],
                    version: 8,
                };
                let answer = host.ask(|node, now, reply| node.group(command, now, reply));
                owed.groups.push((group, topic, committed, answer));
            }
            66..69 => {
                let name = format!("x{}", random.below(3));
                let command = if random.chance(1, 2) {
                    AdminCommand::CreateTopics {
                        topics: vec![NewTopic {
                            name,
                            partitions: 2,
                            replication_factor: -1,
                            id: TopicId(host.node().random().to_be_bytes()),
                            ..NewTopic::default()
                        }],
                        validate_only: false,
                    }
                } else {
                    AdminCommand::DeleteTopics {
                        topics: vec![TopicRef::Name(name)],
                    }
                };
                owed.admin
                    .push(host.ask(|node, now, reply| node.admin(command, now, reply)));
            }
            69..90 => {
                let waiting = host.jobs().len() as u64;
                if waiting > 0 {
                    host.run_job(random.below(waiting) as usize);
                }
            }
            // At most one fault a life: what follows a full disk must work again by itself.
            90..92 if faults && !ill => {
                ill = true;
                let (on, error) = match random.below(4) {
                    0 => (FaultOn::Sync, ErrorKind::Other),
                    1 => (FaultOn::Write, ErrorKind::Other),
                    _ => (FaultOn::Write, ErrorKind::StorageFull),
                };
                disk.fail(on, Times::Once, error, |_| true);
            }
            90..98 => host.advance(Duration::from_millis(random.below(400))),
            _ => {
                owed.collect(&mut model);
                disk = if random.chance(1, 2) {
                    let after = disk.crash(random.next_u64());
                    disk.power_off();
                    after
                } else {
                    disk.kill()
                };
                // The dead node's replies are dropped with it.
                owed = Owed::default();
                ill = false;
                drop(host);
                host = open(&disk);
                check(&mut host, &mut model);
            }
        }
        owed.collect(&mut model);
    }
    disk.heal();
    // Everyone is answered once time has passed, whatever they waited for.
    host.advance(Duration::from_secs(60));
    owed.collect(&mut model);
    assert_eq!(owed.open(), 0, "somebody still waits");
    check(&mut host, &mut model);
    let parked = host.node().metrics().into_iter();
    for metric in parked.filter(|m| ["parked", "append_bytes_held"].contains(&m.name)) {
        assert_eq!(metric.value, 0.0, "{}", metric.name);
    }
}

fn check(host: &mut Harness, model: &mut Model) {
    for ((group, topic), offset) in &model.commits {
        let at = TopicPartition {
            topic: TOPICS[*topic].to_owned(),
            id: TopicId::ZERO,
            partition: 0,
        };
        let name = format!("g{group}");
        let found = loop {
            let asked = vec![at.clone()];
            let answer = host.get(|node, now, reply| {
                node.committed(&name, Some(asked), None, now, reply);
            });
            match answer.expect("an answer") {
                Ok(found) => break found[0].1.as_ref().map(|c| c.offset.0),
                Err(error) => {
                    assert!(error.retriable());
                    host.advance(Duration::from_millis(100));
                }
            }
        };
        assert!(
            found >= Some(*offset),
            "{name}: {found:?}, {offset} was acknowledged"
        );
    }
    for (topic, name) in TOPICS.iter().enumerate() {
        let all: BTreeMap<i64, String> = read_all(host, name, 0).into_iter().collect();
        let here = partition(host, name, 0);
        let start = host.node().describe_partition(&here).log_start_offset.0;
        let least = model.starts.get(&topic).copied().unwrap_or(0);
        assert!(start >= least, "the start went back");
        for known in [&model.acknowledged, &model.seen] {
            for ((_, offset), value) in known.range((topic, start)..(topic + 1, 0)) {
                assert_eq!(all.get(offset), Some(value), "{name} offset {offset}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_reply_comes_once_and_nothing_acknowledged_is_lost(seed in any::<u64>()) {
        run(seed, 300, false);
    }

    #[test]
    fn so_it_is_on_a_disk_that_fails(seed in any::<u64>()) {
        run(seed, 300, true);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let disk = CrashDisk::new(seed);
        let mut host = open(&disk);
        create(&mut host, "t", 3, &[]);
        for i in 0..20 {
            let to = partition(&host, "t", i % 3);
            produce(&mut host, &to, &["x"]).unwrap();
        }
        host.advance(Duration::from_secs(5));
        (disk.counts(), host.node().metrics())
    };
    assert_eq!(trace(3), trace(3));
}

#[test]
fn a_partition_that_was_cut_before_a_crash_is_readable_to_its_end_without_a_new_append() {
    for seed in [15, 27, 1_212_944_541_645_561_211] {
        run(seed, 300, true);
    }
}

#[test]
fn whoever_waits_for_a_group_commit_hears_that_upkeep_broke_the_write_ahead_log() {
    run(12_484_960_704_316_166_939, 300, true);
}
