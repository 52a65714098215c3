//! Members of a share group: they write, acquire at the leader of a partition, and say what they think of it there. The leader keeps that
//! with a coordinator on whatever node.

use std::time::Duration;

use riverlog_core::metadata::{NewTopic, TopicRef};
use riverlog_core::share::{Acknowledge, Acknowledgement, AcquireMode, ShareKey};
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::{AppendCommand, AppendFailure, Reply, ShareFetchAnswer, ShareFetchCommand};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset};

use super::groups::{Heard, Place};
use super::world::World;
use crate::groups::Told;
use crate::model::Violation;
use crate::shares::{GROUP, Given, ID, LIMIT, PARTITIONS, SharePlan, Spot, TOPIC, Word};

/// Keys of records.
const KEYS: u64 = 4;

pub(super) fn topic() -> NewTopic {
    NewTopic {
        name: TOPIC.to_owned(),
        partitions: PARTITIONS,
        replication_factor: 3,
        id: ID,
        ..NewTopic::default()
    }
}

/// A record that a member was given.
#[derive(Clone, Copy, Debug)]
struct Held {
    spot: Spot,
    count: i16,
    /// By whom.
    place: Place,
    /// Another leader may have given it to someone else.
    doubtful: bool,
}

#[derive(Debug, Default)]
enum Asked {
    #[default]
    Nothing,
    /// A batch: partition and keys.
    Write(i32, Vec<u8>),
    /// From a leader of this partition.
    Fetch(i32, Option<Place>),
    Say(Held, Word, bool),
}

#[derive(Debug)]
pub(super) struct Sharer {
    number: usize,
    progress: u64,
    held: Vec<Held>,
    asked: Asked,
    asked_at: Duration,
    /// It forgets what it is given next, and stays: only the end of its time gives that to others.
    forgets: bool,
    /// What it has forgotten, and how often that had been given out: it must come again.
    forgotten: Vec<(Spot, u32)>,
    /// Partitions from which nothing came while all was drained, one after the other.
    quiet: u32,
}

impl Sharer {
    pub(super) fn new(number: usize) -> Sharer {
        Sharer {
            number,
            progress: 0,
            held: Vec::new(),
            asked: Asked::Nothing,
            asked_at: Duration::ZERO,
            forgets: false,
            forgotten: Vec::new(),
            quiet: 0,
        }
    }

    pub(super) fn heal(&mut self) {
        self.progress = 0;
        self.forgets = self.number == 0;
    }

    pub(super) fn has_progressed(&self) -> bool {
        self.progress >= 3
    }

    fn member(&self) -> String {
        format!("m{}", self.number)
    }
}

fn key(partition: i32) -> ShareKey {
    ShareKey {
        group: GROUP.to_owned(),
        topic: ID,
        partition,
    }
}

impl World {
    /// The leadership of a node that leads a partition of the group's topic, as it sees it.
    fn leadership_at(&self, at: usize, partition: i32) -> Option<Place> {
        let machine = self.machines.get(at)?;
        let copy = machine.node.as_ref()?.describe_copy(ID, partition)?;
        copy.leads.then_some(Place {
            at,
            life: machine.life,
            epoch: copy.partition.leader_epoch.0,
        })
    }

    pub(super) fn sharer_step(&mut self, me: usize) {
        let (now, healing) = (self.clock, self.healing);
        let (write, end) = (
            self.groups.random.chance(1, 5),
            self.groups.random.chance(1, 60),
        );
        let (say, pick) = (
            self.groups.random.chance(2, 3),
            self.groups.random.next_u64() as usize,
        );
        let word = self.groups.random.below(8);
        let partition = self.groups.random.below(PARTITIONS as u64) as i32;
        let Some(sharer) = self.sharer(me) else {
            return;
        };
        sharer.asked_at = now;
        let number = sharer.number;
        if !healing && write {
            return self.sharer_writes(me, partition);
        }
        if !healing && end {
            // What it has is given back by whoever notices that its connection is gone.
            sharer.held.clear();
            let member = sharer.member();
            self.note(format!("the session of {member} is over"));
            self.groups.shares.ended(number);
            for at in 0..self.machines.len() {
                if let Some((node, now)) = self.node(at).filter(|_| self.is_up(at)) {
                    for partition in 0..PARTITIONS {
                        node.share_release(&key(partition), &member, now);
                    }
                }
            }
        } else if !sharer.held.is_empty() && say {
            let held = sharer.held.swap_remove(pick % sharer.held.len());
            let word = match word {
                _ if healing => Word::Accept,
                0 => Word::Reject,
                1 | 2 => Word::Release,
                // It never says anything.
                3 => return self.sharer_fetches(me, partition),
                _ => Word::Accept,
            };
            return self.sharer_says(me, held, word);
        }
        self.sharer_fetches(me, partition);
    }

