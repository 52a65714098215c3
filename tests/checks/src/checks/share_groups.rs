//! Share groups (KIP-932): checks 73, 74 and 78, and what administrators ask of them.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use riverlog_wire::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use riverlog_wire::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use riverlog_wire::messages::describe_share_group_offsets_response::DescribeShareGroupOffsetsResponsePartition;
use riverlog_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use riverlog_wire::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use riverlog_wire::messages::share_fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::share_fetch_response::PartitionData;
use riverlog_wire::messages::{
    AlterShareGroupOffsetsRequest, DeleteGroupsRequest, DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest, FindCoordinatorRequest, IncrementalAlterConfigsRequest,
    ListGroupsRequest, ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
};

use super::{Check, produce};
use crate::client::{Client, Failure, Line, Outcome, Topic, holds, only, same};
use crate::records::numbered;

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "73",
        name: "records-are-acknowledged-one-by-one-and-deliveries-counted",
        run: acknowledge,
    },
    Check {
        number: "74",
        name: "locks-that-run-out-and-sessions-that-end-give-records-back",
        run: give_back,
    },
    Check {
        number: "78",
        name: "coordinators-of-share-groups-are-found-by-a-sound-key",
        run: find,
    },
    Check {
        number: "r-4",
        name: "share-groups-are-listed-described-reset-and-deleted",
        run: administer,
    },
];

const GROUP: i8 = 32;
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const RENEW: i8 = 4;
/// Longer than the shortest lock that Kafka lets a group have.
const LOCK: Duration = Duration::from_millis(15_000);

/// A member, which has a connection of its own, as its session belongs to it.
struct Member {
    line: Line,
    id: String,
    group: String,
    topic: Topic,
    /// Of its next request.
    epoch: i32,
}

impl Member {
    /// Ids are 16 bytes in base64.
    fn join(client: &mut Client<'_>, group: &str, topic: &Topic, number: u8) -> Outcome<Member> {
        let id = format!("c2hhcmUtbWVtYmVyLTAw{}A", char::from(b'A' + number));
        let mut member = Member {
            line: client.connect()?,
            id,
            group: group.to_owned(),
            topic: topic.clone(),
            epoch: 0,
        };
        let mut request = ShareGroupHeartbeatRequest {
            group_id: member.group.clone(),
            member_id: member.id.clone(),
            member_epoch: 0,
            subscribed_topic_names: Some(vec![topic.name.clone()]),
            ..ShareGroupHeartbeatRequest::default()
        };
        for _ in 0..100 {
            let answer = member.line.ask(1, &request)?;
            if answer.error_code == ErrorCode::NONE {
                let assigned = answer.assignment.iter().flat_map(|a| &a.topic_partitions);
                if assigned.flat_map(|t| &t.partitions).next().is_some() {
                    return Ok(member);
                }
                request.member_epoch = answer.member_epoch;
            }
            // Kafka's assignment comes with a later heartbeat.
            client.broker().pass(Duration::from_millis(200));
        }
        Err("no partition was assigned in 20 s".to_owned().into())
    }

    fn leave(&mut self) -> Outcome {
        let request = ShareGroupHeartbeatRequest {
            group_id: self.group.clone(),
            member_id: self.id.clone(),
            member_epoch: -1,
            ..ShareGroupHeartbeatRequest::default()
        };
        let answer = self.line.ask(1, &request)?;
        same("leaving", answer.error_code, ErrorCode::NONE)
    }

    fn request(&self) -> ShareFetchRequest {
        ShareFetchRequest {
            group_id: Some(self.group.clone()),
            member_id: Some(self.id.clone()),
            share_session_epoch: self.epoch,
            max_wait_ms: 300,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics: vec![FetchTopic {
                topic_id: self.topic.id,
                partitions: vec![FetchPartition::default()],
            }],
            ..ShareFetchRequest::default()
        }
    }

    /// One fetch, and what it acquired of partition 0.
    fn fetch(&mut self) -> Outcome<Vec<(i64, i64, i16)>> {
        let request = self.request();
        let answer = self.line.ask(2, &request)?;
        same("a share fetch", answer.error_code, ErrorCode::NONE)?;
        self.epoch += 1;
        let partitions = answer.responses.into_iter().flat_map(|t| t.partitions);
        let mut acquired = Vec::new();
        for partition in partitions {
            acquired.extend(self.acquired(partition)?);
        }
        Ok(acquired)
    }

