//! OffsetFetch v1–v10 (KIP-88, 320, 447, 709, 848; topic ids from v10). What was never committed is offset −1 without an
//! error; while the coordinator reads its log the answer is "loading", never "no offset".

use riverlog_core::groups::{CommittedOffset, StableOffsets, TopicPartition};
use riverlog_core::metadata::MetadataImage;
use riverlog_node::CommittedAnswer;
use riverlog_wire::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use riverlog_wire::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use riverlog_wire::messages::{OffsetFetchRequest, OffsetFetchResponse};
use riverlog_wire::{ErrorCode, TopicId};

use super::topic_by;
use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

/// First version that can ask for stable offsets.
const STABLE_FROM: i16 = 7;

type Found = Result<StableOffsets, ErrorCode>;

pub(super) fn handle(context: &Context<'_>, request: OffsetFetchRequest, responder: Responder) {
    let version = context.version;
    // KIP-447: an offset that an open transaction may change is an error instead.
    let stable = version >= STABLE_FROM && request.require_stable;
    // Before v8 a request is about one group, and names topics alone.
    let groups = if version >= 8 {
        request.groups
    } else {
        let by_name =
            |t: riverlog_wire::messages::offset_fetch_request::OffsetFetchRequestTopic| {
                OffsetFetchRequestTopics {
                    name: t.name,
                    topic_id: TopicId::ZERO,
                    partition_indexes: t.partition_indexes,
                }
            };
        let topics = request
            .topics
            .map(|topics| topics.into_iter().map(by_name).collect());
        vec![OffsetFetchRequestGroup {
            group_id: request.group_id,
            member_id: None,
            member_epoch: -1,
            topics,
        }]
    };
    let image = context.door.node.image();
    let mut gather = Gather::new(move |answers: Vec<OffsetFetchResponseGroup>| {
        responder.send(&respond(version, answers));
    });
    for group in groups {
        let member = group
            .member_id
            .clone()
            .map(|member| (member, group.member_epoch));
        let asked = group
            .topics
            .as_ref()
            .map(|topics| known_partitions(&image, version, topics));
        let (group_id, topics, image) = (group.group_id.clone(), group.topics, image.clone());
        let (node, now, id) = (&context.door.node, context.now, group.group_id);
        if stable {
            let reply =
                gather.reply(move |found: Found| answer(&image, version, group_id, topics, found));
            node.committed_stable(&id, asked, member, now, reply);
        } else {
            let reply = gather.reply(move |found: CommittedAnswer| {
                let found = found.map(|all| all.into_iter().map(|(p, c)| (p, Ok(c))).collect());
                answer(&image, version, group_id, topics, found)
            });
            node.committed(&id, asked, member, now, reply);
        }
    }
    gather.seal();
}

/// What the group is asked for: the partitions of topics that exist.
fn known_partitions(
    image: &MetadataImage,
    version: i16,
    topics: &[OffsetFetchRequestTopics],
) -> Vec<TopicPartition> {
    let mut asked = Vec::new();
    for topic in topics {
        let (name, id) = match topic_by(image, version >= 10, topic.topic_id, &topic.name) {
            Ok(found) => (found.name.clone(), found.id),
            // By name an unknown topic is asked all the same: its answer is "no offset".
            Err(_) if version < 10 => (topic.name.clone(), TopicId::ZERO),
            Err(_) => continue,
        };
        for partition in &topic.partition_indexes {
            asked.push(TopicPartition {
                topic: name.clone(),
                id,
                partition: *partition,
            });
        }
    }
    asked
}

fn answer(
    image: &MetadataImage,
    version: i16,
    group_id: String,
    topics: Option<Vec<OffsetFetchRequestTopics>>,
    found: Found,
) -> OffsetFetchResponseGroup {
    let found = match found {
        Ok(found) => found,
        // Before v2 only partitions have errors.
        Err(error_code) if version < 2 => {
            return OffsetFetchResponseGroup {
                group_id,
                topics: all_failed(topics.unwrap_or_default(), error_code),
                error_code,
            };
        }
        Err(error_code) => {
            return OffsetFetchResponseGroup {
                group_id,
                error_code,
                topics: Vec::new(),
            };
        }
    };
    let topics = match topics {
        Some(topics) => in_order(image, version, topics, found),
        None => by_topic(image, version, found),
    };
    OffsetFetchResponseGroup {
        group_id,
        topics,
        error_code: ErrorCode::NONE,
    }
}

