//! Appending, reading, rolling, and coming back.

use std::sync::Arc;

use riverlog_wire::{LeaderEpoch, Offset};

use super::support::*;
use crate::VolumeSettings;
use crate::disk::MemoryDisk;
use crate::log::{AppendAs, AppendError, LogSettings, Read, ReadError, Slice};

#[test]
fn what_is_appended_is_read_back_with_its_offsets() {
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), small());
    let a = put(&volume, &mut log, batch(3, 10, "a"));
    let b = put(&volume, &mut log, batch(1, 11, "b"));
    assert_eq!((a.first, a.next), (Offset(0), Offset(3)));
    assert_eq!((b.first, b.next), (Offset(3), Offset(4)));
    assert_eq!(log.written(), Offset(4));
    assert_eq!(log.synced(), Offset(4));
    let bytes = read_bytes(&mut log, 0, 10_000).unwrap();
    assert_eq!(shape(&bytes), [(0, 3), (3, 1)]);
    let bytes = read_bytes(&mut log, 2, 1).unwrap();
    assert_eq!(shape(&bytes), [(0, 3)]);
    assert!(read_bytes(&mut log, 4, 100).unwrap().is_empty());
    assert!(matches!(
        read_bytes(&mut log, 5, 100),
        Err(ReadError::OffsetOutOfRange { .. })
    ));
}

#[test]
fn nothing_that_is_only_queued_is_read() {
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), small());
    put(&volume, &mut log, batch(2, 10, "a"));
    append(&mut log, batch(2, 10, "b")).unwrap();
    assert_eq!(log.log_end_offset(), Offset(4));
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2)]);
    flush(&volume, &mut log);
    assert_eq!(
        log.synced(),
        Offset(2),
        "in the write-ahead log, but not written"
    );
    write(&mut log).unwrap();
    assert_eq!(log.synced(), Offset(4));
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 2), (2, 2)]);
}

#[test]
fn segments_roll_and_are_read_across() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), small());
    for i in 0..50 {
        put(&volume, &mut log, batch(2, i, "0123456789"));
    }
    let expected: Vec<(i64, i64)> = (0..50).map(|i| (i * 2, 2)).collect();
    assert_eq!(read_all(&mut log, 0).unwrap(), expected);
    let segments = crate::Disk::list(&*disk, &KEY.folder())
        .unwrap()
        .into_iter()
        .filter(|e| e.name.ends_with(".log"))
        .count();
    assert!(segments > 3, "{segments}");
    for from in 0..100 {
        let first = read_bytes(&mut log, from, 1).unwrap();
        assert_eq!(shape(&first), [(from / 2 * 2, 2)]);
    }
    close(volume, log);
    let (_volume, mut log) = open(disk, small());
    assert_eq!(log.log_end_offset(), Offset(100));
    for from in (0..100).rev() {
        let first = read_bytes(&mut log, from, 1).unwrap();
        assert_eq!(shape(&first), [(from / 2 * 2, 2)]);
    }
    assert_eq!(read_all(&mut log, 0).unwrap(), expected);
}

#[test]
fn a_killed_log_comes_back_with_everything_that_was_written() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), small());
    for i in 0..30 {
        put(&volume, &mut log, from_producer(7, 0, i * 2, 2));
        if i == 10 {
            sync(&mut log).unwrap();
        }
    }
    let producers = log.producers();
    drop((volume, log));
    let (volume, mut log) = open(disk, small());
    assert_eq!(log.log_end_offset(), Offset(60));
    assert_eq!(log.synced(), Offset(60));
    let expected: Vec<(i64, i64)> = (0..30).map(|i| (i * 2, 2)).collect();
    assert_eq!(read_all(&mut log, 0).unwrap(), expected);
    let after = log.producers();
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].last_sequence, producers[0].last_sequence);
    // The whole window is known.
    for i in 25..30 {
        let again = append(&mut log, from_producer(7, 0, i * 2, 2)).unwrap();
        assert!(again.duplicate);
        assert_eq!(again.first, Offset(i64::from(i) * 2));
    }
    put(&volume, &mut log, from_producer(7, 0, 60, 2));
}

