//! Stories of compaction.

use std::sync::Arc;

use riverlog_wire::batch::{BatchBuilder, Records, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{Offset, ProducerEpoch, ProducerId, Sequence};

use super::support::{
    KEY, append, as_leader, close, flush, open, put, read_bytes, small, sync, write,
};
use crate::disk::{CrashDisk, FaultOn, Survivors, Times};
use crate::log::clean::{CleanDone, CleanError, CleanRules, CleanStep};
use crate::log::{AppendAs, Log, LogSettings, Marker, ReadError};
use crate::{Disk, DiskError, OpenMode, Volume};

pub(super) fn rules() -> CleanRules {
    CleanRules {
        now_ms: 1_000_000,
        until: Offset(i64::MAX),
        cleaned: Offset(0),
        min_lag_ms: 0,
        max_lag_ms: None,
        delete_retention_ms: 1000,
        map_bytes: 1 << 20,
    }
}

/// One batch of records with those keys and values; no value is a tombstone.
pub(super) fn keyed(codec: Compression, at: i64, records: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for (key, value) in records {
        let header: (&[u8], Option<&[u8]>) = (b"h", Some(key.as_bytes()));
        let value = value.map(str::as_bytes);
        builder.push(at, Some(key.as_bytes()), value, &[header, (b"n", None)]);
    }
    builder.build()
}

fn of_producer(id: i64, sequence: i32, key: &str, transactional: bool) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence));
    if transactional {
        builder.transactional();
    }
    let value = format!("{key}{id}-{sequence}");
    builder.push(5, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    builder.build()
}

/// A batch of a transaction.
fn put_in_transaction(volume: &Arc<Volume>, log: &mut Log, id: i64, sequence: i32, key: &str) {
    let how = AppendAs::Transaction {
        epoch: 0.into(),
        now_ms: 5,
        verified: log.log_end_offset(),
    };
    log.append(of_producer(id, sequence, key, true), how)
        .unwrap();
    write(log).unwrap();
    flush(volume, log);
}

/// Its end.
fn end(volume: &Arc<Volume>, log: &mut Log, id: i64, committed: bool) {
    let marker = Marker {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 1,
        committed,
        transaction_version: 1,
    };
    log.append_marker(&marker, 0.into(), 5).unwrap();
    write(log).unwrap();
    flush(volume, log);
}

/// A whole pass.
pub(super) fn clean(log: &mut Log, rules: CleanRules) -> Result<Option<CleanDone>, CleanError> {
    let Some(mut pass) = log.clean(rules)? else {
        return Ok(None);
    };
    let result = loop {
        match pass.step(500) {
            Ok(CleanStep::More) => {}
            Ok(CleanStep::Done(done)) => break Ok(Some(done)),
            Ok(CleanStep::Replace(cleaned)) => {
                let upkeep = log.replace_cleaned(cleaned);
                if let Err(error) = upkeep.map_or(Ok(()), |u| log.upkeep_done(u.run())) {
                    break Err(error.into());
                }
                assert!(!log.is_replacing());
            }
            Err(error) => break Err(error),
        }
    };
    log.clean_over();
    result
}

/// Every record that can be read: offset, key, value.
pub(super) fn records(log: &mut Log) -> Vec<(i64, String, Option<String>)> {
    let mut out = Vec::new();
    let mut at = log.log_start_offset().0;
    while at < log.written().0 {
        let bytes = read_bytes(log, at, 400).unwrap();
        assert!(!bytes.is_empty(), "no way on from {at}");
        for batch in batches(&bytes) {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            assert!(batch.header.next_offset().0 > at);
            at = batch.header.next_offset().0;
            if batch.header.attributes.is_control() {
                continue;
            }
            let shared = bytes::Bytes::copy_from_slice(batch.bytes);
            for record in Records::shared(&shared, 1 << 20).unwrap().iter() {
                let record = record.unwrap();
                let text = |b: &bytes::Bytes| String::from_utf8(b.to_vec()).unwrap();
                out.push((
                    record.offset.0,
                    record.key.as_ref().map_or(String::new(), text),
                    record.value.as_ref().map(text),
                ));
            }
        }
    }
    out
}

