//! Who is a member: observers that may become voters, and disks that are replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::errors::{ClientWriteError, RaftError};
use openraft::raft::Precondition;
use openraft::type_config::TypeConfigExt;
use openraft::{AsyncRuntime, ChangeMembers, Instant, RaftMetrics};

use crate::error::QuorumError;
use crate::quorum::Raft;
use crate::raft::{DiskId, Member, Rt, Types};

/// Entries that an observer may lack when it becomes a voter: fewer than a leader sends in one message.
const CAUGHT_UP: u64 = 100;
/// How long a disk hasn't answered until another disk of its node takes its place.
const GONE: Duration = Duration::from_secs(3);
/// How long the members may take to agree.
const PATIENCE: Duration = Duration::from_secs(10);

/// A change of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A new member that doesn't vote, or one that is there and has another address now.
    Observe(DiskId, Member),
    /// An observer votes.
    Promote(DiskId),
    /// A member leaves.
    Remove(DiskId),
    /// A node has another disk than before: the new one votes in place of the old one.
    Replace { new: DiskId, old: DiskId },
}

/// What the leader should change by itself.
///
/// An observer that has caught up becomes a voter when its address is one of `voters`, or when another disk of its node votes,
/// which hasn't answered for a while: the node came back with an empty disk. A node that votes with one disk and answers
/// keeps it, whoever else comes with its number.
pub(crate) fn due(
    metrics: &RaftMetrics<Types>,
    me: DiskId,
    voters: &BTreeSet<String>,
) -> Option<Wanted> {
    let membership = metrics.membership_config.membership();
    let config = membership.get_joint_config();
    let [voting] = config.as_slice() else {
        return None;
    };
    let caught_up = |disk: &DiskId| has_caught_up(metrics, disk);
    let silent = |disk: &DiskId| is_silent(metrics, disk);
    let nodes: BTreeMap<DiskId, &Member> = membership.nodes().map(|(d, m)| (*d, m)).collect();
    for (disk, member) in &nodes {
        if voting.contains(disk) {
            continue;
        }
        let same = |other: &DiskId| {
            other != disk && nodes.get(other).is_some_and(|m| m.broker == member.broker)
        };
        // A disk that a node has had before.
        let former = nodes
            .keys()
            .find(|other| same(other) && !voting.contains(other));
        if let Some(former) = former
            && silent(former)
            && !silent(disk)
        {
            return Some(Wanted::Remove(*former));
        }
        if !caught_up(disk) || silent(disk) {
            continue;
        }
        match voting.iter().find(|other| same(other)) {
            Some(old) if *old != me && silent(old) => {
                return Some(Wanted::Replace {
                    new: *disk,
                    old: *old,
                });
            }
            Some(_) => {}
            None if voters.contains(&member.address) => return Some(Wanted::Promote(*disk)),
            None => {}
        }
    }
    None
}

/// Whether a member has nearly all entries. Only who leads knows.
fn has_caught_up(metrics: &RaftMetrics<Types>, disk: &DiskId) -> bool {
    let last = metrics.last_log_index.unwrap_or(0);
    let replication = metrics.replication.as_ref();
    let matched = replication.and_then(|r| r.get(disk).copied()).flatten();
    matched.is_some_and(|matched| matched.index + CAUGHT_UP > last)
}

fn is_silent(metrics: &RaftMetrics<Types>, disk: &DiskId) -> bool {
    let heard = metrics.heartbeat.as_ref();
    let heard = heard.and_then(|h| h.get(disk).copied()).flatten();
    heard.is_none_or(|at| Types::now().saturating_duration_since(at.into_inner()) > GONE)
}

