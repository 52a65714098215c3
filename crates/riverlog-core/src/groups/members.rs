//! What members have in common of all groups to which the broker assigns.

use std::collections::BTreeMap;
use std::sync::Arc;

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
