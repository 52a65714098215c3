//! Sends batches to the leaders of their partitions until they are acknowledged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{InitProducerIdRequest, ProduceRequest};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use super::{Client, LONGEST_PAUSE, RETRY};
use crate::failure::{Exit, Failure};

/// How to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProducerSettings {
    /// −1, 0 or 1.
    pub(crate) acks: i16,
    /// Whether a batch that is sent twice is stored once.
    pub(crate) idempotent: bool,
    /// How long a batch may be tried.
    pub(crate) delivery: Duration,
    /// Whether the user wants an end of it.
    pub(crate) stop: fn() -> bool,
}

/// One batch on its way.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) partition: i32,
    pub(crate) bytes: Bytes,
    pub(crate) records: usize,
    /// Where its records come from, for a refusal; may be empty.
    pub(crate) origin: String,
}

/// Where a batch was stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) partition: i32,
    /// Of its first record; −1 with acks=0.
    pub(crate) base_offset: i64,
    pub(crate) records: usize,
}

/// Sends to one topic.
#[derive(Debug)]
pub(crate) struct Producer {
    topic: String,
    settings: ProducerSettings,
    leaders: BTreeMap<i32, i32>,
    /// Id and epoch of an idempotent producer.
    pub(crate) id: Option<(ProducerId, ProducerEpoch)>,
}

