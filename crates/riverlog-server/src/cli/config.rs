//! `riverlog config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use riverlog_core::config::{Scope, Standing, check, key, keys, standing};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_configs_request::DescribeConfigsResource;
use riverlog_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use riverlog_wire::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest, Request};
use serde_json::{Value, json};

use super::output::Table;
use super::{Context, values};
use crate::client::Client;
use crate::config::{Inputs, Listeners, load};
use crate::failure::{Exit, Failure, nearest};
use crate::serve::config_failure;

/// Shows, explains, sets and checks configuration.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show values with their sources: of topic:NAME, broker:ID, group:NAME or cluster
    Get(Get),
    /// Set values while the broker runs: of topic:NAME, broker:ID, group:NAME or cluster
    Set(Set),
    /// Say what keys mean: default, range, Kafka's default, when they can be changed
    Explain(ExplainKey),
    /// Check a file as `serve` would, and say what differs from Kafka
    Lint(Lint),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Get {
    /// topic:NAME, broker:ID, group:NAME or cluster
    resource: String,
    /// These keys only
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// Only what was set
    #[arg(long)]
    set_only: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Set {
    /// topic:NAME, broker:ID, group:NAME or cluster
    resource: String,
    /// What to set
    #[arg(value_parser = values::pair, value_name = "KEY=VALUE")]
    set: Vec<(String, String)>,
    /// Give a key its default again; may be repeated
    #[arg(short, long, value_name = "KEY")]
    unset: Vec<String>,
    /// Check only
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainKey {
    /// A key; all when left out
    key: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Lint {
    /// server.properties or TOML
    file: PathBuf,
}

/// Whose configuration.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    kind: i8,
    name: String,
    scope: Scope,
}

impl Resource {
    pub(super) fn topic(name: &str) -> Resource {
        Resource {
            kind: 2,
            name: name.to_owned(),
            scope: Scope::Topic,
        }
    }

    fn parse(text: &str) -> Result<Resource, Failure> {
        let resource = match text.split_once(':') {
            Some(("topic", name)) => Resource::topic(name),
            Some(("broker", name)) => Resource {
                kind: 4,
                name: name.to_owned(),
                scope: Scope::Broker,
            },
            Some(("group", name)) => Resource {
                kind: 32,
                name: name.to_owned(),
                scope: Scope::Group,
            },
            None if text == "cluster" => Resource {
                kind: 4,
                name: String::new(),
                scope: Scope::Broker,
            },
            _ => {
                return Err(Failure::usage(format!("{text:?} has no configuration"))
                    .hint("give topic:NAME, broker:ID, group:NAME or cluster"));
            }
        };
        if resource.kind == 4 && !resource.name.is_empty() && resource.name.parse::<i32>().is_err()
        {
            return Err(
                Failure::usage(format!("{:?} isn't a broker's id", resource.name))
                    .hint("`riverlog cluster brokers` lists them"),
            );
        }
        Ok(resource)
    }

    fn words(&self) -> String {
        match (self.kind, self.name.as_str()) {
            (2, name) => format!("topic {name:?}"),
            (32, name) => format!("group {name:?}"),
            (_, "") => "the cluster".to_owned(),
            (_, id) => format!("broker {id}"),
        }
    }
}

impl ConfigCommand {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            ConfigCommand::Get(get) => show(
                context,
                &Resource::parse(&get.resource)?,
                &get.keys,
                get.set_only,
            ),
            ConfigCommand::Set(set) => {
                if set.set.is_empty() && set.unset.is_empty() {
                    return Err(Failure::usage("nothing is to be changed")
                        .hint("give KEY=VALUE or --unset KEY"));
                }
                change(
                    context,
                    &Resource::parse(&set.resource)?,
                    &set.set,
                    &set.unset,
                    set.dry_run,
                )
            }
            ConfigCommand::Explain(explain) => explain.run(context),
            ConfigCommand::Lint(lint) => lint.run(context),
        }
    }
}

/// DescribeConfigs' sources, in words.
fn source(number: i8) -> &'static str {
    match number {
        1 => "topic",
        2 => "broker, while it runs",
        3 => "cluster, while it runs",
        4 => "broker, at start",
        5 => "default",
        6 => "broker logger",
        7 => "client metrics",
        8 => "group",
        _ => "unknown",
    }
}

