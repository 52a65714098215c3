//! DescribeQuorum v0–v2 (KIP-595, 836, 853). The metadata log of a node alone has one voter, which leads and is up to date by
//! definition. In a cluster each node tells what it knows: how far the others are only their leader does, and isn't told.

use std::collections::BTreeSet;

use riverlog_wire::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use riverlog_wire::messages::{DescribeQuorumRequest, DescribeQuorumResponse};
use riverlog_wire::{BrokerId, ErrorCode};

use crate::kafka::context::Context;
use crate::kafka::door::Electorate;
use crate::kafka::responder::Responder;

/// Kafka's name of the metadata log, by which clients ask for it.
const METADATA: &str = "__cluster_metadata";

pub(super) fn handle(context: &Context<'_>, request: DescribeQuorumRequest, responder: Responder) {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let index = partition.partition_index;
            if topic.topic_name == METADATA && index == 0 {
                quorum(context)
            } else {
                unknown(context.version, index)
            }
        });
        TopicData {
            partitions: partitions.collect(),
            topic_name: topic.topic_name,
        }
    });
    let topics: Vec<TopicData> = topics.collect();
    let described = topics
        .iter()
        .flat_map(|t| &t.partitions)
        .any(|p| p.error_code == ErrorCode::NONE);
    responder.send(&DescribeQuorumResponse {
        nodes: if context.version >= 2 && described {
            nodes(context)
        } else {
            Vec::new()
        },
        topics,
        ..DescribeQuorumResponse::default()
    });
}

/// What isn't known of other members.
const UNKNOWN: i64 = -1;

fn shared(context: &Context<'_>, electorate: &Electorate) -> PartitionData {
    let node = &context.door.node;
    let (this, position) = (node.settings().broker, node.image().position.0);
    let (dated, has_disks) = (context.version >= 1, context.version >= 2);
    let state = |(broker, disk, _): &(BrokerId, u64, bool)| {
        let mut directory = [0; 16];
        if has_disks {
            directory[8..].copy_from_slice(&disk.to_be_bytes());
        }
        let is_this = *broker == this;
        let at = if dated && is_this {
            context.now.wall_ms
        } else {
            UNKNOWN
        };
        ReplicaState {
            replica_id: broker.0,
            replica_directory_id: directory,
            log_end_offset: if is_this { position } else { UNKNOWN },
            last_fetch_timestamp: at,
            last_caught_up_timestamp: at,
        }
    };
    let members = || electorate.members.iter();
    PartitionData {
        leader_id: electorate.leader.map_or(-1, |leader| leader.0),
        leader_epoch: i32::try_from(electorate.term).unwrap_or(i32::MAX),
        high_watermark: position,
        current_voters: members().filter(|m| m.2).map(state).collect(),
        observers: members().filter(|m| !m.2).map(state).collect(),
        ..PartitionData::default()
    }
}

fn quorum(context: &Context<'_>) -> PartitionData {
    if let Some(voters) = &context.door.settings.voters {
        return shared(context, &(voters.now)());
    }
    let node = &context.door.node;
    let image = node.image();
    let this = node.settings().broker;
    let registered = image.brokers.get(&this).map_or(0, |b| b.epoch);
    PartitionData {
        leader_id: this.0,
        // A new term with each start, as a one-voter quorum elects itself.
        leader_epoch: i32::try_from(registered.saturating_add(1)).unwrap_or(i32::MAX),
        high_watermark: image.position.0,
        current_voters: vec![ReplicaState {
            replica_id: this.0,
            log_end_offset: image.position.0,
            last_fetch_timestamp: if context.version >= 1 {
                context.now.wall_ms
            } else {
                -1
            },
            last_caught_up_timestamp: if context.version >= 1 {
                context.now.wall_ms
            } else {
                -1
            },
            ..ReplicaState::default()
        }],
        ..PartitionData::default()
    }
}

fn unknown(version: i16, partition_index: i32) -> PartitionData {
    let error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    PartitionData {
        partition_index,
        error_code,
        error_message: (version >= 2)
            .then(|| format!("only {METADATA}-0 has a quorum that can be described")),
        ..PartitionData::default()
    }
}

fn nodes(context: &Context<'_>) -> Vec<Node> {
    let this = context.door.node.settings().broker;
    let image = context.door.node.image();
    let members: BTreeSet<BrokerId> = match &context.door.settings.voters {
        None => BTreeSet::from([this]),
        Some(voters) => (voters.now)().members.iter().map(|m| m.0).collect(),
    };
    let listeners = |id: &BrokerId| {
        let listeners = image.brokers.get(id).map(|broker| broker.listeners.iter());
        let listener = |(name, host, port): &(String, String, u16)| Listener {
            name: name.clone(),
            host: host.clone(),
            port: *port,
        };
        listeners.into_iter().flatten().map(listener).collect()
    };
    let node = |id: &BrokerId| Node {
        node_id: id.0,
        listeners: listeners(id),
    };
    members.iter().map(node).collect()
}
