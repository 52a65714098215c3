//! CreatePartitions.

use std::sync::Arc;

use riverlog_wire::{BrokerId, ErrorCode};

use super::placement::{Placement, assigned};
use super::{PartitionBudget, Refusal, answer, refuse, repeated};
use crate::metadata::{
    AdminAnswer, ControllerSettings, MetadataImage, MetadataRecord, MorePartitions, PartitionImage,
    TopicImage,
};

pub(super) fn create(
    image: &MetadataImage,
    settings: &ControllerSettings,
    topics: &[MorePartitions],
    validate_only: bool,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let repeated = repeated(topics.iter().map(|(name, ..)| name.as_str()));
    let mut budget = PartitionBudget::new(settings);
    let mut records = Vec::new();
    let outcomes = topics
        .iter()
        .map(|(name, total, assignments)| {
            if repeated.contains(name.as_str()) {
                return refuse(
                    ErrorCode::INVALID_REQUEST,
                    format!(
                        "topic '{}' comes twice in the request; name it once",
                        name.escape_debug()
                    ),
                );
            }
            let Some(topic) = image.topic(name) else {
                return refuse(
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    format!("there is no topic '{}'", name.escape_debug()),
                );
            };
            let new = grow(image, topic, *total, assignments.as_deref(), &mut budget)?;
            let mut grown = TopicImage::clone(topic);
            for partition in new {
                records.push(MetadataRecord::Partition {
                    topic: topic.id,
                    // Below `total`, which is an i32.
                    index: i32::try_from(grown.partitions.len()).unwrap_or(i32::MAX),
                    partition: partition.clone(),
                });
                grown.partitions.push(partition);
            }
            Ok(Some(Arc::new(grown)))
        })
        .collect();
    answer(records, outcomes, validate_only)
}

fn grow(
    image: &MetadataImage,
    topic: &TopicImage,
    total: i32,
    assignments: Option<&[Vec<BrokerId>]>,
    budget: &mut PartitionBudget,
) -> Result<Vec<PartitionImage>, Refusal> {
    let now = topic.partitions.len();
    let total = usize::try_from(total).unwrap_or(0);
    if total <= now {
        return refuse(
            ErrorCode::INVALID_PARTITIONS,
            format!(
                "topic '{}' has {now} partitions; ask for more than that, fewer is not possible",
                topic.name
            ),
        );
    }
    let more = total - now;
    budget.take(more)?;
    let replicas = topic.partitions.first().map(|p| p.target().len());
    match assignments {
        Some(assignments) if assignments.len() != more => refuse(
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            format!(
                "{more} partitions are to be added but {} assignments are given; give one for each",
                assignments.len()
            ),
        ),
        Some(assignments) => assignments
            .iter()
            .map(|a| assigned(image, a, replicas))
            .collect(),
        None => {
            let replicas = i16::try_from(replicas.unwrap_or(1)).unwrap_or(i16::MAX);
            let placement = Placement::new(image, topic.id, replicas)?;
            Ok((now..total).map(|i| placement.partition(i)).collect())
        }
    }
}
