//! `riverlog topic`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use riverlog_core::config::{Scope, check};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::create_partitions_request::CreatePartitionsTopic;
use riverlog_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverlog_wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverlog_wire::messages::delete_topics_request::DeleteTopicState;
use riverlog_wire::messages::metadata_response::MetadataResponseTopic;
use riverlog_wire::messages::{
    ApiKey, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
};
use serde_json::{Value, json};

use super::Context;
use super::config::{self, Resource};
use super::output::Table;
use super::values::{self, Position};
use crate::client::{Client, by_leader};
use crate::failure::{Exit, Failure};

/// Makes, shows and changes topics.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Topic {
    /// Make topics
    Create(Create),
    /// List topics
    #[command(visible_alias = "ls")]
    List(List),
    /// Show partitions, leaders, replicas and offsets
    Describe(Names),
    /// Change configuration
    Alter(Alter),
    /// Delete topics with their records
    #[command(visible_alias = "rm")]
    Delete(Delete),
    /// Add partitions; records of a key go elsewhere from then on
    AddPartitions(AddPartitions),
    /// Drop records from the beginning of partitions
    Trim(Trim),
    /// Show the configuration with its sources
    Config(ConfigOf),
}

/// Names of topics.
#[derive(Clone, Debug, Args)]
pub(crate) struct Names {
    /// Names of topics
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Create {
    /// Names of topics
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Number of partitions; the broker's default unless given
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..), value_name = "N")]
    partitions: Option<i32>,
    /// Copies of each partition; the broker's default unless given
    #[arg(short, long, visible_alias = "replication-factor", value_parser = clap::value_parser!(i16).range(1..), value_name = "N")]
    replicas: Option<i16>,
    /// Configuration; may be repeated
    #[arg(short, long, value_parser = values::pair, value_name = "KEY=VALUE")]
    config: Vec<(String, String)>,
    /// A topic that is there already is fine
    #[arg(long)]
    if_not_exists: bool,
    /// Check only
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct List {
    /// Internal topics too
    #[arg(short, long)]
    internal: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Alter {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// Set a key; may be repeated
    #[arg(short, long, value_parser = values::pair, value_name = "KEY=VALUE")]
    set: Vec<(String, String)>,
    /// Give a key its default again; may be repeated
    #[arg(short, long, value_name = "KEY")]
    unset: Vec<String>,
    /// Check only
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Delete {
    /// Names of topics
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
    /// Say what would be deleted
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct AddPartitions {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// How many there shall be
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..), value_name = "N")]
    to: i32,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
    /// Check only
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Trim {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// The first record to keep: an offset, a time, how long ago, -N, or end
    #[arg(long, allow_hyphen_values = true, value_name = "POSITION")]
    before: String,
    /// These partitions only
    #[arg(short, long, value_delimiter = ',', value_name = "N")]
    partition: Vec<i32>,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
    /// Say what would be dropped
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigOf {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// Only what was set on the topic itself
    #[arg(long)]
    set_only: bool,
}

impl Topic {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Topic::Create(create) => create.run(context),
            Topic::List(list) => list.run(context),
            Topic::Describe(names) => describe(&names.topics, context),
            Topic::Alter(alter) => alter.run(context),
            Topic::Delete(delete) => delete.run(context),
            Topic::AddPartitions(add) => add.run(context),
            Topic::Trim(trim) => trim.run(context),
            Topic::Config(of) => {
                config::show(context, &Resource::topic(&of.topic), &[], of.set_only)
            }
        }
    }
}

