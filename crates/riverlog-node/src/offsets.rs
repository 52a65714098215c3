//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

use std::sync::Arc;

use riverlog_core::Now;
use riverlog_log::{Log, OffsetAt, ReadError, TimePlan};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use crate::command::{Isolation, OffsetAnswer, OffsetQuery, Reply};
use crate::errors::read_code;
use crate::jobs::Work;
use crate::node::Node;
use crate::partition::{Owed, Partition, State, epoch_end};

/// A look-up by time, to be run as a job.
pub(crate) struct TimeLookup {
    partition: Arc<Partition>,
    plan: TimePlan,
    /// What is said when there is nothing.
    otherwise: ErrorCode,
    reply: Reply<OffsetAnswer>,
}

/// What it found.
pub(crate) struct TimeFound {
    partition: Arc<Partition>,
    found: Result<Option<OffsetAt>, ReadError>,
    otherwise: ErrorCode,
    reply: Reply<OffsetAnswer>,
}

impl TimeLookup {
    pub(crate) fn run(self) -> TimeFound {
        TimeFound {
            partition: self.partition,
            found: self.plan.run(),
            otherwise: self.otherwise,
            reply: self.reply,
        }
    }
}

impl TimeFound {
    /// What failed, for the node to know.
    pub(crate) fn failed(&self) -> Option<(&Arc<Partition>, &ReadError)> {
        let error = self.found.as_ref().err()?;
        Some((&self.partition, error))
    }

    pub(crate) fn send(self) {
        let answer = match self.found {
            Ok(Some(at)) => OffsetAnswer {
                error: ErrorCode::NONE,
                offset: at.offset,
                timestamp: at.timestamp,
                leader_epoch: at.epoch,
            },
            Ok(None) => nothing(self.otherwise),
            Err(error) => nothing(read_code(&error)),
        };
        self.reply.send(answer);
    }
}

/// "No such record": offset and time −1 together.
fn nothing(error: ErrorCode) -> OffsetAnswer {
    OffsetAnswer {
        error,
        offset: Offset(-1),
        timestamp: -1,
        leader_epoch: LeaderEpoch::NONE,
    }
}

/// The epoch that belongs to an offset: that of its record, or of the one before it at the end. Never the leader's own
/// when it has written nothing yet: a client that takes it for the epoch of what it has read would be told that
/// its log diverged.
fn epoch_of(log: &Log, offset: Offset) -> LeaderEpoch {
    if offset >= log.log_end_offset() {
        log.last_epoch()
    } else {
        log.epoch_at(offset)
    }
}

enum Looked {
    Answer(OffsetAnswer),
    /// And what it means when that finds nothing.
    Plan(TimePlan, ErrorCode),
}

impl State {
    fn find_offset(
        &mut self,
        query: OffsetQuery,
        isolation: Isolation,
        current: LeaderEpoch,
    ) -> Result<Looked, ErrorCode> {
        self.check_epoch(current)?;
        let until = match isolation {
            Isolation::ReadUncommitted => self.high_watermark(),
            Isolation::ReadCommitted => {
                self.know_transactions()?;
                self.last_stable_offset()
            }
        };
        let log = self
            .log
            .as_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let start = log.log_start_offset();
        let at = |offset| {
            Ok(Looked::Answer(OffsetAnswer {
                error: ErrorCode::NONE,
                offset,
                timestamp: -1,
                leader_epoch: epoch_of(log, offset),
            }))
        };
        // What an earlier leader has said of the end may be more than is known here yet.
        let otherwise = match self.replicas > 1 && !self.leader.is_settled() {
            true => ErrorCode::OFFSET_NOT_AVAILABLE,
            false => ErrorCode::NONE,
        };
        let plan = match query {
            OffsetQuery::Earliest | OffsetQuery::EarliestLocal => return at(start),
            OffsetQuery::Latest | OffsetQuery::MaxTimestamp if otherwise != ErrorCode::NONE => {
                return Err(otherwise);
            }
            OffsetQuery::Latest => return at(until),
            // Nothing is in an object store, and nothing waits to go there.
            OffsetQuery::LatestTiered | OffsetQuery::EarliestPendingUpload => {
                return Ok(Looked::Answer(nothing(ErrorCode::NONE)));
            }
            _ if start >= until => return Ok(Looked::Answer(nothing(otherwise))),
            OffsetQuery::MaxTimestamp => log.find_max_timestamp(until),
            OffsetQuery::AtTime(timestamp) => log.find_time(timestamp, until),
        };
        plan.map(|plan| Looked::Plan(plan, otherwise))
            .map_err(|e| read_code(&e))
    }
}

