//! What is known of idempotent producers (KIP-98, KIP-360): the last five batches of each, so that a batch that is sent
//! again is recognised and one that is missing is noticed; and where a transaction is open.
//!
//! State moves when a batch is queued. A batch that later can't be written is taken back with the [`Undo`] that came
//! with it, newest first, so that state always equals a replay of what the log holds.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::batch::{BatchHeader, EndTxnMarker};
use riverlog_wire::{Offset, ProducerEpoch, ProducerId, Sequence};
use smallvec::SmallVec;

use super::transactions::{AbortedTransaction, Marker};
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

/// Where a row of sequences without a gap begins that leads up to the window, as far as this life has seen: all of them are stored. `None`:
/// with the window. Not part of the state that a replay gives: a snapshot doesn't tell it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before(Option<Sequence>);

impl PartialEq for Before {
    fn eq(&self, _: &Before) -> bool {
        true
    }
}

impl Eq for Before {}

/// What a leader's look at a batch's sequence finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// It is one of those that are remembered.
    Known(Stored),
    /// It was stored before those: where isn't known any more, but it ends at this offset at the latest.
    Before(Offset),
}

/// When silence was looked for. What is kept of a producer is the wall clock's time, which may be set: who is silent for a moment must not be
/// forgotten for that, as what it sends again would be stored twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) wall_ms: i64,
    /// Never goes back.
    pub(super) mono: Duration,
}

/// The wall clock was set when it is further ahead than this.
const SET_MS: i64 = 60_000;
/// What a producer has left at the least when a log is first looked at: how long nobody did is told by the wall clock alone.
const AFTER_LOAD_MS: i64 = 3_600_000;

impl Looked {
    /// When a producer was heard of by today's wall clock, that was heard of at `seen` by the one of its time.
    fn corrected(self, seen: i64, last: Option<Looked>, expiration: i64) -> i64 {
        let seen = match last {
            None => {
                let most = expiration.saturating_sub(AFTER_LOAD_MS.min(expiration));
                seen.max(self.wall_ms.saturating_sub(most))
            }
            Some(last) => {
                let passed = self.mono.saturating_sub(last.mono).as_millis();
                let passed = i64::try_from(passed).unwrap_or(i64::MAX);
                let by_wall = self.wall_ms.saturating_sub(last.wall_ms);
                let ahead = by_wall.saturating_sub(passed);
                // What came since the last look may have come after the clock was set.
                let of_now = seen >= self.wall_ms.saturating_sub(passed);
                match ahead > SET_MS && !of_now {
                    true => seen.saturating_add(ahead),
                    false => seen,
                }
            }
        };
        // The wall clock went back.
        seen.min(self.wall_ms)
    }
}

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) epoch: ProducerEpoch,
    /// Oldest first, at most [`WINDOW`]. Empty after a marker has raised the epoch.
    pub(super) window: SmallVec<[Stored; 1]>,
    /// What came before the window.
    pub(super) before: Before,
    pub(super) seen: Seen,
    /// Of the coordinator that wrote the last marker; −1 for none.
    pub(super) coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub(super) transaction: Option<Offset>,
    /// Offset of the last marker since the snapshot that state began with; −1 for none.
    pub(super) last_marker: Offset,
}

