//! Offsets within transactions: pending until the marker, and what that means for everything else.

use std::time::Duration;

use riverlog_wire::{
    ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId,
};

use super::TestTopics;
use crate::Now;
use crate::groups::{
    CommittedOffset, Decision, GroupAnswer, GroupCommand, GroupSettings, GroupShard, InTransaction,
    Join, Token, TopicPartition, Topics as _,
};

struct Host {
    shard: GroupShard,
    topics: TestTopics,
    at: Offset,
    now: Now,
    /// Of the log: records with their transaction, and markers.
    log: Vec<Entry>,
}

enum Entry {
    Record(Option<ProducerId>, bytes::Bytes, Option<bytes::Bytes>),
    Marker(ProducerId, bool),
}

impl Host {
    fn new() -> Host {
        let settings = GroupSettings {
            offsets_retention: Duration::from_secs(100),
            initial_rebalance_delay: Duration::ZERO,
            ..GroupSettings::default()
        };
        let now = Now {
            mono: Duration::ZERO,
            wall_ms: 1_000_000,
        };
        let mut shard = GroupShard::new(settings);
        shard.loaded(now);
        let mut topics = TestTopics::default();
        topics.set("t", 3);
        Host {
            shard,
            topics,
            at: Offset(0),
            now,
            log: Vec::new(),
        }
    }

    fn put(&mut self, entry: Entry) {
        let at = self.at;
        self.at = at + 1;
        match &entry {
            Entry::Record(None, key, value) => {
                self.shard.apply(key, value.as_deref(), at, self.now);
            }
            Entry::Record(Some(id), key, value) => {
                let shard = &mut self.shard;
                shard.apply_in_transaction(*id, key, value.as_deref(), at, self.now);
            }
            Entry::Marker(id, committed) => self.shard.end_transaction(*id, *committed, at),
        }
        self.log.push(entry);
    }

    fn perform(&mut self, decision: Decision, producer: Option<ProducerId>) -> Vec<GroupAnswer> {
        for soft in decision.soft {
            self.shard.soft(soft);
        }
        for record in decision.records {
            self.put(Entry::Record(producer, record.key, record.value));
        }
        decision.answers.into_iter().map(|a| a.body).collect()
    }

    fn say(&mut self, command: GroupCommand) -> GroupAnswer {
        let producer = match &command {
            GroupCommand::TxnCommit { transaction, .. } => Some(transaction.producer_id),
            _ => None,
        };
        let decision = self.shard.decide(command, Token(1), &self.topics, self.now);
        let mut answers = self.perform(decision, producer);
        self.time_passes(Duration::ZERO);
        answers.pop().expect("an answer")
    }

    fn time_passes(&mut self, by: Duration) {
        self.now.mono += by;
        self.now.wall_ms += by.as_millis() as i64;
        for _ in 0..10 {
            let decision = self.shard.decide_timers(&self.topics, self.now);
            self.perform(decision, None);
        }
    }

    fn txn(&mut self, producer: i64, partition: i32, offset: i64) -> ErrorCode {
        self.txn_as(producer, partition, offset, ("", -1), 5)
    }

    fn txn_as(
        &mut self,
        producer: i64,
        partition: i32,
        offset: i64,
        (member, generation): (&str, i32),
        version: i16,
    ) -> ErrorCode {
        first_error(self.say(GroupCommand::TxnCommit {
            group: "g".to_owned(),
            generation: Generation(generation),
            member: member.to_owned(),
            instance: None,
            offsets: vec![(at(partition), committed(offset))],
            version,
            transaction: InTransaction {
                producer_id: ProducerId(producer),
                producer_epoch: ProducerEpoch(0),
                verified: self.at,
            },
        }))
    }

    fn plain(&mut self, partition: i32, offset: i64) -> ErrorCode {
        first_error(self.say(GroupCommand::Commit {
            group: "g".to_owned(),
            generation: Generation(-1),
            member: String::new(),
            instance: None,
            offsets: vec![(at(partition), committed(offset))],
            version: 8,
        }))
    }

    fn end(&mut self, producer: i64, committed: bool) {
        self.put(Entry::Marker(ProducerId(producer), committed));
    }

