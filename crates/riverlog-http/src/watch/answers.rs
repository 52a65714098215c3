//! `/v1/stats/…`: what the node is like, as of the last look; lists in any order, cut into pages here.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use riverlog_core::metadata::TopicImage;
use riverlog_core::transactions::{TransactionFilter, TransactionState, TransactionValue};
use serde::Serialize;
use utoipa::ToSchema;

use super::seen::{self, SeenGroup, SeenTopic};
use crate::door::{Answer, Call, HttpDoor};
use crate::groups::PlaceView;
use crate::problem::Problem;
use crate::query::Query;
use crate::schema;

/// Rows of a page unless asked otherwise, and the most.
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1_000;
/// The most pages: what is behind them is found with a filter.
const PAGES: usize = 1_000_000;
/// Values of a trend: five minutes.
const TREND: usize = 30;

#[derive(Serialize, ToSchema)]
struct NodeStats {
    at: i64,
    node: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<Disk>,
    size_bytes: u64,
    groups: usize,
    read_only: bool,
}

#[derive(Serialize, ToSchema)]
struct Disk {
    free_bytes: u64,
    total_bytes: u64,
}

/// What this node counts, and what it saw at its last look
#[utoipa::path(
    get, path = "/v1/stats", tag = "cluster", operation_id = "getStats",
    responses((status = 200, description = "As of the last look", body = NodeStats))
)]
pub(crate) fn node(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let door = &call.door;
    let metrics = door.node.metrics().into_iter();
    let disk = door.node.disk_space();
    let known = door.watch.known();
    let stats = NodeStats {
        at: known.at,
        node: metrics.map(|m| (m.name, m.value)).collect(),
        disk: disk.map(|(total_bytes, free_bytes)| Disk {
            free_bytes,
            total_bytes,
        }),
        size_bytes: known.topics.values().map(|t| t.size_bytes).sum(),
        groups: known.groups.len(),
        read_only: door.settings.read_only,
    };
    drop(known);
    Ok(call.answer_json(StatusCode::OK, &stats))
}

/// A page, and how the rows are picked and put in order.
struct Wish {
    filter: String,
    page: usize,
    limit: usize,
}

impl Wish {
    fn of(query: &mut Query) -> Result<Wish, Problem> {
        Ok(Wish {
            filter: query.text("filter").unwrap_or_default(),
            page: query.number("page", 0..=PAGES)?.unwrap_or(0),
            limit: query.number("limit", 1..=LARGEST_PAGE)?.unwrap_or(PAGE),
        })
    }

    fn cut<T>(&self, rows: Vec<T>) -> Vec<T> {
        let skipped = self.page.saturating_mul(self.limit);
        rows.into_iter().skip(skipped).take(self.limit).collect()
    }
}

#[derive(Clone, Copy)]
enum TopicOrder {
    Name,
    Partitions,
    Records,
    Rate,
    Size,
}

const TOPIC_ORDERS: &[(&str, TopicOrder)] = &[
    ("name", TopicOrder::Name),
    ("partitions", TopicOrder::Partitions),
    ("records", TopicOrder::Records),
    ("rate", TopicOrder::Rate),
    ("size", TopicOrder::Size),
];

#[derive(Serialize, ToSchema)]
#[schema(as = TopicStatsPage)]
struct Topics {
    topics: Vec<TopicStats>,
    /// How many fit the filter.
    total: usize,
}

#[derive(Serialize, ToSchema)]
struct TopicStats {
    name: String,
    partitions: usize,
    replication_factor: usize,
    internal: bool,
    under_replicated: usize,
    offline: usize,
    records: i64,
    size_bytes: u64,
    /// Records a second; null before two looks.
    rate: Option<f32>,
    /// −1 for ever; null where age deletes nothing.
    retention_ms: Option<i64>,
    compacted: bool,
    trend: Vec<Option<f32>>,
}

