//! A group of the consumer protocol (KIP-848): the broker assigns, and members are brought to it one heartbeat at a time.
//!
//! Everything but sessions comes from records: [`Consumer::apply`] is the only place that changes members, targets and
//! owners, on a running shard, on a draft of a decision and on recovery alike.
//!
//! Epochs. The *group epoch* grows with every change of members, subscriptions or topics. The *target assignment* is made for a
//! group epoch. A *member epoch* says which target a member has been brought to; it grows only once the member has given
//! back what the target takes from it. A partition has one owner at a time, which holds it from the record that assigns it to
//! the record that shows it given back.
//!
//! Members may speak the classic protocol too ([`classic`]): a group can move from one protocol to the other while they work.

mod classic;
mod heartbeat;
mod migrate;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{ErrorCode, Offset, TopicId};

use super::assign::{Assignor, Part, Subscriber, Topic};
use super::draft::Drafted;
use super::effects::Out;
use super::members::{self, State};
use super::pattern::Pattern;
use super::records::{
    ConsumerGroupValue, ConsumerMemberValue, CurrentMemberValue, Record, TargetEpochValue,
    TargetMemberValue,
};
use super::{GroupDescription, GroupSettings, MemberDescription, Topics, metadata_hash};
use crate::Now;

pub(super) use classic::Asks;
pub(super) use heartbeat::{Heartbeat, leave_by_name};
pub(super) use migrate::upgraded;

/// Epoch of a static member that is away and will be back.
const AWAY: i32 = -2;

/// A group of the consumer protocol.
#[derive(Clone, Debug, Default)]
pub(super) struct Consumer {
    value: ConsumerGroupValue,
    target_epoch: i32,
    members: BTreeMap<Arc<str>, Arc<Member>>,
    /// Static names.
    instances: BTreeMap<Arc<str>, Arc<str>>,
    targets: BTreeMap<Arc<str>, Arc<BTreeSet<Part>>>,
    /// Who holds a partition, or has it still to give back.
    owners: BTreeMap<Part, Arc<str>>,
    /// Soft: since when it has members, unless an earlier life of the coordinator saw them come.
    began: Option<Duration>,
    /// Soft: when the target was made, or read.
    target_at: Duration,
    /// Soft: when a silent member is taken for gone.
    sessions: BTreeMap<Arc<str>, Duration>,
    /// Soft: whom this life of the coordinator has not told its partitions yet. They may be others than an earlier life did.
    untold: BTreeSet<Arc<str>>,
    /// Soft: by when partitions must be given back.
    revocations: BTreeMap<Arc<str>, Duration>,
    /// Soft: by when a member of the classic protocol must have joined again, or fetched its assignment.
    due: BTreeMap<Arc<str>, Duration>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    /// `None` until its record has been read.
    value: Option<ConsumerMemberValue>,
    current: Current,
    /// Log position (exclusive) of its last record.
    changed_at: Offset,
}

/// Where a member is on its way to its target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Current {
    epoch: i32,
    previous_epoch: i32,
    state: State,
    /// Each with the epoch at which the member got it: a commit from that epoch on is the owner's (KIP-1251).
    assigned: BTreeMap<Part, i32>,
    revoking: BTreeMap<Part, i32>,
}

impl Current {
    fn from_value(value: &CurrentMemberValue) -> Current {
        let flat = |held: &[(TopicId, Vec<(i32, i32)>)]| {
            held.iter()
                .flat_map(|(t, partitions)| partitions.iter().map(|(p, e)| ((*t, *p), *e)))
                .collect()
        };
        Current {
            epoch: value.epoch,
            previous_epoch: value.previous_epoch,
            state: State::from_stored(value.state),
            assigned: flat(&value.assigned),
            revoking: flat(&value.revoking),
        }
    }

