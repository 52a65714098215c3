//! Compaction of a log that nobody writes to any more: its last segment is closed once a record of it has waited as long as it may.

use std::sync::Arc;

use riverlog_wire::compression::Compression;

use super::clean::{clean, keyed, records, rules};
use super::support::{close, open, put, read_all, small, sync};
use crate::disk::CrashDisk;
use crate::log::clean::CleanRules;
use crate::log::{Log, LogSettings};
use crate::{Disk, Volume};

/// Rules under which every record has waited long enough.
fn overdue() -> CleanRules {
    CleanRules {
        max_lag_ms: Some(1000),
        ..rules()
    }
}

fn settings() -> LogSettings {
    LogSettings {
        delete: false,
        segment_bytes: 1 << 20,
        ..small()
    }
}

fn start(disk: &CrashDisk) -> (Arc<Volume>, Log) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    open(disk, settings())
}

/// Three records of one key.
fn fill(volume: &Arc<Volume>, log: &mut Log) {
    for value in ["1", "2", "3"] {
        put(
            volume,
            log,
            keyed(Compression::None, 5, &[("a", Some(value))]),
        );
    }
}

/// As a host does it: what a pass finds unsynced is synced, and the pass tried again.
fn clean_as_a_host(log: &mut Log, rules: &CleanRules) {
    for _ in 0..3 {
        if log.cleanable(rules).unwrap().dirty_bytes == 0 {
            return;
        }
        if clean(log, rules.clone()).unwrap().is_none() {
            sync(log).unwrap();
        }
    }
}

fn values(log: &mut Log) -> Vec<Option<String>> {
    records(log).into_iter().map(|(.., value)| value).collect()
}

#[test]
fn the_last_segment_is_compacted_when_its_first_record_has_waited() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = start(&disk);
    fill(&volume, &mut log);
    let young = CleanRules {
        max_lag_ms: Some(10_000_000),
        ..rules()
    };
    for other in [rules(), young] {
        clean_as_a_host(&mut log, &other);
        assert_eq!(log.cleanable(&other).unwrap().dirty_bytes, 0);
        assert_eq!(values(&mut log).len(), 3);
    }
    clean_as_a_host(&mut log, &overdue());
    assert_eq!(values(&mut log), [Some("3".to_owned())]);
    let cleaned = CleanRules {
        cleaned: log.written(),
        ..overdue()
    };
    assert_eq!(log.cleanable(&cleaned).unwrap().dirty_bytes, 0);
    // It stays closed over a stop and a kill, and what comes next goes behind it.
    close(volume, log);
    for _ in 0..2 {
        let (volume, mut log) = start(&disk.kill());
        assert_eq!(log.loaded().unwrap().segments.len(), 2);
        put(
            &volume,
            &mut log,
            keyed(Compression::None, 5, &[("b", Some("4"))]),
        );
        assert_eq!(values(&mut log).len(), 2);
        // Of the first batch the header is left: an epoch begins with it.
        let batches = [(0, 1), (2, 1), (3, 1)];
        assert_eq!(read_all(&mut log, 0).unwrap(), batches);
    }
}

/// What a look at an idle log told the volume once: that its entries of the write-ahead log were not needed any more, while its
/// segment was not synced.
#[test]
fn a_look_at_what_only_the_write_ahead_log_holds_takes_nothing() {
    for seed in 0..20 {
        let disk = CrashDisk::new(seed);
        let (volume, mut log) = start(&disk);
        fill(&volume, &mut log);
        let end = log.synced();
        assert!(log.cleanable(&overdue()).unwrap().dirty_bytes > 0);
        volume.checkpoint(false).unwrap();
        let disk = disk.crash(seed);
        let (_volume, mut log) = start(&disk);
        assert_eq!(log.log_end_offset(), end);
        assert_eq!(values(&mut log).len(), 3);
    }
}

/// Until a file says where the last segment ends, and the checkpoint no longer says what recovery is to find in it, it stays as
/// it is; whatever else is under way.
#[test]
fn an_upkeep_that_was_out_brings_back_no_check_of_what_is_cleaned() {
    for seed in 0..20 {
        let disk = CrashDisk::new(seed);
        let (volume, mut log) = start(&disk);
        fill(&volume, &mut log);
        sync(&mut log).unwrap();
        log.loaded.get_mut().unwrap().epochs_dirty = true;
        let upkeep = log.sync_segments().unwrap();
        for _ in 0..2 {
            // The second one would find it closed.
            assert!(log.clean(overdue()).unwrap().is_none());
        }
        log.upkeep_done(upkeep.run()).unwrap();
        clean_as_a_host(&mut log, &overdue());
        assert_eq!(values(&mut log), [Some("3".to_owned())]);
        volume.checkpoint(false).unwrap();
        let disk = match seed % 2 {
            0 => disk.kill(),
            _ => disk.crash(seed),
        };
        for value in ["4", "5"] {
            let (volume, mut log) = start(&disk.kill());
            put(
                &volume,
                &mut log,
                keyed(Compression::None, 5, &[("b", Some(value))]),
            );
            assert_eq!(values(&mut log)[0], Some("3".to_owned()));
        }
    }
}
