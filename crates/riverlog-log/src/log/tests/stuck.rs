//! One log that is out of order must not keep the others from writing, nor lose what it had.

use std::io;
use std::sync::Arc;

use riverlog_wire::{Offset, PartitionIndex};

use super::support::*;
use crate::disk::{CrashDisk, FaultOn, Survivors, Times};
use crate::log::{Log, LogSettings};
use crate::{Disk, LogKey, OpenError, OpenMode, Volume, VolumeSettings};

const OTHER: LogKey = LogKey {
    partition: PartitionIndex(4),
    ..KEY
};

fn settings() -> VolumeSettings {
    VolumeSettings {
        wal_bytes: 256 << 10,
        ..volume_settings()
    }
}

fn first() -> String {
    format!("{}/00000000000000000000.log", KEY.folder())
}

fn kept() -> String {
    format!("wal.kept/{}.{}", KEY.topic, KEY.partition.0)
}

fn is_there(disk: &CrashDisk, path: &str) -> bool {
    disk.open(path, OpenMode::Read).is_ok()
}

fn fail(disk: &CrashDisk, on: FaultOn, path: String) {
    disk.fail(on, Times::Forever, io::ErrorKind::Other, move |p| p == path);
}

/// Records that are acknowledged, with a start that lies within.
fn some_records(disk: &CrashDisk) -> Vec<(i64, i64)> {
    let (volume, mut log) = open_with(Arc::new(disk.clone()), small(), settings());
    for n in 0..30 {
        put(&volume, &mut log, batch(2, n, "acknowledged"));
    }
    log.delete_records(Offset(3)).unwrap();
    flush(&volume, &mut log);
    read_all(&mut log, 3).unwrap()
}

/// Writes many times what the write-ahead log holds.
fn laps(volume: &Arc<Volume>, log: &mut Log) {
    for n in 0..100 {
        put(volume, log, batch(1, n, &"x".repeat(10_000)));
        assert_eq!(log.synced(), log.log_end_offset(), "record {n}");
        sync(log).unwrap();
        while volume.upkeep().unwrap() {}
        flush(volume, log);
    }
}

/// A start at which [`KEY`] can't be opened, and others write.
fn start_without(disk: &CrashDisk) -> (Arc<Volume>, Log) {
    fail(disk, FaultOn::Read, first());
    let volume = Volume::open(Arc::new(disk.clone()), settings()).unwrap();
    assert!(volume.open_log(KEY, small()).is_err());
    let mut log = volume.open_log(OTHER, small()).unwrap();
    volume.recovered().unwrap();
    laps(&volume, &mut log);
    disk.heal();
    (volume, log)
}

fn whole(volume: &Arc<Volume>, all: &[(i64, i64)]) -> Log {
    let mut log = volume.open_log(KEY, small()).unwrap();
    assert_eq!(log.log_start_offset(), Offset(3));
    assert_eq!(read_all(&mut log, 3).unwrap(), all);
    log
}

#[test]
fn a_log_that_cannot_be_opened_keeps_no_other_from_writing_and_loses_nothing() {
    for again_in_the_same_life in [false, true] {
        for power_cut in [false, true] {
            let disk = CrashDisk::new(1);
            let all = some_records(&disk);
            let disk = disk.kill();
            let (volume, other) = start_without(&disk);
            assert!(is_there(&disk, &kept()));
            // The sectors are replaced by empty ones.
            disk.zero(&first(), 0, 600).unwrap();
            if again_in_the_same_life {
                let mut log = whole(&volume, &all);
                sync(&mut log).unwrap();
                flush(&volume, &mut log);
            }
            drop((volume, other));
            let disk = match power_cut {
                true => disk.crash_with(1, Survivors::Nothing),
                false => disk.kill(),
            };
            let volume = Volume::open(Arc::new(disk.clone()), settings()).unwrap();
            let mut log = whole(&volume, &all);
            let mut other = volume.open_log(OTHER, small()).unwrap();
            volume.recovered().unwrap();
            assert_eq!(read_all(&mut other, 0).unwrap().len(), 100);
            // It isn't kept for longer than it is needed.
            put(&volume, &mut log, batch(1, 1, "goes on"));
            sync(&mut log).unwrap();
            flush(&volume, &mut log);
            for _ in 0..3 {
                volume.checkpoint(false).unwrap();
            }
            assert!(!is_there(&disk, &kept()));
            drop((volume, log, other));
            let disk = disk.crash_with(1, Survivors::Nothing);
            let (_volume, mut log) = open_with(Arc::new(disk), small(), settings());
            assert_eq!(read_all(&mut log, 3).unwrap()[..all.len()], all);
        }
    }
}

