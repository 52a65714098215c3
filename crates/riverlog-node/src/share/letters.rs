//! What dead letters say, and how many go into one batch (KIP-1191).

use riverlog_core::share::{Dead, DeathCause, ShareKey};
use riverlog_wire::Offset;
use riverlog_wire::batch::{Batch, BatchBuilder, batches};
use riverlog_wire::compression::Compression;

/// Bytes of one batch, unless a letter alone has more.
pub(super) const BATCH_BYTES: usize = 512 << 10;

/// Bytes that a batch may open to whose records are copied.
const OPENED_LIMIT: usize = 64 << 20;

/// Letters of a range, as many as go into one batch.
pub(super) struct Letters<'a> {
    dead: Dead,
    key: &'a ShareKey,
    topic: &'a str,
    /// Bytes that the batch may have: a copy that makes a letter larger alone is left out.
    limit: usize,
    now_ms: i64,
    out: BatchBuilder,
    count: u64,
}

/// A batch of letters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// `None`: none of them is a record any more.
    pub(super) batch: Option<Vec<u8>>,
    /// Letters in it.
    pub(super) count: u64,
    /// The last offset that it speaks of, or of which there is nothing to say. At least the first of the range.
    pub(super) told: Offset,
}

impl<'a> Letters<'a> {
    /// `topic`: the name of the one that the records are in. `limit`: the `max.message.bytes` of the one that letters go to.
    pub(super) fn new(
        dead: Dead,
        key: &'a ShareKey,
        topic: &'a str,
        limit: usize,
        now_ms: i64,
    ) -> Letters<'a> {
        Letters {
            dead,
            key,
            topic,
            limit: limit.min(BATCH_BYTES),
            now_ms,
            out: BatchBuilder::new(Compression::None),
            count: 0,
        }
    }

    /// Letters without copies, up to `last`.
    pub(super) fn bare(mut self, last: Offset) -> Written {
        let told = self.add_bare(self.dead.first, last.min(self.dead.last));
        self.written(told)
    }

    /// Letters with copies of records, from batches that were read from the first of them on. `None`: they say nothing of the first.
    pub(super) fn copies(mut self, bytes: &[u8]) -> Option<Written> {
        let (first, last) = (self.dead.first, self.dead.last);
        let mut told = first.plus(-1);
        for batch in batches(bytes).map_while(Result::ok) {
            let header = &batch.header;
            // What lay before it was compacted away meanwhile.
            told = told.max(header.base_offset.plus(-1).min(last));
            let end = last.min(header.last_offset());
            if told >= end {
                continue;
            }
            told = match header.attributes.is_control() {
                true => end,
                false => self.add_batch(&batch, told, end),
            };
            if told < end {
                break;
            }
        }
        (told >= first).then(|| self.written(told))
    }

    /// Adds the records of a batch between two offsets, and returns up to where they found room. What can't be opened is told of without a copy.
    fn add_batch(&mut self, batch: &Batch<'_>, mut told: Offset, end: Offset) -> Offset {
        let Ok(records) = batch.records(OPENED_LIMIT) else {
            return self.add_bare(told.plus(1), end);
        };
        for record in records.iter_refs() {
            let Ok(record) = record else {
                return self.add_bare(told.plus(1), end);
            };
            if record.offset > end {
                break;
            }
            if record.offset > told {
                if !self.add(record.offset, record.key, record.value) {
                    return record.offset.plus(-1);
                }
                told = record.offset;
            }
        }
        end
    }

    /// Returns the last that found room.
    fn add_bare(&mut self, first: Offset, last: Offset) -> Offset {
        let mut told = first.plus(-1);
        while told < last && self.add(told.plus(1), None, None) {
            told = told.plus(1);
        }
        told
    }

    /// `false`: there is no room for it behind others.
    fn add(&mut self, at: Offset, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let (partition, offset) = (self.key.partition.to_string(), at.0.to_string());
        let count = self.dead.delivery_count.to_string();
        let cause = match self.dead.cause {
            DeathCause::Rejected => "Offset rejected by client.",
            DeathCause::TooOften => "Offset delivery count exceeded the threshold.",
        };
        let headers = [
            ("__dlq.errors.topic", self.topic),
            ("__dlq.errors.partition", &partition),
            ("__dlq.errors.offset", &offset),
            ("__dlq.errors.group", &self.key.group),
            ("__dlq.errors.delivery.count", &count),
            ("__dlq.errors.message", cause),
        ];
        let headers = headers.map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())));
        let size = self.out.record_size(self.now_ms, key, value, &headers);
        let fits = self.out.size() + size <= self.limit;
        if !fits && !self.out.is_empty() {
            return false;
        }
        // One that is too large alone still says where the record is.
        let (key, value) = match fits {
            true => (key, value),
            false => (None, None),
        };
        self.out.push(self.now_ms, key, value, &headers);
        self.count += 1;
        true
    }

    fn written(mut self, told: Offset) -> Written {
        Written {
            batch: (!self.out.is_empty()).then(|| self.out.build()),
            count: self.count,
            told,
        }
    }
}

#[cfg(test)]
mod tests;
