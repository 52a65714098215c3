//! Fetch v4–v18 (KIP-74, 98, 227, 320, 392, 516, 951). Records go from the cache or the file to the socket as they are stored. Copies
//! that follow serve readers too, and leaders send readers to them by their rack. Reads by Kafka's own followers are refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverlog_core::metadata::TopicRef;
use riverlog_node::{
    FetchAnswer, FetchCommand, FetchPartition, FetchedPartition, Isolation, Reply, Slices,
};
use riverlog_wire::messages::fetch_layout::fetch_response;
use riverlog_wire::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use riverlog_wire::messages::{FetchRequest, FetchResponse};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use super::{leaders, millis};
use crate::kafka::context::{Context, LONGEST_FETCH_WAIT};
use crate::kafka::door::KafkaDoor;
use crate::kafka::fetch_sessions::{Ask, Place, Plan, Read, Shown, Wish};
use crate::kafka::responder::{Close, Responder};

/// Sessions (KIP-227).
const SESSIONS_FROM: i16 = 7;
/// Who leads instead (KIP-951).
const LEADERS_FROM: i16 = 16;
/// Readers that may be sent to a nearer copy (KIP-392).
const RACKS_FROM: i16 = 11;
/// zstd came with v10 (KIP-110).
const ZSTD_FROM: i16 = 10;
/// Topics by id.
const IDS_FROM: i16 = 13;

