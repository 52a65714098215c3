//! Streams groups (KIP-1071): check 76, how tasks change hands, and what administrators ask of them.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::streams_group_heartbeat_request::{
    KeyValue, Subtopology, TaskIds, TopicInfo, Topology,
};
use riverlog_wire::messages::{
    DeleteGroupsRequest, ListGroupsRequest, MetadataRequest, OffsetCommitRequest,
    StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse,
};

use super::Check;
use crate::client::{Client, Failure, Outcome, holds, only, same};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "76",
        name: "streams-groups-wait-for-their-topics-and-refuse-with-the-right-error",
        run: heartbeats,
    },
    Check {
        number: "r-5",
        name: "internal-topics-are-made-and-tasks-change-hands",
        run: hand_over,
    },
    Check {
        number: "r-6",
        name: "streams-groups-are-listed-described-and-deleted",
        run: administer,
    },
];

/// Heartbeats, a tenth of a second apart, until a group must have its tasks; Kafka waits three seconds for more members.
const ROUNDS: usize = 200;

const MISSING_SOURCE_TOPICS: i8 = 1;

/// Lines → repartition topic → counts, with a store.
fn word_count(lines: &str, group: &str) -> Topology {
    let internal = |name: &str, configs: &[(&str, &str)]| TopicInfo {
        name: format!("{group}-{name}"),
        topic_configs: configs
            .iter()
            .map(|(key, value)| KeyValue {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
            })
            .collect(),
        ..TopicInfo::default()
    };
    let repartition = internal("words-repartition", &[("cleanup.policy", "delete")]);
    Topology {
        epoch: 0,
        subtopologies: vec![
            Subtopology {
                subtopology_id: "0".to_owned(),
                source_topics: vec![lines.to_owned()],
                repartition_sink_topics: vec![repartition.name.clone()],
                ..Subtopology::default()
            },
            Subtopology {
                subtopology_id: "1".to_owned(),
                state_changelog_topics: vec![internal(
                    "counts-changelog",
                    &[("cleanup.policy", "compact")],
                )],
                repartition_source_topics: vec![repartition],
                ..Subtopology::default()
            },
        ],
    }
}

/// A member that does as it is told.
struct Member {
    group: String,
    id: String,
    epoch: i32,
    active: Vec<TaskIds>,
}

impl Member {
    fn new(group: &str, id: &str) -> Member {
        Member {
            group: group.to_owned(),
            id: id.to_owned(),
            epoch: 0,
            active: Vec::new(),
        }
    }

    fn joins(&self, topology: Topology) -> StreamsGroupHeartbeatRequest {
        StreamsGroupHeartbeatRequest {
            rebalance_timeout_ms: 30_000,
            topology: Some(topology),
            active_tasks: Some(Vec::new()),
            standby_tasks: Some(Vec::new()),
            warmup_tasks: Some(Vec::new()),
            process_id: Some(format!("process of {}", self.id)),
            client_tags: Some(Vec::new()),
            ..self.stays()
        }
    }

    fn stays(&self) -> StreamsGroupHeartbeatRequest {
        StreamsGroupHeartbeatRequest {
            group_id: self.group.clone(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            active_tasks: Some(self.active.clone()),
            standby_tasks: Some(Vec::new()),
            warmup_tasks: Some(Vec::new()),
            ..StreamsGroupHeartbeatRequest::default()
        }
    }

    fn hear(
        &mut self,
        client: &mut Client<'_>,
        request: &StreamsGroupHeartbeatRequest,
    ) -> Outcome<StreamsGroupHeartbeatResponse> {
        let answer = client.ask(1, request)?;
        same("a heartbeat", answer.error_code, ErrorCode::NONE)?;
        same("whose it is", answer.member_id.clone(), self.id.clone())?;
        self.epoch = answer.member_epoch;
        if let Some(tasks) = &answer.active_tasks {
            let tasks = tasks.iter().map(|t| TaskIds {
                subtopology_id: t.subtopology_id.clone(),
                partitions: t.partitions.clone(),
            });
            self.active = tasks.collect();
        }
        Ok(answer)
    }

    fn tasks(&self) -> usize {
        self.active.iter().map(|t| t.partitions.len()).sum()
    }

    fn leaves(&self) -> StreamsGroupHeartbeatRequest {
        StreamsGroupHeartbeatRequest {
            group_id: self.group.clone(),
            member_id: self.id.clone(),
            member_epoch: -1,
            ..StreamsGroupHeartbeatRequest::default()
        }
    }
}

/// Heartbeats of all members in turn, until each has as many tasks as it should.
fn settle(client: &mut Client<'_>, members: &mut [&mut Member], each: &[usize]) -> Outcome {
    let mut counts = Vec::new();
    for _ in 0..ROUNDS {
        for member in members.iter_mut() {
            let request = member.stays();
            member.hear(client, &request)?;
        }
        counts = members.iter().map(|m| m.tasks()).collect();
        if counts == each {
            return Ok(());
        }
        client.broker().pass(Duration::from_millis(100));
    }
    same("tasks", counts, each.to_vec())
}

fn heartbeats(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let missing = client.name();
    let member = Member::new(&group, "member-1");
    let join = member.joins(word_count(&missing, &group));
    let refused = |client: &mut Client<'_>, what: &str, request, error| {
        let answer: StreamsGroupHeartbeatResponse = client.ask(1, &request)?;
        same(what, answer.error_code, error)
    };
    let invalid = ErrorCode::INVALID_REQUEST;
    let mut hasty = join.clone();
    hasty.rebalance_timeout_ms = -1;
    refused(client, "joining without a time-out", hasty, invalid)?;
    let mut nameless = join.clone();
    nameless.member_id = String::new();
    refused(client, "a member without an id", nameless, invalid)?;
    let mut bare = join.clone();
    bare.topology = None;
    refused(client, "joining without a topology", bare, invalid)?;
    let mut holding = join.clone();
    holding.active_tasks = Some(vec![TaskIds {
        subtopology_id: "0".to_owned(),
        partitions: vec![0],
    }]);
    refused(client, "joining with tasks", holding, invalid)?;
    let mut pattern = join.clone();
    for subtopology in pattern
        .topology
        .iter_mut()
        .flat_map(|t| &mut t.subtopologies)
    {
        subtopology.source_topic_regex = vec!["lines.*".to_owned()];
    }
    refused(client, "sources by pattern", pattern, invalid)?;
    let mut counted = join.clone();
    for subtopology in counted
        .topology
        .iter_mut()
        .flat_map(|t| &mut t.subtopologies)
    {
        for topic in &mut subtopology.state_changelog_topics {
            topic.partitions = 3;
        }
    }
    let error = ErrorCode::STREAMS_INVALID_TOPOLOGY;
    refused(client, "a changelog that counts", counted, error)?;
    let mut late = member.stays();
    late.member_epoch = 5;
    refused(
        client,
        "a ghost group",
        late.clone(),
        ErrorCode::GROUP_ID_NOT_FOUND,
    )?;

