//! What is acknowledged survives: power cuts at each disk call, full disks, failed syncs.

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use riverlog_log::disk::{CrashDisk, FaultOn, Times};
use riverlog_log::{Disk, OpenMode};
use riverlog_node::Notice;
use riverlog_node::harness::Harness;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

/// Creates topics, sends, deletes records, makes a topic anew. Returns what was acknowledged: values by offset, the least
/// start offset, and whether the second topic was.
fn workload(disk: &CrashDisk) -> (Vec<(i64, String)>, i64, bool) {
    let mut acknowledged = Vec::new();
    let mut start = 0;
    let mut second = false;
    let Ok(mut host) = Harness::open(Arc::new(disk.clone()) as Arc<dyn Disk>, settings(), 7) else {
        return (acknowledged, start, second);
    };
    if create_result(&mut host, "t", 1, &[]).is_err() {
        return (acknowledged, start, second);
    }
    let to = partition(&host, "t", 0);
    let value = "v".repeat(300);
    for i in 0..12 {
        let (a, b) = (format!("{value}{i}a"), format!("{value}{i}b"));
        if let Ok(answer) = produce(&mut host, &to, &[&a, &b]) {
            acknowledged.push((answer.base_offset.0, a));
            acknowledged.push((answer.base_offset.0 + 1, b));
        }
        if i == 8 {
            let deleted =
                host.get(|node, now, reply| node.delete_records(&to, Offset(3), now, reply));
            if let Some(Ok(offset)) = deleted {
                start = offset.0;
            }
            host.advance(Duration::from_secs(2));
        }
    }
    second = create_result(&mut host, "u", 2, &[]).is_ok();
    if !acknowledged.is_empty() {
        host.advance(Duration::from_secs(2));
    }
    (acknowledged, start, second)
}

