//! DeleteTopics v1–v6 (KIP-4, 599; topic ids from v6).

use std::collections::BTreeSet;

use riverlog_core::metadata::{AdminAnswer, AdminCommand, AdminResult, TopicRef};
use riverlog_node::Reply;
use riverlog_wire::messages::delete_topics_request::DeleteTopicState;
use riverlog_wire::messages::delete_topics_response::DeletableTopicResult;
use riverlog_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use riverlog_wire::{ErrorCode, TopicId};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: DeleteTopicsRequest, responder: Responder) {
    let version = context.version;
    // Asked, and whether a topic is named in two ways at once: which of the two is meant can't be known, and what is deleted is gone.
    let asked: Vec<(TopicRef, bool)> = if version >= 6 {
        request.topics.into_iter().map(named).collect()
    } else {
        let names = request.topic_names.into_iter();
        names.map(|name| (TopicRef::Name(name), false)).collect()
    };
    let topics: Vec<TopicRef> = asked
        .iter()
        .filter(|(_, in_two_ways)| !in_two_ways)
        .map(|(topic, _)| topic.clone())
        .collect();
    let count = topics.len();
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let mut results = super::results(answer, count).into_iter();
        let mut told = BTreeSet::new();
        let mut responses = Vec::new();
        for (topic, in_two_ways) in asked {
            let result = if in_two_ways {
                named_in_two_ways()
            } else {
                results.next().unwrap_or_else(super::lost)
            };
            // One answer for each topic, also when it was asked twice.
            if told.insert((topic.clone(), in_two_ways)) {
                responses.push(response(version, topic, result));
            }
        }
        responder.send(&DeleteTopicsResponse {
            throttle_time_ms: 0,
            responses,
        });
    });
    context
        .door
        .node
        .admin(AdminCommand::DeleteTopics { topics }, context.now, reply);
}

fn named(topic: DeleteTopicState) -> (TopicRef, bool) {
    match topic.name {
        Some(name) => (TopicRef::Name(name), topic.topic_id != TopicId::ZERO),
        None => (TopicRef::Id(topic.topic_id), false),
    }
}

fn named_in_two_ways() -> AdminResult {
    AdminResult {
        error: ErrorCode::INVALID_REQUEST,
        message: Some("the topic is named and has an id too; give one of the two".to_owned()),
        topic: None,
    }
}

fn response(version: i16, topic: TopicRef, result: AdminResult) -> DeletableTopicResult {
    let known = result.topic.as_ref();
    let (name, topic_id) = match topic {
        TopicRef::Name(name) => (Some(name), known.map_or(TopicId::ZERO, |t| t.id)),
        TopicRef::Id(id) => (known.map(|t| t.name.clone()), id),
    };
    DeletableTopicResult {
        name,
        topic_id: if version >= 6 {
            topic_id
        } else {
            TopicId::ZERO
        },
        error_code: result.error,
        error_message: if version >= 5 { result.message } else { None },
    }
}
