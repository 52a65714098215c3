//! What is known of idempotent producers (KIP-98, KIP-360): the last five batches of each, so that a batch that is sent
//! again is recognised and one that is missing is noticed.
//!
//! State moves when a batch is queued. A batch that later can't be written is taken back with the [`Undo`] that came
//! with it, newest first, so that state always equals a replay of what the log holds.

use std::collections::BTreeMap;

use riverlog_wire::batch::BatchHeader;
use riverlog_wire::{Offset, ProducerEpoch, ProducerId, Sequence};
use smallvec::SmallVec;

use super::{AppendError, ProducerSummary};

/// Batches remembered for each producer; a client has at most five in flight.
pub(super) const WINDOW: usize = 5;

/// One batch of a producer, as remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) last_sequence: Sequence,
    pub(super) last_offset: Offset,
    pub(super) offset_delta: i32,
    /// The batch's largest timestamp.
    pub(super) timestamp: i64,
}

impl Stored {
    pub(super) fn first_sequence(&self) -> Sequence {
        self.last_sequence.plus(-self.offset_delta)
    }
    pub(super) fn first_offset(&self) -> Offset {
        self.last_offset + -i64::from(self.offset_delta)
    }
}

/// When a producer was last heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Wall clock of this broker.
    At(i64),
    /// Only the batch's own timestamp is known, which may be anything.
    Unknown(i64),
}

impl Seen {
    pub(super) fn ms(self) -> i64 {
        match self {
            Seen::At(ms) | Seen::Unknown(ms) => ms,
        }
    }
}

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) epoch: ProducerEpoch,
    /// Oldest first, at most [`WINDOW`]. Empty after a marker has raised the epoch.
    pub(super) window: SmallVec<[Stored; 1]>,
    pub(super) seen: Seen,
}

impl Producer {
    pub(super) fn last_sequence(&self) -> Sequence {
        self.window
            .last()
            .map_or(Sequence::NONE, |b| b.last_sequence)
    }
}

/// Takes one batch's effect back.
#[derive(Clone, Debug, Default)]
pub(super) enum Undo {
    /// It had none.
    #[default]
    Nothing,
    /// The producer was not known before.
    Created(ProducerId),
    /// It was added to the window, and pushed the oldest out.
    Pushed {
        id: ProducerId,
        evicted: Option<Stored>,
        seen: Seen,
    },
    /// Everything was replaced.
    Replaced(ProducerId, Box<Producer>),
}

impl Undo {
    fn id(&self) -> Option<ProducerId> {
        match self {
            Undo::Nothing => None,
            Undo::Created(id) | Undo::Pushed { id, .. } | Undo::Replaced(id, _) => Some(*id),
        }
    }
}

/// All producers of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Producers {
    // Ordered, so that snapshots and answers don't depend on a hash.
    map: BTreeMap<ProducerId, Producer>,
}

/// How many batches of a producer are remembered.
fn window() -> usize {
    WINDOW
        - usize::from(riverlog_mutants::active(
            riverlog_mutants::Mutant::WindowOfFour,
        ))
}

impl Producers {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> {
        self.map.iter().map(|(id, p)| (*id, p))
    }
    pub(super) fn insert(&mut self, id: ProducerId, producer: Producer) {
        self.map.insert(id, producer);
    }
    pub(super) fn get_mut(&mut self, id: ProducerId) -> Option<&mut Producer> {
        self.map.get_mut(&id)
    }

    /// What a leader checks before a batch is appended. `Some`: it is stored already.
    pub(super) fn check(&self, batch: &BatchHeader) -> Result<Option<Stored>, AppendError> {
        if batch.producer_id < ProducerId(0) {
            return Ok(None);
        }
        // KIP-360: an unknown producer may go on with any sequence; its earlier records may have expired.
        let Some(known) = self.map.get(&batch.producer_id) else {
            return Ok(None);
        };
        if batch.producer_epoch < known.epoch {
            return Err(AppendError::FencedProducer {
                producer: batch.producer_id,
                got: batch.producer_epoch,
                current: known.epoch,
            });
        }
        if batch.attributes.is_control() {
            return Ok(None);
        }
        let mut expected = Sequence(0);
        if batch.producer_epoch == known.epoch {
            let (first, last) = (batch.base_sequence, batch.last_sequence());
            if let Some(stored) = known
                .window
                .iter()
                .find(|b| b.first_sequence() == first && b.last_sequence == last)
            {
                return Ok(Some(*stored));
            }
            if let Some(last) = known.window.last() {
                expected = last.last_sequence.plus(1);
            }
        }
        if batch.base_sequence != expected {
            return Err(AppendError::OutOfOrderSequence {
                producer: batch.producer_id,
                got: batch.base_sequence,
                expected,
            });
        }
        Ok(None)
    }

