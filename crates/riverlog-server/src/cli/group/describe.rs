//! What a group is like, whatever protocol its members speak.

use std::collections::BTreeMap;

use riverlog_wire::ErrorCode;
use riverlog_wire::consumer_protocol::decode_assignment;
use riverlog_wire::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use riverlog_wire::messages::{
    ApiKey, ConsumerGroupDescribeRequest, DescribeGroupsRequest, DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest, StreamsGroupDescribeRequest, consumer_group_describe_response,
    share_group_describe_response, streams_group_describe_response,
};

use super::all;
use crate::client::Client;
use crate::failure::{Exit, Failure, nearest};

/// A group with its members.
#[derive(Default)]
pub(super) struct Described {
    pub(super) state: String,
    /// The assignor.
    pub(super) protocol: String,
    /// "consumer", "connect", …
    pub(super) protocol_type: String,
    pub(super) members: Vec<Member>,
}

pub(super) struct Member {
    pub(super) id: String,
    pub(super) instance: Option<String>,
    pub(super) client: String,
    pub(super) host: String,
    /// Topics and their partitions.
    pub(super) assignment: BTreeMap<String, Vec<i32>>,
}

impl Described {
    /// Whether its members share partitions record by record.
    pub(super) fn is_share(&self) -> bool {
        self.protocol_type == "share"
    }

    /// Whether members change places right now.
    pub(super) fn is_rebalancing(&self) -> bool {
        matches!(
            self.state.as_str(),
            "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling"
        )
    }

    /// Which member a partition belongs to.
    pub(super) fn owners(&self) -> BTreeMap<(String, i32), &Member> {
        let mut owners = BTreeMap::new();
        for member in &self.members {
            for (topic, partitions) in &member.assignment {
                for partition in partitions {
                    owners.insert((topic.clone(), *partition), member);
                }
            }
        }
        owners
    }
}

/// A group that is there.
pub(super) fn described(client: &mut Client, group: &str) -> Result<Described, Failure> {
    let request = DescribeGroupsRequest {
        groups: vec![group.to_owned()],
        ..DescribeGroupsRequest::default()
    };
    let response = client.ask_coordinator(group, &request, |r| {
        r.groups.first().map_or(ErrorCode::NONE, |g| g.error_code)
    })?;
    let described = response.groups.into_iter().next().unwrap_or_default();
    let missing = described.error_code == ErrorCode::GROUP_ID_NOT_FOUND
        || described.error_code == ErrorCode::NONE && described.group_state == "Dead";
    if missing {
        return other_kind(client, group);
    }
    check(
        group,
        described.error_code,
        described.error_message.as_deref(),
    )?;
    let members = described.members.into_iter().map(|member| Member {
        id: member.member_id,
        instance: member.group_instance_id,
        client: member.client_id,
        host: member.client_host,
        // Other kinds of groups have assignments of their own form.
        assignment: decode_assignment(&member.member_assignment).unwrap_or_default(),
    });
    Ok(Described {
        state: described.group_state,
        protocol: described.protocol_data,
        protocol_type: described.protocol_type,
        members: members.collect(),
    })
}

/// What a share group has begun: by topic and partition, everything before which is done with, and records from there on that nobody
/// has accepted yet; −1 where the broker doesn't know.
pub(super) type Begun = BTreeMap<(String, i32), (i64, i64)>;

/// What a share group has begun.
pub(super) fn shared(client: &mut Client, group: &str) -> Result<Begun, Failure> {
    let request = DescribeShareGroupOffsetsRequest {
        groups: vec![DescribeShareGroupOffsetsRequestGroup {
            group_id: group.to_owned(),
            topics: None,
        }],
    };
    let response = client.ask_coordinator(group, &request, |r| {
        r.groups.first().map_or(ErrorCode::NONE, |g| g.error_code)
    })?;
    let mut begun = Begun::new();
    for topic in response.groups.into_iter().flat_map(|g| g.topics) {
        for part in topic.partitions.iter().filter(|p| p.start_offset >= 0) {
            let key = (topic.topic_name.clone(), part.partition_index);
            begun.insert(key, (part.start_offset, part.lag));
        }
    }
    Ok(begun)
}

