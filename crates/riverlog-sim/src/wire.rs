//! Clients that speak Kafka's protocol: what they ask goes as a frame through a session of the door, and what comes back is a frame
//! again. The answers are those that the node gives without a door, so that the invariants are the same.
//!
//! Each request has a connection of its own. A connection that the door ends is heard of as NETWORK_EXCEPTION, which tells nothing
//! of what became of the request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use riverlog_api::kafka::{KafkaDoor, KafkaSettings, Part, Peer, Responses, Session};
use riverlog_core::Now;
use riverlog_core::groups::{
    CommittedOffset, ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, TopicPartition,
};
use riverlog_log::{Slice, Slices};
use riverlog_node::{
    AppendAnswer, AppendCommand, AppendFailure, CommittedAnswer, FetchAnswer, FetchCommand,
    FetchedPartition, Isolation, Node, Reply,
};
use riverlog_wire::batch::batches;
use riverlog_wire::frame::{ResponseHeader, encode_request, split_frame};
use riverlog_wire::messages::consumer_group_heartbeat_request::{
    ConsumerGroupHeartbeatRequest, TopicPartitions,
};
use riverlog_wire::messages::delete_records_request::*;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use riverlog_wire::messages::fetch_response::PartitionData;
use riverlog_wire::messages::init_producer_id_request::InitProducerIdRequest;
use riverlog_wire::messages::offset_commit_request::*;
use riverlog_wire::messages::offset_fetch_request::*;
use riverlog_wire::messages::produce_request::*;
use riverlog_wire::messages::{Request, Response};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::model::Place;
use crate::swarm::Swarm;

const LOST: ErrorCode = ErrorCode::NETWORK_EXCEPTION;

/// The door of a node.
pub(crate) fn door(node: &Arc<Node>) -> Arc<KafkaDoor> {
    let settings = KafkaSettings {
        auto_create_topics: false,
        ..KafkaSettings::default()
    };
    KafkaDoor::new(Arc::clone(node), settings)
}

/// The end of a connection at which the answer is waited for.
struct Waiting<A> {
    responses: Responses,
    received: BytesMut,
    answer: A,
}

/// Sends `request` over a connection of its own. `answer` gets the response; `None`: the door has ended the connection.
fn call<R: Request + 'static>(
    door: &Arc<KafkaDoor>,
    version: i16,
    request: &R,
    now: Now,
    answer: impl FnOnce(Option<R::Response>) + Send + 'static,
) {
    let mut frame = Vec::new();
    encode_request(&mut frame, version, 7, Some("sim"), request)
        .expect("what a client asks can be written");
    let waiting: Arc<Mutex<Option<Waiting<_>>>> = Arc::default();
    let woken = Arc::clone(&waiting);
    let peer = Peer {
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000),
    };
    let mut session = Session::new(Arc::clone(door), peer, move || {
        look::<R, _>(version, &woken);
    });
    *waiting.lock() = Some(Waiting {
        responses: session.responses(),
        received: BytesMut::new(),
        answer,
    });
    let mut received = BytesMut::from(&frame[..]);
    let frame = split_frame(&mut received, usize::MAX);
    let frame = frame.expect("our own length").expect("our own frame");
    if session.on_frame(&frame, now).is_err()
        && let Some(waiting) = waiting.lock().take()
    {
        (waiting.answer)(None);
    }
}

/// Takes what has come on a connection; answers once it is a whole frame.
fn look<R: Request, A: FnOnce(Option<R::Response>)>(
    version: i16,
    waiting: &Mutex<Option<Waiting<A>>>,
) {
    let mut slot = waiting.lock();
    let Some(there) = slot.as_mut() else {
        return;
    };
    let mut parts = Vec::new();
    let open = there.responses.take(&mut parts).is_ok();
    let read = parts.iter().all(|part| receive(part, &mut there.received));
    let frame = split_frame(&mut there.received, usize::MAX).expect("the door's own length");
    // A disk that fails while an answer is read from it ends the connection too.
    if frame.is_none() && open && read {
        return;
    }
    let Some(waiting) = slot.take() else {
        return;
    };
    drop(slot);
    (waiting.answer)(frame.filter(|_| read).map(|frame| {
        let mut reader = Reader::shared(&frame);
        ResponseHeader::decode(&mut reader, R::KEY, version).expect("the header of a response");
        R::Response::decode(&mut reader, version).expect("a response of the version asked for")
    }));
}

fn receive(part: &Part, into: &mut BytesMut) -> bool {
    match part {
        Part::Bytes(bytes) | Part::Records(Slice::Memory(bytes)) => into.extend_from_slice(bytes),
        Part::Records(Slice::File { file, at, len }) => {
            let from = into.len();
            into.resize(from + len, 0);
            if !file
                .read_at(&mut into[from..], *at)
                .is_ok_and(|n| n == *len)
            {
                return false;
            }
        }
    }
    true
}

