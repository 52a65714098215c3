//! Copies and leaderships that spread by themselves, where `riverlog.rebalance` is on: the controller looks now and then, and begins some of the moves
//! of a plan once those before are done.

use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::balance::{Copies, Place, rebalance};
use riverlog_core::config::BrokerValues;
use riverlog_core::metadata::{AdminCommand, MetadataImage, PartitionImage, Reassignment};

use riverlog_wire::{BrokerId, Offset};

use crate::controller::AdminReply;
use crate::node::Node;

/// How often the controller looks.
const LOOK: Duration = Duration::from_secs(5);
/// Partitions that are copied at once.
const AT_ONCE: usize = 10;

/// When it looked, and at which image.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looked {
    at: Option<Duration>,
    position: Offset,
}

impl Node {
    /// Begins what makes the cluster more even, unless something moves or a node is down: one that is restarted needs no new copies elsewhere.
    pub(crate) fn rebalance_when_on(&self, now: Now) {
        let image = self.image.load_full();
        {
            let mut state = self.controller.state.lock();
            let looked = &mut state.balance;
            let soon = looked.at.is_some_and(|at| now.mono < at + LOOK);
            if soon || looked.position == image.position {
                return;
            }
            *looked = Looked {
                at: Some(now.mono),
                position: image.position,
            };
        }
        if !BrokerValues(&self.node_configs(&image)).is_true("riverlog.rebalance") {
            return;
        }
        let brokers = &image.brokers;
        let away = brokers.values().any(|b| b.fenced || b.stopping || b.ailing);
        let all = || image.topics.values().flat_map(|t| &t.partitions);
        if away || all().any(PartitionImage::is_moving) {
            self.look_at_balance_again();
            return;
        }
        if let Some(command) = copies(&image).or_else(|| leaders(&image)) {
            self.look_at_balance_again();
            self.submit(command, AdminReply::Nobody, now);
        }
    }

    /// What comes next need not be a change of metadata.
    fn look_at_balance_again(&self) {
        self.controller.state.lock().balance.position = Offset(-1);
    }
}

/// The first copies that a plan moves; `None`: they are spread evenly.
fn copies(image: &MetadataImage) -> Option<AdminCommand> {
    let places: Vec<Place> = image
        .brokers
        .values()
        .map(|b| Place {
            id: b.id,
            rack: b.rack.clone(),
            takes: true,
        })
        .collect();
    let mut all = Vec::new();
    for topic in image.topics.values() {
        for (index, partition) in (0..).zip(&topic.partitions) {
            all.push(Copies {
                topic: topic.name.clone(),
                index,
                replicas: partition.replicas.clone(),
            });
        }
    }
    let moves = rebalance(&places, &all);
    let partitions: Vec<Reassignment> = moves
        .into_iter()
        .take(AT_ONCE)
        .map(|m| Reassignment {
            topic: m.topic,
            index: m.index,
            replicas: Some(m.to),
        })
        .collect();
    (!partitions.is_empty()).then_some(AdminCommand::Reassign {
        partitions,
        factor_may_change: false,
    })
}

/// Partitions whose first replica could lead them, and doesn't.
fn leaders(image: &MetadataImage) -> Option<AdminCommand> {
    let mut partitions = Vec::new();
    for topic in image.topics.values() {
        for (index, partition) in (0..).zip(&topic.partitions) {
            let first: Option<&BrokerId> = partition.replicas.first();
            if first.is_some_and(|b| partition.leader != Some(*b) && partition.isr.contains(b)) {
                partitions.push((topic.name.clone(), index));
            }
        }
    }
    (!partitions.is_empty()).then_some(AdminCommand::ElectLeaders {
        partitions,
        unclean: false,
    })
}
