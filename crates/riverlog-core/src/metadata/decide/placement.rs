//! Which brokers get the replicas of a partition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, TopicId};

use super::replicas::{is_up, is_well};
use super::{Refusal, refuse};
use crate::metadata::{ControllerSettings, MetadataImage, PartitionImage};

/// The replicas of a topic that doesn't say: `default.replication.factor`, else one for each registered node, at most 3.
pub(super) fn default_replication_factor(
    image: &MetadataImage,
    settings: &ControllerSettings,
) -> i16 {
    settings
        .replication_factor
        .unwrap_or_else(|| i16::try_from(image.brokers.len().clamp(1, 3)).unwrap_or(3))
}

/// Places partitions round-robin over the brokers.
#[derive(Debug)]
pub(super) struct Placement {
    brokers: Vec<BrokerId>,
    /// Of each of them; all the same where some broker has none.
    racks: Vec<usize>,
    active: Vec<BrokerId>,
    replicas: usize,
    start: usize,
}

impl Placement {
    /// For `replication_factor` (1 or more) replicas of each partition of a topic.
    pub(super) fn new(
        image: &MetadataImage,
        topic: TopicId,
        replication_factor: i16,
    ) -> Result<Placement, Refusal> {
        let registered: Vec<BrokerId> = image.brokers.keys().copied().collect();
        let replicas = usize::try_from(replication_factor).unwrap_or(0);
        let of = |can: fn(&MetadataImage, BrokerId) -> bool| -> Vec<BrokerId> {
            let ids = registered.iter().copied();
            ids.filter(|id| can(image, *id)).collect()
        };
        // A disk that is full or slow gets nothing new where others will do.
        let well = of(is_well);
        let active = match well.len() >= replicas.max(1) {
            true => well,
            false => of(is_up),
        };
        if replicas > registered.len() {
            return refuse(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                format!(
                    "replication factor {replication_factor} needs as many brokers, {} are registered; ask for fewer replicas or start more brokers",
                    registered.len()
                ),
            );
        }
        if active.is_empty() {
            return refuse(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                "all registered brokers are fenced; wait until one is back",
            );
        }
        let brokers = if replicas <= active.len() {
            active.clone()
        } else {
            registered
        };
        let (brokers, racks) = by_racks(image, brokers);
        Ok(Placement {
            // Topics of one partition would all be led by the same broker if every topic began with the first one.
            start: usize::from(topic.0.last().copied().unwrap_or(0)) % brokers.len().max(1),
            brokers,
            racks,
            active,
            replicas,
        })
    }

    /// Partition `index` of the topic.
    pub(super) fn partition(&self, index: usize) -> PartitionImage {
        let n = self.brokers.len();
        let first = (self.start + index) % n;
        // Each time around, the followers shift by one, so that a broker's load falls on all others when it is gone.
        let shift = index / n;
        let order = (0..n).map(|r| match r {
            0 => first,
            _ => (first + 1 + (shift + r - 1) % (n - 1)) % n,
        });
        let replicas = self.spread(order.collect());
        self.of(replicas)
    }

    /// The first ones of an order, but one of each rack before a second one of any.
    fn spread(&self, order: Vec<usize>) -> Vec<BrokerId> {
        let mut left = order;
        let mut chosen = Vec::with_capacity(self.replicas);
        while chosen.len() < self.replicas && !left.is_empty() {
            let mut taken = BTreeSet::new();
            left.retain(|at| {
                let rack = self.racks.get(*at).copied().unwrap_or(0);
                let one_rack = self.racks.iter().all(|r| *r == 0);
                let take = chosen.len() < self.replicas && (one_rack || taken.insert(rack));
                if take {
                    chosen.extend(self.brokers.get(*at).copied());
                }
                !take
            });
        }
        chosen
    }

    fn of(&self, replicas: Vec<BrokerId>) -> PartitionImage {
        let isr: Vec<BrokerId> = replicas
            .iter()
            .copied()
            .filter(|b| self.active.contains(b))
            .collect();
        match isr.first() {
            Some(leader) => new_partition(replicas, isr.clone(), Some(*leader)),
            // All its replicas are fenced: nobody leads until one is back, and any of them may, since the log is empty.
            None => new_partition(replicas.clone(), replicas, None),
        }
    }
}

/// Brokers in an order in which neighbours are in different racks, with the numbers of their racks. As they are where some
/// have no rack, or all have the same.
fn by_racks(image: &MetadataImage, brokers: Vec<BrokerId>) -> (Vec<BrokerId>, Vec<usize>) {
    let rack = |b: &BrokerId| image.brokers.get(b).and_then(|b| b.rack.as_deref());
    let mut racks: BTreeMap<&str, VecDeque<BrokerId>> = BTreeMap::new();
    for broker in &brokers {
        let Some(rack) = rack(broker) else {
            let none = vec![0; brokers.len()];
            return (brokers, none);
        };
        racks.entry(rack).or_default().push_back(*broker);
    }
    let (mut order, mut numbers) = (Vec::new(), Vec::new());
    while order.len() < brokers.len() {
        for (number, rack) in racks.values_mut().enumerate() {
            if let Some(broker) = rack.pop_front() {
                order.push(broker);
                numbers.push(number);
            }
        }
    }
    (order, numbers)
}

fn new_partition(
    replicas: Vec<BrokerId>,
    isr: Vec<BrokerId>,
    leader: Option<BrokerId>,
) -> PartitionImage {
    PartitionImage {
        replicas,
        isr,
        leader,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
        elr: Vec::new(),
        adding: Vec::new(),
        removing: Vec::new(),
    }
}

/// Whether a partition can have these replicas: registered nodes, each once, at least one.
pub(super) fn check_replicas(image: &MetadataImage, replicas: &[BrokerId]) -> Result<(), Refusal> {
    let bad = |message: String| refuse(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
    if replicas.is_empty() {
        return bad(
            "an assignment without replicas; name at least one broker for each partition"
                .to_owned(),
        );
    }
    let mut seen = BTreeSet::new();
    for broker in replicas {
        if !image.brokers.contains_key(broker) {
            return bad(format!(
                "the assignment names broker {broker}, which isn't registered"
            ));
        }
        if !seen.insert(*broker) {
            return bad(format!(
                "the assignment names broker {broker} twice for one partition"
            ));
        }
    }
    Ok(())
}

/// A partition with the replicas that the client chose. `replicas_of_others`: how many each other partition has, once that is
/// known.
pub(super) fn assigned(
    image: &MetadataImage,
    replicas: &[BrokerId],
    replicas_of_others: Option<usize>,
) -> Result<PartitionImage, Refusal> {
    check_replicas(image, replicas)?;
    let bad = |message: String| refuse(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
    if let Some(others) = replicas_of_others.filter(|n| *n != replicas.len()) {
        return bad(format!(
            "the assignment gives a partition {} replicas, but others have {others}; give each the same number",
            replicas.len()
        ));
    }
    let isr: Vec<BrokerId> = replicas
        .iter()
        .copied()
        .filter(|id| is_up(image, *id))
        .collect();
    let Some(leader) = isr.first().copied() else {
        return bad(format!(
            "all brokers of the assignment {replicas:?} are fenced; name one that is up"
        ));
    };
    Ok(new_partition(replicas.to_vec(), isr, Some(leader)))
}
