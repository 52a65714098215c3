//! The data folder through clean stops, crashes, damage and deletions. What a log does is played here.

use bytes::Bytes;
use riverlog_wire::LeaderEpoch;

use super::*;
use crate::disk::{CrashDisk, FaultOn, MemoryDisk, Random, Survivors, SystemDisk, Times};
use crate::{DiskFile, OpenMode};

mod damage;
mod delete;
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
        check: Default::default(),
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

#[test]
fn the_first_change_after_a_clean_start_can_be_cut_off_anywhere() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    // Much of the write-ahead log is held back by what only a mark keeps.
    let to = Offset(1);
    let start = volume.submit(WalEntry::StartOffset { key: key(0), to });
    flush(&volume);
    volume.segments_synced(key(0), mark(1, 1), start);
    for base in 1..12 {
        let at = volume.submit(append(0, base));
        flush(&volume);
        volume.segments_synced(key(0), mark(1, base + 1), at);
    }
    volume.checkpoint(true).unwrap();
    drop(volume);
    for changes in 0..8 {
        for seed in 0..40 {
            let disk = disk.crash_with(1, Survivors::Everything);
            let volume = open(&disk);
            assert!(hand(&volume, 0).untouched);
            disk.fail_after(changes);
            volume.submit(append(0, 12));
            volume.take_flush().unwrap().run();
            let durable = volume.durable();
            let handed = hand(&open(&disk.crash(seed)), 0);
            assert_eq!(handed.mark, Some(mark(1, 12)), "{changes} {seed}");
            let acknowledged = usize::from(durable == volume.submitted());
            assert!(handed.entries.len() >= acknowledged);
            assert!(handed.entries.len() <= 1);
        }
    }
}

/// It reaches beyond its first sector.
fn long(base: i64) -> WalEntry {
    WalEntry::Append {
        key: key(0),
        base: Offset(base),
        next: Offset(base + 1),
        batches: Bytes::from(vec![base as u8; 1_500]),
    }
}

/// A clean stop after so many flushes, where the files have been written through.
fn stopped(flushes: i64) -> CrashDisk {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    for base in 0..flushes {
        let at = volume.submit(long(base));
        flush(&volume);
        volume.segments_synced(key(0), mark(0, base + 1), at);
        while volume.upkeep().unwrap() {}
    }
    volume.checkpoint(true).unwrap();
    disk
}

#[test]
fn the_first_change_after_a_clean_start_spares_the_newest_part_of_the_write_ahead_log() {
    for flushes in 20..36 {
        let stopped = stopped(flushes).kill();
        for changes in 0..8 {
            for seed in 0..20 {
                let disk = stopped.crash_with(1, Survivors::Everything);
                let volume = open(&disk);
                assert!(hand(&volume, 0).untouched);
                disk.fail_after(changes);
                volume.submit(long(flushes));
                volume.take_flush().unwrap().run();
                let durable = volume.durable();
                let again = Volume::open(Arc::new(disk.crash(seed)), settings());
                let again = again.unwrap_or_else(|e| panic!("{flushes} {changes} {seed}: {e}"));
                let handed = hand(&again, 0);
                assert_eq!(handed.mark, Some(mark(0, flushes)));
                let acknowledged = usize::from(durable == volume.submitted());
                assert!(handed.entries.len() >= acknowledged);
            }
        }
    }
}

#[test]
fn a_smaller_write_ahead_log_can_be_killed_before_its_first_change_is_done() {
    let smaller = || VolumeSettings {
        wal_bytes: 64 * 1024,
        ..settings()
    };
    for flushes in 20..36 {
        let stopped = stopped(flushes).kill();
        for changes in 0..8 {
            let disk = stopped.crash_with(1, Survivors::Everything);
            let volume = Volume::open(Arc::new(disk.clone()), smaller()).unwrap();
            assert!(hand(&volume, 0).untouched);
            while volume.upkeep().unwrap() {}
            disk.fail_after(changes);
            volume.submit(long(flushes));
            volume.take_flush().unwrap().run();
            let again = Volume::open(Arc::new(disk.kill()), smaller());
            let again = again.unwrap_or_else(|e| panic!("{flushes} {changes}: {e}"));
            assert_eq!(hand(&again, 0).mark, Some(mark(0, flushes)));
        }
    }
}

