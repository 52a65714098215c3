//! Writes values and tombstones for a few keys of the compacted topic, as an idempotent producer: whatever wasn't answered is
//! sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_node::{AppendCommand, Node};
use riverlog_wire::{ProducerEpoch, ProducerId};

use crate::keyed::{self, Entry, PARTITIONS, TOPIC};
use crate::model::{Violation, never_refused};
use crate::world::{Core, Outcome};

/// Batches that are written once all faults are healed: more records than a partition may keep when its cleaner works, so that
/// one that has given up shows.
const ENOUGH: u64 = 120;

#[derive(Debug, Default)]
pub(crate) struct Keeper {
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    id: Option<(ProducerId, ProducerEpoch)>,
    sequences: BTreeMap<i32, i32>,
    number: i64,
    pending: Option<(i32, Vec<Entry>, Vec<u8>)>,
}

impl Keeper {
    /// It has written enough for the cleaner to do since all was healed.
    pub(crate) fn is_done(&self) -> bool {
        self.progress >= ENOUGH && self.pending.is_none()
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        let Some(id) = self.id else {
            self.waits = true;
            core.ask(me, Outcome::Producer, |node, now, reply| {
                node.init_producer(now, reply);
            });
            return;
        };
        if core.healing && self.is_done() {
            return;
        }
        let (partition, entries, batch) = match self.pending.take() {
            Some(pending) => pending,
            None => self.compose(core, id),
        };
        self.pending = Some((partition, entries.clone(), batch.clone()));
        let found = core
            .node()
            .map(|(node, _)| node.partition(&TopicRef::Name(TOPIC.to_owned()), partition));
        let Some(Ok(reference)) = found else {
            return;
        };
        core.note(format_args!("keeper: {entries:?} to {partition}"));
        core.keyed.sent(partition, &entries);
        self.waits = true;
        let send = move |node: &Arc<Node>, now, reply| {
            let command = AppendCommand {
                batch,
                acks: -1,
                timeout: Duration::from_secs(5),
            };
            node.append(&reference, command, now, reply);
        };
        core.ask(me, Outcome::Append, send.clone());
        core.repeat(send);
    }

    fn compose(
        &mut self,
        core: &mut Core,
        id: (ProducerId, ProducerEpoch),
    ) -> (i32, Vec<Entry>, Vec<u8>) {
        let partition = core.random.below(PARTITIONS as u64) as i32;
        let sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        let now_ms = core.now().wall_ms;
        let (entries, batch) =
            keyed::compose(&mut core.random, &mut self.number, id, sequence, now_ms);
        (partition, entries, batch)
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        match outcome {
            Outcome::Producer(Ok(id)) => self.id = Some(id),
            Outcome::Append(Ok(answer)) => {
                if let Some((partition, entries, _)) = self.pending.take() {
                    core.model.checked += 1;
                    core.keyed
                        .acknowledged(partition, answer.base_offset.0, &entries)?;
                    *self.sequences.entry(partition).or_insert(0) += entries.len() as i32;
                    self.progress += 1;
                }
            }
            Outcome::Append(Err(failure)) => {
                core.back_off = true;
                never_refused(&failure, || {
                    format!("keeper: {failure:?}, pending {:?}", self.pending)
                })?;
            }
            _ => {}
        }
        Ok(())
    }
}
