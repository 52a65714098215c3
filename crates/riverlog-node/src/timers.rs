//! Everything that waits for a time, in one ordered queue.
//!
//! A partition or a shard has at most one entry, for the earliest of what it waits for, and leaves it there when that
//! is done early: an entry that comes due for nothing is cheaper than one taken out and put in for each append.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_wire::BrokerId;

use crate::fetch::Waiting;
use crate::partition::Partition;
use crate::replication::Lane;
use crate::share::{Burial, Held, ShareWaiting};

/// What comes due.
#[derive(Clone)]
pub(crate) enum Timer {
    /// Parked appends.
    Partition(Arc<Partition>),
    /// A parked fetch.
    Fetch(Arc<Waiting>),
    /// A parked fetch of a share group.
    ShareFetch(Arc<ShareWaiting>),
    /// Locks of a share group on a partition, or its load.
    Share(Arc<Held>),
    /// Old records of one partition of `__share_group_state`.
    ShareState(i32),
    /// Fetches that wait for the budget of cold reads.
    Cold,
    /// Sessions, rebalances and offsets of one partition of `__consumer_offsets`.
    Shard(i32),
    /// Time-outs, markers and expiry of one partition of `__transaction_state`.
    Transactions(i32),
    /// Retention, checkpoints, expiry.
    Upkeep,
    /// Memory of logs that are no longer used.
    Tails,
    /// A look at what the cleaner may do.
    Cleaner,
    /// The bound on the cleaner's bytes a second lets it go on.
    CleanOn,
    /// The session of a node ends, unless it is heard of.
    Silence,
    /// The controller is to hear that this node lives.
    Heartbeat,
    /// The same once, out of turn.
    BeatSoon,
    /// A leader is to be asked again.
    Ask(BrokerId, Lane),
    /// A follower has waited long enough for something new.
    PeerWait(BrokerId, Lane),
    /// A look at who lags.
    InSync,
    /// In-sync sets that were refused.
    InSyncAgain,
    /// Deletions that wait for followers.
    Trims,
    /// Commands that were forwarded to the controller.
    Forwards,
    /// What other nodes were asked about transactions.
    Asked,
    /// Questions about share groups.
    ShareAsks,
    /// Dead letters of a share group that couldn't be put into their topic yet.
    Burial(Arc<Burial>),
    /// Trying again what a full disk refused.
    Retry,
}

#[derive(Default)]
pub(crate) struct Timers {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    due: BTreeMap<(Duration, u64), Timer>,
    next: u64,
}

/// The place of an entry.
pub(crate) type TimerId = (Duration, u64);

impl Timers {
    /// Adds an entry; the second value says that it is now the first.
    pub(crate) fn add(&self, at: Duration, timer: Timer) -> (TimerId, bool) {
        let mut queue = self.queue.lock();
        let id = (at, queue.next);
        queue.next += 1;
        queue.due.insert(id, timer);
        let first = queue
            .due
            .first_key_value()
            .is_some_and(|(first, _)| *first == id);
        (id, first)
    }

    pub(crate) fn remove(&self, id: TimerId) {
        self.queue.lock().due.remove(&id);
    }

    /// Takes the first entry that is due.
    pub(crate) fn pop(&self, now: Duration) -> Option<Timer> {
        let mut queue = self.queue.lock();
        let first = queue.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// All parked fetches, by deadline.
    pub(crate) fn fetches(&self) -> Vec<Arc<Waiting>> {
        let queue = self.queue.lock();
        let fetches = queue.due.values().filter_map(|timer| match timer {
            Timer::Fetch(waiting) => Some(waiting.clone()),
            _ => None,
        });
        fetches.collect()
    }

    /// All parked fetches of share groups, by deadline.
    pub(crate) fn share_fetches(&self) -> Vec<Arc<ShareWaiting>> {
        let queue = self.queue.lock();
        let fetches = queue.due.values().filter_map(|timer| match timer {
            Timer::ShareFetch(waiting) => Some(waiting.clone()),
            _ => None,
        });
        fetches.collect()
    }

    pub(crate) fn next(&self) -> Option<Duration> {
        let queue = self.queue.lock();
        queue.due.first_key_value().map(|((at, _), _)| *at)
    }
}
