//! A member of a group: heartbeats, reads, commits; checks that it is shown every record once, in order, from its position.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverlog_checker::What;
use riverlog_core::groups::{
    CommittedOffset, ConsumerHeartbeat, GroupAnswer, GroupCommand, TopicPartition,
};
use riverlog_core::metadata::TopicRef;
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

use super::{GROUP, records_of};
use crate::history::{nanos, place_of};
use crate::model::{Place, Violation};
use crate::wire;
use crate::world::{Core, Outcome, fetch_one};

#[derive(Debug)]
enum Asked {
    Nothing,
    Heartbeat,
    Positions(Vec<Place>),
    Fetch(Place),
    /// With the number that the model gave it.
    Commit(Place, Offset, u64),
    /// A commit with an epoch that is over, for a partition that was never held.
    Stale(Place),
    /// It says that it leaves.
    Leave,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    number: usize,
    /// A member that has left comes back as another one.
    lives: u64,
    name: String,
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    epoch: i32,
    asked: Asked,
    /// What the group said to hold; `None` once it has been followed.
    assignment: Option<Vec<(TopicId, Vec<i32>)>>,
    /// Where it is in the partitions that it holds.
    pub(crate) held: BTreeMap<Place, Offset>,
    /// What it was given since it joined.
    ever: BTreeSet<Place>,
    /// What it holds, to be reported with the next heartbeat.
    report: bool,
    /// A heartbeat was not answered, or not with success.
    unsure: bool,
    /// It does nothing until then.
    away_until: Duration,
    /// When, and in which life of the node, it asked what it waits for.
    asked_at: Duration,
    asked_in: u64,
    /// The history doesn't know yet what it holds.
    untold: bool,
}

impl Consumer {
    pub(crate) fn new(number: usize) -> Consumer {
        Consumer {
            number,
            lives: 0,
            name: format!("c{number}"),
            waits: false,
            progress: 0,
            epoch: 0,
            asked: Asked::Nothing,
            assignment: None,
            held: BTreeMap::new(),
            ever: BTreeSet::new(),
            report: false,
            unsure: false,
            away_until: Duration::ZERO,
            asked_at: Duration::ZERO,
            asked_in: 0,
            untold: false,
        }
    }

    /// What the history has to know of it first.
    pub(crate) fn open(&self, core: &mut Core) {
        let open = What::Open {
            idempotent: false,
            retries: false,
            group: Some(GROUP.to_owned()),
            read_committed: false,
        };
        core.history.note(core.clock, &self.name, open);
    }

    /// The member is no more; another one takes its place.
    fn begin_anew(&mut self, core: &mut Core) {
        core.history.note(core.clock, &self.name, What::Close);
        self.leave();
        self.unsure = false;
        self.lives += 1;
        self.name = format!("c{}-{}", self.number, self.lives);
        self.open(core);
    }

