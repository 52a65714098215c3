//! Which topics and partitions live here: the look-ups of the hot path, beside the metadata image.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use parking_lot::RwLock;
use rapidhash::RapidHashMap;
use riverlog_core::config::TopicConfig;
use riverlog_core::metadata::TopicRef;
use riverlog_log::LogKey;
use riverlog_wire::{ErrorCode, TopicId};

use crate::partition::Partition;

/// A topic of which partitions are here.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) info: Arc<TopicInfo>,
    /// By number.
    pub(crate) partitions: RwLock<Vec<Slot>>,
}

/// What partitions know of their topic: one for all, so that a hundred thousand of them cost little.
#[derive(Debug)]
pub(crate) struct TopicInfo {
    pub(crate) id: TopicId,
    pub(crate) name: String,
    pub(crate) internal: bool,
    pub(crate) config: ArcSwap<TopicConfig>,
}

impl TopicInfo {
    pub(crate) fn new(
        id: TopicId,
        name: String,
        internal: bool,
        config: TopicConfig,
    ) -> Arc<TopicInfo> {
        Arc::new(TopicInfo {
            id,
            name,
            internal,
            config: ArcSwap::from_pointee(config),
        })
    }

    /// Whether it has `riverlog.max.records` or `riverlog.max.bytes`.
    pub(crate) fn is_bounded(&self) -> bool {
        is_bounded(&self.config.load())
    }
}

pub(crate) fn is_bounded(config: &TopicConfig) -> bool {
    config.max_records >= 0 || config.max_bytes >= 0
}

/// A partition as seen from this node.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// Led or followed here.
    Here(Arc<Partition>),
    /// Other nodes have it.
    Elsewhere,
    /// Its log can't be opened: why.
    Broken(String),
}

impl Topic {
    pub(crate) fn new(info: Arc<TopicInfo>) -> Topic {
        Topic {
            info,
            partitions: RwLock::new(Vec::new()),
        }
    }

    /// One that is led here.
    pub(crate) fn partition(&self, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let partition = self.copy(index)?;
        match partition.leads.load(Ordering::Acquire) {
            true => Ok(partition),
            false => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        }
    }

    /// Room for so many partitions.
    pub(crate) fn reserve(&self, partitions: usize) {
        let mut slots = self.partitions.write();
        let open = slots.len();
        slots.reserve_exact(partitions.saturating_sub(open));
    }

    /// `None` beyond the last.
    pub(crate) fn slot(&self, at: usize) -> Option<Slot> {
        self.partitions.read().get(at).cloned()
    }

    /// In the place of what is there, or behind the last. Only who has the node's `roles`.
    pub(crate) fn put(&self, at: usize, slot: Slot) {
        let mut slots = self.partitions.write();
        match slots.get_mut(at) {
            Some(known) => *known = slot,
            None => slots.push(slot),
        }
    }

    /// A copy that is here can't be used. `false`: it isn't here any more.
    pub(crate) fn breaks(&self, partition: &Arc<Partition>, why: &str) -> bool {
        let mut slots = self.partitions.write();
        let is_it = |slot: &Slot| matches!(slot, Slot::Here(here) if Arc::ptr_eq(here, partition));
        let found = slots.iter_mut().find(|slot| is_it(slot));
        let is_here = found.is_some();
        if let Some(slot) = found {
            *slot = Slot::Broken(why.to_owned());
        }
        is_here
    }

    /// One of which a copy is here.
    pub(crate) fn copy(&self, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let at = usize::try_from(index).map_err(|_| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        match self.partitions.read().get(at) {
            Some(Slot::Here(partition)) => Ok(partition.clone()),
            Some(Slot::Elsewhere) => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Some(Slot::Broken(_)) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        }
    }
}

impl Topic {
    /// By number; `None` for those that aren't led here.
    pub(crate) fn led(&self) -> Vec<Option<Arc<Partition>>> {
        let led = |p: &Arc<Partition>| p.leads.load(Ordering::Acquire);
        let slots = self.slots().into_iter();
        slots.map(|slot| slot.filter(led)).collect()
    }

