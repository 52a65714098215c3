//! Random clients, crashes and changes of topics; what must hold after each step, and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

use super::Story;
use crate::groups::*;

const TOPICS: [&str; 3] = ["orders", "bills", "logs-eu"];

#[derive(Clone, Debug)]
enum Step {
    Classic(usize, Classic),
    Consumer(usize, Consumer),
    Commit {
        client: usize,
        outside: bool,
        stale: bool,
        topic: usize,
        partition: i32,
        offset: i64,
    },
    Delete {
        group: usize,
    },
    DeleteOffset {
        group: usize,
        topic: usize,
    },
    Grow(usize),
    Remake(usize),
    Wait(u64),
    Hold(u64),
    Crash,
}

#[derive(Clone, Copy, Debug)]
enum Classic {
    /// What a real client would do next.
    Go,
    Join {
        other_protocol: bool,
        known: bool,
    },
    Sync {
        stale: bool,
    },
    Heartbeat,
    Leave,
    Forget,
}

#[derive(Clone, Copy, Debug)]
enum Consumer {
    /// What a real client would do next.
    Go,
    Join {
        topics: usize,
    },
    Heartbeat,
    GiveBack,
    Subscribe {
        topics: usize,
    },
    Leave,
    Away,
    Forget,
}

/// The first three are of the classic protocol, the others of the consumer protocol; the last of each is static. Both meet in
/// the last group.
const CLIENTS: usize = 8;

fn group_of(client: usize) -> &'static str {
    match client {
        0..=2 => "classic",
        3 | 7 => "mixed",
        _ => "consumer",
    }
}

const GROUPS: [&str; 3] = ["classic", "mixed", "consumer"];

fn step() -> impl Strategy<Value = Step> {
    let classic = prop_oneof![
        40 => Just(Classic::Go),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(other_protocol, known)| Classic::Join { other_protocol, known }),
        2 => any::<bool>().prop_map(|stale| Classic::Sync { stale }),
        2 => Just(Classic::Heartbeat),
        1 => Just(Classic::Leave),
        1 => Just(Classic::Forget),
    ];
    let consumer = prop_oneof![
        40 => Just(Consumer::Go),
        2 => (0..4_usize).prop_map(|topics| Consumer::Join { topics }),
        6 => Just(Consumer::Heartbeat),
        6 => Just(Consumer::GiveBack),
        1 => (0..4_usize).prop_map(|topics| Consumer::Subscribe { topics }),
        1 => Just(Consumer::Leave),
        1 => Just(Consumer::Away),
        1 => Just(Consumer::Forget),
    ];
    prop_oneof![
        24 => (0..4_usize, classic).prop_map(|(c, what)| Step::Classic(c, what)),
        24 => (4..CLIENTS, consumer).prop_map(|(c, what)| Step::Consumer(c, what)),
        8 => (0..CLIENTS, proptest::bool::weighted(0.2), proptest::bool::weighted(0.2), 0..3_usize, 0..4_i32, 0..100_i64)
            .prop_map(|(client, outside, stale, topic, partition, offset)| {
                Step::Commit { client, outside, stale, topic, partition, offset }
            }),
        1 => (0..3_usize).prop_map(|group| Step::Delete { group }),
        1 => (0..3_usize, 0..3_usize).prop_map(|(group, topic)| Step::DeleteOffset { group, topic }),
        1 => (0..3_usize).prop_map(Step::Grow),
        1 => (0..3_usize).prop_map(Step::Remake),
        4 => (1..3_000_u64).prop_map(Step::Wait),
        1 => (3_000..30_000_u64).prop_map(Step::Wait),
        1 => (1..20_000_u64).prop_map(Step::Hold),
        2 => Just(Step::Crash),
    ]
}

type Part = (TopicId, i32);

#[derive(Clone, Debug, Default)]
struct Client {
    member: String,
    /// Classic: it has to join, or else to sync when `generation` says more than `synced`.
    must_join: bool,
    synced: i32,
    generation: i32,
    epoch: i32,
    leads: Vec<String>,
    allowed: BTreeSet<Part>,
    /// What it still works on.
    holds: BTreeSet<Part>,
}

