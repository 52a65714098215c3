//! Records without JSON: stored batches as they are, or one value.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use riverlog_wire::Offset;

use super::read::{Reader, whole};
use super::{Bounds, OCTETS, RECORD_BATCH};
use crate::door::Answer;

/// What a header value can't hold as it is, and the sign that says so.
const HEADER: &AsciiSet = &CONTROLS.add(b'%').add(b' ').add(b'"');

/// Whole batches: the first may begin before the offset that was asked for, and markers are among them.
pub(super) async fn batches(reader: Reader, bounds: &Bounds) -> Answer {
    let fetched = reader.fetch(bounds.max_bytes, bounds.wait).await?;
    let next = fetched.records.next;
    let positions = [
        ("riverlog-next-offset", next),
        ("riverlog-high-watermark", fetched.high_watermark),
        ("riverlog-last-stable-offset", fetched.last_stable_offset),
        ("riverlog-log-start-offset", fetched.log_start_offset),
    ];
    let bytes = whole(fetched.records).await?;
    let mut response = Response::new(Body::from(bytes));
    let kind = HeaderValue::from_static(RECORD_BATCH);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    put(&mut response, &positions);
    Ok(response)
}

/// The value of the first record; 204 when there is none.
pub(super) async fn value(mut reader: Reader, bounds: &Bounds) -> Answer {
    let chunk = reader.read(1, bounds.max_bytes, bounds.wait).await?;
    let mut response = Response::new(Body::empty());
    put(&mut response, &[("riverlog-next-offset", chunk.next)]);
    let Some(fetched) = chunk.records.into_iter().next() else {
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    let record = fetched.record;
    put(
        &mut response,
        &[
            ("riverlog-offset", record.offset),
            ("riverlog-timestamp", Offset(record.timestamp)),
        ],
    );
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OCTETS));
    let encoded = |bytes: &[u8]| HeaderValue::from_str(&percent_encode(bytes, HEADER).to_string());
    if let Some(Ok(key)) = record.key.as_deref().map(encoded) {
        headers.insert("riverlog-key", key);
    }
    for (name, value) in record.headers.refs().iter() {
        let name = [b"riverlog-header-", name].concat();
        // A name that HTTP can't hold is left out here; JSON has it.
        let (Ok(name), Some(Ok(value))) = (HeaderName::from_bytes(&name), value.map(encoded))
        else {
            continue;
        };
        headers.append(name, value);
    }
    match record.value {
        Some(value) => *response.body_mut() = Body::from(value),
        None => {
            headers.insert("riverlog-tombstone", HeaderValue::from_static("true"));
        }
    }
    Ok(response)
}

fn put(response: &mut Response<Body>, positions: &[(&'static str, Offset)]) {
    for (name, position) in positions {
        let value = HeaderValue::from(position.0);
        response.headers_mut().insert(*name, value);
    }
}
