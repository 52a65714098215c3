//! What clients do: one file a kind. Each has one operation under way at a time, and remembers what it was told.

mod classic;
mod consumer;
mod grouped;
mod keeper;
mod maker;
pub(crate) mod managed;
mod producer;
mod reader;
mod scanner;
mod sharer;
mod subscriber;
pub(crate) mod transactor;
mod trimmer;
mod tuner;

use std::collections::BTreeMap;

use riverlog_log::Slices;
use riverlog_wire::Offset;
use riverlog_wire::batch::batches;

use crate::model::{Place, Violation};
use crate::swarm::Swarm;
use crate::world::{Core, Outcome};

/// The group of all consumers.
pub(crate) const GROUP: &str = "group";

/// A client.
#[derive(Debug)]
pub(crate) enum Client {
    Producer(producer::Producer),
    Consumer(consumer::Consumer),
    Trimmer(trimmer::Trimmer),
    Maker(maker::Maker),
    Transactor(Box<transactor::Transactor>),
    Reader(reader::Reader),
    Tuner(tuner::Tuner),
    Managed(Box<managed::Managed>),
    Keeper(keeper::Keeper),
    Scanner(scanner::Scanner),
    Classic(classic::Classic),
    Subscriber(subscriber::Subscriber),
    Sharer(sharer::Sharer),
    Grouped(grouped::Grouped),
}

