//! Who is in sync, who is eligible, who leads: what becomes of partitions when nodes come, go and ask.
//!
//! - A replica that leaves the ISR while fewer than min ISR stay in it is eligible from then on (KIP-966): the high watermark
//!   rests, so that it keeps having everything that was acknowledged. With min ISR in sync again nobody is.
//! - The last of an ISR stays in it when its node goes, unless its disk is another one: whoever brings the node back brings
//!   back what was acknowledged.
//! - Leaders come from the ISR, in the order of assignment, then from the eligible; in both, those whose disk is ailing come last. Anyone
//!   else only by an explicit command.

use std::collections::BTreeMap;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, TopicId};

use super::reassign::{conclude, finished};
use super::{Outcome, Refusal, answer, refuse, repeated};
use crate::config::TopicConfig;
use crate::metadata::{
    AdminAnswer, AdminResult, ControllerSettings, IsrChange, MetadataImage, MetadataRecord,
    PartitionImage, Resource, TopicImage,
};

/// Why a node doesn't serve any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// It may come back with all that it had.
    Away,
    /// What it had is lost.
    Forgot,
}

/// Who may lead now.
pub(super) fn is_up(image: &MetadataImage, broker: BrokerId) -> bool {
    let broker = image.brokers.get(&broker);
    broker.is_some_and(|b| !b.fenced && !b.stopping)
}

/// Who had better lead now.
pub(super) fn is_well(image: &MetadataImage, broker: BrokerId) -> bool {
    is_up(image, broker) && !is_ailing(image, broker)
}

fn is_ailing(image: &MetadataImage, broker: BrokerId) -> bool {
    image.brokers.get(&broker).is_some_and(|b| b.ailing)
}

/// In-sync replicas that acks=all needs on a partition: no more than it has replicas.
pub(super) fn min_isr(
    topic: &TopicImage,
    node_configs: &BTreeMap<String, String>,
    replicas: usize,
) -> usize {
    TopicConfig::new(&topic.configs, node_configs).min_isr(replicas)
}

/// What all nodes are configured with: those of this one, which are those of all, under what was set for all.
pub(super) fn configs_of_all(
    image: &MetadataImage,
    settings: &ControllerSettings,
) -> BTreeMap<String, String> {
    let mut configs = settings.node_configs.clone();
    configs.extend(image.broker_configs.get(&None).cloned().unwrap_or_default());
    configs
}

/// Makes `changed` of each partition that changes a record.
pub(super) fn for_each_partition(
    image: &MetadataImage,
    settings: &ControllerSettings,
    records: &mut Vec<MetadataRecord>,
    change: impl Fn(&PartitionImage, usize) -> Option<PartitionImage>,
) {
    let configs = configs_of_all(image, settings);
    for topic in image.topics.values() {
        let mut least = None;
        for (index, partition) in (0..).zip(&topic.partitions) {
            let replicas = partition.factor();
            // All partitions of a topic have as many replicas, mostly; reading the configs takes a while.
            let min_isr = match least {
                Some((of, least)) if of == replicas => least,
                _ => min_isr(topic, &configs, replicas),
            };
            least = Some((replicas, min_isr));
            if let Some(partition) = change(partition, min_isr) {
                records.push(MetadataRecord::Partition {
                    topic: topic.id,
                    index,
                    partition,
                });
            }
        }
    }
}

/// A new leader, or a new leadership of the same one.
pub(super) fn led_by(partition: &PartitionImage, leader: Option<BrokerId>) -> PartitionImage {
    let grows = i32::from(!active(Mutant::LeaderEpochKept));
    PartitionImage {
        leader,
        leader_epoch: LeaderEpoch(partition.leader_epoch.0.saturating_add(grows)),
        partition_epoch: partition.partition_epoch.saturating_add(1),
        ..partition.clone()
    }
}

/// The partition with another ISR, and whom that makes eligible.
pub(super) fn with_isr(
    partition: &PartitionImage,
    isr: Vec<BrokerId>,
    min_isr: usize,
) -> PartitionImage {
    let mut elr = Vec::new();
    if isr.len() < min_isr || active(Mutant::EligibleForEver) {
        let before = partition.isr.iter().chain(&partition.elr);
        let left = before.filter(|b| !isr.contains(b) && partition.replicas.contains(b));
        elr.extend(left.copied());
        elr.sort_unstable();
        elr.dedup();
    }
    PartitionImage {
        isr,
        elr,
        ..partition.clone()
    }
}

