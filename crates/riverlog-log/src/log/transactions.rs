//! Transactions as one partition sees them: what is open, the markers that end it, and what was aborted.
//!
//! A transaction begins with its first batch, and ends with a marker of its coordinator. What lies at or after the first
//! offset of one that is open, or whose marker can still be taken back, is unstable.

use riverlog_wire::batch::{Batch, BatchHeader, EndTxnMarker};
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

#[cfg(doc)]
use super::AppendAs;
use super::bytes_at::{get_i16, get_i64};
use super::{AppendError, Appended, Log};
use crate::DiskError;

/// Bytes of an entry of a `.txnindex`.
pub(super) const ABORTED_ENTRY: usize = 34;
/// Kafka's only version of it.
const ABORTED_VERSION: i16 = 0;
/// A marker fits into less, also one with what a later version may add.
const MARKER_LIMIT: usize = 4096;

/// The end of a transaction in one partition, as its coordinator has it written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Whose transaction.
    pub producer_id: ProducerId,
    /// The epoch to end it with. Under transaction version 2 (KIP-890) it is above that of the transaction, and later batches
    /// of the old epoch are refused.
    pub producer_epoch: ProducerEpoch,
    /// Leader epoch of the coordinator's partition; markers of an earlier coordinator are refused.
    pub coordinator_epoch: i32,
    /// `transaction.version` that the transaction ran under: 0 to 2.
    pub transaction_version: i16,
    /// Commit, or abort.
    pub committed: bool,
}

/// A transaction that was aborted: an entry of a `.txnindex`, in the segment that holds the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first: Offset,
    /// Offset of the marker.
    pub last: Offset,
    /// Up to where everything was decided once it had ended.
    pub last_stable: Offset,
}

impl AbortedTransaction {
    /// The entry.
    pub fn encode(&self) -> [u8; ABORTED_ENTRY] {
        let mut out = [0; ABORTED_ENTRY];
        out[..2].copy_from_slice(&ABORTED_VERSION.to_be_bytes());
        out[2..10].copy_from_slice(&self.producer_id.0.to_be_bytes());
        out[10..18].copy_from_slice(&self.first.0.to_be_bytes());
        out[18..26].copy_from_slice(&self.last.0.to_be_bytes());
        out[26..].copy_from_slice(&self.last_stable.0.to_be_bytes());
        out
    }
    fn decode(bytes: &[u8]) -> Option<AbortedTransaction> {
        if get_i16(bytes, 0)? != ABORTED_VERSION {
            return None;
        }
        Some(AbortedTransaction {
            producer_id: ProducerId(get_i64(bytes, 2)?),
            first: Offset(get_i64(bytes, 10)?),
            last: Offset(get_i64(bytes, 18)?),
            last_stable: Offset(get_i64(bytes, 26)?),
        })
    }
}

/// The entries of a `.txnindex`, in order of their markers; `None` when it isn't one.
pub fn parse_aborted(bytes: &[u8]) -> Option<Vec<AbortedTransaction>> {
    let entries = bytes.chunks_exact(ABORTED_ENTRY);
    if !entries.remainder().is_empty() {
        return None;
    }
    entries.map(AbortedTransaction::decode).collect()
}

/// What a control batch marks, when it is the end of a transaction; `None` also for one that can't be read.
pub(super) fn marker_of(header: &BatchHeader, bytes: &[u8]) -> Option<EndTxnMarker> {
    if !header.attributes.is_control() || header.producer_id < ProducerId(0) {
        return None;
    }
    let batch = Batch {
        header: *header,
        bytes: bytes.get(..header.size())?,
    };
    batch.check_crc().ok()?;
    let records = batch.records(MARKER_LIMIT).ok()?;
    let first = records.iter().next()?.ok()?;
    EndTxnMarker::parse(first.key.as_deref(), first.value.as_deref()).ok()?
}

