//! Committed offsets: what a group has read of which topic.

use std::collections::BTreeMap;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerId, TopicId};

use super::records::{OffsetValue, Record};
use super::{CommittedOffset, FetchedOffsets, GroupSettings, TopicPartition, Topics};
use crate::Now;

/// A commit as kept in memory.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) offset: Offset,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) metadata: Box<str>,
    pub(super) commit_timestamp: i64,
    pub(super) expire_timestamp: Option<i64>,
    pub(super) topic_id: TopicId,
    /// Log position (exclusive) of its record.
    written_at: Offset,
    /// Log position (exclusive) at which it came to count: that of its record, or of the marker that committed it.
    pub(super) at: Offset,
}

impl Stored {
    fn new(value: OffsetValue, at: Offset) -> Stored {
        Stored {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata.into(),
            commit_timestamp: value.commit_timestamp,
            expire_timestamp: value.expire_timestamp,
            topic_id: value.topic_id,
            written_at: at,
            at,
        }
    }

    fn committed(&self) -> CommittedOffset {
        CommittedOffset {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: self.metadata.to_string(),
            commit_timestamp: self.commit_timestamp,
            expire_timestamp: self.expire_timestamp,
        }
    }

    /// KIP-211: a client's own expiry, else the retention since `base`.
    pub(super) fn expired(&self, base: i64, settings: &GroupSettings, now: Now) -> bool {
        let retention = i64::try_from(settings.offsets_retention.as_millis()).unwrap_or(i64::MAX);
        let end = self
            .expire_timestamp
            .unwrap_or_else(|| base.saturating_add(retention));
        now.wall_ms >= end
    }

    /// Its topic was deleted (and perhaps made anew: then the id tells).
    pub(super) fn topic_is_gone(&self, topic: &str, topics: &dyn Topics) -> bool {
        if self.topic_id == TopicId::ZERO {
            topics.by_name(topic).is_none()
        } else {
            topics.name_of(self.topic_id).is_none()
        }
    }
}

/// The offsets of one group.
#[derive(Clone, Debug)]
pub(super) struct Offsets {
    by_topic: BTreeMap<Box<str>, BTreeMap<i32, Stored>>,
    /// Of transactions that are open, by topic and partition.
    pending: BTreeMap<(Box<str>, i32), BTreeMap<ProducerId, Stored>>,
    /// Log position (exclusive) of the last removal: "no offset" is read up to there.
    pub(super) removed_at: Offset,
}