impl Create {
    fn run(self, context: &Context) -> Result<(), Failure> {
        for (key, value) in &self.config {
            check(Scope::Topic, key, value).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let mut client = context.client()?;
        let old = client.any()?.version(ApiKey::CreateTopics)? < 4;
        let unset = if old { 1 } else { -1 };
        let topic = |name: &String| CreatableTopic {
            name: name.clone(),
            num_partitions: self.partitions.unwrap_or(unset),
            replication_factor: self.replicas.unwrap_or(i16::try_from(unset).unwrap_or(1)),
            configs: self
                .config
                .iter()
                .map(|(k, v)| CreatableTopicConfig {
                    name: k.clone(),
                    value: Some(v.clone()),
                })
                .collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: self.topics.iter().map(topic).collect(),
            timeout_ms: client.timeout_ms(),
            validate_only: self.dry_run,
        };
        let response = client.ask(&request)?;
        let mut table = Table::new(
            "topic.create",
            &["name", "partitions", "replicas", "created", "+id"],
        );
        let mut failures = Vec::new();
        for topic in response.topics {
            match topic.error_code {
                ErrorCode::NONE => table.row(vec![
                    json!(topic.name),
                    known(i64::from(topic.num_partitions)),
                    known(i64::from(topic.replication_factor)),
                    json!(!self.dry_run),
                    json!(topic.topic_id.to_string()),
                ]),
                ErrorCode::TOPIC_ALREADY_EXISTS if self.if_not_exists => {
                    table.row(vec![
                        json!(topic.name),
                        Value::Null,
                        Value::Null,
                        json!(false),
                        Value::Null,
                    ]);
                }
                code => {
                    let mut failure = Failure::kafka(
                        format!("topic {:?} can't be made", topic.name),
                        code,
                        topic.error_message.as_deref(),
                    );
                    if code == ErrorCode::TOPIC_ALREADY_EXISTS {
                        failure = failure.hint("use it as it is, or add --if-not-exists");
                    }
                    failures.push(failure);
                }
            }
        }
        finish(table, failures, context)
    }
}

/// −1: not said.
fn known(n: i64) -> Value {
    if n < 0 { Value::Null } else { json!(n) }
}

/// Prints what was done, and what wasn't.
pub(super) fn finish(
    table: Table,
    mut failures: Vec<Failure>,
    context: &Context,
) -> Result<(), Failure> {
    let some = !table.is_empty();
    if some {
        table.print(context.output)?;
    }
    match (failures.len(), some) {
        (0, _) => Ok(()),
        (1, false) => failures.pop().map_or(Ok(()), Err),
        (_, some) => {
            let exit = if some {
                Exit::Partial
            } else {
                failures.first().map_or(Exit::Finding, |f| f.exit)
            };
            for failure in failures {
                eprintln!("{failure}");
            }
            Err(Failure::silent(exit))
        }
    }
}

impl List {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut topics = context.client()?.metadata(None, false)?.topics;
        topics.retain(|t| self.internal || !t.is_internal);
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        let mut table = Table::new(
            "topic.list",
            &["name", "partitions", "replicas", "+id", "+internal"],
        );
        for topic in topics {
            let replicas = topic.partitions.iter().map(|p| p.replica_nodes.len()).max();
            table.row(vec![
                json!(topic.name),
                json!(topic.partitions.len()),
                json!(replicas),
                json!(topic.topic_id.to_string()),
                json!(topic.is_internal),
            ]);
        }
        table.print(context.output)
    }
}

