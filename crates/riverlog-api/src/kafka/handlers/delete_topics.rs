//! DeleteTopics v1–v6 (KIP-4, 599; topic ids from v6).

use riverlog_core::metadata::{AdminAnswer, AdminCommand, TopicRef};
use riverlog_node::Reply;
use riverlog_wire::messages::delete_topics_response::DeletableTopicResult;
use riverlog_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use riverlog_wire::{ErrorCode, TopicId};

use crate::kafka::responder::Responder;
use crate::kafka::session::Context;

pub(super) fn handle(context: &Context<'_>, request: DeleteTopicsRequest, responder: Responder) {
    let version = context.version;
    let topics: Vec<TopicRef> = if version >= 6 {
        let by = |t: riverlog_wire::messages::delete_topics_request::DeleteTopicState| match t.name
        {
            Some(name) => TopicRef::Name(name),
            None => TopicRef::Id(t.topic_id),
        };
        request.topics.into_iter().map(by).collect()
    } else {
        request
            .topic_names
            .into_iter()
            .map(TopicRef::Name)
            .collect()
    };
    let asked = topics.clone();
    let reply = Reply::new(move |answer: Result<AdminAnswer, ErrorCode>| {
        let results = super::results(answer, asked.len());
        let responses = asked.into_iter().zip(results).map(|(asked, result)| {
            let known = result.topic.as_ref();
            let (name, topic_id) = match asked {
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
        });
        responder.send(&DeleteTopicsResponse {
            throttle_time_ms: 0,
            responses: responses.collect(),
        });
    });
    context
        .door
        .node
        .admin(AdminCommand::DeleteTopics { topics }, context.now, reply);
}
