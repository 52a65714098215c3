//! A share group (KIP-932): members read partitions together, and nothing has to be given back before another may read.
//!
//! Everything but sessions comes from records, as in a group of the consumer protocol. A member is brought to the target with
//! its next heartbeat.

mod heartbeat;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::{Offset, TopicId};

use super::assign::Part;
use super::consumer::by_topic;
use super::draft::Drafted;
use super::effects::Out;
use super::members;
use super::records::{
    Record, ShareCurrentValue, ShareGroupValue, ShareMemberValue, ShareRecord, ShareTopic,
    ShareTopicsValue, TargetEpochValue, TargetMemberValue,
};
use super::{
    GroupDescription, GroupSettings, MemberDescription, ShareTopics, Topics, metadata_hash,
};
use crate::Now;

pub(super) use heartbeat::Heartbeat;

#[cfg(test)]
mod tests;

/// A share group.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    value: ShareGroupValue,
    target_epoch: i32,
    members: BTreeMap<Arc<str>, Arc<Member>>,
    targets: BTreeMap<Arc<str>, Arc<BTreeSet<Part>>>,
    /// Partitions of which something is kept for it.
    topics: ShareTopicsValue,
    /// Soft: when a silent member is taken for gone.
    sessions: BTreeMap<Arc<str>, Duration>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    /// `None` until its record has been read.
    value: Option<ShareMemberValue>,
    current: ShareCurrentValue,
    /// Log position (exclusive) of its last record.
    changed_at: Offset,
}

impl Share {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Applies a record of this group. Returns a deadline that it brought.
    pub(super) fn apply(
        &mut self,
        record: &ShareRecord,
        at: Offset,
        now: Now,
        settings: &GroupSettings,
    ) -> Option<Duration> {
        match record {
            ShareRecord::Group(value) => self.value = value.unwrap_or_default(),
            ShareRecord::TargetEpoch(value) => self.target_epoch = value.map_or(0, |v| v.epoch),
            ShareRecord::Topics(value) => self.topics = value.clone().unwrap_or_default(),
            ShareRecord::TargetMember(member, None) => {
                self.targets.remove(member.as_str());
            }
            ShareRecord::TargetMember(member, Some(value)) => {
                let parts = value.partitions.iter();
                let parts = parts.flat_map(|(t, all)| all.iter().map(|p| (*t, *p)));
                self.targets
                    .insert(member.as_str().into(), Arc::new(parts.collect()));
            }
            ShareRecord::Member(member, None) => {
                self.members.remove(member.as_str());
                self.sessions.remove(member.as_str());
            }
            ShareRecord::Member(member, Some(value)) => {
                let id = members::known(&mut self.members, member);
                let until = now.mono.saturating_add(settings.share_session_timeout);
                self.sessions.entry(id).or_insert(until);
                self.change(member, at, |m| m.value = Some(value.clone()));
                return Some(until);
            }
            ShareRecord::CurrentMember(member, Some(value)) => {
                members::known(&mut self.members, member);
                self.change(member, at, |m| m.current = value.clone());
            }
            ShareRecord::CurrentMember(member, None) => {
                self.change(member, at, |m| m.current = ShareCurrentValue::default());
            }
        }
        None
    }

    fn change(&mut self, member: &str, at: Offset, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.get_mut(member) {
            let member = Arc::make_mut(member);
            member.changed_at = at;
            change(member);
        }
    }

    /// All records are read: everybody gets a fresh session.
    pub(super) fn loaded(&mut self, now: Now, settings: &GroupSettings) {
        self.members.retain(|_, m| m.value.is_some());
        let until = now.mono.saturating_add(settings.share_session_timeout);
        self.sessions = self.members.keys().map(|id| (id.clone(), until)).collect();
    }

    pub(super) fn renew(&mut self, member: &str, until: Duration) {
        if let Some(session) = self.sessions.get_mut(member) {
            *session = until;
        }
    }

    /// When the next member is to be expired; nobody is before `held_until`.
    pub(super) fn next_deadline(&self, held_until: Duration) -> Option<Duration> {
        let first = self.sessions.values().min()?;
        Some((*first).max(held_until))
    }