struct World {
    story: Story,
    clients: Vec<Client>,
    committed: BTreeMap<(&'static str, usize, i32), i64>,
    /// What a sync must be answered with, unless its generation is over.
    syncs: BTreeMap<Token, String>,
}

impl World {
    fn new() -> World {
        let mut story = Story::new(GroupSettings {
            offsets_retention: Duration::from_secs(1 << 40),
            consumer_session_timeout: Duration::from_secs(20),
            ..GroupSettings::default()
        });
        story.quiet = true;
        for topic in TOPICS {
            story.topics.set(topic, 2);
        }
        story.topics_changed();
        World {
            story,
            clients: vec![Client::default(); CLIENTS],
            committed: BTreeMap::new(),
            syncs: BTreeMap::new(),
        }
    }

    fn instance(client: usize) -> Option<String> {
        [2, 6].contains(&client).then(|| format!("i{client}"))
    }

    fn hear(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            let index = answer.token.0 as usize % 100;
            let Some(client) = self.clients.get_mut(index) else {
                continue;
            };
            match answer.body {
                GroupAnswer::Join(join) => match join.error {
                    ErrorCode::NONE => {
                        client.member = join.member;
                        client.generation = join.generation.0;
                        client.must_join = false;
                        client.synced = 0;
                        client.leads = join.members.into_iter().map(|(id, ..)| id).collect();
                        if !client.leads.is_empty() {
                            assert_eq!(join.leader, client.member);
                        }
                    }
                    ErrorCode::MEMBER_ID_REQUIRED => client.member = join.member,
                    ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID => {
                        client.member.clear()
                    }
                    _ => {}
                },
                GroupAnswer::Sync {
                    error: ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION,
                    ..
                }
                | GroupAnswer::Error(
                    ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION,
                ) => client.must_join = true,
                GroupAnswer::Sync {
                    error: ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID,
                    ..
                }
                | GroupAnswer::Error(
                    ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID,
                ) => *client = Client::default(),
                // A leader gives each member what names its generation and itself.
                GroupAnswer::Sync {
                    error: ErrorCode::NONE,
                    assignment,
                    ..
                } => {
                    client.synced = client.generation;
                    let wanted = &self.syncs[&answer.token];
                    let stable = assignment.is_empty() || Self::instance(index).is_some();
                    assert!(
                        stable || assignment == wanted.as_bytes(),
                        "{assignment:?} is not {wanted}"
                    );
                }
                GroupAnswer::ConsumerHeartbeat(h) => match h.error {
                    ErrorCode::NONE => {
                        client.member = h.member;
                        client.epoch = h.member_epoch;
                        if h.member_epoch < 0 {
                            client.holds.clear();
                            client.allowed.clear();
                        }
                        if let Some(assignment) = h.assignment {
                            client.allowed = flat(&assignment);
                            client.holds.extend(client.allowed.iter().copied());
                        }
                    }
                    ErrorCode::FENCED_MEMBER_EPOCH
                    | ErrorCode::UNKNOWN_MEMBER_ID
                    | ErrorCode::GROUP_ID_NOT_FOUND
                    | ErrorCode::FENCED_INSTANCE_ID => *client = Client::default(),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Tokens say whose they are, so that late answers find their client.
    fn command(&mut self, client: usize, command: GroupCommand) -> Vec<Answer> {
        self.story.tokens += 100;
        let token = Token(self.story.tokens + client as u64);
        self.story.open.insert(token, format!("c{client}"));
        if let GroupCommand::Sync(sync) = &command {
            let wanted = format!("{}:{}", sync.generation, sync.member);
            self.syncs.insert(token, wanted);
        }
        let mut answers = self
            .story
            .perform(|shard, topics, now| shard.decide(command.clone(), token, topics, now));
        answers.extend(self.story.timers());
        self.hear(answers.clone());
        answers.retain(|a| a.token == token);
        answers
    }

    fn random(&self) -> u128 {
        u128::from(self.story.tokens + 1)
    }

    fn classic(&mut self, index: usize, what: Classic) {
        let client = self.clients[index].clone();
        let group = group_of(index).to_owned();
        let instance = Self::instance(index);
        let parked = format!("c{index}");
        let what = match what {
            Classic::Go if self.story.open.values().any(|who| *who == parked) => return,
            Classic::Go
                if client.member.is_empty() || client.must_join || client.generation <= 0 =>
            {
                Classic::Join {
                    other_protocol: index == 1,
                    known: true,
                }
            }
            Classic::Go if client.synced < client.generation => Classic::Sync { stale: false },
            Classic::Go => Classic::Heartbeat,
            other => other,
        };
        match what {
            Classic::Go => {}
            Classic::Forget => self.clients[index] = Client::default(),
            Classic::Join {
                other_protocol,
                known,
            } => {
                let names: &[&str] = if other_protocol {
                    &["sticky", "range"]
                } else {
                    &["range"]
                };
                let join = Join {
                    group,
                    member: client.member,
                    instance,
                    session_timeout: Duration::from_secs(6),
                    rebalance_timeout: Duration::from_secs(9),
                    protocol_type: "consumer".into(),
                    protocols: names
                        .iter()
                        .map(|n| ((*n).to_owned(), Bytes::new()))
                        .collect(),
                    require_known_member: known,
                    can_skip_assignment: known,
                    random: self.random(),
                    ..Join::default()
                };
                self.command(index, GroupCommand::Join(join));
            }
            Classic::Sync { stale } => {
                let generation = client.generation - i32::from(stale);
                let assignments = client
                    .leads
                    .iter()
                    .map(|m| (m.clone(), Bytes::from(format!("{generation}:{m}"))))
                    .collect();
                let sync = Sync {
                    group,
                    generation: generation.into(),
                    member: client.member,
                    instance,
                    assignments,
                    ..Sync::default()
                };
                self.command(index, GroupCommand::Sync(sync));
            }
            Classic::Heartbeat => {
                let generation = client.generation.into();
                let member = client.member;
                self.command(
                    index,
                    GroupCommand::Heartbeat {
                        group,
                        generation,
                        member,
                        instance,
                    },
                );
            }
            Classic::Leave => {
                let members = vec![(client.member, instance, None)];
                self.command(index, GroupCommand::Leave { group, members });
                self.clients[index] = Client::default();
            }
        }
    }

    fn consumer(&mut self, index: usize, what: Consumer) {
        let client = self.clients[index].clone();
        let mut heartbeat = ConsumerHeartbeat {
            group: group_of(index).into(),
            member: client.member.clone(),
            member_epoch: client.epoch,
            instance: Self::instance(index),
            owned: Some(nested(&client.holds)),
            version: 1,
            ..ConsumerHeartbeat::default()
        };
        let subscribe = |heartbeat: &mut ConsumerHeartbeat, topics: usize| {
            let (names, pattern): (&[&str], _) = match topics {
                0 => (&TOPICS[..1], ""),
                1 => (&TOPICS[..2], ""),
                2 => (&[], "logs-.*"),
                _ => (&TOPICS[..1], ".*s"),
            };
            heartbeat.subscribed_topics = Some(names.iter().map(|n| (*n).to_owned()).collect());
            heartbeat.subscribed_pattern = Some(pattern.into());
        };
        let what = match what {
            Consumer::Go if client.member.is_empty() || client.epoch <= 0 => {
                Consumer::Join { topics: index % 3 }
            }
            Consumer::Go if self.story.tokens.is_multiple_of(300) => Consumer::Heartbeat,
            Consumer::Go => Consumer::GiveBack,
            other => other,
        };
        match what {
            Consumer::Go => {}
            Consumer::Forget => return self.clients[index] = Client::default(),
            Consumer::Join { topics } => {
                if client.member.is_empty() || client.epoch < 0 {
                    self.clients[index].member = format!("m{index}-{}", self.random());
                }
                self.clients[index].holds.clear();
                self.clients[index].allowed.clear();
                heartbeat.member = self.clients[index].member.clone();
                heartbeat.member_epoch = 0;
                heartbeat.owned = Some(Vec::new());
                heartbeat.rebalance_timeout = Some(Duration::from_secs(15));
                subscribe(&mut heartbeat, topics);
            }
            Consumer::Heartbeat => {}
            Consumer::GiveBack => {
                self.clients[index].holds = client.allowed.clone();
                heartbeat.owned = Some(nested(&client.allowed));
            }
            Consumer::Subscribe { topics } => subscribe(&mut heartbeat, topics),
            Consumer::Leave => heartbeat.member_epoch = -1,
            Consumer::Away => heartbeat.member_epoch = -2,
        }
        self.command(index, GroupCommand::ConsumerHeartbeat(heartbeat));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Classic(client, what) => self.classic(client, what),
            Step::Consumer(client, what) => self.consumer(client, what),
            Step::Commit {
                client: index,
                outside,
                stale,
                topic,
                partition,
                offset,
            } => {
                let client = self.clients[index].clone();
                let group = group_of(index);
                let epoch = if index < 4 {
                    client.generation
                } else {
                    client.epoch
                };
                let key = TopicPartition {
                    topic: TOPICS[topic].into(),
                    id: TopicId::ZERO,
                    partition,
                };
                let committed = CommittedOffset {
                    offset: Offset(offset),
                    leader_epoch: LeaderEpoch(1),
                    metadata: String::new(),
                    commit_timestamp: 0,
                    expire_timestamp: None,
                };
                let command = GroupCommand::Commit {
                    group: group.into(),
                    generation: if outside {
                        -1
                    } else {
                        epoch - i32::from(stale)
                    }
                    .into(),
                    member: if outside {
                        String::new()
                    } else {
                        client.member
                    },
                    instance: if outside { None } else { Self::instance(index) },
                    offsets: vec![(key, committed)],
                    version: 9,
                };
                let answers = self.command(index, command);
                let accepted = GroupAnswer::Partitions(ErrorCode::NONE, vec![ErrorCode::NONE]);
                assert_eq!(answers.len(), 1);
                if answers[0].body == accepted {
                    self.committed.insert((group, topic, partition), offset);
                }
            }
            Step::Delete { group } => {
                let group = GROUPS[group];
                let answers = self.command(
                    99,
                    GroupCommand::DeleteGroup {
                        group: group.into(),
                    },
                );
                if answers[0].body == GroupAnswer::Error(ErrorCode::NONE) {
                    self.committed.retain(|(g, ..), _| *g != group);
                }
            }
            Step::DeleteOffset { group, topic } => {
                let group = GROUPS[group];
                let key = TopicPartition {
                    topic: TOPICS[topic].into(),
                    id: TopicId::ZERO,
                    partition: 0,
                };
                let command = GroupCommand::DeleteOffsets {
                    group: group.into(),
                    partitions: vec![key],
                };
                let answers = self.command(99, command);
                if let GroupAnswer::Partitions(ErrorCode::NONE, each) = &answers[0].body
                    && each == &[ErrorCode::NONE]
                {
                    self.committed.remove(&(group, topic, 0));
                }
            }
            Step::Grow(topic) => {
                let name = TOPICS[topic];
                let count = self.story.topics.by_name(name).map_or(0, |(_, n)| n);
                self.story.topics.set(name, (count + 1).min(4));
                self.story.topics_changed();
            }
            Step::Remake(topic) => {
                self.story.topics.by_name.remove(TOPICS[topic]);
                self.story.topics.set(TOPICS[topic], 2);
                self.story.topics_changed();
                self.committed.retain(|(_, t, _), _| *t != topic);
            }
            Step::Wait(ms) => {
                let answers = self.story.wait(Duration::from_millis(ms));
                self.hear(answers);
            }
            Step::Hold(ms) => {
                let until = self.story.now.mono + Duration::from_millis(ms);
                self.story.shard.hold_sessions(until);
            }
            Step::Crash => {
                let before = self.stored();
                self.story.crash();
                assert_eq!(before, self.stored());
                self.compacted_log_says_the_same();
            }
        }
    }

    /// What a fail-over must not change.
    fn stored(&self) -> (Vec<GroupDescription>, Vec<FetchedOffsets>) {
        let groups = self.story.shard.groups();
        let offsets = GROUPS
            .iter()
            .map(|g| self.story.shard.offsets(g, None, None).0.unwrap());
        let consumers = groups
            .into_iter()
            .filter(|g| g.group_type == "consumer")
            .collect();
        (consumers, offsets.collect())
    }

    /// Compaction keeps the last record of each key.
    fn compacted_log_says_the_same(&self) {
        let log = &self.story.log;
        let mut last = BTreeMap::new();
        for (at, record) in log.iter().enumerate() {
            last.insert(record.key.clone(), at);
        }
        let mut shard = GroupShard::new(self.story.settings.clone());
        for (at, record) in log.iter().enumerate() {
            if last[&record.key] == at && record.value.is_some() {
                let value = record.value.as_deref();
                shard.apply(&record.key, value, Offset(at as i64), self.story.now);
            }
        }
        shard.loaded(self.story.now);
        assert_eq!(shard.groups(), self.story.shard.groups());
        for group in GROUPS {
            let all = |shard: &GroupShard| shard.offsets(group, None, None).0;
            assert_eq!(all(&shard), all(&self.story.shard));
        }
    }

    fn check(&self) {
        for group in self.story.shard.groups() {
            let mut owned = BTreeSet::new();
            let mut held = BTreeSet::new();
            let mut targets = BTreeSet::new();
            for member in &group.members {
                for part in flat(&member.assigned) {
                    assert!(owned.insert(part), "{part:?} has two owners: {group:?}");
                }
                for part in flat(&member.target) {
                    assert!(targets.insert(part), "{part:?} has two targets: {group:?}");
                }
                // What clients work on, as long as the group knows them.
                let clients = self
                    .clients
                    .iter()
                    .filter(|c| c.member == member.member && c.epoch > 0);
                for part in clients.flat_map(|c| &c.holds) {
                    assert!(
                        held.insert(*part),
                        "{part:?} is read by two: {group:?} {:?}",
                        self.clients
                    );
                }
            }
        }
        for (index, name) in TOPICS.iter().enumerate() {
            for group in GROUPS {
                for partition in 0..4 {
                    let key = TopicPartition {
                        topic: (*name).into(),
                        id: TopicId::ZERO,
                        partition,
                    };
                    let found = self
                        .story
                        .shard
                        .offsets(group, Some(&[key]), None)
                        .0
                        .unwrap();
                    let found = found[0].1.as_ref().map(|c| c.offset.0);
                    assert_eq!(
                        found,
                        self.committed.get(&(group, index, partition)).copied()
                    );
                }
            }
            for partition in 0..4 {
                let least = GROUPS
                    .iter()
                    .filter_map(|g| self.committed.get(&(*g, index, partition)))
                    .min();
                let found = self.story.shard.least_committed(name, partition);
                assert_eq!(found, least.map(|o| Offset(*o)));
            }
        }
    }
}

fn flat(nested: &[(TopicId, Vec<i32>)]) -> BTreeSet<Part> {
    nested
        .iter()
        .flat_map(|(topic, partitions)| partitions.iter().map(|p| (*topic, *p)))
        .collect()
}

fn nested(flat: &BTreeSet<Part>) -> Vec<(TopicId, Vec<i32>)> {
    let mut nested: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in flat {
        nested.entry(*topic).or_default().push(*partition);
    }
    nested.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_happens_owners_are_one_offsets_stay_and_everybody_is_answered(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        // Nobody says anything any more: sessions end, and what was parked is answered.
        let answers = world.story.wait(Duration::from_secs(3600));
        world.hear(answers);
        world.check();
        prop_assert_eq!(world.story.parked(), 0);
        for group in world.story.shard.groups() {
            prop_assert_eq!(group.state, "Empty");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Records that nobody sane wrote, in an order that nobody sane wrote them in.
    #[test]
    fn strange_records_end_neither_the_shard_nor_its_timers(
        records in proptest::collection::vec((records::tests::record(), 0..3_usize, 0..3_usize), 0..40),
        steps in proptest::collection::vec(step(), 0..20),
    ) {
        let mut world = World::new();
        for (record, group, member) in records {
            let record = renamed(record, GROUPS[group], ["m1", "m2", "m3"][member]);
            let stored = record.encode().unwrap();
            world.story.log.push(stored);
        }
        world.story.crash();
        for step in steps {
            match step {
                // What they are compared with is not known here.
                Step::Crash | Step::Commit { .. } | Step::Delete { .. } | Step::DeleteOffset { .. } => {
                    world.story.crash();
                }
                other => world.step(other),
            }
        }
        world.story.wait(Duration::from_secs(86_400));
        prop_assert_eq!(world.story.parked(), 0);
    }
}

/// Few names, so that records meet.
fn renamed(mut record: records::Record, to: &str, who: &str) -> records::Record {
    use records::Record as R;
    match &mut record {
        R::Offset { group, topic, .. } => {
            to.clone_into(group);
            TOPICS[who.len() % 3].clone_into(topic);
        }
        R::Group { group, .. } | R::ConsumerGroup { group, .. } | R::TargetEpoch { group, .. } => {
            to.clone_into(group);
        }
        R::ConsumerMember { group, member, .. }
        | R::TargetMember { group, member, .. }
        | R::CurrentMember { group, member, .. } => {
            to.clone_into(group);
            who.clone_into(member);
        }
        R::Share { group, .. } | R::Streams { group, .. } => to.clone_into(group),
    }
    record
}
