//! Disks that are full, or fail (FC-11, RC-06, RC-09, P7).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use riverlog_wire::Offset;

use super::support::*;
use crate::disk::{CrashDisk, FaultOn, Survivors, Times};
use crate::log::{AppendError, Log, LogSettings};
use crate::{Disk, OpenMode, VolumeSettings};

fn is_segment(path: &str) -> bool {
    path.ends_with(".log")
}

#[test]
fn a_full_disk_refuses_what_was_queued_and_takes_more_when_there_is_room() {
    for sync in [true, false] {
        let disk = CrashDisk::new(1);
        let settings = LogSettings { sync, ..small() };
        let (volume, mut log) = open(Arc::new(disk.clone()), settings.clone());
        put(&volume, &mut log, from_producer(1, 0, 0, 2));
        let before = log.producers();
        append(&mut log, from_producer(1, 0, 2, 2)).unwrap();
        log.append(from_producer(2, 0, 0, 1), as_leader(3)).unwrap();
        assert_eq!(log.log_end_offset(), Offset(5));
        disk.fail(
            FaultOn::Write,
            Times::Forever,
            io::ErrorKind::StorageFull,
            is_segment,
        );
        let error = write(&mut log).unwrap_err();
        assert!(error.is_full());
        // Nothing is left of them.
        assert_eq!(log.log_end_offset(), Offset(2));
        assert_eq!(log.producers(), before);
        assert_eq!(log.last_epoch(), as_leader_epoch(0));
        assert!(log.failed().is_none());
        // Reads go on.
        assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2)]);
        disk.heal();
        let again = put(&volume, &mut log, from_producer(1, 0, 2, 2));
        assert!(!again.duplicate);
        assert_eq!(again.first, Offset(2));
        assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2), (2, 2)]);
        // What the write-ahead log still holds of the failed ones doesn't come back.
        drop((volume, log));
        let (_volume, mut log) = open(Arc::new(disk.kill()), settings);
        assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2), (2, 2)]);
        assert_eq!(log.log_end_offset(), Offset(4));
    }
}

#[test]
fn a_batch_that_was_taken_back_made_a_restarted_log_doubt_what_came_before_it() {
    for power_cut in [false, true] {
        let disk = CrashDisk::new(1);
        let (volume, mut log) = open(Arc::new(disk.clone()), small());
        put(&volume, &mut log, batch(2, 1, "kept"));
        // The write-ahead log doesn't stand in for it any more; no checkpoint has said so.
        sync(&mut log).unwrap();
        disk.fail(
            FaultOn::Write,
            Times::Once,
            io::ErrorKind::StorageFull,
            is_segment,
        );
        append(&mut log, batch(1, 2, "no room")).unwrap();
        flush(&volume, &mut log);
        write(&mut log).unwrap_err();
        flush(&volume, &mut log);
        assert_eq!(log.synced(), Offset(2));
        drop((volume, log));
        let mut disk = disk;
        for life in 0..3 {
            disk = match power_cut {
                true => disk.crash_with(1, Survivors::Nothing),
                false => disk.kill(),
            };
            let (_volume, mut log) = open(Arc::new(disk.clone()), small());
            assert_eq!((log.synced(), log.log_end_offset()), (Offset(2), Offset(2)));
            assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2)], "life {life}");
        }
    }
}

#[test]
fn a_full_write_ahead_log_and_the_upkeep_that_makes_room_waited_for_each_other() {
    let disk = CrashDisk::new(1);
    let settings = VolumeSettings {
        wal_bytes: 32 << 10,
        ..volume_settings()
    };
    let (volume, mut log) = open_with(Arc::new(disk.clone()), small(), settings);
    let mut end = Offset(0);
    for i in 0..1_000 {
        append(&mut log, batch(1, i, &"x".repeat(100))).unwrap();
        write(&mut log).unwrap();
        match volume.take_flush() {
            Some(flush) => assert!(flush.run().error.is_none()),
            None => break,
        }
        end = log.log_end_offset();
    }
    assert!(volume.take_flush().is_none());
    // The new start has to be durable before files go, and finds no room.
    log.delete_records(end).unwrap();
    let upkeep = log.retain(0, end).unwrap();
    log.upkeep_done(upkeep.run()).unwrap();
    let first = format!("{}/{:020}.log", KEY.folder(), 0);
    let is_there = || disk.open(&first, OpenMode::Read).is_ok();
    assert!(is_there());
    sync(&mut log).unwrap();
    flush(&volume, &mut log);
    assert!(log.synced() > end);
    sync(&mut log).unwrap();
    assert!(!is_there());
}