/// Asks the broker that a resource is about, any broker about others: the values of one broker are that broker's.
fn ask_owner<R: Request>(
    client: &mut Client,
    of: &Resource,
    request: &R,
) -> Result<R::Response, Failure> {
    let Ok(id) = of.name.parse::<i32>() else {
        return client.ask(request);
    };
    if of.kind != 4 {
        return client.ask(request);
    }
    let known = client.metadata(Some(&[]), false)?.brokers;
    if !known.iter().any(|b| b.node_id == id) {
        return Err(
            Failure::new(Exit::NotFound, format!("there is no broker {id}"))
                .hint("`riverlog cluster brokers` lists them"),
        );
    }
    client.ask_node(id, request)
}

/// Prints a resource's values.
pub(super) fn show(
    context: &Context,
    of: &Resource,
    wanted: &[String],
    set_only: bool,
) -> Result<(), Failure> {
    let mut client = context.client()?;
    if of.kind == 2 {
        // Says what name was probably meant.
        client.topic(&of.name, false)?;
    }
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: of.kind,
            resource_name: of.name.clone(),
            configuration_keys: (!wanted.is_empty()).then(|| wanted.to_vec()),
        }],
        include_synonyms: true,
        ..DescribeConfigsRequest::default()
    };
    let mut table = Table::new(
        "config.get",
        &["key", "value", "source", "+read_only", "+synonyms"],
    );
    let response = ask_owner(&mut client, of, &request)?;
    for result in response.results {
        if result.error_code != ErrorCode::NONE {
            return Err(Failure::kafka(
                format!("the configuration of {} can't be shown", of.words()),
                result.error_code,
                result.error_message.as_deref(),
            ));
        }
        if let Some(missing) = wanted
            .iter()
            .find(|w| !result.configs.iter().any(|c| c.name == **w))
        {
            return Err(no_key(missing, of.scope));
        }
        for config in result.configs {
            if set_only && matches!(config.config_source, 4 | 5) {
                continue;
            }
            let synonyms: Vec<String> = config
                .synonyms
                .iter()
                .map(|s| {
                    format!(
                        "{}={} ({})",
                        s.name,
                        s.value.as_deref().unwrap_or("-"),
                        source(s.source)
                    )
                })
                .collect();
            table.row(vec![
                json!(config.name),
                config.value.map_or(Value::Null, Value::String),
                json!(source(config.config_source)),
                json!(config.read_only),
                json!(synonyms),
            ]);
        }
    }
    table.print(context.output)
}

fn no_key(name: &str, scope: Scope) -> Failure {
    let words = match scope {
        Scope::Topic => "topic",
        Scope::Broker => "broker",
        Scope::Group => "group",
    };
    let failure = Failure::new(Exit::NotFound, format!("there is no {words} key {name:?}"));
    match nearest(
        name,
        keys().iter().filter(|k| k.scope == scope).map(|k| k.name),
    ) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure.hint("`riverlog config explain` lists all keys"),
    }
}

/// Sets and unsets a resource's values.
pub(super) fn change(
    context: &Context,
    of: &Resource,
    set: &[(String, String)],
    unset: &[String],
    dry_run: bool,
) -> Result<(), Failure> {
    for (name, value) in set {
        check(of.scope, name, value).map_err(|e| Failure::usage(e.to_string()))?;
    }
    for name in unset {
        if key(of.scope, name).is_none() {
            return Err(no_key(name, of.scope));
        }
    }
    let mut client = context.client()?;
    if of.kind == 2 {
        client.topic(&of.name, false)?;
    }
    let set_to = |(name, value): &(String, String)| AlterableConfig {
        name: name.clone(),
        config_operation: 0,
        value: Some(value.clone()),
    };
    let unset_of = |name: &String| AlterableConfig {
        name: name.clone(),
        config_operation: 1,
        value: None,
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: of.kind,
            resource_name: of.name.clone(),
            configs: set
                .iter()
                .map(set_to)
                .chain(unset.iter().map(unset_of))
                .collect(),
        }],
        validate_only: dry_run,
    };
    let response = ask_owner(&mut client, of, &request)?;
    for result in response.responses {
        if result.error_code != ErrorCode::NONE {
            return Err(Failure::kafka(
                format!("the configuration of {} can't be changed", of.words()),
                result.error_code,
                result.error_message.as_deref(),
            ));
        }
    }
    let mut table = Table::new("config.set", &["key", "value", "changed"]);
    for (name, value) in set {
        table.row(vec![json!(name), json!(value), json!(!dry_run)]);
    }
    for name in unset {
        table.row(vec![json!(name), Value::Null, json!(!dry_run)]);
    }
    table.print(context.output)
}