/// Ends the segment, so that what it holds can be cleaned.
fn roll(volume: &Arc<Volume>, log: &mut Log) {
    let settings = log.settings.clone();
    log.set_settings(LogSettings {
        segment_bytes: 1,
        ..settings.clone()
    });
    put(volume, log, keyed(Compression::None, 5, &[("roll", None)]));
    log.set_settings(settings);
    sync(log).unwrap();
}

fn kept(log: &mut Log) -> Vec<String> {
    let shown = |(offset, key, value): (i64, String, Option<String>)| {
        format!("{offset} {key}={}", value.as_deref().unwrap_or("-"))
    };
    let all = records(log).into_iter().map(shown);
    all.filter(|r| !r.contains("roll")).collect()
}

/// Offset, records and offset after it of each batch.
fn stored(log: &mut Log) -> Vec<(i64, i32, i64)> {
    let mut out = Vec::new();
    let mut at = log.log_start_offset().0;
    while at < log.written().0 {
        let bytes = read_bytes(log, at, 400).unwrap();
        for batch in batches(&bytes) {
            let h = batch.unwrap().header;
            at = h.next_offset().0;
            out.push((h.base_offset.0, h.record_count, at));
        }
    }
    out
}

#[test]
fn the_time_of_a_tombstone_does_not_begin_before_the_map_has_its_key() {
    let (volume, mut log) = open(Arc::new(CrashDisk::new(1)), small());
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("a", Some("0"))]),
    );
    roll(&volume, &mut log);
    let many: Vec<String> = (0..40).map(|i| format!("k{i}")).collect();
    let mut records_of: Vec<(&str, Option<&str>)> =
        many.iter().map(|key| (key.as_str(), Some("1"))).collect();
    records_of.push(("a", None));
    let appended = put(&volume, &mut log, keyed(Compression::None, 5, &records_of));
    roll(&volume, &mut log);
    let small_map = CleanRules {
        map_bytes: 400,
        ..rules()
    };
    let first = clean(&mut log, small_map.clone()).unwrap().unwrap();
    assert!(first.cleaned > appended.first && first.cleaned < appended.next + -1);
    // Its pass comes when that time would be over.
    let mut cleaned = first.cleaned;
    for _ in 0..6 {
        let later = CleanRules {
            now_ms: 1_002_000,
            cleaned,
            ..small_map.clone()
        };
        match clean(&mut log, later).unwrap() {
            Some(done) => cleaned = done.cleaned,
            None => break,
        }
    }
    let left: Vec<_> = records(&mut log)
        .into_iter()
        .filter(|(_, key, _)| key == "a")
        .map(|(.., value)| value)
        .collect();
    assert_eq!(left, [None]);
}

#[test]
fn of_each_key_the_newest_record_stays_at_its_offset() {
    for codec in Compression::ALL {
        let (volume, mut log) = open(Arc::new(CrashDisk::new(1)), small());
        put(
            &volume,
            &mut log,
            keyed(codec, 5, &[("a", Some("1")), ("b", Some("1"))]),
        );
        put(
            &volume,
            &mut log,
            keyed(codec, 6, &[("c", Some("1")), ("a", Some("2"))]),
        );
        put(
            &volume,
            &mut log,
            keyed(codec, 7, &[("b", Some("2")), ("b", Some("3"))]),
        );
        roll(&volume, &mut log);
        let done = clean(&mut log, rules()).unwrap().unwrap();
        assert_eq!(done.cleaned, Offset(6));
        assert_eq!((done.records_before, done.records_after), (6, 3));
        assert!(done.bytes_after < done.bytes_before);
        assert_eq!(kept(&mut log), ["2 c=1", "3 a=2", "5 b=3"]);
        // The first batch is gone, but whoever asks for it goes on with the next.
        assert_eq!(
            stored(&mut log),
            [(0, 0, 2), (2, 2, 4), (4, 1, 6), (6, 1, 7)]
        );
        // A second pass finds nothing to do, and leaves everything as it is.
        let again = CleanRules {
            cleaned: done.cleaned,
            ..rules()
        };
        assert_eq!(clean(&mut log, again).unwrap(), None);
        close(volume, log);
    }
}

