//! Copies of partitions on several nodes: `docs/protocol/peer.md`, and ADR 0007 for the rules.
//!
//! | file | idea |
//! |---|---|
//! | `role` | leading and following, and the change from one to the other |
//! | `follow` | a follower's conversation with each leader: ask, append, cut, report |
//! | `serve` | a leader's answers, and asks that wait for something new |
//! | `isr` | in-sync sets that are asked of the controller |
//! | `throttle` | bytes a second that catching up may take |
//! | `trim` | deletions of records that wait until those in sync have followed |
//!
//! Two conversations for each pair of nodes carry all their partitions, one ask at a time: one for the copies that are in sync, whose leaders wait
//! for them, and one for those that catch up. The locks here are taken before a partition's,
//! never with one held.

mod follow;
mod isr;
mod role;
mod serve;
mod throttle;
mod trim;

use std::time::Duration;

use parking_lot::Mutex;
use riverlog_log::LogKey;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use bytes::Bytes;
use riverlog_core::replica::FollowerAnswer;

pub(crate) use serve::{PeerRead, PeerReadDone};

/// What the node keeps of replication.
#[derive(Default)]
pub(crate) struct Replication {
    following: Mutex<follow::Streams>,
    serving: Mutex<serve::Waiting>,
    isr: Mutex<isr::Changes>,
    rates: throttle::Rates,
    trims: Mutex<trim::Trims>,
}

/// Which conversation of a follower with its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Of copies that are in sync.
    Tail,
    /// Of those that aren't, or not yet.
    CatchUp,
}

/// A moment of the monotonic clock of a leader, in the life that it is registered for. Its answers carry it, and what a follower says next carries it
/// back: that was said after that moment, however long it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// The leader's: it tells its lives apart.
    pub(crate) broker_epoch: i64,
    pub(crate) at: Duration,
}

impl Stamp {
    /// There was no answer yet. What bears no stamp at all comes from a release that knows of none.
    pub(crate) const NONE: Stamp = Stamp {
        broker_epoch: -1,
        at: Duration::ZERO,
    };
}

/// What a follower says of one of its copies, and asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerAsk {
    pub(crate) key: LogKey,
    /// The leadership that is meant.
    pub(crate) epoch: LeaderEpoch,
    /// The copy's log end.
    pub(crate) from: Offset,
    /// The epoch of its last batch; −1 for none.
    pub(crate) last_epoch: LeaderEpoch,
    /// Everything before it is in the follower's operating system.
    pub(crate) written: Offset,
    /// Everything before it survives the follower's power cut.
    pub(crate) synced: Offset,
    /// The copy's log start; −1: it wasn't said.
    pub(crate) log_start: Offset,
}

/// What a leader answers for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerPart {
    pub(crate) key: LogKey,
    pub(crate) answer: Result<FollowerAnswer, ErrorCode>,
    /// Whole batches as stored; empty unless the copy matches.
    pub(crate) records: Bytes,
}
