//! Sound batches that are not what was written: of another offset, or of another partition (RC-07, RC-08).

use std::sync::Arc;

use riverlog_wire::batch::batches;
use riverlog_wire::{Offset, PartitionIndex};

use super::damage::{Ranges, copy, path, survey};
use super::support::*;
use crate::disk::{CrashDisk, Survivors};
use crate::log::{Log, LogSettings};
use crate::{Disk, LogKey, OpenMode, Volume};

const BLOCK: u64 = 64 * 1024;

const OTHER: LogKey = LogKey {
    partition: PartitionIndex(4),
    ..KEY
};

fn content(disk: &CrashDisk, path: &str) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes: 1 << 20,
        ..small()
    }
}

/// What a crash leaves: everything that was written, or only what was synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Kill,
    /// And nothing lies beside the segments any more.
    KillAndLoss,
    PowerCut,
}

const CRASHES: [Crash; 3] = [Crash::Kill, Crash::KillAndLoss, Crash::PowerCut];

fn crash(disk: &CrashDisk, how: Crash) -> CrashDisk {
    match how {
        Crash::Kill => disk.kill(),
        Crash::PowerCut => disk.crash_with(1, Survivors::Nothing),
        Crash::KillAndLoss => {
            let disk = disk.kill();
            for entry in disk.list(&KEY.folder()).unwrap() {
                if entry.name.ends_with(".check") {
                    let path = format!("{}/{}", KEY.folder(), entry.name);
                    disk.remove_file(&path).unwrap();
                }
            }
            disk
        }
    }
}

/// Synced, and the mark that says so is durable.
fn settle(volume: &Arc<Volume>, log: &mut Log) {
    sync(log).unwrap();
    flush(volume, log);
    while volume.upkeep().unwrap() {}
    flush(volume, log);
}

#[test]
fn a_flipped_base_offset_is_damage_and_not_a_gap() {
    for how in CRASHES {
        for rolled in [false, true] {
            let disk = CrashDisk::new(1);
            let settings = LogSettings {
                segment_bytes: 700,
                ..settings()
            };
            let (volume, mut log) = open(Arc::new(disk.clone()), settings.clone());
            for n in 0..5 {
                put(&volume, &mut log, batch(2, n, "synced"));
            }
            settle(&volume, &mut log);
            for n in 0..if rolled { 8 } else { 1 } {
                put(&volume, &mut log, batch(2, n, "logged"));
            }
            let all = read_all(&mut log, 0).unwrap();
            drop((volume, log));
            let disk = crash(&disk, how);
            assert_eq!(
                survey(&disk, &settings),
                (all.clone(), Vec::new()),
                "{how:?}"
            );
            let bytes = content(&disk, &path(0));
            let mut at = 0;
            for b in batches(&bytes) {
                let b = b.unwrap();
                let (from, to) = (b.header.base_offset.0, b.header.next_offset().0);
                for bit in 0..64 {
                    let hurt = copy(&disk);
                    hurt.flip(&path(0), at + bit / 8, 1 << (bit % 8)).unwrap();
                    let (good, bad) = survey(&hurt, &settings);
                    let case = format!("{how:?}, rolled {rolled}: bit {bit} of {from}..{to}");
                    // What the write-ahead log has is made whole again.
                    match from < 10 {
                        true => assert_eq!(bad, [(from, to)], "{case}"),
                        false => assert!(bad.is_empty(), "{case}"),
                    }
                    let hit = |b: &(i64, i64)| bad.iter().any(|bad| bad.0 == b.0);
                    let rest: Ranges = all.iter().copied().filter(|b| !hit(b)).collect();
                    assert_eq!(good, rest, "{case}");
                }
                at += b.bytes.len() as u64;
            }
        }
    }
}

/// Two partitions with the same sizes and epochs in one active segment each: synced, and more in the write-ahead log. The
/// other one's offsets begin at `theirs`.
fn twins(disk: &CrashDisk, bytes: u64, theirs: i64) -> Ranges {
    let volume = Volume::open(Arc::new(disk.clone()), volume_settings()).unwrap();
    let mut logs = [(KEY, "x", 0), (OTHER, "y", theirs)].map(|(key, value, from)| {
        let mut log = volume.open_log(key, settings()).unwrap();
        log.delete_records(Offset(from)).unwrap();
        (log, value.repeat(700))
    });
    volume.recovered().unwrap();
    for (log, value) in &mut logs {
        while log.size_bytes() < bytes {
            put(&volume, log, batch(3, 1, value));
            if log.size_bytes() / 40_000 % 2 == 1 {
                settle(&volume, log);
            }
        }
        settle(&volume, log);
    }
    for (log, value) in &mut logs {
        put(&volume, log, batch(3, 1, value));
        assert_eq!(log.synced(), log.log_end_offset());
    }
    let [(log, _), _] = &mut logs;
    read_all(log, 0).unwrap()
}

