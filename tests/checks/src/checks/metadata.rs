//! Topics and what is told of them: checks 14, 15, 18, 20, and everyone at once.

use std::time::Duration;

use riverlog_wire::messages::delete_topics_request::DeleteTopicState;
use riverlog_wire::messages::describe_topic_partitions_request::TopicRequest;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::metadata_response::MetadataResponseTopic;
use riverlog_wire::messages::{
    DeleteTopicsRequest, DescribeTopicPartitionsRequest, FetchRequest, MetadataRequest,
};
use riverlog_wire::{ErrorCode, TopicId};

use super::{Check, produce};
use crate::client::{Client, Outcome, PATIENCE, Topic, holds, only, same};
use crate::records::numbered;

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "14",
        name: "no-list-of-topics-means-all-and-an-empty-one-none",
        run: all_or_none,
    },
    Check {
        number: "15",
        name: "unknown-and-impossible-topics-have-their-own-errors",
        run: unknown,
    },
    Check {
        number: "18",
        name: "partitions-are-described-page-by-page",
        run: pages,
    },
    Check {
        number: "20",
        name: "a-topic-that-was-made-anew-has-a-new-id",
        run: made_anew,
    },
    Check {
        number: "fc-22",
        name: "sixteen-clients-make-one-topic",
        run: everyone_at_once,
    },
];

pub(super) fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic {
        name: Some(name.to_owned()),
        ..MetadataRequestTopic::default()
    }
}

pub(super) fn by_id(topic_id: TopicId) -> MetadataRequestTopic {
    MetadataRequestTopic {
        topic_id,
        name: None,
    }
}

fn ask(
    client: &mut Client<'_>,
    version: i16,
    topic: MetadataRequestTopic,
) -> Outcome<MetadataResponseTopic> {
    let request = MetadataRequest {
        topics: Some(vec![topic]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    only("topics", client.ask(version, &request)?.topics)
}

impl Client<'_> {
    /// Waits until all partitions of a topic have leaders.
    pub(crate) fn until_led(&mut self, topic: &Topic) -> Outcome {
        for _ in 0..100 {
            let found = ask(self, 12, by_id(topic.id))?;
            let led = found.error_code == ErrorCode::NONE
                && found.partitions.iter().all(|p| p.leader_id >= 0);
            // Kafka tells of a topic a moment before its leaders know that they are.
            if led && self.is_read(topic, found.partitions.len())? {
                return Ok(());
            }
            self.broker().pass(Duration::from_millis(50));
        }
        Err(format!("topic {} has no leaders after 5 s", topic.name).into())
    }

    /// Whether all partitions of a topic can be read.
    fn is_read(&mut self, topic: &Topic, partitions: usize) -> Outcome<bool> {
        let partition = |partition| FetchPartition {
            partition,
            partition_max_bytes: 1,
            ..FetchPartition::default()
        };
        let request = FetchRequest {
            max_wait_ms: 0,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: topic.name.clone(),
                partitions: (0..).map(partition).take(partitions).collect(),
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        };
        let answer = self.ask(12, &request)?;
        let mut each = answer.responses.iter().flat_map(|t| &t.partitions);
        Ok(answer.error_code == ErrorCode::NONE && each.all(|p| p.error_code == ErrorCode::NONE))
    }
}

fn all_or_none(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(3)?;
    for version in 0..=13 {
        let all = MetadataRequest {
            // v0 has no null: there an empty list means all.
            topics: (version == 0).then(Vec::new),
            ..MetadataRequest::default()
        };
        let answer = client.ask(version, &all)?;
        let found = answer
            .topics
            .iter()
            .find(|t| t.name.as_deref() == Some(&topic.name));
        let count = found.map(|t| (t.error_code, t.partitions.len()));
        let what = format!("the topic among all, v{version}");
        same(&what, count, Some((ErrorCode::NONE, 3)))?;
        if let Some(found) = found {
            let id = if version >= 10 {
                topic.id
            } else {
                TopicId::ZERO
            };
            same("topic id", found.topic_id, id)?;
            let operations = found.topic_authorized_operations;
            same("operations nobody asked for", operations, i32::MIN)?;
        }
        if version == 0 {
            continue;
        }
        let none = MetadataRequest {
            topics: Some(Vec::new()),
            ..MetadataRequest::default()
        };
        let answer = client.ask(version, &none)?;
        same("topics when none are asked", answer.topics.len(), 0)?;
        holds(!answer.brokers.is_empty(), || "no brokers".to_owned())?;
        let cluster = answer.cluster_id.unwrap_or_default();
        holds(version < 2 || !cluster.is_empty(), || {
            format!("no cluster id in v{version}")
        })?;
    }
    Ok(())
}

fn unknown(client: &mut Client<'_>) -> Outcome {
    let ghost = client.name();
    let found = ask(client, 12, named(&ghost))?;
    same(
        "a ghost",
        found.error_code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    )?;
    same(
        "a ghost's name",
        found.name.as_deref(),
        Some(ghost.as_str()),
    )?;
    let long = "x".repeat(250);
    for bad in ["bad name", "", "..", long.as_str()] {
        let found = ask(client, 12, named(bad))?;
        let what = format!("{bad:?}");
        same(&what, found.error_code, ErrorCode::INVALID_TOPIC_EXCEPTION)?;
    }
    let id = TopicId([9; 16]);
    let found = ask(client, 12, by_id(id))?;
    let got = (found.error_code, found.name, found.topic_id);
    same(
        "an unknown id",
        got,
        (ErrorCode::UNKNOWN_TOPIC_ID, None, id),
    )?;
    let topic = client.topic(1)?;
    let found = ask(client, 12, by_id(topic.id))?;
    same(
        "a known id",
        found.name.as_deref(),
        Some(topic.name.as_str()),
    )?;
    let mut with_id = named(&topic.name);
    with_id.topic_id = topic.id;
    let found = ask(client, 11, with_id)?;
    same("an id in v11", found.error_code, ErrorCode::INVALID_REQUEST)
}

fn pages(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(3)?;
    let mut request = DescribeTopicPartitionsRequest {
        topics: vec![TopicRequest {
            name: topic.name.clone(),
        }],
        response_partition_limit: 1,
        ..DescribeTopicPartitionsRequest::default()
    };
    for index in 0..3 {
        let answer = client.ask(0, &request)?;
        let page = only("topics", answer.topics)?;
        let partition = only("partitions", page.partitions)?;
        same("the partition", partition.partition_index, index)?;
        same("the topic's id", page.topic_id, topic.id)?;
        let next = answer.next_cursor;
        let place = next
            .as_ref()
            .map(|c| (c.topic_name.as_str(), c.partition_index));
        let more = (index < 2).then_some((topic.name.as_str(), index + 1));
        same("where to go on", place, more)?;
        request.cursor =
            next.map(
                |c| riverlog_wire::messages::describe_topic_partitions_request::Cursor {
                    topic_name: c.topic_name,
                    partition_index: c.partition_index,
                },
            );
    }
    let ghost = client.name();
    let request = DescribeTopicPartitionsRequest {
        topics: vec![TopicRequest { name: ghost }],
        response_partition_limit: 1,
        ..DescribeTopicPartitionsRequest::default()
    };
    let page = only("topics", client.ask(0, &request)?.topics)?;
    same(
        "a ghost",
        page.error_code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    )
}

fn delete(client: &mut Client<'_>, topic: &Topic) -> Outcome {
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: None,
            topic_id: topic.id,
        }],
        timeout_ms: 10_000,
        ..DeleteTopicsRequest::default()
    };
    let deleted = only("topics", client.ask(6, &request)?.responses)?;
    same("deleting", deleted.error_code, ErrorCode::NONE)?;
    same(
        "the name",
        deleted.name.as_deref(),
        Some(topic.name.as_str()),
    )?;
    for _ in 0..100 {
        let found = ask(client, 12, named(&topic.name))?;
        if found.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
            return Ok(());
        }
        client.broker().pass(Duration::from_millis(50));
    }
    Err("a deleted topic is still there after 5 s".to_owned().into())
}

