//! A compacted topic with copies. Each node cleans its own copy, so that copies differ in what they lack; and one that was away, got an empty disk or comes anew meets holes in what its
//! leader has, where that has cleaned whole batches away. A copy that can't get over a hole never comes back into the in-sync set.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::metadata::{AdminCommand, NewTopic, TopicRef};
use riverlog_log::disk::Random;
use riverlog_node::{AppendAnswer, AppendCommand, AppendFailure, FetchAnswer, Reply, Slices};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId};

use super::clients::refused;
use super::groups::Due;
use super::model::{TOPIC, topic_id};
use super::moves::some_replicas;
use super::pipelines::leadership;
use super::swarm::Swarm;
use super::world::{Event, World};
use crate::keyed::{self, Entry, ID, Keyed, PARTITIONS, Pass, compose, entries_of};
use crate::model::Violation;
use crate::swarm::Keyed as Plan;
use crate::world::fetch_one;

/// How long a client waits for an answer before it asks again, perhaps elsewhere.
const PATIENCE: Duration = Duration::from_secs(4);

/// Batches of each writer that are acknowledged once all is healed, or one node is missing: some segments of them, for the cleaner to work on meanwhile.
const ENOUGH: u64 = 40;

/// Tombstones stay for longer than any run.
const FOR_EVER_MS: u64 = 86_400_000;

/// Draws from a source of its own, so that a seed without any is what it would be without this.
pub(super) struct Compacted {
    random: Random,
    plan: Option<Plan>,
    pub(super) copies: usize,
    think: Duration,
    /// Of 1,000 steps of its clients, how often a partition is led by another node or gets other replicas.
    disturbed: u64,
    seats: Vec<Seat>,
    known: Keyed,
    inbox: Arc<Mutex<Vec<(usize, u64, Heard)>>>,
    requests: u64,
}

struct Seat {
    who: Who,
    /// The request that it waits for, and where.
    asking: Option<(u64, usize)>,
    /// The newest leadership of each partition that its metadata has had.
    epochs: [LeaderEpoch; PARTITIONS as usize],
}

enum Who {
    Writer(Writer),
    Scanner(Scanner),
}

enum Heard {
    Producer(Result<(ProducerId, ProducerEpoch), ErrorCode>),
    /// With the epoch of the leader that answered.
    Append(Result<AppendAnswer, AppendFailure>, Option<LeaderEpoch>),
    Fetch(FetchAnswer),
}

/// Writes to the partition of its number, one batch at a time: so the numbers of records rise with their offsets.
#[derive(Debug, Default)]
struct Writer {
    partition: i32,
    id: Option<(ProducerId, ProducerEpoch)>,
    sequence: i32,
    count: i64,
    pending: Option<(Vec<Entry>, Vec<u8>)>,
    progress: u64,
    /// How far it goes.
    enough: Option<u64>,
}

/// Reads one partition after the other from the first record to the end.
#[derive(Debug, Default)]
struct Scanner {
    partition: i32,
    /// Where it is; `None` before it begins.
    at: Option<Offset>,
    pass: Pass,
    /// Of each partition: passes since everyone was to move.
    passes: [u64; PARTITIONS as usize],
}

/// As the model of contents has it, which looks at the order of what one producer has sent.
fn name_of(partition: i32, entry: &Entry) -> String {
    format!("p{}-{}", 1_000 + partition, entry.number)
}

fn names_of(partition: i32, entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|e| name_of(partition, e)).collect()
}

/// The records of a copy from `from` on.
pub(super) fn records_of(slices: Slices, from: Offset) -> Result<Vec<(Offset, Entry)>, Violation> {
    let bytes = slices.into_bytes();
    let bytes = bytes.map_err(|e| Violation::new("what is read is whole", e.to_string()))?;
    let all = entries_of(&bytes)?.into_iter();
    let all = all.map(|(at, entry)| (Offset(at), entry));
    Ok(all.filter(|(at, _)| *at >= from).collect())
}

