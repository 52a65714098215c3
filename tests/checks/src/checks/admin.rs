//! Topics made by hand, and configs: checks 16, 17, 19.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::TopicId;
use riverlog_wire::messages::create_partitions_request::CreatePartitionsTopic;
use riverlog_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverlog_wire::messages::create_topics_response::CreatableTopicResult;
use riverlog_wire::messages::delete_topics_request::DeleteTopicState;
use riverlog_wire::messages::describe_configs_request::DescribeConfigsResource;
use riverlog_wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use riverlog_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use riverlog_wire::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, MetadataRequest,
};

use super::Check;
use super::metadata::named;
use crate::client::{Client, Outcome, holds, only, same};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "16",
        name: "topics-are-made-or-refused-one-by-one",
        run: create,
    },
    Check {
        number: "17",
        name: "partitions-only-grow-and-ghosts-are-not-deleted",
        run: grow_and_delete,
    },
    Check {
        number: "19",
        name: "configs-are-checked-and-say-where-they-come-from",
        run: configs,
    },
];

fn new(name: &str) -> CreatableTopic {
    CreatableTopic {
        name: name.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    }
}

fn ask(
    client: &mut Client<'_>,
    topics: Vec<CreatableTopic>,
    validate_only: bool,
) -> Outcome<Vec<CreatableTopicResult>> {
    let request = CreateTopicsRequest {
        topics,
        timeout_ms: 10_000,
        validate_only,
    };
    Ok(client.ask(7, &request)?.topics)
}

fn create(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let base = client.name();
    let (dotted, underscored) = (format!("{base}.b"), format!("{base}_b"));
    client.topic_named(&dotted, 1, &[])?;
    let fine = client.name();
    let mut no_partitions = new(&client.name());
    no_partitions.num_partitions = 0;
    let mut many_replicas = new(&client.name());
    many_replicas.replication_factor = 100;
    let mut unknown_config = new(&client.name());
    unknown_config.configs.push(CreatableTopicConfig {
        name: "no.such.config".to_owned(),
        value: Some("1".to_owned()),
    });
    let long = "x".repeat(250);
    let invalid = ErrorCode::INVALID_TOPIC_EXCEPTION;
    let asked = vec![
        (new(&topic.name), ErrorCode::TOPIC_ALREADY_EXISTS),
        (new("bad name"), invalid),
        (new(""), invalid),
        (new(".."), invalid),
        (new(&long), invalid),
        (new(&underscored), invalid),
        (no_partitions, ErrorCode::INVALID_PARTITIONS),
        (many_replicas, ErrorCode::INVALID_REPLICATION_FACTOR),
        (unknown_config, ErrorCode::INVALID_CONFIG),
        // One bad topic doesn't fail its neighbours.
        (new(&fine), ErrorCode::NONE),
    ];
    let (topics, expected): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let names: Vec<String> = topics.iter().map(|t| t.name.clone()).collect();
    let results = ask(client, topics, false)?;
    for (name, error) in names.iter().zip(expected) {
        let result = results.iter().find(|r| r.name == *name);
        let what = format!("creating {:?}", name.get(..40).unwrap_or(name));
        same(&what, result.map(|r| r.error_code), Some(error))?;
    }

    let dry = client.name();
    let mut defaults = new(&dry);
    (defaults.num_partitions, defaults.replication_factor) = (-1, -1);
    let result = only("topics", ask(client, vec![defaults], true)?)?;
    same("a dry run", result.error_code, ErrorCode::NONE)?;
    holds(
        result.num_partitions >= 1 && result.replication_factor >= 1,
        || format!("a dry run says {} partitions", result.num_partitions),
    )?;
    holds(result.configs.is_some_and(|all| !all.is_empty()), || {
        "a new topic's configs aren't told".to_owned()
    })?;
    let request = MetadataRequest {
        topics: Some(vec![named(&dry)]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let found = only("topics", client.ask(12, &request)?.topics)?;
    let error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    same("after a dry run", found.error_code, error)
}

fn grow_and_delete(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(3)?;
    for (count, error) in [
        (2, ErrorCode::INVALID_PARTITIONS),
        (3, ErrorCode::INVALID_PARTITIONS),
        (4, ErrorCode::NONE),
    ] {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: topic.name.clone(),
                count,
                assignments: None,
            }],
            timeout_ms: 10_000,
            validate_only: false,
        };
        let result = only("topics", client.ask(3, &request)?.results)?;
        same(&format!("3 to {count}"), result.error_code, error)?;
    }
    let ghost = client.name();
    for (name, topic_id, error) in [
        (
            Some(ghost),
            TopicId::ZERO,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (None, TopicId([7; 16]), ErrorCode::UNKNOWN_TOPIC_ID),
    ] {
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState { name, topic_id }],
            timeout_ms: 10_000,
            ..DeleteTopicsRequest::default()
        };
        let result = only("topics", client.ask(6, &request)?.responses)?;
        same("deleting a ghost", result.error_code, error)?;
    }
    // A name and an id may mean two topics, of which one must not go by mistake.
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(topic.name.clone()),
            topic_id: TopicId([7; 16]),
        }],
        timeout_ms: 10_000,
        ..DeleteTopicsRequest::default()
    };
    let result = only("topics", client.ask(6, &request)?.responses)?;
    same(
        "by name and id",
        result.error_code,
        ErrorCode::INVALID_REQUEST,
    )?;
    client.until_led(&topic)
}

