//! Producers and readers that find the leaders by metadata.

use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_log::disk::Random;
use riverlog_node::{
    AppendAnswer, AppendCommand, AppendFailure, FetchAnswer, FetchCommand, FetchPartition,
    Isolation, OffsetAnswer, OffsetQuery, Reply,
};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use super::model::TOPIC;
use super::pipelines::leadership;
use super::world::{Event, World};
use crate::model::{Violation, never_refused};

/// How long a client waits for an answer before it asks again, perhaps elsewhere.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a client is told.
pub(super) enum Outcome {
    Producer(Result<(ProducerId, ProducerEpoch), ErrorCode>),
    /// With the epoch of the leader that answered.
    Append(Result<AppendAnswer, AppendFailure>, Option<LeaderEpoch>),
    Fetch(FetchAnswer),
    /// How far, nobody needs to know.
    Trimmed,
}

pub(super) enum Client {
    Producer(Producer),
    Reader(Reader),
}

/// Of the records of a batch.
pub(super) type Values = Vec<String>;

/// A batch, with what is in it.
type Made = (Values, Vec<u8>);

/// Whom a batch is from.
pub(super) type Identity = (ProducerId, ProducerEpoch);

#[derive(Default)]
pub(super) struct Producer {
    number: usize,
    partition: i32,
    id: Option<Identity>,
    sequence: i32,
    count: u64,
    pending: Option<Made>,
    /// Comes next, and was sent already.
    behind: Option<Made>,
    pub(super) progress: u64,
    /// The newest leadership that its metadata has had.
    epoch: LeaderEpoch,
    /// What readers have to read in the end has an end.
    pub(super) enough: Option<u64>,
}

#[derive(Default)]
pub(super) struct Reader {
    partition: i32,
    pub(super) position: Vec<Offset>,
    /// The newest leadership of each partition that its metadata has had.
    epochs: Vec<LeaderEpoch>,
}

impl Producer {
    pub(super) fn partition(&self) -> i32 {
        self.partition
    }

    /// The batch behind the pending one, with the sequence of that one.
    pub(super) fn behind(
        &mut self,
        now_ms: i64,
        random: &mut Random,
    ) -> Option<(Identity, i32, Made)> {
        let id = self.id?;
        let next = self.sequence + self.pending.as_ref()?.0.len() as i32;
        if self.behind.is_none() {
            let made = compose(self.number, &mut self.count, self.id, next, now_ms, random);
            self.behind = Some(made);
        }
        Some((id, self.sequence, self.behind.clone()?))
    }

    /// Whether the batch with `sequence` isn't acknowledged yet.
    pub(super) fn sent_before(&self, id: Identity, sequence: i32) -> bool {
        self.id == Some(id) && self.sequence == sequence && self.pending.is_some()
    }
}

impl Client {
    pub(super) fn all(producers: usize, readers: usize, partitions: i32) -> Vec<Client> {
        let producer = |number: usize| {
            Client::Producer(Producer {
                number,
                partition: number as i32 % partitions,
                epoch: LeaderEpoch::NONE,
                ..Producer::default()
            })
        };
        let reader = |_| {
            Client::Reader(Reader {
                partition: 0,
                position: vec![Offset::ZERO; partitions as usize],
                epochs: vec![LeaderEpoch::NONE; partitions as usize],
            })
        };
        let producers = (0..producers).map(producer);
        producers.chain((0..readers).map(reader)).collect()
    }
}

