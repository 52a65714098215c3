//! Transactions: what may be appended, what is unstable, what is fenced.

use std::sync::Arc;

use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use super::support::{
    append, as_leader, close, end, expire, flush, from_producer, in_transaction, marker, open,
    small, sync, transactional, write,
};
use crate::Volume;
use crate::disk::{Disk, MemoryDisk, OpenMode};
use crate::log::{AppendAs, AppendError, Appended, Log, LogSettings};

fn log() -> (Arc<Volume>, Log) {
    open(Arc::new(MemoryDisk::new()), small())
}

fn refused<T: std::fmt::Debug>(result: Result<T, AppendError>) -> &'static str {
    match result {
        Err(AppendError::TransactionState { .. }) => "state",
        Err(AppendError::FencedProducer { .. }) => "producer",
        Err(AppendError::FencedCoordinator { .. }) => "coordinator",
        Err(AppendError::OutOfOrderSequence { .. }) => "sequence",
        Err(AppendError::Batch(_)) => "batch",
        other => panic!("not refused: {other:?}"),
    }
}

fn start_of(log: &Log, id: i64) -> Option<i64> {
    let producers = log.producers();
    let found = producers.iter().find(|p| p.id == ProducerId(id)).unwrap();
    found.transaction_start.map(|offset| offset.0)
}

fn is_open(log: &Log, id: i64, epoch: i16) -> bool {
    log.is_in_transaction(ProducerId(id), ProducerEpoch(epoch))
        .unwrap()
}

fn end_later(log: &mut Log, id: i64, epoch: i16) -> Result<Appended, AppendError> {
    let marker = crate::Marker {
        transaction_version: 2,
        ..marker(id, epoch, true)
    };
    log.append_marker(&marker, LeaderEpoch(0), 1_000_000)
}

#[test]
fn a_transaction_is_begun_only_when_its_coordinator_knows_of_it() {
    let (_volume, mut log) = log();
    assert_eq!(refused(append(&mut log, transactional(1, 0, 0))), "state");
    in_transaction(&mut log, 1, 0, 0).unwrap();
    assert_eq!(start_of(&log, 1), Some(0));
    assert!(is_open(&log, 1, 0) && !is_open(&log, 1, 1) && !is_open(&log, 2, 0));
    // From now on nobody has to be asked.
    append(&mut log, transactional(1, 0, 1)).unwrap();
    assert_eq!(start_of(&log, 1), Some(0));
    // But nothing else comes from this producer.
    assert_eq!(
        refused(append(&mut log, from_producer(1, 0, 2, 1))),
        "state"
    );
    // Sent again it is what it is: stored already.
    assert!(append(&mut log, transactional(1, 0, 1)).unwrap().duplicate);
    end(&mut log, 1, 0, true).unwrap();
    assert_eq!(start_of(&log, 1), None);
    assert_eq!(refused(append(&mut log, transactional(1, 0, 2))), "state");
    append(&mut log, from_producer(1, 0, 2, 1)).unwrap();
}

#[test]
fn a_batch_that_comes_after_its_transactions_marker_begins_no_new_one() {
    let (_volume, mut log) = log();
    in_transaction(&mut log, 1, 0, 0).unwrap();
    let verified = log.log_end_offset();
    end(&mut log, 1, 0, false).unwrap();
    let late = AppendAs::Transaction {
        epoch: LeaderEpoch(0),
        now_ms: 0,
        verified,
    };
    assert_eq!(refused(log.append(transactional(1, 0, 1), late)), "state");
    in_transaction(&mut log, 1, 0, 1).unwrap();
}

#[test]
fn a_raised_epoch_keeps_the_frames_of_the_transaction_before_out() {
    let (_volume, mut log) = log();
    in_transaction(&mut log, 1, 4, 0).unwrap();
    end_later(&mut log, 1, 5).unwrap();
    assert_eq!(refused(in_transaction(&mut log, 1, 4, 1)), "producer");
    assert_eq!(refused(in_transaction(&mut log, 1, 5, 1)), "sequence");
    in_transaction(&mut log, 1, 5, 0).unwrap();
    // The marker of the transaction before, once more: it doesn't end this one.
    assert_eq!(refused(end_later(&mut log, 1, 5)), "producer");
    assert!(is_open(&log, 1, 5));
    end_later(&mut log, 1, 6).unwrap();
    // And once more, with nothing open: it is here already.
    let before = log.log_end_offset();
    assert!(end_later(&mut log, 1, 6).unwrap().duplicate);
    assert_eq!(log.log_end_offset(), before);
}

