//! Answers to other doors: by what is here, or not at all.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use riverlog_core::groups::TopicPartition;
use riverlog_core::metadata::TopicRef;
use riverlog_node::{
    AppendCommand, AppendFailure, FetchCommand, FetchPartition, Isolation, OffsetQuery,
    PartitionRef,
};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerId, TopicId};
use serde::Serialize;

use super::said::{
    APPEND, Afterwards, AppendAsk, AppendTold, At, COMMITTED, CommittedAsk, CommittedTold, FETCH,
    FetchAsk, FetchPart, FetchTold, FetchedPart, GROUPS, OFFSET, OffsetAsk, OffsetTold, PARTITIONS,
    PartitionsAsk, PartitionsTold, Positions, body, read,
};
use crate::door::HttpDoor;
use crate::fetch::read::whole;
use crate::groups::places_of;
use crate::groups::view::groups_here;
use crate::problem::Problem;

/// The longest that a fetch of another node waits here, whatever it says.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl HttpDoor {
    /// Answers a request that another node's door has sent: one of a client below `/v1` that is passed on, or a question of its own. It
    /// is never passed on again.
    pub async fn answer_node(self: &Arc<Self>, request: Request<Body>) -> Response<Body> {
        if !request.uri().path().starts_with("/node/") {
            return self.respond(request, true).await;
        }
        match self.answer_question(request).await {
            Ok(response) => response,
            Err(problem) => problem.into_response(),
        }
    }

    async fn answer_question(&self, request: Request<Body>) -> Result<Response<Body>, Problem> {
        let (parts, asked) = request.into_parts();
        match parts.uri.path() {
            FETCH => {
                let (ask, _) = read::<FetchAsk>(asked).await.map_err(strange)?;
                self.fetch_for(ask).await
            }
            APPEND => {
                let (ask, batch) = read::<AppendAsk>(asked).await.map_err(strange)?;
                self.append_for(ask, &batch).await
            }
            OFFSET => {
                let (ask, _) = read::<OffsetAsk>(asked).await.map_err(strange)?;
                self.offset_for(ask).await
            }
            PARTITIONS => {
                let (ask, _) = read::<PartitionsAsk>(asked).await.map_err(strange)?;
                let partitions = ask.partitions.iter();
                let partitions =
                    partitions.map(|at| Some(self.positions_here(&self.here(at).ok()?)));
                let partitions = partitions.collect();
                Ok(told(&PartitionsTold { partitions }, &[]))
            }
            COMMITTED => {
                let (ask, _) = read::<CommittedAsk>(asked).await.map_err(strange)?;
                self.committed_for(ask).await
            }
            GROUPS => Ok(told(&groups_here(self).await?, &[])),
            other => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "no-such-call",
                "there is no such call",
                format!("{other} names nothing"),
            )),
        }
    }

    fn here(&self, at: &At) -> Result<PartitionRef, ErrorCode> {
        let topic = TopicId::parse(&at.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        self.node.partition(&TopicRef::Id(topic), at.partition)
    }

    pub(crate) fn positions_here(&self, partition: &PartitionRef) -> Positions {
        let described = self.node.describe_partition(partition);
        Positions {
            log_start_offset: described.log_start_offset.0,
            last_stable_offset: described.last_stable_offset.0,
            high_watermark: described.high_watermark.0,
            log_end_offset: described.log_end_offset.0,
            size_bytes: described.size_bytes,
            failed: described.failed,
        }
    }

    async fn fetch_for(&self, ask: FetchAsk) -> Result<Response<Body>, Problem> {
        let partition = |part: &FetchPart| {
            Some(FetchPartition {
                topic: TopicRef::Id(TopicId::parse(&part.at.topic)?),
                partition: part.at.partition,
                from: Offset(part.from),
                max_bytes: part.max_bytes,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            })
        };
        let partitions: Option<Vec<_>> = ask.partitions.iter().map(partition).collect();
        let command = FetchCommand {
            partitions: partitions.ok_or_else(|| strange("a topic has no id".to_owned()))?,
            max_wait: Duration::from_millis(ask.wait_ms).min(LONGEST_WAIT),
            min_bytes: 1,
            max_bytes: ask.max_bytes,
            isolation: isolation(ask.committed_only),
            replica: None,
        };
        let answer = self
            .ask(|node, now, reply| node.fetch(command, now, reply))
            .await?;
        let (mut parts, mut records) = (Vec::new(), Vec::new());
        for fetched in answer.partitions {
            let next = fetched.records.next.0;
            let bytes = whole(fetched.records).await?;
            parts.push(FetchedPart {
                error: fetched.error.0,
                high_watermark: fetched.high_watermark.0,
                last_stable_offset: fetched.last_stable_offset.0,
                log_start_offset: fetched.log_start_offset.0,
                next,
                aborted: fetched.aborted.iter().map(|(id, at)| (*id, at.0)).collect(),
                len: bytes.len(),
            });
            records.push(bytes);
        }
        Ok(told(&FetchTold { parts }, &records))
    }

    async fn append_for(&self, ask: AppendAsk, batch: &Bytes) -> Result<Response<Body>, Problem> {
        let partition = match self.here(&ask.at) {
            Ok(partition) => partition,
            Err(error) => {
                let failure = AppendFailure {
                    error,
                    message: error.message().to_owned(),
                    records: Vec::new(),
                    retry_after: None,
                };
                return Ok(told(&refused(failure, Afterwards::default()), &[]));
            }
        };
        let held = self.hold(batch.len())?;
        let command = AppendCommand {
            batch: batch.to_vec(),
            acks: ask.acks,
            timeout: Duration::from_millis(ask.timeout_ms),
        };
        let (id, next) = (ask.transactional_id.as_deref(), ask.next.map(Offset));
        let answer = self
            .ask(|node, now, reply| match (id, next) {
                (Some(id), _) => {
                    node.append_in_transaction(&partition, id, true, command, now, reply);
                }
                (None, Some(next)) => node.append_at(&partition, next, command, now, reply),
                (None, None) => node.append(&partition, command, now, reply),
            })
            .await?;
        drop(held);
        let answer = match answer {
            Ok(answer) => AppendTold::Stored {
                base_offset: answer.base_offset.0,
                log_append_time_ms: answer.log_append_time_ms,
                log_start_offset: answer.log_start_offset.0,
                duplicate: answer.duplicate,
            },
            Err(failure) => refused(failure, self.afterwards(&partition, ask.producer)),
        };
        Ok(told(&answer, &[]))
    }

    /// What is known here of a partition and a producer.
    pub(crate) fn afterwards(&self, partition: &PartitionRef, producer: Option<i64>) -> Afterwards {
        let producer = producer.and_then(|id| {
            let known = self.node.describe_producers(partition).into_iter();
            let mut known = known.filter(|p| p.id == ProducerId(id));
            known.next().map(|p| (p.epoch.0, p.last_sequence.0))
        });
        Afterwards {
            log_end_offset: self.node.describe_partition(partition).log_end_offset.0,
            producer,
        }
    }

    async fn offset_for(&self, ask: OffsetAsk) -> Result<Response<Body>, Problem> {
        let query = match ask.time {
            -1 => OffsetQuery::Latest,
            -2 => OffsetQuery::Earliest,
            time => OffsetQuery::AtTime(time),
        };
        let isolation = isolation(ask.committed_only);
        let (error, offset) = match self.here(&ask.at) {
            Err(error) => (error, Offset(-1)),
            Ok(partition) => {
                let answer = self
                    .ask(|node, _, reply| {
                        node.offset(&partition, query, isolation, LeaderEpoch::NONE, reply);
                    })
                    .await?;
                (answer.error, answer.offset)
            }
        };
        let answer = OffsetTold {
            error: error.0,
            offset: offset.0,
        };
        Ok(told(&answer, &[]))
    }

    async fn committed_for(&self, ask: CommittedAsk) -> Result<Response<Body>, Problem> {
        let id = TopicId::parse(&ask.at.topic).ok_or_else(|| strange("no topic id".to_owned()))?;
        let place = TopicPartition {
            topic: ask.topic,
            id,
            partition: ask.at.partition,
        };
        let found = places_of(self, &ask.group, Some(vec![place])).await?;
        let committed = found
            .into_iter()
            .next()
            .and_then(|(_, committed)| committed);
        let answer = CommittedTold {
            error: ErrorCode::NONE.0,
            offset: committed.map(|c| c.offset.0),
        };
        Ok(told(&answer, &[]))
    }
}

fn isolation(committed_only: bool) -> Isolation {
    match committed_only {
        true => Isolation::ReadCommitted,
        false => Isolation::ReadUncommitted,
    }
}

fn refused(failure: AppendFailure, after: Afterwards) -> AppendTold {
    AppendTold::Refused {
        error: failure.error.0,
        message: failure.message,
        records: failure.records,
        retry_after_ms: failure
            .retry_after
            .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        after,
    }
}

fn told(head: &impl Serialize, records: &[Bytes]) -> Response<Body> {
    Response::new(body(head, records))
}

fn strange(why: String) -> Problem {
    Problem::bad_request(format!(
        "another node's question can't be understood: {why}"
    ))
}
