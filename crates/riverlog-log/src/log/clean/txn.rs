//! Transactions as the cleaner sees them: which records were aborted, and which markers nothing is left of.
//!
//! Nothing at or above the first open transaction is cleaned, so each transaction below it has ended; its marker may lie
//! above what is cleaned.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_wire::batch::{Batch, BatchHeader, EndTxnMarker};
use riverlog_wire::{Offset, ProducerId};

/// What a marker says; `None` for one that ends no transaction, or that was emptied.
fn marker(batch: &Batch<'_>) -> Option<EndTxnMarker> {
    /// A marker has one small record.
    const LIMIT: usize = 64 << 10;
    let records = batch.records(LIMIT).ok()?;
    let record = records.iter_refs().next()?.ok()?;
    EndTxnMarker::of(&record).ok()?
}

/// The transactions that were aborted, found by a walk over batches in order.
#[derive(Debug, Default)]
pub(super) struct Aborted {
    open: BTreeMap<ProducerId, Offset>,
    /// First and last offset (that of the marker) of each.
    ranges: BTreeMap<ProducerId, Vec<(Offset, Offset)>>,
}

impl Aborted {
    pub(super) fn on_batch(&mut self, batch: &Batch<'_>) {
        let header = &batch.header;
        if !header.attributes.is_transactional() {
            return;
        }
        if !header.attributes.is_control() {
            self.open
                .entry(header.producer_id)
                .or_insert(header.base_offset);
            return;
        }
        if let Some(marker) = marker(batch)
            && let Some(first) = self.open.remove(&header.producer_id)
            && !marker.committed
        {
            let of_producer = self.ranges.entry(header.producer_id).or_default();
            of_producer.push((first, header.last_offset()));
        }
    }
    /// Where the first transaction begins whose end has not been met.
    pub(super) fn open_from(&self) -> Option<Offset> {
        self.open.values().min().copied()
    }
    /// Whether the records of a batch were aborted.
    pub(super) fn has(&self, header: &BatchHeader) -> bool {
        let of_producer = self.ranges.get(&header.producer_id);
        of_producer.is_some_and(|ranges| {
            let after = ranges.partition_point(|(first, _)| *first <= header.base_offset);
            after
                .checked_sub(1)
                .and_then(|i| ranges.get(i))
                .is_some_and(|(_, last)| header.base_offset <= *last)
        })
    }
}

/// Producers of whose transaction a batch was met in this pass. Its marker has to stay as long as there is one.
#[derive(Debug, Default)]
pub(super) struct Seen {
    producers: BTreeSet<ProducerId>,
}

impl Seen {
    /// A batch of records.
    pub(super) fn on_batch(&mut self, header: &BatchHeader) {
        if header.attributes.is_transactional() {
            self.producers.insert(header.producer_id);
        }
    }
    /// A marker. Whether nothing is left of its transaction.
    pub(super) fn on_marker(&mut self, batch: &Batch<'_>) -> bool {
        if batch.header.record_count == 0 {
            return true;
        }
        marker(batch).is_some() && !self.producers.remove(&batch.header.producer_id)
    }
}
