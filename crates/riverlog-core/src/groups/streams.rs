//! A streams group (KIP-1071): the threads of a Kafka Streams application, among which the broker assigns the tasks of a topology.
//!
//! Everything but sessions, shutdown requests and reported offsets comes from records: [`Streams::apply`] is the only place
//! that changes members, targets and owners, on a running shard, on a draft of a decision and on recovery alike.
//!
//! Epochs are those of a group of the consumer protocol. An active task has one owner at a time, from the record that assigns it to
//! the record that shows it given back. A process has a task once, whatever its role: its threads share a folder.
//!
//! A group whose topology doesn't fit the topics that are there is not ready: all targets are empty, and members are told why.

mod assign;
mod describe;
mod draft;
mod heartbeat;
mod reconcile;
#[cfg(test)]
mod tests;
pub mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, Offset};

use super::effects::Out;
use super::members::{self, State};
use super::records::{
    EpochTaskList, Record, StreamsCurrentValue, StreamsGroupValue, StreamsMemberValue,
    StreamsRecord, StreamsTopology, TaskList,
};
use super::{GroupSettings, Topics};
use crate::Now;
use draft::Draft;

pub use describe::{STREAMS_ASSIGNOR, StreamsDescription, StreamsMemberDescription};
pub(super) use heartbeat::Heartbeat;

/// Epoch of a static member that is away and will be back.
const AWAY: i32 = -2;

/// A part of a subtopology's work: its id, and the partition of its sources.
pub(super) type Task = (Arc<str>, i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Active,
    Standby,
    Warmup,
}

impl Role {
    const ALL: [Role; 3] = [Role::Active, Role::Standby, Role::Warmup];
}

/// Tasks by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tasks {
    active: BTreeSet<Task>,
    standby: BTreeSet<Task>,
    warmup: BTreeSet<Task>,
}

impl Tasks {
    fn set(&self, role: Role) -> &BTreeSet<Task> {
        match role {
            Role::Active => &self.active,
            Role::Standby => &self.standby,
            Role::Warmup => &self.warmup,
        }
    }

    fn set_mut(&mut self, role: Role) -> &mut BTreeSet<Task> {
        match role {
            Role::Active => &mut self.active,
            Role::Standby => &mut self.standby,
            Role::Warmup => &mut self.warmup,
        }
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Task> {
        self.set(role).iter()
    }

    fn has(&self, role: Role, task: &Task) -> bool {
        self.set(role).contains(task)
    }

    fn insert(&mut self, role: Role, task: Task) {
        self.set_mut(role).insert(task);
    }

    fn is_empty(&self) -> bool {
        Role::ALL.iter().all(|role| self.set(*role).is_empty())
    }

    fn from_lists(lists: [&TaskList; 3]) -> Tasks {
        let mut tasks = Tasks::default();
        for (role, list) in Role::ALL.into_iter().zip(lists) {
            *tasks.set_mut(role) = flat(list).collect();
        }
        tasks
    }

    fn lists(&self) -> [TaskList; 3] {
        Role::ALL.map(|role| nested(self.of(role)))
    }
}

fn flat(list: &TaskList) -> impl Iterator<Item = Task> {
    list.iter().flat_map(|(subtopology, partitions)| {
        let id: Arc<str> = subtopology.as_str().into();
        partitions.iter().map(move |p| (id.clone(), *p))
    })
}

fn nested<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> TaskList {
    let mut list: TaskList = Vec::new();
    for (subtopology, partition) in tasks {
        match list.last_mut() {
            Some((last, partitions)) if **last == **subtopology => partitions.push(*partition),
            _ => list.push((subtopology.to_string(), vec![*partition])),
        }
    }
    list
}

/// A streams group.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    value: StreamsGroupValue,
    topology: Option<Arc<StreamsTopology>>,
    target_epoch: i32,
    members: BTreeMap<Arc<str>, Arc<Member>>,
    /// Static names.
    instances: BTreeMap<Arc<str>, Arc<str>>,
    targets: BTreeMap<Arc<str>, Arc<Tasks>>,
    /// Who has an active task, or has it still to give back.
    owners: BTreeMap<Task, Arc<str>>,
    /// Who has a standby or warm-up task, or has it still to give back.
    copies: BTreeMap<Task, BTreeSet<Arc<str>>>,
    /// Grows when what members with an endpoint have changes. A new life of the coordinator counts anew.
    endpoint_epoch: i32,
    /// Until when the first assignment waits for more members.
    delayed_until: Option<Duration>,
    /// Soft: when the target was made, or read.
    target_at: Duration,
    /// Soft: when a silent member is taken for gone.
    sessions: BTreeMap<Arc<str>, Duration>,
    /// Soft: whom this life of the coordinator has not told its tasks yet.
    untold: BTreeSet<Arc<str>>,
    /// Soft: by when tasks must be given back.
    revocations: BTreeMap<Arc<str>, Duration>,
    /// Soft: who asked that the whole application stops.
    shutdown: Option<Arc<str>>,
    /// Soft: how far members say the state of their tasks is.
    offsets: BTreeMap<Arc<str>, Arc<TaskOffsets>>,
}

