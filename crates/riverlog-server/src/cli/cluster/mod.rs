//! `riverlog cluster`.

mod elect;
mod health;
mod moving;
mod quorum;
mod reassign;
mod spread;

use clap::Subcommand;
use serde_json::json;

use super::Context;
use super::output::Table;
use crate::failure::{Exit, Failure};

/// Looks at the cluster, and changes who votes, who leads, and what is where.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Cluster {
    /// One line on everything; exit code 1 when partitions are offline
    Status,
    /// List brokers with the addresses that clients are told, and whether they are up and their disks are well
    Brokers,
    /// List what is wrong or worth knowing, and what to do; exit code 1 when something is wrong
    Health,
    /// List who agrees on metadata: voters, observers, and which of them leads
    Quorum,
    /// Let an observer vote
    AddVoter {
        /// Its number
        node: i32,
    },
    /// Take a stopped node out of the quorum for good
    RemoveVoter {
        /// Its number
        node: i32,
    },
    /// Make the first replica of each partition its leader again
    Elect(elect::Elect),
    /// Move partitions to other nodes, or give them more or fewer copies
    Reassign(reassign::Reassign),
    /// Move everything off a node, so that it can leave
    Drain(spread::Drain),
    /// Spread copies and leaderships evenly over nodes and racks
    Rebalance(spread::Rebalance),
    /// Take a node that is stopped and empty out of the list of nodes
    Unregister(spread::Unregister),
}

impl Cluster {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let metadata = client.metadata(None, false)?;
        match self {
            Cluster::Brokers => {
                let mut table = Table::new(
                    "cluster.brokers",
                    &["id", "host", "port", "rack", "controller", "state"],
                );
                let mut brokers = health::nodes(&mut client)?;
                brokers.sort_by_key(|b| b.broker_id);
                for b in brokers {
                    let controller = b.broker_id == metadata.controller_id;
                    table.row(vec![
                        json!(b.broker_id),
                        json!(b.host),
                        json!(b.port),
                        json!(b.rack),
                        json!(controller),
                        json!(match (b.is_fenced, b.disk_ailing) {
                            (true, _) => "down",
                            (false, true) => "disk ailing",
                            (false, false) => "up",
                        }),
                    ]);
                }
                table.print(context.output)
            }
            Cluster::Health => health::look(&mut client, &metadata, context),
            Cluster::Quorum => quorum::list(&mut client, context),
            Cluster::AddVoter { node } => {
                quorum::change(&mut client, context, node, quorum::Wanted::Add)
            }
            Cluster::RemoveVoter { node } => {
                quorum::change(&mut client, context, node, quorum::Wanted::Remove)
            }
            Cluster::Elect(elect) => elect.run(&mut client, &metadata, context),
            Cluster::Reassign(reassign) => reassign.run(&mut client, &metadata, context),
            Cluster::Drain(drain) => drain.run(&mut client, context),
            Cluster::Rebalance(rebalance) => rebalance.run(&mut client, &metadata, context),
            Cluster::Unregister(unregister) => unregister.run(&mut client, &metadata, context),
            Cluster::Status => {
                let partitions = || metadata.topics.iter().flat_map(|t| &t.partitions);
                let offline = partitions().filter(|p| p.leader_id < 0).count();
                let under = partitions()
                    .filter(|p| p.isr_nodes.len() < p.replica_nodes.len())
                    .count();
                let nodes = health::nodes(&mut client)?;
                let ailing = nodes.iter().any(|b| !b.is_fenced && b.disk_ailing);
                let mut table = Table::new(
                    "cluster.status",
                    &[
                        "cluster_id",
                        "brokers",
                        "controller",
                        "topics",
                        "partitions",
                        "under_replicated",
                        "offline",
                        "state",
                    ],
                );
                table.row(vec![
                    json!(metadata.cluster_id),
                    json!(metadata.brokers.len()),
                    json!(metadata.controller_id),
                    json!(metadata.topics.iter().filter(|t| !t.is_internal).count()),
                    json!(partitions().count()),
                    json!(under),
                    json!(offline),
                    json!(if offline > 0 {
                        "offline partitions"
                    } else if under > 0 {
                        "under-replicated"
                    } else if ailing {
                        "disk ailing"
                    } else {
                        "healthy"
                    }),
                ]);
                table.print(context.output)?;
                if offline > 0 {
                    return Err(Failure::new(
                        Exit::Finding,
                        format!("{offline} partitions have no leader"),
                    )
                    .hint(
                        "start the brokers that hold them; `riverlog topic describe` names them",
                    ));
                }
                Ok(())
            }
        }
    }
}
