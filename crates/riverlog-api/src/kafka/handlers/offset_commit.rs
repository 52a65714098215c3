//! OffsetCommit v2–v10 (KIP-211, 320, 345, 848; topic ids from v10).

use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_core::metadata::MetadataImage;
use riverlog_node::Reply;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use riverlog_wire::messages::{OffsetCommitRequest, OffsetCommitResponse};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

use super::topic_by;
use crate::kafka::responder::Responder;
use crate::kafka::session::Context;

pub(super) fn handle(context: &Context<'_>, request: OffsetCommitRequest, responder: Responder) {
    let image = context.door.node.image();
    let expire = (request.retention_time_ms >= 0).then(|| {
        context
            .now
            .wall_ms
            .saturating_add(request.retention_time_ms)
    });
    let mut response = OffsetCommitResponse::default();
    let mut offsets = Vec::new();
    // Where the answer for each offset that the group sees belongs: topic and partition of the response.
    let mut places = Vec::new();
    for (t, topic) in request.topics.iter().enumerate() {
        let known = resolve(&image, context.version, topic);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (p, partition) in topic.partitions.iter().enumerate() {
            let error_code = match &known {
                Err(code) => *code,
                Ok((name, id, count)) if (0..*count).contains(&partition.partition_index) => {
                    offsets.push(committed(name, *id, partition, expire));
                    places.push((t, p));
                    ErrorCode::NONE
                }
                Ok(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            };
            partitions.push(OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code,
            });
        }
        response.topics.push(OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions,
        });
    }
    // Nothing is left to commit: the group isn't asked, and none is made.
    if offsets.is_empty() {
        return responder.send(&response);
    }
    let command = GroupCommand::Commit {
        group: request.group_id,
        generation: Generation(request.generation_id_or_member_epoch),
        member: request.member_id,
        instance: request.group_instance_id,
        offsets,
        version: context.version,
    };
    let reply = Reply::new(move |answer| {
        let (error, each) = match answer {
            GroupAnswer::Partitions(error, each) => (error, each),
            GroupAnswer::Error(error) => (error, Vec::new()),
            _ => (ErrorCode::UNKNOWN_SERVER_ERROR, Vec::new()),
        };
        for (i, (t, p)) in places.into_iter().enumerate() {
            let code = if error == ErrorCode::NONE {
                each.get(i).copied().unwrap_or(error)
            } else {
                error
            };
            if let Some(place) = response
                .topics
                .get_mut(t)
                .and_then(|t| t.partitions.get_mut(p))
            {
                place.error_code = code;
            }
        }
        responder.send(&response);
    });
    context.door.node.group(command, context.now, reply);
}

/// Name, id and number of partitions of the topic that is meant.
fn resolve(
    image: &MetadataImage,
    version: i16,
    topic: &OffsetCommitRequestTopic,
) -> Result<(String, TopicId, i32), ErrorCode> {
    let found = topic_by(image, version >= 10, topic.topic_id, &topic.name)?;
    Ok((
        found.name.clone(),
        found.id,
        i32::try_from(found.partitions.len()).unwrap_or(i32::MAX),
    ))
}

fn committed(
    name: &str,
    id: TopicId,
    partition: &OffsetCommitRequestPartition,
    expire_timestamp: Option<i64>,
) -> (TopicPartition, CommittedOffset) {
    let place = TopicPartition {
        topic: name.to_owned(),
        id,
        partition: partition.partition_index,
    };
    let offset = CommittedOffset {
        offset: Offset(partition.committed_offset),
        leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
        metadata: partition.committed_metadata.clone().unwrap_or_default(),
        commit_timestamp: -1,
        expire_timestamp,
    };
    (place, offset)
}
