//! Reads one partition in bounded pieces.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::metadata::{TopicImage, TopicRef};
use riverlog_node::{FetchCommand, FetchPartition, FetchedPartition, Isolation, Slice, Slices};
use riverlog_wire::batch::{Aborted, BatchError, RecordView, Records, batches};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};
use tokio::time::Instant;

use crate::door::HttpDoor;
use crate::problem::Problem;

/// The most that the records of one batch may decompress to.
const OPENED_LIMIT: usize = 64 << 20;

/// One record, and the epoch of its batch.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) record: RecordView,
    pub(crate) leader_epoch: LeaderEpoch,
}

/// What was read at once.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) records: Vec<Fetched>,
    /// Where the next read begins.
    pub(crate) next: Offset,
    pub(crate) high_watermark: Offset,
    pub(crate) last_stable_offset: Offset,
    pub(crate) log_start_offset: Offset,
}

/// Reads a partition from a position on.
#[derive(Debug)]
pub(crate) struct Reader {
    door: Arc<HttpDoor>,
    pub(crate) topic: Arc<TopicImage>,
    pub(crate) partition: i32,
    pub(crate) position: Offset,
    /// Reads no further (exclusive).
    pub(crate) until: Option<Offset>,
    isolation: Isolation,
}

impl Reader {
    pub(crate) fn new(
        door: &Arc<HttpDoor>,
        topic: &Arc<TopicImage>,
        partition: i32,
        position: Offset,
        until: Option<Offset>,
        isolation: Isolation,
    ) -> Reader {
        Reader {
            door: Arc::clone(door),
            topic: Arc::clone(topic),
            partition,
            position,
            until,
            isolation,
        }
    }

    /// Whether everything that was asked for has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.until.is_some_and(|until| self.position >= until)
    }

    /// Stored batches from the position on; the position stays.
    pub(crate) async fn fetch(
        &self,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<FetchedPartition, Problem> {
        let command = FetchCommand {
            partitions: vec![FetchPartition {
                topic: TopicRef::Id(self.topic.id),
                partition: self.partition,
                from: self.position,
                max_bytes,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            }],
            max_wait: wait,
            min_bytes: 1,
            max_bytes,
            isolation: self.isolation,
            replica: None,
        };
        let fetched = self.door.fetch(command).await?.into_iter().next();
        let fetched = fetched.ok_or_else(|| Problem::kafka(ErrorCode::UNKNOWN_SERVER_ERROR))?;
        match fetched.error {
            ErrorCode::NONE => Ok(fetched),
            ErrorCode::OFFSET_OUT_OF_RANGE => Err(self.out_of_range().await),
            error => Err(Problem::kafka(error)),
        }
    }

    async fn positions(&self) -> Result<(Offset, Offset), Problem> {
        let place = self.door.place(&self.topic, self.partition)?;
        self.door.positions(&place).await
    }

    async fn out_of_range(&self) -> Problem {
        let problem = Problem::kafka(ErrorCode::OFFSET_OUT_OF_RANGE);
        let Ok((start, end)) = self.positions().await else {
            return problem;
        };
        problem
            .detail(format!(
                "partition {} of topic {:?} holds offsets {start} to {end} (exclusive); {} isn't among them",
                self.partition, self.topic.name, self.position
            ))
            .with("log_start_offset", start.0)
            .with("high_watermark", end.0)
    }

    /// The first offset that is there.
    pub(crate) async fn start(&self) -> Option<Offset> {
        Some(self.positions().await.ok()?.0)
    }

    /// Up to `limit` records and about `max_bytes`, at least one record when there is any; waits for the first up to `wait`.
    /// The position moves behind them.
    pub(crate) async fn read(
        &mut self,
        limit: usize,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<Chunk, Problem> {
        let deadline = Instant::now() + wait;
        loop {
            let left = match self.is_done() {
                true => Duration::ZERO,
                false => deadline.saturating_duration_since(Instant::now()),
            };
            let fetched = self.fetch(max_bytes, left).await?;
            let mut chunk = Chunk {
                records: Vec::new(),
                next: self.position,
                high_watermark: fetched.high_watermark,
                last_stable_offset: fetched.last_stable_offset,
                log_start_offset: fetched.log_start_offset,
            };
            if fetched.records.len == 0 || self.is_done() {
                return Ok(chunk);
            }
            let aborted = Aborted::new(fetched.aborted);
            let bytes = whole(fetched.records).await?;
            let window = Window {
                from: self.position,
                until: self.until,
                limit,
                max_bytes,
            };
            let opened = open(&bytes, aborted, window, &mut chunk.records);
            chunk.next = opened.next;
            // What lies before the damage comes first.
            if let Some(error) = opened.damage.filter(|_| chunk.records.is_empty()) {
                return Err(damaged(chunk.next, &error));
            }
            let moved = chunk.next > self.position;
            self.position = chunk.next;
            // Markers and aborted records alone: there may be more behind them.
            if !chunk.records.is_empty() || !moved {
                return Ok(chunk);
            }
        }
    }
}

pub(crate) fn damaged(from: Offset, error: &BatchError) -> Problem {
    Problem::kafka(ErrorCode::CORRUPT_MESSAGE).detail(format!(
        "a batch at or after offset {from} can't be read: {error}"
    ))
}

/// What of stored batches to hand out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Offset,
    /// Exclusive.
    pub(crate) until: Option<Offset>,
    pub(crate) limit: usize,
    /// Of keys and values; the first record comes whole even when larger.
    pub(crate) max_bytes: usize,
}