/// Topics with start and end of each partition.
fn describe(names: &[String], context: &Context) -> Result<(), Failure> {
    let mut client = context.client()?;
    let mut table = Table::new(
        "topic.describe",
        &[
            "topic",
            "partition",
            "leader",
            "replicas",
            "isr",
            "start",
            "end",
            "records",
            "+epoch",
            "+id",
        ],
    );
    let mut failures = Vec::new();
    for name in names {
        let topic = match client.topic(name, false) {
            Ok(topic) => topic,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        let bounds = bounds(&mut client, name, &topic)?;
        let mut partitions = topic.partitions;
        partitions.sort_by_key(|p| p.partition_index);
        for p in partitions {
            let (start, end) = bounds.get(&p.partition_index).copied().unwrap_or((-1, -1));
            table.row(vec![
                json!(name),
                json!(p.partition_index),
                known(i64::from(p.leader_id)),
                json!(p.replica_nodes),
                json!(p.isr_nodes),
                known(start),
                known(end),
                known(if start < 0 { -1 } else { end - start }),
                known(i64::from(p.leader_epoch)),
                json!(topic.topic_id.to_string()),
            ]);
        }
    }
    finish(table, failures, context)
}

/// First and next offset of each partition that has a leader.
pub(super) fn bounds(
    client: &mut Client,
    name: &str,
    topic: &MetadataResponseTopic,
) -> Result<BTreeMap<i32, (i64, i64)>, Failure> {
    let led: Vec<(i32, i32)> = topic
        .partitions
        .iter()
        .filter(|p| p.leader_id >= 0)
        .map(|p| (p.partition_index, p.leader_id))
        .collect();
    let ask = |timestamp| {
        led.iter()
            .map(|(p, leader)| (name.to_owned(), *p, *leader, timestamp))
            .collect::<Vec<_>>()
    };
    let starts = client.offsets(&ask(-2))?;
    let ends = client.offsets(&ask(-1))?;
    Ok(starts
        .into_iter()
        .filter_map(|(at, (start, _))| Some((at.1, (start, ends.get(&at)?.0))))
        .collect())
}

/// Where positions lie: the offset in each of the partitions. A time that no record reaches is the end.
pub(super) fn resolve(
    client: &mut Client,
    name: &str,
    topic: &MetadataResponseTopic,
    position: Position,
) -> Result<BTreeMap<i32, i64>, Failure> {
    let bounds = bounds(client, name, topic)?;
    resolve_within(client, name, topic, position, &bounds)
}

/// As [`resolve`], for who knows the bounds already.
pub(super) fn resolve_within(
    client: &mut Client,
    name: &str,
    topic: &MetadataResponseTopic,
    position: Position,
    bounds: &BTreeMap<i32, (i64, i64)>,
) -> Result<BTreeMap<i32, i64>, Failure> {
    let at_time = match position {
        Position::Time(ms) => {
            let asked: Vec<_> = topic
                .partitions
                .iter()
                .filter(|p| p.leader_id >= 0)
                .map(|p| (name.to_owned(), p.partition_index, p.leader_id, ms))
                .collect();
            client.offsets(&asked)?
        }
        _ => BTreeMap::new(),
    };
    Ok(bounds
        .iter()
        .map(|(&partition, &(start, end))| {
            let offset = match position {
                Position::Start => start,
                Position::End | Position::Committed => end,
                Position::Offset(offset) => offset,
                Position::Last(n) => end.saturating_sub(n).max(start),
                Position::Time(_) => match at_time.get(&(name.to_owned(), partition)) {
                    Some((offset, _)) if *offset >= 0 => *offset,
                    _ => end,
                },
            };
            (partition, offset)
        })
        .collect())
}

impl Alter {
    fn run(self, context: &Context) -> Result<(), Failure> {
        if self.set.is_empty() && self.unset.is_empty() {
            return Err(Failure::usage("nothing is to be changed")
                .hint("give --set KEY=VALUE or --unset KEY"));
        }
        config::change(
            context,
            &Resource::topic(&self.topic),
            &self.set,
            &self.unset,
            self.dry_run,
        )
    }
}

impl Delete {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let mut failures = Vec::new();
        let mut found = Vec::new();
        let mut table = Table::new(
            "topic.delete",
            &["name", "partitions", "records", "deleted"],
        );
        for name in &self.topics {
            match client.topic(name, false) {
                Ok(topic) => {
                    let records: i64 = if self.dry_run {
                        bounds(&mut client, name, &topic)?
                            .values()
                            .map(|(start, end)| end - start)
                            .sum()
                    } else {
                        -1
                    };
                    found.push((name, topic.partitions.len(), records));
                }
                Err(failure) => failures.push(failure),
            }
        }
        if self.dry_run {
            for (name, partitions, records) in found {
                table.row(vec![
                    json!(name),
                    json!(partitions),
                    json!(records),
                    json!(false),
                ]);
            }
            return finish(table, failures, context);
        }
        for (name, partitions, _) in found {
            context.confirm(
                self.yes,
                &format!("deleting topic {name:?} with all its records"),
                name,
            )?;
            let by_state = client.any()?.version(ApiKey::DeleteTopics)? >= 6;
            let request = DeleteTopicsRequest {
                topics: if by_state {
                    vec![DeleteTopicState {
                        name: Some(name.clone()),
                        ..DeleteTopicState::default()
                    }]
                } else {
                    Vec::new()
                },
                topic_names: if by_state {
                    Vec::new()
                } else {
                    vec![name.clone()]
                },
                timeout_ms: client.timeout_ms(),
            };
            for result in client.ask(&request)?.responses {
                match result.error_code {
                    ErrorCode::NONE => {
                        table.row(vec![
                            json!(name),
                            json!(partitions),
                            Value::Null,
                            json!(true),
                        ]);
                    }
                    code => failures.push(Failure::kafka(
                        format!("topic {name:?} can't be deleted"),
                        code,
                        result.error_message.as_deref(),
                    )),
                }
            }
        }
        finish(table, failures, context)
    }
}