fn as_leader_epoch(epoch: i32) -> riverlog_wire::LeaderEpoch {
    riverlog_wire::LeaderEpoch(epoch)
}

#[test]
fn a_full_disk_that_fails_a_roll_leaves_a_log_that_goes_on() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..7 {
        put(&volume, &mut log, batch(1, i, &"x".repeat(100)));
    }
    disk.fail(
        FaultOn::Folder,
        Times::Forever,
        io::ErrorKind::StorageFull,
        is_segment,
    );
    let mut refused = 0;
    for i in 0..10 {
        append(&mut log, batch(1, i, &"x".repeat(100))).unwrap();
        refused += u32::from(write(&mut log).is_err());
    }
    assert!(refused > 0);
    let end = log.log_end_offset();
    disk.heal();
    for i in 0..10 {
        put(&volume, &mut log, batch(1, i, &"x".repeat(100)));
    }
    assert_eq!(log.log_end_offset(), end + 10);
    let all: Vec<(i64, i64)> = (0..end.0 + 10).map(|i| (i, 1)).collect();
    assert_eq!(read_all(&mut log, 0).unwrap(), all);
    close(volume, log);
    let (_volume, mut log) = open(Arc::new(disk), small());
    assert_eq!(read_all(&mut log, 0).unwrap(), all);
}

/// A log whose entries fill the write-ahead log, all of it acknowledged; half of it synced.
fn full_write_ahead_log(disk: &CrashDisk) -> (Arc<crate::Volume>, Log, i64) {
    let settings = VolumeSettings {
        wal_bytes: 32 << 10,
        ..volume_settings()
    };
    let (volume, mut log) = open_with(Arc::new(disk.clone()), small(), settings);
    for i in 0..5 {
        put(&volume, &mut log, batch(1, i, &"x".repeat(100)));
    }
    sync(&mut log).unwrap();
    for i in 0..1_000 {
        append(&mut log, batch(1, i, &"x".repeat(100))).unwrap();
        write(&mut log).unwrap();
        match volume.take_flush() {
            Some(flush) => {
                for synced in flush.run().synced {
                    log.on_synced(synced.to);
                }
            }
            None => break,
        }
    }
    let acknowledged = log.synced().0;
    assert!(volume.take_flush().is_none() && acknowledged > 5);
    (volume, log, acknowledged)
}

#[test]
fn a_log_is_cut_while_the_write_ahead_log_is_full() {
    for power_cut in [false, true] {
        for to in [3, 5, 7] {
            let disk = CrashDisk::new(1);
            let (volume, mut log, acknowledged) = full_write_ahead_log(&disk);
            assert!(acknowledged > to);
            log.truncate(Offset(to)).unwrap();
            assert!(log.failed().is_none());
            assert_eq!(
                (log.log_end_offset(), log.synced()),
                (Offset(to), Offset(to))
            );
            put(&volume, &mut log, batch(1, 1, "after the cut"));
            assert_eq!(log.synced(), Offset(to + 1));
            drop((volume, log));
            let after = match power_cut {
                true => disk.crash_with(1, Survivors::Nothing),
                false => disk.kill(),
            };
            let (_volume, mut log) = open(Arc::new(after), small());
            let all: Vec<(i64, i64)> = (0..to + 1).map(|i| (i, 1)).collect();
            assert_eq!(read_all(&mut log, 0).unwrap(), all, "{power_cut} {to}");
        }
    }
}

