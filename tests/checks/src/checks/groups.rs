//! Classic groups: checks 61 to 65 and 68.

use std::time::Duration;

use bytes::Bytes;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::join_group_request::JoinGroupRequestProtocol;
use riverlog_wire::messages::leave_group_request::MemberIdentity;
use riverlog_wire::messages::sync_group_request::SyncGroupRequestAssignment;
use riverlog_wire::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, SyncGroupRequest,
};

use super::Check;
use crate::client::{Client, Outcome, PATIENCE, QUIET, holds, only, same};
use crate::wire::Received;

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "61",
        name: "members-join-or-learn-why-not",
        run: joins,
    },
    Check {
        number: "62",
        name: "syncs-and-heartbeats-of-others-are-refused",
        run: syncs,
    },
    Check {
        number: "65",
        name: "static-members-keep-their-place",
        run: static_members,
    },
    Check {
        number: "r-1",
        name: "a-second-member-brings-a-rebalance-and-so-does-its-leaving",
        run: rebalance,
    },
    Check {
        number: "r-2",
        name: "a-silent-member-is-taken-out-after-its-session",
        run: silence,
    },
    Check {
        number: "68",
        name: "groups-are-listed-described-and-deleted",
        run: describe_and_delete,
    },
];

/// A member of a group, as its last join left it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) group: String,
    pub(super) id: String,
    pub(super) generation: i32,
    pub(super) instance: Option<String>,
}

fn protocol(name: &str) -> JoinGroupRequestProtocol {
    JoinGroupRequestProtocol {
        name: name.to_owned(),
        metadata: Bytes::from_static(b"metadata"),
    }
}

fn join(group: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: group.to_owned(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![protocol("range"), protocol("roundrobin")],
        ..JoinGroupRequest::default()
    }
}

fn member(request: JoinGroupRequest, answer: &JoinGroupResponse) -> Member {
    Member {
        group: request.group_id,
        id: answer.member_id.clone(),
        generation: answer.generation_id,
        instance: request.group_instance_id,
    }
}

/// Joins as the only member; not in step with the others yet.
pub(super) fn joined(client: &mut Client<'_>, group: &str) -> Outcome<Member> {
    let mut request = join(group);
    let first = client.ask(9, &request)?;
    same(
        "a new member",
        first.error_code,
        ErrorCode::MEMBER_ID_REQUIRED,
    )?;
    request.member_id = first.member_id;
    let answer = client.ask(9, &request)?;
    same("joining", answer.error_code, ErrorCode::NONE)?;
    Ok(member(request, &answer))
}

fn sync(member: &Member) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: member.group.clone(),
        generation_id: member.generation,
        member_id: member.id.clone(),
        group_instance_id: member.instance.clone(),
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: member.id.clone(),
            assignment: Bytes::from_static(b"assignment"),
        }],
    }
}

/// The leader's sync: the group is stable afterwards.
pub(super) fn synced(client: &mut Client<'_>, member: &Member) -> Outcome {
    let answer = client.ask(5, &sync(member))?;
    same("syncing", answer.error_code, ErrorCode::NONE)?;
    same(
        "the assignment",
        answer.assignment.as_ref(),
        b"assignment".as_slice(),
    )
}

pub(super) fn heartbeat(client: &mut Client<'_>, member: &Member) -> Outcome<ErrorCode> {
    let request = HeartbeatRequest {
        group_id: member.group.clone(),
        generation_id: member.generation,
        member_id: member.id.clone(),
        group_instance_id: member.instance.clone(),
    };
    Ok(client.ask(4, &request)?.error_code)
}

