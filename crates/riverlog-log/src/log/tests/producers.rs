//! Idempotent producers: B23, FC-12.

use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use super::support::*;
use crate::disk::{CrashDisk, MemoryDisk};
use crate::log::{AppendAs, AppendError, Log, LogSettings};
use crate::{Disk, OpenMode};

fn log() -> (Arc<crate::Volume>, Log) {
    open(Arc::new(MemoryDisk::new()), small())
}

fn expected(result: Result<crate::log::Appended, AppendError>) -> (i32, i32) {
    match result {
        Err(AppendError::OutOfOrderSequence { got, expected, .. }) => (got.0, expected.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_five_batches_are_recognised_and_older_ones_are_known_to_be_stored() {
    let (volume, mut log) = log();
    for i in 0..7 {
        put(&volume, &mut log, from_producer(1, 0, i * 2, 2));
    }
    for i in 2..7 {
        let again = append(&mut log, from_producer(1, 0, i * 2, 2)).unwrap();
        assert!(again.duplicate);
        assert_eq!(
            (again.first, again.next),
            (Offset(i64::from(i) * 2), Offset(i64::from(i) * 2 + 2))
        );
    }
    // Where the others lie isn't known, only that it is before the five.
    for (first, records) in [(0, 2), (2, 2), (0, 4), (1, 1)] {
        let again = append(&mut log, from_producer(1, 0, first, records)).unwrap();
        assert!(again.duplicate);
        assert_eq!((again.first, again.next), (Offset(-1), Offset(4)));
    }
    // One that reaches into the window was never sent like that.
    assert_eq!(
        expected(append(&mut log, from_producer(1, 0, 2, 3))),
        (2, 14)
    );
    // The same first sequence with another length is not that batch.
    assert_eq!(
        expected(append(&mut log, from_producer(1, 0, 12, 1))),
        (12, 14)
    );
    assert_eq!(log.log_end_offset(), Offset(14));
}

#[test]
fn a_gap_and_a_new_epoch_that_does_not_begin_at_zero_are_out_of_order() {
    let (volume, mut log) = log();
    put(&volume, &mut log, from_producer(1, 0, 0, 2));
    assert_eq!(
        expected(append(&mut log, from_producer(1, 0, 3, 1))),
        (3, 2)
    );
    assert_eq!(
        expected(append(&mut log, from_producer(1, 1, 3, 1))),
        (3, 0)
    );
    put(&volume, &mut log, from_producer(1, 1, 0, 1));
    let fenced = append(&mut log, from_producer(1, 0, 2, 1));
    assert!(matches!(
        fenced,
        Err(AppendError::FencedProducer {
            got: ProducerEpoch(0),
            current: ProducerEpoch(1),
            ..
        })
    ));
}

#[test]
fn an_unknown_producer_may_go_on_with_any_sequence() {
    let (volume, mut log) = log();
    put(&volume, &mut log, from_producer(1, 3, 500, 2));
    put(&volume, &mut log, from_producer(1, 3, 502, 1));
    assert_eq!(
        expected(append(&mut log, from_producer(1, 3, 500, 1))),
        (500, 503)
    );
}

#[test]
fn what_is_not_known_to_be_stored_is_out_of_order() {
    let (volume, mut log) = log();
    // What it sent before 500 never came here.
    for i in 0..7 {
        put(&volume, &mut log, from_producer(1, 3, 500 + i, 1));
    }
    assert!(
        append(&mut log, from_producer(1, 3, 500, 1))
            .unwrap()
            .duplicate
    );
    for (first, records) in [(499, 1), (499, 2), (0, 1), (508, 1)] {
        let told = expected(append(&mut log, from_producer(1, 3, first, records)));
        assert_eq!(told, (first, 507));
    }
    // Nor what an epoch before sent.
    for i in 0..7 {
        put(&volume, &mut log, from_producer(1, 4, i, 1));
    }
    assert!(
        append(&mut log, from_producer(1, 4, 1, 1))
            .unwrap()
            .duplicate
    );
    assert_eq!(
        expected(append(&mut log, from_producer(1, 4, 500, 1))),
        (500, 7)
    );
}

#[test]
fn a_follower_that_saw_a_gap_knows_of_nothing_before_it() {
    let (volume, mut log) = log();
    for i in 0..3 {
        put(&volume, &mut log, from_producer(1, 0, i, 1));
    }
    // The leader's log was compacted.
    for i in 10..17 {
        let mut batch = from_producer(1, 0, i, 1);
        riverlog_wire::batch::set_base_offset(&mut batch, log.log_end_offset());
        riverlog_wire::batch::set_leader_epoch(&mut batch, LeaderEpoch(0));
        log.append(batch, AppendAs::Follower).unwrap();
    }
    assert!(
        append(&mut log, from_producer(1, 0, 11, 1))
            .unwrap()
            .duplicate
    );
    for first in [2, 9] {
        let told = expected(append(&mut log, from_producer(1, 0, first, 1)));
        assert_eq!(told, (first, 17));
    }
}

#[test]
fn what_is_older_than_the_window_is_recognised_across_the_end_of_the_sequences() {
    let (volume, mut log) = log();
    let first = i32::MAX - 3;
    for i in 0..8 {
        let sequence = Sequence(first).plus(i).0;
        put(&volume, &mut log, from_producer(1, 0, sequence, 1));
    }
    for i in 0..3 {
        let sequence = Sequence(first).plus(i).0;
        let again = append(&mut log, from_producer(1, 0, sequence, 1)).unwrap();
        assert_eq!((again.first, again.next), (Offset(-1), Offset(3)));
    }
    assert_eq!(
        expected(append(&mut log, from_producer(1, 0, first - 1, 1))),
        (first - 1, 4)
    );
}

#[test]
fn sequences_wrap_to_zero() {
    let (volume, mut log) = log();
    put(&volume, &mut log, from_producer(1, 0, i32::MAX - 1, 2));
    put(&volume, &mut log, from_producer(1, 0, 0, 2));
    put(&volume, &mut log, from_producer(2, 0, i32::MAX, 3));
    put(&volume, &mut log, from_producer(2, 0, 2, 1));
    let again = append(&mut log, from_producer(2, 0, i32::MAX, 3)).unwrap();
    assert!(again.duplicate);
    assert_eq!(again.first, Offset(4));
}

#[test]
fn an_idle_producer_is_forgotten_and_goes_on() {
    let settings = LogSettings {
        producer_expiration_ms: 1_000,
        ..small()
    };
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), settings);
    // The records' own times are of 1970: what counts is when they came.
    put(&volume, &mut log, from_producer(1, 0, 0, 2));
    expire(&mut log, 1_000_000);
    expire(&mut log, 1_000_500);
    assert_eq!(log.producers().len(), 1);
    expire(&mut log, 1_001_001);
    assert_eq!(log.producers().len(), 0);
    let next = put(&volume, &mut log, from_producer(1, 0, 2, 1));
    assert_eq!(next.first, Offset(2));
}

#[test]
fn a_wall_clock_that_is_set_makes_no_producer_silent() {
    const DAY_MS: i64 = 86_400_000;
    let settings = LogSettings {
        producer_expiration_ms: DAY_MS as u64,
        ..small()
    };
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), settings);
    put(&volume, &mut log, from_producer(1, 0, 0, 1));
    let start = Duration::from_secs(1);
    log.expire_producers(1_000_000, start);
    // Ahead by ten days: what it sends again is known.
    let minute = Duration::from_secs(60);
    log.expire_producers(1_060_000 + 10 * DAY_MS, start + minute);
    assert!(
        append(&mut log, from_producer(1, 0, 0, 1))
            .unwrap()
            .duplicate
    );
    // Back again, and to where it was: silence goes on to be counted by the other clock.
    let half = Duration::from_millis(DAY_MS as u64 / 2);
    log.expire_producers(1_000_000 + DAY_MS / 2, start + half);
    assert_eq!(log.producers().len(), 1);
    log.expire_producers(1_000_000 + 40 * DAY_MS, start + half * 2);
    assert_eq!(log.producers().len(), 1);
    let later = start + half * 3;
    log.expire_producers(
        1_000_001 + 40 * DAY_MS + DAY_MS / 2,
        later + Duration::from_millis(1),
    );
    assert_eq!(log.producers().len(), 0);
}

