//! `POST /v1/topics/{t}/search`: looks through records on the server. Hits come as they are found, with how far it is between them; whoever
//! asked ends it by closing the connection, and a budget of time ends it in any case.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures_util::stream;
use riverlog_node::Isolation;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::place::{self, Places};
use super::wanted::{Wanted, Where};
use super::{form, record};
use crate::door::{Answer, Call};
use crate::fetch::read::Reader;
use crate::fetch::write::Form;
use crate::position::Position;
use crate::problem::Problem;
use crate::produce::NDJSON;
use crate::schema;

/// Hits unless asked otherwise, and the most.
const HITS: usize = 100;
const MOST_HITS: usize = 10_000;
/// How long it may look unless asked otherwise, and at most.
const BUDGET_MS: u64 = 10_000;
const LONGEST_BUDGET_MS: u64 = 300_000;
/// Records and bytes that are looked at without a break.
const PIECE_RECORDS: usize = 10_000;
const PIECE_BYTES: usize = 1 << 20;
/// How often it says how far it is.
const PROGRESS: Duration = Duration::from_millis(250);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(rename = "where", default)]
    what: Where,
    /// Where to begin; the start.
    from: Option<String>,
    /// Where to end (exclusive); the end as it is now.
    to: Option<String>,
    /// Where an earlier search ended.
    cursor: Option<String>,
    partitions: Option<Vec<i32>>,
    limit: Option<usize>,
    budget_ms: Option<u64>,
}

/// Look through records on the server
///
/// Lines: a hit, or how far it is; the last one says why it ended, and where to go on. Closing the connection ends it.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/search", tag = "records", operation_id = "searchRecords",
    params(("topic" = String, Path, description = "Name"), schema::Written),
    request_body = Asked,
    responses((status = 200, description = "A line each", content((Value = "application/x-ndjson"))))
)]
pub(crate) async fn search(mut call: Call) -> Answer {
    let mut query = std::mem::take(&mut call.query);
    let form = form(&mut query)?;
    query.done()?;
    let asked: Asked = call.json().await?;
    let topic = call.door.topic(call.name())?;
    let isolation = Isolation::ReadCommitted;
    let partitions = match asked.partitions {
        None => place::partitions(None, &topic)?,
        Some(partitions) => {
            for partition in &partitions {
                place::check(*partition, &topic)?;
            }
            partitions
        }
    };
    let bounds = place::bounds(&call.door, &topic, &partitions, isolation).await?;
    let position = |text: Option<&str>, or: &str| Position::parse(text.unwrap_or(or));
    let to = position(asked.to.as_deref(), "end")?;
    let to = place::at(&call.door, &topic, &bounds, isolation, &to).await?;
    let from = match asked.cursor.as_deref() {
        Some(cursor) => place::read(cursor, topic.partitions.len())?,
        None => {
            let from = position(asked.from.as_deref(), "start")?;
            place::at(&call.door, &topic, &bounds, isolation, &from).await?
        }
    };
    let mut readers = VecDeque::new();
    let mut places = Places::new();
    let mut of = 0;
    for (partition, until) in to {
        let start = bounds.get(&partition).map_or(until, |b| b.0);
        let at = from.get(&partition).map_or(start, |at| (*at).max(start));
        places.insert(partition, at);
        if at < until {
            of += until - at;
            let until = Some(until);
            readers.push_back(Reader::new(
                &call.door, &topic, partition, at, until, isolation,
            ));
        }
    }
    let now = Instant::now();
    let budget = asked.budget_ms.unwrap_or(BUDGET_MS).min(LONGEST_BUDGET_MS);
    let search = Search {
        readers,
        places,
        wanted: Wanted::new(asked.what),
        form,
        left: asked.limit.unwrap_or(HITS).clamp(1, MOST_HITS),
        begun: now,
        deadline: now + Duration::from_millis(budget),
        told: now,
        scanned: 0,
        done: 0,
        of,
        ended: false,
        _stream: call.door.stream()?,
    };
    let stream = stream::unfold(search, |mut search| async move {
        if search.ended {
            return None;
        }
        let mut out = Vec::new();
        while out.is_empty() {
            if let Err(problem) = search.step(&mut out).await {
                out.extend_from_slice(b"{\"error\":");
                // Writing to memory can't fail.
                let _ = serde_json::to_writer(&mut out, &problem);
                out.extend_from_slice(b"}\n");
                search.ended = true;
            }
            // The node answers at once what it has in memory: others get their turn.
            tokio::task::yield_now().await;
        }
        Some((Ok::<Bytes, Infallible>(out.into()), search))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let kind = HeaderValue::from_static(NDJSON);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

struct Search {
    /// Those that aren't done, in turn.
    readers: VecDeque<Reader>,
    places: Places,
    wanted: Wanted,
    form: Form,
    /// Hits that may still come.
    left: usize,
    begun: Instant,
    deadline: Instant,
    told: Instant,
    scanned: u64,
    /// Offsets that were looked at, of those that there are.
    done: i64,
    of: i64,
    ended: bool,
    _stream: OwnedSemaphorePermit,
}

impl Search {
    /// Looks at one piece of one partition.
    async fn step(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let Some(mut reader) = self.readers.pop_front() else {
            self.end(out, "complete");
            return Ok(());
        };
        if self.left == 0 || Instant::now() >= self.deadline {
            let why = if self.left == 0 { "limit" } else { "budget" };
            self.end(out, why);
            return Ok(());
        }
        let from = reader.position;
        let chunk = reader
            .read(PIECE_RECORDS, PIECE_BYTES, Duration::ZERO)
            .await?;
        let mut at = reader.position;
        for fetched in &chunk.records {
            self.scanned += 1;
            if !self.wanted.fits(&fetched.record) {
                continue;
            }
            out.extend_from_slice(b"{\"hit\":");
            record(out, self.form, reader.partition, fetched);
            out.extend_from_slice(b"}\n");
            self.left -= 1;
            if self.left == 0 {
                at = fetched.record.offset.plus(1);
                break;
            }
        }
        self.done += at - from;
        self.places.insert(reader.partition, at);
        let stuck = at == from;
        if self.left > 0 && !reader.is_done() && !stuck {
            self.readers.push_back(reader);
        } else if self.left == 0 {
            self.readers.push_front(reader);
        }
        if self.told.elapsed() >= PROGRESS {
            self.told = Instant::now();
            let progress = self.progress();
            out.extend_from_slice(format!("{{\"progress\":{{{progress}}}}}\n").as_bytes());
        }
        Ok(())
    }

    fn progress(&self) -> String {
        let spent = self.begun.elapsed().as_secs_f64();
        let left = (self.of - self.done).max(0) as f64;
        let eta = match self.done {
            0 => "null".to_owned(),
            done => format!("{:.0}", spent / done as f64 * left * 1e3),
        };
        format!(
            "\"scanned\":{},\"done\":{},\"of\":{},\"eta_ms\":{eta}",
            self.scanned, self.done, self.of
        )
    }

    fn end(&mut self, out: &mut Vec<u8>, why: &str) {
        self.ended = true;
        let (progress, cursor) = (self.progress(), place::write(&self.places));
        out.extend_from_slice(
            format!("{{\"end\":{{\"why\":\"{why}\",{progress},\"cursor\":\"{cursor}\"}}}}\n")
                .as_bytes(),
        );
    }
}
