//! DescribeTopicPartitions v0 (KIP-966): topics in order of name, so many partitions at a time, and where to go on. Authorized operations
//! are told unasked: the request has no flag for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverlog_core::metadata::{MetadataImage, PartitionImage, TopicImage, check_topic_name};
use riverlog_wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use riverlog_wire::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use riverlog_wire::{BrokerId, ErrorCode};

use super::operations;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(
    context: &Context<'_>,
    request: DescribeTopicPartitionsRequest,
    responder: Responder,
) {
    let image = context.door.node.image();
    let names: BTreeSet<String> = if request.topics.is_empty() {
        image.topics.values().map(|t| t.name.clone()).collect()
    } else {
        request.topics.into_iter().map(|t| t.name).collect()
    };
    let cursor = request.cursor;
    if cursor.as_ref().is_some_and(|c| c.partition_index < 0) {
        // The message has no error of its own.
        let refused = names
            .into_iter()
            .map(|name| failed(name, ErrorCode::INVALID_REQUEST));
        return responder.send(&DescribeTopicPartitionsResponse {
            topics: refused.collect(),
            ..DescribeTopicPartitionsResponse::default()
        });
    }
    let (from_topic, from_partition) =
        cursor.map_or((String::new(), 0), |c| (c.topic_name, c.partition_index));
    let most = context.door.settings.max_described_partitions;
    let asked = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut room = asked.min(most).max(1);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.range(from_topic.clone()..) {
        let Some(topic) = image.topic(name) else {
            response.topics.push(unknown(name));
            continue;
        };
        let from = if *name == from_topic {
            from_partition
        } else {
            0
        };
        if room == 0 {
            response.next_cursor = Some(Cursor {
                topic_name: name.clone(),
                partition_index: from,
            });
            break;
        }
        let (described, next) = describe(&image, topic, from, room);
        room -= described.partitions.len();
        response.topics.push(described);
        if let Some(partition_index) = next {
            response.next_cursor = Some(Cursor {
                topic_name: name.clone(),
                partition_index,
            });
            break;
        }
    }
    responder.send(&response);
}

/// At most `room` partitions of a topic from `from` on, and the next one if there are more.
fn describe(
    image: &MetadataImage,
    topic: &Arc<TopicImage>,
    from: i32,
    room: usize,
) -> (DescribeTopicPartitionsResponseTopic, Option<i32>) {
    let first = usize::try_from(from).unwrap_or(0);
    let partitions = (from..).zip(topic.partitions.iter().skip(first));
    let described: Vec<_> = partitions
        .take(room)
        .map(|(index, partition)| describe_partition(image, index, partition))
        .collect();
    let end = first.saturating_add(described.len());
    let next = (end < topic.partitions.len())
        .then(|| i32::try_from(end).ok())
        .flatten();
    let described = DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::NONE,
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        is_internal: topic.internal,
        partitions: described,
        topic_authorized_operations: operations::on_topic(true),
    };
    (described, next)
}

fn describe_partition(
    image: &MetadataImage,
    partition_index: i32,
    partition: &PartitionImage,
) -> DescribeTopicPartitionsResponsePartition {
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|b| b.0).collect();
    let is_up = |id: &BrokerId| image.brokers.get(id).is_some_and(|b| !b.fenced);
    DescribeTopicPartitionsResponsePartition {
        error_code: match partition.leader {
            Some(_) => ErrorCode::NONE,
            None => ErrorCode::LEADER_NOT_AVAILABLE,
        },
        partition_index,
        leader_id: partition.leader.map_or(-1, |b| b.0),
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        offline_replicas: partition
            .replicas
            .iter()
            .filter(|id| !is_up(id))
            .map(|id| id.0)
            .collect(),
    }
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let error_code = match check_topic_name(name) {
        Ok(()) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        Err(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
    };
    failed(name.to_owned(), error_code)
}

fn failed(name: String, error_code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code,
        name: Some(name),
        topic_authorized_operations: operations::on_topic(true),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
