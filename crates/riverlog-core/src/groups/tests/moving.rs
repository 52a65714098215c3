//! Clients of both protocols that come, go and change sides in one group, with crashes: one owner for each partition at all
//! times, and nobody is stuck once it calms down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use riverlog_wire::consumer_protocol::{
    Assignment, Subscription, decode_assignment, decode_subscription, encode_assignment,
    encode_subscription,
};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

use super::Story;
use crate::groups::*;

const TOPIC: &str = "orders";
const CLIENTS: usize = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Speaks {
    #[default]
    Classic,
    Consumer,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// What a real client would do next.
    Go(usize),
    /// A member of the consumer protocol that hasn't given back yet what it must.
    Slowly(usize),
    /// The process is stopped, and started with another configuration.
    Restart(usize, Speaks),
    /// The same, without a word to the group.
    Kill(usize, Speaks),
    Grow,
    Wait(u64),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let speaks = || prop_oneof![Just(Speaks::Classic), Just(Speaks::Consumer)];
    prop_oneof![
        60 => (0..CLIENTS).prop_map(Step::Go),
        6 => (0..CLIENTS).prop_map(Step::Slowly),
        5 => (0..CLIENTS, speaks()).prop_map(|(c, s)| Step::Restart(c, s)),
        1 => (0..CLIENTS, speaks()).prop_map(|(c, s)| Step::Kill(c, s)),
        1 => Just(Step::Grow),
        8 => (1..2_000_u64).prop_map(Step::Wait),
        1 => (2_000..12_000_u64).prop_map(Step::Wait),
        3 => Just(Step::Crash),
    ]
}

type Parts = BTreeSet<i32>;

#[derive(Clone, Debug, Default)]
struct Client {
    speaks: Speaks,
    member: String,
    /// Generation or epoch; 0: it has to join.
    epoch: i32,
    must_join: bool,
    synced: bool,
    waits: bool,
    leads: Vec<(String, Bytes)>,
    allowed: Parts,
    /// What it still works on.
    holds: Parts,
}

impl Client {
    fn new(speaks: Speaks) -> Client {
        Client {
            speaks,
            must_join: true,
            ..Client::default()
        }
    }

    /// It is told that it is no member: it stops its work and begins anew.
    fn lost(&mut self) {
        *self = Client::new(self.speaks);
    }

    fn settled(&self) -> bool {
        !self.member.is_empty()
            && !self.waits
            && self.holds == self.allowed
            && self.epoch > 0
            && (self.speaks == Speaks::Consumer || (self.synced && !self.must_join))
    }
}

struct World {
    story: Story,
    /// Members of the classic protocol give back what they are not given, and not everything before they join.
    cooperative: bool,
    clients: Vec<Client>,
}

impl World {
    fn new(cooperative: bool) -> World {
        let mut story = Story::new(GroupSettings {
            consumer_session_timeout: Duration::from_secs(10),
            ..GroupSettings::default()
        });
        story.quiet = true;
        story.topics.set(TOPIC, 4);
        story.topics_changed();
        World {
            story,
            cooperative,
            clients: vec![Client::new(Speaks::Classic); CLIENTS],
        }
    }

    fn topic(&self) -> (TopicId, i32) {
        self.story.topics.by_name(TOPIC).unwrap()
    }

    fn command(&mut self, client: usize, command: GroupCommand) -> Vec<Answer> {
        self.story.tokens += 100;
        let token = Token(self.story.tokens + client as u64);
        self.story.open.insert(token, format!("c{client}"));
        let mut answers = self
            .story
            .perform(|shard, topics, now| shard.decide(command.clone(), token, topics, now));
        answers.extend(self.story.timers());
        self.hear(&answers);
        answers.retain(|a| a.token == token);
        answers
    }

