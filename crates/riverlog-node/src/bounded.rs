//! Bounded partitions: `riverlog.max.records`, `riverlog.max.bytes`, `riverlog.when.full`.
//!
//! The bound counts what lies between log start and log end. When a batch doesn't fit, records that every group with
//! offsets on the partition has committed are dropped first: the start moves to the least committed offset, and only when at
//! least one group has committed there. A commit's entry lies before the drop's in the volume's write-ahead log, so
//! no power cut keeps the drop and loses the commit. When that makes no room, `block` parks the append, in order of
//! arrival, until there is room or its time (or `riverlog.when.full.timeout.ms`) is over (then THROTTLING_QUOTA_EXCEEDED with a time to try again), and
//! `error` answers POLICY_VIOLATION. A batch that is larger than the whole bound is refused in both cases.
//!
//! In a cluster others coordinate groups as well ([`asking`]): an append waits for what they say, with `error` too.
//!
//! What an idempotent producer sends while batches of its own wait follows those, and not what the log has: it waits behind them, and is refused
//! with the one before it.

mod asking;
mod queue;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::config::TopicConfig;
use riverlog_log::Log;
use riverlog_wire::{ErrorCode, Offset};

use crate::append::Appending;
use crate::command::AppendFailure;
use crate::errors::RETRY_AFTER;
use crate::node::Node;
use crate::partition::{Owed, Partition, State};
use crate::quorum::Quorum;

use asking::{ANSWERED_WITHIN, Asking};
pub(crate) use queue::Blocked;

/// Pieces that the size of a partition is remembered in.
const PIECES: u64 = 256;

/// What a bounded partition remembers.
pub(crate) struct Bound {
    max_records: Option<u64>,
    max_bytes: Option<u64>,
    block: bool,
    /// How long a blocked append waits, besides its own time.
    patience: Duration,
    /// Runs of batches with their bytes: the size between two offsets, without a look at files.
    pieces: VecDeque<Piece>,
    bytes: u64,
    pub(crate) blocked: Blocked,
    /// Only in a cluster.
    asking: Asking,
}

struct Piece {
    first: Offset,
    next: Offset,
    bytes: u64,
}

impl Bound {
    /// `None` for a topic without a bound.
    pub(crate) fn new(config: &TopicConfig, log: &Log) -> Option<Box<Bound>> {
        let mut bound = Bound {
            max_records: None,
            max_bytes: None,
            block: true,
            patience: Duration::ZERO,
            pieces: VecDeque::new(),
            bytes: 0,
            blocked: Blocked::default(),
            asking: Asking::default(),
        };
        if !bound.set(config) {
            return None;
        }
        let (first, next) = (log.log_start_offset(), log.log_end_offset());
        if first < next {
            let bytes = log.size_bytes();
            bound.bytes = bytes;
            bound.pieces.push_back(Piece { first, next, bytes });
        }
        Some(Box::new(bound))
    }

    /// Takes new settings; `false`: there is no bound any more.
    pub(crate) fn set(&mut self, config: &TopicConfig) -> bool {
        self.max_records = u64::try_from(config.max_records).ok();
        self.max_bytes = u64::try_from(config.max_bytes).ok();
        self.block = config.block_when_full;
        self.patience =
            Duration::from_millis(u64::try_from(config.when_full_timeout_ms).unwrap_or(0));
        self.max_records.is_some() || self.max_bytes.is_some()
    }

    /// A batch was appended.
    pub(crate) fn appended(&mut self, first: Offset, next: Offset, bytes: usize) {
        let bytes = bytes as u64;
        self.bytes += bytes;
        let grain = self.max_bytes.unwrap_or(u64::MAX) / PIECES;
        match self.pieces.back_mut() {
            Some(piece) if piece.next == first && piece.bytes + bytes <= grain => {
                piece.next = next;
                piece.bytes += bytes;
            }
            _ => self.pieces.push_back(Piece { first, next, bytes }),
        }
    }

    /// The log was cut back to `end` after a failed write.
    pub(crate) fn cut(&mut self, end: Offset) {
        while let Some(piece) = self.pieces.back_mut() {
            if piece.next <= end {
                break;
            }
            let kept = piece.share(piece.first, end);
            self.bytes -= piece.bytes - kept;
            if piece.first >= end {
                self.pieces.pop_back();
            } else {
                piece.next = end;
                piece.bytes = kept;
                break;
            }
        }
    }

    fn drop_before(&mut self, start: Offset) {
        while let Some(piece) = self.pieces.front_mut() {
            if piece.first >= start {
                break;
            }
            let dropped = piece.share(piece.first, start);
            self.bytes -= dropped;
            if piece.next <= start {
                self.pieces.pop_front();
            } else {
                piece.bytes -= dropped;
                piece.first = start;
                break;
            }
        }
    }