fn check_survivors(
    disk: &CrashDisk,
    what: &str,
    acknowledged: &[(i64, String)],
    start: i64,
    second: bool,
) {
    let opened = Harness::open(Arc::new(disk.clone()) as Arc<dyn Disk>, settings(), 8);
    let mut host = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    if acknowledged.is_empty() {
        return;
    }
    let all = read_all(&mut host, "t", 0);
    let first = all.first().map_or(i64::MAX, |(offset, _)| *offset);
    assert!(
        first >= start,
        "{what}: {first} is before the deleted {start}"
    );
    for (offset, value) in acknowledged {
        if *offset >= 3 || start == 0 && first == 0 {
            assert!(
                all.contains(&(*offset, value.clone())),
                "{what}: offset {offset} was acknowledged and is gone, of {:?}",
                all.iter().map(|(offset, _)| *offset).collect::<Vec<_>>()
            );
        }
    }
    if second {
        partition(&host, "u", 1);
    }
    let to = partition(&host, "t", 0);
    let next = produce(&mut host, &to, &["after"]).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert_eq!(
        read_all(&mut host, "t", 0).last(),
        Some(&(next.base_offset.0, "after".to_owned()))
    );
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_every_disk_call() {
    let calm = CrashDisk::new(1);
    let (acknowledged, start, second) = workload(&calm);
    assert_eq!((acknowledged.len(), start, second), (24, 3, true));
    let counts = calm.counts();
    let changes = counts.writes + counts.syncs + counts.folder_changes;
    assert!(changes > 20);
    for at in 0..=changes {
        let disk = CrashDisk::new(1);
        disk.fail_after(at);
        let (acknowledged, start, second) = workload(&disk);
        for seed in 0..3 {
            let what = format!("cut after {at} changes, seed {seed}");
            check_survivors(&disk.crash(seed), &what, &acknowledged, start, second);
        }
        let what = format!("killed after {at} changes");
        check_survivors(&disk.kill(), &what, &acknowledged, start, second);
    }
}

#[test]
fn a_full_disk_refuses_writes_and_recovers_by_itself() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    create(
        &mut host,
        "fill",
        1,
        &[("riverlog.durability", "page-cache")],
    );
    let to = partition(&host, "t", 0);
    let fill = partition(&host, "fill", 0);
    let value = "v".repeat(1_000);
    let mut stored = Vec::new();
    for _ in 0..5 {
        stored.push(produce(&mut host, &to, &[&value]).unwrap().base_offset.0);
    }
    let counts = disk.counts();
    disk.set_capacity(Some(counts.bytes_written + 20_000));
    let mut refused = 0;
    for _ in 0..2_000 {
        match produce(&mut host, &fill, &[&value]) {
            Ok(_) => {}
            Err(failure) => {
                assert_eq!(failure.error, ErrorCode::KAFKA_STORAGE_ERROR);
                refused += 1;
                if refused > 3 {
                    break;
                }
            }
        }
    }
    assert!(refused > 3, "the disk became full");
    // Reads, and questions, go on.
    assert_eq!(read_all(&mut host, "t", 0).len(), 5);
    for _ in 0..3 {
        match produce(&mut host, &to, &[&value]) {
            Ok(answer) => stored.push(answer.base_offset.0),
            Err(failure) => assert_eq!(failure.error, ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }
    // It also starts on a full disk.
    let full = disk.kill();
    drop(host);
    let mut host = open(&full);
    assert!(read_all(&mut host, "t", 0).len() >= stored.len());
    full.set_capacity(None);
    host.advance(Duration::from_secs(2));
    let to = partition(&host, "t", 0);
    for _ in 0..3 {
        stored.push(produce(&mut host, &to, &[&value]).unwrap().base_offset.0);
    }
    let read: Vec<_> = read_all(&mut host, "t", 0)
        .iter()
        .map(|(o, _)| *o)
        .collect();
    for offset in stored {
        assert!(read.contains(&offset));
    }
}

/// What lies in segments that no sync was asked for goes, as with the power.
fn lose_tails(disk: &CrashDisk, topics: &[TopicId]) {
    for topic in topics {
        let path = format!("{topic}/0/{:020}.log", 0);
        let segment = disk.open(&path, OpenMode::Write).unwrap();
        assert!(segment.len().unwrap() > 0);
        segment.set_len(0).unwrap();
    }
}

/// The room that is kept for the node was kept from recovery, too: partitions that the power had taken the tails of their segments from
/// could not even be read until somebody made room, and without its metadata the node didn't start.
#[test]
fn a_start_on_a_full_disk_had_no_room_for_what_only_the_write_ahead_log_had() {
    let disk = CrashDisk::new(1);
    disk.set_capacity(Some(100_000_000));
    let mut host = open(&disk);
    let topic = create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    for _ in 0..5 {
        produce(&mut host, &to, &["acknowledged"]).unwrap();
    }
    let all = read_all(&mut host, "t", 0);
    assert_eq!(all.len(), 5);
    let reserve = |disk: &CrashDisk| {
        let file = disk.open("reserve", OpenMode::Read);
        file.and_then(|file| file.len())
    };
    assert_eq!(reserve(&disk).unwrap(), 1 << 20);
    let disk = disk.kill();
    drop(host);
    lose_tails(&disk, &[topic, TopicId::METADATA]);
    disk.fill_up();

    let mut host = open(&disk);
    assert!(reserve(&disk).is_err());
    assert_eq!(read_all(&mut host, "t", 0), all);
    let to = partition(&host, "t", 0);
    let refused = produce(&mut host, &to, &["refused"]).unwrap_err();
    assert_eq!(refused.error, ErrorCode::KAFKA_STORAGE_ERROR);
    disk.set_capacity(Some(100_000_000));
    host.advance(Duration::from_secs(2));
    assert_eq!(reserve(&disk).unwrap(), 1 << 20);
    produce(&mut host, &to, &["after"]).unwrap();
    assert_eq!(read_all(&mut host, "t", 0).len(), 6);
}

#[test]
fn a_partition_that_a_start_on_a_full_disk_could_not_open_comes_back_with_the_room() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let topic = create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    for _ in 0..5 {
        produce(&mut host, &to, &["acknowledged"]).unwrap();
    }
    let all = read_all(&mut host, "t", 0);
    let disk = disk.kill();
    drop(host);
    lose_tails(&disk, &[topic]);
    // There is nothing that could be given up.
    disk.fill_up();

    let mut host = open(&disk);
    let not_opened = |n: &Notice| matches!(n, Notice::NotOpened { topic, .. } if topic == "t");
    assert_eq!(
        host.take_notices().iter().filter(|n| not_opened(n)).count(),
        1
    );
    host.advance(Duration::from_secs(2));
    disk.set_capacity(None);
    host.advance(Duration::from_secs(2));
    assert_eq!(read_all(&mut host, "t", 0), all);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["after"]).unwrap();
}