impl Compacted {
    /// Every third seed.
    pub(super) fn draw(seed: u64, transacts: bool, swarm: &mut Swarm) -> Compacted {
        let mut random = Random::new(seed ^ 0x63_6f_6d_70);
        let plays = seed % 3 == 2;
        let tombstones = [FOR_EVER_MS, FOR_EVER_MS, 500][random.below(3) as usize];
        let plan = Plan {
            deletes: false,
            tombstones_ms: tombstones,
            min_lag_ms: 0,
            max_lag_ms: [None, Some(100), Some(5_000)][random.below(3) as usize],
        };
        let copies = [3, swarm.nodes][random.below(2) as usize];
        let think = [2_000, 10_000, 40_000][random.below(3) as usize];
        let disturbed = [0, 5, 30][random.below(3) as usize];
        let mut seats = Vec::new();
        if plays {
            for (key, value) in [
                ("log.segment.bytes", "1024"),
                ("log.cleaner.backoff.ms", "100"),
            ] {
                let configs = &mut swarm.settings.configs;
                configs.insert(key.to_owned(), value.to_owned());
            }
            if !transacts {
                // There must be time for something to be cleaned while a node is away.
                swarm.think = swarm.think.max(Duration::from_millis(10));
            }
            let writers = (0..PARTITIONS).map(|partition| {
                Who::Writer(Writer {
                    partition,
                    ..Writer::default()
                })
            });
            let scanner = Who::Scanner(Scanner::default());
            seats = writers
                .chain([scanner])
                .map(|who| Seat {
                    who,
                    asking: None,
                    epochs: [LeaderEpoch::NONE; PARTITIONS as usize],
                })
                .collect();
        }
        Compacted {
            random,
            plan: plays.then_some(plan),
            copies,
            think: Duration::from_micros(think),
            disturbed,
            seats,
            known: Keyed::new(),
            inbox: Arc::default(),
            requests: 0,
        }
    }

    pub(super) fn is_played(&self) -> bool {
        self.plan.is_some()
    }

    /// From now on everyone has to get on.
    pub(super) fn expect_progress(&mut self) {
        for seat in &mut self.seats {
            match &mut seat.who {
                Who::Writer(writer) => writer.enough = Some(writer.progress + ENOUGH),
                Who::Scanner(scanner) => scanner.passes = Default::default(),
            }
        }
    }

    /// What writers have under way is the last for now.
    pub(super) fn rest(&mut self) {
        for seat in &mut self.seats {
            if let Who::Writer(writer) = &mut seat.who {
                writer.enough = Some(writer.progress);
            }
        }
    }

    /// Whether all writers have got on since.
    pub(super) fn have_progressed(&self) -> bool {
        self.seats.iter().all(|seat| match &seat.who {
            Who::Writer(writer) => writer.is_done(),
            Who::Scanner(_) => true,
        })
    }

    /// Whether each partition was read from its first record to its end since.
    pub(super) fn are_read(&self) -> bool {
        self.seats.iter().all(|seat| match &seat.who {
            Who::Writer(_) => true,
            Who::Scanner(scanner) => scanner.passes.iter().all(|passes| *passes > 0),
        })
    }

