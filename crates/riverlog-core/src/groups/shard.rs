//! The groups of one partition of `__consumer_offsets`.

mod commands;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, Offset, ProducerId, TopicId};

use super::classic::Classic;
use super::consumer::Consumer;
use super::effects::{Out, SoftChange};
use super::offsets::{Index, Offsets};
use super::records::{OffsetValue, Record, ShareRecord, StreamsRecord};
use super::share::Share;
use super::streams::{Streams, StreamsDescription};
use super::{
    FetchedOffsets, GroupDescription, GroupSettings, ShareTopics, Soft, StableOffsets,
    TopicPartition,
};
use crate::Now;

/// The groups of one partition of `__consumer_offsets`.
///
/// The host keeps the order: it performs a decision (soft changes, append, `apply` of each record at the offset it was given)
/// before it asks for the next one. It need not wait for durability in between; answers do that.
#[derive(Debug)]
pub struct GroupShard {
    settings: GroupSettings,
    groups: BTreeMap<Arc<str>, Group>,
    index: Index,
    /// One for each group that has anything due, at or before its earliest deadline: heartbeats only push deadlines
    /// back, so an alarm is set anew when it rings, not with each of them.
    alarms: BTreeSet<(Duration, Arc<str>)>,
    /// Nobody is expired before.
    held_until: Duration,
    /// Records are being read back.
    loading: bool,
    /// Log position (exclusive) where a group last ceased to be: "no such group" is read up to there.
    removed_at: Offset,
    /// Groups with offsets of transactions that are open, by the producer.
    pending: BTreeMap<ProducerId, BTreeSet<Arc<str>>>,
    topics_walk: Option<String>,
    expiry_from: Option<String>,
    expiry_at: Duration,
}

#[derive(Debug)]
struct Group {
    kind: Kind,
    offsets: Offsets,
    /// Log position (exclusive) of the last record on its members.
    changed_at: Offset,
    alarm: Option<Duration>,
}

#[derive(Debug)]
enum Kind {
    /// Also a group of offsets alone.
    Classic(Box<Classic>),
    Consumer(Box<Consumer>),
    Share(Box<Share>),
    Streams(Box<Streams>),
}

impl Group {
    fn new(removed_at: Offset) -> Group {
        Group {
            kind: Kind::Classic(Box::default()),
            offsets: Offsets::none(removed_at),
            changed_at: removed_at,
            alarm: None,
        }
    }

    /// There is nothing to say of it: it doesn't exist.
    fn is_void(&self) -> bool {
        let no_members = match &self.kind {
            Kind::Classic(classic) => classic.is_void(),
            Kind::Consumer(_) | Kind::Share(_) | Kind::Streams(_) => false,
        };
        no_members && self.offsets.is_empty()
    }

    fn has_no_members(&self) -> bool {
        match &self.kind {
            Kind::Classic(classic) => classic.is_empty(),
            Kind::Consumer(consumer) => consumer.is_empty(),
            Kind::Share(share) => share.is_empty(),
            Kind::Streams(streams) => streams.is_empty(),
        }
    }

    fn next_deadline(&self, held_until: Duration) -> Option<Duration> {
        match &self.kind {
            Kind::Classic(classic) => classic.next_deadline(held_until),
            Kind::Consumer(consumer) => consumer.next_deadline(held_until),
            Kind::Share(share) => share.next_deadline(held_until),
            Kind::Streams(streams) => streams.next_deadline(held_until),
        }
    }

    fn describe(&self, name: &str) -> GroupDescription {
        match &self.kind {
            Kind::Classic(classic) => classic.describe(name),
            Kind::Consumer(consumer) => consumer.describe(name),
            Kind::Share(share) => share.describe(name),
            Kind::Streams(streams) => streams.describe(name),
        }
    }

