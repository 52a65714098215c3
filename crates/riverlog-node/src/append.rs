//! Appends: admission, the log, the answer when its rule is met.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::groups::InTransaction;
use riverlog_log::{AppendAs, AppendError, Appended, Log, ProducerSummary, Write};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::batch::BatchHeader;
use riverlog_wire::{ErrorCode, Offset};
use smallvec::SmallVec;

use crate::admit::admit;
use crate::command::{AppendAnswer, AppendCommand, AppendFailure, AppendTo, Reply};
use crate::errors::{RETRY_AFTER, append_failure};
use crate::jobs::Work;
use crate::node::Node;
use crate::partition::{Owed, Parked, Partition, State};

/// Writes that one caller does before it leaves the rest to a job: others may keep the queue filled for ever.
const WRITES_BY_CALLER: usize = 8;

/// The other end of an append, and the bytes that it counts for in the budget.
pub(crate) struct Ack {
    reply: Reply<Result<AppendAnswer, AppendFailure>>,
    bytes: usize,
}

impl Ack {
    /// One that counts nothing in the budget.
    pub(crate) fn free(reply: Reply<Result<AppendAnswer, AppendFailure>>) -> Ack {
        Ack { reply, bytes: 0 }
    }
}

/// What besides its bytes decides whether a batch is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Plain,
    /// It may begin a transaction: its coordinator said so after the log ended there.
    Begins(Offset),
    /// Only as the next record of the partition.
    At(Offset),
}

/// What appends to several partitions have left to do. Done when the last of them has its place, so that one group commit takes
/// all of them along, and runs while their segments are written.
#[derive(Default)]
pub(crate) struct Together(SmallVec<[(Arc<Partition>, Owed); 1]>);

impl Together {
    pub(crate) fn push(&mut self, partition: &Arc<Partition>, owed: Owed) {
        self.0.push((partition.clone(), owed));
    }
}

/// An admitted batch on its way into the log.
pub(crate) struct Appending {
    pub(crate) batch: Vec<u8>,
    pub(crate) header: BatchHeader,
    pub(crate) acks: i16,
    pub(crate) rule: Rule,
    pub(crate) deadline: Duration,
    /// While it waits for room in a bounded partition.
    pub(crate) blocked_until: Duration,
    /// The how manieth that came to wait there.
    pub(crate) arrived: u64,
    pub(crate) ack: Ack,
}

impl Appending {
    pub(crate) fn records(&self) -> u64 {
        u64::try_from(self.header.last_offset_delta).unwrap_or(0) + 1
    }
}