impl Producer {
    pub(super) fn new(epoch: ProducerEpoch, seen: Seen) -> Producer {
        Producer {
            epoch,
            window: SmallVec::new(),
            before: Before::default(),
            seen,
            coordinator_epoch: -1,
            transaction: None,
            last_marker: Offset(-1),
        }
    }
    /// Offset of the newest batch that is remembered; −1 for none.
    fn newest(&self) -> Offset {
        let data = self.window.last().map_or(Offset(-1), |b| b.last_offset);
        data.max(self.last_marker)
            .max(self.transaction.unwrap_or(Offset(-1)))
    }
    /// Adds a batch of records to the window; what falls out of it.
    fn push(&mut self, batch: Stored) -> Option<Stored> {
        let first = batch.first_sequence();
        let gap = self
            .window
            .last()
            .is_some_and(|last| last.last_sequence.plus(1) != first);
        let evicted = (self.window.len() >= window()).then(|| self.window.remove(0));
        if gap {
            self.before = Before(Some(first));
        } else if let (None, Some(evicted)) = (self.before.0, &evicted) {
            self.before = Before(Some(evicted.first_sequence()));
        }
        self.window.push(batch);
        evicted
    }
    /// A new epoch: what it sends is counted from 0.
    fn begin(&mut self, epoch: ProducerEpoch) {
        self.epoch = epoch;
        self.window.clear();
        self.before = Before::default();
    }
    /// Whether the batch was stored before those of the window: its sequences lie in the row without a gap that leads up to them.
    fn stored_before(&self, batch: &BatchHeader) -> Option<Offset> {
        /// Half of the sequences that there are: what is farther back can't be told from what is yet to come.
        const FAR: i32 = 1 << 30;
        let (oldest, newest) = (self.window.first()?, self.window.last()?);
        let back = |to: Sequence| newest.last_sequence.plus(-to.0).0;
        let (first, last) = (back(batch.base_sequence), back(batch.last_sequence()));
        let stored = first <= back(self.before.0?).min(FAR)
            && last <= first
            && last > back(oldest.first_sequence());
        stored.then(|| oldest.first_offset())
    }
    pub(super) fn last_sequence(&self) -> Sequence {
        self.window
            .last()
            .map_or(Sequence::NONE, |b| b.last_sequence)
    }
    pub(super) fn summary(&self, id: ProducerId) -> ProducerSummary {
        ProducerSummary {
            id,
            epoch: self.epoch,
            last_sequence: self.last_sequence(),
            last_timestamp: self.seen.ms(),
            coordinator_epoch: self.coordinator_epoch,
            transaction_start: self.transaction,
        }
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
    /// It was added to the window, and pushed the oldest out; perhaps it began a transaction.
    Pushed {
        id: ProducerId,
        evicted: Option<Stored>,
        seen: Seen,
        began: bool,
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

/// What a leader knows of an append beside the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Sequences are checked: it comes from a client.
    pub(super) sequenced: bool,
    /// The batch may begin a transaction: its coordinator said so after the log ended there.
    pub(super) verified: Option<Offset>,
}

/// All producers of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Producers {
    // Ordered, so that snapshots and answers don't depend on a hash.
    map: BTreeMap<ProducerId, Producer>,
    /// Open transactions by their first offset.
    open: BTreeMap<Offset, ProducerId>,
    /// Transactions that ended at or after the high watermark, by their first offset: the marker's offset.
    ended: BTreeMap<Offset, Offset>,
}

/// What a batch changed.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) undo: Undo,
    /// The batch is the marker that aborted it.
    pub(super) aborted: Option<AbortedTransaction>,
}

/// What a log tells of a producer: a batch, and what it marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) header: BatchHeader,
    pub(super) marker: Option<EndTxnMarker>,
}

impl Told {
    /// Read back from the log: when it came isn't known.
    pub(super) fn tell(&self, producers: &mut Producers) -> Applied {
        let seen = Seen::Unknown(self.header.max_timestamp);
        producers.apply(&self.header, self.marker, seen)
    }
}

/// How many batches of a producer are remembered.
fn window() -> usize {
    WINDOW - usize::from(active(Mutant::WindowOfFour))
}

impl Producers {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> {
        self.map.iter().map(|(id, p)| (*id, p))
    }
    pub(super) fn insert(&mut self, id: ProducerId, producer: Producer) {
        let began = producer.transaction;
        let before = self.map.insert(id, producer);
        self.relink(id, before.and_then(|p| p.transaction), began);
    }
    pub(super) fn get_mut(&mut self, id: ProducerId) -> Option<&mut Producer> {
        self.map.get_mut(&id)
    }
    pub(super) fn get(&self, id: ProducerId) -> Option<&Producer> {
        self.map.get(&id)
    }

    /// A producer's transaction is another one now.
    fn relink(&mut self, id: ProducerId, before: Option<Offset>, now: Option<Offset>) {
        if before == now {
            return;
        }
        if let Some(first) = before {
            self.open.remove(&first);
        }
        if let Some(first) = now {
            self.ended.remove(&first);
            self.open.insert(first, id);
        }
    }

    /// The first offset of a transaction that is open, or whose end lies at or after `high_watermark`.
    pub(super) fn first_unstable(&self, high_watermark: Offset) -> Option<Offset> {
        let open = self.open.keys().next().copied();
        let ended = self
            .ended
            .iter()
            .find(|(_, marker)| **marker >= high_watermark);
        ended.map(|(first, _)| *first).into_iter().chain(open).min()
    }

    /// Forgets transactions whose end nobody can take back any more.
    pub(super) fn settle(&mut self, high_watermark: Offset) {
        if !self.ended.is_empty() {
            self.ended.retain(|_, marker| *marker >= high_watermark);
        }
    }

    /// What a leader checks before a batch of records is appended. `Some`: it is stored already.
    pub(super) fn check(
        &self,
        batch: &BatchHeader,
        origin: Origin,
    ) -> Result<Option<Repeated>, AppendError> {
        if batch.producer_id < ProducerId(0) {
            return Ok(None);
        }
        let stored = self.check_sequence(batch, origin.sequenced)?;
        if stored.is_none() {
            let (id, epoch) = (batch.producer_id, batch.producer_epoch);
            let transactional = batch.attributes.is_transactional();
            self.check_transaction(id, epoch, transactional, origin.verified)?;
        }
        Ok(stored)
    }