/// The answers to what was asked, in its order.
fn in_order(
    image: &MetadataImage,
    version: i16,
    topics: Vec<OffsetFetchRequestTopics>,
    found: StableOffsets,
) -> Vec<OffsetFetchResponseTopics> {
    let mut found = found.into_iter();
    let mut response = Vec::with_capacity(topics.len());
    for topic in topics {
        let unknown = version >= 10 && topic_by(image, true, topic.topic_id, &topic.name).is_err();
        let partitions = topic.partition_indexes.iter().map(|index| {
            if unknown {
                partition(*index, None, ErrorCode::UNKNOWN_TOPIC_ID)
            } else {
                let committed = found.next().map_or(Ok(None), |(_, committed)| committed);
                either(*index, committed)
            }
        });
        let partitions = partitions.collect();
        response.push(OffsetFetchResponseTopics {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions,
        });
    }
    response
}

fn all_failed(
    topics: Vec<OffsetFetchRequestTopics>,
    error_code: ErrorCode,
) -> Vec<OffsetFetchResponseTopics> {
    let failed = |topic: OffsetFetchRequestTopics| OffsetFetchResponseTopics {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partition_indexes
            .iter()
            .map(|index| partition(*index, None, error_code))
            .collect(),
    };
    topics.into_iter().map(failed).collect()
}

/// All offsets of a group, topic by topic.
fn by_topic(
    image: &MetadataImage,
    version: i16,
    found: StableOffsets,
) -> Vec<OffsetFetchResponseTopics> {
    let mut response: Vec<OffsetFetchResponseTopics> = Vec::new();
    for (place, committed) in found {
        let answer = either(place.partition, committed);
        let id = image.topic(&place.topic).map(|t| t.id);
        let (name, topic_id) = match (version >= 10, id) {
            (true, Some(id)) => (String::new(), id),
            (true, None) => continue,
            (false, _) => (place.topic, TopicId::ZERO),
        };
        match response.last_mut() {
            Some(last) if last.name == name && last.topic_id == topic_id => {
                last.partitions.push(answer)
            }
            _ => response.push(OffsetFetchResponseTopics {
                name,
                topic_id,
                partitions: vec![answer],
            }),
        }
    }
    response
}

fn either(
    partition_index: i32,
    committed: Result<Option<CommittedOffset>, ErrorCode>,
) -> OffsetFetchResponsePartitions {
    match committed {
        Ok(committed) => partition(partition_index, committed, ErrorCode::NONE),
        Err(error_code) => partition(partition_index, None, error_code),
    }
}

fn partition(
    partition_index: i32,
    committed: Option<CommittedOffset>,
    error_code: ErrorCode,
) -> OffsetFetchResponsePartitions {
    match committed {
        Some(committed) => OffsetFetchResponsePartitions {
            partition_index,
            committed_offset: committed.offset.0,
            committed_leader_epoch: committed.leader_epoch.0,
            metadata: Some(committed.metadata),
            error_code,
        },
        None => OffsetFetchResponsePartitions {
            partition_index,
            committed_offset: -1,
            committed_leader_epoch: -1,
            metadata: Some(String::new()),
            error_code,
        },
    }
}

fn respond(version: i16, mut groups: Vec<OffsetFetchResponseGroup>) -> OffsetFetchResponse {
    if version < 5 {
        // The epoch is not part of these versions.
        for partition in groups
            .iter_mut()
            .flat_map(|g| &mut g.topics)
            .flat_map(|t| &mut t.partitions)
        {
            partition.committed_leader_epoch = -1;
        }
    }
    if version >= 8 {
        return OffsetFetchResponse {
            groups,
            ..OffsetFetchResponse::default()
        };
    }
    let group = groups.pop().unwrap_or_default();
    let topics = group
        .topics
        .into_iter()
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|p| OffsetFetchResponsePartition {
                    partition_index: p.partition_index,
                    committed_offset: p.committed_offset,
                    committed_leader_epoch: p.committed_leader_epoch,
                    metadata: p.metadata,
                    error_code: p.error_code,
                })
                .collect(),
        });
    let error_code = if version >= 2 {
        group.error_code
    } else {
        ErrorCode::NONE
    };
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code,
        ..OffsetFetchResponse::default()
    }
}
