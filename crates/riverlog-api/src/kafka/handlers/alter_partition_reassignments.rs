//! AlterPartitionReassignments v0–v1 (KIP-455, 860). `timeout_ms` is read and not needed: the answer says that the reassignment has begun.
//! A reassignment that is changed goes on from the replicas of the beginning: what it was to add before, and isn't any more, leaves at once.

use riverlog_core::metadata::{AdminAnswer, AdminCommand, Reassignment};
use riverlog_node::Reply;
use riverlog_wire::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use riverlog_wire::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};
use riverlog_wire::{BrokerId, ErrorCode};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: AlterPartitionReassignmentsRequest,
    responder: Responder,
) {
    let factor_may_change = request.allow_replication_factor_change;
    let asked: Vec<(String, Vec<i32>)> = request
        .topics
        .iter()
        .map(|t| {
            let indexes = t.partitions.iter().map(|p| p.partition_index);
            (t.name.clone(), indexes.collect())
        })
        .collect();
    let partitions = request.topics.into_iter().flat_map(|topic| {
        let name = topic.name;
        topic.partitions.into_iter().map(move |p| Reassignment {
            topic: name.clone(),
            index: p.partition_index,
            replicas: p
                .replicas
                .map(|all| all.into_iter().map(BrokerId).collect()),
        })
    });
    let partitions: Vec<Reassignment> = partitions.collect();
    let count = partitions.len();
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let response = AlterPartitionReassignmentsResponse {
            allow_replication_factor_change: factor_may_change,
            error_message: None,
            ..AlterPartitionReassignmentsResponse::default()
        };
        if let Err(error_code) = answer {
            return responder.send(&AlterPartitionReassignmentsResponse {
                error_code,
                error_message: Some(error_code.message().to_owned()),
                ..response
            });
        }
        let mut results = super::results(answer, count).into_iter();
        let topics = asked.into_iter().map(|(name, indexes)| {
            let one = |partition_index| {
                let result = results.next().unwrap_or_else(super::lost);
                ReassignablePartitionResponse {
                    partition_index,
                    error_code: result.error,
                    error_message: result.message,
                }
            };
            ReassignableTopicResponse {
                name,
                partitions: indexes.into_iter().map(one).collect(),
            }
        });
        responder.send(&AlterPartitionReassignmentsResponse {
            responses: topics.collect(),
            ..response
        });
    });
    let command = AdminCommand::Reassign {
        partitions,
        factor_may_change,
    };
    context.door.node.admin(command, context.now, reply);
}
