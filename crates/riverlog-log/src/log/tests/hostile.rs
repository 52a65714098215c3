//! Any bytes in any file: no panic, no endless loop, no memory beyond what the bytes take (RC-35).

use std::sync::Arc;

use proptest::prelude::*;
use riverlog_wire::{LeaderEpoch, Offset};

use super::model::Random;
use super::support::*;
use crate::disk::MemoryDisk;
use crate::log::format::{
    CheckSeed, parse_epochs, parse_offset_index, parse_snapshot, parse_time_index,
};
use crate::log::{AppendAs, LogSettings, ReadError};
use crate::{Disk, OpenMode};

proptest! {
    #[test]
    fn parsers_take_anything(bytes in proptest::collection::vec(any::<u8>(), 0..600), number: u64) {
        let seed = CheckSeed { key: KEY, base: Offset(7) };
        let entries = parse_offset_index(&bytes);
        prop_assert!(entries.len() <= bytes.len() / 8);
        prop_assert!(entries.is_sorted_by(|a, b| a.position < b.position && a.relative < b.relative));
        let times = parse_time_index(&bytes);
        prop_assert!(times.is_sorted_by(|a, b| a.timestamp < b.timestamp));
        prop_assert!(seed.parse_header(&bytes).is_none());
        let _ = seed.parse_entry(number, &bytes);
        prop_assert!(parse_snapshot(&bytes).is_none());
        let _ = parse_epochs(&bytes);
    }

    #[test]
    fn epoch_checkpoints_that_are_read_rise(text in "0\n[0-3]\n([0-9]{1,2} [0-9]{1,2}\n){0,3}") {
        if let Some(entries) = parse_epochs(text.as_bytes()) {
            prop_assert!(entries.is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start));
        }
    }
}

/// Overwrites a file with noise, parts of itself, or both.
fn scramble(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let len = bytes.len() as u64;
        let at = random.below(len + 1) as usize;
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.extend((0..random.below(300)).map(|_| random.next() as u8)),
            2 => {
                let end = bytes.len().min(at + random.below(100) as usize);
                for byte in &mut bytes[at..end] {
                    *byte = random.next() as u8;
                }
            }
            _ => {
                let from = random.below(len + 1) as usize;
                let end = bytes.len().min(from + random.below(400) as usize);
                let part = bytes[from..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
}

#[test]
fn a_log_of_scrambled_files_opens_and_reads_to_its_end() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let disk = Arc::new(MemoryDisk::new());
        let settings = LogSettings {
            sync: seed % 2 == 0,
            ..small()
        };
        let (volume, mut log) = open(disk.clone(), settings.clone());
        for i in 0..30 {
            put(&volume, &mut log, from_producer(1, 0, i, 1));
            put(&volume, &mut log, batch(2, i.into(), &"x".repeat(40)));
            if i % 7 == 0 {
                sync(&mut log).unwrap();
            }
        }
        if seed % 3 == 0 {
            close(volume, log);
        } else {
            drop((volume, log));
        }
        for entry in disk.list(&KEY.folder()).unwrap() {
            if random.below(2) == 0 {
                continue;
            }
            let path = format!("{}/{}", KEY.folder(), entry.name);
            let file = disk.open(&path, OpenMode::Write).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            scramble(&mut random, &mut bytes);
            file.set_len(0).unwrap();
            file.write_at(&[&bytes], 0).unwrap();
        }
        let (volume, mut log) = open(disk.clone(), settings);
        let end = log.log_end_offset();
        let mut at = log.log_start_offset();
        let mut steps = 0;
        while at < end {
            let from = at;
            at = match read_slices(&mut log, at.0, 300) {
                Ok(slices) => slices.next,
                Err(ReadError::Damaged { to, .. }) => to,
                Err(other) => panic!("{other}"),
            };
            assert!(at > from);
            steps += 1;
            assert!(steps < 1_000);
        }
        let _ = log.find_time(20, end).unwrap().run();
        let _ = log.find_max_timestamp(end).unwrap().run();
        // An epoch that nobody has had can stand in the torn tail of a log without `sync`: the CRC doesn't cover it.
        let how = AppendAs::Leader {
            epoch: log.last_epoch().max(LeaderEpoch(0)),
            now_ms: 1,
        };
        log.append(batch(1, 1, "and it goes on"), how).unwrap();
        write(&mut log).unwrap();
        flush(&volume, &mut log);
        assert_eq!(log.log_end_offset(), end + 1);
    }
}
