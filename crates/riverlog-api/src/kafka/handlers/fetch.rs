//! Fetch v4–v18 (KIP-74, 98, 227, 320, 392, 516, 951). Records go from the cache or the file to the socket as they are stored. Reads from
//! followers are not served yet; a rack is read and ignored.

use std::sync::Arc;

use riverlog_core::metadata::TopicRef;
use riverlog_log::Slices;
use riverlog_node::{
    FetchAnswer, FetchCommand, FetchPartition, FetchedPartition, Isolation, Reply,
};
use riverlog_wire::batch::BatchHeader;
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::fetch_layout::{Segment, fetch_response};
use riverlog_wire::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use riverlog_wire::messages::{FetchRequest, FetchResponse};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use super::millis;
use crate::kafka::door::KafkaDoor;
use crate::kafka::fetch_sessions::{Ask, Place, Plan, Shown, Wish};
use crate::kafka::responder::{Close, Part, Responder};
use crate::kafka::session::Context;

/// zstd came with v10 (KIP-110); older readers are told instead of given bytes that they can't open.
const ZSTD_FROM: i16 = 10;
/// Topics by id.
const IDS_FROM: i16 = 13;

pub(super) fn handle(context: &Context<'_>, request: FetchRequest, responder: Responder) {
    let version = context.version;
    let door = Arc::clone(context.door);
    let (max_wait, isolation_level) = (millis(request.max_wait_ms), request.isolation_level);
    let (min_bytes, max_bytes) = (size(request.min_bytes), size(request.max_bytes));
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
    let isolation = if isolation_level == 1 {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    };
    let partitions = plan.partitions.iter().map(|(place, wish)| FetchPartition {
        topic: if version >= IDS_FROM {
            TopicRef::Id(place.id)
        } else {
            TopicRef::Name(place.name.clone())
        },
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
    let node = Arc::clone(&door.node);
    let reply = Reply::new(move |answer: FetchAnswer| {
        respond(&door, version, isolation, &plan, answer, responder)
    });
    node.fetch(command, context.now, reply);
}

fn size(bytes: i32) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

fn ask(version: i16, request: FetchRequest) -> Ask {
    let mut wishes = Vec::new();
    for topic in request.topics {
        for p in topic.partitions {
            let place = Place {
                name: topic.topic.clone(),
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
        let (name, id) = (topic.topic, topic.topic_id);
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
        answer.partitions.iter_mut().for_each(refuse_zstd);
    }
    for part in &mut answer.partitions {
        // A session that was opened by the id of a topic which is gone since: the client must look up the new id.
        if plan.is_incremental() && part.error == ErrorCode::UNKNOWN_TOPIC_ID {
            part.error = ErrorCode::INCONSISTENT_TOPIC_ID;
        }
    }
    let read: Vec<_> = answer
        .partitions
        .iter()
        .map(|part| {
            let shown = Shown {
                high_watermark: part.high_watermark.0,
                log_start_offset: part.log_start_offset.0,
            };
            (part.error, shown, part.records.len > 0)
        })
        .collect();
    let show = door.fetch_sessions.lock().answer(plan, &read);
    let mut response = FetchResponse {
        session_id: if version >= 7 { plan.session_id } else { 0 },
        ..FetchResponse::default()
    };
    let mut records: Vec<Option<Slices>> = Vec::new();
    for (((place, _), part), show) in plan.partitions.iter().zip(answer.partitions).zip(show) {
        if !show {
            continue;
        }
        let data = partition_data(version, isolation, place.partition, &part);
        let same = response
            .responses
            .last()
            .is_some_and(|t| t.topic == place.name && t.topic_id == place.id);
        if !same {
            let (topic, topic_id) = (place.name.clone(), place.id);
            response.responses.push(FetchableTopicResponse {
                topic,
                topic_id,
                partitions: Vec::new(),
            });
        }
        if let Some(topic) = response.responses.last_mut() {
            topic.partitions.push(data);
        }
        records.push(Some(part.records));
    }
    let lengths = |number: usize| {
        Some(
            records
                .get(number)
                .and_then(Option::as_ref)
                .map_or(0, |slices| slices.len),
        )
    };
    let layout = match fetch_response(version, responder.correlation_id, &response, lengths) {
        Ok(layout) => layout,
        Err(error) => {
            return responder.close(Close::new(format!(
                "Fetch v{version} can't be encoded: {error}"
            )));
        }
    };
    let mut parts = Vec::with_capacity(layout.segments.len());
    for segment in layout.segments {
        match segment {
            Segment::Bytes(bytes) => parts.push(Part::Bytes(bytes)),
            Segment::Records(number) => {
                let slices = records
                    .get_mut(number)
                    .and_then(Option::take)
                    .unwrap_or_default();
                parts.extend(slices.parts.into_iter().map(Part::Records));
            }
        }
    }
    responder.send_parts(parts);
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
        current_leader: LeaderIdAndEpoch::default(),
        // Read uncommitted has no list at all, read committed one that may be empty.
        aborted_transactions: (isolation == Isolation::ReadCommitted
            && part.error == ErrorCode::NONE)
            .then(|| aborted.collect()),
        ..PartitionData::default()
    }
}

/// Kafka's answer to a reader that is older than the codec of what it would be given.
fn refuse_zstd(part: &mut FetchedPartition) {
    let is_zstd = |slice: &riverlog_log::Slice| {
        let header = match slice {
            riverlog_log::Slice::Memory(bytes) => BatchHeader::parse(bytes).ok(),
            riverlog_log::Slice::File { file, at, .. } => {
                let mut bytes = [0; riverlog_wire::batch::HEADER_LEN];
                file.read_at(&mut bytes, *at)
                    .ok()
                    .and_then(|_| BatchHeader::parse(&bytes).ok())
            }
        };
        header.is_some_and(|h| h.attributes.compression() == Some(Compression::Zstd))
    };
    if part.records.parts.iter().any(is_zstd) {
        part.error = ErrorCode::UNSUPPORTED_COMPRESSION_TYPE;
        part.records = Slices::default();
        part.high_watermark = Offset(-1);
        part.last_stable_offset = Offset(-1);
        part.log_start_offset = Offset(-1);
    }
}
