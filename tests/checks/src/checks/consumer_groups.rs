//! Groups that the broker assigns (KIP-848): checks 70 and 71, and ConsumerGroupDescribe.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::consumer_group_heartbeat_request::TopicPartitions;
use riverlog_wire::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};

use super::Check;
use crate::client::{Client, Outcome, Topic, holds, only, same};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "70",
        name: "heartbeats-join-assign-and-refuse-with-the-right-error",
        run: heartbeats,
    },
    Check {
        number: "71",
        name: "a-pattern-takes-in-topics-that-are-made-later",
        run: pattern,
    },
    Check {
        number: "r-3",
        name: "consumer-groups-are-described",
        run: describe,
    },
];

/// Heartbeats, a tenth of a second apart, until new topics must have been found; Kafka looks for them every ten seconds.
const ROUNDS: usize = 200;

/// What a member says when it joins.
pub(super) fn join(group: &str, member: &str, topics: &[&str]) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: group.to_owned(),
        member_id: member.to_owned(),
        member_epoch: 0,
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(topics.iter().map(|t| (*t).to_owned()).collect()),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    }
}

pub(super) fn beat(
    client: &mut Client<'_>,
    request: &ConsumerGroupHeartbeatRequest,
) -> Outcome<ConsumerGroupHeartbeatResponse> {
    client.ask(1, request)
}

/// A member's later heartbeats: nothing has changed, and this is what it holds.
pub(super) fn again(
    group: &str,
    answer: &ConsumerGroupHeartbeatResponse,
    holds: &[(&Topic, &[i32])],
) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: group.to_owned(),
        member_id: answer.member_id.clone().unwrap_or_default(),
        member_epoch: answer.member_epoch,
        rebalance_timeout_ms: -1,
        topic_partitions: Some(
            holds
                .iter()
                .map(|(topic, partitions)| TopicPartitions {
                    topic_id: topic.id,
                    partitions: partitions.to_vec(),
                })
                .collect(),
        ),
        ..ConsumerGroupHeartbeatRequest::default()
    }
}

fn partitions(answer: &ConsumerGroupHeartbeatResponse) -> usize {
    let topics = answer.assignment.iter().flat_map(|a| &a.topic_partitions);
    topics.map(|t| t.partitions.len()).sum()
}

/// Coordinators of Kafka hear of a topic a moment after the clients.
pub(super) fn hear_of_topics(client: &mut Client<'_>) {
    client.broker().pass(Duration::from_millis(300));
}

fn heartbeats(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(2)?;
    hear_of_topics(client);
    let group = client.group()?;
    let request = join(&group, "member-1", &[&topic.name]);

    let refused = |client: &mut Client<'_>, what: &str, request, error| {
        let answer = beat(client, &request)?;
        same(what, answer.error_code, error)
    };
    let nameless = join(&group, "", &[&topic.name]);
    let error = ErrorCode::INVALID_REQUEST;
    refused(client, "v1 without an id", nameless, error)?;
    let mut hasty = request.clone();
    hasty.rebalance_timeout_ms = -1;
    refused(client, "joining without a time-out", hasty, error)?;
    let mut odd = request.clone();
    odd.server_assignor = Some("odd".to_owned());
    let error = ErrorCode::UNSUPPORTED_ASSIGNOR;
    refused(client, "an unknown assignor", odd, error)?;
    let mut broken = join(&group, "member-1", &[]);
    broken.subscribed_topic_regex = Some("(".to_owned());
    let error = ErrorCode::INVALID_REGULAR_EXPRESSION;
    refused(client, "a broken pattern", broken, error)?;
    let mut later = request.clone();
    later.group_id = client.name();
    later.member_epoch = 5;
    let error = ErrorCode::GROUP_ID_NOT_FOUND;
    refused(client, "a ghost group", later, error)?;

    let joined = beat(client, &request)?;
    same("joining", joined.error_code, ErrorCode::NONE)?;
    same("its id", joined.member_id.as_deref(), Some("member-1"))?;
    holds(joined.member_epoch > 0, || {
        format!("the epoch is {}", joined.member_epoch)
    })?;
    holds(joined.heartbeat_interval_ms > 0, || {
        "no heartbeat interval".to_owned()
    })?;
    same("both partitions at once", partitions(&joined), 2)?;

    let quiet = beat(client, &again(&group, &joined, &[(&topic, &[0, 1])]))?;
    same("a heartbeat", quiet.error_code, ErrorCode::NONE)?;
    same("its epoch", quiet.member_epoch, joined.member_epoch)?;

    let mut ghost = again(&group, &joined, &[]);
    ghost.member_id = "ghost".to_owned();
    let error = ErrorCode::UNKNOWN_MEMBER_ID;
    refused(client, "a ghost", ghost, error)?;
    let mut ahead = again(&group, &joined, &[]);
    ahead.member_epoch += 7;
    let error = ErrorCode::FENCED_MEMBER_EPOCH;
    refused(client, "an epoch ahead", ahead, error)?;

    let mut leave = again(&group, &quiet, &[]);
    leave.member_epoch = -1;
    let left = beat(client, &leave)?;
    same("leaving", left.error_code, ErrorCode::NONE)?;
    same("its last epoch", left.member_epoch, -1)?;

    // A static member that goes for a while finds its place again, and nobody else may take it meanwhile.
    let mut stays = join(&group, "member-2", &[&topic.name]);
    stays.instance_id = Some("instance".to_owned());
    let first = beat(client, &stays)?;
    same("a static member", first.error_code, ErrorCode::NONE)?;
    let mut twin = stays.clone();
    twin.member_id = "member-3".to_owned();
    let error = ErrorCode::UNRELEASED_INSTANCE_ID;
    refused(client, "its twin", twin.clone(), error)?;
    let mut pause = again(&group, &first, &[]);
    pause.member_epoch = -2;
    pause.instance_id = stays.instance_id.clone();
    let paused = beat(client, &pause)?;
    same("going for a while", paused.error_code, ErrorCode::NONE)?;
    let back = beat(client, &twin)?;
    same("coming back", back.error_code, ErrorCode::NONE)?;
    same("what it had", partitions(&back), 2)
}

