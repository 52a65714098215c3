//! Bytes that changed on the device (RC-07, RC-08, P6).

use std::io;
use std::sync::Arc;

use riverlog_wire::batch::{batches, set_leader_epoch};
use riverlog_wire::{LeaderEpoch, Offset, PartitionIndex};

use super::model::Random;
use super::support::*;
use crate::disk::{CrashDisk, FaultOn, Survivors, Times};
use crate::log::{LogSettings, ReadError};
use crate::{Disk, LogKey, OpenMode};

/// The same disk once more.
pub(super) fn copy(disk: &CrashDisk) -> CrashDisk {
    disk.crash_with(0, Survivors::Everything)
}

pub(super) fn path(base: i64) -> String {
    format!("{}/{base:020}.log", KEY.folder())
}

/// A log of a few blocks in one closed segment and the start of a second one, on a disk that is closed.
fn cold(batch_bytes: usize) -> (CrashDisk, LogSettings, Vec<(i64, i64)>) {
    let disk = CrashDisk::new(1);
    let settings = LogSettings {
        segment_bytes: 300_000,
        ..small()
    };
    let (volume, mut log) = open(Arc::new(disk.clone()), settings.clone());
    while log.size_bytes() < 350_000 {
        put(&volume, &mut log, batch(3, 1, &"x".repeat(batch_bytes / 3)));
    }
    let all = read_all(&mut log, 0).unwrap();
    close(volume, log);
    (disk, settings, all)
}

pub(super) type Ranges = Vec<(i64, i64)>;

/// What can be read, and the ranges that can't.
pub(super) fn survey(disk: &CrashDisk, settings: &LogSettings) -> (Ranges, Ranges) {
    let (_volume, mut log) = open(Arc::new(copy(disk)), settings.clone());
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let (mut at, end) = (0, log.log_end_offset().0);
    while at < end {
        match read_slices(&mut log, at, 20_000) {
            Ok(slices) => {
                assert!(slices.next.0 > at);
                at = slices.next.0;
                good.extend(shape(&slices.into_bytes().unwrap()));
            }
            Err(ReadError::Damaged { from, to, .. }) => {
                assert!(from.0 <= at && to.0 > at, "{from}..{to} at {at}");
                bad.push((from.0, to.0));
                at = to.0;
            }
            Err(other) => panic!("{other}"),
        }
    }
    (good, bad)
}

