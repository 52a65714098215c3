//! `GET /v1/topics/{t}/partitions/{p}`: what is in a partition, or what the partition is like.

pub(crate) mod read;
mod stream;
mod wire;
pub(crate) mod write;

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use riverlog_node::Isolation;
use riverlog_wire::Offset;

use crate::body::accepts;
use crate::door::{Answer, Call};
use crate::int64::Digits;
use crate::nodes::Place;
use crate::path::encode;
use crate::position::{Position, resolve};
use crate::problem::Problem;
use crate::produce::{NDJSON, OCTETS, RECORD_BATCH, partition_number};
use crate::schema;
use crate::topics::partition_view;
use crate::value::Embed;

use read::Reader;
use write::Form;

/// Records of one answer unless asked otherwise, and the most.
pub(crate) const RECORDS: usize = 500;
pub(crate) const MOST_RECORDS: usize = 10_000;
/// Bytes of one answer unless asked otherwise, and the most.
pub(crate) const BYTES: usize = 1 << 20;
pub(crate) const MOST_BYTES: usize = 16 << 20;
/// The longest wait for records.
pub(crate) const LONGEST_WAIT_MS: u64 = 30_000;

pub(crate) const EVENTS: &str = "text/event-stream";

/// The types that records are given in, the first for whoever takes any.
const TYPES: &[&str] = &["application/json", NDJSON, EVENTS, RECORD_BATCH, OCTETS];

/// What to read, and how much.
#[derive(Debug)]
struct Bounds {
    limit: Option<usize>,
    max_bytes: usize,
    wait: Duration,
}

pub(crate) const ISOLATION: &[(&str, Isolation)] = &[
    ("read_committed", Isolation::ReadCommitted),
    ("read_uncommitted", Isolation::ReadUncommitted),
];

/// Read records, or describe the partition
#[utoipa::path(
    get, path = "/v1/topics/{topic}/partitions/{partition}", tag = "records", operation_id = "read",
    params(("topic" = String, Path, description = "Name"), ("partition" = i32, Path, description = "Number", minimum = 0), schema::Read),
    responses((status = 200, description = "Records; the form is that of the header Accept", content((schema::RecordsOut = "application/json"), (String = "application/x-ndjson"), (String = "text/event-stream"), (schema::Octets = "application/vnd.kafka.recordbatch"), (schema::Octets = "application/octet-stream"))), (status = 204, description = "No record (one raw value)"))
)]
pub(crate) async fn fetch(mut call: Call) -> Answer {
    let topic = call.door.topic(call.name())?;
    let index = call.target.segments.get(3).map_or("", String::as_str);
    let index = partition_number(index)?;
    let partition = call.door.partition(&topic, index).map(Place::Here)?;
    let mut query = std::mem::take(&mut call.query);
    let resume = resume(&call, index)?;
    let offset = query.text("offset");
    if offset.is_none() && resume.is_none() {
        query.done()?;
        let positions = match &partition {
            Place::Here(here) => Some(call.door.positions_here(here)),
            Place::There { .. } => None,
        };
        let view = partition_view(&topic, usize::try_from(index).unwrap_or(0), positions);
        return Ok(call.answer_json(StatusCode::OK, &view));
    }
    let until = query.text("until");
    let isolation = query.choice("isolation", ISOLATION)?;
    let isolation = isolation.unwrap_or(Isolation::ReadCommitted);
    let bounds = Bounds {
        limit: query.number("limit", 1..=usize::MAX)?,
        max_bytes: query.number("max_bytes", 1..=MOST_BYTES)?.unwrap_or(BYTES),
        wait: Duration::from_millis(query.number("wait_ms", 0..=LONGEST_WAIT_MS)?.unwrap_or(0)),
    };
    let form = Form {
        embed: query.choice("embed", Embed::CHOICES)?.unwrap_or_default(),
        digits: query.choice("int64", Digits::CHOICES)?.unwrap_or_default(),
    };
    query.done()?;
    let accept = call.header(header::ACCEPT.as_str())?.unwrap_or("*/*");
    let Some(kind) = TYPES.iter().find(|kind| accepts(accept, kind)) else {
        return Err(Problem::not_acceptable(format!(
            "the header Accept is {accept:?}; records come as {}",
            TYPES.join(", ")
        )));
    };
    let at = match (resume, offset) {
        (Some(resume), _) => resume,
        (None, Some(text)) => {
            let position = Position::parse(&text)?;
            resolve(&call.door, &topic, &partition, isolation, &position).await?
        }
        (None, None) => Offset::ZERO,
    };
    let until = match until {
        None => None,
        Some(text) => {
            let position = Position::parse(&text)?;
            Some(resolve(&call.door, &topic, &partition, isolation, &position).await?)
        }
    };
    let reader = Reader::new(&call.door, &topic, index, at, until, isolation);
    match *kind {
        NDJSON => stream::lines(&call, reader, bounds, form),
        EVENTS => stream::events(&call, reader, bounds, form),
        RECORD_BATCH => wire::batches(reader, &bounds).await,
        OCTETS => wire::value(reader, &bounds).await,
        _ => json(call, reader, &bounds, form).await,
    }
}

/// Where a stream of events goes on: the id of the last one that the client has is `{partition}:{offset}`.
fn resume(call: &Call, partition: i32) -> Result<Option<Offset>, Problem> {
    let Some(id) = call.header("last-event-id")? else {
        return Ok(None);
    };
    let of_partition = id
        .split_once(':')
        .filter(|(p, _)| p.parse() == Ok(partition));
    let offset = of_partition.and_then(|(_, offset)| offset.parse::<i64>().ok());
    match offset.filter(|offset| *offset >= 0) {
        Some(offset) => Ok(Some(Offset(offset).plus(1))),
        None => Err(Problem::bad_request(format!(
            "the header Last-Event-ID is {id:?}; an event of this partition has {partition}:OFFSET"
        ))),
    }
}

async fn json(call: Call, mut reader: Reader, bounds: &Bounds, form: Form) -> Answer {
    let limit = bounds.limit.unwrap_or(RECORDS).min(MOST_RECORDS);
    let chunk = reader.read(limit, bounds.max_bytes, bounds.wait).await?;
    let mut out = b"{\"records\":[".to_vec();
    for (n, record) in chunk.records.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        form.record(&mut out, record);
    }
    out.push(b']');
    for (name, value) in [
        ("next_offset", chunk.next),
        ("high_watermark", chunk.high_watermark),
        ("last_stable_offset", chunk.last_stable_offset),
        ("log_start_offset", chunk.log_start_offset),
    ] {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        form.digits.write(&mut out, value.0);
    }
    out.push(b'}');
    let mut response = call.answer(StatusCode::OK, out);
    let next = format!(
        "</v1/topics/{}/partitions/{}?offset={}>; rel=\"next\"",
        encode(&reader.topic.name),
        reader.partition,
        chunk.next
    );
    if let Ok(next) = HeaderValue::from_str(&next) {
        response.headers_mut().insert(header::LINK, next);
    }
    Ok(response)
}
