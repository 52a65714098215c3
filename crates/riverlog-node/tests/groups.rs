//! Groups on a node: joining, committing, loading, losing the log under them.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, Join, JoinAnswer, Sync, TopicPartition,
};
use riverlog_log::disk::{CrashDisk, FaultOn, Times};
use riverlog_node::harness::{Answer, Harness};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition {
        topic: topic.to_owned(),
        id: TopicId::ZERO,
        partition,
    }
}

fn commit_command(
    group: &str,
    member: (&str, i32),
    at: TopicPartition,
    offset: i64,
) -> GroupCommand {
    let committed = CommittedOffset {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(3),
        metadata: "mine".to_owned(),
        commit_timestamp: 0,
        expire_timestamp: None,
    };
    GroupCommand::Commit {
        group: group.to_owned(),
        generation: Generation(member.1),
        member: member.0.to_owned(),
        instance: None,
        offsets: vec![(at, committed)],
        version: 8,
    }
}

fn group(host: &mut Harness, command: GroupCommand) -> GroupAnswer {
    host.get(|node, now, reply| node.group(command, now, reply))
        .expect("an answer")
}

fn code(answer: &GroupAnswer) -> ErrorCode {
    match answer {
        GroupAnswer::Join(join) => join.error,
        GroupAnswer::Sync { error, .. } | GroupAnswer::Error(error) => *error,
        GroupAnswer::Leave(error, _) => *error,
        GroupAnswer::Partitions(error, each) => *each
            .iter()
            .find(|e| **e != ErrorCode::NONE)
            .unwrap_or(error),
        GroupAnswer::ConsumerHeartbeat(answer) => answer.error,
        GroupAnswer::StreamsHeartbeat(answer) => answer.error,
    }
}

/// As a client: tries again while the coordinator loads.
fn patiently(host: &mut Harness, command: &GroupCommand) -> GroupAnswer {
    for _ in 0..100 {
        let answer = group(host, command.clone());
        if !matches!(
            code(&answer),
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS | ErrorCode::COORDINATOR_NOT_AVAILABLE
        ) {
            return answer;
        }
        host.advance(Duration::from_millis(100));
    }
    panic!("the coordinator never came");
}

fn commit(host: &mut Harness, name: &str, at: TopicPartition, offset: i64) {
    let answer = patiently(host, &commit_command(name, ("", -1), at, offset));
    assert_eq!(code(&answer), ErrorCode::NONE);
}

fn committed(
    host: &mut Harness,
    group: &str,
    at: TopicPartition,
) -> Result<Option<i64>, ErrorCode> {
    let answer = host.get(|node, now, reply| {
        node.committed(group, Some(vec![at]), None, now, reply);
    });
    let offsets = answer.expect("an answer")?;
    assert_eq!(offsets.len(), 1);
    Ok(offsets[0].1.as_ref().map(|c| {
        assert_eq!((c.metadata.as_str(), c.leader_epoch.0), ("mine", 3));
        c.offset.0
    }))
}

fn join(host: &mut Harness, name: &str, member: &str) -> JoinAnswer {
    let command = GroupCommand::Join(Join {
        group: name.to_owned(),
        member: member.to_owned(),
        client_id: "test".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(20),
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"meta"))],
        random: host.node().random(),
        ..Join::default()
    });
    match patiently(host, &command) {
        GroupAnswer::Join(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_is_answered_when_it_is_durable_and_survives_a_power_cut() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 2, &[]);
    assert_eq!(
        committed(&mut host, "g", at("t", 0)),
        Ok(None),
        "before anybody has committed"
    );
    commit(&mut host, "g", at("t", 0), 5);
    let next = host.ask(|node, now, reply| {
        node.group(commit_command("g", ("", -1), at("t", 0), 6), now, reply);
    });
    let read = host.ask(|node, now, reply| {
        node.committed("g", Some(vec![at("t", 0)]), None, now, reply);
    });
    assert!(!next.is_ready(), "not before the sync");
    assert!(!read.is_ready(), "nor shown before it");
    let cut = disk.crash_with(1, riverlog_log::disk::Survivors::Nothing);
    host.run();
    assert!(next.is_ready() && read.is_ready());
    let mut early = open(&cut);
    let mut late = open(&disk.crash(2));
    for (host, expected) in [(&mut early, 5), (&mut late, 6)] {
        // RC-23: loading is never "no offset".
        let mut loading = 0;
        let offset = loop {
            match committed(host, "g", at("t", 0)) {
                Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS) => loading += 1,
                other => break other,
            }
        };
        assert_eq!(offset, Ok(Some(expected)));
        assert!(loading > 0);
        assert_eq!(committed(host, "g", at("t", 1)), Ok(None));
        match committed(host, "other", at("t", 0)) {
            Ok(offset) => assert_eq!(offset, None),
            Err(error) => assert!(error.retriable()),
        }
    }
}

