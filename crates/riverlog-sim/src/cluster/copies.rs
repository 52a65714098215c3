//! Copies as they lie in a folder when no process uses it.

use std::sync::Arc;

use riverlog_log::disk::CrashDisk;
use riverlog_log::{LogKey, LogSettings, Read, Slices, Volume, VolumeSettings};
use riverlog_wire::{Offset, PartitionIndex, TopicId};

use crate::model::Violation;

fn broken(what: String) -> Violation {
    Violation::new("a copy can be read", what)
}

/// Records with their offsets.
pub(super) type Found<T> = Result<Vec<(Offset, T)>, Violation>;

/// Opens what a process has left. Recovery may change it, and has room for what only the write-ahead log holds: a process that
/// finds none keeps that where it is, and opens the log later.
pub(super) fn open_folder(
    disk: &CrashDisk,
    settings: VolumeSettings,
) -> Result<Arc<Volume>, Violation> {
    disk.set_capacity(None);
    Volume::open(Arc::new(disk.clone()), settings).map_err(|e| broken(e.to_string()))
}

/// The records of a copy from `start` on, below `end`, as `records_of` has them; and how far it goes.
pub(super) fn read_copy<T>(
    volume: &Arc<Volume>,
    (topic, index): (TopicId, i32),
    (start, end): (Offset, Offset),
    records_of: fn(Slices, Offset) -> Found<T>,
) -> Result<(Vec<(Offset, T)>, Offset), Violation> {
    let key = LogKey {
        topic,
        partition: PartitionIndex(index),
    };
    let mut log = volume
        .open_log(key, LogSettings::default())
        .map_err(|e| broken(e.to_string()))?;
    let end = end.min(log.log_end_offset());
    let (mut at, mut found) = (start.max(log.log_start_offset()), Vec::new());
    while at < end {
        let read = log
            .read(at, end, 1 << 20)
            .map_err(|e| broken(e.to_string()))?;
        let slices = match read {
            Read::Ready(slices) => slices,
            Read::Plan(plan) => plan.run().map_err(|e| broken(e.to_string()))?,
        };
        if slices.next <= at {
            break;
        }
        let next = slices.next;
        found.extend(records_of(slices, at)?);
        at = next;
    }
    Ok((found, at))
}
