//! UnregisterBroker v0 (KIP-500). A node that is running here isn't taken out of the cluster under its own feet.

use riverlog_core::metadata::{AdminAnswer, AdminCommand};
use riverlog_node::Reply;
use riverlog_wire::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use riverlog_wire::{BrokerId, ErrorCode};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: UnregisterBrokerRequest,
    responder: Responder,
) {
    let broker = BrokerId(request.broker_id);
    if broker == context.door.node.settings().broker {
        return responder.send(&UnregisterBrokerResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            error_message: Some(format!(
                "broker {broker} is running, and answers this; stop it before it is unregistered"
            )),
            ..UnregisterBrokerResponse::default()
        });
    }
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let result = super::results(answer, 1).pop();
        let (error_code, error_message) = result
            .map_or((ErrorCode::UNKNOWN_SERVER_ERROR, None), |r| {
                (r.error, r.message)
            });
        responder.send(&UnregisterBrokerResponse {
            throttle_time_ms: 0,
            error_code,
            error_message,
        });
    });
    context
        .door
        .node
        .admin(AdminCommand::Unregister { broker }, context.now, reply);
}