const TOPIC: i8 = 2;
const SET: i8 = 0;
const APPEND: i8 = 2;

fn alter(client: &mut Client<'_>, topic: &str, operation: i8, value: &str) -> Outcome<ErrorCode> {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: topic.to_owned(),
            configs: vec![AlterableConfig {
                name: "retention.ms".to_owned(),
                config_operation: operation,
                value: Some(value.to_owned()),
            }],
        }],
        validate_only: false,
    };
    let result = only("resources", client.ask(1, &request)?.responses)?;
    Ok(result.error_code)
}

fn describe(client: &mut Client<'_>, version: i16, topic: &str) -> Outcome<DescribeConfigsResult> {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC,
            resource_name: topic.to_owned(),
            configuration_keys: Some(vec!["retention.ms".to_owned()]),
        }],
        include_synonyms: true,
        include_documentation: version >= 3,
    };
    only("resources", client.ask(version, &request)?.results)
}

/// What a key is like once it has its value: brokers hear of a change after the controller has answered.
fn until_set(
    client: &mut Client<'_>,
    version: i16,
    topic: &str,
    value: &str,
) -> Outcome<DescribeConfigsResourceResult> {
    for _ in 0..100 {
        let result = describe(client, version, topic)?;
        same("describing", result.error_code, ErrorCode::NONE)?;
        let config = only("configs", result.configs)?;
        if config.value.as_deref() == Some(value) {
            return Ok(config);
        }
        client.broker().pass(Duration::from_millis(50));
    }
    Err(format!("the value isn't {value} after 5 s").into())
}

fn configs(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let ghost = client.name();
    let append = alter(client, &topic.name, APPEND, "5")?;
    same("adding to a number", append, ErrorCode::INVALID_CONFIG)?;
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    same("a ghost", alter(client, &ghost, SET, "5")?, unknown)?;
    same("a ghost", describe(client, 4, &ghost)?.error_code, unknown)?;
    for version in 1..=4 {
        let set = 60_000 + i64::from(version);
        let set = set.to_string();
        same(
            "setting",
            alter(client, &topic.name, SET, &set)?,
            ErrorCode::NONE,
        )?;
        let config = until_set(client, version, &topic.name, &set)?;
        // 1: set on the topic itself.
        same("the source", config.config_source, 1)?;
        let strongest = config.synonyms.first();
        let strongest = strongest.map(|s| (s.source, s.value.clone()));
        same("the strongest synonym", strongest, Some((1, Some(set))))?;
        // 5: a whole number of 64 bits.
        let kind = if version >= 3 { 5 } else { 0 };
        same("the type", config.config_type, kind)?;
        let told = config.documentation.is_some_and(|words| !words.is_empty());
        same("words", told, version >= 3)?;
    }
    Ok(())
}
