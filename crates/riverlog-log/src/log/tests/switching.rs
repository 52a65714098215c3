//! Changes of durability while a log runs, and several threads at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use riverlog_wire::Offset;

use super::support::*;
use crate::disk::{CrashDisk, MemoryDisk, Survivors};
use crate::log::{LogSettings, Read};

fn settings(sync: bool) -> LogSettings {
    LogSettings { sync, ..small() }
}

#[test]
fn a_log_leaves_the_write_ahead_log_when_everything_is_durable() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), settings(true));
    append(&mut log, batch(1, 1, "a")).unwrap();
    log.set_settings(settings(false));
    // Not yet: the first one is in flight.
    append(&mut log, batch(1, 1, "b")).unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    assert_eq!(log.synced(), Offset(2));
    put(&volume, &mut log, batch(1, 1, "c"));
    assert_eq!((log.written(), log.synced()), (Offset(3), Offset(2)));
    sync(&mut log).unwrap();
    assert_eq!(log.synced(), Offset(3));
}

#[test]
fn a_log_enters_the_write_ahead_log_when_its_segments_are_synced() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), settings(false));
    put(&volume, &mut log, batch(1, 1, "a"));
    log.set_settings(settings(true));
    put(&volume, &mut log, batch(1, 1, "b"));
    assert_eq!(log.synced(), Offset(0));
    sync(&mut log).unwrap();
    put(&volume, &mut log, batch(1, 1, "c"));
    assert_eq!(log.synced(), Offset(3));
    drop((volume, log));
    let (_volume, mut log) = open(
        Arc::new(disk.crash_with(1, Survivors::Nothing)),
        settings(true),
    );
    assert_eq!(read_all(&mut log, 0).unwrap(), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn readers_writers_and_upkeep_don_t_wait_for_each_other() {
    let (volume, log) = open(
        Arc::new(MemoryDisk::new()),
        LogSettings {
            segment_bytes: 20_000,
            ..small()
        },
    );
    let log = Arc::new(Mutex::new(log));
    let written = Arc::new(AtomicI64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (log, written, stop) = (log.clone(), written.clone(), stop.clone());
            scope.spawn(move || {
                let mut random = super::model::Random(reader);
                while !stop.load(Ordering::Acquire) {
                    let until = written.load(Ordering::Acquire);
                    if until == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    let from = random.below(until as u64) as i64;
                    let read = log.lock().read(Offset(from), Offset(until), 5_000);
                    let slices = match read {
                        Ok(Read::Ready(slices)) => slices,
                        Ok(Read::Plan(plan)) => plan.run().unwrap(),
                        // Deleted meanwhile.
                        Err(crate::log::ReadError::OffsetOutOfRange { .. }) => continue,
                        Err(other) => panic!("{other}"),
                    };
                    let bytes = slices.into_bytes().unwrap();
                    let batches = shape(&bytes);
                    assert_eq!(batches.first(), Some(&(from / 2 * 2, 2)));
                }
            });
        }
        let (upkeep, done) = (log.clone(), stop.clone());
        scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                let work = upkeep.lock().sync_segments();
                if let Some(work) = work {
                    let work = work.run();
                    upkeep.lock().upkeep_done(work).unwrap();
                }
                let start = {
                    let mut log = upkeep.lock();
                    let start = log.written() + -600;
                    log.delete_records(start).unwrap();
                    log.retain(0, start)
                };
                if let Some(work) = start {
                    let work = work.run();
                    upkeep.lock().upkeep_done(work).unwrap();
                }
            }
        });
        for i in 0..3_000 {
            append(&mut log.lock(), batch(2, i, "0123456789")).unwrap();
            let out = log.lock().take_write();
            if let Some(out) = out {
                let done = out.run();
                let mut log = log.lock();
                log.write_done(done).unwrap();
                written.store(log.written().0, Ordering::Release);
            }
            if i % 50 == 0 {
                flush(&volume, &mut log.lock());
            }
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(log.lock().written(), Offset(6_000));
}
