//! Appending: sequences, offsets, epochs, times, rolling; into the queue and into the write-ahead log.

use std::sync::Arc;

use bytes::Bytes;
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::batch::{
    Batch, BatchError, BatchHeader, set_base_offset, set_leader_epoch, set_log_append_time,
};
use riverlog_wire::{LeaderEpoch, Offset};
use smallvec::SmallVec;

use super::facts::{BatchInfo, Facts};
use super::index::MAX_ENTRIES;
use super::load::Loaded;
use super::producers::{Applied, Origin, Repeated, Seen};
use super::queue::{Queued, QueuedBatch};
use super::segment::Segment;
use super::transactions::marker_of;
use super::{AppendAs, AppendError, Appended, Log, LogSettings};
use crate::volume::EndCheck;
use crate::wal::WalEntry;

impl Log {
    /// Appends one batch (leader) or any number (follower): checks producer state, assigns offsets, patches the batch
    /// in place, queues it for the segment and, for a `sync` log, for the write-ahead log. The caller has checked the CRC.
    ///
    /// A leader's epoch below that of the last batch is refused like a damaged batch. All or nothing: after an error the log is as before.
    pub fn append(&mut self, batches: Vec<u8>, how: AppendAs) -> Result<Appended, AppendError> {
        if let Some(error) = self.failed.clone().or_else(|| self.volume.failed()) {
            return Err(error.into());
        }
        self.loaded_mut()?;
        self.follow_sync_setting();
        match how {
            AppendAs::Leader { epoch, now_ms } => {
                let origin = Origin {
                    sequenced: true,
                    verified: None,
                };
                self.append_leader(batches, epoch, now_ms, origin)
            }
            AppendAs::Transaction {
                epoch,
                now_ms,
                verified,
            } => {
                let origin = Origin {
                    sequenced: true,
                    verified: Some(verified),
                };
                self.append_leader(batches, epoch, now_ms, origin)
            }
            AppendAs::Coordinator {
                epoch,
                now_ms,
                verified,
            } => {
                let origin = Origin {
                    sequenced: false,
                    verified: Some(verified),
                };
                self.append_leader(batches, epoch, now_ms, origin)
            }
            AppendAs::Follower => self.append_follower(batches),
        }
    }

    fn append_leader(
        &mut self,
        bytes: Vec<u8>,
        epoch: LeaderEpoch,
        now_ms: i64,
        origin: Origin,
    ) -> Result<Appended, AppendError> {
        let stamp = self.settings.log_append_time;
        let log = self.loaded_mut()?;
        let header = BatchHeader::parse(&bytes)?;
        one_whole_batch(&header, bytes.len())?;
        if header.attributes.is_control() {
            // They have a way of their own.
            return Err(BatchError::Field {
                field: "attributes",
                value: i64::from(header.attributes.0),
            }
            .into());
        }
        if let Some(repeated) = log.producers.check(&header, origin)? {
            sometimes(Mark::DuplicateRecognised);
            let (first, next, timestamp) = match repeated {
                Repeated::Known(stored) => {
                    let next = stored.last_offset + 1;
                    (stored.first_offset(), next, Some(stored.timestamp))
                }
                Repeated::Before(end) => (Offset(-1), end, None),
            };
            return Ok(Appended {
                first,
                next,
                log_append_time_ms: timestamp.filter(|_| stamp),
                duplicate: true,
            });
        }
        self.append_checked(bytes, epoch, now_ms)
    }

    /// A batch that belongs at the log's end.
    pub(super) fn append_checked(
        &mut self,
        mut bytes: Vec<u8>,
        epoch: LeaderEpoch,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.close_cut()?;
        let stamp = self.settings.log_append_time;
        let (end, log) = (self.end, self.loaded_mut()?);
        // A batch of an older epoch would look like one of an earlier life, and be cut at the next recovery.
        if epoch < log.epochs.last() {
            return Err(BatchError::Field {
                field: "leader epoch",
                value: i64::from(epoch.0),
            }
            .into());
        }
        set_base_offset(&mut bytes, end);
        set_leader_epoch(&mut bytes, epoch);
        if stamp {
            set_log_append_time(&mut bytes, now_ms);
        }
        let header = BatchHeader::parse(&bytes)?;
        self.enqueue(bytes, &[header], Some(now_ms));
        Ok(Appended {
            first: end,
            next: self.end,
            log_append_time_ms: stamp.then_some(now_ms),
            duplicate: false,
        })
    }

