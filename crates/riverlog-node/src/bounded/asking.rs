//! Room in a cluster: which groups have committed what is known to the nodes that lead `__consumer_offsets`.
//!
//! While appends wait for room their partition's leader asks all of these, in two steps: first for the least offset, then for the promise that
//! nothing lower will be committed while it drops what is before that ([`crate::groups::least`]). Only when all have answered, and
//! in time, anything is dropped. It asks again while appends wait: soon when somebody hasn't answered, after a while when there was nothing to
//! drop, and at once when a coordinator says that there may be now.
//!
//! Nodes that may come to lead a part of `__consumer_offsets` are asked as well: one of an older release doesn't know the question, wouldn't heed
//! what its predecessor has promised, and keeps everything from being dropped by not answering.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::full;
use crate::command::Reply;
use crate::groups::OFFSETS_TOPIC;
use crate::groups::least::{Least, LeastAsk, VALID, gather};
use crate::node::Node;
use crate::partition::{Owed, Partition, State};

/// How long the coordinators' answers are waited for by an append that is refused without room.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(4);

/// Before all are asked again, where somebody hasn't answered.
const PAUSE: Duration = Duration::from_millis(100);

/// The same where there was nothing to drop.
const REST: Duration = Duration::from_secs(1);

/// A question to all coordinators.
pub(crate) struct Round {
    /// When it was put, on this node's clock.
    began: Duration,
    /// What is to be dropped; `None`: that is asked.
    drops: Option<Offset>,
    /// How many appends had come to wait before it began.
    arrived: u64,
}

/// What a bounded partition of a cluster remembers of it.
#[derive(Default)]
pub(super) struct Asking {
    round: Option<Arc<Round>>,
    /// When all are asked again.
    pub(super) again: Option<Duration>,
    /// More may have been committed since they were asked.
    news: bool,
    /// Appends that have come to wait, ever.
    pub(super) arrived: u64,
}

/// What comes of a round.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It came to nothing.
    Again,
    /// There is no room.
    Full,
    /// All are to promise that nothing lower is committed.
    Promise(Offset),
    Drop(Offset),
}

impl Round {
    fn next(&self, answer: Least, start: Offset, high_watermark: Offset, now: Duration) -> Next {
        match (answer, self.drops) {
            (Err(_), _) => Next::Again,
            (Ok(None), None) => Next::Full,
            (Ok(Some(least)), None) => match least.min(high_watermark) {
                to if to > start => Next::Promise(to),
                _ => Next::Full,
            },
            // Without any group nothing is dropped.
            (Ok(least), Some(to)) => {
                let is_so = least.is_some_and(|least| least >= to);
                match is_so && now < self.began.saturating_add(VALID) {
                    true => Next::Drop(to),
                    false => Next::Again,
                }
            }
        }
    }
}

impl Node {
    /// Asks the coordinators for room in a partition in which appends wait. `news`: there may be some, whatever was answered before.
    pub(crate) fn ask_for_room(&self, partition: &Arc<Partition>, news: bool, now: Now) {
        let round = {
            let mut state = partition.state.lock();
            if !state.is_blocked() {
                return;
            }
            let Some(bound) = &mut state.bound else {
                return;
            };
            let asking = &mut bound.asking;
            let rests = asking.again.is_some_and(|again| now.mono < again);
            if asking.round.is_some() || (rests && !news) {
                asking.news |= news;
                return;
            }
            asking.again = None;
            asking.news = false;
            let round = Arc::new(Round {
                began: now.mono,
                drops: None,
                arrived: asking.arrived,
            });
            asking.round = Some(round.clone());
            round
        };
        self.put_round(partition, &round, now);
    }

    fn put_round(&self, partition: &Arc<Partition>, round: &Arc<Round>, now: Now) {
        let (node, asks) = (self.this.clone(), (partition.clone(), round.clone()));
        let reply = Reply::new(move |answer| {
            if let Some(node) = node.upgrade() {
                node.round_answered(&asks.0, &asks.1, answer, node.as_of(now));
            }
        });
        let nodes = match self.coordinators_of_groups() {
            Ok(nodes) => nodes,
            Err(error) => return reply.send(Err(error)),
        };
        let start = {
            let state = partition.state.lock();
            state
                .log
                .as_ref()
                .map_or(Offset::ZERO, |l| l.log_start_offset())
        };
        let part = gather(nodes.len(), reply);
        for (to, shards) in nodes {
            let ask = LeastAsk {
                key: partition.key,
                start,
                drops: round.drops,
                shards,
            };
            match to == self.settings.broker {
                true => self.least_here(to, &ask, now, part()),
                false => self.ask_least(to, ask, now, part()),
            }
        }
    }

