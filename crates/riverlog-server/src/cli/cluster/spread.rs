//! `riverlog cluster drain`, `rebalance` and `unregister`: nodes that go, and nodes that come.

use std::collections::BTreeMap;

use clap::Args;
use riverlog_core::balance::{self, Move};
use riverlog_wire::BrokerId;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::UnregisterBrokerRequest;
use riverlog_wire::messages::metadata_response::MetadataResponse;

use super::Context;
use super::moving;
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// How often a node that gets new copies meanwhile is emptied again.
const ROUNDS: usize = 5;

/// Moves everything off a node.
#[derive(Clone, Debug, Args)]
pub(crate) struct Drain {
    /// Its number
    node: i32,
    /// Where there is no other node for a copy, have one copy less
    #[arg(long)]
    fewer_copies: bool,
    /// Partitions that move at once
    #[arg(long, default_value_t = 20, value_name = "N")]
    at_once: usize,
    /// Show what would move, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Spreads copies and leaderships evenly over nodes and racks.
#[derive(Clone, Debug, Args)]
pub(crate) struct Rebalance {
    /// Partitions that move at once
    #[arg(long, default_value_t = 20, value_name = "N")]
    at_once: usize,
    /// Show what would move, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Takes a node that is stopped and empty out of the list of nodes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Unregister {
    /// Its number
    node: i32,
}

impl Drain {
    pub(super) fn run(self, client: &mut Client, context: &Context) -> Result<(), Failure> {
        let node = BrokerId(self.node);
        let mut moved: Vec<Move> = Vec::new();
        let mut wrong = BTreeMap::new();
        for _ in 0..ROUNDS {
            let moves = self.plan(client, node)?;
            if self.dry_run {
                let none = BTreeMap::new();
                return moving::show("cluster.drain", &moves, &none, "would move", context);
            }
            if moves.is_empty() {
                break;
            }
            context.note(&format!("{} partitions move off node {node}", moves.len()));
            let failed = moving::carry_out(client, context, &moves, self.at_once)?;
            let stuck = failed.len() == moves.len();
            moved.extend(moves);
            wrong.extend(failed);
            if stuck {
                break;
            }
        }
        moving::show("cluster.drain", &moved, &wrong, "moved", context)?;
        let left = self.plan(client, node)?.len();
        if left > 0 {
            return Err(Failure::new(
                Exit::Partial,
                format!("{left} partitions have copies on node {node} still"),
            )
            .hint("look at the results above, and drain it again"));
        }
        context.note(&format!(
            "node {node} has no copies any more: stop it, then `riverlog cluster remove-voter {node}` and `riverlog cluster unregister {node}`"
        ));
        Ok(())
    }

    fn plan(&self, client: &mut Client, node: BrokerId) -> Result<Vec<Move>, Failure> {
        let places = moving::places(client)?;
        if !places.iter().any(|p| p.id == node) {
            return Err(
                Failure::new(Exit::NotFound, format!("there is no node {node}"))
                    .hint("`riverlog cluster brokers` lists all"),
            );
        }
        let metadata = client.metadata(None, false)?;
        let under_way = moving::moving(client)?;
        let copies = moving::copies(&metadata, &under_way);
        balance::drain(&places, &copies, node, self.fewer_copies).map_err(|stuck| {
            let (topic, index) = stuck.first().cloned().unwrap_or_default();
            Failure::new(
                Exit::Conflict,
                format!("{} partitions have no other node to go to", stuck.len()),
            )
            .why(format!(
                "of {topic}-{index}, for instance, each other node that is up has a copy already"
            ))
            .hint("start another node first, or accept one copy less of them with --fewer-copies")
        })
    }
}

impl Rebalance {
    pub(super) fn run(
        self,
        client: &mut Client,
        metadata: &MetadataResponse,
        context: &Context,
    ) -> Result<(), Failure> {
        let under_way = moving::moving(client)?;
        if !under_way.is_empty() {
            return Err(Failure::new(
                Exit::Conflict,
                format!("{} partitions move already", under_way.len()),
            )
            .hint("wait for them; `riverlog cluster reassign --status` shows how far they are"));
        }
        let places = moving::places(client)?;
        let down = places.iter().filter(|p| !p.takes).map(|p| p.id.to_string());
        let down: Vec<String> = down.collect();
        if !down.is_empty() {
            context.note(&format!(
                "nodes that are down are left out: {}",
                down.join(", ")
            ));
        }
        let copies = moving::copies(metadata, &under_way);
        let moves = balance::rebalance(&places, &copies);
        if moves.is_empty() {
            context.note("everything is spread evenly");
        }
        let none = BTreeMap::new();
        if self.dry_run || moves.is_empty() {
            return moving::show("cluster.rebalance", &moves, &none, "would move", context);
        }
        let copied = moves.iter().filter(|m| m.copies()).count();
        context.note(&format!(
            "{} partitions change: {copied} are copied, the others have another first replica",
            moves.len()
        ));
        let wrong = moving::carry_out(client, context, &moves, self.at_once)?;
        moving::elect(client, &moves)?;
        moving::show("cluster.rebalance", &moves, &wrong, "moved", context)?;
        moving::end(wrong.len(), moves.len())
    }
}

impl Unregister {
    pub(super) fn run(
        self,
        client: &mut Client,
        metadata: &MetadataResponse,
        context: &Context,
    ) -> Result<(), Failure> {
        let node = self.node;
        let partitions = metadata.topics.iter().flat_map(|t| &t.partitions);
        let has = partitions
            .filter(|p| p.replica_nodes.contains(&node))
            .count();
        if has > 0 {
            return Err(Failure::new(
                Exit::Conflict,
                format!("{has} partitions have copies on node {node}"),
            )
            .hint(format!("`riverlog cluster drain {node}` moves them off")));
        }
        let places = moving::places(client)?;
        if places.iter().any(|p| p.id.0 == node && p.takes) {
            return Err(Failure::new(Exit::Conflict, format!("node {node} is up"))
                .why("it would register again at once")
                .hint("stop it, and wait until it is noticed"));
        }
        let answer = client.ask(&UnregisterBrokerRequest { broker_id: node })?;
        match answer.error_code {
            ErrorCode::NONE => {
                context.note(&format!("node {node} isn't part of the cluster any more"));
                Ok(())
            }
            code => Err(Failure::kafka(
                format!("node {node} can't be unregistered"),
                code,
                answer.error_message.as_deref(),
            )),
        }
    }
}
