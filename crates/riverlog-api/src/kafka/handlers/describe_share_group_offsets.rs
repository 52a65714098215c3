//! DescribeShareGroupOffsets v0–v1 (KIP-932; the lag of KIP-1226 from v1 on).

use std::sync::Arc;

use riverlog_core::Now;
use riverlog_core::groups::ShareTopics;
use riverlog_core::metadata::MetadataImage;
use riverlog_core::share::{ShareKey, ShareSummary};
use riverlog_node::{Node, Reply};
use riverlog_wire::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestTopic;
use riverlog_wire::messages::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use riverlog_wire::messages::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
};
use riverlog_wire::{ErrorCode, Offset, TopicId};

use crate::kafka::context::Context;
use crate::kafka::gather::Gather;
use crate::kafka::responder::Responder;

type Group = DescribeShareGroupOffsetsResponseGroup;
type Partition = DescribeShareGroupOffsetsResponsePartition;

pub(super) fn handle(
    context: &Context<'_>,
    request: DescribeShareGroupOffsetsRequest,
    responder: Responder,
) {
    let mut gather = Gather::new(move |groups| {
        responder.send(&DescribeShareGroupOffsetsResponse {
            groups,
            ..DescribeShareGroupOffsetsResponse::default()
        });
    });
    let (node, now) = (&context.door.node, context.now);
    let version = context.version;
    for group in request.groups {
        let name = group.group_id.clone();
        let done = gather.reply(|group: Group| group);
        let of = Arc::downgrade(node);
        let reply = Reply::new(move |kept| {
            if let Some(node) = of.upgrade() {
                describe(&node, version, now, group, kept, done);
            }
        });
        node.share_topics(&name, now, reply);
    }
    gather.seal();
}

fn describe(
    node: &Arc<Node>,
    version: i16,
    now: Now,
    asked: riverlog_wire::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup,
    kept: Result<ShareTopics, ErrorCode>,
    done: Reply<Group>,
) {
    let group_id = asked.group_id;
    let kept = match kept {
        Ok(kept) => kept,
        Err(error_code) => {
            return done.send(Group {
                group_id,
                error_code,
                error_message: Some(error_code.message().to_owned()),
                ..Group::default()
            });
        }
    };
    let image = node.image();
    let topics = match asked.topics {
        Some(topics) => topics,
        None => all(&image, kept),
    };
    let places: Vec<(String, TopicId)> = topics
        .iter()
        .map(|topic| {
            let known = image.topic(&topic.topic_name);
            let id = known.map_or(TopicId::ZERO, |known| known.id);
            (topic.topic_name.clone(), id)
        })
        .collect();
    let group = group_id.clone();
    let mut gather = Gather::new(move |partitions: Vec<(usize, Partition)>| {
        let each = places.into_iter();
        let mut topics: Vec<DescribeShareGroupOffsetsResponseTopic> = each
            .map(
                |(topic_name, topic_id)| DescribeShareGroupOffsetsResponseTopic {
                    topic_name,
                    topic_id,
                    partitions: Vec::new(),
                },
            )
            .collect();
        for (at, partition) in partitions {
            if let Some(topic) = topics.get_mut(at) {
                topic.partitions.push(partition);
            }
        }
        done.send(Group {
            group_id,
            topics,
            ..Group::default()
        });
    });
    for (at, topic) in topics.into_iter().enumerate() {
        let known = image.topic(&topic.topic_name).map(|known| known.id);
        for index in topic.partitions {
            let Some(id) = known else {
                gather.ready((at, failed(index, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)));
                continue;
            };
            let key = ShareKey {
                group: group.clone(),
                topic: id,
                partition: index,
            };
            let done = gather.reply(move |partition: Partition| (at, partition));
            let (of, asked) = (Arc::downgrade(node), key.clone());
            let reply = Reply::new(move |summary| match (summary, of.upgrade()) {
                (Ok(summary), Some(node)) => with_lag(&node, version, now, &asked, summary, done),
                (Err(error), _) => done.send(failed(index, error)),
                (Ok(_), None) => {}
            });
            node.share_summary(&key, now, reply);
        }
    }
    gather.seal();
}

/// All that is kept for the group, by name.
fn all(image: &MetadataImage, kept: ShareTopics) -> Vec<DescribeShareGroupOffsetsRequestTopic> {
    let named = kept.into_iter().filter_map(|(id, partitions)| {
        Some(DescribeShareGroupOffsetsRequestTopic {
            topic_name: image.topics.get(&id)?.name.to_string(),
            partitions,
        })
    });
    named.collect()
}

fn failed(partition_index: i32, error_code: ErrorCode) -> Partition {
    Partition {
        partition_index,
        start_offset: -1,
        error_code,
        error_message: Some(error_code.message().to_owned()),
        ..Partition::default()
    }
}

/// The partition's leader says where it ends. When nobody does, the lag is unknown.
fn with_lag(
    node: &Node,
    version: i16,
    now: Now,
    key: &ShareKey,
    summary: Option<ShareSummary>,
    done: Reply<Partition>,
) {
    let partition_index = key.partition;
    let begun = summary.filter(|summary| summary.start.0 >= 0);
    let Some(summary) = begun else {
        return done.send(Partition {
            partition_index,
            start_offset: -1,
            ..Partition::default()
        });
    };
    let partition = Partition {
        partition_index,
        start_offset: summary.start.0,
        leader_epoch: summary.leader_epoch.0,
        ..Partition::default()
    };
    if version < 1 || summary.complete < 0 {
        return done.send(partition);
    }
    let reply = Reply::new(move |end: Result<Offset, ErrorCode>| {
        let lag = end.map_or(partition.lag, |end| {
            (end.0 - summary.start.0 - i64::from(summary.complete)).max(0)
        });
        done.send(Partition { lag, ..partition });
    });
    node.share_end(key, now, reply);
}
