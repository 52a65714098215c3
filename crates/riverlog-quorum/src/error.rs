//! What can stand in the way.

use std::io;
use std::sync::Arc;

use crate::raft::DiskId;

/// Why a quorum can't be opened, or ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuorumError {
    /// The disk.
    #[error("{path} can't be used: {source}; this voter stops, and the others go on without it")]
    Disk {
        /// Which file.
        path: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Bytes that were synced have changed. A voter that went on would forget what it has promised.
    #[error(
        "{path} is damaged: {reason}; move the data folder away and start with an empty one: the cluster takes the node in again"
    )]
    Damaged {
        /// Which file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A later release wrote it.
    #[error(
        "{path} is of version {found}, and this release knows {known}; start the release that wrote it"
    )]
    Newer {
        /// Which file.
        path: String,
        /// Its version.
        found: u32,
        /// What is known here.
        known: u32,
    },
    /// Another process has it open.
    #[error("another process uses this quorum folder; stop it first")]
    InUse,
    /// The library gave up: a broken disk, or a broken promise.
    #[error("the metadata quorum of this node has stopped: {0}")]
    Stopped(String),
    /// What was asked needs the leader.
    #[error("this node doesn't lead the quorum; ask the leader")]
    NotLeader,
    /// As [`QuorumError::NotLeader`], and the leader is known.
    #[error("another node leads the quorum, at {0}; ask that one")]
    LedAt(String),
    /// A change of members that can't be made.
    #[error("the members can't be changed so: {0}")]
    Change(String),
    /// A node of the same number is a member with another disk, and was heard of a moment ago.
    #[error(
        "another node of the same number is part of the cluster, and is up; give each node its own"
    )]
    NumberTaken,
    /// Nobody answered in time; it may have been done.
    #[error("the quorum didn't agree in time; look at its status before you try again")]
    TimedOut,
    /// A member that isn't known.
    #[error("no member has the disk {0}")]
    NoMember(DiskId),
}

impl QuorumError {
    pub(crate) fn disk(path: &str) -> impl FnOnce(io::Error) -> QuorumError {
        let path = path.to_owned();
        move |source| QuorumError::Disk {
            path,
            source: Arc::new(source),
        }
    }

    pub(crate) fn damaged(path: &str, reason: impl ToString) -> QuorumError {
        QuorumError::Damaged {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}
