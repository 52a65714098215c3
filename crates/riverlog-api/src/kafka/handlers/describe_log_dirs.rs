//! DescribeLogDirs v1–v5 (KIP-113, 827, 1066). One data folder; copies that are led here, and those that follow. Sizes are those of the segments, and of the disk that it
//! is on; −1 where there is none, as Kafka says "unknown".

use std::collections::BTreeMap;

use riverlog_core::metadata::{MetadataImage, TopicImage};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_log_dirs_request::DescribableLogDirTopic;
use riverlog_wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use riverlog_wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

use crate::kafka::context::Context;
use crate::kafka::door::KafkaDoor;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: DescribeLogDirsRequest, responder: Responder) {
    let door = context.door;
    let image = door.node.image();
    let topics = match request.topics {
        None => all(door, &image),
        Some(asked) => these(door, &image, asked),
    };
    let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (total_bytes, usable_bytes) = match door.node.disk_space() {
        Some((total, usable)) => (bytes(total), bytes(usable)),
        None => (-1, -1),
    };
    responder.send(&DescribeLogDirsResponse {
        results: vec![DescribeLogDirsResult {
            error_code: ErrorCode::NONE,
            log_dir: crate::configs::log_dir(&door.node),
            topics,
            total_bytes,
            usable_bytes,
            is_cordoned: false,
        }],
        ..DescribeLogDirsResponse::default()
    });
}

fn all(door: &KafkaDoor, image: &MetadataImage) -> Vec<DescribeLogDirsTopic> {
    let topics = image.topics.values().map(|topic| {
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        describe(door, topic, 0..count)
    });
    let mut topics: Vec<DescribeLogDirsTopic> = topics.collect();
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    topics
}

/// What doesn't exist is left out.
fn these(
    door: &KafkaDoor,
    image: &MetadataImage,
    asked: Vec<DescribableLogDirTopic>,
) -> Vec<DescribeLogDirsTopic> {
    let mut wanted: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for topic in asked {
        wanted
            .entry(topic.topic)
            .or_default()
            .extend(topic.partitions);
    }
    let described = wanted.into_iter().filter_map(|(name, partitions)| {
        let described = describe(door, image.topic(&name)?, partitions);
        (!described.partitions.is_empty()).then_some(described)
    });
    described.collect()
}

fn describe(
    door: &KafkaDoor,
    topic: &TopicImage,
    partitions: impl IntoIterator<Item = i32>,
) -> DescribeLogDirsTopic {
    let described = partitions.into_iter().filter_map(|partition_index| {
        let copy = door.node.describe_copy(topic.id, partition_index)?;
        let size = copy.partition.size_bytes;
        Some(DescribeLogDirsPartition {
            partition_index,
            partition_size: i64::try_from(size).unwrap_or(i64::MAX),
            offset_lag: 0,
            is_future_key: false,
        })
    });
    DescribeLogDirsTopic {
        name: topic.name.clone(),
        partitions: described.collect(),
    }
}
