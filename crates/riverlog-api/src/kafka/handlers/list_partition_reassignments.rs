//! ListPartitionReassignments v0 (KIP-455): what moves, in order of topic and partition. What doesn't exist or doesn't move is left out.

use riverlog_core::metadata::{PartitionImage, TopicImage};
use riverlog_wire::BrokerId;
use riverlog_wire::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use riverlog_wire::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: ListPartitionReassignmentsRequest,
    responder: Responder,
) {
    let image = context.door.node.image();
    let mut topics: Vec<OngoingTopicReassignment> = match request.topics {
        None => {
            let all = image.topics.values();
            all.filter_map(|topic| moving(topic, |_| true)).collect()
        }
        Some(asked) => {
            let these = asked.iter().filter_map(|asked| {
                let topic = image.topic(&asked.name)?;
                moving(topic, |index| asked.partition_indexes.contains(&index))
            });
            these.collect()
        }
    };
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    responder.send(&ListPartitionReassignmentsResponse {
        error_message: None,
        topics,
        ..ListPartitionReassignmentsResponse::default()
    });
}

/// The partitions of a topic that move, if there are any.
fn moving(topic: &TopicImage, asked: impl Fn(i32) -> bool) -> Option<OngoingTopicReassignment> {
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|b| b.0).collect();
    let one = |(index, p): (i32, &PartitionImage)| OngoingPartitionReassignment {
        partition_index: index,
        replicas: ids(&p.replicas),
        adding_replicas: ids(&p.adding),
        removing_replicas: ids(&p.removing),
    };
    let partitions: Vec<_> = (0..)
        .zip(&topic.partitions)
        .filter(|(index, p)| p.is_moving() && asked(*index))
        .map(one)
        .collect();
    (!partitions.is_empty()).then(|| OngoingTopicReassignment {
        name: topic.name.clone(),
        partitions,
    })
}