fn pattern(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let prefix = client.name();
    let first = client.topic_named(&format!("{prefix}-a"), 1, &[])?;
    let mut request = join(&group, "member-1", &[]);
    request.subscribed_topic_regex = Some(format!("{prefix}-.*"));
    let mut answer = beat(client, &request)?;
    same("joining", answer.error_code, ErrorCode::NONE)?;
    // A broker may look for topics a moment later than it answers.
    let mut held = partitions(&answer);
    let mut made = None;
    for _ in 0..ROUNDS {
        if held == 2 {
            break;
        }
        if held == 1 && made.is_none() {
            made = Some(client.topic_named(&format!("{prefix}-b"), 1, &[])?);
        }
        let mut has: Vec<(&Topic, &[i32])> = Vec::new();
        if held > 0 {
            has.push((&first, &[0]));
        }
        let next = beat(client, &again(&group, &answer, &has))?;
        same("a heartbeat", next.error_code, ErrorCode::NONE)?;
        held = held.max(partitions(&next));
        answer = next;
        client.broker().pass(Duration::from_millis(100));
    }
    same("partitions of both topics", held, 2)
}

fn describe(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(2)?;
    hear_of_topics(client);
    let group = client.group()?;
    let joined = beat(client, &join(&group, "member-1", &[&topic.name]))?;
    same("joining", joined.error_code, ErrorCode::NONE)?;
    let ghost = client.name();
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec![group.clone(), ghost.clone()],
        ..ConsumerGroupDescribeRequest::default()
    };
    // Kafka shows what is durable, which comes a moment after the answer.
    let mut answer = client.ask(1, &request)?;
    for _ in 0..ROUNDS {
        let found = answer.groups.iter().find(|g| g.group_id == group);
        let members = found.map(|g| g.members.as_slice());
        let target = members
            .and_then(|m| m.first())
            .map(|m| &m.target_assignment);
        if target.is_some_and(|t| !t.topic_partitions.is_empty()) {
            break;
        }
        client.broker().pass(Duration::from_millis(100));
        answer = client.ask(1, &request)?;
    }
    // Kafka answers in the order in which its coordinators do.
    answer.groups.sort_by_key(|g| g.group_id == ghost);
    let [described, missing] =
        <[_; 2]>::try_from(answer.groups).map_err(|all| format!("{} groups came", all.len()))?;
    let error = ErrorCode::GROUP_ID_NOT_FOUND;
    same("a ghost", missing.error_code, error)?;
    same("the group", described.error_code, ErrorCode::NONE)?;
    same("its state", described.group_state.as_str(), "Stable")?;
    same("its assignor", described.assignor_name.as_str(), "uniform")?;
    let member = only("members", described.members)?;
    same("the member", member.member_id.as_str(), "member-1")?;
    same("its kind", member.member_type, 1)?;
    let target = only("topics", member.target_assignment.topic_partitions)?;
    same("the topic's name", &target.topic_name, &topic.name)?;
    same("the topic's id", target.topic_id, topic.id)?;
    same("its partitions", target.partitions.len(), 2)
}