/// How far the state of a member's tasks is, and where it ends: subtopology, partition, sum of the changelogs' offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskOffsets {
    /// How far.
    pub offsets: Vec<(String, i32, i64)>,
    /// Where it ends.
    pub end_offsets: Vec<(String, i32, i64)>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    /// `None` until its record has been read.
    value: Option<StreamsMemberValue>,
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
    assigned: Tasks,
    revoking: Tasks,
    /// The epoch at which the member got each active task, those to give back too: a commit from that epoch on is the owner's.
    since: BTreeMap<Task, i32>,
}

impl Current {
    fn from_value(value: &StreamsCurrentValue) -> Current {
        let mut since = BTreeMap::new();
        let mut active = |list: &EpochTaskList| {
            let mut plain = BTreeSet::new();
            for (subtopology, partitions) in list {
                let id: Arc<str> = subtopology.as_str().into();
                for (partition, epoch) in partitions {
                    let task = (id.clone(), *partition);
                    since.insert(task.clone(), *epoch);
                    plain.insert(task);
                }
            }
            plain
        };
        Current {
            epoch: value.epoch,
            previous_epoch: value.previous_epoch,
            state: State::from_stored(value.state.saturating_sub(1)),
            assigned: Tasks {
                active: active(&value.active),
                standby: flat(&value.standby).collect(),
                warmup: flat(&value.warmup).collect(),
            },
            revoking: Tasks {
                active: active(&value.revoking_active),
                standby: flat(&value.revoking_standby).collect(),
                warmup: flat(&value.revoking_warmup).collect(),
            },
            since,
        }
    }

    fn to_value(&self) -> StreamsCurrentValue {
        let held = |tasks: &BTreeSet<Task>| -> EpochTaskList {
            let mut list: EpochTaskList = Vec::new();
            for task in tasks {
                let since = self.since.get(task).copied().unwrap_or(self.epoch);
                match list.last_mut() {
                    Some((last, partitions)) if **last == *task.0 => {
                        partitions.push((task.1, since));
                    }
                    _ => list.push((task.0.to_string(), vec![(task.1, since)])),
                }
            }
            list
        };
        StreamsCurrentValue {
            epoch: self.epoch,
            previous_epoch: self.previous_epoch,
            state: self.state.stored() + 1,
            active: held(&self.assigned.active),
            standby: nested(&self.assigned.standby),
            warmup: nested(&self.assigned.warmup),
            revoking_active: held(&self.revoking.active),
            revoking_standby: nested(&self.revoking.standby),
            revoking_warmup: nested(&self.revoking.warmup),
        }
    }
}

impl Member {
    fn instance(&self) -> Option<&str> {
        self.value.as_ref()?.instance.as_deref()
    }

    fn process(&self) -> &str {
        self.value.as_ref().map_or("", |v| &v.process_id)
    }

