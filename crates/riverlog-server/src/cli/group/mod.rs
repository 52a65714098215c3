//! `riverlog group`.

mod copy;
mod describe;
mod explain;
mod lag;
mod quota;
mod reset;
mod watch;

use std::time::Instant;

use clap::{Args, Subcommand};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{DeleteGroupsRequest, ListGroupsRequest};
use serde_json::json;

use super::Context;
use super::output::Table;
use super::topic::finish;
use crate::client::{Client, RETRY};
use crate::failure::Failure;
use describe::described;
use lag::rows;

/// Shows and changes consumer groups.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Group {
    /// List groups
    #[command(visible_alias = "ls")]
    List,
    /// Show a group's state
    Describe(Names),
    /// Show how far a group is behind, by partition, in records and seconds
    Lag(lag::Lag),
    /// Show again and again how a group gets on
    Watch(watch::Watch),
    /// Say for each partition what holds it up
    Explain(explain::Explain),
    /// Show members with what they read
    Members(Names),
    /// Move a group's commits; the group must have no members
    Reset(reset::Reset),
    /// Give a group the commits of another
    Copy(copy::Copy),
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
            Group::Watch(watch) => watch.run(context),
            Group::Explain(explain) => explain.run(context),
            Group::Members(names) => members(&names.groups, context),
            Group::Reset(reset) => reset.run(context),
            Group::Copy(copy) => copy.run(context),
            Group::Delete(delete) => delete.run(context),
        }
    }
}

/// All groups of all brokers: name, state, kind and protocol type.
pub(super) fn all(client: &mut Client) -> Result<Vec<(String, String, String, String)>, Failure> {
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
        let partitions = rows.len();
        let lag: i64 = rows.iter().filter_map(lag::Row::lag).sum();
        let coordinator = client.coordinator(group)?;
        table.row(vec![
            json!(group),
            json!(described.state),
            json!(described.protocol),
            json!(described.members.len()),
            json!(partitions),
            json!(lag),
            json!(coordinator),
            json!(described.protocol_type),
        ]);
    }
    finish(table, failures, context)
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
                    table.row(vec![
                        json!(member.id),
                        json!(member.client),
                        json!(member.host),
                        json!(member.assignment.values().map(Vec::len).sum::<usize>()),
                        json!(group),
                        json!(member.instance),
                        json!(member.assignment),
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
