//! Metadata v0–v13 (KIP-4, 430, 516, 700, 1102). Topics that don't exist are made when the client and the node allow it, and the
//! answer waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, MetadataImage, NewTopic, TopicImage, check_topic_name,
};
use riverlog_node::Reply;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use riverlog_wire::messages::{ApiKey, MetadataRequest, MetadataResponse};
use riverlog_wire::primitives::Writer;
use riverlog_wire::{BrokerId, ErrorCode, TopicId};

use super::operations;
use crate::kafka::context::Context;
use crate::kafka::door::KafkaDoor;
use crate::kafka::responder::{Close, Responder};

/// Topics by id; v10 and v11 have the field and must refuse it.
const IDS_FROM: i16 = 12;

/// Replicas that are down.
const OFFLINE_FROM: i16 = 5;

/// How an answer looks, besides what is in it.
#[derive(Clone, Copy)]
struct Show {
    version: i16,
    topic_operations: bool,
    cluster_operations: bool,
    /// The node that decides, as far as this one knows; −1: none.
    controller: i32,
}

/// How long a client waits at a node that starts until it is let in, and knows its cluster.
const LET_IN: Duration = Duration::from_secs(5);

/// A node that starts knows little or nothing of its cluster until it is let in, and clients take what they are told for all that there is: of
/// an answer without nodes some never recover. So they wait, as at Kafka's brokers, which don't accept connections before. When it takes
/// too long they had better ask another node.
pub(super) fn handle(context: &Context<'_>, request: MetadataRequest, responder: Responder) {
    let (version, now) = (context.version, context.now);
    let node = &context.door.node;
    if node.turns_away() {
        return responder.close(Close::new(
            "this node hears too few others and may know an old state of the cluster: ask another node",
        ));
    }
    if node.was_let_in() {
        return answer(context.door, version, now, request, responder);
    }
    let door = Arc::downgrade(context.door);
    let reply = Reply::new(move |let_in: bool| {
        let Some(door) = door.upgrade() else { return };
        if let_in || !door.node.image().brokers.is_empty() {
            return answer(&door, version, now, request, responder);
        }
        responder.close(Close::new(
            "this node isn't part of its cluster yet: ask another node, or look at its log for what it waits for",
        ));
    });
    node.when_let_in(LET_IN, now, reply);
}

fn answer(
    door: &Arc<KafkaDoor>,
    version: i16,
    now: Now,
    request: MetadataRequest,
    responder: Responder,
) {
    let show = Show {
        version,
        topic_operations: version >= 8 && request.include_topic_authorized_operations,
        cluster_operations: (8..=10).contains(&version)
            && request.include_cluster_authorized_operations,
        controller: door.node.controller_id().map_or(-1, |b| b.0),
    };
    // In v0 no topics at all means all topics.
    let topics = match request.topics {
        Some(topics) if version > 0 || !topics.is_empty() => topics,
        _ => return send_all(door, show, responder),
    };
    let by_id = topics.iter().any(|t| t.topic_id != TopicId::ZERO);
    if by_id && version < IDS_FROM {
        return responder.send(&refused(door, show, topics));
    }
    let missing = missing_names(&door.node.image(), &topics);
    // Before v4 there is no flag, and the node alone decides.
    // A node that starts can't tell yet what is missing.
    let may_create = door.settings.auto_create_topics
        && (version < 4 || request.allow_auto_topic_creation)
        && door.node.was_let_in();
    if missing.is_empty() || !may_create {
        return responder.send(&these_topics(door, show, topics, &Failures::new()));
    }
    let new_topics = missing.iter().map(|name| NewTopic {
        name: name.clone(),
        partitions: -1,
        replication_factor: -1,
        id: door.node.new_topic_id(),
        ..NewTopic::default()
    });
    let command = AdminCommand::CreateTopics {
        topics: new_topics.collect(),
        validate_only: false,
    };
    let node = &door.node;
    let door = Arc::downgrade(door);
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let Some(door) = door.upgrade() else { return };
        let results = super::results(answer, missing.len());
        let failures = missing.into_iter().zip(results);
        let failures = failures.map(|(name, r)| (name, r.error)).collect();
        // Another client may have been first: where the topic is there, the image tells, and no failure counts.
        responder.send(&these_topics(&door, show, topics, &failures));
    });
    node.admin(command, now, reply);
}

/// Why a topic couldn't be made.
type Failures = BTreeMap<String, ErrorCode>;

/// Sends all topics, encoded once for all who ask.
fn send_all(door: &KafkaDoor, show: Show, responder: Responder) {
    let (image, version) = (door.node.image(), show.version);
    let operations = (show.topic_operations, show.cluster_operations);
    let kind = (version, operations, show.controller);
    let body = door.metadata.body(&image, kind, || {
        let mut body = Vec::new();
        let mut w = Writer::new(&mut body);
        all_topics(door, &image, show).encode(&mut w, version);
        w.finish().map(|_| Bytes::from(body))
    });
    match body {
        Ok(body) => responder.send_body(ApiKey::Metadata, body),
        Err(error) => responder.close(Close::new(format!(
            "Metadata v{version} can't be encoded: {error}"
        ))),
    }
}

