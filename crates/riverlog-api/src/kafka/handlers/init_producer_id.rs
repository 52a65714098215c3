//! InitProducerId v0–v5 (KIP-98, 360, 588). v6 (KIP-939, two-phase commit) isn't final, and isn't served.

use riverlog_core::transactions::{TransactionAnswer, TransactionCommand};
use riverlog_node::Reply;
use riverlog_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use super::transactions::fenced_before;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 4;

pub(super) fn handle(context: &Context<'_>, request: InitProducerIdRequest, responder: Responder) {
    let half = (request.producer_id == -1) != (request.producer_epoch == -1);
    if half || request.transactional_id.as_deref() == Some("") {
        return responder.send(&failed(ErrorCode::INVALID_REQUEST));
    }
    let Some(id) = request.transactional_id else {
        let reply = Reply::new(
            move |answer: Result<(ProducerId, ProducerEpoch), ErrorCode>| {
                responder.send(&match answer {
                    Ok((id, epoch)) => made(id, epoch),
                    Err(error_code) => failed(error_code),
                });
            },
        );
        return context.door.node.init_producer(context.now, reply);
    };
    let version = context.version;
    let resume = (request.producer_id != -1).then_some((
        ProducerId(request.producer_id),
        ProducerEpoch(request.producer_epoch),
    ));
    let command = TransactionCommand::Init {
        id,
        timeout_ms: request.transaction_timeout_ms,
        resume,
        fresh: None,
    };
    let reply = Reply::new(move |answer| {
        responder.send(&match answer {
            TransactionAnswer::Producer {
                error: ErrorCode::NONE,
                producer_id,
                epoch,
            } => made(producer_id, epoch),
            TransactionAnswer::Producer { error, .. } => {
                failed(fenced_before(FENCED_FROM, version, error))
            }
            _ => failed(ErrorCode::UNKNOWN_SERVER_ERROR),
        });
    });
    context.door.node.transaction(command, context.now, reply);
}

fn made(id: ProducerId, epoch: ProducerEpoch) -> InitProducerIdResponse {
    InitProducerIdResponse {
        producer_id: id.0,
        producer_epoch: epoch.0,
        ..InitProducerIdResponse::default()
    }
}

fn failed(error_code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code,
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}
