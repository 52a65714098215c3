//! ConsumerGroupHeartbeat: join, stay, leave.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, Offset, TopicId};

use super::{AWAY, Consumer, Current, Draft, Member, Part, State, by_topic};
use crate::Now;
use crate::groups::assign::Assignor;
use crate::groups::effects::{Out, SoftChange};
use crate::groups::members::{check_names, invalid};
use crate::groups::pattern::Pattern;
use crate::groups::records::{ConsumerMemberValue, Record};
use crate::groups::{
    ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, GroupConfigs, GroupSettings, Token,
    Topics,
};

const JOIN: i32 = 0;
const LEAVE: i32 = -1;

/// An error and its words.
type Refusal = (ErrorCode, &'static str);

/// A heartbeat and what it is judged by.
pub(in crate::groups) struct Heartbeat<'a> {
    /// The group as it is; an empty one where there is none.
    pub(in crate::groups) group: &'a Consumer,
    /// There is a group of the consumer protocol.
    pub(in crate::groups) exists: bool,
    /// There is an empty classic group whose record must go first.
    pub(in crate::groups) replaces_classic: bool,
    /// It is a classic group until this heartbeat: whatever it says, everybody gets a new target.
    pub(in crate::groups) upgraded: bool,
    /// Log position of the group's last record.
    pub(in crate::groups) changed_at: Offset,
    pub(in crate::groups) topics: &'a dyn Topics,
    pub(in crate::groups) configs: GroupConfigs<'a>,
    pub(in crate::groups) settings: &'a GroupSettings,
    pub(in crate::groups) now: Now,
}

/// What a heartbeat leads to.
struct Outcome {
    member: Arc<str>,
    epoch: i32,
    assignment: Option<Vec<(TopicId, Vec<i32>)>>,
    interval: Duration,
    after: Offset,
}

