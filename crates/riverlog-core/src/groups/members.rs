//! What members have in common of all groups to which the broker assigns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Now;

/// The shortest time after which a member is asked to come again.
const SOONEST: Duration = Duration::from_millis(100);
/// What heartbeats of one group that come sooner than usual may come to, by the member: a thousand a second.
const EACH: Duration = Duration::from_millis(1);

/// Where a member is on its way to its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Has what it shall have, as far as the target of its epoch goes.
    #[default]
    Stable,
    /// Has to give something back.
    Revoking,
    /// Waits for what others have to give back.
    Waiting,
}

impl State {
    /// As records of the consumer protocol have it; those of streams groups count from 1.
    pub(super) fn from_stored(state: i8) -> State {
        match state {
            1 => State::Revoking,
            2 => State::Waiting,
            _ => State::Stable,
        }
    }

    pub(super) fn stored(self) -> i8 {
        match self {
            State::Stable => 0,
            State::Revoking => 1,
            State::Waiting => 2,
        }
    }
}

/// The member of that id, made when its first record is read: compaction may keep them in any order.
pub(super) fn known<M: Default>(members: &mut BTreeMap<Arc<str>, Arc<M>>, id: &str) -> Arc<str> {
    match members.get_key_value(id) {
        Some((id, _)) => id.clone(),
        None => {
            let id: Arc<str> = id.into();
            members.insert(id.clone(), Arc::default());
            id
        }
    }
}

/// When a member is to come again while its group is on its way to another assignment, `since` a moment of the monotonic clock: sooner than
/// it `usually` would, so that nobody waits for a whole interval to be told what to give back, nor another one to be given it.
///
/// Half as long again as it has taken so far: a member comes a handful of times more than usual, however long others take.
pub(super) fn soon(since: Duration, usually: Duration, members: usize, now: Now) -> Duration {
    let age = now.mono.saturating_sub(since);
    let members = u32::try_from(members).unwrap_or(u32::MAX);
    let soonest = SOONEST.max(EACH.saturating_mul(members));
    (age / 2).max(soonest).min(usually)
}