    fn to_value(&self) -> CurrentMemberValue {
        let nested = |flat: &BTreeMap<Part, i32>| {
            let mut nested: Vec<(TopicId, Vec<(i32, i32)>)> = Vec::new();
            for ((topic, partition), epoch) in flat {
                match nested.last_mut() {
                    Some((last, partitions)) if last == topic => {
                        partitions.push((*partition, *epoch));
                    }
                    _ => nested.push((*topic, vec![(*partition, *epoch)])),
                }
            }
            nested
        };
        CurrentMemberValue {
            epoch: self.epoch,
            previous_epoch: self.previous_epoch,
            state: self.state.stored(),
            assigned: nested(&self.assigned),
            revoking: nested(&self.revoking),
        }
    }

    fn owned(&self) -> impl Iterator<Item = &Part> {
        self.assigned.keys().chain(self.revoking.keys())
    }
}

/// Grouped by topic, as answers and descriptions have it.
pub(super) fn by_topic<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Vec<(TopicId, Vec<i32>)> {
    let mut nested: Vec<(TopicId, Vec<i32>)> = Vec::new();
    for (topic, partition) in parts {
        match nested.last_mut() {
            Some((last, partitions)) if last == topic => partitions.push(*partition),
            _ => nested.push((*topic, vec![*partition])),
        }
    }
    nested
}

impl Consumer {
    /// An empty group that takes the place of one of another kind: what members of that one say is older than what comes.
    pub(super) fn following(generation: i32) -> Consumer {
        Consumer {
            value: ConsumerGroupValue {
                epoch: generation,
                ..ConsumerGroupValue::default()
            },
            ..Consumer::default()
        }
    }

