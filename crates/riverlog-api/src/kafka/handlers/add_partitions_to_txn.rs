//! AddPartitionsToTxn v0–v5 (KIP-98, 360). From v4 on brokers ask for several transactions at once, or only whether partitions are
//! in them (KIP-890).

use riverlog_core::transactions::{
    Place, TransactionAnswer, TransactionCommand, TransactionVersion,
};
use riverlog_wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use riverlog_wire::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use riverlog_wire::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use super::transactions::{exists, fenced_before};
use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

/// First version with several transactions.
const BATCHED_FROM: i16 = 4;
/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

pub(super) fn handle(
    context: &Context<'_>,
    request: AddPartitionsToTxnRequest,
    responder: Responder,
) {
    let batched = context.version >= BATCHED_FROM;
    let transactions = if batched {
        request.transactions
    } else {
        vec![AddPartitionsToTxnTransaction {
            transactional_id: request.v3_and_below_transactional_id,
            producer_id: request.v3_and_below_producer_id,
            producer_epoch: request.v3_and_below_producer_epoch,
            verify_only: false,
            topics: request.v3_and_below_topics,
        }]
    };
    let mut gather = Gather::new(move |results: Vec<AddPartitionsToTxnResult>| {
        let mut response = AddPartitionsToTxnResponse::default();
        if batched {
            response.results_by_transaction = results;
        } else {
            let first = results.into_iter().next();
            response.results_by_topic_v3_and_below =
                first.map(|r| r.topic_results).unwrap_or_default();
        }
        responder.send(&response);
    });
    for transaction in transactions {
        one(context, transaction, &mut gather);
    }
    gather.seal();
}

fn one(
    context: &Context<'_>,
    transaction: AddPartitionsToTxnTransaction,
    gather: &mut Gather<AddPartitionsToTxnResult>,
) {
    let version = context.version;
    let AddPartitionsToTxnTransaction {
        transactional_id: id,
        producer_id,
        producer_epoch,
        verify_only,
        topics,
    } = transaction;
    let image = context.door.node.image();
    let mut places: Vec<Place> = Vec::new();
    for topic in &topics {
        let all = topic.partitions.iter();
        places.extend(all.map(|partition| (topic.name.clone(), *partition)));
    }
    let missing: Vec<bool> = places.iter().map(|p| !exists(&image, p)).collect();
    let any_missing = missing.contains(&true);
    // All or nothing: what would have fitted isn't even tried.
    if any_missing && !verify_only {
        let errors = missing.into_iter().map(|missing| match missing {
            true => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            false => ErrorCode::OPERATION_NOT_ATTEMPTED,
        });
        return gather.ready(result(id, topics, errors.collect()));
    }
    let (producer_id, epoch) = (ProducerId(producer_id), ProducerEpoch(producer_epoch));
    let command = if verify_only {
        TransactionCommand::Verify {
            id: id.clone(),
            producer_id,
            epoch,
            partitions: places,
        }
    } else {
        TransactionCommand::Add {
            id: id.clone(),
            producer_id,
            epoch,
            partitions: places,
            version: match version {
                BATCHED_FROM.. => TransactionVersion::TWO,
                _ => TransactionVersion::ONE,
            },
        }
    };
    let reply = gather.reply(move |answer| {
        let count = missing.len();
        let errors = match answer {
            TransactionAnswer::Error(error) => vec![error; count],
            TransactionAnswer::Partitions(each) => each,
            _ => vec![ErrorCode::UNKNOWN_SERVER_ERROR; count],
        };
        let errors = errors.into_iter().zip(missing);
        let errors = errors.map(|(error, missing)| match error {
            _ if missing => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            error => fenced_before(FENCED_FROM, version, error),
        });
        result(id, topics, errors.collect())
    });
    context.door.node.transaction(command, context.now, reply);
}

/// Errors come flat, and are dealt out again to the topics.
fn result(
    transactional_id: String,
    topics: Vec<AddPartitionsToTxnTopic>,
    errors: Vec<ErrorCode>,
) -> AddPartitionsToTxnResult {
    let mut errors = errors.into_iter();
    let topics = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().zip(errors.by_ref());
        AddPartitionsToTxnTopicResult {
            name: topic.name,
            results_by_partition: partitions
                .map(
                    |(partition_index, partition_error_code)| AddPartitionsToTxnPartitionResult {
                        partition_index,
                        partition_error_code,
                    },
                )
                .collect(),
        }
    });
    AddPartitionsToTxnResult {
        transactional_id,
        topic_results: topics.collect(),
    }
}
