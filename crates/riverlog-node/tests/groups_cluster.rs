//! Groups of the consumer protocol and of Kafka Streams on three nodes, whose coordinator dies while members work.

mod common;
#[path = "common/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::*;
use nodes::Cluster;
use riverlog_core::groups::records::{StreamsTopology, Subtopology};
use riverlog_core::groups::{
    CommittedOffset, ConsumerHeartbeat, GroupAnswer, GroupCommand, GroupSettings, OwnedTasks,
    StreamsHeartbeat, TopicPartition,
};
use riverlog_node::harness::Answer;
use riverlog_node::{ClusterSettings, NodeSettings};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

const TOPIC: TopicId = TopicId([7; 16]);
const PARTITIONS: i32 = 4;
const SESSION: Duration = Duration::from_secs(3);

fn second() -> Duration {
    Duration::from_secs(1)
}

/// Three nodes, and a topic with a copy on each.
fn three() -> Cluster {
    let settings = NodeSettings {
        cluster: ClusterSettings {
            max_lag: Duration::from_secs(2),
            ..ClusterSettings::default()
        },
        offsets_partitions: 1,
        groups: GroupSettings {
            consumer_session_timeout: SESSION,
            streams_session_timeout: SESSION,
            streams_initial_rebalance_delay: Duration::ZERO,
            ..GroupSettings::default()
        },
        ..settings()
    };
    let mut cluster = Cluster::new(3, settings);
    cluster.create("t", TOPIC, &[[1, 2, 3]; PARTITIONS as usize], &[]);
    cluster
}

fn coordinator(cluster: &Cluster, group: &str) -> Option<i32> {
    let up = cluster.nodes.iter().flatten().next()?;
    let id = up.node().group_coordinator(group, up.now())?.0;
    cluster.nodes[id as usize - 1].is_some().then_some(id)
}

/// Lets time pass until an answer is there; `None`: who should give it is gone, or takes too long.
fn wait<T: Send + 'static>(cluster: &mut Cluster, answer: &Answer<T>) -> Option<T> {
    for _ in 0..1_000 {
        if let Some(answer) = answer.take() {
            return Some(answer);
        }
        if answer.is_lost() {
            return None;
        }
        cluster.run(Duration::from_millis(5));
    }
    None
}

fn ask(cluster: &mut Cluster, command: GroupCommand) -> Option<GroupAnswer> {
    let id = coordinator(cluster, command.group())?;
    let answer = cluster
        .node(id)
        .ask(|node, now, reply| node.group(command, now, reply));
    wait(cluster, &answer)
}

/// The node that coordinates a group dies, and another one is the controller if it was that as well. Returns its number.
fn kill_coordinator(cluster: &mut Cluster, group: &str) -> i32 {
    let id = coordinator(cluster, group).expect("a coordinator");
    let other = (1..=3).find(|other| *other != id).expect("one is left");
    cluster.led_at(other);
    cluster.kill(id);
    id
}

/// What a member has, whichever kind its group is of.
type Has = BTreeSet<(String, i32)>;

struct Member {
    id: String,
    streams: bool,
    epoch: i32,
    has: Has,
    committed: i64,
}

fn topology() -> StreamsTopology {
    StreamsTopology {
        epoch: 0,
        subtopologies: vec![Subtopology {
            id: "0".to_owned(),
            source_topics: vec!["t".to_owned()],
            ..Subtopology::default()
        }],
        description: None,
    }
}

impl Member {
    fn new(id: &str, streams: bool) -> Member {
        Member {
            id: id.to_owned(),
            streams,
            epoch: 0,
            has: Has::new(),
            committed: 0,
        }
    }