#[test]
fn on_a_full_disk_topics_can_be_deleted_and_that_makes_room() {
    let disk = CrashDisk::new(1);
    disk.set_capacity(Some(100_000_000));
    let mut host = open(&disk);
    create(&mut host, "keep", 1, &[]);
    create(&mut host, "big", 1, &[]);
    let keep = partition(&host, "keep", 0);
    let big = partition(&host, "big", 0);
    let value = "v".repeat(50_000);
    let counts = disk.counts();
    disk.set_capacity(Some(counts.bytes_written + 6_000_000));
    let mut stored = 0;
    while produce(&mut host, &big, &[&value]).is_ok() {
        stored += 1;
        assert!(stored < 1_000, "the disk never became full");
    }
    let refused = produce(&mut host, &keep, &["x"]).unwrap_err();
    assert_eq!(refused.error, ErrorCode::KAFKA_STORAGE_ERROR);
    delete(&mut host, "big").expect("deleted on a full disk");
    host.advance(Duration::from_secs(2));
    produce(&mut host, &keep, &["x"]).expect("there is room again");
    let full = host
        .node()
        .metrics()
        .into_iter()
        .find(|m| m.name == "disk_full");
    assert_eq!(full.map(|m| m.value), Some(0.0));
}

#[test]
fn room_that_comes_back_is_used_without_a_restart() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let value = "v".repeat(1_000);
    produce(&mut host, &to, &[&value]).unwrap();
    disk.fail(
        FaultOn::Write,
        Times::Forever,
        ErrorKind::StorageFull,
        |_| true,
    );
    for _ in 0..3 {
        let failure = produce(&mut host, &to, &[&value]).unwrap_err();
        assert_eq!(failure.error, ErrorCode::KAFKA_STORAGE_ERROR);
        host.advance(Duration::from_millis(300));
    }
    assert_eq!(read_all(&mut host, "t", 0)[0].0, 0);
    disk.heal();
    host.advance(Duration::from_secs(1));
    let answer = produce(&mut host, &to, &["after"]).unwrap();
    let all = read_all(&mut host, "t", 0);
    assert_eq!(
        all.last(),
        Some(&(answer.base_offset.0, "after".to_owned()))
    );
    let mut host = open(&disk.crash(5));
    let after = read_all(&mut host, "t", 0);
    assert_eq!(after, all);
}

#[test]
fn a_failed_sync_fences_the_partition_and_reads_go_on() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    disk.fail(FaultOn::Sync, Times::Forever, ErrorKind::Other, |_| true);
    let failure = produce(&mut host, &to, &["b"]).unwrap_err();
    assert_eq!(failure.error, ErrorCode::KAFKA_STORAGE_ERROR);
    disk.heal();
    // Healed or not: what failed once isn't trusted again.
    let failure = produce(&mut host, &to, &["c"]).unwrap_err();
    assert_eq!(failure.error, ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(read_all(&mut host, "t", 0), [(0, "a".to_owned())]);
    let described = host.node().describe_partition(&to);
    assert!(described.failed.is_some());
    assert_eq!(described.high_watermark, Offset(1));
    let failed = host
        .node()
        .metrics()
        .into_iter()
        .find(|m| m.name == "disk_failed");
    assert_eq!(failed.map(|m| m.value), Some(1.0));
    assert!(create_result(&mut host, "u", 1, &[]).is_err());
    drop(host);
    let mut host = open(&disk.crash(4));
    assert_eq!(read_all(&mut host, "t", 0)[0], (0, "a".to_owned()));
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["d"]).unwrap();
}