#[test]
fn a_block_of_another_partition_is_never_served_after_a_crash() {
    for how in CRASHES {
        for (bytes, from) in [
            (20_000, 0),
            (200_000, 0),
            (20_000, 100_000),
            (200_000, 100_000),
        ] {
            let disk = CrashDisk::new(1);
            let all = twins(&disk, bytes, from);
            let disk = crash(&disk, how);
            let (good, bad) = survey(&disk, &settings());
            assert!(bad.is_empty(), "{how:?}, {bytes}: {bad:?}");
            assert_eq!(good, all, "{how:?}");
            let theirs = content(&disk, &format!("{}/{from:020}.log", OTHER.folder()));
            // Behind the synced ones a batch was logged.
            let first = batches(&theirs).next().unwrap().unwrap();
            let logged = match how {
                Crash::PowerCut => 0,
                Crash::Kill | Crash::KillAndLoss => first.bytes.len() as u64,
            };
            let synced = theirs.len() as u64 - logged;
            for at in (0..synced).step_by(BLOCK as usize / 4) {
                for len in [4_096, BLOCK] {
                    let len = len.min(synced - at);
                    let hurt = copy(&disk);
                    let ours = hurt.open(&path(0), OpenMode::Write).unwrap();
                    let block = &theirs[at as usize..(at + len) as usize];
                    ours.write_at(&[block], at).unwrap();
                    let case = format!("{how:?}: {len} bytes of {from} at {at} of {bytes}");
                    check_hurt(&hurt, &all, &case);
                }
            }
        }
    }
}

#[test]
fn a_block_of_higher_offsets_takes_no_later_segment_along() {
    for how in CRASHES {
        let disk = CrashDisk::new(1);
        let settings = LogSettings {
            segment_bytes: 150_000,
            ..settings()
        };
        let volume = Volume::open(Arc::new(disk.clone()), volume_settings()).unwrap();
        let mut logs = [(KEY, "x", 0), (OTHER, "y", 100_000)].map(|(key, value, from)| {
            let mut log = volume.open_log(key, settings.clone()).unwrap();
            log.delete_records(Offset(from)).unwrap();
            (log, value.repeat(700))
        });
        volume.recovered().unwrap();
        for (log, value) in &mut logs {
            while log.size_bytes() < 500_000 {
                put(&volume, log, batch(3, 1, value));
            }
            settle(&volume, log);
        }
        let all = read_all(&mut logs[0].0, 0).unwrap();
        drop((volume, logs));
        let disk = crash(&disk, how);
        let theirs = content(&disk, &format!("{}/{:020}.log", OTHER.folder(), 100_000));
        let mine = content(&disk, &path(0));
        for at in [0, BLOCK / 2, BLOCK, BLOCK + 4_096] {
            for len in [4_096, BLOCK] {
                let hurt = copy(&disk);
                let ours = hurt.open(&path(0), OpenMode::Write).unwrap();
                ours.write_at(&[&theirs[at as usize..(at + len) as usize]], at)
                    .unwrap();
                let case = format!("{how:?}: {len} bytes at {at}");
                let (good, bad) = survey(&hurt, &settings);
                let mut place = 0;
                let mut hit = Vec::new();
                for b in batches(&mine) {
                    let b = b.unwrap();
                    let end = place + b.bytes.len() as u64;
                    // The edges of a block that differs are in doubt with it.
                    if place < (at + len).next_multiple_of(BLOCK) && end > at / BLOCK * BLOCK {
                        hit.push(b.header.base_offset.0);
                    }
                    place = end;
                }
                let gone = |b: &&(i64, i64)| bad.iter().any(|bad| (bad.0..bad.1).contains(&b.0));
                let rest: Ranges = all.iter().filter(|b| !gone(b)).copied().collect();
                assert_eq!(good, rest, "{case}");
                // Whole batches of another partition may lie beside those that the block's edges cut.
                let (first, last) = (hit[0], hit[hit.len() - 1]);
                let near = |b: &(i64, i64)| b.0 >= first - 3 && b.1 <= last + 6;
                assert!(bad.iter().all(near), "{case}: {bad:?} for {first}..={last}");
            }
        }
    }
}

/// What can be read is ours, what can't is told, and the log goes on.
fn check_hurt(hurt: &CrashDisk, all: &Ranges, case: &str) {
    let (good, bad) = survey(hurt, &settings());
    assert!(!bad.is_empty(), "{case}: nothing was found");
    let gone = |b: &&(i64, i64)| bad.iter().any(|bad| (bad.0..bad.1).contains(&b.0));
    let rest: Ranges = all.iter().filter(|b| !gone(b)).copied().collect();
    assert_eq!(good, rest, "{case}");
    let mut disk = copy(hurt);
    for life in 0..3 {
        let (volume, mut log) = open(Arc::new(disk.clone()), settings());
        let end = log.log_end_offset().0;
        assert_eq!(end, all.last().map(|b| b.0 + b.1).unwrap() + life, "{case}");
        assert_eq!(log.synced(), Offset(end), "{case}");
        for (base, _) in all {
            let Ok(bytes) = read_bytes(&mut log, *base, 1) else {
                continue;
            };
            let foreign = bytes.windows(3).any(|w| w == b"yyy");
            assert!(
                !foreign,
                "{case}: life {life} serves another partition's at {base}"
            );
        }
        put(&volume, &mut log, batch(1, 1, "goes on"));
        settle(&volume, &mut log);
        for earlier in 0..=life {
            let at = end - life + earlier;
            assert_eq!(
                read_bytes(&mut log, at, 1)
                    .map(|b| shape(&b))
                    .map_err(|e| e.to_string()),
                Ok(vec![(at, 1)]),
                "{case}: life {life}"
            );
        }
        drop((volume, log));
        disk = match life {
            0 => disk.kill(),
            _ => disk.crash_with(1, Survivors::Nothing),
        };
    }
}
