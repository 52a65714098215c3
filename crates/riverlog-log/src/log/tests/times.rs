//! Look-ups by time, to the record (B19, FC-07).

use std::sync::Arc;

use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{LeaderEpoch, Offset};

use super::support::*;
use crate::disk::MemoryDisk;
use crate::log::{AppendAs, Log, LogSettings};

fn timed(times: &[i64], codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for time in times {
        builder.push(*time, None, Some(b"value"), &[]);
    }
    builder.build()
}

fn at(log: &mut Log, time: i64, until: i64) -> Option<(i64, i64, i32)> {
    let found = log.find_time(time, Offset(until)).unwrap().run().unwrap();
    found.map(|f| (f.offset.0, f.timestamp, f.epoch.0))
}

fn largest(log: &mut Log, until: i64) -> Option<(i64, i64)> {
    let found = log
        .find_max_timestamp(Offset(until))
        .unwrap()
        .run()
        .unwrap();
    found.map(|f| (f.offset.0, f.timestamp))
}

#[test]
fn the_first_record_at_or_after_a_time_is_found_inside_its_batch() {
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), small());
    put(&volume, &mut log, timed(&[10, 30, 20], Compression::Zstd));
    log.append(timed(&[25, 40], Compression::Gzip), as_leader(3))
        .unwrap();
    write(&mut log).unwrap();
    assert_eq!(at(&mut log, 0, 5), Some((0, 10, 0)));
    assert_eq!(at(&mut log, 15, 5), Some((1, 30, 0)));
    assert_eq!(at(&mut log, 31, 5), Some((4, 40, 3)));
    assert_eq!(at(&mut log, 41, 5), None);
    // Not what lies above the bound, or before the start.
    assert_eq!(at(&mut log, 31, 4), None);
    log.delete_records(Offset(2)).unwrap();
    assert_eq!(at(&mut log, 15, 5), Some((2, 20, 0)));
    assert_eq!(largest(&mut log, 5), Some((4, 40)));
    assert_eq!(largest(&mut log, 4), Some((3, 25)));
    assert_eq!(largest(&mut log, 3), Some((2, 20)));
}

#[test]
fn a_thousand_records_in_many_segments_against_a_plain_search() {
    let disk = Arc::new(MemoryDisk::new());
    let settings = LogSettings {
        segment_ms: None,
        ..small()
    };
    let (volume, mut log) = open(disk.clone(), settings.clone());
    let mut random = super::model::Random(11);
    let mut times = Vec::new();
    for i in 0..400 {
        let some: Vec<i64> = (0..1 + random.below(3))
            .map(|_| i * 10 + random.below(200) as i64)
            .collect();
        put(&volume, &mut log, timed(&some, Compression::None));
        times.extend(some);
    }
    let end = times.len() as i64;
    let check = |log: &mut Log| {
        let mut random = super::model::Random(12);
        for _ in 0..200 {
            let time = random.below(4_300) as i64;
            let until = random.below(end as u64 + 1) as i64;
            let plain = (0..until).find(|i| times[*i as usize] >= time);
            assert_eq!(
                at(log, time, until).map(|f| f.0),
                plain,
                "{time} before {until}"
            );
            let most = times[..until as usize].iter().max();
            let plain = (0..until).find(|i| Some(&times[*i as usize]) == most);
            assert_eq!(largest(log, until).map(|f| f.0), plain, "before {until}");
        }
    };
    check(&mut log);
    close(volume, log);
    let (_volume, mut log) = open(disk, settings);
    check(&mut log);
}

#[test]
fn under_log_append_time_all_records_of_a_batch_have_its_time() {
    let settings = LogSettings {
        log_append_time: true,
        ..small()
    };
    let (_volume, mut log) = open(Arc::new(MemoryDisk::new()), settings);
    for now_ms in [100, 200, 300] {
        let how = AppendAs::Leader {
            epoch: LeaderEpoch(0),
            now_ms,
        };
        log.append(timed(&[5_000, 1], Compression::None), how)
            .unwrap();
    }
    write(&mut log).unwrap();
    assert_eq!(at(&mut log, 150, 6), Some((2, 200, 0)));
    log.delete_records(Offset(3)).unwrap();
    assert_eq!(at(&mut log, 150, 6), Some((3, 200, 0)));
    assert_eq!(largest(&mut log, 6), Some((4, 300)));
    assert_eq!(at(&mut log, 1_000, 6), None);
}

#[test]
fn records_without_a_time_are_never_found_by_time() {
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), small());
    put(&volume, &mut log, timed(&[-1, -1], Compression::None));
    assert_eq!(at(&mut log, 0, 2), None);
    assert_eq!(largest(&mut log, 2), None);
    put(&volume, &mut log, timed(&[7], Compression::None));
    assert_eq!(at(&mut log, 0, 3), Some((2, 7, 0)));
    assert_eq!(largest(&mut log, 3), Some((2, 7)));
}
