//! Topics: list, make, describe, configure, delete.

use std::collections::BTreeMap;

use axum::http::{HeaderValue, StatusCode, header};
use riverlog_api::configs;
use riverlog_core::config::{ConfigSource, Described};
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, AdminResult, ConfigChange, ConfigResource, NewTopic, TopicImage,
    TopicRef,
};
use riverlog_wire::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::body::nothing;
use crate::door::{Answer, Call, HttpDoor};
use crate::nodes::Positions;
use crate::path::encode;
use crate::problem::Problem;
use crate::schema;

/// Topics on one page unless asked otherwise, and the most.
const PAGE: usize = 1_000;
const LARGEST_PAGE: usize = 10_000;

#[derive(Serialize, ToSchema)]
struct Topics {
    topics: Vec<TopicView>,
    /// To ask for the next page with `page=`; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct TopicView {
    name: String,
    id: String,
    partitions: usize,
    replication_factor: usize,
    internal: bool,
}

#[derive(Serialize, ToSchema)]
struct TopicDetail {
    #[serde(flatten)]
    topic: TopicView,
    size_bytes: u64,
    /// Values that are set on the topic itself.
    configs: BTreeMap<String, String>,
    partition_list: Vec<PartitionView>,
}

/// A partition as it is now; positions are absent where its leader can't be asked.
#[derive(Serialize, ToSchema)]
pub(crate) struct PartitionView {
    partition: usize,
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    #[serde(flatten)]
    positions: Option<Positions>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    partitions: Option<i32>,
    replication_factor: Option<i16>,
    #[serde(default)]
    configs: BTreeMap<String, Value>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AddPartitions {
    count: i32,
    #[serde(default)]
    accept_key_reordering: bool,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Configs {
    configs: Vec<Config>,
}

#[derive(Serialize, ToSchema)]
struct Config {
    name: &'static str,
    value: Option<String>,
    source: &'static str,
    read_only: bool,
    sensitive: bool,
    documentation: &'static str,
}

fn view(topic: &TopicImage) -> TopicView {
    TopicView {
        name: topic.name.clone(),
        id: topic.id.to_string(),
        partitions: topic.partitions.len(),
        replication_factor: topic.partitions.first().map_or(0, |p| p.replicas.len()),
        internal: topic.internal,
    }
}

pub(crate) fn partition_view(
    topic: &TopicImage,
    index: usize,
    positions: Option<Positions>,
) -> PartitionView {
    let image = topic.partitions.get(index);
    let ids = |ids: &[riverlog_wire::BrokerId]| ids.iter().map(|id| id.0).collect();
    PartitionView {
        partition: index,
        leader: image.and_then(|p| p.leader).map(|id| id.0),
        leader_epoch: image.map_or(-1, |p| p.leader_epoch.0),
        replicas: image.map_or_else(Vec::new, |p| ids(&p.replicas)),
        isr: image.map_or_else(Vec::new, |p| ids(&p.isr)),
        positions,
    }
}

/// Topics, in order of name
#[utoipa::path(
    get, path = "/v1/topics", tag = "topics", operation_id = "listTopics",
    params(schema::Page, ("internal" = Option<bool>, Query, description = "Those of the node too")),
    responses((status = 200, description = "A page", body = Topics))
)]
pub(crate) fn list(mut call: Call) -> Answer {
    let filter = call.query.text("filter").unwrap_or_default();
    let after = call.query.text("page");
    let limit = call
        .query
        .number("limit", 1..=LARGEST_PAGE)?
        .unwrap_or(PAGE);
    let internal = call.query.flag("internal")?;
    std::mem::take(&mut call.query).done()?;
    let image = call.door.node.image();
    let mut topics: Vec<TopicView> = Vec::new();
    let mut next_page = None;
    // Names are in order, and a page begins after the last name of the one before: nothing is told twice or left out.
    for (name, id) in image.names.iter().map(|((_, name), id)| (name, id)) {
        if after.as_ref().is_some_and(|after| name <= after) || !name.contains(&filter) {
            continue;
        }
        let Some(topic) = image.topics.get(id).filter(|t| internal || !t.internal) else {
            continue;
        };
        if topics.len() == limit {
            next_page = topics.last().map(|t| t.name.clone());
            break;
        }
        topics.push(view(topic));
    }
    Ok(call.answer_json(StatusCode::OK, &Topics { topics, next_page }))
}

