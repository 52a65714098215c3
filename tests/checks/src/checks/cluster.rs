//! What takes several brokers: checks 29, 30, 35, 57, 59, 69 where leaders change.

use std::time::{Duration, Instant};

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{FetchRequest, FindCoordinatorRequest, ProduceRequest};

use super::{commits, fetch, groups, offsets, produce};
use crate::client::{Line, Outcome, Topic, holds, only, same};
use crate::records::{Batches, numbered, of_producer};
use crate::trio::Cluster;

/// One check of a cluster.
#[derive(Clone, Copy)]
pub struct ClusterCheck {
    /// Its number in the list of conformance checks.
    pub number: &'static str,
    /// What the brokers do when it passes.
    pub name: &'static str,
    run: fn(&mut Cluster) -> Outcome,
}

impl ClusterCheck {
    /// Number and name, without blanks.
    pub fn title(&self) -> String {
        format!("{}-{}", self.number, self.name)
    }

    /// Runs it.
    pub fn run(&self, cluster: &mut Cluster) -> Outcome {
        (self.run)(cluster)
    }
}

/// All of them, in the order in which they are best run.
pub const CLUSTER_CHECKS: &[ClusterCheck] = &[
    ClusterCheck {
        number: "30",
        name: "who-follows-names-the-leader",
        run: to_a_follower,
    },
    ClusterCheck {
        number: "35",
        name: "sequences-go-on-under-the-next-leader",
        run: sequences,
    },
    ClusterCheck {
        number: "57",
        name: "an-offset-has-the-epoch-it-was-written-in",
        run: epochs,
    },
    ClusterCheck {
        number: "69",
        name: "a-group-goes-on-under-the-next-coordinator",
        run: coordinator,
    },
    ClusterCheck {
        number: "29",
        name: "too-few-in-sync-are-told-before-and-after",
        run: too_few,
    },
    ClusterCheck {
        number: "59",
        name: "the-copy-in-the-consumers-rack-serves",
        run: rack,
    },
];

fn leader(cluster: &mut Cluster, topic: &Topic) -> Outcome<i32> {
    let any = cluster.nodes()[0];
    Ok(cluster.view(any, &topic.name, 0)?.leader)
}

/// A node that isn't one of these.
fn other_than(cluster: &Cluster, nodes: &[i32]) -> Outcome<i32> {
    let all = cluster.nodes();
    let other = all.into_iter().find(|node| !nodes.contains(node));
    Ok(other.ok_or("too few nodes".to_owned())?)
}

fn to_a_follower(cluster: &mut Cluster) -> Outcome {
    let topic = cluster.topic(&[])?;
    let leads = leader(cluster, &topic)?;
    let follower = other_than(cluster, &[leads])?;
    let epoch = cluster.view(follower, &topic.name, 0)?.epoch;
    let port = cluster.port(leads);
    let now = cluster.now_ms();
    let mut client = cluster.at(follower)?;
    for version in [9, 10, 12] {
        let request = produce::request(version, &topic, 0, -1, Some(numbered(now, 1)));
        let answer = client.ask(version, &request)?;
        let endpoints = answer.node_endpoints.clone();
        let part = only("topics", answer.responses)?;
        let part = only("partitions", part.partition_responses)?;
        let what = format!("v{version} to a follower");
        let error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        same(&what, part.error_code, error)?;
        if version < 10 {
            continue;
        }
        let told = part.current_leader;
        let told = (told.leader_id, told.leader_epoch);
        same(&what, told, (leads, epoch))?;
        let found = endpoints.iter().find(|e| e.node_id == leads);
        same("the leader's port", found.map(|e| e.port), port)?;
    }
    Ok(())
}

fn sequences(cluster: &mut Cluster) -> Outcome {
    let topic = cluster.topic(&[])?;
    let first = leader(cluster, &topic)?;
    let second = other_than(cluster, &[first])?;
    let now = cluster.now_ms();
    let id = cluster.at(first)?.producer()?;
    let send = |cluster: &mut Cluster, to: i32, sequence: i32| -> Outcome<(ErrorCode, i64)> {
        let batch = of_producer(now, id, 0, sequence);
        let answer = produce::one(&mut cluster.at(to)?, 12, &topic, 0, batch)?;
        Ok((answer.error_code, answer.base_offset))
    };
    let answer = send(cluster, first, 0)?;
    same("the first", answer, (ErrorCode::NONE, 0))?;
    cluster.lead(&topic.name, 0, second)?;
    let answer = send(cluster, second, 0)?;
    same("the first again", answer, (ErrorCode::NONE, 0))?;
    let (error, _) = send(cluster, second, 7)?;
    let gap = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
    same("one that leaves a gap", error, gap)?;
    let answer = send(cluster, second, 1)?;
    same("the next", answer, (ErrorCode::NONE, 1))
}

