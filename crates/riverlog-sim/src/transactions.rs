//! Transactions as their producers know them, and what readers of committed records may see of them.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_node::FetchedPartition;
use riverlog_wire::Offset;
use riverlog_wire::batch::{EndTxnMarker, batches};

use crate::model::Violation;

/// The topic that transactions write to; no other client touches it.
pub(crate) const TOPIC: &str = "transactions";
/// Its partitions.
pub(crate) const PARTITIONS: i32 = 3;

/// From this number on producers have the node's coordinator; those before are their own.
pub(crate) const MANAGED: usize = 100;

/// Producer and number of a transaction.
pub(crate) type Txn = (usize, i64);

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    /// Decided: from now on its markers are written, and readers may see it, or never.
    Committing,
    Aborting,
    /// All of its markers were answered.
    Committed,
    Aborted,
}

#[derive(Debug, Default)]
struct Known {
    fate: Option<Fate>,
    /// Partition and value of what was acknowledged.
    values: Vec<(i32, String)>,
    /// It commits its own number for the group of its producer.
    offset: bool,
    /// It may: it was asked for.
    offset_asked: bool,
}

/// All transactions of a run.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    all: BTreeMap<Txn, Known>,
    /// By transactional id: counts the instances that were told that they are it.
    owners: BTreeMap<usize, u64>,
}

impl Transactions {
    /// An instance was told that it is the producer of this transactional id. Returns its term.
    pub(crate) fn owns(&mut self, id: usize) -> u64 {
        let term = self.owners.entry(id).or_insert(0);
        *term += 1;
        *term
    }
    /// Whether nobody was told so since.
    pub(crate) fn is_owner(&self, id: usize, term: u64) -> bool {
        self.owners.get(&id) == Some(&term)
    }
    pub(crate) fn begin(&mut self, txn: Txn) {
        self.all.entry(txn).or_default().fate = Some(Fate::Open);
    }
    /// A record was acknowledged.
    pub(crate) fn sent(&mut self, txn: Txn, partition: i32, value: String) {
        self.all
            .entry(txn)
            .or_default()
            .values
            .push((partition, value));
    }
    /// Its commit of an offset is on its way.
    pub(crate) fn offset_asked(&mut self, txn: Txn) {
        self.all.entry(txn).or_default().offset_asked = true;
    }
    /// Its commit of an offset was acknowledged.
    pub(crate) fn offset_sent(&mut self, txn: Txn) {
        self.all.entry(txn).or_default().offset = true;
    }
    pub(crate) fn decide(&mut self, txn: Txn, commit: bool) {
        let fate = if commit {
            Fate::Committing
        } else {
            Fate::Aborting
        };
        self.all.entry(txn).or_default().fate = Some(fate);
    }
    pub(crate) fn ended(&mut self, txn: Txn, commit: bool) {
        let fate = if commit {
            Fate::Committed
        } else {
            Fate::Aborted
        };
        self.all.entry(txn).or_default().fate = Some(fate);
    }

    fn fate(&self, txn: Txn) -> Option<Fate> {
        self.all.get(&txn)?.fate
    }

    /// A reader of committed records has seen a value.
    pub(crate) fn seen(&self, value: &str) -> Result<(), Violation> {
        let fate = txn_of(value).and_then(|txn| self.fate(txn));
        match fate {
            Some(Fate::Committing | Fate::Committed) => Ok(()),
            _ => Err(Violation::new(
                "only what was committed is read as committed",
                format!("{value:?} is {fate:?}"),
            )),
        }
    }

    /// The last transaction of a producer that is known to have committed an offset.
    pub(crate) fn last_offset(&self, producer: usize) -> Option<i64> {
        let known = self.all.range((producer, 0)..(producer + 1, 0)).rev();
        let mut done = known.filter(|(_, k)| k.offset && k.fate == Some(Fate::Committed));
        done.next().map(|(txn, _)| txn.1)
    }

    /// What a group has committed was asked for when its last known offset was `at_least`.
    pub(crate) fn offset_seen(
        &self,
        producer: usize,
        at_least: Option<i64>,
        seen: Option<i64>,
    ) -> Result<(), Violation> {
        let fate = seen.and_then(|number| self.fate((producer, number)));
        let allowed = seen.is_none() || matches!(fate, Some(Fate::Committing | Fate::Committed));
        if allowed && seen >= at_least {
            return Ok(());
        }
        Err(Violation::new(
            "offsets count with their transaction, and not before",
            format!("group of {producer}: {seen:?} is {fate:?}, {at_least:?} was committed"),
        ))
    }

