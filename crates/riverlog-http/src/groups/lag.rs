//! `/v1/groups/{g}/lag`: how far a group is behind, in records and in seconds, and when retention overtakes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use riverlog_api::lag::Standing;
use riverlog_core::config::TopicConfig;
use riverlog_core::groups::GroupDescription;
use riverlog_node::Isolation;
use riverlog_wire::Offset;
use serde::Serialize;
use utoipa::ToSchema;

use super::Place;
use super::view::assignments;
use crate::door::{Answer, Call, HttpDoor};
use crate::fetch::read::Reader;
use crate::problem::Problem;

#[derive(Serialize, ToSchema)]
struct Lag {
    group: String,
    state: &'static str,
    /// Records of all partitions; those without a commit count whole.
    total: i64,
    partitions: Vec<PartitionLag>,
}

#[derive(Serialize, ToSchema)]
struct PartitionLag {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    log_start_offset: Option<i64>,
    high_watermark: Option<i64>,
    /// `ok`, `no-commit`, or `unknown` where the partition can't be asked.
    state: &'static str,
    lag: Option<i64>,
    seconds: Option<f64>,
    /// Seconds until retention takes the first record that waits.
    time_to_loss: Option<f64>,
    /// Records that it took already.
    lost: i64,
    member: Option<String>,
}

/// How far a group is behind
#[utoipa::path(
    get, path = "/v1/groups/{group}/lag", tag = "groups", operation_id = "getLag",
    params(("group" = String, Path, description = "Name, percent-encoded")),
    responses((status = 200, description = "By partition", body = Lag))
)]
pub(crate) async fn lag(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let group = super::found(&call.door, call.name()).await?;
    let standings = standings(&call.door, &group).await?;
    let owners = owners(&call.door, &group);
    let now_ms = call.door.now().wall_ms;
    let total = standings.values().map(Standing::waiting).sum();
    let partitions = standings.into_iter().map(|(place, standing)| PartitionLag {
        committed: standing.committed,
        log_start_offset: standing.bounds.map(|(start, _)| start),
        high_watermark: standing.bounds.map(|(_, end)| end),
        state: match (standing.lag(), standing.committed) {
            (Some(_), _) => "ok",
            (None, None) => "no-commit",
            (None, Some(_)) => "unknown",
        },
        lag: standing.lag(),
        seconds: standing.behind(now_ms),
        time_to_loss: standing.time_to_loss(now_ms),
        lost: standing.lost(),
        member: owners.get(&place).cloned(),
        topic: place.0,
        partition: place.1,
    });
    let lag = Lag {
        total,
        state: group.state,
        partitions: partitions.collect(),
        group: group.group,
    };
    Ok(call.answer_json(StatusCode::OK, &lag))
}

fn owners(door: &HttpDoor, group: &GroupDescription) -> BTreeMap<Place, String> {
    let members = group.members.iter();
    let owned = members.flat_map(|member| {
        let places = assignments(door, group, member).into_iter();
        places.map(|place| (place, member.member.clone()))
    });
    owned.collect()
}

/// Every partition that is committed or assigned.
async fn standings(
    door: &Arc<HttpDoor>,
    group: &GroupDescription,
) -> Result<BTreeMap<Place, Standing>, Problem> {
    let committed = super::commits(door, &group.group, None).await?;
    let committed = committed.into_iter().map(|(place, committed)| {
        let place = (place.topic, place.partition);
        (place, Some(committed.offset.0))
    });
    let mut places: BTreeMap<Place, Option<i64>> = committed.collect();
    for (place, _) in owners(door, group) {
        places.entry(place).or_default();
    }
    let mut out = BTreeMap::new();
    for (place, committed) in places {
        let standing = standing(door, &place, committed).await;
        out.insert(place, standing);
    }
    Ok(out)
}

/// Where a group stands in one partition. What can't be found out is left open.
async fn standing(door: &Arc<HttpDoor>, place: &Place, committed: Option<i64>) -> Standing {
    let mut standing = Standing {
        committed,
        ..Standing::default()
    };
    let Ok(topic) = door.topic(&place.0) else {
        return standing;
    };
    let Ok(partition) = door.place(&topic, place.1) else {
        return standing;
    };
    let Ok((start, end)) = door.positions(&partition).await else {
        return standing;
    };
    standing.bounds = (start.0 >= 0).then_some((start.0, end.0));
    let waits = committed.filter(|committed| *committed < end.0);
    if let Some(first) = waits {
        let from = Offset(first).max(start);
        let isolation = Isolation::ReadUncommitted;
        let mut reader = Reader::new(door, &topic, place.1, from, None, isolation);
        let read = reader.read(1, 1, Duration::ZERO).await.ok();
        let first = read.and_then(|chunk| Some(chunk.records.first()?.record.timestamp));
        standing.waits_since = first.filter(|time| *time >= 0);
        let config = TopicConfig::new(&topic.configs, &door.node.settings().configs);
        standing.retention_ms = Some(config.retention_ms).filter(|ms| config.delete && *ms >= 0);
    }
    standing
}
