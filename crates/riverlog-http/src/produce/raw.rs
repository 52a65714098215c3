//! A record without JSON: one value as the body, or a record batch as Kafka's clients send it.

use std::borrow::Cow;

use axum::http::HeaderMap;
use percent_encoding::percent_decode;
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::{BatchError, ProduceError, validate_produce};

use super::json::answer;
use super::publish::{Header, How, Record, explain, publish, send};
use super::{Options, ok};
use crate::door::{Answer, Call};
use crate::problem::Problem;

/// Of a record's own headers.
const HEADER: &str = "riverlog-header-";

pub(super) async fn value(mut call: Call, mut options: Options) -> Answer {
    let topic = call.door.topic(call.name())?;
    let key = call.headers.get("riverlog-key").map(percent);
    let tombstone = call.header("riverlog-tombstone")? == Some("true");
    let partition = call.number_header::<i32>("riverlog-partition")?;
    let timestamp = call.number_header::<i64>("riverlog-timestamp")?;
    let headers = record_headers(&call.headers);
    let held = call.whole().await?;
    if tombstone && !held.bytes.is_empty() {
        return Err(Problem::unprocessable(
            "tombstone-with-value",
            "the header Riverlog-Tombstone says that there is no value, and the body has bytes",
        ));
    }
    options.take_body(&call, &held.bytes)?;
    let record = Record {
        key,
        value: (!tombstone).then_some(Cow::Borrowed(&held.bytes[..])),
        headers,
        partition,
        timestamp,
    };
    let records = std::iter::once(Ok(record));
    let outcomes = publish(&call.door, &topic, records, &options).await?;
    answer(&call, &outcomes, &options)
}

/// Header values are printable ASCII: any other byte, and the percent sign, comes percent-encoded.
fn percent(value: &axum::http::HeaderValue) -> Cow<'static, [u8]> {
    Cow::Owned(percent_decode(value.as_bytes()).collect())
}

/// HTTP doesn't keep the case of names: they come in small letters.
fn record_headers(headers: &HeaderMap) -> Vec<Header<'static>> {
    headers
        .iter()
        .filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix(HEADER)?;
            Some((Cow::Owned(name.as_bytes().to_vec()), Some(percent(value))))
        })
        .collect()
}

pub(super) async fn batch(mut call: Call, options: Options) -> Answer {
    let topic = call.door.topic(call.name())?;
    let Some(index) = options.partition else {
        return Err(Problem::unprocessable(
            "partition-missing",
            "a record batch is of one partition, and the path names none",
        )
        .hint("send it to /v1/topics/{topic}/partitions/{partition}/records"));
    };
    let place = call.door.place(&topic, index)?;
    if options.producer.is_some() || options.key.is_some() {
        return Err(Problem::unprocessable(
            "batch-has-its-own",
            "a record batch holds its producer id, epoch and sequence itself; leave the headers out",
        ));
    }
    let transactional_id = match call.header("riverlog-transactional-id")? {
        Some(id) => Some(crate::path::decode(id)?),
        None => None,
    };
    let held = call.whole().await?;
    let header = validate_produce(&held.bytes)
        .map_err(|error| {
            let code = match error {
                ProduceError::Batch(BatchError::Crc { .. }) => ErrorCode::CORRUPT_MESSAGE,
                _ => ErrorCode::INVALID_RECORD,
            };
            Problem::kafka(code).detail(error.to_string())
        })?
        .header;
    if header.attributes.is_transactional() != transactional_id.is_some() {
        return Err(Problem::unprocessable(
            "transaction-mismatch",
            "a batch of a transaction comes with the header Riverlog-Transactional-Id, and no other does",
        ));
    }
    let bytes = held.bytes.to_vec();
    let how = How {
        acks: options.acks,
        transactional_id: transactional_id.as_deref(),
        next: options.next,
    };
    let answer = match send(&call.door, &place, bytes, how, &options).await? {
        Ok(answer) => answer,
        Err((failure, after)) => return Err(explain(after, &options, &failure)),
    };
    let mut out = format!("{{\"partition\":{index},\"base_offset\":").into_bytes();
    match answer.base_offset.0 {
        base if base >= 0 => options.digits.write(&mut out, base),
        _ => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(
        format!(",\"records\":{},\"log_append_time\":", header.record_count).as_bytes(),
    );
    match answer.log_append_time_ms {
        ms if ms >= 0 => options.digits.write(&mut out, ms),
        _ => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(format!(",\"duplicate\":{}}}", answer.duplicate).as_bytes());
    Ok(call.answer(ok(options.acks), out))
}