    /// All that is read as committed of a partition in the end.
    pub(crate) fn read_whole(&self, partition: i32, found: &[String]) -> Result<(), Violation> {
        let mut seen = BTreeSet::new();
        for value in found {
            self.seen(value)?;
            if !seen.insert(value.as_str()) {
                return Err(Violation::new(
                    "a committed record is there once",
                    format!("{value:?} in partition {partition}"),
                ));
            }
        }
        for known in self.all.values() {
            if known.fate != Some(Fate::Committed) {
                continue;
            }
            for (at, value) in &known.values {
                if *at == partition && !seen.contains(value.as_str()) {
                    return Err(Violation::new(
                        "a transaction is there as a whole or not at all",
                        format!("{value:?} was committed and is not in partition {partition}"),
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Transactions {
    /// Of a transaction that was told to commit, and never heard whether it did, all is there, or nothing; and its offset with
    /// it. `found`: all that is read as committed; `offsets`: what the groups of managed producers have.
    pub(crate) fn all_or_nothing(
        &self,
        found: &BTreeSet<String>,
        offsets: &BTreeMap<usize, Option<i64>>,
    ) -> Result<(), Violation> {
        for (txn, known) in &self.all {
            let there = known.values.iter().filter(|(_, v)| found.contains(v));
            let there = there.count();
            let split = there > 0 && there < known.values.len();
            let committed = known.fate == Some(Fate::Committed) || there > 0;
            let (mut behind, mut ahead) = (false, false);
            let offset = offsets.get(&txn.0);
            if let Some(offset) = offset {
                behind = known.offset && committed && offset.is_none_or(|o| o < txn.1);
                // Its offset counts, and what it wrote doesn't.
                let alone = there == 0 && !known.values.is_empty();
                ahead = *offset == Some(txn.1) && (!known.offset_asked || alone);
            }
            if split || behind || ahead {
                return Err(Violation::new(
                    "a transaction is there as a whole or not at all",
                    format!("{txn:?}, {known:?}: {there} are there, the offset is {offset:?}"),
                ));
            }
        }
        Ok(())
    }
}

/// The value of a record.
pub(crate) fn value_of(txn: Txn, count: u64) -> String {
    format!("{}/{}/{count}", txn.0, txn.1)
}

/// Whether it is of a producer with the node's coordinator, of which the history knows nothing.
pub(crate) fn is_managed(value: &str) -> bool {
    txn_of(value).is_some_and(|(producer, _)| producer >= MANAGED)
}

fn txn_of(value: &str) -> Option<Txn> {
    let mut parts = value.split('/');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The values that a consumer hands on of what it has read from `from` on under read committed, and where it goes on.
pub(crate) fn committed_of(
    part: FetchedPartition,
    from: Offset,
) -> Result<(Vec<(Offset, String)>, Offset), Violation> {
    let damaged = |what: String| Violation::new("damage is found, never served", what);
    let next = part.records.next;
    let mut aborted = part.aborted;
    aborted.sort_by_key(|(_, first)| *first);
    let mut aborted = aborted.into_iter().peekable();
    let mut producers = BTreeSet::new();
    let mut out = Vec::new();
    // The disk failed before the answer was out.
    let Ok(bytes) = part.records.into_bytes() else {
        return Ok((out, from));
    };
    for batch in batches(&bytes) {
        let batch = batch.map_err(|e| damaged(e.to_string()))?;
        batch.check_crc().map_err(|e| damaged(e.to_string()))?;
        let header = batch.header;
        while let Some((id, _)) = aborted.next_if(|(_, first)| *first <= header.last_offset()) {
            producers.insert(id);
        }
        let control = header.attributes.is_control();
        let skipped = producers.contains(&header.producer_id.0);
        let records = batch.records(1 << 20).map_err(|e| damaged(e.to_string()))?;
        for record in records.iter() {
            let record = record.map_err(|e| damaged(e.to_string()))?;
            if control {
                let marker = EndTxnMarker::parse(record.key.as_deref(), record.value.as_deref());
                if matches!(marker, Ok(Some(marker)) if !marker.committed) {
                    producers.remove(&header.producer_id.0);
                }
            } else if !skipped && record.offset >= from {
                let value = record.value.unwrap_or_default();
                out.push((record.offset, String::from_utf8_lossy(&value).into_owned()));
            }
        }
    }
    Ok((out, next.max(from)))
}