    /// Plainly, and as one who wants it stable; and that a replay of the log says the same.
    fn offset(&self, partition: i32) -> (Option<i64>, Result<Option<i64>, ErrorCode>) {
        let seen = offset_in(&self.shard, partition);
        let mut again = GroupShard::new(GroupSettings::default());
        for (entry, position) in self.log.iter().zip(0..) {
            let position = Offset(position);
            match entry {
                Entry::Record(None, key, value) => {
                    again.apply(key, value.as_deref(), position, self.now);
                }
                Entry::Record(Some(id), key, value) => {
                    again.apply_in_transaction(*id, key, value.as_deref(), position, self.now);
                }
                Entry::Marker(id, committed) => again.end_transaction(*id, *committed, position),
            }
        }
        assert_eq!(offset_in(&again, partition), seen);
        assert_eq!(
            again.least_committed("t", partition),
            self.shard.least_committed("t", partition)
        );
        assert_eq!(again.describe("g").is_some(), self.exists());
        seen
    }

    fn exists(&self) -> bool {
        self.shard.describe("g").is_some()
    }
}

fn offset_in(shard: &GroupShard, partition: i32) -> (Option<i64>, Result<Option<i64>, ErrorCode>) {
    let (plain, _) = shard.offsets("g", Some(&[at(partition)]), None);
    let (stable, _) = shard.stable_offsets("g", Some(&[at(partition)]), None);
    let value = |c: &Option<CommittedOffset>| c.as_ref().map(|c| c.offset.0);
    let stable = stable.unwrap()[0].1.clone();
    (value(&plain.unwrap()[0].1), stable.map(|c| value(&c)))
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition {
        topic: "t".to_owned(),
        id: TopicId::ZERO,
        partition,
    }
}

fn committed(offset: i64) -> CommittedOffset {
    CommittedOffset {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(-1),
        metadata: String::new(),
        commit_timestamp: 0,
        expire_timestamp: None,
    }
}

