//! `/v1/brokers`, `/v1/cluster`.

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::door::{Answer, Call};

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
        topics: image.topics.len(),
        partitions: partitions().count(),
        under_replicated_partitions: partitions()
            .filter(|p| p.isr.len() < p.replicas.len())
            .count(),
        offline_partitions: partitions().filter(|p| p.leader.is_none()).count(),
    };
    Ok(call.answer_json(StatusCode::OK, &cluster))
}
