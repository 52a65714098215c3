//! What consumers get.

use std::collections::BTreeMap;

use crate::history::{Place, What};
use crate::known::Known;
use crate::{Anomaly, Kind};

/// Under one assignment a consumer gets rising offsets and passes over nothing that it may see.
pub(super) fn order(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let mut positions: BTreeMap<&str, BTreeMap<&Place, i64>> = BTreeMap::new();
    for event in &known.events {
        let by = event.client.as_str();
        match &event.what {
            // Where it begins anew is decided by commits, resets and seeks.
            What::Assign { .. } => {
                positions.remove(by);
            }
            What::Poll { records, .. } => {
                let mine = positions.entry(by).or_default();
                for (place, offset, value) in records {
                    let Some(last) = mine.insert(place, *offset) else {
                        continue;
                    };
                    if *offset <= last {
                        let what =
                            format!("{place}: {by} got offset {offset}, {value:?}, after {last}");
                        found.push(Anomaly::new(Kind::NonMonotonicPoll, what));
                    } else if let Some((skipped, value)) = skipped(known, by, place, last, *offset)
                    {
                        let what = format!(
                            "{place}: {by} got offset {last}, then {offset}, and not {skipped}, {value:?}"
                        );
                        found.push(Anomaly::new(Kind::PollSkip, what));
                    }
                }
            }
            _ => {}
        }
    }
}

/// A record between two offsets that `by` should have got.
fn skipped<'a>(
    known: &Known<'a>,
    by: &str,
    place: &Place,
    last: i64,
    next: i64,
) -> Option<(i64, &'a str)> {
    let log = known.log.get(place)?;
    let read_committed = known.clients.get(by).is_some_and(|c| c.read_committed);
    for (offset, sights) in log.range(last + 1..next) {
        if known.excused(place, *offset) {
            continue;
        }
        for sight in sights {
            let visible = match known.txn_of(sight.value) {
                Some((_, txn)) => !read_committed || txn.committed(),
                None => true,
            };
            if visible {
                return Some((*offset, sight.value));
            }
        }
    }
    None
}

/// Readers of committed records see nothing else.
pub(super) fn isolation(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let mut look = |at: u64, by: &str, place: &Place, offset: i64, value: &str| {
        let Some((name, txn)) = known.txn_of(value) else {
            return;
        };
        let kind = if txn.aborted() {
            Kind::AbortedRead
        } else if txn.ending.is_none_or(|(asked, _)| asked > at) {
            Kind::PrecommittedRead
        } else {
            return;
        };
        let what =
            format!("{place} offset {offset}: {by} got {value:?} of transaction {name} at {at}");
        found.push(Anomaly::new(kind, what));
    };
    for event in &known.events {
        let by = event.client.as_str();
        match &event.what {
            What::Poll { records, .. }
                if known.clients.get(by).is_some_and(|c| c.read_committed) =>
            {
                for (place, offset, value) in records {
                    look(event.at, by, place, *offset, value);
                }
            }
            What::Whole {
                place,
                records,
                read_committed: true,
                ..
            } => {
                for (offset, value) in records {
                    look(event.at, by, place, *offset, value);
                }
            }
            _ => {}
        }
    }
}
