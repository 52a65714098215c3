//! JoinGroup, and the rebalance that it begins or ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::ErrorCode;
use riverlog_wire::primitives::MAX_STRING_LEN;

use super::refused::{fence, refused_join};
use super::{Classic, Context, Gathering, MAX_PENDING, Member, NEW_MEMBER_TIMEOUT, State};
use crate::groups::{GroupAnswer, GroupSettings, Join, JoinAnswer, Token};

impl Classic {
    /// What a join is refused for, whatever the group.
    pub(in crate::groups) fn check_join(
        join: &Join,
        settings: &GroupSettings,
    ) -> Result<(), ErrorCode> {
        if join.group.is_empty() {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let allowed = settings.min_session_timeout..=settings.max_session_timeout;
        if !allowed.contains(&join.session_timeout) {
            return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
        }
        // What can't be stored must not come in: it would fail when the generation is written. An id is longer by a UUID.
        let mut stored = vec![&join.member, &join.client_id, &join.client_host];
        stored.push(&join.protocol_type);
        stored.extend(&join.instance);
        stored.extend(join.protocols.iter().map(|(name, _)| name));
        if stored.iter().any(|text| text.len() > MAX_STRING_LEN - 40) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        Ok(())
    }

    pub(in crate::groups) fn join(&mut self, join: Join, token: Token, cx: &mut Context<'_>) {
        let id: Arc<str> = join.member.as_str().into();
        if !self.has_room(&id, cx.settings.max_size) {
            refuse(token, &join, ErrorCode::GROUP_MAX_SIZE_REACHED, cx);
            // An id that was handed out would hold up the others.
            if self.pending.remove(&id).is_some() {
                self.complete_if_all_joined(cx);
            }
            return;
        }
        if !self.speaks(&join.protocol_type, &join.protocols) {
            return refuse(token, &join, ErrorCode::INCONSISTENT_GROUP_PROTOCOL, cx);
        }
        if id.is_empty() {
            return self.join_new(join, token, cx);
        }
        if join.instance.is_none() && self.pending.remove(&id).is_some() {
            return self.add(id, join, token, cx);
        }
        if let Err(error) = self.check_member(&id, join.instance.as_deref()) {
            return refuse(token, &join, error, cx);
        }
        let same = self
            .members
            .get(&id)
            .is_some_and(|m| m.protocols == join.protocols);
        let leads = self.leader.as_ref() == Some(&id);
        match self.state {
            State::Empty => refuse(token, &join, ErrorCode::UNKNOWN_MEMBER_ID, cx),
            // It did not get its answer: here it is again.
            State::Completing { .. } if same => self.answer_join(&id, token, leads, false, cx),
            // A leader that joins again wants a new assignment.
            State::Stable { .. } if same && !leads => {
                self.answer_join(&id, token, false, false, cx);
            }
            _ => {
                self.update(&id, join, Some(token), cx);
                self.rebalance(cx);
            }
        }
    }

    fn join_new(&mut self, join: Join, token: Token, cx: &mut Context<'_>) {
        let id: Arc<str> = new_member_id(&join).into();
        let holder = join
            .instance
            .as_deref()
            .and_then(|instance| self.instances.get(instance).cloned());
        match holder {
            Some(old) => self.replace(&old, id, join, token, cx),
            None if join.instance.is_none() && join.require_known_member => {
                if self.pending.len() >= MAX_PENDING {
                    return refuse(token, &join, ErrorCode::COORDINATOR_NOT_AVAILABLE, cx);
                }
                self.pending
                    .insert(id.clone(), cx.now.mono.saturating_add(join.session_timeout));
                let again = JoinAnswer {
                    member: id.to_string(),
                    ..refused_join(&join, ErrorCode::MEMBER_ID_REQUIRED)
                };
                cx.answer(token, GroupAnswer::Join(again));
            }
            None => self.add(id, join, token, cx),
        }
    }

    /// While a rebalance is being prepared only those that are there already count.
    fn has_room(&self, id: &str, max: usize) -> bool {
        match self.state {
            State::Empty => true,
            State::Preparing { .. } => {
                let joined = self.members.values().filter(|m| m.join.is_some()).count();
                joined < max || self.members.get(id).is_some_and(|m| m.join.is_some())
            }
            _ => self.members.len() < max || self.members.contains_key(id),
        }
    }

    /// Whether everybody could go on with one of these protocols.
    fn speaks(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let common = |name: &str| {
            self.members
                .values()
                .all(|m| m.protocols.iter().any(|(n, _)| n == name))
        };
        self.protocol_type == protocol_type && protocols.iter().any(|(name, _)| common(name))
    }

    fn add(&mut self, id: Arc<str>, join: Join, token: Token, cx: &mut Context<'_>) {
        if self.members.is_empty() {
            self.protocol_type.clone_from(&join.protocol_type);
        }
        if let State::Preparing {
            gathering: Some(gathering),
            ..
        } = &mut self.state
            && self.generation == 0
        {
            gathering.joined = true;
        }
        let instance: Option<Arc<str>> = join.instance.as_deref().map(Arc::from);
        if let Some(instance) = &instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        let member = Member {
            instance,
            new: true,
            session_until: cx.now.mono.saturating_add(NEW_MEMBER_TIMEOUT),
            ..Member::default()
        };
        self.members.insert(id.clone(), Arc::new(member));
        self.leader.get_or_insert_with(|| id.clone());
        self.update(&id, join, Some(token), cx);
        self.rebalance(cx);
    }

    /// Takes over what a join says of its member, and parks its answer.
    fn update(&mut self, id: &str, join: Join, token: Option<Token>, cx: &mut Context<'_>) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let member = Arc::make_mut(member);
        member.client_id = join.client_id;
        member.client_host = join.client_host;
        member.session_timeout = join.session_timeout;
        member.rebalance_timeout = join.rebalance_timeout;
        member.protocols = join.protocols;
        if let Some(token) = token
            && let Some(before) = member.join.replace(token)
        {
            // The client gave up on that one; it must not stay without an answer.
            let mut answer = refused_join(&Join::default(), ErrorCode::REBALANCE_IN_PROGRESS);
            id.clone_into(&mut answer.member);
            cx.answer(before, GroupAnswer::Join(answer));
        }
    }

    /// KIP-345: a static member is back under a new id.
    fn replace(
        &mut self,
        old: &Arc<str>,
        id: Arc<str>,
        join: Join,
        token: Token,
        cx: &mut Context<'_>,
    ) {
        let leader_before = self.leader.clone();
        let Some(mut member) = self.members.remove(old) else {
            return;
        };
        {
            let member = Arc::make_mut(&mut member);
            fence(old, member, ErrorCode::FENCED_INSTANCE_ID, cx);
            member.session_until = cx.now.mono.saturating_add(join.session_timeout);
            if let Some(instance) = &member.instance {
                self.instances.insert(instance.clone(), id.clone());
            }
        }
        self.members.insert(id.clone(), member);
        if self.leader.as_ref() == Some(old) {
            self.leader = Some(id.clone());
        }
        let can_skip = join.can_skip_assignment;
        let protocols = self.protocol.clone();
        self.update(&id, join, None, cx);
        if matches!(self.state, State::Stable { .. }) && self.choose() == protocols {
            // The assignment stands, for the new id.
            cx.out.record(&self.record(cx.group));
            let leads = self.leader.as_ref() == Some(&id);
            if leads && !can_skip {
                // An old client that is told it leads would assign, and nobody would listen: let it think that its
                // former id leads.
                let mut answer = self.joined(&id, false, false);
                answer.leader = leader_before.as_deref().unwrap_or_default().to_owned();
                cx.answer(token, GroupAnswer::Join(answer));
            } else {
                self.answer_join(&id, token, leads, leads, cx);
            }
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            Arc::make_mut(member).join = Some(token);
        }
        self.rebalance(cx);
    }

    /// Begins a rebalance, or ends the one under way when everybody is there.
    pub(super) fn rebalance(&mut self, cx: &mut Context<'_>) {
        match self.state {
            State::Preparing { .. } => return self.complete_if_all_joined(cx),
            State::Completing { .. } => self.cancel_syncs(cx),
            _ => {}
        }
        let patience = self.patience();
        let delay = cx.settings.initial_rebalance_delay;
        if self.is_empty() && !delay.is_zero() {
            // Members of a group that starts come one after the other: one rebalance for all of them.
            self.state = State::Preparing {
                deadline: cx.now.mono.saturating_add(delay),
                gathering: Some(Gathering {
                    remaining: patience.saturating_sub(delay),
                    joined: false,
                }),
            };
            return;
        }
        self.state = State::Preparing {
            deadline: cx.now.mono.saturating_add(patience),
            gathering: None,
        };
        self.complete_if_all_joined(cx);
    }

    /// The longest time that a member asks for to come to a rebalance.
    pub(super) fn patience(&self) -> Duration {
        let times = self.members.values().map(|m| m.rebalance_timeout);
        times.max().unwrap_or_default()
    }

    pub(super) fn complete_if_all_joined(&mut self, cx: &mut Context<'_>) {
        let State::Preparing {
            gathering: None, ..
        } = self.state
        else {
            return;
        };
        if self.pending.is_empty() && self.members.values().all(|m| m.join.is_some()) {
            self.complete_join(cx);
        }
    }

    /// A new generation, of those who joined.
    pub(super) fn complete_join(&mut self, cx: &mut Context<'_>) {
        let absent: Vec<Arc<str>> = self
            .members
            .iter()
            .filter(|(_, m)| m.join.is_none() && m.instance.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in absent {
            self.remove(&id, cx);
        }
        if self.members.is_empty() {
            return self.become_empty(cx);
        }
        let first = self.members.iter().find(|(_, m)| m.join.is_some());
        let Some(first) = first.map(|(id, _)| id.clone()) else {
            // Only static members are left, and none of them is back: wait until one is, or their sessions end.
            self.state = State::Preparing {
                deadline: cx
                    .now
                    .mono
                    .saturating_add(self.patience().max(Duration::from_secs(1))),
                gathering: None,
            };
            return;
        };
        let leads_on = self
            .leader
            .as_ref()
            .and_then(|leader| self.members.get(leader))
            .is_some_and(|m| m.join.is_some());
        if !leads_on {
            self.leader = Some(first);
        }
        if !active(Mutant::GenerationKept) || self.generation == 0 {
            self.generation = self.generation.checked_add(1).unwrap_or(1);
        }
        self.protocol = self.choose();
        self.state = State::Completing {
            sync_by: cx.now.mono.saturating_add(self.patience()),
        };
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            let leads = self.leader.as_ref() == Some(&id);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            let member = Arc::make_mut(member);
            member.new = false;
            let Some(token) = member.join.take() else {
                // A static member that is away: its session decides, not its sync.
                member.synced = true;
                continue;
            };
            member.synced = false;
            member.session_until = cx.now.mono.saturating_add(member.session_timeout);
            self.answer_join(&id, token, leads, false, cx);
        }
    }

    fn become_empty(&mut self, cx: &mut Context<'_>) {
        let never = self.generation == 0;
        let pending = std::mem::take(&mut self.pending);
        if never {
            *self = Classic::default();
        } else {
            self.generation = self.generation.checked_add(1).unwrap_or(1);
            self.state = State::Empty;
            self.protocol = None;
            self.leader = None;
            self.since_ms = cx.now.wall_ms;
            cx.out.record(&self.record(cx.group));
        }
        self.pending = pending;
    }

    /// The protocol that most members like best of those that all of them speak; ties go to the first by name.
    pub(super) fn choose(&self) -> Option<String> {
        let common = |name: &str| {
            self.members
                .values()
                .all(|m| m.protocols.iter().any(|(n, _)| n == name))
        };
        let first = self.members.values().next()?;
        let candidates: Vec<&str> = first
            .protocols
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| common(name))
            .collect();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut wishes = member.protocols.iter().map(|(name, _)| name.as_str());
            if let Some(vote) = wishes.find(|name| candidates.contains(name)) {
                *votes.entry(vote).or_default() += 1;
            }
        }
        let best = votes.values().max().copied()?;
        let winner = votes.into_iter().find(|(_, count)| *count == best);
        winner.map(|(name, _)| name.to_owned())
    }

    fn joined(&self, id: &str, with_members: bool, skip_assignment: bool) -> JoinAnswer {
        let protocol = self.protocol.as_deref();
        JoinAnswer {
            error: ErrorCode::NONE,
            generation: self.generation.into(),
            protocol_type: Some(self.protocol_type.clone()),
            protocol_name: self.protocol.clone(),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            skip_assignment,
            member: id.to_owned(),
            members: self
                .members
                .iter()
                .filter(|_| with_members)
                .map(|(id, m)| {
                    let instance = m.instance.as_deref().map(str::to_owned);
                    (id.to_string(), instance, m.metadata(protocol))
                })
                .collect(),
        }
    }

    fn answer_join(
        &self,
        id: &str,
        token: Token,
        with_members: bool,
        skip_assignment: bool,
        cx: &mut Context<'_>,
    ) {
        let answer = self.joined(id, with_members, skip_assignment);
        cx.answer(token, GroupAnswer::Join(answer));
    }
}

/// The id of a member that has none yet.
pub(in crate::groups) fn new_member_id(join: &Join) -> String {
    let name = join.instance.as_deref().unwrap_or(&join.client_id);
    format!("{name}-{}", uuid(join.random))
}

fn refuse(token: Token, join: &Join, error: ErrorCode, cx: &mut Context<'_>) {
    cx.answer(token, GroupAnswer::Join(refused_join(join, error)));
}

/// As Java shows a UUID.
fn uuid(random: u128) -> String {
    let hex = format!("{random:032x}");
    let at = |from, to| hex.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        at(0, 8),
        at(8, 12),
        at(12, 16),
        at(16, 20),
        at(20, 32)
    )
}
