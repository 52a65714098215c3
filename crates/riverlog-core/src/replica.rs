//! One replica of a partition: what may be acknowledged and read.
//!
//! The high watermark is the least position over the in-sync replicas: what they have *synced* on a `sync` topic, what
//! they have *written* on a `page-cache` topic. It never goes back, so what was once acknowledged or read stays so. It rests
//! while fewer replicas are in sync than min ISR asks for (as in Kafka since KIP-966): what fewer copies hold may yet be lost,
//! and must not be read before.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::Now;

mod follower;

pub use follower::{Follower, FollowerAnswer, FollowerAsk, FollowerStep};

#[cfg(test)]
mod tests;

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Position {
    /// Everything before it is in that node's operating system.
    pub written: Offset,
    /// Everything before it survives a power cut of that node.
    pub synced: Offset,
}

/// Why what a follower said about itself can't be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FollowerError {
    /// It speaks of another leadership.
    #[error(
        "follower {who} speaks of leader epoch {got} but this leader is at {at}; refresh metadata, then fetch again"
    )]
    FencedEpoch {
        /// The follower.
        who: BrokerId,
        /// Its epoch.
        got: LeaderEpoch,
        /// Ours.
        at: LeaderEpoch,
    },
    /// It is not one of the partition's replicas.
    #[error("broker {who} is not a replica of this partition; refresh metadata")]
    NotAReplica {
        /// The broker.
        who: BrokerId,
    },
    /// It has more than the leader.
    #[error(
        "follower {who} has records up to {written} but the leader ends at {end}; truncate to the last common epoch, then fetch again"
    )]
    PastEnd {
        /// The follower.
        who: BrokerId,
        /// What it has.
        written: Offset,
        /// The leader's log end.
        end: Offset,
    },
}

impl FollowerError {
    /// What the follower is answered.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            FollowerError::FencedEpoch { got, at, .. } if got > at => {
                ErrorCode::UNKNOWN_LEADER_EPOCH
            }
            FollowerError::FencedEpoch { .. } => ErrorCode::FENCED_LEADER_EPOCH,
            FollowerError::NotAReplica { .. } => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            FollowerError::PastEnd { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        }
    }
}

/// The leader's view of a partition.
#[derive(Clone, Debug)]
pub struct Leader {
    /// This leadership's epoch.
    pub epoch: LeaderEpoch,
    own: Position,
    high_watermark: Offset,
    sync: bool,
    min_isr: usize,
    followers: BTreeMap<BrokerId, Seen>,
    /// Where the log ended when this leadership began.
    began: Offset,
}

#[derive(Clone, Debug)]
struct Seen {
    /// `None` until it has spoken in this epoch: what it had before may have to be truncated.
    position: Option<Position>,
    /// It had everything that the leader had at that moment of the monotonic clock.
    caught_up: Duration,
    /// Where the leader ended at some later moment. Reaching it moves `caught_up` to that moment. A fixed goal, not the
    /// end as of the last report: a follower that reports more often than it syncs would never reach that one.
    goal: Option<(Offset, Duration)>,
    in_sync: bool,
    /// The controller was asked to take it in; it counts already.
    joining: bool,
    /// Under which it last spoke.
    broker_epoch: i64,
    /// The latest moment after which it is known to have spoken in this epoch.
    followed: Option<Duration>,
}

impl Leader {
    /// A leadership that begins with a log `own`, and the high watermark known so far. Min ISR is 1 until
    /// [`Leader::set_min_isr`]; there are no followers until [`Leader::set_replicas`], which comes before the first position
    /// when there are any.
    ///
    /// A high watermark past the log is pulled down to the log's end: this copy can't show what it doesn't have.
    pub fn new(epoch: LeaderEpoch, own: Position, high_watermark: Offset, sync: bool) -> Leader {
        Leader {
            epoch,
            own,
            high_watermark: high_watermark.min(own.written),
            sync,
            min_isr: 1,
            followers: BTreeMap::new(),
            began: own.written,
        }
    }

    /// Everything before it is on every in-sync replica; never goes back.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Our own log's position.
    pub fn own(&self) -> Position {
        self.own
    }

    /// In-sync replicas, this one included.
    pub fn isr_len(&self) -> usize {
        1 + self.followers.values().filter(|f| f.in_sync).count()
    }

