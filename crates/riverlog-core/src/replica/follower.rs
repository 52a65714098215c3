//! A copy that follows: what it asks its leader for, and what it does with the answer.
//!
//! ```text
//! follow(leader, epoch) ─► ask ─► diverging ─► cut, ask again
//!                           ├───► records ───► append, take the high watermark over
//!                           └───► out of range ► begin anew at the leader's start
//! ```
//!
//! An ask carries the epoch of the copy's last batch. An answer without a diverging epoch says that the leader's log holds the
//! copy's log as its beginning; only then is anything appended, or a high watermark taken over (KAFKA-14704): above what both have in common
//! lie records that were never committed.

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{BrokerId, LeaderEpoch, Offset};

/// A copy's view of its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Whom it follows.
    pub leader: BrokerId,
    /// In which leadership.
    pub epoch: LeaderEpoch,
    high_watermark: Offset,
}

/// What a copy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerAsk {
    /// The leadership that is meant.
    pub epoch: LeaderEpoch,
    /// The copy's log end.
    pub from: Offset,
    /// The epoch of its last batch; −1 for none.
    pub last_epoch: LeaderEpoch,
}

/// What a leader answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerAnswer {
    /// The copy's log went another way: the largest epoch of the leader's log at or below that of the copy's last batch, and its end.
    Diverging {
        /// −1: the leader's log has none.
        epoch: LeaderEpoch,
        /// −1 then.
        end: Offset,
    },
    /// The copy's log is the beginning of the leader's; what comes next may come along.
    Matches {
        /// The leader's.
        high_watermark: Offset,
        /// The leader's.
        log_start: Offset,
    },
    /// The copy ends before the leader's log starts, or begins beyond its end.
    OutOfRange {
        /// The leader's.
        log_start: Offset,
        /// The leader's.
        log_end: Offset,
    },
}

/// What is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerStep {
    /// Cut everything at and after an offset, then ask again. Nothing of the answer is appended.
    Cut(Offset),
    /// Let go of everything and begin anew, empty, at an offset.
    BeginAt(Offset),
    /// Append what came along, then move the log's start up to an offset ([`Follower::appended`] says how far the watermark is).
    Append {
        /// The leader's log start: records before it are gone.
        log_start: Offset,
    },
    /// It is about another leadership.
    Ignore,
}

impl Follower {
    /// Follows `leader` in `epoch` from now on. `high_watermark`: known so far.
    pub fn new(leader: BrokerId, epoch: LeaderEpoch, high_watermark: Offset) -> Follower {
        Follower {
            leader,
            epoch,
            high_watermark,
        }
    }

    /// Everything before it is on every in-sync replica, as far as is known here.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// What to ask for, with a log that ends at `end` with a batch of `last_epoch`.
    pub fn ask(&self, end: Offset, last_epoch: LeaderEpoch) -> FollowerAsk {
        FollowerAsk {
            epoch: self.epoch,
            from: end,
            last_epoch,
        }
    }

    /// The leader has answered an ask.
    ///
    /// - `asked`: what was asked for. An answer to an ask that the log has moved on from (it came twice, or late) is ignored.
    /// - `end`: where the log ends now.
    /// - `own_end_of`: the largest epoch of this log at or below one, and its end; `None` where there is none.
    pub fn on_answer(
        &self,
        asked: FollowerAsk,
        answer: FollowerAnswer,
        end: Offset,
        own_end_of: impl Fn(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
    ) -> FollowerStep {
        if asked.epoch != self.epoch || asked.from != end {
            return FollowerStep::Ignore;
        }
        match answer {
            FollowerAnswer::Matches { log_start, .. } => FollowerStep::Append { log_start },
            FollowerAnswer::Diverging { .. } if active(Mutant::DivergenceIgnored) => {
                FollowerStep::Ignore
            }
            FollowerAnswer::Diverging { epoch, end: theirs } => {
                // KIP-279: both ends of the largest epoch that both have. Where this log has an older one only, that
                // one's end is asked about next.
                let to = match own_end_of(epoch) {
                    Some((own, ours)) if own == epoch => ours.min(theirs),
                    Some((_, ours)) => ours,
                    None => Offset::ZERO,
                };
                // An answer that cuts nothing would be asked for again for ever.
                FollowerStep::Cut(to.min(end + -1))
            }
            FollowerAnswer::OutOfRange { log_start, .. }
                if end < log_start && active(Mutant::NotBegunAnew) =>
            {
                FollowerStep::Ignore
            }
            FollowerAnswer::OutOfRange { log_start, .. } if end < log_start => {
                FollowerStep::BeginAt(log_start)
            }
            // More than the leader has, and of an epoch that it knows.
            FollowerAnswer::OutOfRange { log_end, .. } => FollowerStep::Cut(log_end.min(end)),
        }
    }

    /// What an answer that matches brought has been appended, and everything before `end` is written. Returns the high watermark when it
    /// moved. Never beyond what is here.
    pub fn appended(&mut self, leaders: Offset, end: Offset) -> Option<Offset> {
        let known = match active(Mutant::WatermarkPastEnd) {
            true => leaders,
            false => leaders.min(end),
        };
        (known > self.high_watermark).then(|| {
            self.high_watermark = known;
            known
        })
    }

    /// The log was cut, or begins anew, and ends at `end`.
    pub fn cut(&mut self, end: Offset) {
        // Only what was never committed is cut, unless somebody elected a leader that lacked some of it.
        self.high_watermark = self.high_watermark.min(end);
    }
}

#[cfg(test)]
mod tests;
