//! `/v1/brokers`, `/v1/brokers/{id}/config`, `/v1/cluster`.

use axum::http::StatusCode;
use riverlog_api::configs as layered;
use riverlog_core::metadata::ConfigResource;
use serde::Serialize;
use utoipa::ToSchema;

use crate::door::{Answer, Call};
use crate::problem::Problem;
use crate::schema;
use crate::topics::{Configs, change_configs, config_changes, config_views};

#[derive(Serialize, ToSchema)]
struct Brokers {
    brokers: Vec<BrokerView>,
}

#[derive(Serialize, ToSchema)]
struct BrokerView {
    id: i32,
    listeners: Vec<Listener>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rack: Option<String>,
    fenced: bool,
    /// Its disk is full, has failed or is slow: others lead what they can.
    disk_ailing: bool,
    leaders: usize,
    replicas: usize,
}

#[derive(Serialize, ToSchema)]
struct Listener {
    name: String,
    host: String,
    port: u16,
}

#[derive(Serialize, ToSchema)]
struct Cluster {
    cluster_id: String,
    version: &'static str,
    brokers: usize,
    fenced_brokers: usize,
    /// Brokers whose disk is full, has failed or is slow.
    ailing_brokers: usize,
    topics: usize,
    partitions: usize,
    under_replicated_partitions: usize,
    offline_partitions: usize,
}

/// Nodes
#[utoipa::path(
    get, path = "/v1/brokers", tag = "cluster", operation_id = "listBrokers",
    responses((status = 200, description = "All of them", body = Brokers))
)]
pub(crate) fn brokers(call: &Call) -> Answer {
    call.query.clone().done()?;
    let image = call.door.node.image();
    let partitions = || image.topics.values().flat_map(|t| &t.partitions);
    let brokers = image.brokers.values().map(|broker| BrokerView {
        id: broker.id.0,
        listeners: broker
            .listeners
            .iter()
            .map(|(name, host, port)| Listener {
                name: name.clone(),
                host: host.clone(),
                port: *port,
            })
            .collect(),
        rack: broker.rack.clone(),
        fenced: broker.fenced,
        disk_ailing: broker.ailing,
        leaders: partitions().filter(|p| p.leader == Some(broker.id)).count(),
        replicas: partitions()
            .filter(|p| p.replicas.contains(&broker.id))
            .count(),
    });
    let brokers = brokers.collect();
    Ok(call.answer_json(StatusCode::OK, &Brokers { brokers }))
}

/// The cluster in numbers
#[utoipa::path(
    get, path = "/v1/cluster", tag = "cluster", operation_id = "getCluster",
    responses((status = 200, description = "Now", body = Cluster))
)]
pub(crate) fn cluster(call: &Call) -> Answer {
    call.query.clone().done()?;
    let image = call.door.node.image();
    let partitions = || image.topics.values().flat_map(|t| &t.partitions);
    let cluster = Cluster {
        cluster_id: image.cluster_id.clone(),
        version: env!("CARGO_PKG_VERSION"),
        brokers: image.brokers.len(),
        fenced_brokers: image.brokers.values().filter(|b| b.fenced).count(),
        ailing_brokers: image.brokers.values().filter(|b| b.ailing).count(),
        topics: image.topics.len(),
        partitions: partitions().count(),
        under_replicated_partitions: partitions()
            .filter(|p| p.isr.len() < p.replicas.len())
            .count(),
        offline_partitions: partitions().filter(|p| p.leader.is_none()).count(),
    };
    Ok(call.answer_json(StatusCode::OK, &cluster))
}

/// Each node tells its own: what it was started with is known to it alone.
fn this_node(call: &Call) -> Result<String, Problem> {
    let (asked, own) = (call.name(), call.door.node.settings().broker.0);
    if asked.parse() == Ok(own) {
        return Ok(own.to_string());
    }
    Err(Problem::new(
        StatusCode::NOT_FOUND,
        "unknown-broker",
        "there is no such broker here",
        format!("this is broker {own}, not {asked:?}"),
    )
    .hint("GET /v1/brokers lists them"))
}

/// Configs of a node
#[utoipa::path(
    get, path = "/v1/brokers/{broker}/config", tag = "cluster", operation_id = "getBrokerConfigs",
    params(("broker" = String, Path, description = "Id; each node tells its own")),
    responses((status = 200, description = "Every key with its value and where it comes from", body = Configs))
)]
pub(crate) fn configs(call: &Call) -> Answer {
    call.query.clone().done()?;
    this_node(call)?;
    let configs = config_views(layered::of_broker(&call.door.node));
    Ok(call.answer_json(StatusCode::OK, &configs))
}

/// Change configs of a node
///
/// A merge patch: a value sets, null goes back to the default.
#[utoipa::path(
    patch, path = "/v1/brokers/{broker}/config", tag = "cluster", operation_id = "patchBrokerConfigs",
    params(("broker" = String, Path, description = "Id; each node changes its own"), schema::DryRun),
    request_body = BTreeMap<String, Value>,
    responses((status = 200, description = "All of them, afterwards", body = Configs))
)]
pub(crate) async fn alter_configs(mut call: Call) -> Answer {
    let (changes, validate_only) = config_changes(&mut call).await?;
    let resource = ConfigResource::Broker(this_node(&call)?);
    change_configs(&call.door, resource, changes, validate_only).await?;
    let configs = config_views(layered::of_broker(&call.door.node));
    Ok(call.answer_json(StatusCode::OK, &configs))
}
