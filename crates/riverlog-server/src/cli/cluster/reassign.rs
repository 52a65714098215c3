//! `riverlog cluster reassign`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use riverlog_core::balance::{Copies, Move};
use riverlog_wire::messages::metadata_response::MetadataResponse;
use riverlog_wire::{BrokerId, ErrorCode};
use serde::Deserialize;
use serde_json::json;

use super::Context;
use super::moving::{self, At, Moving};
use crate::cli::output::Table;
use crate::cli::values;
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// Moves partitions to other nodes, or gives them more or fewer copies.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reassign {
    /// Topics, or partitions of them: orders, orders:0
    #[arg(value_name = "TOPIC[:PARTITION]")]
    partitions: Vec<String>,
    /// Nodes that are to have copies, the preferred leader first. Of a whole topic, each partition begins with the next one
    #[arg(long, value_delimiter = ',', value_name = "NODE,…", conflicts_with_all = ["plan", "status", "cancel"])]
    replicas: Vec<i32>,
    /// Take the plan from a file, in the form of kafka-reassign-partitions; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["partitions", "status", "cancel"])]
    plan: Option<PathBuf>,
    /// Show what moves, and how far it is
    #[arg(long)]
    status: bool,
    /// Take back what moves: everything, or what is named
    #[arg(long, conflicts_with = "status")]
    cancel: bool,
    /// Bytes a second that catching up may take on each node, such as 10MiB; none takes the bound back
    #[arg(long, value_parser = rate, value_name = "RATE")]
    throttle: Option<Rate>,
    /// Wait until it is done, and say how far it is
    #[arg(long)]
    wait: bool,
    /// Show what would change, and do nothing
    #[arg(long, conflicts_with_all = ["status", "cancel", "wait"])]
    dry_run: bool,
}

/// A bound on catching up, or none.
#[derive(Clone, Copy, Debug)]
struct Rate(Option<usize>);

fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate(None)),
        text => values::size(text)
            .map(|rate| Rate(Some(rate)))
            .map_err(|_| "give bytes a second, such as 500KiB or 10MiB, or none".to_owned()),
    }
}

/// The form of kafka-reassign-partitions; folders of logs are passed over, since each node has one.
#[derive(Deserialize)]
struct Plan {
    partitions: Vec<Planned>,
}

#[derive(Deserialize)]
struct Planned {
    topic: String,
    partition: i32,
    replicas: Vec<i32>,
}

impl Reassign {
    pub(super) fn run(
        self,
        client: &mut Client,
        metadata: &MetadataResponse,
        context: &Context,
    ) -> Result<(), Failure> {
        let bound = self.throttle.filter(|_| !self.dry_run);
        if let Some(Rate(rate)) = bound {
            moving::throttle(client, rate)?;
            context.note(&match rate {
                Some(rate) => {
                    format!("catching up takes at most {rate} bytes a second on each node")
                }
                None => "catching up takes as much as it can".to_owned(),
            });
        }
        if self.status {
            return status(client, context);
        }
        if self.cancel {
            return self.take_back(client, context);
        }
        let asks = !self.replicas.is_empty() || self.plan.is_some();
        if !asks && self.partitions.is_empty() && bound.is_some() {
            return Ok(());
        }
        if !asks {
            return Err(Failure::usage("it isn't said where to")
                .hint("give TOPIC[:PARTITION] and --replicas 1,2,3, or --plan FILE; or --status, --cancel"));
        }
        let moves = self.moves(client, metadata)?;
        if moves.is_empty() {
            context.note("everything is there already");
            return Ok(());
        }
        if self.dry_run {
            return moving::show(
                "cluster.reassign",
                &moves,
                &BTreeMap::new(),
                "would move",
                context,
            );
        }
        let wanted: Vec<(At, Option<Vec<i32>>)> = moves
            .iter()
            .map(|m| ((m.topic.clone(), m.index), Some(moving::ids(&m.to))))
            .collect();
        let wrong = moving::alter(client, &wanted)?;
        if self.wait {
            let begun = wanted.into_iter().map(|(at, _)| at);
            let begun: BTreeSet<At> = begun.filter(|at| !wrong.contains_key(at)).collect();
            moving::wait(client, context, &begun)?;
            if let Some(Rate(Some(_))) = bound {
                moving::throttle(client, None)?;
            }
        }
        let done = if self.wait { "moved" } else { "moves" };
        moving::show("cluster.reassign", &moves, &wrong, done, context)?;
        if !self.wait && wrong.len() < moves.len() {
            context.note("`riverlog cluster reassign --status` shows how far it is");
        }
        moving::end(wrong.len(), moves.len())
    }

