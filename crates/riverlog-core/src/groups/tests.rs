//! Stories: small scripts, and what a shard answers and writes.
//!
//! A line is a step. `a: join` is said by client `a`, whose member id, generation, epoch and partitions the story
//! remembers. Answers are printed as they come, records with `+`, tombstones with `-`.

mod classic;
mod consumer;
mod load;
mod migration;
mod moving;
mod offsets;
mod random;
mod soon;
mod subscriptions;
mod transactions;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use expect_test::Expect;
use riverlog_wire::consumer_protocol::{
    Assignment, Subscription, decode_assignment, encode_assignment, encode_subscription,
};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

use super::records::Record;
use super::*;
use crate::Now;

/// Topics by name; the id counts.
#[derive(Clone, Debug, Default)]
pub(super) struct TestTopics {
    by_name: BTreeMap<String, (TopicId, i32)>,
    made: u8,
    /// Of all groups.
    pub(super) configs: BTreeMap<String, String>,
}

impl Topics for TestTopics {
    fn by_name(&self, name: &str) -> Option<(TopicId, i32)> {
        self.by_name.get(name).copied()
    }
    fn name_of(&self, id: TopicId) -> Option<&str> {
        let found = self.by_name.iter().find(|(_, (i, _))| *i == id);
        found.map(|(name, _)| name.as_str())
    }
    fn names(&self) -> Vec<&str> {
        self.by_name.keys().map(String::as_str).collect()
    }
    fn configs_of_group(&self, _group: &str) -> GroupConfigs<'_> {
        GroupConfigs::new(Some(&self.configs))
    }
}

impl TestTopics {
    pub(super) fn set(&mut self, name: &str, partitions: i32) {
        if let Some((_, count)) = self.by_name.get_mut(name) {
            *count = partitions;
            return;
        }
        self.made += 1;
        let id = TopicId([self.made; 16]);
        self.by_name.insert(name.into(), (id, partitions));
    }

    fn label(&self, id: TopicId) -> String {
        self.name_of(id)
            .map_or_else(|| format!("#{}", id.0[0]), str::to_owned)
    }
}

/// What a client remembers.
#[derive(Clone, Debug, Default)]
struct Client {
    member: String,
    instance: Option<String>,
    generation: i32,
    epoch: i32,
    assigned: Vec<(TopicId, Vec<i32>)>,
}

/// A shard with its log, and a host that performs decisions at once.
pub(super) struct Story {
    pub(super) shard: GroupShard,
    pub(super) topics: TestTopics,
    pub(super) log: Vec<StoredRecord>,
    pub(super) now: Now,
    settings: GroupSettings,
    clients: BTreeMap<String, Client>,
    tokens: u64,
    open: BTreeMap<Token, String>,
    group: String,
    out: String,
    quiet: bool,
    /// Decides once, and looks at nothing.
    fast: bool,
}

/// Wall clock at the beginning of each story.
const START_MS: i64 = 1_000_000;

impl Story {
    pub(super) fn new(settings: GroupSettings) -> Story {
        let now = Now {
            mono: Duration::from_secs(100),
            wall_ms: START_MS,
        };
        let mut shard = GroupShard::new(settings.clone());
        shard.loaded(now);
        Story {
            shard,
            topics: TestTopics::default(),
            log: Vec::new(),
            now,
            settings,
            clients: BTreeMap::new(),
            tokens: 0,
            open: BTreeMap::new(),
            group: "g".into(),
            out: String::new(),
            quiet: false,
            fast: false,
        }
    }