/// Why a change would leave voters without whom nothing can be agreed on, not even the change that takes it back; with a remedy.
fn stands_against(metrics: &RaftMetrics<Types>, me: DiskId, wanted: &Wanted) -> Option<String> {
    let members = metrics.membership_config.membership();
    let node = |disk: &DiskId| match members.get_node(disk) {
        Some(member) => format!("node {}", member.broker),
        None => format!("disk {disk}"),
    };
    let mut voters: BTreeSet<DiskId> = members.get_joint_config().last()?.clone();
    match wanted {
        Wanted::Promote(disk) if is_silent(metrics, disk) => {
            let (node, gone) = (node(disk), GONE.as_secs());
            return Some(format!(
                "{node} hasn't answered for {gone} s, and the others would wait for it once it votes; start it first"
            ));
        }
        Wanted::Promote(disk) if !has_caught_up(metrics, disk) => {
            let node = node(disk);
            return Some(format!(
                "{node} hasn't caught up yet, and the others would wait for it once it votes; try again in a moment"
            ));
        }
        Wanted::Promote(disk) => voters.insert(*disk),
        Wanted::Remove(disk) if voters.contains(disk) => voters.remove(disk),
        _ => return None,
    };
    let is_there = |disk: &&DiskId| **disk == me || !is_silent(metrics, disk);
    let (there, away): (Vec<_>, Vec<_>) = voters.iter().partition(is_there);
    if there.len() > away.len() {
        return None;
    }
    let (away, it) = match away.as_slice() {
        [one] => (node(one), "it"),
        several => {
            let all: Vec<String> = several.iter().map(node).collect();
            (all.join(", "), "them")
        }
    };
    Some(format!(
        "{} of the {} voters that are left would be there, too few to agree on anything: {away} can't be heard; start {it} first",
        there.len(),
        voters.len()
    ))
}

/// Makes a change; returns once it is committed.
pub(crate) async fn change(raft: &Raft, me: DiskId, wanted: Wanted) -> Result<(), QuorumError> {
    let metrics = {
        let metrics = raft.metrics();
        openraft::async_runtime::watch::WatchReceiver::borrow_watched(&metrics).clone()
    };
    let members = metrics.membership_config.membership();
    let known = |disk: &DiskId| members.get_node(disk).is_some();
    match &wanted {
        Wanted::Remove(disk) if *disk == me => {
            return Err(QuorumError::Change(
                "a leader doesn't remove itself; let another lead first".to_owned(),
            ));
        }
        Wanted::Remove(disk) | Wanted::Promote(disk) if !known(disk) => {
            return Err(QuorumError::NoMember(*disk));
        }
        Wanted::Remove(_) | Wanted::Promote(_) if metrics.heartbeat.is_none() => {
            // Nobody else knows who is there.
            return Err(QuorumError::NotLeader);
        }
        _ => {}
    }
    if let Some(why) = stands_against(&metrics, me, &wanted) {
        return Err(QuorumError::Change(why));
    }
    let changes = match wanted {
        Wanted::Observe(disk, member) if members.get_node(&disk) == Some(&member) => {
            return Ok(());
        }
        Wanted::Observe(_, member) if member.address.is_empty() => {
            return Err(QuorumError::Change(format!(
                "node {} says no address at which the others could reach it; give it a listener for them",
                member.broker
            )));
        }
        Wanted::Observe(disk, member) => {
            // Two processes with one number would take turns; the one that is there stays.
            let double = members.nodes().any(|(other, known)| {
                *other != disk
                    && known.broker == member.broker
                    && (*other == me || !is_silent(&metrics, other))
            });
            if double {
                return Err(QuorumError::NumberTaken);
            }
            ChangeMembers::SetNodes(BTreeMap::from([(disk, member)]))
        }
        Wanted::Promote(disk) => ChangeMembers::AddVoterIds(BTreeSet::from([disk])),
        Wanted::Remove(disk) => {
            let disks = BTreeSet::from([disk]);
            let is_voter = members.voter_ids().any(|voter| voter == disk);
            match is_voter {
                true => ChangeMembers::RemoveVoters(disks),
                false => ChangeMembers::RemoveNodes(disks),
            }
        }
        Wanted::Replace { new, old } => ChangeMembers::Batch(vec![
            ChangeMembers::AddVoterIds(BTreeSet::from([new])),
            ChangeMembers::RemoveVoters(BTreeSet::from([old])),
        ]),
    };
    // What was judged are these members: two changes at once may be well each, and together too much.
    let judged = Precondition::LastMembershipLogId {
        last_membership_log_id: *metrics.membership_config.log_id(),
    };
    let changing = raft.change_membership_if(changes, false, [judged]);
    match Rt::timeout(PATIENCE, changing).await {
        Err(_) => Err(QuorumError::TimedOut),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
            Err(QuorumError::NotLeader)
        }
        Ok(Err(RaftError::APIError(ClientWriteError::PreconditionFailed(_)))) => {
            Err(QuorumError::Change(
                "they have just been changed by somebody else; look who they are, and try again"
                    .to_owned(),
            ))
        }
        Ok(Err(error)) => Err(QuorumError::Change(error.to_string())),
    }
}
