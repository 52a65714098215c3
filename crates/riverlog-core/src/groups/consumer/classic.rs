//! Members that speak the classic protocol in a group of the consumer protocol (KIP-848): JoinGroup, SyncGroup and Heartbeat.
//!
//! Such a member moves by joining. Where another is told its partitions with a heartbeat, this one is told to join; its metadata
//! say what it holds, the join brings it a step towards its target, and the sync tells it what it may hold now. There is no
//! leader: nobody but the broker assigns. Members that give up everything before they join (the eager way) and members that
//! give back what they are not given (the cooperative way) come out the same: what a member doesn't say it owns it has
//! given back.

use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::consumer_protocol::{Subscription, decode_subscription, encode_assignment};
use riverlog_wire::{ErrorCode, Offset};

use super::heartbeat::subscribes_anew;
use super::migrate::{as_stored, named, parts};
use super::{Consumer, Draft, Member, State};
use crate::Now;
use crate::groups::classic::{new_member_id, refused_join, refused_sync};
use crate::groups::effects::{Out, SoftChange};
use crate::groups::migrate::Moving;
use crate::groups::{GroupAnswer, GroupSettings, Join, JoinAnswer, Sync, Token, Topics};

const CONSUMER: &str = "consumer";

/// A group that members of the classic protocol ask something of, and what they are judged by.
pub(in crate::groups) struct Asks<'a> {
    pub(in crate::groups) group: &'a Consumer,
    /// Log position of the group's last record.
    pub(in crate::groups) changed_at: Offset,
    pub(in crate::groups) topics: &'a dyn Topics,
    pub(in crate::groups) settings: &'a GroupSettings,
    pub(in crate::groups) now: Now,
}

/// Who joins.
struct Joiner {
    id: Arc<str>,
    /// The member that it is already, or whose static name it takes over.
    before: Option<Arc<str>>,
    protocol: String,
    subscription: Subscription,
}

