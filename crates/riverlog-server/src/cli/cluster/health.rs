//! `riverlog cluster health`: what an operator should look at, one line each.

use riverlog_wire::messages::DescribeClusterRequest;
use riverlog_wire::messages::describe_cluster_response::DescribeClusterBroker;
use riverlog_wire::messages::metadata_response::MetadataResponse;
use serde_json::json;

use super::{Context, quorum};
use crate::cli::output::Table;
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// A finding: how bad, what about, what it is, what to do.
struct Finding {
    bad: bool,
    about: String,
    what: String,
    remedy: &'static str,
}

/// Looks at everything; exit code 1 when something is wrong, and not merely worth knowing.
pub(super) fn look(
    client: &mut Client,
    metadata: &MetadataResponse,
    context: &Context,
) -> Result<(), Failure> {
    let mut findings = Vec::new();
    brokers(client, &mut findings)?;
    voters(client, &mut findings)?;
    partitions(metadata, &mut findings);
    let mut table = Table::new("cluster.health", &["level", "about", "finding", "try"]);
    for finding in &findings {
        table.row(vec![
            json!(if finding.bad { "bad" } else { "note" }),
            json!(finding.about),
            json!(finding.what),
            json!(finding.remedy),
        ]);
    }
    table.print(context.output)?;
    match findings.iter().filter(|f| f.bad).count() {
        0 => {
            context.note("healthy");
            Ok(())
        }
        _ => Err(Failure::silent(Exit::Finding)),
    }
}

/// All nodes that are registered, also those that are down.
pub(super) fn nodes(client: &mut Client) -> Result<Vec<DescribeClusterBroker>, Failure> {
    let request = DescribeClusterRequest {
        endpoint_type: 1,
        include_fenced_brokers: true,
        ..DescribeClusterRequest::default()
    };
    Ok(client.ask(&request)?.brokers)
}

fn brokers(client: &mut Client, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    for broker in &nodes(client)? {
        let (what, remedy) = match (broker.is_fenced, broker.disk_ailing) {
            (true, _) => (
                "it is down: its process has ended, or nothing was heard of it for too long",
                "start it; its log says why it ended",
            ),
            (false, true) => (
                "its disk is full, has failed or is slow: others lead what they can",
                "look at its log, which names the reason; make room, or mend or replace the disk",
            ),
            (false, false) => continue,
        };
        findings.push(Finding {
            bad: true,
            about: format!("node {}", broker.broker_id),
            what: what.to_owned(),
            remedy,
        });
    }
    Ok(())
}

fn voters(client: &mut Client, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let quorum = quorum::describe(client)?;
    let mut find = |bad, what: String, remedy| {
        findings.push(Finding {
            bad,
            about: "quorum".to_owned(),
            what,
            remedy,
        });
    };
    if quorum.leader_id < 0 {
        find(
            true,
            "nobody leads it: topics can't be changed, and no leader is elected".to_owned(),
            "start more of its voters: a majority has to be there",
        );
    }
    let voters = quorum.current_voters.len();
    let together = voters + quorum.observers.len() > 1;
    if together && voters < 3 {
        find(
            false,
            format!("{voters} nodes vote: it doesn't outlive the loss of one"),
            "start more nodes with the same --seeds, or make observers voters with `riverlog cluster add-voter`",
        );
    } else if together && voters.is_multiple_of(2) {
        find(
            false,
            format!("{voters} nodes vote: one less would outlive the loss of as many"),
            "use an odd number of voters",
        );
    }
    Ok(())
}

fn partitions(metadata: &MetadataResponse, findings: &mut Vec<Finding>) {
    let mut topics: Vec<_> = metadata.topics.iter().collect();
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let mut moved = 0;
    for topic in topics {
        for p in &topic.partitions {
            let name = topic.name.as_deref().unwrap_or_default();
            let about = format!("{name}-{}", p.partition_index);
            if p.leader_id < 0 {
                findings.push(Finding {
                    bad: true,
                    about,
                    what: format!("nobody leads it; nodes {:?} have copies", p.replica_nodes),
                    remedy: "start those nodes; if none can be, `riverlog cluster elect --unclean` gives up what they had",
                });
            } else if p.isr_nodes.len() < p.replica_nodes.len() {
                findings.push(Finding {
                    bad: true,
                    about,
                    what: format!(
                        "in sync are nodes {:?} of {:?}",
                        p.isr_nodes, p.replica_nodes
                    ),
                    remedy: "start the others, and wait until they have caught up",
                });
            } else if p.replica_nodes.first() != Some(&p.leader_id) {
                moved += 1;
            }
        }
    }
    if moved > 0 {
        findings.push(Finding {
            bad: false,
            about: "leaders".to_owned(),
            what: format!("{moved} partitions aren't led by their first replica"),
            remedy: "`riverlog cluster elect` gives them back",
        });
    }
}