impl Producer {
    /// Finds the topic (and makes it, where the broker does) and draws a producer id.
    pub(crate) fn new(
        client: &mut Client,
        topic: &str,
        settings: ProducerSettings,
    ) -> Result<Producer, Failure> {
        let mut producer = Producer {
            topic: topic.to_owned(),
            settings,
            leaders: BTreeMap::new(),
            id: None,
        };
        producer.find_leaders(client)?;
        if settings.idempotent {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: 60_000,
                producer_id: -1,
                producer_epoch: -1,
                ..InitProducerIdRequest::default()
            };
            let deadline = Instant::now() + client.settings.timeout;
            loop {
                let response = client.ask(&request)?;
                match response.error_code {
                    ErrorCode::NONE => {
                        producer.id = Some((
                            ProducerId(response.producer_id),
                            ProducerEpoch(response.producer_epoch),
                        ));
                        break;
                    }
                    code if code.retriable() && Instant::now() < deadline => {
                        std::thread::sleep(RETRY)
                    }
                    code => return Err(Failure::kafka("no producer id was given", code, None)),
                }
            }
        }
        Ok(producer)
    }

    /// Number of partitions.
    pub(crate) fn partitions(&self) -> i32 {
        i32::try_from(self.leaders.len()).unwrap_or(i32::MAX)
    }

    pub(crate) fn find_leaders(&mut self, client: &mut Client) -> Result<(), Failure> {
        let topic = client.topic(&self.topic, true)?;
        self.leaders = topic
            .partitions
            .iter()
            .map(|p| (p.partition_index, p.leader_id))
            .collect();
        Ok(())
    }

    pub(crate) fn leader(&self, partition: i32) -> Result<i32, Failure> {
        self.leaders.get(&partition).copied().ok_or_else(|| {
            Failure::new(
                Exit::NotFound,
                format!("topic {:?} has no partition {partition}", self.topic),
            )
            .why(format!("it has partitions 0 to {}", self.partitions() - 1))
            .hint("leave --partition out, or add partitions with `riverlog topic add-partitions`")
        })
    }

    /// A request with those batches.
    pub(crate) fn request(&self, timeout_ms: i32, batches: &[Batch]) -> ProduceRequest {
        let data = |b: &Batch| PartitionProduceData {
            index: b.partition,
            records: Some(b.bytes.clone()),
        };
        ProduceRequest {
            acks: self.settings.acks,
            timeout_ms,
            topic_data: vec![TopicProduceData {
                name: self.topic.clone(),
                partition_data: batches.iter().map(data).collect(),
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        }
    }

    /// Sends batches, at most one for each partition, and waits until all are acknowledged. While brokers are away it tries
    /// again; a batch whose fate isn't known only when a second try can't store it twice.
    pub(crate) fn send(
        &mut self,
        client: &mut Client,
        mut batches: Vec<Batch>,
    ) -> Result<Vec<Ack>, Failure> {
        let deadline = Instant::now() + self.settings.delivery;
        let mut acks = Vec::new();
        let mut failure: Option<Failure> = None;
        let mut pause = RETRY;
        let mut said = false;
        while !batches.is_empty() {
            if Instant::now() >= deadline {
                return Err(failure.unwrap_or_else(|| {
                    Failure::new(Exit::Timeout, format!("topic {:?}: records weren't acknowledged in time", self.topic))
                        .hint("they may or may not be stored: read the end of the topic before you send them again")
                }));
            }
            if let Some(before) = failure.take() {
                if (self.settings.stop)() {
                    return Err(before);
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
                if let Err(error) = self.find_leaders(client) {
                    if !error.is_passing() {
                        return Err(error);
                    }
                    client.reset();
                    failure = Some(error);
                    continue;
                }
            }
            let mut by_leader: BTreeMap<i32, Vec<Batch>> = BTreeMap::new();
            for batch in batches.drain(..) {
                by_leader
                    .entry(self.leader(batch.partition)?)
                    .or_default()
                    .push(batch);
            }
            for (leader, group) in by_leader {
                match self.send_to(client, leader, &group) {
                    Ok(answers) => {
                        for batch in group {
                            match answers.get(&batch.partition) {
                                Some(Ok(base_offset)) => acks.push(Ack {
                                    partition: batch.partition,
                                    base_offset: *base_offset,
                                    records: batch.records,
                                }),
                                Some(Err((code, message))) => {
                                    let error = self.refused(&batch, *code, message.as_deref());
                                    if !code.retriable() {
                                        return Err(error);
                                    }
                                    failure = Some(error);
                                    batches.push(batch);
                                }
                                None => {
                                    return Err(Failure::new(
                                        Exit::Finding,
                                        "the broker left a partition out of its answer",
                                    ));
                                }
                            }
                        }
                    }
                    Err((error, sent))
                        if error.is_passing() && (!sent || self.settings.idempotent) =>
                    {
                        if !std::mem::replace(&mut said, true) {
                            let reason = error.reason().unwrap_or_default();
                            eprintln!("{} ({reason}); trying again", error.what());
                        }
                        client.reset();
                        failure = Some(error);
                        batches.extend(group);
                    }
                    Err((error, sent)) if error.is_passing() && sent => {
                        return Err(error.hint(
                            "records may or may not be stored: read the end of the topic before you send them again; --acks all takes care of that by itself",
                        ));
                    }
                    Err((error, _)) => return Err(error),
                }
            }
        }
        Ok(acks)
    }

    fn refused(&self, batch: &Batch, code: ErrorCode, message: Option<&str>) -> Failure {
        let from = match batch.origin.as_str() {
            "" => String::new(),
            origin => format!(" ({origin})"),
        };
        Failure::kafka(
            format!(
                "topic {:?}, partition {}: records were refused{from}",
                self.topic, batch.partition
            ),
            code,
            message,
        )
    }

    /// With a failure: whether anything may have been sent.
    #[allow(clippy::type_complexity)]
    fn send_to(
        &self,
        client: &mut Client,
        leader: i32,
        batches: &[Batch],
    ) -> Result<BTreeMap<i32, Result<i64, (ErrorCode, Option<String>)>>, (Failure, bool)> {
        let request = self.request(client.timeout_ms(), batches);
        let link = client.node(leader).map_err(|error| (error, false))?;
        if self.settings.acks == 0 {
            link.send(&request).map_err(|error| (error, true))?;
            return Ok(batches.iter().map(|b| (b.partition, Ok(-1))).collect());
        }
        let response = link.ask(&request).map_err(|error| (error, true))?;
        Ok(response
            .responses
            .into_iter()
            .flat_map(|t| t.partition_responses)
            .map(|p| {
                let answer = match p.error_code {
                    ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER => Ok(p.base_offset),
                    code => {
                        let first = p
                            .record_errors
                            .into_iter()
                            .find_map(|e| e.batch_index_error_message);
                        Err((code, p.error_message.or(first)))
                    }
                };
                (p.index, answer)
            })
            .collect())
    }
}