    fn hear(&mut self, answers: &[Answer]) {
        for answer in answers {
            let index = answer.token.0 as usize % 100;
            let client = &mut self.clients[index];
            match &answer.body {
                GroupAnswer::Join(join) => {
                    client.waits = false;
                    match join.error {
                        ErrorCode::NONE => {
                            client.member.clone_from(&join.member);
                            client.epoch = join.generation.0;
                            client.must_join = false;
                            client.synced = false;
                            let members = join.members.iter();
                            client.leads =
                                members.map(|(m, _, s)| (m.clone(), s.clone())).collect();
                            assert_eq!(client.leads.is_empty(), join.leader != join.member);
                        }
                        ErrorCode::MEMBER_ID_REQUIRED => client.member.clone_from(&join.member),
                        ErrorCode::UNKNOWN_MEMBER_ID => client.lost(),
                        ErrorCode::REBALANCE_IN_PROGRESS => client.must_join = true,
                        other => panic!("a join is refused with {other:?}"),
                    }
                }
                GroupAnswer::Sync {
                    error: ErrorCode::NONE,
                    assignment,
                    ..
                } => {
                    client.waits = false;
                    client.synced = true;
                    let given = decode_assignment(assignment).unwrap();
                    client.allowed = given.into_values().flatten().collect();
                    client.holds.extend(client.allowed.iter().copied());
                    // Who gives something back comes again at once.
                    client.must_join |= client.holds != client.allowed;
                }
                GroupAnswer::Sync { error, .. } | GroupAnswer::Error(error) => {
                    client.waits = false;
                    match *error {
                        ErrorCode::NONE => {}
                        ErrorCode::REBALANCE_IN_PROGRESS => client.must_join = true,
                        ErrorCode::ILLEGAL_GENERATION => {
                            client.must_join = true;
                            client.holds.clear();
                            client.allowed.clear();
                        }
                        ErrorCode::UNKNOWN_MEMBER_ID => client.lost(),
                        other => panic!("{other:?}"),
                    }
                }
                GroupAnswer::ConsumerHeartbeat(h) => match h.error {
                    ErrorCode::NONE if h.member_epoch < 0 => {}
                    ErrorCode::NONE => {
                        client.epoch = h.member_epoch;
                        if let Some(given) = &h.assignment {
                            client.allowed = given.iter().flat_map(|(_, p)| p.clone()).collect();
                            client.holds.extend(client.allowed.iter().copied());
                        }
                    }
                    ErrorCode::FENCED_MEMBER_EPOCH
                    | ErrorCode::UNKNOWN_MEMBER_ID
                    | ErrorCode::GROUP_ID_NOT_FOUND => client.lost(),
                    other => panic!("a heartbeat is refused with {other:?}"),
                },
                GroupAnswer::Leave(..)
                | GroupAnswer::Partitions(..)
                | GroupAnswer::StreamsHeartbeat(_) => {}
            }
        }
    }

    fn go(&mut self, index: usize, slowly: bool) {
        match self.clients[index].speaks {
            Speaks::Classic => self.classic(index),
            Speaks::Consumer => self.consumer(index, slowly),
        }
    }

    fn classic(&mut self, index: usize) {
        let client = self.clients[index].clone();
        if client.waits {
            return;
        }
        let group = "g".to_owned();
        let member = client.member.clone();
        if client.must_join {
            let known = self.story.shard.describe("g");
            let known = known.is_some_and(|g| g.members.iter().any(|m| m.member == member));
            let now = &mut self.clients[index];
            now.waits = true;
            // Whoever was removed without knowing it has what isn't its own any more, whatever it does next.
            match self.cooperative && known {
                true => now.holds = &now.holds & &now.allowed,
                false => now.holds.clear(),
            }
            now.allowed = now.holds.clone();
            let subscription = Subscription {
                topics: vec![TOPIC.to_owned()],
                owned: named(&now.holds),
                generation: client.epoch,
                rack: None,
            };
            let name = match self.cooperative {
                true => "cooperative-sticky",
                false => "range",
            };
            let join = Join {
                group,
                member,
                session_timeout: Duration::from_secs(6),
                rebalance_timeout: Duration::from_secs(9),
                protocol_type: "consumer".into(),
                protocols: vec![(name.into(), encode_subscription(&subscription))],
                require_known_member: true,
                can_skip_assignment: true,
                random: u128::from(self.story.tokens + 1),
                ..Join::default()
            };
            self.command(index, GroupCommand::Join(join));
        } else if !client.synced {
            self.clients[index].waits = true;
            let sync = Sync {
                group,
                generation: client.epoch.into(),
                member,
                assignments: self.assign(&client.leads),
                ..Sync::default()
            };
            self.command(index, GroupCommand::Sync(sync));
        } else {
            let generation = client.epoch.into();
            let instance = None;
            let heartbeat = GroupCommand::Heartbeat {
                group,
                generation,
                member,
                instance,
            };
            self.command(index, heartbeat);
        }
    }

