//! `riverlog group reset`: moves the commits of a group without members.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use riverlog_wire::ErrorCode;
use serde_json::json;

use super::describe::described;
use crate::cli::Context;
use crate::cli::consume::committed_of;
use crate::cli::output::Table;
use crate::cli::topic::{bounds, resolve_within};
use crate::cli::values::Position;
use crate::client::{Client, commit_request};
use crate::failure::{Exit, Failure};

/// Topic and partition to offset.
pub(super) type Commits = BTreeMap<(String, i32), i64>;

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

impl Reset {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
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
            for (partition, offset) in resolve_within(&mut client, &name, &topic, to, &bounds)? {
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
            commit(&mut client, &self.group, &targets)?;
        }
        moved("group.reset", &committed, targets, self.dry_run).print(context.output)
    }
}

/// Commits for a group from outside, which only works while it has no members.
pub(super) fn commit(client: &mut Client, group: &str, targets: &Commits) -> Result<(), Failure> {
    let request = commit_request(group, -1, "", targets);
    let response = client.ask_coordinator(group, &request, |r| {
        r.topics
            .iter()
            .flat_map(|t| &t.partitions)
            .map(|p| p.error_code)
            .next()
            .unwrap_or(ErrorCode::NONE)
    })?;
    let mut codes = response
        .topics
        .iter()
        .flat_map(|t| &t.partitions)
        .map(|p| p.error_code);
    let Some(code) = codes.find(|c| *c != ErrorCode::NONE) else {
        return Ok(());
    };
    let what = format!("the commits of group {group:?} can't be moved");
    if matches!(
        code,
        ErrorCode::UNKNOWN_MEMBER_ID
            | ErrorCode::ILLEGAL_GENERATION
            | ErrorCode::REBALANCE_IN_PROGRESS
    ) {
        return Err(Failure::new(Exit::Conflict, what)
            .why(format!("it has members ({})", code.name()))
            .hint("stop its consumers first; `riverlog group members` names them"));
    }
    Err(Failure::kafka(what, code, None))
}

/// What was moved, or would be.
pub(super) fn moved(
    kind: &'static str,
    before: &Commits,
    targets: Commits,
    dry_run: bool,
) -> Table {
    let mut table = Table::new(kind, &["topic", "partition", "before", "offset", "changed"]);
    for (key, offset) in targets {
        table.row(vec![
            json!(key.0),
            json!(key.1),
            json!(before.get(&key)),
            json!(offset),
            json!(!dry_run),
        ]);
    }
    table
}
