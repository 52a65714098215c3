//! What members have in common of all groups to which the broker assigns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::ErrorCode;

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

/// Members whose time is up: of them, and when.
pub(super) fn over<'a>(
    deadlines: impl IntoIterator<Item = (&'a Arc<str>, &'a Duration)>,
    now: Now,
) -> BTreeSet<Arc<str>> {
    let over = deadlines.into_iter().filter(|(_, at)| **at <= now.mono);
    over.map(|(id, _)| id.clone()).collect()
}

/// INVALID_REQUEST in these words, where something is wrong with a heartbeat.
pub(super) fn invalid(wrong: bool, words: &'static str) -> Result<(), (ErrorCode, &'static str)> {
    match wrong {
        true => Err((ErrorCode::INVALID_REQUEST, words)),
        false => Ok(()),
    }
}

/// Of any heartbeat: who says it, of which group, and where it is.
pub(super) fn check_names(
    group: &str,
    member: &str,
    instance: Option<&str>,
    rack: Option<&str>,
) -> Result<(), (ErrorCode, &'static str)> {
    invalid(
        group.is_empty(),
        "the group id is empty; give the group a name",
    )?;
    invalid(
        member.is_empty(),
        "the member id is empty; make a random one and keep it",
    )?;
    invalid(
        instance == Some(""),
        "the instance id is empty; leave it out or give it a name",
    )?;
    invalid(
        rack == Some(""),
        "the rack is empty; leave it out or give it a name",
    )
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