#[test]
fn a_flipped_bit_takes_the_batch_that_it_hit_and_no_other() {
    for batch_bytes in [900, 9_000, 90_000] {
        let (disk, settings, all) = cold(batch_bytes);
        assert_eq!(survey(&disk, &settings), (all.clone(), Vec::new()));
        let bytes = {
            let file = disk.open(&path(0), OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            bytes
        };
        let mut random = Random(batch_bytes as u64);
        for _ in 0..60 {
            let mut at = 0;
            let hit = random.below(bytes.len() as u64) as usize;
            // Half of the time within a header.
            let mut expected = None;
            let into_header = random.below(2) == 0;
            let mut flip = hit;
            for b in batches(&bytes) {
                let b = b.unwrap();
                if hit < at + b.bytes.len() {
                    if into_header {
                        flip = at + random.below(61) as usize;
                    }
                    expected = Some((b.header.base_offset.0, b.header.next_offset().0));
                    break;
                }
                at += b.bytes.len();
            }
            let (from, to) = expected.unwrap();
            let damaged = copy(&disk);
            damaged
                .flip(&path(0), flip as u64, 1 << random.below(8))
                .unwrap();
            let (good, bad) = survey(&damaged, &settings);
            assert_eq!(bad, [(from, to)], "byte {} of {from}..{to}", flip - at);
            let rest: Vec<_> = all.iter().copied().filter(|b| b.0 != from).collect();
            assert_eq!(good, rest);
        }
    }
}

#[test]
fn sectors_of_zeros_take_what_they_hit() {
    let (disk, settings, all) = cold(2_000);
    let mut random = Random(3);
    for _ in 0..40 {
        let damaged = copy(&disk);
        // At the ends of a segment more is in doubt.
        let at = 70_000 + random.below(150_000);
        let len = 1 + random.below(9_000);
        damaged.zero(&path(0), at, len).unwrap();
        let (good, bad) = survey(&damaged, &settings);
        assert_eq!(bad.len(), 1, "{bad:?}");
        let (from, to) = bad[0];
        // A batch is some 2,100 bytes of three offsets.
        assert!(
            to - from <= ((len / 2_000 + 2) * 3) as i64,
            "{from}..{to} for {len}"
        );
        let rest: Vec<_> = all
            .iter()
            .copied()
            .filter(|b| b.0 < from || b.0 >= to)
            .collect();
        assert_eq!(good, rest);
    }
}

#[test]
fn a_sound_block_of_another_partition_is_found() {
    let (disk, settings, all) = cold(2_000);
    // Another partition of the same topic, with the same offsets, sizes and epochs.
    let other = CrashDisk::new(2);
    let volume = crate::Volume::open(Arc::new(other.clone()), volume_settings()).unwrap();
    let key = LogKey {
        partition: PartitionIndex(4),
        ..KEY
    };
    let mut log = volume.open_log(key, settings.clone()).unwrap();
    while log.size_bytes() < 350_000 {
        put(&volume, &mut log, batch(3, 1, &"y".repeat(2_000 / 3)));
    }
    drop((volume, log));
    let theirs = format!("{}/{:020}.log", key.folder(), 0);
    let theirs = other.open(&theirs, OpenMode::Read).unwrap();
    let mut block = vec![0; 64 * 1024];
    theirs.read_at(&mut block, 2 * 64 * 1024).unwrap();
    let ours = disk.open(&path(0), OpenMode::Write).unwrap();
    ours.write_at(&[&block], 2 * 64 * 1024).unwrap();

    let (good, bad) = survey(&disk, &settings);
    assert_eq!(bad.len(), 1, "{bad:?}");
    let (from, to) = bad[0];
    assert!(from > 0 && to < all.last().unwrap().0);
    let rest: Vec<_> = all
        .iter()
        .copied()
        .filter(|b| b.0 < from || b.0 >= to)
        .collect();
    assert_eq!(good, rest);
}

#[test]
fn a_block_of_higher_offsets_takes_no_more_than_its_place() {
    for epoch in [0, 5] {
        let (disk, settings, all) = cold(2_000);
        let other = CrashDisk::new(2);
        let volume = crate::Volume::open(Arc::new(other.clone()), volume_settings()).unwrap();
        let key = LogKey {
            partition: PartitionIndex(4),
            ..KEY
        };
        let mut log = volume.open_log(key, settings.clone()).unwrap();
        // Beyond our end, and within what is left of our segment.
        for from in [200, 100_000] {
            log.delete_records(Offset(from)).unwrap();
            let size = log.size_bytes();
            while log.size_bytes() < size + 150_000 {
                log.append(batch(3, 1, &"y".repeat(2_000 / 3)), as_leader(epoch))
                    .unwrap();
                write(&mut log).unwrap();
            }
            let theirs = format!("{}/{from:020}.log", key.folder());
            let theirs = other.open(&theirs, OpenMode::Read).unwrap();
            let mut block = vec![0; 64 * 1024];
            theirs.read_at(&mut block, 64 * 1024).unwrap();
            let hurt = copy(&disk);
            let ours = hurt.open(&path(0), OpenMode::Write).unwrap();
            let mut mine = vec![0; ours.len().unwrap() as usize];
            ours.read_at(&mut mine, 0).unwrap();
            ours.write_at(&[&block], 64 * 1024).unwrap();
            let (good, bad) = survey(&hurt, &settings);
            assert_eq!(bad.len(), 1, "{bad:?}");
            let (mut at, mut hit) = (0, Vec::new());
            for b in batches(&mine) {
                let b = b.unwrap();
                let end = at + b.bytes.len();
                if at < 128 * 1024 && end > 64 * 1024 {
                    hit.push((b.header.base_offset.0, b.header.next_offset().0));
                }
                at = end;
            }
            let exactly = (hit[0].0, hit[hit.len() - 1].1);
            assert_eq!(bad, [exactly], "epoch {epoch}, from {from}");
            let gone = |b: &(i64, i64)| (bad[0].0..bad[0].1).contains(&b.0);
            let rest: Ranges = all.iter().copied().filter(|b| !gone(b)).collect();
            assert_eq!(good, rest);
        }
    }
}

#[test]
fn a_batch_of_an_older_epoch_is_found_though_its_checksum_is_right() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), LogSettings::default());
    for _ in 0..4 {
        log.append(batch(2, 1, "v"), as_leader(5)).unwrap();
    }
    write(&mut log).unwrap();
    close(volume, log);
    // The same batch with another epoch: the CRC doesn't cover it. Without the check file only the epoch tells.
    let file = disk.open(&path(0), OpenMode::Write).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let size = bytes.len() / 4;
    set_leader_epoch(&mut bytes[2 * size..], LeaderEpoch(3));
    file.write_at(&[&bytes], 0).unwrap();
    let (good, bad) = survey(&disk, &LogSettings::default());
    assert_eq!(good, [(0, 2), (2, 2), (6, 2)]);
    assert_eq!(bad, [(4, 6)]);
}

