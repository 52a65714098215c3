//! A member of a share group: writes, acquires, accepts, refuses, gives back, forgets, and loses its session.

use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_core::share::{Acknowledge, Acknowledgement, AcquireMode, ShareKey};
use riverlog_node::{AppendCommand, Node, ShareFetchAnswer, ShareFetchCommand};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset};

use crate::model::Violation;
use crate::shares::{GROUP, Given, ID, LIMIT, Leadership, PARTITIONS, SharePlan, Spot, Word};
use crate::world::{Core, Outcome};

/// Keys of records.
const KEYS: u64 = 4;

#[derive(Debug)]
pub(crate) struct Sharer {
    number: usize,
    pub(crate) waits: bool,
    progress: u64,
    held: Vec<(Spot, i16)>,
    /// A batch that is out: partition and keys.
    sent: Option<(i32, Vec<u8>)>,
    /// What is said of a record.
    says: Option<(Spot, i16, Word, bool)>,
    asked_at: Duration,
    /// Of each partition, when it last asked.
    leaderships: Vec<Leadership>,
    /// It forgets what it is given next, and stays: only the end of its time gives that to others.
    forgets: bool,
    /// What it has forgotten, and how often that had been given out: it must come again.
    forgotten: Vec<(Spot, u32)>,
}

fn key(partition: i32) -> ShareKey {
    ShareKey {
        group: GROUP.to_owned(),
        topic: ID,
        partition,
    }
}

fn leaderships(core: &Core) -> Vec<Leadership> {
    let Some((node, _)) = core.node() else {
        return Vec::new();
    };
    let epoch = |partition| {
        let found = node.partition(&TopicRef::Id(ID), partition);
        found.map_or(-1, |found| node.describe_partition(&found).leader_epoch.0)
    };
    (0..PARTITIONS).map(|p| (core.life, epoch(p))).collect()
}

impl Sharer {
    pub(crate) fn new(number: usize) -> Sharer {
        Sharer {
            number,
            waits: false,
            progress: 0,
            held: Vec::new(),
            sent: None,
            says: None,
            asked_at: Duration::ZERO,
            leaderships: Vec::new(),
            forgets: false,
            forgotten: Vec::new(),
        }
    }

    pub(crate) fn heal(&mut self) {
        self.progress = 0;
        self.forgets = self.number == 0;
    }

    pub(crate) fn has_progressed(&self) -> bool {
        self.progress >= 3
    }

    fn member(&self) -> String {
        format!("m{}", self.number)
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        self.asked_at = core.clock;
        if !core.healing && core.random.chance(1, 5) {
            return self.write(core, me);
        }
        if !core.healing && core.random.chance(1, 60) {
            return self.end_session(core);
        }
        if !self.held.is_empty() && core.random.chance(2, 3) {
            return self.say(core, me);
        }
        self.fetch(core, me);
    }

    fn write(&mut self, core: &mut Core, me: usize) {
        let partition = core.random.below(PARTITIONS as u64) as i32;
        let count = 1 + core.random.below(4);
        let keys: Vec<u8> = (0..count).map(|_| core.random.below(KEYS) as u8).collect();
        let codec = match core.random.below(16) {
            0 => Compression::Zstd,
            _ => Compression::None,
        };
        let mut batch = BatchBuilder::new(codec);
        let now_ms = core.now().wall_ms;
        for key in &keys {
            batch.push(now_ms, Some(&[*key]), Some(b"shared"), &[]);
        }
        let batch = batch.build();
        self.sent = Some((partition, keys));
        self.waits = true;
        core.ask(me, Outcome::Append, move |node, now, reply| {
            let found = node.partition(&TopicRef::Id(ID), partition);
            let command = AppendCommand {
                batch,
                acks: -1,
                timeout: Duration::from_secs(5),
            };
            match found {
                Ok(reference) => node.append(&reference, command, now, reply),
                Err(error) => reply.send(Err(riverlog_node::AppendFailure {
                    error,
                    message: String::new(),
                    records: Vec::new(),
                    retry_after: None,
                })),
            }
        });
    }

    /// What it has is given back by whoever notices that its connection is gone.
    fn end_session(&mut self, core: &mut Core) {
        core.note(format_args!("the session of {} is over", self.member()));
        core.shares.ended(self.number);
        self.held.clear();
        if let Some((node, now)) = core.node() {
            for partition in 0..PARTITIONS {
                node.share_release(&key(partition), &self.member(), now);
            }
        }
    }

    fn say(&mut self, core: &mut Core, me: usize) {
        let at = core.random.below(self.held.len() as u64) as usize;
        let (spot, count) = self.held.swap_remove(at);
        let word = match core.random.below(8) {
            _ if core.healing => Word::Accept,
            0 => Word::Reject,
            1 | 2 => Word::Release,
            // It never says anything.
            3 => return,
            _ => Word::Accept,
        };
        core.note(format_args!("{} says {word:?} of {spot:?}", self.member()));
        let may = core.shares.says(self.number, spot, word);
        self.says = Some((spot, count, word, may));
        self.waits = true;
        let said = [Acknowledgement {
            first: Offset(spot.1),
            last: Offset(spot.1),
            types: vec![match word {
                Word::Accept => Acknowledge::Accept,
                Word::Reject => Acknowledge::Reject,
                Word::Release => Acknowledge::Release,
            }],
        }];
        let member = self.member();
        core.ask(me, Outcome::Marker, move |node, now, reply| {
            node.share_acknowledge(&key(spot.0), &member, &said, now, reply);
        });
    }

