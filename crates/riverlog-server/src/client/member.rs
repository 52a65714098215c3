//! One member of a consumer group (the classic protocol; range or cooperative-sticky assignment).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use riverlog_wire::ErrorCode;
use riverlog_wire::consumer_protocol::{
    Assignment, Subscription, decode_assignment, decode_subscription, encode_assignment,
    encode_subscription,
};
use riverlog_wire::messages::join_group_request::JoinGroupRequestProtocol;
use riverlog_wire::messages::leave_group_request::MemberIdentity;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::sync_group_request::SyncGroupRequestAssignment;
use riverlog_wire::messages::{
    ApiKey, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    OffsetCommitRequest, SyncGroupRequest,
};

use super::assignors::{COOPERATIVE, RANGE, assign_cooperative, assign_range};
use super::{Client, RETRY};
use crate::failure::{Exit, Failure};

const SESSION: Duration = Duration::from_secs(45);
const REBALANCE: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(3);

/// Whether the member may go on reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It holds what it was assigned.
    Stable,
    /// It must join again.
    Rejoin,
}

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    group: String,
    topics: Vec<String>,
    id: String,
    generation: i32,
    /// What it was given last, and still has.
    owned: Assignment,
    coordinator: i32,
    last_heartbeat: Instant,
}

impl Member {
    pub(crate) fn new(group: &str, topics: &[String]) -> Member {
        Member {
            group: group.to_owned(),
            topics: topics.to_vec(),
            id: String::new(),
            generation: -1,
            owned: Assignment::new(),
            coordinator: -1,
            last_heartbeat: Instant::now(),
        }
    }

    fn failed(&self, what: &str, code: ErrorCode) -> Failure {
        Failure::kafka(format!("group {:?}: {what}", self.group), code, None)
    }

    /// The group doesn't count it among its members any more: what it had may be others' by now.
    fn lost(&mut self) {
        self.id.clear();
        self.owned.clear();
    }

