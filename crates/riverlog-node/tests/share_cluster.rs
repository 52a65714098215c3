//! Share groups on several nodes: the leader of a partition, the coordinator that keeps what it must not forget, and what is lost
//! between them.

mod common;
#[path = "common/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::*;
use nodes::Cluster;
use riverlog_core::share::{Acknowledge, Acknowledgement, AcquireMode, Acquired, ShareKey};
use riverlog_node::harness::Answer;
use riverlog_node::{ClusterSettings, NodeSettings, ShareFetchAnswer, ShareFetchCommand};
use riverlog_wire::{ErrorCode, Offset, TopicId};

const TOPIC: TopicId = TopicId([7; 16]);

fn second() -> Duration {
    Duration::from_secs(1)
}

fn key() -> ShareKey {
    ShareKey {
        group: "g".to_owned(),
        topic: TOPIC,
        partition: 0,
    }
}

/// Three nodes; node 1 is the first to lead the topic, and `__share_group_state` has a partition for each of them.
fn three() -> Cluster {
    let mut settings = NodeSettings {
        cluster: ClusterSettings {
            max_lag: Duration::from_secs(2),
            ..ClusterSettings::default()
        },
        ..settings()
    };
    let partitions = "share.coordinator.state.topic.num.partitions".to_owned();
    settings.configs.insert(partitions, "3".to_owned());
    let earliest = "share.auto.offset.reset";
    let mut cluster = Cluster::new(3, settings);
    cluster.create("t", TOPIC, &[[1, 2, 3]], &[]);
    cluster.group_config("g", earliest, "earliest");
    cluster.run(second());
    cluster
}

/// Lets time pass until an answer is there; `None`: who should give it is gone.
fn wait<T: Send + 'static>(cluster: &mut Cluster, answer: &Answer<T>) -> Option<T> {
    for _ in 0..4_000 {
        if let Some(answer) = answer.take() {
            return Some(answer);
        }
        if answer.is_lost() {
            return None;
        }
        cluster.run(Duration::from_millis(5));
    }
    panic!("no answer");
}

/// The node that leads the topic, when it is known and up.
fn leader(cluster: &Cluster) -> Option<i32> {
    let id = cluster.image("t").leader?.0;
    cluster.nodes[id as usize - 1].is_some().then_some(id)
}

fn put(cluster: &mut Cluster, value: &str) -> Option<i64> {
    let id = leader(cluster)?;
    let node = cluster.node(id);
    let topic = riverlog_core::metadata::TopicRef::Id(TOPIC);
    let to = node.node().partition(&topic, 0).ok()?;
    let answer = cluster.send(id, &to, batch(node, &[value]), -1);
    let answer = wait(cluster, &answer)?;
    answer.ok().map(|a| a.base_offset.0)
}

fn fetch(
    cluster: &mut Cluster,
    member: &str,
    max_records: i64,
) -> Result<Vec<Acquired>, ErrorCode> {
    let id = leader(cluster).ok_or(ErrorCode::LEADER_NOT_AVAILABLE)?;
    let command = ShareFetchCommand {
        group: "g".to_owned(),
        member: member.to_owned(),
        partitions: vec![(TOPIC, 0)],
        first: 0,
        max_wait: Duration::from_millis(300),
        max_bytes: 1 << 20,
        max_records,
        batch_size: 100,
        mode: AcquireMode::RecordLimit,
    };
    let node = cluster.node(id);
    let answer = node.ask(|node, now, reply| node.share_fetch(command, now, reply));
    let answer: Option<ShareFetchAnswer> = wait(cluster, &answer);
    let answer = answer.ok_or(ErrorCode::NETWORK_EXCEPTION)?;
    match answer.partitions[0].error {
        ErrorCode::NONE => Ok(answer.partitions[0].acquired.clone()),
        error => Err(error),
    }
}

fn say(
    cluster: &mut Cluster,
    id: i32,
    member: &str,
    at: i64,
    kind: Acknowledge,
) -> Result<(), ErrorCode> {
    if cluster.nodes[id as usize - 1].is_none() {
        return Err(ErrorCode::NETWORK_EXCEPTION);
    }
    let said = [Acknowledgement {
        first: Offset(at),
        last: Offset(at),
        types: vec![kind],
    }];
    let node = cluster.node(id);
    let answer = node.ask(|node, now, reply| {
        node.share_acknowledge(&key(), member, &said, now, reply);
    });
    wait(cluster, &answer).unwrap_or(Err(ErrorCode::NETWORK_EXCEPTION))
}

fn coordinator(cluster: &Cluster) -> Option<i32> {
    let up = cluster.nodes.iter().flatten().next()?;
    let id = up.node().share_coordinator(&key().name(), up.now())?.0;
    cluster.nodes[id as usize - 1].is_some().then_some(id)
}

