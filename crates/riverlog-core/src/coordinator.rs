//! What all coordinators have in common: they keep their state as records of one partition, and decide before they do.

use std::convert::Infallible;

use bytes::Bytes;
use riverlog_wire::Offset;

/// Names an answer that the host owes; chosen by the host, unique among the open ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A record of a coordinator's partition, key and value in Kafka's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Never null.
    pub key: Bytes,
    /// `None` is a tombstone.
    pub value: Option<Bytes>,
}

/// What a decision asks the host to do, in this order: perform `soft` now, append `records` as one batch, `apply` each when
/// appended; send each answer, and do each effect, once everything that it revealed is durable (its `after`, and
/// the records of this decision).
///
/// `S` are the coordinator's soft changes, `A` its answers, `E` its effects.
#[derive(Clone, Debug)]
pub struct Decision<S, A, E = Infallible> {
    /// To append atomically; empty: nothing to write.
    pub records: Vec<StoredRecord>,
    /// To perform before the append.
    pub soft: Vec<S>,
    /// To send, each to its token.
    pub answers: Vec<Answer<A>>,
    /// To do outside the coordinator.
    pub effects: Vec<Effect<E>>,
}

impl<S, A, E> Default for Decision<S, A, E> {
    fn default() -> Self {
        Decision {
            records: Vec::new(),
            soft: Vec::new(),
            answers: Vec::new(),
            effects: Vec::new(),
        }
    }
}

impl<S, A, E> Decision<S, A, E> {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.soft.is_empty()
            && self.answers.is_empty()
            && self.effects.is_empty()
    }
}

/// An answer, and the position of the coordinator's partition that must be durable before it is sent.
#[derive(Clone, Debug)]
pub struct Answer<A> {
    /// Who waits for it.
    pub token: Token,
    /// What they get.
    pub body: A,
    /// The shard's log offset (exclusive) up to which this answer has read; besides, the records of its decision.
    pub after: Offset,
}

/// Something to do, and the position of the coordinator's partition that must be durable before.
#[derive(Clone, Debug)]
pub struct Effect<E> {
    /// What to do.
    pub body: E,
    /// The shard's log offset (exclusive) that it rests on; besides, the records of its decision.
    pub after: Offset,
}