    /// Topics that some member subscribes to and that exist: name, id and partitions, in order of name.
    fn subscribed(&self, topics: &dyn Topics) -> Vec<(String, TopicId, i32)> {
        let values = self.members.values().filter_map(|m| m.value.as_ref());
        let names: BTreeSet<&String> = values.flat_map(|v| &v.topics).collect();
        let exist = names.into_iter().filter_map(|name| {
            let (id, partitions) = topics.by_name(name)?;
            Some((name.clone(), id, partitions))
        });
        exist.collect()
    }

    /// Changes when a subscribed topic is made, deleted or grown.
    fn metadata_hash(&self, topics: &dyn Topics) -> i64 {
        let subscribed = self.subscribed(topics);
        let each = subscribed
            .iter()
            .map(|(name, id, partitions)| (name.as_str(), *id, *partitions));
        metadata_hash(each)
    }

    /// What each member shall read: each partition has a reader, each subscriber of a topic a partition of it, and loads are
    /// even: where there are fewer partitions than members, several read one.
    fn desired(&self, topics: &dyn Topics) -> BTreeMap<Arc<str>, BTreeSet<Part>> {
        let mut desired: BTreeMap<Arc<str>, BTreeSet<Part>> = self
            .members
            .keys()
            .map(|id| (id.clone(), BTreeSet::new()))
            .collect();
        // Topics go on with the member after the last one, so that single partitions don't all go to the first.
        let mut turn = 0;
        for (name, id, partitions) in self.subscribed(topics) {
            let subscribes = |m: &Member| {
                let value = m.value.as_ref();
                value.is_some_and(|v| v.topics.contains(&name))
            };
            let readers: Vec<&Arc<str>> = self
                .members
                .iter()
                .filter(|(_, m)| subscribes(m))
                .map(|(id, _)| id)
                .collect();
            let count = usize::try_from(partitions).unwrap_or(0);
            if readers.is_empty() || count == 0 {
                continue;
            }
            let pairs = count.max(readers.len());
            for pair in 0..pairs {
                let reader = readers.get((turn + pair) % readers.len());
                let partition = i32::try_from(pair % count).unwrap_or(0);
                if let Some(parts) = reader.and_then(|r| desired.get_mut(*r)) {
                    parts.insert((id, partition));
                }
            }
            turn += pairs;
        }
        desired
    }

    /// Topics changed: makes a new target when it is another one, and forgets deleted ones.
    pub(super) fn topics_changed(
        &self,
        group: &str,
        topics: &dyn Topics,
        now: Now,
        settings: &GroupSettings,
        out: &mut Out,
    ) {
        let hash_differs =
            !self.is_empty() && self.metadata_hash(topics) != self.value.metadata_hash;
        let gone = |topic: &ShareTopic| topics.name_of(topic.id).is_none();
        let any_gone = self.topics.initialized.iter().any(gone);
        if !hash_differs && !any_gone {
            return;
        }
        let mut draft = Draft::new(group, self, now, settings, out);
        if any_gone {
            let mut left = draft.state.topics.clone();
            left.initialized.retain(|topic| !gone(topic));
            draft.record(ShareRecord::Topics(Some(left)));
        }
        if hash_differs {
            draft.bump(topics);
        }
    }

    /// Removes members whose time is up.
    pub(super) fn timers(
        &self,
        group: &str,
        topics: &dyn Topics,
        now: Now,
        settings: &GroupSettings,
        held_until: Duration,
        out: &mut Out,
    ) {
        if now.mono < held_until {
            return;
        }
        let over = members::over(&self.sessions, now);
        if over.is_empty() {
            return;
        }
        let mut draft = Draft::new(group, self, now, settings, out);
        for member in over {
            draft.remove(&member);
        }
        draft.bump(topics);
    }

    /// Something is to be kept for the group on partitions (`add`), or no longer on topics (`remove`).
    pub(super) fn set_topics(
        &self,
        group: &str,
        add: &[(TopicId, i32)],
        remove: &[TopicId],
        topics: &dyn Topics,
        now: Now,
        out: &mut Out,
    ) {
        let mut value = self.topics.clone();
        value.initialized.retain(|t| !remove.contains(&t.id));
        for (id, partition) in add {
            if let Some(name) = topics.name_of(*id) {
                add_partitions(&mut value, *id, name, std::iter::once(*partition), now);
            }
        }
        if value != self.topics {
            out.record(&Record::Share {
                group: group.to_owned(),
                record: ShareRecord::Topics(Some(value)),
            });
        }
    }

