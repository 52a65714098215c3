//! StreamsGroupHeartbeat: join, stay, leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, Offset};

use super::draft::{assignment_configs, tags};
use super::topology::{self, Configured, Misfit};
use super::{AWAY, Current, Draft, Member, Role, State, Streams, StreamsSoft, TaskOffsets, Tasks};
use crate::Now;
use crate::groups::effects::{Out, SoftChange};
use crate::groups::members::{self, check_names};
use crate::groups::records::{
    Record, StreamsMemberValue, StreamsRecord, StreamsTopology, Subtopology,
};
use crate::groups::{
    EndpointPartitions, GroupAnswer, GroupConfigs, GroupSettings, StreamsHeartbeat,
    StreamsHeartbeatAnswer, StreamsStatus, Token, Topics,
};

const JOIN: i32 = 0;
const LEAVE: i32 = -1;

/// Status codes of KIP-1071; those of topics are in [`topology`].
const STALE_TOPOLOGY: i8 = 0;
const SHUTDOWN_APPLICATION: i8 = 4;
const ASSIGNMENT_DELAYED: i8 = 5;
const MISSING_CLIENT_TAGS: i8 = 6;

/// A member that waits for a moment that is known comes again then, and not sooner than this after it.
const GRACE: Duration = Duration::from_millis(20);

/// An error and its words.
type Refusal = (ErrorCode, String);

fn refusal<T>(error: ErrorCode, words: &str) -> Result<T, Refusal> {
    Err((error, words.to_owned()))
}

/// A heartbeat and what it is judged by.
pub(in crate::groups) struct Heartbeat<'a> {
    /// The group as it is; an empty one where there is none.
    pub(in crate::groups) group: &'a Streams,
    /// There is a streams group.
    pub(in crate::groups) exists: bool,
    /// There is an empty classic group whose record must go first.
    pub(in crate::groups) replaces_classic: bool,
    /// Log position of the group's last record.
    pub(in crate::groups) changed_at: Offset,
    pub(in crate::groups) topics: &'a dyn Topics,
    pub(in crate::groups) configs: GroupConfigs<'a>,
    pub(in crate::groups) settings: &'a GroupSettings,
    pub(in crate::groups) now: Now,
}

impl StreamsHeartbeatAnswer {
    /// An answer that says nothing but this.
    pub fn refused(error: ErrorCode, message: Option<String>, member: String) -> Self {
        StreamsHeartbeatAnswer {
            error,
            message,
            member,
            ..StreamsHeartbeatAnswer::default()
        }
    }
}

