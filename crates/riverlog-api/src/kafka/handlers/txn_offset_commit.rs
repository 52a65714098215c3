//! TxnOffsetCommit v0–v6 (KIP-98, 447; KIP-890 from v5; topic ids from v6).

use riverlog_core::groups::{CommittedOffset, GroupCommand, InTransaction};
use riverlog_node::Reply;
use riverlog_wire::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use riverlog_wire::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use super::commits::{codes, place};
use super::topic_by;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// Clients that know TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 4;
/// Clients of transaction version 2.
const ADDS_FROM: i16 = 5;
/// Topics by id.
const IDS_FROM: i16 = 6;

pub(super) fn handle(context: &Context<'_>, request: TxnOffsetCommitRequest, responder: Responder) {
    let version = context.version;
    let image = context.door.node.image();
    let mut response = TxnOffsetCommitResponse::default();
    let mut offsets = Vec::new();
    // Where the answer for each offset that the group sees belongs: topic and partition of the response.
    let mut places = Vec::new();
    for (t, topic) in request.topics.into_iter().enumerate() {
        let known = topic_by(&image, version >= IDS_FROM, topic.topic_id, &topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (p, partition) in topic.partitions.into_iter().enumerate() {
            let index = partition.partition_index;
            let error_code = match place(&known, index) {
                Err(code) => code,
                Ok(place) => {
                    let offset = CommittedOffset {
                        offset: Offset(partition.committed_offset),
                        leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
                        metadata: partition.committed_metadata.unwrap_or_default(),
                        commit_timestamp: -1,
                        expire_timestamp: None,
                    };
                    offsets.push((place, offset));
                    places.push((t, p));
                    ErrorCode::NONE
                }
            };
            partitions.push(TxnOffsetCommitResponsePartition {
                partition_index: index,
                error_code,
            });
        }
        response.topics.push(TxnOffsetCommitResponseTopic {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions,
        });
    }
    // Nothing is left to commit: nobody is asked.
    if offsets.is_empty() {
        return responder.send(&response);
    }
    let command = GroupCommand::TxnCommit {
        group: request.group_id,
        generation: Generation(request.generation_id_or_member_epoch),
        member: request.member_id,
        instance: request.group_instance_id,
        offsets,
        version,
        transaction: InTransaction {
            producer_id: ProducerId(request.producer_id),
            producer_epoch: ProducerEpoch(request.producer_epoch),
            verified: Offset::ZERO,
        },
    };
    let reply = Reply::new(move |answer| {
        let codes = codes(answer, places.len());
        for ((t, p), code) in places.into_iter().zip(codes) {
            let topic = response.topics.get_mut(t);
            if let Some(place) = topic.and_then(|topic| topic.partitions.get_mut(p)) {
                place.error_code = known_to_client(version, code);
            }
        }
        responder.send(&response);
    });
    let id = &request.transactional_id;
    let adds = version >= ADDS_FROM;
    let (node, now) = (&context.door.node, context.now);
    node.commit_in_transaction(id, adds, command, now, reply);
}

/// The transaction's coordinator was asked on the way; these clients only look for the group's again.
fn known_to_client(version: i16, error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::PRODUCER_FENCED => ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::TRANSACTION_ABORTABLE if version < ABORTABLE_FROM => {
            ErrorCode::INVALID_TXN_STATE
        }
        ErrorCode::CONCURRENT_TRANSACTIONS if version < ADDS_FROM => {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        }
        error => error,
    }
}