impl Node {
    /// Whether batches of `bytes` in all should be taken from a client now: half of what may wait for an answer, and for the group commit, is
    /// free. They should be left in the connection otherwise, until some are answered: past those bounds batches are refused, and not every
    /// client sends what was refused again.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        let queued = self.volume.queued_bytes();
        let queue = (self.settings.volume.wal_bytes / 2) as usize;
        self.append_bytes.is_calm(bytes) && (queued == 0 || queued.saturating_add(bytes) <= queue)
    }

    /// [`Node::append`] of batches to several partitions: one group commit takes them along.
    pub fn append_all(&self, batches: Vec<AppendTo>, now: Now) {
        let mut together = Together::default();
        for to in batches {
            let partition = &to.partition.0;
            self.append_batch(
                partition,
                to.command,
                Rule::Plain,
                now,
                to.reply,
                &mut together,
            );
        }
        self.settle_all(together, now);
    }

    pub(crate) fn append_one(
        &self,
        partition: &Arc<Partition>,
        command: AppendCommand,
        rule: Rule,
        now: Now,
        reply: Reply<Result<AppendAnswer, AppendFailure>>,
    ) {
        let mut together = Together::default();
        self.append_batch(partition, command, rule, now, reply, &mut together);
        self.settle_all(together, now);
    }

    /// Gives a batch its place; the rest is for [`Node::settle_all`].
    pub(crate) fn append_batch(
        &self,
        partition: &Arc<Partition>,
        command: AppendCommand,
        rule: Rule,
        now: Now,
        reply: Reply<Result<AppendAnswer, AppendFailure>>,
        together: &mut Together,
    ) {
        self.saw(now);
        let bytes = command.batch.len();
        self.metrics.append_requests.fetch_add(1, Ordering::Relaxed);
        if !self.append_bytes.take(bytes) {
            let failure = AppendFailure {
                retry_after: Some(RETRY_AFTER),
                ..AppendFailure::new(
                    ErrorCode::THROTTLING_QUOTA_EXCEEDED,
                    "too many bytes wait to be acknowledged; send the batch again in a moment",
                )
            };
            partition.refused(&command.batch, failure.error, now);
            return reply.send(Err(failure));
        }
        let ack = Ack { reply, bytes };
        if let Err(failure) = self.may_append(partition, &command) {
            partition.refused(&command.batch, failure.error, now);
            return self.acknowledge(ack, Err(failure));
        }
        let config = partition.topic.config.load();
        let (batch, header) = match admit(&config, command.batch, now) {
            Ok(admitted) => admitted,
            Err(failure) => return self.acknowledge(ack, Err(failure)),
        };
        drop(config);
        let appending = Appending {
            batch,
            header,
            acks: command.acks,
            rule,
            deadline: now.mono.saturating_add(command.timeout),
            blocked_until: Duration::ZERO,
            arrived: 0,
            ack,
        };
        let mut owed = Owed::default();
        let full = partition
            .state
            .lock()
            .append(appending, false, now, &mut owed);
        together.push(partition, owed);
        if let Some(appending) = full {
            self.append_when_full(partition, appending, now);
        }
    }

    /// Does what appends have left to do; no lock is held.
    pub(crate) fn settle_all(&self, together: Together, now: Now) {
        if together.0.iter().any(|(_, owed)| owed.flush) {
            self.want_flush();
        }
        for (partition, owed) in together.0 {
            let owed = Owed {
                flush: false,
                ..owed
            };
            self.settle(&partition, owed, now);
        }
    }

    fn may_append(
        &self,
        partition: &Partition,
        command: &AppendCommand,
    ) -> Result<(), AppendFailure> {
        if self.is_closing() {
            return Err(AppendFailure::stopping());
        }
        if !matches!(command.acks, -1..=1) {
            return Err(AppendFailure::new(
                ErrorCode::INVALID_REQUIRED_ACKS,
                format!("acks is {}; it can be -1 (all), 0 or 1", command.acks),
            ));
        }
        if self.is_aside() && !partition.leads.load(Ordering::Acquire) {
            return Err(AppendFailure::moved());
        }
        if partition.topic.internal {
            return Err(AppendFailure::new(
                ErrorCode::INVALID_TOPIC_EXCEPTION,
                "internal topics are written by the node alone",
            ));
        }
        if self.is_tight() {
            return Err(AppendFailure::disk_full());
        }
        if !self.is_registered() {
            return Err(AppendFailure::new(
                ErrorCode::KAFKA_STORAGE_ERROR,
                "the disk was too full to register a new leader epoch; make room, writing then works by itself",
            ));
        }
        Ok(())
    }

    /// Sends an answer; no lock is held.
    pub(crate) fn acknowledge(&self, ack: Ack, answer: Result<AppendAnswer, AppendFailure>) {
        self.append_bytes.give(ack.bytes);
        match &answer {
            Ok(_) => {
                self.metrics.batches_in.fetch_add(1, Ordering::Relaxed);
                self.metrics
                    .bytes_in
                    .fetch_add(ack.bytes as u64, Ordering::Relaxed);
            }
            Err(_) => {
                self.metrics.append_failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        ack.reply.send(answer);
    }

    /// Appends a batch of the node's own (metadata, offsets), perhaps as part of a transaction. Called with the controller's or the shard's lock, so
    /// what is owed comes back and is settled when that lock is free.
    pub(crate) fn append_own(
        &self,
        partition: &Partition,
        batch: Vec<u8>,
        transaction: Option<InTransaction>,
        now: Now,
        owed: &mut Owed,
    ) -> Result<Appended, AppendError> {
        let mut state = partition.state.lock();
        let (epoch, now_ms) = (state.leader.epoch, now.wall_ms);
        let how = match transaction {
            None => AppendAs::Leader { epoch, now_ms },
            Some(InTransaction { verified, .. }) => AppendAs::Coordinator {
                epoch,
                now_ms,
                verified,
            },
        };
        let leads = state.leads();
        let Some(log) = state.log.as_mut().filter(|_| leads) else {
            return Err(AppendError::Batch(
                riverlog_wire::batch::BatchError::Field {
                    field: "partition",
                    value: -1,
                },
            ));
        };
        let appended = log.append(batch, how)?;
        // A second batch under the same lock is taken along by the writer of the first.
        if owed.write.is_none() {
            owed.write = state.take_write();
        }
        owed.flush = true;
        owed.dirty |= !std::mem::replace(&mut state.upkeep.dirty, true);
        state.upkeep.producers |= transaction.is_some();
        Ok(appended)
    }

    /// Runs writes of one log until none is left; a caller that has done its share hands the rest to a job.
    pub(crate) fn drain(&self, partition: &Arc<Partition>, first: Write, now: Now) {
        let mut write = first;
        for _ in 0..WRITES_BY_CALLER {
            let written = write.run();
            match self.wrote(partition, written, now) {
                Some(next) => write = next,
                None => return,
            }
        }
        self.run_job(Work::Write(partition.clone(), write));
    }

    /// Takes a write back; returns the next one.
    pub(crate) fn wrote(
        &self,
        partition: &Arc<Partition>,
        written: riverlog_log::Written,
        now: Now,
    ) -> Option<Write> {
        let mut owed = Owed::default();
        let mut full = false;
        let next = {
            let mut state = partition.state.lock();
            state.came_back(&mut owed);
            if let Some(log) = &mut state.log {
                let result = log.write_done(written);
                state.moved(&mut owed);
                match result {
                    Err(error) => {
                        full = error.is_full();
                        self.metrics.write_failures.fetch_add(1, Ordering::Relaxed);
                        state.cut_back();
                        state.fail(&error, &mut owed);
                        // That they are gone is an entry of its own.
                        owed.flush = true;
                    }
                    Ok(()) if state.upkeep.catching_up => state.sync_segments(&mut owed),
                    Ok(()) => {}
                }
            }
            state.take_write()
        };
        if full {
            self.tighten(now);
        }
        self.settle(partition, owed, now);
        next
    }
}

impl Partition {
    /// A batch was refused before it was looked at.
    pub(crate) fn refused(&self, batch: &[u8], error: ErrorCode, now: Now) {
        if let Ok(header) = BatchHeader::parse(batch) {
            self.state.lock().refused(&header, error, now);
        }
    }
}

impl State {
    /// Notes that a batch was refused, so that what its producer has sent behind it isn't taken for out of order.
    pub(crate) fn refused(&mut self, header: &BatchHeader, error: ErrorCode, now: Now) {
        self.forget_refusals(header);
        self.refusals.refused(header, error, now.mono);
    }

    /// What is stored of a batch's producer was refused no longer.
    fn forget_refusals(&mut self, header: &BatchHeader) {
        if self.refusals.is_empty() {
            return;
        }
        let log = self.log.as_ref();
        if let Some(known) = log.and_then(|log| log.producer(header.producer_id)) {
            let ProducerSummary { id, epoch, .. } = known;
            self.refusals.stored(id, epoch, known.last_sequence);
        }
    }

    /// Refuses a batch in the words in which one before it was refused that has not come again yet.
    fn check_refusals(&mut self, header: &BatchHeader, now: Now) -> Result<(), AppendFailure> {
        self.forget_refusals(header);
        match self.refusals.before(header, now.mono) {
            Some(error) if !active(Mutant::RefusalsForgotten) => Err(AppendFailure::new(
                error,
                format!(
                    "a batch that producer {} has sent before this one was refused a moment ago; this one was not stored, send that one first",
                    header.producer_id
                ),
            )),
            _ => Ok(()),
        }
    }

    /// What a leader says of a transaction is final for its producer, see [`Doubts::may_refuse`](crate::doubts::Doubts::may_refuse).
    fn unless_in_doubt(
        &mut self,
        failure: AppendFailure,
        header: &BatchHeader,
        now: Now,
    ) -> AppendFailure {
        let asked = (
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        );
        let is_final = failure.error == ErrorCode::INVALID_TXN_STATE;
        match is_final && !self.doubts.may_refuse(&asked, &self.leader, now.mono) {
            true => AppendFailure::unsure(),
            false => failure,
        }
    }

    pub(crate) fn take_write(&mut self) -> Option<Write> {
        let write = self.log.as_mut()?.take_write()?;
        self.upkeep.out += 1;
        Some(write)
    }

    fn cut_back(&mut self) {
        if let (Some(bound), Some(log)) = (&mut self.bound, &self.log) {
            bound.cut(log.log_end_offset());
        }
    }

    /// Appends a batch and decides when it is answered. Gives it back when the partition is full.
    pub(crate) fn append(
        &mut self,
        appending: Appending,
        first_blocked: bool,
        now: Now,
        owed: &mut Owed,
    ) -> Option<Appending> {
        let may = self.may_append(appending.acks);
        if let Err(failure) = &may {
            self.refused(&appending.header, failure.error, now);
        }
        if let Err(failure) = may.and_then(|()| self.check_refusals(&appending.header, now)) {
            owed.acks.push((appending.ack, Err(failure)));
            return None;
        }
        if self.bound.is_some() && !self.has_room(&appending, first_blocked) {
            return Some(appending);
        }
        let Appending {
            batch,
            header,
            acks,
            rule,
            deadline,
            ack,
            ..
        } = appending;
        let bytes = batch.len();
        let log = self.log.as_mut()?;
        if let Rule::At(next) = rule
            && next != log.log_end_offset()
        {
            let end = log.log_end_offset();
            let failure = AppendFailure::new(
                ErrorCode::OFFSET_OUT_OF_RANGE,
                format!(
                    "the next record of the partition has offset {end} and not {next}; nothing was stored"
                ),
            );
            owed.acks.push((ack, Err(failure)));
            return None;
        }
        let (epoch, now_ms) = (self.leader.epoch, now.wall_ms);
        let how = match rule {
            Rule::Plain | Rule::At(_) => AppendAs::Leader { epoch, now_ms },
            Rule::Begins(verified) => AppendAs::Transaction {
                epoch,
                now_ms,
                verified,
            },
        };
        match log.append(batch, how) {
            Err(error) => {
                let failure = self.unless_in_doubt(append_failure(&error), &header, now);
                self.refused(&header, failure.error, now);
                owed.acks.push((ack, Err(failure)));
            }
            Ok(appended) => {
                let numbered = header.producer_id.0 >= 0;
                self.appended(appended, bytes, numbered, acks, deadline, ack, owed);
            }
        }
        None
    }

    /// Whether fewer copies are in sync than `min.insync.replicas` asks for.
    pub(crate) fn has_few_in_sync(&self) -> bool {
        self.leads() && self.leader.isr_len() < self.min_isr
    }

    /// Whether the partition takes anything now.
    pub(crate) fn may_append(&self, acks: i16) -> Result<(), AppendFailure> {
        let log = self.log.as_ref().ok_or_else(AppendFailure::deleted)?;
        if !self.leads() {
            return Err(AppendFailure::moved());
        }
        if let Some(error) = log.failed() {
            return Err(AppendFailure::lost(error));
        }
        if acks == -1 && self.has_few_in_sync() {
            return Err(AppendFailure::new(
                ErrorCode::NOT_ENOUGH_REPLICAS,
                format!(
                    "{} replicas are in sync, min.insync.replicas asks for {}; the batch was not stored",
                    self.leader.isr_len(),
                    self.min_isr
                ),
            ));
        }
        Ok(())
    }

    /// The log has taken a batch of `bytes`: notes what that brings, and answers when the rule of `acks` is met.
    #[expect(clippy::too_many_arguments, reason = "what is known of one append")]
    pub(crate) fn appended(
        &mut self,
        appended: Appended,
        bytes: usize,
        numbered: bool,
        acks: i16,
        deadline: Duration,
        ack: Ack,
        owed: &mut Owed,
    ) {
        let start = self.log.as_ref().map(Log::log_start_offset);
        let answer = AppendAnswer {
            base_offset: appended.first,
            log_append_time_ms: appended.log_append_time_ms.unwrap_or(-1),
            log_start_offset: start.unwrap_or(Offset(-1)),
            duplicate: appended.duplicate,
        };
        if !appended.duplicate {
            owed.flush |= self.sync;
            owed.dirty |= !std::mem::replace(&mut self.upkeep.dirty, true);
            owed.warm |= !std::mem::replace(&mut self.upkeep.warm, true);
            self.upkeep.used = true;
            self.upkeep.producers |= numbered;
            if let Some(bound) = &mut self.bound {
                bound.appended(appended.first, appended.next, bytes);
            }
        }
        self.park(acks, appended, answer, deadline, ack, owed);
        // A write that is already owed covers nothing of this batch; the writer will come back for it.
        if owed.write.is_none() {
            owed.write = self.take_write();
        }
    }

    /// Answers now, or when the rule of `acks` is met.
    fn park(
        &mut self,
        acks: i16,
        appended: Appended,
        answer: AppendAnswer,
        deadline: Duration,
        ack: Ack,
        owed: &mut Owed,
    ) {
        let own = self.own_position();
        let (queue, reached) = match acks {
            0 => return owed.acks.push((ack, Ok(answer))),
            1 => (&mut self.acks_leader, own),
            _ => (&mut self.acks_all, self.leader.high_watermark()),
        };
        // What a duplicate reveals may not be durable yet either.
        if appended.next <= reached || active(Mutant::AckBeforeSync) {
            return owed.acks.push((ack, Ok(answer)));
        }
        let parked = Parked {
            next: appended.next,
            deadline,
            answer,
            ack,
        };
        // Only a duplicate of something still in flight lies before the back.
        let at = queue.partition_point(|p| p.next <= appended.next);
        queue.insert(at, parked);
        self.set_timer(deadline, owed);
    }
}