fn name_of(swarm: &Swarm, place: Place) -> String {
    swarm
        .topics
        .get(place.0)
        .map_or_else(String::new, |t| t.name.clone())
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// Produce: one batch to one partition.
pub(crate) fn append(
    door: &Arc<KafkaDoor>,
    topic: String,
    partition: i32,
    command: AppendCommand,
    now: Now,
    reply: Reply<Result<AppendAnswer, AppendFailure>>,
) {
    let request = ProduceRequest {
        transactional_id: None,
        acks: command.acks,
        timeout_ms: millis(command.timeout),
        topic_data: vec![TopicProduceData {
            name: topic,
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Bytes::from(command.batch)),
            }],
            ..TopicProduceData::default()
        }],
    };
    call(door, 9, &request, now, move |response| {
        let failed = |error, message| {
            Err(AppendFailure {
                error,
                message,
                records: Vec::new(),
                retry_after: None,
            })
        };
        let topics = response.into_iter().flat_map(|r| r.responses);
        let part = topics.flat_map(|t| t.partition_responses).next();
        reply.send(match part {
            None => failed(LOST, String::new()),
            Some(part) if part.error_code != ErrorCode::NONE => {
                failed(part.error_code, part.error_message.unwrap_or_default())
            }
            Some(part) => Ok(AppendAnswer {
                base_offset: Offset(part.base_offset),
                log_append_time_ms: part.log_append_time_ms,
                log_start_offset: Offset(part.log_start_offset),
                // The protocol doesn't say; that the offset is the same as before is looked at anyway.
                duplicate: true,
            }),
        });
    });
}

