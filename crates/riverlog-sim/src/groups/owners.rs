//! Who was told to hold what, at which epoch, and until when that must stand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use crate::model::Violation;

/// What is known of the partitions of a group.
#[derive(Debug)]
pub(crate) struct Owners<P> {
    /// By member epoch (or generation) and partition: which client was told to hold it.
    owners: BTreeMap<(i32, P), usize>,
    held: BTreeMap<usize, Holding<P>>,
}

/// What a client holds: it was told to, and has not said that it gives it back.
#[derive(Debug)]
struct Holding<P> {
    parts: BTreeSet<P>,
    /// Before that its session can't be over.
    until: Duration,
}

impl<P> Default for Owners<P> {
    fn default() -> Self {
        Owners {
            owners: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }
}

impl<P> Default for Holding<P> {
    fn default() -> Self {
        Holding {
            parts: BTreeSet::new(),
            until: Duration::ZERO,
        }
    }
}

impl<P: Copy + Ord + Debug> Owners<P> {
    /// A client was told to hold `parts`, at this epoch. What it held before it holds until it says otherwise.
    pub(crate) fn given(
        &mut self,
        client: usize,
        epoch: i32,
        parts: &BTreeSet<P>,
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
    pub(crate) fn keeps(&mut self, client: usize, parts: &BTreeSet<P>) {
        if let Some(holding) = self.held.get_mut(&client) {
            holding.parts.retain(|part| parts.contains(part));
        }
    }

    /// A client holds nothing any more.
    pub(crate) fn given_up(&mut self, client: usize) {
        self.held.remove(&client);
    }

    /// Whether as many partitions are held as there are.
    pub(crate) fn is_whole(&self, all: i32) -> bool {
        let held: BTreeSet<&P> = self.held.values().flat_map(|h| &h.parts).collect();
        held.len() == all as usize
    }
}