impl ExplainKey {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut table = Table::new(
            "config.explain",
            &[
                "key",
                "of",
                "default",
                "kafka_default",
                "takes",
                "change",
                "effect",
                "meaning",
            ],
        );
        let mut found = false;
        for one in keys()
            .iter()
            .filter(|k| self.key.as_ref().is_none_or(|name| k.name == name))
        {
            found = true;
            let of = match one.scope {
                Scope::Topic => "topic",
                Scope::Broker => "broker",
                Scope::Group => "group",
            };
            table.row(vec![
                json!(one.name),
                json!(of),
                json!(one.default),
                json!(one.kafka_default.or(one.default)),
                json!(one.kind.words()),
                json!(if one.dynamic() { "any time" } else { "restart" }),
                json!(if one.used {
                    "yes"
                } else {
                    "accepted, without effect"
                }),
                json!(one.doc),
            ]);
        }
        match (&self.key, found) {
            (_, true) => {}
            (Some(name), false) => match standing(name) {
                Standing::Ignored(why) => {
                    table.row(vec![
                        json!(name),
                        json!("broker"),
                        Value::Null,
                        Value::Null,
                        Value::Null,
                        Value::Null,
                        json!("accepted, without effect"),
                        json!(why),
                    ]);
                }
                Standing::Refused(why) => {
                    table.row(vec![
                        json!(name),
                        json!("broker"),
                        Value::Null,
                        Value::Null,
                        Value::Null,
                        Value::Null,
                        json!("refused"),
                        json!(why),
                    ]);
                }
                _ => {
                    let failure = Failure::new(Exit::NotFound, format!("there is no key {name:?}"));
                    return Err(match nearest(name, keys().iter().map(|k| k.name)) {
                        Some(near) => failure.hint(format!("did you mean {near}?")),
                        None => failure.hint("`riverlog config explain` lists all keys"),
                    });
                }
            },
            (None, false) => {}
        }
        table.print(context.output)
    }
}

impl Lint {
    fn run(self, context: &Context) -> Result<(), Failure> {
        if !self.file.exists() {
            return Err(Failure::new(
                Exit::NotFound,
                format!("there is no file {}", self.file.display()),
            ));
        }
        let inputs = Inputs {
            file: Some(self.file.clone()),
            ..Inputs::default()
        };
        let config = load(&inputs).map_err(|m| config_failure(&m))?;
        let listeners = Listeners::read(config.broker()).map_err(|m| config_failure(&m))?;
        let mut table = Table::new("config.lint", &["key", "finding", "+source"]);
        for warning in config.warnings.iter().chain(&listeners.warnings) {
            let key = warning.split(' ').next().unwrap_or_default();
            table.row(vec![json!(key), json!(warning), Value::Null]);
        }
        for (name, setting) in &config.settings {
            let Some(known) = key(Scope::Broker, name) else {
                continue;
            };
            if !known.used {
                table.row(vec![
                    json!(name),
                    json!(format!("accepted, without effect: {}", known.doc)),
                    json!(setting.source.to_string()),
                ]);
            }
        }
        // What the file leaves to defaults that differ from Kafka's.
        for known in keys().iter().filter(|k| k.scope == Scope::Broker && k.used) {
            if let (Some(kafka), false) =
                (known.kafka_default, config.values.contains_key(known.name))
            {
                let ours = known.default.unwrap_or("decided by the cluster's size");
                table.row(vec![
                    json!(known.name),
                    json!(format!(
                        "not set: the default is {ours} here, {kafka} in Kafka"
                    )),
                    Value::Null,
                ]);
            }
        }
        table.print(context.output)
    }
}
