//! Records to batches, batches to partitions, and what became of each record.

use std::borrow::Cow;

use axum::http::StatusCode;
use futures_util::future::{BoxFuture, join_all};
use riverlog_core::config::TopicConfig;
use riverlog_core::metadata::TopicImage;
use riverlog_node::{AppendAnswer, AppendCommand, AppendFailure, Reply};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::partitioner::partition_for_key;
use riverlog_wire::{ErrorCode, Offset, Sequence};

use super::{Options, Producer};
use crate::door::HttpDoor;
use crate::int64::Digits;
use crate::nodes::{Afterwards, Place};
use crate::problem::Problem;

/// Name, and value or null.
pub(super) type Header<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

/// A record to be published.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) key: Option<Cow<'a, [u8]>>,
    pub(super) value: Option<Cow<'a, [u8]>>,
    pub(super) headers: Vec<Header<'a>>,
    pub(super) partition: Option<i32>,
    /// ms since the epoch; `None`: now.
    pub(super) timestamp: Option<i64>,
}

/// What became of a record.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Stored {
        partition: i32,
        /// `None` when nobody was waited for.
        offset: Option<i64>,
        /// `None` of what was stored before, with a time that isn't known here.
        timestamp: Option<i64>,
        duplicate: bool,
    },
    Failed(Problem),
}

impl Outcome {
    /// As JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>, digits: Digits) {
        match self {
            Outcome::Stored {
                partition,
                offset,
                timestamp,
                duplicate,
            } => {
                out.extend_from_slice(b"{\"partition\":");
                Digits::Number.write(out, i64::from(*partition));
                if let Some(offset) = offset {
                    out.extend_from_slice(b",\"offset\":");
                    digits.write(out, *offset);
                }
                if let Some(timestamp) = timestamp {
                    out.extend_from_slice(b",\"timestamp\":");
                    digits.write(out, *timestamp);
                }
                out.extend_from_slice(match duplicate {
                    true => b",\"duplicate\":true}",
                    false => b",\"duplicate\":false}",
                });
            }
            Outcome::Failed(problem) => {
                out.extend_from_slice(b"{\"error\":");
                // Writing to memory can't fail.
                let _ = serde_json::to_writer(&mut *out, problem);
                out.push(b'}');
            }
        }
    }
}

/// A batch that is being filled.
struct Part {
    partition: i32,
    batch: BatchBuilder,
    /// Which of the request's records it holds, and their timestamps.
    records: Vec<(usize, i64)>,
}

/// How a batch is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) acks: i16,
    pub(crate) transactional_id: Option<&'a str>,
    /// Only if the partition's next record gets this offset.
    pub(crate) next: Option<Offset>,
}

/// What became of a batch; a refusal with what is known of the partition afterwards.
pub(super) type Sent = Result<Result<AppendAnswer, (AppendFailure, Afterwards)>, Problem>;

/// Sends one batch to one partition, wherever it is led. To this node's own it goes at once, to another's once it is waited for.
pub(super) fn send<'a>(
    door: &'a HttpDoor,
    place: &Place,
    batch: Vec<u8>,
    how: How<'a>,
    options: &Options,
) -> BoxFuture<'a, Sent> {
    let producer = options.producer.as_ref().map(|p| p.id.0);
    let partition = match place {
        Place::Here(partition) => partition.clone(),
        Place::There {
            leader,
            topic,
            partition,
        } => {
            let (leader, at) = (*leader, (*topic, *partition));
            return Box::pin(door.append_there(leader, at, batch, how, producer));
        }
    };
    let command = AppendCommand {
        batch,
        acks: how.acks,
        timeout: door.settings.append_timeout,
    };
    let answer = door.begin(
        |node, now, reply: Reply<_>| match (how.transactional_id, how.next) {
            (Some(id), _) => {
                node.append_in_transaction(&partition, id, true, command, now, reply);
            }
            (None, Some(next)) => node.append_at(&partition, next, command, now, reply),
            (None, None) => node.append(&partition, command, now, reply),
        },
    );
    Box::pin(async move {
        let answer = answer.await.map_err(|_| Problem::closing())?;
        Ok(answer.map_err(|failure| (failure, door.afterwards(&partition, producer))))
    })
}