    /// A transactional batch belongs to the transaction that is open, or begins one that the coordinator knows of; and while
    /// one is open nothing else comes from its producer.
    pub(super) fn check_transaction(
        &self,
        id: ProducerId,
        epoch: ProducerEpoch,
        transactional: bool,
        verified: Option<Offset>,
    ) -> Result<(), AppendError> {
        let known = self.map.get(&id);
        let open = known.filter(|p| p.transaction.is_some());
        let refused = |reason| {
            Err(AppendError::TransactionState {
                producer: id,
                reason,
            })
        };
        match (transactional, open) {
            (false, None) => Ok(()),
            (false, Some(_)) => {
                refused("has a transaction open here and sent a batch that isn't part of it")
            }
            (true, Some(open)) if open.epoch == epoch => Ok(()),
            (true, Some(_)) => {
                refused("has a transaction of an earlier epoch open here; it must be ended first")
            }
            (true, None) => match (verified, known) {
                (Some(seen), Some(known)) if known.last_marker >= seen => {
                    refused("sent a batch of a transaction that has ended meanwhile")
                }
                (Some(_), _) => Ok(()),
                (None, _) => refused("sent a batch of a transaction that isn't open here"),
            },
        }
    }

    /// What a leader checks before a marker is appended. False: it is here already.
    pub(super) fn check_marker(&self, marker: &Marker) -> Result<bool, AppendError> {
        let Some(known) = self.map.get(&marker.producer_id) else {
            return Ok(true);
        };
        // Since KIP-890 a marker's epoch is above that of its transaction: an equal one is of the transaction before.
        let late = marker.transaction_version >= 2
            && marker.producer_epoch == known.epoch
            && known.transaction.is_some();
        if marker.producer_epoch < known.epoch || late {
            return Err(AppendError::FencedProducer {
                producer: marker.producer_id,
                got: marker.producer_epoch,
                current: known.epoch,
            });
        }
        if marker.coordinator_epoch < known.coordinator_epoch {
            return Err(AppendError::FencedCoordinator {
                producer: marker.producer_id,
                got: marker.coordinator_epoch,
                current: known.coordinator_epoch,
            });
        }
        let again = known.transaction.is_none()
            && known.epoch == marker.producer_epoch
            && known.coordinator_epoch == marker.coordinator_epoch;
        Ok(!again)
    }

    /// Nothing comes from an older epoch.
    pub(super) fn check_epoch(
        &self,
        id: ProducerId,
        epoch: ProducerEpoch,
    ) -> Result<(), AppendError> {
        match self.map.get(&id) {
            Some(known) if epoch < known.epoch && !active(Mutant::LateFrameAccepted) => {
                Err(AppendError::FencedProducer {
                    producer: id,
                    got: epoch,
                    current: known.epoch,
                })
            }
            _ => Ok(()),
        }
    }

