//! ListTransactions v0–v2 (KIP-664; by duration from v1, KIP-994; by pattern from v2, KIP-1152).

use riverlog_core::transactions::{TransactionFilter, TransactionState as State};
use riverlog_wire::messages::list_transactions_response::TransactionState;
use riverlog_wire::messages::{ListTransactionsRequest, ListTransactionsResponse};
use riverlog_wire::{ErrorCode, ProducerId};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: ListTransactionsRequest,
    responder: Responder,
) {
    let mut filter = TransactionFilter::all();
    if context.version >= 1 {
        filter.running_longer_than_ms = request.duration_filter;
    }
    let mut response = ListTransactionsResponse::default();
    if !request.state_filters.is_empty() {
        let mut states = std::collections::BTreeSet::new();
        for name in request.state_filters {
            match State::from_name(&name) {
                Some(state) => {
                    states.insert(state);
                }
                None => response.unknown_state_filters.push(name),
            }
        }
        filter.states = Some(states);
    }
    let producers = request.producer_id_filters.into_iter();
    filter.producers = producers.map(ProducerId).collect();
    let pattern = request.transactional_id_pattern.filter(|p| !p.is_empty());
    if let Some(pattern) = pattern
        && let Err(error) = filter.set_pattern(&pattern)
    {
        return responder.send(&failed(error));
    }
    match context.door.node.transactions(&filter, context.now) {
        Err(error) => responder.send(&failed(error)),
        Ok(found) => {
            let found = found.into_iter().map(|found| TransactionState {
                transactional_id: found.id,
                producer_id: found.value.producer_id.0,
                transaction_state: found.value.state.name().to_owned(),
            });
            response.transaction_states = found.collect();
            responder.send(&response);
        }
    }
}

fn failed(error_code: ErrorCode) -> ListTransactionsResponse {
    ListTransactionsResponse {
        error_code,
        ..ListTransactionsResponse::default()
    }
}
