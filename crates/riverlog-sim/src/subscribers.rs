//! The group of the consumer protocol: who was told to hold what, at which member epoch, and until when that must stand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverlog_wire::TopicId;

use crate::model::Violation;

/// The group.
pub(crate) const GROUP: &str = "subscribers";
/// What fits its topics.
pub(crate) const PATTERN: &str = "sub-.*";
/// Topics that its members read: name, partitions, id.
pub(crate) const TOPICS: [(&str, i32, TopicId); 2] = [
    ("sub-first", 4, TopicId(*b"of-subscribers-1")),
    ("sub-second", 3, TopicId(*b"of-subscribers-2")),
];

/// A partition of one of the topics, by its number.
pub(crate) type Part = (usize, i32);

/// What is known of the group.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    /// By member epoch and partition: which client was told to hold it.
    owners: BTreeMap<(i32, Part), usize>,
    held: BTreeMap<usize, Holding>,
}

/// What a client holds: it was told to, and has not said that it gives it back.
#[derive(Debug, Default)]
struct Holding {
    parts: BTreeSet<Part>,
    /// Before that its session can't be over.
    until: Duration,
}

impl Subscribers {
    /// A client was told to hold `parts`, at this epoch. What it held before it holds until it says otherwise.
    pub(crate) fn given(
        &mut self,
        client: usize,
        epoch: i32,
        parts: &BTreeSet<Part>,
        now: Duration,
    ) -> Result<(), Violation> {
        for part in parts {
            let owner = *self.owners.entry((epoch, *part)).or_insert(client);
            if owner != client {
                return Err(Violation::new(
                    "a partition has one owner at an epoch",
                    format!("{part:?} at {epoch}: {owner} and {client}"),
                ));
            }
            let mut others = self.held.iter().filter(|(other, _)| **other != client);
            let holder = others.find(|(_, h)| h.until > now && h.parts.contains(part));
            if let Some((holder, _)) = holder {
                return Err(Violation::new(
                    "a partition is given back before it is given on",
                    format!("{part:?} to {client} at {epoch}, and {holder} holds it"),
                ));
            }
        }
        let holding = self.held.entry(client).or_default();
        holding.parts.extend(parts.iter().copied());
        Ok(())
    }

    /// A client has joined at this epoch. A group that has lost all of its members is forgotten in the end, and one that is made anew
    /// begins with epoch 1 again.
    pub(crate) fn joined(&mut self, client: usize, epoch: i32, now: Duration) {
        let mut others = self.held.iter().filter(|(other, _)| **other != client);
        if epoch == 1 && others.all(|(_, holding)| holding.until <= now) {
            self.owners.clear();
        }
    }

    /// A heartbeat was answered with success: the session goes on until then at least.
    pub(crate) fn renewed(&mut self, client: usize, until: Duration) {
        let holding = self.held.entry(client).or_default();
        holding.until = holding.until.max(until);
    }

    /// A client holds only this any more, and will say so.
    pub(crate) fn keeps(&mut self, client: usize, parts: &BTreeSet<Part>) {
        if let Some(holding) = self.held.get_mut(&client) {
            holding.parts.retain(|part| parts.contains(part));
        }
    }

    /// A client holds nothing any more.
    pub(crate) fn given_up(&mut self, client: usize) {
        self.held.remove(&client);
    }

    /// Whether every partition is held.
    pub(crate) fn is_whole(&self) -> bool {
        let held: BTreeSet<&Part> = self.held.values().flat_map(|h| &h.parts).collect();
        let all: i32 = TOPICS.iter().map(|(_, partitions, _)| partitions).sum();
        held.len() == all as usize
    }
}