    /// Whether a batch fits behind what lies between start and end.
    fn fits(&mut self, log: &Log, records: u64, bytes: u64) -> bool {
        let start = log.log_start_offset();
        self.drop_before(start);
        let held = u64::try_from(log.log_end_offset() - start).unwrap_or(0);
        self.max_records.is_none_or(|max| held + records <= max)
            && self.max_bytes.is_none_or(|max| self.bytes + bytes <= max)
    }

    /// Whether a batch could ever fit.
    fn could_fit(&self, records: u64, bytes: u64) -> bool {
        self.max_records.is_none_or(|max| records <= max)
            && self.max_bytes.is_none_or(|max| bytes <= max)
    }
}

impl Piece {
    /// Its bytes between two offsets, as if all its records had the same size.
    fn share(&self, from: Offset, to: Offset) -> u64 {
        let all = u64::try_from(self.next - self.first).unwrap_or(0).max(1);
        let from = from.max(self.first);
        let to = to.min(self.next);
        let part = u64::try_from(to - from).unwrap_or(0);
        // Sizes and counts stay far below 2^64, their product may not.
        (u128::from(self.bytes) * u128::from(part) / u128::from(all)) as u64
    }
}

fn full_for_long() -> AppendFailure {
    AppendFailure {
        retry_after: Some(RETRY_AFTER),
        ..AppendFailure::new(
            ErrorCode::THROTTLING_QUOTA_EXCEEDED,
            "the partition is full and its readers made no room in time; the batch was not stored, send it again",
        )
    }
}

fn full() -> AppendFailure {
    AppendFailure::new(
        ErrorCode::POLICY_VIOLATION,
        "the partition is full (riverlog.max.records, riverlog.max.bytes) and riverlog.when.full is error; read and commit, or raise the bound",
    )
}

impl State {
    /// Whether the bound lets a batch in now, ahead of `blocked` others only when it is the first of them.
    pub(crate) fn has_room(&mut self, appending: &Appending, first_blocked: bool) -> bool {
        let (Some(bound), Some(log)) = (&mut self.bound, &self.log) else {
            return true;
        };
        if (first_blocked || bound.blocked.is_empty())
            && bound.fits(log, appending.records(), appending.batch.len() as u64)
        {
            return true;
        }
        let header = &appending.header;
        if header.producer_id.0 < 0 {
            return false;
        }
        let known = log.producer(header.producer_id);
        let Some(known) = known.filter(|p| p.epoch == header.producer_epoch) else {
            return false;
        };
        // The log answers a duplicate as what it is, also while the partition is full.
        if !header.base_sequence.is_after(known.last_sequence) {
            return true;
        }
        // Nor does it store what leaves out some of its producer's, unless those wait here. Where nobody waits they were refused as this one is.
        let next = known.last_sequence.plus(1);
        let waits = !first_blocked && bound.blocked.holds_producer_of(header);
        header.base_sequence != next && bound.block && !waits
    }

    /// The partition is full: parks the append or refuses it. `asks`: others are asked for room meanwhile.
    fn block(&mut self, mut appending: Appending, asks: bool, now: Now, owed: &mut Owed) {
        let Some(bound) = &mut self.bound else { return };
        let (records, bytes) = (appending.records(), appending.batch.len() as u64);
        if !bound.could_fit(records, bytes) {
            let failure = AppendFailure::new(
                ErrorCode::POLICY_VIOLATION,
                format!(
                    "the batch of {records} records and {bytes} bytes is larger than the whole partition may be; send smaller batches, or raise riverlog.max.records and riverlog.max.bytes"
                ),
            );
            owed.acks.push((appending.ack, Err(failure)));
        } else if bound.block || asks {
            let patience = match bound.block {
                true => bound.patience,
                false => ANSWERED_WITHIN,
            };
            if bound.blocked.is_empty() {
                bound.asking.again = None;
            }
            bound.asking.arrived += 1;
            appending.arrived = bound.asking.arrived;
            let until = now.mono.saturating_add(patience);
            let until = until.min(appending.deadline);
            appending.blocked_until = until;
            riverlog_mutants::sometimes(riverlog_mutants::Mark::BoundedWaited);
            // If it was refused before, it has come again: what follows waits behind it, as if it were stored.
            let header = &appending.header;
            let last = header.last_sequence();
            self.refusals
                .stored(header.producer_id, header.producer_epoch, last);
            bound.blocked.push_back(appending);
            self.set_timer(until, owed);
        } else {
            owed.acks.push((appending.ack, Err(full())));
        }
    }

