//! ShareAcknowledge v1–v2 (KIP-932, 1222).

use std::collections::BTreeSet;
use std::sync::Arc;

use riverlog_core::metadata::TopicRef;
use riverlog_core::share::ShareKey;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::share_acknowledge_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareAcknowledgeTopicResponse,
};
use riverlog_wire::messages::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};

use super::leaders;
use super::share::{acknowledgements, lock_timeout, member_of};
use crate::kafka::context::Context;
use crate::kafka::door::KafkaDoor;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;
use crate::kafka::share_sessions::{Ask, Place};

pub(super) fn handle(
    context: &Context<'_>,
    request: ShareAcknowledgeRequest,
    responder: Responder,
) {
    let refuse = |responder: Responder, error_code: ErrorCode| {
        responder.send(&ShareAcknowledgeResponse {
            error_code,
            error_message: Some(error_code.message().to_owned()),
            ..ShareAcknowledgeResponse::default()
        });
    };
    let member = match member_of(request.group_id, request.member_id) {
        Ok(member) => member,
        Err(error) => return refuse(responder, error),
    };
    let door = context.door;
    let ask = Ask {
        member: member.clone(),
        epoch: request.share_session_epoch,
        connection: context.connection,
        named: Vec::new(),
        forgotten: Vec::new(),
        acknowledges: true,
    };
    let plan = match door.share_sessions.lock().acknowledge(ask) {
        Ok(plan) => plan,
        Err(error) => return refuse(responder, error),
    };
    let node = &door.node;
    let may_renew = request.is_renew_ack && node.share_may_renew(&member.0);
    let (group, version) = (member.0.clone(), context.version);
    let door = Arc::downgrade(door);
    let mut gather = Gather::new(move |done| {
        if let Some(door) = door.upgrade() {
            respond(&door, version, &group, done, responder);
        }
    });
    for topic in request.topics {
        for partition in topic.partitions {
            let place = (topic.topic_id, partition.partition_index);
            let batches = partition.acknowledgement_batches.iter();
            let batches = batches.map(|b| {
                (
                    b.first_offset,
                    b.last_offset,
                    b.acknowledge_types.as_slice(),
                )
            });
            match acknowledgements(batches, may_renew) {
                Err(error) => gather.ready((place, error)),
                Ok(said) => {
                    let reply = gather.reply(move |kept: Result<(), ErrorCode>| {
                        (place, kept.err().unwrap_or(ErrorCode::NONE))
                    });
                    let key = key(&member.0, place);
                    node.share_acknowledge(&key, &member.1, &said, context.now, reply);
                }
            }
        }
    }
    if plan.closes {
        for place in plan.partitions {
            node.share_release(&key(&member.0, place), &member.1, context.now);
        }
    }
    gather.seal();
}

fn key(group: &str, (topic, partition): Place) -> ShareKey {
    ShareKey {
        group: group.to_owned(),
        topic,
        partition,
    }
}

fn respond(
    door: &KafkaDoor,
    version: i16,
    group: &str,
    done: Vec<(Place, ErrorCode)>,
    responder: Responder,
) {
    let mut leading = BTreeSet::new();
    let mut response = ShareAcknowledgeResponse::default();
    if version >= 2 {
        response.acquisition_lock_timeout_ms = lock_timeout(door, group);
    }
    for ((topic_id, partition_index), error_code) in done {
        let mut data = PartitionData {
            partition_index,
            error_code,
            error_message: (error_code != ErrorCode::NONE).then(|| error_code.message().to_owned()),
            ..PartitionData::default()
        };
        if error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER
            && let Some(leader) = leaders::of(door, &TopicRef::Id(topic_id), partition_index)
        {
            leading.insert(leader.id);
            data.current_leader = LeaderIdAndEpoch {
                leader_id: leader.id,
                leader_epoch: leader.epoch,
            };
        }
        match response.responses.last_mut() {
            Some(topic) if topic.topic_id == topic_id => topic.partitions.push(data),
            _ => response.responses.push(ShareAcknowledgeTopicResponse {
                topic_id,
                partitions: vec![data],
            }),
        }
    }
    response.node_endpoints = leaders::addresses(door, &leading)
        .map(|node| NodeEndpoint {
            node_id: node.id,
            host: node.host,
            port: node.port,
            rack: node.rack,
        })
        .collect();
    responder.send(&response);
}
