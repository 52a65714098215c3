//! `/v1/groups/{g}/offsets`: what a group has committed, and commits fenced by generation.

use std::sync::Arc;

use axum::http::StatusCode;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, InTransaction, TopicPartition,
};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::door::{Answer, Call, HttpDoor};
use crate::int64::Int64;
use crate::path::encode;
use crate::patience::Patience;
use crate::problem::Problem;

/// The version of OffsetCommit whose errors these calls have: both kinds of groups know it.
const VERSION: i16 = 9;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Commit {
    /// Of a classic group, or the member's epoch; absent when nobody of the group commits.
    generation: Option<i32>,
    #[serde(default)]
    member_id: String,
    instance_id: Option<String>,
    offsets: Vec<OffsetIn>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CommitInTransaction {
    #[schema(value_type = i64)]
    producer_id: Int64,
    epoch: i16,
    group: String,
    generation: Option<i32>,
    #[serde(default)]
    member_id: String,
    instance_id: Option<String>,
    offsets: Vec<OffsetIn>,
}

#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OffsetIn {
    topic: String,
    partition: i32,
    #[schema(value_type = i64, minimum = 0)]
    offset: Int64,
    leader_epoch: Option<i32>,
    metadata: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct Results {
    results: Vec<ResultView>,
}

#[derive(Serialize, ToSchema)]
struct ResultView {
    topic: String,
    partition: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem>,
}

#[derive(Serialize, ToSchema)]
struct Offsets {
    group: String,
    offsets: Vec<OffsetView>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct OffsetView {
    topic: String,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: String,
    commit_timestamp: i64,
}

pub(super) fn view((place, committed): (TopicPartition, CommittedOffset)) -> OffsetView {
    OffsetView {
        topic: place.topic,
        partition: place.partition,
        offset: committed.offset.0,
        leader_epoch: committed.leader_epoch.0,
        metadata: committed.metadata,
        commit_timestamp: committed.commit_timestamp,
    }
}

/// What a group has committed
#[utoipa::path(
    get, path = "/v1/groups/{group}/offsets", tag = "groups", operation_id = "getOffsets",
    params(("group" = String, Path, description = "Name, percent-encoded")),
    responses((status = 200, description = "All of it", body = Offsets))
)]
pub(crate) async fn committed(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let group = call.name().to_owned();
    let offsets = super::commits(&call.door, &group, None).await?;
    if offsets.is_empty() {
        super::found(&call.door, &group).await?;
    }
    let offsets = offsets.into_iter().map(view).collect();
    Ok(call.answer_json(StatusCode::OK, &Offsets { group, offsets }))
}

/// Commit, fenced by generation
#[utoipa::path(
    post, path = "/v1/groups/{group}/offsets", tag = "groups", operation_id = "commitOffsets",
    params(("group" = String, Path, description = "Name, percent-encoded")),
    request_body = Commit,
    responses((status = 200, description = "All are committed", body = Results), (status = 207, description = "Some are", body = Results))
)]
pub(crate) async fn commit(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let asked: Commit = call.json().await?;
    let group = call.name().to_owned();
    let from_outside = asked.generation.is_none() && asked.member_id.is_empty();
    let generation = Generation(asked.generation.unwrap_or(-1));
    let (member, instance) = (asked.member_id, asked.instance_id);
    let mut planned = Planned::new(&call.door, asked.offsets)?;
    let command = GroupCommand::Commit {
        group: group.clone(),
        generation,
        member: member.clone(),
        instance,
        offsets: planned.taken(),
        version: VERSION,
    };
    let answer = super::ask(&call.door, command).await?;
    let explain = |error| {
        match error {
        ErrorCode::UNKNOWN_MEMBER_ID if from_outside => Problem::kafka(ErrorCode::NON_EMPTY_GROUP)
            .detail("the group has members, and only they may commit; send generation and member_id, or stop them first"),
        error => Problem::kafka(error),
    }
    };
    finish(call, &group, &member, planned.finish(answer, explain)).await
}

/// Commit as part of a transaction
///
/// Offsets that count once a transaction is committed.
#[utoipa::path(
    post, path = "/v1/transactions/{id}/offsets", tag = "transactions", operation_id = "commitOffsetsInTransaction",
    params(("id" = String, Path, description = "Transactional id, percent-encoded")),
    request_body = CommitInTransaction,
    responses((status = 200, description = "All will count", body = Results), (status = 207, description = "Some will", body = Results))
)]
pub(crate) async fn commit_in_transaction(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let (asked, body) = call.json_and_body::<CommitInTransaction>().await?;
    let id = call.name().to_owned();
    // The group keeps the offsets; it asks the transaction's coordinator.
    if !call.passed_on
        && call.door.is_in_cluster()
        && let Some(to) = call.door.other(call.door.group_at(&asked.group).await)
    {
        let (door, path) = (
            Arc::clone(&call.door),
            format!("/v1/transactions/{}/offsets", encode(&id)),
        );
        let owner = || door.node.group_coordinator(&asked.group, door.now());
        return call.pass_on_json(to, owner, &path, body).await;
    }
    let member = asked.member_id.clone();
    let group = asked.group.clone();
    let mut planned = Planned::new(&call.door, asked.offsets)?;
    let command = GroupCommand::TxnCommit {
        group: asked.group,
        generation: Generation(asked.generation.unwrap_or(-1)),
        member: asked.member_id,
        instance: asked.instance_id,
        offsets: planned.taken(),
        version: 5,
        transaction: InTransaction {
            producer_id: ProducerId(asked.producer_id.0),
            producer_epoch: ProducerEpoch(asked.epoch),
            verified: Offset::ZERO,
        },
    };
    let patience = Patience::new();
    let answer = loop {
        let again = command.clone();
        let answer = call
            .door
            .ask(|node, now, reply| node.commit_in_transaction(&id, true, again, now, reply))
            .await?;
        if !patience.again(super::error_of(&answer)).await {
            break answer;
        }
    };
    finish(
        call,
        &group,
        &member,
        planned.finish(answer, Problem::kafka),
    )
    .await
}

