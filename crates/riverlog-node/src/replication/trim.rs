//! Deletions of records that wait until all that are in sync have followed: whoever leads next must not bring the records back.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::command::Reply;
use crate::node::Node;
use crate::partition::{Partition, Standing, State};
use crate::timers::Timer;

/// How often those that wait are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a follower may take. It is done here all the same, and followers follow when they can.
const PATIENCE: Duration = Duration::from_secs(30);
/// Deletions that may wait.
const WAITING: usize = 10_000;

type TrimReply = Reply<Result<Offset, ErrorCode>>;

/// Those that wait.
#[derive(Default)]
pub(super) struct Trims {
    waiting: Vec<Trim>,
    /// When they are looked at next: one timer, however many there are.
    look: Option<Duration>,
}

/// A deletion that is durable here.
struct Trim {
    partition: Arc<Partition>,
    /// The leadership in which it was done.
    epoch: LeaderEpoch,
    start: Offset,
    deadline: Duration,
    reply: TrimReply,
}

impl Node {
    /// The answer to a deletion comes once it is durable here, and those in sync have followed.
    pub(crate) fn after_followers(
        &self,
        partition: &Arc<Partition>,
        reply: TrimReply,
        now: Now,
    ) -> TrimReply {
        let epoch = {
            let state = partition.state.lock();
            if state.replicas < 2 {
                return reply;
            }
            state.leader.epoch
        };
        let (this, partition) = (self.this.clone(), Arc::clone(partition));
        Reply::new(move |deleted: Result<Offset, ErrorCode>| {
            let node = this.upgrade().filter(|node| !node.is_closing());
            match (deleted, node) {
                (Ok(start), Some(node)) => node.wait_for_followers(Trim {
                    partition,
                    epoch,
                    start,
                    deadline: node.latest().max(now.mono) + PATIENCE,
                    reply,
                }),
                (Ok(_), None) => reply.send(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)),
                (Err(error), _) => reply.send(Err(error)),
            }
        })
    }

    fn wait_for_followers(&self, trim: Trim) {
        {
            let mut trims = self.replication.trims.lock();
            if trims.waiting.len() >= WAITING {
                drop(trims);
                return trim.reply.send(Err(ErrorCode::REQUEST_TIMED_OUT));
            }
            trims.waiting.push(trim);
        }
        self.look_at_trims_at(self.latest());
    }

    fn look_at_trims_at(&self, at: Duration) {
        {
            let mut trims = self.replication.trims.lock();
            if trims.look.is_some_and(|look| look <= at) {
                return;
            }
            trims.look = Some(at);
        }
        let (_, first) = self.timers.add(at, Timer::Trims);
        if first {
            self.host.deadline_changed();
        }
    }

    /// Answers those that all in sync have followed, and those that can't be waited for.
    pub(crate) fn look_at_trims(&self, now: Now) {
        let waiting = {
            let mut trims = self.replication.trims.lock();
            if trims.look.take_if(|look| *look <= now.mono).is_none() {
                return;
            }
            std::mem::take(&mut trims.waiting)
        };
        let mut left = Vec::new();
        for trim in waiting {
            let me = self.settings.broker;
            let state = trim.partition.state.lock();
            let followed = state.has_trimmed(me, trim.epoch, trim.start);
            drop(state);
            match followed {
                Err(error) => trim.reply.send(Err(error)),
                Ok(true) => trim.reply.send(Ok(trim.start)),
                Ok(false) if now.mono >= trim.deadline => {
                    trim.reply.send(Err(ErrorCode::REQUEST_TIMED_OUT));
                }
                Ok(false) => left.push(trim),
            }
        }
        if !left.is_empty() {
            self.replication.trims.lock().waiting.append(&mut left);
            self.look_at_trims_at(now.mono + LOOK);
        }
    }

    /// The node stops.
    pub(crate) fn give_up_trims(&self) {
        let waiting = std::mem::take(&mut self.replication.trims.lock().waiting);
        for trim in waiting {
            trim.reply.send(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
    }
}

impl State {
    /// Whether all that are in sync begin at `start` or later, and nobody else may lead: where too few are in sync, one that isn't may, and would bring
    /// the records back.
    fn has_trimmed(
        &self,
        me: BrokerId,
        epoch: LeaderEpoch,
        start: Offset,
    ) -> Result<bool, ErrorCode> {
        if self.leader.epoch != epoch {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let Standing::Leads(leading) = &self.standing else {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        };
        if self.has_few_in_sync() {
            return Ok(false);
        }
        let mut others = self.leader.isr().filter(|b| *b != me);
        Ok(others.all(|b| leading.starts.get(&b).is_some_and(|at| *at >= start)))
    }
}