    fn acquired(&self, partition: PartitionData) -> Outcome<Vec<(i64, i64, i16)>> {
        same("partition", partition.partition_index, 0)?;
        same("its error", partition.error_code, ErrorCode::NONE)?;
        let ranges = partition.acquired_records.iter();
        Ok(ranges
            .map(|r| (r.first_offset, r.last_offset, r.delivery_count))
            .collect())
    }

    /// Fetches until something is acquired.
    fn acquire(&mut self, client: &mut Client<'_>) -> Outcome<Vec<(i64, i64, i16)>> {
        for _ in 0..100 {
            let acquired = self.fetch()?;
            if !acquired.is_empty() {
                return Ok(acquired);
            }
            client.broker().pass(Duration::from_millis(100));
        }
        Err("nothing was acquired in 100 fetches".to_owned().into())
    }

    fn say(&mut self, first: i64, last: i64, kind: i8, renews: bool) -> Outcome<ErrorCode> {
        let request = ShareAcknowledgeRequest {
            group_id: Some(self.group.clone()),
            member_id: Some(self.id.clone()),
            share_session_epoch: self.epoch,
            is_renew_ack: renews,
            topics: vec![AcknowledgeTopic {
                topic_id: self.topic.id,
                partitions: vec![AcknowledgePartition {
                    partition_index: 0,
                    acknowledgement_batches: vec![AcknowledgementBatch {
                        first_offset: first,
                        last_offset: last,
                        acknowledge_types: vec![kind],
                    }],
                }],
            }],
        };
        let answer = self.line.ask(2, &request)?;
        same("a share acknowledge", answer.error_code, ErrorCode::NONE)?;
        self.epoch += 1;
        let topic = only("topics", answer.responses)?;
        Ok(only("partitions", topic.partitions)?.error_code)
    }

    /// Ends the session.
    fn close(&mut self) -> Outcome {
        let request = ShareAcknowledgeRequest {
            group_id: Some(self.group.clone()),
            member_id: Some(self.id.clone()),
            share_session_epoch: -1,
            ..ShareAcknowledgeRequest::default()
        };
        let answer = self.line.ask(2, &request)?;
        self.epoch = 0;
        same("the end of a session", answer.error_code, ErrorCode::NONE)
    }
}

/// Sets configs of a group.
fn configure(client: &mut Client<'_>, group: &str, configs: &[(&str, &str)]) -> Outcome {
    let configs = configs.iter().map(|(name, value)| AlterableConfig {
        name: (*name).to_owned(),
        config_operation: 0,
        value: Some((*value).to_owned()),
    });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: GROUP,
            resource_name: group.to_owned(),
            configs: configs.collect(),
        }],
        validate_only: false,
    };
    let result = only("resources", client.ask(1, &request)?.responses)?;
    same("configs of a group", result.error_code, ErrorCode::NONE)
}

/// A group that begins with the first record of a topic of so many.
fn set_out(client: &mut Client<'_>, records: i32) -> Outcome<(String, Topic)> {
    let topic = client.topic(1)?;
    let group = client.group()?;
    configure(client, &group, &[("share.auto.offset.reset", "earliest")])?;
    let now = client.broker().wall_ms();
    produce::stored(client, 12, &topic, numbered(now, records))?;
    Ok((group, topic))
}

