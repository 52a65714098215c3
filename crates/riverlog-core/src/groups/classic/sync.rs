//! SyncGroup: the leader's assignment reaches everybody; and LeaveGroup.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::ErrorCode;

use super::refused::{fence, refused_sync};
use super::{Classic, Context, State};
use crate::groups::{GroupAnswer, Sync, Token};

/// What a sync leads to.
pub(in crate::groups) enum Synced {
    /// At once, and nothing changes but the member's session, which lasts so long from now on.
    Now(GroupAnswer, Duration),
    /// [`Classic::sync`] has to be called.
    Changes,
}

impl Classic {
    /// Looks at a sync without changing anything: most come when the assignment is there.
    pub(in crate::groups) fn check_sync(&self, sync: &Sync) -> Result<Synced, ErrorCode> {
        let member = self.check_member(&sync.member, sync.instance.as_deref())?;
        if sync.generation.0 != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let other_type = sync
            .protocol_type
            .as_ref()
            .is_some_and(|t| *t != self.protocol_type);
        let other_name = sync.protocol_name.is_some() && sync.protocol_name != self.protocol;
        if other_type || other_name {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        match self.state {
            State::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            State::Preparing { .. } => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            State::Completing { .. } => Ok(Synced::Changes),
            State::Stable { .. } => Ok(Synced::Now(
                self.assigned(member.assignment.clone()),
                member.session_timeout,
            )),
        }
    }

    /// A sync of the generation that waits for its assignment.
    pub(in crate::groups) fn sync(&mut self, sync: Sync, token: Token, cx: &mut Context<'_>) {
        let State::Completing { sync_by } = self.state else {
            return;
        };
        if let Some((_, member)) = self.members.get_key_value(sync.member.as_str())
            && let Some(before) = member.sync
        {
            cx.answer(before, refused_sync(ErrorCode::REBALANCE_IN_PROGRESS));
        }
        if let Some(member) = self.members.get_mut(sync.member.as_str()) {
            let member = Arc::make_mut(member);
            member.sync = Some(token);
            member.synced = true;
        }
        if self.leader.as_deref() != Some(sync.member.as_str()) {
            return;
        }
        let mut assignments: BTreeMap<String, Bytes> = sync.assignments.into_iter().collect();
        self.state = State::Stable { sync_by };
        self.since_ms = cx.now.wall_ms;
        let protocol_type = self.protocol_type.clone();
        let protocol = self.protocol.clone();
        let leaders = active(Mutant::LeadersAssignment)
            .then(|| assignments.get(&sync.member).cloned())
            .flatten();
        for (id, member) in &mut self.members {
            let member = Arc::make_mut(member);
            member.assignment = assignments.remove(&**id).unwrap_or_default();
            if let Some(leaders) = &leaders {
                member.assignment = leaders.clone();
            }
            if let Some(token) = member.sync.take() {
                member.session_until = cx.now.mono.saturating_add(member.session_timeout);
                let answer = GroupAnswer::Sync {
                    error: ErrorCode::NONE,
                    protocol_type: Some(protocol_type.clone()),
                    protocol_name: protocol.clone(),
                    assignment: member.assignment.clone(),
                };
                cx.answer(token, answer);
            }
        }
        cx.out.record(&self.record(cx.group));
    }

    fn assigned(&self, assignment: Bytes) -> GroupAnswer {
        GroupAnswer::Sync {
            error: ErrorCode::NONE,
            protocol_type: Some(self.protocol_type.clone()),
            protocol_name: self.protocol.clone(),
            assignment,
        }
    }

    /// The generation is not finished: its syncs are told to join again.
    pub(super) fn cancel_syncs(&mut self, cx: &mut Context<'_>) {
        for member in self.members.values_mut() {
            if member.sync.is_none() {
                continue;
            }
            let member = Arc::make_mut(member);
            member.session_until = cx.now.mono.saturating_add(member.session_timeout);
            if let Some(token) = member.sync.take() {
                cx.answer(token, refused_sync(ErrorCode::REBALANCE_IN_PROGRESS));
            }
        }
    }

    /// LeaveGroup: an error for each, in order.
    pub(in crate::groups) fn leave(
        &mut self,
        members: &[(String, Option<String>, Option<String>)],
        cx: &mut Context<'_>,
    ) -> Vec<ErrorCode> {
        let (mut members_left, mut ids_given_back) = (false, false);
        let mut errors = Vec::with_capacity(members.len());
        for (member, instance, _) in members {
            let holder = instance.as_deref().map(|i| self.instances.get(i).cloned());
            let id = match holder {
                // An operator names the instance alone.
                Some(Some(holder)) if member.is_empty() => holder,
                _ => member.as_str().into(),
            };
            if instance.is_none() && self.pending.remove(&id).is_some() {
                ids_given_back = true;
                errors.push(ErrorCode::NONE);
                continue;
            }
            match self.check_member(&id, instance.as_deref()) {
                Err(error) => errors.push(error),
                Ok(_) => {
                    members_left = true;
                    self.remove(&id, cx);
                    errors.push(ErrorCode::NONE);
                }
            }
        }
        if members_left {
            self.go_on(cx);
        } else if ids_given_back {
            // It was no member: nothing changes but that nobody waits for it.
            self.complete_if_all_joined(cx);
        }
        errors
    }

    /// After members were removed: the others need a new generation.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_>) {
        if !self.is_empty() {
            self.rebalance(cx);
        }
    }

    /// Removes a member; what is parked for it is answered.
    pub(super) fn remove(&mut self, id: &str, cx: &mut Context<'_>) {
        let Some(mut member) = self.members.remove(id) else {
            return;
        };
        fence(
            id,
            Arc::make_mut(&mut member),
            ErrorCode::UNKNOWN_MEMBER_ID,
            cx,
        );
        if let Some(instance) = &member.instance
            && self.instances.get(instance).is_some_and(|m| **m == *id)
        {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }
}