#[test]
fn headers_timestamps_and_bytes_of_untouched_batches_stay() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    put(
        &volume,
        &mut log,
        keyed(Compression::Zstd, 5, &[("a", Some("1")), ("b", Some("1"))]),
    );
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 6, &[("a", Some("2"))]),
    );
    let before = read_bytes(&mut log, 2, 400).unwrap();
    roll(&volume, &mut log);
    clean(&mut log, rules()).unwrap();
    assert_eq!(read_bytes(&mut log, 2, 10).unwrap(), before);
    let bytes = read_bytes(&mut log, 0, 10).unwrap();
    let all: Vec<_> = Records::shared(&bytes, 1000).unwrap().iter().collect();
    let record = all[0].as_ref().unwrap();
    assert_eq!((record.offset, record.timestamp), (Offset(1), 5));
    let headers: Vec<_> = record.headers.iter().collect();
    assert_eq!(headers[0].1.as_deref(), Some(&b"b"[..]));
    assert_eq!((&headers[1].0[..], &headers[1].1), (&b"n"[..], &None));
}

#[test]
fn a_tombstone_stays_until_its_horizon_and_the_key_never_returns() {
    let (volume, mut log) = open(Arc::new(CrashDisk::new(1)), small());
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("a", Some("1")), ("b", Some("1"))]),
    );
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("a", None), ("c", Some("1"))]),
    );
    roll(&volume, &mut log);
    let at = |now_ms| CleanRules { now_ms, ..rules() };
    clean(&mut log, at(10_000)).unwrap();
    assert_eq!(kept(&mut log), ["1 b=1", "2 a=-", "3 c=1"]);
    clean(&mut log, at(10_999)).unwrap();
    assert_eq!(kept(&mut log), ["1 b=1", "2 a=-", "3 c=1"]);
    clean(&mut log, at(11_000)).unwrap();
    assert_eq!(kept(&mut log), ["1 b=1", "3 c=1"]);
    // The horizon is stored with the batch: it doesn't begin anew with the process.
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("b", None)]),
    );
    roll(&volume, &mut log);
    clean(&mut log, at(20_000)).unwrap();
    assert!(kept(&mut log).contains(&"5 b=-".to_owned()));
}

#[test]
fn what_is_too_new_or_not_acknowledged_or_in_the_last_segment_stays() {
    let (volume, mut log) = open(Arc::new(CrashDisk::new(1)), small());
    let put_at = |log: &mut Log, at| {
        put(
            &volume,
            log,
            keyed(Compression::None, at, &[("a", Some("x"))]),
        );
        roll(&volume, log);
    };
    put_at(&mut log, 100);
    put_at(&mut log, 200);
    put_at(&mut log, 300);
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 300, &[("a", Some("x"))]),
    );
    let lag = CleanRules {
        now_ms: 1300,
        min_lag_ms: 1001,
        ..rules()
    };
    let found = log.cleanable(&lag).unwrap();
    assert_eq!(found.oldest_dirty_ms, Some(100));
    assert!(found.dirty_bytes > 0 && found.clean_bytes == 0);
    let done = clean(&mut log, lag).unwrap().unwrap();
    assert_eq!(done.cleaned, Offset(3));
    assert_eq!(kept(&mut log), ["2 a=x", "4 a=x", "6 a=x"]);
    let bounded = CleanRules {
        until: Offset(4),
        cleaned: Offset(3),
        ..rules()
    };
    assert_eq!(clean(&mut log, bounded).unwrap(), None);
    clean(&mut log, rules()).unwrap();
    assert_eq!(kept(&mut log), ["4 a=x", "6 a=x"]);
}

