//! Nodes, features, producer ids.

use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{BrokerId, ErrorCode, Offset};

use super::replicas::{Gone, for_each_partition, led_by, refused, relieved, with, without};
use super::{Outcome, Refusal, answer, refuse, repeated};
use crate::metadata::{
    AdminAnswer, BrokerImage, ControllerSettings, MetadataImage, MetadataRecord, SUPPORTED,
};

/// A node (re)starts: a new broker epoch, and what that means for its partitions.
///
/// - A node alone registers unfenced. What it leads gets a new leader epoch, so that what it may have lost in between can't be
///   mistaken for what it wrote before.
/// - A node of a cluster registers fenced, and a heartbeat lets it in. Until then it leads nothing, and it is in sync
///   nowhere but where nobody else is: what it reported in an earlier life counts no more (KIP-903). With another disk than before it has
///   forgotten what it had, and is in sync and eligible nowhere.
/// - The same life registers once, however often it asks.
pub(super) fn register(
    image: &MetadataImage,
    settings: &ControllerSettings,
    broker: &BrokerImage,
    cluster_id: &str,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let known = image.brokers.get(&broker.id);
    if let Some(known) = known
        && broker.incarnation != 0
        && known.incarnation == broker.incarnation
    {
        return (Vec::new(), AdminAnswer::Registered { epoch: known.epoch });
    }
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
    let before = known.map_or(-1, |b| b.epoch);
    let epoch = image.position.0.max(before.saturating_add(1));
    let registered = BrokerImage {
        epoch,
        ..broker.clone()
    };
    records.push(MetadataRecord::Broker(registered.clone()));
    if broker.fenced {
        // One that was unregistered was gone for good: nobody can say what it still has.
        let forgot = known.is_none_or(|k| k.disk != 0 && k.disk != broker.disk);
        if forgot && known.is_some() {
            sometimes(Mark::DiskForgot);
        }
        let noticed = forgot && !active(Mutant::DiskNotNoticed);
        let why = if noticed { Gone::Forgot } else { Gone::Away };
        for_each_partition(image, settings, &mut records, |partition, min_isr| {
            if active(Mutant::RestartKeepsEpoch) && partition.leader == Some(broker.id) {
                return None;
            }
            without(image, partition, min_isr, broker.id, why)
        });
    } else {
        let after = image_with(image, registered);
        for_each_partition(image, settings, &mut records, |partition, min_isr| {
            match partition.leader == Some(broker.id) {
                true => Some(led_by(partition, partition.leader)),
                false => with(&after, partition, min_isr, broker.id),
            }
        });
    }
    (records, AdminAnswer::Registered { epoch })
}

fn image_with(image: &MetadataImage, broker: BrokerImage) -> MetadataImage {
    let mut after = image.clone();
    after.brokers.insert(broker.id, broker);
    after
}

/// A node is gone for good: it leads nothing any more and is in sync nowhere but where nobody else is.
pub(super) fn unregister(
    image: &MetadataImage,
    settings: &ControllerSettings,
    gone: BrokerId,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut records = Vec::new();
    let outcome: Outcome = if image.brokers.contains_key(&gone) {
        records.push(MetadataRecord::BrokerRemoved(gone));
        for_each_partition(image, settings, &mut records, |partition, min_isr| {
            without(image, partition, min_isr, gone, Gone::Away)
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

/// A node hasn't been heard of: it leads nothing until it is. All its partitions move at once.
pub(super) fn fence(
    image: &MetadataImage,
    settings: &ControllerSettings,
    broker: BrokerId,
    epoch: i64,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut records = Vec::new();
    let known = image.brokers.get(&broker);
    if let Some(known) = known.filter(|b| b.epoch == epoch && !b.fenced) {
        sometimes(Mark::NodeFenced);
        records.push(MetadataRecord::Broker(BrokerImage {
            fenced: true,
            ..known.clone()
        }));
        for_each_partition(image, settings, &mut records, |partition, min_isr| {
            without(image, partition, min_isr, broker, Gone::Away)
        });
    }
    answer(records, vec![Ok(None)], false)
}

/// What a node says of itself beside that it lives.
#[derive(Clone, Copy)]
pub(super) struct Said {
    pub(super) position: Offset,
    pub(super) stopping: bool,
    pub(super) ailing: bool,
}

/// A node lives. It is let in once it knows of its registration; one that wants to stop gives its leaderships away first, and one whose
/// disk is ailing those that others can take, whenever they can.
pub(super) fn heartbeat(
    image: &MetadataImage,
    settings: &ControllerSettings,
    broker: BrokerId,
    epoch: i64,
    Said {
        position,
        stopping,
        ailing,
    }: Said,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let Some(known) = image.brokers.get(&broker).filter(|b| b.epoch == epoch) else {
        let message =
            format!("broker {broker} isn't registered under epoch {epoch}; register anew");
        return (Vec::new(), refused(ErrorCode::STALE_BROKER_EPOCH, message));
    };
    let mut records = Vec::new();
    let knows_of_itself = position.0 > epoch;
    let mut fenced = known.fenced;
    if stopping && !known.stopping {
        records.push(MetadataRecord::Broker(BrokerImage {
            stopping: true,
            ..known.clone()
        }));
        for_each_partition(image, settings, &mut records, |partition, min_isr| {
            // Where nobody else is, it goes on serving until it is down.
            let stays = partition.leader == Some(broker);
            let changed = without(image, partition, min_isr, broker, Gone::Away)?;
            (!stays || changed.leader.is_some()).then_some(changed)
        });
    } else if known.fenced && knows_of_itself && !known.stopping && !stopping {
        fenced = false;
        let up = BrokerImage {
            fenced: false,
            ailing,
            ..known.clone()
        };
        records.push(MetadataRecord::Broker(up.clone()));
        let after = image_with(image, up);
        for_each_partition(image, settings, &mut records, |partition, min_isr| {
            with(&after, partition, min_isr, broker)
        });
    } else if !known.fenced && !known.stopping && (ailing || known.ailing) {
        let said = BrokerImage {
            ailing,
            ..known.clone()
        };
        if known.ailing != ailing {
            records.push(MetadataRecord::Broker(said.clone()));
        }
        if ailing && !active(Mutant::AilingLeads) {
            let after = image_with(image, said);
            for_each_partition(image, settings, &mut records, |partition, min_isr| {
                relieved(&after, partition, min_isr, broker)
            });
        }
    }
    let answer = AdminAnswer::Heartbeat {
        fenced,
        // Whatever could go elsewhere has gone with the record that says so; the node waits until it has applied that.
        may_stop: known.stopping,
        position: image.position,
        silent: Duration::ZERO,
    };
    (records, answer)
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