pub(super) fn handle(context: &Context<'_>, request: FetchRequest, responder: Responder) {
    let version = context.version;
    let door = context.door;
    let max_wait = millis(request.max_wait_ms).min(LONGEST_FETCH_WAIT);
    let isolation_level = request.isolation_level;
    let max_bytes = size(request.max_bytes).min(door.settings.max_fetch_bytes);
    // More than an answer may hold would never come.
    let min_bytes = size(request.min_bytes).min(max_bytes);
    // Nodes have messages of their own: who comes as a follower would take unacknowledged records for his own.
    let rack = request.rack_id.clone();
    let is_follower = request.replica_id >= 0 || request.replica_state.replica_id >= 0;
    let ask = ask(version, request);
    let plan = door
        .fetch_sessions
        .lock()
        .ask(ask, door.node.random(), context.now.mono);
    let plan = match plan {
        Ok(plan) => plan,
        Err(error_code) => {
            return responder.send(&FetchResponse {
                error_code,
                ..FetchResponse::default()
            });
        }
    };
    let isolation = super::isolation(isolation_level);
    let partitions = plan.partitions.iter().map(|(place, wish)| FetchPartition {
        topic: topic_of(version, place),
        partition: place.partition,
        from: Offset(wish.from),
        max_bytes: size(wish.max_bytes),
        current_leader_epoch: LeaderEpoch(wish.current_leader_epoch),
        last_fetched_epoch: LeaderEpoch(wish.last_fetched_epoch),
    });
    let command = FetchCommand {
        partitions: partitions.collect(),
        max_wait,
        min_bytes,
        max_bytes,
        isolation,
        replica: None,
    };
    if is_follower {
        let count = plan.partitions.len();
        let refused = || refused(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        let partitions = std::iter::repeat_with(refused).take(count).collect();
        let answer = FetchAnswer { partitions };
        return respond(door, version, isolation, &plan, answer, responder);
    }
    let node = &context.door.node;
    let door = Arc::downgrade(context.door);
    let reply = Reply::new(move |answer: FetchAnswer| {
        if let Some(door) = door.upgrade() {
            respond(&door, version, isolation, &plan, answer, responder);
        }
    });
    let reply = reply.of(context.caller);
    match version >= RACKS_FROM {
        true => node.fetch_near(command, &rack, context.now, reply),
        false => node.fetch(command, context.now, reply),
    }
}

fn size(bytes: i32) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

fn topic_of(version: i16, place: &Place) -> TopicRef {
    if version >= IDS_FROM {
        TopicRef::Id(place.id)
    } else {
        TopicRef::Name(place.name.to_string())
    }
}

fn ask(version: i16, request: FetchRequest) -> Ask {
    let mut wishes = Vec::new();
    for topic in request.topics {
        let name: Arc<str> = topic.topic.into();
        for p in topic.partitions {
            let place = Place {
                name: name.clone(),
                id: topic.topic_id,
                partition: p.partition,
            };
            let wish = Wish {
                from: p.fetch_offset,
                max_bytes: p.partition_max_bytes,
                current_leader_epoch: p.current_leader_epoch,
                last_fetched_epoch: p.last_fetched_epoch,
            };
            wishes.push((place, wish));
        }
    }
    let forgotten = request.forgotten_topics_data.into_iter().flat_map(|topic| {
        let (name, id): (Arc<str>, _) = (topic.topic.into(), topic.topic_id);
        topic.partitions.into_iter().map(move |partition| Place {
            name: name.clone(),
            id,
            partition,
        })
    });
    Ask {
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        by_id: version >= IDS_FROM,
        wishes,
        forgotten: forgotten.collect(),
    }
}

fn respond(
    door: &KafkaDoor,
    version: i16,
    isolation: Isolation,
    plan: &Plan,
    mut answer: FetchAnswer,
    responder: Responder,
) {
    if version < ZSTD_FROM {
        refuse_zstd(door, plan, &mut answer);
    }
    let mut read: Vec<Read> = answer.partitions.iter().map(summary).collect();
    door.fetch_sessions.lock().answer(plan, &mut read);
    let mut response = FetchResponse {
        session_id: if version >= SESSIONS_FROM {
            plan.session_id
        } else {
            0
        },
        ..FetchResponse::default()
    };
    let mut leading = BTreeSet::new();
    let mut records: Vec<Slices> = Vec::new();
    for (((place, _), mut part), read) in plan.partitions.iter().zip(answer.partitions).zip(read) {
        if !read.show && part.preferred.is_none() {
            continue;
        }
        part.error = read.error;
        let mut data = partition_data(version, isolation, place.partition, &part);
        if version >= LEADERS_FROM
            && part.error == ErrorCode::NOT_LEADER_OR_FOLLOWER
            && let Some(leader) = leaders::of(door, &topic_of(version, place), place.partition)
        {
            leading.insert(leader.id);
            data.current_leader = LeaderIdAndEpoch {
                leader_id: leader.id,
                leader_epoch: leader.epoch,
            };
        }
        match response.responses.last_mut() {
            Some(topic) if *topic.topic == *place.name && topic.topic_id == place.id => {
                topic.partitions.push(data);
            }
            _ => response.responses.push(FetchableTopicResponse {
                topic: place.name.to_string(),
                topic_id: place.id,
                partitions: vec![data],
            }),
        }
        records.push(part.records);
    }
    response.node_endpoints = leaders::addresses(door, &leading)
        .map(|node| NodeEndpoint {
            node_id: node.id,
            host: node.host,
            port: node.port,
            rack: node.rack,
        })
        .collect();
    send(version, &response, records, responder);
}

fn summary(part: &FetchedPartition) -> Read {
    Read {
        error: part.error,
        shown: Shown {
            high_watermark: part.high_watermark.0,
            log_start_offset: part.log_start_offset.0,
        },
        has_records: part.records.len > 0,
        show: false,
    }
}

/// Sends the response with the records of its partitions, in their order, between its bytes.
fn send(version: i16, response: &FetchResponse, records: Vec<Slices>, responder: Responder) {
    let length = |number: usize| Some(records.get(number).map_or(0, |slices| slices.len));
    let layout = match fetch_response(version, responder.correlation_id, response, length) {
        Ok(layout) => layout,
        Err(error) => {
            let close = format!("Fetch v{version} can't be encoded: {error}");
            return responder.close(Close::new(close));
        }
    };
    responder.send_laid_out(layout, records);
}

fn partition_data(
    version: i16,
    isolation: Isolation,
    partition_index: i32,
    part: &FetchedPartition,
) -> PartitionData {
    let aborted = part
        .aborted
        .iter()
        .map(|(producer_id, first_offset)| AbortedTransaction {
            producer_id: *producer_id,
            first_offset: first_offset.0,
        });
    let diverging_epoch = match part.diverging_epoch {
        Some((epoch, end)) if version >= 12 => EpochEndOffset {
            epoch: epoch.0,
            end_offset: end.0,
        },
        _ => EpochEndOffset::default(),
    };
    PartitionData {
        partition_index,
        error_code: part.error,
        high_watermark: part.high_watermark.0,
        last_stable_offset: part.last_stable_offset.0,
        log_start_offset: if version >= 5 {
            part.log_start_offset.0
        } else {
            -1
        },
        diverging_epoch,
        preferred_read_replica: part.preferred.map_or(-1, |node| node.0),
        // Read uncommitted has no list at all, read committed one that may be empty.
        aborted_transactions: (isolation == Isolation::ReadCommitted
            && part.error == ErrorCode::NONE)
            .then(|| aborted.collect()),
        ..PartitionData::default()
    }
}

/// A reader that is older than the codec of its topic is told so, and gets the other partitions as usual. As Kafka did while it looked
/// at all, only the topic's own codec counts: readers of old versions that can open what a producer chose are not kept from it.
fn refuse_zstd(door: &KafkaDoor, plan: &Plan, answer: &mut FetchAnswer) {
    for ((place, _), part) in plan.partitions.iter().zip(&mut answer.partitions) {
        let codec = crate::configs::topic_value(&door.node, &place.name, "compression.type");
        if part.records.len > 0 && codec.as_deref() == Some("zstd") {
            *part = refused(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
        }
    }
}

fn refused(error: ErrorCode) -> FetchedPartition {
    FetchedPartition {
        error,
        high_watermark: Offset(-1),
        last_stable_offset: Offset(-1),
        log_start_offset: Offset(-1),
        records: Slices::default(),
        aborted: Vec::new(),
        diverging_epoch: None,
        preferred: None,
    }
}