#[test]
fn small_segments_become_one_and_the_log_opens_with_it() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..60 {
        let key = format!("k{}", i % 10);
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, Some("0123456789"))]),
        );
    }
    roll(&volume, &mut log);
    let before = log.loaded().unwrap().segments.len();
    assert!(before > 5);
    clean(&mut log, rules()).unwrap();
    clean(&mut log, rules()).unwrap();
    let segments: Vec<i64> = log
        .loaded()
        .unwrap()
        .segments
        .iter()
        .map(|s| s.base.0)
        .collect();
    assert_eq!(segments[0], 0);
    assert!(segments.len() <= before / 2, "{segments:?}");
    let kept = records(&mut log);
    assert_eq!(kept.len(), 11);
    assert_eq!(log.size_bytes(), log.loaded().unwrap().written_bytes());
    let files = disk.list(&super::support::KEY.folder()).unwrap();
    let logs = files.iter().filter(|f| f.name.ends_with(".log")).count();
    assert_eq!(logs, segments.len());
    assert!(
        !files
            .iter()
            .any(|f| f.name.contains("cleaned") || f.name.contains("swap"))
    );
    close(volume, log);
    let (volume, mut log) = open(Arc::new(disk), small());
    assert_eq!(records(&mut log), kept);
    // A look-up by time finds records, not batches that have none.
    let found = log
        .find_time(55, log.log_end_offset())
        .unwrap()
        .run()
        .unwrap();
    assert_eq!(found.unwrap().offset, Offset(55));
    let largest = log.find_max_timestamp(log.log_end_offset()).unwrap();
    assert_eq!(largest.run().unwrap().unwrap().offset, Offset(59));
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 99, &[("k1", Some("new"))]),
    );
}

#[test]
fn a_map_that_is_full_leaves_the_rest_for_the_next_pass() {
    let (volume, mut log) = open(Arc::new(CrashDisk::new(1)), small());
    for i in 0..40 {
        let keys: Vec<String> = (0..3).map(|j| format!("k{}", (i * 3 + j) % 20)).collect();
        let records: Vec<(&str, Option<&str>)> =
            keys.iter().map(|k| (k.as_str(), Some("v"))).collect();
        put(&volume, &mut log, keyed(Compression::None, i, &records));
    }
    roll(&volume, &mut log);
    let mut cleaned = Offset(0);
    let mut passes = 0;
    loop {
        let few = CleanRules {
            cleaned,
            map_bytes: 8 * 24,
            ..rules()
        };
        let Some(done) = clean(&mut log, few).unwrap() else {
            break;
        };
        assert!(done.cleaned > cleaned);
        cleaned = done.cleaned;
        passes += 1;
    }
    assert!(passes > 5);
    assert_eq!(kept(&mut log).len(), 20);
}

#[test]
fn a_producers_last_batch_stays_without_records_so_that_its_sequence_is_known() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    put(&volume, &mut log, of_producer(7, 0, "a", false));
    put(&volume, &mut log, of_producer(7, 1, "a", false));
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("a", Some("other"))]),
    );
    roll(&volume, &mut log);
    clean(&mut log, rules()).unwrap();
    assert_eq!(
        stored(&mut log),
        [(0, 0, 1), (1, 0, 2), (2, 1, 3), (3, 1, 4)]
    );
    close(volume, log);
    for file in disk.list(&super::support::KEY.folder()).unwrap() {
        if file.name.ends_with("snapshot") {
            let path = format!("{}/{}", super::support::KEY.folder(), file.name);
            disk.remove_file(&path).unwrap();
        }
    }
    let (volume, mut log) = open(Arc::new(disk.crash(1)), small());
    let again = append(&mut log, of_producer(7, 1, "a", false)).unwrap();
    assert!(again.duplicate && again.first == Offset(1));
    assert!(append(&mut log, of_producer(7, 3, "a", false)).is_err());
    put(&volume, &mut log, of_producer(7, 2, "a", false));
}

