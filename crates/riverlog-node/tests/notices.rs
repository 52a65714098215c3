//! What a node tells its operator: damage, groups that can't be served, a full disk, an accepted loss.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::*;
use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_log::disk::{CrashDisk, FaultOn, Times};
use riverlog_log::{Disk, OpenMode};
use riverlog_node::harness::Harness;
use riverlog_node::{LostRange, Notice, OffsetQuery, StartError};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

fn metric(host: &Harness, name: &str) -> f64 {
    let found = host.node().metrics().into_iter().find(|m| m.name == name);
    found.expect("a metric of that name").value
}

#[test]
fn damage_is_told_once_with_its_range_and_forgotten_when_it_is_deleted() {
    let (mut host, path) = damaged(3);
    assert!(host.take_notices().is_empty());
    for _ in 0..2 {
        let answer = fetch(&mut host, fetch_command(vec![ask_from("t", 0, 0)], 0));
        assert_eq!(answer.partitions[0].error, ErrorCode::CORRUPT_MESSAGE);
    }
    let told = host.take_notices();
    let [Notice::Damaged(damage)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((damage.topic.as_str(), damage.partition), ("t", 0));
    assert_eq!((damage.from, damage.to), (Offset(0), Offset(1)));
    assert_eq!(damage.path, path);
    assert_eq!(host.node().damages(), std::slice::from_ref(damage));
    assert_eq!(metric(&host, "damage_found_total"), 1.0);
    assert_eq!(metric(&host, "damaged_ranges"), 1.0);
    let to = partition(&host, "t", 0);
    let deleted = host.get(|node, now, reply| node.delete_records(&to, Offset(1), now, reply));
    assert_eq!(deleted, Some(Ok(Offset(1))));
    assert!(host.node().damages().is_empty());
    assert_eq!(metric(&host, "damaged_ranges"), 0.0);
}

#[test]
fn a_look_up_by_time_tells_of_damage_too() {
    let (mut host, _) = damaged(1);
    let to = partition(&host, "t", 0);
    let isolation = riverlog_node::Isolation::ReadUncommitted;
    let answer = host.get(|node, _, reply| {
        node.offset(
            &to,
            OffsetQuery::AtTime(1),
            isolation,
            LeaderEpoch::NONE,
            reply,
        );
    });
    let answer = answer.expect("an answer");
    assert_eq!(answer.error, ErrorCode::CORRUPT_MESSAGE);
    assert_eq!(host.node().damages().len(), 1);
}

fn commit(host: &mut Harness, group: &str) -> GroupAnswer {
    let at = TopicPartition {
        topic: "t".to_owned(),
        id: TopicId::ZERO,
        partition: 0,
    };
    let committed = CommittedOffset {
        offset: Offset(1),
        leader_epoch: LeaderEpoch(0),
        metadata: String::new(),
        commit_timestamp: 0,
        expire_timestamp: None,
    };
    let command = GroupCommand::Commit {
        group: group.to_owned(),
        generation: Generation(-1),
        member: String::new(),
        instance: None,
        offsets: vec![(at, committed)],
        version: 8,
    };
    loop {
        let command = command.clone();
        let answer = host
            .get(|node, now, reply| node.group(command, now, reply))
            .expect("an answer");
        let loading = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
        if !matches!(&answer, GroupAnswer::Partitions(error, _) if *error == loading) {
            return answer;
        }
        host.advance(Duration::from_millis(10));
    }
}

#[test]
fn a_damaged_log_of_groups_hides_only_its_own_groups() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let names: Vec<String> = (0..12).map(|i| format!("group-{i}")).collect();
    for name in &names {
        let answer = commit(&mut host, name);
        assert_eq!(
            answer,
            GroupAnswer::Partitions(ErrorCode::NONE, vec![ErrorCode::NONE])
        );
    }
    let of = |host: &Harness, index| {
        let topic = riverlog_core::metadata::TopicRef::Name("__consumer_offsets".to_owned());
        host.node().partition(&topic, index).expect("it is there")
    };
    let id = of(&host, 0).topic();
    let hurt = (0..3)
        .find(|i| host.node().positions(&of(&host, *i)).1 > Offset(0))
        .expect("some partition has groups");
    host.close().unwrap();
    disk.flip(&format!("{id}/{hurt}/00000000000000000000.log"), 70, 0xff)
        .unwrap();
    let mut host = open(&disk);
    let list = |host: &mut Harness| loop {
        let listed = host.get(|node, now, reply| node.groups(now, reply));
        match listed.expect("an answer") {
            Ok(groups) => return groups,
            Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS) => host.advance(Duration::from_millis(10)),
            Err(error) => panic!("{error}"),
        }
    };
    let listed: Vec<String> = list(&mut host).into_iter().map(|g| g.group).collect();
    let count = i32::try_from(names.len()).unwrap();
    assert!(
        !listed.is_empty() && listed.len() < count as usize,
        "{listed:?}"
    );
    for name in &names {
        let here = riverlog_core::groups::partition_for(name, 3) != hurt;
        assert_eq!(listed.contains(name), here, "{name}");
        let answer = commit(&mut host, name);
        let expected = match here {
            true => ErrorCode::NONE,
            false => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        };
        assert!(
            matches!(answer, GroupAnswer::Partitions(e, _) if e == expected),
            "{name}"
        );
    }
    // It is tried again for ever, and told once.
    host.advance(Duration::from_secs(30));
    let mut told = host.take_notices();
    // Nor can it be compacted, which the cleaner says for itself.
    told.retain(|notice| !matches!(notice, Notice::NotCompacted { .. }));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(matches!(&told[0], Notice::Damaged(d) if d.topic == "__consumer_offsets"));
    let Notice::CoordinatorUnavailable {
        topic,
        partition,
        reason,
    } = &told[1]
    else {
        panic!("{told:?}")
    };
    assert_eq!(*partition, hurt);
    assert_eq!(
        host.node().unavailable_coordinators(),
        [(*topic, hurt, reason.clone())]
    );
    assert_eq!(metric(&host, "unavailable_coordinators"), 1.0);
}