fn epochs(cluster: &mut Cluster) -> Outcome {
    let topic = cluster.topic(&[])?;
    let mut leads = leader(cluster, &topic)?;
    let mut epochs = Vec::new();
    let base = cluster.now_ms() - 10_000;
    for n in 0..3_i64 {
        epochs.push(cluster.view(leads, &topic.name, 0)?.epoch);
        let batch = numbered(base + n * 1_000, 1);
        produce::stored(&mut cluster.at(leads)?, 12, &topic, batch)?;
        if n < 2 {
            leads = other_than(cluster, &[leads])?;
            cluster.lead(&topic.name, 0, leads)?;
        }
    }
    let [first, second, third] = epochs[..] else {
        return Err("not three epochs".to_owned().into());
    };
    holds(first < second && second < third, || {
        format!("epochs {epochs:?} don't grow")
    })?;
    let mut client = cluster.at(leads)?;
    for (offset, epoch) in (0..).zip([first, second, third]) {
        let answer = offsets::ask(&mut client, 7, &topic, base + offset * 1_000)?;
        let told = (answer.error_code, answer.offset, answer.leader_epoch);
        let what = format!("by the time of offset {offset}");
        same(&what, told, (ErrorCode::NONE, offset, epoch))?;
    }
    let answer = offsets::ask(&mut client, 7, &topic, -2)?;
    let told = (answer.error_code, answer.offset, answer.leader_epoch);
    same("the earliest", told, (ErrorCode::NONE, 0, first))?;
    let answer = offsets::ask(&mut client, 7, &topic, -1)?;
    let told = (answer.error_code, answer.offset, answer.leader_epoch);
    same("the latest", told, (ErrorCode::NONE, 3, third))
}

/// The partition of the offsets topic that keeps a group, as Kafka hashes its name.
fn partition_of(group: &str, partitions: i32) -> i32 {
    let hash = group.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    (hash & i32::MAX) % partitions.max(1)
}

fn coordinator(cluster: &mut Cluster) -> Outcome {
    let topic = cluster.topic(&[])?;
    let any = cluster.nodes()[0];
    let group = cluster.name();
    let request = FindCoordinatorRequest {
        coordinator_keys: vec![group.clone()],
        ..FindCoordinatorRequest::default()
    };
    let end = Instant::now() + Duration::from_secs(60);
    let first = loop {
        let answer = cluster.at(any)?.ask(4, &request)?;
        let found = only("coordinators", answer.coordinators)?;
        match found.error_code {
            ErrorCode::NONE => break found.node_id,
            error if error.retriable() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(100));
            }
            error => return Err(format!("no coordinator: {error:?}").into()),
        }
    };
    let own = "__consumer_offsets";
    let partitions = cluster.view(any, own, 0)?.partitions;
    let partition = partition_of(&group, partitions);
    let view = cluster.until(any, own, partition, "three in sync", |v| v.isr.len() == 3)?;
    same("who leads and who coordinates", view.leader, first)?;
    let member = {
        let mut client = cluster.at(first)?;
        client.until_coordinated(&group)?;
        let member = groups::joined(&mut client, &group)?;
        groups::synced(&mut client, &member)?;
        let error = commits::commit(&mut client, 8, &member, &topic)?;
        same("committing", error, ErrorCode::NONE)?;
        member
    };
    let second = other_than(cluster, &[first])?;
    cluster.lead(own, partition, second)?;
    let error = groups::heartbeat(&mut cluster.at(first)?, &member)?;
    same("who coordinated it", error, ErrorCode::NOT_COORDINATOR)?;
    let mut client = cluster.at(second)?;
    let error = loop {
        match groups::heartbeat(&mut client, &member)? {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS | ErrorCode::NOT_COORDINATOR
                if Instant::now() < end =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            error => break error,
        }
    };
    same("the same generation", error, ErrorCode::NONE)?;
    let error = loop {
        match commits::commit(&mut client, 8, &member, &topic)? {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            error => break error,
        }
    };
    same("committing in it", error, ErrorCode::NONE)?;
    let told = commits::committed(&mut client, &group, &topic)?;
    same("what was committed", told, 7)
}

