//! StreamsGroupHeartbeat v0–v1 (KIP-1071, 1331). Internal topics that are missing are made before the answer goes out.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::groups::records::{
    CopartitionGroup, StreamsTopology, Subtopology, TaskList, TopicInfo,
};
use riverlog_core::groups::{
    EndpointPartitions, GroupAnswer, GroupCommand, OwnedTasks, StreamsHeartbeat,
    StreamsHeartbeatAnswer, topology,
};
use riverlog_core::metadata::{AdminAnswer, AdminCommand, NewTopic};
use riverlog_node::Reply;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::streams_group_heartbeat_request as asked;
use riverlog_wire::messages::streams_group_heartbeat_response::{
    Endpoint, EndpointToPartitions, Status, TaskIds, TopicPartition,
};
use riverlog_wire::messages::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};

use super::millis;
use crate::kafka::context::Context;
use crate::kafka::door::KafkaDoor;
use crate::kafka::responder::Responder;

/// When a member comes again whose internal topics have just been made: the group hears of them in a moment.
const SOON: Duration = Duration::from_millis(200);

pub(super) fn handle(
    context: &Context<'_>,
    request: StreamsGroupHeartbeatRequest,
    responder: Responder,
) {
    let (version, now) = (context.version, context.now);
    let heartbeat = StreamsHeartbeat {
        client_id: context.client_id.to_owned(),
        client_host: context.client_host(),
        version,
        ..heartbeat(request)
    };
    let door = Arc::clone(context.door);
    let reply = Reply::new(move |answer| {
        let answer = match answer {
            GroupAnswer::StreamsHeartbeat(answer) => *answer,
            GroupAnswer::Error(error) => refused(error),
            _ => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        };
        match answer.missing_topics.is_empty() {
            true => responder.send(&response(version, answer)),
            false => make_topics(&door, version, now, answer, responder),
        }
    });
    let command = GroupCommand::StreamsHeartbeat(Box::new(heartbeat));
    context.door.node.group(command, now, reply);
}

fn refused(error: ErrorCode) -> StreamsHeartbeatAnswer {
    StreamsHeartbeatAnswer::refused(error, None, String::new())
}

/// Makes internal topics, and then answers; what couldn't be made is said in the status.
fn make_topics(
    door: &Arc<KafkaDoor>,
    version: i16,
    now: Now,
    mut answer: StreamsHeartbeatAnswer,
    responder: Responder,
) {
    let missing = std::mem::take(&mut answer.missing_topics);
    let names: Vec<String> = missing.iter().map(|t| t.name.clone()).collect();
    let topics = missing.into_iter().map(|topic| NewTopic {
        name: topic.name,
        partitions: topic.partitions,
        replication_factor: match topic.replication_factor {
            0 => -1,
            factor => factor,
        },
        configs: topic
            .configs
            .into_iter()
            .map(|(key, value)| (key, Some(value)))
            .collect(),
        id: door.node.new_topic_id(),
        ..NewTopic::default()
    });
    let command = AdminCommand::CreateTopics {
        topics: topics.collect(),
        validate_only: false,
    };
    let reply = Reply::new(move |made: Result<AdminAnswer, ErrorCode>| {
        let results = super::results(made, names.len());
        let failed: Vec<String> = names
            .into_iter()
            .zip(results)
            // Another member may have been first.
            .filter(|(_, r)| ![ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS].contains(&r.error))
            .map(|(name, r)| {
                let words = r.message.unwrap_or_else(|| r.error.message().to_owned());
                format!("{name}: {words}")
            })
            .collect();
        if failed.is_empty() {
            answer.heartbeat_interval = answer.heartbeat_interval.min(SOON);
        }
        let told = answer.status.iter_mut();
        for status in told.filter(|s| s.code == topology::STATUS_MISSING_INTERNAL_TOPICS) {
            if !failed.is_empty() {
                status.detail = format!(
                    "{}; some couldn't be made: {}",
                    status.detail,
                    failed.join("; ")
                );
            }
        }
        responder.send(&response(version, answer));
    });
    door.node.admin(command, now, reply);
}