/// A group that the classic request doesn't know: one of the consumer protocol, a share group, a streams group, or none at all.
fn other_kind(client: &mut Client, group: &str) -> Result<Described, Failure> {
    let groups = all(client)?;
    let Some((_, state, kind, protocol_type)) = groups.iter().find(|g| g.0 == group) else {
        let failure = Failure::new(Exit::NotFound, format!("there is no group {group:?}"));
        let known = groups.iter().map(|g| g.0.as_str());
        return Err(match nearest(group, known) {
            Some(near) => failure.hint(format!(
                "did you mean {near:?}? `riverlog group list` shows all"
            )),
            None => failure.hint(
                "`riverlog group list` shows all; a group is there once it has members or commits",
            ),
        });
    };
    let plain = Described {
        state: state.clone(),
        protocol_type: protocol_type.clone(),
        ..Described::default()
    };
    let coordinator = client.coordinator(group)?;
    if kind.eq_ignore_ascii_case("share") {
        return share_group(client, group, plain);
    }
    if kind.eq_ignore_ascii_case("streams") {
        return streams_group(client, group, plain);
    }
    let asks = client
        .node(coordinator)?
        .version(ApiKey::ConsumerGroupDescribe)
        .is_ok();
    if !(kind.eq_ignore_ascii_case("consumer") && asks) {
        return Ok(plain);
    }
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec![group.to_owned()],
        ..ConsumerGroupDescribeRequest::default()
    };
    let response = client.ask_coordinator(group, &request, |r| {
        r.groups.first().map_or(ErrorCode::NONE, |g| g.error_code)
    })?;
    let Some(found) = response.groups.into_iter().next() else {
        return Ok(plain);
    };
    check(group, found.error_code, found.error_message.as_deref())?;
    Ok(Described {
        state: found.group_state,
        protocol: found.assignor_name,
        members: found.members.into_iter().map(member).collect(),
        ..plain
    })
}

fn check(group: &str, error: ErrorCode, words: Option<&str>) -> Result<(), Failure> {
    match error {
        ErrorCode::NONE => Ok(()),
        error => Err(Failure::kafka(
            format!("group {group:?} can't be described"),
            error,
            words,
        )),
    }
}

fn streams_group(client: &mut Client, group: &str, plain: Described) -> Result<Described, Failure> {
    let request = StreamsGroupDescribeRequest {
        group_ids: vec![group.to_owned()],
        ..StreamsGroupDescribeRequest::default()
    };
    let response = client.ask_coordinator(group, &request, |r| {
        r.groups.first().map_or(ErrorCode::NONE, |g| g.error_code)
    })?;
    let Some(found) = response.groups.into_iter().next() else {
        return Ok(plain);
    };
    check(group, found.error_code, found.error_message.as_deref())?;
    // A task reads the partition of its number of each source that has as many.
    let subtopologies = found.topology.and_then(|t| t.subtopologies);
    let sources: BTreeMap<String, Vec<String>> = subtopologies
        .into_iter()
        .flatten()
        .map(|s| {
            let repartition = s.repartition_source_topics.into_iter().map(|t| t.name);
            let all = s.source_topics.into_iter().chain(repartition);
            (s.subtopology_id, all.collect())
        })
        .collect();
    let names: Vec<String> = sources.values().flatten().cloned().collect();
    let topics = client.metadata(Some(&names), false)?.topics;
    let counts: BTreeMap<String, usize> = topics
        .into_iter()
        .filter_map(|t| Some((t.name?, t.partitions.len())))
        .collect();
    let members = found.members.into_iter().map(|member| {
        let mut assignment: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for tasks in &member.assignment.active_tasks {
            for topic in sources.get(&tasks.subtopology_id).into_iter().flatten() {
                let count = counts.get(topic).copied().unwrap_or(0);
                let there = |p: &&i32| usize::try_from(**p).is_ok_and(|p| p < count);
                let partitions = tasks.partitions.iter().filter(there);
                assignment
                    .entry(topic.clone())
                    .or_default()
                    .extend(partitions);
            }
        }
        streams_member(member, assignment)
    });
    Ok(Described {
        state: found.group_state,
        protocol: found.assignor_name.unwrap_or_default(),
        members: members.collect(),
        ..plain
    })
}

fn streams_member(
    member: streams_group_describe_response::Member,
    assignment: BTreeMap<String, Vec<i32>>,
) -> Member {
    Member {
        id: member.member_id,
        instance: member.instance_id,
        client: member.client_id,
        host: member.client_host,
        assignment,
    }
}

fn share_group(client: &mut Client, group: &str, plain: Described) -> Result<Described, Failure> {
    let request = ShareGroupDescribeRequest {
        group_ids: vec![group.to_owned()],
        ..ShareGroupDescribeRequest::default()
    };
    let response = client.ask_coordinator(group, &request, |r| {
        r.groups.first().map_or(ErrorCode::NONE, |g| g.error_code)
    })?;
    let Some(found) = response.groups.into_iter().next() else {
        return Ok(plain);
    };
    check(group, found.error_code, found.error_message.as_deref())?;
    Ok(Described {
        state: found.group_state,
        protocol: found.assignor_name,
        members: found.members.into_iter().map(share_member).collect(),
        ..plain
    })
}

fn share_member(member: share_group_describe_response::Member) -> Member {
    let topics = member.assignment.topic_partitions.into_iter();
    Member {
        id: member.member_id,
        instance: None,
        client: member.client_id,
        host: member.client_host,
        assignment: topics.map(|t| (t.topic_name, t.partitions)).collect(),
    }
}

fn member(member: consumer_group_describe_response::Member) -> Member {
    let mut assignment: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for topic in member.assignment.topic_partitions {
        assignment
            .entry(topic.topic_name)
            .or_default()
            .extend(topic.partitions);
    }
    Member {
        id: member.member_id,
        instance: member.instance_id,
        client: member.client_id,
        host: member.client_host,
        assignment,
    }
}
