//! The Raft library's types, as they are used here.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_std::LeaderId;
use openraft::rt::deterministic_rng::DeterministicRng;
use openraft::vote::leader_id_std::CommittedLeaderId;
use riverlog_wire::BrokerId;

/// Tokio with a source of randomness that has a seed: the library draws from nowhere else.
pub(crate) type Rt = DeterministicRng<openraft::TokioRuntime>;

/// Which voter it is: drawn once for a disk, so that a node that comes back with an empty one isn't taken for its former self, whose
/// vote and log are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u64);

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What the members know of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `node.id` of the node that the disk belongs to.
    pub broker: BrokerId,
    /// Where other nodes reach it: `host:port`.
    pub address: String,
}

/// What an entry holds: the records of one decision, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records(pub(crate) Vec<Bytes>);

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records", self.0.len())
    }
}

openraft::declare_raft_types!(
    /// Which types the library works with.
    pub(crate) Types:
        D = Records,
        R = (),
        NodeId = DiskId,
        Node = Member,
        Term = u64,
        LeaderId = LeaderId<u64, DiskId>,
        AsyncRuntime = Rt,
);

pub(crate) type Term = CommittedLeaderId<u64>;
pub(crate) type LogId = openraft::LogId<Term>;
pub(crate) type Vote = openraft::Vote<LeaderId<u64, DiskId>>;
pub(crate) type Entry = openraft::type_config::alias::EntryOf<Types>;
pub(crate) type Payload = openraft::type_config::alias::PayloadOf<Types>;
pub(crate) type Membership = openraft::Membership<DiskId, Member>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<Types>;
pub(crate) type Snapshot = openraft::type_config::alias::SnapshotOf<Types, crate::store::State>;
pub(crate) type AppendRequest = openraft::raft::AppendEntriesRequest<Types>;
pub(crate) type AppendResponse = openraft::raft::AppendEntriesResponse<Types>;
pub(crate) type VoteRequest = openraft::raft::VoteRequest<Types>;
pub(crate) type VoteResponse = openraft::raft::VoteResponse<Types>;

pub(crate) fn vote(term: u64, node: DiskId, committed: bool) -> Vote {
    Vote {
        leader_id: LeaderId {
            term,
            voted_for: node,
        },
        committed,
    }
}

/// Text as the library's errors of input and output want it.
pub(crate) fn io_error(why: impl fmt::Display) -> std::io::Error {
    std::io::Error::other(why.to_string())
}