    let answer: StreamsGroupHeartbeatResponse = client.ask(1, &join)?;
    same("joining", answer.error_code, ErrorCode::NONE)?;
    let codes = |answer: &StreamsGroupHeartbeatResponse| -> Vec<i8> {
        let status = answer.status.iter().flatten();
        status.map(|s| s.status_code).collect()
    };
    holds(codes(&answer).contains(&MISSING_SOURCE_TOPICS), || {
        format!("status {:?}, expected MISSING_SOURCE_TOPICS", answer.status)
    })?;
    let mut ghost = member.stays();
    ghost.member_epoch = 1;
    ghost.member_id = "nobody".to_owned();
    refused(
        client,
        "a ghost member",
        ghost,
        ErrorCode::UNKNOWN_MEMBER_ID,
    )?;
    late.member_epoch = answer.member_epoch + 7;
    refused(
        client,
        "an epoch too high",
        late,
        ErrorCode::FENCED_MEMBER_EPOCH,
    )?;
    let mut again = join.clone();
    again.member_epoch = answer.member_epoch.max(1);
    refused(client, "a topology later on", again, invalid)?;
    let mut away = member.stays();
    away.member_epoch = -2;
    refused(client, "leaving for a while without a name", away, invalid)?;
    let answer: StreamsGroupHeartbeatResponse = client.ask(1, &member.leaves())?;
    let left = (answer.error_code, answer.member_epoch);
    same("leaving", left, (ErrorCode::NONE, -1))
}

fn partitions(client: &mut Client<'_>, topic: &str) -> Outcome<usize> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let topic = only("topics", client.ask(9, &request)?.topics)?;
    Ok(topic.partitions.len())
}

