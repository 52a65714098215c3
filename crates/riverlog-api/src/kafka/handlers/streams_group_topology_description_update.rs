//! StreamsGroupTopologyDescriptionUpdate v0 (KIP-1331). Where Kafka needs a plug-in, the description is kept with the group.

use bytes::Bytes;
use riverlog_core::groups::{GroupAnswer, GroupCommand};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{
    StreamsGroupTopologyDescriptionUpdateRequest, StreamsGroupTopologyDescriptionUpdateResponse,
};
use riverlog_wire::primitives::Writer;

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// The most bytes of a description that is kept.
const LARGEST: usize = 256 * 1024;

pub(super) fn handle(
    context: &Context<'_>,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
    responder: Responder,
) {
    let empty = match (request.group_id.is_empty(), request.member_id.is_empty()) {
        (true, _) => Some("the group id is empty; name the group"),
        (_, true) => Some("the member id is empty; give the member's own"),
        _ => None,
    };
    if let Some(words) = empty {
        return responder.send(&StreamsGroupTopologyDescriptionUpdateResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            error_message: Some(words.to_owned()),
            ..StreamsGroupTopologyDescriptionUpdateResponse::default()
        });
    }
    let command = GroupCommand::DescribeTopology {
        group: request.group_id,
        member: request.member_id,
        epoch: request.topology_epoch,
        description: kept(StreamsGroupTopologyDescriptionUpdateRequest {
            topology_epoch: request.topology_epoch,
            topology_description: request.topology_description,
            ..StreamsGroupTopologyDescriptionUpdateRequest::default()
        }),
    };
    let reply = Reply::new(move |answer| {
        let error_code = match answer {
            GroupAnswer::Error(error) => error,
            _ => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        let words = match error_code {
            ErrorCode::NONE => None,
            ErrorCode::INVALID_REQUEST => Some(
                "the topology epoch is not the one that the group and the member run".to_owned(),
            ),
            ErrorCode::STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED => Some(format!(
                "the description is too large to be kept: at most {LARGEST} bytes"
            )),
            other => Some(other.message().to_owned()),
        };
        responder.send(&StreamsGroupTopologyDescriptionUpdateResponse {
            throttle_time_ms: 0,
            error_code,
            error_message: words,
        });
    });
    context.door.node.group(command, context.now, reply);
}

/// The form in which a description is kept: the request without names.
fn kept(request: StreamsGroupTopologyDescriptionUpdateRequest) -> Option<Bytes> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    request.encode(&mut w, 0);
    w.finish().ok()?;
    (bytes.len() <= LARGEST).then(|| bytes.into())
}
