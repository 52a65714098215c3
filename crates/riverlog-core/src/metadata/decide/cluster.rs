//! Nodes, features, producer ids.

use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch};

use super::{Outcome, Refusal, answer, refuse, repeated};
use crate::metadata::{
    AdminAnswer, BrokerImage, MetadataImage, MetadataRecord, PartitionImage, SUPPORTED, TopicImage,
};

/// A node (re)starts. A new broker epoch; what it leads gets a new leader epoch, so that what it may have lost in between
/// can't be mistaken for what it wrote before.
pub(super) fn register(
    image: &MetadataImage,
    broker: &BrokerImage,
    cluster_id: &str,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut records = Vec::new();
    if image.cluster_id.is_empty() {
        records.push(MetadataRecord::Cluster {
            cluster_id: cluster_id.to_owned(),
        });
        for feature in SUPPORTED {
            records.push(MetadataRecord::Feature {
                name: feature.name.to_owned(),
                level: feature.max,
            });
        }
    }
    // The position grows with every registration, also where the node was unregistered in between.
    let before = image.brokers.get(&broker.id).map_or(-1, |b| b.epoch);
    let epoch = image.position.0.max(before.saturating_add(1));
    records.push(MetadataRecord::Broker(BrokerImage {
        epoch,
        ..broker.clone()
    }));
    for_each_partition(image, &mut records, |partition| {
        let leads = partition.leader == Some(broker.id);
        let may_lead = partition.leader.is_none() && partition.isr.contains(&broker.id);
        (!broker.fenced && (leads || may_lead)).then(|| led_by(partition, Some(broker.id)))
    });
    (records, AdminAnswer::Registered { epoch })
}

/// A node is gone for good: it leads nothing any more and is in sync nowhere but where nobody else is.
pub(super) fn unregister(
    image: &MetadataImage,
    gone: BrokerId,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut records = Vec::new();
    let outcome: Outcome = if image.brokers.contains_key(&gone) {
        records.push(MetadataRecord::BrokerRemoved(gone));
        for_each_partition(image, &mut records, |partition| {
            let isr: Vec<BrokerId> = partition
                .isr
                .iter()
                .copied()
                .filter(|b| *b != gone)
                .collect();
            let leads = partition.leader == Some(gone);
            if !leads && isr.len() == partition.isr.len() {
                return None;
            }
            let up = |b: &&BrokerId| image.brokers.get(b).is_some_and(|b| !b.fenced);
            let leader = match leads {
                true => isr.iter().find(up).copied(),
                false => partition.leader,
            };
            let mut changed = if leads {
                led_by(partition, leader)
            } else {
                PartitionImage {
                    partition_epoch: partition.partition_epoch.saturating_add(1),
                    ..partition.clone()
                }
            };
            // Its copy is the only one with all that was acknowledged: whoever brings the node back brings it back.
            if !isr.is_empty() {
                changed.isr = isr;
            }
            Some(changed)
        });
        Ok(None)
    } else {
        refuse(
            ErrorCode::BROKER_ID_NOT_REGISTERED,
            format!("no broker {gone} is registered"),
        )
    };
    answer(records, vec![outcome], false)
}

fn led_by(partition: &PartitionImage, leader: Option<BrokerId>) -> PartitionImage {
    PartitionImage {
        leader,
        leader_epoch: LeaderEpoch(partition.leader_epoch.0.saturating_add(1)),
        partition_epoch: partition.partition_epoch.saturating_add(1),
        ..partition.clone()
    }
}

fn for_each_partition(
    image: &MetadataImage,
    records: &mut Vec<MetadataRecord>,
    change: impl Fn(&PartitionImage) -> Option<PartitionImage>,
) {
    for topic in image.topics.values() {
        let TopicImage { id, partitions, .. } = topic.as_ref();
        for (index, partition) in (0..).zip(partitions) {
            if let Some(partition) = change(partition) {
                records.push(MetadataRecord::Partition {
                    topic: *id,
                    index,
                    partition,
                });
            }
        }
    }
}

/// A block of producer ids that no node had before; at least one.
pub(super) fn allocate_producer_ids(
    image: &MetadataImage,
    count: i64,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let first = image.next_producer_id.max(0);
    // Ids last for 2⁶³ of them; the last block is just shorter.
    let next = first.saturating_add(count.max(1));
    (
        vec![MetadataRecord::ProducerIds { next }],
        AdminAnswer::ProducerIds {
            first,
            count: next - first,
        },
    )
}

/// All or nothing, as in Kafka: features may depend on each other.
pub(super) fn update_features(
    image: &MetadataImage,
    features: &[(String, i16)],
    validate_only: bool,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let repeated = repeated(features.iter().map(|(name, _)| name.as_str()));
    let verdicts: Vec<Result<(), Refusal>> = features
        .iter()
        .map(|(name, level)| {
            if repeated.contains(name.as_str()) {
                return refuse(
                    ErrorCode::INVALID_REQUEST,
                    format!("feature {name} comes twice in the request; name it once"),
                );
            }
            feature(image, name, *level)
        })
        .collect();
    let first_bad = features
        .iter()
        .zip(&verdicts)
        .find_map(|((name, _), verdict)| Some((name, verdict.as_ref().err()?.error)));
    let outcomes = verdicts
        .into_iter()
        .map(|verdict| -> Outcome {
            verdict?;
            match first_bad {
                Some((name, error)) => refuse(
                    error,
                    format!("nothing was changed, since feature {name} can't be changed as asked"),
                ),
                None => Ok(None),
            }
        })
        .collect();
    let records = match first_bad {
        Some(_) => Vec::new(),
        None => features
            .iter()
            .filter(|(name, level)| image.features.get(name).copied().unwrap_or(0) != *level)
            .map(|(name, level)| MetadataRecord::Feature {
                name: name.clone(),
                level: *level,
            })
            .collect(),
    };
    answer(records, outcomes, validate_only)
}

fn feature(image: &MetadataImage, name: &str, level: i16) -> Result<(), Refusal> {
    let bad = |message: String| refuse(ErrorCode::INVALID_UPDATE_VERSION, message);
    let Some(supported) = SUPPORTED.iter().find(|f| f.name == name) else {
        let known: Vec<&str> = SUPPORTED.iter().map(|f| f.name).collect();
        return bad(format!(
            "there is no feature {}; there are {}",
            name.escape_debug(),
            known.join(", ")
        ));
    };
    if level < supported.min || level > supported.max {
        return bad(format!(
            "feature {name} works at levels {} to {}, not at {level}",
            supported.min, supported.max
        ));
    }
    let now = image.features.get(name).copied().unwrap_or(0);
    if name == "metadata.version" && level < now {
        return bad(format!(
            "metadata.version {now} can't go back to {level}: records of the newer level are already stored"
        ));
    }
    Ok(())
}
