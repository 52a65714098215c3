//! DescribeQuorum v0–v2 (KIP-595, 836, 853). The metadata log has one voter, this node; it leads and is up to date by definition.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use riverlog_wire::messages::{DescribeQuorumRequest, DescribeQuorumResponse};

use crate::kafka::responder::Responder;
use crate::kafka::session::Context;

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

fn quorum(context: &Context<'_>) -> PartitionData {
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
    let listeners = image.brokers.get(&this).map(|broker| {
        let listeners = broker.listeners.iter();
        let listener = |(name, host, port): &(String, String, u16)| Listener {
            name: name.clone(),
            host: host.clone(),
            port: *port,
        };
        listeners.map(listener).collect()
    });
    vec![Node {
        node_id: this.0,
        listeners: listeners.unwrap_or_default(),
    }]
}
