//! ShareGroupHeartbeat: who comes, stays and leaves.

use std::sync::Arc;

use riverlog_wire::{ErrorCode, Offset};

use super::{Draft, Member, Share};
use crate::Now;
use crate::groups::consumer::by_topic;
use crate::groups::effects::{Out, SoftChange};
use crate::groups::members::{check_names, invalid};
use crate::groups::records::{ShareCurrentValue, ShareMemberValue, ShareRecord};
use crate::groups::{
    ConsumerHeartbeatAnswer, GroupAnswer, GroupConfigs, GroupSettings, ShareHeartbeat, Token,
    Topics,
};

const JOIN: i32 = 0;
const LEAVE: i32 = -1;

type Refusal = (ErrorCode, &'static str);

/// A heartbeat, and what it is decided by.
pub(in crate::groups) struct Heartbeat<'a> {
    pub(in crate::groups) group: &'a Share,
    /// It isn't just about to be made.
    pub(in crate::groups) exists: bool,
    /// Log position of what can be said of the group.
    pub(in crate::groups) changed_at: Offset,
    pub(in crate::groups) topics: &'a dyn Topics,
    pub(in crate::groups) configs: GroupConfigs<'a>,
    pub(in crate::groups) settings: &'a GroupSettings,
    pub(in crate::groups) now: Now,
}

impl Heartbeat<'_> {
    pub(in crate::groups) fn decide(&self, request: ShareHeartbeat, token: Token, out: &mut Out) {
        let outcome = check(&request).and_then(|()| match request.member_epoch {
            LEAVE => self.leave(&request, out),
            _ => self.stay(&request, out),
        });
        let (after, answer) = outcome.unwrap_or_else(|(error, message)| {
            let answer = ConsumerHeartbeatAnswer {
                error,
                message: Some(message.to_owned()),
                member: request.member.clone(),
                member_epoch: 0,
                heartbeat_interval: std::time::Duration::ZERO,
                assignment: None,
            };
            (self.changed_at, answer)
        });
        out.answer(token, after, GroupAnswer::ConsumerHeartbeat(answer));
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

    fn leave(
        &self,
        request: &ShareHeartbeat,
        out: &mut Out,
    ) -> Result<(Offset, ConsumerHeartbeatAnswer), Refusal> {
        let (id, _) = self.member(&request.member)?;
        let mut draft = Draft::new(&request.group, self.group, self.now, self.settings, out);
        draft.remove(id);
        draft.bump(self.topics);
        let answer = ConsumerHeartbeatAnswer {
            error: ErrorCode::NONE,
            message: None,
            member: request.member.clone(),
            member_epoch: LEAVE,
            heartbeat_interval: std::time::Duration::ZERO,
            assignment: None,
        };
        Ok((self.changed_at, answer))
    }

    /// A join, or a heartbeat of a member.
    fn stay(
        &self,
        request: &ShareHeartbeat,
        out: &mut Out,
    ) -> Result<(Offset, ConsumerHeartbeatAnswer), Refusal> {
        let found = match request.member_epoch {
            JOIN => {
                let members = &self.group.members;
                let found = members.get_key_value(request.member.as_str());
                if found.is_none() && members.len() >= self.settings.share_max_size {
                    return Err((
                        ErrorCode::GROUP_MAX_SIZE_REACHED,
                        "the group has group.share.max.size members",
                    ));
                }
                found.map(|(id, m)| (id, m.as_ref()))
            }
            epoch => {
                let (id, member) = self.member(&request.member)?;
                let current = &member.current;
                let lost_answer = epoch == current.previous_epoch && epoch < current.epoch;
                if epoch != current.epoch && !lost_answer {
                    return Err((
                        ErrorCode::FENCED_MEMBER_EPOCH,
                        "the member epoch is not the member's; join with epoch 0",
                    ));
                }
                Some((id, member))
            }
        };
        let before = found.map(|(_, m)| m);
        let stored = before.and_then(|m| m.value.as_ref());
        let value = updated(stored, request);
        let id: Arc<str> =
            found.map_or_else(|| request.member.as_str().into(), |(id, _)| id.clone());
        let session = self.configs.millis("share.session.timeout.ms");
        let session = session.unwrap_or(self.settings.share_session_timeout);
        out.soft(SoftChange::Session {
            group: request.group.as_str().into(),
            member: id.clone(),
            until: self.now.mono.saturating_add(session),
            synced: false,
        });
        // The most frequent heartbeat changes nothing, and must not cost a copy of the group.
        if let Some(member) = before
            && stored == Some(&value)
            && member.current.epoch == self.group.target_epoch
        {
            let answer = self.answer(request, before, &member.current);
            return Ok((member.changed_at, answer));
        }
        let after = before.map_or(Offset::ZERO, |m| m.changed_at);
        let subscribes_anew = stored.is_none_or(|stored| stored.topics != value.topics);
        let mut draft = Draft::new(&request.group, self.group, self.now, self.settings, out);
        if stored != Some(&value) {
            draft.record(ShareRecord::Member(id.to_string(), Some(value)));
        }
        if subscribes_anew {
            draft.bump(self.topics);
        }
        let current = match draft.state.members.get(&id) {
            Some(member) => member.current.clone(),
            None => ShareCurrentValue::default(),
        };
        let target = draft.state.targets.get(&id);
        let next = ShareCurrentValue {
            epoch: draft.state.target_epoch,
            previous_epoch: current.epoch,
            assigned: by_topic(target.into_iter().flat_map(|t| t.iter())),
        };
        if next.epoch != current.epoch {
            let record = ShareRecord::CurrentMember(id.to_string(), Some(next.clone()));
            draft.record(record);
        }
        Ok((after, self.answer(request, before, &next)))
    }

    fn answer(
        &self,
        request: &ShareHeartbeat,
        before: Option<&Member>,
        current: &ShareCurrentValue,
    ) -> ConsumerHeartbeatAnswer {
        let tell = request.subscribed_topics.is_some()
            || request.member_epoch == JOIN
            || before.is_none_or(|b| {
                b.current.epoch != request.member_epoch || b.current.assigned != current.assigned
            });
        let interval = self.configs.millis("share.heartbeat.interval.ms");
        ConsumerHeartbeatAnswer {
            error: ErrorCode::NONE,
            message: None,
            member: request.member.clone(),
            member_epoch: current.epoch,
            heartbeat_interval: interval.unwrap_or(self.settings.share_heartbeat_interval),
            assignment: tell.then(|| current.assigned.clone()),
        }
    }
}

/// What can be said of a request without looking at the group.
fn check(request: &ShareHeartbeat) -> Result<(), Refusal> {
    let rack = request.rack.as_deref();
    check_names(&request.group, &request.member, None, rack)?;
    invalid(
        request.member_epoch == JOIN
            && request.subscribed_topics.as_ref().is_none_or(Vec::is_empty),
        "a member that joins must give topics",
    )?;
    invalid(
        request.member_epoch < LEAVE,
        "the member epoch must be -1 or more",
    )
}

/// What is known of the member once it has said this.
fn updated(stored: Option<&ShareMemberValue>, request: &ShareHeartbeat) -> ShareMemberValue {
    let mut value = stored.cloned().unwrap_or_default();
    value.client_id.clone_from(&request.client_id);
    value.client_host.clone_from(&request.client_host);
    if request.rack.is_some() {
        value.rack.clone_from(&request.rack);
    }
    if let Some(topics) = &request.subscribed_topics {
        let sorted: std::collections::BTreeSet<&String> = topics.iter().collect();
        value.topics = sorted.into_iter().cloned().collect();
    }
    value
}