impl Asks<'_> {
    fn after(&self, time: Duration) -> Duration {
        self.now.mono.saturating_add(time)
    }

    /// The member that speaks: one of the classic protocol, under the id that its static name stands for.
    fn member(&self, member: &str, instance: Option<&str>) -> Result<&Member, ErrorCode> {
        if let Some(instance) = instance {
            let holder = self.group.instances.get(instance);
            let holder = holder.ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            if **holder != *member {
                return Err(ErrorCode::FENCED_INSTANCE_ID);
            }
        }
        let found = self.group.members.get(member);
        found
            .map(Arc::as_ref)
            .filter(|m| m.is_classic())
            .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)
    }

    /// Heartbeat: REBALANCE_IN_PROGRESS where the member can come nearer to its target.
    pub(in crate::groups) fn heartbeat(
        &self,
        group: &str,
        (id, instance): (&str, Option<&str>),
        generation: i32,
        out: &mut Out,
    ) -> ErrorCode {
        let member = match self.member(id, instance) {
            Err(error) => return error,
            Ok(member) if member.current.epoch != generation => {
                return ErrorCode::ILLEGAL_GENERATION;
            }
            Ok(member) => member,
        };
        out.soft(SoftChange::Session {
            group: group.into(),
            member: id.into(),
            until: self.after(member.session_timeout(self.settings)),
            synced: false,
        });
        if !self.group.must_join(id, member) || active(Mutant::ClassicNotCalled) {
            return ErrorCode::NONE;
        }
        out.soft(SoftChange::Due {
            group: group.into(),
            member: id.into(),
            by: self.after(member.rebalance_timeout()),
            anew: false,
        });
        ErrorCode::REBALANCE_IN_PROGRESS
    }

    /// SyncGroup: what the member may hold at the epoch that it joined at.
    pub(in crate::groups) fn sync(&self, sync: &Sync, token: Token, out: &mut Out) {
        match self.synced(sync) {
            Err(error) => out.answer(token, self.changed_at, refused_sync(error)),
            Ok((member, answer)) => {
                out.soft(SoftChange::Session {
                    group: sync.group.as_str().into(),
                    member: sync.member.as_str().into(),
                    until: self.after(member.session_timeout(self.settings)),
                    synced: true,
                });
                out.answer(token, member.changed_at, answer);
            }
        }
    }

    fn synced(&self, sync: &Sync) -> Result<(&Member, GroupAnswer), ErrorCode> {
        let member = self.member(&sync.member, sync.instance.as_deref())?;
        let current = &member.current;
        if current.epoch != sync.generation.0 {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let value = member.value.as_ref();
        let (_, protocols) = value
            .and_then(|v| v.classic.as_ref())
            .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let name = sync.protocol_name.as_ref();
        let other_type = sync.protocol_type.as_ref().is_some_and(|t| t != CONSUMER);
        let other_name = name.is_some_and(|name| protocols.iter().all(|(n, _)| n != name));
        if other_type || other_name {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        // One that has to give something back is told so, whatever came since.
        if current.epoch < self.group.value.epoch && current.state != State::Revoking {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        let given = named(current.assigned.keys(), self.topics);
        let answer = GroupAnswer::Sync {
            error: ErrorCode::NONE,
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: name.or(protocols.first().map(|(n, _)| n)).cloned(),
            assignment: encode_assignment(&given),
        };
        Ok((member, answer))
    }

    /// JoinGroup: a newcomer, or a member that takes its next step.
    pub(in crate::groups) fn join(&self, join: Join, token: Token, out: &mut Out) {
        let joiner = match self.joiner(&join) {
            Ok(joiner) => joiner,
            Err(answer) => {
                return out.answer(token, self.changed_at, GroupAnswer::Join(*answer));
            }
        };
        let Joiner {
            id,
            before,
            protocol,
            subscription,
        } = joiner;
        let name = join.group.clone();
        let mut draft = Draft::new(&name, self.group, self.now, self.settings, out);
        let replaced = before.as_ref().filter(|old| **old != id);
        if let Some(old) = replaced
            && !self.is_classic(old)
            && self.group.may_become_classic(Some(old), self.settings)
        {
            draft.remove(old);
            return draft.become_classic(self.topics, |classic, cx| classic.join(join, token, cx));
        }

        let stays = before.as_ref().and_then(|b| self.group.members.get(b));
        let stored = stays.and_then(|m| m.value.as_ref());
        let (session, rebalance) = (join.session_timeout, join.rebalance_timeout);
        let owned = parts(&subscription.owned, self.topics);
        let value = as_stored(&moving(id.clone(), join), &subscription);
        let anew = subscribes_anew(stored, &value);
        match replaced {
            Some(old) => draft.replace(old, &id, value),
            None if stored == Some(&value) => {}
            None => draft.set_member(&id, Some(value)),
        }
        if anew {
            draft.bump(self.topics);
        }
        let current = draft.reconcile(&id, Some(&owned));
        out.soft(SoftChange::Session {
            group: name.as_str().into(),
            member: id.clone(),
            until: self.after(session),
            synced: false,
        });
        // It has to fetch its assignment.
        out.soft(SoftChange::Due {
            group: name.as_str().into(),
            member: id.clone(),
            by: self.after(rebalance),
            anew: true,
        });
        let answer = JoinAnswer {
            error: ErrorCode::NONE,
            generation: current.epoch.into(),
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: Some(protocol),
            leader: String::new(),
            skip_assignment: false,
            member: id.to_string(),
            members: Vec::new(),
        };
        let after = stays.map_or(Offset::ZERO, |m| m.changed_at);
        out.answer(token, after, GroupAnswer::Join(answer));
    }

    fn is_classic(&self, member: &str) -> bool {
        let member = self.group.members.get(member);
        member.is_some_and(|m| m.is_classic())
    }

    /// Who joins, and as what; else the answer that it gets.
    fn joiner(&self, join: &Join) -> Result<Joiner, Box<JoinAnswer>> {
        let refuse = |error| Box::new(refused_join(join, error));
        let members = &self.group.members;
        let holder = join
            .instance
            .as_deref()
            .map(|instance| self.group.instances.get(instance));
        let id: Arc<str> = match join.member.is_empty() {
            true => new_member_id(join).into(),
            false => join.member.as_str().into(),
        };
        let before = match holder {
            Some(holder) if join.member.is_empty() => holder.cloned(),
            Some(None) => return Err(refuse(ErrorCode::UNKNOWN_MEMBER_ID)),
            Some(Some(holder)) if *holder != id => {
                return Err(refuse(ErrorCode::FENCED_INSTANCE_ID));
            }
            // Ids that were handed out are not remembered; whoever comes with one is a member from then on.
            _ => members.get_key_value(&id).map(|(id, _)| id.clone()),
        };
        if before.is_none() && members.len() >= self.settings.max_size {
            return Err(refuse(ErrorCode::GROUP_MAX_SIZE_REACHED));
        }
        let protocol = self.common(join, before.as_deref());
        let (protocol, metadata) =
            protocol.ok_or_else(|| refuse(ErrorCode::INCONSISTENT_GROUP_PROTOCOL))?;
        let subscription = decode_subscription(metadata)
            .map_err(|_| refuse(ErrorCode::INCONSISTENT_GROUP_PROTOCOL))?;
        if join.member.is_empty() && join.instance.is_none() && join.require_known_member {
            return Err(Box::new(JoinAnswer {
                member: id.to_string(),
                ..refused_join(join, ErrorCode::MEMBER_ID_REQUIRED)
            }));
        }
        Ok(Joiner {
            id,
            before,
            protocol: protocol.clone(),
            subscription,
        })
    }

    /// The first of its protocols that all other members of the classic protocol speak too: the group may go back to it.
    fn common<'j>(
        &self,
        join: &'j Join,
        before: Option<&str>,
    ) -> Option<&'j (String, bytes::Bytes)> {
        if join.protocol_type != CONSUMER {
            return None;
        }
        let others = || {
            let others = self.group.members.iter();
            others
                .filter(|(id, _)| before.is_none_or(|b| *b != ***id))
                .filter_map(|(_, m)| m.value.as_ref()?.classic.as_ref())
        };
        let spoken = |name: &str| others().all(|(_, all)| all.iter().any(|(n, _)| n == name));
        join.protocols.iter().find(|(name, _)| spoken(name))
    }
}