fn joins(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let request = join(&group);
    let first = client.ask(9, &request)?;
    same(
        "a new member",
        first.error_code,
        ErrorCode::MEMBER_ID_REQUIRED,
    )?;
    let given = first.member_id.starts_with("checks-");
    holds(given, || {
        format!(
            "the id {:?} doesn't begin with the client's",
            first.member_id
        )
    })?;
    let known = JoinGroupRequest {
        member_id: first.member_id.clone(),
        ..request.clone()
    };
    let answer = client.ask(9, &known)?;
    let got = (answer.error_code, answer.generation_id);
    same("with its id", got, (ErrorCode::NONE, 1))?;
    same("the leader", &answer.leader, &first.member_id)?;
    let protocols = (answer.protocol_type, answer.protocol_name);
    let expected = (Some("consumer".to_owned()), Some("range".to_owned()));
    same("the protocol", protocols, expected)?;
    let metadata: Vec<_> = answer
        .members
        .into_iter()
        .map(|m| (m.member_id, m.metadata))
        .collect();
    let expected = vec![(first.member_id.clone(), Bytes::from_static(b"metadata"))];
    same("the members, for the leader", metadata, expected)?;
    synced(client, &member(known, &client_answer(&first.member_id)))?;

    let refused = |client: &mut Client<'_>, what: &str, request, error| {
        let answer: JoinGroupResponse = client.ask(9, &request)?;
        same(what, answer.error_code, error)
    };
    let ghost = JoinGroupRequest {
        member_id: "ghost".to_owned(),
        ..request.clone()
    };
    refused(client, "a ghost", ghost, ErrorCode::UNKNOWN_MEMBER_ID)?;
    let short = JoinGroupRequest {
        session_timeout_ms: 1,
        ..request.clone()
    };
    let error = ErrorCode::INVALID_SESSION_TIMEOUT;
    refused(client, "a session of 1 ms", short, error)?;
    let error = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
    let no_protocol = JoinGroupRequest {
        protocols: Vec::new(),
        ..request.clone()
    };
    refused(client, "no protocol", no_protocol, error)?;
    let other_type = JoinGroupRequest {
        protocol_type: "connect".to_owned(),
        ..request.clone()
    };
    refused(client, "another protocol type", other_type, error)?;
    let no_common = JoinGroupRequest {
        protocols: vec![protocol("mine alone")],
        ..request.clone()
    };
    refused(client, "no common protocol", no_common, error)?;
    let nameless = join("");
    refused(
        client,
        "a group without a name",
        nameless,
        ErrorCode::INVALID_GROUP_ID,
    )?;

    // Before v4 a new member needs no second call.
    let old = client.group()?;
    let answer = client.ask(3, &join(&old))?;
    let got = (answer.error_code, answer.generation_id);
    same("v3", got, (ErrorCode::NONE, 1))
}

/// What a lone member knows after its first join.
fn client_answer(id: &str) -> JoinGroupResponse {
    JoinGroupResponse {
        member_id: id.to_owned(),
        generation_id: 1,
        ..JoinGroupResponse::default()
    }
}

fn syncs(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let member = joined(client, &group)?;
    let stale = Member {
        generation: member.generation + 1,
        ..member.clone()
    };
    let answer = client.ask(5, &sync(&stale))?;
    same(
        "a sync of another generation",
        answer.error_code,
        ErrorCode::ILLEGAL_GENERATION,
    )?;
    let other = SyncGroupRequest {
        protocol_name: Some("roundrobin".to_owned()),
        ..sync(&member)
    };
    let error = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
    same("another protocol", client.ask(5, &other)?.error_code, error)?;
    let silent = SyncGroupRequest {
        protocol_type: None,
        ..sync(&member)
    };
    same(
        "no protocol type",
        client.ask(5, &silent)?.error_code,
        error,
    )?;
    synced(client, &member)?;
    same("a heartbeat", heartbeat(client, &member)?, ErrorCode::NONE)?;
    let error = ErrorCode::ILLEGAL_GENERATION;
    same("another generation's", heartbeat(client, &stale)?, error)?;
    let ghost = Member {
        id: "ghost".to_owned(),
        ..member.clone()
    };
    let error = ErrorCode::UNKNOWN_MEMBER_ID;
    same("a ghost's", heartbeat(client, &ghost)?, error)?;
    let nameless = Member {
        group: String::new(),
        ..member
    };
    let error = ErrorCode::INVALID_GROUP_ID;
    same("without a group", heartbeat(client, &nameless)?, error)
}

fn static_members(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let request = JoinGroupRequest {
        group_instance_id: Some("instance".to_owned()),
        ..join(&group)
    };
    let answer = client.ask(9, &request)?;
    same("joining", answer.error_code, ErrorCode::NONE)?;
    let first = member(request.clone(), &answer);
    synced(client, &first)?;

    // A restart: the same instance without a member id.
    let answer = client.ask(9, &request)?;
    let got = (answer.error_code, answer.generation_id);
    same("coming back", got, (ErrorCode::NONE, first.generation))?;
    let second = member(request, &answer);
    holds(second.id != first.id, || {
        "the member id is the old one".to_owned()
    })?;
    let fenced = ErrorCode::FENCED_INSTANCE_ID;
    same("the one before", heartbeat(client, &first)?, fenced)?;
    same("its sync", client.ask(5, &sync(&first))?.error_code, fenced)?;
    same("the one now", heartbeat(client, &second)?, ErrorCode::NONE)?;

    let leave = LeaveGroupRequest {
        group_id: group.clone(),
        members: vec![
            MemberIdentity {
                member_id: "ghost".to_owned(),
                ..MemberIdentity::default()
            },
            MemberIdentity {
                group_instance_id: Some("another".to_owned()),
                ..MemberIdentity::default()
            },
            MemberIdentity {
                group_instance_id: Some("instance".to_owned()),
                ..MemberIdentity::default()
            },
        ],
        ..LeaveGroupRequest::default()
    };
    let answer = client.ask(5, &leave)?;
    same("leaving", answer.error_code, ErrorCode::NONE)?;
    let codes: Vec<ErrorCode> = answer.members.iter().map(|m| m.error_code).collect();
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    same("one by one", codes, vec![unknown, unknown, ErrorCode::NONE])?;
    let empty = only("groups", described(client, 6, &group)?)?;
    same("the group then", empty.group_state.as_str(), "Empty")
}