impl Heartbeat<'_> {
    /// Returns whether it is accepted.
    pub(in crate::groups) fn decide(
        self,
        mut request: ConsumerHeartbeat,
        token: Token,
        out: &mut Out,
    ) -> bool {
        if request.member.is_empty() && request.member_epoch == JOIN && request.version < 1 {
            request.member = TopicId(request.random.to_be_bytes()).to_string();
        }
        let outcome = check(&request).and_then(|()| match request.member_epoch {
            LEAVE | AWAY => self.leave(&request, out),
            _ => self.stay(&request, out),
        });
        let accepted = outcome.is_ok();
        let (after, answer) = match outcome {
            Ok(outcome) => (
                outcome.after,
                ConsumerHeartbeatAnswer {
                    error: ErrorCode::NONE,
                    message: None,
                    member: outcome.member.to_string(),
                    member_epoch: outcome.epoch,
                    heartbeat_interval: outcome.interval,
                    assignment: outcome.assignment,
                },
            ),
            Err((error, message)) => (
                self.changed_at,
                ConsumerHeartbeatAnswer {
                    error,
                    message: Some(message.to_owned()),
                    member: request.member,
                    member_epoch: 0,
                    heartbeat_interval: Duration::ZERO,
                    assignment: None,
                },
            ),
        };
        out.answer(token, after, GroupAnswer::ConsumerHeartbeat(answer));
        accepted
    }

    fn member(&self, id: &str) -> Result<(&Arc<str>, &Member), Refusal> {
        if !self.exists {
            return Err((
                ErrorCode::GROUP_ID_NOT_FOUND,
                "there is no such group; join with epoch 0",
            ));
        }
        let known = self.group.members.get_key_value(id);
        known.map(|(id, m)| (id, m.as_ref())).ok_or((
            ErrorCode::UNKNOWN_MEMBER_ID,
            "the group has no such member; join with epoch 0",
        ))
    }

    /// The holder of a static name, which must be the one that asks.
    fn instance(&self, instance: &str, member: &str) -> Result<(&Arc<str>, &Member), Refusal> {
        let holder = self.group.instances.get(instance).map_or("", |m| m);
        let found = self.member(holder)?;
        if holder != member {
            return Err((
                ErrorCode::FENCED_INSTANCE_ID,
                "another member has taken over this group.instance.id; stop this one",
            ));
        }
        Ok(found)
    }

    fn leave(&self, request: &ConsumerHeartbeat, out: &mut Out) -> Result<Outcome, Refusal> {
        let (id, member) = match &request.instance {
            Some(instance) => self.instance(instance, &request.member)?,
            None => self.member(&request.member)?,
        };
        let group = &request.group;
        let mut draft = Draft::new(group, self.group, self.now, self.settings, out);
        if request.member_epoch == AWAY {
            // Its partitions wait for it until its session ends; what it had to give back is given back.
            let zero = |part: &Part| (*part, 0);
            let away = Current {
                epoch: AWAY,
                previous_epoch: member.current.epoch,
                state: State::Stable,
                assigned: member.current.assigned.keys().map(zero).collect(),
                revoking: Default::default(),
            };
            draft.set_current(id, Some(&away));
        } else {
            draft.remove(id);
            draft.go_on(self.topics);
        }
        Ok(Outcome {
            member: id.clone(),
            epoch: request.member_epoch,
            assignment: None,
            interval: Duration::ZERO,
            after: self.changed_at,
        })
    }

    /// Whose heartbeat it is: the member of that id, or the one that holds the static name. `None`: a newcomer.
    fn find(
        &self,
        request: &ConsumerHeartbeat,
        owned: Option<&BTreeSet<Part>>,
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
        let found = members.get_key_value(holder);
        match found {
            // One that speaks the classic protocol can't say that it goes away for a while.
            Some((_, member))
                if holder != request.member
                    && member.current.epoch != AWAY
                    && !member.is_classic() =>
            {
                Err((
                    ErrorCode::UNRELEASED_INSTANCE_ID,
                    "another member still holds this group.instance.id; wait until it has left",
                ))
            }
            Some((id, member)) => Ok(Some((id, member.as_ref()))),
            None if members.len() >= self.settings.max_size => Err((
                ErrorCode::GROUP_MAX_SIZE_REACHED,
                "the group has group.max.size members",
            )),
            None => Ok(None),
        }
    }

    /// A join, or a heartbeat of a member.
    fn stay(&self, request: &ConsumerHeartbeat, out: &mut Out) -> Result<Outcome, Refusal> {
        let owned = request.owned.as_deref().map(flat);
        let found = self.find(request, owned.as_ref())?;
        let before = found.map(|(_, m)| m);
        let stored = before.and_then(|m| m.value.as_ref());
        let value = updated(stored, request);
        let id: Arc<str> = match found {
            Some((id, _)) if **id == *request.member => id.clone(),
            _ => request.member.as_str().into(),
        };
        let session = self.configs.millis("consumer.session.timeout.ms");
        let session = session.unwrap_or(self.settings.consumer_session_timeout);
        out.soft(SoftChange::Session {
            group: request.group.as_str().into(),
            member: id.clone(),
            until: self.now.mono.saturating_add(session),
            synced: false,
        });

        // The most frequent heartbeat changes nothing, and must not cost a copy of the group.
        if let Some((known, member)) = found
            && *known == id
            && stored == Some(&value)
        {
            let next = self.group.reconcile(&id, member, owned.as_ref());
            if let Some(next) = &next {
                out.record(&Record::CurrentMember {
                    group: request.group.clone(),
                    member: id.to_string(),
                    value: Some(next.to_value()),
                });
            }
            let current = next.as_ref().unwrap_or(&member.current);
            return Ok(self.outcome(request, id, before, current, self.group));
        }

        let subscribes_anew = self.upgraded || subscribes_anew(stored, &value);
        let mut draft = Draft::new(&request.group, self.group, self.now, self.settings, out);
        if self.replaces_classic {
            draft.record(Record::Group {
                group: request.group.clone(),
                value: None,
            });
        }
        match found {
            Some((old, _)) if *old != id => draft.replace(old, &id, value),
            _ => draft.set_member(&id, Some(value)),
        }
        if subscribes_anew {
            draft.bump(self.topics);
        }
        let current = draft.reconcile(&id, owned.as_ref());
        let state = draft.state;
        Ok(self.outcome(request, id, before, &current, &state))
    }

    fn outcome(
        &self,
        request: &ConsumerHeartbeat,
        member: Arc<str>,
        before: Option<&Member>,
        current: &Current,
        group: &Consumer,
    ) -> Outcome {
        let usually = self.configs.millis("consumer.heartbeat.interval.ms");
        let usually = usually.unwrap_or(self.settings.consumer_heartbeat_interval);
        let whole = request.rebalance_timeout.is_some()
            && (request.subscribed_topics.is_some() || request.subscribed_pattern.is_some())
            && request.owned.is_some();
        // A member that comes with the epoch before has not seen the last answer; and what it was given just before the
        // coordinator moved here it may never have been told, at the epoch that it has.
        let tell = whole
            || request.member_epoch == JOIN
            || self.group.untold.contains(&member)
            || before.is_none_or(|b| {
                b.current.epoch != request.member_epoch
                    || !b.current.assigned.keys().eq(current.assigned.keys())
            });
        Outcome {
            member,
            epoch: current.epoch,
            assignment: tell.then(|| by_topic(current.assigned.keys())),
            interval: group.interval(current, usually, self.now),
            after: before.map_or(Offset::ZERO, |b| b.changed_at),
        }
    }
}

/// Whether the assignor has something else to look at.
pub(super) fn subscribes_anew(
    stored: Option<&ConsumerMemberValue>,
    value: &ConsumerMemberValue,
) -> bool {
    stored.is_none_or(|stored| {
        (&stored.topics, &stored.pattern, &stored.assignor)
            != (&value.topics, &value.pattern, &value.assignor)
    })
}