    pub(super) fn token(&mut self, who: &str) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.open.insert(token, who.to_owned());
        token
    }

    /// Decides twice, to see that it is the same, and performs it.
    pub(super) fn perform(
        &mut self,
        decide: impl Fn(&GroupShard, &TestTopics, Now) -> Decision,
    ) -> Vec<Answer> {
        let decision = decide(&self.shard, &self.topics, self.now);
        if !self.fast {
            let again = decide(&self.shard, &self.topics, self.now);
            assert_eq!(format!("{decision:?}"), format!("{again:?}"));
        }
        for change in decision.soft {
            self.shard.soft(change);
        }
        for record in decision.records {
            let at = Offset(self.log.len() as i64);
            self.shard
                .apply(&record.key, record.value.as_deref(), at, self.now);
            if !self.quiet {
                self.print_record(&record);
            }
            self.log.push(record);
        }
        for answer in &decision.answers {
            assert!(answer.after.0 <= self.log.len() as i64);
            let who = self.open.remove(&answer.token).expect("a second answer");
            self.print_answer(&who, &answer.body);
        }
        decision.answers
    }

    pub(super) fn command(&mut self, who: &str, command: GroupCommand) -> Vec<Answer> {
        let token = self.token(who);
        let mut answers =
            self.perform(|shard, topics, now| shard.decide(command.clone(), token, topics, now));
        answers.extend(self.timers());
        answers
    }

    pub(super) fn timers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        for _ in 0..1000 {
            if self
                .shard
                .next_deadline()
                .is_none_or(|at| at > self.now.mono)
            {
                return answers;
            }
            answers.extend(self.perform(|shard, topics, now| shard.decide_timers(topics, now)));
        }
        panic!(
            "time brings something for ever: {:?}",
            self.shard.next_deadline()
        );
    }

    pub(super) fn topics_changed(&mut self) {
        self.perform(|shard, topics, now| shard.decide_topics_changed(topics, now));
        self.timers();
    }

    pub(super) fn wait(&mut self, time: Duration) -> Vec<Answer> {
        let end = self.now.mono + time;
        let mut answers = Vec::new();
        while let Some(at) = self.shard.next_deadline()
            && at <= end
        {
            self.to(at);
            answers.extend(self.timers());
        }
        self.to(end);
        answers
    }

    fn to(&mut self, mono: Duration) {
        let by = mono.saturating_sub(self.now.mono);
        self.now.mono += by;
        self.now.wall_ms += by.as_millis() as i64;
    }

    /// Soft state and parked answers are lost.
    pub(super) fn crash(&mut self) {
        self.open.clear();
        self.shard = GroupShard::new(self.settings.clone());
        for (at, record) in self.log.iter().enumerate() {
            let at = Offset(at as i64);
            self.shard
                .apply(&record.key, record.value.as_deref(), at, self.now);
        }
        self.shard.loaded(self.now);
        self.topics_changed();
    }

    pub(super) fn parked(&self) -> usize {
        self.open.len()
    }

    fn say(&mut self, line: &str) {
        if !self.quiet {
            writeln!(self.out, "{}", short(line)).unwrap();
        }
    }

    fn print_record(&mut self, stored: &StoredRecord) {
        let record = Record::decode(&stored.key, stored.value.as_deref())
            .unwrap()
            .unwrap();
        let topics = &self.topics;
        let line = match record {
            Record::Offset {
                group,
                topic,
                partition,
                value: Some(v),
            } => {
                let expire = v.expire_timestamp.map(|at| format!(" expires {at}"));
                format!(
                    "+ {group} {topic}/{partition} = {}{}",
                    v.offset,
                    expire.unwrap_or_default()
                )
            }
            Record::Offset {
                group,
                topic,
                partition,
                ..
            } => format!("- {group} {topic}/{partition}"),
            Record::Group {
                group,
                value: Some(v),
            } => {
                let members: Vec<String> = v
                    .members
                    .iter()
                    .map(|m| match decode_assignment(&m.assignment) {
                        Ok(given) if !m.assignment.is_empty() => {
                            format!("{}={}", m.member, words(&given))
                        }
                        _ => format!("{}={}", m.member, String::from_utf8_lossy(&m.assignment)),
                    })
                    .collect();
                format!(
                    "+ {group} generation {} {} leader {} [{}]",
                    v.generation,
                    v.protocol.unwrap_or("-".into()),
                    v.leader.unwrap_or("-".into()),
                    members.join(" ")
                )
            }
            Record::Group { group, .. } => format!("- {group} generation"),
            Record::ConsumerGroup {
                group,
                value: Some(v),
            } => {
                let empty = if v.empty_since.is_some() {
                    " empty"
                } else {
                    ""
                };
                format!("+ {group} epoch {}{empty}", v.epoch)
            }
            Record::ConsumerGroup { group, .. } => format!("- {group} epoch"),
            Record::ConsumerMember {
                group,
                member,
                value: Some(v),
            } => {
                format!(
                    "+ {group} {member} reads {}{}{}",
                    v.topics.join(","),
                    v.pattern.unwrap_or_default(),
                    if v.classic.is_some() {
                        " (classic)"
                    } else {
                        ""
                    },
                )
            }
            Record::ConsumerMember { group, member, .. } => format!("- {group} {member}"),
            Record::TargetEpoch {
                group,
                value: Some(v),
            } => format!("+ {group} target epoch {}", v.epoch),
            Record::TargetEpoch { group, .. } => format!("- {group} target epoch"),
            Record::TargetMember {
                group,
                member,
                value: Some(v),
            } => {
                format!("+ {group} {member} target {}", show(topics, &v.partitions))
            }
            Record::TargetMember { group, member, .. } => format!("- {group} {member} target"),
            Record::CurrentMember {
                group,
                member,
                value: Some(v),
            } => {
                let held = |held: Vec<(TopicId, Vec<(i32, i32)>)>| -> Vec<(TopicId, Vec<i32>)> {
                    held.into_iter()
                        .map(|(t, p)| (t, p.into_iter().map(|(p, _)| p).collect()))
                        .collect()
                };
                let revoking = match v.revoking.is_empty() {
                    true => String::new(),
                    false => format!(" gives back {}", show(topics, &held(v.revoking))),
                };
                let waits = if v.state == 2 { " waits" } else { "" };
                format!(
                    "+ {group} {member} epoch {} has {}{revoking}{waits}",
                    v.epoch,
                    show(topics, &held(v.assigned))
                )
            }
            Record::CurrentMember { group, member, .. } => format!("- {group} {member} has"),
            Record::Share { group, record } => format!("  {group} {record:?}"),
            Record::Streams { group, record } => format!("  {group} {record:?}"),
        };
        self.say(&format!("  {line}"));
    }

    fn print_answer(&mut self, who: &str, body: &GroupAnswer) {
        let client = self.clients.entry(who.to_owned()).or_default();
        let line = match body {
            GroupAnswer::Join(j) => {
                if [ErrorCode::NONE, ErrorCode::MEMBER_ID_REQUIRED].contains(&j.error) {
                    client.member.clone_from(&j.member);
                    client.generation = j.generation.0;
                }
                if j.error != ErrorCode::NONE {
                    format!("{} {}", j.error.name(), j.member)
                } else {
                    let members: Vec<&str> = j.members.iter().map(|(m, ..)| m.as_str()).collect();
                    format!(
                        "joined as {} generation {} {} leader {}{}{}",
                        j.member,
                        j.generation,
                        j.protocol_name.as_deref().unwrap_or("-"),
                        j.leader,
                        if members.is_empty() {
                            String::new()
                        } else {
                            format!(" of [{}]", members.join(" "))
                        },
                        if j.skip_assignment { " skips" } else { "" },
                    )
                }
            }
            GroupAnswer::Sync {
                error: ErrorCode::NONE,
                assignment,
                ..
            } => {
                match decode_assignment(assignment) {
                    // What the broker assigns, it writes as consumers do.
                    Ok(given) if !assignment.is_empty() => {
                        format!("synced {}", words(&given))
                    }
                    _ => format!("synced {:?}", String::from_utf8_lossy(assignment)),
                }
            }
            GroupAnswer::Sync { error, .. } => error.name().to_owned(),
            GroupAnswer::Error(error) => error.name().to_owned(),
            GroupAnswer::Leave(error, each) | GroupAnswer::Partitions(error, each) => {
                let each: Vec<&str> = each.iter().map(|e| e.name()).collect();
                format!("{} [{}]", error.name(), each.join(" "))
            }
            GroupAnswer::ConsumerHeartbeat(h) if h.error == ErrorCode::NONE => {
                client.member.clone_from(&h.member);
                client.epoch = h.member_epoch;
                if let Some(assignment) = &h.assignment {
                    client.assigned.clone_from(assignment);
                }
                let assignment = h.assignment.as_ref();
                let given = assignment.map(|a| format!(" may have {}", show(&self.topics, a)));
                format!(
                    "{} epoch {}{}",
                    h.member,
                    h.member_epoch,
                    given.unwrap_or_default()
                )
            }
            GroupAnswer::ConsumerHeartbeat(h) => h.error.name().to_owned(),
            GroupAnswer::StreamsHeartbeat(h) => format!("{h:?}"),
        };
        self.say(&format!("  {who}: {line}"));
    }

    fn step(&mut self, line: &str) {
        let (who, words) = match line.split_once(": ") {
            Some((who, rest)) => (who, rest),
            None => ("", line),
        };
        let mut words = words.split_whitespace();
        let verb = words.next().unwrap();
        let rest: Vec<&str> = words.collect();
        let args = Args(rest.clone());
        let mut client = self.clients.get(who).cloned().unwrap_or_default();
        if let Some(instance) = args.get("instance") {
            client.instance = Some(instance.into());
        }
        if let Some(member) = args.get("member") {
            client.member = member.replace('\'', "");
        }
        self.clients.insert(who.to_owned(), client.clone());
        let group = args.get("group").unwrap_or(&self.group).replace('\'', "");
        let generation = args.number("generation").unwrap_or(client.generation);
        let member = client.member.clone();
        let instance = client.instance.clone();
        let partition = |key: &str, id: bool| {
            let (topic, partition) = key.rsplit_once('/').unwrap();
            TopicPartition {
                topic: topic.into(),
                id: match self.topics.by_name(topic) {
                    Some((topic, _)) if id => topic,
                    _ => TopicId::ZERO,
                },
                partition: partition.parse().unwrap(),
            }
        };
        match verb {
            "topic" => {
                self.topics.set(rest[0], rest[1].parse().unwrap());
                if !args.has("later") {
                    self.topics_changed();
                }
            }
            "drop" => {
                self.topics.by_name.remove(rest[0]);
                if !args.has("later") {
                    self.topics_changed();
                }
            }
            "wait" => {
                self.wait(args.time(rest[0]));
            }
            "hold" => {
                let until = self.now.mono + args.time(rest[0]);
                self.shard.hold_sessions(until);
            }
            "crash" => self.crash(),
            "show" => match self.shard.describe(&group) {
                None => self.say("  no group"),
                Some(d) => {
                    let members: Vec<&str> = d.members.iter().map(|m| m.member.as_str()).collect();
                    self.say(&format!(
                        "  {} {} {:?} {:?} {} [{}]",
                        d.group,
                        d.state,
                        d.group_type,
                        d.protocol,
                        d.generation,
                        members.join(" ")
                    ));
                }
            },
            "list" => {
                let groups: Vec<String> = self
                    .shard
                    .groups()
                    .into_iter()
                    .map(|g| format!("{:?}", g.group))
                    .collect();
                self.say(&format!("  {}", groups.join(" ")));
            }
            "fetch" => {
                let keys: Vec<TopicPartition> = rest
                    .iter()
                    .filter(|w| w.contains('/'))
                    .map(|k| partition(k, args.has("by-id")))
                    .collect();
                let all = args.has("all");
                let member = (!who.is_empty()).then(|| {
                    (
                        member.as_str(),
                        args.number("epoch").unwrap_or(client.epoch),
                    )
                });
                let (found, after) = self.shard.offsets(&group, (!all).then_some(&keys), member);
                let line = match found {
                    Err(error) => error.name().to_owned(),
                    Ok(found) => {
                        let each: Vec<String> = found
                            .into_iter()
                            .map(|(k, v)| {
                                let offset = v.map_or("none".into(), |v| v.offset.to_string());
                                format!("{}/{} = {offset}", k.topic, k.partition)
                            })
                            .collect();
                        format!("{} after {after}", each.join(", "))
                    }
                };
                self.say(&format!("  {line}"));
            }
            "join" => {
                let protocols = args.get("protocols").unwrap_or("range");
                let owns = args.get("owns").map(assignment).unwrap_or_default();
                let reads = args.get("reads");
                let metadata = reads.map(|topics| subscription(topics, owns, generation));
                let metadata = metadata.unwrap_or_default();
                let join = Join {
                    group,
                    member,
                    instance,
                    client_id: who.into(),
                    client_host: "/127.0.0.1".into(),
                    session_timeout: args
                        .get("session")
                        .map_or(Duration::from_secs(10), |t| args.time(t)),
                    rebalance_timeout: args
                        .get("rebalance")
                        .map_or(Duration::from_secs(60), |t| args.time(t)),
                    protocol_type: args.get("type").unwrap_or("consumer").replace('\'', ""),
                    protocols: protocols
                        .split(',')
                        .filter(|p| *p != "none")
                        .map(|p| (p.to_owned(), metadata.clone()))
                        .collect(),
                    require_known_member: !args.has("old"),
                    can_skip_assignment: !args.has("old") && !args.has("no-skip"),
                    random: u128::from(self.tokens + 1),
                };
                self.command(who, GroupCommand::Join(join));
            }
            "sync" => {
                let assignments = args.get("assign").map_or(Vec::new(), |all| {
                    all.split(',')
                        .map(|one| {
                            let (to, what) = one.split_once('=').unwrap();
                            let member = self.clients.get(to).map_or(to, |c| &c.member);
                            let what = match what.contains('/') {
                                true => encode_assignment(&assignment(what)),
                                false => Bytes::from(what.to_owned()),
                            };
                            (member.to_owned(), what)
                        })
                        .collect()
                });
                let sync = Sync {
                    group,
                    generation: generation.into(),
                    member,
                    instance,
                    protocol_type: args.get("type").map(str::to_owned),
                    protocol_name: args.get("protocol").map(str::to_owned),
                    assignments,
                };
                self.command(who, GroupCommand::Sync(sync));
            }
            "heartbeat" => {
                let generation = generation.into();
                self.command(
                    who,
                    GroupCommand::Heartbeat {
                        group,
                        generation,
                        member,
                        instance,
                    },
                );
            }
            "leave" => {
                let members = match args.get("members") {
                    Some(all) => all
                        .split(',')
                        .map(|one| match one.strip_prefix('@') {
                            Some(instance) => (String::new(), Some(instance.to_owned()), None),
                            None => {
                                let member = self.clients.get(one).map_or(one, |c| &c.member);
                                (member.to_owned(), None, None)
                            }
                        })
                        .collect(),
                    None => vec![(member, instance, None)],
                };
                self.command(who, GroupCommand::Leave { group, members });
            }
            "hb" => {
                let joins = args.has("join");
                let mut heartbeat = ConsumerHeartbeat {
                    group,
                    member: if joins && member.is_empty() && args.get("version").is_none() {
                        who.into()
                    } else {
                        member
                    },
                    member_epoch: args.number("epoch").unwrap_or(match () {
                        () if joins => 0,
                        () if args.has("leave") => -1,
                        () if args.has("away") => -2,
                        () => client.epoch,
                    }),
                    instance,
                    rebalance_timeout: (joins || args.has("timeout"))
                        .then_some(Duration::from_secs(60)),
                    subscribed_topics: args.get("reads").map(|t| {
                        t.split(',')
                            .filter(|t| *t != "none")
                            .map(str::to_owned)
                            .collect()
                    }),
                    subscribed_pattern: args.get("pattern").map(str::to_owned),
                    assignor: args.get("assignor").map(str::to_owned),
                    owned: (joins || args.has("done")).then(Vec::new),
                    client_id: who.into(),
                    client_host: "/127.0.0.1".into(),
                    random: u128::from(self.tokens + 1),
                    version: args.number("version").unwrap_or(1) as i16,
                    rack: None,
                };
                if args.has("done") {
                    heartbeat.owned = Some(client.assigned.clone());
                }
                if let Some(owned) = args.get("owns") {
                    let mut owns: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
                    for key in owned.split(',').filter(|o| *o != "none") {
                        let p = partition(key, true);
                        owns.entry(p.id).or_default().push(p.partition);
                    }
                    heartbeat.owned = Some(owns.into_iter().collect());
                }
                if args.has("no-owned") {
                    heartbeat.owned = None;
                }
                if args.has("no-timeout") {
                    heartbeat.rebalance_timeout = None;
                }
                self.command(who, GroupCommand::ConsumerHeartbeat(heartbeat));
            }
            "commit" => {
                let note = args.get("note").unwrap_or_default();
                let note = note
                    .parse::<usize>()
                    .map_or_else(|_| note.to_owned(), |n| "x".repeat(n));
                let offsets = rest
                    .iter()
                    .filter_map(|w| w.split_once('='))
                    .filter(|(key, _)| key.contains('/'))
                    .map(|(key, offset)| {
                        let committed = CommittedOffset {
                            offset: Offset(offset.parse().unwrap()),
                            leader_epoch: LeaderEpoch(3),
                            metadata: note.clone(),
                            commit_timestamp: 0,
                            expire_timestamp: args
                                .get("expire")
                                .map(|t| self.now.wall_ms + args.time(t).as_millis() as i64),
                        };
                        (partition(key, args.has("by-id")), committed)
                    })
                    .collect();
                let generation = match who.is_empty() {
                    true => args.number("generation").unwrap_or(-1),
                    false => args.number("epoch").unwrap_or(match client.epoch {
                        0 => generation,
                        epoch => epoch,
                    }),
                };
                let version = args.number("version").unwrap_or(9) as i16;
                let generation = generation.into();
                self.command(
                    who,
                    GroupCommand::Commit {
                        group,
                        generation,
                        member,
                        instance,
                        offsets,
                        version,
                    },
                );
            }
            "delete-offsets" => {
                let partitions = rest
                    .iter()
                    .filter(|w| w.contains('/'))
                    .map(|k| partition(k, false))
                    .collect();
                self.command(who, GroupCommand::DeleteOffsets { group, partitions });
            }
            "delete" => {
                self.command(who, GroupCommand::DeleteGroup { group });
            }
            "least" => {
                let p = partition(rest[0], false);
                let least = self.shard.least_committed(&p.topic, p.partition);
                self.say(&format!("  {least:?}"));
            }
            _ => panic!("no such verb: {line}"),
        }
    }
}