impl Offsets {
    /// None, as far as the log was read up to `removed_at`.
    pub(super) fn none(removed_at: Offset) -> Offsets {
        Offsets {
            by_topic: BTreeMap::new(),
            pending: BTreeMap::new(),
            removed_at,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_topic.is_empty() && self.pending.is_empty()
    }

    /// A producer's transaction is to commit this.
    pub(super) fn pend(
        &mut self,
        producer: ProducerId,
        topic: &str,
        partition: i32,
        value: OffsetValue,
        at: Offset,
    ) {
        let pending = self.pending.entry((topic.into(), partition)).or_default();
        pending.insert(producer, Stored::new(value, at));
    }

    /// A producer's transaction has ended, with a marker before `at`. What was committed by others since stands.
    pub(super) fn end(
        &mut self,
        producer: ProducerId,
        committed: bool,
        at: Offset,
        index: &mut Index,
    ) {
        let mut ended = Vec::new();
        self.pending.retain(|key, by_producer| {
            ended.extend(
                by_producer
                    .remove(&producer)
                    .map(|stored| (key.clone(), stored)),
            );
            !by_producer.is_empty()
        });
        for ((topic, partition), stored) in ended {
            self.removed_at = self.removed_at.max(at);
            let before = self.get(&topic, partition);
            let later = before.is_some_and(|before| before.written_at > stored.written_at);
            let counts = committed || active(Mutant::AbortedOffsetsCount);
            if !counts || later {
                continue;
            }
            if let Some(before) = before {
                index.remove(&topic, partition, before.offset, before.topic_id);
            }
            index.add(&topic, partition, stored.offset, stored.topic_id);
            let by_partition = self.by_topic.entry(topic).or_default();
            by_partition.insert(partition, Stored { at, ..stored });
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether a transaction is to commit an offset there.
    pub(super) fn is_pending(&self, topic: &str, partition: i32) -> bool {
        !self.pending.is_empty() && self.pending.contains_key(&(topic.into(), partition))
    }

    /// Log position (exclusive) of the last such commit, if there is one.
    pub(super) fn pending_at(&self, key: &TopicPartition) -> Option<Offset> {
        let by_id = key.topic.is_empty() && key.id != TopicId::ZERO;
        let pending = self.pending.iter().filter(|((topic, partition), _)| {
            *partition == key.partition && (by_id || **topic == *key.topic)
        });
        let stored = pending.flat_map(|(_, by_producer)| by_producer.values());
        stored
            .filter(|stored| {
                let known = key.id != TopicId::ZERO && stored.topic_id != TopicId::ZERO;
                !known || stored.topic_id == key.id
            })
            .map(|stored| stored.at)
            .max()
    }

    /// The least that counts of a partition of the topic of that id: what is committed, or what transactions are to commit.
    pub(super) fn least(&self, topic: &str, id: TopicId, partition: i32) -> Option<Offset> {
        let is_it = |s: &&Stored| s.topic_id == id || s.topic_id == TopicId::ZERO;
        let committed = self.get(topic, partition).filter(is_it);
        let least = self.least_pending(topic, id, partition);
        committed.map(|s| s.offset).into_iter().chain(least).min()
    }

    /// The least that transactions are to commit there.
    pub(super) fn least_pending(&self, topic: &str, id: TopicId, partition: i32) -> Option<Offset> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = self.pending.get(&(topic.into(), partition))?.values();
        let pending = pending.filter(|s| s.topic_id == id || s.topic_id == TopicId::ZERO);
        pending.map(|stored| stored.offset).min()
    }

    /// Partitions of which there is nothing but what transactions are to commit.
    pub(super) fn pending_without_commit(&self) -> impl Iterator<Item = (&str, i32)> {
        let keys = self.pending.keys().map(|(topic, p)| (&**topic, *p));
        keys.filter(|(topic, p)| self.get(topic, *p).is_none())
    }

    /// Of those, the ones whose topic was deleted.
    pub(super) fn pending_of_gone(&self, topics: &dyn Topics) -> impl Iterator<Item = (&str, i32)> {
        let gone = |topic: &str, p: i32| {
            let pending = self.pending.get(&(topic.into(), p));
            pending.is_some_and(|by| by.values().any(|s| s.topic_is_gone(topic, topics)))
        };
        self.pending_without_commit()
            .filter(move |(topic, p)| gone(topic, *p))
    }

    /// By topic and partition.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i32, &Stored)> {
        self.by_topic.iter().flat_map(|(topic, by_partition)| {
            by_partition.iter().map(move |(p, s)| (&**topic, *p, s))
        })
    }

    pub(super) fn get(&self, topic: &str, partition: i32) -> Option<&Stored> {
        self.by_topic.get(topic)?.get(&partition)
    }

    fn find(&self, key: &TopicPartition) -> Option<&Stored> {
        if key.topic.is_empty() && key.id != TopicId::ZERO {
            return self
                .by_topic
                .values()
                .filter_map(|by_partition| by_partition.get(&key.partition))
                .find(|stored| stored.topic_id == key.id);
        }
        // Not the offset of a topic of that name which is no more.
        self.get(&key.topic, key.partition).filter(|stored| {
            key.id == TopicId::ZERO || stored.topic_id == TopicId::ZERO || stored.topic_id == key.id
        })
    }

    /// Returns what was there before.
    pub(super) fn apply(
        &mut self,
        topic: &str,
        partition: i32,
        value: Option<OffsetValue>,
        at: Offset,
    ) -> Option<Stored> {
        let Some(value) = value else {
            self.removed_at = at;
            // Nothing that was to be committed before comes back after it.
            if !self.pending.is_empty() {
                self.pending.remove(&(topic.into(), partition));
            }
            let by_partition = self.by_topic.get_mut(topic)?;
            let before = by_partition.remove(&partition);
            if by_partition.is_empty() {
                self.by_topic.remove(topic);
            }
            return before;
        };
        let stored = Stored::new(value, at);
        match self.by_topic.get_mut(topic) {
            Some(by_partition) => by_partition.insert(partition, stored),
            None => {
                self.by_topic
                    .insert(topic.into(), BTreeMap::from([(partition, stored)]));
                None
            }
        }
    }

    /// What OffsetFetch answers, and the position that must be durable first.
    pub(super) fn fetch(&self, wanted: Option<&[TopicPartition]>) -> (FetchedOffsets, Offset) {
        let mut after = self.removed_at;
        let Some(wanted) = wanted else {
            let all = self
                .iter()
                .map(|(topic, partition, stored)| {
                    after = after.max(stored.at);
                    let key = TopicPartition {
                        topic: topic.to_owned(),
                        id: stored.topic_id,
                        partition,
                    };
                    (key, Some(stored.committed()))
                })
                .collect();
            return (all, after);
        };
        let found = wanted
            .iter()
            .map(|key| {
                let stored = self.find(key);
                if let Some(stored) = stored {
                    after = after.max(stored.at);
                }
                (key.clone(), stored.map(Stored::committed))
            })
            .collect();
        (found, after)
    }
}

/// Records of a commit that has been let through, and an error for each partition, in the order asked.
pub(super) fn commit(
    group: &str,
    offsets: Vec<(TopicPartition, CommittedOffset)>,
    topics: &dyn Topics,
    settings: &GroupSettings,
    now: Now,
) -> (Vec<Record>, Vec<ErrorCode>) {
    let mut records = Vec::with_capacity(offsets.len());
    let mut errors = Vec::with_capacity(offsets.len());
    for (partition, committed) in offsets {
        let mut topic = find(&partition, topics);
        if topic.is_ok() && too_long(&committed.metadata, settings.metadata_max_bytes) {
            topic = Err(ErrorCode::OFFSET_METADATA_TOO_LARGE);
        }
        match topic {
            Ok((topic, topic_id)) => {
                errors.push(ErrorCode::NONE);
                records.push(Record::Offset {
                    group: group.to_owned(),
                    topic,
                    partition: partition.partition,
                    value: Some(OffsetValue {
                        offset: committed.offset,
                        leader_epoch: committed.leader_epoch,
                        metadata: committed.metadata,
                        commit_timestamp: now.wall_ms,
                        expire_timestamp: committed.expire_timestamp,
                        topic_id,
                    }),
                });
            }
            Err(error) => errors.push(error),
        }
    }
    (records, errors)
}

/// Name and id of the topic that a client means.
pub(super) fn find(
    partition: &TopicPartition,
    topics: &dyn Topics,
) -> Result<(String, TopicId), ErrorCode> {
    let name = if partition.id == TopicId::ZERO {
        partition.topic.as_str()
    } else {
        topics
            .name_of(partition.id)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?
    };
    match topics.by_name(name) {
        Some((id, partitions)) if (0..partitions).contains(&partition.partition) => {
            Ok((name.to_owned(), id))
        }
        _ => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    }
}

/// Kafka counts UTF-16 units, and so must we: what it takes we take.
fn too_long(metadata: &str, max: usize) -> bool {
    metadata.len() > max && metadata.encode_utf16().count() > max
}

/// Over all groups of a shard: who has committed what for a partition, and for which topics by what id.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeMap<Box<str>, TopicIndex>);

#[derive(Debug, Default)]
struct TopicIndex {
    ids: BTreeMap<TopicId, usize>,
    partitions: BTreeMap<i32, BTreeMap<Offset, usize>>,
}

impl Index {
    pub(super) fn add(&mut self, topic: &str, partition: i32, offset: Offset, id: TopicId) {
        if !self.0.contains_key(topic) {
            self.0.insert(topic.into(), TopicIndex::default());
        }
        if let Some(index) = self.0.get_mut(topic) {
            *index.ids.entry(id).or_default() += 1;
            let offsets = index.partitions.entry(partition).or_default();
            *offsets.entry(offset).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, topic: &str, partition: i32, offset: Offset, id: TopicId) {
        let Some(index) = self.0.get_mut(topic) else {
            return;
        };
        take_one(&mut index.ids, &id);
        if let Some(offsets) = index.partitions.get_mut(&partition) {
            take_one(offsets, &offset);
            if offsets.is_empty() {
                index.partitions.remove(&partition);
            }
        }
        if index.partitions.is_empty() {
            self.0.remove(topic);
        }
    }

    pub(super) fn least(&self, topic: &str, partition: i32) -> Option<Offset> {
        let offsets = self.0.get(topic)?.partitions.get(&partition)?;
        offsets.keys().next().copied()
    }

    /// Whether any group has an offset of another topic of that name.
    pub(super) fn has_other(&self, topic: &str, id: TopicId) -> bool {
        let index = self.0.get(topic);
        index.is_some_and(|i| i.ids.keys().any(|of| *of != id && *of != TopicId::ZERO))
    }

    /// Whether any group has an offset of a topic that is no more.
    pub(super) fn any_gone(&self, topics: &dyn Topics) -> bool {
        self.0.iter().any(|(name, index)| {
            index.ids.keys().any(|id| {
                if *id == TopicId::ZERO {
                    topics.by_name(name).is_none()
                } else {
                    topics.name_of(*id).is_none()
                }
            })
        })
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
