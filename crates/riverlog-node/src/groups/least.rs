//! What the coordinators of groups tell the leader of a bounded partition: how far all groups have committed there
//! ([`crate::bounded`] says what for).
//!
//! What is told must be true of all that any coordinator has acknowledged, and stay true until the leader has dropped what it asks about:
//!
//! - Only what is committed for good counts: an answer waits until all that was looked at lies below the high watermark.
//! - A coordinator that others have gone beyond may not know of a group that has begun. It answers only while such followers have
//!   asked it within [`FRESH`] that no other one can have had anything acknowledged before that.
//! - A coordinator that has told a leader to drop records takes no commit before their end for [`PROMISED`], by its own clock, unless it hears before
//!   that they are gone; the leader drops them within a time that is shorter by more than [`FRESH`], by its own.
//! - What another coordinator has told before is not known to the next one. For as long after the first moment at which it could have had anything
//!   acknowledged it takes no commit on a bounded partition that is lower than what counts of the group.
//!
//! Who may not commit yet is answered COORDINATOR_LOAD_IN_PROGRESS, which clients wait out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::groups::GroupShard;
use riverlog_log::{Log, LogKey};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::command::Reply;
use crate::node::Node;
use crate::peers::Message;
use crate::quorum::Quorum;
use crate::shards::{Coordinator, Shard, ShardState};

/// How long ago followers may have asked a coordinator that answers.
const FRESH: Duration = Duration::from_secs(2);

/// For how long no group begins, or goes back, before what a leader is about to drop. Part of the protocol: all nodes have to mean the same.
const PROMISED: Duration = Duration::from_secs(5);

/// How long after it has asked a leader may drop what it was promised: a second is left for clocks that don't run alike.
pub(crate) const VALID: Duration = Duration::from_secs(2);

/// The least offset that all groups with one have committed; `None` where no group has one.
pub(crate) type Least = Result<Option<Offset>, ErrorCode>;

/// What the leader of a partition asks a node that coordinates groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeastAsk {
    /// The partition.
    pub(crate) key: LogKey,
    /// Where it begins.
    pub(crate) start: Offset,
    /// Where it is to begin: no group is to begin before that for a while.
    pub(crate) drops: Option<Offset>,
    /// Partitions of `__consumer_offsets` with the leadership that is meant; none of a node that only may come to lead some.
    pub(crate) shards: Vec<(i32, LeaderEpoch)>,
}

/// What a coordinator remembers of those who have asked.
#[derive(Default)]
pub(crate) struct Askers {
    asked: BTreeMap<LogKey, Asked>,
    /// Since when this leadership can have had anything acknowledged, as far as was looked.
    since: Option<(LeaderEpoch, Duration)>,
}

struct Asked {
    /// Unless it was told since.
    by: Option<BrokerId>,
    until: Duration,
    /// No commit before that, until then.
    promised: Option<(Offset, Duration)>,
}

impl Askers {
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// A leader has asked; `promises`: nothing lower is committed for a while.
    fn note(&mut self, by: BrokerId, ask: &LeastAsk, promises: Option<Offset>, now: Duration) {
        self.asked.retain(|_, asked| now < asked.until);
        let until = now.saturating_add(PROMISED);
        let before = self.asked.remove(&ask.key).and_then(|a| a.promised);
        // What begins behind it has dropped it.
        let before = before.filter(|(to, until)| ask.start < *to && now < *until);
        let promised = match (before, promises) {
            (Some((to, _)), Some(new)) => Some((to.max(new), until)),
            (before, new) => new.map(|to| (to, until)).or(before),
        };
        let asked = Asked {
            by: Some(by),
            until,
            promised,
        };
        self.asked.insert(ask.key, asked);
    }

    /// Whether a commit there has to wait.
    fn forbids(&self, key: LogKey, offset: Offset, now: Duration) -> bool {
        let promised = self.asked.get(&key).and_then(|a| a.promised);
        promised.is_some_and(|(to, until)| offset < to && now < until)
    }

    /// Looks whether this leadership can have had anything acknowledged yet. Returns whether others can't have told anything since for so long
    /// that it counts no more.
    fn is_alone(&mut self, epoch: LeaderEpoch, has_quorum: bool, now: Duration) -> bool {
        match self.since {
            Some((of, since)) if of == epoch => now.saturating_sub(since) >= PROMISED,
            _ => {
                self.since = has_quorum.then_some((epoch, now));
                false
            }
        }
    }

    /// Who has asked about a partition since the last time.
    fn take(&mut self, key: LogKey, now: Duration) -> Option<BrokerId> {
        let asked = self.asked.get_mut(&key)?;
        let by = asked.by.take();
        by.filter(|_| now < asked.until)
    }
}