    fn has_endpoint(&self) -> bool {
        self.value.as_ref().is_some_and(|v| v.endpoint.is_some())
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

/// A change of a streams group that a fail-over may forget.
#[derive(Clone, Debug)]
pub(super) enum StreamsSoft {
    /// A member asked that the whole application stops.
    Shutdown(Arc<str>),
    /// A member said how far the state of its tasks is.
    Offsets(Arc<str>, Arc<TaskOffsets>),
}

impl Streams {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// When it lost its last member.
    pub(super) fn empty_since(&self) -> Option<i64> {
        self.value.empty_since
    }

    fn topology_epoch(&self) -> Option<i32> {
        self.topology.as_ref().map(|t| t.epoch)
    }

    /// The topology fits the topics, as far as the group has heard of them.
    fn is_ready(&self) -> bool {
        self.topology_epoch() == Some(self.value.validated_topology_epoch)
    }

    /// Applies a record of this group. Returns a deadline that it brought.
    pub(super) fn apply(
        &mut self,
        record: &StreamsRecord,
        at: Offset,
        now: Now,
        settings: &GroupSettings,
    ) -> Option<Duration> {
        match record {
            StreamsRecord::Group(value) => {
                self.value = value.clone().unwrap_or_default();
                let delay = self.value.delay_ms.and_then(|ms| u64::try_from(ms).ok());
                self.delayed_until = match self.value.epoch > self.target_epoch {
                    true => delay.map(|ms| now.mono.saturating_add(Duration::from_millis(ms))),
                    false => None,
                };
                self.delayed_until
            }
            StreamsRecord::TargetEpoch(value) => {
                self.target_epoch = value.map_or(0, |v| v.epoch);
                self.target_at = now.mono;
                if self.target_epoch >= self.value.epoch {
                    self.delayed_until = None;
                }
                None
            }
            StreamsRecord::Topology(value) => {
                self.topology = value.clone().map(Arc::new);
                None
            }
            StreamsRecord::TargetMember(member, None) => {
                self.targets.remove(member.as_str());
                None
            }
            StreamsRecord::TargetMember(member, Some(value)) => {
                let lists = [&value.active, &value.standby, &value.warmup];
                let tasks = Tasks::from_lists(lists);
                self.targets.insert(member.as_str().into(), Arc::new(tasks));
                None
            }
            StreamsRecord::Member(member, None) => {
                self.forget(member);
                None
            }
            StreamsRecord::Member(member, Some(value)) => {
                let id = members::known(&mut self.members, member);
                if let Some(instance) = &value.instance {
                    self.instances.insert(instance.as_str().into(), id.clone());
                }
                let until = now.mono.saturating_add(settings.streams_session_timeout);
                self.sessions.entry(id).or_insert(until);
                self.change(member, at, |m| m.value = Some(value.clone()));
                Some(until)
            }
            StreamsRecord::CurrentMember(member, value) => {
                let current = value.as_ref().map(Current::from_value).unwrap_or_default();
                self.set_current(member, current, at, now)
            }
        }
    }

    fn change(&mut self, member: &str, at: Offset, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.get_mut(member) {
            let member = Arc::make_mut(member);
            let before = member.value.as_ref().and_then(|v| v.endpoint.clone());
            let had = before.is_some().then(|| member.current.assigned.clone());
            member.changed_at = at;
            change(member);
            let after = member.value.as_ref().and_then(|v| v.endpoint.as_ref());
            let has = after.is_some().then_some(&member.current.assigned);
            if before.as_ref() != after || had.as_ref() != has {
                self.endpoint_epoch = self.endpoint_epoch.wrapping_add(1).max(1);
            }
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
        for tasks in [&current.assigned, &current.revoking] {
            for task in &tasks.active {
                self.owners.insert(task.clone(), id.clone());
            }
            for task in tasks.of(Role::Standby).chain(tasks.of(Role::Warmup)) {
                let copies = self.copies.entry(task.clone()).or_default();
                copies.insert(id.clone());
            }
        }
        let before = self.members.get(&id)?;
        let mut deadline = None;
        if current.state != State::Revoking {
            self.revocations.remove(&id);
        } else if before.current.revoking != current.revoking {
            let until = now.mono.saturating_add(before.rebalance_timeout());
            deadline = Some(until);
            self.revocations.insert(id.clone(), until);
        }
        self.change(&id, at, |m| m.current = current);
        deadline
    }

    fn release(&mut self, member: &str) {
        let Some(m) = self.members.get(member).cloned() else {
            return;
        };
        for tasks in [&m.current.assigned, &m.current.revoking] {
            for task in &tasks.active {
                if self.owners.get(task).is_some_and(|o| **o == *member) {
                    self.owners.remove(task);
                }
            }
            for task in tasks.of(Role::Standby).chain(tasks.of(Role::Warmup)) {
                if let Some(copies) = self.copies.get_mut(task) {
                    copies.remove(member);
                    if copies.is_empty() {
                        self.copies.remove(task);
                    }
                }
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
        if gone.is_some_and(|m| m.has_endpoint()) {
            self.endpoint_epoch = self.endpoint_epoch.wrapping_add(1).max(1);
        }
        self.sessions.remove(member);
        self.untold.remove(member);
        self.revocations.remove(member);
        self.offsets.remove(member);
        if self.members.is_empty() {
            self.shutdown = None;
        }
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
        let until = now.mono.saturating_add(settings.streams_session_timeout);
        self.sessions = self.members.keys().map(|id| (id.clone(), until)).collect();
        self.untold = self.members.keys().cloned().collect();
        self.revocations = self
            .members
            .iter()
            .filter(|(_, m)| m.current.state == State::Revoking)
            .map(|(id, m)| (id.clone(), now.mono.saturating_add(m.rebalance_timeout())))
            .collect();
    }

    pub(super) fn renew(&mut self, member: &str, until: Duration) {
        if let Some(session) = self.sessions.get_mut(member) {
            *session = until;
        }
        self.untold.remove(member);
    }

    pub(super) fn soft(&mut self, change: StreamsSoft) {
        match change {
            StreamsSoft::Shutdown(member) => {
                if self.members.contains_key(&member) {
                    self.shutdown.get_or_insert(member);
                }
            }
            StreamsSoft::Offsets(member, offsets) => {
                if self.members.contains_key(&member) {
                    self.offsets.insert(member, offsets);
                }
            }
        }
    }

    /// When time next brings something; nobody is expired before `held_until`.
    pub(super) fn next_deadline(&self, held_until: Duration) -> Option<Duration> {
        let waits = self.sessions.values().chain(self.revocations.values());
        let first = waits.chain(&self.delayed_until).min()?;
        Some((*first).max(held_until))
    }

    /// Who may commit, as in a group of the consumer protocol. `parts` are topics and partitions of the commit that exist.
    pub(super) fn check_commit(
        &self,
        member: &str,
        epoch: i32,
        version: i16,
        mut parts: impl Iterator<Item = (String, i32)>,
    ) -> Result<(), ErrorCode> {
        if epoch < 0 && self.is_empty() {
            return Ok(());
        }
        let member = self
            .members
            .get(member)
            .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if version < 9 {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        let current = &member.current;
        if epoch == current.epoch {
            return Ok(());
        }
        // The member has been brought further while its commit was on the way. What it held then and holds still is
        // its own to commit.
        let held_since = |(topic, partition): &(String, i32)| {
            let task = (self.reader(topic)?, *partition);
            current.since.get(&task).copied()
        };
        let own = |part: &(String, i32)| held_since(part).is_some_and(|since| epoch >= since);
        if epoch < current.epoch && parts.all(|part| own(&part)) {
            return Ok(());
        }
        Err(ErrorCode::STALE_MEMBER_EPOCH)
    }

    /// The subtopology that reads a topic.
    fn reader(&self, topic: &str) -> Option<Arc<str>> {
        let topology = self.topology.as_ref()?;
        let mut subtopologies = topology.subtopologies.iter();
        let reader = subtopologies.find(|s| topology::sources(s).any(|source| source == topic))?;
        Some(reader.id.as_str().into())
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
        match member.current.epoch == epoch {
            true => Ok(()),
            false => Err(ErrorCode::STALE_MEMBER_EPOCH),
        }
    }

    /// Names of all topics that members read; none while there are no members.
    pub(super) fn read_topics(&self) -> BTreeSet<String> {
        let topology = self.topology.as_ref().filter(|_| !self.is_empty());
        let subtopologies = topology.into_iter().flat_map(|t| &t.subtopologies);
        subtopologies
            .flat_map(topology::sources)
            .map(str::to_owned)
            .collect()
    }

    /// Topics changed: makes a new target when the topology fits otherwise.
    pub(super) fn topics_changed(
        &self,
        group: &str,
        topics: &dyn Topics,
        now: Now,
        settings: &GroupSettings,
        out: &mut Out,
    ) {
        if self.is_empty() {
            return;
        }
        let hash = self.metadata_hash(topics);
        let ready = match self.configure(topics) {
            Ok(configured) => configured.is_ready(),
            Err(_) => false,
        };
        if hash != self.value.metadata_hash || ready != self.is_ready() {
            Draft::new(group, self, now, settings, out).bump(topics);
        }
    }

    /// Removes members whose time is up, and makes the first assignment when it has waited long enough.
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
        let deadlines = self.sessions.iter().chain(&self.revocations);
        let gone = members::over(deadlines, now);
        let waited = self.delayed_until.is_some_and(|at| at <= now.mono);
        if gone.is_empty() && !waited {
            return;
        }
        let mut draft = Draft::new(group, self, now, settings, out);
        for member in &gone {
            draft.remove(member);
        }
        match gone.is_empty() || active(Mutant::StreamsExpiryUnnoticed) {
            true => draft.assign(topics),
            false => draft.bump(topics),
        }
    }

    /// Tombstones for the group's own records; it must be empty.
    pub(super) fn delete(group: &str, out: &mut Out) {
        for record in [
            StreamsRecord::TargetEpoch(None),
            StreamsRecord::Topology(None),
            StreamsRecord::Group(None),
        ] {
            out.record(&Record::Streams {
                group: group.to_owned(),
                record,
            });
        }
    }
}