#[test]
fn a_member_joins_syncs_and_is_known_after_a_restart() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let joined = join(&mut host, "g", "");
    assert_eq!(joined.error, ErrorCode::NONE);
    assert_eq!(joined.leader, joined.member);
    let sync = GroupCommand::Sync(Sync {
        group: "g".to_owned(),
        generation: joined.generation,
        member: joined.member.clone(),
        assignments: vec![(joined.member.clone(), Bytes::from_static(b"all"))],
        ..Sync::default()
    });
    let GroupAnswer::Sync {
        error, assignment, ..
    } = group(&mut host, sync)
    else {
        panic!("a sync's answer")
    };
    assert_eq!((error, &assignment[..]), (ErrorCode::NONE, &b"all"[..]));
    let beat = GroupCommand::Heartbeat {
        group: "g".to_owned(),
        generation: joined.generation,
        member: joined.member.clone(),
        instance: None,
    };
    assert_eq!(code(&group(&mut host, beat.clone())), ErrorCode::NONE);
    let by_member = (joined.member.as_str(), joined.generation.0);
    let answer = group(&mut host, commit_command("g", by_member, at("t", 0), 9));
    assert_eq!(code(&answer), ErrorCode::NONE);
    let stale = (joined.member.as_str(), joined.generation.0 + 1);
    let answer = group(&mut host, commit_command("g", stale, at("t", 0), 1));
    assert_eq!(code(&answer), ErrorCode::ILLEGAL_GENERATION);

    let mut host = open(&disk.crash(5));
    let answer = patiently(&mut host, &beat);
    assert_eq!(code(&answer), ErrorCode::NONE, "the member is still one");
    let described = host
        .get(|node, now, reply| node.describe_group("g", now, reply))
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!((described.state, described.members.len()), ("Stable", 1));
    assert_eq!(committed(&mut host, "g", at("t", 0)), Ok(Some(9)));
    // Nobody is heard of any more: the session ends.
    host.advance(Duration::from_secs(11));
    let described = host
        .get(|node, now, reply| node.describe_group("g", now, reply))
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!((described.state, described.members.len()), ("Empty", 0));
}

#[test]
fn nobody_is_expired_while_the_disk_is_slow() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let joined = join(&mut host, "g", "");
    assert_eq!(joined.error, ErrorCode::NONE);
    let sync = GroupCommand::Sync(Sync {
        group: "g".to_owned(),
        generation: joined.generation,
        member: joined.member.clone(),
        assignments: vec![(joined.member.clone(), Bytes::new())],
        ..Sync::default()
    });
    assert_eq!(code(&group(&mut host, sync)), ErrorCode::NONE);
    let by_member = (joined.member.as_str(), joined.generation.0);
    let slow = host.ask(|node, now, reply| {
        node.group(commit_command("g", by_member, at("t", 0), 1), now, reply);
    });
    // Its group commit takes a minute; the member's session is ten seconds.
    let start = host.now();
    for second in 1..=60 {
        let now = riverlog_core::Now {
            mono: start.mono + Duration::from_secs(second),
            wall_ms: start.wall_ms + 1_000 * second as i64,
        };
        host.node().tick(now);
    }
    // Whoever waits for it looks for the coordinator again meanwhile.
    assert_eq!(
        code(&slow.take().expect("answered in five seconds")),
        ErrorCode::COORDINATOR_NOT_AVAILABLE
    );
    host.advance(Duration::from_secs(60));
    assert_eq!(committed(&mut host, "g", at("t", 0)), Ok(Some(1)));
    let described = host
        .get(|node, now, reply| node.describe_group("g", now, reply))
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(described.members.len(), 1);
}