type Described = riverlog_wire::messages::describe_groups_response::DescribedGroup;

fn described(client: &mut Client<'_>, version: i16, group: &str) -> Outcome<Vec<Described>> {
    let request = DescribeGroupsRequest {
        groups: vec![group.to_owned()],
        ..DescribeGroupsRequest::default()
    };
    Ok(client.ask(version, &request)?.groups)
}

fn deleted(client: &mut Client<'_>, group: &str) -> Outcome<ErrorCode> {
    let request = DeleteGroupsRequest {
        groups_names: vec![group.to_owned()],
    };
    Ok(only("groups", client.ask(3, &request)?.results)?.error_code)
}

fn describe_and_delete(client: &mut Client<'_>) -> Outcome {
    let ghost = client.group()?;
    let missing = only("groups", described(client, 5, &ghost)?)?;
    let got = (missing.error_code, missing.group_state.as_str());
    same("a ghost in v5", got, (ErrorCode::NONE, "Dead"))?;
    let missing = only("groups", described(client, 6, &ghost)?)?;
    same(
        "a ghost in v6",
        missing.error_code,
        ErrorCode::GROUP_ID_NOT_FOUND,
    )?;
    same(
        "deleting it",
        deleted(client, &ghost)?,
        ErrorCode::GROUP_ID_NOT_FOUND,
    )?;

    let group = client.group()?;
    let member = joined(client, &group)?;
    let completing = only("groups", described(client, 6, &group)?)?;
    let state = completing.group_state.as_str();
    same("before the leader's sync", state, "CompletingRebalance")?;
    synced(client, &member)?;
    for version in 0..=6 {
        let stable = only("groups", described(client, version, &group)?)?;
        let got = (
            stable.group_state.as_str(),
            stable.protocol_type.as_str(),
            stable.protocol_data.as_str(),
        );
        same("a group at work", got, ("Stable", "consumer", "range"))?;
        same("operations", stable.authorized_operations, i32::MIN)?;
        let one = only("members", stable.members)?;
        same("the member", one.member_id.as_str(), member.id.as_str())?;
        same("its client", one.client_id.as_str(), "checks")?;
        holds(one.client_host.starts_with('/'), || {
            format!("its host is {:?}", one.client_host)
        })?;
        let got = (one.member_metadata.as_ref(), one.member_assignment.as_ref());
        same(
            "its bytes",
            got,
            (b"metadata".as_slice(), b"assignment".as_slice()),
        )?;
    }
    let list = |client: &mut Client<'_>, version: i16, states: &[&str], types: &[&str]| {
        let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        let request = ListGroupsRequest {
            states_filter: owned(states),
            types_filter: owned(types),
        };
        let answer = client.ask(version, &request)?;
        same("listing", answer.error_code, ErrorCode::NONE)?;
        let found = answer.groups.into_iter().find(|g| g.group_id == group);
        Outcome::Ok(found.map(|g| (g.protocol_type, g.group_state, g.group_type)))
    };
    for version in 0..=5 {
        let words = |of: &str, since: i16| {
            if version >= since {
                of.to_owned()
            } else {
                String::new()
            }
        };
        let expected = (
            "consumer".to_owned(),
            words("Stable", 4),
            words("classic", 5),
        );
        let what = format!("the group among all, v{version}");
        same(&what, list(client, version, &[], &[])?, Some(expected))?;
    }
    let of_state = list(client, 5, &["stable", "Bogus"], &[])?;
    holds(of_state.is_some(), || {
        "not among the stable ones".to_owned()
    })?;
    same(
        "among the empty ones",
        list(client, 5, &["Empty"], &[])?,
        None,
    )?;
    same(
        "among consumer groups",
        list(client, 5, &[], &["consumer"])?,
        None,
    )?;
    same(
        "deleting it",
        deleted(client, &group)?,
        ErrorCode::NON_EMPTY_GROUP,
    )?;
    let leave = LeaveGroupRequest {
        group_id: group.clone(),
        member_id: member.id,
        ..LeaveGroupRequest::default()
    };
    same(
        "leaving",
        client.ask(2, &leave)?.error_code,
        ErrorCode::NONE,
    )?;
    same(
        "deleting it then",
        deleted(client, &group)?,
        ErrorCode::NONE,
    )?;
    same(
        "and again",
        deleted(client, &group)?,
        ErrorCode::GROUP_ID_NOT_FOUND,
    )
}