    /// Tombstones for all there is of it.
    fn delete(&self, name: &str, out: &mut Out) {
        for (topic, partition, _) in self.offsets.iter() {
            out.record(&forget_offset(name, topic, partition));
        }
        for (topic, partition) in self.offsets.pending_without_commit() {
            out.record(&forget_offset(name, topic, partition));
        }
        match &self.kind {
            Kind::Classic(_) => out.record(&Record::Group {
                group: name.to_owned(),
                value: None,
            }),
            Kind::Consumer(_) => Consumer::delete(name, out),
            Kind::Share(_) => Share::delete(name, out),
            Kind::Streams(_) => Streams::delete(name, out),
        }
    }
}

fn forget_offset(group: &str, topic: &str, partition: i32) -> Record {
    Record::Offset {
        group: group.to_owned(),
        topic: topic.to_owned(),
        partition,
        value: None,
    }
}

impl GroupShard {
    /// An empty shard; feed it the partition's records by [`GroupShard::apply`], then call [`GroupShard::loaded`], then
    /// [`GroupShard::decide_topics_changed`], since topics may have changed meanwhile.
    pub fn new(settings: GroupSettings) -> GroupShard {
        GroupShard {
            settings,
            groups: BTreeMap::new(),
            index: Index::default(),
            alarms: BTreeSet::new(),
            held_until: Duration::ZERO,
            loading: true,
            removed_at: Offset::ZERO,
            pending: BTreeMap::new(),
            topics_walk: None,
            expiry_from: None,
            expiry_at: Duration::ZERO,
        }
    }

    /// All records have been applied: members get a fresh session from `now` on.
    pub fn loaded(&mut self, now: Now) {
        self.loading = false;
        self.expiry_at = now.mono.saturating_add(upkeep::FIRST_EXPIRY);
        for group in self.groups.values_mut() {
            match &mut group.kind {
                Kind::Classic(classic) => classic.loaded(now),
                Kind::Consumer(consumer) => consumer.loaded(now, &self.settings),
                Kind::Share(share) => share.loaded(now, &self.settings),
                Kind::Streams(streams) => streams.loaded(now, &self.settings),
            }
        }
        let names: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for name in names {
            self.rearm(&name);
        }
    }

