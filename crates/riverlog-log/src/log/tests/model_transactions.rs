//! The part of the model that is about transactions: what a reader of committed records sees.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_wire::batch::{Batch, BatchHeader, EndTxnMarker, set_base_offset, set_leader_epoch};
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use super::model::{Known, Run};
use super::support::transactional;
use crate::DiskError;
use crate::log::{AppendAs, AppendError, Marker, ReadError};

/// Ids of transactional producers.
const IDS: u64 = 3;
const FIRST_ID: i64 = 10;

/// A batch of a transaction, or the end of one.
pub(super) fn step(run: &mut Run) -> Result<(), DiskError> {
    print!("transaction    ");
    let id = FIRST_ID + run.random.below(IDS) as i64;
    let log = run.log.as_mut().unwrap();
    log.know_transactions()?;
    let known = log.producers().into_iter().find(|p| p.id.0 == id);
    let (epoch, next, open) = match &known {
        Some(known) => (
            known.epoch.0,
            known.last_sequence.plus(1).0,
            known.transaction_start.is_some(),
        ),
        None => (0, 0, false),
    };
    let (model_epoch, now_ms) = (run.model.epoch, run.model.now_ms);
    let end = log.log_end_offset();
    let (result, mut bytes) = if open && run.random.one_in(3) {
        let committed = run.random.one_in(2);
        let raised = run.random.one_in(2);
        let marker = Marker {
            producer_id: ProducerId(id),
            producer_epoch: ProducerEpoch(epoch + i16::from(raised)),
            coordinator_epoch: 4,
            transaction_version: if raised { 2 } else { 1 },
            committed,
        };
        let control = EndTxnMarker {
            committed,
            coordinator_epoch: 4,
        };
        let bytes = control.batch(marker.producer_id, marker.producer_epoch, now_ms);
        let appended = log.append_marker(&marker, LeaderEpoch(model_epoch), now_ms);
        (appended, bytes)
    } else {
        let bytes = transactional(id, epoch, next);
        let how = AppendAs::Transaction {
            epoch: LeaderEpoch(model_epoch),
            now_ms,
            verified: end,
        };
        (log.append(bytes.clone(), how), bytes)
    };
    let appended = match result {
        Ok(appended) => appended,
        Err(AppendError::Disk(error)) => return Err(error),
        Err(other) => panic!("{other}"),
    };
    assert!(!appended.duplicate);
    assert_eq!((appended.first, appended.next), (end, end + 1));
    set_base_offset(&mut bytes, end);
    set_leader_epoch(&mut bytes, LeaderEpoch(model_epoch));
    let known = Known {
        base: end.0,
        next: end.0 + 1,
        bytes,
    };
    run.model.ever.insert(known.clone());
    run.model.log.push(known);
    Ok(())
}

fn parts(known: &Known) -> (BatchHeader, Option<EndTxnMarker>) {
    let batch = Batch::parse(&known.bytes).unwrap();
    let marker = batch.header.attributes.is_control().then(|| {
        let records = batch.records(1000).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        EndTxnMarker::parse(key, value).unwrap().unwrap()
    });
    (batch.header, marker)
}

/// Base offsets of what was aborted, of what was committed, and of what is open.
fn decided(log: &[Known]) -> (BTreeSet<i64>, BTreeSet<i64>, BTreeSet<i64>) {
    let (mut aborted, mut committed) = (BTreeSet::new(), BTreeSet::new());
    let mut open: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for known in log {
        let (header, marker) = parts(known);
        if !header.attributes.is_transactional() {
            continue;
        }
        let batches = open.entry(header.producer_id.0).or_default();
        match marker {
            None => batches.push(known.base),
            Some(marker) if marker.committed => committed.extend(std::mem::take(batches)),
            Some(_) => aborted.extend(std::mem::take(batches)),
        }
    }
    let open = open.into_values().flatten().collect();
    (aborted, committed, open)
}

/// What a consumer leaves out of these batches, going by the list of aborted transactions that came with them.
fn left_out(batches: &[&Known], mut aborted: Vec<(i64, i64)>) -> BTreeSet<i64> {
    aborted.sort_by_key(|(_, first)| *first);
    let mut aborted = aborted.into_iter().peekable();
    let mut producers = BTreeSet::new();
    let mut out = BTreeSet::new();
    for known in batches {
        let (header, marker) = parts(known);
        while let Some((id, _)) = aborted.next_if(|(_, first)| *first <= header.last_offset().0) {
            producers.insert(id);
        }
        match marker {
            Some(marker) if !marker.committed => {
                producers.remove(&header.producer_id.0);
            }
            Some(_) => {}
            None if header.attributes.is_transactional()
                && producers.contains(&header.producer_id.0) =>
            {
                out.insert(known.base);
            }
            None => {}
        }
    }
    out
}

/// Of `found`, which is all that is written from the start on, a reader of committed records sees what was committed.
pub(super) fn check(run: &mut Run, found: &[Known]) -> Result<(), ReadError> {
    let written = run.log().written().0;
    let start = run.log().log_start_offset().0;
    run.log().know_transactions()?;
    let known: Vec<Known> = (run.model.log.iter())
        .filter(|b| b.next <= written)
        .cloned()
        .collect();
    let (aborted, committed, open) = decided(&known);
    let end = Offset(written);
    if !run.model.forgotten {
        let first = open.first().map(|first| Offset((*first).max(start)));
        let first = first.filter(|first| *first < end);
        assert_eq!(run.log().first_unstable_offset(end), first);
    }
    for whole in [true, false] {
        let (from, until) = if whole || found.is_empty() {
            (start, written)
        } else {
            let from = start + run.random.below((written - start) as u64) as i64;
            let until = from + 1 + run.random.below((written - from) as u64) as i64;
            (from, until)
        };
        let batches: Vec<&Known> = (found.iter())
            .filter(|b| b.next > from && b.base < until)
            .collect();
        let list = run.log().aborted(Offset(from), Offset(until));
        let list = list.iter().map(|a| (a.producer_id.0, a.first.0)).collect();
        let out = left_out(&batches, list);
        for batch in batches {
            let at = batch.base;
            if aborted.contains(&at) {
                assert!(out.contains(&at), "{at} was aborted; {from}..{until}");
            }
            if committed.contains(&at) {
                assert!(!out.contains(&at), "{at} was committed; {from}..{until}");
            }
        }
    }
    Ok(())
}
