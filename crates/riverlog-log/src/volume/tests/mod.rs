//! The data folder through clean stops, crashes, damage and deletions. What a log does is played here.

use bytes::Bytes;
use riverlog_wire::LeaderEpoch;

use super::*;
use crate::disk::{CrashDisk, Survivors};

mod played;

fn settings() -> VolumeSettings {
    VolumeSettings {
        wal_bytes: 128 * 1024,
        tail_cache_bytes: 1000,
        open_files: 4,
    }
}

fn key(n: u64) -> LogKey {
    LogKey {
        topic: TopicId([n as u8 + 1; 16]),
        partition: PartitionIndex(n as i32),
    }
}

fn mark(start: i64, end: i64) -> LogMark {
    LogMark {
        start: Offset(start),
        end: Offset(end),
        segments_synced: Offset(end),
        size_bytes: end as u64 * 10,
        last_epoch: LeaderEpoch(3),
    }
}

fn append(log: u64, base: i64) -> WalEntry {
    WalEntry::Append {
        key: key(log),
        base: Offset(base),
        next: Offset(base + 1),
        batches: Bytes::from(vec![base as u8; 100]),
    }
}

fn open(disk: &CrashDisk) -> Arc<Volume> {
    Volume::open(Arc::new(disk.clone()), settings()).unwrap()
}

/// What a log gets when it is opened.
fn hand(volume: &Arc<Volume>, log: u64) -> Handed {
    let handed = volume.hand_over(key(log)).unwrap();
    volume.handed_over(key(log), handed.first, true);
    handed
}

fn flush(volume: &Arc<Volume>) -> Vec<Synced> {
    let done = volume.take_flush().unwrap().run();
    assert!(done.error.is_none(), "{:?}", done.error);
    done.synced
}

#[test]
fn what_was_flushed_is_handed_over_after_a_power_cut() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    assert!(hand(&volume, 0).mark.is_none());
    volume.submit(append(0, 0));
    let second = volume.submit(append(0, 1));
    let synced = flush(&volume);
    let to = Offset(2);
    assert_eq!(synced, [Synced { key: key(0), to }]);
    assert_eq!(volume.durable(), second);
    assert!(volume.take_flush().is_none());

    let disk = disk.crash_with(2, Survivors::Nothing);
    let volume = open(&disk);
    let handed = hand(&volume, 0);
    assert!(!handed.untouched);
    let entries: Vec<WalEntry> = handed.entries.into_iter().map(|(_, e)| e).collect();
    assert_eq!(entries, [append(0, 0), append(0, 1)]);
}

#[test]
fn a_clean_stop_reads_nothing_at_the_next_start() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    let at = volume.submit(append(0, 0));
    flush(&volume);
    volume.segments_synced(key(0), mark(0, 1), at);
    volume.checkpoint(true).unwrap();
    drop(volume);

    let volume = open(&disk);
    let handed = hand(&volume, 0);
    assert!(handed.untouched && handed.entries.is_empty());
    assert_eq!(handed.mark, Some(mark(0, 1)));
    // The first change takes the mark of the clean stop away.
    volume.submit(append(0, 1));
    flush(&volume);
    let volume = open(&disk.crash_with(3, Survivors::Nothing));
    let handed = hand(&volume, 0);
    assert!(!handed.untouched);
    assert_eq!(handed.mark, Some(mark(0, 1)));
    assert_eq!(handed.entries.len(), 1);
}