#[test]
fn markers_are_fenced_by_producer_and_coordinator_epoch() {
    let (_volume, mut log) = log();
    in_transaction(&mut log, 1, 4, 0).unwrap();
    assert_eq!(refused(end(&mut log, 1, 3, true)), "producer");
    let of = |coordinator_epoch, epoch| crate::Marker {
        coordinator_epoch,
        ..marker(1, epoch, true)
    };
    log.append_marker(&of(7, 4), LeaderEpoch(0), 0).unwrap();
    in_transaction(&mut log, 1, 4, 1).unwrap();
    assert_eq!(
        refused(log.append_marker(&of(6, 4), LeaderEpoch(0), 0)),
        "coordinator"
    );
    log.append_marker(&of(8, 4), LeaderEpoch(0), 0).unwrap();
    assert_eq!(log.producers()[0].coordinator_epoch, 8);
    // A marker where nothing was written still raises the epoch, so that nothing of before comes after it.
    log.append_marker(&marker(2, 9, false), LeaderEpoch(0), 0)
        .unwrap();
    assert_eq!(refused(in_transaction(&mut log, 2, 8, 0)), "producer");
}

#[test]
fn a_transaction_of_an_earlier_epoch_takes_no_batch_of_a_later_one() {
    let (_volume, mut log) = log();
    in_transaction(&mut log, 1, 0, 0).unwrap();
    assert_eq!(refused(in_transaction(&mut log, 1, 1, 0)), "state");
    end(&mut log, 1, 1, false).unwrap();
    in_transaction(&mut log, 1, 1, 0).unwrap();
}

#[test]
fn a_client_writes_no_markers() {
    let (_volume, mut log) = log();
    let bytes = riverlog_wire::batch::EndTxnMarker {
        committed: true,
        coordinator_epoch: 0,
    }
    .batch(ProducerId(1), ProducerEpoch(0), 0);
    assert_eq!(refused(log.append(bytes, as_leader(0))), "batch");
}

#[test]
fn what_is_unstable_ends_when_the_marker_counts() {
    let (volume, mut log) = log();
    let unstable = |log: &Log, at: i64| log.first_unstable_offset(Offset(at)).map(|o| o.0);
    append(&mut log, from_producer(9, 0, 0, 3)).unwrap();
    in_transaction(&mut log, 1, 0, 0).unwrap();
    in_transaction(&mut log, 2, 0, 0).unwrap();
    assert_eq!(unstable(&log, 5), Some(3));
    // Nothing that is beyond the high watermark is seen anyway.
    assert_eq!(unstable(&log, 3), None);
    end(&mut log, 1, 0, true).unwrap();
    // The marker at 5 is not durable yet: who reads before it would see a commit that may still be lost.
    assert_eq!(unstable(&log, 5), Some(3));
    assert_eq!(unstable(&log, 6), Some(4));
    end(&mut log, 2, 0, false).unwrap();
    assert_eq!(unstable(&log, 6), Some(4));
    assert_eq!(unstable(&log, 7), None);
    log.settle_transactions(Offset(7));
    assert_eq!(unstable(&log, 7), None);
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    // Records that are deleted don't hold anything up before the start.
    in_transaction(&mut log, 1, 0, 1).unwrap();
    append(&mut log, from_producer(9, 0, 3, 3)).unwrap();
    write(&mut log).unwrap();
    log.delete_records(Offset(9)).unwrap();
    assert_eq!(unstable(&log, 11), Some(9));
}

#[test]
fn what_can_not_be_written_is_taken_back_with_its_transaction() {
    let (volume, mut log) = log();
    in_transaction(&mut log, 1, 0, 0).unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    let before = log.producers();
    end(&mut log, 1, 1, false).unwrap();
    in_transaction(&mut log, 1, 1, 0).unwrap();
    in_transaction(&mut log, 2, 0, 0).unwrap();
    append(&mut log, transactional(2, 0, 1)).unwrap();
    log.truncate(Offset(1)).unwrap();
    assert_eq!(log.producers(), before);
    assert_eq!(log.first_unstable_offset(Offset(1)), Some(Offset(0)));
    end(&mut log, 1, 1, true).unwrap();
    assert_eq!(log.first_unstable_offset(Offset(2)), None);
}

#[test]
fn open_transactions_survive_a_stop_and_a_crash_and_no_expiry_takes_them() {
    let disk = Arc::new(MemoryDisk::new());
    let settings = LogSettings {
        producer_expiration_ms: 10,
        ..small()
    };
    let (volume, mut log) = open(disk.clone(), settings.clone());
    append(&mut log, from_producer(9, 0, 0, 1)).unwrap();
    in_transaction(&mut log, 1, 3, 0).unwrap();
    in_transaction(&mut log, 2, 0, 0).unwrap();
    end(&mut log, 2, 1, false).unwrap();
    close(volume, log);
    let (volume, mut log) = open(disk.clone(), settings.clone());
    log.know_transactions().unwrap();
    assert_eq!(log.first_unstable_offset(Offset(4)), Some(Offset(1)));
    expire(&mut log, 2_000_000);
    expire(&mut log, 3_000_000);
    assert_eq!(log.producers().len(), 1);
    assert_eq!(refused(in_transaction(&mut log, 1, 2, 1)), "producer");
    append(&mut log, transactional(1, 3, 1)).unwrap();
    end(&mut log, 1, 4, true).unwrap();
    in_transaction(&mut log, 5, 0, 0).unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    let known = log.producers();
    // Not stopped cleanly.
    drop((volume, log));
    let (volume, mut log) = open(disk, settings);
    log.know_transactions().unwrap();
    let found = log.producers();
    for mut producer in known {
        let again = found.iter().find(|p| p.id == producer.id).unwrap();
        producer.last_timestamp = again.last_timestamp;
        assert_eq!(*again, producer);
    }
    assert_eq!(log.first_unstable_offset(Offset(7)), Some(Offset(6)));
    sync(&mut log).unwrap();
    flush(&volume, &mut log);
    end(&mut log, 5, 0, true).unwrap();
    assert_eq!(log.first_unstable_offset(Offset(8)), None);
}

