//! ListOffsets v1–v11 (KIP-98, 320, 207, 734, 405, 1005, 1075, 1023). A special timestamp of a later version is an error of its
//! partition, never of the connection. The epoch is that of the returned offset.

use std::collections::BTreeSet;

use riverlog_core::metadata::TopicRef;
use riverlog_node::{OffsetAnswer, OffsetQuery};
use riverlog_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverlog_wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use riverlog_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use riverlog_wire::{ErrorCode, LeaderEpoch};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

/// Clients that know OFFSET_NOT_AVAILABLE (KIP-207).
const NOT_AVAILABLE_FROM: i16 = 5;

pub(super) fn handle(context: &Context<'_>, request: ListOffsetsRequest, responder: Responder) {
    let version = context.version;
    let isolation = super::isolation(request.isolation_level);
    let twice = asked_twice(&request.topics);
    let shape: Vec<(String, usize)> = request
        .topics
        .iter()
        .map(|t| (t.name.clone(), t.partitions.len()))
        .collect();
    let mut gather = Gather::new(move |answers: Vec<ListOffsetsPartitionResponse>| {
        let mut answers = answers.into_iter();
        let topics = shape
            .into_iter()
            .map(|(name, count)| ListOffsetsTopicResponse {
                name,
                partitions: answers.by_ref().take(count).collect(),
            })
            .collect();
        responder.send(&ListOffsetsResponse {
            throttle_time_ms: 0,
            topics,
        });
    });
    for topic in &request.topics {
        for partition in &topic.partitions {
            let index = partition.partition_index;
            if twice.contains(&(topic.name.as_str(), index)) {
                gather.ready(failed(index, ErrorCode::INVALID_REQUEST));
                continue;
            }
            let Some(query) = query(version, partition) else {
                gather.ready(failed(index, ErrorCode::UNSUPPORTED_VERSION));
                continue;
            };
            match context
                .door
                .node
                .partition(&TopicRef::Name(topic.name.clone()), index)
            {
                Err(error) => gather.ready(failed(index, error)),
                Ok(reference) => {
                    let reply = gather.reply(move |answer| response(version, index, answer));
                    let epoch = LeaderEpoch(partition.current_leader_epoch);
                    context
                        .door
                        .node
                        .offset(&reference, query, isolation, epoch, reply);
                }
            }
        }
    }
    gather.seal();
}

/// Partitions that the request names more than once.
fn asked_twice(topics: &[ListOffsetsTopic]) -> BTreeSet<(&str, i32)> {
    let (mut once, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for topic in topics {
        for partition in &topic.partitions {
            let place = (topic.name.as_str(), partition.partition_index);
            if !once.insert(place) {
                twice.insert(place);
            }
        }
    }
    twice
}

fn query(version: i16, partition: &ListOffsetsPartition) -> Option<OffsetQuery> {
    match partition.timestamp {
        -1 => Some(OffsetQuery::Latest),
        -2 => Some(OffsetQuery::Earliest),
        -3 if version >= 7 => Some(OffsetQuery::MaxTimestamp),
        -4 if version >= 8 => Some(OffsetQuery::EarliestLocal),
        -5 if version >= 9 => Some(OffsetQuery::LatestTiered),
        -6 if version >= 11 => Some(OffsetQuery::EarliestPendingUpload),
        time if time >= 0 => Some(OffsetQuery::AtTime(time)),
        _ => None,
    }
}

fn response(
    version: i16,
    partition_index: i32,
    answer: OffsetAnswer,
) -> ListOffsetsPartitionResponse {
    let error_code = match answer.error {
        // The new leader doesn't know yet: to those who came before that had a code, it is as if there were none.
        ErrorCode::OFFSET_NOT_AVAILABLE if version < NOT_AVAILABLE_FROM => {
            ErrorCode::LEADER_NOT_AVAILABLE
        }
        error => error,
    };
    ListOffsetsPartitionResponse {
        partition_index,
        error_code,
        timestamp: answer.timestamp,
        offset: answer.offset.0,
        leader_epoch: if version >= 4 {
            answer.leader_epoch.0
        } else {
            -1
        },
    }
}

fn failed(partition_index: i32, error_code: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index,
        error_code,
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
    }
}

#[cfg(test)]
mod tests {
    use riverlog_wire::Offset;

    use super::*;

    #[test]
    fn clients_before_kip_207_are_told_that_there_is_no_leader() {
        let told = |version, error| {
            let answer = OffsetAnswer {
                error,
                offset: Offset(-1),
                timestamp: -1,
                leader_epoch: LeaderEpoch::NONE,
            };
            response(version, 3, answer).error_code
        };
        for version in 1..=4 {
            let code = told(version, ErrorCode::OFFSET_NOT_AVAILABLE);
            assert_eq!(code, ErrorCode::LEADER_NOT_AVAILABLE);
        }
        for version in 5..=11 {
            let code = told(version, ErrorCode::OFFSET_NOT_AVAILABLE);
            assert_eq!(code, ErrorCode::OFFSET_NOT_AVAILABLE);
        }
        let fenced = ErrorCode::FENCED_LEADER_EPOCH;
        assert_eq!(told(4, fenced), fenced);
    }
}
