//! Groups that move between the classic and the consumer protocol with their members (KIP-848): check 72.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::consumer_protocol::{
    Assignment, Subscription, decode_assignment, encode_assignment, encode_subscription,
};
use riverlog_wire::messages::join_group_request::JoinGroupRequestProtocol;
use riverlog_wire::messages::offset_fetch_request::OffsetFetchRequestGroup;
use riverlog_wire::messages::sync_group_request::SyncGroupRequestAssignment;
use riverlog_wire::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatResponse, DescribeGroupsRequest,
    HeartbeatRequest, JoinGroupRequest, OffsetFetchRequest, SyncGroupRequest,
};

use super::Check;
use super::commits::commit;
use super::consumer_groups::{again, beat, hear_of_topics, join};
use super::groups::Member;
use crate::client::{Client, Outcome, Topic, holds, only, same};

pub(super) const CHECKS: &[Check] = &[Check {
    number: "72",
    name: "a-group-moves-between-the-protocols-with-members-of-both",
    run: there_and_back,
}];

/// Heartbeats of everybody, a tenth of a second apart, until the group must have settled: Kafka assigns once a second.
const ROUNDS: usize = 150;

/// A member of the classic protocol that gives up everything before it joins.
struct Classic {
    member: Member,
    topic: String,
    holds: BTreeSet<i32>,
    leads: bool,
}

impl Classic {
    fn request(&self) -> JoinGroupRequest {
        let subscription = Subscription {
            topics: vec![self.topic.clone()],
            generation: -1,
            ..Subscription::default()
        };
        JoinGroupRequest {
            group_id: self.member.group.clone(),
            member_id: self.member.id.clone(),
            session_timeout_ms: 30_000,
            rebalance_timeout_ms: 30_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".to_owned(),
                metadata: encode_subscription(&subscription),
            }],
            ..JoinGroupRequest::default()
        }
    }

    fn join(&mut self, client: &mut Client<'_>) -> Outcome {
        self.holds.clear();
        let mut answer = client.ask(9, &self.request())?;
        if answer.error_code == ErrorCode::MEMBER_ID_REQUIRED {
            self.member.id = answer.member_id;
            answer = client.ask(9, &self.request())?;
        }
        same("a classic join", answer.error_code, ErrorCode::NONE)?;
        same(
            "its protocol",
            answer.protocol_name.as_deref(),
            Some("range"),
        )?;
        self.leads = answer.leader == answer.member_id;
        self.member.id = answer.member_id;
        self.member.generation = answer.generation_id;
        Ok(())
    }

    /// Fetches its assignment, which it makes itself when it leads: all four partitions for itself. `false`: it has to join again.
    fn sync(&mut self, client: &mut Client<'_>) -> Outcome<bool> {
        let all: Assignment = [(self.topic.clone(), vec![0, 1, 2, 3])].into();
        let mine = SyncGroupRequestAssignment {
            member_id: self.member.id.clone(),
            assignment: encode_assignment(&all),
        };
        let request = SyncGroupRequest {
            group_id: self.member.group.clone(),
            generation_id: self.member.generation,
            member_id: self.member.id.clone(),
            group_instance_id: None,
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignments: if self.leads { vec![mine] } else { Vec::new() },
        };
        let answer = client.ask(5, &request)?;
        if answer.error_code == ErrorCode::REBALANCE_IN_PROGRESS {
            return Ok(false);
        }
        same("a classic sync", answer.error_code, ErrorCode::NONE)?;
        let given = decode_assignment(&answer.assignment)
            .map_err(|error| format!("the assignment can't be read: {error:?}"))?;
        self.holds = given.into_values().flatten().collect();
        Ok(true)
    }

    fn heartbeat(&self, client: &mut Client<'_>) -> Outcome<ErrorCode> {
        let request = HeartbeatRequest {
            group_id: self.member.group.clone(),
            generation_id: self.member.generation,
            member_id: self.member.id.clone(),
            group_instance_id: None,
        };
        Ok(client.ask(4, &request)?.error_code)
    }

    /// A heartbeat, and what follows from it.
    fn goes_on(&mut self, client: &mut Client<'_>) -> Outcome {
        match self.heartbeat(client)? {
            ErrorCode::NONE => return Ok(()),
            ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION => {}
            other => same("a classic heartbeat", other, ErrorCode::NONE)?,
        }
        for _ in 0..10 {
            self.join(client)?;
            if self.sync(client)? {
                return Ok(());
            }
        }
        Err("the member joins again and again".to_owned().into())
    }
}

/// A member of the consumer protocol.
struct Newer {
    group: String,
    last: ConsumerGroupHeartbeatResponse,
    holds: Vec<i32>,
}