    /// Joins, and returns what it may read. Waits for other members as long as the group does. Nothing may be read meanwhile, and
    /// what was read must have been committed: by then all may be others'. `asked`: whether the user wants an end of it.
    pub(crate) fn join(
        &mut self,
        client: &mut Client,
        asked: fn() -> bool,
    ) -> Result<Assignment, Failure> {
        let deadline = Instant::now() + REBALANCE + client.settings.timeout;
        loop {
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    Exit::Timeout,
                    format!("group {:?} doesn't settle", self.group),
                )
                .why("members keep coming and going")
                .hint("look at it with `riverlog group members`"));
            }
            if asked() {
                return Err(Failure::silent(Exit::Interrupted));
            }
            self.coordinator = client.coordinator(&self.group)?;
            let subscription = encode_subscription(&Subscription {
                topics: self.topics.clone(),
                owned: self.owned.clone(),
                generation: self.generation,
                rack: None,
            });
            let protocol = |name: &str| JoinGroupRequestProtocol {
                name: name.to_owned(),
                metadata: subscription.clone(),
            };
            let request = JoinGroupRequest {
                group_id: self.group.clone(),
                session_timeout_ms: SESSION.as_millis() as i32,
                rebalance_timeout_ms: REBALANCE.as_millis() as i32,
                member_id: self.id.clone(),
                protocol_type: "consumer".to_owned(),
                protocols: vec![protocol(COOPERATIVE), protocol(RANGE)],
                ..JoinGroupRequest::default()
            };
            let patience = REBALANCE + client.settings.timeout;
            let joined = client
                .node(self.coordinator)?
                .ask_within(&request, patience)?;
            match joined.error_code {
                ErrorCode::NONE => {}
                ErrorCode::MEMBER_ID_REQUIRED => {
                    self.id = joined.member_id;
                    continue;
                }
                ErrorCode::UNKNOWN_MEMBER_ID => {
                    self.lost();
                    continue;
                }
                code if code.retriable() || code == ErrorCode::REBALANCE_IN_PROGRESS => {
                    std::thread::sleep(RETRY);
                    continue;
                }
                ErrorCode::INCONSISTENT_GROUP_PROTOCOL => {
                    return Err(self
                        .failed("it can't be joined", joined.error_code)
                        .hint("its members use another protocol, or neither the assignor range nor cooperative-sticky; use another group"));
                }
                code => return Err(self.failed("it can't be joined", code)),
            }
            self.id.clone_from(&joined.member_id);
            self.generation = joined.generation_id;
            match self.sync(client, &joined)? {
                Some(assignment) => {
                    self.last_heartbeat = Instant::now();
                    let taken = takes_away(&self.owned, &assignment);
                    self.owned = assignment.clone();
                    // What is taken away is free once the group sees that it was given up.
                    if taken && joined.protocol_name.as_deref() == Some(COOPERATIVE) {
                        continue;
                    }
                    return Ok(assignment);
                }
                None => std::thread::sleep(RETRY),
            }
        }
    }

    /// The assignment; `None` when the group has moved on meanwhile.
    fn sync(
        &mut self,
        client: &mut Client,
        joined: &JoinGroupResponse,
    ) -> Result<Option<Assignment>, Failure> {
        let assignments = if joined.leader == self.id && !joined.skip_assignment {
            self.assign(client, joined)?
        } else {
            Vec::new()
        };
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            protocol_type: versioned(client, self.coordinator, ApiKey::SyncGroup, 5, "consumer")?,
            protocol_name: versioned(
                client,
                self.coordinator,
                ApiKey::SyncGroup,
                5,
                joined.protocol_name.as_deref().unwrap_or(RANGE),
            )?,
            assignments,
            ..SyncGroupRequest::default()
        };
        let patience = REBALANCE + client.settings.timeout;
        let synced = client
            .node(self.coordinator)?
            .ask_within(&request, patience)?;
        match synced.error_code {
            ErrorCode::NONE => decode_assignment(&synced.assignment)
                .map(Some)
                .map_err(|error| {
                    Failure::new(
                        Exit::Finding,
                        format!("group {:?}: the assignment can't be read", self.group),
                    )
                    .why(error.to_string())
                }),
            ErrorCode::UNKNOWN_MEMBER_ID => {
                self.lost();
                Ok(None)
            }
            ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION => Ok(None),
            code if code.retriable() => Ok(None),
            code => Err(self.failed("it gives no assignment", code)),
        }
    }

    /// The leader's part: who gets what.
    fn assign(
        &self,
        client: &mut Client,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, Failure> {
        let mut members: BTreeMap<String, Subscription> = BTreeMap::new();
        for member in &joined.members {
            // A member whose subscription can't be read gets nothing; the others still work.
            let subscription = decode_subscription(&member.metadata).unwrap_or_default();
            members.insert(member.member_id.clone(), subscription);
        }
        let mut names: Vec<String> = members.values().flat_map(|s| s.topics.clone()).collect();
        names.sort();
        names.dedup();
        let partitions = client
            .metadata(Some(&names), false)?
            .topics
            .into_iter()
            .filter(|t| t.error_code == ErrorCode::NONE)
            .filter_map(|t| Some((t.name?, i32::try_from(t.partitions.len()).ok()?)))
            .collect();
        let assigned = match joined.protocol_name.as_deref() {
            Some(COOPERATIVE) => assign_cooperative(&members, &partitions),
            _ => {
                let topics = members.into_iter().map(|(id, s)| (id, s.topics)).collect();
                assign_range(&topics, &partitions)
            }
        };
        Ok(assigned
            .into_iter()
            .map(|(member_id, assignment)| SyncGroupRequestAssignment {
                member_id,
                assignment: encode_assignment(&assignment),
            })
            .collect())
    }

    /// Says that it lives, when it is time to.
    pub(crate) fn heartbeat(&mut self, client: &mut Client) -> Result<MemberState, Failure> {
        if self.last_heartbeat.elapsed() < HEARTBEAT {
            return Ok(MemberState::Stable);
        }
        let request = HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            ..HeartbeatRequest::default()
        };
        let response = client.ask_node(self.coordinator, &request)?;
        self.last_heartbeat = Instant::now();
        self.judge(response.error_code, "it doesn't take heartbeats")
    }

    fn judge(&mut self, code: ErrorCode, what: &str) -> Result<MemberState, Failure> {
        match code {
            ErrorCode::NONE => Ok(MemberState::Stable),
            ErrorCode::UNKNOWN_MEMBER_ID => {
                self.lost();
                Ok(MemberState::Rejoin)
            }
            ErrorCode::ILLEGAL_GENERATION => {
                self.owned.clear();
                Ok(MemberState::Rejoin)
            }
            ErrorCode::REBALANCE_IN_PROGRESS => Ok(MemberState::Rejoin),
            code if code.retriable() => Ok(MemberState::Rejoin),
            code => Err(self.failed(what, code)),
        }
    }

    /// Commits where to go on: the next offset of each partition.
    pub(crate) fn commit(
        &mut self,
        client: &mut Client,
        offsets: &BTreeMap<(String, i32), i64>,
    ) -> Result<MemberState, Failure> {
        if offsets.is_empty() {
            return Ok(MemberState::Stable);
        }
        let request = commit_request(&self.group, self.generation, &self.id, offsets);
        let response = client.ask_node(self.coordinator, &request)?;
        let code = response
            .topics
            .iter()
            .flat_map(|t| &t.partitions)
            .map(|p| p.error_code)
            .find(|c| *c != ErrorCode::NONE)
            .unwrap_or(ErrorCode::NONE);
        self.judge(code, "offsets can't be committed")
    }

    /// Leaves, so that others get its partitions at once.
    pub(crate) fn leave(&self, client: &mut Client) -> Result<(), Failure> {
        if self.id.is_empty() || self.coordinator < 0 {
            return Ok(());
        }
        let link = client.node(self.coordinator)?;
        let many = link.version(ApiKey::LeaveGroup)? >= 3;
        let request = LeaveGroupRequest {
            group_id: self.group.clone(),
            member_id: if many { String::new() } else { self.id.clone() },
            members: if many {
                vec![MemberIdentity {
                    member_id: self.id.clone(),
                    ..MemberIdentity::default()
                }]
            } else {
                Vec::new()
            },
        };
        link.ask(&request).map(|_| ())
    }
}

