//! What members do alike, whichever protocol they speak.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_core::groups::{CommittedOffset, GroupCommand, TopicPartition};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

use super::commits::Commits;
use super::{Ask, Moment, any};
use crate::model::Violation;

/// When a member has its say.
#[derive(Debug, Default)]
pub(super) struct Say {
    away_until: Duration,
    /// When it had it last.
    pub(super) at: Duration,
}

impl Say {
    /// Whether it has it now: it says nothing while it stands still.
    pub(super) fn has(&mut self, moment: &mut Moment<'_>) -> bool {
        if moment.now < self.away_until && !moment.healing {
            moment.back_off = true;
            return false;
        }
        self.at = moment.now;
        true
    }

    pub(super) fn stand_still(&mut self, member: &str, moment: &mut Moment<'_>) -> Ask {
        self.away_until = moment.stands_still(member);
        Ask::Nothing
    }
}

/// What a member does that has nothing else to do.
pub(super) enum Turn<P> {
    /// It commits what it has read of something that it holds.
    Commit(P),
    /// It asks what its group has committed.
    Look,
    Heartbeat,
}

impl<P: Clone> Turn<P> {
    pub(super) fn draw(held: &BTreeSet<P>, moment: &mut Moment<'_>) -> Turn<P> {
        if moment.random.chance(1, 3)
            && let Some(at) = any(held, moment.random)
        {
            return Turn::Commit(at);
        }
        match moment.random.chance(1, 6) {
            true => Turn::Look,
            false => Turn::Heartbeat,
        }
    }
}

/// Who commits, in which epoch or generation, and as which version of OffsetCommit has it.
pub(super) struct Committer<'a> {
    pub(super) group: &'a str,
    pub(super) member: &'a str,
    pub(super) instance: Option<&'a str>,
    pub(super) generation: i32,
    pub(super) version: i16,
}

impl Committer<'_> {
    pub(super) fn commit(self, topic: &str, partition: i32, next: i64) -> Ask {
        let offset = CommittedOffset {
            offset: Offset(next),
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            commit_timestamp: -1,
            expire_timestamp: None,
        };
        Ask::Group(GroupCommand::Commit {
            group: self.group.to_owned(),
            generation: Generation(self.generation),
            member: self.member.to_owned(),
            instance: self.instance.map(str::to_owned),
            offsets: vec![(place(topic, partition), offset)],
            version: self.version,
        })
    }
}

/// What a group has committed of a topic.
pub(super) fn look(topic: &str, partitions: i32) -> Ask {
    Ask::Committed((0..partitions).map(|p| place(topic, p)).collect())
}

fn place(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition {
        topic: topic.to_owned(),
        id: TopicId::ZERO,
        partition,
    }
}

/// A commit of the newer protocols was answered.
pub(super) fn committed(
    sent: i64,
    errors: impl IntoIterator<Item = ErrorCode>,
    commits: &mut Commits,
    moment: &mut Moment<'_>,
) {
    match errors.into_iter().all(|error| error == ErrorCode::NONE) {
        true => commits.answered(sent, moment.now),
        false => moment.back_off = true,
    }
}

/// What was found of all that was asked for at `asked_at`.
pub(super) fn looked(
    found: Vec<(TopicPartition, Option<CommittedOffset>)>,
    asked_at: Duration,
    commits: &Commits,
    moment: &Moment<'_>,
) -> Result<(), Violation> {
    let by = asked_at.saturating_sub(moment.stale);
    found.into_iter().try_for_each(|(at, committed)| {
        let committed = committed.map(|c| c.offset.0);
        commits.read(&at.topic, at.partition, committed, by)
    })
}
