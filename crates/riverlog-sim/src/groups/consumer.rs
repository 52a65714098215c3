//! A member of the consumer protocol (KIP-848): gives back what it is told to, commits what it holds, stands still, leaves and dies.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_core::groups::{
    ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand,
};
use riverlog_wire::{ErrorCode, TopicId};

use super::mixed::{GROUP, ID, PARTITIONS, TOPIC};
use super::turn::{Committer, Say, Turn, committed, look, looked};
use super::{Ask, Known, Moment, SESSION, Told};
use crate::model::Violation;

/// Longer than any session, so that who is silent is expired and not fenced for what it has not given back.
const REBALANCE: Duration = Duration::from_secs(60);
const LEAVES: i32 = -1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Heartbeat,
    Commit(i64),
    Committed,
    Leave,
}

#[derive(Debug)]
pub(super) struct Consumer {
    number: usize,
    member: String,
    epoch: i32,
    held: BTreeSet<i32>,
    /// What it was told to hold, and has not gone over to.
    assignment: Option<BTreeSet<i32>>,
    /// What it holds is to be said with the next heartbeat.
    report: bool,
    /// The coordinator is to be told, and tells, everything again.
    unsure: bool,
    say: Say,
    asked: Option<Asked>,
    pub(super) progress: u64,
    /// Another process takes its place.
    pub(super) is_over: bool,
}

impl Consumer {
    pub(super) fn new(number: usize, life: u64) -> Consumer {
        Consumer {
            number,
            member: format!("c{number}-{life}"),
            epoch: 0,
            held: BTreeSet::new(),
            assignment: None,
            report: false,
            unsure: false,
            say: Say::default(),
            asked: None,
            progress: 0,
            is_over: false,
        }
    }

    pub(super) fn is_reconciling(&self) -> bool {
        self.assignment.is_some()
    }

    pub(super) fn step(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask {
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
        match Turn::draw(&self.held, moment) {
            Turn::Commit(partition) => self.commit(partition, known),
            Turn::Look => {
                self.asked = Some(Asked::Committed);
                look(TOPIC, PARTITIONS)
            }
            Turn::Heartbeat => self.heartbeat(),
        }
    }

    fn follow(&mut self, known: &mut Known) {
        if let Some(assignment) = self.assignment.take() {
            known.owners.keeps(self.number, &assignment);
            self.held = assignment;
            self.report = true;
        }
    }

    /// Leaves, dies, or stands still, perhaps for longer than its session.
    fn go(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask {
        match moment.random.below(3) {
            0 => {
                moment.notes.push(format!("{} dies", self.member));
                known.owners.given_up(self.number);
                self.is_over = true;
                Ask::Nothing
            }
            1 => self.say.stand_still(&self.member, moment),
            _ => self.leave(moment, known),
        }
    }

    pub(super) fn leave(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask {
        moment.notes.push(format!("{} leaves", self.member));
        known.owners.given_up(self.number);
        self.held.clear();
        self.asked = Some(Asked::Leave);
        Ask::Group(GroupCommand::ConsumerHeartbeat(ConsumerHeartbeat {
            member_epoch: LEAVES,
            ..self.command()
        }))
    }

    fn command(&self) -> ConsumerHeartbeat {
        ConsumerHeartbeat {
            group: GROUP.to_owned(),
            member: self.member.clone(),
            member_epoch: self.epoch,
            version: 1,
            ..ConsumerHeartbeat::default()
        }
    }

    fn heartbeat(&mut self) -> Ask {
        let full = std::mem::take(&mut self.unsure) || self.epoch == 0;
        let report = std::mem::take(&mut self.report) || full;
        let owned = match self.held.is_empty() {
            true => Vec::new(),
            false => vec![(ID, self.held.iter().copied().collect())],
        };
        self.asked = Some(Asked::Heartbeat);
        Ask::Group(GroupCommand::ConsumerHeartbeat(ConsumerHeartbeat {
            rebalance_timeout: full.then_some(REBALANCE),
            subscribed_topics: full.then(|| vec![TOPIC.to_owned()]),
            owned: report.then_some(owned),
            ..self.command()
        }))
    }

    fn commit(&mut self, partition: i32, known: &mut Known) -> Ask {
        let next = known.commits.next(TOPIC, partition);
        self.asked = Some(Asked::Commit(next));
        let who = Committer {
            group: GROUP,
            member: &self.member,
            instance: None,
            generation: self.epoch,
            version: 9,
        };
        who.commit(TOPIC, partition, next)
    }

    /// It holds nothing any more, and joins again.
    fn begin(&mut self, known: &mut Known) {
        known.owners.given_up(self.number);
        self.epoch = 0;
        self.held.clear();
        self.assignment = None;
        self.report = false;
        self.unsure = false;
    }

    pub(super) fn told(
        &mut self,
        told: Told,
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation> {
        match (self.asked.take(), told) {
            (Some(Asked::Heartbeat), Told::Group(GroupAnswer::ConsumerHeartbeat(answer))) => {
                self.answered(answer, moment, known)?;
            }
            (Some(Asked::Heartbeat), _) => self.unsure = true,
            (Some(Asked::Commit(sent)), Told::Group(GroupAnswer::Partitions(error, each))) => {
                let errors = each.into_iter().chain([error]);
                committed(sent, errors, &mut known.commits, moment);
            }
            (Some(Asked::Committed), Told::Committed(Ok(found))) => {
                known.checked += 1;
                looked(found, self.say.at, &known.commits, moment)?;
            }
            // Whoever doesn't hear whether it was heard goes all the same.
            (Some(Asked::Leave), _) => self.is_over = true,
            _ => moment.back_off = true,
        }
        Ok(())
    }

    fn answered(
        &mut self,
        answer: ConsumerHeartbeatAnswer,
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation> {
        match answer.error {
            ErrorCode::NONE => {}
            error if error.retriable() => {
                self.unsure = true;
                moment.back_off = true;
                return Ok(());
            }
            error => {
                let said = answer.message.unwrap_or_default();
                let what = format!("{} is refused: {error}: {said}", self.member);
                moment.notes.push(what);
                moment.back_off = true;
                self.begin(known);
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
                .owners
                .joined(self.number, answer.member_epoch, moment.now);
        }
        self.epoch = answer.member_epoch;
        if let Some(assignment) = answer.assignment {
            let parts = parts_of(&assignment)?;
            let what = format!("{} at {}: {parts:?}", self.member, self.epoch);
            moment.notes.push(what);
            known
                .owners
                .given(self.number, self.epoch, &parts, moment.now)?;
            self.held.extend(parts.iter().copied());
            self.assignment = Some(parts);
        }
        if moment.sure {
            known.owners.renewed(self.number, self.say.at + SESSION);
        }
        let whole = self.assignment.is_none() && known.owners.is_whole(PARTITIONS);
        self.progress += u64::from(whole);
        Ok(())
    }
}

fn parts_of(assignment: &[(TopicId, Vec<i32>)]) -> Result<BTreeSet<i32>, Violation> {
    let mut parts = BTreeSet::new();
    for (id, partitions) in assignment {
        if *id != ID {
            let what = format!("a topic {id} that nobody subscribes to");
            return Err(Violation::new("members get what they subscribe to", what));
        }
        parts.extend(partitions);
    }
    Ok(parts)
}