impl AddPartitions {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let now = client.topic(&self.topic, false)?.partitions.len();
        if i32::try_from(now).is_ok_and(|now| now >= self.to) {
            return Err(Failure::new(
                Exit::Conflict,
                format!("topic {:?} has {now} partitions already", self.topic),
            )
            .why("partitions can be added, never taken away")
            .hint(format!("give --to a number above {now}")));
        }
        if !self.dry_run {
            let what = format!(
                "going from {now} to {} partitions: records of most keys go to another partition from then on, so their order across the change is lost",
                self.to
            );
            context.confirm(self.yes, &what, &self.topic)?;
        }
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: self.topic.clone(),
                count: self.to,
                assignments: None,
            }],
            timeout_ms: client.timeout_ms(),
            validate_only: self.dry_run,
        };
        let mut table = Table::new(
            "topic.add-partitions",
            &["name", "before", "partitions", "changed"],
        );
        for result in client.ask(&request)?.results {
            if result.error_code != ErrorCode::NONE {
                return Err(Failure::kafka(
                    format!("partitions can't be added to topic {:?}", self.topic),
                    result.error_code,
                    result.error_message.as_deref(),
                ));
            }
            table.row(vec![
                json!(result.name),
                json!(now),
                json!(self.to),
                json!(!self.dry_run),
            ]);
        }
        table.print(context.output)
    }
}

impl Trim {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let position: Position = self.before.parse()?;
        let mut client = context.client()?;
        let topic = client.topic(&self.topic, false)?;
        let bounds = bounds(&mut client, &self.topic, &topic)?;
        let mut targets = resolve_within(&mut client, &self.topic, &topic, position, &bounds)?;
        if !self.partition.is_empty() {
            for partition in &self.partition {
                if !targets.contains_key(partition) {
                    return Err(Failure::new(
                        Exit::NotFound,
                        format!("topic {:?} has no partition {partition}", self.topic),
                    )
                    .why(format!(
                        "it has partitions 0 to {}",
                        topic.partitions.len().saturating_sub(1)
                    )));
                }
            }
            targets.retain(|p, _| self.partition.contains(p));
        }
        let mut table = Table::new(
            "topic.trim",
            &[
                "topic",
                "partition",
                "start_before",
                "start",
                "dropped",
                "done",
            ],
        );
        if self.dry_run {
            for (partition, to) in &targets {
                let (start, _) = bounds.get(partition).copied().unwrap_or((0, 0));
                table.row(vec![
                    json!(self.topic),
                    json!(partition),
                    json!(start),
                    json!(to),
                    json!((to - start).max(0)),
                    json!(false),
                ]);
            }
            return table.print(context.output);
        }
        let what = format!("dropping records of topic {:?} for good", self.topic);
        context.confirm(self.yes, &what, &self.topic)?;
        let leaders = by_leader(
            topic
                .partitions
                .iter()
                .filter(|p| targets.contains_key(&p.partition_index))
                .map(|p| (p.leader_id, self.topic.clone(), p.partition_index)),
        );
        let mut failures = Vec::new();
        for (leader, topics) in leaders {
            let target = |partition_index: i32| DeleteRecordsPartition {
                partition_index,
                offset: targets.get(&partition_index).copied().unwrap_or_default(),
            };
            let request = DeleteRecordsRequest {
                topics: topics
                    .into_iter()
                    .map(|(name, partitions)| DeleteRecordsTopic {
                        name,
                        partitions: partitions.into_iter().map(target).collect(),
                    })
                    .collect(),
                timeout_ms: client.timeout_ms(),
            };
            for result in client
                .ask_node(leader, &request)?
                .topics
                .into_iter()
                .flat_map(|t| t.partitions)
            {
                let (start, end) = bounds
                    .get(&result.partition_index)
                    .copied()
                    .unwrap_or((0, 0));
                if result.error_code == ErrorCode::NONE {
                    table.row(vec![
                        json!(self.topic),
                        json!(result.partition_index),
                        json!(start),
                        json!(result.low_watermark),
                        json!((result.low_watermark - start).max(0)),
                        json!(true),
                    ]);
                } else {
                    failures.push(
                        Failure::kafka(
                            format!(
                                "topic {:?}, partition {} can't be trimmed",
                                self.topic, result.partition_index
                            ),
                            result.error_code,
                            None,
                        )
                        .hint(format!("give an offset from {start} to {end}")),
                    );
                }
            }
        }
        finish(table, failures, context)
    }
}
