//! `riverlog group`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use clap::{Args, Subcommand};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_groups_response::DescribedGroup;
use riverlog_wire::messages::{DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest};
use serde_json::{Value, json};

use super::Context;
use super::consume::committed_of;
use super::output::Table;
use super::topic::{bounds, finish, resolve};
use super::values::Position;
use crate::client::{Client, RETRY, commit_request, decode_assignment};
use crate::failure::{Exit, Failure, nearest};

/// Shows and changes consumer groups.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Group {
    /// List groups
    #[command(visible_alias = "ls")]
    List,
    /// Show a group's state
    Describe(Names),
    /// Show how far a group is behind, by partition
    Lag(Lag),
    /// Show members with what they read
    Members(Names),
    /// Move a group's commits; the group must have no members
    Reset(Reset),
    /// Delete groups with their commits
    #[command(visible_alias = "rm")]
    Delete(Delete),
}

/// Names of groups.
#[derive(Clone, Debug, Args)]
pub(crate) struct Names {
    /// Names of groups
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Lag {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// Exit with 1 when the group is further behind than this in all
    #[arg(long, value_name = "RECORDS")]
    max: Option<i64>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Reset {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// Topics; all that the group has commits for unless given
    #[arg(short, long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// These partitions only
    #[arg(short, long, value_delimiter = ',', value_name = "N")]
    partition: Vec<i32>,
    /// Where to: start, end, an offset, -N, a time, how long ago
    #[arg(long, allow_hyphen_values = true, value_name = "POSITION")]
    to: String,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
    /// Say what would change
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Delete {
    /// Groups to delete
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
    /// Say what would be deleted
    #[arg(long)]
    dry_run: bool,
}

impl Group {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Group::List => list(context),
            Group::Describe(names) => describe(&names.groups, context),
            Group::Lag(lag) => lag.run(context),
            Group::Members(names) => members(&names.groups, context),
            Group::Reset(reset) => reset.run(context),
            Group::Delete(delete) => delete.run(context),
        }
    }
}

/// All groups of all brokers.
fn all(client: &mut Client) -> Result<Vec<(String, String, String, String)>, Failure> {
    let brokers: Vec<i32> = client
        .metadata(Some(&[]), false)?
        .brokers
        .iter()
        .map(|b| b.node_id)
        .collect();
    let mut out = Vec::new();
    for broker in brokers {
        let deadline = Instant::now() + client.settings.timeout;
        let response = loop {
            let response = client.ask_node(broker, &ListGroupsRequest::default())?;
            // After a start a broker reads its groups first.
            if !response.error_code.retriable() || Instant::now() >= deadline {
                break response;
            }
            std::thread::sleep(RETRY);
        };
        if response.error_code != ErrorCode::NONE {
            return Err(Failure::kafka(
                format!("broker {broker} can't list its groups"),
                response.error_code,
                None,
            ));
        }
        out.extend(
            response
                .groups
                .into_iter()
                .map(|g| (g.group_id, g.group_state, g.group_type, g.protocol_type)),
        );
    }
    out.sort();
    Ok(out)
}

fn list(context: &Context) -> Result<(), Failure> {
    let mut table = Table::new("group.list", &["group", "state", "type", "+protocol_type"]);
    for (group, state, kind, protocol) in all(&mut context.client()?)? {
        table.row(vec![
            json!(group),
            json!(state),
            json!(kind),
            json!(protocol),
        ]);
    }
    table.print(context.output)
}

/// A group that is there.
fn described(client: &mut Client, group: &str) -> Result<DescribedGroup, Failure> {
    let request = DescribeGroupsRequest {
        groups: vec![group.to_owned()],
        ..DescribeGroupsRequest::default()
    };
    let response = client.ask_coordinator(group, &request, |r| {
        r.groups.first().map_or(ErrorCode::NONE, |g| g.error_code)
    })?;
    let described = response.groups.into_iter().next().unwrap_or_default();
    let missing = described.error_code == ErrorCode::GROUP_ID_NOT_FOUND
        || described.error_code == ErrorCode::NONE && described.group_state == "Dead";
    if missing {
        let known: Vec<String> = all(client)?.into_iter().map(|g| g.0).collect();
        // A group of the newer protocol isn't described by the old request, though it is there.
        if known.iter().any(|k| k == group) {
            return Ok(DescribedGroup {
                group_id: group.to_owned(),
                ..DescribedGroup::default()
            });
        }
        let failure = Failure::new(Exit::NotFound, format!("there is no group {group:?}"));
        return Err(match nearest(group, known.iter().map(String::as_str)) {
            Some(near) => failure.hint(format!(
                "did you mean {near:?}? `riverlog group list` shows all"
            )),
            None => failure.hint(
                "`riverlog group list` shows all; a group is there once it has members or commits",
            ),
        });
    }
    match described.error_code {
        ErrorCode::NONE => Ok(described),
        code => Err(Failure::kafka(
            format!("group {group:?} can't be described"),
            code,
            described.error_message.as_deref(),
        )),
    }
}

/// A partition that a group has to do with.
struct Row {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    end: Option<i64>,
    member: Option<String>,
}

impl Row {
    fn lag(&self) -> Option<i64> {
        Some((self.end? - self.committed?).max(0))
    }
}

/// Every partition that is committed or assigned.
fn rows(client: &mut Client, group: &str, described: &DescribedGroup) -> Result<Vec<Row>, Failure> {
    let committed = committed_of(client, group, None)?;
    let mut owners: BTreeMap<(String, i32), String> = BTreeMap::new();
    for member in &described.members {
        // Other kinds of groups have assignments of their own form.
        for (topic, partitions) in decode_assignment(&member.member_assignment).unwrap_or_default()
        {
            for partition in partitions {
                owners.insert((topic.clone(), partition), member.member_id.clone());
            }
        }
    }
    let keys: BTreeSet<(String, i32)> = committed.keys().chain(owners.keys()).cloned().collect();
    let names: Vec<String> = keys
        .iter()
        .map(|k| k.0.clone())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut ends = BTreeMap::new();
    for topic in client.metadata(Some(&names), false)?.topics {
        let Some(name) = topic
            .name
            .clone()
            .filter(|_| topic.error_code == ErrorCode::NONE)
        else {
            continue;
        };
        for (partition, end) in resolve(client, &name, &topic, Position::End)? {
            ends.insert((name.clone(), partition), end);
        }
    }
    Ok(keys
        .into_iter()
        .map(|key| Row {
            committed: committed.get(&key).copied(),
            end: ends.get(&key).copied(),
            member: owners.get(&key).cloned(),
            topic: key.0,
            partition: key.1,
        })
        .collect())
}

fn describe(groups: &[String], context: &Context) -> Result<(), Failure> {
    let mut client = context.client()?;
    let mut table = Table::new(
        "group.describe",
        &[
            "group",
            "state",
            "protocol",
            "members",
            "partitions",
            "lag",
            "coordinator",
            "+protocol_type",
        ],
    );
    let mut failures = Vec::new();
    for group in groups {
        let described = match described(&mut client, group) {
            Ok(described) => described,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        let rows = rows(&mut client, group, &described)?;
        let lag: i64 = rows.iter().filter_map(Row::lag).sum();
        let coordinator = client.coordinator(group)?;
        table.row(vec![
            json!(group),
            json!(described.group_state),
            json!(described.protocol_data),
            json!(described.members.len()),
            json!(rows.len()),
            json!(lag),
            json!(coordinator),
            json!(described.protocol_type),
        ]);
    }
    finish(table, failures, context)
}

impl Lag {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let described = described(&mut client, &self.group)?;
        let mut table = Table::new(
            "group.lag",
            &["topic", "partition", "committed", "end", "lag", "member"],
        );
        let mut sum = 0;
        for row in rows(&mut client, &self.group, &described)? {
            sum += row.lag().unwrap_or(0);
            // Three states: a number; no commit; the end isn't known.
            let lag = match (row.lag(), row.committed) {
                (Some(lag), _) => json!(lag),
                (None, None) => json!("no commit"),
                (None, Some(_)) => json!("unknown"),
            };
            table.row(vec![
                json!(row.topic),
                json!(row.partition),
                json!(row.committed),
                json!(row.end),
                lag,
                json!(row.member),
            ]);
        }
        table.print(context.output)?;
        if let Some(max) = self.max.filter(|max| sum > *max) {
            return Err(Failure::new(
                Exit::Finding,
                format!("group {:?} is {sum} records behind", self.group),
            )
            .why(format!("that is more than {max}")));
        }
        Ok(())
    }
}

fn members(groups: &[String], context: &Context) -> Result<(), Failure> {
    let mut client = context.client()?;
    let mut table = Table::new(
        "group.members",
        &[
            "member",
            "client",
            "host",
            "partitions",
            "+group",
            "+instance",
            "+assignment",
        ],
    );
    let mut failures = Vec::new();
    for group in groups {
        match described(&mut client, group) {
            Ok(described) => {
                for member in described.members {
                    let assignment =
                        decode_assignment(&member.member_assignment).unwrap_or_default();
                    table.row(vec![
                        json!(member.member_id),
                        json!(member.client_id),
                        json!(member.client_host),
                        json!(assignment.values().map(Vec::len).sum::<usize>()),
                        json!(group),
                        json!(member.group_instance_id),
                        json!(assignment),
                    ]);
                }
            }
            Err(failure) => failures.push(failure),
        }
    }
    if table.is_empty() && failures.is_empty() {
        return table.print(context.output);
    }
    finish(table, failures, context)
}

impl Reset {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let to: Position = self.to.parse()?;
        if to == Position::Committed {
            return Err(Failure::usage("--to committed changes nothing")
                .hint("give start, end, an offset or a time"));
        }
        let mut client = context.client()?;
        let committed = committed_of(&mut client, &self.group, None)?;
        let topics: BTreeSet<String> = if self.topic.is_empty() {
            committed.keys().map(|k| k.0.clone()).collect()
        } else {
            self.topic.iter().cloned().collect()
        };
        if topics.is_empty() {
            // Says so when there is no such group.
            described(&mut client, &self.group)?;
            return Err(Failure::new(
                Exit::NotFound,
                format!("group {:?} has no commits", self.group),
            )
            .hint("name the topics with --topic"));
        }
        let mut targets = BTreeMap::new();
        for name in topics {
            let topic = client.topic(&name, false)?;
            let bounds = bounds(&mut client, &name, &topic)?;
            for (partition, offset) in resolve(&mut client, &name, &topic, to)? {
                if !(self.partition.is_empty() || self.partition.contains(&partition)) {
                    continue;
                }
                // A commit past the end hides what is written below it later.
                let (start, end) = bounds.get(&partition).copied().unwrap_or((offset, offset));
                let within = offset.clamp(start, end.max(start));
                if within != offset {
                    context.note(&format!(
                        "{name} partition {partition} holds offsets {start} to {end}; {offset} becomes {within}"
                    ));
                }
                targets.insert((name.clone(), partition), within);
            }
        }
        if targets.is_empty() {
            let partitions = &self.partition;
            return Err(Failure::new(
                Exit::NotFound,
                format!("none of the topics has a partition of {partitions:?}"),
            )
            .hint("`riverlog topic describe` shows the partitions"));
        }
        if !self.dry_run {
            context.confirm(
                self.yes,
                &format!("moving the commits of group {:?}", self.group),
                &self.group,
            )?;
            let request = commit_request(&self.group, -1, "", &targets);
            let response = client.ask_coordinator(&self.group, &request, |r| {
                r.topics
                    .iter()
                    .flat_map(|t| &t.partitions)
                    .map(|p| p.error_code)
                    .next()
                    .unwrap_or(ErrorCode::NONE)
            })?;
            let code = response
                .topics
                .iter()
                .flat_map(|t| &t.partitions)
                .map(|p| p.error_code);
            if let Some(code) = code.into_iter().find(|c| *c != ErrorCode::NONE) {
                let failure = Failure::kafka(
                    format!("the commits of group {:?} can't be moved", self.group),
                    code,
                    None,
                );
                if matches!(
                    code,
                    ErrorCode::UNKNOWN_MEMBER_ID
                        | ErrorCode::ILLEGAL_GENERATION
                        | ErrorCode::REBALANCE_IN_PROGRESS
                ) {
                    return Err(Failure::new(
                        Exit::Conflict,
                        format!("the commits of group {:?} can't be moved", self.group),
                    )
                    .why(format!("it has members ({})", code.name()))
                    .hint("stop its consumers first; `riverlog group members` names them"));
                }
                return Err(failure);
            }
        }
        let mut table = Table::new(
            "group.reset",
            &["topic", "partition", "before", "offset", "changed"],
        );
        for (key, offset) in targets {
            let before = committed.get(&key).map_or(Value::Null, |o| json!(o));
            table.row(vec![
                json!(key.0),
                json!(key.1),
                before,
                json!(offset),
                json!(!self.dry_run),
            ]);
        }
        table.print(context.output)
    }
}

impl Delete {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let mut table = Table::new("group.delete", &["group", "deleted"]);
        let mut failures = Vec::new();
        for group in &self.groups {
            if let Err(failure) = described(&mut client, group) {
                failures.push(failure);
                continue;
            }
            if self.dry_run {
                table.row(vec![json!(group), json!(false)]);
                continue;
            }
            context.confirm(
                self.yes,
                &format!("deleting group {group:?} with its commits"),
                group,
            )?;
            let request = DeleteGroupsRequest {
                groups_names: vec![group.clone()],
            };
            let response = client.ask_coordinator(group, &request, |r| {
                r.results.first().map_or(ErrorCode::NONE, |g| g.error_code)
            })?;
            for result in response.results {
                match result.error_code {
                    ErrorCode::NONE => table.row(vec![json!(group), json!(true)]),
                    code => {
                        let failure = Failure::kafka(
                            format!("group {group:?} can't be deleted"),
                            code,
                            result.error_message.as_deref(),
                        );
                        failures.push(if code == ErrorCode::NON_EMPTY_GROUP {
                            failure.hint(
                                "stop its consumers first; `riverlog group members` names them",
                            )
                        } else {
                            failure
                        });
                    }
                }
            }
        }
        finish(table, failures, context)
    }
}