struct Args<'a>(Vec<&'a str>);

impl<'a> Args<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        let mut pairs = self.0.iter().filter_map(|w| w.split_once('='));
        pairs.find(|(k, _)| *k == key).map(|(_, v)| v)
    }
    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }
    fn number(&self, key: &str) -> Option<i32> {
        self.get(key).map(|n| n.parse().unwrap())
    }
    fn time(&self, text: &str) -> Duration {
        let cut = text.trim_end_matches(char::is_alphabetic).len();
        let (number, unit) = text.split_at(cut);
        let number: u64 = number.parse().unwrap();
        match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(60 * number),
            "d" => Duration::from_secs(24 * 3600 * number),
            _ => panic!("{text}: ms, s, m or d"),
        }
    }
}

fn show(topics: &TestTopics, held: &[(TopicId, Vec<i32>)]) -> String {
    if held.is_empty() {
        return "nothing".into();
    }
    let each: Vec<String> = held
        .iter()
        .map(|(topic, partitions)| {
            let numbers: Vec<String> = partitions.iter().map(i32::to_string).collect();
            format!("{}/{}", topics.label(*topic), numbers.join(","))
        })
        .collect();
    each.join(" ")
}

/// Member ids end in a UUID that counts here.
fn short(line: &str) -> String {
    line.replace("-00000000-0000-0000-0000-00000000000", "-")
        .replace("-00000000-0000-0000-0000-0000000000", "-")
}

