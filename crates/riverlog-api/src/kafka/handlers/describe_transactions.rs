//! DescribeTransactions v0 (KIP-664).

use riverlog_core::transactions::TransactionDescription;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_transactions_response::{TopicData, TransactionState};
use riverlog_wire::messages::{DescribeTransactionsRequest, DescribeTransactionsResponse};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: DescribeTransactionsRequest,
    responder: Responder,
) {
    let mut gather = Gather::new(move |transaction_states| {
        responder.send(&DescribeTransactionsResponse {
            throttle_time_ms: 0,
            transaction_states,
        });
    });
    for id in request.transactional_ids {
        if id.is_empty() {
            gather.ready(failed(id, ErrorCode::INVALID_REQUEST));
            continue;
        }
        let asked = id.clone();
        let reply = gather.reply(move |found| match found {
            Ok(found) => describe(found),
            Err(error) => failed(asked, error),
        });
        let node = &context.door.node;
        node.describe_transaction(&id, context.now, reply);
    }
    gather.seal();
}

fn describe(found: TransactionDescription) -> TransactionState {
    let mut topics: Vec<TopicData> = Vec::new();
    for (topic, partition) in found.value.partitions {
        match topics.last_mut() {
            Some(last) if last.topic == topic => last.partitions.push(partition),
            _ => topics.push(TopicData {
                topic,
                partitions: vec![partition],
            }),
        }
    }
    TransactionState {
        error_code: ErrorCode::NONE,
        transactional_id: found.id,
        transaction_state: found.value.state.name().to_owned(),
        transaction_timeout_ms: found.value.timeout_ms,
        transaction_start_time_ms: found.value.started_ms,
        producer_id: found.value.producer_id.0,
        producer_epoch: found.value.epoch.0,
        topics,
    }
}

fn failed(transactional_id: String, error_code: ErrorCode) -> TransactionState {
    TransactionState {
        error_code,
        transactional_id,
        ..TransactionState::default()
    }
}
