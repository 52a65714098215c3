//! `POST /v1/topics/{t}/records` and `POST /v1/topics/{t}/partitions/{p}/records`: records into a topic.

mod json;
mod lines;
mod publish;
mod raw;

use axum::http::StatusCode;
use riverlog_wire::{ProducerEpoch, ProducerId, Sequence};

use crate::body::wants_json;
use crate::door::{Answer, Call};
use crate::int64::Digits;
use crate::problem::Problem;
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

pub(crate) async fn produce(mut call: Call) -> Answer {
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
    };
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
    text.parse::<i32>().ok().filter(|p| *p >= 0).ok_or_else(|| {
        Problem::bad_request(format!("{text:?} isn't the number of a partition"))
    })
}

fn producer(call: &Call) -> Result<Option<Producer>, Problem> {
    let id = call.number_header::<i64>("riverlog-producer-id")?;
    let epoch = call.number_header::<i16>("riverlog-producer-epoch")?;
    let sequence = call.number_header::<i32>("riverlog-sequence")?;
    let transactional_id = call.header("riverlog-transactional-id")?;
    let transactional_id = transactional_id.map(crate::path::decode).transpose()?;
    match (id, epoch, sequence) {
        (None, None, None) if transactional_id.is_none() => Ok(None),
        (Some(id), Some(epoch), Some(sequence)) if id >= 0 && epoch >= 0 && sequence >= 0 => {
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
