//! A member of a group of the consumer protocol (KIP-848): subscribes by names or by a pattern and changes its mind, gives back what
//! it is told to, leaves, leaves for a while, dies and comes back, stands still; and sends what its earlier epochs would have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverlog_core::groups::{
    ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand, TopicPartition,
};
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::{ErrorCode, TopicId};

use crate::model::Violation;
use crate::subscribers::{GROUP, PATTERN, Part, TOPICS, partitions};
use crate::wire;
use crate::world::{Core, Outcome};

/// Longer than any session, so that who is silent is expired and not fenced for what it has not given back.
const REBALANCE: Duration = Duration::from_secs(60);
const LEAVES: i32 = -1;
const LEAVES_FOR_A_WHILE: i32 = -2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Heartbeat,
    /// With an epoch that is over.
    Stale,
    /// As a member of an epoch that is over, it asks for what the group has committed.
    StaleOffsets,
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    First,
    Both,
    Pattern,
}

#[derive(Debug)]
pub(crate) struct Subscriber {
    number: usize,
    /// The first member is a static one (KIP-345).
    instance: Option<String>,
    lives: u64,
    member: String,
    pub(crate) waits: bool,
    progress: u64,
    epoch: i32,
    wanted: Wanted,
    held: BTreeSet<Part>,
    /// What it was told to hold, and has not gone over to.
    assignment: Option<BTreeSet<Part>>,
    /// What it holds is to be said with the next heartbeat.
    report: bool,
    /// The coordinator is to be told, and tells, everything again.
    unsure: bool,
    /// It does nothing until then.
    away_until: Duration,
    /// Never comes back, and says nothing.
    gone: bool,
    asked: Option<Asked>,
    asked_at: Duration,
}

impl Subscriber {
    pub(crate) fn new(number: usize) -> Subscriber {
        Subscriber {
            number,
            instance: (number == 0).then(|| "static".to_owned()),
            lives: 0,
            member: format!("s{number}"),
            waits: false,
            progress: 0,
            epoch: 0,
            wanted: match number % 3 {
                0 => Wanted::Both,
                1 => Wanted::Pattern,
                _ => Wanted::First,
            },
            held: BTreeSet::new(),
            assignment: None,
            report: false,
            unsure: false,
            away_until: Duration::ZERO,
            gone: false,
            asked: None,
            asked_at: Duration::ZERO,
        }
    }

    /// From now on there are no faults; but one member is gone for good, and the others must get what it held.
    pub(crate) fn heal(&mut self) {
        self.progress = 0;
        self.gone = self.number == 1;
        if self.wanted == Wanted::First {
            self.wanted = Wanted::Both;
            self.unsure = true;
        }
    }

    pub(crate) fn has_progressed(&self) -> bool {
        self.gone || self.progress >= 3
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        if self.gone {
            core.subscribers.given_up(self.number);
            core.back_off = true;
            return;
        }
        if core.clock < self.away_until && !core.healing {
            core.back_off = true;
            return;
        }
        self.asked_at = core.clock;
        if self.epoch == 0 {
            return self.heartbeat(core, me);
        }
        // It may take its time to give back what it is told to.
        if core.healing || core.random.chance(2, 3) {
            self.follow(core);
        }
        if !core.healing && core.random.chance(1, 60) {
            return self.go(core, me);
        }
        if !core.healing && core.random.chance(1, 60) {
            self.wanted = match core.random.below(3) {
                0 => Wanted::First,
                1 => Wanted::Both,
                _ => Wanted::Pattern,
            };
            self.unsure = true;
        }
        if self.epoch > 1 && core.random.chance(1, 12) {
            return self.stale(core, me);
        }
        self.heartbeat(core, me);
    }

    /// Goes over to what it was told to hold.
    fn follow(&mut self, core: &mut Core) {
        if let Some(assignment) = self.assignment.take() {
            core.subscribers.keeps(self.number, &assignment);
            self.held = assignment;
            self.report = true;
        }
    }