/// What came of opening stored batches.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Where the next read begins.
    pub(crate) next: Offset,
    /// Bytes of keys and values that were taken.
    pub(crate) size: usize,
    /// Why what lies at `next` can't be opened.
    pub(crate) damage: Option<BatchError>,
}

/// Opens stored batches, up to what can't be opened: puts records into `out`.
pub(crate) fn open(
    bytes: &Bytes,
    aborted: Aborted,
    window: Window,
    out: &mut Vec<Fetched>,
) -> Opened {
    let mut opened = Opened {
        next: window.from,
        size: 0,
        damage: None,
    };
    opened.damage = take(bytes, aborted, window, &mut opened, out).err();
    opened
}

fn take(
    bytes: &Bytes,
    mut aborted: Aborted,
    window: Window,
    opened: &mut Opened,
    out: &mut Vec<Fetched>,
) -> Result<(), BatchError> {
    let mut count = 0;
    for batch in batches(bytes) {
        let batch = batch?;
        if aborted.passes_over(&batch.header) {
            opened.next = opened.next.max(batch.header.next_offset());
            continue;
        }
        for record in Records::shared(&bytes.slice_ref(batch.bytes), OPENED_LIMIT)? {
            let record = record?;
            if record.offset < window.from {
                continue;
            }
            let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
            let own = len(&record.key) + len(&record.value);
            let full = count >= window.limit || opened.size + own > window.max_bytes;
            let past = window.until.is_some_and(|until| record.offset >= until);
            if past || (full && count > 0) {
                return Ok(());
            }
            opened.size += own;
            count += 1;
            opened.next = record.offset.plus(1);
            out.push(Fetched {
                record,
                leader_epoch: batch.header.leader_epoch,
            });
        }
        opened.next = opened.next.max(batch.header.next_offset());
    }
    Ok(())
}

/// All bytes in one piece; what is still in files is read on a thread that may wait.
pub(crate) async fn whole(slices: Slices) -> Result<Bytes, Problem> {
    let failed = |why: String| Problem::kafka(ErrorCode::KAFKA_STORAGE_ERROR).detail(why);
    let in_files = |part: &Slice| matches!(part, Slice::File { .. });
    if !slices.parts.iter().any(in_files) {
        return slices.into_bytes().map_err(|e| failed(e.to_string()));
    }
    match tokio::task::spawn_blocking(move || slices.into_bytes()).await {
        Ok(read) => read.map_err(|e| failed(e.to_string())),
        Err(_) => Err(Problem::closing()),
    }
}