fn made_anew(client: &mut Client<'_>) -> Outcome {
    let old = client.topic(1)?;
    let now = client.broker().wall_ms();
    produce::one(client, 13, &old, 0, numbered(now, 2))?;
    let partition = FetchPartition {
        fetch_offset: 2,
        partition_max_bytes: 1_000,
        ..FetchPartition::default()
    };
    let open = FetchRequest {
        session_epoch: 0,
        topics: vec![FetchTopic {
            topic_id: old.id,
            partitions: vec![partition],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let opened = client.ask(13, &open)?;
    holds(opened.session_id != 0, || "no session".to_owned())?;

    delete(client, &old)?;
    let new = client.topic_named(&old.name, 1, &[])?;
    holds(new.id != old.id, || "the id is the old one".to_owned())?;
    let found = ask(client, 12, by_id(old.id))?;
    same("the old id", found.error_code, ErrorCode::UNKNOWN_TOPIC_ID)?;
    let answer = produce::one(client, 13, &old, 0, numbered(now, 1))?;
    same(
        "producing to it",
        answer.error_code,
        ErrorCode::UNKNOWN_TOPIC_ID,
    )?;
    let go_on = FetchRequest {
        session_id: opened.session_id,
        session_epoch: 1,
        ..FetchRequest::default()
    };
    let answer = client.ask(13, &go_on)?;
    let topic = only("topics in the session", answer.responses)?;
    let partition = only("partitions in the session", topic.partitions)?;
    let error = ErrorCode::INCONSISTENT_TOPIC_ID;
    same("going on with the session", partition.error_code, error)
}

fn everyone_at_once(client: &mut Client<'_>) -> Outcome {
    let name = client.name();
    let request = MetadataRequest {
        topics: Some(vec![named(&name)]),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    };
    let mut lines = Vec::new();
    for _ in 0..16 {
        let mut line = client.connect()?;
        let correlation = line.say(12, &request)?;
        lines.push((line, correlation));
    }
    let mut ids = Vec::new();
    for (mut line, correlation) in lines {
        let answer = line.answer::<MetadataRequest>(12, correlation, PATIENCE)?;
        let mut topic = only("topics", answer.topics)?;
        for _ in 0..100 {
            if topic.error_code == ErrorCode::NONE {
                break;
            }
            holds(topic.error_code.retriable(), || {
                format!("a topic that is being made answers {:?}", topic.error_code)
            })?;
            client.broker().pass(Duration::from_millis(50));
            topic = only("topics", line.ask(12, &request)?.topics)?;
        }
        same("in the end", topic.error_code, ErrorCode::NONE)?;
        ids.push(topic.topic_id);
    }
    ids.dedup();
    same("topics made", ids.len(), 1)?;

    // The good name of two answers, and a client that forbids it makes nothing.
    let ghost = client.name();
    let two = MetadataRequest {
        topics: Some(vec![named(&name), named(&ghost)]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let answer = client.ask(12, &two)?;
    let codes: Vec<ErrorCode> = answer.topics.iter().map(|t| t.error_code).collect();
    let expected = vec![ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION];
    same("one of two", codes, expected)
}