fn heartbeat(request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat {
    let tasks = |tasks: Vec<asked::TaskIds>| -> TaskList {
        let tasks = tasks.into_iter();
        tasks.map(|t| (t.subtopology_id, t.partitions)).collect()
    };
    let pairs = |pairs: Vec<asked::KeyValue>| -> Vec<(String, String)> {
        pairs.into_iter().map(|p| (p.key, p.value)).collect()
    };
    let offsets = |offsets: Vec<asked::TaskOffset>| {
        let offsets = offsets.into_iter();
        offsets
            .map(|o| (o.subtopology_id, o.partition, o.offset))
            .collect()
    };
    let given = [
        request.active_tasks.is_some(),
        request.standby_tasks.is_some(),
        request.warmup_tasks.is_some(),
    ];
    let all = given.iter().all(|given| *given);
    StreamsHeartbeat {
        group: request.group_id,
        member: request.member_id,
        member_epoch: request.member_epoch,
        endpoint_epoch: request.endpoint_information_epoch,
        instance: request.instance_id,
        rack: request.rack_id,
        // −1: unchanged since the last heartbeat.
        rebalance_timeout: (request.rebalance_timeout_ms != -1)
            .then(|| millis(request.rebalance_timeout_ms)),
        topology: request.topology.map(topology_of),
        owned: all.then(|| OwnedTasks {
            active: tasks(request.active_tasks.unwrap_or_default()),
            standby: tasks(request.standby_tasks.unwrap_or_default()),
            warmup: tasks(request.warmup_tasks.unwrap_or_default()),
        }),
        incomplete_tasks: !all && given.contains(&true),
        process: request.process_id,
        endpoint: request.user_endpoint.map(|e| (e.host, e.port)),
        tags: request.client_tags.map(pairs),
        offsets: request.task_offsets.map(offsets),
        end_offsets: request.task_end_offsets.map(offsets),
        shutdown: request.shutdown_application,
        ..StreamsHeartbeat::default()
    }
}

fn topology_of(topology: asked::Topology) -> StreamsTopology {
    let info = |topic: asked::TopicInfo| TopicInfo {
        name: topic.name,
        partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        configs: topic
            .topic_configs
            .into_iter()
            .map(|c| (c.key, c.value))
            .collect(),
    };
    let infos = |topics: Vec<asked::TopicInfo>| topics.into_iter().map(info).collect();
    let groups = |groups: Vec<asked::CopartitionGroup>| {
        let groups = groups.into_iter().map(|group| CopartitionGroup {
            source_topics: group.source_topics,
            source_topic_regex: group.source_topic_regex,
            repartition_sources: group.repartition_source_topics,
        });
        groups.collect()
    };
    let subtopologies = topology.subtopologies.into_iter();
    StreamsTopology {
        epoch: topology.epoch,
        subtopologies: subtopologies
            .map(|s| Subtopology {
                id: s.subtopology_id,
                source_topics: s.source_topics,
                source_topic_regex: s.source_topic_regex,
                changelogs: infos(s.state_changelog_topics),
                repartition_sinks: s.repartition_sink_topics,
                repartition_sources: infos(s.repartition_source_topics),
                copartition_groups: groups(s.copartition_groups),
            })
            .collect(),
        description: None,
    }
}

fn response(version: i16, answer: StreamsHeartbeatAnswer) -> StreamsGroupHeartbeatResponse {
    if answer.error != ErrorCode::NONE {
        return StreamsGroupHeartbeatResponse {
            error_code: answer.error,
            error_message: answer.message,
            status: Some(Vec::new()),
            ..StreamsGroupHeartbeatResponse::default()
        };
    }
    let ms = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let [active, standby, warmup] = match answer.tasks {
        Some(tasks) => tasks.map(|list| Some(task_ids(list))),
        None => [None, None, None],
    };
    let status = answer.status.into_iter().map(|s| Status {
        status_code: s.code,
        status_detail: s.detail,
    });
    StreamsGroupHeartbeatResponse {
        member_id: answer.member,
        member_epoch: answer.member_epoch,
        heartbeat_interval_ms: ms(answer.heartbeat_interval),
        // The field of version 0 is gone from version 1 on.
        acceptable_recovery_lag_legacy: match version {
            0 => i32::try_from(answer.acceptable_recovery_lag).unwrap_or(i32::MAX),
            _ => 0,
        },
        task_offset_interval_ms: ms(answer.task_offset_interval),
        acceptable_recovery_lag: answer.acceptable_recovery_lag,
        // Clients take null for "as before".
        status: Some(status.collect()),
        active_tasks: active,
        standby_tasks: standby,
        warmup_tasks: warmup,
        topology_description_required: version >= 1 && answer.describe,
        endpoint_information_epoch: answer.endpoint_epoch,
        partitions_by_user_endpoint: answer
            .endpoints
            .map(|endpoints| endpoints.into_iter().map(endpoint).collect()),
        ..StreamsGroupHeartbeatResponse::default()
    }
}

fn task_ids(tasks: TaskList) -> Vec<TaskIds> {
    let tasks = tasks.into_iter();
    tasks
        .map(|(subtopology_id, partitions)| TaskIds {
            subtopology_id,
            partitions,
        })
        .collect()
}

fn endpoint(has: EndpointPartitions) -> EndpointToPartitions {
    let places = |places: TaskList| {
        let places = places.into_iter();
        places
            .map(|(topic, partitions)| TopicPartition { topic, partitions })
            .collect()
    };
    let (host, port) = has.endpoint;
    EndpointToPartitions {
        user_endpoint: Endpoint { host, port },
        active_partitions: places(has.active),
        standby_partitions: places(has.standby),
    }
}