    /// Whether there are other replicas, as far as the controller has said.
    pub fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Of the in-sync followers that `can` serve a reader and have written everything before `from`, the one that has most; `None`: there
    /// is none.
    pub fn furthest(&self, from: Offset, can: impl Fn(BrokerId) -> bool) -> Option<BrokerId> {
        let candidates = self.followers.iter().filter_map(|(id, f)| {
            let position = f.position.filter(|p| f.in_sync && p.written >= from)?;
            can(*id).then_some((position.written, f.caught_up, std::cmp::Reverse(*id)))
        });
        candidates.max().map(|(_, _, id)| id.0)
    }

    /// In-sync followers in order of id; this replica itself is always in sync.
    pub fn isr(&self) -> impl Iterator<Item = BrokerId> + '_ {
        self.followers
            .iter()
            .filter(|(_, f)| f.in_sync)
            .map(|(id, _)| *id)
    }

    /// Our own log moved. Returns the new high watermark when it moved.
    pub fn on_own_position(&mut self, own: Position) -> Option<Offset> {
        // A log that was cut back after a failed write is shorter than before; what was acknowledged is below the
        // high watermark, which advance() never pulls down.
        self.own = own;
        self.advance()
    }

    /// The topic's durability changed. Returns the new high watermark when it moved.
    pub fn set_sync(&mut self, sync: bool) -> Option<Offset> {
        self.sync = sync;
        self.advance()
    }

    /// `min.insync.replicas` changed; at least 1. Returns the new high watermark when it moved.
    pub fn set_min_isr(&mut self, min_isr: usize) -> Option<Offset> {
        self.min_isr = min_isr.max(1);
        self.advance()
    }

    /// Min ISR and the controller's word at once: with one of them alone, a leadership that begins would take itself for the only
    /// copy, or for enough. Returns the new high watermark when it moved.
    pub fn set_partition(
        &mut self,
        min_isr: usize,
        own: BrokerId,
        replicas: &[BrokerId],
        isr: &[BrokerId],
        now: Now,
    ) -> Option<Offset> {
        self.min_isr = min_isr.max(1);
        self.set_replicas(own, replicas, isr, now)
    }

    /// The controller's word on who the replicas are and who of them is in sync; this replica itself may be named or not.
    /// Returns the new high watermark when it moved.
    ///
    /// A follower that is new to the ISR holds the high watermark back from now on, so a caller that proposes one to the
    /// controller counts it in (calls this) *before* the proposal can be committed.
    pub fn set_replicas(
        &mut self,
        own: BrokerId,
        replicas: &[BrokerId],
        isr: &[BrokerId],
        now: Now,
    ) -> Option<Offset> {
        self.followers.retain(|id, _| replicas.contains(id));
        for id in replicas.iter().filter(|id| **id != own) {
            let follower = self.followers.entry(*id).or_insert(Seen {
                position: None,
                caught_up: now.mono,
                goal: None,
                in_sync: false,
                joining: false,
                broker_epoch: -1,
                followed: None,
            });
            follower.in_sync = isr.contains(id);
            follower.joining = false;
        }
        self.advance()
    }

    /// A follower says how far it is. Returns the new high watermark when it moved.
    pub fn on_follower_position(
        &mut self,
        who: BrokerId,
        epoch: LeaderEpoch,
        position: Position,
        now: Now,
    ) -> Result<Option<Offset>, FollowerError> {
        if epoch != self.epoch && !active(Mutant::FollowerEpochUnchecked) {
            return Err(FollowerError::FencedEpoch {
                who,
                got: epoch,
                at: self.epoch,
            });
        }
        let end = self.own.written;
        if position.written > end {
            return Err(FollowerError::PastEnd {
                who,
                written: position.written,
                end,
            });
        }
        let at = self.counts(&position);
        let follower = self
            .followers
            .get_mut(&who)
            .ok_or(FollowerError::NotAReplica { who })?;
        follower.position = Some(position);
        if at >= end {
            follower.caught_up = now.mono;
            follower.goal = None;
        } else {
            if let Some((_, when)) = follower.goal.filter(|(goal, _)| at >= *goal) {
                follower.caught_up = when;
                follower.goal = None;
            }
            follower.goal.get_or_insert((end, now.mono));
        }
        Ok(self.advance())
    }

    /// [`Leader::on_follower_position`] from a follower that says under which broker epoch it speaks. What it said in an earlier
    /// life counts no more.
    pub fn on_follower_fetch(
        &mut self,
        who: BrokerId,
        broker_epoch: i64,
        epoch: LeaderEpoch,
        position: Position,
        now: Now,
    ) -> Result<Option<Offset>, FollowerError> {
        let moved = self.on_follower_position(who, epoch, position, now)?;
        if let Some(follower) = self.followers.get_mut(&who) {
            follower.broker_epoch = broker_epoch;
        }
        Ok(moved)
    }

    /// A follower followed this leadership at some time after `since`, a moment of this leader's monotonic clock. When its word came doesn't
    /// say so: it may have been under way for long, and the follower may have another leader since.
    pub fn on_followed(&mut self, who: BrokerId, since: Duration) {
        if let Some(follower) = self.followers.get_mut(&who) {
            follower.followed = follower.followed.max(Some(since));
        }
    }

    /// The in-sync set to ask the controller for, with the broker epochs of its members, when it should be another one: without those that
    /// lag, with those that have caught up. `own`: this replica, and its broker epoch. `epoch_of`: the broker epoch of a node that
    /// is registered and up; others aren't asked for.
    ///
    /// Newcomers count for the high watermark from now on, whatever is answered: an ask that was refused, or that nobody answered, may have a
    /// copy on its way. One that falls behind before it is in is asked away again: the change that this makes outdates all that is on its way.
    pub fn propose_isr(
        &mut self,
        own: (BrokerId, i64),
        max_lag: Duration,
        now: Now,
        epoch_of: impl Fn(BrokerId) -> Option<i64>,
    ) -> Option<Vec<(BrokerId, i64)>> {
        let forgetful = active(Mutant::EarlierLifeInSync);
        let leaving = self.lagging(max_lag, now);
        let mut joining = self.caught_up();
        joining.retain(|id| {
            let Some(follower) = self.followers.get(id) else {
                return false;
            };
            let lives = epoch_of(*id) == Some(follower.broker_epoch);
            // One that is at the watermark because it holds it there would be asked for and asked away for ever.
            (lives || forgetful) && !self.is_late(follower, max_lag, now)
        });
        if leaving.is_empty() && joining.is_empty() {
            return None;
        }
        if !leaving.is_empty() {
            sometimes(Mark::LeftOut);
        }
        if !joining.is_empty() {
            sometimes(Mark::TakenIn);
        }
        let mut isr = vec![own];
        for (id, follower) in &mut self.followers {
            let joins = joining.contains(id);
            follower.joining |= joins;
            if active(Mutant::LeftAtOnce) && leaving.contains(id) {
                follower.in_sync = false;
            }
            if joins || (follower.in_sync && !leaving.contains(id)) {
                // One that hasn't spoken yet stays as who is registered.
                let unknown = follower.broker_epoch < 0 || forgetful;
                let known = unknown.then(|| epoch_of(*id)).flatten();
                isr.push((*id, known.unwrap_or(follower.broker_epoch)));
            }
        }
        Some(isr)
    }

    /// Whether everything that was acknowledged before this leadership is below the high watermark again: what it says of the
    /// log's end is the truth then. Before, it may be less than an earlier leader has said.
    pub fn is_settled(&self) -> bool {
        self.high_watermark >= self.began
    }

    /// Whether so many others have followed this leadership within `time` that those who haven't are fewer than min ISR: then no later
    /// leader can have had anything acknowledged before that. `now`: on the monotonic clock.
    pub fn is_followed(&self, time: Duration, now: Duration) -> bool {
        let silent = |f: &&Seen| f.followed.is_none_or(|at| now.saturating_sub(at) > time);
        let silent = self.followers.values().filter(silent).count();
        silent < self.effective_min_isr()
    }

    /// Whether those that are in sync, or are to be, are no fewer than min ISR and have all followed this leadership within `time`: whoever leads next is
    /// one of them, and began after that. So it is known also while others are gone.
    pub fn is_followed_in_sync(&self, time: Duration, now: Duration) -> bool {
        let mut heirs = self.followers.values().filter(|f| f.in_sync || f.joining);
        let recent = |at: Duration| now.saturating_sub(at) <= time;
        !self.is_under_min_isr() && heirs.all(|f| f.followed.is_some_and(recent))
    }

    /// Whether so many have followed this leadership, at any time, that with them it can acknowledge: none of them goes back to a leader before
    /// this one, and none of those can be [followed](Leader::is_followed) any more without one of them.
    pub fn has_quorum(&self) -> bool {
        let followed = self.followers.values().filter(|f| f.followed.is_some());
        1 + followed.count() >= self.effective_min_isr()
    }

    /// In-sync followers, and those that are to be, that have not had everything for longer than `max_lag` (`replica.lag.time.max.ms`): the controller
    /// is to be asked to take them out. In order of id.
    pub fn lagging(&self, max_lag: Duration, now: Now) -> Vec<BrokerId> {
        if active(Mutant::LaggardStays) {
            return Vec::new();
        }
        self.followers
            .iter()
            .filter(|(_, f)| (f.in_sync || f.joining) && self.is_late(f, max_lag, now))
            .map(|(id, _)| *id)
            .collect()
    }

    /// It hasn't had everything for too long. One that has everything isn't late, however long nothing was written.
    fn is_late(&self, follower: &Seen, max_lag: Duration, now: Now) -> bool {
        let position = follower.position;
        now.mono.saturating_sub(follower.caught_up) > max_lag
            && position.is_none_or(|p| self.counts(&p) < self.own.written)
    }

    /// Followers outside the ISR that hold everything below the high watermark, and all that the leader had when its epoch began
    /// (what of that was acknowledged may lie above the watermark, as long as it is known to be low): the controller is to be
    /// asked to take them in. In order of id.
    pub fn caught_up(&self) -> Vec<BrokerId> {
        let began = match active(Mutant::EpochStartIgnored) {
            true => Offset::ZERO,
            false => self.began,
        };
        self.followers
            .iter()
            .filter(|(_, f)| !f.in_sync)
            .filter(|(_, f)| {
                f.position
                    .is_some_and(|p| self.counts(&p) >= self.high_watermark.max(began))
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Whether a batch with these `acks` may be appended now: acks=all needs min ISR, else NOT_ENOUGH_REPLICAS.
    pub fn admit(&self, acks: i16) -> Result<(), ErrorCode> {
        if acks == ACKS_ALL && self.is_under_min_isr() {
            return Err(ErrorCode::NOT_ENOUGH_REPLICAS);
        }
        Ok(())
    }

    /// The answer that a batch which ends at `end` (exclusive) can be given now; `None`: not yet.
    ///
    /// - acks=all (−1): at the high watermark. NOT_ENOUGH_REPLICAS_AFTER_APPEND when all that are in sync have it but are by
    ///   then fewer than min ISR: it is written, it may come to be read, but it isn't promised.
    /// - acks=1: synced here on a `sync` topic, written here on a `page-cache` topic.
    /// - acks=0: at once.
    pub fn acked(&self, acks: i16, end: Offset) -> Option<Result<(), ErrorCode>> {
        let done = match acks {
            ACKS_ALL if self.is_under_min_isr() => {
                return (self.least().is_some_and(|least| least >= end))
                    .then_some(Err(ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND));
            }
            ACKS_ALL => self.high_watermark >= end,
            1 => self.counts(&self.own) >= end,
            _ => true,
        };
        done.then_some(Ok(()))
    }

    fn is_under_min_isr(&self) -> bool {
        self.isr_len() < self.effective_min_isr()
    }

    /// A topic with fewer replicas than `min.insync.replicas` can be written when all of them are in sync, as in Kafka.
    fn effective_min_isr(&self) -> usize {
        self.min_isr.min(1 + self.followers.len())
    }

    /// The position that counts under the topic's durability.
    fn counts(&self, position: &Position) -> Offset {
        if self.sync && !active(Mutant::WrittenTakenForSynced) {
            position.synced
        } else {
            position.written
        }
    }

    /// What every in-sync replica has; `None` while one of them hasn't spoken in this epoch.
    fn least(&self) -> Option<Offset> {
        let own = match active(Mutant::OwnNotCounted) {
            true => self.own.written,
            false => self.counts(&self.own),
        };
        self.followers
            .values()
            .filter(|f| f.in_sync || (f.joining && !active(Mutant::JoiningNotCounted)))
            .filter(|f| f.position.is_some() || !active(Mutant::SilentNotCounted))
            .try_fold(own, |least, f| Some(least.min(self.counts(&f.position?))))
    }

    fn advance(&mut self) -> Option<Offset> {
        if self.is_under_min_isr() && !active(Mutant::MinIsrIgnored) {
            return None;
        }
        // A restarted follower reports a shorter log until it has fetched again. Records below the high watermark were
        // already acknowledged, so it must not follow the report down.
        let least = self.least().filter(|least| *least > self.high_watermark)?;
        self.high_watermark = least;
        Some(least)
    }
}

const ACKS_ALL: i16 = -1;