/// Whether somebody who had one and gets the other misses something.
fn takes_away(had: &Assignment, gets: &Assignment) -> bool {
    had.iter().any(|(topic, partitions)| {
        let now = gets.get(topic).map_or(&[][..], Vec::as_slice);
        partitions.iter().any(|p| !now.contains(p))
    })
}

/// A field that a request has from a version on.
fn versioned(
    client: &mut Client,
    node: i32,
    key: ApiKey,
    from: i16,
    value: &str,
) -> Result<Option<String>, Failure> {
    Ok((client.node(node)?.version(key)? >= from).then(|| value.to_owned()))
}

/// A commit of the next offsets to read. Generation −1 and no member: from outside of the group.
pub(crate) fn commit_request(
    group: &str,
    generation: i32,
    member: &str,
    offsets: &BTreeMap<(String, i32), i64>,
) -> OffsetCommitRequest {
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for ((topic, partition), offset) in offsets {
        topics
            .entry(topic)
            .or_default()
            .push(OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: *offset,
                committed_leader_epoch: -1,
                committed_metadata: Some(String::new()),
            });
    }
    OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: generation,
        member_id: member.to_owned(),
        topics: topics
            .into_iter()
            .map(|(name, partitions)| OffsetCommitRequestTopic {
                name: name.to_owned(),
                partitions,
                ..OffsetCommitRequestTopic::default()
            })
            .collect(),
        ..OffsetCommitRequest::default()
    }
}
