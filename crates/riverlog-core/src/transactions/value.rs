//! What is durable of a transactional id, and how one state follows from another.

use std::collections::BTreeSet;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ProducerEpoch, ProducerId};

use super::{Place, TransactionVersion};

/// Where a transactional id stands. The numbers are those of Kafka's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransactionState {
    /// There was no transaction since its producer was initialised.
    Empty = 0,
    /// A transaction is open.
    Ongoing = 1,
    /// Committed; markers are being written.
    PrepareCommit = 2,
    /// Aborted; markers are being written.
    PrepareAbort = 3,
    /// The last transaction was committed, and all markers are written.
    CompleteCommit = 4,
    /// The last transaction was aborted, and all markers are written.
    CompleteAbort = 5,
    /// Kafka's, while it forgets an id; never ours, and read like a forgotten one.
    Dead = 6,
    /// Kafka's, between fencing a producer and aborting its transaction, which is one step here.
    PrepareEpochFence = 7,
}

/// All states, in order of their numbers.
pub(super) const STATES: [TransactionState; 8] = [
    TransactionState::Empty,
    TransactionState::Ongoing,
    TransactionState::PrepareCommit,
    TransactionState::PrepareAbort,
    TransactionState::CompleteCommit,
    TransactionState::CompleteAbort,
    TransactionState::Dead,
    TransactionState::PrepareEpochFence,
];

impl TransactionState {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            TransactionState::Empty => "Empty",
            TransactionState::Ongoing => "Ongoing",
            TransactionState::PrepareCommit => "PrepareCommit",
            TransactionState::PrepareAbort => "PrepareAbort",
            TransactionState::CompleteCommit => "CompleteCommit",
            TransactionState::CompleteAbort => "CompleteAbort",
            TransactionState::Dead => "Dead",
            TransactionState::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    /// By Kafka's name.
    pub fn from_name(name: &str) -> Option<TransactionState> {
        STATES.into_iter().find(|state| state.name() == name)
    }

    /// By its number.
    pub(super) fn from_id(id: i8) -> Option<TransactionState> {
        STATES.get(usize::try_from(id).ok()?).copied()
    }

    /// The outcome is decided, and markers may be missing.
    pub fn is_prepared(self) -> bool {
        matches!(
            self,
            TransactionState::PrepareCommit | TransactionState::PrepareAbort
        )
    }
}

/// The highest epoch that a client is ever given; the one after it only fences.
const LAST_EPOCH: i16 = i16::MAX - 1;

/// Whether a producer id has no epoch left for clients.
pub(super) fn is_exhausted(epoch: ProducerEpoch) -> bool {
    epoch.0 >= LAST_EPOCH
}

/// What is durable of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionValue {
    /// Its producer id.
    pub producer_id: ProducerId,
    /// The producer id before the last change; the same where that kept it.
    pub previous_producer_id: ProducerId,
    /// What the producer goes on with after this transaction, when its epochs are used up; −1: the same id.
    pub next_producer_id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// The epoch before the last bump, which a client that missed the answer still has; −1 when another instance was
    /// fenced by the bump. Kafka forgets it in a restart; here it is a tagged field of ours, which Kafka skips.
    pub last_epoch: ProducerEpoch,
    /// How long a transaction may last.
    pub timeout_ms: i32,
    /// State.
    pub state: TransactionState,
    /// What the open or just decided transaction touches.
    pub partitions: BTreeSet<Place>,
    /// When this value was made, ms since the epoch.
    pub updated_ms: i64,
    /// When the transaction began, ms since the epoch; −1: none did.
    pub started_ms: i64,
    /// The client's.
    pub version: TransactionVersion,
}

impl TransactionValue {
    /// A transactional id that nobody had before.
    pub(super) fn new(fresh: ProducerId, timeout_ms: i32, now_ms: i64) -> TransactionValue {
        TransactionValue {
            producer_id: fresh,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            epoch: ProducerEpoch::NONE,
            last_epoch: ProducerEpoch::NONE,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            updated_ms: now_ms,
            started_ms: -1,
            version: TransactionVersion::ONE,
        }
    }

