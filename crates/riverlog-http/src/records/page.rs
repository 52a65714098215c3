//! A page of records of several partitions, put in order of their times; within a partition the order is the log's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::TopicImage;
use riverlog_node::Isolation;
use riverlog_wire::Offset;

use super::place::Places;
use crate::door::HttpDoor;
use crate::fetch::read::{Fetched, Reader};
use crate::problem::Problem;

/// Bytes that a page may take, over all partitions; a first record comes whole even when it is larger.
const PAGE_BYTES: usize = 8 << 20;
/// What a partition may take at least, however many there are.
const LEAST_BYTES: usize = 64 << 10;
/// How often a look back is widened, each time to twice as much, before a page with less is good enough.
const LOOKS: u32 = 12;

/// Records in order, and where they begin and end.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) records: Vec<(i32, Fetched)>,
    /// Of each partition: the first record that is in it, or would be.
    pub(super) first: Places,
    /// Behind the last.
    pub(super) next: Places,
}

/// What pages are cut from.
pub(super) struct Source<'a> {
    pub(super) door: &'a Arc<HttpDoor>,
    pub(super) topic: &'a Arc<TopicImage>,
    pub(super) bounds: &'a BTreeMap<i32, (Offset, Offset)>,
    pub(super) isolation: Isolation,
}

impl Source<'_> {
    fn share(&self) -> usize {
        (PAGE_BYTES / self.bounds.len().max(1)).max(LEAST_BYTES)
    }

    fn reader(&self, partition: i32, from: Offset, until: Offset) -> Reader {
        let until = Some(until);
        Reader::new(
            self.door,
            self.topic,
            partition,
            from,
            until,
            self.isolation,
        )
    }

    /// Up to `limit` records from the places on.
    pub(super) async fn forward(&self, from: Places, limit: usize) -> Result<Page, Problem> {
        let mut queues = BTreeMap::new();
        let mut page = Page {
            first: from.clone(),
            ..Page::default()
        };
        for (partition, from) in from {
            let end = self.bounds.get(&partition).map_or(from, |b| b.1);
            let mut reader = self.reader(partition, from, end);
            let mut records = Vec::new();
            if !reader.is_done() {
                let chunk = reader.read(limit, self.share(), Duration::ZERO).await?;
                records = chunk.records;
            }
            page.next.insert(partition, reader.position);
            queues.insert(partition, VecDeque::from(records));
        }
        while page.records.len() < limit {
            let least = queues
                .iter()
                .filter_map(|(partition, queue)| {
                    Some((queue.front()?.record.timestamp, *partition))
                })
                .min();
            let Some((_, partition)) = least else { break };
            if let Some(record) = queues.get_mut(&partition).and_then(VecDeque::pop_front) {
                page.records.push((partition, record));
            }
        }
        // What was read and had no room comes with the next page.
        for (partition, queue) in queues {
            if let Some(left) = queue.front() {
                page.next.insert(partition, left.record.offset);
            }
        }
        Ok(page)
    }

    /// Up to `limit` records before the places.
    pub(super) async fn backward(&self, until: Places, limit: usize) -> Result<Page, Problem> {
        let mut queues = BTreeMap::new();
        let mut page = Page {
            next: until.clone(),
            ..Page::default()
        };
        for (partition, until) in until {
            let (from, records) = self.before(partition, until, limit).await?;
            page.first.insert(partition, from);
            queues.insert(partition, records);
        }
        while page.records.len() < limit {
            let latest = queues
                .iter()
                .filter_map(|(partition, queue)| Some((queue.back()?.record.timestamp, *partition)))
                .max();
            let Some((_, partition)) = latest else { break };
            if let Some(record) = queues.get_mut(&partition).and_then(VecDeque::pop_back) {
                page.records.push((partition, record));
            }
        }
        page.records.reverse();
        for (partition, queue) in queues {
            if let Some(left) = queue.back() {
                page.first.insert(partition, left.record.offset.plus(1));
            }
        }
        Ok(page)
    }

    /// The last records before an offset, and where they begin. Compaction and transactions leave holes, so it looks back over
    /// twice as much each time until there are enough.
    async fn before(
        &self,
        partition: i32,
        until: Offset,
        limit: usize,
    ) -> Result<(Offset, VecDeque<Fetched>), Problem> {
        let start = self.bounds.get(&partition).map_or(until, |b| b.0);
        let wide = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut records: VecDeque<Fetched> = VecDeque::new();
        let mut seen = until;
        for look in 0..LOOKS {
            let back = wide.saturating_mul(1 << look);
            let from = Offset(seen.0.saturating_sub(back)).max(start);
            let mut older = VecDeque::new();
            let mut bytes = 0;
            let mut reader = self.reader(partition, from, seen);
            seen = from;
            while !reader.is_done() {
                let before = reader.position;
                let chunk = reader.read(limit, self.share(), Duration::ZERO).await?;
                if reader.position == before {
                    break;
                }
                for fetched in chunk.records {
                    bytes += size(&fetched);
                    older.push_back(fetched);
                    // The newest are wanted: the oldest make room.
                    while older.len() > limit || (bytes > self.share() && older.len() > 1) {
                        if let Some(gone) = older.pop_front() {
                            bytes -= size(&gone);
                            seen = gone.record.offset.plus(1);
                        }
                    }
                }
            }
            for fetched in older.into_iter().rev() {
                records.push_front(fetched);
            }
            if records.len() >= limit || seen <= start || seen > from {
                break;
            }
        }
        Ok((seen, records))
    }
}

fn size(fetched: &Fetched) -> usize {
    let len = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    len(&fetched.record.key) + len(&fetched.record.value)
}