    /// What a leader makes of the members' metadata: each its share, and, where members keep what they have, nothing that another
    /// has still to give back.
    fn assign(&self, members: &[(String, Bytes)]) -> Vec<(String, Bytes)> {
        let mut owners: BTreeMap<i32, (i32, usize)> = BTreeMap::new();
        for (at, (_, metadata)) in members.iter().enumerate() {
            let said = decode_subscription(metadata).unwrap();
            for part in said.owned.into_values().flatten() {
                let owner = owners.entry(part).or_insert((said.generation, at));
                *owner = (*owner).max((said.generation, at));
            }
        }
        let mut given: Vec<Parts> = vec![Parts::new(); members.len()];
        for part in 0..self.topic().1 {
            if members.is_empty() {
                break;
            }
            let to = part as usize % members.len();
            if owners.get(&part).is_none_or(|(_, owner)| *owner == to) {
                given[to].insert(part);
            }
        }
        let each = members.iter().zip(given);
        each.map(|((member, _), parts)| (member.clone(), encode_assignment(&named(&parts))))
            .collect()
    }

    fn consumer(&mut self, index: usize, slowly: bool) {
        let random = self.story.tokens + 1;
        let (id, _) = self.topic();
        let client = &mut self.clients[index];
        let joins = client.epoch <= 0;
        if client.member.is_empty() {
            client.member = format!("m{index}-{random}");
        }
        if !slowly {
            client.holds.clone_from(&client.allowed);
        }
        let held: Vec<i32> = client.holds.iter().copied().collect();
        let owned = match held.is_empty() {
            true => Vec::new(),
            false => vec![(id, held)],
        };
        let heartbeat = ConsumerHeartbeat {
            group: "g".into(),
            member: client.member.clone(),
            member_epoch: client.epoch,
            rebalance_timeout: joins.then_some(Duration::from_secs(9)),
            subscribed_topics: joins.then(|| vec![TOPIC.to_owned()]),
            owned: Some(owned),
            version: 1,
            ..ConsumerHeartbeat::default()
        };
        self.command(index, GroupCommand::ConsumerHeartbeat(heartbeat));
    }

    fn leave(&mut self, index: usize) {
        let client = self.clients[index].clone();
        if client.member.is_empty() {
            return;
        }
        let command = match client.speaks {
            Speaks::Classic => GroupCommand::Leave {
                group: "g".into(),
                members: vec![(client.member, None, None)],
            },
            Speaks::Consumer => GroupCommand::ConsumerHeartbeat(ConsumerHeartbeat {
                group: "g".into(),
                member: client.member,
                member_epoch: -1,
                version: 1,
                ..ConsumerHeartbeat::default()
            }),
        };
        self.command(index, command);
    }