#[test]
fn leader_epochs_begin_where_they_did() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for epoch in 0..4 {
        for _ in 0..3 {
            let batch = keyed(Compression::None, 5, &[("a", Some("x"))]);
            log.append(batch, as_leader(epoch)).unwrap();
        }
    }
    log.set_settings(LogSettings {
        segment_bytes: 1,
        ..small()
    });
    log.append(keyed(Compression::None, 5, &[("b", None)]), as_leader(4))
        .unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    sync(&mut log).unwrap();
    let ends: Vec<_> = (0..5).map(|e| log.epoch_end(e.into())).collect();
    clean(&mut log, rules()).unwrap();
    assert_eq!(stored(&mut log).len(), 6);
    assert_eq!(
        (0..5).map(|e| log.epoch_end(e.into())).collect::<Vec<_>>(),
        ends
    );
    close(volume, log);
    // Also when only the segments say so.
    let path = format!("{}/leader-epoch-checkpoint", super::support::KEY.folder());
    disk.remove_file(&path).unwrap();
    let (_volume, log) = open(Arc::new(disk), small());
    assert_eq!(
        (0..5).map(|e| log.epoch_end(e.into())).collect::<Vec<_>>(),
        ends
    );
}

#[test]
fn aborted_records_go_and_markers_follow_when_nothing_is_left_of_their_transaction() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("a", Some("old"))]),
    );
    put_in_transaction(&volume, &mut log, 1, 0, "a"); // 1, aborted
    put_in_transaction(&volume, &mut log, 2, 0, "b"); // 2, committed
    end(&volume, &mut log, 1, false); // 3
    end(&volume, &mut log, 2, true); // 4
    put_in_transaction(&volume, &mut log, 1, 1, "x"); // 5, committed
    put_in_transaction(&volume, &mut log, 2, 1, "b"); // 6, aborted
    end(&volume, &mut log, 1, true); // 7
    end(&volume, &mut log, 2, false); // 8
    roll(&volume, &mut log); // 9
    let at = |now_ms| CleanRules { now_ms, ..rules() };
    clean(&mut log, at(10_000)).unwrap();
    assert_eq!(kept(&mut log), ["0 a=old", "2 b=b2-0", "5 x=x1-1"]);
    let offsets = |log: &mut Log| stored(log).iter().map(|b| (b.0, b.1)).collect::<Vec<_>>();
    // Its producer's last one, at 6, stays empty. All markers stay: in this pass something was there.
    let all = [
        (0, 1),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 1),
        (6, 0),
        (7, 1),
        (8, 1),
        (9, 1),
    ];
    assert_eq!(offsets(&mut log), all);
    let aborted = |log: &mut Log| {
        let all = log.aborted(Offset(0), Offset(100));
        all.iter()
            .map(|a| (a.first.0, a.last.0))
            .collect::<Vec<_>>()
    };
    assert_eq!(aborted(&mut log), [(1, 3), (6, 8)]);
    // The second pass finds nothing of the first transaction, and sets the horizon of its marker.
    clean(&mut log, at(20_000)).unwrap();
    assert_eq!(offsets(&mut log), all);
    clean(&mut log, at(21_000)).unwrap();
    let left = [
        (0, 1),
        (2, 1),
        (4, 1),
        (5, 1),
        (6, 0),
        (7, 1),
        (8, 1),
        (9, 1),
    ];
    assert_eq!(offsets(&mut log), left);
    assert_eq!(kept(&mut log), ["0 a=old", "2 b=b2-0", "5 x=x1-1"]);
    // A reader who is told of an aborted transaction also meets its marker.
    assert_eq!(aborted(&mut log), [(6, 8)]);
    close(volume, log);
    let (_volume, mut log) = open(Arc::new(disk), small());
    assert_eq!(kept(&mut log), ["0 a=old", "2 b=b2-0", "5 x=x1-1"]);
    assert_eq!(aborted(&mut log), [(6, 8)]);
}