    /// A batch is part of the log at its base offset. Also for followers and replay: nothing is checked.
    pub(super) fn apply(&mut self, batch: &BatchHeader, seen: Seen) -> Undo {
        let id = batch.producer_id;
        if id < ProducerId(0) {
            return Undo::Nothing;
        }
        let stored = (!batch.attributes.is_control()).then_some(Stored {
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta,
            timestamp: batch.max_timestamp,
        });
        let Some(known) = self.map.get_mut(&id) else {
            let producer = Producer {
                epoch: batch.producer_epoch,
                window: stored.into_iter().collect(),
                seen,
            };
            self.map.insert(id, producer);
            return Undo::Created(id);
        };
        if batch.producer_epoch != known.epoch {
            let producer = Producer {
                epoch: batch.producer_epoch,
                window: stored.into_iter().collect(),
                seen,
            };
            let before = std::mem::replace(known, producer);
            return Undo::Replaced(id, Box::new(before));
        }
        let before = std::mem::replace(&mut known.seen, seen);
        let Some(stored) = stored else {
            return Undo::Replaced(
                id,
                Box::new(Producer {
                    seen: before,
                    ..known.clone()
                }),
            );
        };
        let evicted = (known.window.len() >= window()).then(|| known.window.remove(0));
        known.window.push(stored);
        Undo::Pushed {
            id,
            evicted,
            seen: before,
        }
    }

    /// Takes back the newest batch that is not taken back yet.
    pub(super) fn undo(&mut self, undo: &Undo) {
        match undo {
            Undo::Nothing => {}
            Undo::Created(id) => {
                self.map.remove(id);
            }
            Undo::Pushed { id, evicted, seen } => {
                if let Some(known) = self.map.get_mut(id) {
                    known.window.pop();
                    if let Some(evicted) = evicted {
                        known.window.insert(0, *evicted);
                    }
                    known.seen = *seen;
                }
            }
            Undo::Replaced(id, before) => {
                self.map.insert(*id, (**before).clone());
            }
        }
    }

    /// State as it was before the batches that `undos` (newest first) belong to.
    pub(super) fn before<'a>(&self, undos: impl Iterator<Item = &'a Undo>) -> Producers {
        let mut out = self.clone();
        for undo in undos {
            out.undo(undo);
        }
        out
    }

    /// Forgets producers that were silent for longer than `expiration_ms`, unless a batch of theirs is at or after
    /// `written`: that one may still be taken back.
    pub(super) fn expire(&mut self, now_ms: i64, expiration_ms: u64, written: Offset) -> usize {
        let expiration = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
        let before = self.map.len();
        self.map.retain(|_, p| {
            match p.seen {
                // A backfill's records are old the moment they arrive: silence counts from when we first look.
                Seen::Unknown(_) => p.seen = Seen::At(now_ms),
                // The wall clock went back.
                Seen::At(ms) if ms > now_ms => p.seen = Seen::At(now_ms),
                Seen::At(_) => {}
            }
            let in_flight = p.window.last().is_some_and(|b| b.last_offset >= written);
            in_flight || now_ms.saturating_sub(p.seen.ms()) <= expiration
        });
        before - self.map.len()
    }

    /// Corrects when producers were last heard of.
    pub(super) fn set_seen(&mut self, seen: &[(ProducerId, Seen)]) {
        for (id, seen) in seen {
            if let Some(known) = self.map.get_mut(id) {
                known.seen = *seen;
            }
        }
    }

    pub(super) fn summaries(&self) -> Vec<ProducerSummary> {
        self.iter()
            .map(|(id, p)| ProducerSummary {
                id,
                epoch: p.epoch,
                last_sequence: p.last_sequence(),
                last_timestamp: p.seen.ms(),
            })
            .collect()
    }
    /// Whether any of `undos` is about a producer that is known here.
    pub(super) fn touched<'a>(&self, mut undos: impl Iterator<Item = &'a Undo>) -> bool {
        undos.any(|u| u.id().is_some())
    }
}