/// Topics with their size and rate
#[utoipa::path(
    get, path = "/v1/stats/topics", tag = "cluster", operation_id = "getTopicStats",
    params(schema::List, ("sort" = Option<String>, Query, description = "name, partitions, records, rate or size"), ("internal" = Option<bool>, Query, description = "Internal topics too")),
    responses((status = 200, description = "As of the last look", body = Topics))
)]
pub(crate) fn topics(mut call: Call) -> Answer {
    let mut query = std::mem::take(&mut call.query);
    let wish = Wish::of(&mut query)?;
    let order = query.choice("sort", TOPIC_ORDERS)?;
    let internal = query.flag("internal")?;
    query.done()?;
    let image = call.door.node.image();
    let known = call.door.watch.known();
    let look = known.look;
    let mut rows: Vec<(&TopicImage, Option<&SeenTopic>, Option<f32>)> = image
        .names
        .iter()
        .filter(|((_, name), _)| name.contains(&wish.filter))
        .filter_map(|(_, id)| image.topics.get(id))
        .filter(|topic| internal || !topic.internal)
        .map(|topic| {
            let rate = known.rates.get(&topic.id).map(|ring| ring.fine(look, 1));
            let rate = rate.and_then(|values| values.first().copied().flatten());
            (topic.as_ref(), known.topics.get(&topic.id), rate)
        })
        .collect();
    match order.unwrap_or(TopicOrder::Name) {
        TopicOrder::Name => {}
        TopicOrder::Partitions => rows.sort_by_key(|r| std::cmp::Reverse(r.0.partitions.len())),
        TopicOrder::Records => rows.sort_by_key(|r| std::cmp::Reverse(r.1.map(|s| s.records))),
        TopicOrder::Size => rows.sort_by_key(|r| std::cmp::Reverse(r.1.map(|s| s.size_bytes))),
        TopicOrder::Rate => {
            rows.sort_by(|a, b| b.2.unwrap_or(-1.0).total_cmp(&a.2.unwrap_or(-1.0)));
        }
    }
    let total = rows.len();
    // A topic that no look has seen yet is looked at when it is shown.
    let seen = |(topic, seen, rate): (_, Option<&SeenTopic>, _)| {
        (topic, seen.cloned().unwrap_or_default(), rate)
    };
    let page: Vec<(&TopicImage, SeenTopic, Option<f32>)> =
        wish.cut(rows).into_iter().map(seen).collect();
    let trends: Vec<Vec<Option<f32>>> = page
        .iter()
        .map(|(topic, ..)| match known.rates.get(&topic.id) {
            Some(ring) => ring.fine(look, TREND),
            None => Vec::new(),
        })
        .collect();
    drop(known);
    let topics = page
        .into_iter()
        .zip(trends)
        .map(|((topic, seen, rate), trend)| row(&call.door, topic, seen, rate, trend))
        .collect();
    Ok(call.answer_json(StatusCode::OK, &Topics { topics, total }))
}

fn row(
    door: &HttpDoor,
    topic: &TopicImage,
    mut seen: SeenTopic,
    rate: Option<f32>,
    trend: Vec<Option<f32>>,
) -> TopicStats {
    if seen.name.is_empty() {
        seen = seen::topic(&door.node, topic);
    }
    let (retention_ms, compacted) = seen::kept(&door.node, topic);
    let partitions = || topic.partitions.iter();
    TopicStats {
        name: topic.name.clone(),
        partitions: topic.partitions.len(),
        replication_factor: topic.partitions.first().map_or(0, |p| p.replicas.len()),
        internal: topic.internal,
        under_replicated: partitions()
            .filter(|p| p.isr.len() < p.replicas.len())
            .count(),
        offline: partitions().filter(|p| p.leader.is_none()).count(),
        records: seen.records,
        size_bytes: seen.size_bytes,
        rate,
        retention_ms,
        compacted,
        trend,
    }
}

#[derive(Clone, Copy)]
enum GroupOrder {
    Name,
    State,
    Members,
    Lag,
}

const GROUP_ORDERS: &[(&str, GroupOrder)] = &[
    ("name", GroupOrder::Name),
    ("state", GroupOrder::State),
    ("members", GroupOrder::Members),
    ("lag", GroupOrder::Lag),
];

#[derive(Serialize, ToSchema)]
#[schema(as = GroupStatsPage)]
struct Groups {
    groups: Vec<GroupStats>,
    /// How many fit the filter.
    total: usize,
}

#[derive(Serialize, ToSchema)]
struct GroupStats {
    group: String,
    state: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    members: usize,
    topics: usize,
    /// Of all topics, or of the one that was asked for.
    lag: i64,
    trend: Vec<Option<f32>>,
}

