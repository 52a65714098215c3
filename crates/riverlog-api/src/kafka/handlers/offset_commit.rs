//! OffsetCommit v2–v10 (KIP-211, 320, 345, 848; topic ids from v10).

use riverlog_core::groups::{CommittedOffset, GroupCommand};
use riverlog_node::Reply;
use riverlog_wire::messages::offset_commit_request::OffsetCommitRequestPartition;
use riverlog_wire::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use riverlog_wire::messages::{OffsetCommitRequest, OffsetCommitResponse};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset};

use super::commits::{codes, place};
use super::topic_by;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// Topics by id.
const IDS_FROM: i16 = 10;

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
        let known = topic_by(
            &image,
            context.version >= IDS_FROM,
            topic.topic_id,
            &topic.name,
        );
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (p, partition) in topic.partitions.iter().enumerate() {
            let error_code = match place(&known, partition.partition_index) {
                Err(code) => code,
                Ok(place) => {
                    offsets.push((place, committed(partition, expire)));
                    places.push((t, p));
                    ErrorCode::NONE
                }
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
        let codes = codes(answer, places.len());
        for ((t, p), code) in places.into_iter().zip(codes) {
            let topic = response.topics.get_mut(t);
            if let Some(place) = topic.and_then(|topic| topic.partitions.get_mut(p)) {
                place.error_code = code;
            }
        }
        responder.send(&response);
    });
    context.door.node.group(command, context.now, reply);
}

fn committed(
    partition: &OffsetCommitRequestPartition,
    expire_timestamp: Option<i64>,
) -> CommittedOffset {
    CommittedOffset {
        offset: Offset(partition.committed_offset),
        leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
        metadata: partition.committed_metadata.clone().unwrap_or_default(),
        commit_timestamp: -1,
        expire_timestamp,
    }
}