    /// Perhaps it leaves, dies, or stands still for longer than its session. Whether it goes on.
    fn stays(&mut self, core: &mut Core) -> bool {
        if core.random.below(1_000) >= core.swarm.churn {
            return true;
        }
        let session = core.swarm.settings.groups.consumer_session_timeout;
        let most = 2 * session.as_micros() as u64;
        let until = core.clock + Duration::from_micros(core.random.below(most));
        match core.random.below(3) {
            0 => return false,
            1 => {
                core.note(format_args!("{} dies", self.name));
                self.begin_anew(core);
                self.away_until = until;
            }
            // It doesn't know that it was away.
            _ => {
                core.note(format_args!("{} stands still", self.name));
                self.away_until = until;
            }
        }
        true
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        if core.clock < self.away_until && !core.healing {
            core.back_off = true;
            return;
        }
        self.asked = self.choose(core);
        (self.asked_at, self.asked_in) = (core.clock, core.life);
        self.tell_what_it_holds(core);
        match &self.asked {
            Asked::Nothing => return,
            Asked::Leave => {
                core.note(format_args!("{} leaves", self.name));
                let command = ConsumerHeartbeat {
                    group: GROUP.to_owned(),
                    member: self.name.clone(),
                    member_epoch: -1,
                    version: 1,
                    ..ConsumerHeartbeat::default()
                };
                self.beat(core, me, command);
            }
            Asked::Heartbeat => {
                let command = self.heartbeat(core);
                self.beat(core, me, command);
            }
            Asked::Positions(places) => {
                let asked = places
                    .iter()
                    .filter_map(|place| topic_partition(core, *place))
                    .collect();
                let door = core.door.clone();
                core.ask(
                    me,
                    Outcome::Committed,
                    move |node, now, reply| match &door {
                        Some(door) => wire::committed(door, GROUP, asked, now, reply),
                        None => node.committed(GROUP, Some(asked), None, now, reply),
                    },
                );
            }
            Asked::Fetch(place) => {
                let topic = TopicRef::Name(core.swarm.topics[place.0].name.clone());
                let from = self.held.get(place).copied().unwrap_or_default();
                let most = if core.healing { 100_000 } else { 5_000 };
                let bytes = 1 + core.random.below(most) as usize;
                // One of many partitions is looked at for a moment then: producers of bounded topics wait until all have committed.
                let longest = if core.healing { 50 } else { 500 };
                let wait = Duration::from_millis(core.random.below(longest));
                let command = fetch_one(topic, place.1, from, bytes, wait);
                let place = *place;
                core.ask_fetch(me, place, command);
            }
            Asked::Commit(..) | Asked::Stale(_) => {
                let (place, offset, epoch) = match &mut self.asked {
                    Asked::Commit(place, offset, number) => {
                        *number = core.model.commit_sent(GROUP, *place, *offset);
                        let to = offset.0;
                        core.tell_history(&self.name, *place, |place| What::Committing {
                            group: GROUP.to_owned(),
                            place,
                            offset: to,
                        });
                        (*place, *offset, self.epoch)
                    }
                    Asked::Stale(place) => (*place, Offset(1_000_000_000), self.epoch - 1),
                    _ => return,
                };
                let Some(target) = topic_partition(core, place) else {
                    return;
                };
                let commit = CommittedOffset {
                    offset,
                    leader_epoch: LeaderEpoch::NONE,
                    metadata: String::new(),
                    commit_timestamp: -1,
                    expire_timestamp: None,
                };
                let at = target.clone();
                let command = GroupCommand::Commit {
                    group: GROUP.to_owned(),
                    generation: Generation(epoch),
                    member: self.name.clone(),
                    instance: None,
                    offsets: vec![(target, commit)],
                    version: 10,
                };
                let door = core.door.clone();
                let who = (GROUP.to_owned(), self.name.clone(), epoch);
                core.ask(me, Outcome::Group, move |node, now, reply| match &door {
                    Some(door) => wire::commit(door, who, at, offset, now, reply),
                    None => node.group(command, now, reply),
                });
            }
        }
        self.waits = true;
    }

    fn choose(&mut self, core: &mut Core) -> Asked {
        if self.epoch == 0 || self.report {
            return Asked::Heartbeat;
        }
        if let Some(assignment) = self.assignment.take() {
            let wanted = places_of(core, &assignment);
            self.held.retain(|place, _| wanted.contains(place));
            self.untold = true;
            self.ever.extend(wanted.iter().copied());
            let new: Vec<Place> = wanted
                .into_iter()
                .filter(|place| !self.held.contains_key(place))
                .collect();
            self.report = true;
            if new.is_empty() {
                return Asked::Heartbeat;
            }
            return Asked::Positions(new);
        }
        let places: Vec<Place> = self.held.keys().copied().collect();
        if places.is_empty() || core.random.chance(1, 4) {
            return Asked::Heartbeat;
        }
        if !core.healing && self.epoch > 0 && !self.stays(core) {
            return Asked::Leave;
        }
        if self.epoch == 0 || core.clock < self.away_until {
            return Asked::Nothing;
        }
        let place = places[core.random.below(places.len() as u64) as usize];
        let position = self.held.get(&place).copied().unwrap_or_default();
        let never = core
            .places()
            .into_iter()
            .find(|place| !self.ever.contains(place));
        if let Some(never) = never.filter(|_| self.epoch > 1 && core.random.chance(1, 20)) {
            return Asked::Stale(never);
        }
        if core.random.chance(1, 4) {
            Asked::Commit(place, position, 0)
        } else {
            Asked::Fetch(place)
        }
    }

