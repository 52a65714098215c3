//! A log in a volume on a disk, and batches to put into it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId,
};

use crate::log::{
    AppendAs, AppendError, Appended, Log, LogSettings, Marker, Read, ReadError, Slices,
};
use crate::{Disk, DiskError, LogKey, Volume, VolumeSettings};

pub(super) const KEY: LogKey = LogKey {
    topic: TopicId(*b"riverlog-log-tst"),
    partition: PartitionIndex(3),
};

pub(super) fn volume_settings() -> VolumeSettings {
    VolumeSettings {
        wal_bytes: 1 << 20,
        tail_cache_bytes: 0,
        ..VolumeSettings::default()
    }
}

/// A small log, so that rare paths are common.
pub(super) fn small() -> LogSettings {
    LogSettings {
        segment_bytes: 1000,
        index_interval_bytes: 200,
        retention_ms: None,
        ..LogSettings::default()
    }
}

pub(super) fn open(disk: Arc<dyn Disk>, settings: LogSettings) -> (Arc<Volume>, Log) {
    open_with(disk, settings, volume_settings())
}

pub(super) fn open_with(
    disk: Arc<dyn Disk>,
    settings: LogSettings,
    volume: VolumeSettings,
) -> (Arc<Volume>, Log) {
    let volume = Volume::open(disk, volume).unwrap();
    let log = volume.open_log(KEY, settings).unwrap();
    volume.recovered().unwrap();
    (volume, log)
}

/// A batch of `records` records, each with `value`, at time `at`.
pub(super) fn batch(records: usize, at: i64, value: &str) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    for _ in 0..records {
        builder.push(at, None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

pub(super) fn from_producer(id: i64, epoch: i16, sequence: i32, records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    for i in 0..records {
        builder.push(1000 + i as i64, Some(b"k"), Some(b"v"), &[]);
    }
    builder.build()
}

pub(super) fn as_leader(epoch: i32) -> AppendAs {
    AppendAs::Leader {
        epoch: LeaderEpoch(epoch),
        now_ms: 1_000_000,
    }
}

pub(super) fn append(log: &mut Log, bytes: Vec<u8>) -> Result<Appended, AppendError> {
    log.append(bytes, as_leader(0))
}

/// Silent producers are looked for, by clocks that go alike.
pub(super) fn expire(log: &mut Log, now_ms: i64) {
    let mono = Duration::from_millis(now_ms.unsigned_abs());
    log.expire_producers(now_ms, mono);
}

/// One record of a transaction, which it may begin.
pub(super) fn in_transaction(
    log: &mut Log,
    id: i64,
    epoch: i16,
    sequence: i32,
) -> Result<Appended, AppendError> {
    let verified = log.log_end_offset();
    log.append(
        transactional(id, epoch, sequence),
        AppendAs::Transaction {
            epoch: LeaderEpoch(0),
            now_ms: 1_000_000,
            verified,
        },
    )
}

pub(super) fn transactional(id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    BatchBuilder::new(Compression::None)
        .producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence))
        .transactional()
        .push(1000, Some(b"k"), Some(b"v"), &[])
        .build()
}

/// A marker of coordinator epoch 0 under transaction version 1.
pub(super) fn end(
    log: &mut Log,
    id: i64,
    epoch: i16,
    committed: bool,
) -> Result<Appended, AppendError> {
    log.append_marker(&marker(id, epoch, committed), LeaderEpoch(0), 1_000_000)
}

pub(super) fn marker(id: i64, epoch: i16, committed: bool) -> Marker {
    Marker {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        coordinator_epoch: 0,
        transaction_version: 1,
        committed,
    }
}

pub(super) fn write(log: &mut Log) -> Result<(), DiskError> {
    while let Some(write) = log.take_write() {
        log.write_done(write.run())?;
    }
    Ok(())
}

pub(super) fn flush(volume: &Arc<Volume>, log: &mut Log) {
    while let Some(flush) = volume.take_flush() {
        let done = flush.run();
        assert!(done.error.is_none(), "{:?}", done.error);
        for synced in done.synced {
            log.on_synced(synced.to);
        }
    }
}

pub(super) fn sync(log: &mut Log) -> Result<(), DiskError> {
    match log.sync_segments() {
        Some(upkeep) => log.upkeep_done(upkeep.run()),
        None => Ok(()),
    }
}

pub(super) fn put(volume: &Arc<Volume>, log: &mut Log, bytes: Vec<u8>) -> Appended {
    let appended = append(log, bytes).unwrap();
    write(log).unwrap();
    flush(volume, log);
    appended
}

/// A clean stop.
pub(super) fn close(volume: Arc<Volume>, mut log: Log) {
    write(&mut log).unwrap();
    flush(&volume, &mut log);
    sync(&mut log).unwrap();
    sync(&mut log).unwrap();
    flush(&volume, &mut log);
    volume.checkpoint(true).unwrap();
}

pub(super) fn read_slices(log: &mut Log, from: i64, max_bytes: usize) -> Result<Slices, ReadError> {
    let end = log.log_end_offset();
    match log.read(Offset(from), end, max_bytes)? {
        Read::Ready(slices) => Ok(slices),
        Read::Plan(plan) => plan.run(),
    }
}

pub(super) fn read_bytes(log: &mut Log, from: i64, max_bytes: usize) -> Result<Bytes, ReadError> {
    read_slices(log, from, max_bytes)?.into_bytes()
}

/// Base offset and number of offsets of each batch of an answer.
pub(super) fn shape(bytes: &[u8]) -> Vec<(i64, i64)> {
    batches(bytes)
        .map(|b| {
            let b = b.unwrap();
            b.check_crc().unwrap();
            let h = b.header;
            (h.base_offset.0, h.next_offset() - h.base_offset)
        })
        .collect()
}

/// Every batch from `from` to the end of what is written.
pub(super) fn read_all(log: &mut Log, from: i64) -> Result<Vec<(i64, i64)>, ReadError> {
    let mut out = Vec::new();
    let mut at = from;
    loop {
        let slices = read_slices(log, at, 500)?;
        at = slices.next.0;
        let bytes = slices.into_bytes()?;
        if bytes.is_empty() {
            return Ok(out);
        }
        out.extend(shape(&bytes));
    }
}
