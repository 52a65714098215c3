//! What holds between records of a transaction, and between transactions.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::What;
use crate::known::Known;
use crate::{Anomaly, Kind};

/// In the end all acknowledged records of a transaction are visible, or none.
pub(super) fn torn(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let wholes = known.last_wholes(true);
    let mut visible: BTreeSet<&str> = BTreeSet::new();
    for whole in wholes.values() {
        visible.extend(whole.records.iter().map(|(_, value)| value.as_str()));
    }
    for (name, txn) in &known.txns {
        // A transaction that was still on its way when the reading began may be seen by one read and not by the other.
        let settled = |at: u64| {
            let places = txn
                .values
                .iter()
                .filter_map(|v| known.sent.get(v)?.acked?.1.map(|_| known.sent.get(v)));
            places
                .flatten()
                .all(|sent| wholes.get(sent.place).is_none_or(|whole| at < whole.since))
        };
        let last = txn.ended.map(|(at, _)| at).or(txn.ending.map(|(at, _)| at));
        if !last.is_some_and(settled) {
            continue;
        }
        let (mut seen, mut hidden) = (Vec::new(), Vec::new());
        for value in &txn.values {
            let Some(sent) = known.sent.get(value) else {
                continue;
            };
            let Some((_, Some(offset))) = sent.acked else {
                continue;
            };
            if !wholes.contains_key(sent.place) || known.excused(sent.place, offset) {
                continue;
            }
            match visible.contains(value) {
                true => seen.push(*value),
                false => hidden.push(*value),
            }
        }
        if let ([shown, ..], [missing, ..]) = (seen.as_slice(), hidden.as_slice()) {
            let what = format!(
                "of transaction {name} {} records are visible, {shown:?} say, and {} are not, {missing:?} say",
                seen.len(),
                hidden.len()
            );
            found.push(Anomaly::new(Kind::TornTransaction, what));
        }
    }
}

/// No committed transactions that each read what the next one wrote, in a circle.
pub(super) fn circular(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let committed = |name: &str| known.txns.get(name).is_some_and(|txn| txn.committed());
    // From a reader to the writers that it read from.
    let mut reads: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for event in &known.events {
        let What::Poll {
            records,
            txn: Some(reader),
            ..
        } = &event.what
        else {
            continue;
        };
        if !committed(reader) {
            continue;
        }
        for (_, _, value) in records {
            if let Some((writer, _)) = known.txn_of(value)
                && writer != reader
                && committed(writer)
            {
                reads.entry(reader).or_default().insert(writer);
            }
        }
    }
    // Depth first: a transaction that is met again on the way from itself closes a circle.
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in reads.keys() {
        let mut way: Vec<(&str, Vec<&str>)> = Vec::new();
        let next = |name: &str| -> Vec<&str> {
            reads
                .get(name)
                .map(|writers| writers.iter().rev().copied().collect())
                .unwrap_or_default()
        };
        if done.insert(start) {
            way.push((start, next(start)));
        }
        while let Some((_, open)) = way.last_mut() {
            let Some(writer) = open.pop() else {
                way.pop();
                continue;
            };
            if let Some(at) = way.iter().position(|(name, _)| *name == writer) {
                let circle: Vec<&str> = way.iter().skip(at).map(|(name, _)| *name).collect();
                let what = format!(
                    "transactions {} read each from the next, and the last from the first",
                    circle.join(", ")
                );
                found.push(Anomaly::new(Kind::G1c, what));
            } else if done.insert(writer) {
                way.push((writer, next(writer)));
            }
        }
    }
}