#[test]
fn an_open_transaction_holds_the_pass_back_and_a_marker_may_lie_above_it() {
    let (volume, mut log) = open(Arc::new(CrashDisk::new(1)), small());
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("a", Some("old"))]),
    );
    put_in_transaction(&volume, &mut log, 1, 0, "a"); // 1, aborted at 4
    put_in_transaction(&volume, &mut log, 2, 0, "b"); // 2, open
    put(
        &volume,
        &mut log,
        keyed(Compression::None, 5, &[("b", Some("new"))]),
    );
    end(&volume, &mut log, 1, false); // 4
    roll(&volume, &mut log);
    let done = clean(&mut log, rules()).unwrap().unwrap();
    assert_eq!(done.cleaned, Offset(2));
    assert_eq!(kept(&mut log), ["0 a=old", "2 b=b2-0", "3 b=new"]);
    end(&volume, &mut log, 2, true);
    roll(&volume, &mut log);
    let rest = CleanRules {
        cleaned: done.cleaned,
        ..rules()
    };
    clean(&mut log, rest).unwrap();
    assert_eq!(kept(&mut log), ["0 a=old", "3 b=new"]);
}

#[test]
fn damage_ends_a_pass_and_leaves_everything_else() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..40 {
        let key = format!("k{}", i % 10);
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, Some("0123456789"))]),
        );
    }
    roll(&volume, &mut log);
    close(volume, log);
    let path = format!("{}/{:020}.log", super::support::KEY.folder(), 0);
    disk.flip(&path, 200, 1).unwrap();
    let (_volume, mut log) = open(Arc::new(disk.clone()), small());
    let error = clean(&mut log, rules()).unwrap_err();
    assert!(
        matches!(&error, CleanError::Unreadable(r) if r.contains("damaged")),
        "{error}"
    );
    assert!(log.failed().is_none());
    let hit = read_bytes(&mut log, 2, 10).unwrap_err();
    assert!(matches!(hit, ReadError::Damaged { .. }));
    append(
        &mut log,
        keyed(Compression::None, 1, &[("k1", Some("new"))]),
    )
    .unwrap();
}

#[test]
fn readers_of_the_old_segments_keep_them() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..40 {
        let key = format!("k{}", i % 3);
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, Some("0123456789"))]),
        );
    }
    roll(&volume, &mut log);
    close(volume, log);
    let (_volume, mut log) = open(Arc::new(disk), small());
    let until = log.log_end_offset();
    // One that has found its slices, and one that has only been planned.
    let slices = super::support::read_slices(&mut log, 0, 300).unwrap();
    let plan = match log.read(Offset(14), until, 300).unwrap() {
        crate::Read::Plan(plan) => plan,
        crate::Read::Ready(_) => panic!("nothing is in memory"),
    };
    clean(&mut log, rules()).unwrap();
    let shape = super::support::shape(&slices.into_bytes().unwrap());
    assert_eq!(shape[..2], [(0, 1), (1, 1)]);
    let planned = super::support::shape(&plan.run().unwrap().into_bytes().unwrap());
    assert_eq!(planned[..2], [(14, 1), (15, 1)]);
    assert_eq!(records(&mut log).len(), 4);
}

