//! A thread of a Kafka Streams application (KIP-1071): has the broker make what the topology lacks, gives tasks back as it is told to,
//! commits what its tasks have read, stands still, leaves, leaves for a while and dies.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_core::groups::records::{StreamsTopology, Subtopology, TaskList, TopicInfo};
use riverlog_core::groups::{
    GroupAnswer, GroupCommand, OwnedTasks, StreamsHeartbeat, StreamsHeartbeatAnswer,
};
use riverlog_log::disk::Random;
use riverlog_wire::{ErrorCode, TopicId};

use super::tasks::Task;
use super::turn::{Committer, Say, Turn, committed, look, looked};
use super::{Ask, Known, Member, Moment, SESSION, Told, make};
use crate::model::Violation;

/// The group.
const GROUP: &str = "words";
/// What the application reads.
pub(crate) const SOURCE: &str = "lines";
/// Its id.
pub(crate) const ID: TopicId = TopicId(*b"of-streams-group");
/// Its partitions.
pub(crate) const PARTITIONS: i32 = 3;
/// Between the two parts of the application.
const REPARTITION: &str = "words-by-word-repartition";
/// The part that keeps state.
const COUNTS: &str = "1";
/// Both parts have a task for each partition.
const TASKS: usize = 2 * PARTITIONS as usize;

/// Longer than any session, so that who is silent is expired and not fenced for what it has not given back.
const REBALANCE: Duration = Duration::from_secs(60);
const LEAVES: i32 = -1;
const LEAVES_FOR_A_WHILE: i32 = -2;

/// How the application is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamsPlan {
    pub(crate) members: usize,
    /// Processes that the members are threads of.
    pub(crate) processes: usize,
    pub(crate) standbys: usize,
    /// Of the topics that are made.
    pub(crate) replication_factor: i16,
}

impl StreamsPlan {
    pub(crate) fn draw(random: &mut Random, replication_factor: i16) -> StreamsPlan {
        let members = 2 + random.below(4) as usize;
        StreamsPlan {
            members,
            processes: 1 + random.below(members as u64) as usize,
            standbys: random.below(3) as usize,
            replication_factor,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Heartbeat,
    /// With an epoch that is over.
    Stale,
    Make,
    Commit(i64),
    Committed,
    Leave,
}

/// Tasks to run, and tasks to keep a copy of the state of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Has {
    active: BTreeSet<Task>,
    standby: BTreeSet<Task>,
    warmup: BTreeSet<Task>,
}

impl Has {
    fn copies(&self) -> BTreeSet<Task> {
        self.standby.union(&self.warmup).cloned().collect()
    }
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Streamer {
    number: usize,
    plan: StreamsPlan,
    /// The first member is a static one.
    instance: Option<String>,
    lives: u64,
    member: String,
    epoch: i32,
    has: Has,
    /// What it was told to have, and has not gone over to.
    assignment: Option<Has>,
    missing: Vec<TopicInfo>,
    report: bool,
    /// It is to join anew, as one who isn't sure what it may have.
    unsure: bool,
    say: Say,
    /// Nobody takes its place, and it says nothing.
    gone: bool,
    asked: Option<Asked>,
    progress: u64,
}

impl Streamer {
    pub(crate) fn new(number: usize, plan: StreamsPlan) -> Streamer {
        Streamer {
            number,
            plan,
            instance: (number == 0).then(|| "static".to_owned()),
            lives: 0,
            member: format!("w{number}"),
            epoch: 0,
            has: Has::default(),
            assignment: None,
            missing: Vec::new(),
            report: false,
            unsure: false,
            say: Say::default(),
            gone: false,
            asked: None,
            progress: 0,
        }
    }

    fn process(&self) -> usize {
        self.number % self.plan.processes
    }

    fn follow(&mut self, known: &mut Known) {
        if let Some(assignment) = self.assignment.take() {
            known
                .tasks
                .keeps(self.number, &assignment.active, &assignment.copies());
            self.has = assignment;
            self.report = true;
        }
    }