fn flat(owned: &[(TopicId, Vec<i32>)]) -> BTreeSet<Part> {
    let parts = owned.iter();
    parts
        .flat_map(|(topic, partitions)| partitions.iter().map(|p| (*topic, *p)))
        .collect()
}

/// The last epoch, or the one before when its answer was lost: then the member can't hold more than it was given.
fn check_epoch(member: &Member, epoch: i32, owned: Option<&BTreeSet<Part>>) -> Result<(), Refusal> {
    let current = &member.current;
    let lost_answer = epoch == current.previous_epoch
        && epoch < current.epoch
        && owned.is_some_and(|o| o.iter().all(|p| current.assigned.contains_key(p)));
    if epoch == current.epoch || lost_answer || active(Mutant::StaleHeartbeatAccepted) {
        return Ok(());
    }
    Err((
        ErrorCode::FENCED_MEMBER_EPOCH,
        "the member epoch is not the member's; give up all partitions and join with epoch 0",
    ))
}

/// What can be said of a request without looking at the group.
fn check(request: &ConsumerHeartbeat) -> Result<(), Refusal> {
    let epoch = request.member_epoch;
    let (instance, rack) = (request.instance.as_deref(), request.rack.as_deref());
    check_names(&request.group, &request.member, instance, rack)?;
    if epoch == JOIN {
        invalid(
            request.rebalance_timeout.is_none(),
            "a member that joins must give its rebalance time-out",
        )?;
        invalid(
            request.owned.as_ref().is_none_or(|o| !o.is_empty()),
            "a member that joins must give an empty list of partitions",
        )?;
        invalid(
            request.subscribed_topics.is_none() && request.subscribed_pattern.is_none(),
            "a member that joins must give topics or a pattern",
        )?;
    }
    invalid(
        epoch == AWAY && request.instance.is_none(),
        "only a member with an instance id can leave for a while",
    )?;
    invalid(epoch < AWAY, "the member epoch must be -2 or more")?;
    let assignor = request.assignor.as_deref();
    if assignor.is_some_and(|name| Assignor::by_name(name).is_none()) {
        return Err((
            ErrorCode::UNSUPPORTED_ASSIGNOR,
            "the broker has the assignors uniform and range",
        ));
    }
    let pattern = request.subscribed_pattern.as_deref();
    if pattern.is_some_and(|p| !p.is_empty() && Pattern::new(p).is_none()) {
        return Err((
            ErrorCode::INVALID_REGULAR_EXPRESSION,
            "the pattern can't be read or is too large; RE2 syntax without Unicode classes is expected",
        ));
    }
    Ok(())
}

/// What is known of the member once it has said this.
fn updated(
    stored: Option<&ConsumerMemberValue>,
    request: &ConsumerHeartbeat,
) -> ConsumerMemberValue {
    let mut value = stored.cloned().unwrap_or(ConsumerMemberValue {
        rebalance_timeout_ms: -1,
        ..ConsumerMemberValue::default()
    });
    value.classic = None;
    value.client_id.clone_from(&request.client_id);
    value.client_host.clone_from(&request.client_host);
    if request.instance.is_some() {
        value.instance.clone_from(&request.instance);
    }
    if request.rack.is_some() {
        value.rack.clone_from(&request.rack);
    }
    if let Some(topics) = &request.subscribed_topics {
        let sorted: BTreeSet<&String> = topics.iter().collect();
        value.topics = sorted.into_iter().cloned().collect();
    }
    if let Some(pattern) = &request.subscribed_pattern {
        value.pattern = Some(pattern.clone()).filter(|p| !p.is_empty());
    }
    if let Some(timeout) = request.rebalance_timeout {
        value.rebalance_timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    }
    if request.assignor.is_some() {
        value.assignor.clone_from(&request.assignor);
    }
    value
}

/// LeaveGroup on a group of the consumer protocol, which operators use: by member id, or by instance with an empty member
/// id. An error for each, in order.
pub(in crate::groups) fn leave_by_name(
    group: &str,
    state: &Consumer,
    members: &[(String, Option<String>, Option<String>)],
    topics: &dyn Topics,
    now: Now,
    settings: &GroupSettings,
    out: &mut Out,
) -> Vec<ErrorCode> {
    let mut draft = Draft::new(group, state, now, settings, out);
    let mut any = false;
    let mut errors = Vec::with_capacity(members.len());
    for (member, instance, _) in members {
        let holder = instance
            .as_deref()
            .map(|i| draft.state.instances.get(i).cloned());
        let id = match holder {
            Some(None) => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Some(Some(holder)) if member.is_empty() || **member == *holder => Ok(holder),
            Some(Some(_)) => Err(ErrorCode::FENCED_INSTANCE_ID),
            None => match draft.state.members.get_key_value(member.as_str()) {
                Some((id, _)) => Ok(id.clone()),
                None => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            },
        };
        errors.push(match id {
            Ok(id) => {
                any = true;
                draft.remove(&id);
                ErrorCode::NONE
            }
            Err(error) => error,
        });
    }
    if any {
        draft.go_on(topics);
    }
    errors
}