impl World {
    /// A client's next step, unless it waits for an answer.
    pub(super) fn client_step(&mut self, me: usize) {
        self.operations += 1;
        // As its metadata has it, which may be old.
        let any = self.random.below(self.machines.len() as u64) as usize;
        let Some((node, now)) = self.node(any) else {
            return self.think(me);
        };
        let partition = match &mut self.clients[me] {
            Client::Producer(producer) => producer.partition,
            Client::Reader(reader) => {
                reader.partition = (reader.partition + 1) % reader.position.len() as i32;
                reader.partition
            }
        };
        if let Client::Producer(producer) = &self.clients[me]
            && producer.pending.is_none()
            && producer
                .enough
                .is_some_and(|enough| producer.progress >= enough)
        {
            return self.think(me);
        }
        let number = self.wait_for(me);
        let inbox = self.inbox.clone();
        if let Client::Producer(producer) = &self.clients[me]
            && producer.id.is_none()
        {
            let reply = Reply::new(move |answer| {
                inbox.lock().push((me, number, Outcome::Producer(answer)));
            });
            self.asked_at.insert(me, any);
            return node.init_producer(now, reply);
        }
        let image = node.image();
        let topic = image.topic(TOPIC);
        let found = topic.and_then(|t| t.partitions.get(partition as usize));
        let found = found.and_then(|p| Some((p.leader?, p.leader_epoch)));
        let Some((leader, epoch)) = found else {
            return self.give_up(me);
        };
        let leader = leader.0 as usize - 1;
        if matches!(self.clients[me], Client::Reader(_)) && self.operations.is_multiple_of(3) {
            // As one whose metadata may be older than anyone's.
            self.ask_for_end(leader, partition);
        }
        // Its metadata may be old, but as with Kafka's clients it doesn't go back: an earlier leader lacks what a later one took.
        let known = match &mut self.clients[me] {
            Client::Producer(producer) => &mut producer.epoch,
            Client::Reader(reader) => &mut reader.epochs[partition as usize],
        };
        if epoch < *known {
            return self.give_up(me);
        }
        *known = epoch;
        let Some((node, now)) = self.node(leader).filter(|_| self.is_up(leader)) else {
            return self.give_up(me);
        };
        self.asked_at.insert(me, leader);
        let topic = TopicRef::Name(TOPIC.to_owned());
        match &mut self.clients[me] {
            Client::Producer(producer) => {
                let now_ms = now.wall_ms;
                let (values, batch) = producer
                    .pending
                    .get_or_insert_with(|| {
                        compose(
                            producer.number,
                            &mut producer.count,
                            producer.id,
                            producer.sequence,
                            now_ms,
                            &mut self.random,
                        )
                    })
                    .clone();
                let Ok(partition) = node.partition(&topic, partition) else {
                    return self.give_up(me);
                };
                self.note(format!("client {me} sends {values:?} to {leader}"));
                let (there, at) = (node.clone(), partition.clone());
                let reply = Reply::new(move |answer: Result<AppendAnswer, AppendFailure>| {
                    let outcome = Outcome::Append(answer, leadership(&there, &at));
                    inbox.lock().push((me, number, outcome));
                });
                let command = AppendCommand {
                    batch,
                    acks: -1,
                    timeout: Duration::from_secs(3),
                };
                node.append(&partition, command, now, reply);
                self.send_behind(me, leader, now_ms);
            }
            Client::Reader(reader) => {
                let from = reader.position[partition as usize];
                if self.swarm.trims && self.random.chance(1, 20) {
                    let Ok(found) = node.partition(&topic, partition) else {
                        return self.give_up(me);
                    };
                    let reply = Reply::new(move |_: Result<Offset, ErrorCode>| {
                        inbox.lock().push((me, number, Outcome::Trimmed));
                    });
                    // What every reader of the model has seen; it may be done without an answer.
                    self.model.trims(partition, from);
                    self.note(format!("client {me} deletes {partition} to {from}"));
                    return node.delete_records(&found, from, now, reply);
                }
                let command = FetchCommand {
                    partitions: vec![FetchPartition {
                        topic,
                        partition,
                        from,
                        max_bytes: 1 << 20,
                        current_leader_epoch: epoch,
                        last_fetched_epoch: LeaderEpoch::NONE,
                    }],
                    max_wait: Duration::from_millis(100),
                    min_bytes: 1,
                    max_bytes: 1 << 20,
                    isolation: Isolation::ReadUncommitted,
                    replica: None,
                };
                let reply = Reply::new(move |answer| {
                    inbox.lock().push((me, number, Outcome::Fetch(answer)));
                });
                node.fetch(command, now, reply);
            }
        }
    }

    /// Where a partition ends, as a node says that somebody takes for its leader.
    fn ask_for_end(&mut self, at: usize, partition: i32) {
        let Some((node, now)) = self.node(at).filter(|_| self.is_up(at)) else {
            return;
        };
        node.saw(now);
        let topic = TopicRef::Name(TOPIC.to_owned());
        let Ok(found) = node.partition(&topic, partition) else {
            return;
        };
        let told = self.told.clone();
        let reply = Reply::new(move |answer: OffsetAnswer| {
            if answer.error == ErrorCode::NONE {
                told.lock().push((at, partition, answer.offset));
            }
        });
        let (query, isolation) = (OffsetQuery::Latest, Isolation::ReadUncommitted);
        node.offset(&found, query, isolation, LeaderEpoch::NONE, reply);
    }

    fn wait_for(&mut self, me: usize) -> u64 {
        self.requests += 1;
        let number = self.requests;
        self.asking.insert(me, number);
        let deadline = self.clock + PATIENCE;
        self.schedule(deadline, Event::Impatient { me, number });
        number
    }

