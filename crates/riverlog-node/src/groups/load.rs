//! Loading a shard: its log, record by record, off the caller's thread.

use std::sync::Arc;

use riverlog_core::Now;
use riverlog_core::groups::GroupShard;
use riverlog_log::{Read, ReadError};
use riverlog_wire::Offset;
use riverlog_wire::batch::{BatchError, batches};

use super::shard::{Shard, Stage};
use crate::jobs::Work;
use crate::node::Node;
use crate::partition::Partition;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Bytes that one batch may open to.
const OPENED_LIMIT: usize = 64 << 20;

/// A load, to be run as a job.
pub(crate) struct ShardLoad {
    shard: Arc<Shard>,
    life: u64,
    groups: Box<GroupShard>,
    range: (Offset, Offset),
    now: Now,
}

/// What it gave.
pub(crate) struct ShardLoaded {
    shard: Arc<Shard>,
    life: u64,
    groups: Option<Box<GroupShard>>,
}

impl ShardLoad {
    pub(crate) fn run(self) -> ShardLoaded {
        let ShardLoad {
            shard,
            life,
            mut groups,
            range: (from, until),
            now,
        } = self;
        let result = replay(&shard.partition, from, until, |key, value, at| {
            groups.apply(key, value, at, now);
        });
        ShardLoaded {
            shard,
            life,
            // A part of the records isn't "no offset": without all of them there is no shard.
            groups: result.is_ok().then_some(groups),
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

/// Gives all records of `from..until` that have a key or a value, in order. Takes the partition's lock for each chunk.
pub(crate) fn replay(
    partition: &Partition,
    from: Offset,
    until: Offset,
    mut each: impl FnMut(&[u8], Option<&[u8]>, Offset),
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
            if batch.header.attributes.is_control() {
                continue;
            }
            for record in batch.records(OPENED_LIMIT)?.iter() {
                let record = record?;
                if record.offset >= at {
                    let key = record.key.as_deref().unwrap_or_default();
                    each(key, record.value.as_deref(), record.offset);
                }
            }
        }
        at = next;
    }
    Ok(())
}

impl Node {
    /// Starts a load, unless one is out or none is needed.
    pub(crate) fn load_shard(&self, shard: &Arc<Shard>, now: Now) {
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
            groups: Box::new(GroupShard::new(self.settings.groups.clone())),
            range,
            now,
        };
        if range.0 == range.1 {
            return self.shard_is_ready(shard, life, load.groups, now);
        }
        self.run_job(Work::Load(Box::new(load)));
    }

    pub(crate) fn shard_loaded(&self, loaded: ShardLoaded, now: Now) {
        match loaded.groups {
            Some(groups) => {
                self.shard_is_ready(&loaded.shard, loaded.life, groups, now);
                // Bounded partitions that are full may have waited to know all commits.
                self.make_room_everywhere(now);
            }
            None => self.shard_load_failed(&loaded.shard, loaded.life, now),
        }
    }
}
