//! The planted fault that takes a torn group of the write-ahead log for a whole one. To cost what was acknowledged it takes a group that has the same entries at the same places as the one
//! that was there a lap before, and a head of an entry across two sectors, which seeds seldom bring about: so it has a story, that goes well without the fault, and badly with it.

use std::sync::Arc;

use riverlog_log::disk::CrashDisk;
use riverlog_log::{AppendAs, Log, LogKey, LogSettings, Read, Volume, VolumeSettings};
use riverlog_mutants::{Mutant, plant};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{LeaderEpoch, PartitionIndex, TopicId};

/// Bytes of each batch. The head of the second entry of a group says in the first sector which partition it is of, and in the second one at which
/// offset, with the batch behind that: 512 - 28 = 80 + 44 + 360, with the heads of the group and of its entries.
const BATCH: usize = 360;

/// Groups before the last one: the log has gone round several times, and its place was that of another one each time.
const GROUPS: std::ops::Range<u64> = 60..64;

/// Power cuts in the middle of the last one, each of which leaves other sectors.
const CUTS: u64 = 20;

/// A partition, and what was acknowledged there.
struct Partition {
    log: Log,
    acknowledged: Vec<String>,
}

fn settings() -> VolumeSettings {
    VolumeSettings {
        wal_bytes: 64 << 10,
        ..VolumeSettings::default()
    }
}

fn open(disk: &CrashDisk) -> (Arc<Volume>, [Log; 2]) {
    let volume = Volume::open(Arc::new(disk.clone()), settings()).expect("it opens");
    let logs = [0, 1].map(|n| {
        let key = LogKey {
            topic: TopicId(*b"torn-groups-test"),
            partition: PartitionIndex(n),
        };
        let settings = LogSettings {
            retention_ms: None,
            ..LogSettings::default()
        };
        volume.open_log(key, settings).expect("a log")
    });
    volume.recovered().expect("all are open");
    (volume, logs)
}

/// A batch of one record of the size that all have.
fn batch(value: &str) -> Vec<u8> {
    let build = |value: &str| {
        BatchBuilder::new(Compression::None)
            .push(1_000, None, Some(value.as_bytes()), &[])
            .build()
    };
    // Lengths of values from 64 bytes on take two bytes themselves.
    let width = 64 + BATCH - build(&"x".repeat(64)).len();
    let built = build(&format!("{value:.<width$}"));
    assert_eq!(built.len(), BATCH);
    built
}

fn values(log: &mut Log) -> Vec<String> {
    let (mut at, end) = (log.log_start_offset(), log.log_end_offset());
    let mut found = Vec::new();
    while at < end {
        let slices = match log.read(at, end, 1 << 20).expect("readable") {
            Read::Ready(slices) => slices,
            Read::Plan(plan) => plan.run().expect("readable"),
        };
        at = slices.next;
        let bytes = slices.into_bytes().expect("bytes");
        for batch in batches(&bytes) {
            let records = batch.expect("a batch").records(1 << 20).expect("records");
            for record in records.iter() {
                let value = record.expect("a record").value.expect("a value");
                let value = String::from_utf8(value.to_vec()).expect("text");
                found.push(value.trim_end_matches('.').to_owned());
            }
        }
    }
    found
}

impl Partition {
    fn append(&mut self, value: &str) {
        let how = AppendAs::Leader {
            epoch: LeaderEpoch(0),
            now_ms: 1_000,
        };
        self.log.append(batch(value), how).expect("appended");
        while let Some(write) = self.log.take_write() {
            self.log.write_done(write.run()).expect("written");
        }
    }
}

/// One commit of all that waits. Whether it has become durable.
fn commit(volume: &Arc<Volume>, partitions: &mut [Partition]) -> bool {
    while let Some(flush) = volume.take_flush() {
        let done = flush.run();
        if done.error.is_some() {
            return false;
        }
        for synced in done.synced {
            let partition = synced.key.partition.0 as usize;
            partitions[partition].log.on_synced(synced.to);
        }
    }
    true
}

/// Groups of two entries each, which go round and round; the last one is cut off by the power.
fn acknowledged_records_survive(groups: u64, cut: u64) -> bool {
    let disk = CrashDisk::new(cut);
    let (volume, logs) = open(&disk);
    let mut partitions = logs.map(|log| Partition {
        log,
        acknowledged: Vec::new(),
    });
    for n in 0..groups {
        // The first one is ahead of the second one by far.
        for (to, name) in [(0, "a"), (usize::from(n >= groups / 2), "b")] {
            let value = format!("{name}{n}");
            partitions[to].append(&value);
            partitions[to].acknowledged.push(value);
        }
        assert!(commit(&volume, &mut partitions));
        for partition in &mut partitions {
            if let Some(upkeep) = partition.log.sync_segments() {
                partition.log.upkeep_done(upkeep.run()).expect("synced");
            }
        }
        while volume.upkeep().expect("made ready") {}
        assert!(commit(&volume, &mut partitions));
    }
    partitions[0].append("late");
    partitions[0].append("later");
    disk.fail_after_meeting(1, |path| path.starts_with("wal/"));
    assert!(!commit(&volume, &mut partitions));
    drop(volume);

    let (_volume, logs) = open(&disk.crash(cut));
    let found = logs.map(|mut log| values(&mut log));
    partitions.iter().zip(&found).all(|(partition, found)| {
        let late = found.get(partition.acknowledged.len()..).unwrap_or(&[]);
        found.starts_with(&partition.acknowledged)
            && late.iter().all(|value| value.starts_with("late"))
    })
}

#[test]
fn a_torn_group_takes_nothing_that_was_acknowledged_unless_it_is_taken_for_whole() {
    let go_well = || {
        let mut all = GROUPS.flat_map(|groups| (0..CUTS).map(move |cut| (groups, cut)));
        all.all(|(groups, cut)| acknowledged_records_survive(groups, cut))
    };
    plant(None);
    assert!(go_well(), "the story itself is wrong");
    plant(Some(Mutant::TornGroupAccepted));
    assert!(!go_well(), "it isn't noticed");
    plant(None);
}