    fn check_sequence(
        &self,
        batch: &BatchHeader,
        sequenced: bool,
    ) -> Result<Option<Repeated>, AppendError> {
        // KIP-360: an unknown producer may go on with any sequence; its earlier records may have expired.
        let Some(known) = self.map.get(&batch.producer_id) else {
            return Ok(None);
        };
        self.check_epoch(batch.producer_id, batch.producer_epoch)?;
        if !sequenced {
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
                return match riverlog_mutants::active(riverlog_mutants::Mutant::DuplicateStored) {
                    true => Ok(None),
                    false => Ok(Some(Repeated::Known(*stored))),
                };
            }
            if let Some(end) = known.stored_before(batch) {
                return Ok(Some(Repeated::Before(end)));
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

    /// A batch is part of the log at its base offset; `marker` is what it marks. Also for followers and replay: nothing is
    /// checked.
    pub(super) fn apply(
        &mut self,
        batch: &BatchHeader,
        marker: Option<EndTxnMarker>,
        seen: Seen,
    ) -> Applied {
        if batch.producer_id < ProducerId(0) {
            return Applied::default();
        }
        match marker {
            Some(marker) => self.apply_marker(batch, marker, seen),
            None => Applied {
                undo: self.apply_records(batch, seen),
                aborted: None,
            },
        }
    }

    fn apply_records(&mut self, batch: &BatchHeader, seen: Seen) -> Undo {
        let id = batch.producer_id;
        let stored = (!batch.attributes.is_control()).then_some(Stored {
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta,
            timestamp: batch.max_timestamp,
        });
        let begins =
            (stored.is_some() && batch.attributes.is_transactional()).then_some(batch.base_offset);
        let Some(known) = self.map.get_mut(&id) else {
            let producer = Producer {
                window: stored.into_iter().collect(),
                transaction: begins,
                ..Producer::new(batch.producer_epoch, seen)
            };
            self.insert(id, producer);
            return Undo::Created(id);
        };
        if batch.producer_epoch != known.epoch || stored.is_none() {
            let mut producer = Producer {
                seen,
                ..known.clone()
            };
            if batch.producer_epoch != known.epoch {
                producer.begin(batch.producer_epoch);
            }
            producer.window.extend(stored);
            producer.transaction = producer.transaction.or(begins);
            let before = known.clone();
            self.insert(id, producer);
            return Undo::Replaced(id, Box::new(before));
        }
        let before = std::mem::replace(&mut known.seen, seen);
        let evicted = stored.and_then(|batch| known.push(batch));
        let begins = begins.filter(|_| known.transaction.is_none());
        if begins.is_some() {
            known.transaction = begins;
            self.relink(id, None, begins);
        }
        Undo::Pushed {
            id,
            evicted,
            seen: before,
            began: begins.is_some(),
        }
    }

    fn apply_marker(&mut self, batch: &BatchHeader, marker: EndTxnMarker, seen: Seen) -> Applied {
        let id = batch.producer_id;
        let before = self.map.get(&id).cloned();
        let mut producer = before
            .clone()
            .unwrap_or_else(|| Producer::new(batch.producer_epoch, seen));
        if producer.epoch != batch.producer_epoch {
            producer.begin(batch.producer_epoch);
        }
        producer.seen = seen;
        producer.coordinator_epoch = marker.coordinator_epoch;
        producer.last_marker = batch.base_offset;
        let first = producer.transaction.take();
        self.insert(id, producer);
        let mut aborted = None;
        if let Some(first) = first {
            self.ended.insert(first, batch.base_offset);
            aborted = (!marker.committed).then(|| AbortedTransaction {
                producer_id: id,
                first,
                last: batch.base_offset,
                last_stable: match self.open.keys().next() {
                    Some(open) => *open,
                    None => batch.next_offset(),
                },
            });
        }
        Applied {
            undo: match before {
                Some(before) => Undo::Replaced(id, Box::new(before)),
                None => Undo::Created(id),
            },
            aborted,
        }
    }

    /// Takes back the newest batch that is not taken back yet.
    pub(super) fn undo(&mut self, undo: &Undo) {
        let undo = match riverlog_mutants::active(riverlog_mutants::Mutant::UndoForgotten) {
            true => &Undo::Nothing,
            false => undo,
        };
        match undo {
            Undo::Nothing => {}
            Undo::Created(id) => {
                let gone = self.map.remove(id);
                self.relink(*id, gone.and_then(|p| p.transaction), None);
            }
            Undo::Pushed {
                id,
                evicted,
                seen,
                began,
            } => {
                let Some(known) = self.map.get_mut(id) else {
                    return;
                };
                known.window.pop();
                if let Some(evicted) = evicted {
                    known.window.insert(0, *evicted);
                }
                known.seen = *seen;
                if *began {
                    let first = known.transaction.take();
                    self.relink(*id, first, None);
                }
            }
            Undo::Replaced(id, before) => self.insert(*id, (**before).clone()),
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

    /// Forgets producers that were silent for longer than `expiration_ms`, unless they have a transaction open, or a batch
    /// of theirs is at or after `written`: that one may still be taken back. `last` is when that was last looked for.
    pub(super) fn expire(
        &mut self,
        last: Option<Looked>,
        now: Looked,
        expiration_ms: u64,
        written: Offset,
    ) -> usize {
        let expiration = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
        let before = self.map.len();
        self.map.retain(|id, p| {
            let expiration = match id.is_keyed() {
                true => expiration.min(ProducerId::KEYED_FOR_MS),
                false => expiration,
            };
            p.seen = Seen::At(match p.seen {
                // A backfill's records are old the moment they arrive: silence counts from when we first look.
                Seen::Unknown(_) => now.wall_ms,
                Seen::At(ms) => now.corrected(ms, last, expiration),
            });
            let in_flight = p.newest() >= written;
            let silent = now.wall_ms.saturating_sub(p.seen.ms());
            in_flight || p.transaction.is_some() || silent <= expiration
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
        self.iter().map(|(id, p)| p.summary(id)).collect()
    }
    /// Whether any of `undos` is about a producer that is known here.
    pub(super) fn touched<'a>(&self, mut undos: impl Iterator<Item = &'a Undo>) -> bool {
        undos.any(|u| u.id().is_some())
    }
}
