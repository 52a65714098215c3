//! Members of groups that the broker coordinates, apart from who plays them: one node, or a cluster whose coordinators fail over.
//!
//! | file | idea |
//! |---|---|
//! | `mixed` | a place in a group in which members of the consumer and the classic protocol follow each other |
//! | `consumer` | a member of the consumer protocol (KIP-848) |
//! | `classic` | a member of the classic protocol, whose leader deals out partitions |
//! | `streams` | a thread of a Kafka Streams application (KIP-1071) |
//! | `owners` | what must be true of partitions: one owner in an epoch, given back before they are given on |
//! | `tasks` | what must be true of tasks: the same of active ones, and a process has a task once |
//! | `turn` | what members do alike: commit, look at what is committed, stand still |
//! | `commits` | what must be true of committed offsets: what was answered is kept |
//!
//! A member asks for one thing at a time, and remembers what it was told.

mod classic;
mod commits;
mod consumer;
pub(crate) mod mixed;
pub(crate) mod owners;
pub(crate) mod streams;
mod tasks;
mod turn;

use std::fmt::Debug;
use std::time::Duration;

use riverlog_core::groups::records::TopicInfo;
use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_core::metadata::{AdminCommand, NewTopic};
use riverlog_log::disk::Random;
use riverlog_wire::{ErrorCode, TopicId};

use self::commits::Commits;
use self::owners::Owners;
use self::tasks::Tasks;
use crate::model::Violation;

/// How long a silent member stays in its group, of whatever kind.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

/// What a member is told about the moment, and what it says beside what it asks for.
pub(crate) struct Moment<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) now: Duration,
    /// There are no more faults, and nobody comes or goes.
    pub(crate) healing: bool,
    /// Who answered is known to coordinate the group: a session goes on that it says goes on.
    pub(crate) sure: bool,
    /// How old what a coordinator says may be that doesn't know yet that it is one no more.
    pub(crate) stale: Duration,
    /// It waits a while before it tries again.
    pub(crate) back_off: bool,
    pub(crate) notes: Vec<String>,
}

impl Moment<'_> {
    /// A member stands still, perhaps for longer than its session: until when.
    fn stands_still(&mut self, member: &str) -> Duration {
        self.notes.push(format!("{member} stands still"));
        let most = 2 * SESSION.as_micros() as u64;
        self.now + Duration::from_micros(self.random.below(most))
    }
}

/// What a member asks for.
#[derive(Debug)]
pub(crate) enum Ask {
    Nothing,
    Group(GroupCommand),
    /// What its group has committed.
    Committed(Vec<TopicPartition>),
    /// Topics that its group needs.
    Make(AdminCommand),
}

/// What it is told.
#[derive(Debug)]
pub(crate) enum Told {
    Group(GroupAnswer),
    Committed(Result<Vec<(TopicPartition, Option<CommittedOffset>)>, ErrorCode>),
    Made,
    /// What was asked may or may not have happened.
    Lost,
}

/// A member of a group.
pub(crate) trait Member: Debug {
    fn group(&self) -> &'static str;
    fn step(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask;
    fn told(
        &mut self,
        told: Told,
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation>;
    /// From now on there are no faults. One member of each group is gone for good.
    fn heal(&mut self);
    fn has_progressed(&self) -> bool;
    /// It is on its way to what it was told to have.
    fn is_reconciling(&self) -> bool;
}

/// What is known of the groups.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Partitions of the mixed group.
    pub(crate) owners: Owners<i32>,
    /// The last member of the newer protocol has left the mixed group for good.
    pub(crate) reverted: bool,
    pub(crate) commits: Commits,
    /// Tasks of the streams group.
    pub(crate) tasks: Tasks,
    pub(crate) task_commits: Commits,
    /// Answers that were checked.
    pub(crate) checked: u64,
}

/// What a run's groups are like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupsPlan {
    pub(crate) mixed: Option<mixed::MixedPlan>,
    pub(crate) streams: Option<streams::StreamsPlan>,
}

impl GroupsPlan {
    /// All members.
    pub(crate) fn members(&self) -> Vec<Box<dyn Member>> {
        let mut all: Vec<Box<dyn Member>> = Vec::new();
        if let Some(plan) = self.mixed {
            for number in 0..plan.members {
                all.push(Box::new(mixed::Mixed::new(number, plan)));
            }
        }
        if let Some(plan) = self.streams {
            for number in 0..plan.members {
                all.push(Box::new(streams::Streamer::new(number, plan)));
            }
        }
        all
    }

    /// What they read.
    pub(crate) fn topics(&self, replication_factor: i16) -> Vec<NewTopic> {
        let topic = |name: &str, partitions, id| NewTopic {
            name: name.to_owned(),
            partitions,
            replication_factor,
            id,
            ..NewTopic::default()
        };
        let mut all = Vec::new();
        if self.mixed.is_some() {
            all.push(topic(mixed::TOPIC, mixed::PARTITIONS, mixed::ID));
        }
        if self.streams.is_some() {
            all.push(topic(streams::SOURCE, streams::PARTITIONS, streams::ID));
        }
        all
    }

    /// Sessions end soon, so that there is something to see.
    pub(crate) fn set(&self, settings: &mut riverlog_core::groups::GroupSettings) {
        settings.min_session_timeout = SESSION;
        settings.consumer_session_timeout = SESSION;
        settings.streams_session_timeout = SESSION;
        settings.streams_standbys = self.streams.map_or(0, |plan| plan.standbys);
    }
}

/// Topics that a group asks for, as Kafka's protocol makes them.
fn make(missing: Vec<TopicInfo>, random: &mut Random, replication_factor: i16) -> Ask {
    let topics = missing.into_iter().map(|topic| NewTopic {
        name: topic.name,
        partitions: topic.partitions,
        replication_factor,
        id: TopicId(
            ((u128::from(random.next_u64()) << 64) | u128::from(random.next_u64())).to_be_bytes(),
        ),
        ..NewTopic::default()
    });
    Ask::Make(AdminCommand::CreateTopics {
        topics: topics.collect(),
        validate_only: false,
    })
}

/// One of a set, which isn't empty.
fn any<T: Clone>(of: &std::collections::BTreeSet<T>, random: &mut Random) -> Option<T> {
    let at = random.below(of.len() as u64) as usize;
    of.iter().nth(at).cloned()
}