/// Elects a leader other than `not`: from the ISR, then from the eligible ones, who is then the only one in sync.
pub(super) fn elect(
    image: &MetadataImage,
    partition: &PartitionImage,
    min_isr: usize,
    not: Option<BrokerId>,
) -> Option<PartitionImage> {
    let can =
        |b: &&BrokerId| Some(**b) != not && (is_up(image, **b) || active(Mutant::FencedElected));
    // While the partition is reassigned, those that stay come first.
    let of = |set: &[BrokerId]| {
        let candidates = || partition.replicas.iter().filter(|b| set.contains(b));
        let well = candidates().find(|b| can(b) && !is_ailing(image, **b));
        well.or_else(|| candidates().find(can)).copied()
    };
    if let Some(leader) = of(&partition.isr) {
        sometimes(Mark::LeaderReplaced);
        return Some(led_by(partition, Some(leader)));
    }
    let anyone = active(Mutant::AnyoneElected).then(|| of(&partition.replicas));
    let leader = of(&partition.elr).or(anyone.flatten())?;
    sometimes(Mark::EligibleElected);
    let alone = with_isr(partition, vec![leader], min_isr);
    Some(led_by(&alone, Some(leader)))
}

/// What becomes of a partition when a node can't serve it any more; `None`: nothing.
pub(super) fn without(
    image: &MetadataImage,
    partition: &PartitionImage,
    min_isr: usize,
    gone: BrokerId,
    why: Gone,
) -> Option<PartitionImage> {
    let leads = partition.leader == Some(gone);
    let forgets = why == Gone::Forgot && partition.elr.contains(&gone);
    if !leads && !partition.isr.contains(&gone) && !forgets {
        return None;
    }
    let mut isr: Vec<BrokerId> = partition.isr.clone();
    isr.retain(|b| *b != gone);
    if isr.is_empty() && why == Gone::Away {
        isr.clone_from(&partition.isr);
    }
    let mut changed = with_isr(partition, isr, min_isr);
    if why == Gone::Forgot {
        changed.elr.retain(|b| *b != gone);
    }
    if leads {
        let elected = elect(image, &changed, min_isr, Some(gone));
        return Some(elected.unwrap_or_else(|| {
            sometimes(Mark::NobodyLeads);
            led_by(&changed, None)
        }));
    }
    if changed.isr == partition.isr && changed.elr == partition.elr {
        return None;
    }
    changed.partition_epoch = partition.partition_epoch.saturating_add(1);
    Some(changed)
}

/// What becomes of a partition when a node is in sync whose disk is ailing, as `image` has it; `None`: nothing. Another one leads if one is
/// well, and it holds nobody up any more where enough others are in sync. Where it is needed it stays.
pub(super) fn relieved(
    image: &MetadataImage,
    partition: &PartitionImage,
    min_isr: usize,
    ailing: BrokerId,
) -> Option<PartitionImage> {
    let mut others = partition.isr.clone();
    others.retain(|b| *b != ailing);
    let leaves = others.len() >= min_isr && others.len() < partition.isr.len();
    let mut changed = match leaves {
        true => with_isr(partition, others, min_isr),
        false => partition.clone(),
    };
    if partition.leader == Some(ailing) {
        let mut others = changed.replicas.iter().filter(|b| **b != ailing);
        let leader = others.find(|b| changed.isr.contains(b) && is_well(image, **b))?;
        sometimes(Mark::Relieved);
        return Some(led_by(&changed, Some(*leader)));
    }
    changed.partition_epoch = partition.partition_epoch.saturating_add(1);
    leaves.then_some(changed)
}

/// What becomes of a partition that nobody leads when a node is up again, as `image` has it; `None`: nothing.
pub(super) fn with(
    image: &MetadataImage,
    partition: &PartitionImage,
    min_isr: usize,
    back: BrokerId,
) -> Option<PartitionImage> {
    let waits = partition.leader.is_none();
    let may = partition.isr.contains(&back) || partition.elr.contains(&back);
    (waits && may).then(|| elect(image, partition, min_isr, None))?
}