    fn fetch(&mut self, core: &mut Core, me: usize) {
        let command = ShareFetchCommand {
            group: GROUP.to_owned(),
            member: self.member(),
            partitions: (0..PARTITIONS).map(|p| (ID, p)).collect(),
            first: core.random.below(PARTITIONS as u64) as usize,
            max_wait: Duration::from_millis(core.random.below(200)),
            max_bytes: 1 << 20,
            max_records: 1 + core.random.below(5) as i64,
            batch_size: 100,
            mode: match core.random.below(2) {
                0 => AcquireMode::BatchOptimized,
                _ => AcquireMode::RecordLimit,
            },
        };
        self.waits = true;
        self.leaderships = leaderships(core);
        core.ask(
            me,
            Outcome::Shared,
            move |node: &std::sync::Arc<Node>, now, reply| {
                node.share_fetch(command, now, reply);
            },
        );
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let Some(plan) = core.swarm.shares else {
            return Ok(());
        };
        match outcome {
            Outcome::Append(Ok(answer)) => {
                if let Some((partition, keys)) = self.sent.take() {
                    for (key, offset) in keys.into_iter().zip(answer.base_offset.0..) {
                        core.shares.stored((partition, offset), key);
                    }
                }
            }
            Outcome::Append(Err(_)) => {
                self.sent = None;
                core.back_off = true;
            }
            Outcome::Marker(Ok(())) => {
                if let Some(said) = self.says.take() {
                    core.model.checked += 1;
                    core.shares.said(&plan, self.number, said, self.asked_at)?;
                }
            }
            Outcome::Marker(Err(error)) => {
                let said = self.says.take();
                core.note(format_args!("{} is told {error}: {said:?}", self.member()));
                if error != ErrorCode::INVALID_RECORD_STATE {
                    core.shares.shaken();
                }
                core.back_off = true;
            }
            Outcome::Shared(answer) => self.acquired(core, &plan, answer)?,
            Outcome::Lost => {
                let (sent, says) = (self.sent.take(), self.says.take());
                if sent.is_none() && says.is_none() {
                    core.shares.fetch_lost();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn acquired(
        &mut self,
        core: &mut Core,
        plan: &SharePlan,
        answer: ShareFetchAnswer,
    ) -> Result<(), Violation> {
        let now_led = leaderships(core);
        let before = self.held.len();
        let sound = answer.partitions.iter().all(|p| p.error == ErrorCode::NONE);
        for (partition, part) in (0..).zip(answer.partitions) {
            if part.error != ErrorCode::NONE {
                core.note(format_args!(
                    "{}: {partition}: {}",
                    self.member(),
                    part.error
                ));
                core.back_off = true;
                continue;
            }
            let bytes = part.records.into_bytes().unwrap_or_default();
            let found: Vec<(i64, i64)> = batches(&bytes)
                .filter_map(Result::ok)
                .map(|b| (b.header.base_offset.0, b.header.last_offset().0))
                .collect();
            for range in part.acquired {
                core.note(format_args!(
                    "{} gets {range:?} of {partition}",
                    self.member()
                ));
                for at in range.first.0..=range.last.0 {
                    if !found
                        .iter()
                        .any(|(first, last)| (*first..=*last).contains(&at))
                    {
                        let what = format!("offset {at} of {partition} is not in {found:?}");
                        return Err(Violation::new("records come with what is acquired", what));
                    }
                    core.model.checked += 1;
                    let given = Given {
                        spot: (partition, at),
                        count: range.delivery_count,
                        to: self.number,
                        asked_at: self.asked_at,
                        now: core.clock,
                        leadership: now_led
                            .get(partition as usize)
                            .filter(|now| self.leaderships.get(partition as usize) == Some(*now))
                            .copied(),
                        jumps: core.swarm.clock > 0,
                    };
                    core.shares.given(plan, given)?;
                    self.held.push(((partition, at), range.delivery_count));
                }
            }
        }
        if self.forgets && self.held.len() > before {
            core.note(format_args!("{} forgets {:?}", self.member(), self.held));
            let again = |(spot, count): &(Spot, i16)| {
                let given = core.shares.times_given(*spot).filter(|_| *count < LIMIT)?;
                Some((*spot, given))
            };
            self.forgotten = self.held[before..].iter().filter_map(again).collect();
            self.held.clear();
            self.forgets = false;
        }
        self.forgotten.retain(|(spot, given)| {
            let now = core.shares.times_given(*spot);
            now.is_some_and(|now| now <= *given)
        });
        let idle = self.held.is_empty() && self.forgotten.is_empty();
        if sound && idle && core.shares.is_drained() {
            self.progress += 1;
        }
        Ok(())
    }
}