#[test]
fn groups_are_listed_in_order_of_name_over_all_shards() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let list = |host: &mut Harness| {
        let answer = host.get(|node, now, reply| node.groups(now, reply));
        answer.unwrap().map(|groups| {
            let names: Vec<_> = groups.into_iter().map(|g| g.group).collect();
            names.join(" ")
        })
    };
    assert_eq!(list(&mut host), Ok(String::new()));
    for name in ["d", "b", "a", "e", "c"] {
        commit(&mut host, name, at("t", 0), 1);
    }
    assert_eq!(list(&mut host), Ok("a b c d e".to_owned()));
    let mut host = open(&disk.kill());
    assert_eq!(
        list(&mut host),
        Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)
    );
    assert_eq!(list(&mut host), Ok("a b c d e".to_owned()));
}

#[test]
fn offsets_of_a_deleted_topic_do_not_meet_the_one_made_anew() {
    for restart in [false, true] {
        let disk = CrashDisk::new(1);
        let mut host = open(&disk);
        create(&mut host, "t", 1, &[]);
        commit(&mut host, "g", at("t", 0), 10);
        if restart {
            host = open(&disk.kill());
        }
        delete(&mut host, "t").unwrap();
        create(&mut host, "t", 1, &[]);
        host.advance(Duration::from_secs(1));
        let offset = loop {
            match committed(&mut host, "g", at("t", 0)) {
                Err(error) => assert!(error.retriable()),
                Ok(offset) => break offset,
            }
        };
        assert_eq!(offset, None, "restart {restart}");
    }
}

#[test]
fn members_that_wait_are_answered_when_the_log_fails() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    commit(&mut host, "g", at("t", 0), 5);
    disk.fail(FaultOn::Sync, Times::Forever, ErrorKind::Other, |_| true);
    let lost = group(&mut host, commit_command("g", ("", -1), at("t", 0), 6));
    assert_eq!(code(&lost), ErrorCode::NOT_COORDINATOR);
    let again = patiently_failing(&mut host, &commit_command("g", ("", -1), at("t", 0), 7));
    assert_eq!(again, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    // What was durable can still be asked for.
    let mut offset = Err(ErrorCode::NONE);
    for _ in 0..10 {
        offset = committed(&mut host, "g", at("t", 0));
        if offset.is_ok() {
            break;
        }
        host.advance(Duration::from_secs(1));
    }
    assert!(offset.is_ok() || offset.is_err_and(|e| e.retriable()));
    drop(host);
    let mut host = open(&disk.crash_with(1, riverlog_log::disk::Survivors::Nothing));
    host.advance(Duration::from_secs(1));
    let offset = loop {
        match committed(&mut host, "g", at("t", 0)) {
            Err(error) => assert!(error.retriable()),
            Ok(offset) => break offset,
        }
    };
    assert_eq!(offset, Some(5));
}

fn patiently_failing(host: &mut Harness, command: &GroupCommand) -> ErrorCode {
    for _ in 0..20 {
        let code = code(&group(host, command.clone()));
        if code != ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
            return code;
        }
        host.advance(Duration::from_millis(100));
    }
    panic!("still loading");
}

#[test]
fn a_node_that_stops_answers_members_that_wait() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let joined = join(&mut host, "g", "");
    // A follower that syncs before the leader has.
    let second = host.ask(|node, now, reply| {
        let command = GroupCommand::Join(Join {
            group: "g".to_owned(),
            session_timeout: Duration::from_secs(10),
            rebalance_timeout: Duration::from_secs(20),
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), Bytes::new())],
            random: 5,
            ..Join::default()
        });
        node.group(command, now, reply);
    });
    host.run();
    assert!(!second.is_ready(), "it waits for {}", joined.member);
    host.close().unwrap();
    let GroupAnswer::Join(answer) = second.take().expect("answered at the stop") else {
        panic!("a join's answer")
    };
    assert!(answer.error.retriable());
}

