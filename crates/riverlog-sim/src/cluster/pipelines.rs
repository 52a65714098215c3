//! What some seeds' producers send behind a batch before that one is answered, over the same connection: whatever becomes of the first, the
//! second is never taken before it, and never for out of order.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::metadata::TopicRef;
use riverlog_log::disk::Random;
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::{AppendAnswer, AppendCommand, AppendFailure, Node, PartitionRef, Reply};
use riverlog_wire::LeaderEpoch;

use super::clients::{Client, Identity, Values, refused};
use super::model::TOPIC;
use super::world::{Event, World};
use crate::model::Violation;

/// How much later the second one is looked at, most often, and now and then.
const SOON_US: [u64; 2] = [3_000, 400_000];

/// An answer to what was sent behind, and by whom; with the epoch of the leader that gave it.
type Told = (
    usize,
    Behind,
    Result<AppendAnswer, AppendFailure>,
    Option<LeaderEpoch>,
);

/// Draws from a source of its own.
pub(super) struct Pipelines {
    random: Random,
    plays: bool,
    told: Arc<Mutex<Vec<Told>>>,
}

/// A batch on its way behind another one.
#[derive(Clone)]
pub(super) struct Behind {
    me: usize,
    at: usize,
    /// The connection ends with the process.
    life: u64,
    /// The leadership that the first one came to, if any: what a leader has taken in an earlier one it may have lost since.
    led: Option<LeaderEpoch>,
    partition: i32,
    producer: Identity,
    /// Of the one before it.
    sequence: i32,
    values: Values,
    batch: Vec<u8>,
}

impl Pipelines {
    /// One of three seeds.
    pub(super) fn draw(seed: u64) -> Pipelines {
        Pipelines {
            random: Random::new(seed ^ 0x70_69_70_65),
            plays: seed % 3 == 1,
            told: Arc::default(),
        }
    }
}

/// In which leadership a node leads a partition, if it does.
pub(super) fn leadership(node: &Node, partition: &PartitionRef) -> Option<LeaderEpoch> {
    let copy = node.describe_copy(partition.topic(), partition.index())?;
    copy.leads.then_some(copy.partition.leader_epoch)
}

impl World {
    /// A producer has sent what is pending to `at`: perhaps it doesn't wait for the answer.
    pub(super) fn send_behind(&mut self, me: usize, at: usize, now_ms: i64) {
        let pipelines = &mut self.pipelines;
        if !pipelines.plays || !pipelines.random.chance(1, 2) {
            return;
        }
        let Client::Producer(producer) = &mut self.clients[me] else {
            return;
        };
        let Some((producer_id, sequence, (values, batch))) =
            producer.behind(now_ms, &mut pipelines.random)
        else {
            return;
        };
        let soon = SOON_US[usize::from(pipelines.random.chance(1, 4))];
        let later = Duration::from_micros(1 + pipelines.random.below(soon));
        let partition = producer.partition();
        let behind = Behind {
            me,
            at,
            life: self.machines[at].life,
            led: self.led_by(at, partition),
            partition,
            producer: producer_id,
            sequence,
            values,
            batch,
        };
        self.schedule(self.clock + later, Event::Behind(Box::new(behind)));
    }

    fn led_by(&self, at: usize, partition: i32) -> Option<LeaderEpoch> {
        let (node, _) = self.node(at)?;
        let found = node.partition(&TopicRef::Name(TOPIC.to_owned()), partition);
        leadership(&node, &found.ok()?)
    }

    /// What was sent behind comes to the node, unless its producer has begun anew or its connection has ended.
    pub(super) fn arrive_behind(&mut self, behind: Behind) {
        let Behind { me, at, .. } = behind;
        let up = self.is_up(at) && self.machines[at].life == behind.life;
        let Client::Producer(producer) = &self.clients[me] else {
            return;
        };
        let led = self.led_by(at, behind.partition);
        if !up
            || !producer.sent_before(behind.producer, behind.sequence)
            || (behind.led.is_some() && led != behind.led)
        {
            return;
        }
        let Some((node, now)) = self.node(at) else {
            return;
        };
        let topic = TopicRef::Name(TOPIC.to_owned());
        let Ok(partition) = node.partition(&topic, behind.partition) else {
            return;
        };
        self.note(format!("client {me} has sent {:?} to {at}", behind.values));
        let told = self.pipelines.told.clone();
        let command = AppendCommand {
            batch: behind.batch.clone(),
            acks: -1,
            timeout: Duration::from_secs(3),
        };
        let (there, copy) = (node.clone(), partition.clone());
        let reply = Reply::new(move |answer: Result<AppendAnswer, AppendFailure>| {
            let led = leadership(&there, &copy);
            told.lock().push((me, behind, answer, led));
        });
        node.append(&partition, command, now, reply);
    }

    /// Answers to what was sent behind.
    pub(super) fn deliver_behind(&mut self) -> Result<(), Violation> {
        let answers = std::mem::take(&mut *self.pipelines.told.lock());
        for (me, behind, answer, led) in answers {
            match answer {
                Ok(answer) => {
                    sometimes(Mark::SentBehind);
                    let (base, values) = (answer.base_offset, &behind.values);
                    let end = base + values.len() as i64;
                    self.note(format!("{values:?} at {base}"));
                    self.model
                        .acknowledged(behind.partition, base, values, led)?;
                    self.check_in_sync(behind.partition, end)?;
                }
                Err(failure) => {
                    sometimes(Mark::RefusedBehind);
                    self.note(format!("client {me}: {}", failure.error.name()));
                    refused(me, &failure, &behind.values)?;
                }
            }
        }
        Ok(())
    }
}