#[test]
fn a_producer_that_spoke_after_the_clock_was_set_is_silent_from_then() {
    let settings = LogSettings {
        producer_expiration_ms: 3_600_000,
        ..small()
    };
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), settings);
    append(&mut log, from_producer(2, 0, 0, 1)).unwrap();
    log.expire_producers(0, Duration::ZERO);
    // It comes at 1,000,000, when the clock stood at 0 a moment before.
    put(&volume, &mut log, from_producer(1, 0, 0, 1));
    log.expire_producers(1_000_010, Duration::from_millis(10));
    assert_eq!(log.producers()[0].last_timestamp, 1_000_000);
}

#[test]
fn a_load_leaves_each_producer_an_hour_however_long_nobody_looked() {
    const HOUR_MS: i64 = 3_600_000;
    let settings = LogSettings {
        producer_expiration_ms: 24 * HOUR_MS as u64,
        ..small()
    };
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), settings.clone());
    put(&volume, &mut log, from_producer(1, 0, 0, 1));
    expire(&mut log, 1_000_000);
    close(volume, log);
    let (_volume, mut log) = open(disk, settings);
    log.know_transactions().unwrap();
    let started = 1_000_000 + 1_000 * HOUR_MS;
    expire(&mut log, started);
    assert!(
        append(&mut log, from_producer(1, 0, 0, 1))
            .unwrap()
            .duplicate
    );
    expire(&mut log, started + HOUR_MS);
    assert_eq!(log.producers().len(), 1);
    expire(&mut log, started + HOUR_MS + 1);
    assert_eq!(log.producers().len(), 0);
}

