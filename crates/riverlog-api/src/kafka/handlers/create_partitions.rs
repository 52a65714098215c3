//! CreatePartitions v0–v3 (KIP-195). Keys that hash to other partitions afterwards lose their order relative to older records.

use std::collections::BTreeSet;

use riverlog_core::metadata::{AdminAnswer, AdminCommand};
use riverlog_node::Reply;
use riverlog_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use riverlog_wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use riverlog_wire::{BrokerId, ErrorCode};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: CreatePartitionsRequest,
    responder: Responder,
) {
    let names: Vec<String> = request.topics.iter().map(|t| t.name.clone()).collect();
    let topics = request.topics.into_iter().map(|topic| {
        let assignments = topic.assignments.map(|all| {
            all.into_iter()
                .map(|a| a.broker_ids.into_iter().map(BrokerId).collect())
                .collect()
        });
        (topic.name, topic.count, assignments)
    });
    let command = AdminCommand::CreatePartitions {
        topics: topics.collect(),
        validate_only: request.validate_only,
    };
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let results = super::results(answer, names.len());
        // One result for each name, also when it was asked twice.
        let mut told = BTreeSet::new();
        let results = names
            .into_iter()
            .zip(results)
            .filter(|(name, _)| told.insert(name.clone()))
            .map(|(name, result)| CreatePartitionsTopicResult {
                name,
                error_code: result.error,
                error_message: result.message,
            });
        responder.send(&CreatePartitionsResponse {
            throttle_time_ms: 0,
            results: results.collect(),
        });
    });
    context.door.node.admin(command, context.now, reply);
}