/// As consumers write their metadata.
fn subscription(topics: &str, owned: Assignment, generation: i32) -> Bytes {
    encode_subscription(&Subscription {
        topics: topics.split(',').map(str::to_owned).collect(),
        owned,
        generation,
        rack: None,
    })
}

/// `orders/0+1`, or `none`.
fn assignment(words: &str) -> Assignment {
    let each = words.split('&').filter_map(|one| one.split_once('/'));
    each.map(|(topic, partitions)| {
        let partitions = partitions.split('+').map(|p| p.parse().unwrap()).collect();
        (topic.to_owned(), partitions)
    })
    .collect()
}

/// The other way round, as targets are printed.
fn words(assignment: &Assignment) -> String {
    let each: Vec<String> = assignment
        .iter()
        .map(|(topic, partitions)| {
            let numbers: Vec<String> = partitions.iter().map(i32::to_string).collect();
            format!("{topic}/{}", numbers.join(","))
        })
        .collect();
    match each.is_empty() {
        true => "nothing".to_owned(),
        false => each.join(" "),
    }
}

pub(super) fn check_with(settings: GroupSettings, script: &str, expect: Expect) {
    let mut story = Story::new(settings);
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        story.quiet = line.starts_with('.');
        let line = line.trim_start_matches(['.', ' ']);
        story.say(line);
        story.step(line);
    }
    expect.assert_eq(&story.out);
}

/// Lines that begin with a dot are not printed.
pub(super) fn check(script: &str, expect: Expect) {
    check_with(GroupSettings::default(), script, expect);
}