    /// The nodes that lead `__consumer_offsets`, with what they lead of it, and those that may come to. None where there are no groups.
    fn coordinators_of_groups(
        &self,
    ) -> Result<BTreeMap<BrokerId, Vec<(i32, LeaderEpoch)>>, ErrorCode> {
        let image = self.image.load();
        let mut nodes: BTreeMap<BrokerId, Vec<(i32, LeaderEpoch)>> = BTreeMap::new();
        let Some(topic) = image.topic(OFFSETS_TOPIC) else {
            return Ok(nodes);
        };
        for (index, partition) in (0..).zip(&topic.partitions) {
            let leader = partition
                .leader
                .ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)?;
            let led = (index, partition.leader_epoch);
            nodes.entry(leader).or_default().push(led);
            for other in &partition.isr {
                nodes.entry(*other).or_default();
            }
        }
        Ok(nodes)
    }

    /// All coordinators have answered, or one of them didn't.
    fn round_answered(
        &self,
        partition: &Arc<Partition>,
        round: &Arc<Round>,
        answer: Least,
        now: Now,
    ) {
        let mut owed = Owed::default();
        let promise = {
            let mut state = partition.state.lock();
            state.round_answered(round, answer, now, &mut owed)
        };
        self.settle(partition, owed, now);
        if let Some(round) = promise {
            self.put_round(partition, &round, now);
        }
    }
}

impl State {
    /// Returns the next step, if there is one.
    fn round_answered(
        &mut self,
        round: &Arc<Round>,
        answer: Least,
        now: Now,
        owed: &mut Owed,
    ) -> Option<Arc<Round>> {
        let high_watermark = self.high_watermark();
        let start = self.log.as_ref()?.log_start_offset();
        let asking = &mut self.bound.as_mut()?.asking;
        // Of an earlier leadership.
        asking.round.take_if(|is| Arc::ptr_eq(is, round))?;
        if !self.is_blocked() {
            // There is room by now.
            return None;
        }
        let next = round.next(answer, start, high_watermark, now.mono);
        match next {
            Next::Promise(to) => {
                let step = Arc::new(Round {
                    began: now.mono,
                    drops: Some(to),
                    arrived: round.arrived,
                });
                self.bound.as_mut()?.asking.round = Some(step.clone());
                return Some(step);
            }
            Next::Drop(to) => {
                self.drop_committed(to, owed);
            }
            Next::Again | Next::Full => {}
        }
        self.unblock(now, owed);
        let bound = self.bound.as_mut()?;
        let mut pause = match bound.asking.news {
            true => Duration::ZERO,
            false => REST,
        };
        if next == Next::Again {
            pause = PAUSE;
        } else if !bound.block {
            // Those that came meanwhile may have come behind a commit that isn't in what was answered.
            let ended = bound.blocked.end(|b| b.arrived <= round.arrived);
            self.end_blocked(ended, full, now, owed);
            pause = Duration::ZERO;
        }
        if self.is_blocked() {
            let again = now.mono.saturating_add(pause);
            self.bound.as_mut()?.asking.again = Some(again);
            self.set_timer(again, owed);
        }
        None
    }

    /// Whether it is time to ask again.
    pub(crate) fn asks_again(&self, now: Now) -> bool {
        let again = self.bound.as_ref().and_then(|b| b.asking.again);
        again.is_some_and(|at| at <= now.mono)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn next(drops: Option<i64>, answer: Least, now: u64) -> Next {
        let round = Round {
            began: at(1_000),
            drops: drops.map(Offset),
            arrived: 0,
        };
        round.next(answer, Offset(2), Offset(6), at(now))
    }

    #[test]
    fn what_all_have_committed_is_dropped_once_all_have_promised() {
        let some = |at| Ok(Some(Offset(at)));
        assert_eq!(next(None, some(4), 1_100), Next::Promise(Offset(4)));
        assert_eq!(next(None, some(9), 1_100), Next::Promise(Offset(6)));
        assert_eq!(next(None, some(2), 1_100), Next::Full);
        assert_eq!(next(None, Ok(None), 1_100), Next::Full);
        assert_eq!(next(Some(4), some(4), 1_100), Next::Drop(Offset(4)));
        assert_eq!(next(Some(4), some(8), 2_999), Next::Drop(Offset(4)));
    }

    #[test]
    fn nothing_is_dropped_that_isnt_so_any_more_or_was_promised_too_long_ago() {
        let failed = Err(ErrorCode::NOT_COORDINATOR);
        assert_eq!(next(None, failed, 1_100), Next::Again);
        assert_eq!(next(Some(4), failed, 1_100), Next::Again);
        assert_eq!(next(Some(4), Ok(Some(Offset(3))), 1_100), Next::Again);
        assert_eq!(next(Some(4), Ok(None), 1_100), Next::Again);
        assert_eq!(next(Some(4), Ok(Some(Offset(4))), 3_000), Next::Again);
    }
}