    pub(super) fn epoch(&self) -> i32 {
        self.value.epoch
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// When it lost its last member.
    pub(super) fn empty_since(&self) -> Option<i64> {
        self.value.empty_since
    }

    /// Applies a record of this group. Returns a deadline that it brought.
    pub(super) fn apply(
        &mut self,
        record: &Record,
        at: Offset,
        now: Now,
        settings: &GroupSettings,
    ) -> Option<Duration> {
        match record {
            Record::ConsumerGroup { value, .. } => {
                self.value = value.unwrap_or_default();
                None
            }
            Record::TargetEpoch { value, .. } => {
                self.target_epoch = value.map_or(0, |v| v.epoch);
                self.target_at = now.mono;
                None
            }
            Record::TargetMember { member, value, .. } => {
                match value {
                    None => self.targets.remove(member.as_str()),
                    Some(value) => {
                        let parts = value
                            .partitions
                            .iter()
                            .flat_map(|(t, partitions)| partitions.iter().map(|p| (*t, *p)))
                            .collect();
                        self.targets.insert(member.as_str().into(), Arc::new(parts))
                    }
                };
                None
            }
            Record::ConsumerMember { member, value, .. } => {
                let Some(value) = value else {
                    self.forget(member);
                    return None;
                };
                if self.members.is_empty() {
                    self.began = Some(now.mono);
                }
                let id = members::known(&mut self.members, member);
                if let Some(instance) = &value.instance {
                    self.instances.insert(instance.as_str().into(), id.clone());
                }
                if value.classic.is_none() {
                    self.due.remove(&id);
                }
                self.change(member, at, |m| m.value = Some(value.clone()));
                let session = self.members.get(&id)?.session_timeout(settings);
                let until = now.mono.saturating_add(session);
                self.sessions.entry(id).or_insert(until);
                Some(until)
            }
            Record::CurrentMember { member, value, .. } => {
                let current = value.as_ref().map(Current::from_value).unwrap_or_default();
                self.set_current(member, current, at, now)
            }
            Record::Offset { .. }
            | Record::Group { .. }
            | Record::Share { .. }
            | Record::Streams { .. } => None,
        }
    }

    fn change(&mut self, member: &str, at: Offset, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.get_mut(member) {
            let member = Arc::make_mut(member);
            member.changed_at = at;
            change(member);
        }
    }

    fn set_current(
        &mut self,
        member: &str,
        current: Current,
        at: Offset,
        now: Now,
    ) -> Option<Duration> {
        if current == Current::default() && !self.members.contains_key(member) {
            return None;
        }
        let id = members::known(&mut self.members, member);
        self.release(&id);
        for part in current.owned() {
            self.owners.insert(*part, id.clone());
        }
        let before = self.members.get(&id)?;
        let mut deadline = None;
        if current.state != State::Revoking {
            self.revocations.remove(&id);
        } else if before.current.revoking != current.revoking {
            let timeout = before.rebalance_timeout();
            deadline = Some(now.mono.saturating_add(timeout));
            self.revocations
                .insert(id.clone(), now.mono.saturating_add(timeout));
        }
        self.change(&id, at, |m| m.current = current);
        deadline
    }

    fn release(&mut self, member: &str) {
        if active(Mutant::GivenBackNotFree) {
            return;
        }
        let Some(m) = self.members.get(member) else {
            return;
        };
        for part in m.current.owned() {
            if self.owners.get(part).is_some_and(|o| **o == *member) {
                self.owners.remove(part);
            }
        }
    }

    fn forget(&mut self, member: &str) {
        self.release(member);
        let gone = self.members.remove(member);
        if let Some(instance) = gone.as_deref().and_then(Member::instance)
            && self.instances.get(instance).is_some_and(|m| **m == *member)
        {
            self.instances.remove(instance);
        }
        self.sessions.remove(member);
        self.untold.remove(member);
        self.revocations.remove(member);
        self.due.remove(member);
    }

    /// All records are read: everybody gets a fresh session, and time to give back what is to be given back.
    pub(super) fn loaded(&mut self, now: Now, settings: &GroupSettings) {
        let halves: Vec<Arc<str>> = self
            .members
            .iter()
            .filter(|(_, m)| m.value.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in halves {
            self.forget(&id);
        }
        self.began = None;
        self.sessions = self
            .members
            .iter()
            .map(|(id, m)| {
                let session = m.session_timeout(settings);
                (id.clone(), now.mono.saturating_add(session))
            })
            .collect();
        if !active(Mutant::MembersNotTold) {
            self.untold = self.members.keys().cloned().collect();
        }
        self.revocations = self
            .members
            .iter()
            .filter(|(_, m)| m.current.state == State::Revoking)
            .map(|(id, m)| (id.clone(), now.mono.saturating_add(m.rebalance_timeout())))
            .collect();
    }

    /// A member was heard of. `settled`: a member of the classic protocol has fetched its assignment.
    pub(super) fn renew(&mut self, member: &str, until: Duration, settled: bool) {
        if settled {
            self.due.remove(member);
        }
        if let Some(session) = self.sessions.get_mut(member) {
            *session = until;
        }
        self.untold.remove(member);
    }

    /// When a member is to come again, which is at `current`. Members of a group that has just begun come one after the other, and who
    /// was first has something to give back; and who waits for others is to know when they have given it back.
    fn interval(&self, current: &Current, usually: Duration, now: Now) -> Duration {
        let since = match current.state {
            State::Waiting => Some(self.target_at),
            _ => self.began,
        };
        since.map_or(usually, |since| {
            members::soon(since, usually, self.members.len(), now)
        })
    }

    /// When the next member is to be expired; nobody is before `held_until`.
    pub(super) fn next_deadline(&self, held_until: Duration) -> Option<Duration> {
        // One that was due may be no member, when it was refused after all.
        let due = self
            .due
            .iter()
            .filter(|(id, _)| self.members.contains_key(*id));
        let first = self
            .sessions
            .values()
            .chain(self.revocations.values())
            .chain(due.map(|(_, at)| at))
            .min()?;
        Some((*first).max(held_until))
    }

    /// Who may commit: B30 and KIP-1251. `parts` are those of the commit that exist.
    pub(super) fn check_commit(
        &self,
        member: &str,
        epoch: i32,
        version: i16,
        mut parts: impl Iterator<Item = Part>,
    ) -> Result<(), ErrorCode> {
        if epoch < 0 && self.is_empty() {
            return Ok(());
        }
        let member = self
            .members
            .get(member)
            .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let classic = member.is_classic();
        if version < 9 && !classic {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        let current = &member.current;
        if epoch == current.epoch {
            return Ok(());
        }
        // The member has been brought further while its commit was on the way. What it held then and holds still is
        // its own to commit.
        let held_since = |part: &Part| {
            let since = current.assigned.get(part).or(current.revoking.get(part));
            since.is_some_and(|since| epoch >= *since)
        };
        if epoch < current.epoch && parts.all(|p| held_since(&p)) {
            return Ok(());
        }
        if active(Mutant::StaleCommitAccepted) {
            return Ok(());
        }
        Err(match classic {
            true => ErrorCode::ILLEGAL_GENERATION,
            false => ErrorCode::STALE_MEMBER_EPOCH,
        })
    }

    /// OffsetFetch v9+ with a member.
    pub(super) fn check_fetch(&self, member: &str, epoch: i32) -> Result<(), ErrorCode> {
        if member.is_empty() && epoch < 0 {
            return Ok(());
        }
        let member = self
            .members
            .get(member)
            .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member.current.epoch != epoch && !active(Mutant::StaleFetchAccepted) {
            return Err(ErrorCode::STALE_MEMBER_EPOCH);
        }
        Ok(())
    }

    /// Names of all topics that some member subscribes to and that exist.
    pub(super) fn subscribed(&self, topics: &dyn Topics) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut patterns = BTreeSet::new();
        for value in self.members.values().filter_map(|m| m.value.as_ref()) {
            for topic in &value.topics {
                if !names.contains(topic) && topics.by_name(topic).is_some() {
                    names.insert(topic.clone());
                }
            }
            patterns.extend(value.pattern.as_deref());
        }
        for pattern in patterns.into_iter().filter_map(Pattern::new) {
            let matching = topics.names().into_iter().filter(|n| pattern.matches(n));
            names.extend(matching.map(str::to_owned));
        }
        names
    }

    /// Changes when a subscribed topic is made, deleted or grown.
    fn metadata_hash(&self, topics: &dyn Topics) -> i64 {
        let subscribed = self.subscribed(topics);
        let exist = subscribed.iter().filter_map(|name| {
            let (id, partitions) = topics.by_name(name)?;
            Some((name.as_str(), id, partitions))
        });
        metadata_hash(exist)
    }

    /// What most members vote for; ties and no votes go to the default.
    fn assignor(&self) -> Assignor {
        let mut votes: BTreeMap<Assignor, usize> = BTreeMap::new();
        for value in self.members.values().filter_map(|m| m.value.as_ref()) {
            if let Some(assignor) = value.assignor.as_deref().and_then(Assignor::by_name) {
                *votes.entry(assignor).or_default() += 1;
            }
        }
        votes
            .into_iter()
            .max_by_key(|(assignor, count)| (*count, *assignor == Assignor::DEFAULT))
            .map_or(Assignor::DEFAULT, |(assignor, _)| assignor)
    }

    /// What each member shall hold, by the assignor.
    fn desired(&self, topics: &dyn Topics) -> Vec<(Arc<str>, BTreeSet<Part>)> {
        // By name; two names may stand for one topic.
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let mut known: Vec<Topic> = Vec::new();
        let mut by_id: BTreeMap<TopicId, usize> = BTreeMap::new();
        for name in self.subscribed(topics) {
            if let Some((id, partitions)) = topics.by_name(&name) {
                let t = *by_id.entry(id).or_insert_with(|| {
                    known.push(Topic { id, partitions });
                    known.len() - 1
                });
                names.insert(name, t);
            }
        }
        let mut by_pattern: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut subscribers = Vec::with_capacity(self.members.len());
        for (id, member) in &self.members {
            let Some(value) = &member.value else { continue };
            let by_name = value.topics.iter().filter_map(|topic| names.get(topic));
            let mut wanted: BTreeSet<usize> = by_name.copied().collect();
            if let Some(text) = value.pattern.as_deref() {
                let matching = by_pattern.entry(text).or_insert_with(|| {
                    let pattern = Pattern::new(text);
                    let matches = |name: &str| pattern.as_ref().is_some_and(|p| p.matches(name));
                    let matching = names.iter().filter(|(name, _)| matches(name));
                    matching.map(|(_, t)| *t).collect()
                });
                wanted.extend(matching.iter().copied());
            }
            subscribers.push(Subscriber {
                rank: match &value.instance {
                    Some(instance) => (false, instance),
                    None => (true, id),
                },
                topics: wanted.into_iter().collect(),
                current: self.targets.get(id).map(Arc::as_ref),
            });
        }
        let assigned = self.assignor().assign(&known, &subscribers);
        self.members
            .iter()
            .filter(|(_, m)| m.value.is_some())
            .map(|(id, _)| id.clone())
            .zip(assigned)
            .collect()
    }

    /// Topics changed: makes a new target when it is another one.
    pub(super) fn topics_changed(
        &self,
        group: &str,
        topics: &dyn Topics,
        now: Now,
        settings: &GroupSettings,
        out: &mut Out,
    ) {
        if !self.is_empty() && self.metadata_hash(topics) != self.value.metadata_hash {
            Draft::new(group, self, now, settings, out).bump(topics);
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
        let mut gone = match active(Mutant::SilentMemberKept) {
            true => BTreeSet::new(),
            false => members::over(&self.sessions, now),
        };
        if !gone.is_empty() {
            sometimes(Mark::MemberExpired);
        }
        gone.extend(members::over(&self.revocations, now));
        let late = members::over(&self.due, now);
        gone.extend(late.into_iter().filter(|id| self.members.contains_key(id)));
        if gone.is_empty() {
            return;
        }
        let mut draft = Draft::new(group, self, now, settings, out);
        for member in gone {
            draft.remove(&member);
        }
        if active(Mutant::ExpiryWithoutTarget) {
            return;
        }
        draft.go_on(topics);
    }

    /// Tombstones for the group's own records; it must be empty.
    pub(super) fn delete(group: &str, out: &mut Out) {
        out.record(&Record::TargetEpoch {
            group: group.to_owned(),
            value: None,
        });
        out.record(&Record::ConsumerGroup {
            group: group.to_owned(),
            value: None,
        });
    }

    pub(super) fn describe(&self, group: &str) -> GroupDescription {
        let settled = self.members.values().all(|m| {
            m.current.state == State::Stable
                && (m.current.epoch == self.target_epoch || m.current.epoch == AWAY)
        });
        let state = if self.is_empty() {
            "Empty"
        } else if self.value.epoch > self.target_epoch {
            "Assigning"
        } else if settled {
            "Stable"
        } else {
            "Reconciling"
        };
        GroupDescription {
            group: group.to_owned(),
            state,
            group_type: "consumer",
            protocol_type: "consumer".to_owned(),
            protocol: self.assignor().name().to_owned(),
            generation: self.value.epoch.into(),
            assignment_epoch: self.target_epoch,
            members: self
                .members
                .iter()
                .filter_map(|(id, m)| Some((id, m, m.value.as_ref()?)))
                .map(|(id, m, value)| MemberDescription {
                    member: id.to_string(),
                    instance: value.instance.clone(),
                    client_id: value.client_id.clone(),
                    client_host: value.client_host.clone(),
                    rack: value.rack.clone(),
                    member_epoch: m.current.epoch,
                    classic: m.is_classic(),
                    subscribed_topics: value.topics.clone(),
                    subscribed_pattern: value.pattern.clone(),
                    assigned: by_topic(m.current.assigned.keys()),
                    target: by_topic(self.targets.get(id).into_iter().flat_map(|t| t.iter())),
                    ..MemberDescription::default()
                })
                .collect(),
        }
    }
}

impl Member {
    fn instance(&self) -> Option<&str> {
        self.value.as_ref()?.instance.as_deref()
    }

    /// It speaks the classic protocol.
    fn is_classic(&self) -> bool {
        self.value.as_ref().is_some_and(|v| v.classic.is_some())
    }

    fn session_timeout(&self, settings: &GroupSettings) -> Duration {
        let classic = self.value.as_ref().and_then(|v| v.classic.as_ref());
        classic.map_or(settings.consumer_session_timeout, |(ms, _)| {
            Duration::from_millis(u64::try_from(*ms).unwrap_or(0))
        })
    }

    fn rebalance_timeout(&self) -> Duration {
        // Kafka's default for clients that didn't say (max.poll.interval.ms).
        const DEFAULT: Duration = Duration::from_secs(300);
        self.value
            .as_ref()
            .and_then(|v| u64::try_from(v.rebalance_timeout_ms).ok())
            .map_or(DEFAULT, Duration::from_millis)
    }
}

/// A copy of a group.
type Draft<'a> = super::draft::Draft<'a, Consumer>;

impl Drafted for Consumer {
    type Record = Record;

    fn draft(&mut self, record: &Record, now: Now, settings: &GroupSettings) {
        self.apply(record, Offset::ZERO, now, settings);
    }
    fn kept(_group: &str, record: Record) -> Record {
        record
    }
}

impl Draft<'_> {
    fn set_member(&mut self, member: &str, value: Option<ConsumerMemberValue>) {
        self.record(Record::ConsumerMember {
            group: self.group.to_owned(),
            member: member.to_owned(),
            value,
        });
    }

    fn set_target(&mut self, member: &str, parts: Option<&BTreeSet<Part>>) {
        self.record(Record::TargetMember {
            group: self.group.to_owned(),
            member: member.to_owned(),
            value: parts.map(|parts| TargetMemberValue {
                partitions: by_topic(parts),
            }),
        });
    }

    fn set_current(&mut self, member: &str, current: Option<&Current>) {
        self.record(Record::CurrentMember {
            group: self.group.to_owned(),
            member: member.to_owned(),
            value: current.map(Current::to_value),
        });
    }

    /// A static member is back under a new id: it takes over what the old one held.
    fn replace(&mut self, old: &str, member: &str, value: ConsumerMemberValue) {
        let target = self.state.targets.get(old).cloned();
        let current = self.state.members.get(old).map(|m| Current {
            epoch: 0,
            previous_epoch: 0,
            ..m.current.clone()
        });
        self.remove(old);
        self.set_member(member, Some(value));
        self.set_target(member, target.as_deref());
        self.set_current(member, current.as_ref());
    }

    /// Brings a member a step towards its target; `owned` is what it says it holds. Returns where it is then.
    fn reconcile(&mut self, member: &str, owned: Option<&BTreeSet<Part>>) -> Current {
        let Some(found) = self.state.members.get(member).cloned() else {
            return Current::default();
        };
        let Some(next) = self.state.reconcile(member, &found, owned) else {
            return found.current.clone();
        };
        self.set_current(member, Some(&next));
        next
    }

    fn remove(&mut self, member: &str) {
        self.set_current(member, None);
        self.set_target(member, None);
        self.set_member(member, None);
    }

    /// After members were removed: the others get a new target, or assign for themselves when all of them speak the classic
    /// protocol.
    fn go_on(mut self, topics: &dyn Topics) {
        if !self.state.is_empty() && self.state.may_become_classic(None, self.settings) {
            return self.become_classic(topics, |_, _| {});
        }
        self.bump(topics);
    }

    /// A new group epoch, and the target assignment for it.
    fn bump(&mut self, topics: &dyn Topics) {
        let epoch = self.state.value.epoch.checked_add(1).unwrap_or(1);
        let empty_since = match self.state.is_empty() {
            true => Some(self.state.value.empty_since.unwrap_or(self.now.wall_ms)),
            false => None,
        };
        self.record(Record::ConsumerGroup {
            group: self.group.to_owned(),
            value: Some(ConsumerGroupValue {
                epoch,
                metadata_hash: self.state.metadata_hash(topics),
                empty_since,
            }),
        });
        for (member, parts) in self.state.desired(topics) {
            if self.state.targets.get(&member).map(Arc::as_ref) != Some(&parts) {
                self.set_target(&member, Some(&parts));
            }
        }
        self.record(Record::TargetEpoch {
            group: self.group.to_owned(),
            value: Some(TargetEpochValue {
                epoch,
                timestamp: self.now.wall_ms.max(0),
            }),
        });
    }
}