    fn group(&self) -> &'static str {
        match self.streams {
            true => "words",
            false => "readers",
        }
    }

    fn heartbeat(&self) -> GroupCommand {
        let joins = self.epoch == 0;
        let partitions: Vec<i32> = self.has.iter().map(|(_, p)| *p).collect();
        let none = partitions.is_empty();
        if !self.streams {
            return GroupCommand::ConsumerHeartbeat(ConsumerHeartbeat {
                group: self.group().to_owned(),
                member: self.id.clone(),
                member_epoch: self.epoch,
                rebalance_timeout: joins.then_some(Duration::from_secs(30)),
                subscribed_topics: joins.then(|| vec!["t".to_owned()]),
                owned: Some(match none {
                    true => Vec::new(),
                    false => vec![(TOPIC, partitions)],
                }),
                version: 1,
                ..ConsumerHeartbeat::default()
            });
        }
        let active = match none {
            true => Vec::new(),
            false => vec![("0".to_owned(), partitions)],
        };
        GroupCommand::StreamsHeartbeat(Box::new(StreamsHeartbeat {
            group: self.group().to_owned(),
            member: self.id.clone(),
            member_epoch: self.epoch,
            rebalance_timeout: joins.then_some(Duration::from_secs(30)),
            topology: joins.then(topology),
            owned: Some(OwnedTasks {
                active,
                ..OwnedTasks::default()
            }),
            process: joins.then(|| format!("process of {}", self.id)),
            tags: joins.then(Vec::new),
            version: 1,
            ..StreamsHeartbeat::default()
        }))
    }

    /// One heartbeat; what it is told to give back it has given back at once.
    fn beat(&mut self, cluster: &mut Cluster) -> Result<(), ErrorCode> {
        let lost = ErrorCode::COORDINATOR_NOT_AVAILABLE;
        let (error, epoch, told) = match ask(cluster, self.heartbeat()).ok_or(lost)? {
            GroupAnswer::ConsumerHeartbeat(answer) => {
                let told = answer.assignment.map(|topics| {
                    let all = topics.into_iter().flat_map(|(_, partitions)| partitions);
                    all.map(|p| (String::new(), p)).collect()
                });
                (answer.error, answer.member_epoch, told)
            }
            GroupAnswer::StreamsHeartbeat(answer) => {
                let told = answer.tasks.map(|[active, ..]| {
                    let each = active.into_iter();
                    each.flat_map(|(id, all)| all.into_iter().map(move |p| (id.clone(), p)))
                        .collect()
                });
                (answer.error, answer.member_epoch, told)
            }
            other => panic!("{other:?}"),
        };
        if error != ErrorCode::NONE {
            return Err(error);
        }
        assert!(
            epoch >= self.epoch,
            "{}: {} to {epoch}",
            self.id,
            self.epoch
        );
        self.epoch = epoch;
        if let Some(told) = told {
            self.has = told;
        }
        Ok(())
    }

    /// Commits for all that it has; whether it was told that it holds.
    fn commit(&mut self, cluster: &mut Cluster, offset: i64) -> bool {
        let committed = CommittedOffset {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            commit_timestamp: -1,
            expire_timestamp: None,
        };
        let offsets = self.has.iter().map(|(_, p)| (at(*p), committed.clone()));
        let command = GroupCommand::Commit {
            group: self.group().to_owned(),
            generation: Generation(self.epoch),
            member: self.id.clone(),
            instance: None,
            offsets: offsets.collect(),
            version: 9,
        };
        let answer = ask(cluster, command);
        let Some(GroupAnswer::Partitions(error, each)) = answer else {
            return false;
        };
        let done = each.iter().chain([&error]).all(|e| *e == ErrorCode::NONE);
        if done {
            self.committed = offset;
        }
        done
    }
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition {
        topic: "t".to_owned(),
        id: TOPIC,
        partition,
    }
}

fn committed(cluster: &mut Cluster, group: &str) -> BTreeMap<i32, i64> {
    for _ in 0..60 {
        let id = coordinator(cluster, group);
        if let Some(id) = id {
            let all = (0..PARTITIONS).map(at).collect();
            let answer = cluster.node(id).ask(|node, now, reply| {
                node.committed(group, Some(all), None, now, reply);
            });
            if let Some(Ok(found)) = wait(cluster, &answer) {
                let found = found.into_iter();
                let found = found.filter_map(|(at, o)| Some((at.partition, o?.offset.0)));
                return found.collect();
            }
        }
        cluster.run(Duration::from_millis(200));
    }
    panic!("no coordinator tells what is committed");
}