    /// By number; `None` for those of which no copy is here.
    pub(crate) fn slots(&self) -> Vec<Option<Arc<Partition>>> {
        let slots = self.partitions.read();
        let here = slots.iter().map(|slot| match slot {
            Slot::Here(partition) => Some(partition.clone()),
            Slot::Elsewhere | Slot::Broken(_) => None,
        });
        here.collect()
    }

    /// Numbers of those whose log can't be opened.
    pub(crate) fn broken(&self) -> Vec<i32> {
        let slots = self.partitions.read();
        let numbered = (0..).zip(slots.iter());
        let broken = numbered.filter(|(_, slot)| matches!(slot, Slot::Broken(_)));
        broken.map(|(index, _)| index).collect()
    }

    /// Whether there are any.
    pub(crate) fn has_broken(&self) -> bool {
        let slots = self.partitions.read();
        slots.iter().any(|slot| matches!(slot, Slot::Broken(_)))
    }

    /// The partitions led or followed here, in order.
    pub(crate) fn here(&self) -> Vec<Arc<Partition>> {
        self.slots().into_iter().flatten().collect()
    }
}

/// All topics with partitions here. No iteration order of these maps is ever visible.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    maps: RwLock<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    topics: RapidHashMap<TopicId, Arc<Topic>>,
    // Names are chosen by clients: the standard hasher resists chosen collisions.
    names: HashMap<String, TopicId>,
}

impl Tables {
    pub(crate) fn topic(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.maps.read().topics.get(&id).cloned()
    }

    pub(crate) fn insert(&self, topic: Arc<Topic>) {
        let mut maps = self.maps.write();
        maps.names.insert(topic.info.name.clone(), topic.info.id);
        maps.topics.insert(topic.info.id, topic);
    }

    pub(crate) fn remove(&self, id: TopicId) -> Option<Arc<Topic>> {
        let mut maps = self.maps.write();
        let topic = maps.topics.remove(&id)?;
        // A topic made anew under the name keeps it.
        if maps.names.get(&topic.info.name) == Some(&id) {
            maps.names.remove(&topic.info.name);
        }
        Some(topic)
    }

    /// All topics in order of id.
    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        let mut all: Vec<_> = self.maps.read().topics.values().cloned().collect();
        all.sort_unstable_by_key(|t| t.info.id);
        all
    }

    /// A partition that is led here.
    pub(crate) fn find(
        &self,
        topic: &TopicRef,
        partition: i32,
    ) -> Result<Arc<Partition>, ErrorCode> {
        self.find_topic(topic)?.partition(partition)
    }

    /// A partition that is led or followed here.
    pub(crate) fn find_copy(
        &self,
        topic: &TopicRef,
        partition: i32,
    ) -> Result<Arc<Partition>, ErrorCode> {
        self.find_topic(topic)?.copy(partition)
    }

    fn find_topic(&self, topic: &TopicRef) -> Result<Arc<Topic>, ErrorCode> {
        let maps = self.maps.read();
        match topic {
            TopicRef::Name(name) => maps
                .names
                .get(name)
                .and_then(|id| maps.topics.get(id).cloned())
                .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            TopicRef::Id(id) => {
                let topic = maps.topics.get(id).cloned();
                topic.ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
            }
        }
    }

    /// Led or followed here.
    pub(crate) fn by_key(&self, key: LogKey) -> Option<Arc<Partition>> {
        // One lock after the other: whoever waits for a topic's must not keep others from all topics.
        let topic = self.topic(key.topic)?;
        topic.copy(key.partition.0).ok()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Topic>> {
        let maps = self.maps.read();
        maps.topics.get(maps.names.get(name)?).cloned()
    }
}
