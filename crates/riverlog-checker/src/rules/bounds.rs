//! The first offset and the end of a partition never go back.

use std::collections::BTreeMap;

use crate::history::{Place, What};
use crate::known::Known;
use crate::{Anomaly, Kind};

/// Who asks after an answer was given gets no less; of several nodes, who asks so much later as one may lag.
pub(super) fn backwards(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    struct Seen {
        since: u64,
        at: u64,
        start: i64,
        end: i64,
    }
    let mut seen: BTreeMap<&Place, Vec<Seen>> = BTreeMap::new();
    for event in &known.events {
        if let What::Bounds {
            since,
            place,
            start,
            end,
        } = &event.what
        {
            let seen = seen.entry(place).or_default();
            seen.push(Seen {
                since: *since,
                at: event.at,
                start: *start,
                end: *end,
            });
        }
    }
    for (place, answers) in seen {
        // By the time of the question; answers that came before it are taken in by the way.
        let mut asked: Vec<&Seen> = answers.iter().collect();
        asked.sort_by_key(|seen| seen.since);
        let mut before = answers.iter().peekable();
        let (mut start, mut end) = (i64::MIN, i64::MIN);
        for seen in asked {
            while let Some(earlier) =
                before.next_if(|earlier| earlier.at.saturating_add(known.lag) < seen.since)
            {
                start = start.max(earlier.start);
                end = end.max(earlier.end);
            }
            let what = if seen.start < start {
                format!("{place}: the first offset was {start}, then {}", seen.start)
            } else if seen.end < end {
                format!("{place}: the end was {end}, then {}", seen.end)
            } else if seen.start > seen.end {
                format!(
                    "{place}: the first offset is {} and the end {}",
                    seen.start, seen.end
                )
            } else {
                continue;
            };
            found.push(Anomaly::new(Kind::WentBack, what));
        }
    }
}