/// AlterPartition, for all partitions of one leader.
pub(super) fn alter(
    image: &MetadataImage,
    settings: &ControllerSettings,
    broker: BrokerId,
    epoch: i64,
    changes: &[IsrChange],
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut records = Vec::new();
    let known = image.brokers.get(&broker);
    let stale = known.is_none_or(|b| b.epoch != epoch);
    let repeated = repeated(changes.iter().map(|c| (c.topic, c.index)));
    let configs = configs_of_all(image, settings);
    let outcomes = changes.iter().map(|change| -> Outcome {
        if stale {
            return refuse(
                ErrorCode::STALE_BROKER_EPOCH,
                format!("broker {broker} has registered anew since epoch {epoch}"),
            );
        }
        if repeated.contains(&(change.topic, change.index)) {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                "the partition comes twice in the request",
            );
        }
        let (topic, partition) = find(image, change.topic, change.index)?;
        check_change(image, partition, broker, change)?;
        let least = |replicas| min_isr(topic, &configs, replicas);
        let isr = change.isr.iter().map(|(b, _)| *b).collect();
        let changed = with_isr(partition, isr, least(partition.factor()));
        let mut changed = conclude(image, partition, changed, least);
        if active(Mutant::PartitionEpochKept) {
            changed.partition_epoch = partition.partition_epoch;
        }
        records.push(MetadataRecord::Partition {
            topic: change.topic,
            index: change.index,
            partition: changed,
        });
        Ok(None)
    });
    let outcomes = outcomes.collect();
    answer(records, outcomes, false)
}

fn check_change(
    image: &MetadataImage,
    partition: &PartitionImage,
    leader: BrokerId,
    change: &IsrChange,
) -> Result<(), Refusal> {
    let superseded =
        partition.leader != Some(leader) || change.leader_epoch != partition.leader_epoch;
    if superseded && !active(Mutant::StaleIsrAccepted) {
        sometimes(Mark::StaleIsrRefused);
        return refuse(
            ErrorCode::FENCED_LEADER_EPOCH,
            format!(
                "broker {leader} doesn't lead the partition in epoch {}",
                change.leader_epoch
            ),
        );
    }
    if change.partition_epoch != partition.partition_epoch
        && !active(Mutant::PartitionEpochUnchecked)
        && !active(Mutant::StaleIsrAccepted)
    {
        sometimes(Mark::OutdatedIsrRefused);
        return refuse(
            ErrorCode::INVALID_UPDATE_VERSION,
            format!(
                "the partition is at epoch {}, the change was decided at {}",
                partition.partition_epoch, change.partition_epoch
            ),
        );
    }
    let repeated = repeated(change.isr.iter().map(|(b, _)| *b));
    let has_leader = change.isr.iter().any(|(b, _)| *b == leader);
    let stranger = change
        .isr
        .iter()
        .any(|(b, _)| !partition.replicas.contains(b));
    if !has_leader || stranger || !repeated.is_empty() {
        return refuse(
            ErrorCode::INVALID_REQUEST,
            "an in-sync set holds the leader and other replicas of the partition, each once",
        );
    }
    for (member, epoch) in &change.isr {
        // Whoever stays need not be up: taking it out is the leader's, or a fence's.
        let stays = partition.isr.contains(member);
        let known = image.brokers.get(member);
        let strange = known.is_none_or(|b| b.epoch != *epoch);
        let strange = strange && !active(Mutant::StrangeLifeInSync);
        if strange || !(stays || is_up(image, *member)) {
            sometimes(Mark::StrangeLifeRefused);
            return refuse(
                ErrorCode::INELIGIBLE_REPLICA,
                format!(
                    "broker {member} of epoch {epoch} can't be in sync: it has registered anew, is fenced, or stops"
                ),
            );
        }
    }
    Ok(())
}

pub(super) fn find(
    image: &MetadataImage,
    topic: TopicId,
    index: i32,
) -> Result<(&TopicImage, &PartitionImage), Refusal> {
    let topic = image.topics.get(&topic).map(AsRef::as_ref);
    let at = usize::try_from(index).ok();
    match topic
        .zip(at)
        .and_then(|(t, at)| Some((t, t.partitions.get(at)?)))
    {
        Some(found) => Ok(found),
        None => refuse(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            format!("there is no such partition {index}"),
        ),
    }
}

