//! Retention, deletion from the front, and logs that are empty (FC-07).

use std::sync::Arc;

use riverlog_wire::{LeaderEpoch, Offset};

use super::support::*;
use crate::Disk;
use crate::disk::MemoryDisk;
use crate::log::{AppendAs, Log, LogSettings, ReadError};

const HOUR: i64 = 3_600_000;

fn segments(disk: &MemoryDisk) -> Vec<i64> {
    disk.list(&KEY.folder())
        .unwrap()
        .iter()
        .filter_map(|e| e.name.strip_suffix(".log")?.parse().ok())
        .collect()
}

fn retain(log: &mut Log, now: i64) {
    let written = log.written();
    if let Some(upkeep) = log.retain(now, written) {
        log.upkeep_done(upkeep.run()).unwrap();
    }
}

/// Twelve records in segments of about four, one each hour.
fn hourly(settings: LogSettings) -> (Arc<MemoryDisk>, Arc<crate::Volume>, Log) {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), settings);
    for hour in 0..12 {
        let how = AppendAs::Leader {
            epoch: LeaderEpoch(0),
            now_ms: hour * HOUR,
        };
        log.append(batch(1, hour * HOUR, &"x".repeat(170)), how)
            .unwrap();
    }
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    (disk, volume, log)
}

#[test]
fn segments_go_by_age_when_their_newest_record_is_too_old() {
    let settings = LogSettings {
        retention_ms: Some(5 * HOUR as u64),
        ..small()
    };
    let (disk, _volume, mut log) = hourly(settings);
    assert_eq!(segments(&disk), [0, 4, 8]);
    // The newest record of the first segment is of hour 3.
    assert_eq!(log.next_retention_ms(), Some(8 * HOUR + 1));
    retain(&mut log, 8 * HOUR);
    assert_eq!(log.log_start_offset(), Offset(0));
    retain(&mut log, 8 * HOUR + 1);
    assert_eq!(log.log_start_offset(), Offset(4));
    assert_eq!(segments(&disk), [4, 8]);
    // All of it, the segment that is written to as well.
    retain(&mut log, 20 * HOUR);
    assert_eq!(log.log_start_offset(), Offset(12));
    assert_eq!(segments(&disk), [12]);
    assert_eq!(log.size_bytes(), 0);
    assert_eq!(log.next_retention_ms(), None);
}

#[test]
fn nothing_above_the_high_watermark_goes() {
    let settings = LogSettings {
        retention_ms: Some(1),
        retention_records: Some(0),
        ..small()
    };
    let (_disk, _volume, mut log) = hourly(settings);
    let upkeep = log.retain(99 * HOUR, Offset(6)).unwrap();
    log.upkeep_done(upkeep.run()).unwrap();
    assert_eq!(log.log_start_offset(), Offset(6));
    assert_eq!(read_all(&mut log, 6).unwrap().len(), 6);
}

#[test]
fn an_emptied_log_goes_on_where_it_ended() {
    let disk = Arc::new(MemoryDisk::new());
    let settings = LogSettings {
        retention_ms: Some(10),
        ..small()
    };
    let (volume, mut log) = open(disk.clone(), settings.clone());
    for i in 0..10 {
        put(&volume, &mut log, batch(1, i, &"x".repeat(170)));
    }
    retain(&mut log, 100_000_000);
    assert_eq!(log.log_start_offset(), Offset(10));
    assert_eq!(log.last_epoch(), LeaderEpoch(0));
    flush(&volume, &mut log);
    let empty = |log: &mut Log| {
        assert_eq!(
            (log.log_start_offset(), log.log_end_offset()),
            (Offset(10), Offset(10))
        );
        assert!(read_bytes(log, 10, 100).unwrap().is_empty());
        let before = read_bytes(log, 9, 100);
        assert!(matches!(before, Err(ReadError::OffsetOutOfRange { .. })));
        assert!(
            log.find_time(0, Offset(10))
                .unwrap()
                .run()
                .unwrap()
                .is_none()
        );
    };
    empty(&mut log);
    // A kill, then a clean stop.
    drop((volume, log));
    let (volume, mut log) = open(disk.clone(), settings.clone());
    empty(&mut log);
    close(volume, log);
    let (volume, mut log) = open(disk.clone(), settings);
    empty(&mut log);
    let next = put(&volume, &mut log, batch(1, 1, "next"));
    assert_eq!(next.first, Offset(10));
    assert_eq!(read_all(&mut log, 10).unwrap(), [(10, 1)]);
}

#[test]
fn a_record_from_the_future_goes_with_its_neighbours() {
    let settings = LogSettings {
        retention_ms: Some(5 * HOUR as u64),
        ..small()
    };
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), settings);
    for hour in 0..12 {
        let time = match hour {
            1 => 50 * 365 * 24 * HOUR,
            2 => -1,
            _ => hour * HOUR,
        };
        let how = AppendAs::Leader {
            epoch: LeaderEpoch(0),
            now_ms: hour * HOUR,
        };
        log.append(batch(1, time, &"x".repeat(170)), how).unwrap();
        write(&mut log).unwrap();
        flush(&volume, &mut log);
    }
    retain(&mut log, 11 * HOUR);
    assert!(
        log.log_start_offset() > Offset(3),
        "{}",
        log.log_start_offset()
    );
    retain(&mut log, 30 * HOUR);
    assert_eq!(log.log_start_offset(), Offset(12));
}

#[test]
fn a_follower_lets_records_from_the_future_go_too() {
    let settings = LogSettings {
        retention_ms: Some(5 * HOUR as u64),
        ..small()
    };
    let (_volume, mut log) = open(Arc::new(MemoryDisk::new()), settings);
    log.append(batch(1, 90 * HOUR, "x"), AppendAs::Follower)
        .unwrap();
    write(&mut log).unwrap();
    retain(&mut log, 10 * HOUR);
    assert_eq!(log.log_start_offset(), Offset(0));
    retain(&mut log, 16 * HOUR);
    assert_eq!(log.log_start_offset(), Offset(1));
}

