//! Commands: which rule decides them, and what they are answered when none can.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_wire::primitives::MAX_STRING_LEN;
use riverlog_wire::{ErrorCode, Offset};

use super::{GroupShard, Kind, forget_offset};
use crate::Now;
use crate::groups::assign::Part;
use crate::groups::classic::{self, Classic, Context, Synced};
use crate::groups::consumer::{self, Asks, Consumer, Heartbeat, leave_by_name};
use crate::groups::effects::{Out, SoftChange};
use crate::groups::offsets;
use crate::groups::share::{self, Share};
use crate::groups::streams::{self, Streams};
use crate::groups::{
    Answer, AnswerShape, CommittedOffset, ConsumerHeartbeat, ConsumerHeartbeatAnswer, Decision,
    GroupAnswer, GroupCommand, Join, ShareHeartbeat, StreamsHeartbeat, StreamsHeartbeatAnswer,
    Sync, Token, TopicPartition, Topics,
};

impl GroupShard {
    /// Decides a command. Randomness is part of the command.
    pub fn decide(
        &self,
        command: GroupCommand,
        token: Token,
        topics: &dyn Topics,
        now: Now,
    ) -> Decision {
        let shape = AnswerShape::of(&command);
        if command.group().len() > MAX_STRING_LEN {
            let error = ErrorCode::INVALID_GROUP_ID;
            let answer = shape.refuse(error, Some(error.message()));
            return answer_alone(token, self.removed_at, answer);
        }
        let mut out = Out::default();
        match command {
            GroupCommand::Join(join) => self.join(join, token, topics, now, &mut out),
            GroupCommand::Sync(sync) => self.sync(sync, token, topics, now, &mut out),
            GroupCommand::Heartbeat {
                group,
                generation,
                member,
                instance,
            } => {
                let instance = instance.as_deref();
                let error = match self.groups.get(group.as_str()).map(|g| &g.kind) {
                    _ if group.is_empty() => ErrorCode::INVALID_GROUP_ID,
                    Some(Kind::Classic(classic)) => {
                        let (error, until) =
                            classic.heartbeat(&member, instance, generation.0, now);
                        renew(&group, &member, until, false, &mut out);
                        error
                    }
                    Some(Kind::Consumer(consumer)) => {
                        let asks = self.asks(&group, consumer, topics, now);
                        asks.heartbeat(&group, (&member, instance), generation.0, &mut out)
                    }
                    Some(Kind::Share(_) | Kind::Streams(_)) | None => ErrorCode::UNKNOWN_MEMBER_ID,
                };
                // At once: it reveals nothing that a fail-over could take back.
                out.answer(token, Offset::ZERO, GroupAnswer::Error(error));
            }
            GroupCommand::Leave { group, members } => {
                self.leave(&group, &members, token, topics, now, &mut out);
            }
            GroupCommand::ConsumerHeartbeat(request) => {
                self.consumer_heartbeat(request, token, topics, now, &mut out);
            }
            GroupCommand::ShareHeartbeat(request) => {
                self.share_heartbeat(request, token, topics, now, &mut out);
            }
            GroupCommand::StreamsHeartbeat(request) => {
                self.streams_heartbeat(*request, token, topics, now, &mut out);
            }
            GroupCommand::DescribeTopology {
                group,
                member,
                epoch,
                description,
            } => {
                let error = match self.groups.get(group.as_str()).map(|g| &g.kind) {
                    Some(Kind::Streams(found)) => match found.runs(&member) {
                        None => ErrorCode::UNKNOWN_MEMBER_ID,
                        Some(runs) if runs != epoch || !found.has_topology(epoch) => {
                            ErrorCode::INVALID_REQUEST
                        }
                        Some(_) => {
                            let kept = description.is_some();
                            let settings = &self.settings;
                            found.set_description(
                                &group,
                                epoch,
                                description,
                                now,
                                settings,
                                &mut out,
                            );
                            match kept {
                                true => ErrorCode::NONE,
                                false => ErrorCode::STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
                            }
                        }
                    },
                    // Its member is as good as fenced, and joins anew.
                    None => ErrorCode::UNKNOWN_MEMBER_ID,
                    Some(_) => ErrorCode::GROUP_ID_NOT_FOUND,
                };
                out.answer(token, self.read_at(&group), GroupAnswer::Error(error));
            }
            GroupCommand::ShareTopics { group, add, remove } => {
                let error = match self.groups.get(group.as_str()).map(|g| &g.kind) {
                    Some(Kind::Share(share)) if share.is_empty() => {
                        share.set_topics(&group, &add, &remove, topics, now, &mut out);
                        ErrorCode::NONE
                    }
                    Some(Kind::Share(_)) => ErrorCode::NON_EMPTY_GROUP,
                    _ => ErrorCode::GROUP_ID_NOT_FOUND,
                };
                out.answer(token, self.read_at(&group), GroupAnswer::Error(error));
            }
            GroupCommand::Commit {
                group,
                generation,
                member,
                instance,
                offsets,
                version,
            } => {
                let who = Committer {
                    member: &member,
                    instance: instance.as_deref(),
                    generation: generation.0,
                    version,
                    transactional: false,
                };
                self.commit(&group, &who, offsets, token, topics, now, &mut out);
            }
            // The host writes the records as part of the transaction.
            GroupCommand::TxnCommit {
                group,
                generation,
                member,
                instance,
                offsets,
                version,
                transaction: _,
            } => {
                let who = Committer {
                    member: &member,
                    instance: instance.as_deref(),
                    generation: generation.0,
                    version,
                    transactional: true,
                };
                self.commit(&group, &who, offsets, token, topics, now, &mut out);
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
                body: shape.refuse(error, Some(error.message())),
                after: Offset::ZERO,
            }]
        })
    }

    fn consumer_heartbeat(
        &self,
        request: ConsumerHeartbeat,
        token: Token,
        topics: &dyn Topics,
        now: Now,
        out: &mut Out,
    ) {
        let after = self.read_at(&request.group);
        let kind = self.groups.get(request.group.as_str()).map(|g| &g.kind);
        let nobody = match kind {
            Some(Kind::Classic(classic)) => Consumer::following(classic.generation()),
            _ => Consumer::default(),
        };
        let mut refuse = |member: String, words: &str| {
            let answer = ConsumerHeartbeatAnswer {
                message: Some(words.to_owned()),
                ..refused_heartbeat(ErrorCode::GROUP_ID_NOT_FOUND, member)
            };
            out.answer(token, after, GroupAnswer::ConsumerHeartbeat(answer));
        };
        let mut conversion = Out::default();
        let mut upgraded = None;
        let (group, replaces_classic) = match kind {
            Some(Kind::Consumer(consumer)) => (Some(consumer.as_ref()), false),
            Some(Kind::Classic(classic)) if !classic.is_empty() => {
                if request.member_epoch != 0 {
                    let words = "the group is a classic one; join with epoch 0";
                    return refuse(request.member, words);
                }
                let mut cx = Context {
                    group: &request.group,
                    settings: &self.settings,
                    now,
                    changed_at: after,
                    out: &mut conversion,
                };
                match consumer::upgraded(classic, topics, &mut cx) {
                    Err(words) => return refuse(request.member, words),
                    Ok(group) => (Some(&*upgraded.insert(group)), false),
                }
            }
            Some(Kind::Classic(classic)) => (None, classic.is_managed()),
            Some(Kind::Share(_) | Kind::Streams(_)) => return refuse(request.member, OTHER_KIND),
            None => (None, false),
        };
        let is_upgraded = matches!(kind, Some(Kind::Classic(_))) && group.is_some();
        let heartbeat = Heartbeat {
            group: group.unwrap_or(&nobody),
            exists: group.is_some(),
            replaces_classic,
            upgraded: is_upgraded,
            changed_at: after,
            topics,
            configs: topics.configs_of_group(&request.group),
            settings: &self.settings,
            now,
        };
        let mut joined = Out::default();
        // A member that is refused changes nothing.
        if heartbeat.decide(request, token, &mut joined) && is_upgraded {
            out.append(conversion);
        }
        out.append(joined);
    }

    fn share_heartbeat(
        &self,
        request: ShareHeartbeat,
        token: Token,
        topics: &dyn Topics,
        now: Now,
        out: &mut Out,
    ) {
        let after = self.read_at(&request.group);
        let nobody = Share::default();
        let group = match self.groups.get(request.group.as_str()).map(|g| &g.kind) {
            Some(Kind::Share(share)) => Some(share.as_ref()),
            Some(Kind::Classic(_) | Kind::Consumer(_) | Kind::Streams(_)) => {
                let answer = ConsumerHeartbeatAnswer {
                    message: Some(OTHER_KIND.to_owned()),
                    ..refused_heartbeat(ErrorCode::GROUP_ID_NOT_FOUND, request.member)
                };
                return out.answer(token, after, GroupAnswer::ConsumerHeartbeat(answer));
            }
            None => None,
        };
        let heartbeat = share::Heartbeat {
            group: group.unwrap_or(&nobody),
            exists: group.is_some(),
            changed_at: after,
            topics,
            configs: topics.configs_of_group(&request.group),
            settings: &self.settings,
            now,
        };
        heartbeat.decide(request, token, out);
    }

    fn streams_heartbeat(
        &self,
        request: StreamsHeartbeat,
        token: Token,
        topics: &dyn Topics,
        now: Now,
        out: &mut Out,
    ) {
        let after = self.read_at(&request.group);
        let nobody = Streams::default();
        let (group, replaces_classic) =
            match self.groups.get(request.group.as_str()).map(|g| &g.kind) {
                Some(Kind::Streams(streams)) => (Some(streams.as_ref()), false),
                // The application has stopped, and starts again with the other protocol: its offsets stay.
                Some(Kind::Classic(classic)) if classic.is_empty() => (None, classic.is_managed()),
                Some(Kind::Classic(_) | Kind::Consumer(_) | Kind::Share(_)) => {
                    let answer = StreamsHeartbeatAnswer::refused(
                        ErrorCode::GROUP_ID_NOT_FOUND,
                        Some(OTHER_KIND.to_owned()),
                        request.member,
                    );
                    let answer = GroupAnswer::StreamsHeartbeat(Box::new(answer));
                    return out.answer(token, after, answer);
                }
                None => (None, false),
            };
        let heartbeat = streams::Heartbeat {
            group: group.unwrap_or(&nobody),
            exists: group.is_some(),
            replaces_classic,
            changed_at: after,
            topics,
            configs: topics.configs_of_group(&request.group),
            settings: &self.settings,
            now,
        };
        heartbeat.decide(request, token, out);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    fn commit(
        &self,
        group: &str,
        who: &Committer<'_>,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        token: Token,
        topics: &dyn Topics,
        now: Now,
        out: &mut Out,
    ) {
        let Committer {
            member,
            instance,
            generation,
            version,
            transactional,
        } = *who;
        let parts = offsets.iter().filter_map(|(p, _)| part(p, topics));
        let places = offsets.iter().filter_map(|(p, _)| place(p, topics));
        // A producer need not say for whom it commits; then nobody is asked.
        let anyone = transactional && generation < 0 && member.is_empty() && instance.is_none();
        let unknown_since = if transactional { 6 } else { 9 };
        let allowed = match self.groups.get(group).map(|g| &g.kind) {
            // It has its own way to say what is done.
            Some(Kind::Share(_)) => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            Some(_) if anyone => Ok(None),
            Some(Kind::Classic(c)) if transactional => c
                .check_txn_commit(member, instance, generation)
                .map(|()| None),
            Some(Kind::Consumer(c)) if transactional => {
                in_transaction(c.check_commit(member, generation, i16::MAX, parts))
            }
            Some(Kind::Streams(s)) if transactional => {
                in_transaction(s.check_commit(member, generation, i16::MAX, places))
            }
            Some(Kind::Classic(c)) => c.check_commit(member, instance, generation, now),
            Some(Kind::Consumer(c)) => c
                .check_commit(member, generation, version, parts)
                .map(|()| None),
            Some(Kind::Streams(s)) => s
                .check_commit(member, generation, version, places)
                .map(|()| None),
            None if generation < 0 => Ok(None),
            None if version >= unknown_since => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            None => Err(ErrorCode::ILLEGAL_GENERATION),
        };
        match allowed {
            Err(error) => {
                let answer = GroupAnswer::Partitions(error, vec![error; offsets.len()]);
                out.answer(token, self.read_at(group), answer);
            }
            Ok(until) => {
                let (records, errors) =
                    offsets::commit(group, offsets, topics, &self.settings, now);
                for record in &records {
                    out.record(record);
                }
                renew(group, member, until, false, out);
                let answer = GroupAnswer::Partitions(ErrorCode::NONE, errors);
                out.answer(token, Offset::ZERO, answer);
            }
        }
    }

    pub(super) fn classic(&self, group: &str) -> Option<(&Classic, Offset)> {
        let group = self.groups.get(group)?;
        match &group.kind {
            Kind::Classic(classic) => Some((classic, group.changed_at)),
            Kind::Consumer(_) | Kind::Share(_) | Kind::Streams(_) => None,
        }
    }

    /// Log position of what can be said of a group, be it that there is none.
    pub(super) fn read_at(&self, group: &str) -> Offset {
        let group = self.groups.get(group);
        group.map_or(self.removed_at, |g| g.changed_at)
    }

    /// Changes a copy of a classic group, which becomes the group.
    pub(super) fn change(
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

    fn asks<'a>(
        &'a self,
        group: &str,
        consumer: &'a Consumer,
        topics: &'a dyn Topics,
        now: Now,
    ) -> Asks<'a> {
        Asks {
            group: consumer,
            changed_at: self.read_at(group),
            topics,
            settings: &self.settings,
            now,
        }
    }

    fn join(&self, join: Join, token: Token, topics: &dyn Topics, now: Now, out: &mut Out) {
        let found = self.groups.get(join.group.as_str());
        let allowed = Classic::check_join(&join, &self.settings).and_then(|()| {
            match found.map(|g| &g.kind) {
                Some(Kind::Consumer(consumer)) if !consumer.is_empty() => Ok(()),
                Some(Kind::Streams(streams)) if !streams.is_empty() => {
                    Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
                }
                Some(Kind::Share(_)) => Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
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
        let mut before = 0;
        match found.map(|g| &g.kind) {
            Some(Kind::Consumer(consumer)) if consumer.is_empty() => {
                before = consumer.epoch();
                Consumer::delete(&join.group, out);
            }
            Some(Kind::Consumer(consumer)) => {
                let group = join.group.clone();
                return self
                    .asks(&group, consumer, topics, now)
                    .join(join, token, out);
            }
            Some(Kind::Streams(_)) => Streams::delete(&join.group, out),
            _ => {}
        }
        let group = join.group.clone();
        self.change(&group, now, out, |classic, cx| {
            classic.follows(before);
            classic.join(join, token, cx);
        });
    }

    fn sync(&self, sync: Sync, token: Token, topics: &dyn Topics, now: Now, out: &mut Out) {
        let after = self.read_at(&sync.group);
        let kind = self.groups.get(sync.group.as_str()).map(|g| &g.kind);
        if let Some(Kind::Consumer(consumer)) = kind {
            let asks = self.asks(&sync.group, consumer, topics, now);
            return asks.sync(&sync, token, out);
        }
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
                renew(
                    &sync.group,
                    &sync.member,
                    Some(now.mono.saturating_add(until)),
                    true,
                    out,
                );
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
            let error = ErrorCode::INVALID_GROUP_ID;
            let answer = GroupAnswer::Leave(error, vec![error; members.len()]);
            return out.answer(token, after, answer);
        }
        let mut errors = vec![ErrorCode::UNKNOWN_MEMBER_ID; members.len()];
        match self.groups.get(group).map(|g| &g.kind) {
            None | Some(Kind::Share(_) | Kind::Streams(_)) => {}
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
            Kind::Streams(streams) => Some(streams.read_topics()),
            Kind::Share(_) => {
                let error = ErrorCode::GROUP_ID_NOT_FOUND;
                return out.answer(token, group.changed_at, whole(error));
            }
        };
        let mut gone = BTreeSet::new();
        let errors = partitions
            .iter()
            .map(|p| {
                // Members whose metadata can't be read may read anything.
                if read.as_ref().is_none_or(|read| read.contains(&p.topic)) {
                    return ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC;
                }
                let stored = group.offsets.get(&p.topic, p.partition).is_some()
                    || group.offsets.is_pending(&p.topic, p.partition);
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

/// Likewise, by name.
fn place(partition: &TopicPartition, topics: &dyn Topics) -> Option<(String, i32)> {
    let name = offsets::find(partition, topics).ok()?.0;
    Some((name, partition.partition))
}

/// TxnOffsetCommit knows no STALE_MEMBER_EPOCH.
fn in_transaction(checked: Result<(), ErrorCode>) -> Result<Option<Duration>, ErrorCode> {
    match checked {
        Ok(()) => Ok(None),
        Err(ErrorCode::STALE_MEMBER_EPOCH) => Err(ErrorCode::ILLEGAL_GENERATION),
        Err(other) => Err(other),
    }
}

fn answer_alone(token: Token, after: Offset, body: GroupAnswer) -> Decision {
    Decision {
        answers: vec![Answer { token, body, after }],
        ..Decision::default()
    }
}

/// Who commits.
#[derive(Clone, Copy)]
struct Committer<'a> {
    member: &'a str,
    instance: Option<&'a str>,
    generation: i32,
    version: i16,
    transactional: bool,
}

/// Why a heartbeat of one kind is refused by a group of another.
const OTHER_KIND: &str =
    "a group of that name and of another kind is there; choose another name, or delete it first";

fn refused_heartbeat(error: ErrorCode, member: String) -> ConsumerHeartbeatAnswer {
    ConsumerHeartbeatAnswer {
        error,
        message: Some(error.message().to_owned()),
        member,
        member_epoch: 0,
        heartbeat_interval: Duration::ZERO,
        assignment: None,
    }
}

impl GroupCommand {
    /// The group it is for.
    pub fn group(&self) -> &str {
        match self {
            GroupCommand::Join(join) => &join.group,
            GroupCommand::Sync(sync) => &sync.group,
            GroupCommand::ConsumerHeartbeat(heartbeat) => &heartbeat.group,
            GroupCommand::ShareHeartbeat(heartbeat) => &heartbeat.group,
            GroupCommand::StreamsHeartbeat(heartbeat) => &heartbeat.group,
            GroupCommand::Heartbeat { group, .. }
            | GroupCommand::Leave { group, .. }
            | GroupCommand::Commit { group, .. }
            | GroupCommand::TxnCommit { group, .. }
            | GroupCommand::DeleteOffsets { group, .. }
            | GroupCommand::DescribeTopology { group, .. }
            | GroupCommand::ShareTopics { group, .. }
            | GroupCommand::DeleteGroup { group } => group,
        }
    }
}