/// ElectLeaders.
pub(super) fn elect_leaders(
    image: &MetadataImage,
    settings: &ControllerSettings,
    partitions: &[(String, i32)],
    unclean: bool,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut records = Vec::new();
    let repeated = repeated(partitions.iter());
    let configs = configs_of_all(image, settings);
    let outcomes = partitions.iter().map(|asked| -> Outcome {
        let (name, index) = asked;
        if repeated.contains(asked) {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                "the partition comes twice in the request; name it once",
            );
        }
        let Some(topic) = image.topic(name) else {
            return refuse(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                format!("there is no topic '{}'", name.escape_debug()),
            );
        };
        let (topic, partition) = find(image, topic.id, *index)?;
        let least = min_isr(topic, &configs, partition.factor());
        let changed = match unclean {
            true => elect_anyone(image, partition, least)?,
            false => elect_preferred(image, partition)?,
        };
        let changed = finished(image, &changed).unwrap_or(changed);
        records.push(MetadataRecord::Partition {
            topic: topic.id,
            index: *index,
            partition: changed,
        });
        Ok(None)
    });
    let outcomes = outcomes.collect();
    answer(records, outcomes, false)
}

fn elect_preferred(
    image: &MetadataImage,
    partition: &PartitionImage,
) -> Result<PartitionImage, Refusal> {
    let preferred = partition.replicas.first().copied();
    if partition.leader == preferred {
        return refuse(
            ErrorCode::ELECTION_NOT_NEEDED,
            "the partition is led by its first replica",
        );
    }
    match preferred.filter(|b| partition.isr.contains(b) && is_well(image, *b)) {
        Some(leader) => Ok(led_by(partition, Some(leader))),
        None => refuse(
            ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE,
            "the first replica isn't in sync, not up, or its disk is full or slow; wait until it is well",
        ),
    }
}

/// Also one that lacks some of what was acknowledged, where nobody else is left.
fn elect_anyone(
    image: &MetadataImage,
    partition: &PartitionImage,
    min_isr: usize,
) -> Result<PartitionImage, Refusal> {
    if partition.leader.is_some() {
        return refuse(ErrorCode::ELECTION_NOT_NEEDED, "the partition has a leader");
    }
    if let Some(elected) = elect(image, partition, min_isr, None) {
        return Ok(elected);
    }
    let mut replicas = partition.replicas.iter();
    match replicas.find(|b| is_up(image, **b)) {
        Some(leader) => {
            let mut changed = led_by(partition, Some(*leader));
            changed.isr = vec![*leader];
            // What it lacks is given up, so nobody is ahead of it any more.
            changed.elr.clear();
            Ok(changed)
        }
        None => refuse(
            ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "none of the partition's replicas is up",
        ),
    }
}

/// Another min ISR: who was eligible under the old one need not be under the new one.
pub(super) fn forget_eligible(image: &MetadataImage, records: &mut Vec<MetadataRecord>) {
    let (mut everywhere, mut topics) = (false, Vec::new());
    for record in records.iter() {
        match record {
            MetadataRecord::Config { resource, key, .. } if key == MIN_ISR => match resource {
                Resource::Topic(id) => topics.push(*id),
                _ => everywhere = true,
            },
            _ => {}
        }
    }
    if !everywhere && topics.is_empty() {
        return;
    }
    for topic in image.topics.values() {
        if !(everywhere || topics.contains(&topic.id)) {
            continue;
        }
        for (index, partition) in (0..).zip(&topic.partitions) {
            if !partition.elr.is_empty() {
                records.push(MetadataRecord::Partition {
                    topic: topic.id,
                    index,
                    partition: PartitionImage {
                        elr: Vec::new(),
                        partition_epoch: partition.partition_epoch.saturating_add(1),
                        ..partition.clone()
                    },
                });
            }
        }
    }
}

const MIN_ISR: &str = "min.insync.replicas";

/// One refusal in place of an answer.
pub(super) fn refused(error: ErrorCode, message: String) -> AdminAnswer {
    AdminAnswer::Results(vec![AdminResult {
        error,
        message: Some(message),
        topic: None,
    }])
}
