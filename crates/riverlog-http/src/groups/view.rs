//! `/v1/groups`, `/v1/groups/{g}`: list, describe, delete.

use std::borrow::Cow;

use axum::http::StatusCode;
use riverlog_core::groups::{GroupAnswer, GroupCommand, GroupDescription, MemberDescription};
use riverlog_wire::ErrorCode;
use riverlog_wire::consumer_protocol::decode_assignment;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Place;
use super::members::PlaceView;
use super::offsets::{OffsetView, view};
use crate::body::nothing;
use crate::door::{Answer, Call, HttpDoor};
use crate::problem::Problem;
use crate::schema;

/// Groups on one page unless asked otherwise, and the most.
const PAGE: usize = 1_000;
const LARGEST_PAGE: usize = 10_000;

#[derive(Serialize, ToSchema)]
struct Groups {
    groups: Vec<GroupView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page: Option<String>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupView {
    group: String,
    state: Cow<'static, str>,
    /// `classic`, `consumer`, `share` or `streams`.
    kind: Cow<'static, str>,
    protocol: String,
    generation: i32,
    member_count: usize,
}

#[derive(Serialize, ToSchema)]
struct GroupDetail {
    #[serde(flatten)]
    group: GroupView,
    members: Vec<MemberView>,
    committed_offsets: Vec<OffsetView>,
}

#[derive(Serialize, ToSchema)]
struct MemberView {
    member_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
    client_id: String,
    host: String,
    generation: i32,
    assignment: Vec<PlaceView>,
}

fn summary(group: &GroupDescription) -> GroupView {
    GroupView {
        group: group.group.clone(),
        state: group.state.into(),
        kind: group.group_type.into(),
        protocol: group.protocol.clone(),
        generation: group.generation.0,
        member_count: group.members.len(),
    }
}

/// What a member holds; of a classic member, when it can be read.
pub(super) fn assignments(
    door: &HttpDoor,
    group: &GroupDescription,
    member: &MemberDescription,
) -> Vec<Place> {
    if group.group_type == "consumer" {
        return super::named(door, &member.assigned);
    }
    if group.group_type == "streams" {
        let reads = member.reads.iter().filter_map(|(topic, partitions)| {
            let count = door.topic(topic).ok()?.partitions.len();
            let there = |p: &i32| usize::try_from(*p).is_ok_and(|p| p < count);
            let places = partitions.iter().copied().filter(there);
            Some(places.map(|p| (topic.clone(), p)).collect::<Vec<_>>())
        });
        return reads.flatten().collect();
    }
    // Groups of Connect and the like have assignments of their own.
    if group.protocol_type != "consumer" {
        return Vec::new();
    }
    let assignment = decode_assignment(&member.assignment).unwrap_or_default();
    let places = assignment.into_iter();
    places
        .flat_map(|(topic, partitions)| partitions.into_iter().map(move |p| (topic.clone(), p)))
        .collect()
}

/// Groups, in order of name
#[utoipa::path(
    get, path = "/v1/groups", tag = "groups", operation_id = "listGroups",
    params(schema::Page),
    responses((status = 200, description = "A page", body = Groups))
)]
pub(crate) async fn list(mut call: Call) -> Answer {
    let mut query = std::mem::take(&mut call.query);
    let filter = query.text("filter").unwrap_or_default();
    let after = query.text("page");
    let limit = query.number("limit", 1..=LARGEST_PAGE)?.unwrap_or(PAGE);
    query.done()?;
    let mut all = groups_here(&call.door).await?;
    all.extend(call.door.groups_elsewhere().await?);
    all.sort_by(|a, b| a.group.cmp(&b.group));
    // While a group moves to another coordinator both may know it.
    all.dedup_by(|a, b| a.group == b.group);
    // Names are in order, and a page begins after the last name of the one before.
    let rest = all.into_iter().filter(|group| {
        after.as_ref().is_none_or(|after| group.group > *after) && group.group.contains(&filter)
    });
    let mut groups: Vec<GroupView> = rest.take(limit + 1).collect();
    let more = groups.len() > limit;
    groups.truncate(limit);
    let next_page = groups.last().filter(|_| more).map(|g| g.group.clone());
    Ok(call.answer_json(StatusCode::OK, &Groups { groups, next_page }))
}

/// The groups that this node coordinates.
pub(crate) async fn groups_here(door: &HttpDoor) -> Result<Vec<GroupView>, Problem> {
    let all = super::question(door, |node, now, reply| node.groups(now, reply)).await?;
    Ok(all.iter().map(summary).collect())
}

/// A group, with members and commits
#[utoipa::path(
    get, path = "/v1/groups/{group}", tag = "groups", operation_id = "getGroup",
    params(("group" = String, Path, description = "Name, percent-encoded")),
    responses((status = 200, description = "The group", body = GroupDetail))
)]
pub(crate) async fn describe(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let group = super::found(&call.door, call.name()).await?;
    let committed = super::commits(&call.door, &group.group, None).await?;
    let members = group.members.iter().map(|member| MemberView {
        member_id: member.member.clone(),
        instance_id: member.instance.clone(),
        client_id: member.client_id.clone(),
        host: member.client_host.clone(),
        generation: member.member_epoch,
        assignment: assignments(&call.door, &group, member)
            .into_iter()
            .map(PlaceView::from)
            .collect(),
    });
    let detail = GroupDetail {
        members: members.collect(),
        group: summary(&group),
        committed_offsets: committed.into_iter().map(view).collect(),
    };
    Ok(call.answer_json(StatusCode::OK, &detail))
}

/// Delete a group without members
#[utoipa::path(
    delete, path = "/v1/groups/{group}", tag = "groups", operation_id = "deleteGroup",
    params(("group" = String, Path, description = "Name, percent-encoded"), schema::DryRun),
    responses((status = 200, description = "What would be deleted", body = GroupView), (status = 204, description = "Deleted"))
)]
pub(crate) async fn delete(mut call: Call) -> Answer {
    let validate_only = call.query.flag("validate_only")?;
    std::mem::take(&mut call.query).done()?;
    let group = super::found(&call.door, call.name()).await?;
    if validate_only {
        return Ok(call.answer_json(StatusCode::OK, &summary(&group)));
    }
    let command = GroupCommand::DeleteGroup { group: group.group };
    match super::ask(&call.door, command).await? {
        GroupAnswer::Error(ErrorCode::NONE) => Ok(nothing()),
        GroupAnswer::Error(error) => Err(Problem::kafka(error)),
        _ => Err(Problem::kafka(ErrorCode::UNKNOWN_SERVER_ERROR)),
    }
}
