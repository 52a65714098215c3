//! `POST /v1/topics/{t}/records` and `POST /v1/topics/{t}/partitions/{p}/records`: records into a topic.

mod json;
mod keyed;
mod lines;
mod publish;
mod raw;

use axum::http::StatusCode;
use riverlog_wire::{Offset, ProducerEpoch, ProducerId, Sequence};

pub(crate) use keyed::Taken;
pub(crate) use publish::How;

use crate::body::wants_json;
use crate::door::{Answer, Call};
use crate::int64::Digits;
use crate::problem::Problem;
use crate::schema;
use crate::value::Embed;

pub(crate) const RECORD_BATCH: &str = "application/vnd.kafka.recordbatch";
pub(crate) const NDJSON: &str = "application/x-ndjson";
pub(crate) const OCTETS: &str = "application/octet-stream";

/// How to publish what a request brings.
#[derive(Clone, Debug)]
struct Options {
    embed: Embed,
    digits: Digits,
    /// −1 all in-sync replicas, 1 the leader, 0 nobody.
    acks: i16,
    /// Of the path: all records go there.
    partition: Option<i32>,
    producer: Option<Producer>,
    /// The key that the producer is made of, once the body is there.
    key: Option<keyed::Key>,
    /// Only if the partition's next record gets this offset.
    next: Option<Offset>,
}

impl Options {
    /// Makes the producer that an idempotency key stands for.
    fn take_body(&mut self, call: &Call, body: &[u8]) -> Result<(), Problem> {
        if let Some(key) = self.key {
            let content = keyed::content(&call.door, &call.headers, self, body);
            self.producer = Some(key.producer(&call.door, content)?);
        }
        Ok(())
    }
}

/// An idempotent producer, and where its count stands.
#[derive(Clone, Debug)]
struct Producer {
    id: ProducerId,
    epoch: ProducerEpoch,
    /// Of the request's first record.
    sequence: Sequence,
    /// Whose transaction the records are part of.
    transactional_id: Option<String>,
}

/// The words for acks.
const ACKS: &[(&str, i16)] = &[
    ("all", -1),
    ("-1", -1),
    ("leader", 1),
    ("1", 1),
    ("none", 0),
    ("0", 0),
];

/// Publish records
#[utoipa::path(
    post, path = "/v1/topics/{topic}/records", tag = "records", operation_id = "publish",
    params(("topic" = String, Path, description = "Name"), schema::How, schema::Once),
    request_body(content((schema::Records = "application/json"), (String = "application/x-ndjson"), (schema::Octets = "application/octet-stream"))),
    responses((status = 200, description = "All are stored", body = schema::RecordResults), (status = 202, description = "Nobody was waited for (acks none)", body = schema::RecordResults), (status = 207, description = "Some are stored; of a stream of lines: each line says", content((schema::RecordResults = "application/json"), (String = "application/x-ndjson"))))
)]
pub(crate) async fn to_topic(call: Call) -> Answer {
    produce(call).await
}

/// Publish records to one partition
#[utoipa::path(
    post, path = "/v1/topics/{topic}/partitions/{partition}/records", tag = "records", operation_id = "publishToPartition",
    params(("topic" = String, Path, description = "Name"), ("partition" = i32, Path, description = "Number", minimum = 0), schema::How, schema::Once),
    request_body(content((schema::Records = "application/json"), (String = "application/x-ndjson"), (schema::Octets = "application/octet-stream"), (schema::Octets = "application/vnd.kafka.recordbatch"))),
    responses((status = 200, description = "All are stored", body = schema::PartitionResults), (status = 202, description = "Nobody was waited for (acks none)", body = schema::PartitionResults), (status = 207, description = "Some are stored; of a stream of lines: each line says", content((schema::PartitionResults = "application/json"), (String = "application/x-ndjson"))))
)]
pub(crate) async fn to_partition(call: Call) -> Answer {
    produce(call).await
}

async fn produce(mut call: Call) -> Answer {
    let mut query = std::mem::take(&mut call.query);
    let embed = query.choice("embed", Embed::CHOICES)?.unwrap_or_default();
    let digits = query.choice("int64", Digits::CHOICES)?.unwrap_or_default();
    let acks = query.choice("acks", ACKS)?.unwrap_or(-1);
    query.done()?;
    let options = Options {
        embed,
        digits,
        acks,
        partition: match call.target.segments.get(3) {
            Some(text) => Some(partition_number(text)?),
            None => None,
        },
        producer: producer(&call)?,
        key: keyed::Key::of(&call)?,
        next: call
            .number_header::<i64>("if-riverlog-next-offset")?
            .map(Offset),
    };
    let ways = [
        options.producer.is_some(),
        options.key.is_some(),
        options.next.is_some(),
    ];
    if ways.iter().filter(|way| **way).count() > 1 {
        return Err(Problem::unprocessable(
            "two-ways-to-be-exact",
            "a sequence, an Idempotency-Key and If-Riverlog-Next-Offset are three ways to store a request once; use one",
        ));
    }
    match call.content_type() {
        Some("application/json") => json::produce(call, options).await,
        Some(NDJSON | "application/ndjson" | "application/jsonl") => lines::produce(call, options),
        Some(OCTETS) => raw::value(call, options).await,
        Some(RECORD_BATCH) => raw::batch(call, options).await,
        other => Err(wants_json(other).hint(format!(
            "records come as application/json, {NDJSON}, {OCTETS} (one value) or {RECORD_BATCH}"
        ))),
    }
}

/// The number of a partition in a path.
pub(crate) fn partition_number(text: &str) -> Result<i32, Problem> {
    text.parse::<i32>()
        .ok()
        .filter(|p| *p >= 0)
        .ok_or_else(|| Problem::bad_request(format!("{text:?} isn't the number of a partition")))
}

fn producer(call: &Call) -> Result<Option<Producer>, Problem> {
    let id = call.number_header::<i64>("riverlog-producer-id")?;
    let epoch = call.number_header::<i16>("riverlog-producer-epoch")?;
    let sequence = call.number_header::<i32>("riverlog-sequence")?;
    let transactional_id = call.header("riverlog-transactional-id")?;
    let transactional_id = transactional_id.map(crate::path::decode).transpose()?;
    // A record batch names its producer itself.
    let may_be_alone = transactional_id.is_none() || call.content_type() == Some(RECORD_BATCH);
    match (id, epoch, sequence) {
        (None, None, None) if may_be_alone => Ok(None),
        (Some(id), Some(epoch), Some(sequence))
            if (0..ProducerId::KEYED.0).contains(&id) && epoch >= 0 && sequence >= 0 =>
        {
            Ok(Some(Producer {
                id: ProducerId(id),
                epoch: ProducerEpoch(epoch),
                sequence: Sequence(sequence),
                transactional_id,
            }))
        }
        _ => Err(Problem::bad_request(
            "the headers Riverlog-Producer-Id, Riverlog-Producer-Epoch and Riverlog-Sequence come together, each 0 or more; Riverlog-Transactional-Id needs them too",
        )),
    }
}

/// 200, or 202 when nobody was waited for.
fn ok(acks: i16) -> StatusCode {
    match acks {
        0 => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    }
}