fn rebalance(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let mut leader = joined(client, &group)?;
    synced(client, &leader)?;
    // The second member waits until the first one has joined again.
    let mut line = client.connect()?;
    let mut request = join(&group);
    request.member_id = line.ask(9, &request)?.member_id;
    let second = line.say(9, &request)?;
    same(
        "before all have joined",
        line.receive(QUIET),
        Received::Nothing,
    )?;
    let told = ErrorCode::REBALANCE_IN_PROGRESS;
    same(
        "the first one's heartbeat",
        heartbeat(client, &leader)?,
        told,
    )?;
    let again = JoinGroupRequest {
        member_id: leader.id.clone(),
        ..join(&group)
    };
    let first = client.ask(9, &again)?;
    let second = line.answer::<JoinGroupRequest>(9, second, PATIENCE)?;
    for answer in [&first, &second] {
        let got = (answer.error_code, answer.generation_id);
        same("joining", got, (ErrorCode::NONE, 2))?;
        same("the leader", &answer.leader, &leader.id)?;
    }
    let mut members: Vec<&str> = first.members.iter().map(|m| m.member_id.as_str()).collect();
    let mut expected = vec![leader.id.as_str(), request.member_id.as_str()];
    members.sort_unstable();
    expected.sort_unstable();
    same("members, for the leader", members, expected)?;
    same("members, for the other", second.members.len(), 0)?;

    // The second one's sync waits for the leader's.
    leader.generation = 2;
    let other = member(request, &second);
    let mut sync_of_other = sync(&other);
    sync_of_other.assignments.clear();
    let waiting = line.say(5, &sync_of_other)?;
    same(
        "before the leader's sync",
        line.receive(QUIET),
        Received::Nothing,
    )?;
    let mut sync_of_leader = sync(&leader);
    sync_of_leader.assignments.push(SyncGroupRequestAssignment {
        member_id: other.id.clone(),
        assignment: Bytes::from_static(b"the other half"),
    });
    let answer = client.ask(5, &sync_of_leader)?;
    same(
        "the leader's part",
        answer.assignment.as_ref(),
        b"assignment".as_slice(),
    )?;
    let answer = line.answer::<SyncGroupRequest>(5, waiting, PATIENCE)?;
    same("the sync that waited", answer.error_code, ErrorCode::NONE)?;
    let part = answer.assignment;
    same(
        "the other's part",
        part.as_ref(),
        b"the other half".as_slice(),
    )?;
    same("in step", heartbeat(client, &leader)?, ErrorCode::NONE)?;
    same("in step", heartbeat(client, &other)?, ErrorCode::NONE)?;

    let leave = LeaveGroupRequest {
        group_id: group,
        members: vec![MemberIdentity {
            member_id: other.id,
            ..MemberIdentity::default()
        }],
        ..LeaveGroupRequest::default()
    };
    same(
        "leaving",
        client.ask(5, &leave)?.error_code,
        ErrorCode::NONE,
    )?;
    same("the one who stays", heartbeat(client, &leader)?, told)
}

fn silence(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let mut request = JoinGroupRequest {
        session_timeout_ms: 6_000,
        ..join(&group)
    };
    request.member_id = client.ask(9, &request)?.member_id;
    let answer = client.ask(9, &request)?;
    let silent = member(request, &answer);
    synced(client, &silent)?;
    client.broker().pass(Duration::from_secs(4));
    same(
        "within its session",
        heartbeat(client, &silent)?,
        ErrorCode::NONE,
    )?;
    client.broker().pass(Duration::from_secs(8));
    let gone = ErrorCode::UNKNOWN_MEMBER_ID;
    same("after it", heartbeat(client, &silent)?, gone)?;
    let group = only("groups", described(client, 6, &silent.group)?)?;
    same("the group then", group.group_state.as_str(), "Empty")
}
