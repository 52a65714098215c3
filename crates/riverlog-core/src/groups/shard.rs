//! The groups of one partition of `__consumer_offsets`.

mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::primitives::MAX_STRING_LEN;
use riverlog_wire::{ErrorCode, Offset};

use super::assign::Part;
use super::classic::{self, Classic, Context, Synced};
use super::consumer::{Consumer, Heartbeat, leave_by_name};
use super::effects::{Out, SoftChange};
use super::offsets::{self, Index, Offsets};
use super::records::{OffsetValue, Record};
use super::{
    Answer, ConsumerHeartbeatAnswer, Decision, FetchedOffsets, GroupAnswer, GroupCommand,
    GroupDescription, GroupSettings, Join, Soft, Sync, Token, TopicPartition, Topics,
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
            Kind::Consumer(_) => false,
        };
        no_members && self.offsets.is_empty()
    }

    fn has_no_members(&self) -> bool {
        match &self.kind {
            Kind::Classic(classic) => classic.is_empty(),
            Kind::Consumer(consumer) => consumer.is_empty(),
        }
    }

    fn next_deadline(&self, held_until: Duration) -> Option<Duration> {
        match &self.kind {
            Kind::Classic(classic) => classic.next_deadline(held_until),
            Kind::Consumer(consumer) => consumer.next_deadline(held_until),
        }
    }

    fn describe(&self, name: &str) -> GroupDescription {
        match &self.kind {
            Kind::Classic(classic) => classic.describe(name),
            Kind::Consumer(consumer) => consumer.describe(name),
        }
    }

    /// Tombstones for all there is of it.
    fn delete(&self, name: &str, out: &mut Out) {
        for (topic, partition, _) in self.offsets.iter() {
            out.record(&forget_offset(name, topic, partition));
        }
        match &self.kind {
            Kind::Classic(_) => out.record(&Record::Group {
                group: name.to_owned(),
                value: None,
            }),
            Kind::Consumer(_) => Consumer::delete(name, out),
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
            topics_walk: None,
            expiry_from: None,
            expiry_at: Duration::ZERO,
        }
    }

    /// All records have been applied: members get a fresh session from `now` on.
    pub fn loaded(&mut self, now: Now) {
        self.loading = false;
        self.expiry_at = now.mono + upkeep::FIRST_EXPIRY;
        for group in self.groups.values_mut() {
            match &mut group.kind {
                Kind::Classic(classic) => classic.loaded(now),
                Kind::Consumer(consumer) => consumer.loaded(now, &self.settings),
            }
        }
        let names: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for name in names {
            self.rearm(&name);
        }
    }

    /// Decides a command. Randomness is part of the command.
    pub fn decide(
        &self,
        command: GroupCommand,
        token: Token,
        topics: &dyn Topics,
        now: Now,
    ) -> Decision {
        let shape = Shape::of(&command);
        if command.group().len() > MAX_STRING_LEN {
            let answer = shape.refuse(ErrorCode::INVALID_GROUP_ID);
            return answer_alone(token, self.removed_at, answer);
        }
        let mut out = Out::default();
        match command {
            GroupCommand::Join(join) => self.join(join, token, now, &mut out),
            GroupCommand::Sync(sync) => self.sync(sync, token, now, &mut out),
            GroupCommand::Heartbeat {
                group,
                generation,
                member,
                instance,
            } => {
                let (error, until) = if group.is_empty() {
                    (ErrorCode::INVALID_GROUP_ID, None)
                } else {
                    match self.classic(&group) {
                        Some((classic, _)) => {
                            classic.heartbeat(&member, instance.as_deref(), generation.0, now)
                        }
                        None => (ErrorCode::UNKNOWN_MEMBER_ID, None),
                    }
                };
                renew(&group, &member, until, false, &mut out);
                // At once: it reveals nothing that a fail-over could take back.
                out.answer(token, Offset::ZERO, GroupAnswer::Error(error));
            }
            GroupCommand::Leave { group, members } => {
                self.leave(&group, &members, token, topics, now, &mut out);
            }
            GroupCommand::ConsumerHeartbeat(request) => {
                let group = self.groups.get(request.group.as_str());
                let nobody = Consumer::default();
                let (state, replaces_classic) = match group.map(|g| &g.kind) {
                    Some(Kind::Consumer(consumer)) => (Some(consumer.as_ref()), false),
                    Some(Kind::Classic(classic)) if !classic.is_empty() => {
                        let answer = ConsumerHeartbeatAnswer {
                            error: ErrorCode::GROUP_ID_NOT_FOUND,
                            message: Some(
                                "the group has members of the classic protocol; let them leave first"
                                    .to_owned(),
                            ),
                            ..refused_heartbeat(request.member)
                        };
                        let answer = GroupAnswer::ConsumerHeartbeat(answer);
                        return answer_alone(token, self.read_at(&request.group), answer);
                    }
                    Some(Kind::Classic(classic)) => (None, classic.is_managed()),
                    None => (None, false),
                };
                let heartbeat = Heartbeat {
                    group: state.unwrap_or(&nobody),
                    exists: state.is_some(),
                    replaces_classic,
                    changed_at: self.read_at(&request.group),
                    topics,
                    settings: &self.settings,
                    now,
                };
                heartbeat.decide(request, token, &mut out);
            }
            GroupCommand::Commit {
                group,
                generation,
                member,
                instance,
                offsets,
                version,
            } => {
                let parts = offsets.iter().filter_map(|(p, _)| part(p, topics));
                let allowed = match self.groups.get(group.as_str()).map(|g| &g.kind) {
                    Some(Kind::Classic(c)) => {
                        c.check_commit(&member, instance.as_deref(), generation.0, now)
                    }
                    Some(Kind::Consumer(c)) => c
                        .check_commit(&member, generation.0, version, parts)
                        .map(|()| None),
                    None if generation.0 < 0 => Ok(None),
                    None if version >= 9 => Err(ErrorCode::GROUP_ID_NOT_FOUND),
                    None => Err(ErrorCode::ILLEGAL_GENERATION),
                };
                match allowed {
                    Err(error) => {
                        let each = vec![error; offsets.len()];
                        let answer = GroupAnswer::Partitions(error, each);
                        out.answer(token, self.read_at(&group), answer);
                    }
                    Ok(until) => {
                        let (records, errors) =
                            offsets::commit(&group, offsets, topics, &self.settings, now);
                        for record in &records {
                            out.record(record);
                        }
                        renew(&group, &member, until, false, &mut out);
                        let answer = GroupAnswer::Partitions(ErrorCode::NONE, errors);
                        out.answer(token, Offset::ZERO, answer);
                    }
                }
            }
            GroupCommand::DeleteOffsets { group, partitions } => {
                self.delete_offsets(&group, &partitions, token, topics, &mut out);
            }
            GroupCommand::DeleteGroup { group } => {
                let error = match self.groups.get(group.as_str()) {
                    None => ErrorCode::GROUP_ID_NOT_FOUND,
                    Some(found) if !found.has_no_members() => ErrorCode::NON_EMPTY_GROUP,
                    Some(found) => {
                        found.delete(&group, &mut out);
                        ErrorCode::NONE
                    }
                };
                out.answer(token, self.read_at(&group), GroupAnswer::Error(error));
            }
        }
        out.finish(|error| {
            vec![Answer {
                token,
                body: shape.refuse(error),
                after: Offset::ZERO,
            }]
        })
    }

    fn classic(&self, group: &str) -> Option<(&Classic, Offset)> {
        let group = self.groups.get(group)?;
        match &group.kind {
            Kind::Classic(classic) => Some((classic, group.changed_at)),
            Kind::Consumer(_) => None,
        }
    }

    /// Log position of what can be said of a group, be it that there is none.
    fn read_at(&self, group: &str) -> Offset {
        let group = self.groups.get(group);
        group.map_or(self.removed_at, |g| g.changed_at)
    }

    /// Changes a copy of a classic group, which becomes the group.
    fn change(
        &self,
        group: &str,
        now: Now,
        out: &mut Out,
        change: impl FnOnce(&mut Classic, &mut Context<'_>),
    ) {
        let mut state = self
            .classic(group)
            .map_or_else(Classic::default, |(c, _)| c.clone());
        let mut cx = Context {
            group,
            settings: &self.settings,
            now,
            changed_at: self.read_at(group),
            out,
        };
        change(&mut state, &mut cx);
        out.soft(SoftChange::Classic {
            group: group.into(),
            state: Box::new(state),
        });
    }

    fn join(&self, join: Join, token: Token, now: Now, out: &mut Out) {
        let found = self.groups.get(join.group.as_str());
        let allowed = Classic::check_join(&join, &self.settings).and_then(|()| {
            match found.map(|g| &g.kind) {
                Some(Kind::Consumer(consumer)) if !consumer.is_empty() => {
                    Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
                }
                Some(Kind::Classic(_)) => Ok(()),
                _ if !join.member.is_empty() => Err(ErrorCode::UNKNOWN_MEMBER_ID),
                _ => Ok(()),
            }
        });
        if let Err(error) = allowed {
            let after = self.read_at(&join.group);
            let answer = GroupAnswer::Join(classic::refused_join(&join, error));
            return out.answer(token, after, answer);
        }
        if let Some(Kind::Consumer(_)) = found.map(|g| &g.kind) {
            Consumer::delete(&join.group, out);
        }
        let group = join.group.clone();
        self.change(&group, now, out, |classic, cx| {
            classic.join(join, token, cx)
        });
    }

    fn sync(&self, sync: Sync, token: Token, now: Now, out: &mut Out) {
        let after = self.read_at(&sync.group);
        let checked = if sync.group.is_empty() {
            Err(ErrorCode::INVALID_GROUP_ID)
        } else {
            match self.classic(&sync.group) {
                Some((classic, _)) => classic.check_sync(&sync),
                None => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            }
        };
        match checked {
            Err(error) => out.answer(token, after, classic::refused_sync(error)),
            Ok(Synced::Now(answer, until)) => {
                renew(&sync.group, &sync.member, Some(now.mono + until), true, out);
                out.answer(token, after, answer);
            }
            Ok(Synced::Changes) => {
                let group = sync.group.clone();
                self.change(&group, now, out, |classic, cx| {
                    classic.sync(sync, token, cx)
                });
            }
        }
    }

    fn leave(
        &self,
        group: &str,
        members: &[(String, Option<String>, Option<String>)],
        token: Token,
        topics: &dyn Topics,
        now: Now,
        out: &mut Out,
    ) {
        let after = self.read_at(group);
        if group.is_empty() {
            let answer = GroupAnswer::Leave(ErrorCode::INVALID_GROUP_ID, Vec::new());
            return out.answer(token, after, answer);
        }
        let mut errors = vec![ErrorCode::UNKNOWN_MEMBER_ID; members.len()];
        match self.groups.get(group).map(|g| &g.kind) {
            None => {}
            Some(Kind::Classic(_)) => {
                self.change(group, now, out, |classic, cx| {
                    errors = classic.leave(members, cx);
                });
            }
            Some(Kind::Consumer(consumer)) => {
                let settings = &self.settings;
                errors = leave_by_name(group, consumer, members, topics, now, settings, out);
            }
        }
        out.answer(token, after, GroupAnswer::Leave(ErrorCode::NONE, errors));
    }

    fn delete_offsets(
        &self,
        name: &str,
        partitions: &[TopicPartition],
        token: Token,
        topics: &dyn Topics,
        out: &mut Out,
    ) {
        let whole = |error| GroupAnswer::Partitions(error, vec![error; partitions.len()]);
        let Some(group) = self.groups.get(name) else {
            return out.answer(token, self.removed_at, whole(ErrorCode::GROUP_ID_NOT_FOUND));
        };
        let read = match &group.kind {
            Kind::Classic(classic) if !classic.may_delete_offsets() => {
                return out.answer(token, group.changed_at, whole(ErrorCode::NON_EMPTY_GROUP));
            }
            Kind::Classic(classic) => classic.read_topics(),
            Kind::Consumer(consumer) => Some(consumer.subscribed(topics)),
        };
        let mut gone = BTreeSet::new();
        let errors = partitions
            .iter()
            .map(|p| {
                // Members whose metadata can't be read may read anything.
                if read.as_ref().is_none_or(|read| read.contains(&p.topic)) {
                    return ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC;
                }
                let stored = group.offsets.get(&p.topic, p.partition).is_some();
                if stored && gone.insert((&p.topic, p.partition)) {
                    out.record(&forget_offset(name, &p.topic, p.partition));
                }
                if stored || part(p, topics).is_some() {
                    ErrorCode::NONE
                } else {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                }
            })
            .collect();
        let after = group.changed_at.max(group.offsets.removed_at);
        out.answer(
            token,
            after,
            GroupAnswer::Partitions(ErrorCode::NONE, errors),
        );
    }

    /// A record was appended at `at`. Unknown or damaged records are skipped.
    pub fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, now: Now) {
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
                        Kind::Consumer(consumer) => consumer.renew(&member, until),
                    }
                    self.arm(&group, until);
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
    /// - `member`: id and member epoch of the one that asks, which a group of the consumer protocol checks:
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
        if let (Kind::Consumer(consumer), Some((member, epoch))) = (&group.kind, member)
            && let Err(error) = consumer.check_fetch(member, epoch)
        {
            return (Err(error), group.changed_at);
        }
        let (found, after) = group.offsets.fetch(partitions);
        (Ok(found), after)
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

    /// The least committed offset of a partition over all groups that have one there (for bounded partitions).
    pub fn least_committed(&self, topic: &str, partition: i32) -> Option<Offset> {
        self.index.least(topic, partition)
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

fn renew(group: &str, member: &str, until: Option<Duration>, synced: bool, out: &mut Out) {
    if let Some(until) = until {
        out.soft(SoftChange::Session {
            group: group.into(),
            member: member.into(),
            until,
            synced,
        });
    }
}

/// The partition that is meant, when it exists.
fn part(partition: &TopicPartition, topics: &dyn Topics) -> Option<Part> {
    let id = offsets::find(partition, topics).ok()?.1;
    Some((id, partition.partition))
}

fn answer_alone(token: Token, after: Offset, body: GroupAnswer) -> Decision {
    Decision {
        answers: vec![Answer { token, body, after }],
        ..Decision::default()
    }
}

fn refused_heartbeat(member: String) -> ConsumerHeartbeatAnswer {
    ConsumerHeartbeatAnswer {
        error: ErrorCode::NONE,
        message: None,
        member,
        member_epoch: 0,
        heartbeat_interval: Duration::ZERO,
        assignment: None,
    }
}

/// Which answer a command gets, kept for when it can't be carried out.
enum Shape {
    Join(String),
    Sync,
    Error,
    Leave,
    ConsumerHeartbeat(String),
    Partitions(usize),
}

impl Shape {
    fn of(command: &GroupCommand) -> Shape {
        match command {
            GroupCommand::Join(join) => Shape::Join(join.member.clone()),
            GroupCommand::Sync(_) => Shape::Sync,
            GroupCommand::Heartbeat { .. } | GroupCommand::DeleteGroup { .. } => Shape::Error,
            GroupCommand::Leave { .. } => Shape::Leave,
            GroupCommand::ConsumerHeartbeat(h) => Shape::ConsumerHeartbeat(h.member.clone()),
            GroupCommand::Commit { offsets, .. } => Shape::Partitions(offsets.len()),
            GroupCommand::DeleteOffsets { partitions, .. } => Shape::Partitions(partitions.len()),
        }
    }

    fn refuse(self, error: ErrorCode) -> GroupAnswer {
        match self {
            Shape::Join(member) => {
                let join = Join {
                    member,
                    ..Join::default()
                };
                GroupAnswer::Join(classic::refused_join(&join, error))
            }
            Shape::Sync => classic::refused_sync(error),
            Shape::Error => GroupAnswer::Error(error),
            Shape::Leave => GroupAnswer::Leave(error, Vec::new()),
            Shape::ConsumerHeartbeat(member) => {
                GroupAnswer::ConsumerHeartbeat(ConsumerHeartbeatAnswer {
                    error,
                    message: Some(error.message().to_owned()),
                    ..refused_heartbeat(member)
                })
            }
            Shape::Partitions(count) => GroupAnswer::Partitions(error, vec![error; count]),
        }
    }
}

impl GroupCommand {
    /// The group it is for.
    pub fn group(&self) -> &str {
        match self {
            GroupCommand::Join(join) => &join.group,
            GroupCommand::Sync(sync) => &sync.group,
            GroupCommand::ConsumerHeartbeat(heartbeat) => &heartbeat.group,
            GroupCommand::Heartbeat { group, .. }
            | GroupCommand::Leave { group, .. }
            | GroupCommand::Commit { group, .. }
            | GroupCommand::DeleteOffsets { group, .. }
            | GroupCommand::DeleteGroup { group } => group,
        }
    }
}