/// Wherever in a cut the disk gets full, a later try does it, and nothing that came before or comes after is lost.
#[test]
fn a_cut_that_finds_the_disk_full_is_done_once_there_is_room() {
    let mut refused = 0;
    for sync in [true, false] {
        for writes in 0..12 {
            for power_cut in [false, true] {
                let disk = CrashDisk::new(1);
                let settings = LogSettings { sync, ..small() };
                let (volume, mut log) = open(Arc::new(disk.clone()), settings.clone());
                for i in 0..9 {
                    put(&volume, &mut log, batch(1, i, "acknowledged"));
                }
                super::support::sync(&mut log).unwrap();
                let left = AtomicI32::new(writes);
                let is_head = move |path: &str| {
                    let head = path.contains("wal")
                        || path.contains("checkpoint")
                        || path.ends_with(".check");
                    head && left.fetch_sub(1, Ordering::Relaxed) <= 0
                };
                disk.fail(
                    FaultOn::Write,
                    Times::Forever,
                    io::ErrorKind::StorageFull,
                    is_head,
                );
                if let Err(error) = log.truncate(Offset(4)) {
                    assert!(error.is_full(), "{error}");
                    assert!(log.failed().is_none(), "{writes}: {error}");
                    // Nothing comes before the cut is over.
                    if log.log_end_offset() == Offset(4) {
                        let next = append(&mut log, batch(1, 4, "too early"));
                        assert!(matches!(next, Err(AppendError::Disk(_))), "{next:?}");
                    }
                    refused += 1;
                    disk.heal();
                    log.truncate(Offset(4)).unwrap();
                }
                disk.heal();
                assert_eq!(log.log_end_offset(), Offset(4));
                put(&volume, &mut log, batch(1, 1, "after the cut"));
                if !sync {
                    super::support::sync(&mut log).unwrap();
                }
                drop((volume, log));
                let after = match power_cut {
                    true => disk.crash_with(1, Survivors::Nothing),
                    false => disk.kill(),
                };
                let (_volume, mut log) = open(Arc::new(after), settings);
                let all: Vec<(i64, i64)> = (0..5).map(|i| (i, 1)).collect();
                let read = read_all(&mut log, 0).unwrap();
                assert_eq!(read, all, "{sync} {writes} {power_cut}");
            }
        }
    }
    assert!(refused > 4, "{refused}");
}

#[test]
fn a_log_is_cut_while_another_one_fills_the_write_ahead_log() {
    for power_cut in [false, true] {
        let disk = CrashDisk::new(1);
        let settings = VolumeSettings {
            wal_bytes: 32 << 10,
            ..volume_settings()
        };
        let (volume, mut log) = open_with(Arc::new(disk.clone()), small(), settings);
        let other = crate::LogKey {
            partition: riverlog_wire::PartitionIndex(4),
            ..KEY
        };
        let mut filler = volume.open_log(other, small()).unwrap();
        for i in 0..10 {
            put(&volume, &mut log, batch(1, i, "acknowledged"));
            if i == 5 {
                sync(&mut log).unwrap();
            }
        }
        while let Some(flush) = {
            append(&mut filler, batch(1, 1, &"x".repeat(100))).unwrap();
            write(&mut filler).unwrap();
            volume.take_flush()
        } {
            for synced in flush.run().synced {
                filler.on_synced(synced.to);
            }
        }
        for to in [8, 3] {
            log.truncate(Offset(to)).unwrap();
            assert_eq!(
                (log.log_end_offset(), log.synced()),
                (Offset(to), Offset(to))
            );
        }
        let acknowledged = filler.synced().0;
        drop((volume, log, filler));
        let after = match power_cut {
            true => disk.crash_with(1, Survivors::Nothing),
            false => disk.kill(),
        };
        let volume = crate::Volume::open(Arc::new(after), volume_settings()).unwrap();
        let mut log = volume.open_log(KEY, small()).unwrap();
        assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 1), (1, 1), (2, 1)]);
        let filler = volume.open_log(other, small()).unwrap();
        assert!(filler.log_end_offset().0 >= acknowledged);
    }
}