#[test]
fn a_log_that_stays_out_of_order_is_kept_through_clean_stops() {
    let disk = CrashDisk::new(1);
    let all = some_records(&disk);
    let disk = disk.kill();
    for _ in 0..3 {
        let (volume, mut other) = start_without(&disk);
        sync(&mut other).unwrap();
        flush(&volume, &mut other);
        volume.checkpoint(true).unwrap();
        drop((volume, other));
    }
    let volume = Volume::open(Arc::new(disk), settings()).unwrap();
    whole(&volume, &all);
}

#[test]
fn a_log_that_fails_while_it_runs_keeps_no_other_from_writing_and_loses_nothing() {
    for power_cut in [false, true] {
        let disk = CrashDisk::new(1);
        let (volume, mut log) = open_with(Arc::new(disk.clone()), small(), settings());
        let mut other = volume.open_log(OTHER, small()).unwrap();
        for n in 0..6 {
            put(&volume, &mut log, batch(1, n, "acknowledged"));
        }
        assert_eq!(log.synced(), Offset(6));
        fail(&disk, FaultOn::Sync, first());
        sync(&mut log).unwrap_err();
        assert!(log.failed().is_some());
        laps(&volume, &mut other);
        drop((volume, log, other));
        let disk = match power_cut {
            true => disk.crash_with(1, Survivors::Nothing),
            false => disk.kill(),
        };
        let volume = Volume::open(Arc::new(disk), settings()).unwrap();
        let mut log = volume.open_log(KEY, small()).unwrap();
        let all: Vec<(i64, i64)> = (0..6).map(|i| (i, 1)).collect();
        assert_eq!(read_all(&mut log, 0).unwrap(), all);
        let mut other = volume.open_log(OTHER, small()).unwrap();
        assert_eq!(read_all(&mut other, 0).unwrap().len(), 100);
    }
}

#[test]
fn what_was_put_aside_of_a_deleted_log_goes_with_it() {
    let disk = CrashDisk::new(1);
    some_records(&disk);
    let disk = disk.kill();
    let (volume, mut other) = start_without(&disk);
    volume.delete_log(KEY).unwrap();
    assert!(!is_there(&disk, &kept()));
    let mut log = volume.open_log(KEY, small()).unwrap();
    put(&volume, &mut log, batch(1, 1, "anew"));
    sync(&mut log).unwrap();
    laps(&volume, &mut other);
    drop((volume, log, other));
    let disk = disk.crash_with(1, Survivors::Nothing);
    let (_volume, mut log) = open_with(Arc::new(disk), small(), settings());
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 1)]);
}

#[test]
fn a_damaged_file_of_what_was_put_aside_is_an_error_of_its_own_log_only() {
    let disk = CrashDisk::new(1);
    some_records(&disk);
    let disk = disk.kill();
    drop(start_without(&disk));
    let hurt = disk.kill();
    hurt.flip(&kept(), 100, 1).unwrap();
    {
        let volume = Volume::open(Arc::new(hurt.clone()), settings()).unwrap();
        let error = volume.open_log(KEY, small()).unwrap_err();
        assert!(matches!(&error, OpenError::Damaged { path, .. } if *path == kept()));
        let mut other = volume.open_log(OTHER, small()).unwrap();
        volume.recovered().unwrap();
        assert!(is_there(&hurt, &first()));
        put(&volume, &mut other, batch(1, 1, "goes on"));
        assert_eq!(other.synced(), other.log_end_offset());
    }
    // An operator who has no backup goes on without.
    let hurt = hurt.kill();
    hurt.open("accept-loss", OpenMode::Create).unwrap();
    let volume = Volume::open(Arc::new(hurt), settings()).unwrap();
    let told = volume.accepted_loss().unwrap();
    assert!(told.contains(&kept()), "{told}");
    let mut log = volume.open_log(KEY, small()).unwrap();
    assert!(!read_all(&mut log, 3).unwrap().is_empty());
}