fn offsets(ranges: &[Acquired]) -> Vec<(i64, i16)> {
    let each = ranges.iter();
    each.flat_map(|r| (r.first.0..=r.last.0).map(|at| (at, r.delivery_count)))
        .collect()
}

/// Another node is the controller, and this one dies.
fn kill(cluster: &mut Cluster, id: i32) {
    let other = (1..=3).find(|other| *other != id && cluster.nodes[*other as usize - 1].is_some());
    cluster.led_at(other.expect("one is left"));
    cluster.kill(id);
}

/// Until somebody leads, the coordinator is there and records come.
fn fetch_some(cluster: &mut Cluster, member: &str, max_records: i64) -> Vec<Acquired> {
    for _ in 0..60 {
        match fetch(cluster, member, max_records) {
            Ok(acquired) if !acquired.is_empty() => return acquired,
            _ => cluster.run(Duration::from_millis(200)),
        }
    }
    panic!("nothing comes");
}

#[test]
fn what_was_accepted_stays_so_when_leader_and_coordinator_are_killed() {
    let mut cluster = three();
    for value in ["a", "b", "c", "d", "e", "f"] {
        put(&mut cluster, value).expect("acknowledged");
    }
    let first = fetch_some(&mut cluster, "m", 4);
    assert_eq!(offsets(&first), [(0, 1), (1, 1), (2, 1), (3, 1)]);
    let led = leader(&cluster).unwrap();
    assert_eq!(say(&mut cluster, led, "m", 1, Acknowledge::Accept), Ok(()));
    assert_eq!(say(&mut cluster, led, "m", 2, Acknowledge::Release), Ok(()));
    kill(&mut cluster, led);
    cluster.run(4 * second());
    // 0 and 3 were given out by the node that died: nothing is known of that.
    let again = fetch_some(&mut cluster, "n", 4);
    assert_eq!(offsets(&again), [(0, 1), (2, 2), (3, 1), (4, 1)]);
    let led = leader(&cluster).unwrap();
    assert_eq!(say(&mut cluster, led, "n", 0, Acknowledge::Accept), Ok(()));
    cluster.start(1);
    cluster.run(4 * second());

    // The coordinator goes; what is in flight at the leader stays with the member.
    let keeps = coordinator(&cluster).expect("a coordinator");
    if keeps == led {
        // Led by another node, it is another coordinator's turn.
        kill(&mut cluster, keeps);
        cluster.run(4 * second());
        cluster.start(keeps);
        cluster.run(4 * second());
        let rest = fetch_some(&mut cluster, "n", 2);
        assert_eq!(offsets(&rest), [(2, 2), (3, 1)]);
    }
    let led = leader(&cluster).unwrap();
    let keeps = coordinator(&cluster).expect("a coordinator");
    assert_ne!(keeps, led);
    kill(&mut cluster, keeps);
    assert_eq!(say(&mut cluster, led, "n", 2, Acknowledge::Accept), Ok(()));
    assert_eq!(say(&mut cluster, led, "n", 3, Acknowledge::Reject), Ok(()));
    cluster.start(keeps);
    cluster.run(4 * second());
    kill(&mut cluster, led);
    cluster.run(6 * second());
    let rest = fetch_some(&mut cluster, "o", 9);
    assert_eq!(offsets(&rest), [(4, 1), (5, 1)]);
}