#[test]
fn a_full_disk_ends_a_pass_and_a_later_one_does_it() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..40 {
        let key = format!("k{}", i % 3);
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, Some("0123456789"))]),
        );
    }
    roll(&volume, &mut log);
    let full = std::io::ErrorKind::StorageFull;
    disk.fail(FaultOn::Write, Times::Forever, full, |path| {
        path.ends_with("cleaned")
    });
    let failed = clean(&mut log, rules()).unwrap_err();
    assert!(matches!(failed, CleanError::Disk(e) if e.is_full()));
    disk.heal();
    disk.fail(FaultOn::Folder, Times::Once, full, |path| {
        path.ends_with("swap")
    });
    let failed = clean(&mut log, rules()).unwrap_err();
    assert!(matches!(failed, CleanError::Disk(e) if e.is_full()));
    assert!(log.failed().is_none());
    // What was interrupted is finished with the next upkeep.
    assert!(log.is_replacing());
    let again = log.sync_segments().unwrap();
    let done: Result<(), DiskError> = log.upkeep_done(again.run());
    done.unwrap();
    assert!(!log.is_replacing());
    clean(&mut log, rules()).unwrap();
    assert_eq!(records(&mut log).len(), 4);
}

#[test]
fn a_batch_that_was_taken_back_kept_a_log_that_nobody_wrote_to_from_being_cleaned() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..40 {
        let key = format!("k{}", i % 3);
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, Some("0123456789"))]),
        );
    }
    roll(&volume, &mut log);
    let full = std::io::ErrorKind::StorageFull;
    disk.fail(FaultOn::Write, Times::Once, full, |path| {
        path.ends_with(".log")
    });
    let no_room = keyed(Compression::None, 40, &[("k0", Some("no room"))]);
    append(&mut log, no_room).unwrap();
    flush(&volume, &mut log);
    write(&mut log).unwrap_err();
    flush(&volume, &mut log);
    // Recovery might do that again, so that no pass may begin; but one is due, and asks for what brings it to its end.
    assert!(log.cleanable(&rules()).unwrap().dirty_bytes > 0);
    assert!(log.clean(rules()).unwrap().is_none());
    sync(&mut log).unwrap();
    flush(&volume, &mut log);
    clean(&mut log, rules()).unwrap().unwrap();
    assert_eq!(records(&mut log).len(), 4);
}

#[test]
fn what_lies_before_the_start_goes_with_the_pass() {
    let (volume, mut log) = open(Arc::new(CrashDisk::new(1)), small());
    for i in 0..40 {
        let key = format!("k{i}");
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, Some("0123456789"))]),
        );
    }
    roll(&volume, &mut log);
    log.delete_records(Offset(3)).unwrap();
    clean(&mut log, rules()).unwrap();
    assert_eq!(stored(&mut log)[0], (3, 1, 4));
    assert_eq!(log.log_start_offset(), Offset(3));
    // Retention meets a pass that is under way.
    let mut pass = log.clean(rules()).unwrap().unwrap();
    let cleaned = loop {
        match pass.step(1 << 20).unwrap() {
            CleanStep::Replace(cleaned) => break cleaned,
            CleanStep::More => {}
            CleanStep::Done(_) => panic!("segments are left to be joined"),
        }
    };
    log.delete_records(Offset(30)).unwrap();
    let swap = log.replace_cleaned(cleaned).unwrap();
    assert!(
        log.retain(1_000_000, Offset(41)).is_none(),
        "one upkeep at a time"
    );
    log.upkeep_done(swap.run()).unwrap();
    log.clean_over();
    let removal = log.retain(1_000_000, Offset(41)).unwrap();
    log.upkeep_done(removal.run()).unwrap();
    assert_eq!(kept(&mut log).len(), 10);
}

#[test]
fn a_cleaned_log_is_whole_also_when_both_checkpoints_are_lost() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..60 {
        let key = format!("k{}", i % 10);
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, Some("0123456789"))]),
        );
    }
    roll(&volume, &mut log);
    clean(&mut log, rules()).unwrap();
    let kept = records(&mut log);
    close(volume, log);
    for path in ["checkpoint.0", "checkpoint.1"] {
        disk.remove_file(path).unwrap();
    }
    // What the write-ahead log still has would be done again.
    for file in disk.list("wal").unwrap() {
        disk.remove_file(&format!("wal/{}", file.name)).unwrap();
    }
    disk.open("accept-loss", crate::OpenMode::Create).unwrap();
    let (_volume, mut log) = open(Arc::new(disk), small());
    assert_eq!(records(&mut log), kept);
}