fn acknowledge(client: &mut Client<'_>) -> Outcome {
    let (group, topic) = set_out(client, 4)?;
    let mut member = Member::join(client, &group, &topic, 0)?;
    let refused = |member: &mut Member, epoch: i32, error| {
        let mut request = member.request();
        request.share_session_epoch = epoch;
        let answer = member.line.ask(2, &request)?;
        same("a wrong epoch", answer.error_code, error)
    };
    refused(&mut member, 3, ErrorCode::SHARE_SESSION_NOT_FOUND)?;
    let acquired = member.acquire(client)?;
    same("what is acquired", acquired, vec![(0, 3, 1)])?;
    let ahead = member.epoch + 7;
    refused(&mut member, ahead, ErrorCode::INVALID_SHARE_SESSION_EPOCH)?;

    let said = member.say(0, 0, 9, false)?;
    same("acknowledge type 9", said, ErrorCode::INVALID_REQUEST)?;
    let said = member.say(0, 0, RENEW, false)?;
    same("renewing unannounced", said, ErrorCode::INVALID_REQUEST)?;
    let said = member.say(0, 0, RENEW, true)?;
    same("renewing", said, ErrorCode::NONE)?;
    let said = member.say(17, 19, ACCEPT, false)?;
    let unknown = ErrorCode::INVALID_REQUEST;
    same("what was never acquired", said, unknown)?;
    let said = member.say(3, 3, ACCEPT, false)?;
    same("accepting", said, ErrorCode::NONE)?;
    let said = member.say(3, 3, ACCEPT, false)?;
    let unacquired = ErrorCode::INVALID_RECORD_STATE;
    same("what isn't acquired any more", said, unacquired)?;
    for count in 2..=5 {
        let said = member.say(1, 2, RELEASE, false)?;
        same("releasing", said, ErrorCode::NONE)?;
        let mut acquired = member.acquire(client)?;
        // Kafka gives out the last time one by one.
        if acquired == [(1, 1, count)] {
            acquired.extend(member.acquire(client)?);
        }
        let records = acquired.iter().map(|(first, last, _)| last - first + 1);
        same("records that come again", records.sum(), 2)?;
        let as_often = acquired.iter().all(|(.., deliveries)| *deliveries == count);
        holds(as_often, || {
            format!("{acquired:?} after {count} deliveries")
        })?;
    }
    let said = member.say(0, 0, ACCEPT, false)?;
    same("accepting", said, ErrorCode::NONE)?;
    let said = member.say(0, 0, ACCEPT, false)?;
    same("accepting what is done", said, ErrorCode::NONE)?;
    let said = member.say(1, 2, RELEASE, false)?;
    same("releasing for the fifth time", said, ErrorCode::NONE)?;
    same("what is left", member.fetch()?, vec![])?;
    let request = AlterShareGroupOffsetsRequest {
        group_id: group,
        topics: Vec::new(),
    };
    let answer = client.ask(0, &request)?;
    let busy = ErrorCode::NON_EMPTY_GROUP;
    same("resetting a group in use", answer.error_code, busy)
}

fn give_back(client: &mut Client<'_>) -> Outcome {
    let (group, topic) = set_out(client, 2)?;
    let lock = LOCK.as_millis().to_string();
    configure(client, &group, &[("share.record.lock.duration.ms", &lock)])?;
    let mut first = Member::join(client, &group, &topic, 0)?;
    let mut second = Member::join(client, &group, &topic, 1)?;
    let acquired = first.acquire(client)?;
    same("what is acquired", acquired, vec![(0, 1, 1)])?;
    same("what is left", second.fetch()?, vec![])?;
    client.broker().pass(LOCK + Duration::from_secs(2));
    let acquired = second.acquire(client)?;
    same("what ran out", acquired, vec![(0, 1, 2)])?;
    let late = first.say(0, 1, ACCEPT, false)?;
    let lost = ErrorCode::INVALID_RECORD_STATE;
    same("accepting too late", late, lost)?;
    second.close()?;
    let acquired = first.acquire(client)?;
    same("what was held", acquired, vec![(0, 1, 3)])?;
    let said = first.say(0, 1, ACCEPT, false)?;
    same("accepting", said, ErrorCode::NONE)
}

fn coordinator(
    client: &mut Client<'_>,
    version: i16,
    key_type: i8,
    key: &str,
) -> Outcome<ErrorCode> {
    let request = FindCoordinatorRequest {
        key_type,
        coordinator_keys: vec![key.to_owned()],
        ..FindCoordinatorRequest::default()
    };
    let answer = client.ask(version, &request)?;
    Ok(only("coordinators", answer.coordinators)?.error_code)
}

fn find(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let group = client.name();
    let key = format!("{group}:{}:0", topic.id);
    let invalid = ErrorCode::INVALID_REQUEST;
    same("key type 3", coordinator(client, 6, 3, &group)?, invalid)?;
    let early = coordinator(client, 5, 2, &key)?;
    same("a share key in v5", early, invalid)?;
    for bad in [group.clone(), format!("{group}:x:0")] {
        let found = coordinator(client, 6, 2, &bad)?;
        same("a share key that is none", found, invalid)?;
    }
    let mut found = ErrorCode::COORDINATOR_NOT_AVAILABLE;
    for _ in 0..100 {
        found = coordinator(client, 6, 2, &key)?;
        if found != ErrorCode::COORDINATOR_NOT_AVAILABLE {
            break;
        }
        client.broker().pass(Duration::from_millis(100));
    }
    same("a share key", found, ErrorCode::NONE)
}

fn offsets(
    client: &mut Client<'_>,
    group: &str,
) -> Outcome<Vec<DescribeShareGroupOffsetsResponsePartition>> {
    let request = DescribeShareGroupOffsetsRequest {
        groups: vec![DescribeShareGroupOffsetsRequestGroup {
            group_id: group.to_owned(),
            topics: None,
        }],
    };
    let answer = only("groups", client.ask(1, &request)?.groups)?;
    same("offsets of a group", answer.error_code, ErrorCode::NONE)?;
    let topics = answer.topics.into_iter();
    Ok(topics.flat_map(|t| t.partitions).collect())
}