#[test]
fn whole_segments_go_by_size() {
    let settings = LogSettings {
        retention_bytes: Some(1_200),
        ..small()
    };
    let (disk, _volume, mut log) = hourly(settings);
    retain(&mut log, 0);
    assert!(log.size_bytes() >= 1_200, "{}", log.size_bytes());
    assert_eq!(segments(&disk), [4, 8]);
}

#[test]
fn the_start_moves_to_the_record_by_count() {
    let disk = Arc::new(MemoryDisk::new());
    let settings = LogSettings {
        retention_records: Some(5),
        ..small()
    };
    let (volume, mut log) = open(disk.clone(), settings);
    for i in 0..9 {
        put(&volume, &mut log, batch(3, i, "abc"));
        retain(&mut log, 0);
        let end = log.log_end_offset().0;
        assert_eq!(log.log_start_offset(), Offset((end - 5).max(0)));
    }
    // In the middle of a batch, which is given whole.
    assert_eq!(log.log_start_offset(), Offset(22));
    assert_eq!(read_all(&mut log, 22).unwrap()[0], (21, 3));
}

#[test]
fn without_the_delete_policy_only_delete_records_moves_the_start() {
    let settings = LogSettings {
        delete: false,
        retention_ms: Some(1),
        retention_bytes: Some(1),
        retention_records: Some(1),
        ..small()
    };
    let (disk, _volume, mut log) = hourly(settings);
    retain(&mut log, 99 * HOUR);
    assert_eq!(log.log_start_offset(), Offset(0));
    assert_eq!(log.next_retention_ms(), None);
    log.delete_records(Offset(9)).unwrap();
    log.delete_records(Offset(3)).unwrap();
    assert_eq!(log.log_start_offset(), Offset(9));
    retain(&mut log, 99 * HOUR);
    assert_eq!(segments(&disk), [8]);
}

#[test]
fn a_start_inside_a_batch_survives_a_kill() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), small());
    put(&volume, &mut log, batch(10, 1, "v"));
    log.delete_records(Offset(4)).unwrap();
    flush(&volume, &mut log);
    drop((volume, log));
    let (_volume, mut log) = open(disk, small());
    assert_eq!(log.log_start_offset(), Offset(4));
    assert_eq!(read_all(&mut log, 4).unwrap(), [(0, 10)]);
    assert!(read_bytes(&mut log, 3, 1).is_err());
}

#[test]
fn a_follower_whose_leader_has_moved_on_starts_anew() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), small());
    for i in 0..10 {
        put(&volume, &mut log, from_producer(1, 0, i, 1));
    }
    let out = {
        append(&mut log, batch(1, 1, "late")).unwrap();
        log.take_write().unwrap()
    };
    log.delete_records(Offset(500)).unwrap();
    assert_eq!(
        (log.log_start_offset(), log.log_end_offset()),
        (Offset(500), Offset(500))
    );
    // The write that was out means nothing any more.
    log.write_done(out.run()).unwrap();
    assert_eq!(log.written(), Offset(500));
    assert_eq!(log.last_epoch(), LeaderEpoch::NONE);
    assert!(log.producers().is_empty());
    let mut leaders = batch(20, 7, "x");
    riverlog_wire::batch::set_base_offset(&mut leaders, Offset(490));
    riverlog_wire::batch::set_leader_epoch(&mut leaders, LeaderEpoch(4));
    // The leader's start lies in the middle of a batch, which it gives whole.
    log.append(leaders, AppendAs::Follower).unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    retain(&mut log, 0);
    assert_eq!(log.log_end_offset(), Offset(510));
    assert_eq!(log.log_start_offset(), Offset(500));
    assert_eq!(read_all(&mut log, 500).unwrap(), [(490, 20)]);
    assert_eq!(segments(&disk), [490]);
    drop((volume, log));
    let (_volume, mut log) = open(disk, small());
    assert_eq!(
        (log.log_start_offset(), log.log_end_offset()),
        (Offset(500), Offset(510))
    );
    assert_eq!(read_all(&mut log, 500).unwrap(), [(490, 20)]);
}

#[test]
fn a_reader_keeps_its_segment_though_it_is_removed() {
    let (disk, _volume, mut log) = hourly(small());
    let end = log.log_end_offset();
    let crate::log::Read::Plan(plan) = log.read(Offset(1), end, 1).unwrap() else {
        panic!("not in memory");
    };
    let slices = read_slices(&mut log, 2, 1).unwrap();
    log.delete_records(Offset(9)).unwrap();
    retain(&mut log, 0);
    assert_eq!(segments(&disk), [8]);
    assert_eq!(shape(&slices.into_bytes().unwrap()), [(2, 1)]);
    assert_eq!(shape(&plan.run().unwrap().into_bytes().unwrap()), [(1, 1)]);
}

#[test]
fn a_log_that_is_only_looked_at_goes_back_to_sleep() {
    let (disk, volume, log) = hourly(LogSettings {
        retention_ms: Some(100 * HOUR as u64),
        ..small()
    });
    close(volume, log);
    let (_volume, mut log) = open(
        disk,
        LogSettings {
            retention_ms: Some(100 * HOUR as u64),
            ..small()
        },
    );
    assert_eq!(log.next_retention_ms(), Some(0));
    assert!(log.retain(20 * HOUR, Offset(12)).is_none());
    assert_eq!(log.next_retention_ms(), Some(103 * HOUR + 1));
    assert!(log.loaded.get().is_none());
}