    /// Tombstones for the group's own records; it must be empty.
    pub(super) fn delete(group: &str, out: &mut Out) {
        for record in [
            ShareRecord::Topics(None),
            ShareRecord::TargetEpoch(None),
            ShareRecord::Group(None),
        ] {
            out.record(&Record::Share {
                group: group.to_owned(),
                record,
            });
        }
    }

    /// Partitions of which something is kept for the group.
    pub(super) fn kept_topics(&self) -> ShareTopics {
        let topics = self.topics.initialized.iter();
        topics.map(|t| (t.id, t.partitions.clone())).collect()
    }

    pub(super) fn describe(&self, group: &str) -> GroupDescription {
        GroupDescription {
            group: group.to_owned(),
            state: match self.is_empty() {
                true => "Empty",
                false => "Stable",
            },
            group_type: "share",
            protocol_type: "share".to_owned(),
            protocol: "simple".to_owned(),
            generation: self.value.epoch.into(),
            assignment_epoch: self.target_epoch,
            members: self
                .members
                .iter()
                .filter_map(|(id, m)| Some((id, m, m.value.as_ref()?)))
                .map(|(id, m, value)| MemberDescription {
                    member: id.to_string(),
                    client_id: value.client_id.clone(),
                    client_host: value.client_host.clone(),
                    rack: value.rack.clone(),
                    member_epoch: m.current.epoch,
                    subscribed_topics: value.topics.clone(),
                    assigned: m.current.assigned.clone(),
                    target: by_topic(self.targets.get(id).into_iter().flat_map(|t| t.iter())),
                    ..MemberDescription::default()
                })
                .collect(),
        }
    }
}

fn add_partitions(
    value: &mut ShareTopicsValue,
    id: TopicId,
    name: &str,
    partitions: impl Iterator<Item = i32>,
    now: Now,
) {
    let at = match value.initialized.iter().position(|t| t.id == id) {
        Some(at) => at,
        None => {
            value.initialized.push(ShareTopic {
                id,
                name: name.to_owned(),
                partitions: Vec::new(),
                created: now.wall_ms,
            });
            value.initialized.len() - 1
        }
    };
    if let Some(topic) = value.initialized.get_mut(at) {
        let all: BTreeSet<i32> = topic.partitions.drain(..).chain(partitions).collect();
        topic.partitions = all.into_iter().collect();
    }
}

/// A copy of a group.
type Draft<'a> = super::draft::Draft<'a, Share>;

impl Drafted for Share {
    type Record = ShareRecord;

    fn draft(&mut self, record: &ShareRecord, now: Now, settings: &GroupSettings) {
        self.apply(record, Offset::ZERO, now, settings);
    }
    fn kept(group: &str, record: ShareRecord) -> Record {
        Record::Share {
            group: group.to_owned(),
            record,
        }
    }
}

impl Draft<'_> {
    fn remove(&mut self, member: &str) {
        self.record(ShareRecord::CurrentMember(member.to_owned(), None));
        self.record(ShareRecord::TargetMember(member.to_owned(), None));
        self.record(ShareRecord::Member(member.to_owned(), None));
    }

    /// A new group epoch, and the target assignment for it.
    fn bump(&mut self, topics: &dyn Topics) {
        let epoch = self.state.value.epoch.checked_add(1).unwrap_or(1);
        self.record(ShareRecord::Group(Some(ShareGroupValue {
            epoch,
            metadata_hash: self.state.metadata_hash(topics),
        })));
        let mut kept = self.state.topics.clone();
        for (name, id, partitions) in self.state.subscribed(topics) {
            add_partitions(&mut kept, id, &name, 0..partitions, self.now);
        }
        if kept != self.state.topics {
            self.record(ShareRecord::Topics(Some(kept)));
        }
        for (member, parts) in self.state.desired(topics) {
            if self.state.targets.get(&member).map(Arc::as_ref) != Some(&parts) {
                let value = TargetMemberValue {
                    partitions: by_topic(&parts),
                };
                self.record(ShareRecord::TargetMember(member.to_string(), Some(value)));
            }
        }
        self.record(ShareRecord::TargetEpoch(Some(TargetEpochValue {
            epoch,
            timestamp: self.now.wall_ms.max(0),
        })));
    }
}
