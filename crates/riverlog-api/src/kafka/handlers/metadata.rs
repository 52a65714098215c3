//! Metadata v0–v13 (KIP-4, 430, 516, 700, 1102). Topics that don't exist are made when the client and the node allow it, and the
//! answer waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverlog_core::metadata::{AdminAnswer, AdminCommand, MetadataImage, NewTopic, TopicImage};
use riverlog_node::Reply;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use riverlog_wire::messages::{MetadataRequest, MetadataResponse};
use riverlog_wire::{ErrorCode, TopicId};

use super::NO_OPERATIONS;
use crate::kafka::door::KafkaDoor;
use crate::kafka::responder::Responder;
use crate::kafka::session::Context;

/// Topics by id; v10 and v11 have the field and must refuse it.
const IDS_FROM: i16 = 12;

pub(super) fn handle(context: &Context<'_>, request: MetadataRequest, responder: Responder) {
    let version = context.version;
    let door = Arc::clone(context.door);
    let Some(topics) = request.topics else {
        return responder.send(&all_topics(&door, version));
    };
    // In v0 no topics at all means all topics.
    if version == 0 && topics.is_empty() {
        return responder.send(&all_topics(&door, version));
    }
    let by_id = topics.iter().any(|t| t.topic_id != TopicId::ZERO);
    if by_id && version < IDS_FROM {
        return responder.send(&refused(&door, topics));
    }
    let missing = missing_names(&door.node.image(), &topics);
    // Before v4 there is no flag, and the node alone decides.
    let may_create =
        door.settings.auto_create_topics && (version < 4 || request.allow_auto_topic_creation);
    if missing.is_empty() || !may_create {
        return responder.send(&these_topics(&door, version, topics));
    }
    let new_topics = missing
        .into_iter()
        .map(|name| NewTopic {
            name,
            partitions: -1,
            replication_factor: -1,
            id: TopicId(door.node.random().to_be_bytes()),
            ..NewTopic::default()
        })
        .collect();
    let command = AdminCommand::CreateTopics {
        topics: new_topics,
        validate_only: false,
    };
    // Whatever became of it (another client may have been first), the image tells.
    let reply = Reply::new(move |_: Result<AdminAnswer, ErrorCode>| {
        responder.send(&these_topics(&door, version, topics));
    });
    context.door.node.admin(command, context.now, reply);
}

fn missing_names(image: &MetadataImage, topics: &[MetadataRequestTopic]) -> BTreeSet<String> {
    let names = topics
        .iter()
        .filter(|t| t.topic_id == TopicId::ZERO)
        .filter_map(|t| t.name.as_deref());
    let missing = names.filter(|name| image.topic(name).is_none());
    missing
        .filter(|name| riverlog_core::metadata::check_topic_name(name).is_ok())
        .map(str::to_owned)
        .collect()
}

fn all_topics(door: &KafkaDoor, version: i16) -> MetadataResponse {
    let image = door.node.image();
    let mut topics: Vec<&Arc<TopicImage>> = image.topics.values().collect();
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let topics = topics
        .into_iter()
        .map(|topic| describe(version, topic))
        .collect();
    frame(door, &image, topics)
}

fn these_topics(
    door: &KafkaDoor,
    version: i16,
    asked: Vec<MetadataRequestTopic>,
) -> MetadataResponse {
    let image = door.node.image();
    let topics = asked
        .into_iter()
        .map(|ask| find(&image, version, ask))
        .collect();
    frame(door, &image, topics)
}

fn find(image: &MetadataImage, version: i16, asked: MetadataRequestTopic) -> MetadataResponseTopic {
    if asked.topic_id != TopicId::ZERO {
        return match image.topics.get(&asked.topic_id) {
            Some(topic) => describe(version, topic),
            None => failed(version, None, asked.topic_id, ErrorCode::UNKNOWN_TOPIC_ID),
        };
    }
    let name = asked.name.unwrap_or_default();
    match image.topic(&name) {
        Some(topic) => describe(version, topic),
        None => {
            let error = match riverlog_core::metadata::check_topic_name(&name) {
                Ok(()) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                Err(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
            };
            failed(version, Some(name), TopicId::ZERO, error)
        }
    }
}

/// v10 and v11 with topic ids: refused as a whole, each topic by itself.
fn refused(door: &KafkaDoor, asked: Vec<MetadataRequestTopic>) -> MetadataResponse {
    let refuse = |t: MetadataRequestTopic| {
        let name = Some(t.name.unwrap_or_default());
        failed(0, name, t.topic_id, ErrorCode::INVALID_REQUEST)
    };
    let topics = asked.into_iter().map(refuse).collect();
    frame(door, &door.node.image(), topics)
}

fn failed(
    version: i16,
    name: Option<String>,
    topic_id: TopicId,
    error_code: ErrorCode,
) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code,
        name: if version >= IDS_FROM {
            name
        } else {
            Some(name.unwrap_or_default())
        },
        topic_id,
        topic_authorized_operations: NO_OPERATIONS,
        ..MetadataResponseTopic::default()
    }
}

fn describe(version: i16, topic: &TopicImage) -> MetadataResponseTopic {
    let ids = |brokers: &[riverlog_wire::BrokerId]| brokers.iter().map(|b| b.0).collect();
    let partitions = (0..)
        .zip(&topic.partitions)
        .map(|(partition_index, partition)| MetadataResponsePartition {
            error_code: match partition.leader {
                Some(_) => ErrorCode::NONE,
                None => ErrorCode::LEADER_NOT_AVAILABLE,
            },
            partition_index,
            leader_id: partition.leader.map_or(-1, |b| b.0),
            leader_epoch: if version >= 7 {
                partition.leader_epoch.0
            } else {
                -1
            },
            replica_nodes: ids(&partition.replicas),
            isr_nodes: ids(&partition.isr),
            offline_replicas: Vec::new(),
        });
    MetadataResponseTopic {
        error_code: ErrorCode::NONE,
        name: Some(topic.name.clone()),
        topic_id: if version >= 10 {
            topic.id
        } else {
            TopicId::ZERO
        },
        is_internal: version >= 1 && topic.internal,
        partitions: partitions.collect(),
        topic_authorized_operations: NO_OPERATIONS,
    }
}

fn frame(
    door: &KafkaDoor,
    image: &MetadataImage,
    topics: Vec<MetadataResponseTopic>,
) -> MetadataResponse {
    let brokers = image
        .brokers
        .values()
        .filter(|b| !b.fenced)
        .filter_map(|broker| {
            let (host, port) = door.address_of(broker.id)?;
            Some(MetadataResponseBroker {
                node_id: broker.id.0,
                host,
                port: i32::from(port),
                rack: broker.rack.clone(),
            })
        });
    MetadataResponse {
        brokers: brokers.collect(),
        cluster_id: Some(image.cluster_id.clone()),
        controller_id: door.node.settings().broker.0,
        topics,
        cluster_authorized_operations: NO_OPERATIONS,
        ..MetadataResponse::default()
    }
}
