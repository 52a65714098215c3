//! StreamsGroupDescribe v0–v1 (KIP-1071, 1331). A group of another kind, or none, is GROUP_ID_NOT_FOUND.

use riverlog_core::groups::records::{StreamsTopology, TaskList, TopicInfo as Info};
use riverlog_core::groups::{
    STREAMS_ASSIGNOR, StreamsDescription, StreamsMemberDescription, Topics as _, topology,
};
use riverlog_core::metadata::MetadataImage;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::streams_group_describe_response::{
    Assignment, DescribedGroup, Endpoint, KeyValue, Member, Subtopology, TaskIds, TaskOffset,
    TopicInfo, Topology, TopologyDescription, TopologyDescriptionGlobalStore,
    TopologyDescriptionNode, TopologyDescriptionSubtopology,
};
use riverlog_wire::messages::streams_group_topology_description_update_request as told;
use riverlog_wire::messages::{
    StreamsGroupDescribeRequest, StreamsGroupDescribeResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
};
use riverlog_wire::primitives::Reader;

use super::operations;
use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

/// What is said of a topology's description (KIP-1331).
const NOT_REQUESTED: i8 = 0;
const NOT_STORED: i8 = 1;
const ERROR: i8 = 2;
const AVAILABLE: i8 = 3;

pub(super) fn handle(
    context: &Context<'_>,
    request: StreamsGroupDescribeRequest,
    responder: Responder,
) {
    let operations = operations::on_group(request.include_authorized_operations);
    let whole = request.include_topology_description;
    let mut gather = Gather::new(move |groups| {
        responder.send(&StreamsGroupDescribeResponse {
            throttle_time_ms: 0,
            groups,
        });
    });
    let image = context.door.node.image();
    for group in request.group_ids {
        let name = group.clone();
        let image = image.clone();
        let reply = gather.reply(move |answer| describe(&image, operations, whole, name, answer));
        context.door.node.streams_group(&group, context.now, reply);
    }
    gather.seal();
}

fn describe(
    image: &MetadataImage,
    authorized_operations: i32,
    whole: bool,
    group_id: String,
    answer: Result<StreamsDescription, ErrorCode>,
) -> DescribedGroup {
    let group = match answer {
        Ok(group) => group,
        Err(error_code) => {
            let missing = error_code == ErrorCode::GROUP_ID_NOT_FOUND;
            return DescribedGroup {
                error_code,
                error_message: missing.then(|| format!("there is no streams group {group_id:?}")),
                group_id,
                ..DescribedGroup::default()
            };
        }
    };
    let (topology_description, topology_description_status) =
        match group.topology.as_deref().filter(|_| whole) {
            None if whole => (None, NOT_STORED),
            None => (None, NOT_REQUESTED),
            Some(topology) => description(topology),
        };
    DescribedGroup {
        group_id,
        group_state: group.state.to_owned(),
        group_epoch: group.epoch,
        assignment_epoch: group.assignment_epoch,
        topology: group.topology.as_deref().map(|t| topology_of(image, t)),
        members: group.members.into_iter().map(member).collect(),
        authorized_operations,
        topology_description,
        topology_description_status,
        assignor_name: Some(STREAMS_ASSIGNOR.to_owned()),
        ..DescribedGroup::default()
    }
}

/// With the partitions that internal topics get, once that can be told.
fn topology_of(image: &MetadataImage, topology: &StreamsTopology) -> Topology {
    let configured = topology::configure(topology, &|topic| Some(image.by_name(topic)?.1));
    let configured = configured.ok().filter(topology::Configured::is_ready);
    let subtopologies = topology.subtopologies.iter().map(|s| {
        let known = configured.as_ref().and_then(|c| c.subtopologies.get(&s.id));
        let infos = |topics: &[Info]| {
            let topics = topics.iter().map(|topic| TopicInfo {
                name: topic.name.clone(),
                partitions: known
                    .and_then(|known| known.internal.get(&topic.name).copied())
                    .unwrap_or(topic.partitions),
                replication_factor: topic.replication_factor,
                topic_configs: pairs(&topic.configs),
            });
            topics.collect()
        };
        Subtopology {
            subtopology_id: s.id.clone(),
            source_topics: s.source_topics.clone(),
            repartition_sink_topics: s.repartition_sinks.clone(),
            state_changelog_topics: infos(&s.changelogs),
            repartition_source_topics: infos(&s.repartition_sources),
        }
    });
    Topology {
        epoch: topology.epoch,
        subtopologies: Some(subtopologies.collect()),
    }
}

fn pairs(pairs: &[(String, String)]) -> Vec<KeyValue> {
    let pairs = pairs.iter().map(|(key, value)| KeyValue {
        key: key.clone(),
        value: value.clone(),
    });
    pairs.collect()
}

fn member(member: StreamsMemberDescription) -> Member {
    let offsets = |offsets: &[(String, i32, i64)]| {
        let offsets = offsets.iter().map(|(id, partition, offset)| TaskOffset {
            subtopology_id: id.clone(),
            partition: *partition,
            offset: *offset,
        });
        offsets.collect()
    };
    let value = member.value;
    Member {
        member_id: member.member,
        member_epoch: member.epoch,
        instance_id: value.instance,
        rack_id: value.rack,
        client_id: value.client_id,
        client_host: value.client_host,
        topology_epoch: value.topology_epoch,
        process_id: value.process_id,
        user_endpoint: value.endpoint.map(|(host, port)| Endpoint { host, port }),
        client_tags: pairs(&value.tags),
        task_offsets: offsets(&member.offsets.offsets),
        task_end_offsets: offsets(&member.offsets.end_offsets),
        assignment: assignment(member.assigned),
        target_assignment: assignment(member.target),
        is_classic: false,
    }
}

fn assignment(tasks: [TaskList; 3]) -> Assignment {
    let [active_tasks, standby_tasks, warmup_tasks] = tasks.map(|list| {
        let list = list
            .into_iter()
            .map(|(subtopology_id, partitions)| TaskIds {
                subtopology_id,
                partitions,
            });
        list.collect()
    });
    Assignment {
        active_tasks,
        standby_tasks,
        warmup_tasks,
    }
}

fn description(topology: &StreamsTopology) -> (Option<TopologyDescription>, i8) {
    let Some(kept) = &topology.description else {
        return (None, NOT_STORED);
    };
    let read = StreamsGroupTopologyDescriptionUpdateRequest::decode(&mut Reader::new(kept), 0);
    let Ok(read) = read else {
        return (None, ERROR);
    };
    let read = read.topology_description;
    let subtopologies = read.subtopologies.into_iter();
    let stores = read.global_stores.into_iter();
    let description = TopologyDescription {
        subtopologies: subtopologies
            .map(|s| TopologyDescriptionSubtopology {
                subtopology_id: s.subtopology_id,
                nodes: s.nodes.into_iter().map(node).collect(),
            })
            .collect(),
        global_stores: stores
            .map(|store| TopologyDescriptionGlobalStore {
                source: node(store.source),
                processor: node(store.processor),
            })
            .collect(),
    };
    (Some(description), AVAILABLE)
}

fn node(node: told::TopologyDescriptionNode) -> TopologyDescriptionNode {
    TopologyDescriptionNode {
        name: node.name,
        node_type: node.node_type,
        source_topics: node.source_topics,
        sink_topic: node.sink_topic,
        stores: node.stores,
        successors: node.successors,
    }
}
