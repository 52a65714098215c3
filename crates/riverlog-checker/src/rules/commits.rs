//! Offset commits: each group and partition is a register.

use std::collections::BTreeMap;

use crate::history::{Place, What};
use crate::known::Known;
use crate::{Anomaly, Kind};

#[derive(Clone, Copy)]
struct Commit<'a> {
    by: &'a str,
    offset: i64,
    sent: u64,
    /// When it was answered.
    answered: Option<u64>,
    stored: bool,
}

/// What is read is the last commit that was acknowledged before (of several nodes: so long before as one may lag), or one that may have come
/// after it.
pub(super) fn lost(known: &Known<'_>, found: &mut Vec<Anomaly>) {
    let mut commits: BTreeMap<(&str, &Place), Vec<Commit<'_>>> = BTreeMap::new();
    for event in &known.events {
        match &event.what {
            What::Committing {
                group,
                place,
                offset,
            } => {
                let commit = Commit {
                    by: &event.client,
                    offset: *offset,
                    sent: event.at,
                    answered: None,
                    stored: false,
                };
                commits.entry((group, place)).or_default().push(commit);
            }
            What::Committed {
                group,
                place,
                offset,
                stored,
            } => {
                let of = commits.entry((group, place)).or_default();
                let open = of
                    .iter_mut()
                    .rev()
                    .find(|c| c.by == event.client && c.offset == *offset && c.answered.is_none());
                if let Some(commit) = open {
                    commit.answered = Some(event.at);
                    commit.stored = *stored;
                }
            }
            _ => {}
        }
    }
    for event in &known.events {
        let What::Offset {
            since,
            group,
            place,
            offset,
        } = &event.what
        else {
            continue;
        };
        let none = Vec::new();
        let commits = commits.get(&(group.as_str(), place)).unwrap_or(&none);
        // Of all that were acknowledged before the question, the one that was sent last overwrote whatever had ended before.
        let last = commits
            .iter()
            .filter(|c| {
                c.stored
                    && c.answered
                        .is_some_and(|at| at.saturating_add(known.lag) < *since)
            })
            .max_by_key(|c| c.sent);
        let possible = |c: &&Commit<'_>| {
            let overwritten = match (last, c.answered) {
                // What wasn't answered with success may be stored at any later time: a lost request may still arrive.
                (Some(last), Some(at)) if c.stored => at < last.sent,
                _ => false,
            };
            c.sent <= event.at && !overwritten
        };
        let legal = match offset {
            None => last.is_none(),
            Some(offset) => commits.iter().filter(possible).any(|c| c.offset == *offset),
        };
        if !legal {
            let expected = match last {
                Some(last) => format!("{} was acknowledged to {} before", last.offset, last.by),
                None => "nobody committed that".to_owned(),
            };
            let read = offset.map_or("no offset".to_owned(), |offset| offset.to_string());
            let what = format!(
                "group {group}, {place}: {} was told {read}; {expected}",
                event.client
            );
            found.push(Anomaly::new(Kind::CommitLost, what));
        }
    }
}