    /// Leaves, dies, or stands still, perhaps for longer than its session.
    fn go(&mut self, core: &mut Core, me: usize) {
        let session = core.swarm.settings.groups.consumer_session_timeout;
        let most = 2 * session.as_micros() as u64;
        let until = core.clock + Duration::from_micros(core.random.below(most));
        match core.random.below(4) {
            0 => {
                core.note(format_args!("{} dies", self.member));
                self.begin_anew(core);
                self.away_until = until;
            }
            1 => {
                core.note(format_args!("{} stands still", self.member));
                self.away_until = until;
                core.back_off = true;
            }
            way => {
                let for_a_while = way == 2 && self.instance.is_some();
                let member_epoch = match for_a_while {
                    true => LEAVES_FOR_A_WHILE,
                    false => LEAVES,
                };
                core.note(format_args!("{} leaves: {member_epoch}", self.member));
                let command = ConsumerHeartbeat {
                    member_epoch,
                    ..self.command()
                };
                core.subscribers.given_up(self.number);
                self.held.clear();
                self.send(core, me, Asked::Leave, command);
            }
        }
    }

    fn command(&self) -> ConsumerHeartbeat {
        ConsumerHeartbeat {
            group: GROUP.to_owned(),
            member: self.member.clone(),
            instance: self.instance.clone(),
            member_epoch: self.epoch,
            version: 1,
            ..ConsumerHeartbeat::default()
        }
    }

    fn heartbeat(&mut self, core: &mut Core, me: usize) {
        let joining = self.epoch == 0;
        let full = std::mem::take(&mut self.unsure) || joining;
        let report = std::mem::take(&mut self.report) || full;
        let topics = match self.wanted {
            Wanted::First => vec![TOPICS[0].0.to_owned()],
            Wanted::Both => TOPICS.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            Wanted::Pattern => Vec::new(),
        };
        let pattern = match self.wanted {
            Wanted::Pattern => PATTERN,
            Wanted::First | Wanted::Both => "",
        };
        let command = ConsumerHeartbeat {
            rebalance_timeout: full.then_some(REBALANCE),
            subscribed_topics: full.then_some(topics),
            subscribed_pattern: full.then(|| pattern.to_owned()),
            owned: report.then(|| self.owned()),
            ..self.command()
        };
        self.send(core, me, Asked::Heartbeat, command);
    }

    /// What it holds, as heartbeats say it.
    fn owned(&self) -> Vec<(TopicId, Vec<i32>)> {
        let mut owned: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in &self.held {
            let id = TOPICS.get(*topic).map_or(TopicId::ZERO, |t| t.2);
            owned.entry(id).or_default().push(*partition);
        }
        owned.into_iter().collect()
    }

    /// Sends what an earlier epoch of it would have. Without a word of what it holds, not even the epoch before is taken.
    fn stale(&mut self, core: &mut Core, me: usize) {
        if core.random.chance(1, 2) {
            let command = ConsumerHeartbeat {
                member_epoch: self.epoch - 1,
                ..self.command()
            };
            return self.send(core, me, Asked::Stale, command);
        }
        let place = TopicPartition {
            topic: TOPICS[0].0.to_owned(),
            id: TOPICS[0].2,
            partition: 0,
        };
        let member = (self.member.clone(), self.epoch - 1);
        self.waits = true;
        self.asked = Some(Asked::StaleOffsets);
        core.ask(me, Outcome::Committed, move |node, now, reply| {
            node.committed(GROUP, Some(vec![place]), Some(member), now, reply);
        });
    }

    fn send(&mut self, core: &mut Core, me: usize, asked: Asked, command: ConsumerHeartbeat) {
        self.waits = true;
        self.asked = Some(asked);
        let door = core.door.clone();
        core.ask(me, Outcome::Group, move |node, now, reply| match &door {
            Some(door) => wire::heartbeat(door, command, now, reply),
            None => node.group(GroupCommand::ConsumerHeartbeat(command), now, reply),
        });
    }