#[test]
fn groups_are_the_same_after_their_topic_was_compacted() {
    for seed in 0..8 {
        let disk = CrashDisk::new(seed);
        let mut host = open(&disk);
        create(&mut host, "t", 4, &[]);
        let mut random = riverlog_log::disk::Random::new(seed);
        let mut expected = std::collections::BTreeMap::new();
        for i in 0..300 {
            let name = format!("g{}", random.below(9));
            let partition = random.below(4) as i32;
            let to = at("t", partition);
            if random.chance(1, 12) && expected.contains_key(&(name.clone(), partition)) {
                let delete = GroupCommand::DeleteOffsets {
                    group: name.clone(),
                    partitions: vec![to],
                };
                assert_eq!(code(&group(&mut host, delete)), ErrorCode::NONE);
                expected.insert((name, partition), None);
            } else {
                commit(&mut host, &name, to, i);
                expected.insert((name, partition), Some(i));
            }
        }
        let removed = |host: &Harness| {
            let metrics = host.node().metrics();
            let removed = metrics
                .iter()
                .find(|m| m.name == "cleaner_removed_records_total");
            removed.unwrap().value
        };
        host.advance(Duration::from_secs(60));
        assert!(removed(&host) > 100.0, "{}", removed(&host));
        let mut host = match seed % 2 {
            0 => {
                host.close().unwrap();
                open(&disk)
            }
            _ => open(&disk.crash(seed)),
        };
        for ((name, partition), offset) in expected {
            let loading = Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
            let mut found = committed(&mut host, &name, at("t", partition));
            for _ in 0..100 {
                if found != loading {
                    break;
                }
                host.advance(Duration::from_millis(100));
                found = committed(&mut host, &name, at("t", partition));
            }
            assert_eq!(found, Ok(offset), "{name} {partition}");
        }
    }
}

/// What a client says of the topics that it wants (ConsumerProtocolSubscription v0).
fn subscription(topics: usize) -> Bytes {
    let mut out = vec![0, 0];
    out.extend((topics as i32).to_be_bytes());
    for topic in 0..topics {
        let name = format!("a-topic-of-a-large-group-{topic}");
        out.extend((name.len() as i16).to_be_bytes());
        out.extend(name.as_bytes());
    }
    out.extend((-1_i32).to_be_bytes());
    Bytes::from(out)
}

#[test]
fn sixty_members_on_three_thousand_topics_are_one_group_also_after_a_restart() {
    const MEMBERS: usize = 60;
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    // The coordinator's topic is made, and loaded, on the way.
    commit(&mut host, "other", at("t", 0), 1);
    let metadata = subscription(3_000);
    let mut joins = Vec::new();
    for member in 0..MEMBERS {
        let command = GroupCommand::Join(Join {
            group: "large".to_owned(),
            client_id: format!("client-{member}"),
            client_host: "/127.0.0.1".to_owned(),
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(300),
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), metadata.clone())],
            random: host.node().random(),
            ..Join::default()
        });
        joins.push(host.ask(|node, now, reply| node.group(command, now, reply)));
        host.run();
    }
    for _ in 0..30 {
        if joins.iter().all(Answer::is_ready) {
            break;
        }
        host.advance(Duration::from_secs(1));
    }
    let mut members = Vec::new();
    let mut generation = Generation(0);
    for join in joins {
        let Some(GroupAnswer::Join(answer)) = join.take() else {
            panic!("a join is answered")
        };
        assert_eq!(answer.error, ErrorCode::NONE);
        generation = answer.generation;
        if !answer.members.is_empty() {
            assert_eq!(answer.members.len(), MEMBERS);
        }
        members.push((answer.member, answer.leader));
    }
    let leader = members[0].1.clone();
    let assignments: Vec<(String, Bytes)> = members
        .iter()
        .map(|(member, _)| (member.clone(), metadata.clone()))
        .collect();
    let mut syncs = Vec::new();
    for (member, _) in &members {
        let sync = GroupCommand::Sync(Sync {
            group: "large".to_owned(),
            generation,
            member: member.clone(),
            assignments: match *member == leader {
                true => assignments.clone(),
                false => Vec::new(),
            },
            ..Sync::default()
        });
        syncs.push(host.ask(|node, now, reply| node.group(sync, now, reply)));
    }
    host.run();
    for sync in syncs {
        let Some(GroupAnswer::Sync {
            error, assignment, ..
        }) = sync.take()
        else {
            panic!("a sync is answered")
        };
        assert_eq!(error, ErrorCode::NONE);
        assert!(assignment == metadata, "another assignment");
    }
    // Some eight megabytes are one record: they come back from it.
    let mut host = open(&disk.crash(5));
    for (member, _) in &members {
        let beat = GroupCommand::Heartbeat {
            group: "large".to_owned(),
            generation,
            member: member.clone(),
            instance: None,
        };
        assert_eq!(code(&patiently(&mut host, &beat)), ErrorCode::NONE);
    }
}