    /// What is asked for, and isn't so already.
    fn moves(
        &self,
        client: &mut Client,
        metadata: &MetadataResponse,
    ) -> Result<Vec<Move>, Failure> {
        let under_way = moving::moving(client)?;
        let copies = moving::copies(metadata, &under_way);
        let mut wanted: BTreeMap<At, Vec<i32>> = BTreeMap::new();
        if let Some(file) = &self.plan {
            for p in read_plan(file)?.partitions {
                wanted.insert((p.topic, p.partition), p.replicas);
            }
        }
        for text in &self.partitions {
            let named = named(text, &copies)?;
            let whole = named.len() > 1 || !text.contains(':');
            for (turn, at) in named.into_iter().enumerate() {
                let mut replicas = self.replicas.clone();
                if whole && !replicas.is_empty() {
                    let first = turn % replicas.len();
                    replicas.rotate_left(first);
                }
                wanted.insert(at, replicas);
            }
        }
        let mut moves = Vec::new();
        for ((topic, index), to) in wanted {
            let known = copies
                .iter()
                .find(|c| (&c.topic, c.index) == (&topic, index));
            let to: Vec<BrokerId> = to.into_iter().map(BrokerId).collect();
            // What isn't there is asked for all the same: the broker says what is wrong with it.
            let from = known.map(|c| c.replicas.clone()).unwrap_or_default();
            if from != to {
                moves.push(Move {
                    topic,
                    index,
                    from,
                    to,
                });
            }
        }
        Ok(moves)
    }

    fn take_back(&self, client: &mut Client, context: &Context) -> Result<(), Failure> {
        let under_way = moving::moving(client)?;
        let is_named = |m: &Moving| {
            let text = format!("{}:{}", m.at.0, m.at.1);
            let mut all = self.partitions.iter();
            self.partitions.is_empty() || all.any(|p| *p == m.at.0 || *p == text)
        };
        let wanted: Vec<&Moving> = under_way.iter().filter(|m| is_named(m)).collect();
        if wanted.is_empty() {
            context.note("nothing of that moves");
            return Ok(());
        }
        let asked: Vec<_> = wanted.iter().map(|m| (m.at.clone(), None)).collect();
        let mut wrong = moving::alter(client, &asked)?;
        let mut table = Table::new("cluster.cancel", &["topic", "partition", "result"]);
        // It was still moving when it was looked at.
        let through = ErrorCode::NO_REASSIGNMENT_IN_PROGRESS.name();
        for m in &wanted {
            let arrived = wrong.get(&m.at).is_some_and(|w| w.starts_with(through));
            if arrived {
                wrong.remove(&m.at);
            }
            let done = if arrived {
                "arrived before"
            } else {
                "taken back"
            };
            let result = wrong.get(&m.at).map_or(done, String::as_str);
            table.row(vec![json!(m.at.0), json!(m.at.1), json!(result)]);
        }
        table.print(context.output)?;
        moving::end(wrong.len(), wanted.len())
    }
}

/// What moves, and how far it is.
fn status(client: &mut Client, context: &Context) -> Result<(), Failure> {
    let under_way = moving::moving(client)?;
    if under_way.is_empty() {
        context.note("nothing moves");
    }
    let copied = moving::copied(client, &under_way);
    let columns = &[
        "topic",
        "partition",
        "to",
        "adding",
        "removing",
        "copied_bytes",
        "total_bytes",
    ];
    let mut table = Table::new("cluster.moving", columns);
    for m in &under_way {
        let (done, all) = copied.get(&m.at).copied().unwrap_or_default();
        table.row(vec![
            json!(m.at.0),
            json!(m.at.1),
            json!(moving::list(&m.target())),
            json!(moving::list(&m.adding)),
            json!(moving::list(&m.removing)),
            json!(done),
            json!(all),
        ]);
    }
    table.print(context.output)
}

/// The partitions that `TOPIC` or `TOPIC:PARTITION` names.
fn named(text: &str, copies: &[Copies]) -> Result<Vec<At>, Failure> {
    let (topic, index) = match text.split_once(':') {
        None => (text, None),
        Some((topic, index)) => {
            let number: i32 = index.parse().map_err(|_| {
                Failure::usage(format!("{index:?} isn't a partition"))
                    .hint("give TOPIC or TOPIC:PARTITION, for instance orders:0")
            })?;
            (topic, Some(number))
        }
    };
    let is_named = |c: &&Copies| c.topic == topic && index.is_none_or(|i| i == c.index);
    let found = copies.iter().filter(is_named);
    let found: Vec<At> = found.map(|c| (c.topic.clone(), c.index)).collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(
            Failure::new(Exit::NotFound, format!("there is no partition {text}"))
                .hint("`riverlog topic list` shows all topics, `riverlog topic describe` their partitions"),
        ),
    }
}

fn read_plan(file: &PathBuf) -> Result<Plan, Failure> {
    let cant =
        |why: String| Failure::usage(format!("the plan {} can't be read", file.display())).why(why);
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        let read = std::io::stdin().lock().read_to_string(&mut text);
        read.map_err(|e| cant(e.to_string()))?;
        text
    } else {
        std::fs::read_to_string(file).map_err(|e| cant(e.to_string()))?
    };
    serde_json::from_str(&text).map_err(|e| {
        cant(e.to_string()).hint(
            r#"it looks like {"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3]}]}"#,
        )
    })
}
