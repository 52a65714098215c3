//! Committed offsets: checks 63 and 64.

use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use riverlog_wire::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use riverlog_wire::messages::{OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest};
use riverlog_wire::{ErrorCode, TopicId};

use super::Check;
use super::groups::{Member, joined, synced};
use crate::client::{Client, Outcome, Topic, only, same};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "63",
        name: "commits-are-taken-from-those-who-may",
        run: commits,
    },
    Check {
        number: "64",
        name: "what-was-never-committed-is-no-error",
        run: fetches,
    },
    Check {
        number: "b-9",
        name: "commits-answer-in-the-order-of-the-request",
        run: order,
    },
    Check {
        number: "fc-20",
        name: "offsets-are-taken-back-from-outside",
        run: delete,
    },
];

fn request(version: i16, member: &Member, topic: &Topic, metadata: &str) -> OffsetCommitRequest {
    let by_id = version >= 10;
    OffsetCommitRequest {
        group_id: member.group.clone(),
        generation_id_or_member_epoch: member.generation,
        member_id: member.id.clone(),
        topics: vec![OffsetCommitRequestTopic {
            name: if by_id {
                String::new()
            } else {
                topic.name.clone()
            },
            topic_id: if by_id { topic.id } else { TopicId::ZERO },
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 7,
                committed_leader_epoch: if version >= 6 { 3 } else { -1 },
                committed_metadata: Some(metadata.to_owned()),
                ..OffsetCommitRequestPartition::default()
            }],
        }],
        ..OffsetCommitRequest::default()
    }
}

/// Commits offset 7 of the first partition.
pub(super) fn commit(
    client: &mut Client<'_>,
    version: i16,
    member: &Member,
    topic: &Topic,
) -> Outcome<ErrorCode> {
    commit_with(client, version, member, topic, "words")
}

fn commit_with(
    client: &mut Client<'_>,
    version: i16,
    member: &Member,
    topic: &Topic,
    metadata: &str,
) -> Outcome<ErrorCode> {
    let answer = client.ask(version, &request(version, member, topic, metadata))?;
    let topic = only("topics", answer.topics)?;
    Ok(only("partitions", topic.partitions)?.error_code)
}

/// Somebody who is no member.
fn outside(group: &str) -> Member {
    Member {
        group: group.to_owned(),
        id: String::new(),
        generation: -1,
        instance: None,
    }
}

fn commits(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let simple = client.group()?;
    for version in 2..=10 {
        let code = commit(client, version, &outside(&simple), &topic)?;
        same(&format!("from outside, v{version}"), code, ErrorCode::NONE)?;
    }
    let ghost = Member {
        id: "ghost".to_owned(),
        generation: 3,
        ..outside(&client.group()?)
    };
    let code = commit(client, 8, &ghost, &topic)?;
    same(
        "a generation of no group, v8",
        code,
        ErrorCode::ILLEGAL_GENERATION,
    )?;
    let code = commit(client, 9, &ghost, &topic)?;
    same(
        "a generation of no group, v9",
        code,
        ErrorCode::GROUP_ID_NOT_FOUND,
    )?;

    let group = client.group()?;
    let member = joined(client, &group)?;
    let code = commit(client, 9, &member, &topic)?;
    same("before the sync", code, ErrorCode::REBALANCE_IN_PROGRESS)?;
    synced(client, &member)?;
    same(
        "a member",
        commit(client, 9, &member, &topic)?,
        ErrorCode::NONE,
    )?;
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    let code = commit(client, 9, &outside(&group), &topic)?;
    same("from outside, with members", code, unknown)?;
    let stale = Member {
        generation: member.generation - 1,
        ..member.clone()
    };
    let code = commit(client, 9, &stale, &topic)?;
    same("an old generation", code, ErrorCode::ILLEGAL_GENERATION)?;
    let other = Member {
        id: "ghost".to_owned(),
        ..member.clone()
    };
    same("a ghost", commit(client, 9, &other, &topic)?, unknown)?;
    let long = "x".repeat(4_097);
    let code = commit_with(client, 9, &member, &topic, &long)?;
    same(
        "metadata of 4,097 bytes",
        code,
        ErrorCode::OFFSET_METADATA_TOO_LARGE,
    )?;
    let missing = Topic {
        name: client.name(),
        id: TopicId([4; 16]),
    };
    let code = commit(client, 9, &member, &missing)?;
    same(
        "an unknown topic",
        code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    )?;
    let code = commit(client, 10, &member, &missing)?;
    same("an unknown topic id", code, ErrorCode::UNKNOWN_TOPIC_ID)
}

fn asked(version: i16, group: &str, topics: Option<&[&Topic]>) -> OffsetFetchRequestGroup {
    let by_id = version >= 10;
    let topics = topics.map(|topics| {
        let topics = topics.iter().map(|topic| OffsetFetchRequestTopics {
            name: if by_id {
                String::new()
            } else {
                topic.name.clone()
            },
            topic_id: if by_id { topic.id } else { TopicId::ZERO },
            partition_indexes: vec![0, 9],
        });
        topics.collect()
    });
    OffsetFetchRequestGroup {
        group_id: group.to_owned(),
        member_id: None,
        member_epoch: -1,
        topics,
    }
}

type Found = (i32, i64, i32, Option<String>, ErrorCode);

