//! EndTxn v0–v5 (KIP-98, 360). From v5 on the answer brings the epoch of the next transaction (KIP-890).

use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_node::Reply;
use riverlog_wire::messages::{EndTxnRequest, EndTxnResponse};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use super::transactions::fenced_before;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;
/// First version of clients of transaction version 2.
const BUMPS_FROM: i16 = 5;

pub(super) fn handle(context: &Context<'_>, request: EndTxnRequest, responder: Responder) {
    let version = context.version;
    let bumps = version >= BUMPS_FROM;
    let command = TransactionCommand::End {
        id: request.transactional_id,
        producer_id: ProducerId(request.producer_id),
        epoch: ProducerEpoch(request.producer_epoch),
        commit: request.committed,
        version: match bumps {
            true => TransactionVersion::TWO,
            false => TransactionVersion::ONE,
        },
        fresh: None,
    };
    let reply = Reply::new(move |answer| {
        let (error, id, epoch) = match answer {
            TransactionAnswer::Producer {
                error,
                producer_id,
                epoch,
            } if bumps => (error, producer_id.0, epoch.0),
            TransactionAnswer::Producer { error, .. } => (error, -1, -1),
            _ => (ErrorCode::UNKNOWN_SERVER_ERROR, -1, -1),
        };
        responder.send(&EndTxnResponse {
            throttle_time_ms: 0,
            error_code: fenced_before(FENCED_FROM, version, error),
            producer_id: id,
            producer_epoch: epoch,
        });
    });
    context.door.node.transaction(command, context.now, reply);
}
