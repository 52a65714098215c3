//! `/v1/history/…`: series of the past.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::Event;
use super::rings::{Ring, STEP, Span};
use crate::door::{Answer, Call};
use crate::problem::Problem;

#[derive(Serialize, ToSchema)]
struct History {
    /// Of the newest value, ms since the epoch.
    end_ms: i64,
    step_ms: u64,
    /// Oldest first; null where nothing is known.
    series: BTreeMap<&'static str, Vec<Option<f32>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<Event>>,
}

fn window(call: &mut Call) -> Result<Span, Problem> {
    let mut query = std::mem::take(&mut call.query);
    let span = query.choice("window", Span::CHOICES)?;
    query.done()?;
    Ok(span.unwrap_or(Span {
        count: 90,
        coarse: false,
    }))
}

fn history<'a>(
    at: i64,
    look: u64,
    span: Span,
    rings: impl Iterator<Item = (&'static str, Option<&'a Ring>)>,
) -> History {
    let unknown = || vec![None; span.count];
    let values = |ring: Option<&Ring>| ring.map_or_else(unknown, |ring| span.of(ring, look));
    let since = i64::try_from(span.since(look) * STEP.as_millis() as u64).unwrap_or(0);
    History {
        end_ms: at - since,
        step_ms: span.step_ms(),
        series: rings.map(|(name, ring)| (name, values(ring))).collect(),
        events: None,
    }
}

/// Of this node: bytes, batches and records a second, and the mean time of a group commit
#[utoipa::path(
    get, path = "/v1/history/node", tag = "cluster", operation_id = "getNodeHistory",
    params(("window" = Option<String>, Query, description = "15m, 1h, 6h or 24h; of the node also 7d and 30d")),
    responses((status = 200, description = "As of the last look", body = History))
)]
pub(crate) fn of_node(mut call: Call) -> Answer {
    let span = window(&mut call)?;
    let known = call.door.watch.known();
    let rings = known.node.iter().map(|(name, ring)| (*name, Some(ring)));
    let history = history(known.at, known.look, span, rings);
    drop(known);
    Ok(call.answer_json(StatusCode::OK, &history))
}

/// Of a topic: records a second
#[utoipa::path(
    get, path = "/v1/history/topics/{topic}", tag = "cluster", operation_id = "getTopicHistory",
    params(("topic" = String, Path, description = "Name"), ("window" = Option<String>, Query, description = "15m, 1h, 6h or 24h; of the node also 7d and 30d")),
    responses((status = 200, description = "As of the last look", body = History))
)]
pub(crate) fn of_topic(mut call: Call) -> Answer {
    let span = window(&mut call)?;
    let name = call.target.segments.get(2).map_or("", String::as_str);
    let topic = call.door.topic(name)?;
    let known = call.door.watch.known();
    let rings = [("records_in", known.rates.get(&topic.id))].into_iter();
    let history = history(known.at, known.look, span, rings);
    drop(known);
    Ok(call.answer_json(StatusCode::OK, &history))
}

/// Of a group: its lag, and what changed in it
#[utoipa::path(
    get, path = "/v1/history/groups/{group}", tag = "cluster", operation_id = "getGroupHistory",
    params(("group" = String, Path, description = "Name"), ("window" = Option<String>, Query, description = "15m, 1h, 6h or 24h; of the node also 7d and 30d")),
    responses((status = 200, description = "As of the last look", body = History))
)]
pub(crate) fn of_group(mut call: Call) -> Answer {
    let span = window(&mut call)?;
    let name = call.target.segments.get(2).cloned().unwrap_or_default();
    let known = call.door.watch.known();
    let rings = [("lag", known.lags.get(&name))].into_iter();
    let mut history = history(known.at, known.look, span, rings);
    let events = known.events.get(&name);
    history.events = Some(events.into_iter().flatten().cloned().collect());
    drop(known);
    Ok(call.answer_json(StatusCode::OK, &history))
}
