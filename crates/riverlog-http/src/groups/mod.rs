//! `/v1/groups`: membership, commits, lag, reset. The coordinator is the same that Kafka's consumers have.

mod cursor;
pub(crate) mod lag;
pub(crate) mod members;
pub(crate) mod offsets;
pub(crate) mod reset;
pub(crate) mod view;

pub(crate) use lag::lag;
pub(crate) use members::{PlaceView, heartbeat, join, leave, poll};
pub(crate) use offsets::{commit, commit_in_transaction, committed};
pub(crate) use reset::reset;
pub(crate) use view::{delete, describe, list};

use riverlog_core::Now;
use riverlog_core::groups::{
    CommittedOffset, FetchedOffsets, GroupAnswer, GroupCommand, GroupDescription, StableOffsets,
    TopicPartition,
};
use riverlog_node::{Node, Reply};
use riverlog_wire::{ErrorCode, TopicId};

use crate::door::HttpDoor;
use crate::patience::Patience;
use crate::problem::Problem;

/// A partition of a topic, by name.
pub(crate) type Place = (String, i32);

/// A command to a group; an answer of another kind is nobody's.
async fn ask(door: &HttpDoor, command: GroupCommand) -> Result<GroupAnswer, Problem> {
    let patience = Patience::new();
    loop {
        let again = command.clone();
        let answer = door
            .ask(|node, now, reply| node.group(again, now, reply))
            .await?;
        if !patience.again(error_of(&answer)).await {
            return Ok(answer);
        }
    }
}

/// The error of an answer as a whole.
fn error_of(answer: &GroupAnswer) -> ErrorCode {
    match answer {
        GroupAnswer::Join(answer) => answer.error,
        GroupAnswer::Sync { error, .. }
        | GroupAnswer::Error(error)
        | GroupAnswer::Leave(error, _)
        | GroupAnswer::Partitions(error, _) => *error,
        GroupAnswer::ConsumerHeartbeat(answer) => answer.error,
        GroupAnswer::StreamsHeartbeat(answer) => answer.error,
    }
}

/// A question about groups.
async fn question<T: Send + 'static>(
    door: &HttpDoor,
    ask: impl Fn(&Node, Now, Reply<Result<T, ErrorCode>>),
) -> Result<T, Problem> {
    let patience = Patience::new();
    loop {
        match door.ask(&ask).await? {
            Ok(answer) => return Ok(answer),
            Err(error) => {
                if !patience.again(error).await {
                    return Err(Problem::kafka(error));
                }
            }
        }
    }
}

/// A group; 404 when there is none.
async fn found(door: &HttpDoor, group: &str) -> Result<GroupDescription, Problem> {
    let found = question(door, |node, now, reply| {
        node.describe_group(group, now, reply);
    })
    .await?;
    found.ok_or_else(|| no_group(group))
}

fn no_group(group: &str) -> Problem {
    Problem::kafka(ErrorCode::GROUP_ID_NOT_FOUND).detail(format!("there is no group {group:?}"))
}

/// What a group has committed, all of it.
async fn commits(
    door: &HttpDoor,
    group: &str,
    of: Option<Vec<TopicPartition>>,
) -> Result<Vec<(TopicPartition, CommittedOffset)>, Problem> {
    let all = places_of(door, group, of).await?.into_iter();
    Ok(all
        .filter_map(|(place, committed)| Some((place, committed?)))
        .collect())
}

/// What a group has committed, place by place.
pub(crate) async fn places_of(
    door: &HttpDoor,
    group: &str,
    of: Option<Vec<TopicPartition>>,
) -> Result<FetchedOffsets, Problem> {
    question(door, |node, now, reply| {
        node.committed(group, of.clone(), None, now, reply);
    })
    .await
}

/// What a group has committed, place by place, for who begins there: UNSTABLE_OFFSET_COMMIT where an open transaction is to change it.
async fn stable_places_of(
    door: &HttpDoor,
    group: &str,
    of: Vec<TopicPartition>,
) -> Result<StableOffsets, Problem> {
    question(door, |node, now, reply| {
        node.committed_stable(group, Some(of.clone()), None, now, reply);
    })
    .await
}

/// Ids to names; topics that are gone have none.
fn named(door: &HttpDoor, assigned: &[(TopicId, Vec<i32>)]) -> Vec<Place> {
    let image = door.node.image();
    let mut places: Vec<Place> = assigned
        .iter()
        .filter_map(|(id, partitions)| Some((image.topics.get(id)?.name.clone(), partitions)))
        .flat_map(|(name, partitions)| partitions.iter().map(move |p| (name.clone(), *p)))
        .collect();
    places.sort();
    places
}