/// Publishes records, those of one partition as one batch where they fit. Answers in their order.
///
/// - Errors: those of the request as a whole; what befell a single record is its outcome.
pub(super) async fn publish<'a>(
    door: &HttpDoor,
    topic: &TopicImage,
    records: impl Iterator<Item = Result<Record<'a>, Problem>>,
    options: &Options,
) -> Result<Vec<Outcome>, Problem> {
    let (parts, mut outcomes) = plan(door, topic, records, options)?;
    // All batches are under way before the first wait, so that one group commit serves them.
    let mut waiting = Vec::with_capacity(parts.len());
    for mut part in parts {
        let producer = options.producer.as_ref();
        let how = How {
            acks: options.acks,
            transactional_id: producer.and_then(|p| p.transactional_id.as_deref()),
            next: options.next,
        };
        let sent = match door.place(topic, part.partition) {
            Ok(place) => send(door, &place, part.batch.build(), how, options),
            Err(problem) => Box::pin(std::future::ready(Err(problem))),
        };
        waiting.push(async move { (part.partition, part.records, sent.await) });
    }
    for (partition, records, sent) in join_all(waiting).await {
        match sent {
            Err(problem) => fail(&mut outcomes, &records, &problem),
            Ok(Ok(answer)) => stored(&mut outcomes, partition, &records, answer, options),
            Ok(Err((failure, after))) => {
                let problem = explain(after, options, &failure);
                refused(&mut outcomes, &records, &failure, &problem);
            }
        }
    }
    Ok(outcomes)
}

fn plan<'a>(
    door: &HttpDoor,
    topic: &TopicImage,
    records: impl Iterator<Item = Result<Record<'a>, Problem>>,
    options: &Options,
) -> Result<(Vec<Part>, Vec<Outcome>), Problem> {
    let now_ms = door.now().wall_ms;
    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let config = TopicConfig::new(&topic.configs, &door.node.settings().configs);
    let limit = usize::try_from(config.max_message_bytes).unwrap_or(0);
    // Stored as a whole or not at all: it is one batch of one partition.
    let whole = options.producer.is_some() || options.next.is_some();
    let mut without_key = None;
    let mut parts: Vec<Part> = Vec::new();
    // Where the batch of each partition is that still takes records.
    let mut open: std::collections::BTreeMap<i32, usize> = std::collections::BTreeMap::new();
    let mut outcomes = Vec::new();
    for (index, record) in records.enumerate() {
        outcomes.push(Outcome::Failed(Problem::kafka(
            ErrorCode::UNKNOWN_SERVER_ERROR,
        )));
        let record = match record.and_then(|record| checked(topic, count, record)) {
            Ok(record) => record,
            // A record that is left out would shift the count.
            Err(problem) if whole => return Err(problem),
            Err(problem) => {
                fail(&mut outcomes, &[(index, 0)], &problem);
                continue;
            }
        };
        let partition = match (options.partition, record.partition, &record.key) {
            (Some(p), _, _) | (None, Some(p), _) => p,
            (None, None, Some(key)) => partition_for_key(key, count).0,
            (None, None, None) => *without_key.get_or_insert_with(|| match options.key {
                Some(key) => key.partition(topic.partitions.len()),
                None => door.next_turn(topic.partitions.len()),
            }),
        };
        let timestamp = record.timestamp.unwrap_or(now_ms);
        let headers: Vec<(&[u8], Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_deref()))
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let fits = |part: &Part| {
            whole
                || part.batch.size() + part.batch.record_size(timestamp, key, value, &headers)
                    <= limit
        };
        let at = open.get(&partition).copied();
        let at = at.filter(|at| parts.get(*at).is_some_and(fits));
        let at = at.unwrap_or_else(|| {
            parts.push(Part {
                partition,
                batch: builder(options.producer.as_ref()),
                records: Vec::new(),
            });
            open.insert(partition, parts.len() - 1);
            parts.len() - 1
        });
        if let Some(part) = parts.get_mut(at) {
            part.batch.push(timestamp, key, value, &headers);
            part.records.push((index, timestamp));
        }
    }
    if whole && open.len() > 1 {
        return Err(Problem::unprocessable(
            "more-than-one-partition",
            format!(
                "the records belong to {} partitions, and a sequence, a key or a condition is about one",
                open.len()
            ),
        )
        .hint("send one request for each partition, to /v1/topics/{topic}/partitions/{partition}/records"));
    }
    Ok((parts, outcomes))
}

