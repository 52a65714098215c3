//! A stream of records, one a line, answered as they are stored, one line each.
//!
//! Nothing is read ahead of what is stored but what a group takes: a slow disk slows the sender down instead of filling memory.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use riverlog_core::metadata::TopicImage;
use tokio::sync::OwnedSemaphorePermit;

use super::json::RecordIn;
use super::publish::{Outcome, publish};
use super::{NDJSON, Options};
use crate::door::{Answer, Call, HttpDoor};
use crate::problem::Problem;

/// Lines and bytes that are stored together.
const GROUP_LINES: usize = 1_000;
const GROUP_BYTES: usize = 1 << 20;

struct Lines {
    door: Arc<HttpDoor>,
    topic: Arc<TopicImage>,
    options: Options,
    body: Body,
    /// What came and isn't stored yet, and the memory that it counts for.
    buffer: BytesMut,
    held: Option<OwnedSemaphorePermit>,
    /// Nothing more comes.
    ended: bool,
    /// Counts against the streams that may be open.
    _stream: OwnedSemaphorePermit,
}

pub(super) fn produce(call: Call, options: Options) -> Answer {
    let topic = call.door.topic(call.name())?;
    if options.producer.is_some() || options.key.is_some() || options.next.is_some() {
        return Err(Problem::unprocessable(
            "sequence-of-a-stream",
            "a stream of lines has no place for a sequence, a key or a condition: each request with one is a batch",
        )
        .hint("send application/json"));
    }
    let permit = call.door.stream()?;
    let lines = Lines {
        door: call.door,
        topic,
        options,
        body: call.body,
        buffer: BytesMut::new(),
        held: None,
        ended: false,
        _stream: permit,
    };
    let stream = stream::unfold(Some(lines), |lines| async {
        let mut lines = lines?;
        match lines.next().await {
            Ok(None) => None,
            Ok(Some(bytes)) => Some((Ok::<Bytes, std::convert::Infallible>(bytes), Some(lines))),
            Err(problem) => {
                let mut out = Vec::new();
                Outcome::Failed(problem).write(&mut out, lines.options.digits);
                out.push(b'\n');
                Some((Ok(out.into()), None))
            }
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    // Each line has its own outcome, and the first goes out before the last has come.
    *response.status_mut() = StatusCode::MULTI_STATUS;
    let kind = HeaderValue::from_static(NDJSON);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

impl HttpDoor {
    /// One of the streams that may be open at once.
    pub(crate) fn stream(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.streams
            .clone()
            .try_acquire_owned()
            .map_err(|_| Problem::busy("as many streams are open as this listener takes"))
    }
}

impl Lines {
    /// The results of the next group of lines; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(group) = self.take_group() {
                let records = group.split(|b| *b == b'\n').filter(|line| !is_blank(line));
                let embed = self.options.embed;
                let records = records.map(|line| {
                    let text = std::str::from_utf8(line)
                        .map_err(|e| Problem::bad_request(format!("the line isn't UTF-8: {e}")))?;
                    let record: RecordIn<'_> = serde_json::from_str(text).map_err(|e| {
                        Problem::unprocessable("bad-line", format!("the line isn't a record: {e}"))
                    })?;
                    record.read(embed)
                });
                let outcomes = publish(&self.door, &self.topic, records, &self.options).await?;
                self.give_back(group.len());
                let mut out = Vec::with_capacity(outcomes.len() * 80);
                for outcome in outcomes {
                    outcome.write(&mut out, self.options.digits);
                    out.push(b'\n');
                }
                if !out.is_empty() {
                    return Ok(Some(out.into()));
                }
                continue;
            }
            if self.ended {
                return Ok(None);
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), Problem> {
        let limit = self.door.settings.max_body_bytes;
        if self.buffer.len() > limit {
            return Err(Problem::too_large(format!(
                "a line has more than {limit} bytes"
            )));
        }
        match self.door.next_piece(&mut self.body).await? {
            None => self.ended = true,
            Some(piece) => {
                let room = self.door.hold(piece.len())?;
                match &mut self.held {
                    Some(held) => held.merge(room),
                    None => self.held = Some(room),
                }
                self.buffer.extend_from_slice(&piece);
            }
        }
        Ok(())
    }

    fn give_back(&mut self, bytes: usize) {
        if let Some(held) = &mut self.held {
            drop(held.split(bytes));
        }
    }

    /// Whole lines, as many as are stored together; the last may have no end.
    fn take_group(&mut self) -> Option<Bytes> {
        let window = self
            .buffer
            .get(..self.buffer.len().min(GROUP_BYTES))
            .unwrap_or_default();
        let mut ends = window.iter().enumerate().filter(|(_, b)| **b == b'\n');
        let last = ends.by_ref().take(GROUP_LINES).last().map(|(at, _)| at + 1);
        // A line that is larger than a group's bytes comes alone.
        let whole = || {
            self.buffer
                .iter()
                .position(|b| *b == b'\n')
                .map(|at| at + 1)
        };
        let len = match last.or_else(whole) {
            Some(len) => len,
            None if self.ended && !self.buffer.is_empty() => self.buffer.len(),
            None => return None,
        };
        Some(self.buffer.split_to(len).freeze())
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}