/// A topic, with its partitions
#[utoipa::path(
    get, path = "/v1/topics/{topic}", tag = "topics", operation_id = "getTopic",
    params(("topic" = String, Path, description = "Name")),
    responses((status = 200, description = "The topic", body = TopicDetail))
)]
pub(crate) async fn describe(call: Call) -> Answer {
    let topic = call.door.topic(call.name())?;
    call.query.clone().done()?;
    let positions = call.door.positions_of(&topic).await.into_iter();
    let partition_list: Vec<PartitionView> = positions
        .enumerate()
        .map(|(p, positions)| partition_view(&topic, p, positions))
        .collect();
    let sizes = partition_list.iter().filter_map(|p| p.positions.as_ref());
    let detail = TopicDetail {
        size_bytes: sizes.map(|p| p.size_bytes).sum(),
        topic: view(&topic),
        configs: topic.configs.clone(),
        partition_list,
    };
    Ok(call.answer_json(StatusCode::OK, &detail))
}

/// Make a topic
#[utoipa::path(
    post, path = "/v1/topics", tag = "topics", operation_id = "createTopic",
    params(schema::DryRun),
    request_body = Create,
    responses((status = 200, description = "What would be made", body = TopicView), (status = 201, description = "Made", body = TopicView))
)]
pub(crate) async fn create(mut call: Call) -> Answer {
    let validate_only = call.query.flag("validate_only")?;
    std::mem::take(&mut call.query).done()?;
    let asked: Create = call.json().await?;
    let name = asked.name;
    let topic = NewTopic {
        name: name.clone(),
        partitions: asked.partitions.unwrap_or(-1),
        replication_factor: asked.replication_factor.unwrap_or(-1),
        configs: asked
            .configs
            .into_iter()
            .map(|(key, value)| Ok((key.clone(), Some(config_text(&key, value)?))))
            .collect::<Result<_, Problem>>()?,
        id: call.door.node.new_topic_id(),
        ..NewTopic::default()
    };
    let command = AdminCommand::CreateTopics {
        topics: vec![topic],
        validate_only,
    };
    let result = admin(&call.door, command).await?;
    let made = result.topic.as_ref();
    let body = made.map(|topic| view(topic));
    if validate_only {
        return Ok(call.answer_json(StatusCode::OK, &body));
    }
    let mut response = call.answer_json(StatusCode::CREATED, &body);
    if let Ok(at) = HeaderValue::from_str(&format!("/v1/topics/{}", encode(&name))) {
        response.headers_mut().insert(header::LOCATION, at);
    }
    Ok(response)
}

/// Delete a topic
#[utoipa::path(
    delete, path = "/v1/topics/{topic}", tag = "topics", operation_id = "deleteTopic",
    params(("topic" = String, Path, description = "Name"), schema::DryRun),
    responses((status = 200, description = "What would be deleted", body = TopicView), (status = 204, description = "Deleted"))
)]
pub(crate) async fn delete(mut call: Call) -> Answer {
    let validate_only = call.query.flag("validate_only")?;
    std::mem::take(&mut call.query).done()?;
    let topic = call.door.topic(call.name())?;
    if validate_only {
        return Ok(call.answer_json(StatusCode::OK, &view(&topic)));
    }
    // By id: a topic of the same name that is made meanwhile is another one.
    let topics = vec![TopicRef::Id(topic.id)];
    admin(&call.door, AdminCommand::DeleteTopics { topics }).await?;
    Ok(nothing())
}

/// Give a topic more partitions
#[utoipa::path(
    post, path = "/v1/topics/{topic}/partitions", tag = "topics", operation_id = "addPartitions",
    params(("topic" = String, Path, description = "Name"), schema::DryRun),
    request_body = AddPartitions,
    responses((status = 200, description = "The topic", body = TopicView))
)]
pub(crate) async fn add_partitions(mut call: Call) -> Answer {
    let validate_only = call.query.flag("validate_only")?;
    std::mem::take(&mut call.query).done()?;
    let asked: AddPartitions = call.json().await?;
    let topic = call.door.topic(call.name())?;
    if !asked.accept_key_reordering {
        return Err(Problem::unprocessable(
            "key-reordering",
            "with another number of partitions most keys move to another partition, and their new records are no longer in order with the old ones",
        )
        .hint("send \"accept_key_reordering\": true if that is fine for this topic"));
    }
    let command = AdminCommand::CreatePartitions {
        topics: vec![(topic.name.clone(), asked.count, None)],
        validate_only,
    };
    admin(&call.door, command).await?;
    let topic = call.door.topic(&topic.name)?;
    Ok(call.answer_json(StatusCode::OK, &view(&topic)))
}

/// Every config of a topic: value, source, meaning
#[utoipa::path(
    get, path = "/v1/topics/{topic}/config", tag = "topics", operation_id = "getTopicConfigs",
    params(("topic" = String, Path, description = "Name")),
    responses((status = 200, description = "All of them", body = Configs))
)]
pub(crate) fn configs(call: Call) -> Answer {
    let topic = call.door.topic(call.name())?;
    call.query.clone().done()?;
    Ok(call.answer_json(StatusCode::OK, &described(&call.door, &topic)))
}

