//! ShareFetch v1–v2 (KIP-932, 1206, 1222). Acknowledgements are taken before records are acquired; `min_bytes` isn't waited for: one
//! record is worth an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverlog_core::metadata::TopicRef;
use riverlog_core::share::{AcquireMode, ShareKey};
use riverlog_node::{ShareFetchAnswer, ShareFetchCommand, ShareFetched, Slices};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::fetch_layout::share_fetch_response;
use riverlog_wire::messages::share_fetch_response::{
    AcquiredRecords, LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareFetchableTopicResponse,
};
use riverlog_wire::messages::{ShareFetchRequest, ShareFetchResponse};

use super::share::{Said, acknowledgements, member_of};
use super::{leaders, millis};
use crate::kafka::context::{Context, LONGEST_FETCH_WAIT};
use crate::kafka::door::KafkaDoor;
use crate::kafka::gather::Gather;
use crate::kafka::responder::{Close, Responder};
use crate::kafka::share_sessions::{Ask, Place, Plan};

/// Never more than the limit (KIP-1206).
const RECORD_LIMIT: i8 = 1;

/// A part of the answer.
enum Done {
    Said(Place, ErrorCode),
    Fetched(ShareFetchAnswer),
}

pub(super) fn handle(context: &Context<'_>, request: ShareFetchRequest, responder: Responder) {
    let refuse = |responder: Responder, error_code: ErrorCode| {
        responder.send(&ShareFetchResponse {
            error_code,
            error_message: Some(error_code.message().to_owned()),
            ..ShareFetchResponse::default()
        });
    };
    let member = match member_of(request.group_id, request.member_id) {
        Ok(member) => member,
        Err(error) => return refuse(responder, error),
    };
    let mode = match request.share_acquire_mode {
        0 => AcquireMode::BatchOptimized,
        RECORD_LIMIT => AcquireMode::RecordLimit,
        _ => return refuse(responder, ErrorCode::INVALID_REQUEST),
    };
    let door = context.door;
    let mut named = Vec::new();
    let mut said: BTreeMap<Place, Said> = BTreeMap::new();
    let may_renew = request.is_renew_ack && door.node.share_may_renew(&member.0);
    for topic in &request.topics {
        for partition in &topic.partitions {
            let place = (topic.topic_id, partition.partition_index);
            named.push(place);
            if !partition.acknowledgement_batches.is_empty() {
                let batches = partition.acknowledgement_batches.iter();
                let batches = batches.map(|b| {
                    (
                        b.first_offset,
                        b.last_offset,
                        b.acknowledge_types.as_slice(),
                    )
                });
                said.insert(place, acknowledgements(batches, may_renew));
            }
        }
    }
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| (topic.topic_id, *partition))
    });
    let ask = Ask {
        member: member.clone(),
        epoch: request.share_session_epoch,
        connection: context.connection,
        named,
        forgotten: forgotten.collect(),
        acknowledges: !said.is_empty(),
    };
    let plan = match door.share_sessions.lock().fetch(ask) {
        Ok(plan) => plan,
        Err(error) => return refuse(responder, error),
    };
    let max_records = i64::from(request.max_records);
    let reads = !plan.closes && !request.is_renew_ack && max_records > 0;
    let command = reads.then(|| ShareFetchCommand {
        group: member.0.clone(),
        member: member.1.clone(),
        partitions: plan.partitions.clone(),
        first: usize::try_from(plan.epoch).unwrap_or(0),
        max_wait: millis(request.max_wait_ms).min(LONGEST_FETCH_WAIT),
        max_bytes: usize::try_from(request.max_bytes)
            .unwrap_or(0)
            .min(door.settings.max_fetch_bytes),
        max_records,
        batch_size: i64::from(request.batch_size.max(1)),
        mode,
    });
    let node = &door.node;
    let (group, who) = member.clone();
    let closing = plan.closes.then(|| plan.partitions.clone());
    let version = context.version;
    let door = Arc::downgrade(door);
    let mut gather = Gather::new(move |done| {
        if let Some(door) = door.upgrade() {
            respond(&door, version, &group, &plan, done, responder);
        }
    });
    for (place, said) in said {
        let key = key(&member.0, place);
        match said {
            Err(error) => gather.ready(Done::Said(place, error)),
            Ok(said) => {
                let reply = gather.reply(move |kept: Result<(), ErrorCode>| {
                    Done::Said(place, kept.err().unwrap_or(ErrorCode::NONE))
                });
                node.share_acknowledge(&key, &who, &said, context.now, reply);
            }
        }
    }
    for place in closing.into_iter().flatten() {
        node.share_release(&key(&member.0, place), &who, context.now);
    }
    if let Some(command) = command {
        let reply = gather.reply(Done::Fetched).of(context.caller);
        node.share_fetch(command, context.now, reply);
    }
    gather.seal();
}