    /// Answers that were parked for the process before must not be taken for the new one's.
    fn restart(&mut self, index: usize, speaks: Speaks) {
        let who = format!("c{index}");
        let parked = self.story.open.values().any(|name| *name == who);
        if !parked {
            self.clients[index] = Client::new(speaks);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Go(client) => self.go(client, false),
            Step::Slowly(client) => self.go(client, true),
            Step::Restart(client, speaks) => {
                self.leave(client);
                self.restart(client, speaks);
            }
            Step::Kill(client, speaks) => self.restart(client, speaks),
            Step::Grow => {
                let (_, partitions) = self.topic();
                self.story.topics.set(TOPIC, (partitions + 1).min(7));
                self.story.topics_changed();
                // A leader of a classic group looks at the topics itself.
                for client in &mut self.clients {
                    client.must_join |= !client.leads.is_empty();
                }
            }
            Step::Wait(ms) => {
                let answers = self.story.wait(Duration::from_millis(ms));
                self.hear(&answers);
            }
            Step::Crash => {
                self.story.crash();
                for client in &mut self.clients {
                    client.must_join |= client.waits;
                    client.waits = false;
                }
            }
        }
    }

    fn check(&self) {
        let Some(group) = self.story.shard.describe("g") else {
            return;
        };
        let mut owned = BTreeSet::new();
        let mut held = BTreeSet::new();
        for member in &group.members {
            for part in member.assigned.iter().flat_map(|(_, p)| p) {
                assert!(owned.insert(*part), "{part} has two owners: {group:?}");
            }
            let clients = self.clients.iter().filter(|c| c.member == member.member);
            for part in clients.flat_map(|c| &c.holds) {
                assert!(
                    held.insert(*part),
                    "{part} is read by two: {group:?} {:?}",
                    self.clients
                );
            }
        }
    }

    /// Everybody goes on as clients do; in the end each partition is read, and what is read can be committed.
    fn calms_down(&mut self) {
        for _ in 0..80 {
            for client in 0..CLIENTS {
                self.go(client, false);
                self.check();
            }
            let answers = self.story.wait(Duration::from_millis(500));
            self.hear(&answers);
        }
        let group = self.story.shard.describe("g").unwrap();
        assert!(
            self.clients.iter().all(Client::settled),
            "{:?} {group:?}",
            self.clients
        );
        assert_eq!(group.state, "Stable");
        let classic = self.clients.iter().all(|c| c.speaks == Speaks::Classic);
        let newer = self.clients.iter().any(|c| c.speaks == Speaks::Consumer);
        // A group that only members of the classic protocol came to was never another.
        assert!(!newer || group.group_type == "consumer", "{group:?}");
        assert!(!classic || group.group_type == "classic", "{group:?}");
        let read: Vec<i32> = self.clients.iter().flat_map(|c| c.holds.clone()).collect();
        let all: BTreeSet<i32> = read.iter().copied().collect();
        assert_eq!(all.len(), read.len());
        assert_eq!(all, (0..self.topic().1).collect());
        for index in 0..CLIENTS {
            let client = self.clients[index].clone();
            let committed = CommittedOffset {
                offset: Offset(1),
                leader_epoch: LeaderEpoch(0),
                metadata: String::new(),
                commit_timestamp: 0,
                expire_timestamp: None,
            };
            let each = client.holds.iter().map(|partition| TopicPartition {
                topic: TOPIC.into(),
                id: TopicId::ZERO,
                partition: *partition,
            });
            let commit = GroupCommand::Commit {
                group: "g".into(),
                generation: client.epoch.into(),
                member: client.member,
                instance: None,
                offsets: each.map(|part| (part, committed.clone())).collect(),
                version: 9,
            };
            let answers = self.command(index, commit);
            let fine = vec![ErrorCode::NONE; client.holds.len()];
            assert_eq!(
                answers[0].body,
                GroupAnswer::Partitions(ErrorCode::NONE, fine)
            );
        }
    }
}

fn named(parts: &Parts) -> Assignment {
    match parts.is_empty() {
        true => Assignment::new(),
        false => [(TOPIC.to_owned(), parts.iter().copied().collect())].into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn members_of_both_protocols_share_partitions_and_nobody_is_stuck(
        cooperative in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(cooperative);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.calms_down();
    }
}