#[test]
fn a_stop_with_something_unsynced_is_not_clean() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    volume.submit(append(0, 0));
    flush(&volume);
    volume.checkpoint(true).unwrap();
    drop(volume);
    let handed = hand(&open(&disk), 0);
    assert!(!handed.untouched);
    assert_eq!(handed.entries.len(), 1);
}

#[test]
fn a_folder_is_used_by_one_volume_at_a_time() {
    let (dir, crash, memory) = (
        tempfile::tempdir().unwrap(),
        CrashDisk::new(1),
        MemoryDisk::new(),
    );
    let system = SystemDisk::open(dir.path()).unwrap();
    let system_again = SystemDisk::open(dir.path()).unwrap();
    let disks: [[Arc<dyn Disk>; 2]; 3] = [
        [Arc::new(system), Arc::new(system_again)],
        [Arc::new(crash.clone()), Arc::new(crash)],
        [Arc::new(memory.clone()), Arc::new(memory)],
    ];
    for [disk, again] in disks {
        let volume = Volume::open(disk, settings()).unwrap();
        let second = Volume::open(again.clone(), settings());
        assert!(matches!(second, Err(OpenError::InUse)), "{second:?}");
        let id = volume.disk_id();
        drop(volume);
        assert_eq!(Volume::open(again, settings()).unwrap().disk_id(), id);
    }
}

#[test]
fn an_interrupted_first_start_is_begun_again() {
    for changes in 0..60 {
        let disk = CrashDisk::new(1);
        disk.fail_after(changes);
        let done = Volume::open(Arc::new(disk.clone()), settings()).is_ok();
        for seed in 0..20 {
            let volume = open(&disk.crash(seed));
            hand(&volume, 0);
            volume.submit(append(0, 0));
            flush(&volume);
        }
        if done {
            return;
        }
    }
    panic!("the first start makes too many changes to be tried here");
}

#[test]
fn a_failed_sync_ends_the_volume() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    volume.submit(append(0, 0));
    let error = std::io::ErrorKind::Other;
    disk.fail(FaultOn::Sync, Times::Once, error, |path| {
        path.starts_with("wal/")
    });
    let done = volume.take_flush().unwrap().run();
    assert!(done.synced.is_empty());
    assert!(done.error.is_some_and(|error| !error.is_full()));
    assert!(volume.failed().is_some_and(|error| !error.is_full()));
    volume.submit(append(0, 1));
    assert!(volume.take_flush().is_none());
    assert_eq!(volume.queued_bytes(), 0);
    volume.checkpoint(false).unwrap_err();
    volume.delete_log(key(0)).unwrap_err();
}

#[test]
fn a_volume_whose_clean_mark_cant_be_removed_acknowledges_nothing() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    volume.checkpoint(true).unwrap();
    drop(volume);
    let volume = open(&disk);
    hand(&volume, 0);
    let error = std::io::ErrorKind::Other;
    disk.fail(FaultOn::Folder, Times::Forever, error, |path| path == CLEAN);
    assert!(volume.file("a", OpenMode::Create).is_err());
    volume.submit(append(0, 0));
    let done = volume.take_flush().unwrap().run();
    assert!(done.synced.is_empty() && done.error.is_some());
    assert!(volume.failed().is_some());
}

#[test]
fn a_closed_volume_gives_the_folder_away_and_writes_nothing_more() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    volume.submit(append(0, 0));
    let late = volume.take_flush().unwrap();
    volume.close();
    let next = open(&disk);
    let before = disk.counts();
    assert!(late.run().error.is_some());
    volume.submit(append(0, 1));
    assert!(volume.take_flush().is_none() && volume.failed().is_some());
    assert!(volume.checkpoint(true).is_err() && volume.delete_log(key(0)).is_err());
    assert!(!volume.upkeep().unwrap());
    assert_eq!(disk.counts(), before);
    assert!(hand(&next, 0).entries.is_empty());
}

