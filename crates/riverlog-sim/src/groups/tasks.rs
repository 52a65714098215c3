//! What must be true of the tasks of a streams group, from what its members were told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Violation;

/// Subtopology and partition.
pub(super) type Task = (String, i32);

/// What is known of the tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// By member epoch and task: which client was told to run it.
    owners: BTreeMap<(i32, Task), usize>,
    held: BTreeMap<usize, Holding>,
}

/// What a client has: it was told to, and has not said that it gives it back.
#[derive(Debug, Default)]
struct Holding {
    process: usize,
    active: BTreeSet<Task>,
    copies: BTreeSet<Task>,
    /// Before that its session can't be over.
    until: Duration,
}

/// A client, and the process that it is a thread of.
pub(super) type Thread = (usize, usize);

impl Tasks {
    /// A client was told to run these tasks and to keep copies of the state of those, at this epoch.
    pub(super) fn given(
        &mut self,
        (client, process): Thread,
        epoch: i32,
        active: &BTreeSet<Task>,
        copies: &BTreeSet<Task>,
        now: Duration,
    ) -> Result<(), Violation> {
        if let Some(task) = active.intersection(copies).next() {
            let what = format!("{task:?} to {client} at {epoch} in two roles");
            return Err(Violation::new("a process has a task once", what));
        }
        let others = || {
            let others = self.held.iter().filter(|(other, _)| **other != client);
            others.filter(|(_, holding)| holding.until > now)
        };
        for task in active {
            let owner = *self.owners.entry((epoch, task.clone())).or_insert(client);
            if owner != client {
                return Err(Violation::new(
                    "an active task has one owner at an epoch",
                    format!("{task:?} at {epoch}: {owner} and {client}"),
                ));
            }
            if let Some((holder, _)) = others().find(|(_, h)| h.active.contains(task)) {
                return Err(Violation::new(
                    "a task is given back before it is given on",
                    format!("{task:?} to {client} at {epoch}, and {holder} runs it"),
                ));
            }
        }
        for task in active.union(copies) {
            let mates = others().filter(|(_, h)| h.process == process);
            let has = |h: &Holding| h.active.contains(task) || h.copies.contains(task);
            if let Some((mate, _)) = mates.into_iter().find(|(_, h)| has(h)) {
                return Err(Violation::new(
                    "a process has a task once",
                    format!("{task:?} to {client} at {epoch}, and {mate} of its process has it"),
                ));
            }
        }
        let holding = self.held.entry(client).or_default();
        holding.process = process;
        holding.active.extend(active.iter().cloned());
        holding.copies.extend(copies.iter().cloned());
        Ok(())
    }

    /// As for partitions: a group that is made anew begins with epoch 1 again.
    pub(super) fn joined(&mut self, client: usize, epoch: i32, now: Duration) {
        let mut others = self.held.iter().filter(|(other, _)| **other != client);
        if epoch == 1 && others.all(|(_, holding)| holding.until <= now) {
            self.owners.clear();
        }
    }

    /// A heartbeat was answered with success: the session goes on until then at least.
    pub(super) fn renewed(&mut self, (client, process): Thread, until: Duration) {
        let holding = self.held.entry(client).or_default();
        holding.process = process;
        holding.until = holding.until.max(until);
    }

    /// A client has only this any more, and will say so.
    pub(super) fn keeps(
        &mut self,
        client: usize,
        active: &BTreeSet<Task>,
        copies: &BTreeSet<Task>,
    ) {
        if let Some(holding) = self.held.get_mut(&client) {
            holding.active.retain(|task| active.contains(task));
            holding.copies.retain(|task| copies.contains(task));
        }
    }

    /// A client has nothing any more.
    pub(super) fn given_up(&mut self, client: usize) {
        self.held.remove(&client);
    }

    /// How many tasks run, and how many copies of the state of `stateful` ones there are.
    pub(super) fn count(&self, stateful: &str) -> (usize, usize) {
        let held = || self.held.values();
        let active: BTreeSet<&Task> = held().flat_map(|h| &h.active).collect();
        let copies = held().flat_map(|h| &h.copies);
        (
            active.len(),
            copies.filter(|(id, _)| id == stateful).count(),
        )
    }

    /// How many processes have a thread that has something or could.
    pub(super) fn processes(&self) -> usize {
        let processes: BTreeSet<usize> = self.held.values().map(|h| h.process).collect();
        processes.len()
    }
}
