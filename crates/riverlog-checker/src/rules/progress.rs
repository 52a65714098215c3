//! In the end everything is read and everyone moves.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Place, What};
use crate::known::Known;
use crate::{Anomaly, Kind};

/// A group that has read everything has got every promised record of the partitions that it ever had.
pub(super) fn unseen(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let group_of = |client: &str| known.clients.get(client).and_then(|c| c.group);
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut places: BTreeMap<&str, BTreeSet<&Place>> = BTreeMap::new();
    for event in &known.events {
        match (&event.what, group_of(&event.client)) {
            (What::Assign { places: assigned }, Some(group)) => {
                places.entry(group).or_default().extend(assigned);
            }
            (What::Poll { records, .. }, Some(group)) => {
                let seen = seen.entry(group).or_default();
                seen.extend(records.iter().map(|(_, _, value)| value.as_str()));
            }
            (What::Drained { group }, _) => {
                let none = BTreeSet::new();
                let seen = seen.get(group.as_str()).unwrap_or(&none);
                let no_places = BTreeSet::new();
                let had = places.get(group.as_str()).unwrap_or(&no_places);
                for (value, sent) in &known.sent {
                    let promised = known.promised(sent).is_some_and(|since| since < event.at);
                    let excused = match sent.acked {
                        Some((_, Some(offset))) => known.excused(sent.place, offset),
                        _ => false,
                    };
                    if promised && !excused && had.contains(sent.place) && !seen.contains(value) {
                        let what = format!(
                            "{} {value:?} was acknowledged to {} and group {group} never got it",
                            sent.place, sent.client
                        );
                        found.push(Anomaly::new(Kind::Unseen, what));
                    }
                }
            }
            _ => {}
        }
    }
}

/// After the last fault producers are answered, consumers' polls return, groups come to an end.
pub(super) fn stuck(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let Some((healed, deadline)) = known.deadline() else {
        return;
    };
    let mut say = |what: String| found.push(Anomaly::new(Kind::Stuck, what));
    // Clients with something under way or begun since, and those that were answered.
    let mut tried: BTreeMap<&str, u64> = BTreeMap::new();
    for sent in known.sent.values() {
        let pending = sent.acked.is_none() && sent.refused == 0 && !sent.perhaps;
        if sent.at <= deadline && (pending || sent.at >= healed) {
            *tried.entry(sent.client).or_default() += 1;
        }
    }
    let mut moved: BTreeSet<&str> = BTreeSet::new();
    let mut polled: BTreeSet<&str> = BTreeSet::new();
    let mut returned: BTreeSet<&str> = BTreeSet::new();
    let mut members: BTreeSet<&str> = BTreeSet::new();
    let mut drained: BTreeSet<&str> = BTreeSet::new();
    for event in &known.events {
        let by = event.client.as_str();
        let in_time = event.at >= healed && event.at <= deadline;
        match &event.what {
            What::Ack { .. } if in_time => {
                moved.insert(by);
            }
            What::Poll { .. } => {
                polled.insert(by);
                if in_time {
                    returned.insert(by);
                }
            }
            What::Drained { group } => {
                drained.insert(group);
            }
            _ => {}
        }
    }
    for (name, client) in &known.clients {
        let gone = client.closed.is_some_and(|at| at < deadline);
        if let Some(sends) = tried.get(name)
            && !moved.contains(name)
            && client.closed.is_none_or(|at| at >= healed)
        {
            say(format!(
                "{name} has {sends} sends and no acknowledgement since the last fault"
            ));
        }
        if polled.contains(name) && !returned.contains(name) && !gone {
            say(format!(
                "no poll of {name} has returned since the last fault"
            ));
        }
        if let Some(group) = client.group
            && polled.contains(name)
            && !gone
        {
            members.insert(group);
        }
    }
    for group in members.difference(&drained) {
        say(format!(
            "group {group} did not come to the end of its partitions"
        ));
    }
}