/// Asks for the offset of the only partition until it is as expected: Kafka may keep what was done a moment later.
fn begins_at(client: &mut Client<'_>, group: &str, start: i64, lag: i64) -> Outcome {
    let mut got = (-2, -2);
    for _ in 0..50 {
        let partition = only("partitions", offsets(client, group)?)?;
        same("its error", partition.error_code, ErrorCode::NONE)?;
        got = (partition.start_offset, partition.lag);
        if got == (start, lag) {
            return Ok(());
        }
        client.broker().pass(Duration::from_millis(100));
    }
    same("start and lag", got, (start, lag))
}

fn administer(client: &mut Client<'_>) -> Outcome {
    let (group, topic) = set_out(client, 5)?;
    let mut member = Member::join(client, &group, &topic, 0)?;
    let acquired = member.acquire(client)?;
    same("what is acquired", acquired, vec![(0, 4, 1)])?;
    for (first, last) in [(0, 1), (3, 3)] {
        let said = member.say(first, last, ACCEPT, false)?;
        same("accepting", said, ErrorCode::NONE)?;
    }
    begins_at(client, &group, 2, 2)?;

    let request = ListGroupsRequest {
        types_filter: vec!["share".to_owned()],
        ..ListGroupsRequest::default()
    };
    let listed = client.ask(5, &request)?.groups;
    let listed = listed.into_iter().find(|g| g.group_id == group);
    let listed = listed.ok_or_else(|| Failure::Wrong("the group isn't listed".to_owned()))?;
    let said = (listed.group_type.as_str(), listed.protocol_type.as_str());
    same("its types", said, ("share", "share"))?;
    let request = ShareGroupDescribeRequest {
        group_ids: vec![group.clone(), "nobody".to_owned()],
        include_authorized_operations: false,
    };
    // Kafka has its own order.
    let described = client.ask(1, &request)?.groups.into_iter();
    let (mut one, mut other): (Vec<_>, Vec<_>) = described.partition(|g| g.group_id == group);
    let one = one.pop().unwrap_or_default();
    let state = (one.group_state.as_str(), one.assignor_name.as_str());
    same("state and assignor", state, ("Stable", "simple"))?;
    let of = only("members", one.members)?;
    same("the member", of.member_id, member.id.clone())?;
    let assigned = only("topics", of.assignment.topic_partitions)?;
    same("what it reads", assigned.partitions, vec![0])?;
    let missing = other.pop().unwrap_or_default().error_code;
    same("a ghost", missing, ErrorCode::GROUP_ID_NOT_FOUND)?;

    let delete = DeleteGroupsRequest {
        groups_names: vec![group.clone()],
    };
    let deleted = only("groups", client.ask(2, &delete)?.results)?;
    let busy = ErrorCode::NON_EMPTY_GROUP;
    same("deleting a group in use", deleted.error_code, busy)?;
    member.close()?;
    member.leave()?;

    let request = AlterShareGroupOffsetsRequest {
        group_id: group.clone(),
        topics: vec![AlterShareGroupOffsetsRequestTopic {
            topic_name: topic.name.clone(),
            partitions: vec![AlterShareGroupOffsetsRequestPartition {
                partition_index: 0,
                start_offset: 1,
            }],
        }],
    };
    let answer = client.ask(0, &request)?;
    same("resetting", answer.error_code, ErrorCode::NONE)?;
    let result = only("topics", answer.responses)?;
    let result = only("partitions", result.partitions)?;
    same("its partition", result.error_code, ErrorCode::NONE)?;
    begins_at(client, &group, 1, 4)?;

    let request = DeleteShareGroupOffsetsRequest {
        group_id: group.clone(),
        topics: vec![DeleteShareGroupOffsetsRequestTopic {
            topic_name: topic.name.clone(),
        }],
    };
    let answer = client.ask(0, &request)?;
    same("forgetting", answer.error_code, ErrorCode::NONE)?;
    let result = only("topics", answer.responses)?;
    same("its topic", result.error_code, ErrorCode::NONE)?;
    let left = offsets(client, &group)?;
    holds(left.is_empty(), || format!("{left:?} is left"))?;
    let deleted = only("groups", client.ask(2, &delete)?.results)?;
    same("deleting", deleted.error_code, ErrorCode::NONE)
}