fn described(door: &HttpDoor, topic: &TopicImage) -> Configs {
    config_views(configs::of_topic(&door.node, &topic.configs))
}

/// Configs as an answer shows them.
pub(crate) fn config_views(configs: Vec<Described>) -> Configs {
    let configs = configs.into_iter().map(|c| Config {
        name: c.key.name,
        value: c.value.filter(|_| !c.key.sensitive()),
        source: match c.source {
            ConfigSource::DynamicTopic => "topic",
            ConfigSource::DynamicGroup => "group",
            ConfigSource::DynamicBroker => "broker",
            ConfigSource::DynamicDefaultBroker => "cluster",
            ConfigSource::StaticBroker => "start",
            ConfigSource::Default => "default",
        },
        read_only: c.read_only,
        sensitive: c.key.sensitive(),
        documentation: c.key.doc,
    });
    Configs {
        configs: configs.collect(),
    }
}

/// Change configs of a topic
///
/// A merge patch: a value sets, null goes back to the default.
#[utoipa::path(
    patch, path = "/v1/topics/{topic}/config", tag = "topics", operation_id = "patchTopicConfigs",
    params(("topic" = String, Path, description = "Name"), schema::DryRun),
    request_body = BTreeMap<String, Value>,
    responses((status = 200, description = "All of them, afterwards", body = Configs))
)]
pub(crate) async fn alter_configs(mut call: Call) -> Answer {
    let (changes, validate_only) = config_changes(&mut call).await?;
    let topic = call.door.topic(call.name())?;
    let resource = ConfigResource::Topic(topic.name.clone());
    change_configs(&call.door, resource, changes, validate_only).await?;
    let topic = call.door.topic(&topic.name)?;
    Ok(call.answer_json(StatusCode::OK, &described(&call.door, &topic)))
}

/// What a request wants changed, and whether it only asks if it could be. The body is a merge patch: a value sets, null goes back
/// to the default.
pub(crate) async fn config_changes(call: &mut Call) -> Result<(Vec<ConfigChange>, bool), Problem> {
    let validate_only = call.query.flag("validate_only")?;
    std::mem::take(&mut call.query).done()?;
    if call.content_type() == Some("application/merge-patch+json") {
        let json = HeaderValue::from_static("application/json");
        call.headers.insert(header::CONTENT_TYPE, json);
    }
    let asked: BTreeMap<String, Value> = call.json().await?;
    let changes = asked
        .into_iter()
        .map(|(key, value)| match value {
            Value::Null => Ok(ConfigChange::Delete(key)),
            value => {
                let text = config_text(&key, value)?;
                Ok(ConfigChange::Set(key, Some(text)))
            }
        })
        .collect::<Result<Vec<_>, Problem>>()?;
    Ok((changes, validate_only))
}

pub(crate) async fn change_configs(
    door: &HttpDoor,
    resource: ConfigResource,
    changes: Vec<ConfigChange>,
    validate_only: bool,
) -> Result<(), Problem> {
    let command = AdminCommand::AlterConfigs {
        resources: vec![(resource, changes)],
        replace: false,
        validate_only,
    };
    admin(door, command).await.map(|_| ())
}

fn config_text(key: &str, value: Value) -> Result<String, Problem> {
    match value {
        Value::String(text) => Ok(text),
        value @ (Value::Number(_) | Value::Bool(_)) => Ok(value.to_string()),
        _ => Err(Problem::unprocessable(
            "invalid-config",
            format!("the value of {key:?} must be text, a number, true or false"),
        )),
    }
}

impl Call {
    /// The topic or the group that the path names.
    pub(crate) fn name(&self) -> &str {
        self.target.segments.get(1).map_or("", String::as_str)
    }
}

/// A command about one thing.
async fn admin(door: &HttpDoor, command: AdminCommand) -> Result<AdminResult, Problem> {
    let answer = door
        .ask(|node, now, reply| node.admin(command, now, reply))
        .await?;
    let result = match answer {
        Ok(AdminAnswer::Results(results)) => results.into_iter().next(),
        Ok(_) => None,
        Err(error) => return Err(Problem::kafka(error)),
    };
    match result {
        None => Err(Problem::kafka(ErrorCode::UNKNOWN_SERVER_ERROR)),
        Some(result) if result.error == ErrorCode::NONE => Ok(result),
        Some(result) => {
            let problem = Problem::kafka(result.error);
            Err(match result.message {
                Some(message) => problem.detail(message),
                None => problem,
            })
        }
    }
}