/// Groups with their lag; of one topic, those that have committed offsets of it
#[utoipa::path(
    get, path = "/v1/stats/groups", tag = "cluster", operation_id = "getGroupStats",
    params(schema::List, ("sort" = Option<String>, Query, description = "name, state, members or lag"), ("topic" = Option<String>, Query, description = "Of this topic alone")),
    responses((status = 200, description = "As of the last look", body = Groups))
)]
pub(crate) fn groups(mut call: Call) -> Answer {
    let mut query = std::mem::take(&mut call.query);
    let wish = Wish::of(&mut query)?;
    let order = query.choice("sort", GROUP_ORDERS)?;
    let topic = query.text("topic");
    query.done()?;
    let known = call.door.watch.known();
    let lag = |group: &SeenGroup| match &topic {
        None => Some(group.lag()),
        Some(topic) => group.lags.get(topic).copied(),
    };
    let mut rows: Vec<(&String, &SeenGroup, i64)> = known
        .groups
        .iter()
        .filter(|(name, _)| name.contains(&wish.filter))
        .filter_map(|(name, group)| Some((name, group, lag(group)?)))
        .collect();
    match order.unwrap_or(GroupOrder::Name) {
        GroupOrder::Name => {}
        GroupOrder::State => rows.sort_by_key(|r| r.1.state),
        GroupOrder::Members => rows.sort_by_key(|r| std::cmp::Reverse(r.1.members.len())),
        GroupOrder::Lag => rows.sort_by_key(|r| std::cmp::Reverse(r.2)),
    }
    let total = rows.len();
    let groups = wish
        .cut(rows)
        .into_iter()
        .map(|(name, group, lag)| GroupStats {
            group: name.clone(),
            state: group.state,
            kind: group.kind,
            members: group.members.len(),
            topics: group.lags.len(),
            lag,
            trend: match known.lags.get(name) {
                Some(ring) => ring.fine(known.look, TREND),
                None => Vec::new(),
            },
        })
        .collect();
    drop(known);
    Ok(call.answer_json(StatusCode::OK, &Groups { groups, total }))
}

#[derive(Serialize, ToSchema)]
#[schema(as = TransactionStatsPage)]
struct Transactions {
    transactions: Vec<TransactionView>,
    /// How many fit the filter.
    total: usize,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TransactionStats)]
struct TransactionView {
    transactional_id: String,
    producer_id: i64,
    producer_epoch: i16,
    state: &'static str,
    /// When it was begun, ms since the epoch; null when none is open.
    started_ms: Option<i64>,
    timeout_ms: i32,
    partitions: Vec<PlaceView>,
}

fn is_open(value: &TransactionValue) -> bool {
    matches!(
        value.state,
        TransactionState::Ongoing
            | TransactionState::PrepareCommit
            | TransactionState::PrepareAbort
    )
}

/// Transactional ids that this node coordinates, those with an open transaction first
#[utoipa::path(
    get, path = "/v1/stats/transactions", tag = "cluster", operation_id = "getTransactionStats",
    params(schema::List, ("open" = Option<bool>, Query, description = "Those alone")),
    responses((status = 200, description = "As of the last look", body = Transactions))
)]
pub(crate) fn transactions(mut call: Call) -> Answer {
    let mut query = std::mem::take(&mut call.query);
    let wish = Wish::of(&mut query)?;
    let open = query.flag("open")?;
    query.done()?;
    let now = call.door.now();
    let found = call.door.node.transactions(&TransactionFilter::all(), now);
    let mut rows: Vec<_> = found
        .map_err(Problem::kafka)?
        .into_iter()
        .filter(|t| t.id.contains(&wish.filter))
        .filter(|t| !open || is_open(&t.value))
        .collect();
    rows.sort_by_key(|t| !is_open(&t.value));
    let total = rows.len();
    let transactions = wish
        .cut(rows)
        .into_iter()
        .map(|t| TransactionView {
            transactional_id: t.id,
            producer_id: t.value.producer_id.0,
            producer_epoch: t.value.epoch.0,
            state: t.value.state.name(),
            started_ms: is_open(&t.value).then_some(t.value.started_ms),
            timeout_ms: t.value.timeout_ms,
            partitions: t.value.partitions.into_iter().map(|p| p.into()).collect(),
        })
        .collect();
    Ok(call.answer_json(
        StatusCode::OK,
        &Transactions {
            transactions,
            total,
        },
    ))
}