impl Log {
    /// Ends a producer's transaction here, with a control batch of its own. Does nothing when the marker is here already: the
    /// answer is then the log's end, before which it lies.
    ///
    /// Refused from an older producer epoch, from an older coordinator, and, under transaction version 2, when a transaction
    /// of the marker's own epoch is open, which must be a later one.
    pub fn append_marker(
        &mut self,
        marker: &Marker,
        epoch: LeaderEpoch,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        if let Some(error) = self.failed.clone().or_else(|| self.volume.failed()) {
            return Err(error.into());
        }
        let end = self.end;
        if !self.loaded_mut()?.producers.check_marker(marker)? {
            return Ok(Appended {
                first: end,
                next: end,
                log_append_time_ms: None,
                duplicate: true,
            });
        }
        self.follow_sync_setting();
        let control = EndTxnMarker {
            committed: marker.committed,
            coordinator_epoch: marker.coordinator_epoch,
        };
        let batch = control.batch(marker.producer_id, marker.producer_epoch, now_ms);
        self.append_checked(batch, epoch, now_ms)
    }

    /// Whether the producer has a transaction open here, begun with that epoch.
    pub fn is_in_transaction(
        &self,
        producer: ProducerId,
        epoch: ProducerEpoch,
    ) -> Result<bool, DiskError> {
        let known = self.loaded()?.producers.get(producer);
        Ok(known.is_some_and(|p| p.transaction.is_some() && p.epoch == epoch))
    }

    /// Whether a transaction of the producer was ended here at `seen` or later, and none is open.
    pub fn ended_since(&self, producer: ProducerId, seen: Offset) -> Result<bool, DiskError> {
        let known = self.loaded()?.producers.get(producer);
        Ok(known.is_some_and(|p| p.transaction.is_none() && p.last_marker >= seen))
    }

    /// Whether a batch of the broker's own ([`AppendAs::Coordinator`]) would be taken.
    pub fn may_append_in_transaction(
        &self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        verified: Offset,
    ) -> Result<(), AppendError> {
        let producers = &self.loaded()?.producers;
        producers.check_epoch(producer, epoch)?;
        producers.check_transaction(producer, epoch, true, Some(verified))
    }

    /// Transactions that were aborted, and may have records in `from..until`; in order of their markers.
    pub fn aborted(&self, from: Offset, until: Offset) -> Vec<AbortedTransaction> {
        let mut out = Vec::new();
        let Some(log) = self.loaded.get() else {
            return out;
        };
        let after = log.segments.partition_point(|s| s.base <= from);
        for segment in log.segments.iter().skip(after.saturating_sub(1)) {
            let state = segment.state();
            let ended = state.aborted.partition_point(|a| a.last < from);
            for aborted in state.aborted.iter().skip(ended) {
                if aborted.first < until {
                    out.push(*aborted);
                }
                // Whatever was open then begins behind.
                if aborted.last_stable >= until {
                    return out;
                }
            }
        }
        out
    }

    /// Makes sure that open and aborted transactions are known: reads the folder of a log that was not used since it was
    /// opened.
    pub fn know_transactions(&mut self) -> Result<(), DiskError> {
        self.loaded_mut().map(|_| ())
    }

    /// The first offset of a transaction that is open, or whose marker lies at or after `high_watermark`. `None`: everything
    /// before the high watermark is decided, as far as is known ([`Log::know_transactions`]).
    pub fn first_unstable_offset(&self, high_watermark: Offset) -> Option<Offset> {
        let log = self.loaded.get()?;
        let first = log.producers.first_unstable(high_watermark)?;
        Some(first.max(self.start)).filter(|first| *first < high_watermark)
    }

    /// Nothing before `high_watermark` is taken back any more.
    pub fn settle_transactions(&mut self, high_watermark: Offset) {
        if let Some(log) = self.loaded.get_mut() {
            log.producers.settle(high_watermark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kafkas() {
        let entry = AbortedTransaction {
            producer_id: ProducerId(0x0102),
            first: Offset(3),
            last: Offset(0x0500),
            last_stable: Offset(0x0501),
        };
        let bytes = entry.encode();
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0,
            0, 0, 0, 5, 1,
        ];
        assert_eq!(bytes, expected);
        let two = [bytes, bytes].concat();
        assert_eq!(parse_aborted(&two), Some(vec![entry, entry]));
        assert_eq!(parse_aborted(&two[..two.len() - 1]), None);
        assert_eq!(parse_aborted(&[1; ABORTED_ENTRY]), None);
        assert_eq!(parse_aborted(&[]), Some(Vec::new()));
    }
}