impl Newer {
    fn goes_on(&mut self, client: &mut Client<'_>, topic: &Topic) -> Outcome {
        let has: &[(&Topic, &[i32])] = match self.holds.is_empty() {
            true => &[],
            false => &[(topic, &self.holds)],
        };
        let answer = beat(client, &again(&self.group, &self.last, has))?;
        same("a newer heartbeat", answer.error_code, ErrorCode::NONE)?;
        if let Some(given) = &answer.assignment {
            let topics = given.topic_partitions.iter();
            self.holds = topics.flat_map(|t| t.partitions.clone()).collect();
        }
        self.last = answer;
        Ok(())
    }
}

fn there_and_back(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(4)?;
    hear_of_topics(client);
    let group = client.group()?;
    let mut classic = Classic {
        member: Member {
            group: group.clone(),
            id: String::new(),
            generation: -1,
            instance: None,
        },
        topic: topic.name.clone(),
        holds: BTreeSet::new(),
        leads: false,
    };
    classic.join(client)?;
    same("the only member leads", classic.leads, true)?;
    same("its sync", classic.sync(client)?, true)?;
    same("it has all", classic.holds.len(), 4)?;

    // Up: both share the partitions.
    let joined = beat(client, &join(&group, "newer-1", &[&topic.name]))?;
    same("a newer member", joined.error_code, ErrorCode::NONE)?;
    same("nothing is free yet", held(&joined).len(), 0)?;
    let mut newer = Newer {
        group: group.clone(),
        last: joined,
        holds: Vec::new(),
    };
    for _ in 0..ROUNDS {
        if classic.holds.len() == 2 && newer.holds.len() == 2 {
            break;
        }
        classic.goes_on(client)?;
        newer.goes_on(client, &topic)?;
        let both = newer.holds.iter().find(|p| classic.holds.contains(*p));
        holds(both.is_none(), || format!("both have {both:?}"))?;
        client.broker().pass(Duration::from_millis(100));
    }
    let shares = (classic.holds.len(), newer.holds.len());
    same("partitions of each", shares, (2, 2))?;
    classic.goes_on(client)?;
    same("nobody leads", classic.leads, false)?;

    let request = ConsumerGroupDescribeRequest {
        group_ids: vec![group.clone()],
        ..ConsumerGroupDescribeRequest::default()
    };
    let described = only("groups", client.ask(1, &request)?.groups)?;
    same("a consumer group", described.error_code, ErrorCode::NONE)?;
    let mut kinds: Vec<i8> = described.members.iter().map(|m| m.member_type).collect();
    kinds.sort_unstable();
    same("kinds of its members", kinds, vec![0, 1])?;
    let request = DescribeGroupsRequest {
        groups: vec![group.clone()],
        ..DescribeGroupsRequest::default()
    };
    let described = only("groups", client.ask(6, &request)?.groups)?;
    let missing = ErrorCode::GROUP_ID_NOT_FOUND;
    same("no classic group", described.error_code, missing)?;

    let stale = ErrorCode::ILLEGAL_GENERATION;
    let mut ahead = classic.member.clone();
    ahead.generation += 7;
    let error = commit(client, 8, &ahead, &topic)?;
    same("a commit of another generation", error, stale)?;
    let error = commit(client, 8, &classic.member, &topic)?;
    same("a classic member's commit", error, ErrorCode::NONE)?;
    let other = JoinGroupRequest {
        protocol_type: "connect".to_owned(),
        ..classic.request()
    };
    let error = client.ask(9, &other)?.error_code;
    let inconsistent = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
    same("another protocol type", error, inconsistent)?;

    // Down: the last newer member leaves, and the classic one leads again.
    let mut leave = again(&group, &newer.last, &[]);
    leave.member_epoch = -1;
    let left = beat(client, &leave)?;
    same("the newer member leaves", left.error_code, ErrorCode::NONE)?;
    for _ in 0..ROUNDS {
        if classic.holds.len() == 4 {
            break;
        }
        classic.goes_on(client)?;
        client.broker().pass(Duration::from_millis(100));
    }
    let end = (classic.leads, classic.holds.len());
    same("it leads and has all", end, (true, 4))?;
    let described = only("groups", client.ask(6, &request)?.groups)?;
    let state = (described.error_code, described.group_state.as_str());
    same("a classic group", state, (ErrorCode::NONE, "Stable"))?;
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group,
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let fetched = only("groups", client.ask(8, &request)?.groups)?;
    let fetched = only("topics", fetched.topics)?;
    let offset = only("partitions", fetched.partitions)?.committed_offset;
    same("what was committed", offset, 7)
}

fn held(answer: &ConsumerGroupHeartbeatResponse) -> Vec<i32> {
    let topics = answer.assignment.iter().flat_map(|a| &a.topic_partitions);
    topics.flat_map(|t| t.partitions.clone()).collect()
}