impl Node {
    /// The leader of a bounded partition asks.
    pub(crate) fn least_asked(&self, from: BrokerId, number: i64, ask: &LeastAsk, now: Now) {
        let node = self.this.clone();
        let reply = Reply::new(move |answer| {
            if let Some(node) = node.upgrade() {
                node.say(from, &Message::Least { number, answer }, node.as_of(now));
            }
        });
        self.least_here(from, ask, now, reply);
    }

    /// What the shards of this node say to a leader, which may be this node as well.
    pub(crate) fn least_here(&self, by: BrokerId, ask: &LeastAsk, now: Now, reply: Reply<Least>) {
        let image = self.image.load_full();
        let Some(topic) = image.topics.get(&ask.key.topic) else {
            // It hasn't heard of it yet, or it is gone.
            return reply.send(Err(ErrorCode::UNKNOWN_TOPIC_ID));
        };
        let part = gather(ask.shards.len(), reply);
        for (index, epoch) in &ask.shards {
            let shard = self.shard::<GroupShard>(*index);
            match shard.filter(|shard| is_fresh(shard, *epoch, now)) {
                Some(shard) => self.least_of_shard(&shard, &topic.name, by, ask, now, part()),
                None => part().send(Err(ErrorCode::NOT_COORDINATOR)),
            }
        }
    }

    fn least_of_shard(
        &self,
        shard: &Arc<Shard<GroupShard>>,
        name: &str,
        by: BrokerId,
        ask: &LeastAsk,
        now: Now,
        reply: Reply<Least>,
    ) {
        let (id, index) = (ask.key.topic, ask.key.partition.0);
        self.shard_look(shard, now, reply, |state| {
            let least = state.ready()?.least_counted(name, id, index)?;
            let to = ask.drops.filter(|to| least.is_none_or(|l| l >= *to));
            state.askers.note(by, ask, to, now.mono);
            let partition = shard.partition.state.lock();
            let end = partition.log.as_ref().map(Log::log_end_offset);
            Ok((Ok(least), end.ok_or(ErrorCode::NOT_COORDINATOR)?))
        });
    }

    /// Whether a commit of a command has to wait: a leader may be about to drop what the group would begin with.
    pub(crate) fn begins_early<C: Coordinator>(
        &self,
        shard: &Shard<C>,
        state: &mut ShardState<C>,
        command: &C::Command,
        now: Now,
    ) -> bool {
        let nobody = !self.has_bounded_topics() && state.askers.is_empty();
        if self.settings.quorum == Quorum::Own || nobody {
            return false;
        }
        let Ok(machine) = state.ready() else {
            return false;
        };
        let commits = machine.commits_of(command, &self.image.load());
        if commits.is_empty() {
            return false;
        }
        let alone = self.looks_alone(shard, state, now);
        commits.iter().any(|commit| {
            let is_bounded = || {
                let topic = self.tables.topic(commit.key.topic);
                topic.is_some_and(|topic| topic.info.is_bounded())
            };
            state.askers.forbids(commit.key, commit.offset, now.mono)
                || (!alone && commit.is_lower && is_bounded())
        })
    }

    /// [`Askers::is_alone`].
    pub(crate) fn looks_alone<C: Coordinator>(
        &self,
        shard: &Shard<C>,
        state: &mut ShardState<C>,
        now: Now,
    ) -> bool {
        let partition = shard.partition.state.lock();
        let (epoch, has_quorum) = (partition.epoch(), partition.leader.has_quorum());
        state.askers.is_alone(epoch, has_quorum, now.mono)
    }

    /// Groups have committed: the leader of a partition that waits for that is told, if it is another node and has asked. Only so that it need
    /// not wait until it asks again.
    pub(crate) fn tell_of_room<C: Coordinator>(&self, shard: &Shard<C>, key: LogKey, now: Now) {
        let by = shard.state.lock().askers.take(key, now.mono);
        if let Some(by) = by.filter(|by| *by != self.settings.broker) {
            self.send_peer(by, &Message::Room { key });
        }
    }

    /// The same of all that have asked.
    pub(crate) fn tell_all_of_room<C: Coordinator>(&self, shard: &Shard<C>, now: Now) {
        let keys: Vec<LogKey> = shard.state.lock().askers.asked.keys().copied().collect();
        for key in keys {
            self.tell_of_room(shard, key, now);
        }
    }
}

/// What a command commits in a partition.
pub(crate) struct Commit {
    pub(crate) key: LogKey,
    pub(crate) offset: Offset,
    /// Than all that counts of the group there.
    pub(crate) is_lower: bool,
}

