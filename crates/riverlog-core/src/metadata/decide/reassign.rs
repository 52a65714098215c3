//! Replicas that move (KIP-455).
//!
//! ```text
//! reassign ─► replicas: the new ones, then those that are to go ─► all new ones in sync ─► only the new ones are left
//!    │                        │  another target: it counts from the replicas of the beginning
//!    └─ nothing to copy       └─ cancel: the replicas of the beginning
//! ```
//!
//! - What is under way is in the partition itself, so that any controller goes on with it.
//! - It ends with the change of the in-sync set that has all the new ones in it: each of them has then all that was acknowledged.
//! - Whenever a replica goes, the leader epoch grows. Should it come back, empty, what it said before counts no more.
//! - Nobody leaves who is the last to have everything.

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{BrokerId, ErrorCode};

use super::placement::check_replicas;
use super::replicas::{configs_of_all, elect, find, is_up, led_by, min_isr, with_isr};
use super::{Outcome, Refusal, answer, refuse, repeated};
use crate::metadata::{
    AdminAnswer, ControllerSettings, MetadataImage, MetadataRecord, PartitionImage, Reassignment,
};

/// AlterPartitionReassignments.
pub(super) fn reassign(
    image: &MetadataImage,
    settings: &ControllerSettings,
    partitions: &[Reassignment],
    factor_may_change: bool,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut records = Vec::new();
    let name = |r: &Reassignment| (r.topic.clone(), r.index);
    let repeated = repeated(partitions.iter().map(name));
    let configs = configs_of_all(image, settings);
    let outcomes = partitions.iter().map(|asked| -> Outcome {
        if repeated.contains(&name(asked)) {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                "the partition comes twice in the request; name it once",
            );
        }
        let Some(topic) = image.topic(&asked.topic) else {
            return refuse(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                format!("there is no topic '{}'", asked.topic.escape_debug()),
            );
        };
        let (topic, partition) = find(image, topic.id, asked.index)?;
        let target = match &asked.replicas {
            None => cancelled(partition)?,
            Some(target) => {
                check_replicas(image, target)?;
                if !factor_may_change {
                    check_factor(partition, target)?;
                }
                target.clone()
            }
        };
        let least = |replicas| min_isr(topic, &configs, replicas);
        let changed = moved(partition, &target, least)?;
        let changed = conclude(image, partition, changed, least);
        let same = PartitionImage {
            partition_epoch: partition.partition_epoch,
            ..changed.clone()
        };
        if same != *partition {
            records.push(MetadataRecord::Partition {
                topic: topic.id,
                index: asked.index,
                partition: changed,
            });
        }
        Ok(None)
    });
    let outcomes = outcomes.collect();
    answer(records, outcomes, false)
}

fn cancelled(partition: &PartitionImage) -> Result<Vec<BrokerId>, Refusal> {
    match partition.is_moving() {
        true => {
            sometimes(Mark::ReassignmentCancelled);
            Ok(partition.original())
        }
        false => refuse(
            ErrorCode::NO_REASSIGNMENT_IN_PROGRESS,
            "the partition isn't being reassigned",
        ),
    }
}

fn check_factor(partition: &PartitionImage, target: &[BrokerId]) -> Result<(), Refusal> {
    let now = partition.target().len();
    if now == target.len() {
        return Ok(());
    }
    refuse(
        ErrorCode::INVALID_REPLICATION_FACTOR,
        format!(
            "the partition has {now} replicas and would have {}; name as many, or allow that their number changes",
            target.len()
        ),
    )
}

/// The partition on its way to `target`. What was to be added before, and isn't any more, goes at once.
fn moved(
    partition: &PartitionImage,
    target: &[BrokerId],
    least: impl Fn(usize) -> usize,
) -> Result<PartitionImage, Refusal> {
    let original = partition.original();
    let without = |of: &[BrokerId], those: &[BrokerId]| {
        let mut left: Vec<BrokerId> = of.iter().filter(|b| !those.contains(b)).copied().collect();
        left.sort_unstable();
        left
    };
    let mut changed = PartitionImage {
        adding: without(target, &original),
        removing: without(&original, target),
        ..partition.clone()
    };
    changed.replicas = target.to_vec();
    changed.replicas.extend(&changed.removing);
    let mut isr = partition.isr.clone();
    isr.retain(|b| changed.replicas.contains(b));
    if isr.is_empty() && !partition.isr.is_empty() {
        return refuse(
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            format!(
                "only brokers {:?} have everything that was acknowledged, and none of them would be left; wait until others are in sync",
                partition.isr.iter().map(|b| b.0).collect::<Vec<_>>()
            ),
        );
    }
    Ok(with_isr(&changed, isr, least(changed.factor())))
}

/// What goes into metadata when `before` becomes `changed`, whose epochs are still the old ones: finished when it can be, with a leader
/// that is one of the replicas, and new epochs.
pub(super) fn conclude(
    image: &MetadataImage,
    before: &PartitionImage,
    changed: PartitionImage,
    least: impl Fn(usize) -> usize,
) -> PartitionImage {
    let mut changed = finished(image, &changed).unwrap_or(changed);
    let is_left = |b: &BrokerId| changed.replicas.contains(b);
    if changed.leader.as_ref().is_some_and(|l| !is_left(l)) {
        let elected = elect(image, &changed, least(changed.factor()), None);
        return elected.unwrap_or_else(|| led_by(&changed, None));
    }
    if !before.replicas.iter().all(is_left) && !active(Mutant::ReplicaLeavesEpoch) {
        return led_by(&changed, changed.leader);
    }
    changed.partition_epoch = before.partition_epoch.saturating_add(1);
    changed
}

/// The partition with its new replicas alone, when all of them are in sync.
pub(super) fn finished(
    image: &MetadataImage,
    partition: &PartitionImage,
) -> Option<PartitionImage> {
    if !partition.is_moving() {
        return None;
    }
    let target = partition.target();
    let in_sync = |b: &BrokerId| partition.isr.contains(b);
    let enough =
        target.iter().all(in_sync) || (active(Mutant::MovedTooSoon) && target.iter().any(in_sync));
    let leads = partition.leader.is_none_or(|l| target.contains(&l));
    if !enough || !(leads || target.iter().any(|b| in_sync(b) && is_up(image, *b))) {
        return None;
    }
    sometimes(Mark::Reassigned);
    let only = |of: &[BrokerId]| of.iter().filter(|b| target.contains(b)).copied().collect();
    Some(PartitionImage {
        isr: only(&partition.isr),
        elr: only(&partition.elr),
        adding: Vec::new(),
        removing: Vec::new(),
        replicas: target.clone(),
        ..partition.clone()
    })
}