    fn heartbeat(&mut self, core: &Core) -> ConsumerHeartbeat {
        let joining = self.epoch == 0;
        // After an answer that didn't come the coordinator is told, and tells, everything again.
        let full = joining || std::mem::take(&mut self.unsure);
        let report = std::mem::take(&mut self.report) || full;
        let names = || core.swarm.topics.iter().map(|t| t.name.clone()).collect();
        ConsumerHeartbeat {
            group: GROUP.to_owned(),
            member: self.name.clone(),
            member_epoch: self.epoch,
            rebalance_timeout: full.then_some(Duration::from_secs(10)),
            subscribed_topics: full.then(names),
            owned: report.then(|| owned_of(core, &self.held)),
            version: 1,
            ..ConsumerHeartbeat::default()
        }
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        match (std::mem::replace(&mut self.asked, Asked::Nothing), outcome) {
            (Asked::Heartbeat, Outcome::Group(GroupAnswer::ConsumerHeartbeat(answer))) => {
                if answer.error != ErrorCode::NONE || answer.assignment.is_some() {
                    core.show(format_args!("{}: {answer:?}", self.name));
                }
                match answer.error {
                    ErrorCode::NONE => {
                        self.epoch = answer.member_epoch;
                        self.assignment = answer.assignment.or(self.assignment.take());
                        // There may be more members than partitions.
                        self.progress +=
                            u64::from(self.held.is_empty() && self.assignment.is_none());
                    }
                    error if error.retriable() => {
                        self.unsure = true;
                        core.back_off = true;
                    }
                    _ => self.leave(),
                }
            }
            (Asked::Leave, outcome) => {
                if matches!(outcome, Outcome::Group(_)) {
                    sometimes(Mark::MemberLeft);
                }
                // Whoever doesn't hear whether it was heard goes all the same.
                self.begin_anew(core);
            }
            (Asked::Positions(places), Outcome::Committed(Ok(found))) => {
                let since = nanos(self.asked_at);
                for (place, (_, committed)) in places.into_iter().zip(found) {
                    let committed = committed.map(|c| c.offset);
                    core.tell_history(&self.name, place, |place| What::Offset {
                        since,
                        group: GROUP.to_owned(),
                        place,
                        offset: committed.map(|o| o.0),
                    });
                    core.model.commit_read(GROUP, place, committed)?;
                    core.now_held(place, &self.name);
                    self.held.insert(place, committed.unwrap_or_default());
                }
                self.untold = true;
            }
            // Not known yet: asks again.
            (Asked::Positions(_), _) => {
                core.back_off = true;
                self.leave();
            }
            (Asked::Fetch(place), Outcome::Fetch(answer)) => {
                for part in answer.partitions {
                    self.fetched(core, place, part)?;
                }
            }
            (Asked::Stale(place), Outcome::Group(GroupAnswer::Partitions(error, each))) => {
                if error == ErrorCode::NONE && each.iter().all(|e| *e == ErrorCode::NONE) {
                    let what = format!(
                        "{} committed {place:?}, with an epoch before {}",
                        self.name, self.epoch
                    );
                    return Err(Violation::new("a stale member is refused", what));
                }
                sometimes(Mark::StaleCommitRefused);
            }
            (
                Asked::Commit(place, offset, number),
                Outcome::Group(GroupAnswer::Partitions(error, each)),
            ) => {
                let error = std::iter::once(error)
                    .chain(each)
                    .find(|e| *e != ErrorCode::NONE);
                let (stored, at) = (error.is_none(), offset.0);
                core.tell_history(&self.name, place, |place| What::Committed {
                    group: GROUP.to_owned(),
                    place,
                    offset: at,
                    stored,
                });
                core.model
                    .commit_answered(GROUP, place, number, error.is_none());
                match error {
                    None => {
                        core.note(format_args!("{} committed {place:?} {offset}", self.name));
                        self.progress += 1;
                    }
                    Some(error) if error.retriable() => core.back_off = true,
                    Some(_) => self.leave(),
                }
            }
            // Some clients tell everything again after each answer that didn't come. Others tell a coordinator that has taken
            // over no more than what has changed: it has to tell them what they hold.
            (Asked::Heartbeat, _) => {
                self.unsure = self.number.is_multiple_of(2) || core.life == self.asked_in;
            }
            (Asked::Commit(place, _, number), _) => {
                core.model.commit_answered(GROUP, place, number, false)
            }
            _ => {}
        }
        Ok(())
    }