fn first_error(answer: GroupAnswer) -> ErrorCode {
    match answer {
        GroupAnswer::Partitions(ErrorCode::NONE, each) => each[0],
        GroupAnswer::Partitions(error, _) | GroupAnswer::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

const UNSTABLE: Result<Option<i64>, ErrorCode> = Err(ErrorCode::UNSTABLE_OFFSET_COMMIT);

#[test]
fn an_offset_counts_once_its_transaction_is_committed() {
    let mut host = Host::new();
    assert_eq!(host.plain(0, 1), ErrorCode::NONE);
    assert_eq!(host.txn(7, 0, 5), ErrorCode::NONE);
    assert_eq!(host.offset(0), (Some(1), UNSTABLE));
    assert_eq!(host.offset(1), (None, Ok(None)));
    assert_eq!(host.shard.least_committed("t", 0), Some(Offset(1)));
    host.end(8, true);
    assert_eq!(host.offset(0), (Some(1), UNSTABLE));
    host.end(7, true);
    assert_eq!(host.offset(0), (Some(5), Ok(Some(5))));
    assert_eq!(host.shard.least_committed("t", 0), Some(Offset(5)));
    // Read only once the marker is durable.
    let (_, after) = host.shard.offsets("g", Some(&[at(0)]), None);
    assert_eq!(after, host.at);
    assert_eq!(host.txn(7, 0, 9), ErrorCode::NONE);
    host.end(7, false);
    assert_eq!(host.offset(0), (Some(5), Ok(Some(5))));
}

#[test]
fn what_an_open_transaction_is_to_commit_counts_for_those_who_are_not_told_of_its_end() {
    let mut host = Host::new();
    let (topic, _) = host.topics.by_name("t").expect("it was set");
    let counted = |host: &Host| host.shard.least_counted("t", topic, 0);
    let lower = |host: &Host, offset| {
        let place = ("t", topic, 0);
        host.shard.is_lower("g", place, Offset(offset))
    };
    assert_eq!(counted(&host), Ok(None));
    assert!(lower(&host, 9));
    host.txn(7, 0, 3);
    assert_eq!(counted(&host), Ok(Some(Offset(3))));
    host.plain(0, 5);
    assert_eq!(counted(&host), Ok(Some(Offset(3))));
    assert_eq!(host.shard.least_committed("t", 0), Some(Offset(5)));
    assert!(lower(&host, 2) && !lower(&host, 3));
    host.end(7, false);
    assert_eq!(counted(&host), Ok(Some(Offset(5))));
    assert!(lower(&host, 4) && !lower(&host, 5));
    // Not while a topic of that name is to be forgotten.
    let other = TopicId([9; 16]);
    let waits = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
    assert_eq!(host.shard.least_counted("t", other, 0), Err(waits));
}

#[test]
fn an_offset_that_was_committed_later_by_itself_stands() {
    let mut host = Host::new();
    host.txn(7, 0, 5);
    host.txn(8, 0, 6);
    host.plain(0, 9);
    assert_eq!(host.offset(0), (Some(9), UNSTABLE));
    host.end(7, true);
    assert_eq!(host.offset(0), (Some(9), UNSTABLE));
    host.end(8, true);
    assert_eq!(host.offset(0), (Some(9), Ok(Some(9))));
    // Of two transactions the later record counts, whichever ends first.
    host.txn(7, 1, 5);
    host.txn(8, 1, 6);
    host.end(8, true);
    host.end(7, true);
    assert_eq!(host.offset(1), (Some(6), Ok(Some(6))));
}

#[test]
fn a_group_of_pending_offsets_alone_exists_until_they_are_aborted() {
    let mut host = Host::new();
    host.txn(7, 0, 5);
    assert!(host.exists());
    assert_eq!(host.offset(0), (None, UNSTABLE));
    let (all, _) = host.shard.stable_offsets("g", None, None);
    assert_eq!(all, Ok(Vec::new()));
    host.end(7, false);
    assert!(!host.exists());
    assert_eq!(host.offset(0), (None, Ok(None)));
}

#[test]
fn nothing_pending_expires_and_what_is_deleted_does_not_come_back() {
    let mut host = Host::new();
    host.plain(0, 1);
    host.plain(1, 1);
    host.txn(7, 0, 5);
    host.time_passes(Duration::from_secs(10_000));
    assert_eq!(host.offset(0), (Some(1), UNSTABLE));
    assert_eq!(host.offset(1), (None, Ok(None)));
    host.txn(7, 2, 5);
    let partitions = vec![at(0), at(2)];
    let group = "g".to_owned();
    let delete = GroupCommand::DeleteOffsets { group, partitions };
    assert_eq!(first_error(host.say(delete)), ErrorCode::NONE);
    assert_eq!(host.offset(0), (None, Ok(None)));
    assert_eq!(host.offset(2), (None, Ok(None)));
    host.end(7, true);
    assert_eq!(host.offset(0), (None, Ok(None)));
    assert!(!host.exists());

    host.txn(7, 0, 5);
    host.txn(7, 1, 5);
    host.plain(1, 2);
    let group = "g".to_owned();
    assert_eq!(
        first_error(host.say(GroupCommand::DeleteGroup { group })),
        ErrorCode::NONE
    );
    assert!(!host.exists());
    host.end(7, true);
    assert_eq!(host.offset(0), (None, Ok(None)));
    assert_eq!(host.offset(1), (None, Ok(None)));
}

#[test]
fn a_deleted_topic_takes_its_pending_offsets_along() {
    let mut host = Host::new();
    host.txn(7, 0, 5);
    host.topics = TestTopics {
        made: 5,
        ..TestTopics::default()
    };
    host.topics.set("t", 3);
    let decision = host.shard.decide_topics_changed(&host.topics, host.now);
    host.perform(decision, None);
    host.end(7, true);
    assert_eq!(host.offset(0), (None, Ok(None)));
}

#[test]
fn who_may_commit_in_a_transaction() {
    let mut host = Host::new();
    // Nobody there, and a generation.
    let ghost = ("ghost", 3);
    assert_eq!(
        host.txn_as(7, 0, 1, ghost, 5),
        ErrorCode::ILLEGAL_GENERATION
    );
    assert_eq!(
        host.txn_as(7, 0, 1, ghost, 6),
        ErrorCode::GROUP_ID_NOT_FOUND
    );
    let join = GroupCommand::Join(Join {
        group: "g".to_owned(),
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(10),
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), bytes::Bytes::new())],
        random: 1,
        ..Join::default()
    });
    let decision = host.shard.decide(join, Token(1), &host.topics, host.now);
    let mut answers = host.perform(decision, None);
    for _ in 0..10 {
        if !answers.is_empty() {
            break;
        }
        host.now.mono += Duration::from_millis(100);
        let decision = host.shard.decide_timers(&host.topics, host.now);
        answers.extend(host.perform(decision, None));
    }
    let Some(GroupAnswer::Join(joined)) = answers.pop() else {
        panic!("not joined");
    };
    let (member, generation) = (joined.member.as_str(), joined.generation.0);
    // Also while the group rebalances, which it does now.
    let mine = (member, generation);
    assert_eq!(host.txn_as(7, 0, 1, mine, 6), ErrorCode::NONE);
    let stale = (member, generation - 1);
    assert_eq!(
        host.txn_as(7, 0, 1, stale, 6),
        ErrorCode::ILLEGAL_GENERATION
    );
    let other = ("ghost", generation);
    assert_eq!(host.txn_as(7, 0, 1, other, 6), ErrorCode::UNKNOWN_MEMBER_ID);
    // Who says nothing of a group is not asked, as producers before KIP-447 don't.
    assert_eq!(host.txn(7, 0, 1), ErrorCode::NONE);
    assert_eq!(host.txn(7, 9, 1), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}