#[test]
fn an_idempotency_key_is_forgotten_after_an_hour() {
    let (volume, mut log) = log();
    let key = ProducerId::KEYED.0 + 7;
    put(&volume, &mut log, from_producer(key, 0, 1234, 2));
    put(&volume, &mut log, from_producer(1, 0, 0, 2));
    let again = append(&mut log, from_producer(key, 0, 1234, 2)).unwrap();
    assert!(again.duplicate);
    expire(&mut log, 1_000_000);
    expire(&mut log, 1_000_000 + ProducerId::KEYED_FOR_MS);
    assert_eq!(log.producers().len(), 2);
    expire(&mut log, 1_000_001 + ProducerId::KEYED_FOR_MS);
    let left = log.producers();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].id, ProducerId(1));
}

#[test]
fn a_hundred_thousand_producers_that_are_gone_take_nothing() {
    const PRODUCERS: i64 = 100_000;
    let settings = LogSettings {
        producer_expiration_ms: 1_000,
        retention_ms: None,
        ..LogSettings::default()
    };
    let disk = CrashDisk::new(1);
    let volume = crate::VolumeSettings {
        wal_bytes: 64 << 20,
        ..volume_settings()
    };
    let (volume, mut log) = open_with(Arc::new(disk.clone()), settings.clone(), volume);
    for id in 0..PRODUCERS {
        append(&mut log, from_producer(id, 0, 0, 1)).unwrap();
        if id % 500 == 0 {
            write(&mut log).unwrap();
        }
    }
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    expire(&mut log, 1_000_000);
    expire(&mut log, 1_001_001);
    assert_eq!(log.producers().len(), 0);
    put(&volume, &mut log, from_producer(PRODUCERS, 0, 0, 1));
    sync(&mut log).unwrap();
    flush(&volume, &mut log);
    // Neither in what is kept beside the log, nor after a start.
    let path = format!("{}/{:020}.snapshot", KEY.folder(), PRODUCERS + 1);
    let snapshot = disk.open(&path, OpenMode::Read).unwrap();
    assert!(snapshot.len().unwrap() < 100);
    drop((volume, log));
    let (_volume, log) = open(Arc::new(disk.kill()), settings);
    assert_eq!(log.log_end_offset(), Offset(PRODUCERS + 1));
    assert_eq!(log.producers().len(), 1);
}

#[test]
fn a_producer_with_a_batch_in_flight_is_not_forgotten() {
    let settings = LogSettings {
        producer_expiration_ms: 1_000,
        ..small()
    };
    let (_volume, mut log) = open(Arc::new(MemoryDisk::new()), settings);
    append(&mut log, from_producer(1, 0, 0, 1)).unwrap();
    expire(&mut log, 1_000_000);
    expire(&mut log, 9_000_000);
    assert_eq!(log.producers().len(), 1);
    write(&mut log).unwrap();
    expire(&mut log, 9_000_000);
    assert_eq!(log.producers().len(), 0);
}