    fn step(&self, state: TransactionState, now_ms: i64) -> TransactionValue {
        TransactionValue {
            state,
            previous_producer_id: self.producer_id,
            updated_ms: now_ms,
            ..self.clone()
        }
    }

    /// A producer is initialised with this epoch.
    pub(super) fn initialised(
        &self,
        epoch: ProducerEpoch,
        last_epoch: ProducerEpoch,
        timeout_ms: i32,
        now_ms: i64,
    ) -> TransactionValue {
        TransactionValue {
            epoch,
            last_epoch,
            timeout_ms,
            partitions: BTreeSet::new(),
            started_ms: -1,
            ..self.step(TransactionState::Empty, now_ms)
        }
    }

    /// As [`TransactionValue::initialised`], with a new producer id.
    pub(super) fn rotated(
        &self,
        fresh: ProducerId,
        resumes: bool,
        timeout_ms: i32,
        now_ms: i64,
    ) -> TransactionValue {
        let last = match resumes {
            true => self.epoch,
            false => ProducerEpoch::NONE,
        };
        TransactionValue {
            producer_id: fresh,
            ..self.initialised(ProducerEpoch(0), last, timeout_ms, now_ms)
        }
    }

    /// With more partitions; begins a transaction when none is open.
    pub(super) fn with(
        &self,
        partitions: Vec<Place>,
        version: TransactionVersion,
        now_ms: i64,
    ) -> TransactionValue {
        let began = match self.state {
            TransactionState::Ongoing => self.started_ms,
            _ => now_ms,
        };
        let mut value = self.step(TransactionState::Ongoing, now_ms);
        if active(Mutant::PartitionsReplaced) {
            value.partitions.clear();
        }
        value.partitions.extend(partitions);
        value.started_ms = began;
        value.version = version;
        value
    }

    /// Decided. `next` is a producer id to go on with, for when epochs are used up.
    pub(super) fn decided(
        &self,
        commit: bool,
        version: TransactionVersion,
        next: ProducerId,
        now_ms: i64,
    ) -> TransactionValue {
        let state = match commit {
            true => TransactionState::PrepareCommit,
            false => TransactionState::PrepareAbort,
        };
        let mut value = self.step(state, now_ms);
        if version.bumps_epoch() && !active(Mutant::EpochNotBumped) {
            value.last_epoch = self.epoch;
            value.epoch = ProducerEpoch(self.epoch.0.saturating_add(1));
        }
        value.next_producer_id = next;
        value.version = version;
        // An abort of nothing begins and ends at once.
        if self.state != TransactionState::Ongoing {
            value.started_ms = now_ms;
        }
        value
    }

    /// Aborted by the coordinator itself: the producer is fenced, whatever its client's version is.
    pub(super) fn fenced(&self, version: TransactionVersion, now_ms: i64) -> TransactionValue {
        let mut value = self.decided(false, version, ProducerId::NONE, now_ms);
        value.epoch = ProducerEpoch(self.epoch.0.saturating_add(1));
        value.last_epoch = ProducerEpoch::NONE;
        value
    }

    /// All markers are written.
    pub(super) fn completed(&self, now_ms: i64) -> TransactionValue {
        let state = match self.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            _ => TransactionState::CompleteAbort,
        };
        let mut value = self.step(state, now_ms);
        value.partitions = BTreeSet::new();
        (value.producer_id, value.epoch) = self.after();
        value.next_producer_id = ProducerId::NONE;
        value
    }

    /// What the producer goes on with when this transaction is complete.
    pub(super) fn after(&self) -> (ProducerId, ProducerEpoch) {
        if self.version.bumps_epoch() && self.next_producer_id != ProducerId::NONE {
            (self.next_producer_id, ProducerEpoch(0))
        } else {
            (self.producer_id, self.epoch)
        }
    }
}
