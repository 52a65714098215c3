//! Streams: records as lines up to the end, and server-sent events that follow it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures_util::stream;
use riverlog_wire::Offset;
use tokio::sync::OwnedSemaphorePermit;

use super::read::Reader;
use super::write::Form;
use super::{Bounds, EVENTS, MOST_RECORDS, NDJSON};
use crate::door::{Answer, Call};
use crate::problem::Problem;

/// A partition that is being streamed.
struct Streamed {
    reader: Reader,
    bounds: Bounds,
    form: Form,
    /// Records that may still go out.
    left: Option<usize>,
    heartbeat: Duration,
    ended: bool,
    /// Counts against the streams that may be open.
    _stream: OwnedSemaphorePermit,
}

impl Streamed {
    fn new(call: &Call, reader: Reader, bounds: Bounds, form: Form) -> Result<Streamed, Problem> {
        Ok(Streamed {
            left: bounds.limit,
            reader,
            bounds,
            form,
            heartbeat: call.door.settings.heartbeat,
            ended: false,
            _stream: call.door.stream()?,
        })
    }

    fn limit(&self) -> usize {
        self.left.unwrap_or(MOST_RECORDS).min(MOST_RECORDS)
    }

    /// So many records went out; whether it was the last.
    fn took(&mut self, records: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(records);
        }
        self.ended |= self.left == Some(0) || self.reader.is_done();
    }
}

/// Lines up to the end of the partition, or until nothing came for the wait that was asked for.
pub(super) fn lines(call: &Call, reader: Reader, bounds: Bounds, form: Form) -> Answer {
    let streamed = Streamed::new(call, reader, bounds, form)?;
    let stream = stream::unfold(streamed, |mut of| async {
        if of.ended {
            return None;
        }
        let mut out = Vec::new();
        let (limit, max_bytes, wait) = (of.limit(), of.bounds.max_bytes, of.bounds.wait);
        match of.reader.read(limit, max_bytes, wait).await {
            Ok(chunk) if chunk.records.is_empty() => return None,
            Ok(chunk) => {
                for record in &chunk.records {
                    of.form.record(&mut out, record);
                    out.push(b'\n');
                }
                of.took(chunk.records.len());
            }
            Err(problem) => {
                out.extend_from_slice(b"{\"error\":");
                // Writing to memory can't fail.
                let _ = serde_json::to_writer(&mut out, &problem);
                out.extend_from_slice(b"}\n");
                of.ended = true;
            }
        }
        Some((Ok::<Bytes, Infallible>(out.into()), of))
    });
    Ok(answer(NDJSON, Body::from_stream(stream)))
}

/// Events, for ever: one a record, with an id to resume from; a comment when nothing comes; `gap` where retention was faster.
pub(super) fn events(call: &Call, reader: Reader, bounds: Bounds, form: Form) -> Answer {
    let streamed = Streamed::new(call, reader, bounds, form)?;
    let stream = stream::unfold(streamed, |mut of| async {
        if of.ended {
            return None;
        }
        let mut out = Vec::new();
        let (limit, max_bytes) = (of.limit(), of.bounds.max_bytes);
        match of.reader.read(limit, max_bytes, of.heartbeat).await {
            Ok(chunk) if chunk.records.is_empty() => {
                out.extend_from_slice(b": nothing new\n\n");
                of.took(0);
            }
            Ok(chunk) => {
                for record in &chunk.records {
                    let id = (of.reader.partition, record.record.offset);
                    out.extend_from_slice(format!("id: {}:{}\ndata: ", id.0, id.1).as_bytes());
                    of.form.record(&mut out, record);
                    out.extend_from_slice(b"\n\n");
                }
                of.took(chunk.records.len());
            }
            Err(problem) => of.failed(&problem, &mut out).await,
        }
        Some((Ok::<Bytes, Infallible>(out.into()), of))
    });
    Ok(answer(EVENTS, Body::from_stream(stream)))
}

impl Streamed {
    async fn failed(&mut self, problem: &Problem, out: &mut Vec<u8>) {
        let from = self.reader.position;
        let start = self.reader.start().await.filter(|start| *start > from);
        if let Some(start) = start.filter(|_| problem.status().as_u16() == 416) {
            out.extend_from_slice(b"event: gap\ndata: {\"from\":");
            self.form.digits.write(out, from.0);
            out.extend_from_slice(b",\"to\":");
            self.form.digits.write(out, start.0);
            out.extend_from_slice(b"}\n\n");
            self.reader.position = Offset(start.0);
            return;
        }
        out.extend_from_slice(b"event: error\ndata: ");
        // Writing to memory can't fail.
        let _ = serde_json::to_writer(&mut *out, problem);
        out.extend_from_slice(b"\n\n");
        self.ended = true;
    }
}

fn answer(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