impl Client {
    /// The clients of a run.
    pub(crate) fn all(swarm: &Swarm) -> Vec<Client> {
        let mut all = Vec::new();
        for number in 0..swarm.producers {
            all.push(Client::Producer(producer::Producer::new(number)));
        }
        for number in 0..swarm.consumers {
            all.push(Client::Consumer(consumer::Consumer::new(number)));
        }
        if swarm.topics.iter().any(|t| t.trimmed) {
            for _ in 0..swarm.trimmers {
                all.push(Client::Trimmer(trimmer::Trimmer::default()));
            }
        }
        for number in 0..swarm.transactors {
            all.push(Client::Transactor(Box::new(transactor::Transactor::new(
                number,
            ))));
        }
        for at in 0..swarm.managed {
            let managed = managed::Managed::new(at, swarm.is_paired());
            all.push(Client::Managed(Box::new(managed)));
        }
        if swarm.has_transactions() {
            all.push(Client::Reader(reader::Reader::new(swarm.transactors)));
        }
        if swarm.maker {
            all.push(Client::Maker(maker::Maker::default()));
        }
        if swarm.tuner {
            all.push(Client::Tuner(tuner::Tuner::default()));
        }
        if swarm.keyed.is_some() {
            all.push(Client::Keeper(keeper::Keeper::default()));
            all.push(Client::Scanner(scanner::Scanner::default()));
        }
        for number in 0..swarm.classic {
            all.push(Client::Classic(classic::Classic::new(number)));
        }
        for number in 0..swarm.subscribers {
            all.push(Client::Subscriber(subscriber::Subscriber::new(number)));
        }
        for number in 0..swarm.shares.map_or(0, |plan| plan.members) {
            all.push(Client::Sharer(sharer::Sharer::new(number)));
        }
        for member in swarm.groups.members() {
            all.push(Client::Grouped(grouped::Grouped::new(member)));
        }
        all
    }
    /// What the history has to know of it first.
    pub(crate) fn open(&self, core: &mut Core) {
        match self {
            Client::Producer(client) => client.open(core),
            Client::Consumer(client) => client.open(core),
            Client::Reader(client) => client.open(core),
            Client::Transactor(client) => client.open(core),
            _ => {}
        }
    }
    /// Asks something, when nothing is under way. After the answer the world lets it think, then steps again.
    pub(crate) fn step(&mut self, core: &mut Core, me: usize) -> Result<(), Violation> {
        if self.waits() {
            return Ok(());
        }
        if core.node().is_none() {
            core.back_off = true;
            core.think(me);
            return Ok(());
        }
        match self {
            Client::Producer(client) => client.step(core, me),
            Client::Consumer(client) => client.step(core, me),
            Client::Trimmer(client) => client.step(core, me),
            Client::Maker(client) => client.step(core, me)?,
            Client::Transactor(client) => client.step(core, me),
            Client::Reader(client) => client.step(core, me),
            Client::Tuner(client) => client.step(core, me)?,
            Client::Managed(client) => client.step(core, me),
            Client::Keeper(client) => client.step(core, me),
            Client::Scanner(client) => client.step(core, me)?,
            Client::Classic(client) => client.step(core, me),
            Client::Subscriber(client) => client.step(core, me),
            Client::Sharer(client) => client.step(core, me),
            Client::Grouped(client) => client.step(core, me),
        }
        if !self.waits() {
            core.think(me);
        }
        Ok(())
    }
    /// Takes an answer.
    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        match self {
            Client::Producer(client) => client.outcome(core, outcome),
            Client::Consumer(client) => client.outcome(core, outcome),
            Client::Trimmer(client) => client.outcome(core, outcome),
            Client::Maker(client) => client.outcome(core, outcome),
            Client::Transactor(client) => client.outcome(core, outcome),
            Client::Reader(client) => client.outcome(core, outcome),
            Client::Tuner(client) => client.outcome(core, outcome),
            Client::Managed(client) => client.outcome(core, outcome),
            Client::Keeper(client) => client.outcome(core, outcome),
            Client::Scanner(client) => client.outcome(core, outcome),
            Client::Classic(client) => client.outcome(core, outcome),
            Client::Subscriber(client) => client.outcome(core, outcome),
            Client::Sharer(client) => client.outcome(core, outcome),
            Client::Grouped(client) => client.outcome(core, outcome),
        }
    }
    /// Whether an operation is under way.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Client::Producer(client) => client.waits,
            Client::Consumer(client) => client.waits,
            Client::Trimmer(client) => client.waits,
            Client::Maker(client) => client.waits,
            Client::Transactor(client) => client.waits,
            Client::Reader(client) => client.waits,
            Client::Tuner(client) => client.waits,
            Client::Managed(client) => client.waits,
            Client::Keeper(client) => client.waits,
            Client::Scanner(client) => client.waits,
            Client::Classic(client) => client.waits,
            Client::Subscriber(client) => client.waits,
            Client::Sharer(client) => client.waits,
            Client::Grouped(client) => client.waits,
        }
    }
    /// A power cut may have taken records of this topic, which opted out of syncing.
    pub(crate) fn topic_lost(&mut self, core: &mut Core, topic: usize) {
        match self {
            Client::Producer(client) => client.topic_lost(core, topic),
            Client::Consumer(client) => client.topic_lost(topic),
            // What the others write to is synced.
            _ => {}
        }
    }
    /// From now on there are no faults; progress is counted anew.
    pub(crate) fn heal(&mut self, core: &mut Core) {
        match self {
            Client::Producer(client) => client.progress = 0,
            Client::Consumer(client) => client.progress = 0,
            Client::Maker(client) => client.progress = 0,
            Client::Transactor(client) => client.progress = 0,
            Client::Reader(client) => client.progress = 0,
            Client::Tuner(client) => client.progress = 0,
            Client::Managed(client) => client.heal(),
            Client::Keeper(client) => client.progress = 0,
            Client::Scanner(client) => client.progress = 0,
            Client::Classic(client) => client.heal(core),
            Client::Subscriber(client) => client.heal(),
            Client::Sharer(client) => client.heal(),
            Client::Grouped(client) => client.heal(),
            Client::Trimmer(_) => {}
        }
    }
    /// Where a consumer is in the partitions that it holds.
    pub(crate) fn holds(&self) -> Option<&BTreeMap<Place, Offset>> {
        match self {
            Client::Consumer(client) => Some(&client.held),
            _ => None,
        }
    }
    /// Whether it got something done since it was healed.
    pub(crate) fn has_progressed(&self) -> bool {
        match self {
            Client::Producer(client) => client.progress >= 3,
            Client::Consumer(client) => client.progress >= 3,
            Client::Maker(client) => client.progress >= 3,
            Client::Transactor(client) => client.is_done(),
            Client::Reader(client) => client.progress >= 3,
            Client::Tuner(client) => client.progress >= 3,
            Client::Managed(client) => client.is_done(),
            Client::Keeper(client) => client.is_done(),
            Client::Scanner(client) => client.progress >= 3,
            Client::Classic(client) => client.has_progressed(),
            Client::Subscriber(client) => client.has_progressed(),
            Client::Sharer(client) => client.has_progressed(),
            Client::Grouped(client) => client.has_progressed(),
            Client::Trimmer(_) => true,
        }
    }
}

/// The values of batches, from `from` on. None: the disk failed before the answer was out, and the connection with it.
pub(crate) fn records_of(slices: Slices, from: Offset) -> Result<Vec<(Offset, String)>, Violation> {
    let damaged = |what: String| Violation::new("damage is found, never served", what);
    let Ok(bytes) = slices.into_bytes() else {
        return Ok(Vec::new());
    };
    let mut out = Vec::new();
    for batch in batches(&bytes) {
        let batch = batch.map_err(|e| damaged(e.to_string()))?;
        batch.check_crc().map_err(|e| damaged(e.to_string()))?;
        for record in batch
            .records(1 << 20)
            .map_err(|e| damaged(e.to_string()))?
            .iter()
        {
            let record = record.map_err(|e| damaged(e.to_string()))?;
            if record.offset >= from {
                let value = record.value.unwrap_or_default();
                out.push((record.offset, String::from_utf8_lossy(&value).into_owned()));
            }
        }
    }
    Ok(out)
}
