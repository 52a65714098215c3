//! CreateTopics v2–v7 (KIP-4, 464, 525, 516). Each topic has its own result.

use std::collections::BTreeSet;

use riverlog_core::metadata::{AdminAnswer, AdminCommand, AdminResult, NewTopic};
use riverlog_node::Reply;
use riverlog_wire::messages::create_topics_request::CreatableTopic;
use riverlog_wire::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use riverlog_wire::messages::{CreateTopicsRequest, CreateTopicsResponse};
use riverlog_wire::{BrokerId, ErrorCode};

use crate::kafka::context::Context;
use crate::kafka::door::KafkaDoor;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: CreateTopicsRequest, responder: Responder) {
    let version = context.version;
    let door = context.door;
    let names: Vec<String> = request.topics.iter().map(|t| t.name.clone()).collect();
    let topics = request
        .topics
        .into_iter()
        .map(|topic| new_topic(door, topic))
        .collect();
    let command = AdminCommand::CreateTopics {
        topics,
        validate_only: request.validate_only,
    };
    let node = &door.node;
    let door = std::sync::Arc::downgrade(door);
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let Some(door) = door.upgrade() else { return };
        let results = super::results(answer, names.len());
        // One result for each name, also when it was asked twice.
        let mut told = BTreeSet::new();
        let topics = names
            .into_iter()
            .zip(results)
            .filter(|(name, _)| told.insert(name.clone()))
            .map(|(name, r)| result(&door, version, name, r))
            .collect();
        responder.send(&CreateTopicsResponse {
            throttle_time_ms: 0,
            topics,
        });
    });
    node.admin(command, context.now, reply);
}

fn new_topic(door: &KafkaDoor, topic: CreatableTopic) -> NewTopic {
    let brokers = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
    NewTopic {
        name: topic.name,
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .into_iter()
            .map(|a| (a.partition_index, brokers(a.broker_ids)))
            .collect(),
        configs: topic
            .configs
            .into_iter()
            .map(|c| (c.name, c.value))
            .collect(),
        id: door.node.new_topic_id(),
        internal: false,
    }
}

fn result(
    door: &KafkaDoor,
    version: i16,
    name: String,
    result: AdminResult,
) -> CreatableTopicResult {
    let mut answer = CreatableTopicResult {
        name,
        error_code: result.error,
        error_message: result.message,
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopicResult::default()
    };
    // From v5 on the answer says what the topic is like (KIP-525), from v7 on its id.
    if version >= 5
        && let Some(topic) = result.topic.filter(|_| result.error == ErrorCode::NONE)
    {
        answer.num_partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let replicas = topic.partitions.first().map_or(0, |p| p.replicas.len());
        answer.replication_factor = i16::try_from(replicas).unwrap_or(i16::MAX);
        let described = crate::configs::of_topic(&door.node, &topic.configs)
            .into_iter()
            .map(|c| CreatableTopicConfigs {
                name: c.key.name.to_owned(),
                value: c.value,
                read_only: c.read_only,
                config_source: c.source as i8,
                is_sensitive: c.key.sensitive(),
            });
        answer.configs = Some(described.collect());
        if version >= 7 {
            answer.topic_id = topic.id;
        }
    }
    answer
}