impl Node {
    pub(crate) fn find_offset(
        &self,
        partition: &Arc<Partition>,
        query: OffsetQuery,
        isolation: Isolation,
        current: LeaderEpoch,
        reply: Reply<OffsetAnswer>,
    ) {
        let now = self.latest();
        let lapsed = self.membership.has_lapsed(now);
        let looked = {
            let mut state = partition.state.lock();
            let session = self.settings.cluster.session;
            // Looked at here and not from time to time: what is told must not be older than a session.
            match lapsed && !state.leader.is_followed(session, now) {
                true => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
                false => state.find_offset(query, isolation, current),
            }
        };
        match looked {
            Err(error) => reply.send(nothing(error)),
            Ok(Looked::Answer(answer)) => reply.send(answer),
            Ok(Looked::Plan(plan, otherwise)) => {
                let partition = partition.clone();
                self.run_job(Work::Time(Box::new(TimeLookup {
                    partition,
                    plan,
                    otherwise,
                    reply,
                })));
            }
        }
    }

    pub(crate) fn find_epoch_end(
        &self,
        partition: &Partition,
        epoch: LeaderEpoch,
        current: LeaderEpoch,
    ) -> Result<(LeaderEpoch, Offset), ErrorCode> {
        let mut state = partition.state.lock();
        state.check_epoch(current)?;
        // A log that can't be read must not look like one without that epoch.
        state.know_transactions()?;
        let log = state
            .log
            .as_ref()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        // The leader's own epoch ends where the log ends, also before it has written anything.
        if epoch == state.leader.epoch {
            return Ok((epoch, log.log_end_offset()));
        }
        let unknown = (LeaderEpoch::NONE, Offset(-1));
        if epoch > state.leader.epoch {
            return Ok(unknown);
        }
        Ok(epoch_end(log, epoch).map_or(unknown, |e| (e.epoch, e.end)))
    }

    pub(crate) fn delete_before(
        &self,
        partition: &Arc<Partition>,
        before: Offset,
        now: Now,
        reply: Reply<Result<Offset, ErrorCode>>,
    ) {
        if self.is_closing() {
            return reply.send(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        if partition.topic.internal {
            return reply.send(Err(ErrorCode::INVALID_TOPIC_EXCEPTION));
        }
        if !partition.topic.config.load().delete {
            return reply.send(Err(ErrorCode::POLICY_VIOLATION));
        }
        let mut owed = Owed::default();
        let moved = {
            let mut state = partition.state.lock();
            let result = state.delete_before(before, &mut owed);
            if result.is_ok() {
                state.unblock(now, &mut owed);
            }
            result
        };
        match moved {
            Err(error) => reply.send(Err(error)),
            // Also an unchanged start may have been moved a moment ago and not be durable yet.
            Ok(start) => {
                let reply = self.after_followers(partition, reply, now);
                self.after_flush(start, reply);
            }
        }
        self.settle(partition, owed, now);
    }
}

impl State {
    pub(crate) fn delete_before(
        &mut self,
        before: Offset,
        owed: &mut Owed,
    ) -> Result<Offset, ErrorCode> {
        self.check_epoch(LeaderEpoch::NONE)?;
        let high_watermark = self.high_watermark();
        let log = self
            .log
            .as_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let to = if before.0 == -1 {
            high_watermark
        } else {
            before
        };
        if to.0 < 0 || to > high_watermark {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        if to > log.log_start_offset() {
            log.delete_records(to)
                .map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR)?;
            owed.flush = true;
            owed.replicate = true;
            owed.dirty |= !std::mem::replace(&mut self.upkeep.dirty, true);
            self.wake(owed);
        }
        Ok(self.log.as_ref().map_or(to, Log::log_start_offset))
    }
}
