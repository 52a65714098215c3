//! `POST /v1/groups/{g}:reset`: moves the commits of a group without members; with `dry_run=true` only says where to.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_node::Isolation;
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Place;
use crate::door::{Answer, Call};
use crate::position::{Position, resolve};
use crate::problem::Problem;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Reset {
    to: String,
    /// All that the group has commits for unless given.
    topics: Option<Vec<String>>,
    partitions: Option<Vec<i32>>,
}

#[derive(Serialize, ToSchema)]
struct Plan {
    group: String,
    dry_run: bool,
    moves: Vec<Move>,
}

#[derive(Serialize, ToSchema)]
struct Move {
    topic: String,
    partition: i32,
    from: Option<i64>,
    to: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem>,
}

/// Move the commits of a group without members
#[utoipa::path(
    post, path = "/v1/groups/{group}:reset", tag = "groups", operation_id = "resetGroup",
    params(("group" = String, Path, description = "Name, percent-encoded"), ("dry_run" = Option<bool>, Query, description = "Only say where to")),
    request_body = Reset,
    responses((status = 200, description = "Moved", body = Plan), (status = 207, description = "Some were moved", body = Plan))
)]
pub(crate) async fn reset(mut call: Call) -> Answer {
    let dry_run = call.query.flag("dry_run")?;
    std::mem::take(&mut call.query).done()?;
    let asked: Reset = call.json().await?;
    let to = Position::parse(&asked.to)?;
    let group = call.name().to_owned();
    let committed = super::commits(&call.door, &group, None).await?;
    let topics: BTreeSet<String> = match asked.topics {
        Some(topics) => topics.into_iter().collect(),
        None => committed.iter().map(|(at, _)| at.topic.clone()).collect(),
    };
    if topics.is_empty() {
        super::found(&call.door, &group).await?;
        return Err(Problem::unprocessable(
            "nothing-to-reset",
            format!("group {group:?} has no commits; name the topics"),
        ));
    }
    let mut moves: Vec<(TopicPartition, Option<i64>, Offset)> = Vec::new();
    for name in topics {
        let topic = call.door.topic(&name)?;
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        for index in 0..count {
            if asked
                .partitions
                .as_ref()
                .is_some_and(|some| !some.contains(&index))
            {
                continue;
            }
            let partition = call.door.place(&topic, index)?;
            let isolation = Isolation::ReadCommitted;
            let offset = resolve(&call.door, &topic, &partition, isolation, &to).await?;
            let (start, end) = call.door.positions(&partition).await?;
            let place: Place = (name.clone(), index);
            let from = committed
                .iter()
                .find(|(at, _)| (&at.topic, at.partition) == (&place.0, place.1))
                .map(|(_, committed)| committed.offset.0);
            let at = TopicPartition {
                topic: name.clone(),
                id: topic.id,
                partition: index,
            };
            // A commit past the end hides what is written below it later.
            moves.push((at, from, offset.clamp(start, end.max(start))));
        }
    }
    let mut errors = vec![ErrorCode::NONE; moves.len()];
    if !dry_run {
        let offsets = moves.iter().map(|(at, _, to)| {
            let committed = CommittedOffset {
                offset: *to,
                leader_epoch: LeaderEpoch::NONE,
                metadata: String::new(),
                commit_timestamp: -1,
                expire_timestamp: None,
            };
            (at.clone(), committed)
        });
        let command = GroupCommand::Commit {
            group: group.clone(),
            generation: Generation(-1),
            member: String::new(),
            instance: None,
            offsets: offsets.collect(),
            version: 9,
        };
        match super::ask(&call.door, command).await? {
            GroupAnswer::Partitions(ErrorCode::NONE, each) => errors = each,
            GroupAnswer::Partitions(error, _) | GroupAnswer::Error(error) => {
                return Err(refused(error));
            }
            _ => return Err(Problem::kafka(ErrorCode::UNKNOWN_SERVER_ERROR)),
        }
        if let Some(error) = errors.first().filter(|first| **first != ErrorCode::NONE)
            && errors.iter().all(|e| e == error)
        {
            return Err(refused(*error));
        }
    }
    let status = match errors.iter().all(|e| *e == ErrorCode::NONE) {
        true => StatusCode::OK,
        false => StatusCode::MULTI_STATUS,
    };
    let moves = moves
        .into_iter()
        .zip(errors)
        .map(|((at, from, to), error)| Move {
            topic: at.topic,
            partition: at.partition,
            from,
            to: to.0,
            error: (error != ErrorCode::NONE).then(|| refused(error)),
        });
    let plan = Plan {
        group,
        dry_run,
        moves: moves.collect(),
    };
    Ok(call.answer_json(status, &plan))
}

fn refused(error: ErrorCode) -> Problem {
    match error {
        ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION => Problem::kafka(
            ErrorCode::NON_EMPTY_GROUP,
        )
        .detail("the group has members, which would overwrite what is set here; stop them first"),
        error => Problem::kafka(error),
    }
}
