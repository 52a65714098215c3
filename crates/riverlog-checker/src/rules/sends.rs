//! What producers were promised.

use std::collections::{BTreeMap, BTreeSet};

use crate::known::Known;
use crate::{Anomaly, Kind};

/// What was acknowledged before a partition was read as a whole is in what was read.
pub(super) fn lost(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    for committed_only in [false, true] {
        for (place, whole) in known.last_wholes(committed_only) {
            let at: BTreeSet<(i64, &str)> = whole
                .records
                .iter()
                .map(|(o, v)| (*o, v.as_str()))
                .collect();
            let values: BTreeSet<&str> = at.iter().map(|(_, value)| *value).collect();
            for (value, sent) in known.sent.iter().filter(|(_, sent)| sent.place == place) {
                // Without isolation a record needs no commit to be there, but an abort may be followed by deletion.
                if known
                    .promised(sent)
                    .is_none_or(|since| since >= whole.since)
                {
                    continue;
                }
                let Some((_, offset)) = sent.acked else {
                    continue;
                };
                let there = match offset {
                    Some(offset) => at.contains(&(offset, *value)) || known.excused(place, offset),
                    None => values.contains(value),
                };
                if !there {
                    let offset = offset.map_or("no offset".to_owned(), |o| format!("offset {o}"));
                    let what = format!(
                        "{place} {value:?} was acknowledged to {} with {offset} and is not there in the end",
                        sent.client
                    );
                    found.push(Anomaly::new(Kind::Lost, what));
                }
            }
        }
    }
    found.dedup();
}

/// One offset, one content, for everyone and for ever.
pub(super) fn inconsistent(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    for (place, log) in &known.log {
        for (offset, sights) in log {
            if let [first, others @ ..] = sights.as_slice() {
                for other in others {
                    let what = format!(
                        "{place} offset {offset} was {:?} for {} at {} and {:?} for {} at {}",
                        first.value, first.by, first.at, other.value, other.by, other.at
                    );
                    found.push(Anomaly::new(Kind::InconsistentOffset, what));
                }
            }
        }
    }
}

/// What is read was sent, to there, and not refused.
pub(super) fn never_sent(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    for (place, log) in &known.log {
        for (offset, sights) in log {
            for sight in sights {
                let (value, by) = (sight.value, sight.by);
                match known.sent.get(value) {
                    Some(sent) if sent.place != *place => {
                        let what = format!(
                            "{place} offset {offset}: {by} read {value:?}, which was sent to {}",
                            sent.place
                        );
                        found.push(Anomaly::new(Kind::NeverSent, what));
                    }
                    Some(sent)
                        if sent.refused == sent.times && !sent.perhaps && sent.acked.is_none() =>
                    {
                        let what = format!(
                            "{place} offset {offset}: {by} read {value:?}, whose send was refused"
                        );
                        found.push(Anomaly::new(Kind::RefusedButStored, what));
                    }
                    Some(_) => {}
                    None => {
                        let what = format!(
                            "{place} offset {offset}: {by} read {value:?} that nobody sent"
                        );
                        found.push(Anomaly::new(Kind::NeverSent, what));
                    }
                }
            }
        }
    }
}

/// A value lies at no more offsets than it was sent, unless its producer sends again without idempotence.
pub(super) fn duplicate(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    for ((place, value), offsets) in &known.offsets {
        let Some(sent) = known.sent.get(value) else {
            continue;
        };
        let client = known.clients.get(sent.client).copied().unwrap_or_default();
        if offsets.len() > sent.times && (client.idempotent || !client.retries) {
            let what = format!(
                "{place} {value:?}, sent {} times by {}, lies at {offsets:?}",
                sent.times, sent.client
            );
            found.push(Anomaly::new(Kind::Duplicate, what));
        }
    }
}

/// What an idempotent producer sent later lies later.
pub(super) fn order(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let mut sends: BTreeMap<_, Vec<(u64, &str, i64)>> = BTreeMap::new();
    for (value, sent) in &known.sent {
        let idempotent = known.clients.get(sent.client).is_some_and(|c| c.idempotent);
        if let Some((_, Some(offset))) = sent.acked
            && idempotent
            && sent.times == 1
        {
            let of = sends.entry((sent.client, sent.place)).or_default();
            of.push((sent.at, value, offset));
        }
    }
    for ((client, place), mut sends) in sends {
        sends.sort_unstable();
        for pair in sends.windows(2) {
            if let [(at, value, offset), (later, next, behind)] = pair
                && at < later
                && behind < offset
            {
                let what = format!(
                    "{place}: {client} sent {value:?} before {next:?}, which lie at {offset} and {behind}"
                );
                found.push(Anomaly::new(Kind::NonMonotonicSend, what));
            }
        }
    }
}
