//! WriteTxnMarkers v1–v2 (KIP-98, 1228): from an administrator who ends a transaction that hangs in a partition (KIP-664). The markers of
//! this node's own coordinators take no detour over the wire.

use riverlog_core::metadata::TopicRef;
use riverlog_node::Marker;
use riverlog_wire::messages::write_txn_markers_request::WritableTxnMarker;
use riverlog_wire::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use riverlog_wire::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: WriteTxnMarkersRequest, responder: Responder) {
    let shape: Vec<WritableTxnMarker> = request.markers.clone();
    let mut gather = Gather::new(move |errors: Vec<ErrorCode>| {
        responder.send(&respond(shape, errors));
    });
    for request in request.markers {
        let marker = Marker {
            producer_id: ProducerId(request.producer_id),
            producer_epoch: ProducerEpoch(request.producer_epoch),
            coordinator_epoch: request.coordinator_epoch,
            transaction_version: i16::from(request.transaction_version),
            committed: request.transaction_result,
        };
        for topic in request.topics {
            let reference = TopicRef::Name(topic.name);
            for index in topic.partition_indexes {
                match context.door.node.partition(&reference, index) {
                    Err(error) => gather.ready(error),
                    Ok(partition) => {
                        let reply = gather.reply(|answer: Result<(), ErrorCode>| {
                            answer.err().unwrap_or(ErrorCode::NONE)
                        });
                        let node = &context.door.node;
                        node.write_marker(&partition, marker, context.now, reply);
                    }
                }
            }
        }
    }
    gather.seal();
}

/// Errors come flat, and are dealt out again to markers and topics.
fn respond(shape: Vec<WritableTxnMarker>, errors: Vec<ErrorCode>) -> WriteTxnMarkersResponse {
    let mut errors = errors.into_iter();
    let mut markers = Vec::with_capacity(shape.len());
    for marker in shape {
        let mut topics = Vec::with_capacity(marker.topics.len());
        for topic in marker.topics {
            let partitions = topic.partition_indexes.into_iter().zip(errors.by_ref());
            topics.push(WritableTxnMarkerTopicResult {
                name: topic.name,
                partitions: partitions
                    .map(
                        |(partition_index, error_code)| WritableTxnMarkerPartitionResult {
                            partition_index,
                            error_code,
                        },
                    )
                    .collect(),
            });
        }
        markers.push(WritableTxnMarkerResult {
            producer_id: marker.producer_id,
            topics,
        });
    }
    WriteTxnMarkersResponse { markers }
}
