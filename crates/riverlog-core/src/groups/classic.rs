//! A classic group (KIP-62 and its successors): the coordinator counts generations, a member makes the assignment.
//!
//! | state | members | left when |
//! |---|---|---|
//! | Empty | none, perhaps ids handed out (KIP-394) | somebody joins |
//! | PreparingRebalance | join, their answers parked | all have joined, or the time for it is over |
//! | CompletingRebalance | have a generation, wait for the leader's assignment | the leader syncs |
//! | Stable | work | somebody joins, leaves or goes silent |
//!
//! Only a finished generation is stored: with the leader's assignment, or empty. All else may be forgotten by a fail-over, and
//! members that know of a generation which was forgotten join again. So a group is changed as a whole, on a copy that
//! becomes the group by one soft change; heartbeats, which come most often, change only a session.

mod join;
mod moving;
mod refused;
mod sync;
mod timers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, Offset};

use super::effects::Out;
use super::records::{GroupMemberValue, GroupValue, Record};
use super::{GroupAnswer, GroupDescription, GroupSettings, MemberDescription, Token};
use crate::Now;

pub(super) use join::new_member_id;
pub(super) use refused::{refused_join, refused_sync};
pub(super) use sync::Synced;

/// The protocol type of consumers, whose metadata we can read.
const CONSUMER: &str = "consumer";

/// A new member may not know its id yet, and can't heartbeat while its join is parked; when its client has gone, this
/// ends it (Kafka: `group.coordinator.new.member.join.timeout.ms`).
const NEW_MEMBER_TIMEOUT: Duration = Duration::from_secs(300);

/// Ids that may be handed out and not yet used, in one group.
const MAX_PENDING: usize = 10_000;

/// A classic group.
#[derive(Clone, Debug, Default)]
pub(super) struct Classic {
    state: State,
    generation: i32,
    /// That of the first member ever; empty for a group of offsets alone.
    protocol_type: String,
    protocol: Option<String>,
    leader: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, Arc<Member>>,
    /// Static names.
    instances: BTreeMap<Arc<str>, Arc<str>>,
    /// Ids handed out (KIP-394) whose owners have yet to join with them, and until when.
    pending: BTreeMap<Arc<str>, Duration>,
    /// When the stored state began, ms since the epoch; −1 unknown.
    since_ms: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Empty,
    Preparing {
        /// When it goes on without those who are missing.
        deadline: Duration,
        /// Set while a group that was empty waits for more members to come.
        gathering: Option<Gathering>,
    },
    Completing {
        /// When those that have not synced are removed.
        sync_by: Duration,
    },
    Stable {
        /// When those that have not synced are removed.
        sync_by: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gathering {
    /// By how much the wait may still be prolonged.
    remaining: Duration,
    /// Somebody new came since the wait began.
    joined: bool,
}

#[derive(Clone, Debug, Default)]
struct Member {
    instance: Option<Arc<str>>,
    client_id: String,
    client_host: String,
    session_timeout: Duration,
    rebalance_timeout: Duration,
    /// The favourite first.
    protocols: Vec<(String, Bytes)>,
    assignment: Bytes,
    /// When it is taken for gone; doesn't count while an answer to it is parked, except for `new`.
    session_until: Duration,
    /// Its first join is parked.
    new: bool,
    /// It need not sync any more in this generation.
    synced: bool,
    join: Option<Token>,
    sync: Option<Token>,
}

/// What the rules of a group work with.
pub(super) struct Context<'a> {
    pub(super) group: &'a str,
    pub(super) settings: &'a GroupSettings,
    pub(super) now: Now,
    /// Log position of the group's last record.
    pub(super) changed_at: Offset,
    pub(super) out: &'a mut Out,
}

impl Context<'_> {
    fn answer(&mut self, token: Token, body: GroupAnswer) {
        self.out.answer(token, self.changed_at, body);
    }
}