fn missing_names(image: &MetadataImage, topics: &[MetadataRequestTopic]) -> BTreeSet<String> {
    let names = topics
        .iter()
        .filter(|t| t.topic_id == TopicId::ZERO)
        .filter_map(|t| t.name.as_deref());
    let missing = names.filter(|name| image.topic(name).is_none());
    missing
        .filter(|name| check_topic_name(name).is_ok())
        .map(str::to_owned)
        .collect()
}

fn all_topics(door: &KafkaDoor, image: &MetadataImage, show: Show) -> MetadataResponse {
    let mut topics: Vec<&Arc<TopicImage>> = image.topics.values().collect();
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let topics = topics
        .into_iter()
        .map(|topic| describe(image, show, topic))
        .collect();
    frame(door, image, show, topics)
}

fn these_topics(
    door: &KafkaDoor,
    show: Show,
    asked: Vec<MetadataRequestTopic>,
    failures: &Failures,
) -> MetadataResponse {
    let image = door.node.image();
    // One answer for each topic, also when it was asked twice.
    let mut told = BTreeSet::new();
    let topics = asked
        .into_iter()
        .filter(|ask| told.insert((ask.topic_id, ask.name.clone())))
        .map(|ask| find(door, &image, show, ask, failures))
        .collect();
    frame(door, &image, show, topics)
}

fn find(
    door: &KafkaDoor,
    image: &MetadataImage,
    show: Show,
    asked: MetadataRequestTopic,
    failures: &Failures,
) -> MetadataResponseTopic {
    if asked.topic_id != TopicId::ZERO {
        return match image.topics.get(&asked.topic_id) {
            Some(topic) => describe(image, show, topic),
            None => {
                let error = match door.node.was_let_in() {
                    true => ErrorCode::UNKNOWN_TOPIC_ID,
                    false => ErrorCode::LEADER_NOT_AVAILABLE,
                };
                failed(show, None, asked.topic_id, error)
            }
        };
    }
    let name = asked.name.unwrap_or_default();
    if let Some(topic) = image.topic(&name) {
        return describe(image, show, topic);
    }
    let error = match failures.get(&name) {
        // It was made and is gone again, or is being made: worth another try.
        Some(&ErrorCode::NONE | &ErrorCode::TOPIC_ALREADY_EXISTS) => {
            ErrorCode::LEADER_NOT_AVAILABLE
        }
        Some(error) => *error,
        None if check_topic_name(&name).is_err() => ErrorCode::INVALID_TOPIC_EXCEPTION,
        // A client that is told that its topic is gone gives up what it has for it.
        None if !door.node.was_let_in() => ErrorCode::LEADER_NOT_AVAILABLE,
        None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    };
    failed(show, Some(name), TopicId::ZERO, error)
}

/// v10 and v11 with topic ids: refused as a whole, each topic by itself.
fn refused(door: &KafkaDoor, show: Show, asked: Vec<MetadataRequestTopic>) -> MetadataResponse {
    let refuse = |t: MetadataRequestTopic| {
        let name = Some(t.name.unwrap_or_default());
        failed(show, name, t.topic_id, ErrorCode::INVALID_REQUEST)
    };
    let topics = asked.into_iter().map(refuse).collect();
    frame(door, &door.node.image(), show, topics)
}

fn failed(
    show: Show,
    name: Option<String>,
    topic_id: TopicId,
    error_code: ErrorCode,
) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code,
        name: if show.version >= IDS_FROM {
            name
        } else {
            Some(name.unwrap_or_default())
        },
        topic_id,
        topic_authorized_operations: operations::on_topic(show.topic_operations),
        ..MetadataResponseTopic::default()
    }
}

fn describe(image: &MetadataImage, show: Show, topic: &TopicImage) -> MetadataResponseTopic {
    let version = show.version;
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|b| b.0).collect();
    let is_up = |b: &BrokerId| image.brokers.get(b).is_some_and(|broker| !broker.fenced);
    let offline = |brokers: &[BrokerId]| match version >= OFFLINE_FROM {
        true => brokers.iter().filter(|b| !is_up(b)).map(|b| b.0).collect(),
        false => Vec::new(),
    };
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
            offline_replicas: offline(&partition.replicas),
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
        topic_authorized_operations: operations::on_topic(show.topic_operations),
    }
}

fn frame(
    door: &KafkaDoor,
    image: &MetadataImage,
    show: Show,
    topics: Vec<MetadataResponseTopic>,
) -> MetadataResponse {
    let brokers = image
        .brokers
        .values()
        .filter(|b| door.node.lists(b))
        .filter_map(|broker| {
            let (host, port) = door.address(broker)?;
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
        controller_id: show.controller,
        topics,
        cluster_authorized_operations: operations::on_cluster(show.cluster_operations),
        ..MetadataResponse::default()
    }
}
