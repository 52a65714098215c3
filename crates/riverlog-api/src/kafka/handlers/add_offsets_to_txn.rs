//! AddOffsetsToTxn v0–v4 (KIP-98, 360). Clients of transaction version 2 don't send it.

use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_node::Reply;
use riverlog_wire::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use super::transactions::fenced_before;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// Where groups keep their offsets.
const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

pub(super) fn handle(context: &Context<'_>, request: AddOffsetsToTxnRequest, responder: Responder) {
    let version = context.version;
    let answer = move |error: ErrorCode| {
        responder.send(&AddOffsetsToTxnResponse {
            throttle_time_ms: 0,
            error_code: fenced_before(FENCED_FROM, version, error),
        });
    };
    if request.group_id.is_empty() {
        return answer(ErrorCode::INVALID_GROUP_ID);
    }
    let node = &context.door.node;
    let place = match node.group_place(&request.group_id, context.now) {
        Ok(index) => (OFFSETS_TOPIC.to_owned(), index),
        Err(error) => return answer(error),
    };
    let command = TransactionCommand::Add {
        id: request.transactional_id,
        producer_id: ProducerId(request.producer_id),
        epoch: ProducerEpoch(request.producer_epoch),
        partitions: vec![place],
        version: TransactionVersion::ONE,
    };
    let reply = Reply::new(move |answered| {
        answer(match answered {
            TransactionAnswer::Error(error) => error,
            _ => ErrorCode::UNKNOWN_SERVER_ERROR,
        });
    });
    node.transaction(command, context.now, reply);
}
