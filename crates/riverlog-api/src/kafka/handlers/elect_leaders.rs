//! ElectLeaders v0–v2 (KIP-183, 460). With one replica there is nobody else to elect: a partition that has its leader needs no
//! election, one without it has no eligible replica.

use riverlog_core::metadata::{MetadataImage, PartitionImage};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use riverlog_wire::messages::{ElectLeadersRequest, ElectLeadersResponse};

use crate::kafka::responder::Responder;
use crate::kafka::session::Context;

/// Election types by their numbers.
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

pub(super) fn handle(context: &Context<'_>, request: ElectLeadersRequest, responder: Responder) {
    let image = context.door.node.image();
    if !(PREFERRED..=UNCLEAN).contains(&request.election_type) {
        return responder.send(&ElectLeadersResponse {
            // v0 has no error of its own, and no election type either.
            error_code: ErrorCode::INVALID_REQUEST,
            ..ElectLeadersResponse::default()
        });
    }
    let results = match request.topic_partitions {
        None => for_all(&image),
        Some(topics) => topics
            .into_iter()
            .map(|topic| ReplicaElectionResult {
                partition_result: topic
                    .partitions
                    .iter()
                    .map(|index| for_one(&image, &topic.topic, *index))
                    .collect(),
                topic: topic.topic,
            })
            .collect(),
    };
    responder.send(&ElectLeadersResponse {
        replica_election_results: results,
        ..ElectLeadersResponse::default()
    });
}

/// Every topic, with only those partitions that aren't as they should be, as in Kafka.
fn for_all(image: &MetadataImage) -> Vec<ReplicaElectionResult> {
    let topics = image.topics.values().map(|topic| {
        let failed = (0..)
            .zip(&topic.partitions)
            .filter(|(_, partition)| !is_led_as_preferred(partition))
            .map(|(index, _)| result(index, ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE));
        ReplicaElectionResult {
            topic: topic.name.clone(),
            partition_result: failed.collect(),
        }
    });
    let mut results: Vec<ReplicaElectionResult> = topics.collect();
    results.sort_by(|a, b| a.topic.cmp(&b.topic));
    results
}

fn for_one(image: &MetadataImage, topic: &str, index: i32) -> PartitionResult {
    let partition = image.topic(topic).and_then(|topic| {
        let index = usize::try_from(index).ok()?;
        topic.partitions.get(index)
    });
    let error = match partition {
        None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        Some(partition) if is_led_as_preferred(partition) => ErrorCode::ELECTION_NOT_NEEDED,
        Some(_) => ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE,
    };
    result(index, error)
}

fn is_led_as_preferred(partition: &PartitionImage) -> bool {
    partition.leader.is_some() && partition.leader == partition.replicas.first().copied()
}

fn result(partition_id: i32, error_code: ErrorCode) -> PartitionResult {
    PartitionResult {
        partition_id,
        error_code,
        error_message: Some(error_code.message().to_owned()),
    }
}