    fn sharer_writes(&mut self, me: usize, partition: i32) {
        let count = 1 + self.groups.random.below(4);
        let keys: Vec<u8> = (0..count)
            .map(|_| self.groups.random.below(KEYS) as u8)
            .collect();
        let at = self.leader_as_known(ID, partition);
        let (number, found) = self.member_asks(me, at);
        if let Some(sharer) = self.sharer(me) {
            sharer.asked = Asked::Write(partition, keys.clone());
        }
        let Some((node, now)) = found else { return };
        let mut batch = BatchBuilder::new(Compression::None);
        for key in &keys {
            batch.push(now.wall_ms, Some(&[*key]), Some(b"shared"), &[]);
        }
        let inbox = self.member_inbox();
        let reply = Reply::new(
            move |answer: Result<riverlog_node::AppendAnswer, AppendFailure>| {
                let stored = Heard::Stored(answer.ok().map(|a| a.base_offset));
                inbox.lock().push((me, number, stored));
            },
        );
        let command = AppendCommand {
            batch: batch.build(),
            acks: -1,
            timeout: Duration::from_secs(3),
        };
        match node.partition(&TopicRef::Id(ID), partition) {
            Ok(reference) => node.append(&reference, command, now, reply),
            Err(error) => reply.send(Err(AppendFailure {
                error,
                message: String::new(),
                records: Vec::new(),
                retry_after: None,
            })),
        }
    }

    fn sharer_says(&mut self, me: usize, held: Held, word: Word) {
        let Some(sharer) = self.sharer(me) else {
            return;
        };
        let (number, member) = (sharer.number, sharer.member());
        let at = held.place.at;
        self.note(format!("{member} says {word:?} of {:?} to {at}", held.spot));
        // Who got it from a leader that is one no more may be heard as long as nobody else has said anything.
        let may = self.groups.shares.says(number, held.spot, word) || held.doubtful;
        let same = self.leadership_at(at, held.spot.0) == Some(held.place);
        if !same {
            sometimes(Mark::SaidToAnotherLeader);
        }
        let (asked, found) = self.member_asks(me, Some(at));
        if let Some(sharer) = self.sharer(me) {
            sharer.asked = Asked::Say(held, word, may);
        }
        let Some((node, now)) = found else { return };
        let said = [Acknowledgement {
            first: Offset(held.spot.1),
            last: Offset(held.spot.1),
            types: vec![match word {
                Word::Accept => Acknowledge::Accept,
                Word::Reject => Acknowledge::Reject,
                Word::Release => Acknowledge::Release,
            }],
        }];
        let inbox = self.member_inbox();
        let reply = Reply::new(move |answer| {
            inbox.lock().push((me, asked, Heard::Said(answer)));
        });
        node.share_acknowledge(&key(held.spot.0), &member, &said, now, reply);
    }

    fn sharer_fetches(&mut self, me: usize, partition: i32) {
        let max_wait = Duration::from_millis(self.groups.random.below(200));
        let max_records = 1 + self.groups.random.below(5) as i64;
        let mode = match self.groups.random.chance(1, 2) {
            true => AcquireMode::BatchOptimized,
            false => AcquireMode::RecordLimit,
        };
        let at = self.leader_as_known(ID, partition);
        let place = at.and_then(|at| self.leadership_at(at, partition));
        let (number, found) = self.member_asks(me, at);
        let Some(sharer) = self.sharer(me) else {
            return;
        };
        sharer.asked = Asked::Fetch(partition, place);
        let command = ShareFetchCommand {
            group: GROUP.to_owned(),
            member: sharer.member(),
            partitions: vec![(ID, partition)],
            first: 0,
            max_wait,
            max_bytes: 1 << 20,
            max_records,
            batch_size: 100,
            mode,
        };
        let Some((node, now)) = found else {
            // Nobody was asked.
            sharer.asked = Asked::Nothing;
            return;
        };
        let inbox = self.member_inbox();
        let reply = Reply::new(move |answer| {
            inbox.lock().push((me, number, Heard::Acquired(answer)));
        });
        node.share_fetch(command, now, reply);
    }

