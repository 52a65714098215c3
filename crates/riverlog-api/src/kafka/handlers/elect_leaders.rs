//! ElectLeaders v0–v2 (KIP-183, 460): the first assigned replica, or with `UNCLEAN` whoever is up where nobody leads.

use riverlog_core::metadata::{AdminAnswer, AdminCommand, MetadataImage, PartitionImage};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use riverlog_wire::messages::{ElectLeadersRequest, ElectLeadersResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// Election types by their numbers.
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;
/// An error of the whole request has no place before.
const ERRORS_FROM: i16 = 1;

pub(super) fn handle(context: &Context<'_>, request: ElectLeadersRequest, responder: Responder) {
    let version = context.version;
    if !(PREFERRED..=UNCLEAN).contains(&request.election_type) {
        return responder.send(&ElectLeadersResponse {
            // v0 has no error of its own, and no election type either.
            error_code: ErrorCode::INVALID_REQUEST,
            ..ElectLeadersResponse::default()
        });
    }
    let unclean = request.election_type == UNCLEAN;
    let everything = request.topic_partitions.is_none();
    let asked: Vec<(String, Vec<i32>)> = match request.topic_partitions {
        None => all(&context.door.node.image(), unclean),
        Some(topics) => topics
            .into_iter()
            .map(|topic| (topic.topic, topic.partitions))
            .collect(),
    };
    let partitions: Vec<(String, i32)> = asked
        .iter()
        .flat_map(|(topic, indexes)| indexes.iter().map(|index| (topic.clone(), *index)))
        .collect();
    let count = partitions.len();
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        if let Err(error_code) = answer
            && version >= ERRORS_FROM
        {
            return responder.send(&ElectLeadersResponse {
                error_code,
                ..ElectLeadersResponse::default()
            });
        }
        let mut results = super::results(answer, count).into_iter();
        let topics = asked.into_iter().map(|(topic, indexes)| {
            let one = |partition_id| {
                let result = results.next().unwrap_or_else(super::lost);
                PartitionResult {
                    partition_id,
                    error_code: result.error,
                    error_message: result.message,
                }
            };
            // Somebody else may have been faster; who asks for all wants to know what is left.
            let partitions = indexes.into_iter().map(one);
            let shown = partitions
                .filter(|p| !everything || p.error_code != ErrorCode::ELECTION_NOT_NEEDED);
            ReplicaElectionResult {
                topic,
                partition_result: shown.collect(),
            }
        });
        responder.send(&ElectLeadersResponse {
            replica_election_results: topics.collect(),
            ..ElectLeadersResponse::default()
        });
    });
    let command = AdminCommand::ElectLeaders {
        partitions,
        unclean,
    };
    context.door.node.admin(command, context.now, reply);
}

/// Every topic, with those partitions that an election could change, as in Kafka.
fn all(image: &MetadataImage, unclean: bool) -> Vec<(String, Vec<i32>)> {
    let wants = |partition: &PartitionImage| match unclean {
        true => partition.leader.is_none(),
        false => partition.leader != partition.replicas.first().copied(),
    };
    let topics = image.topics.values().map(|topic| {
        let wanted = (0..)
            .zip(&topic.partitions)
            .filter(|(_, partition)| wants(partition));
        (topic.name.clone(), wanted.map(|(index, _)| index).collect())
    });
    let mut topics: Vec<_> = topics.collect();
    topics.sort();
    topics
}
