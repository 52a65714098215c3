//! Groups that retention is about to overtake, and those that it has overtaken: each is told once, and counted while it lasts.
//!
//! No partition is looked at for this alone that retention wouldn't look at, but for one more look a while before its oldest
//! segment goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::config::BrokerValues;
use riverlog_log::LogKey;
use riverlog_wire::{Offset, TopicId};

use crate::node::Node;
use crate::notice::Notice;
use crate::partition::{Partition, Role};

/// How long before records go a group that hasn't committed them is told of, unless `riverlog.loss.warning.ms` says.
const WARNING_MS: i64 = 3_600_000;

/// How near a loss is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Near,
    Overtaken,
}

/// Groups that were told of, by partition.
#[derive(Default)]
pub(crate) struct Losses(Mutex<BTreeMap<LogKey, Told>>);

struct Told {
    partition: Arc<Partition>,
    groups: BTreeMap<String, Stage>,
}

/// What a look has found of a partition's retention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losing {
    /// Where the log begins.
    pub(crate) start: Offset,
    /// Where it will begin, when age has its way, `within` from now.
    pub(crate) until: Offset,
    pub(crate) within: Duration,
}

impl Losses {
    /// A topic is gone.
    pub(crate) fn forget(&self, topic: TopicId) {
        self.0.lock().retain(|key, _| key.topic != topic);
    }

    /// Partitions on which some group was told of: its state may have changed.
    pub(crate) fn partitions(&self) -> Vec<Arc<Partition>> {
        let all = self.0.lock();
        all.values().map(|told| told.partition.clone()).collect()
    }

    /// Groups with a partition that is about to overtake them, and with one that has; counted for each partition.
    pub(crate) fn gauges(&self) -> (usize, usize) {
        let all = self.0.lock();
        let stages = all.values().flat_map(|told| told.groups.values());
        let near = stages.clone().filter(|s| **s == Stage::Near).count();
        (near, stages.count() - near)
    }
}

impl Node {
    /// How long before a loss it is told of; `None`: there are no groups, or nobody wants to know.
    pub(crate) fn loss_warning_ms(&self) -> Option<i64> {
        self.shards.load().as_ref()?;
        let configs = self.node_configs(&self.image());
        let set = BrokerValues(&configs).number("riverlog.loss.warning.ms");
        Some(set.unwrap_or(WARNING_MS)).filter(|ms| *ms >= 0)
    }

    /// Holds what groups have committed in a partition against what retention does there.
    pub(crate) fn watch_losses(&self, partition: &Arc<Partition>, losing: Losing, now: Now) {
        if partition.role != Role::Data {
            return;
        }
        let topic = &partition.topic.name;
        let index = partition.key.partition.0;
        let Some(shards) = self.shards.load_full() else {
            return;
        };
        let mut behind = Vec::new();
        for shard in shards.open() {
            let bound = losing.until.max(losing.start);
            let found = shard
                .state
                .lock()
                .ready()
                .map(|groups| groups.behind(topic, index, bound));
            match found {
                Ok(found) => behind.extend(found),
                // The next look finds them.
                Err(_) => self.load_shard(shard, now),
            }
        }
        let mut notices = Vec::new();
        {
            let mut all = self.losses.0.lock();
            let before = all.remove(&partition.key);
            let before = before.map(|told| told.groups).unwrap_or_default();
            let mut groups = BTreeMap::new();
            for (group, committed) in behind {
                let stage = match committed < losing.start {
                    true => Stage::Overtaken,
                    false => Stage::Near,
                };
                if before.get(&group) != Some(&stage) {
                    notices.push(notice(stage, group.clone(), committed, partition, losing));
                }
                groups.insert(group, stage);
            }
            if !groups.is_empty() {
                let partition = partition.clone();
                all.insert(partition.key, Told { partition, groups });
            }
        }
        for notice in notices {
            if matches!(notice, Notice::GroupOvertaken { .. }) {
                self.metrics
                    .groups_overtaken
                    .fetch_add(1, Ordering::Relaxed);
            }
            self.host.notice(notice);
        }
    }
}

fn notice(
    stage: Stage,
    group: String,
    committed: Offset,
    partition: &Partition,
    losing: Losing,
) -> Notice {
    let topic = partition.topic.name.clone();
    let partition = partition.key.partition.0;
    match stage {
        Stage::Near => Notice::GroupNearLoss {
            group,
            topic,
            partition,
            committed,
            until: losing.until,
            within: losing.within,
        },
        Stage::Overtaken => Notice::GroupOvertaken {
            group,
            topic,
            partition,
            committed,
            start: losing.start,
        },
    }
}