#[test]
fn a_flipped_bit_in_what_waits_for_its_place_takes_no_other_segment() {
    let disk = CrashDisk::new(1);
    let (volume, mut log) = open(Arc::new(disk.clone()), small());
    for i in 0..80 {
        let key = format!("k{}", i % 5);
        let value = Some("0123456789");
        put(
            &volume,
            &mut log,
            keyed(Compression::None, i, &[(&key, value)]),
        );
    }
    close(volume, log);
    let (mut whole, mut waiting) = (false, 0);
    for changes in 0.. {
        let attempt = disk.crash_with(1, Survivors::Everything);
        let (volume, mut log) = open(Arc::new(attempt.clone()), small());
        let first = log.loaded_mut().unwrap().segments[1].base;
        // The first two are joined, and many lie behind them.
        let only = CleanRules {
            until: first + 15,
            ..rules()
        };
        attempt.fail_after(changes);
        whole |= clean(&mut log, only).is_ok();
        drop((volume, log));
        let left = attempt.kill();
        let names = |disk: &CrashDisk| -> Vec<String> {
            let list = disk.list(&KEY.folder()).unwrap().into_iter();
            list.map(|e| e.name).collect()
        };
        let swap = names(&left).into_iter().find(|n| n.ends_with("swap"));
        if let Some(swap) = swap {
            waiting += 1;
            let swap = format!("{}/{swap}", KEY.folder());
            let file = left.open(&swap, OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            let all = batches(&bytes).map(|b| b.unwrap());
            let end = all.last().unwrap().header.next_offset();
            let behind: Vec<String> = names(&left)
                .into_iter()
                .filter(|n| n.ends_with(".log") && **n >= *format!("{:020}", end.0))
                .collect();
            assert!(behind.len() > 2, "{behind:?}");
            let sound = records_behind(&left, end);
            let mut at = 0;
            for b in batches(&bytes) {
                let b = b.unwrap();
                // Base offset, and last offset delta.
                for bit in (0..64).chain(23 * 8..27 * 8) {
                    let hurt = left.crash_with(1, Survivors::Everything);
                    hurt.flip(&swap, at + bit / 8, 1 << (bit % 8)).unwrap();
                    let case = format!("{changes}: bit {bit} of {}", b.header.base_offset);
                    assert_eq!(records_behind(&hurt, end), sound, "{case}");
                    // Nothing is missing but what a flipped bit can hide.
                    let gone = lost(&hurt);
                    assert!(gone.len() <= 1, "{case}: {gone:?}");
                }
                at += b.bytes.len() as u64;
            }
        }
        if whole {
            break;
        }
    }
    assert!(waiting > 2, "{waiting}");
}

/// What can be read from `from` on, after a start.
fn records_behind(disk: &CrashDisk, from: Offset) -> Vec<(i64, i64)> {
    let disk = disk.crash_with(1, Survivors::Everything);
    let (_volume, mut log) = open(Arc::new(disk), small());
    super::support::read_all(&mut log, from.0).unwrap()
}

/// Ranges that readers are told are damaged.
fn lost(disk: &CrashDisk) -> Vec<(i64, i64)> {
    let disk = disk.crash_with(1, Survivors::Everything);
    let (_volume, mut log) = open(Arc::new(disk), small());
    let (mut at, mut out) = (0, Vec::new());
    while at < log.log_end_offset().0 {
        match super::support::read_slices(&mut log, at, 500) {
            Ok(slices) => at = slices.next.0,
            Err(ReadError::Damaged { from, to, .. }) => {
                out.push((from.0, to.0));
                at = to.0;
            }
            Err(other) => panic!("{other}"),
        }
    }
    out
}