    pub(super) fn give_up(&mut self, me: usize) {
        self.asking.remove(&me);
        self.asked_at.remove(&me);
        self.think(me);
    }

    pub(super) fn think(&mut self, me: usize) {
        let most = match self.healing {
            true => Duration::from_millis(20),
            false => self.swarm.think.max(Duration::from_millis(1)),
        };
        let later = self.clock + self.within(2 * most.as_micros() as u64);
        self.schedule(later, Event::Client(me));
    }

    pub(super) fn answered(&mut self, me: usize, outcome: Outcome) -> Result<(), Violation> {
        match (outcome, &mut self.clients[me]) {
            (Outcome::Producer(answer), Client::Producer(producer)) => {
                producer.id = answer.ok();
                producer.sequence = 0;
                if let Some((id, _)) = producer.id {
                    self.model.producer(id)?;
                }
            }
            (Outcome::Append(Ok(answer), epoch), Client::Producer(producer)) => {
                let Some((values, _)) = producer.pending.take() else {
                    return Ok(());
                };
                producer.sequence += values.len() as i32;
                producer.progress += 1;
                producer.pending = producer.behind.take();
                if self.random.chance(1, 10) && producer.pending.is_none() {
                    // As one that is started anew.
                    producer.id = None;
                }
                let partition = producer.partition;
                self.note(format!("{values:?} at {}", answer.base_offset));
                self.model
                    .acknowledged(partition, answer.base_offset, &values, epoch)?;
                self.check_in_sync(partition, answer.base_offset + values.len() as i64)?;
            }
            (Outcome::Append(Err(failure), _), Client::Producer(producer)) => {
                let pending = producer.pending.as_ref();
                refused(me, &failure, pending.map_or(&[], |(values, _)| values))?;
                self.note(format!("client {me}: {}", failure.error.name()));
            }
            (Outcome::Fetch(answer), Client::Reader(reader)) => {
                let partition = reader.partition;
                let from = reader.position[partition as usize];
                for part in answer.partitions {
                    if part.error == ErrorCode::OFFSET_OUT_OF_RANGE {
                        let trimmed = self.model.trimmed(partition);
                        if from >= trimmed {
                            let what = format!("partition {partition}: {from} isn't there");
                            return Err(Violation::new("readers need not go back", what));
                        }
                        if let Client::Reader(reader) = &mut self.clients[me] {
                            reader.position[partition as usize] = from.max(trimmed);
                        }
                        continue;
                    }
                    if part.error != ErrorCode::NONE || part.records.len == 0 {
                        continue;
                    }
                    let next = part.records.next;
                    let records = records_of(part.records, from)?;
                    self.model.read(partition, from, &records, next)?;
                    if let Client::Reader(reader) = &mut self.clients[me] {
                        reader.position[partition as usize] = next;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A producer was refused `values`.
pub(super) fn refused(
    me: usize,
    failure: &AppendFailure,
    values: &[String],
) -> Result<(), Violation> {
    never_refused(failure, || format!("client {me}: {failure:?}, {values:?}"))
}

fn compose(
    number: usize,
    count: &mut u64,
    id: Option<Identity>,
    sequence: i32,
    now_ms: i64,
    random: &mut Random,
) -> Made {
    let size = 1 + random.below(4);
    let values: Vec<String> = (0..size)
        .map(|i| format!("p{number}-{}", *count + i))
        .collect();
    *count += size;
    let mut batch = BatchBuilder::new(Compression::None);
    if let Some((id, epoch)) = id {
        batch.producer(id, epoch, Sequence(sequence));
    }
    for value in &values {
        batch.push(now_ms, None, Some(value.as_bytes()), &[]);
    }
    (values, batch.build())
}

/// Offsets and values from `from` on.
pub(super) fn records_of(
    slices: riverlog_node::Slices,
    from: Offset,
) -> Result<Vec<(Offset, String)>, Violation> {
    let broken = |what: String| Violation::new("what is read is whole", what);
    let bytes = slices.into_bytes().map_err(|e| broken(e.to_string()))?;
    let mut found = Vec::new();
    for batch in batches(&bytes) {
        let batch = batch.map_err(|e| broken(e.to_string()))?;
        batch.check_crc().map_err(|e| broken(e.to_string()))?;
        let records = batch.records(1 << 20).map_err(|e| broken(e.to_string()))?;
        for record in records.iter() {
            let record = record.map_err(|e| broken(e.to_string()))?;
            let value = record.value.unwrap_or_default();
            let value = String::from_utf8_lossy(&value);
            if record.offset >= from {
                found.push((record.offset, value.into_owned()));
            }
        }
    }
    Ok(found)
}