#[test]
fn the_tail_is_read_from_memory_and_the_rest_from_files() {
    let settings = VolumeSettings {
        tail_cache_bytes: 400,
        ..volume_settings()
    };
    let (volume, mut log) = open_with(
        Arc::new(MemoryDisk::new()),
        LogSettings::default(),
        settings,
    );
    for i in 0..20 {
        put(&volume, &mut log, batch(1, i, "0123456789"));
    }
    let end = log.log_end_offset();
    let Read::Ready(hot) = log.read(Offset(18), end, 10_000).unwrap() else {
        panic!("the tail should be in memory");
    };
    assert!(matches!(
        hot.parts[..],
        [Slice::Memory(_), Slice::Memory(_)]
    ));
    let hot = hot.into_bytes().unwrap();
    let Read::Plan(cold) = log.read(Offset(0), end, 100_000).unwrap() else {
        panic!("the head should not be in memory");
    };
    let cold = cold.run().unwrap();
    assert!(matches!(cold.parts[..], [Slice::File { .. }]));
    let cold = cold.into_bytes().unwrap();
    assert_eq!(shape(&cold).len(), 20);
    assert!(cold.ends_with(&hot));
}

#[test]
fn a_follower_keeps_offsets_and_epochs_and_takes_no_gap() {
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), small());
    let (leader_volume, mut leader) = open(Arc::new(MemoryDisk::new()), small());
    for i in 0..6 {
        let how = AppendAs::Leader {
            epoch: LeaderEpoch(i / 2),
            now_ms: 5,
        };
        leader.append(batch(2, 9, "x"), how).unwrap();
    }
    write(&mut leader).unwrap();
    flush(&leader_volume, &mut leader);
    let bytes = read_bytes(&mut leader, 0, 100_000).unwrap();
    log.append(bytes.to_vec(), AppendAs::Follower).unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    assert_eq!(log.log_end_offset(), leader.log_end_offset());
    assert_eq!(log.synced(), log.log_end_offset());
    assert_eq!(log.last_epoch(), LeaderEpoch(2));
    assert_eq!(log.epoch_at(Offset(4)), LeaderEpoch(1));
    assert_eq!(log.epoch_end(LeaderEpoch(0)).unwrap().end, Offset(4));
    let again = log.append(bytes.to_vec(), AppendAs::Follower);
    assert!(matches!(again, Err(AppendError::Gap { .. })), "{again:?}");
}

#[test]
fn the_last_epoch_of_a_log_without_records_ends_where_the_log_does() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), small());
    for epoch in [1, 3] {
        log.append(batch(2, 9, "x"), as_leader(epoch)).unwrap();
    }
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    log.delete_records(Offset(4)).unwrap();
    flush(&volume, &mut log);
    close(volume, log);
    let (_volume, log) = open(disk, small());
    assert_eq!(log.log_start_offset(), log.log_end_offset());
    assert_eq!(log.last_epoch(), LeaderEpoch(3));
    for epoch in [1, 3] {
        let end = log.epoch_end(LeaderEpoch(epoch)).expect("it was here");
        assert_eq!((end.epoch.0, end.end), (epoch, Offset(4)));
    }
    assert_eq!(log.epoch_end(LeaderEpoch(4)), None);
    // So do all epochs of one that begins behind what it never had.
    let (_volume, mut log) = open(Arc::new(MemoryDisk::new()), small());
    assert_eq!(log.epoch_end(LeaderEpoch(2)), None);
    log.delete_records(Offset(29)).unwrap();
    let end = log.epoch_end(LeaderEpoch(2)).expect("all of it is gone");
    assert_eq!((end.epoch.0, end.end), (2, Offset(29)));
}

#[test]
fn what_is_not_one_sound_batch_is_refused() {
    let (_volume, mut log) = open(Arc::new(MemoryDisk::new()), small());
    let mut two = batch(1, 0, "a");
    two.extend(batch(1, 0, "b"));
    let mut short = batch(2, 0, "a");
    short.pop();
    let mut holes = batch(2, 0, "a");
    holes[26] = 9;
    for bad in [Vec::new(), vec![0; 61], two, short, holes] {
        assert!(matches!(append(&mut log, bad), Err(AppendError::Batch(_))));
    }
    assert_eq!(log.log_end_offset(), Offset(0));
    assert!(log.take_write().is_none());
}

#[test]
fn an_unused_log_is_small() {
    // A hundred thousand of them are in one process: the settings, the positions, and nothing of the folder.
    let size = size_of::<crate::Log>();
    assert!(size <= 448, "{size}");
}
