//! Copies of partitions on several nodes: `docs/protocol/peer.md`, and ADR 0007 for the rules.
//!
//! | file | idea |
//! |---|---|
//! | `role` | leading and following, and the change from one to the other |
//! | `follow` | a follower's conversation with each leader: ask, append, cut, report |
//! | `serve` | a leader's answers, and asks that wait for something new |
//! | `isr` | in-sync sets that are asked of the controller |
//! | `trim` | deletions of records that wait until those in sync have followed |
//!
//! One conversation for each pair of nodes carries all their partitions, one ask at a time. The locks here are taken before a partition's,
//! never with one held.

mod follow;
mod isr;
mod role;
mod serve;
mod trim;

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
    trims: Mutex<Vec<trim::Trim>>,
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