/// Whether a shard is led here in that leadership, and nobody else can have had anything acknowledged for a while.
fn is_fresh(shard: &Shard<GroupShard>, epoch: LeaderEpoch, now: Now) -> bool {
    let state = shard.partition.state.lock();
    let leader = &state.leader;
    let fresh = leader.is_followed(FRESH, now.mono) || leader.is_followed_in_sync(FRESH, now.mono);
    fresh && state.leads() && state.epoch() == epoch
}

/// Answers of several, put together: the least of them, or what one has failed with, once all are there. Gives what each is to answer to.
pub(crate) fn gather(parts: usize, reply: Reply<Least>) -> impl Fn() -> Reply<Least> {
    let mut reply = Some(reply);
    if parts == 0
        && let Some(reply) = reply.take()
    {
        reply.send(Ok(None));
    }
    let all = Arc::new(Mutex::new((parts, Ok(None), reply)));
    move || {
        let all = all.clone();
        Reply::new(move |answer: Least| {
            let (reply, whole) = {
                let (left, whole, reply) = &mut *all.lock();
                *left = left.saturating_sub(1);
                *whole = match (*whole, answer) {
                    (Ok(one), Ok(other)) => Ok(one.into_iter().chain(other).min()),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
                (reply.take_if(|_| *left == 0), *whole)
            };
            if let Some(reply) = reply {
                reply.send(whole);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use riverlog_wire::{PartitionIndex, TopicId};

    use super::*;

    const KEY: LogKey = LogKey {
        topic: TopicId([1; 16]),
        partition: PartitionIndex(0),
    };

    fn ask(start: i64) -> LeastAsk {
        LeastAsk {
            key: KEY,
            start: Offset(start),
            drops: None,
            shards: Vec::new(),
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_promised_holds_until_it_is_over_or_the_records_are_gone() {
        let mut askers = Askers::default();
        askers.note(BrokerId(1), &ask(0), Some(Offset(4)), at(10));
        assert!(askers.forbids(KEY, Offset(3), at(14)));
        assert!(!askers.forbids(KEY, Offset(4), at(14)));
        assert!(!askers.forbids(KEY, Offset(3), at(15)));
        // Another question takes nothing back, and less was promised before than now.
        askers.note(BrokerId(2), &ask(0), None, at(11));
        assert!(askers.forbids(KEY, Offset(3), at(14)));
        askers.note(BrokerId(2), &ask(0), Some(Offset(2)), at(12));
        assert!(askers.forbids(KEY, Offset(3), at(16)));
        askers.note(BrokerId(1), &ask(4), None, at(13));
        assert!(!askers.forbids(KEY, Offset(3), at(13)));
    }

    #[test]
    fn a_leadership_is_alone_a_while_after_it_could_first_acknowledge() {
        let mut askers = Askers::default();
        let (one, two) = (LeaderEpoch(1), LeaderEpoch(2));
        assert!(!askers.is_alone(one, false, at(10)));
        assert!(!askers.is_alone(one, true, at(20)));
        assert!(!askers.is_alone(one, true, at(24)));
        assert!(askers.is_alone(one, true, at(25)));
        assert!(!askers.is_alone(two, true, at(26)));
        assert!(askers.is_alone(two, true, at(31)));
    }

    #[test]
    fn who_has_asked_is_told_once_and_not_for_ever() {
        let mut askers = Askers::default();
        askers.note(BrokerId(3), &ask(0), None, at(10));
        assert_eq!(askers.take(KEY, at(11)), Some(BrokerId(3)));
        assert_eq!(askers.take(KEY, at(11)), None);
        askers.note(BrokerId(3), &ask(0), None, at(12));
        assert_eq!(askers.take(KEY, at(17)), None);
    }

    #[test]
    fn answers_are_put_together_once_all_are_there() {
        let told = Arc::new(Mutex::new(None));
        let gather = |parts| {
            *told.lock() = None;
            let told = told.clone();
            gather(parts, Reply::new(move |answer| *told.lock() = Some(answer)))
        };
        let _none_to_answer = gather(0);
        assert_eq!(*told.lock(), Some(Ok(None)));
        let part = gather(3);
        part().send(Ok(Some(Offset(5))));
        part().send(Ok(None));
        assert_eq!(*told.lock(), None);
        part().send(Ok(Some(Offset(3))));
        assert_eq!(*told.lock(), Some(Ok(Some(Offset(3)))));
        let part = gather(2);
        part().send(Err(ErrorCode::NOT_COORDINATOR));
        part().send(Ok(Some(Offset(3))));
        assert_eq!(*told.lock(), Some(Err(ErrorCode::NOT_COORDINATOR)));
    }
}