#[test]
fn a_sector_that_cannot_be_read_is_a_range_and_not_the_end() {
    let (disk, settings, all) = cold(2_000);
    let (_volume, mut log) = open(Arc::new(disk.clone()), settings);
    let first = path(0);
    disk.fail(
        FaultOn::Read,
        Times::Forever,
        io::ErrorKind::Other,
        move |p| p == first,
    );
    assert!(read_slices(&mut log, 0, 1).is_err());
    // Other segments, and the node, go on.
    let (last, _) = *all.last().unwrap();
    read_slices(&mut log, last, 1).unwrap();
    disk.heal();
    assert_eq!(read_all(&mut log, 0).unwrap(), all);
}

#[test]
fn a_segment_that_lost_its_end_is_not_the_end_of_the_log() {
    let (disk, settings, all) = cold(2_000);
    let file = disk.open(&path(0), OpenMode::Write).unwrap();
    file.set_len(150_000).unwrap();
    let (good, bad) = survey(&disk, &settings);
    assert_eq!(bad.len(), 1);
    let rest: Vec<_> = all
        .iter()
        .copied()
        .filter(|b| b.0 < bad[0].0 || b.0 >= bad[0].1)
        .collect();
    assert_eq!(good, rest);
    assert!(good.len() > all.len() / 3);
}

#[test]
fn a_lost_segment_is_damage_and_no_offset_is_given_twice() {
    let (disk, settings, all) = cold(2_000);
    let end = all.last().map(|b| b.0 + b.1).unwrap();
    let second = disk
        .list(&KEY.folder())
        .unwrap()
        .iter()
        .filter(|e| e.name.ends_with(".log"))
        .nth(1)
        .unwrap()
        .name
        .clone();
    let begins: i64 = second[..20].parse().unwrap();
    for lost in [0, begins] {
        let damaged = copy(&disk);
        damaged.remove_file(&path(lost)).unwrap();
        let (good, bad) = survey(&damaged, &settings);
        let gone = if lost == 0 {
            (0, begins)
        } else {
            (begins, end)
        };
        assert_eq!(bad, [gone]);
        assert_eq!(
            good.len(),
            all.iter().filter(|b| b.0 < gone.0 || b.0 >= gone.1).count()
        );
        let (volume, mut log) = open(Arc::new(damaged), settings.clone());
        assert_eq!(log.log_end_offset(), Offset(end));
        put(&volume, &mut log, batch(1, 1, "new"));
        assert_eq!(
            read_bytes(&mut log, end, 1).map(|b| shape(&b)).unwrap(),
            [(end, 1)]
        );
    }
}

#[test]
fn damage_that_comes_while_the_log_is_in_use_is_found_at_the_first_read() {
    let (disk, settings, all) = cold(2_000);
    let (_volume, mut log) = open(Arc::new(disk.clone()), settings);
    // Verified now, and from then on sent as it is.
    read_slices(&mut log, 0, 1_000).unwrap();
    disk.flip(&path(0), 200_000, 4).unwrap();
    let mut found = false;
    for (base, _) in &all {
        found |= matches!(
            read_slices(&mut log, *base, 1),
            Err(ReadError::Damaged { .. })
        );
    }
    assert!(found);
}

#[test]
fn a_reader_whom_the_index_led_into_the_middle_of_damage_was_given_it() {
    let disk = CrashDisk::new(1);
    let settings = LogSettings {
        segment_bytes: 300_000,
        ..small()
    };
    let (volume, mut log) = open(Arc::new(disk.clone()), settings.clone());
    for n in 0..20 {
        put(&volume, &mut log, batch(2, n, "some bytes to read"));
    }
    let size = log.size_bytes();
    close(volume, log);
    // Two batches of one block: all between them is in doubt.
    disk.flip(&path(0), 5, 1).unwrap();
    disk.flip(&path(0), size - 10, 1).unwrap();
    let (_volume, mut log) = open(Arc::new(copy(&disk)), settings);
    for from in 0..40 {
        let read = read_bytes(&mut log, from, 1_000);
        assert!(matches!(read, Err(ReadError::Damaged { .. })), "{from}");
    }
}