#[test]
fn idempotence_survives_a_power_cut() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let (id, _) = host
        .get(|node, now, reply| node.init_producer(now, reply))
        .unwrap()
        .unwrap();
    for sequence in 0..3 {
        let sent = send(&host, &to, idempotent(&host, id, sequence, &["x"]), -1);
        host.run();
        sent.take().unwrap().unwrap();
    }
    let disk = disk.crash(9);
    let mut host = open(&disk);
    let to = partition(&host, "t", 0);
    let again = send(&host, &to, idempotent(&host, id, 2, &["x"]), -1);
    host.run();
    let again = again.take().unwrap().unwrap();
    assert!(again.duplicate);
    assert_eq!(again.base_offset, Offset(2));
    let next = send(&host, &to, idempotent(&host, id, 3, &["y"]), -1);
    host.run();
    assert_eq!(next.take().unwrap().unwrap().base_offset, Offset(3));
    let gap = send(&host, &to, idempotent(&host, id, 9, &["z"]), -1);
    host.run();
    assert_eq!(
        gap.take().unwrap().unwrap_err().error,
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
    );
}

#[test]
fn what_a_killed_process_had_only_written_does_not_take_later_records_with_it() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["synced"]).unwrap();
    // Written to the segment, but the process dies before the group commit.
    let _lost = send(&host, &to, batch(&host, &["written"]), -1);
    let disk = disk.kill();
    drop(host);
    let mut host = open(&disk);
    let to = partition(&host, "t", 0);
    let answer = produce(&mut host, &to, &["after"]).unwrap();
    let cut = disk.crash_with(1, riverlog_log::disk::Survivors::Nothing);
    let mut host = open(&cut);
    let all = read_all(&mut host, "t", 0);
    assert_eq!(
        all.last(),
        Some(&(answer.base_offset.0, "after".to_owned()))
    );
}

#[test]
fn each_start_takes_a_new_leader_epoch_and_fences_the_old_one() {
    let mut disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    for epoch in 0..4 {
        let to = partition(&host, "t", 0);
        let described = host.node().describe_partition(&to);
        assert_eq!(described.leader_epoch, LeaderEpoch(epoch));
        produce(&mut host, &to, &["x"]).unwrap();
        let mut ask = ask_from("t", 0, 0);
        ask.current_leader_epoch = LeaderEpoch(epoch - 1);
        if epoch > 0 {
            let answer = fetch(&mut host, fetch_command(vec![ask], 0));
            assert_eq!(answer.partitions[0].error, ErrorCode::FENCED_LEADER_EPOCH);
        }
        disk = if epoch % 2 == 0 {
            disk.kill()
        } else {
            disk.crash(1)
        };
        host = open(&disk);
    }
    // KIP-595: a reader whose last epoch ended before its position has diverged.
    let mut ask = ask_from("t", 0, 3);
    ask.last_fetched_epoch = LeaderEpoch(0);
    let answer = fetch(&mut host, fetch_command(vec![ask], 0));
    assert_eq!(
        answer.partitions[0].diverging_epoch,
        Some((LeaderEpoch(0), Offset(1)))
    );
}

#[test]
fn damage_on_the_disk_is_an_error_of_that_range() {
    let (mut host, _) = damaged(3);
    let answer = fetch(&mut host, fetch_command(vec![ask_from("t", 0, 0)], 0));
    assert_eq!(answer.partitions[0].error, ErrorCode::CORRUPT_MESSAGE);
    assert_eq!(answer.partitions[0].high_watermark, Offset(-1));
}