impl Heartbeat<'_> {
    pub(in crate::groups) fn decide(self, request: StreamsHeartbeat, token: Token, out: &mut Out) {
        let member = request.member.clone();
        let outcome = check(&request).and_then(|()| match request.member_epoch {
            LEAVE | AWAY => self.leave(&request, out),
            _ => self.stay(request, out),
        });
        let (after, answer) = outcome.unwrap_or_else(|(error, message)| {
            let answer = StreamsHeartbeatAnswer::refused(error, Some(message), member);
            (self.changed_at, answer)
        });
        out.answer(
            token,
            after,
            GroupAnswer::StreamsHeartbeat(Box::new(answer)),
        );
    }

    fn member(&self, id: &str) -> Result<(&Arc<str>, &Member), Refusal> {
        if !self.exists {
            return refusal(
                ErrorCode::GROUP_ID_NOT_FOUND,
                "there is no such streams group; join with epoch 0",
            );
        }
        match self.group.members.get_key_value(id) {
            Some((id, member)) => Ok((id, member.as_ref())),
            None => refusal(
                ErrorCode::UNKNOWN_MEMBER_ID,
                "the group has no such member; join with epoch 0",
            ),
        }
    }

    /// The holder of a static name, which must be the one that asks.
    fn instance(&self, instance: &str, member: &str) -> Result<(&Arc<str>, &Member), Refusal> {
        let holder = self.group.instances.get(instance).map_or("", |m| m);
        let found = self.member(holder)?;
        if holder != member {
            return refusal(
                ErrorCode::FENCED_INSTANCE_ID,
                "another member has taken over this group.instance.id; stop this one",
            );
        }
        Ok(found)
    }

    fn leave(
        &self,
        request: &StreamsHeartbeat,
        out: &mut Out,
    ) -> Result<(Offset, StreamsHeartbeatAnswer), Refusal> {
        let (id, member) = match &request.instance {
            Some(instance) => self.instance(instance, &request.member)?,
            None => self.member(&request.member)?,
        };
        if request.shutdown {
            self.ask_to_stop(request, id, out);
        }
        let mut draft = Draft::new(&request.group, self.group, self.now, self.settings, out);
        if request.member_epoch == AWAY {
            // Its tasks wait for it until its session ends; what it had to give back is given back.
            let tasks = member.current.assigned.of(Role::Active);
            let away = Current {
                epoch: AWAY,
                previous_epoch: member.current.epoch,
                state: State::Stable,
                assigned: member.current.assigned.clone(),
                revoking: Tasks::default(),
                since: tasks.map(|task| (task.clone(), 0)).collect(),
            };
            draft.set_current(id, &away);
        } else {
            draft.remove(id);
            draft.bump(self.topics);
        }
        let answer = StreamsHeartbeatAnswer {
            member: id.to_string(),
            member_epoch: request.member_epoch,
            ..StreamsHeartbeatAnswer::default()
        };
        Ok((self.changed_at, answer))
    }

    /// Whose heartbeat it is: the member of that id, or the one that holds the static name. `None`: a newcomer.
    fn find(
        &self,
        request: &StreamsHeartbeat,
        owned: Option<&Tasks>,
    ) -> Result<Option<(&Arc<str>, &Member)>, Refusal> {
        if request.member_epoch != JOIN {
            let (id, member) = match &request.instance {
                Some(instance) => self.instance(instance, &request.member)?,
                None => self.member(&request.member)?,
            };
            check_epoch(member, request.member_epoch, owned)?;
            return Ok(Some((id, member)));
        }
        let members = &self.group.members;
        let holder = request
            .instance
            .as_deref()
            .and_then(|instance| self.group.instances.get(instance))
            .map_or(request.member.as_str(), |m| m);
        match members.get_key_value(holder) {
            Some((_, member)) if holder != request.member && member.current.epoch != AWAY => {
                refusal(
                    ErrorCode::UNRELEASED_INSTANCE_ID,
                    "another member still holds this group.instance.id; wait until it has left",
                )
            }
            Some((id, member)) => Ok(Some((id, member.as_ref()))),
            None if members.len() >= self.settings.streams_max_size => refusal(
                ErrorCode::GROUP_MAX_SIZE_REACHED,
                "the group has group.streams.max.size members",
            ),
            None => Ok(None),
        }
    }

    /// The topology that the group has once this request is heard; `None`: as before.
    fn new_topology(&self, request: &StreamsHeartbeat) -> Result<Option<StreamsTopology>, Refusal> {
        let Some(asked) = &request.topology else {
            return Ok(None);
        };
        let asked = topology::normalized(asked.clone());
        let same = |known: &StreamsTopology| {
            known.epoch == asked.epoch && known.subtopologies == asked.subtopologies
        };
        match &self.group.topology {
            Some(known) if same(known) => Ok(None),
            // Nobody runs the old one any more, so nothing can be torn apart.
            Some(_) if !self.group.is_empty() => match &self.group.topology {
                Some(known) if known.epoch > asked.epoch => Ok(None),
                _ => refusal(
                    ErrorCode::INVALID_REQUEST,
                    "the group runs another topology; stop all its members before one with a changed topology starts",
                ),
            },
            _ => Ok(Some(asked)),
        }
    }

    /// A join, or a heartbeat of a member.
    fn stay(
        &self,
        request: StreamsHeartbeat,
        out: &mut Out,
    ) -> Result<(Offset, StreamsHeartbeatAnswer), Refusal> {
        let owned = request
            .owned
            .as_ref()
            .map(|o| Tasks::from_lists([&o.active, &o.standby, &o.warmup]));
        let found = self.find(&request, owned.as_ref())?;
        let new_topology = self.new_topology(&request)?;
        let before = found.map(|(_, m)| m);
        let stored = before.and_then(|m| m.value.as_ref());
        let value = updated(stored, &request);
        let id: Arc<str> = match found {
            Some((id, _)) if **id == *request.member => id.clone(),
            _ => request.member.as_str().into(),
        };
        let changes = stored != Some(&value)
            || found.is_some_and(|(known, _)| *known != id)
            || new_topology.is_some()
            || self.is_outdated()
            || self.is_due();
        // The most frequent heartbeat changes nothing, and must not cost a copy of the group. What is drafted counts once nothing
        // can be refused any more.
        let mut drafted = Out::default();
        let mut draft = None;
        if changes {
            let (now, settings) = (self.now, self.settings);
            let mut next = Draft::new(&request.group, self.group, now, settings, &mut drafted);
            self.change(&mut next, &id, found, value, new_topology);
            draft = Some(next);
        }
        let state = draft.as_ref().map_or(self.group, |draft| &draft.state);
        let member = state.members.get(&id).cloned().unwrap_or_default();
        let configured = match state.is_ready() && draft.is_none() && owned.is_none() {
            true => None,
            false => Some(state.configure(self.topics)),
        };
        if let Some(Err(Misfit::Impossible(words))) = configured {
            return Err((ErrorCode::STREAMS_INVALID_TOPOLOGY, words));
        }
        if let (Some(Ok(configured)), Some(owned)) = (&configured, &owned) {
            check_tasks(configured, owned)?;
        }
        let mut current = member.current.clone();
        let mut endpoint_epoch = state.endpoint_epoch;
        if let Some(next) = state.reconcile(&id, &member, owned.as_ref()) {
            let moved = next.assigned != current.assigned;
            if moved && member.has_endpoint() {
                endpoint_epoch = endpoint_epoch.wrapping_add(1).max(1);
            }
            match &mut draft {
                Some(draft) => draft.set_current(&id, &next),
                None => out_current(out, &request.group, &id, &next),
            }
            current = next;
        }
        let state = draft.as_ref().map_or(self.group, |draft| &draft.state);
        let after = before.map_or(Offset::ZERO, |b| b.changed_at);
        let mut answer = StreamsHeartbeatAnswer {
            member: id.to_string(),
            member_epoch: current.epoch,
            heartbeat_interval: self.interval(state, &current),
            task_offset_interval: self.settings.streams_task_offset_interval,
            acceptable_recovery_lag: self.settings.streams_acceptable_recovery_lag,
            status: self.status(&request, state, &id, configured.as_ref()),
            describe: self.wants_description(&request, state),
            endpoint_epoch,
            ..StreamsHeartbeatAnswer::default()
        };
        // A member that comes with the epoch before, or with other tasks than it may have, has not seen the last answer; and what it
        // was given just before the coordinator moved here it may never have been told, at the epoch that it has.
        let tell = request.member_epoch == JOIN
            || self.group.untold.contains(&id)
            || owned.is_some_and(|owned| owned != current.assigned)
            || before.is_none_or(|b| {
                b.current.epoch != request.member_epoch || b.current.assigned != current.assigned
            });
        if tell {
            answer.tasks = Some(current.assigned.lists());
        }
        if endpoint_epoch != request.endpoint_epoch || self.group.untold.contains(&id) {
            answer.endpoints = Some(endpoints(state, &id, &current, self.topics));
        }
        if let Some(Ok(configured)) = configured {
            answer.missing_topics = configured.missing;
        }
        drop(draft);
        out.append(drafted);
        let session = self.configs.millis("streams.session.timeout.ms");
        let session = session.unwrap_or(self.settings.streams_session_timeout);
        out.soft(SoftChange::Session {
            group: request.group.as_str().into(),
            member: id.clone(),
            until: self.now.mono.saturating_add(session),
            synced: false,
        });
        if request.shutdown {
            self.ask_to_stop(&request, &id, out);
        }
        self.keep_offsets(request, &id, out);
        Ok((after, answer))
    }

    /// Topics or configs have changed since the last assignment.
    fn is_outdated(&self) -> bool {
        let fits_now = || {
            let configured = self.group.configure(self.topics);
            configured.is_ok_and(|c| c.is_ready())
        };
        let configs = assignment_configs(self.configs, self.settings);
        self.group.value.assignment_configs != configs || !self.group.is_ready() && fits_now()
    }

    /// The assignment for the group epoch is still to be made, and need not wait.
    fn is_due(&self) -> bool {
        let waits = self
            .group
            .delayed_until
            .is_some_and(|at| at > self.now.mono);
        self.group.value.epoch > self.group.target_epoch && !waits
    }

    fn change(
        &self,
        draft: &mut Draft<'_>,
        id: &Arc<str>,
        found: Option<(&Arc<str>, &Member)>,
        value: StreamsMemberValue,
        new_topology: Option<StreamsTopology>,
    ) {
        if self.replaces_classic {
            draft.forget_classic();
        }
        let stored = found.and_then(|(_, m)| m.value.as_ref());
        let assigns_anew = stored.is_none_or(|stored| {
            (
                stored.topology_epoch,
                &stored.rack,
                &stored.tags,
                &stored.process_id,
            ) != (
                value.topology_epoch,
                &value.rack,
                &value.tags,
                &value.process_id,
            )
        });
        let is_first = self.group.is_empty();
        let changed_topology = new_topology.is_some();
        if let Some(topology) = new_topology {
            draft.record(StreamsRecord::Topology(Some(topology)));
            draft.forget_description();
        }
        match found {
            // A static member is back under a new id: it takes over what the old one held.
            Some((old, member)) if *old != *id => {
                let target = self.group.targets.get(old).cloned();
                draft.remove(old);
                draft.record(StreamsRecord::Member(id.to_string(), Some(value)));
                draft.set_target(id, &target.unwrap_or_default());
                draft.set_current(
                    id,
                    &Current {
                        epoch: JOIN,
                        previous_epoch: JOIN,
                        ..member.current.clone()
                    },
                );
            }
            _ if stored != Some(&value) => {
                draft.record(StreamsRecord::Member(id.to_string(), Some(value)));
            }
            _ => {}
        }
        if is_first {
            draft.delay(self.topics);
        }
        if assigns_anew || changed_topology || self.is_outdated() {
            draft.bump(self.topics);
        } else if self.is_due() {
            draft.assign(self.topics);
        }
    }

    /// When the member is to come again, which is at `current`: as configured, or when the first assignment is there, or soon where others
    /// have something to give back to it.
    fn interval(&self, state: &Streams, current: &Current) -> Duration {
        let interval = self.configs.millis("streams.heartbeat.interval.ms");
        let interval = interval.unwrap_or(self.settings.streams_heartbeat_interval);
        match state.delayed_until {
            None if current.state == State::Waiting => {
                members::soon(state.target_at, interval, state.members.len(), self.now)
            }
            Some(until) => {
                let rest = until.saturating_sub(self.now.mono).saturating_add(GRACE);
                rest.min(interval)
            }
            None => interval,
        }
    }

    fn status(
        &self,
        request: &StreamsHeartbeat,
        state: &Streams,
        id: &str,
        configured: Option<&Result<Configured, Misfit>>,
    ) -> Vec<StreamsStatus> {
        let mut status = Vec::new();
        let mut say = |code: i8, detail: String| status.push(StreamsStatus { code, detail });
        let value = state.members.get(id).and_then(|m| m.value.as_ref());
        let own_epoch = value.map_or(0, |v| v.topology_epoch);
        if let Some(epoch) = state.topology_epoch().filter(|epoch| own_epoch < *epoch) {
            say(
                STALE_TOPOLOGY,
                format!(
                    "the member's topology has epoch {own_epoch}, the group's {epoch}; update the application"
                ),
            );
        }
        match configured {
            Some(Ok(configured)) => {
                if let Some((code, detail)) = configured.status() {
                    say(code, detail);
                }
            }
            Some(Err(Misfit::Waits(code, detail))) => say(*code, detail.clone()),
            Some(Err(Misfit::Impossible(_))) | None => {}
        }
        let asks_now = request.shutdown.then_some(id);
        if let Some(asked) = state.shutdown.as_deref().or(asks_now) {
            say(
                SHUTDOWN_APPLICATION,
                format!(
                    "member {asked} has failed for good and asked that the whole application stops"
                ),
            );
        }
        if state.delayed_until.is_some_and(|at| at > self.now.mono) {
            say(
                ASSIGNMENT_DELAYED,
                "the first assignment waits for more members (streams.initial.rebalance.delay.ms)"
                    .to_owned(),
            );
        }
        if request.version >= 1 {
            let tags = tags(self.configs, self.settings);
            let has = |tag: &str| value.is_some_and(|v| v.tags.iter().any(|(key, _)| key == tag));
            let missing: Vec<&str> = tags.iter().map(|t| &**t).filter(|tag| !has(tag)).collect();
            if !missing.is_empty() {
                say(
                    MISSING_CLIENT_TAGS,
                    format!(
                        "client tags that standby tasks are spread over are missing: {}; set client.tag.<name>",
                        missing.join(", ")
                    ),
                );
            }
        }
        status
    }

    /// Whether the member is to send a description of the topology (KIP-1331).
    fn wants_description(&self, request: &StreamsHeartbeat, state: &Streams) -> bool {
        let Some(epoch) = state.topology_epoch() else {
            return false;
        };
        let value = &state.value;
        let runs = state.members.get(request.member.as_str());
        let runs = runs.and_then(|m| m.value.as_ref());
        request.version >= 1
            && value.described_epoch != epoch
            && value.undescribable_epoch != epoch
            && runs.is_some_and(|v| v.topology_epoch == epoch)
    }

    fn ask_to_stop(&self, request: &StreamsHeartbeat, id: &Arc<str>, out: &mut Out) {
        out.soft(SoftChange::Streams {
            group: request.group.as_str().into(),
            change: StreamsSoft::Shutdown(id.clone()),
        });
    }

    fn keep_offsets(&self, request: StreamsHeartbeat, id: &Arc<str>, out: &mut Out) {
        if request.offsets.is_none() && request.end_offsets.is_none() {
            return;
        }
        let before = self.group.offsets.get(id).map(|o| o.as_ref().clone());
        let before = before.unwrap_or_default();
        let offsets = TaskOffsets {
            offsets: request.offsets.unwrap_or(before.offsets),
            end_offsets: request.end_offsets.unwrap_or(before.end_offsets),
        };
        out.soft(SoftChange::Streams {
            group: request.group.as_str().into(),
            change: StreamsSoft::Offsets(id.clone(), Arc::new(offsets)),
        });
    }
}