    /// Whether it waits a while before it goes on.
    pub(super) fn sharer_hears(&mut self, me: usize, heard: Heard) -> Result<bool, Violation> {
        let Some(plan) = self.groups.share else {
            return Ok(true);
        };
        let now = self.clock;
        let Some(sharer) = self.sharer(me) else {
            return Ok(true);
        };
        let (number, asked_at) = (sharer.number, sharer.asked_at);
        match (std::mem::take(&mut sharer.asked), heard) {
            (Asked::Write(partition, keys), Heard::Stored(Some(base))) => {
                for (key, offset) in keys.into_iter().zip(base.0..) {
                    self.groups.shares.stored((partition, offset), key);
                }
                Ok(false)
            }
            (Asked::Fetch(partition, place), Heard::Acquired(answer)) => {
                self.sharer_acquires(me, &plan, (partition, place), answer)
            }
            (Asked::Fetch(..), Heard::Group(Told::Lost)) => {
                self.groups.shares.fetch_lost();
                Ok(true)
            }
            (Asked::Say(held, word, may), Heard::Said(Ok(()))) => {
                self.model.checked += 1;
                self.note(format!(
                    "m{number} is told that {word:?} of {:?} holds",
                    held.spot
                ));
                let said = (held.spot, held.count, word, may);
                self.groups.shares.said(&plan, number, said, asked_at)?;
                Ok(false)
            }
            (Asked::Say(held, word, _), Heard::Said(Err(error))) => {
                self.note(format!("{word:?} of {:?}: {error} at {now:?}", held.spot));
                if error != ErrorCode::INVALID_RECORD_STATE {
                    self.groups.shares.shaken();
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn sharer_acquires(
        &mut self,
        me: usize,
        plan: &SharePlan,
        (partition, asked): (i32, Option<Place>),
        answer: ShareFetchAnswer,
    ) -> Result<bool, Violation> {
        let Some(part) = answer.partitions.into_iter().next() else {
            return Ok(true);
        };
        if part.error != ErrorCode::NONE {
            self.note(format!("{partition} for {me}: {}", part.error));
            return Ok(true);
        }
        let place = asked.filter(|p| self.leadership_at(p.at, partition) == Some(*p));
        // One that doesn't know yet that it leads no more gives out what others may have accepted meanwhile, as long as it isn't told. What
        // it is told is refused.
        let newest = self.led_now(&TopicRef::Id(ID), partition);
        let epoch = place.map_or(-1, |place| place.epoch);
        let doubtful = self.groups.is_superseded(partition, newest, epoch);
        let bytes = part.records.into_bytes().unwrap_or_default();
        let found: Vec<(i64, i64)> = batches(&bytes)
            .filter_map(Result::ok)
            .map(|b| (b.header.base_offset.0, b.header.last_offset().0))
            .collect();
        let (now, mut got) = (self.clock, Vec::new());
        let Some(sharer) = self.sharer(me) else {
            return Ok(true);
        };
        let (number, asked_at) = (sharer.number, sharer.asked_at);
        for range in part.acquired {
            self.note(format!(
                "m{number} gets {range:?} of {partition} from {asked:?}"
            ));
            for at in range.first.0..=range.last.0 {
                let is_there = |(first, last): &(i64, i64)| (*first..=*last).contains(&at);
                if !found.iter().any(is_there) {
                    let what = format!("offset {at} of {partition} is not in {found:?}");
                    return Err(Violation::new("records come with what is acquired", what));
                }
                let (spot, count) = ((partition, at), range.delivery_count);
                self.model.checked += 1;
                if doubtful {
                    sometimes(Mark::AcquiredFromFormerLeader);
                    self.groups.shares.perhaps_given(spot);
                } else {
                    let given = Given {
                        spot,
                        count,
                        to: number,
                        asked_at,
                        now,
                        leadership: place.map(|p| (p.life << 8 | p.at as u64, p.epoch)),
                        jumps: true,
                    };
                    self.groups.shares.given(plan, given)?;
                }
                if let Some(place) = place {
                    got.push(Held {
                        spot,
                        count,
                        place,
                        doubtful,
                    });
                }
            }
        }
        self.sharer_has(me, got);
        Ok(false)
    }

    fn sharer_has(&mut self, me: usize, got: Vec<Held>) {
        let shares = std::mem::take(&mut self.groups.shares);
        if let Some(sharer) = self.sharer(me) {
            sharer.quiet = if got.is_empty() { sharer.quiet + 1 } else { 0 };
            sharer.held.extend(&got);
            if sharer.forgets && !got.is_empty() {
                let again = |held: &Held| {
                    let given = shares.times_given(held.spot);
                    Some((
                        held.spot,
                        given.filter(|_| held.count < LIMIT && !held.doubtful)?,
                    ))
                };
                sharer.forgotten = got.iter().filter_map(again).collect();
                sharer.held.clear();
                sharer.forgets = false;
            }
            sharer.forgotten.retain(|(spot, given)| {
                let now = shares.times_given(*spot);
                now.is_some_and(|now| now <= *given)
            });
            let idle = sharer.held.is_empty() && sharer.forgotten.is_empty();
            if idle && sharer.quiet > 0 && shares.is_drained() {
                sharer.progress += 1;
            }
        }
        self.groups.shares = shares;
    }
}