    /// Leaves, dies, or stands still, perhaps for longer than its session.
    fn go(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask {
        match moment.random.below(4) {
            0 => {
                moment.notes.push(format!("{} dies", self.member));
                self.begin_anew(known);
                Ask::Nothing
            }
            1 => self.say.stand_still(&self.member, moment),
            way => {
                let member_epoch = match way == 2 && self.instance.is_some() {
                    true => LEAVES_FOR_A_WHILE,
                    false => LEAVES,
                };
                let what = format!("{} leaves: {member_epoch}", self.member);
                moment.notes.push(what);
                known.tasks.given_up(self.number);
                self.has = Has::default();
                self.asked = Some(Asked::Leave);
                Ask::Group(GroupCommand::StreamsHeartbeat(Box::new(StreamsHeartbeat {
                    member_epoch,
                    ..self.command()
                })))
            }
        }
    }

    fn command(&self) -> StreamsHeartbeat {
        StreamsHeartbeat {
            group: GROUP.to_owned(),
            member: self.member.clone(),
            instance: self.instance.clone(),
            member_epoch: self.epoch,
            version: 1,
            ..StreamsHeartbeat::default()
        }
    }

    fn heartbeat(&mut self) -> Ask {
        let joining = self.epoch == 0;
        let report = std::mem::take(&mut self.report) || std::mem::take(&mut self.unsure);
        let owned = OwnedTasks {
            active: list(&self.has.active),
            standby: list(&self.has.standby),
            warmup: list(&self.has.warmup),
        };
        self.asked = Some(Asked::Heartbeat);
        let command = StreamsHeartbeat {
            rebalance_timeout: joining.then_some(REBALANCE),
            topology: joining.then(topology),
            process: joining.then(|| format!("process {}", self.process())),
            tags: joining.then(Vec::new),
            owned: (report || joining).then_some(owned),
            ..self.command()
        };
        Ask::Group(GroupCommand::StreamsHeartbeat(Box::new(command)))
    }

    /// What a task has read of its source.
    fn commit(&mut self, task: &Task, known: &mut Known) -> Ask {
        let topic = match task.0 == COUNTS {
            true => REPARTITION,
            false => SOURCE,
        };
        let next = known.task_commits.next(topic, task.1);
        self.asked = Some(Asked::Commit(next));
        let who = Committer {
            group: GROUP,
            member: &self.member,
            instance: self.instance.as_deref(),
            generation: self.epoch,
            version: 9,
        };
        who.commit(topic, task.1, next)
    }

    /// It has nothing any more, and joins again.
    fn begin(&mut self, known: &mut Known) {
        known.tasks.given_up(self.number);
        self.epoch = 0;
        self.has = Has::default();
        self.assignment = None;
        self.report = false;
        self.unsure = false;
    }

    /// Another process takes its place.
    fn begin_anew(&mut self, known: &mut Known) {
        self.begin(known);
        self.lives += 1;
        self.member = format!("w{}-{}", self.number, self.lives);
    }

    fn answered(
        &mut self,
        answer: StreamsHeartbeatAnswer,
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation> {
        match answer.error {
            ErrorCode::NONE => {}
            error if error.retriable() || error == ErrorCode::UNRELEASED_INSTANCE_ID => {
                self.unsure = true;
                moment.back_off = true;
                return Ok(());
            }
            error => {
                let said = answer.message.unwrap_or_default();
                let what = format!("{} is refused: {error}: {said}", self.member);
                moment.notes.push(what);
                moment.back_off = true;
                match error {
                    ErrorCode::FENCED_INSTANCE_ID => self.begin_anew(known),
                    _ => self.begin(known),
                }
                return Ok(());
            }
        }
        known.checked += 1;
        if answer.member_epoch < self.epoch {
            let what = format!("{}: {} to {}", self.member, self.epoch, answer.member_epoch);
            return Err(Violation::new("a member epoch never falls", what));
        }
        if self.epoch == 0 {
            known
                .tasks
                .joined(self.number, answer.member_epoch, moment.now);
        }
        self.epoch = answer.member_epoch;
        self.missing = answer.missing_topics;
        if let Some([active, standby, warmup]) = answer.tasks {
            let told = Has {
                active: set(active),
                standby: set(standby),
                warmup: set(warmup),
            };
            let what = format!("{} at {}: {told:?}", self.member, self.epoch);
            moment.notes.push(what);
            let (thread, copies) = ((self.number, self.process()), told.copies());
            known
                .tasks
                .given(thread, self.epoch, &told.active, &copies, moment.now)?;
            self.assignment = Some(told);
        }
        if moment.sure {
            let thread = (self.number, self.process());
            known.tasks.renewed(thread, self.say.at + SESSION);
        }
        let (active, copies) = known.tasks.count(COUNTS);
        let standbys = self.plan.standbys.min(known.tasks.processes().max(1) - 1);
        let whole = active == TASKS && copies >= standbys * PARTITIONS as usize;
        self.progress += u64::from(self.assignment.is_none() && whole);
        Ok(())
    }
}

impl Member for Streamer {
    fn group(&self) -> &'static str {
        GROUP
    }

    fn step(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask {
        if self.gone {
            known.tasks.given_up(self.number);
            moment.back_off = true;
            return Ask::Nothing;
        }
        if !self.say.has(moment) {
            return Ask::Nothing;
        }
        if self.epoch == 0 {
            return self.heartbeat();
        }
        // It may take its time to give back what it is told to.
        if moment.healing || moment.random.chance(2, 3) {
            self.follow(known);
        }
        if !moment.healing && moment.random.chance(1, 60) {
            return self.go(moment, known);
        }
        if !self.missing.is_empty() {
            self.asked = Some(Asked::Make);
            let missing = std::mem::take(&mut self.missing);
            return make(missing, moment.random, self.plan.replication_factor);
        }
        if self.epoch > 1 && moment.random.chance(1, 12) {
            self.asked = Some(Asked::Stale);
            return Ask::Group(GroupCommand::StreamsHeartbeat(Box::new(StreamsHeartbeat {
                member_epoch: self.epoch - 1,
                ..self.command()
            })));
        }
        match Turn::draw(&self.has.active, moment) {
            Turn::Commit(task) => self.commit(&task, known),
            Turn::Look => {
                self.asked = Some(Asked::Committed);
                look(SOURCE, PARTITIONS)
            }
            Turn::Heartbeat => self.heartbeat(),
        }
    }

    fn told(
        &mut self,
        told: Told,
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation> {
        if self.gone {
            return Ok(());
        }
        match (self.asked.take(), told) {
            (Some(Asked::Heartbeat), Told::Group(GroupAnswer::StreamsHeartbeat(answer))) => {
                self.answered(*answer, moment, known)?;
            }
            (Some(Asked::Heartbeat), _) => self.unsure = true,
            (Some(Asked::Stale), Told::Group(GroupAnswer::StreamsHeartbeat(answer))) => {
                if answer.error == ErrorCode::NONE {
                    let what = format!("{} before {}", self.member, self.epoch);
                    return Err(Violation::new("a stale member is refused", what));
                }
            }
            (Some(Asked::Commit(sent)), Told::Group(GroupAnswer::Partitions(error, each))) => {
                let errors = each.into_iter().chain([error]);
                committed(sent, errors, &mut known.task_commits, moment);
            }
            (Some(Asked::Committed), Told::Committed(Ok(found))) => {
                known.checked += 1;
                looked(found, self.say.at, &known.task_commits, moment)?;
            }
            // Whoever doesn't hear whether it was heard goes all the same.
            (Some(Asked::Leave), _) => self.begin_anew(known),
            (Some(Asked::Make), _) => {}
            _ => moment.back_off = true,
        }
        Ok(())
    }

    fn heal(&mut self) {
        self.gone = self.number == 1;
        self.progress = 0;
    }

    fn has_progressed(&self) -> bool {
        self.gone || self.progress >= 3
    }

    fn is_reconciling(&self) -> bool {
        self.assignment.is_some()
    }
}

fn topology() -> StreamsTopology {
    let topic = |name: &str| TopicInfo {
        name: name.to_owned(),
        ..TopicInfo::default()
    };
    StreamsTopology {
        epoch: 0,
        subtopologies: vec![
            Subtopology {
                id: "0".to_owned(),
                source_topics: vec![SOURCE.to_owned()],
                repartition_sinks: vec![REPARTITION.to_owned()],
                ..Subtopology::default()
            },
            Subtopology {
                id: COUNTS.to_owned(),
                repartition_sources: vec![topic(REPARTITION)],
                changelogs: vec![topic("words-counts-changelog")],
                ..Subtopology::default()
            },
        ],
        description: None,
    }
}

fn set(list: TaskList) -> BTreeSet<Task> {
    let each = list.into_iter();
    each.flat_map(|(id, partitions)| partitions.into_iter().map(move |p| (id.clone(), p)))
        .collect()
}

fn list(tasks: &BTreeSet<Task>) -> TaskList {
    let mut list: TaskList = Vec::new();
    for (id, partition) in tasks {
        match list.last_mut() {
            Some((last, partitions)) if last == id => partitions.push(*partition),
            _ => list.push((id.clone(), vec![*partition])),
        }
    }
    list
}