impl Member {
    fn metadata(&self, protocol: Option<&str>) -> Bytes {
        let chosen = self
            .protocols
            .iter()
            .find(|(n, _)| Some(n.as_str()) == protocol);
        chosen
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    /// When it is expired; `None` while it waits for us.
    fn expires(&self) -> Option<Duration> {
        let waits = self.join.is_some() || self.sync.is_some();
        if active(Mutant::DeadMemberKept) && !self.new {
            return None;
        }
        (self.new || !waits).then_some(self.session_until)
    }
}

impl Classic {
    /// The group as stored; sessions begin with [`Classic::loaded`].
    pub(super) fn from_value(value: &GroupValue) -> Classic {
        let millis = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let mut group = Classic {
            state: if value.members.is_empty() {
                State::Empty
            } else {
                State::Stable {
                    sync_by: Duration::ZERO,
                }
            },
            generation: value.generation,
            protocol_type: value.protocol_type.clone(),
            protocol: value.protocol.clone(),
            leader: value.leader.as_deref().map(Arc::from),
            since_ms: value.state_timestamp,
            ..Classic::default()
        };
        for stored in &value.members {
            let id: Arc<str> = stored.member.as_str().into();
            let instance: Option<Arc<str>> = stored.instance.as_deref().map(Arc::from);
            if let Some(instance) = &instance {
                group.instances.insert(instance.clone(), id.clone());
            }
            let session_timeout = millis(stored.session_timeout_ms);
            let member = Member {
                instance,
                client_id: stored.client_id.clone(),
                client_host: stored.client_host.clone(),
                session_timeout,
                rebalance_timeout: match stored.rebalance_timeout_ms {
                    ..0 => session_timeout,
                    ms => millis(ms),
                },
                protocols: vec![(
                    value.protocol.clone().unwrap_or_default(),
                    stored.subscription.clone(),
                )],
                assignment: stored.assignment.clone(),
                synced: true,
                ..Member::default()
            };
            group.members.insert(id, Arc::new(member));
        }
        group
    }

    fn record(&self, group: &str) -> Record {
        let millis = |d: Duration| i32::try_from(d.as_millis()).unwrap_or(i32::MAX);
        let protocol = self.protocol.as_deref();
        Record::Group {
            group: group.to_owned(),
            value: Some(GroupValue {
                protocol_type: self.protocol_type.clone(),
                generation: self.generation,
                protocol: self.protocol.clone(),
                leader: self.leader.as_deref().map(str::to_owned),
                state_timestamp: self.since_ms,
                members: self
                    .members
                    .iter()
                    .map(|(id, m)| GroupMemberValue {
                        member: id.to_string(),
                        instance: m.instance.as_deref().map(str::to_owned),
                        client_id: m.client_id.clone(),
                        client_host: m.client_host.clone(),
                        rebalance_timeout_ms: millis(m.rebalance_timeout),
                        session_timeout_ms: millis(m.session_timeout),
                        subscription: m.metadata(protocol),
                        assignment: m.assignment.clone(),
                    })
                    .collect(),
            }),
        }
    }

    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    /// Nothing is known of it: no members, none coming, never a generation.
    pub(super) fn is_void(&self) -> bool {
        self.is_idle() && !self.is_managed()
    }

    /// It has, or had, members.
    pub(super) fn is_managed(&self) -> bool {
        !self.protocol_type.is_empty()
    }

    /// Since when it is empty, ms since the epoch; −1 unknown.
    pub(super) fn since_ms(&self) -> i64 {
        self.since_ms
    }

    /// All records are read: everybody gets a fresh session.
    pub(super) fn loaded(&mut self, now: Now) {
        for member in self.members.values_mut() {
            let member = Arc::make_mut(member);
            member.session_until = now.mono.saturating_add(member.session_timeout);
        }
        // It came from the consumer protocol, and its members have not met since: nobody has assigned what others left.
        if matches!(self.state, State::Stable { .. }) && self.leader.is_none() {
            self.state = State::Preparing {
                deadline: now.mono.saturating_add(self.patience()),
                gathering: None,
            };
        }
    }

    pub(super) fn renew(&mut self, member: &str, until: Duration, synced: bool) {
        if let Some(member) = self.members.get_mut(member) {
            let member = Arc::make_mut(member);
            if !member.new {
                member.session_until = until;
            }
            member.synced |= synced;
        }
    }

    /// Who speaks: a member, under the id that its static name stands for.
    fn check_member(&self, member: &str, instance: Option<&str>) -> Result<&Member, ErrorCode> {
        if let Some(instance) = instance {
            let holder = self.instances.get(instance);
            let holder = holder.ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            if **holder != *member {
                return Err(ErrorCode::FENCED_INSTANCE_ID);
            }
        }
        let known = self.members.get(member);
        known.map(Arc::as_ref).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)
    }

