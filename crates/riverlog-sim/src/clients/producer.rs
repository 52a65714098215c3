//! Publishes unique values; an idempotent one sends again until it is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_checker::What;
use riverlog_node::{AppendCommand, Node};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ProducerEpoch, ProducerId, Sequence};

use crate::model::{Place, Violation, never_refused};
use crate::wire;
use crate::world::{Core, Outcome};

/// Batches that are sent once all faults are healed.
const ENOUGH: u64 = 20;

#[derive(Debug)]
pub(crate) struct Producer {
    number: usize,
    idempotent: bool,
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    id: Option<(ProducerId, ProducerEpoch)>,
    sequences: BTreeMap<Place, Sequence>,
    /// Sent and not answered: place, values, bytes.
    pending: Option<(Place, Vec<String>, Vec<u8>)>,
    /// Answered with success: now and then sent once more, as a network does, and must get the same offset.
    sent: Vec<(Place, Vec<String>, Vec<u8>)>,
    count: u64,
}

impl Producer {
    pub(crate) fn new(number: usize) -> Producer {
        Producer {
            number,
            idempotent: !number.is_multiple_of(3),
            waits: false,
            progress: 0,
            id: None,
            sequences: BTreeMap::new(),
            pending: None,
            sent: Vec::new(),
            count: 0,
        }
    }

    fn name(&self) -> String {
        format!("p{}", self.number)
    }

    /// What the history has to know of it first.
    pub(crate) fn open(&self, core: &mut Core) {
        let open = What::Open {
            idempotent: self.idempotent,
            retries: self.idempotent,
            group: None,
            read_committed: false,
        };
        core.history.note(core.clock, &self.name(), open);
    }

    /// Nobody will say any more what became of what is pending.
    fn give_up(&mut self, core: &mut Core) {
        let name = self.name();
        if let Some((place, values, _)) = self.pending.take() {
            for value in values {
                core.tell_history(&name, place, |_| What::Fail { value, maybe: true });
            }
        }
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        if self.idempotent && self.id.is_none() {
            self.waits = true;
            let door = core.door.clone();
            core.ask(me, Outcome::Producer, move |node, now, reply| match &door {
                Some(door) => wire::init_producer(door, now, reply),
                None => node.init_producer(now, reply),
            });
            return;
        }
        // What consumers have to read in the end has an end.
        if core.healing && self.pending.is_none() && self.progress >= ENOUGH {
            return;
        }
        if self.pending.is_none() {
            self.pending = Some(self.compose(core));
        }
        let Some((place, values, batch)) = self.pending.clone() else {
            return;
        };
        let Some(reference) = core.partition(place) else {
            return;
        };
        let acks = if self.idempotent || core.random.chance(1, 2) {
            -1
        } else {
            1
        };
        core.note(format_args!(
            "producer {} sends {values:?} to {place:?}, acks {acks}",
            self.number
        ));
        self.waits = true;
        let (door, topic) = (core.door.clone(), core.swarm.topics[place.0].name.clone());
        let send = move |node: &Arc<Node>, now, reply| {
            let command = AppendCommand {
                batch,
                acks,
                timeout: Duration::from_secs(5),
            };
            match &door {
                Some(door) => wire::append(door, topic, place.1, command, now, reply),
                None => node.append(&reference, command, now, reply),
            }
        };
        core.ask(me, Outcome::Append, send.clone());
        if self.idempotent {
            core.repeat(send);
        }
    }

    /// Something new, or, for an idempotent producer, one of its last five batches once more.
    fn compose(&mut self, core: &mut Core) -> (Place, Vec<String>, Vec<u8>) {
        if !self.sent.is_empty() && core.random.chance(1, 10) {
            let at = core.random.below(self.sent.len() as u64) as usize;
            return self.sent[at].clone();
        }
        let places = core.places();
        let place = places[core.random.below(places.len() as u64) as usize];
        // What a codec costs is its beginning: few batches show the same.
        let codec = match core.random.below(16) {
            0 => Compression::Zstd,
            1 | 2 => Compression::Lz4,
            _ => Compression::None,
        };
        let size = 1 + core.random.below(5);
        let values: Vec<String> = (0..size)
            .map(|i| format!("p{}-{}", self.number, self.count + i))
            .collect();
        self.count += size;
        for value in &values {
            core.tell_history(&self.name(), place, |place| What::Send {
                place,
                value: value.clone(),
                txn: None,
            });
        }
        let sequence = self.sequences.get(&place).copied().unwrap_or(Sequence(0));
        let mut batch = BatchBuilder::new(codec);
        if let Some((id, epoch)) = self.id {
            batch.producer(id, epoch, sequence);
        }
        let now_ms = core.now().wall_ms;
        for value in &values {
            batch.push(now_ms, Some(b"key"), Some(value.as_bytes()), &[]);
        }
        (place, values, batch.build())
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        match outcome {
            Outcome::Producer(Ok(id)) => self.id = Some(id),
            Outcome::Append(Ok(answer)) => {
                let Some((place, values, batch)) = self.pending.take() else {
                    return Ok(());
                };
                core.note(format_args!(
                    "producer {}: {values:?} at {}",
                    self.number, answer.base_offset
                ));
                for (value, offset) in values.iter().zip(answer.base_offset.0..) {
                    core.tell_history(&self.name(), place, |place| What::Ack {
                        place,
                        value: value.clone(),
                        offset,
                    });
                }
                core.model
                    .acknowledged(place, answer.base_offset, &values)?;
                self.progress += 1;
                if let Some((id, epoch)) = self.id {
                    let again = self
                        .sent
                        .iter()
                        .any(|(p, v, _)| *p == place && *v == values);
                    if !again {
                        let next = self.sequences.entry(place).or_insert(Sequence(0));
                        *next = next.plus(values.len() as i32);
                        self.sent.push((place, values, batch));
                        self.forget_old(place);
                    } else if !answer.duplicate {
                        let what = format!("{place:?} {values:?} of {id} {epoch} was stored again");
                        return Err(Violation::new(
                            "no duplicates from idempotent producers",
                            what,
                        ));
                    }
                }
            }
            Outcome::Append(Err(failure)) => {
                core.back_off = true;
                core.note(format_args!(
                    "producer {}: {}, {}",
                    self.number,
                    failure.error.name(),
                    failure.message
                ));
                never_refused(&failure, || {
                    format!(
                        "producer {}: {failure:?}, pending {:?}",
                        self.number, self.pending
                    )
                })?;
                // Not idempotent: whether it was stored stays unknown, and it isn't sent again.
                if self.id.is_none() {
                    self.give_up(core);
                }
            }
            Outcome::Lost if self.id.is_none() => self.give_up(core),
            _ => {}
        }
        Ok(())
    }

    /// The log remembers five batches of a producer in each partition.
    fn forget_old(&mut self, place: Place) {
        let of_place = self.sent.iter().filter(|(p, _, _)| *p == place).count();
        if of_place > 5
            && let Some(oldest) = self.sent.iter().position(|(p, _, _)| *p == place)
        {
            self.sent.remove(oldest);
        }
    }

    /// What was stored there may be gone: begins anew with a fresh id.
    pub(crate) fn topic_lost(&mut self, core: &mut Core, topic: usize) {
        self.sent.retain(|(place, _, _)| place.0 != topic);
        if self
            .pending
            .as_ref()
            .is_some_and(|(place, _, _)| place.0 == topic)
            || self.idempotent
        {
            self.give_up(core);
            self.id = None;
            self.sequences.clear();
            self.sent.clear();
        }
    }
}