#[test]
fn the_state_is_kept_though_the_records_are_gone() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), small());
    for i in 0..4 {
        put(&volume, &mut log, from_producer(1, 0, i, 1));
    }
    for i in 0..60 {
        put(&volume, &mut log, batch(1, i, &"x".repeat(100)));
    }
    log.delete_records(Offset(60)).unwrap();
    let upkeep = log.retain(0, Offset(64)).unwrap();
    log.upkeep_done(upkeep.run()).unwrap();
    let before = log.producers();
    assert_eq!(before.len(), 1);
    drop((volume, log));
    let (_volume, mut log) = open(disk, small());
    assert_eq!(log.producers(), before);
    assert!(
        append(&mut log, from_producer(1, 0, 0, 1))
            .unwrap()
            .duplicate
    );
    assert_eq!(
        expected(append(&mut log, from_producer(1, 0, 9, 1))),
        (9, 4)
    );
}

#[test]
fn a_deleted_batch_that_a_power_cut_took_was_forgotten_when_a_later_one_survived() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..5 {
        put(&volume, &mut log, from_producer(1, 0, i, 1));
        for at in 0..4 {
            put(&volume, &mut log, batch(1, at, "x"));
        }
    }
    assert!(log.loaded().unwrap().segments[1].base > Offset(5));
    let end = log.log_end_offset();
    log.delete_records(end).unwrap();
    flush(&volume, &mut log);
    drop((volume, log));
    // The second batch lies in the tail of the first segment, which was never synced; later segments happen to be there.
    let disk = disk.kill();
    let path = format!("{}/{:020}.log", KEY.folder(), 0);
    let file = disk.open(&path, OpenMode::Write).unwrap();
    file.set_len(200).unwrap();
    for _ in 0..2 {
        let (volume, mut log) = open(Arc::new(disk.clone()), small());
        for i in 0..5 {
            let again = append(&mut log, from_producer(1, 0, i, 1)).unwrap();
            assert!(again.duplicate, "batch {i}");
        }
        close(volume, log);
    }
}

#[test]
fn cutting_takes_the_state_back_to_what_the_log_says() {
    let (volume, mut log) = log();
    for i in 0..6 {
        put(&volume, &mut log, from_producer(1, 0, i, 1));
    }
    sync(&mut log).unwrap();
    for i in 6..9 {
        put(&volume, &mut log, from_producer(1, 0, i, 1));
    }
    append(&mut log, from_producer(2, 0, 0, 1)).unwrap();
    log.truncate(Offset(3)).unwrap();
    assert_eq!(log.log_end_offset(), Offset(3));
    let known = log.producers();
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].last_sequence, Sequence(2));
    assert!(
        append(&mut log, from_producer(1, 0, 0, 1))
            .unwrap()
            .duplicate
    );
    put(&volume, &mut log, from_producer(1, 0, 3, 1));
}

#[test]
fn a_marker_raises_the_epoch_and_the_next_batch_begins_at_zero() {
    let (volume, mut log) = log();
    in_transaction(&mut log, 9, 2, 0).unwrap();
    end(&mut log, 9, 3, true).unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    let known = log.producers()[0];
    assert_eq!(
        (known.epoch, known.last_sequence),
        (ProducerEpoch(3), Sequence(-1))
    );
    assert_eq!(
        expected(append(&mut log, from_producer(9, 3, 1, 1))),
        (1, 0)
    );
    put(&volume, &mut log, from_producer(9, 3, 0, 1));
}

#[test]
fn a_duplicate_under_log_append_time_is_answered_with_the_first_time() {
    let settings = LogSettings {
        log_append_time: true,
        ..small()
    };
    let (volume, mut log) = open(Arc::new(MemoryDisk::new()), settings);
    let at = |now_ms| AppendAs::Leader {
        epoch: 0.into(),
        now_ms,
    };
    let first = log.append(from_producer(1, 0, 0, 2), at(7_000)).unwrap();
    assert_eq!(first.log_append_time_ms, Some(7_000));
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    let again = log.append(from_producer(1, 0, 0, 2), at(9_000)).unwrap();
    assert!(again.duplicate);
    assert_eq!(again.log_append_time_ms, Some(7_000));
    let bytes = read_bytes(&mut log, 0, 1000).unwrap();
    let batch = riverlog_wire::batch::Batch::parse(&bytes).unwrap();
    batch.check_crc().unwrap();
    assert_eq!(batch.header.max_timestamp, 7_000);
}