    /// Heartbeat: the error, and until when the session lasts now (`None`: it isn't a member's).
    pub(super) fn heartbeat(
        &self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
        now: Now,
    ) -> (ErrorCode, Option<Duration>) {
        let checked = self.check_member(member, instance).and_then(|member| {
            if self.is_empty() {
                Err(ErrorCode::UNKNOWN_MEMBER_ID)
            } else if generation != self.generation {
                Err(ErrorCode::ILLEGAL_GENERATION)
            } else {
                Ok(now.mono.saturating_add(member.session_timeout))
            }
        });
        match (checked, self.state) {
            (Ok(until), State::Preparing { .. }) => (ErrorCode::REBALANCE_IN_PROGRESS, Some(until)),
            (Ok(until), _) => (ErrorCode::NONE, Some(until)),
            (Err(error), _) => (error, None),
        }
    }

    /// Who may commit: B30. `Ok`: until when the member's session lasts now, when a member's commit renews it.
    pub(super) fn check_commit(
        &self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
        now: Now,
    ) -> Result<Option<Duration>, ErrorCode> {
        if generation < 0 && self.is_empty() {
            return Ok(None);
        }
        if generation < 0 && member.is_empty() && instance.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        let known = self.check_member(member, instance)?;
        if generation != self.generation && !active(Mutant::StaleGenerationAccepted) {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        match self.state {
            State::Completing { .. } => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            _ => Ok(Some(now.mono.saturating_add(known.session_timeout))),
        }
    }

    /// A commit within a transaction: it renews no session, and a rebalance that is under way doesn't refuse it.
    pub(super) fn check_txn_commit(
        &self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        if generation < 0 && self.is_empty() {
            return Ok(());
        }
        self.check_member(member, instance)?;
        if generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        Ok(())
    }

    /// Topics that members read; `None` when their metadata doesn't say.
    pub(super) fn read_topics(&self) -> Option<BTreeSet<String>> {
        let mut topics = BTreeSet::new();
        if self.members.is_empty() {
            return Some(topics);
        }
        if self.protocol_type != CONSUMER {
            return None;
        }
        let protocol = self.protocol.as_deref();
        for member in self.members.values() {
            topics.extend(subscription(&member.metadata(protocol))?);
        }
        Some(topics)
    }

    /// OffsetDelete (KIP-496) is for groups of consumers while they live.
    pub(super) fn may_delete_offsets(&self) -> bool {
        self.is_empty() || self.protocol_type == CONSUMER
    }

    /// Topics whose offsets it keeps however old; `None`: all. A live group keeps all, but for topics that a settled
    /// group of consumers no longer reads.
    pub(super) fn kept_topics(&self) -> Option<BTreeSet<String>> {
        match self.state {
            State::Empty => Some(BTreeSet::new()),
            State::Stable { .. } => self.read_topics(),
            _ => None,
        }
    }

    /// No members, and none on the way.
    pub(super) fn is_idle(&self) -> bool {
        self.is_empty() && self.pending.is_empty()
    }

    pub(super) fn describe(&self, group: &str) -> GroupDescription {
        let protocol = match self.state {
            State::Stable { .. } | State::Completing { .. } => self.protocol.as_deref(),
            _ => None,
        };
        GroupDescription {
            group: group.to_owned(),
            state: match self.state {
                State::Empty => "Empty",
                State::Preparing { .. } => "PreparingRebalance",
                State::Completing { .. } => "CompletingRebalance",
                State::Stable { .. } => "Stable",
            },
            group_type: "classic",
            protocol_type: self.protocol_type.clone(),
            protocol: protocol.unwrap_or_default().to_owned(),
            generation: self.generation.into(),
            assignment_epoch: 0,
            members: self
                .members
                .iter()
                .map(|(id, m)| MemberDescription {
                    member: id.to_string(),
                    instance: m.instance.as_deref().map(str::to_owned),
                    client_id: m.client_id.clone(),
                    client_host: m.client_host.clone(),
                    member_epoch: self.generation,
                    classic: true,
                    metadata: m.metadata(protocol),
                    assignment: match self.state {
                        State::Stable { .. } => m.assignment.clone(),
                        _ => Bytes::new(),
                    },
                    ..MemberDescription::default()
                })
                .collect(),
        }
    }
}

/// Topics of a consumer's own metadata (ConsumerProtocolSubscription, all versions begin alike).
fn subscription(metadata: &[u8]) -> Option<Vec<String>> {
    let mut r = Reader::new(metadata);
    r.i16().ok()?;
    let len = r.array_len(2).ok()?;
    r.elements(len, |r| Ok(r.string()?.to_owned())).ok()
}
