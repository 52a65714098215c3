//! What a failing disk leaves, and what a later life makes of it.

use std::io::ErrorKind;
use std::sync::Arc;

use super::support::*;
use crate::Volume;
use crate::disk::{CrashDisk, FaultOn, Survivors, Times};

fn disk(disk: &CrashDisk) -> Arc<CrashDisk> {
    Arc::new(disk.clone())
}

#[test]
fn a_log_that_can_not_be_read_at_the_start_is_no_deleted_one() {
    let before = CrashDisk::new(1);
    let (volume, mut log) = open(disk(&before), small());
    put(&volume, &mut log, batch(3, 10, "a"));
    let after = before.kill();
    let segment = format!("{}/", KEY.folder());
    after.fail(FaultOn::Read, Times::Forever, ErrorKind::Other, move |p| {
        p.starts_with(&segment)
    });
    let volume = Volume::open(disk(&after), volume_settings()).unwrap();
    volume.open_log(KEY, small()).unwrap_err();
    volume.recovered().unwrap();
    after.heal();
    let mut log = volume.open_log(KEY, small()).unwrap();
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 3)]);
    // Nor does the next life think so.
    let (_volume, mut log) = open(disk(&after.kill()), small());
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 3)]);
}

#[test]
fn what_a_failed_sync_left_in_memory_is_written_again() {
    let before = CrashDisk::new(1);
    let (volume, mut log) = open(disk(&before), small());
    put(&volume, &mut log, batch(3, 10, "a"));
    before.fail(FaultOn::Sync, Times::Once, ErrorKind::Other, |path| {
        path.ends_with(".log")
    });
    sync(&mut log).unwrap_err();
    let after = before.kill();
    let (volume, mut log) = open(disk(&after), small());
    sync(&mut log).unwrap();
    flush(&volume, &mut log);
    // From now on the write-ahead log doesn't stand in for it.
    for _ in 0..2 {
        volume.checkpoint(false).unwrap();
    }
    let after = after.crash_with(1, Survivors::Nothing);
    let (_volume, mut log) = open(disk(&after), small());
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 3)]);
}

#[test]
fn recovery_queues_nothing_that_the_write_ahead_log_has() {
    let before = CrashDisk::new(1);
    let (volume, mut log) = open(disk(&before), small());
    append(&mut log, batch(3, 10, "a")).unwrap();
    flush(&volume, &mut log);
    let (_, submitted) = volume.progress();
    let (volume, mut log) = open(disk(&before.kill()), small());
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 3)]);
    assert_eq!(volume.progress(), (submitted, submitted));
}

#[test]
fn a_segment_of_an_earlier_life_never_goes_on_from_what_is_written_in_a_later_one() {
    let settings = || crate::log::LogSettings {
        sync: false,
        segment_bytes: 170,
        ..small()
    };
    let mut seen = 0;
    for seed in 0..300 {
        let first = CrashDisk::new(seed);
        let (volume, mut log) = open(disk(&first), settings());
        put(&volume, &mut log, batch(1, 10, "kept"));
        sync(&mut log).unwrap();
        for value in ["lost", "earlier"] {
            put(&volume, &mut log, batch(1, 10, value));
        }
        assert_eq!(log.loaded().unwrap().segments.len(), 2);
        let second = first.crash(seed);
        let (volume, mut log) = open(disk(&second), settings());
        if log.log_end_offset().0 != 1 {
            continue;
        }
        put(&volume, &mut log, batch(1, 10, "later"));
        let third = second.crash(seed + 1);
        let (_volume, log) = open(disk(&third), settings());
        seen += u32::from(log.log_end_offset().0 == 2);
        assert!(log.log_end_offset().0 <= 2, "seed {seed}");
    }
    assert!(seen > 10, "{seen}");
}
