//! InitProducerId v0–v5 (KIP-98, 360, 588). For idempotent producers; transactional ones are refused until transactions are
//! served.

use riverlog_node::Reply;
use riverlog_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use crate::kafka::responder::Responder;
use crate::kafka::session::Context;

pub(super) fn handle(context: &Context<'_>, request: InitProducerIdRequest, responder: Responder) {
    let half = (request.producer_id == -1) != (request.producer_epoch == -1);
    let refused = match request.transactional_id.as_deref() {
        _ if half => Some(ErrorCode::INVALID_REQUEST),
        None => None,
        Some("") => Some(ErrorCode::INVALID_REQUEST),
        // The one error that the Java client, librdkafka and franz-go all take for final: they show it at once, where they
        // would try others again for as long as they may block.
        Some(_) => Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    };
    if let Some(error_code) = refused {
        return responder.send(&failed(error_code));
    }
    let reply = Reply::new(
        move |answer: Result<(ProducerId, ProducerEpoch), ErrorCode>| {
            responder.send(&match answer {
                Ok((id, epoch)) => InitProducerIdResponse {
                    producer_id: id.0,
                    producer_epoch: epoch.0,
                    ..InitProducerIdResponse::default()
                },
                Err(error_code) => failed(error_code),
            });
        },
    );
    context.door.node.init_producer(context.now, reply);
}

fn failed(error_code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code,
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}