fn fetch_old(
    client: &mut Client<'_>,
    version: i16,
    group: &str,
    topic: Option<&Topic>,
) -> Outcome<Vec<Found>> {
    let topics = topic.map(|topic| {
        vec![OffsetFetchRequestTopic {
            name: topic.name.clone(),
            partition_indexes: vec![0, 9],
        }]
    });
    let request = OffsetFetchRequest {
        group_id: group.to_owned(),
        topics,
        ..OffsetFetchRequest::default()
    };
    let answer = client.ask(version, &request)?;
    same("the answer's error", answer.error_code, ErrorCode::NONE)?;
    let partitions = answer.topics.into_iter().flat_map(|t| t.partitions);
    let found = partitions.map(|p| {
        let (index, offset) = (p.partition_index, p.committed_offset);
        (
            index,
            offset,
            p.committed_leader_epoch,
            p.metadata,
            p.error_code,
        )
    });
    Ok(found.collect())
}

/// What is committed for the first partition.
pub(super) fn committed(client: &mut Client<'_>, group: &str, topic: &Topic) -> Outcome<i64> {
    let mut found = fetch_old(client, 5, group, Some(topic))?.into_iter();
    let found = found.find(|(index, ..)| *index == 0);
    Ok(found.ok_or("nothing is told of it".to_owned())?.1)
}

fn fetch_new(
    client: &mut Client<'_>,
    version: i16,
    groups: Vec<OffsetFetchRequestGroup>,
) -> Outcome<Vec<(String, Vec<Found>)>> {
    let request = OffsetFetchRequest {
        groups,
        ..OffsetFetchRequest::default()
    };
    let mut all = Vec::new();
    for group in client.ask(version, &request)?.groups {
        same("a group's error", group.error_code, ErrorCode::NONE)?;
        let partitions = group.topics.into_iter().flat_map(|t| t.partitions);
        let found = partitions.map(|p| {
            let (index, offset) = (p.partition_index, p.committed_offset);
            (
                index,
                offset,
                p.committed_leader_epoch,
                p.metadata,
                p.error_code,
            )
        });
        all.push((group.group_id, found.collect()));
    }
    Ok(all)
}

fn fetches(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let other = client.topic(1)?;
    let (group, ghost) = (client.group()?, client.group()?);
    let code = commit(client, 9, &outside(&group), &topic)?;
    same("committing", code, ErrorCode::NONE)?;
    let none = |index: i32| (index, -1, -1, Some(String::new()), ErrorCode::NONE);
    for version in 1..=7 {
        let epoch = if version >= 5 { 3 } else { -1 };
        let here = (0, 7, epoch, Some("words".to_owned()), ErrorCode::NONE);
        let found = fetch_old(client, version, &group, Some(&topic))?;
        let what = format!("what was committed, v{version}");
        same(&what, found, vec![here.clone(), none(9)])?;
        let found = fetch_old(client, version, &ghost, Some(&topic))?;
        let what = format!("a group that nobody knows, v{version}");
        same(&what, found, vec![none(0), none(9)])?;
        if version >= 2 {
            let found = fetch_old(client, version, &group, None)?;
            same(&format!("all of a group, v{version}"), found, vec![here])?;
        }
    }
    for version in 8..=10 {
        let groups = vec![
            asked(version, &group, Some(&[&other, &topic])),
            asked(version, &ghost, None),
            asked(version, &group, None),
        ];
        let groups = fetch_new(client, version, groups)?;
        let here = (0, 7, 3, Some("words".to_owned()), ErrorCode::NONE);
        let expected = vec![
            (group.clone(), vec![none(0), none(9), here.clone(), none(9)]),
            (ghost.clone(), Vec::new()),
            (group.clone(), vec![here]),
        ];
        same(&format!("three in one, v{version}"), groups, expected)?;
    }
    let missing = Topic {
        name: String::new(),
        id: TopicId([3; 16]),
    };
    let groups = fetch_new(client, 10, vec![asked(10, &group, Some(&[&missing]))])?;
    let codes: Vec<ErrorCode> = groups.iter().flat_map(|g| &g.1).map(|f| f.4).collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_ID;
    same("an unknown topic id", codes, vec![unknown, unknown])
}

fn order(client: &mut Client<'_>) -> Outcome {
    let (first, second) = (client.topic(1)?, client.topic(1)?);
    let group = client.group()?;
    let member = outside(&group);
    let mut all = request(9, &member, &second, "");
    all.topics.extend(request(9, &member, &first, "").topics);
    let answer = client.ask(9, &all)?;
    let names: Vec<String> = answer.topics.into_iter().map(|t| t.name).collect();
    same("topics", names, vec![second.name, first.name])
}

fn delete(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let (group, ghost) = (client.group()?, client.group()?);
    let code = commit(client, 9, &outside(&group), &topic)?;
    same("committing", code, ErrorCode::NONE)?;
    let take_back = |group: &str, name: &str| OffsetDeleteRequest {
        group_id: group.to_owned(),
        topics: vec![OffsetDeleteRequestTopic {
            name: name.to_owned(),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    let answer = client.ask(0, &take_back(&ghost, &topic.name))?;
    same(
        "of a ghost",
        answer.error_code,
        ErrorCode::GROUP_ID_NOT_FOUND,
    )?;
    let unknown = client.name();
    let answer = client.ask(0, &take_back(&group, &unknown))?;
    same("the group", answer.error_code, ErrorCode::NONE)?;
    let topic_of = only("topics", answer.topics)?;
    let code = only("partitions", topic_of.partitions)?.error_code;
    same(
        "of an unknown topic",
        code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    )?;
    let answer = client.ask(0, &take_back(&group, &topic.name))?;
    same("the group", answer.error_code, ErrorCode::NONE)?;
    let topic_of = only("topics", answer.topics)?;
    let code = only("partitions", topic_of.partitions)?.error_code;
    same("of a topic", code, ErrorCode::NONE)?;
    let found = fetch_old(client, 7, &group, Some(&topic))?;
    let offsets: Vec<i64> = found.iter().map(|f| f.1).collect();
    same("what is left", offsets, vec![-1, -1])
}
