//! DescribeCluster v0–v2 (KIP-700, 919, 1073). The brokers of this listener; controllers can't be asked for here.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_cluster_response::DescribeClusterBroker;
use riverlog_wire::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::operations;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// Endpoint types by their numbers.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) fn handle(context: &Context<'_>, request: DescribeClusterRequest, responder: Responder) {
    let endpoint_type = if context.version >= 1 {
        request.endpoint_type
    } else {
        BROKERS
    };
    let refused = match endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some((
            ErrorCode::MISMATCHED_ENDPOINT_TYPE,
            "this is a broker's listener; ask with --bootstrap-server, not --bootstrap-controller",
        )),
        _ => Some((
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
            "there are brokers (1) and controllers (2)",
        )),
    };
    if let Some((error_code, message)) = refused {
        return responder.send(&DescribeClusterResponse {
            error_code,
            error_message: Some(message.to_owned()),
            ..DescribeClusterResponse::default()
        });
    }
    let door = context.door;
    let image = door.node.image();
    let fenced_too = context.version >= 2 && request.include_fenced_brokers;
    let brokers = image.brokers.values().filter_map(|broker| {
        let (host, port) = door.address(broker)?;
        (fenced_too || !broker.fenced).then(|| DescribeClusterBroker {
            broker_id: broker.id.0,
            host,
            port: i32::from(port),
            rack: broker.rack.clone(),
            is_fenced: context.version >= 2 && broker.fenced,
            disk_ailing: broker.ailing,
        })
    });
    responder.send(&DescribeClusterResponse {
        cluster_id: image.cluster_id.clone(),
        controller_id: door.node.controller_id().map_or(-1, |b| b.0),
        brokers: brokers.collect(),
        cluster_authorized_operations: operations::on_cluster(
            request.include_cluster_authorized_operations,
        ),
        ..DescribeClusterResponse::default()
    });
}