fn moving(member: Arc<str>, join: Join) -> Moving {
    Moving {
        member,
        instance: join.instance.as_deref().map(Arc::from),
        client_id: join.client_id,
        client_host: join.client_host,
        session_timeout: join.session_timeout,
        rebalance_timeout: join.rebalance_timeout,
        protocols: join.protocols,
        metadata: bytes::Bytes::new(),
        assignment: bytes::Bytes::new(),
    }
}

impl Consumer {
    /// A member of the classic protocol can come nearer to its target by joining. What others have to give back first, it waits
    /// for until all of it is there: each join may cost it all its work.
    fn must_join(&self, id: &str, member: &Member) -> bool {
        let current = &member.current;
        if current.epoch < self.value.epoch {
            return true;
        }
        match current.state {
            State::Stable => false,
            State::Revoking => true,
            State::Waiting => {
                let target = self.targets.get(id).into_iter().flat_map(|t| t.iter());
                let mut awaited = target.filter(|p| !current.assigned.contains_key(*p));
                awaited.all(|p| self.owners.get(p).is_none_or(|owner| **owner == *id))
            }
        }
    }

    /// A member of the classic protocol has something to do by then; `anew`: it has done what it had to do before.
    pub(in crate::groups) fn set_due(&mut self, member: Arc<str>, by: Duration, anew: bool) {
        match anew {
            true => self.due.insert(member, by),
            false => Some(*self.due.entry(member).or_insert(by)),
        };
    }
}
