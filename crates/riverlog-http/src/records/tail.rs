//! The tail of a topic: what is written, as it is written. A reader that is slower than the writers gets the newest, and how many it
//! didn't get.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures_util::stream;
use riverlog_core::metadata::{TopicImage, TopicRef};
use riverlog_node::{FetchCommand, FetchPartition, FetchedPartition, Isolation};
use riverlog_wire::batch::Aborted;
use riverlog_wire::{ErrorCode, LeaderEpoch};
use tokio::sync::OwnedSemaphorePermit;

use super::place::{self, Places};
use super::record;
use super::wanted::Wanted;
use crate::door::{Answer, Call, HttpDoor};
use crate::fetch::EVENTS;
use crate::fetch::read::{Fetched, Window, damaged, open, whole};
use crate::fetch::write::Form;
use crate::problem::Problem;

/// Records of one event.
const CAP: usize = 200;
/// The least between two events: nobody reads faster.
const PACE: Duration = Duration::from_millis(100);
/// Bytes that are read at once, of all partitions.
const BYTES: usize = 4 << 20;

/// How long a partition that nobody leads rests.
const MOVING: Duration = Duration::from_millis(500);

/// Whether a partition is on its way to another leader.
fn is_moving(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::OFFSET_NOT_AVAILABLE
    )
}

struct Tail {
    door: Arc<HttpDoor>,
    topic: Arc<TopicImage>,
    places: Places,
    isolation: Isolation,
    form: Form,
    wanted: Wanted,
    ended: bool,
    /// Counts against the streams that may be open.
    _stream: OwnedSemaphorePermit,
}

pub(super) fn tail(
    call: &Call,
    topic: &Arc<TopicImage>,
    places: Places,
    isolation: Isolation,
    form: Form,
    wanted: Wanted,
) -> Answer {
    let tail = Tail {
        door: Arc::clone(&call.door),
        topic: Arc::clone(topic),
        places,
        isolation,
        form,
        wanted,
        ended: false,
        _stream: call.door.stream()?,
    };
    let stream = stream::unfold((tail, true), |(mut of, first)| async move {
        if of.ended {
            return None;
        }
        if first {
            // The headers go out with the first byte, and the reader knows that it is heard.
            return Some((Ok::<Bytes, Infallible>(": here\n\n".into()), (of, false)));
        }
        let mut out = Vec::new();
        if let Err(problem) = of.event(&mut out).await {
            out.extend_from_slice(b"event: failed\ndata: ");
            // Writing to memory can't fail.
            let _ = serde_json::to_writer(&mut out, &problem);
            out.extend_from_slice(b"\n\n");
            of.ended = true;
        }
        Some((Ok(out.into()), (of, false)))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let kind = HeaderValue::from_static(EVENTS);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

impl Tail {
    /// One event, once something has come; a comment when nothing has for a while.
    async fn event(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let heartbeat = self.door.settings.heartbeat;
        let fetched = self.fetch(heartbeat).await?;
        let mut fresh: Vec<(i32, Fetched)> = Vec::new();
        let (mut seen, mut moving) = (0, false);
        let places: Vec<i32> = self.places.keys().copied().collect();
        for (partition, fetched) in places.into_iter().zip(fetched) {
            moving |= is_moving(fetched.error);
            self.take(partition, fetched, &mut fresh, &mut seen).await?;
        }
        if fresh.is_empty() {
            if moving {
                tokio::time::sleep(MOVING).await;
            }
            out.extend_from_slice(b": nothing new\n\n");
            return Ok(());
        }
        fresh.sort_by_key(|(partition, f)| (f.record.timestamp, *partition, f.record.offset));
        let skipped = seen - fresh.len().min(CAP);
        let shown = fresh.split_off(fresh.len().saturating_sub(CAP));
        let next = place::write(&self.places);
        out.extend_from_slice(
            format!("event: records\nid: {next}\ndata: {{\"records\":[").as_bytes(),
        );
        for (n, (partition, fetched)) in shown.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            record(out, self.form, *partition, fetched);
        }
        out.extend_from_slice(
            format!("],\"next\":\"{next}\",\"skipped\":{skipped}}}\n\n").as_bytes(),
        );
        tokio::time::sleep(PACE).await;
        Ok(())
    }

    async fn fetch(&self, wait: Duration) -> Result<Vec<FetchedPartition>, Problem> {
        let partitions = self.places.iter().map(|(partition, from)| FetchPartition {
            topic: TopicRef::Id(self.topic.id),
            partition: *partition,
            from: *from,
            max_bytes: BYTES,
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
        });
        let command = FetchCommand {
            partitions: partitions.collect(),
            max_wait: wait,
            min_bytes: 1,
            max_bytes: BYTES,
            isolation: self.isolation,
            replica: None,
        };
        self.door.fetch(command).await
    }

    /// Opens what came of a partition. `seen`: records that fit, of which the newest stay.
    async fn take(
        &mut self,
        partition: i32,
        fetched: FetchedPartition,
        fresh: &mut Vec<(i32, Fetched)>,
        seen: &mut usize,
    ) -> Result<(), Problem> {
        let Some(from) = self.places.get(&partition).copied() else {
            return Ok(());
        };
        match fetched.error {
            ErrorCode::NONE => {}
            // Retention was faster: what is gone can't be shown.
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                let found = self.door.place(&self.topic, partition)?;
                let (start, end) = self.door.positions(&found).await?;
                self.places.insert(partition, from.max(start).min(end));
                return Ok(());
            }
            // Its next leader has what comes.
            error if is_moving(error) && self.door.is_in_cluster() => return Ok(()),
            error => return Err(Problem::kafka(error)),
        }
        if fetched.records.len == 0 {
            return Ok(());
        }
        let aborted = Aborted::new(fetched.aborted);
        let bytes = whole(fetched.records).await?;
        let window = Window {
            from,
            until: None,
            limit: usize::MAX,
            max_bytes: usize::MAX,
        };
        let mut records = Vec::new();
        let opened = open(&bytes, aborted, window, &mut records);
        if let Some(error) = opened.damage.filter(|_| records.is_empty()) {
            return Err(damaged(opened.next, &error));
        }
        self.places.insert(partition, opened.next);
        records.retain(|fetched| self.wanted.fits(&fetched.record));
        *seen += records.len();
        let shown = records.split_off(records.len().saturating_sub(CAP));
        fresh.extend(shown.into_iter().map(|fetched| (partition, fetched)));
        Ok(())
    }
}