    fn fetched(
        &mut self,
        core: &mut Core,
        place: Place,
        part: riverlog_node::FetchedPartition,
    ) -> Result<(), Violation> {
        let Some(position) = self.held.get(&place).copied() else {
            return Ok(());
        };
        match part.error {
            ErrorCode::NONE => {}
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                let start = core
                    .partition(place)
                    .zip(core.node())
                    .map(|(at, (node, _))| node.describe_partition(&at).log_start_offset);
                // It is negative of a partition that isn't open any more.
                if let Some(start) = start.filter(|start| *start >= Offset(0)) {
                    self.held.insert(place, start);
                    self.untold = true;
                }
                return Ok(());
            }
            _ => return Ok(()),
        }
        let high_watermark = part.high_watermark;
        let mut expected = position.max(part.log_start_offset);
        let records = records_of(part.records, position)?;
        let since = nanos(self.asked_at);
        core.tell_history(&self.name, place, |place| What::Poll {
            since,
            records: records
                .iter()
                .map(|(o, v)| (place.clone(), o.0, v.clone()))
                .collect(),
            txn: None,
        });
        for (offset, value) in records {
            if offset >= high_watermark {
                let what = format!("{place:?} offset {offset}, high watermark {high_watermark}");
                return Err(Violation::new(
                    "nothing above the high watermark is shown",
                    what,
                ));
            }
            if offset > expected {
                let what = format!("{place:?} from {expected} to {offset}");
                return Err(Violation::new("no record is left out", what));
            }
            core.model.read(place, offset, &value)?;
            expected = offset + 1;
        }
        self.held.insert(place, expected);
        if expected >= high_watermark {
            self.progress += 1;
        }
        Ok(())
    }

    fn beat(&self, core: &mut Core, me: usize, command: ConsumerHeartbeat) {
        let door = core.door.clone();
        core.ask(me, Outcome::Group, move |node, now, reply| match &door {
            Some(door) => wire::heartbeat(door, command, now, reply),
            None => node.group(GroupCommand::ConsumerHeartbeat(command), now, reply),
        });
    }

    fn tell_what_it_holds(&mut self, core: &mut Core) {
        if std::mem::take(&mut self.untold) && core.history.is_on() {
            let held = self.held.keys().filter(|p| core.history.keeps(**p));
            let places = held.map(|p| place_of(&core.swarm, *p)).collect();
            core.history
                .note(core.clock, &self.name, What::Assign { places });
        }
    }

    fn leave(&mut self) {
        self.untold |= !self.held.is_empty();
        self.epoch = 0;
        self.held.clear();
        self.ever.clear();
        self.assignment = None;
        self.report = false;
    }

    pub(crate) fn topic_lost(&mut self, topic: usize) {
        // Its end may lie before our position now; the position is asked anew.
        if self.held.keys().any(|place| place.0 == topic) {
            self.leave();
        }
    }
}

fn topic_partition(core: &Core, place: Place) -> Option<TopicPartition> {
    let name = &core.swarm.topics.get(place.0)?.name;
    let id = core.node()?.0.image().topic(name)?.id;
    Some(TopicPartition {
        topic: name.clone(),
        id,
        partition: place.1,
    })
}

fn places_of(core: &Core, assignment: &[(TopicId, Vec<i32>)]) -> Vec<Place> {
    let Some((node, _)) = core.node() else {
        return Vec::new();
    };
    let image = node.image();
    let number = |id: &TopicId| {
        let name = &image.topics.get(id)?.name;
        core.swarm.topics.iter().position(|t| t.name == *name)
    };
    assignment
        .iter()
        .filter_map(|(id, partitions)| Some((number(id)?, partitions)))
        .flat_map(|(topic, partitions)| partitions.iter().map(move |p| (topic, *p)))
        .collect()
}

fn owned_of(core: &Core, held: &BTreeMap<Place, Offset>) -> Vec<(TopicId, Vec<i32>)> {
    let mut owned: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for place in held.keys() {
        if let Some(partition) = topic_partition(core, *place) {
            owned.entry(partition.id).or_default().push(place.1);
        }
    }
    owned.into_iter().collect()
}
