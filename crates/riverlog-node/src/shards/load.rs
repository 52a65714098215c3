//! Loading a shard: its log, record by record, off the caller's thread.

use std::sync::Arc;

use riverlog_core::Now;
use riverlog_log::{Read, ReadError};
use riverlog_wire::batch::{BatchError, EndTxnMarker, batches};
use riverlog_wire::{Offset, ProducerId};

use super::Coordinator;
use super::shard::{Shard, Stage};
use crate::jobs::Work;
use crate::node::Node;
use crate::partition::Partition;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Bytes that one batch may open to.
const OPENED_LIMIT: usize = 64 << 20;

/// A load, to be run as a job.
pub(crate) trait LoadJob: Send {
    fn run(self: Box<Self>) -> Box<dyn LoadDone>;
}

/// What it gave.
pub(crate) trait LoadDone: Send {
    fn done(self: Box<Self>, node: &Node, now: Now);
}

struct ShardLoad<C: Coordinator> {
    shard: Arc<Shard<C>>,
    life: u64,
    machine: Box<C>,
    range: (Offset, Offset),
    now: Now,
}

struct ShardLoaded<C: Coordinator> {
    shard: Arc<Shard<C>>,
    life: u64,
    machine: Result<Box<C>, ReplayError>,
}

impl<C: Coordinator> LoadJob for ShardLoad<C> {
    fn run(self: Box<Self>) -> Box<dyn LoadDone> {
        let ShardLoad {
            shard,
            life,
            mut machine,
            range: (from, until),
            now,
        } = *self;
        let result = replay(
            &shard.partition,
            from,
            until,
            |replayed, at| match replayed {
                Replayed::Record(None, key, value) => machine.apply(key, value, at, now),
                Replayed::Record(Some(producer), key, value) => {
                    machine.apply_in_transaction(producer, key, value, at, now);
                }
                Replayed::Marker(producer, marker) => {
                    machine.end_transaction(producer, marker.committed, at);
                }
            },
        );
        Box::new(ShardLoaded {
            shard,
            life,
            // A part of the records isn't "there is nothing": without all of them there is no shard.
            machine: result.map(|()| machine),
        })
    }
}

impl<C: Coordinator> LoadDone for ShardLoaded<C> {
    fn done(self: Box<Self>, node: &Node, now: Now) {
        match self.machine {
            Ok(machine) => {
                node.shard_is_ready(&self.shard, self.life, machine, now);
                // Bounded partitions that are full may have waited to know all commits.
                node.make_room_everywhere(now);
            }
            Err(error) => {
                if let ReplayError::Read(error) = &error {
                    node.read_failed(&self.shard.partition, error);
                }
                node.shard_load_failed(&self.shard, self.life, &error, now);
            }
        }
    }
}

/// Why a log couldn't be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("the log has nothing at offset {0}, below its end")]
    Gap(Offset),
}

/// What a log holds at an offset.
pub(crate) enum Replayed<'a> {
    /// A record with its key and value, and whose transaction it is part of.
    Record(Option<ProducerId>, &'a [u8], Option<&'a [u8]>),
    /// The end of a transaction.
    Marker(ProducerId, EndTxnMarker),
}

/// Gives all records and markers of `from..until`, in order. Takes the partition's lock for each chunk.
pub(crate) fn replay(
    partition: &Partition,
    from: Offset,
    until: Offset,
    mut each: impl FnMut(Replayed<'_>, Offset),
) -> Result<(), ReplayError> {
    let mut at = from;
    while at < until {
        let read = {
            let mut state = partition.state.lock();
            // Deleted meanwhile: nobody wants it any more.
            let Some(log) = &mut state.log else {
                return Ok(());
            };
            log.read(at, until, CHUNK)?
        };
        let slices = match read {
            Read::Ready(slices) => slices,
            Read::Plan(plan) => plan.run()?,
        };
        let next = slices.next;
        if next <= at {
            return Err(ReplayError::Gap(at));
        }
        let bytes = slices.into_bytes()?;
        for batch in batches(&bytes) {
            let batch = batch?;
            let (attributes, producer) = (batch.header.attributes, batch.header.producer_id);
            let of = attributes.is_transactional().then_some(producer);
            for record in batch.records(OPENED_LIMIT)?.iter() {
                let record = record?;
                if record.offset < at {
                    continue;
                }
                let (key, value) = (record.key.as_deref(), record.value.as_deref());
                let replayed = match attributes.is_control() {
                    false => Replayed::Record(of, key.unwrap_or_default(), value),
                    true => match EndTxnMarker::parse(key, value) {
                        Ok(Some(marker)) => Replayed::Marker(producer, marker),
                        _ => continue,
                    },
                };
                each(replayed, record.offset);
            }
        }
        at = next;
    }
    Ok(())
}

impl Node {
    /// Starts a load, unless one is out or none is needed.
    pub(crate) fn load_shard<C: Coordinator>(&self, shard: &Arc<Shard<C>>, now: Now) {
        let range = {
            let state = shard.partition.state.lock();
            let Some(log) = &state.log else { return };
            // What isn't durable may become so, and is waited for where it shows; after a failed sync it never will.
            let end = match self.has_failed() {
                true => state.high_watermark(),
                false => log.log_end_offset(),
            };
            (log.log_start_offset(), end)
        };
        let life;
        {
            let mut state = shard.state.lock();
            if !matches!(state.stage, Stage::Cold(None)) {
                return;
            }
            state.stage = Stage::Loading;
            life = state.life;
        }
        let load = ShardLoad {
            shard: shard.clone(),
            life,
            machine: Box::new(C::new(self)),
            range,
            now,
        };
        if range.0 == range.1 {
            return self.shard_is_ready(shard, life, load.machine, now);
        }
        self.run_job(Work::Load(Box::new(load)));
    }
}
