//! What a crash can leave at the end of the last segment.

use std::sync::Arc;

use riverlog_wire::batch::{set_base_offset, set_leader_epoch};
use riverlog_wire::{LeaderEpoch, Offset};

use super::support::*;
use crate::disk::MemoryDisk;
use crate::log::LogSettings;
use crate::{Disk, OpenMode};

fn placed(offset: i64, epoch: i32) -> Vec<u8> {
    let mut bytes = batch(2, 1, "tail");
    set_base_offset(&mut bytes, Offset(offset));
    set_leader_epoch(&mut bytes, LeaderEpoch(epoch));
    bytes
}

#[test]
fn a_tail_that_does_not_go_on_from_the_log_is_cut_off() {
    let half = placed(10, 4)[..40].to_vec();
    let mut torn = placed(10, 4);
    let last = torn.len() - 1;
    torn[last] ^= 1;
    let mut body_lost = placed(10, 4);
    body_lost[61..].fill(0);
    let mut twice = placed(10, 4);
    twice.extend(placed(10, 4));
    let tails: [(&str, Vec<u8>, i64); 9] = [
        ("nothing", Vec::new(), 10),
        ("zeros", vec![0; 5_000], 10),
        ("half a header", half, 10),
        ("a torn batch", torn, 10),
        ("a batch that lost its records", body_lost, 10),
        ("a batch with a lower base offset", placed(8, 4), 10),
        ("a batch with a higher base offset", placed(12, 4), 10),
        ("a batch of an older epoch", placed(10, 3), 10),
        ("a batch, and again", twice, 12),
    ];
    for sync in [true, false] {
        for (what, tail, end) in &tails {
            let disk = Arc::new(MemoryDisk::new());
            let settings = LogSettings {
                sync,
                ..LogSettings::default()
            };
            let (volume, mut log) = open(disk.clone(), settings.clone());
            for _ in 0..5 {
                log.append(batch(2, 1, "kept"), as_leader(4)).unwrap();
                write(&mut log).unwrap();
                flush(&volume, &mut log);
            }
            drop((volume, log));
            let path = format!("{}/{:020}.log", KEY.folder(), 0);
            let file = disk.open(&path, OpenMode::Write).unwrap();
            file.write_at(&[tail], file.len().unwrap()).unwrap();
            let (volume, mut log) = open(disk.clone(), settings.clone());
            assert_eq!(log.log_end_offset(), Offset(*end), "{what}");
            log.append(batch(1, 1, "new"), as_leader(5)).unwrap();
            write(&mut log).unwrap();
            flush(&volume, &mut log);
            let all = read_all(&mut log, 0).unwrap();
            assert_eq!(all.last(), Some(&(*end, 1)), "{what}");
            drop((volume, log));
            let (_volume, mut log) = open(disk.clone(), settings);
            assert_eq!(read_all(&mut log, 0).unwrap(), all, "{what}");
        }
    }
}

#[test]
fn the_write_ahead_log_is_right_where_it_differs_from_the_segment() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), LogSettings::default());
    for i in 0..5 {
        put(&volume, &mut log, batch(2, i, "from the log"));
    }
    let expected = read_bytes(&mut log, 0, 100_000).unwrap();
    drop((volume, log));
    let path = format!("{}/{:020}.log", KEY.folder(), 0);
    for cut in [0, 10, 90, 200, expected.len() - 1] {
        let file = disk.open(&path, OpenMode::Write).unwrap();
        file.set_len(cut as u64).unwrap();
        let (_volume, mut log) = open(disk.clone(), LogSettings::default());
        assert_eq!(read_bytes(&mut log, 0, 100_000).unwrap(), expected);
    }
    // A sound batch, but not the one that was acknowledged.
    let file = disk.open(&path, OpenMode::Write).unwrap();
    let mut other = batch(2, 9, "from elsewhere");
    set_base_offset(&mut other, Offset(4));
    set_leader_epoch(&mut other, LeaderEpoch(0));
    file.write_at(&[&other], 2 * expected.len() as u64 / 5)
        .unwrap();
    let (_volume, mut log) = open(disk.clone(), LogSettings::default());
    assert_eq!(read_bytes(&mut log, 0, 100_000).unwrap(), expected);
}
