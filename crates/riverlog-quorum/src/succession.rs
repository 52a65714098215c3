//! Another leader as soon as the one that led is known to be gone.
//!
//! A voter that has heard its leader lately neither asks for votes nor gives one. Where the host knows that the leader's process has ended
//! ([`crate::Quorum::gone`]), that wait is for nothing: the voter lets go of it, for this leader's term, and asks the others whether
//! they would vote. They would only if they have seen the same, or have waited long enough: one voter that is mistaken changes nothing. Voters
//! ask in turns, in the order of their disks, so that two of them seldom want to lead in the same term; whoever loses all the same
//! waits as it always did.

use std::time::Duration;

use openraft::RaftMetrics;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use riverlog_wire::BrokerId;

use crate::quorum::Raft;
use crate::raft::{DiskId, Types};

/// How long a voter's turn takes: asking, voting, and both on disks.
const TURN: Duration = Duration::from_millis(120);
/// After so many rounds it is left to the timers that there are for silence.
const ROUNDS: u32 = 8;

/// Which turn is this voter's, of how many; `None` where that node doesn't lead as far as is known, or this one has no vote.
fn place(metrics: &RaftMetrics<Types>, me: DiskId, gone: BrokerId) -> Option<(u32, u32)> {
    let leader = metrics.current_leader?;
    let membership = metrics.membership_config.membership();
    let known = membership.get_node(&leader)?;
    if known.broker != gone || leader == me {
        return None;
    }
    let mut left: Vec<DiskId> = membership.voter_ids().filter(|d| *d != leader).collect();
    left.sort_unstable();
    left.dedup();
    let mine = left.iter().position(|disk| *disk == me)?;
    Some((u32::try_from(mine).ok()?, u32::try_from(left.len()).ok()?))
}

/// A node is gone: where it led, another one is to.
pub(crate) async fn succeed(raft: &Raft, me: DiskId, gone: BrokerId) {
    let metrics = raft.metrics();
    let before = metrics.borrow_watched().clone();
    let Some((mine, all)) = place(&before, me, gone) else {
        return;
    };
    // What a leader that wants to be followed by another one would say: whoever isn't meant only stops to wait for it.
    let Some(leader) = before.current_leader else {
        return;
    };
    let let_go = TransferLeaderRequest::new(before.vote, leader, None);
    if raft.handle_transfer_leader(let_go).await.is_err() {
        return;
    }
    tokio::time::sleep(TURN * mine).await;
    for _ in 0..ROUNDS {
        // Somebody else has begun, or leads.
        if metrics.borrow_watched().vote != before.vote {
            return;
        }
        if raft.trigger().elect(true).await.is_err() {
            return;
        }
        tokio::time::sleep(TURN * all).await;
    }
}