#[test]
fn a_cut_that_finds_no_room_anywhere_leaves_the_log_as_it_was() {
    let disk = CrashDisk::new(1);
    let (volume, mut log, acknowledged) = full_write_ahead_log(&disk);
    let full = io::ErrorKind::StorageFull;
    disk.fail(FaultOn::Write, Times::Forever, full, |p| {
        p.starts_with("checkpoint")
    });
    assert!(log.truncate(Offset(3)).unwrap_err().is_full());
    assert!(log.failed().is_none());
    assert!(log.log_end_offset().0 >= acknowledged);
    disk.heal();
    sync(&mut log).unwrap();
    flush(&volume, &mut log);
    let end = put(&volume, &mut log, batch(1, 1, "goes on")).next;
    drop((volume, log));
    let (volume, mut log) = open(Arc::new(disk.kill()), small());
    let all: Vec<(i64, i64)> = (0..end.0).map(|i| (i, 1)).collect();
    assert_eq!(read_all(&mut log, 0).unwrap(), all);
    log.truncate(Offset(3)).unwrap();
    drop((volume, log));
}

#[test]
fn a_disk_that_filled_up_can_be_opened_read_and_freed() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..40 {
        put(&volume, &mut log, batch(1, i, &"x".repeat(100)));
        sync(&mut log).unwrap();
    }
    drop((volume, log));
    let disk = disk.kill();
    disk.fail(
        FaultOn::Write,
        Times::Forever,
        io::ErrorKind::StorageFull,
        |p| p.contains("rlog-tst") || is_segment(p),
    );
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    let all: Vec<(i64, i64)> = (0..40).map(|i| (i, 1)).collect();
    assert_eq!(read_all(&mut log, 0).unwrap(), all);
    append(&mut log, batch(1, 1, "no room")).unwrap();
    assert!(write(&mut log).unwrap_err().is_full());
    log.delete_records(Offset(30)).unwrap();
    let upkeep = log.retain(0, Offset(40)).unwrap();
    log.upkeep_done(upkeep.run()).unwrap();
    assert!(log.size_bytes() < 2_500);
    disk.heal();
    put(&volume, &mut log, batch(1, 1, "room"));
    assert_eq!(log.log_end_offset(), Offset(41));
}

#[test]
fn a_failed_write_fails_the_log_but_not_its_readers() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    put(&volume, &mut log, batch(2, 1, "a"));
    append(&mut log, batch(2, 1, "b")).unwrap();
    disk.fail(
        FaultOn::Write,
        Times::Once,
        io::ErrorKind::Other,
        is_segment,
    );
    assert!(!write(&mut log).unwrap_err().is_full());
    assert!(log.failed().is_some());
    assert!(matches!(
        append(&mut log, batch(1, 1, "c")),
        Err(AppendError::Disk(_))
    ));
    assert!(log.take_write().is_none());
    assert!(log.sync_segments().is_none());
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2)]);
    // The write-ahead log had the second batch or not; both are right.
    drop((volume, log));
    let (_volume, mut log) = open(Arc::new(disk.kill()), small());
    assert!(log.failed().is_none());
    assert_eq!(read_all(&mut log, 0).unwrap()[0], (0, 2));
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let disk = CrashDisk::new(1);
    let settings = LogSettings {
        sync: false,
        ..small()
    };
    let (_volume, mut log) = open(Arc::new(disk.clone()), settings);
    append(&mut log, batch(2, 1, "a")).unwrap();
    write(&mut log).unwrap();
    disk.fail(FaultOn::Sync, Times::Once, io::ErrorKind::Other, is_segment);
    assert!(sync(&mut log).is_err());
    assert!(log.failed().is_some());
    assert_eq!(log.synced(), Offset(0));
    assert!(log.sync_segments().is_none());
    assert_eq!(log.synced(), Offset(0));
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2)]);
}

#[test]
fn files_beside_the_segments_that_cannot_be_written_stop_nothing() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    disk.fail(
        FaultOn::Write,
        Times::Forever,
        io::ErrorKind::StorageFull,
        |p| p.ends_with("index") || p.ends_with(".check"),
    );
    for i in 0..40 {
        put(&volume, &mut log, batch(1, i, &"x".repeat(50)));
    }
    let all: Vec<(i64, i64)> = (0..40).map(|i| (i, 1)).collect();
    assert_eq!(read_all(&mut log, 0).unwrap(), all);
    drop((volume, log));
    let (_volume, mut log) = open(Arc::new(disk.kill()), small());
    assert_eq!(read_all(&mut log, 0).unwrap(), all);
}