    /// It holds nothing any more, and joins again.
    fn begin(&mut self, core: &mut Core) {
        core.subscribers.given_up(self.number);
        self.epoch = 0;
        self.held.clear();
        self.assignment = None;
        self.report = false;
        self.unsure = false;
    }

    /// Another process takes its place.
    fn begin_anew(&mut self, core: &mut Core) {
        self.begin(core);
        self.lives += 1;
        self.member = format!("s{}-{}", self.number, self.lives);
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        match (self.asked.take(), outcome) {
            (Some(Asked::Heartbeat), Outcome::Group(GroupAnswer::ConsumerHeartbeat(answer))) => {
                self.answered(core, answer)?
            }
            (Some(Asked::Heartbeat), _) => self.unsure = true,
            (Some(Asked::Stale), Outcome::Group(GroupAnswer::ConsumerHeartbeat(answer))) => {
                self.refused_stale(answer.error, "a heartbeat")?;
            }
            (Some(Asked::StaleOffsets), Outcome::Committed(answer)) => {
                let error = answer.err().unwrap_or(ErrorCode::NONE);
                self.refused_stale(error, "a look at offsets")?;
            }
            // Whoever doesn't hear whether it was heard goes all the same.
            (Some(Asked::Leave), _) => self.begin_anew(core),
            _ => {}
        }
        Ok(())
    }

    fn refused_stale(&self, error: ErrorCode, what: &str) -> Result<(), Violation> {
        match error {
            ErrorCode::NONE => Err(Violation::new(
                "a stale member is refused",
                format!("{what} of {} before {}", self.member, self.epoch),
            )),
            ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::STALE_MEMBER_EPOCH => {
                sometimes(Mark::StaleEpochRefused);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn answered(
        &mut self,
        core: &mut Core,
        answer: ConsumerHeartbeatAnswer,
    ) -> Result<(), Violation> {
        match answer.error {
            ErrorCode::NONE => {}
            error if error.retriable() || error == ErrorCode::UNRELEASED_INSTANCE_ID => {
                self.unsure = true;
                core.back_off = true;
                return Ok(());
            }
            error => {
                core.note(format_args!("{} is refused: {error}", self.member));
                core.back_off = true;
                match error {
                    ErrorCode::FENCED_INSTANCE_ID => self.begin_anew(core),
                    _ => self.begin(core),
                }
                return Ok(());
            }
        }
        core.model.checked += 1;
        if answer.member_epoch < self.epoch {
            return Err(Violation::new(
                "a member epoch never falls",
                format!("{}: {} to {}", self.member, self.epoch, answer.member_epoch),
            ));
        }
        if self.epoch == 0 {
            core.subscribers
                .joined(self.number, answer.member_epoch, core.clock);
        }
        self.epoch = answer.member_epoch;
        if let Some(assignment) = answer.assignment {
            let parts = parts_of(&assignment)?;
            core.note(format_args!("{} at {}: {parts:?}", self.member, self.epoch));
            core.subscribers
                .given(self.number, self.epoch, &parts, core.clock)?;
            self.held.extend(parts.iter().copied());
            self.assignment = Some(parts);
        }
        let session = core.swarm.settings.groups.consumer_session_timeout;
        core.subscribers
            .renewed(self.number, self.asked_at + session);
        let whole = self.assignment.is_none() && core.subscribers.is_whole(partitions());
        self.progress += u64::from(whole);
        Ok(())
    }
}

fn parts_of(assignment: &[(TopicId, Vec<i32>)]) -> Result<BTreeSet<Part>, Violation> {
    let mut parts = BTreeSet::new();
    for (id, partitions) in assignment {
        let known = TOPICS.iter().position(|(.., topic)| topic == id);
        let Some(topic) = known else {
            let what = format!("a topic {id} that nobody subscribes to");
            return Err(Violation::new("members get what they subscribe to", what));
        };
        parts.extend(partitions.iter().map(|partition| (topic, *partition)));
    }
    Ok(parts)
}