/// Fetch of one partition, without a fetch session.
pub(crate) fn fetch_request(swarm: &Swarm, place: Place, command: &FetchCommand) -> FetchRequest {
    let from = command.partitions.first().map_or(Offset::ZERO, |p| p.from);
    FetchRequest {
        max_wait_ms: millis(command.max_wait),
        min_bytes: command.min_bytes as i32,
        max_bytes: command.max_bytes as i32,
        isolation_level: i8::from(command.isolation == Isolation::ReadCommitted),
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: name_of(swarm, place),
            partitions: vec![FetchPartition {
                partition: place.1,
                fetch_offset: from.0,
                partition_max_bytes: command.max_bytes as i32,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

/// Sends such a request.
pub(crate) fn fetch(
    door: &Arc<KafkaDoor>,
    request: &FetchRequest,
    now: Now,
    reply: Reply<FetchAnswer>,
) {
    let topics = request.topics.iter().flat_map(|t| &t.partitions);
    let asked = topics
        .map(|p| Offset(p.fetch_offset))
        .next()
        .unwrap_or_default();
    call(door, 12, request, now, move |response| {
        let topics = response.into_iter().flat_map(|r| r.responses);
        let parts = topics.flat_map(|t| t.partitions);
        let partitions = parts.map(|part| fetched(part, asked)).collect();
        reply.send(FetchAnswer { partitions });
    });
}

fn fetched(part: PartitionData, asked: Offset) -> FetchedPartition {
    let bytes = part.records.unwrap_or_default();
    let last = batches(&bytes).map_while(Result::ok).last();
    let aborted = part.aborted_transactions.unwrap_or_default();
    FetchedPartition {
        error: part.error_code,
        high_watermark: Offset(part.high_watermark),
        last_stable_offset: Offset(part.last_stable_offset),
        log_start_offset: Offset(part.log_start_offset),
        records: Slices {
            len: bytes.len(),
            next: last.map_or(asked, |batch| batch.header.next_offset()),
            parts: vec![Slice::Memory(bytes)],
        },
        aborted: aborted
            .iter()
            .map(|a| (a.producer_id, Offset(a.first_offset)))
            .collect(),
        diverging_epoch: None,
        preferred: None,
    }
}

/// InitProducerId without a transactional id.
pub(crate) fn init_producer(
    door: &Arc<KafkaDoor>,
    now: Now,
    reply: Reply<Result<(ProducerId, ProducerEpoch), ErrorCode>>,
) {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..InitProducerIdRequest::default()
    };
    call(door, 4, &request, now, move |response| {
        reply.send(match response {
            Some(r) if r.error_code == ErrorCode::NONE => {
                Ok((ProducerId(r.producer_id), ProducerEpoch(r.producer_epoch)))
            }
            Some(r) => Err(r.error_code),
            None => Err(LOST),
        });
    });
}

/// ConsumerGroupHeartbeat.
pub(crate) fn heartbeat(
    door: &Arc<KafkaDoor>,
    command: ConsumerHeartbeat,
    now: Now,
    reply: Reply<GroupAnswer>,
) {
    let owned = command.owned.map(|owned| {
        let each = owned
            .into_iter()
            .map(|(topic_id, partitions)| TopicPartitions {
                topic_id,
                partitions,
            });
        each.collect()
    });
    let member = command.member;
    let request = ConsumerGroupHeartbeatRequest {
        group_id: command.group,
        member_id: member.clone(),
        instance_id: command.instance,
        member_epoch: command.member_epoch,
        rebalance_timeout_ms: command.rebalance_timeout.map_or(-1, millis),
        subscribed_topic_names: command.subscribed_topics,
        subscribed_topic_regex: command.subscribed_pattern,
        topic_partitions: owned,
        ..ConsumerGroupHeartbeatRequest::default()
    };
    call(door, 1, &request, now, move |response| {
        let answer = match response {
            Some(r) => ConsumerHeartbeatAnswer {
                error: r.error_code,
                message: r.error_message,
                member: r.member_id.unwrap_or_default(),
                member_epoch: r.member_epoch,
                heartbeat_interval: Duration::from_millis(r.heartbeat_interval_ms.max(0) as u64),
                assignment: r.assignment.map(|assignment| {
                    let each = assignment.topic_partitions.into_iter();
                    each.map(|t| (t.topic_id, t.partitions)).collect()
                }),
            },
            None => ConsumerHeartbeatAnswer {
                error: LOST,
                message: None,
                member,
                member_epoch: 0,
                heartbeat_interval: Duration::ZERO,
                assignment: None,
            },
        };
        reply.send(GroupAnswer::ConsumerHeartbeat(answer));
    });
}

/// OffsetCommit of one partition.
pub(crate) fn commit(
    door: &Arc<KafkaDoor>,
    (group, member, epoch): (String, String, i32),
    at: TopicPartition,
    offset: Offset,
    now: Now,
    reply: Reply<GroupAnswer>,
) {
    let request = OffsetCommitRequest {
        group_id: group,
        generation_id_or_member_epoch: epoch,
        member_id: member,
        topics: vec![OffsetCommitRequestTopic {
            name: at.topic,
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: at.partition,
                committed_offset: offset.0,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    call(door, 9, &request, now, move |response| {
        let answer = match response {
            Some(r) => {
                let each = r.topics.into_iter().flat_map(|t| t.partitions);
                let codes = each.map(|p| p.error_code).collect();
                GroupAnswer::Partitions(ErrorCode::NONE, codes)
            }
            None => GroupAnswer::Partitions(LOST, Vec::new()),
        };
        reply.send(answer);
    });
}

/// OffsetFetch of these partitions of a group.
pub(crate) fn committed(
    door: &Arc<KafkaDoor>,
    group: &str,
    asked: Vec<TopicPartition>,
    now: Now,
    reply: Reply<CommittedAnswer>,
) {
    let topics = asked.iter().map(|at| OffsetFetchRequestTopics {
        name: at.topic.clone(),
        partition_indexes: vec![at.partition],
        ..OffsetFetchRequestTopics::default()
    });
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            topics: Some(topics.collect()),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    call(door, 9, &request, now, move |response| {
        let Some(group) = response.and_then(|r| r.groups.into_iter().next()) else {
            return reply.send(Err(LOST));
        };
        if group.error_code != ErrorCode::NONE {
            return reply.send(Err(group.error_code));
        }
        let found: Vec<_> = group
            .topics
            .iter()
            .flat_map(|t| t.partitions.iter().map(|p| (t.name.as_str(), p)))
            .collect();
        let mut out = Vec::new();
        for at in asked {
            let there = found
                .iter()
                .find(|(name, p)| *name == at.topic && p.partition_index == at.partition);
            let Some((_, part)) = there else {
                return reply.send(Err(ErrorCode::UNKNOWN_SERVER_ERROR));
            };
            if part.error_code != ErrorCode::NONE {
                return reply.send(Err(part.error_code));
            }
            let committed = (part.committed_offset >= 0).then(|| CommittedOffset {
                offset: Offset(part.committed_offset),
                leader_epoch: LeaderEpoch(part.committed_leader_epoch),
                metadata: part.metadata.clone().unwrap_or_default(),
                commit_timestamp: -1,
                expire_timestamp: None,
            });
            out.push((at, committed));
        }
        reply.send(Ok(out));
    });
}

/// DeleteRecords of one partition.
pub(crate) fn delete_records(
    door: &Arc<KafkaDoor>,
    topic: String,
    partition: i32,
    before: Offset,
    now: Now,
    reply: Reply<Result<Offset, ErrorCode>>,
) {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic,
            partitions: vec![DeleteRecordsPartition {
                partition_index: partition,
                offset: before.0,
            }],
        }],
        timeout_ms: 5_000,
    };
    call(door, 2, &request, now, move |response| {
        let topics = response.into_iter().flat_map(|r| r.topics);
        let part = topics.flat_map(|t| t.partitions).next();
        reply.send(match part {
            Some(p) if p.error_code == ErrorCode::NONE => Ok(Offset(p.low_watermark)),
            Some(p) => Err(p.error_code),
            None => Err(LOST),
        });
    });
}