    pub(super) fn append_follower(&mut self, bytes: Vec<u8>) -> Result<Appended, AppendError> {
        self.close_cut()?;
        let mut headers: SmallVec<[BatchHeader; 1]> = SmallVec::new();
        let mut rest: &[u8] = &bytes;
        let (mut end, mut epoch) = (self.end, self.loaded_mut()?.epochs.last());
        while !rest.is_empty() {
            let batch = Batch::parse(rest)?;
            let header = batch.header;
            if header.base_offset != end && !self.may_begin_at(&header, headers.is_empty()) {
                return Err(AppendError::Gap {
                    got: header.base_offset,
                    end,
                });
            }
            if header.leader_epoch < epoch {
                return Err(BatchError::Field {
                    field: "leader epoch",
                    value: i64::from(header.leader_epoch.0),
                }
                .into());
            }
            (end, epoch) = (header.next_offset(), header.leader_epoch);
            rest = rest.get(header.size()..).unwrap_or(&[]);
            headers.push(header);
        }
        let Some(first) = headers.first().map(|h| h.base_offset) else {
            return Err(BatchError::Short {
                needed: riverlog_wire::batch::HEADER_LEN,
                have: 0,
            }
            .into());
        };
        if first != self.end {
            self.begin_at(first);
        }
        self.enqueue(bytes, &headers, None);
        Ok(Appended {
            first,
            next: self.end,
            log_append_time_ms: None,
            duplicate: false,
        })
    }

    /// A copy that begins where its leader's log does may be given the batch that holds that offset, which begins earlier.
    fn may_begin_at(&self, header: &BatchHeader, first: bool) -> bool {
        let Some(log) = self.loaded.get() else {
            return false;
        };
        first
            && self.start == self.end
            && self.written == self.end
            && log.segments.len() == 1
            && log.active().facts().is_empty()
            && log.doomed.iter().all(|s| s.base < header.base_offset)
            && header.base_offset < self.end
            && header.next_offset() > self.end
    }
    fn begin_at(&mut self, base: Offset) {
        let key = self.key;
        if let Some(log) = self.loaded.get_mut() {
            let before = log.active().clone();
            if before.state().made {
                log.doomed.push(before);
            }
            log.make = None;
            log.segments = Arc::new(Vec::new());
            log.push_segment(Arc::new(Segment::new(key, log.dir.clone(), base)));
            log.needs_cut = false;
            log.check = EndCheck::default();
        }
        (self.end, self.written) = (base, base);
    }

    /// Adds checked batches to the queue.
    fn enqueue(&mut self, mut bytes: Vec<u8>, headers: &[BatchHeader], now_ms: Option<i64>) {
        // A cached batch must not pin much more memory than it fills.
        if bytes.capacity() > 2 * bytes.len() {
            bytes.shrink_to_fit();
        }
        let whole = Bytes::from(bytes);
        let Some(log) = self.loaded.get_mut() else {
            return;
        };
        let mut at = 0;
        let mut from = 0;
        let mut batches: SmallVec<[QueuedBatch; 1]> = SmallVec::new();
        for header in headers {
            if must_roll(&log.planned, log.active().base, header, &self.settings) {
                let chunk = piece(&whole, from, at);
                push(
                    log,
                    chunk,
                    std::mem::take(&mut batches),
                    &mut self.wal_pending,
                    &mut self.last_lsn,
                    self.through_wal.then_some((&*self.volume, self.key)),
                );
                from = at;
                sometimes(Mark::SegmentRolled);
                let segment = Segment::new(self.key, log.dir.clone(), header.base_offset);
                log.push_segment(Arc::new(segment));
            }
            let seen = now_ms.map_or(Seen::Unknown(header.max_timestamp), Seen::At);
            let marker = marker_of(header, whole.get(at..).unwrap_or_default());
            let applied = match self.opening && header.base_offset < log.producers_since {
                false => log.producers.apply(header, marker, seen),
                // The snapshot knows of it, but not what it aborts.
                true => {
                    log.active().state().knows_aborted &= marker.is_none();
                    Applied::default()
                }
            };
            if log.epochs.on_batch(header.leader_epoch, header.base_offset) {
                log.epochs_dirty = true;
            }
            let info = BatchInfo {
                aborted: applied.aborted,
                ..BatchInfo::new(header, now_ms.unwrap_or(-1))
            };
            let base = log.active().base;
            log.planned
                .add(base, &info, self.settings.index_interval_bytes);
            batches.push(QueuedBatch {
                info,
                undo: applied.undo,
            });
            at += header.size();
            self.end = header.next_offset();
        }
        let chunk = piece(&whole, from, at);
        push(
            log,
            chunk,
            batches,
            &mut self.wal_pending,
            &mut self.last_lsn,
            self.through_wal.then_some((&*self.volume, self.key)),
        );
        self.last_epoch = log.epochs.last();
    }