/// Producer, first offset, marker and last stable offset of what was aborted in a range.
fn aborted(log: &mut Log, from: i64, until: i64) -> Vec<(i64, i64, i64, i64)> {
    log.know_transactions().unwrap();
    let all = log.aborted(Offset(from), Offset(until)).into_iter();
    all.map(|a| (a.producer_id.0, a.first.0, a.last.0, a.last_stable.0))
        .collect()
}

#[test]
fn readers_are_told_what_was_aborted_within_their_range() {
    let (volume, mut log) = log();
    in_transaction(&mut log, 1, 0, 0).unwrap();
    in_transaction(&mut log, 2, 0, 0).unwrap();
    end(&mut log, 2, 1, false).unwrap();
    end(&mut log, 1, 0, false).unwrap();
    in_transaction(&mut log, 1, 0, 1).unwrap();
    end(&mut log, 1, 0, true).unwrap();
    in_transaction(&mut log, 1, 0, 2).unwrap();
    end(&mut log, 1, 0, false).unwrap();
    // A marker where nothing was written aborts nothing.
    end(&mut log, 5, 1, false).unwrap();
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    let (two, one, again) = ((2, 1, 2, 0), (1, 0, 3, 4), (1, 6, 7, 8));
    assert_eq!(aborted(&mut log, 0, 9), [two, one, again]);
    assert_eq!(aborted(&mut log, 0, 1), [one]);
    assert_eq!(aborted(&mut log, 3, 6), [one]);
    assert_eq!(aborted(&mut log, 4, 6), []);
    assert_eq!(aborted(&mut log, 4, 9), [again]);
    assert_eq!(aborted(&mut log, 8, 9), []);
}

#[test]
fn the_index_of_what_was_aborted_is_kafkas_and_is_made_again_when_it_is_damaged() {
    let disk = Arc::new(MemoryDisk::new());
    let (volume, mut log) = open(disk.clone(), small());
    let folder = super::support::KEY.folder();
    // Over several segments, with transactions that reach from one into the next.
    let mut sequences = [0; 3];
    for i in 0..60 {
        let id = i % 3;
        in_transaction(&mut log, id as i64, 0, sequences[id]).unwrap();
        sequences[id] += 1;
        if i % 5 == 4 {
            end(&mut log, id as i64, 0, i % 2 == 0).unwrap();
        }
        write(&mut log).unwrap();
    }
    let until = log.log_end_offset().0;
    let known = aborted(&mut log, 0, until);
    assert!(known.len() > 4);
    close(volume, log);
    let files = || -> Vec<String> {
        let all = disk.list(&folder).unwrap().into_iter().map(|e| e.name);
        let mut all: Vec<String> = all.filter(|name| name.ends_with("txnindex")).collect();
        all.sort();
        all
    };
    assert!(files().len() > 1, "{:?}", files());
    let stored = || -> Vec<(i64, i64, i64, i64)> {
        let each = files().into_iter().flat_map(|name| {
            let path = format!("{folder}/{name}");
            let file = disk.open(&path, OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            crate::format::parse_aborted(&bytes).unwrap()
        });
        each.map(|a| (a.producer_id.0, a.first.0, a.last.0, a.last_stable.0))
            .collect()
    };
    assert_eq!(stored(), known);
    for damage in 0..3 {
        for name in files() {
            let path = format!("{folder}/{name}");
            let file = disk.open(&path, OpenMode::Write).unwrap();
            match damage {
                0 => disk.remove_file(&path).unwrap(),
                1 => file.set_len(10).unwrap(),
                _ => file.write_at(&[&[9]], 12).unwrap(),
            }
        }
        let (volume, mut log) = open(disk.clone(), small());
        assert_eq!(aborted(&mut log, 0, until), known, "damage {damage}");
        close(volume, log);
        assert_eq!(stored(), known, "damage {damage}");
    }
    // Cut with the log, and gone with its segments.
    let (volume, mut log) = open(disk.clone(), small());
    let cut = until / 2;
    log.truncate(Offset(cut)).unwrap();
    let left: Vec<_> = known.iter().filter(|a| a.2 < cut).copied().collect();
    assert_eq!(aborted(&mut log, 0, cut), left);
    close(volume, log);
    assert_eq!(stored(), left);
    let (volume, mut log) = open(disk.clone(), small());
    log.delete_records(Offset(cut)).unwrap();
    if let Some(upkeep) = log.retain(0, Offset(cut)) {
        log.upkeep_done(upkeep.run()).unwrap();
    }
    close(volume, log);
    assert_eq!(stored(), []);
}