#[test]
fn an_offset_that_is_set_anew_counts_at_the_leader_wherever_it_is_asked_for() {
    let mut cluster = three();
    for value in ["a", "b", "c"] {
        put(&mut cluster, value).expect("acknowledged");
    }
    let all = fetch_some(&mut cluster, "m", 9);
    assert_eq!(offsets(&all).len(), 3);
    for (id, start) in [(1, 1), (2, 2), (3, 0)] {
        let node = cluster.node(id);
        let begun = node.ask(|node, now, reply| node.share_begin(key(), Offset(start), now, reply));
        assert_eq!(wait(&mut cluster, &begun), Some(Ok(())));
        let led = leader(&cluster).unwrap();
        // What was in flight isn't any more.
        let late = say(&mut cluster, led, "m", 2, Acknowledge::Accept);
        assert_eq!(late, Err(ErrorCode::INVALID_RECORD_STATE));
        let acquired = fetch_some(&mut cluster, "m", 9);
        let expected: Vec<(i64, i16)> = (start..3).map(|at| (at, 1)).collect();
        assert_eq!(offsets(&acquired), expected);
        for other in 1..=3 {
            let node = cluster.node(other);
            let told = node.ask(|node, now, reply| node.share_summary(&key(), now, reply));
            let summary = wait(&mut cluster, &told).unwrap().unwrap().unwrap();
            assert_eq!(summary.start, Offset(start), "asked at {other}");
            let node = cluster.node(other);
            let end = node.ask(|node, now, reply| node.share_end(&key(), now, reply));
            assert_eq!(wait(&mut cluster, &end), Some(Ok(Offset(3))));
        }
    }
    let node = cluster.node(3);
    let gone = node.ask(|node, now, reply| node.share_forget(key(), now, reply));
    assert_eq!(wait(&mut cluster, &gone), Some(Ok(())));
    let node = cluster.node(2);
    let told = node.ask(|node, now, reply| node.share_summary(&key(), now, reply));
    assert_eq!(wait(&mut cluster, &told), Some(Ok(None)));
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

/// Kills, cuts and power cuts while members read, accept, give back and refuse.
fn story(seed: u64) {
    let mut random = Random(seed | 1);
    let mut cluster = three();
    let mut stored = BTreeSet::new();
    // Accepted or refused, and told so.
    let mut done = BTreeSet::new();
    // The same without an answer.
    let mut perhaps = BTreeSet::new();
    let mut most: BTreeMap<i64, i16> = BTreeMap::new();
    let mut held: BTreeMap<i64, (i32, &str)> = BTreeMap::new();
    for step in 0..50 {
        match random.below(12) {
            0..3 => stored.extend(put(&mut cluster, "x")),
            3..6 => {
                let member = ["a", "b", "c"][random.below(3) as usize];
                let max = 1 + random.below(4) as i64;
                let Some(id) = leader(&cluster) else { continue };
                for (at, count) in offsets(&fetch(&mut cluster, member, max).unwrap_or_default()) {
                    assert!(!done.contains(&at), "seed {seed}: {at} comes again");
                    assert!(
                        (1..=5).contains(&count),
                        "seed {seed}: {at} for the {count}th time"
                    );
                    let most = most.entry(at).or_default();
                    *most = count.max(*most);
                    held.insert(at, (id, member));
                }
            }
            6..10 => {
                let Some((at, (id, member))) = held.pop_first() else {
                    continue;
                };
                let kind = match random.below(4) {
                    0 => Acknowledge::Release,
                    1 => Acknowledge::Reject,
                    _ => Acknowledge::Accept,
                };
                let result = say(&mut cluster, id, member, at, kind);
                match (kind, result) {
                    (Acknowledge::Release, _) => {}
                    (_, Ok(())) => {
                        done.insert(at);
                    }
                    (_, Err(_)) => {
                        perhaps.insert(at);
                    }
                }
            }
            10 => {
                let down = (1..=3).find(|id| cluster.nodes[*id as usize - 1].is_none());
                match down {
                    Some(id) => cluster.start(id),
                    None => {
                        let id = match random.below(3) {
                            0 => leader(&cluster),
                            1 => coordinator(&cluster),
                            _ => Some(1 + random.below(3) as i32),
                        };
                        let id = id.unwrap_or(1);
                        if random.below(2) == 0 {
                            cluster.kill(id);
                        } else {
                            cluster.power_cut(id, seed + step);
                        }
                        // Somebody decides.
                        let other = (1..=3).find(|other| *other != id).unwrap();
                        cluster.led_at(other);
                    }
                }
                cluster.run(random.below(5_000) as u32 * Duration::from_millis(1));
            }
            _ => {
                let pair = (1 + random.below(3) as i32, 1 + random.below(3) as i32);
                if !cluster.cut.remove(&pair) && cluster.cut.len() < 2 {
                    cluster.cut.insert(pair);
                }
                cluster.run(random.below(2_000) as u32 * Duration::from_millis(1));
            }
        }
    }
    cluster.cut.clear();
    for id in 1..=3 {
        if cluster.nodes[id as usize - 1].is_none() {
            cluster.start(id);
        }
    }
    // Locks run out.
    cluster.run(40 * second());
    let mut empty = 0;
    while empty < 3 {
        let id = leader(&cluster).expect("all are up");
        let acquired = offsets(&fetch(&mut cluster, "z", 9).unwrap_or_default());
        empty = if acquired.is_empty() { empty + 1 } else { 0 };
        for (at, count) in acquired {
            assert!(!done.contains(&at), "seed {seed}: {at} comes again");
            most.insert(at, count);
            if say(&mut cluster, id, "z", at, Acknowledge::Accept).is_ok() {
                done.insert(at);
            }
        }
    }
    for at in stored {
        let given_up = most.get(&at).is_some_and(|most| *most >= 5);
        assert!(
            done.contains(&at) || perhaps.contains(&at) || given_up,
            "seed {seed}: {at} never came to its end"
        );
    }
}

#[test]
fn what_was_accepted_never_comes_again_and_nothing_is_left_out_whoever_fails() {
    for seed in 1..12 {
        story(seed * 7919);
    }
}