#[test]
fn many_threads_at_once() {
    let volume = Volume::open(Arc::new(MemoryDisk::new()), settings()).unwrap();
    let running = AtomicBool::new(true);
    let acknowledged: Vec<Mutex<i64>> = (0..4).map(|_| Mutex::new(0)).collect();
    std::thread::scope(|scope| {
        let (volume, running, acknowledged) = (&volume, &running, &acknowledged);
        let appenders: Vec<_> = (0..4u64)
            .map(|log| {
                scope.spawn(move || {
                    hand(volume, log);
                    for base in 0..2_000 {
                        let at = volume.submit(append(log, base));
                        if base % 50 == 49 {
                            // As a log that was asked to sync, and one that was cut and waits.
                            volume.segments_synced(key(log), mark(0, base + 1), at);
                            if log == 0 && base % 500 == 499 {
                                while volume.make_durable(at).is_err() {
                                    std::thread::yield_now();
                                }
                                assert!(volume.durable() >= at);
                            }
                        }
                        // No flush may have room until each log has synced.
                        while volume.failed().is_some_and(|error| error.is_full()) {
                            volume.segments_synced(key(log), mark(0, base + 1), at);
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(move || {
                while running.load(Ordering::Relaxed) {
                    if let Some(flush) = volume.take_flush() {
                        let done = flush.run();
                        assert!(done.error.is_none(), "{:?}", done.error);
                        for Synced { key, to } in done.synced {
                            let mut end = acknowledged[key.partition.0 as usize].lock();
                            *end = (*end).max(to.0);
                        }
                    }
                    std::thread::yield_now();
                }
            });
        }
        scope.spawn(move || {
            while running.load(Ordering::Relaxed) {
                volume.upkeep().unwrap();
                volume.checkpoint(false).unwrap();
                std::thread::yield_now();
            }
        });
        for appender in appenders {
            appender.join().unwrap();
        }
        let done = || acknowledged.iter().all(|end| *end.lock() == 2_000);
        for _ in 0..20_000 {
            if done() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        running.store(false, Ordering::Relaxed);
        assert!(done(), "{acknowledged:?}");
    });
}

#[test]
fn a_full_write_ahead_log_asks_for_the_logs_that_hold_it_back() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    let mut last = BTreeMap::new();
    for log in 0..3 {
        hand(&volume, log);
    }
    for base in 0..2_000 {
        // The first log only at the beginning.
        let log = if base < 5 { 0 } else { 1 + base as u64 % 2 };
        last.insert(log, (base, volume.submit(append(log, base))));
        if let Some(flush) = volume.take_flush() {
            assert!(flush.run().error.is_none());
        }
        let wanted = volume.wants_sync();
        if wanted.is_empty() {
            assert!(volume.take_flush().is_none());
            continue;
        }
        assert!(volume.wal_bytes().0 > volume.wal_bytes().1 / 2);
        if volume
            .table
            .lock()
            .get(key(0))
            .is_some_and(|s| s.covered == Lsn(0))
        {
            assert_eq!(wanted[0], key(0));
        }
        for wanted in wanted {
            let (end, at) = last[&(wanted.partition.0 as u64)];
            volume.segments_synced(wanted, mark(0, end + 1), at);
        }
    }
    let (used, capacity) = volume.wal_bytes();
    assert!(used <= capacity);
}

#[test]
fn too_much_waiting_for_a_flush_is_refused_like_a_full_disk() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    let mut base = 0;
    while volume.failed().is_none() {
        volume.submit(append(0, base));
        base += 1;
    }
    assert!(volume.failed().is_some_and(|error| error.is_full()));
    assert!(volume.queued_bytes() as u64 > settings().wal_bytes);
    // One flush writes what fits; then segments must be synced, and the rest follows.
    flush(&volume);
    let wanted = volume.wants_sync();
    assert_eq!(wanted, [key(0)]);
    let at = volume.submitted();
    volume.segments_synced(key(0), mark(0, base), at);
    flush(&volume);
    assert!(volume.failed().is_none());
}

#[test]
fn only_so_many_files_are_kept_open_and_names_never_mean_old_files() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    volume.disk().create_dir_all("t/0").unwrap();
    let open = |n: usize, mode| volume.file(&format!("t/0/{n}"), mode);
    for n in 0..20 {
        let file = open(n, OpenMode::Create).unwrap();
        file.write_at(&[&[n as u8]], 0).unwrap();
        assert!(volume.files.cached() <= settings().open_files);
    }
    let first = |file: Arc<dyn DiskFile>| {
        let mut byte = [0xff];
        file.read_at(&mut byte, 0).unwrap();
        byte[0]
    };
    for n in 0..20 {
        let file = open(n, OpenMode::Read).unwrap();
        assert_eq!(first(file.clone()) as usize, n);
        assert!(file.write_at(&[b"x"], 0).is_err());
        // A reader's handle is of no use to a writer.
        open(n, OpenMode::Write)
            .unwrap()
            .write_at(&[b"w"], 1)
            .unwrap();
    }
    let keep = open(1, OpenMode::Write).unwrap();
    volume.disk().rename("t/0/2", "t/0/1").unwrap();
    assert_eq!(first(open(1, OpenMode::Read).unwrap()), 2);
    assert_eq!(first(keep), 1);
    volume.disk().remove_file("t/0/1").unwrap();
    assert!(open(1, OpenMode::Write).is_err());
    let anew = open(1, OpenMode::Create).unwrap();
    assert_eq!(anew.len().unwrap(), 0);
    volume.disk().rename("t/0", "t/1").unwrap();
    assert!(open(3, OpenMode::Read).is_err());
    volume.disk().remove_dir_all("t").unwrap();
    assert!(volume.file("t/1/3", OpenMode::Read).is_err());
    assert_eq!(volume.files.cached(), 0);
}

#[test]
fn the_tail_cache_has_a_budget() {
    let volume = open(&CrashDisk::new(1));
    assert!(volume.tail_take(1_000));
    assert!(!volume.tail_take(1));
    volume.tail_give(500);
    assert!(volume.tail_take(400));
}

#[test]
fn upkeep_prepares_files_and_writes_the_checkpoint_that_frees_the_log() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    while volume.upkeep().unwrap() {}
    // Start offsets only: they live on in marks, so that nothing but a checkpoint frees them.
    for to in 0..3_000 {
        let to = Offset(to);
        let at = volume.submit(WalEntry::StartOffset { key: key(0), to });
        flush(&volume);
        volume.segments_synced(key(0), mark(to.0, to.0), at);
        while volume.upkeep().unwrap() {}
        assert!(volume.wal_bytes().0 <= volume.wal_bytes().1 * 3 / 4);
    }
    let handed = hand(&open(&disk.crash_with(1, Survivors::Nothing)), 0);
    let again = handed.entries.iter().filter_map(|(_, entry)| match entry {
        WalEntry::StartOffset { to, .. } => Some(to.0),
        _ => None,
    });
    let start = again.chain(handed.mark.map(|mark| mark.start.0)).max();
    assert_eq!(start, Some(2_999));
}

#[test]
fn a_checkpoint_that_found_no_room_was_never_tried_again() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    while volume.upkeep().unwrap() {}
    let full = std::io::ErrorKind::StorageFull;
    disk.fail(FaultOn::Write, Times::Forever, full, |path| {
        path.starts_with("checkpoint")
    });
    for to in 0.. {
        let to = Offset(to);
        let at = volume.submit(WalEntry::StartOffset { key: key(0), to });
        let Some(flush) = volume.take_flush() else {
            break;
        };
        assert!(flush.run().error.is_none());
        volume.segments_synced(key(0), mark(to.0, to.0), at);
    }
    // Nothing but a checkpoint makes room: the host must hear that it wasn't made, and ask again.
    assert!(volume.upkeep().is_err_and(|error| error.is_full()));
    assert!(volume.take_flush().is_none());
    disk.heal();
    while volume.upkeep().unwrap() {}
    flush(&volume);
}

#[test]
fn a_hundred_thousand_logs_are_light() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let settings = VolumeSettings::default();
    let volume = Volume::open(disk.clone(), settings.clone()).unwrap();
    let keys: Vec<LogKey> = (0..100_000)
        .map(|n: i32| LogKey {
            topic: TopicId(u128::from(Random::new(n as u64 / 10).next_u64()).to_be_bytes()),
            partition: PartitionIndex(n % 10),
        })
        .collect();
    for key in &keys {
        volume.hand_over(*key).unwrap();
        volume.handed_over(*key, true, true);
        volume.segments_synced(*key, mark(0, 1), Lsn(0));
    }
    volume.recovered().unwrap();
    let began = std::time::Instant::now();
    volume.checkpoint(true).unwrap();
    let wrote = began.elapsed() / 2;
    drop(volume);
    let began = std::time::Instant::now();
    let volume = Volume::open(disk, settings).unwrap();
    for key in &keys {
        assert!(volume.hand_over(*key).unwrap().untouched);
    }
    volume.recovered().unwrap();
    let opened = began.elapsed();
    // Generous: the machine may be busy, and the code is not optimised.
    assert!(wrote.as_millis() < 500, "checkpoint in {wrote:?}");
    assert!(opened.as_millis() < 2_000, "opened in {opened:?}");
    // Full nodes of a map hold eleven.
    let each = std::mem::size_of::<(LogKey, LogState)>();
    assert!(each + 16 <= 150, "{each} bytes");
}