    /// A record was appended at `at`. Unknown or damaged records are skipped.
    pub fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, now: Now) {
        self.apply_of(None, key, value, at, now);
    }

    /// A record of a producer's transaction was appended at `at`: an offset counts once the transaction is committed.
    pub fn apply_in_transaction(
        &mut self,
        producer: ProducerId,
        key: &[u8],
        value: Option<&[u8]>,
        at: Offset,
        now: Now,
    ) {
        self.apply_of(Some(producer), key, value, at, now);
    }

    /// The marker that ends a producer's transaction was appended at `at`.
    pub fn end_transaction(&mut self, producer: ProducerId, committed: bool, at: Offset) {
        for name in self.pending.remove(&producer).unwrap_or_default() {
            let Some(group) = self.groups.get_mut(&name) else {
                continue;
            };
            let offsets = &mut group.offsets;
            offsets.end(producer, committed, at.plus(1), &mut self.index);
            if group.is_void() {
                self.forget(&name);
            }
        }
    }

    fn apply_of(
        &mut self,
        producer: Option<ProducerId>,
        key: &[u8],
        value: Option<&[u8]>,
        at: Offset,
        now: Now,
    ) {
        let Ok(Some(record)) = Record::decode(key, value) else {
            return;
        };
        let end = at.plus(1);
        let name: Arc<str> = match self.groups.get_key_value(record.group()) {
            Some((name, _)) => name.clone(),
            None => record.group().into(),
        };
        let removed_at = self.removed_at;
        let group = self
            .groups
            .entry(name.clone())
            .or_insert_with(|| Group::new(removed_at));
        let mut deadline = None;
        match &record {
            Record::Offset {
                topic,
                partition,
                value: Some(value),
                ..
            } if let Some(producer) = producer
                && !active(Mutant::PendingOffsetsCount) =>
            {
                let offsets = &mut group.offsets;
                offsets.pend(producer, topic, *partition, value.clone(), end);
                self.pending
                    .entry(producer)
                    .or_default()
                    .insert(name.clone());
            }
            Record::Offset {
                topic,
                partition,
                value,
                ..
            } => apply_offset(
                group,
                &mut self.index,
                topic,
                *partition,
                value.clone(),
                end,
            ),
            Record::Group { value, .. } => {
                group.changed_at = end;
                match (&mut group.kind, value) {
                    // Ours: the soft change of its decision brought it already.
                    (Kind::Classic(c), Some(v))
                        if !self.loading && c.generation() == v.generation => {}
                    (Kind::Consumer(c), Some(_)) if !c.is_empty() => {}
                    (Kind::Share(_), Some(_)) => {}
                    (Kind::Streams(s), Some(_)) if !s.is_empty() => {}
                    (_, Some(value)) => {
                        let mut classic = Classic::from_value(value);
                        classic.loaded(now);
                        group.kind = Kind::Classic(Box::new(classic));
                        deadline = group.next_deadline(self.held_until);
                    }
                    (Kind::Classic(c), None) if c.is_empty() || self.loading => {
                        **c = Classic::default();
                    }
                    (_, None) => {}
                }
            }
            Record::Share { record, .. } => {
                if let Kind::Classic(classic) = &group.kind
                    && !record.is_tombstone()
                    && (classic.is_empty() || self.loading)
                {
                    group.kind = Kind::Share(Box::default());
                }
                if let Kind::Share(share) = &mut group.kind {
                    group.changed_at = end;
                    deadline = share.apply(record, end, now, &self.settings);
                    if matches!(record, ShareRecord::Group(None)) {
                        group.kind = Kind::Classic(Box::default());
                    }
                }
            }
            Record::Streams { record, .. } => {
                if let Kind::Classic(classic) = &group.kind
                    && !record.is_tombstone()
                    && (classic.is_empty() || self.loading)
                {
                    group.kind = Kind::Streams(Box::default());
                }
                if let Kind::Streams(streams) = &mut group.kind {
                    group.changed_at = end;
                    deadline = streams.apply(record, end, now, &self.settings);
                    if matches!(record, StreamsRecord::Group(None)) {
                        group.kind = Kind::Classic(Box::default());
                    }
                }
            }
            Record::ConsumerGroup { value: None, .. } => {
                group.changed_at = end;
                if matches!(group.kind, Kind::Consumer(_)) {
                    group.kind = Kind::Classic(Box::default());
                }
            }
            _ => {
                let holds = !matches!(
                    record,
                    Record::TargetEpoch { value: None, .. }
                        | Record::ConsumerMember { value: None, .. }
                        | Record::TargetMember { value: None, .. }
                        | Record::CurrentMember { value: None, .. }
                );
                if let Kind::Classic(classic) = &group.kind
                    && holds
                    && (classic.is_empty() || self.loading)
                {
                    group.kind = Kind::Consumer(Box::default());
                }
                if let Kind::Consumer(consumer) = &mut group.kind {
                    group.changed_at = end;
                    deadline = consumer.apply(&record, end, now, &self.settings);
                }
            }
        }
        if group.is_void() {
            self.forget(&name);
        } else if let Some(at) = deadline {
            self.arm(&name, at);
        }
    }

    /// Performs a soft change of a decision of this shard.
    pub fn soft(&mut self, change: Soft) {
        match change.0 {
            SoftChange::Classic { group, state } => {
                let removed_at = self.removed_at;
                let found = self
                    .groups
                    .entry(group.clone())
                    .or_insert_with(|| Group::new(removed_at));
                found.kind = Kind::Classic(state);
                if found.is_void() {
                    self.forget(&group);
                } else {
                    self.rearm(&group);
                }
            }
            SoftChange::Session {
                group,
                member,
                until,
                synced,
            } => {
                if let Some(found) = self.groups.get_mut(&group) {
                    match &mut found.kind {
                        Kind::Classic(classic) => classic.renew(&member, until, synced),
                        Kind::Consumer(consumer) => consumer.renew(&member, until, synced),
                        Kind::Share(share) => share.renew(&member, until),
                        Kind::Streams(streams) => streams.renew(&member, until),
                    }
                    self.arm(&group, until);
                }
            }
            SoftChange::Streams { group, change } => {
                if let Some(found) = self.groups.get_mut(&group)
                    && let Kind::Streams(streams) = &mut found.kind
                {
                    streams.soft(change);
                }
            }
            SoftChange::Due {
                group,
                member,
                by,
                anew,
            } => {
                if let Some(found) = self.groups.get_mut(&group)
                    && let Kind::Consumer(consumer) = &mut found.kind
                {
                    consumer.set_due(member, by, anew);
                    self.arm(&group, by);
                }
            }
            SoftChange::Rearm(group) => self.rearm(&group),
            SoftChange::TopicsWalk(from) => self.topics_walk = from,
            SoftChange::ExpiryWalk { from, at } => {
                self.expiry_from = from;
                self.expiry_at = at;
            }
        }
    }

    fn forget(&mut self, name: &str) {
        let Some((name, group)) = self.groups.remove_entry(name) else {
            return;
        };
        let read_at = group.changed_at.max(group.offsets.removed_at);
        self.removed_at = self.removed_at.max(read_at);
        if let Some(alarm) = group.alarm {
            self.alarms.remove(&(alarm, name));
        }
    }

    /// Lets the group's alarm ring no later than `at`.
    fn arm(&mut self, name: &Arc<str>, at: Duration) {
        if let Some(group) = self.groups.get(name)
            && group.alarm.is_none_or(|alarm| at < alarm)
        {
            self.set_alarm(name, Some(at));
        }
    }

    fn rearm(&mut self, name: &Arc<str>) {
        if let Some(group) = self.groups.get(name) {
            self.set_alarm(name, group.next_deadline(self.held_until));
        }
    }

    fn set_alarm(&mut self, name: &Arc<str>, at: Option<Duration>) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut group.alarm, at) {
            self.alarms.remove(&(before, name.clone()));
        }
        if let Some(at) = at {
            self.alarms.insert((at, name.clone()));
        }
    }

    /// While appends lag, nobody is expired: sessions are extended to at least `until`.
    pub fn hold_sessions(&mut self, until: Duration) {
        self.held_until = self.held_until.max(until);
    }

    /// Committed offsets (durable ones are the host's to wait for: the second value is the position that must be durable).
    /// `None` for all of a group's partitions.
    ///
    /// - In the order asked; an offset that was never committed is `None`, and so is that of a deleted topic when the id of
    ///   the one asked for is given. With an id and an empty name, the id decides. For all, ids are those stored.
    /// - `member`: id and member epoch of the one that asks, which groups of the consumer protocol and streams groups check:
    ///   UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    pub fn offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        member: Option<(&str, i32)>,
    ) -> (Result<FetchedOffsets, ErrorCode>, Offset) {
        let Some(group) = self.groups.get(group) else {
            let nothing = partitions.unwrap_or_default();
            let nothing = nothing.iter().map(|p| (p.clone(), None)).collect();
            return (Ok(nothing), self.removed_at);
        };
        let checked = match (&group.kind, member) {
            (Kind::Consumer(c), Some((member, epoch))) => c.check_fetch(member, epoch),
            (Kind::Streams(s), Some((member, epoch))) => s.check_fetch(member, epoch),
            _ => Ok(()),
        };
        if let Err(error) = checked {
            return (Err(error), group.changed_at);
        }
        let (found, after) = group.offsets.fetch(partitions);
        (Ok(found), after)
    }

    /// As [`GroupShard::offsets`], and UNSTABLE_OFFSET_COMMIT for a partition whose offset an open transaction is to change.
    pub fn stable_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        member: Option<(&str, i32)>,
    ) -> (Result<StableOffsets, ErrorCode>, Offset) {
        let (found, mut after) = self.offsets(group, partitions, member);
        let offsets = self.groups.get(group).map(|g| &g.offsets);
        let found = found.map(|found| {
            let each = found.into_iter().map(|(key, committed)| {
                match offsets.and_then(|offsets| offsets.pending_at(&key)) {
                    Some(at) => {
                        after = after.max(at);
                        (key, Err(ErrorCode::UNSTABLE_OFFSET_COMMIT))
                    }
                    None => (key, Ok(committed)),
                }
            });
            each.collect()
        });
        (found, after)
    }

    /// Partitions of which something is kept for a share group; GROUP_ID_NOT_FOUND. The second value is the position that must be
    /// durable before it is told.
    pub fn share_topics(&self, group: &str) -> (Result<ShareTopics, ErrorCode>, Offset) {
        match self.groups.get(group) {
            Some(Group {
                kind: Kind::Share(share),
                changed_at,
                ..
            }) => (Ok(share.kept_topics()), *changed_at),
            Some(other) => (Err(ErrorCode::GROUP_ID_NOT_FOUND), other.changed_at),
            None => (Err(ErrorCode::GROUP_ID_NOT_FOUND), self.removed_at),
        }
    }

    /// A streams group, whole; GROUP_ID_NOT_FOUND. The second value is the position that must be durable before it is told.
    pub fn describe_streams(&self, group: &str) -> (Result<StreamsDescription, ErrorCode>, Offset) {
        match self.groups.get(group) {
            Some(Group {
                kind: Kind::Streams(streams),
                changed_at,
                ..
            }) => (Ok(streams.describe_whole()), *changed_at),
            Some(other) => (Err(ErrorCode::GROUP_ID_NOT_FOUND), other.changed_at),
            None => (Err(ErrorCode::GROUP_ID_NOT_FOUND), self.removed_at),
        }
    }

    /// All groups, in order of name.
    pub fn groups(&self) -> Vec<GroupDescription> {
        let groups = self.groups.iter();
        groups.map(|(name, group)| group.describe(name)).collect()
    }

    /// One group; `None` when there is none of that name.
    pub fn describe(&self, group: &str) -> Option<GroupDescription> {
        let (name, group) = self.groups.get_key_value(group)?;
        Some(group.describe(name))
    }

    /// Groups that have committed less than `before` in a partition, with what they have.
    pub fn behind(&self, topic: &str, partition: i32, before: Offset) -> Vec<(String, Offset)> {
        let least = self.index.least(topic, partition);
        if least.is_none_or(|least| least >= before) {
            return Vec::new();
        }
        let committed = self.groups.iter().filter_map(|(name, group)| {
            let offset = group.offsets.get(topic, partition)?.offset;
            (offset < before).then(|| (name.to_string(), offset))
        });
        committed.collect()
    }

    /// The least committed offset of a partition over all groups that have one there (for bounded partitions).
    pub fn least_committed(&self, topic: &str, partition: i32) -> Option<Offset> {
        self.index.least(topic, partition)
    }

    /// [`GroupShard::least_committed`] of the topic of that id, or less where open transactions are to commit less: what other nodes are told, who
    /// aren't told when those end. COORDINATOR_LOAD_IN_PROGRESS while offsets of another topic of that name are to go yet.
    pub fn least_counted(
        &self,
        topic: &str,
        id: TopicId,
        partition: i32,
    ) -> Result<Option<Offset>, ErrorCode> {
        if self.index.has_other(topic, id) {
            return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        }
        let groups: BTreeSet<&Arc<str>> = self.pending.values().flatten().collect();
        let groups = groups.into_iter().filter_map(|name| self.groups.get(name));
        let pending = groups.filter_map(|g| g.offsets.least_pending(topic, id, partition));
        Ok(self
            .index
            .least(topic, partition)
            .into_iter()
            .chain(pending)
            .min())
    }

    /// Whether [`GroupShard::least_counted`] may become less by a commit: the group has none there, or a greater one.
    pub fn is_lower(
        &self,
        group: &str,
        (topic, id, partition): (&str, TopicId, i32),
        offset: Offset,
    ) -> bool {
        let group = self.groups.get(group);
        let least = group.and_then(|g| g.offsets.least(topic, id, partition));
        least.is_none_or(|least| offset < least)
    }
}

fn apply_offset(
    group: &mut Group,
    index: &mut Index,
    topic: &str,
    partition: i32,
    value: Option<OffsetValue>,
    end: Offset,
) {
    if let Some(value) = &value {
        index.add(topic, partition, value.offset, value.topic_id);
    }
    if let Some(before) = group.offsets.apply(topic, partition, value, end) {
        index.remove(topic, partition, before.offset, before.topic_id);
    }
}
