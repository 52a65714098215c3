//! A member of the classic protocol: joins, syncs, as its leader deals out partitions, commits, stands still, leaves and dies. It gives
//! up what it has before it joins (the eager way), or keeps what nobody else is to have (the cooperative way).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::groups::{GroupAnswer, GroupCommand, Join, JoinAnswer, Sync};
use riverlog_wire::consumer_protocol::{
    Subscription, decode_assignment, decode_subscription, encode_assignment, encode_subscription,
};
use riverlog_wire::{ErrorCode, Generation};

use super::mixed::{GROUP, PARTITIONS, TOPIC};
use super::turn::{Committer, Say, Turn, look, looked};
use super::{Ask, Known, Moment, SESSION, Told};
use crate::model::Violation;

/// Longer than a session: who is silent is expired, and not left out for being late.
const REBALANCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Join,
    Sync,
    Heartbeat,
    Commit(i64),
    Committed,
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is to join.
    Outside,
    /// It is to fetch what it is given.
    Joined,
    /// It works.
    Synced,
}

#[derive(Debug)]
pub(super) struct Classic {
    number: usize,
    life: u64,
    cooperative: bool,
    member: String,
    stage: Stage,
    generation: i32,
    /// From the leader: members, and what they say of themselves.
    members: Vec<(String, Bytes)>,
    held: BTreeSet<i32>,
    say: Say,
    asked: Option<Asked>,
    pub(super) progress: u64,
    /// Another process takes its place.
    pub(super) is_over: bool,
}

impl Classic {
    pub(super) fn new(number: usize, life: u64, cooperative: bool) -> Classic {
        Classic {
            number,
            life,
            cooperative,
            member: String::new(),
            stage: Stage::Outside,
            generation: -1,
            members: Vec::new(),
            held: BTreeSet::new(),
            say: Say::default(),
            asked: None,
            progress: 0,
            is_over: false,
        }
    }

    pub(super) fn is_reconciling(&self) -> bool {
        self.stage != Stage::Synced && self.generation >= 0
    }