#[test]
fn a_full_disk_is_told_once_and_so_is_its_end() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    host.take_notices();
    disk.fill_up();
    for _ in 0..3 {
        let refused = produce(&mut host, &to, &[&"v".repeat(100_000)]).unwrap_err();
        assert_eq!(refused.error, ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(refused.message.contains("make room"), "{}", refused.message);
        host.advance(Duration::from_secs(1));
    }
    let told = host.take_notices();
    assert!(matches!(&told[..], [Notice::DiskFull]), "{told:?}");
    disk.set_capacity(None);
    host.advance(Duration::from_secs(1));
    produce(&mut host, &to, &["b"]).unwrap();
    let told = host.take_notices();
    assert!(matches!(&told[..], [Notice::DiskHasRoom]), "{told:?}");
}

#[test]
fn a_failed_sync_and_a_log_that_cannot_be_opened_are_told() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let id = create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    disk.fail(
        FaultOn::Sync,
        Times::Once,
        ErrorKind::Other,
        |path: &str| path.starts_with("wal/"),
    );
    produce(&mut host, &to, &["b"]).unwrap_err();
    let told = host.take_notices();
    assert!(matches!(&told[..], [Notice::DiskFailed { .. }]), "{told:?}");
    drop(host);
    let disk = disk.crash(3);
    let folder = format!("{id}/0");
    disk.fail(
        FaultOn::Read,
        Times::Forever,
        ErrorKind::Other,
        move |path: &str| path.starts_with(&folder),
    );
    let host = open(&disk);
    let told = host.take_notices();
    let [
        Notice::NotOpened {
            topic, partition, ..
        },
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((topic.as_str(), *partition), ("t", 0));
}

#[test]
fn a_folder_of_another_node_is_refused_and_keeps_its_records() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    host.close().unwrap();
    let mut other = settings();
    other.broker = riverlog_wire::BrokerId(7);
    match Harness::open(std::sync::Arc::new(disk.clone()), other, 7) {
        Err(StartError::OtherNode { found, asked }) => assert_eq!((found.0, asked.0), (1, 7)),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it opened another node's folder"),
    }
    let mut host = open(&disk);
    assert_eq!(read_all(&mut host, "t", 0).len(), 1);
}

#[test]
fn an_accepted_loss_names_the_records_that_are_known_to_be_gone() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let id = create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    for i in 0..6 {
        produce(&mut host, &to, &[&format!("value-{i}")]).unwrap();
    }
    // Nothing of the segments was synced: the write-ahead log alone has the records.
    let disk = disk.crash_with(1, riverlog_log::disk::Survivors::Nothing);
    let path = disk
        .list("wal")
        .unwrap()
        .into_iter()
        .map(|file| format!("wal/{}", file.name))
        .find_map(|path| {
            let file = disk.open(&path, OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            let at = bytes.windows(7).position(|w| w == b"value-3")?;
            Some((path, at as u64))
        });
    let (path, at) = path.expect("the record is in the write-ahead log");
    disk.flip(&path, at, 0xff).unwrap();
    let opened = Harness::open(std::sync::Arc::new(disk.clone()), settings(), 7);
    assert!(opened.is_err());
    disk.open("accept-loss", OpenMode::Create).unwrap();
    let mut host = open(&disk);
    let told = host.take_notices();
    let Some(Notice::LossAccepted { reason, lost }) = told.first() else {
        panic!("{told:?}")
    };
    assert!(reason.contains("can't be read: places"), "{reason}");
    // What came behind the hole can't be told from what was never acknowledged.
    let range = LostRange {
        topic: "t".to_owned(),
        partition: 0,
        from: Offset(3),
        to: Offset(6),
    };
    assert_eq!(lost, &[range], "{id}");
    assert_eq!(read_all(&mut host, "t", 0).len(), 3);
}
