//! Transactions: one shard for each partition of `__transaction_state`.
//!
//! A transactional id has a producer id with an epoch, and at most one transaction (KIP-98, 360, 588, 890). Its coordinator remembers
//! which partitions the transaction touches, and decides alone whether it is committed: from the moment when that decision
//! is durable, markers are written to every one of those partitions, again after each failure and each restart,
//! until all have them. Records are Kafka's own, so that its tools read them.
//!
//! ```text
//!            add partitions             end                 all markers written
//! Empty ───────────────────► Ongoing ──────► PrepareCommit ─────────────────────► CompleteCommit ──► Ongoing …
//!                               └──► PrepareAbort (also on time-out, or when a new instance starts) ──► CompleteAbort
//! ```
//!
//! Two versions of clients: those of version 1 add each partition by a request and keep their epoch; those of version 2 (KIP-890)
//! let the partitions' leaders add them, and get a new epoch with every end of a transaction, so that a late frame of an
//! earlier transaction never touches a later one.

mod queries;
pub mod records;
mod shard;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId};

pub use crate::coordinator::{StoredRecord, Token};
pub use queries::{TransactionDescription, TransactionFilter};
pub use shard::TransactionShard;
pub use value::{TransactionState, TransactionValue};

use crate::coordinator;

/// The topic, by name, and the number of a partition.
pub type Place = (String, i32);

/// What a decision about transactions asks the host to do.
pub type Decision = coordinator::Decision<Soft, TransactionAnswer, WriteMarkers>;

/// An answer about a transaction, and when it may be sent.
pub type Answer = coordinator::Answer<TransactionAnswer>;

/// A change that a fail-over may forget. Made by `decide`, given back to [`TransactionShard::soft`].
#[derive(Clone, Debug)]
pub struct Soft(shard::SoftChange);

/// Which protocol of transactions a client, or the cluster (feature `transaction.version`), speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransactionVersion(pub i16);

impl TransactionVersion {
    /// Clients that add partitions themselves and keep their epoch.
    pub const ONE: TransactionVersion = TransactionVersion(0);
    /// KIP-890: leaders add partitions, and each end of a transaction bumps the epoch.
    pub const TWO: TransactionVersion = TransactionVersion(2);

    /// Whether the end of a transaction bumps the epoch.
    pub fn bumps_epoch(self) -> bool {
        self >= TransactionVersion::TWO
    }
}

/// Settings of transactions (Kafka's broker keys).
#[derive(Clone, Debug)]
pub struct TransactionSettings {
    /// `transaction.max.timeout.ms`, default 15 min.
    pub max_timeout: Duration,
    /// `transactional.id.expiration.ms`, default 7 days.
    pub id_expiration: Duration,
}

impl Default for TransactionSettings {
    fn default() -> Self {
        TransactionSettings {
            max_timeout: Duration::from_secs(900),
            id_expiration: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// A command to the coordinator of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TransactionCommand {
    /// InitProducerId.
    Init {
        /// Transactional id.
        id: String,
        /// How long its transactions may last.
        timeout_ms: i32,
        /// KIP-360: what the client holds, when it goes on after an error.
        resume: Option<(ProducerId, ProducerEpoch)>,
        /// A producer id that nobody has. Without one the answer may be [`TransactionAnswer::NeedsProducerId`].
        fresh: Option<ProducerId>,
    },
    /// AddPartitionsToTxn, AddOffsetsToTxn, or a leader that adds a partition on the way (KIP-890).
    Add {
        /// Transactional id.
        id: String,
        /// Producer id.
        producer_id: ProducerId,
        /// Its epoch.
        epoch: ProducerEpoch,
        /// What to add: all, or none.
        partitions: Vec<Place>,
        /// The client's.
        version: TransactionVersion,
    },
    /// Whether partitions are in the transaction that is open now.
    Verify {
        /// Transactional id.
        id: String,
        /// Producer id.
        producer_id: ProducerId,
        /// Its epoch.
        epoch: ProducerEpoch,
        /// Which.
        partitions: Vec<Place>,
    },
    /// EndTxn.
    End {
        /// Transactional id.
        id: String,
        /// Producer id.
        producer_id: ProducerId,
        /// Its epoch.
        epoch: ProducerEpoch,
        /// Or abort.
        commit: bool,
        /// The client's.
        version: TransactionVersion,
        /// A producer id that nobody has. Without one the answer may be [`TransactionAnswer::NeedsProducerId`].
        fresh: Option<ProducerId>,
    },
    /// The host: what became of the markers of [`WriteMarkers`].
    MarkersWritten {
        /// Transactional id.
        id: String,
        /// [`WriteMarkers::prepared_at`].
        prepared_at: Offset,
        /// Which of them a partition took, or which it will never need (its topic is gone); the others are tried again.
        done: Vec<Place>,
    },
}

impl TransactionCommand {
    /// The transactional id that it is for.
    pub fn id(&self) -> &str {
        match self {
            TransactionCommand::Init { id, .. }
            | TransactionCommand::Add { id, .. }
            | TransactionCommand::Verify { id, .. }
            | TransactionCommand::End { id, .. }
            | TransactionCommand::MarkersWritten { id, .. } => id,
        }
    }
}

/// The answer to a [`TransactionCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionAnswer {
    /// The command has to be given again, with a fresh producer id.
    NeedsProducerId,
    /// Init, End: what the producer goes on with. NONE ids on errors, and after the end of a transaction of version 1.
    Producer {
        /// Error.
        error: ErrorCode,
        /// Producer id.
        producer_id: ProducerId,
        /// Epoch.
        epoch: ProducerEpoch,
    },
    /// Add: one for all. MarkersWritten: NONE.
    Error(ErrorCode),
    /// Verify: an error for each partition asked, in order.
    Partitions(Vec<ErrorCode>),
}

/// What a decided transaction still needs: a marker in each of its partitions. The host answers with
/// [`TransactionCommand::MarkersWritten`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteMarkers {
    /// Transactional id.
    pub id: String,
    /// Position of the decision in the shard's log, to recognise answers to an earlier one.
    pub prepared_at: Offset,
    /// Producer id.
    pub producer_id: ProducerId,
    /// The epoch that the markers carry.
    pub epoch: ProducerEpoch,
    /// Or abort.
    pub commit: bool,
    /// The client's.
    pub version: TransactionVersion,
    /// Where.
    pub partitions: BTreeSet<Place>,
}