    pub(super) fn step(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask {
        if !self.say.has(moment) {
            return Ask::Nothing;
        }
        match self.stage {
            Stage::Outside => return self.join(moment),
            Stage::Joined => return self.sync(),
            Stage::Synced => {}
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

    fn heartbeat(&mut self) -> Ask {
        self.asked = Some(Asked::Heartbeat);
        Ask::Group(GroupCommand::Heartbeat {
            group: GROUP.to_owned(),
            generation: Generation(self.generation),
            member: self.member.clone(),
            instance: None,
        })
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
            _ => {
                moment.notes.push(format!("{} leaves", self.member));
                known.owners.given_up(self.number);
                self.held.clear();
                self.asked = Some(Asked::Leave);
                Ask::Group(GroupCommand::Leave {
                    group: GROUP.to_owned(),
                    members: vec![(self.member.clone(), None, None)],
                })
            }
        }
    }

    fn join(&mut self, moment: &mut Moment<'_>) -> Ask {
        let owned = match self.held.is_empty() {
            true => BTreeMap::new(),
            false => BTreeMap::from([(TOPIC.to_owned(), self.held.iter().copied().collect())]),
        };
        let subscription = encode_subscription(&Subscription {
            topics: vec![TOPIC.to_owned()],
            owned,
            generation: self.generation,
            rack: None,
        });
        let random =
            (u128::from(moment.random.next_u64()) << 64) | u128::from(moment.random.next_u64());
        let protocol = match self.cooperative {
            true => "cooperative-sticky",
            false => "range",
        };
        self.asked = Some(Asked::Join);
        Ask::Group(GroupCommand::Join(Join {
            group: GROUP.to_owned(),
            member: self.member.clone(),
            instance: None,
            client_id: format!("o{}-{}", self.number, self.life),
            client_host: "/127.0.0.1".to_owned(),
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            protocol_type: "consumer".to_owned(),
            protocols: vec![(protocol.to_owned(), subscription)],
            require_known_member: true,
            can_skip_assignment: false,
            random,
        }))
    }

    fn sync(&mut self) -> Ask {
        let assignments = self.deal_out().into_iter().map(|(member, parts)| {
            let parts = match parts.is_empty() {
                true => BTreeMap::new(),
                false => BTreeMap::from([(TOPIC.to_owned(), parts)]),
            };
            (member, encode_assignment(&parts))
        });
        let assignments = assignments.collect();
        self.asked = Some(Asked::Sync);
        Ask::Group(GroupCommand::Sync(Sync {
            group: GROUP.to_owned(),
            generation: Generation(self.generation),
            member: self.member.clone(),
            instance: None,
            protocol_type: None,
            protocol_name: None,
            assignments,
        }))
    }

    /// What the leader gives to whom: everyone keeps what it says it has, up to its share. The cooperative way, what one member has and
    /// another is to have goes to nobody yet.
    fn deal_out(&self) -> BTreeMap<String, Vec<i32>> {
        let mut given: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        let mut claims: BTreeMap<i32, (i32, &str)> = BTreeMap::new();
        for (member, metadata) in &self.members {
            given.insert(member.clone(), Vec::new());
            let Ok(said) = decode_subscription(metadata) else {
                continue;
            };
            for part in said.owned.values().flatten() {
                let latest = claims.entry(*part).or_insert((said.generation, member));
                if said.generation > latest.0 {
                    *latest = (said.generation, member);
                }
            }
        }
        if given.is_empty() {
            return given;
        }
        let share = (PARTITIONS as usize).div_ceil(given.len());
        let mut free = Vec::new();
        for part in 0..PARTITIONS {
            let keeper = claims
                .get(&part)
                .and_then(|(_, member)| given.get_mut(*member));
            match keeper {
                Some(parts) if parts.len() < share => parts.push(part),
                _ => free.push(part),
            }
        }
        let mut withheld = Vec::new();
        for part in free {
            let fewest = given.iter_mut().min_by_key(|(_, parts)| parts.len());
            let Some((member, parts)) = fewest else {
                continue;
            };
            parts.push(part);
            let holder = claims.get(&part).map(|(_, holder)| *holder);
            if self.cooperative && holder.is_some_and(|holder| *holder != **member) {
                withheld.push(part);
            }
        }
        for parts in given.values_mut() {
            parts.retain(|part| !withheld.contains(part));
        }
        given
    }

    fn commit(&mut self, partition: i32, known: &mut Known) -> Ask {
        let next = known.commits.next(TOPIC, partition);
        self.asked = Some(Asked::Commit(next));
        let who = Committer {
            group: GROUP,
            member: &self.member,
            instance: None,
            generation: self.generation,
            version: 8,
        };
        who.commit(TOPIC, partition, next)
    }

    /// It holds nothing any more.
    fn give_up(&mut self, known: &mut Known) {
        known.owners.given_up(self.number);
        self.held.clear();
    }

    pub(super) fn told(
        &mut self,
        told: Told,
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation> {
        let Some(asked) = self.asked.take() else {
            return Ok(());
        };
        match (asked, told) {
            (Asked::Join, Told::Group(GroupAnswer::Join(answer))) => {
                self.joined(answer, moment, known);
            }
            (
                Asked::Sync,
                Told::Group(GroupAnswer::Sync {
                    error, assignment, ..
                }),
            ) => match error {
                ErrorCode::NONE => self.synced(&assignment, moment, known)?,
                error => self.refused(error, moment, known),
            },
            (Asked::Heartbeat, Told::Group(GroupAnswer::Error(error))) => match error {
                ErrorCode::NONE => {
                    self.renewed(moment, known);
                    let whole = known.owners.is_whole(PARTITIONS);
                    self.progress += u64::from(whole);
                }
                error => self.refused(error, moment, known),
            },
            (Asked::Commit(sent), Told::Group(GroupAnswer::Partitions(error, each))) => {
                match each.first().copied().unwrap_or(error) {
                    ErrorCode::NONE => known.commits.answered(sent, moment.now),
                    error => self.refused(error, moment, known),
                }
            }
            (Asked::Committed, Told::Committed(Ok(found))) => {
                known.checked += 1;
                looked(found, self.say.at, &known.commits, moment)?;
            }
            // Whoever doesn't hear whether it was heard goes all the same.
            (Asked::Leave, _) => self.is_over = true,
            _ => moment.back_off = true,
        }
        Ok(())
    }

    fn renewed(&self, moment: &Moment<'_>, known: &mut Known) {
        if moment.sure {
            known.owners.renewed(self.number, self.say.at + SESSION);
        }
    }

    fn joined(&mut self, answer: JoinAnswer, moment: &mut Moment<'_>, known: &mut Known) {
        match answer.error {
            ErrorCode::NONE => {}
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.member = answer.member;
                return;
            }
            error => return self.refused(error, moment, known),
        }
        known.checked += 1;
        let generation = answer.generation.0;
        known.owners.joined(self.number, generation, moment.now);
        self.member = answer.member;
        self.generation = generation;
        let members = answer.members.into_iter();
        self.members = members.map(|(id, _, said)| (id, said)).collect();
        self.stage = Stage::Joined;
    }

    fn synced(
        &mut self,
        assignment: &[u8],
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation> {
        let given = decode_assignment(assignment).map_err(|error| {
            Violation::new(
                "an assignment can be read",
                format!("{}: {error}", self.member),
            )
        })?;
        let given: BTreeSet<i32> = given.into_values().flatten().collect();
        let what = format!("{} in {}: {given:?}", self.member, self.generation);
        moment.notes.push(what);
        known.checked += 1;
        known
            .owners
            .given(self.number, self.generation, &given, moment.now)?;
        self.renewed(moment, known);
        known.owners.keeps(self.number, &given);
        // Who has given something back says so, that others get it.
        let gave_back = self.held.iter().any(|part| !given.contains(part));
        self.held = given;
        self.stage = match gave_back {
            true => Stage::Outside,
            false => Stage::Synced,
        };
        Ok(())
    }

    fn refused(&mut self, error: ErrorCode, moment: &mut Moment<'_>, known: &mut Known) {
        moment.back_off = true;
        match error {
            ErrorCode::REBALANCE_IN_PROGRESS => {
                if !self.cooperative {
                    self.give_up(known);
                }
                self.stage = Stage::Outside;
            }
            error if error.retriable() => {}
            error => {
                moment
                    .notes
                    .push(format!("{} is refused: {error}", self.member));
                if error == ErrorCode::UNKNOWN_MEMBER_ID {
                    self.member.clear();
                }
                self.give_up(known);
                self.stage = Stage::Outside;
            }
        }
    }
}