/// All beat until each partition is with one of them, and all are at one epoch.
fn settle(cluster: &mut Cluster, members: &mut [Member]) {
    for _ in 0..100 {
        let mut sound = true;
        for member in members.iter_mut() {
            sound &= member.beat(cluster).is_ok();
        }
        let all: Vec<&(String, i32)> = members.iter().flat_map(|m| &m.has).collect();
        let each: BTreeSet<i32> = all.iter().map(|(_, p)| *p).collect();
        // Whatever happens, nobody has what another one has.
        assert_eq!(all.len(), each.len(), "{all:?}");
        let same = members.windows(2).all(|two| two[0].epoch == two[1].epoch);
        if sound && same && each.len() == PARTITIONS as usize {
            return;
        }
        cluster.run(Duration::from_millis(200));
    }
    let has: Vec<_> = members.iter().map(|m| (&m.id, m.epoch, &m.has)).collect();
    panic!("never settled: {has:?}");
}

/// Time passes in which a node catches up, and members beat.
fn work(cluster: &mut Cluster, members: &mut [Member]) {
    for _ in 0..8 {
        settle(cluster, members);
        cluster.run(second() / 2);
    }
}

fn commit_all(cluster: &mut Cluster, members: &mut [Member], offset: i64) {
    for member in members {
        assert!(member.commit(cluster, offset), "{}", member.id);
    }
}

/// Members of a kind work while one coordinator after the other is killed, and one of them while a member is on its way.
fn goes_on(streams: bool) {
    let mut cluster = three();
    let mut members = vec![Member::new("a", streams), Member::new("b", streams)];
    let group = members[0].group();
    settle(&mut cluster, &mut members);
    commit_all(&mut cluster, &mut members, 10);

    // Nobody moves because of it, and what is committed is there.
    let (epoch, has) = (members[0].epoch, members[0].has.clone());
    let dead = kill_coordinator(&mut cluster, group);
    settle(&mut cluster, &mut members);
    assert_eq!((members[0].epoch, &members[0].has), (epoch, &has));
    let expected: BTreeMap<i32, i64> = (0..PARTITIONS).map(|p| (p, 10)).collect();
    assert_eq!(committed(&mut cluster, group), expected);
    commit_all(&mut cluster, &mut members, 20);
    cluster.start(dead);
    work(&mut cluster, &mut members);

    // A third member comes; the coordinator dies when some have been told to give back, and nobody has.
    members.push(Member::new("c", streams));
    members[2].beat(&mut cluster).expect("it joins");
    assert!(members[2].has.is_empty());
    let before = members[0].has.clone();
    let mut told = Has::new();
    for member in &mut members[..2] {
        let kept = member.has.clone();
        member.beat(&mut cluster).expect("it is told");
        told.extend(kept.difference(&member.has).cloned());
        // It has what it had until it says otherwise.
        member.has = kept;
    }
    assert!(!told.is_empty(), "{before:?}");
    let dead = kill_coordinator(&mut cluster, group);
    settle(&mut cluster, &mut members);
    assert!(members.iter().all(|m| !m.has.is_empty()));
    let expected: BTreeMap<i32, i64> = (0..PARTITIONS).map(|p| (p, 20)).collect();
    assert_eq!(committed(&mut cluster, group), expected);
    commit_all(&mut cluster, &mut members, 30);
    cluster.start(dead);
    work(&mut cluster, &mut members);

    // A member dies with its coordinator: the next one doesn't hear of it, and gives what it had to the others.
    kill_coordinator(&mut cluster, group);
    members.remove(1);
    cluster.run(second());
    settle(&mut cluster, &mut members);
    let expected: BTreeMap<i32, i64> = (0..PARTITIONS).map(|p| (p, 30)).collect();
    assert_eq!(committed(&mut cluster, group), expected);
    commit_all(&mut cluster, &mut members, 40);
}

#[test]
fn a_group_of_the_consumer_protocol_goes_on_whichever_coordinator_dies() {
    goes_on(false);
}

#[test]
fn a_streams_group_goes_on_whichever_coordinator_dies() {
    goes_on(true);
}