    /// Where everyone is.
    pub(super) fn standings(&self) -> String {
        let each = self.seats.iter().map(|seat| match &seat.who {
            Who::Writer(w) => format!("writer {} at {} of {:?}", w.partition, w.progress, w.enough),
            Who::Scanner(s) => format!("scanner at {:?} of {}, {:?}", s.at, s.partition, s.passes),
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

impl Writer {
    fn is_done(&self) -> bool {
        self.enough.is_some_and(|enough| self.progress >= enough)
    }
}

impl World {
    /// How many partitions the two topics have whose copies are looked at. First come those of the topic that all clients use.
    pub(super) fn numbers(&self) -> std::ops::Range<i32> {
        let compacted = match self.compacted.is_played() {
            true => PARTITIONS,
            false => 0,
        };
        0..self.swarm.partitions + compacted
    }

    /// The partition of the compacted topic with this number.
    pub(super) fn compacted_of(&self, number: i32) -> Option<i32> {
        let index = number - self.swarm.partitions;
        (index >= 0).then_some(index)
    }

    /// Which partition has this number.
    pub(super) fn log_of(&self, number: i32) -> (TopicId, i32) {
        match self.compacted_of(number) {
            Some(index) => (ID, index),
            None => (topic_id(), number),
        }
    }

    /// The topics whose copies are looked at, and how many each partition has in the end.
    pub(super) fn copied_topics(&self) -> Vec<(&'static str, usize)> {
        let compacted = (keyed::TOPIC, self.compacted.copies);
        let compacted = self.compacted.is_played().then_some(compacted);
        [(TOPIC, 3)].into_iter().chain(compacted).collect()
    }

    pub(super) fn make_compacted(&mut self) -> Result<(), Violation> {
        let Some(plan) = self.compacted.plan else {
            return Ok(());
        };
        self.note(format_args!("{plan:?}"));
        let mut configs = plan.configs();
        configs.retain(|(key, _)| key != "min.cleanable.dirty.ratio");
        let durability = match self.swarm.sync {
            true => "sync",
            false => "page-cache",
        };
        for (key, value) in [
            ("min.cleanable.dirty.ratio", "0"),
            ("riverlog.durability", durability),
        ] {
            configs.push((key.to_owned(), Some(value.to_owned())));
        }
        let topic = NewTopic {
            name: keyed::TOPIC.to_owned(),
            partitions: PARTITIONS,
            replication_factor: self.compacted.copies as i16,
            configs,
            id: ID,
            ..NewTopic::default()
        };
        self.admin_anywhere(AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: false,
        })?;
        for me in 0..self.compacted.seats.len() {
            self.compacted_thinks(me);
        }
        Ok(())
    }

    fn compacted_thinks(&mut self, me: usize) {
        let most = match self.healing {
            true => Duration::from_millis(10),
            false => self.compacted.think,
        };
        let later = 1 + self.compacted.random.below(2 * most.as_micros() as u64);
        let at = self.clock + Duration::from_micros(later);
        self.schedule(at, Event::Compacted(Due::Step(me)));
    }

    pub(super) fn compacted_event(&mut self, due: Due) {
        match due {
            Due::Step(me) => {
                self.perhaps_disturb();
                if !self.compacted_step(me) {
                    self.compacted_thinks(me);
                }
            }
            Due::Impatient { me, number } => {
                let asking = &mut self.compacted.seats[me].asking;
                if asking.take_if(|(n, _)| *n == number).is_some() {
                    self.compacted_thinks(me);
                }
            }
        }
    }

    /// Whoever waits for an answer of a node that is gone hears of that.
    pub(super) fn lose_compacted_of(&mut self, at: usize) {
        for me in 0..self.compacted.seats.len() {
            let asking = &mut self.compacted.seats[me].asking;
            if asking.take_if(|(_, of)| *of == at).is_some() {
                self.compacted_thinks(me);
            }
        }
    }

    /// A client's next step. Whether it waits for an answer then.
    fn compacted_step(&mut self, me: usize) -> bool {
        // As its metadata has it, which may be old.
        let any = self.compacted.random.below(self.machines.len() as u64) as usize;
        let Some((node, now)) = self.node(any).filter(|_| self.is_up(any)) else {
            return false;
        };
        let (partition, has_id) = match &self.compacted.seats[me].who {
            Who::Writer(writer) if writer.is_done() && writer.pending.is_none() => return false,
            Who::Writer(writer) => (writer.partition, writer.id.is_some()),
            Who::Scanner(scanner) => (scanner.partition, true),
        };
        let inbox = self.compacted.inbox.clone();
        if !has_id {
            let number = self.compacted_waits(me, any);
            let reply = Reply::new(move |answer| {
                inbox.lock().push((me, number, Heard::Producer(answer)));
            });
            node.init_producer(now, reply);
            return true;
        }
        let image = node.image();
        let found = image.topic(keyed::TOPIC);
        let found = found.and_then(|t| t.partitions.get(partition as usize));
        let Some((leader, epoch)) = found.and_then(|p| Some((p.leader?, p.leader_epoch))) else {
            return false;
        };
        // It doesn't go back: an earlier leader lacks what a later one took.
        let known = &mut self.compacted.seats[me].epochs[partition as usize];
        if epoch < *known {
            return false;
        }
        *known = epoch;
        let at = leader.0 as usize - 1;
        let Some((node, now)) = self.node(at).filter(|_| self.is_up(at)) else {
            return false;
        };
        let topic = TopicRef::Name(keyed::TOPIC.to_owned());
        let compacted = &mut self.compacted;
        let random = &mut compacted.random;
        match &mut compacted.seats[me].who {
            Who::Writer(writer) => {
                let Some(id) = writer.id else {
                    return false;
                };
                let Ok(found) = node.partition(&topic, partition) else {
                    return false;
                };
                let (entries, batch) = writer
                    .pending
                    .get_or_insert_with(|| {
                        let (count, sequence) = (&mut writer.count, writer.sequence);
                        compose(random, count, id, sequence, now.wall_ms)
                    })
                    .clone();
                compacted.known.sent(partition, &entries);
                self.note(format_args!("keyed {partition}: {entries:?} to {at}"));
                let number = self.compacted_waits(me, at);
                let (there, copy) = (node.clone(), found.clone());
                let reply = Reply::new(move |answer| {
                    let heard = Heard::Append(answer, leadership(&there, &copy));
                    inbox.lock().push((me, number, heard));
                });
                let command = AppendCommand {
                    batch,
                    acks: -1,
                    timeout: Duration::from_secs(3),
                };
                node.append(&found, command, now, reply);
            }
            Who::Scanner(scanner) => {
                let begins = scanner.at.is_none();
                let from = *scanner.at.get_or_insert(Offset::ZERO);
                if begins {
                    scanner.pass = compacted.known.begin(partition);
                }
                let bytes = match self.healing {
                    true => 64 << 10,
                    false => 1 + random.below(1_500) as usize,
                };
                let wait = Duration::from_millis(20);
                let mut command = fetch_one(topic, partition, from, bytes, wait);
                command.partitions[0].current_leader_epoch = epoch;
                let number = self.compacted_waits(me, at);
                let reply = Reply::new(move |answer| {
                    inbox.lock().push((me, number, Heard::Fetch(answer)));
                });
                node.fetch(command, now, reply);
            }
        }
        true
    }

    fn compacted_waits(&mut self, me: usize, at: usize) -> u64 {
        self.compacted.requests += 1;
        let number = self.compacted.requests;
        self.compacted.seats[me].asking = Some((number, at));
        let due = Due::Impatient { me, number };
        self.schedule(self.clock + PATIENCE, Event::Compacted(due));
        number
    }

    /// Gives the answers to those who asked.
    pub(super) fn deliver_compacted(&mut self) -> Result<(), Violation> {
        loop {
            let answers = std::mem::take(&mut *self.compacted.inbox.lock());
            if answers.is_empty() {
                return Ok(());
            }
            for (me, number, heard) in answers {
                let asking = &mut self.compacted.seats[me].asking;
                if asking.take_if(|(n, _)| *n == number).is_some() {
                    self.compacted_hears(me, heard)?;
                    self.compacted_thinks(me);
                }
            }
        }
    }

    fn compacted_hears(&mut self, me: usize, heard: Heard) -> Result<(), Violation> {
        let compacted = &mut self.compacted;
        match (heard, &mut compacted.seats[me].who) {
            (Heard::Producer(answer), Who::Writer(writer)) => {
                writer.id = answer.ok();
                writer.sequence = 0;
                if let Some((id, _)) = writer.id {
                    self.model.producer(id)?;
                }
            }
            (Heard::Append(Ok(answer), epoch), Who::Writer(writer)) => {
                let Some((entries, _)) = writer.pending.take() else {
                    return Ok(());
                };
                writer.sequence += entries.len() as i32;
                writer.progress += 1;
                if compacted.random.chance(1, 20) {
                    // As one that is started anew.
                    writer.id = None;
                }
                let partition = writer.partition;
                let base = answer.base_offset;
                compacted.known.acknowledged(partition, base.0, &entries)?;
                let number = self.swarm.partitions + partition;
                self.note(format_args!("keyed {partition}: {entries:?} at {base}"));
                let names = names_of(partition, &entries);
                self.model.acknowledged(number, base, &names, epoch)?;
                self.check_in_sync(number, base + entries.len() as i64)?;
            }
            (Heard::Append(Err(failure), _), Who::Writer(writer)) => {
                let pending = writer.pending.as_ref();
                let names = pending.map(|(entries, _)| names_of(writer.partition, entries));
                refused(me, &failure, &names.unwrap_or_default())?;
                self.note(format_args!("keyed {me}: {}", failure.error.name()));
            }
            (Heard::Fetch(answer), Who::Scanner(_)) => self.scanned(me, answer)?,
            _ => {}
        }
        Ok(())
    }

    fn scanned(&mut self, me: usize, answer: FetchAnswer) -> Result<(), Violation> {
        let compacted = &mut self.compacted;
        let (Who::Scanner(scanner), Some(plan)) = (&mut compacted.seats[me].who, compacted.plan)
        else {
            return Ok(());
        };
        let (partition, Some(from)) = (scanner.partition, scanner.at) else {
            return Ok(());
        };
        let Some(part) = answer.partitions.into_iter().next() else {
            return Ok(());
        };
        if part.error == ErrorCode::OFFSET_OUT_OF_RANGE {
            let what = format!("compacted partition {partition}: {from} isn't there");
            return Err(Violation::new("readers need not go back", what));
        }
        if part.error != ErrorCode::NONE {
            return Ok(());
        }
        let (end, next) = (part.high_watermark, part.records.next.max(from));
        let number = self.swarm.partitions + partition;
        for (offset, entry) in records_of(part.records, from)? {
            let pass = &mut scanner.pass;
            compacted.known.read(pass, partition, offset.0, entry)?;
            let name = name_of(partition, &entry);
            self.model.seen(number, offset, &name)?;
        }
        self.model.read += 1;
        scanner.at = Some(next);
        // What one leader has cleaned away, the next one may not show the successor of yet: its high watermark is behind for a moment.
        if next < end || next < self.model.top(number) {
            return Ok(());
        }
        let for_ever = plan.tombstones_ms == FOR_EVER_MS;
        let pass = &scanner.pass;
        compacted.known.ended(pass, partition, 0, plan, for_ever)?;
        scanner.passes[partition as usize] += 1;
        scanner.partition = (partition + 1) % PARTITIONS;
        scanner.at = None;
        let found = scanner.pass.len();
        self.note(format_args!("keyed {partition}: {found} records to {next}"));
        Ok(())
    }

    /// What a copy holds below a high watermark, of which it isn't known whether that is all: it may have been on its way to where its leader was.
    pub(super) fn compacted_holds(
        &mut self,
        partition: i32,
        found: &[(Offset, Entry)],
    ) -> Result<Pass, Violation> {
        let mut pass = self.compacted.known.begin(partition);
        let number = self.swarm.partitions + partition;
        for (offset, entry) in found {
            let known = &mut self.compacted.known;
            known.read(&mut pass, partition, offset.0, *entry)?;
            let name = name_of(partition, entry);
            self.model.seen(number, *offset, &name)?;
        }
        Ok(pass)
    }

    /// A copy that can lead has the last value of each key, or one that was sent later.
    pub(super) fn compacted_is_whole(
        &mut self,
        partition: i32,
        found: &[(Offset, Entry)],
    ) -> Result<(), Violation> {
        let pass = self.compacted_holds(partition, found)?;
        let Some(plan) = self.compacted.plan else {
            return Ok(());
        };
        let for_ever = plan.tombstones_ms == FOR_EVER_MS;
        let known = &self.compacted.known;
        known.ended(&pass, partition, 0, plan, for_ever)?;
        Ok(())
    }

    /// Now and then a partition of the topic is led by another node, or is to be elsewhere.
    fn perhaps_disturb(&mut self) {
        let compacted = &mut self.compacted;
        let random = &mut compacted.random;
        if self.healing || random.below(1_000) >= compacted.disturbed {
            return;
        }
        let nodes = self.machines.len();
        let index = random.below(PARTITIONS as u64) as i32;
        let at = random.below(nodes as u64) as usize;
        if self.mover.moves() && random.chance(1, 2) {
            let replicas = match random.chance(1, 5) {
                true => None,
                false => Some(some_replicas(random, nodes)),
            };
            return self.ask_to_move(at, vec![(keyed::TOPIC, index, replicas)]);
        }
        self.let_lead(keyed::TOPIC, index, at);
    }
}