#[test]
fn a_segment_that_cannot_be_read_at_one_start_is_whole_again_once_its_log_can_be_opened() {
    for again_in_the_same_life in [false, true] {
        let first = first();
        let disk = CrashDisk::new(1);
        let (volume, mut log) = open(Arc::new(disk.clone()), small());
        for n in 0..30 {
            put(&volume, &mut log, batch(2, n, "acknowledged"));
        }
        let all = read_all(&mut log, 0).unwrap();
        drop((volume, log));

        let disk = disk.kill();
        let path = first.clone();
        disk.fail(
            FaultOn::Read,
            Times::Forever,
            io::ErrorKind::Other,
            move |p| p == path,
        );
        let volume = Volume::open(Arc::new(disk.clone()), volume_settings()).unwrap();
        assert!(volume.open_log(KEY, small()).is_err());
        let mut log = volume.open_log(OTHER, small()).unwrap();
        volume.recovered().unwrap();
        for n in 0..60 {
            put(&volume, &mut log, batch(1, n, &"x".repeat(10_000)));
            if n % 10 == 0 {
                sync(&mut log).unwrap();
                volume.upkeep().unwrap();
            }
        }
        // The sectors are replaced by empty ones.
        disk.heal();
        disk.zero(&first, 0, 2_000).unwrap();
        if again_in_the_same_life {
            let mut log = volume.open_log(KEY, small()).unwrap();
            assert_eq!(read_all(&mut log, 0).unwrap(), all);
            sync(&mut log).unwrap();
            volume.upkeep().unwrap();
        }
        drop((volume, log));
        let (_volume, mut log) = open(Arc::new(disk.kill()), small());
        assert_eq!(read_all(&mut log, 0).unwrap(), all);
    }
}

#[test]
fn a_clean_stop_forgot_what_a_page_cache_log_had_written_before_it_failed() {
    let disk = CrashDisk::new(1);
    let page_cache = LogSettings {
        sync: false,
        ..small()
    };
    let (volume, mut log) = open_with(Arc::new(disk.clone()), page_cache.clone(), settings());
    for n in 0..5 {
        put(&volume, &mut log, batch(1, n, "written"));
    }
    fail(&disk, FaultOn::Write, first());
    append(&mut log, batch(1, 5, "refused")).unwrap();
    write(&mut log).unwrap_err();
    disk.heal();
    // As a node that stops does, whether its logs have failed or not.
    assert!(log.sync_segments().is_none());
    volume.checkpoint(true).unwrap();
    drop((log, volume));
    let (_volume, mut log) = open_with(Arc::new(disk.kill()), page_cache, settings());
    assert_eq!(log.log_end_offset(), Offset(5));
    assert_eq!(read_all(&mut log, 0).unwrap().len(), 5);
}

/// A group commit may make durable that entries are released, and die before it makes the mark durable that says why.
#[test]
fn what_was_put_aside_took_what_came_after_it_along_when_the_power_went_before_the_mark() {
    for changes in 0..8 {
        let disk = CrashDisk::new(1);
        let (volume, mut log) = open_with(Arc::new(disk.clone()), small(), settings());
        let mut other = volume.open_log(OTHER, small()).unwrap();
        for n in 0..4 {
            put(&volume, &mut log, batch(1, n, "acknowledged"));
        }
        append(&mut log, batch(1, 4, "taken back")).unwrap();
        log.truncate(Offset(4)).unwrap();
        fail(&disk, FaultOn::Sync, first());
        put(&volume, &mut log, batch(1, 4, "acknowledged"));
        sync(&mut log).unwrap_err();
        laps(&volume, &mut other);
        assert!(is_there(&disk, &kept()));
        drop((volume, log, other));

        let disk = disk.kill();
        let (volume, mut log) = open_with(Arc::new(disk.clone()), small(), settings());
        let mut other = volume.open_log(OTHER, small()).unwrap();
        for n in 5..8 {
            put(&volume, &mut log, batch(1, n, "acknowledged later"));
        }
        assert_eq!(log.synced(), Offset(8));
        // Nothing else keeps what was written before.
        for _ in 0..2 {
            volume.checkpoint(false).unwrap();
        }
        // More than fits into one group; the mark comes behind it.
        for n in 0..5 {
            append(&mut other, batch(1, n, &"x".repeat(10_000))).unwrap();
            write(&mut other).unwrap();
        }
        sync(&mut log).unwrap();
        disk.fail_after(changes);
        volume.take_flush().unwrap().run();
        drop((volume, log, other));

        let disk = disk.crash_with(1, Survivors::Nothing);
        let (_volume, mut log) = open_with(Arc::new(disk), small(), settings());
        let all: Vec<(i64, i64)> = (0..8).map(|i| (i, 1)).collect();
        assert_eq!(read_all(&mut log, 0).unwrap(), all, "{changes} changes");
    }
}