fn commit(
    client: &mut Client<'_>,
    member: &Member,
    epoch: i32,
    topic: &str,
    partition: i32,
) -> Outcome<ErrorCode> {
    let request = OffsetCommitRequest {
        group_id: member.group.clone(),
        generation_id_or_member_epoch: epoch,
        member_id: member.id.clone(),
        topics: vec![OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: 0,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    let topic = only("topics", client.ask(9, &request)?.topics)?;
    Ok(only("partitions", topic.partitions)?.error_code)
}

fn hand_over(client: &mut Client<'_>) -> Outcome {
    let lines = client.topic(2)?;
    let group = client.group()?;
    // Coordinators of Kafka hear of a topic a moment after the clients.
    client.broker().pass(Duration::from_millis(300));
    let mut first = Member::new(&group, "member-1");
    let join = first.joins(word_count(&lines.name, &group));
    first.hear(client, &join)?;
    settle(client, &mut [&mut first], &[4])?;
    for internal in ["words-repartition", "counts-changelog"] {
        let made = partitions(client, &format!("{group}-{internal}"))?;
        same(internal, made, 2)?;
    }
    let committed = commit(client, &first, first.epoch, &lines.name, 0)?;
    same("an owner's commit", committed, ErrorCode::NONE)?;
    let before = first.epoch;
    let committed = commit(client, &first, before + 1, &lines.name, 0)?;
    let stale = ErrorCode::STALE_MEMBER_EPOCH;
    same("a commit of another epoch", committed, stale)?;

    let mut second = Member::new(&group, "member-2");
    let join = second.joins(word_count(&lines.name, &group));
    second.hear(client, &join)?;
    let has = second.tasks();
    same("tasks that another has still to let go", has, 0)?;
    settle(client, &mut [&mut first, &mut second], &[2, 2])?;
    let owned = |member: &Member| -> Vec<(String, i32)> {
        let tasks = member.active.iter();
        tasks
            .flat_map(|t| t.partitions.iter().map(|p| (t.subtopology_id.clone(), *p)))
            .collect()
    };
    let (one, other) = (owned(&first), owned(&second));
    holds(one.iter().all(|task| !other.contains(task)), || {
        format!("{one:?} and {other:?} run the same")
    })?;
    holds(first.epoch > before, || "the epoch stays".to_owned())?;
    let answer: StreamsGroupHeartbeatResponse = client.ask(1, &second.leaves())?;
    same("leaving", answer.error_code, ErrorCode::NONE)?;
    settle(client, &mut [&mut first], &[4])
}

fn administer(client: &mut Client<'_>) -> Outcome {
    let lines = client.topic(1)?;
    let group = client.group()?;
    client.broker().pass(Duration::from_millis(300));
    let mut member = Member::new(&group, "member-1");
    let join = member.joins(word_count(&lines.name, &group));
    member.hear(client, &join)?;
    settle(client, &mut [&mut member], &[2])?;

    let request = ListGroupsRequest {
        types_filter: vec!["streams".to_owned()],
        ..ListGroupsRequest::default()
    };
    let listed = client.ask(5, &request)?.groups;
    let listed = listed.into_iter().find(|g| g.group_id == group);
    let listed = listed.ok_or_else(|| Failure::Wrong("the group isn't listed".to_owned()))?;
    let said = (
        listed.group_type.as_str(),
        listed.protocol_type.as_str(),
        listed.group_state.as_str(),
    );
    same("types and state", said, ("streams", "streams", "Stable"))?;
    let request = StreamsGroupDescribeRequest {
        group_ids: vec![group.clone(), "nobody".to_owned()],
        ..StreamsGroupDescribeRequest::default()
    };
    // Kafka has its own order.
    let described = client.ask(1, &request)?.groups.into_iter();
    let (mut one, mut other): (Vec<_>, Vec<_>) = described.partition(|g| g.group_id == group);
    let other = other.pop().unwrap_or_default();
    let missing = ErrorCode::GROUP_ID_NOT_FOUND;
    same("a group that isn't there", other.error_code, missing)?;
    let one = one.pop().unwrap_or_default();
    same("the group", one.error_code, ErrorCode::NONE)?;
    let said = (one.group_state.as_str(), one.assignor_name.as_deref());
    same("state and assignor", said, ("Stable", Some("sticky")))?;
    let topology = one.topology.unwrap_or_default();
    let subtopologies = topology.subtopologies.unwrap_or_default();
    let internal: Vec<(String, i32)> = subtopologies
        .iter()
        .flat_map(|s| {
            s.repartition_source_topics
                .iter()
                .chain(&s.state_changelog_topics)
        })
        .map(|t| (t.name.clone(), t.partitions))
        .collect();
    let name = |of: &str| format!("{group}-{of}");
    let expected = [
        (name("words-repartition"), 1),
        (name("counts-changelog"), 1),
    ];
    same("internal topics", internal, expected.to_vec())?;
    let of = only("members", one.members)?;
    same("the member", of.member_id, member.id.clone())?;
    same(
        "its process",
        of.process_id,
        "process of member-1".to_owned(),
    )?;
    let count = |tasks: &[riverlog_wire::messages::streams_group_describe_response::TaskIds]| {
        tasks.iter().map(|t| t.partitions.len()).sum::<usize>()
    };
    same("what it has", count(&of.assignment.active_tasks), 2)?;
    same(
        "what it shall have",
        count(&of.target_assignment.active_tasks),
        2,
    )?;

    let delete = DeleteGroupsRequest {
        groups_names: vec![group.clone()],
    };
    let result = only("results", client.ask(2, &delete)?.results)?;
    same(
        "deleting in use",
        result.error_code,
        ErrorCode::NON_EMPTY_GROUP,
    )?;
    let answer: StreamsGroupHeartbeatResponse = client.ask(1, &member.leaves())?;
    same("leaving", answer.error_code, ErrorCode::NONE)?;
    let result = only("results", client.ask(2, &delete)?.results)?;
    same("deleting", result.error_code, ErrorCode::NONE)?;
    let described = only(
        "groups",
        client
            .ask(
                1,
                &StreamsGroupDescribeRequest {
                    group_ids: vec![group],
                    ..StreamsGroupDescribeRequest::default()
                },
            )?
            .groups,
    )?;
    same("what is deleted", described.error_code, missing)
}
