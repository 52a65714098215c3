//! `riverlog cluster quorum`, `add-voter`, `remove-voter`.

use riverlog_wire::messages::describe_quorum_request::{
    PartitionData as AskedPartition, TopicData,
};
use riverlog_wire::messages::describe_quorum_response::{PartitionData, ReplicaState};
use riverlog_wire::messages::{
    AddRaftVoterRequest, DescribeQuorumRequest, DescribeQuorumResponse, RemoveRaftVoterRequest,
};
use riverlog_wire::{ErrorCode, TopicId};
use serde_json::json;

use super::Context;
use crate::cli::output::Table;
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// Who agrees on metadata, as any broker tells it; whoever leads must say so itself.
pub(super) fn describe(client: &mut Client) -> Result<PartitionData, Failure> {
    let request = request();
    let mut told = read(client.ask(&request)?)?;
    if told.leader_id >= 0 {
        let own = client.ask_node(told.leader_id, &request).and_then(read);
        if !own.is_ok_and(|own| own.leader_id == told.leader_id) {
            told.leader_id = -1;
        }
    }
    Ok(told)
}

fn request() -> DescribeQuorumRequest {
    let topic = TopicData {
        topic_name: "__cluster_metadata".to_owned(),
        partitions: vec![AskedPartition::default()],
    };
    DescribeQuorumRequest {
        topics: vec![topic],
    }
}

fn read(answer: DescribeQuorumResponse) -> Result<PartitionData, Failure> {
    let quorum = answer.topics.into_iter().flat_map(|t| t.partitions).next();
    quorum.ok_or_else(|| Failure::new(Exit::Finding, "the broker says nothing of a quorum"))
}

fn nobody_leads() -> Failure {
    Failure::new(Exit::Finding, "nobody leads the metadata quorum")
        .hint("start more of its voters: a majority of them has to be there")
}

/// Lists members.
pub(super) fn list(client: &mut Client, context: &Context) -> Result<(), Failure> {
    let quorum = describe(client)?;
    let mut table = Table::new(
        "cluster.quorum",
        &["id", "role", "leader", "term", "directory"],
    );
    let voters = quorum.current_voters.into_iter().map(|m| (m, "voter"));
    let observers = quorum.observers.into_iter().map(|m| (m, "observer"));
    let mut members: Vec<_> = voters.chain(observers).collect();
    members.sort_by_key(|(m, _)| (m.replica_id, m.replica_directory_id));
    for (m, role) in members {
        table.row(vec![
            json!(m.replica_id),
            json!(role),
            json!(m.replica_id == quorum.leader_id),
            json!(quorum.leader_epoch),
            json!(TopicId(m.replica_directory_id).to_string()),
        ]);
    }
    table.print(context.output)?;
    if quorum.leader_id < 0 {
        return Err(nobody_leads());
    }
    Ok(())
}

/// Whether a node votes from now on, or is no member any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Add,
    Remove,
}

/// Changes members, at the node that leads.
pub(super) fn change(
    client: &mut Client,
    context: &Context,
    node: i32,
    wanted: Wanted,
) -> Result<(), Failure> {
    let quorum = describe(client)?;
    if quorum.leader_id < 0 {
        return Err(nobody_leads());
    }
    let member = find(&quorum, node, wanted)?;
    let (code, message) = match wanted {
        Wanted::Add => {
            let request = AddRaftVoterRequest {
                cluster_id: None,
                timeout_ms: client.timeout_ms(),
                voter_id: node,
                voter_directory_id: member.replica_directory_id,
                ack_when_committed: true,
                ..AddRaftVoterRequest::default()
            };
            let answer = client.ask_node(quorum.leader_id, &request)?;
            (answer.error_code, answer.error_message)
        }
        Wanted::Remove => {
            let request = RemoveRaftVoterRequest {
                cluster_id: None,
                voter_id: node,
                voter_directory_id: member.replica_directory_id,
            };
            let answer = client.ask_node(quorum.leader_id, &request)?;
            (answer.error_code, answer.error_message)
        }
    };
    let (done, failed) = match wanted {
        Wanted::Add => (
            format!("node {node} votes"),
            format!("node {node} can't be made a voter"),
        ),
        Wanted::Remove => (
            format!("node {node} is no member of the quorum any more"),
            format!("node {node} can't be taken out of the quorum"),
        ),
    };
    if code == ErrorCode::NONE {
        context.note(&done);
        return Ok(());
    }
    Err(Failure::kafka(failed, code, message.as_deref()))
}

/// The member that is meant. A node that came back with another disk may be there with both.
fn find(quorum: &PartitionData, node: i32, wanted: Wanted) -> Result<ReplicaState, Failure> {
    let of = |members: &[ReplicaState]| members.iter().find(|m| m.replica_id == node).cloned();
    let (voter, observer) = (of(&quorum.current_voters), of(&quorum.observers));
    let found = match wanted {
        Wanted::Add => observer.or(voter),
        Wanted::Remove => voter.or(observer),
    };
    found.ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format!("no member of the quorum is node {node}"),
        )
        .hint("`riverlog cluster quorum` lists all; a node joins when it is started with --seeds")
    })
}