    /// Drops what every group has committed. Returns whether the start moved.
    fn drop_committed(&mut self, to: Offset, owed: &mut Owed) -> bool {
        let to = to.min(self.high_watermark());
        let Some(log) = &mut self.log else {
            return false;
        };
        if to <= log.log_start_offset() || log.delete_records(to).is_err() {
            return false;
        }
        owed.flush = true;
        owed.replicate |= self.replicas > 1;
        owed.dirty |= !std::mem::replace(&mut self.upkeep.dirty, true);
        self.wake(owed);
        true
    }
}

impl Node {
    /// A batch didn't fit: makes room, or blocks, or refuses.
    pub(crate) fn append_when_full(
        &self,
        partition: &Arc<Partition>,
        appending: Appending,
        now: Now,
    ) {
        let asks = self.settings.quorum == Quorum::Shared;
        let committed = match asks {
            true => None,
            false => self.least_committed(partition, now),
        };
        let mut owed = Owed::default();
        {
            let mut state = partition.state.lock();
            if committed.is_some_and(|to| state.drop_committed(to, &mut owed)) {
                // Others that were blocked go first, and this one behind them.
                state.unblock(now, &mut owed);
            }
            match state.append(appending, false, now, &mut owed) {
                None => {}
                Some(appending) => state.block(appending, asks, now, &mut owed),
            }
        }
        self.settle(partition, owed, now);
        if asks {
            self.ask_for_room(partition, false, now);
        }
    }

    /// Something was dropped or committed, or the bound was raised: blocked appends may fit now.
    pub(crate) fn make_room(&self, partition: &Arc<Partition>, now: Now) {
        if self.settings.quorum == Quorum::Shared {
            return self.ask_for_room(partition, true, now);
        }
        if !partition.state.lock().is_blocked() {
            return;
        }
        let committed = self.least_committed(partition, now);
        let mut owed = Owed::default();
        {
            let mut state = partition.state.lock();
            if let Some(to) = committed {
                state.drop_committed(to, &mut owed);
            }
            state.unblock(now, &mut owed);
        }
        self.settle(partition, owed, now);
    }
}

impl State {
    pub(crate) fn is_blocked(&self) -> bool {
        self.bound.as_ref().is_some_and(|b| !b.blocked.is_empty())
    }

    /// Ends the appends that have waited long enough.
    pub(crate) fn expire_blocked(&mut self, now: Now, owed: &mut Owed) {
        let Some(bound) = &mut self.bound else { return };
        let failure = match bound.block {
            true => full_for_long,
            false => full,
        };
        let ended = bound.blocked.end(|b| b.blocked_until <= now.mono);
        self.end_blocked(ended, failure, now, owed);
    }

    fn end_blocked(
        &mut self,
        ended: Vec<Appending>,
        failure: fn() -> AppendFailure,
        now: Now,
        owed: &mut Owed,
    ) {
        for ended in ended {
            let failure = failure();
            self.refused(&ended.header, failure.error, now);
            owed.acks.push((ended.ack, Err(failure)));
        }
    }

    /// When something is due for those that wait.
    pub(crate) fn next_for_blocked(&self, now: Now) -> Option<Duration> {
        let bound = self.bound.as_ref()?;
        let ends = bound.blocked.next_deadline()?;
        // What is due already sets the time of the next question.
        let again = bound.asking.again.filter(|again| *again > now.mono);
        Some(again.map_or(ends, |again| again.min(ends)))
    }

    /// Appends those of the blocked that fit, in order.
    pub(crate) fn unblock(&mut self, now: Now, owed: &mut Owed) {
        loop {
            let Some(bound) = &mut self.bound else { return };
            let Some(first) = bound.blocked.pop_front() else {
                return;
            };
            if let Some(first) = self.append(first, true, now, owed) {
                if let Some(bound) = &mut self.bound {
                    bound.blocked.push_front(first);
                }
                return;
            }
        }
    }

    /// The topic's settings changed.
    pub(crate) fn set_bound(&mut self, config: &TopicConfig, now: Now, owed: &mut Owed) {
        match (&mut self.bound, &self.log) {
            (Some(bound), _) => {
                if !bound.set(config) {
                    let blocked = self.bound.take().map(|b| b.blocked).unwrap_or_default();
                    for appending in blocked {
                        // Without a bound nothing is full.
                        let _fits = self.append(appending, true, now, owed);
                    }
                } else if bound.block {
                    self.unblock(now, owed);
                } else {
                    let blocked = std::mem::take(&mut bound.blocked);
                    for appending in blocked {
                        if let Some(appending) = self.append(appending, true, now, owed) {
                            self.block(appending, false, now, owed);
                        }
                    }
                }
            }
            (None, Some(log)) => self.bound = Bound::new(config, log),
            (None, None) => {}
        }
    }
}
