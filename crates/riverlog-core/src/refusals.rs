//! Batches of idempotent producers that a leader has refused a moment ago and that will come again.
//!
//! A client has several batches under way to a partition. When the first is refused for a reason that passes, and the reason passes before the
//! second is looked at, that one has a gap before it. OUT_OF_ORDER_SEQUENCE_NUMBER, which Kafka's broker answers then, is final for some clients:
//! librdkafka 2.16 takes a new epoch and sends what it had under way to other partitions again, which may be stored already. To an unknown
//! producer it is worse: its second batch would be taken as the first (KIP-360). So what follows a refused batch is refused in the same words,
//! until that batch has come again.
//!
//! A soft state: what is forgotten is answered as Kafka would.

use std::time::Duration;

use riverlog_wire::batch::BatchHeader;
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

/// For so long the batches behind a refused one are refused: they are under way already, and a client's request ends after 30 s unless set.
const HELD: Duration = Duration::from_secs(30);

/// Producers remembered for each partition; the oldest are forgotten first.
const MOST: usize = 128;

/// What one partition's leader remembers.
#[derive(Debug, Default)]
pub struct Refusals(Vec<Refusal>);

#[derive(Clone, Copy, Debug)]
struct Refusal {
    producer: ProducerId,
    epoch: ProducerEpoch,
    /// The first that was refused.
    sequence: Sequence,
    error: ErrorCode,
    until: Duration,
}

impl Refusals {
    /// Whether nothing was refused lately.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A batch was refused at `now`. Only errors that pass are remembered, and only of batches that have a sequence.
    pub fn refused(&mut self, batch: &BatchHeader, error: ErrorCode, now: Duration) {
        if !error.retriable() || batch.producer_id < ProducerId(0) {
            return;
        }
        self.0.retain(|r| r.until > now);
        let mut refusal = Refusal {
            producer: batch.producer_id,
            epoch: batch.producer_epoch,
            sequence: batch.base_sequence,
            error,
            until: now.saturating_add(HELD),
        };
        if let Some(at) = self.0.iter().position(|r| r.producer == refusal.producer) {
            let earlier = self.0.remove(at);
            if earlier.epoch > refusal.epoch {
                self.0.push(earlier);
                return;
            }
            if earlier.epoch == refusal.epoch && refusal.sequence.is_after(earlier.sequence) {
                refusal.sequence = earlier.sequence;
            }
        }
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(refusal);
    }

    /// The partition holds the producer's records up to the sequence `last` of `epoch`, wherever they were taken.
    pub fn stored(&mut self, producer: ProducerId, epoch: ProducerEpoch, last: Sequence) {
        self.0.retain(|r| {
            r.producer != producer
                || r.epoch > epoch
                || (r.epoch == epoch && (last == Sequence::NONE || r.sequence.is_after(last)))
        });
    }

    /// The error that a batch before this one, which has not come again yet, was refused with.
    pub fn before(&self, batch: &BatchHeader, now: Duration) -> Option<ErrorCode> {
        let refusal = self.0.iter().find(|r| r.producer == batch.producer_id)?;
        let behind = refusal.epoch == batch.producer_epoch
            && batch.base_sequence.is_after(refusal.sequence)
            && refusal.until > now;
        behind.then_some(refusal.error)
    }
}

#[cfg(test)]
mod tests;