fn key(group: &str, (topic, partition): Place) -> ShareKey {
    ShareKey {
        group: group.to_owned(),
        topic,
        partition,
    }
}

fn respond(
    door: &KafkaDoor,
    version: i16,
    group: &str,
    plan: &Plan,
    done: Vec<Done>,
    responder: Responder,
) {
    let mut said: BTreeMap<Place, ErrorCode> = BTreeMap::new();
    let mut fetched = Vec::new();
    for done in done {
        match done {
            Done::Said(place, error) => {
                said.insert(place, error);
            }
            Done::Fetched(answer) => fetched = answer.partitions,
        }
    }
    let mut shown: Vec<(Place, ShareFetched)> = Vec::new();
    let mut fetched = fetched.into_iter();
    for place in &plan.partitions {
        let part = fetched.next().unwrap_or_default();
        let news = part.error != ErrorCode::NONE || !part.acquired.is_empty();
        if plan.full || news || said.contains_key(place) {
            shown.push((*place, part));
        }
    }
    for place in said.keys() {
        if !plan.partitions.contains(place) {
            shown.push((*place, ShareFetched::default()));
        }
    }
    let mut leading = BTreeSet::new();
    let mut records = Vec::with_capacity(shown.len());
    let mut response = ShareFetchResponse {
        acquisition_lock_timeout_ms: super::share::lock_timeout(door, group),
        ..ShareFetchResponse::default()
    };
    for (place, part) in shown {
        let acknowledged = said.get(&place).copied().unwrap_or(ErrorCode::NONE);
        let mut data = PartitionData {
            partition_index: place.1,
            error_code: part.error,
            error_message: message(part.error),
            acknowledge_error_code: acknowledged,
            acknowledge_error_message: message(acknowledged),
            acquired_records: part
                .acquired
                .iter()
                .map(|a| AcquiredRecords {
                    first_offset: a.first.0,
                    last_offset: a.last.0,
                    delivery_count: a.delivery_count,
                })
                .collect(),
            ..PartitionData::default()
        };
        let moved = [part.error, acknowledged].contains(&ErrorCode::NOT_LEADER_OR_FOLLOWER);
        if moved && let Some(leader) = leaders::of(door, &TopicRef::Id(place.0), place.1) {
            leading.insert(leader.id);
            data.current_leader = LeaderIdAndEpoch {
                leader_id: leader.id,
                leader_epoch: leader.epoch,
            };
        }
        match response.responses.last_mut() {
            Some(topic) if topic.topic_id == place.0 => topic.partitions.push(data),
            _ => response.responses.push(ShareFetchableTopicResponse {
                topic_id: place.0,
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

fn message(error: ErrorCode) -> Option<String> {
    (error != ErrorCode::NONE).then(|| error.message().to_owned())
}

/// Sends the response with the records of its partitions, in their order, between its bytes.
fn send(version: i16, response: &ShareFetchResponse, records: Vec<Slices>, responder: Responder) {
    let length = |number: usize| records.get(number).map_or(0, |slices| slices.len);
    let layout = match share_fetch_response(version, responder.correlation_id, response, length) {
        Ok(layout) => layout,
        Err(error) => {
            let close = format!("ShareFetch v{version} can't be encoded: {error}");
            return responder.close(Close::new(close));
        }
    };
    responder.send_laid_out(layout, records);
}