/// A commit, and what of it the group is asked: offsets of partitions that exist.
struct Planned {
    asked: Vec<(OffsetIn, Result<(), Problem>)>,
    taken: Vec<(TopicPartition, CommittedOffset)>,
}

impl Planned {
    fn new(door: &HttpDoor, asked: Vec<OffsetIn>) -> Result<Planned, Problem> {
        if asked.is_empty() {
            return Err(Problem::unprocessable(
                "no-offsets",
                "there are no offsets; give at least one",
            ));
        }
        let image = door.node.image();
        let mut taken = Vec::new();
        let asked = asked.into_iter().map(|offset| {
            let place = match image.topic(&offset.topic) {
                None => Err(Problem::no_topic(&offset.topic)),
                Some(topic) => {
                    let count = topic.partitions.len();
                    match usize::try_from(offset.partition).is_ok_and(|p| p < count) {
                        true => Ok(topic.id),
                        false => Err(Problem::no_partition(&topic.name, offset.partition, count)),
                    }
                }
            };
            let place = place.and_then(|id| match offset.offset.0 {
                0.. => Ok(id),
                below => Err(Problem::unprocessable(
                    "bad-fields",
                    format!(
                        "the offset is {below}; give that of the next record to read, 0 or more"
                    ),
                )),
            });
            let outcome = place.map(|id| {
                let place = TopicPartition {
                    topic: offset.topic.clone(),
                    id,
                    partition: offset.partition,
                };
                let committed = CommittedOffset {
                    offset: Offset(offset.offset.0),
                    leader_epoch: LeaderEpoch(offset.leader_epoch.unwrap_or(-1)),
                    metadata: offset.metadata.clone().unwrap_or_default(),
                    commit_timestamp: -1,
                    expire_timestamp: None,
                };
                taken.push((place, committed));
            });
            (offset, outcome)
        });
        let asked = asked.collect();
        Ok(Planned { asked, taken })
    }

    fn taken(&mut self) -> Vec<(TopicPartition, CommittedOffset)> {
        std::mem::take(&mut self.taken)
    }

    fn finish(
        self,
        answer: GroupAnswer,
        explain: impl Fn(ErrorCode) -> Problem,
    ) -> Vec<(OffsetIn, Result<(), Problem>)> {
        let (whole, mut each) = match answer {
            GroupAnswer::Partitions(error, each) => (error, each.into_iter()),
            GroupAnswer::Error(error) => (error, Vec::new().into_iter()),
            _ => (ErrorCode::UNKNOWN_SERVER_ERROR, Vec::new().into_iter()),
        };
        let asked = self.asked.into_iter();
        asked
            .map(|(offset, outcome)| {
                let outcome = outcome.and_then(|()| {
                    let own = each.next().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
                    match (whole, own) {
                        (ErrorCode::NONE, ErrorCode::NONE) => Ok(()),
                        (ErrorCode::NONE, error) | (error, _) => Err(explain(error)),
                    }
                });
                (offset, outcome)
            })
            .collect()
    }
}

/// 200 when all are committed, 207 when some are, the problem when none is.
async fn finish(
    call: Call,
    group: &str,
    member: &str,
    outcomes: Vec<(OffsetIn, Result<(), Problem>)>,
) -> Answer {
    let door = std::sync::Arc::clone(&call.door);
    let failed: Vec<&Problem> = outcomes
        .iter()
        .filter_map(|(_, o)| o.as_ref().err())
        .collect();
    if let Some(first) = failed.first().filter(|_| failed.len() == outcomes.len()) {
        let mut problem = match failed.len() {
            1 => (*first).clone(),
            _ => (*first).clone().with_errors(&failed),
        };
        if problem.is("stale-generation") {
            problem = with_generation(&door, group, member, problem).await;
        }
        return Err(problem);
    }
    let status = match failed.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::MULTI_STATUS,
    };
    let results = outcomes.into_iter().map(|(offset, outcome)| ResultView {
        offset: outcome.is_ok().then_some(offset.offset.0),
        topic: offset.topic,
        partition: offset.partition,
        error: outcome.err(),
    });
    let results = results.collect();
    Ok(call.answer_json(status, &Results { results }))
}

/// Adds the generation that would have been right.
pub(super) async fn with_generation(
    door: &HttpDoor,
    group: &str,
    member: &str,
    problem: Problem,
) -> Problem {
    let Ok(found) = super::found(door, group).await else {
        return problem;
    };
    let own = found.members.iter().find(|m| m.member == member);
    let generation = match own {
        Some(own) if found.group_type == "consumer" => own.member_epoch,
        _ => found.generation.0,
    };
    problem.with("generation", generation)
}