fn builder(producer: Option<&Producer>) -> BatchBuilder {
    let mut batch = BatchBuilder::new(Compression::None);
    if let Some(producer) = producer {
        batch.producer(producer.id, producer.epoch, producer.sequence);
        if producer.transactional_id.is_some() {
            batch.transactional();
        }
    }
    batch
}

fn checked<'a>(topic: &TopicImage, count: i32, record: Record<'a>) -> Result<Record<'a>, Problem> {
    if let Some(partition) = record.partition.filter(|p| !(0..count).contains(p)) {
        return Err(Problem::no_partition(
            &topic.name,
            partition,
            topic.partitions.len(),
        ));
    }
    if let Some(timestamp) = record.timestamp.filter(|t| *t < 0) {
        return Err(Problem::kafka(ErrorCode::INVALID_TIMESTAMP).detail(format!(
            "the timestamp is {timestamp}; give ms since 1970, or none for now"
        )));
    }
    Ok(record)
}

fn stored(
    outcomes: &mut [Outcome],
    partition: i32,
    records: &[(usize, i64)],
    answer: AppendAnswer,
    options: &Options,
) {
    for (n, (index, timestamp)) in (0_i64..).zip(records) {
        if let Some(outcome) = outcomes.get_mut(*index) {
            *outcome = Outcome::Stored {
                partition,
                offset: (options.acks != 0 && answer.base_offset.0 >= 0)
                    .then_some(answer.base_offset.0 + n),
                timestamp: match answer.log_append_time_ms {
                    -1 => Some(*timestamp).filter(|_| !answer.duplicate),
                    appended => Some(appended),
                },
                duplicate: answer.duplicate,
            };
        }
    }
}

fn fail(outcomes: &mut [Outcome], records: &[(usize, i64)], problem: &Problem) {
    for (index, _) in records {
        if let Some(outcome) = outcomes.get_mut(*index) {
            *outcome = Outcome::Failed(problem.clone());
        }
    }
}

/// A batch was refused: those that are to blame are told why, the others that they went with it.
fn refused(
    outcomes: &mut [Outcome],
    records: &[(usize, i64)],
    failure: &AppendFailure,
    problem: &Problem,
) {
    if failure.records.is_empty() {
        return fail(outcomes, records, problem);
    }
    let with_it = Problem::kafka(ErrorCode::OPERATION_NOT_ATTEMPTED).detail(
        "not stored, since another record of the request that goes to the same partition was refused",
    );
    fail(outcomes, records, &with_it);
    for (at, why) in &failure.records {
        let place = usize::try_from(*at).ok().and_then(|at| records.get(at));
        if let Some(place) = place {
            fail(
                outcomes,
                std::slice::from_ref(place),
                &problem.clone().detail(why.clone()),
            );
        }
    }
}

/// What a client needs to go on after a refusal.
pub(super) fn explain(after: Afterwards, options: &Options, failure: &AppendFailure) -> Problem {
    if options.next.is_some() && failure.error == ErrorCode::OFFSET_OUT_OF_RANGE {
        return Problem::new(
            StatusCode::PRECONDITION_FAILED,
            "next-offset",
            "somebody else has written",
            failure.message.clone(),
        )
        .with("next_offset", after.log_end_offset);
    }
    let problem = Problem::append(failure);
    let (Some(producer), Some((epoch, last))) = (&options.producer, after.producer) else {
        return problem;
    };
    match failure.error {
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER => {
            let expected = match epoch == producer.epoch.0 {
                true => Sequence(last).plus(1).0,
                false => 0,
            };
            problem.with("expected_sequence", expected)
        }
        ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::PRODUCER_FENCED => {
            problem.with("current_epoch", epoch)
        }
        _ => problem,
    }
}