fn too_few(cluster: &mut Cluster) -> Outcome {
    let topic = cluster.topic(&[("min.insync.replicas", "3")])?;
    let controller = cluster.controller()?;
    let leads = leader(cluster, &topic)?;
    let victim = other_than(cluster, &[controller, leads])?;
    let now = cluster.now_ms();
    let request = |acks| produce::request(9, &topic, 0, acks, Some(numbered(now, 1)));
    let mut line: Line = cluster.at(leads)?.connect()?;
    cluster.frozen(victim, |cluster| {
        let mut patient = request(-1);
        patient.timeout_ms = 15_000;
        let said = line.say(9, &patient)?;
        let within = Duration::from_secs(40);
        let answer = line.answer::<ProduceRequest>(9, said, within)?;
        let part = only("topics", answer.responses)?;
        let part = only("partitions", part.partition_responses)?;
        // Before eligible leader replicas (KIP-966) Kafka told at once; since then it waits for others until the time is over.
        let told = [
            ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode::REQUEST_TIMED_OUT,
        ];
        holds(told.contains(&part.error_code), || {
            format!("while they became too few: got {:?}", part.error_code)
        })?;
        cluster.until(leads, &topic.name, 0, "two in sync", |v| v.isr.len() == 2)?;
        let mut client = cluster.at(leads)?;
        for (acks, error) in [(-1, ErrorCode::NOT_ENOUGH_REPLICAS), (1, ErrorCode::NONE)] {
            let answer = client.ask(9, &request(acks))?;
            let part = only("topics", answer.responses)?;
            let part = only("partitions", part.partition_responses)?;
            same(&format!("acks={acks}"), part.error_code, error)?;
        }
        Ok(())
    })?;
    cluster.until(leads, &topic.name, 0, "three in sync again", |v| {
        v.isr.len() == 3
    })?;
    let answer = produce::one(&mut cluster.at(leads)?, 9, &topic, 0, numbered(now, 1))?;
    same("with enough", answer.error_code, ErrorCode::NONE)
}

/// Each broker of node N is in `rack-N`.
fn rack(cluster: &mut Cluster) -> Outcome {
    let topic = cluster.topic(&[])?;
    let controller = cluster.controller()?;
    let mut leads = leader(cluster, &topic)?;
    let near = other_than(cluster, &[controller])?;
    if leads == near {
        leads = controller;
        cluster.lead(&topic.name, 0, leads)?;
    }
    let now = cluster.now_ms();
    produce::stored(&mut cluster.at(leads)?, 12, &topic, numbered(now, 3))?;
    let request = FetchRequest {
        rack_id: format!("rack-{near}"),
        max_wait_ms: 500,
        min_bytes: 1,
        ..fetch::request(12, &topic, 0)
    };
    let end = Instant::now() + Duration::from_secs(60);
    // A leader sends nobody to a copy before it has told it of those records.
    let told = loop {
        let told = fetch::ask(&mut cluster.at(leads)?, 12, &request)?;
        if told.preferred_read_replica == near || Instant::now() > end {
            break told;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    same("where to read", told.preferred_read_replica, near)?;
    let none = told.records.is_none_or(|records| records.is_empty());
    holds(none, || "and records came along".to_owned())?;
    let part = fetch::ask(&mut cluster.at(near)?, 12, &request)?;
    same("the near copy", part.error_code, ErrorCode::NONE)?;
    let read = Batches(part.records.unwrap_or_default()).offsets()?;
    same("from the near copy", read, vec![0, 1, 2])?;
    cluster.frozen(near, |cluster| {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let told = fetch::ask(&mut cluster.at(leads)?, 12, &request)?;
            if told.preferred_read_replica == -1 {
                let read = Batches(told.records.unwrap_or_default()).offsets()?;
                return same("from the leader", read, vec![0, 1, 2]);
            }
            holds(Instant::now() < end, || {
                "the leader goes on sending consumers to a copy that is gone".to_owned()
            })?;
            std::thread::sleep(Duration::from_millis(200));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_kept_where_kafka_keeps_it() {
        // The hash of "a" is 97, that of "polygenelubricants" the least there is.
        assert_eq!(partition_of("a", 50), 47);
        assert_eq!(partition_of("polygenelubricants", 50), 0);
    }
}
