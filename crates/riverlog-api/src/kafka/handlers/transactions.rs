//! What the requests of transactions have in common.

use riverlog_core::metadata::MetadataImage;
use riverlog_core::transactions::Place;
use riverlog_wire::ErrorCode;

/// The error for a client of `version`: PRODUCER_FENCED came late (KIP-588), before it was INVALID_PRODUCER_EPOCH.
pub(super) fn fenced_before(from: i16, version: i16, error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::PRODUCER_FENCED if version < from => ErrorCode::INVALID_PRODUCER_EPOCH,
        error => error,
    }
}

/// The error as the clients of Produce and TxnOffsetCommit know it, where the coordinator was asked on the way. `adds`: by a client of
/// transaction version 2; `abortable`: the client knows TRANSACTION_ABORTABLE.
///
/// What passes is NOT_ENOUGH_REPLICAS for older producers: they send the batch again, and don't look for another leader.
pub(super) fn on_the_way(error: ErrorCode, adds: bool, abortable: bool) -> ErrorCode {
    match error {
        ErrorCode::PRODUCER_FENCED => ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::TRANSACTION_ABORTABLE if !abortable => ErrorCode::INVALID_TXN_STATE,
        ErrorCode::CONCURRENT_TRANSACTIONS if !adds => ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::NOT_COORDINATOR => ErrorCode::NOT_ENOUGH_REPLICAS,
        error => error,
    }
}

/// Whether a partition can become part of a transaction.
pub(super) fn exists(image: &MetadataImage, (topic, partition): &Place) -> bool {
    let found = image.topic(topic);
    found.is_some_and(|topic| {
        usize::try_from(*partition).is_ok_and(|index| index < topic.partitions.len())
    })
}