fn out_current(out: &mut Out, group: &str, member: &str, current: &Current) {
    let value = Some(current.to_value());
    out.record(&Record::Streams {
        group: group.to_owned(),
        record: StreamsRecord::CurrentMember(member.to_owned(), value),
    });
}

/// The last epoch, or the one before when its answer was lost: then the member can't hold more than it was given.
fn check_epoch(member: &Member, epoch: i32, owned: Option<&Tasks>) -> Result<(), Refusal> {
    let current = &member.current;
    let holds_only_given = |owned: &Tasks| {
        let mut roles = Role::ALL.iter();
        roles.all(|role| {
            owned
                .of(*role)
                .all(|task| current.assigned.has(*role, task))
        })
    };
    let lost_answer = epoch == current.previous_epoch
        && epoch < current.epoch
        && owned.is_some_and(holds_only_given);
    if epoch == current.epoch || lost_answer || active(Mutant::StreamsStaleAccepted) {
        return Ok(());
    }
    refusal(
        ErrorCode::FENCED_MEMBER_EPOCH,
        "the member epoch is not the member's; give up all tasks and join with epoch 0",
    )
}

/// Tasks that a member says it has must be tasks of the topology.
fn check_tasks(configured: &Configured, owned: &Tasks) -> Result<(), Refusal> {
    if !configured.is_ready() {
        return Ok(());
    }
    for role in Role::ALL {
        for (subtopology, partition) in owned.of(role) {
            let count = configured.subtopologies.get(&**subtopology);
            let count = count.map_or(0, |s| s.tasks);
            if !(0..count).contains(partition) {
                return Err((
                    ErrorCode::INVALID_REQUEST,
                    format!(
                        "there is no task {subtopology}_{partition}: subtopology {subtopology} has {count} tasks"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// What can be said of a request without looking at the group.
fn check(request: &StreamsHeartbeat) -> Result<(), Refusal> {
    let in_words = |(error, words): (ErrorCode, &str)| (error, words.to_owned());
    let invalid = |wrong, words| members::invalid(wrong, words).map_err(in_words);
    let subtopologies = request.topology.iter().flat_map(|t| &t.subtopologies);
    let mut patterns = subtopologies.flat_map(|s: &Subtopology| &s.source_topic_regex);
    let epoch = request.member_epoch;
    invalid(
        patterns.next().is_some(),
        "source topics by pattern are not supported by streams groups; name the topics",
    )?;
    let (instance, rack) = (request.instance.as_deref(), request.rack.as_deref());
    check_names(&request.group, &request.member, instance, rack).map_err(in_words)?;
    if epoch == JOIN {
        invalid(
            request.rebalance_timeout.is_none(),
            "a member that joins must give its rebalance time-out",
        )?;
        let owned = request.owned.as_ref();
        let has_none = |o: &super::super::OwnedTasks| {
            o.active.is_empty() && o.standby.is_empty() && o.warmup.is_empty()
        };
        invalid(
            !owned.is_some_and(has_none),
            "a member that joins must give three empty lists of tasks",
        )?;
        let Some(topology) = &request.topology else {
            return refusal(
                ErrorCode::INVALID_REQUEST,
                "a member that joins must give its topology",
            );
        };
        topology::check(topology).map_err(|words| (ErrorCode::STREAMS_INVALID_TOPOLOGY, words))?;
    }
    invalid(
        epoch == AWAY && request.instance.is_none(),
        "only a member with an instance id can leave for a while",
    )?;
    invalid(epoch < AWAY, "the member epoch must be -2 or more")?;
    invalid(
        request.incomplete_tasks,
        "active, standby and warm-up tasks must be given together or not at all",
    )?;
    invalid(
        epoch != JOIN && request.topology.is_some(),
        "a topology can be given only when joining",
    )
}

/// What is known of the member once it has said this.
fn updated(stored: Option<&StreamsMemberValue>, request: &StreamsHeartbeat) -> StreamsMemberValue {
    let mut value = stored.cloned().unwrap_or(StreamsMemberValue {
        rebalance_timeout_ms: -1,
        ..StreamsMemberValue::default()
    });
    value.client_id.clone_from(&request.client_id);
    value.client_host.clone_from(&request.client_host);
    if request.instance.is_some() {
        value.instance.clone_from(&request.instance);
    }
    if request.rack.is_some() {
        value.rack.clone_from(&request.rack);
    }
    if let Some(timeout) = request.rebalance_timeout {
        value.rebalance_timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    }
    if let Some(topology) = &request.topology {
        value.topology_epoch = topology.epoch;
    }
    if let Some(process) = &request.process {
        value.process_id.clone_from(process);
    }
    // A member that joins says all there is to say.
    if request.endpoint.is_some() || request.member_epoch == JOIN {
        value.endpoint.clone_from(&request.endpoint);
    }
    if let Some(tags) = &request.tags {
        let sorted: BTreeMap<&String, &String> = tags.iter().map(|(k, v)| (k, v)).collect();
        value.tags = sorted
            .into_iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
    }
    value
}

/// Which partitions the processes with an endpoint have, once `id` has what it now gets.
fn endpoints(
    state: &Streams,
    id: &str,
    current: &Current,
    topics: &dyn Topics,
) -> Vec<EndpointPartitions> {
    let mut all = Vec::new();
    for (other, member) in &state.members {
        let Some(endpoint) = member.value.as_ref().and_then(|v| v.endpoint.clone()) else {
            continue;
        };
        let tasks = match **other == *id {
            true => &current.assigned,
            false => &member.current.assigned,
        };
        let copies = tasks.of(Role::Standby).chain(tasks.of(Role::Warmup));
        all.push(EndpointPartitions {
            endpoint,
            active: state.places(tasks.of(Role::Active), topics),
            standby: state.places(copies, topics),
        });
    }
    all
}