    /// Goes through the write-ahead log, or no longer, once that leaves no gap in what is durable.
    pub(super) fn follow_sync_setting(&mut self) {
        if self.settings.sync == self.through_wal {
            return;
        }
        let Some(log) = self.loaded.get() else {
            return;
        };
        let quiet = log.queue.is_empty() && log.in_flight.is_empty();
        let durable = if self.settings.sync {
            // The write-ahead log alone must lead on from what the segments hold after a power cut.
            self.segments_synced == self.end
        } else {
            self.synced() == self.end
        };
        if quiet && durable {
            self.through_wal = self.settings.sync;
        }
    }
}

/// Queues a chunk, and its entry for the write-ahead log.
fn push(
    log: &mut Loaded,
    bytes: Bytes,
    batches: SmallVec<[QueuedBatch; 1]>,
    pending: &mut std::collections::VecDeque<(crate::wal::Lsn, Offset)>,
    last_lsn: &mut Option<crate::wal::Lsn>,
    wal: Option<(&crate::Volume, crate::LogKey)>,
) {
    let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
        return;
    };
    let (base, next) = (first.info.base, last.info.next);
    let lsn = wal.map(|(volume, key)| {
        volume.submit(WalEntry::Append {
            key,
            base,
            next,
            batches: bytes.clone(),
        })
    });
    if let Some(lsn) = lsn {
        pending.push_back((lsn, next));
        *last_lsn = Some(lsn);
    }
    log.queue.push_back(Queued {
        segment: log.active().clone(),
        base,
        next,
        bytes,
        batches,
        lsn,
    });
}

/// A part of an append's bytes; a small part of a large buffer is copied out of it.
fn piece(whole: &Bytes, from: usize, to: usize) -> Bytes {
    let part = whole.slice(from..to);
    if part.len() * 2 < whole.len() {
        return Bytes::copy_from_slice(&part);
    }
    part
}

/// A leader takes one batch, whose offsets are all used.
fn one_whole_batch(header: &BatchHeader, len: usize) -> Result<(), BatchError> {
    if len < header.size() {
        return Err(BatchError::Short {
            needed: header.size(),
            have: len,
        });
    }
    if len > header.size() {
        return Err(BatchError::Field {
            field: "batch length",
            value: i64::from(header.batch_length),
        });
    }
    if header.record_count != header.last_offset_delta.saturating_add(1) {
        return Err(BatchError::Field {
            field: "record count",
            value: i64::from(header.record_count),
        });
    }
    Ok(())
}

/// Whether a batch begins a new segment: Kafka's rules for bytes, age (of the batch against the segment's first one), full
/// indexes, and relative offsets and positions that no longer fit.
fn must_roll(planned: &Facts, base: Offset, batch: &BatchHeader, settings: &LogSettings) -> bool {
    if planned.is_empty() {
        return false;
    }
    let bytes = settings.segment_bytes.min(i32::MAX as u64);
    let aged = settings.segment_ms.is_some_and(|ms| {
        let age = batch.max_timestamp.saturating_sub(planned.first_timestamp);
        planned.first_timestamp >= 0 && u64::try_from(age).is_ok_and(|age| age > ms)
    });
    aged || planned.size + batch.size() as u64 > bytes
        || planned.index_entries >= MAX_ENTRIES
        || planned.time_entries >= MAX_ENTRIES
        || batch.last_offset() - base > i64::from(i32::MAX)
}
