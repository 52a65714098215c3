//! What is kept of share groups, on one partition of `__share_group_state`.
//!
//! A share partition is written as a snapshot and updates to it. Old records are of no use once all share partitions have
//! a later snapshot: the topic is cut off there, not compacted, since updates add to each other.
//!
//! Two epochs keep out who has been replaced. The *state epoch* grows when the group's offsets are set anew, the *leader
//! epoch* is that of the partition whose leader holds what is in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};

use super::key::ShareKey;
use super::partition::StateUpdate;
use super::ranges::Ranges;
use super::records::{DeliveryState, Record, Snapshot, StateBatch, Update};
use crate::Now;
use crate::coordinator::{Answer, Decision, Effect, StoredRecord, Token};
use crate::groups::Topics;

/// How often old records are looked for (Kafka: `share.coordinator.state.topic.prune.interval.ms`, which is longer).
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// Records of the log from which on share partitions that nobody writes to are written anew, so that it can be cut off.
const LONG: i64 = 20_000;

/// Share partitions that one decision writes anew, or takes away.
const STEP: usize = 200;

/// Settings of the coordinator.
#[derive(Clone, Debug)]
pub struct ShareSettings {
    /// `share.coordinator.snapshot.update.records.per.snapshot`.
    pub updates_per_snapshot: u32,
}

impl Default for ShareSettings {
    fn default() -> Self {
        ShareSettings {
            updates_per_snapshot: 500,
        }
    }
}

/// All that is kept of one share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareState {
    /// Grows when the group's offsets are set anew.
    pub state_epoch: i32,
    /// Of the leader that last read or wrote it.
    pub leader_epoch: LeaderEpoch,
    /// Everything before it is done with; −1: nobody has said where the group begins.
    pub start: Offset,
    /// In order.
    pub batches: Vec<StateBatch>,
}

/// In short what is kept of one share partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareSummary {
    /// Grows when the group's offsets are set anew.
    pub state_epoch: i32,
    /// Of the leader that last read or wrote it.
    pub leader_epoch: LeaderEpoch,
    /// Everything before it is done with; −1: nobody has said where the group begins.
    pub start: Offset,
    /// Offsets from the start on that are done with; −1 unknown.
    pub complete: i32,
}

/// A command to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareCommand {
    /// The group is to begin at `start` (−1: as the leader finds right), whatever was before.
    Initialize {
        /// Which.
        key: ShareKey,
        /// At least the one that it has; `None`: the next one.
        state_epoch: Option<i32>,
        /// Where.
        start: Offset,
    },
    /// A leader takes over. What isn't there is made, at −1.
    Read {
        /// Which.
        key: ShareKey,
        /// The leader's.
        leader_epoch: LeaderEpoch,
    },
    /// A leader tells what has changed.
    Write {
        /// Which.
        key: ShareKey,
        /// As read.
        state_epoch: i32,
        /// The leader's.
        leader_epoch: LeaderEpoch,
        /// What has changed.
        update: StateUpdate,
    },
    /// The group doesn't read this partition any more.
    Delete {
        /// Which.
        key: ShareKey,
    },
}

impl ShareCommand {
    /// The share partition that it is about.
    pub fn key(&self) -> &ShareKey {
        match self {
            ShareCommand::Initialize { key, .. }
            | ShareCommand::Read { key, .. }
            | ShareCommand::Write { key, .. }
            | ShareCommand::Delete { key } => key,
        }
    }
}

/// Which of a node's commands it is. A network may bring one late or twice; then what came after it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareTurn {
    /// The node that says it.
    pub from: BrokerId,
    /// Its registration.
    pub broker_epoch: i64,
    /// Grows with each of its commands.
    pub number: i64,
}

/// What a coordinator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareTold {
    /// `None`: it has come from the coordinator's own node, at once.
    pub turn: Option<ShareTurn>,
    /// What.
    pub command: ShareCommand,
}

/// The answer to a command; a state only to [`ShareCommand::Read`]. FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH; INVALID_REQUEST: there
/// is no such share partition, or the names are too long.
pub type ShareAnswer = Result<Option<ShareState>, ErrorCode>;

/// A change that a fail-over may forget.
#[derive(Clone, Debug)]
pub enum ShareSoft {
    /// Old records were looked for; the log could be cut off before `Offset`.
    Looked(Offset, Duration),
    /// Topics were looked through for deleted ones, up to this key; `None`: all.
    Walked(Option<ShareKey>),
    /// A node has told something of a share partition; what it said before that counts no more.
    Heard(ShareKey, ShareTurn),
    /// These topics are gone; nobody says anything of them again.
    Gone(BTreeSet<TopicId>),
}

/// What the host does once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareEffect {
    /// Records of the coordinator's partition before this offset are of no use.
    CutOff(Offset),
}

/// What a decision asks the host to do.
pub type ShareDecision = Decision<ShareSoft, ShareAnswer, ShareEffect>;

#[derive(Clone, Debug, Default)]
struct Kept {
    snapshot_epoch: i32,
    state_epoch: i32,
    leader_epoch: LeaderEpoch,
    start: i64,
    complete: i32,
    created: i64,
    /// State, deliveries, the time before which it isn't given out, and how far away that was.
    batches: Ranges<(State, i16, i64, i64)>,
    /// Updates since the snapshot.
    updates: u32,
    /// Where the snapshot is.
    snapshot_at: Offset,
    /// Log position (exclusive) of its last record.
    changed_at: Offset,
}

type State = DeliveryState;

impl Kept {
    fn merge(&mut self, start: i64, batches: &[StateBatch]) {
        if start >= 0 {
            self.start = start;
            self.batches.take(0, start - 1);
        }
        for batch in batches {
            let (first, last) = (batch.first.0.max(self.start), batch.last.0);
            if first <= last && last < i64::MAX {
                self.batches.take(first, last);
                let value = (
                    batch.state,
                    batch.delivery_count,
                    batch.not_before,
                    batch.rest,
                );
                self.batches.put(first, last, value);
            }
        }
    }

    fn batches(&self) -> Vec<StateBatch> {
        let each = self.batches.iter();
        each.map(
            |(first, last, (state, count, not_before, rest))| StateBatch {
                first: Offset(first),
                last: Offset(last),
                state: *state,
                delivery_count: *count,
                not_before: *not_before,
                rest: *rest,
            },
        )
        .collect()
    }

    fn snapshot(&self, now: Now) -> Snapshot {
        Snapshot {
            snapshot_epoch: self.snapshot_epoch.wrapping_add(1).max(0),
            state_epoch: self.state_epoch,
            leader_epoch: self.leader_epoch,
            start: Offset(self.start),
            complete: self.complete,
            created: self.created,
            written: now.wall_ms,
            batches: self.batches(),
        }
    }
}

/// The share partitions of one partition of `__share_group_state`.
#[derive(Debug)]
pub struct ShareShard {
    settings: ShareSettings,
    kept: BTreeMap<Arc<ShareKey>, Kept>,
    /// Of all share partitions.
    snapshots: BTreeSet<(Offset, Arc<ShareKey>)>,
    /// Log position (exclusive) where a share partition last ceased to be.
    removed_at: Offset,
    /// Log position (exclusive) of the last record.
    end: Offset,
    /// Where the log was last cut off; `None`: nothing was read yet.
    cut: Option<Offset>,
    /// The end when old records were last looked for.
    looked_at: Offset,
    next_look: Duration,
    /// Where the walk over all share partitions after topics were deleted goes on.
    walk: Option<ShareKey>,
    held_until: Duration,
    /// The last turn of each node on a share partition: registration and number. Another life of this shard is another
    /// leadership of its partition, which commands name.
    heard: BTreeMap<(ShareKey, BrokerId), (i64, i64)>,
}

impl ShareShard {
    /// An empty shard; feed it the partition's records by [`ShareShard::apply`], then call [`ShareShard::loaded`].
    pub fn new(settings: ShareSettings) -> ShareShard {
        ShareShard {
            settings,
            kept: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            removed_at: Offset::ZERO,
            end: Offset::ZERO,
            cut: None,
            looked_at: Offset::ZERO,
            next_look: Duration::ZERO,
            walk: None,
            held_until: Duration::ZERO,
            heard: BTreeMap::new(),
        }
    }

    /// All records have been applied.
    pub fn loaded(&mut self, now: Now) {
        self.next_look = now.mono.saturating_add(PRUNE_INTERVAL);
    }

    /// A record was appended at `at`. Unknown or damaged records are skipped.
    pub fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, _now: Now) {
        self.cut.get_or_insert(at);
        self.end = at.plus(1);
        let Ok(Some(record)) = Record::decode(key, value) else {
            return;
        };
        match record {
            Record::Snapshot(key, None) => {
                if let Some((key, kept)) = self.kept.remove_entry(&key) {
                    self.snapshots.remove(&(kept.snapshot_at, key));
                }
                self.removed_at = self.end;
            }
            Record::Snapshot(key, Some(snapshot)) => {
                let key = Arc::new(key);
                let mut kept = Kept {
                    snapshot_epoch: snapshot.snapshot_epoch,
                    state_epoch: snapshot.state_epoch,
                    leader_epoch: snapshot.leader_epoch,
                    start: snapshot.start.0,
                    complete: snapshot.complete,
                    created: snapshot.created,
                    snapshot_at: at,
                    changed_at: self.end,
                    ..Kept::default()
                };
                kept.merge(snapshot.start.0, &snapshot.batches);
                if let Some(before) = self.kept.insert(key.clone(), kept) {
                    self.snapshots.remove(&(before.snapshot_at, key.clone()));
                }
                self.snapshots.insert((at, key));
            }
            Record::Update(key, update) => {
                // One that belongs to a snapshot which was replaced, or was cut off with it, says nothing any more.
                if let Some(kept) = self.kept.get_mut(&key)
                    && kept.snapshot_epoch == update.snapshot_epoch
                {
                    kept.updates += 1;
                    kept.leader_epoch = update.leader_epoch;
                    kept.complete = update.complete;
                    match active(Mutant::ShareRecordsForgotten) {
                        true => kept.merge(update.start.0, &[]),
                        false => kept.merge(update.start.0, &update.batches),
                    }
                    kept.changed_at = self.end;
                }
            }
        }
    }

    /// Performs a soft change of a decision of this shard.
    pub fn soft(&mut self, change: ShareSoft) {
        match change {
            ShareSoft::Looked(cut, next) => {
                self.looked_at = self.end;
                self.cut = self.cut.map(|before| before.max(cut));
                self.next_look = next;
            }
            ShareSoft::Walked(next) => self.walk = next,
            ShareSoft::Heard(key, turn) => {
                let number = (turn.broker_epoch, turn.number);
                self.heard.insert((key, turn.from), number);
            }
            ShareSoft::Gone(topics) => {
                self.heard
                    .retain(|(key, _), _| !topics.contains(&key.topic));
            }
        }
    }

    /// Nothing is looked for before `until`.
    pub fn hold(&mut self, until: Duration) {
        self.held_until = self.held_until.max(until);
    }

    /// Decides a command in its turn. DUPLICATE_SEQUENCE_NUMBER, to be told nobody: its node has said something later already.
    /// COORDINATOR_LOAD_IN_PROGRESS: the topic isn't known here yet.
    pub fn decide_told(
        &self,
        told: ShareTold,
        token: Token,
        topics: &dyn Topics,
        now: Now,
    ) -> ShareDecision {
        let ShareTold { turn, command } = told;
        let refuse = |error| ShareDecision {
            answers: vec![Answer {
                token,
                body: Err(error),
                after: Offset::ZERO,
            }],
            ..ShareDecision::default()
        };
        let Some(turn) = turn else {
            return self.decide(command, token, now);
        };
        let key = command.key().clone();
        let heard = self.heard.get(&(key.clone(), turn.from));
        let is_late = heard.is_some_and(|last| (turn.broker_epoch, turn.number) <= *last);
        if is_late {
            return refuse(ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
        }
        // What is made for a topic that this node hasn't heard of would be taken for what a deleted one has left.
        let makes = !matches!(command, ShareCommand::Delete { .. });
        if makes && topics.name_of(key.topic).is_none() {
            return refuse(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        }
        let mut decision = self.decide(command, token, now);
        decision.soft.push(ShareSoft::Heard(key, turn));
        decision
    }

    /// Decides a command.
    pub fn decide(&self, command: ShareCommand, token: Token, now: Now) -> ShareDecision {
        let before = self.kept.get(command.key());
        let after = before.map_or(self.removed_at, |kept| kept.changed_at);
        let (record, body) = match self.rule(command, before, now) {
            Ok((record, state)) => (record, Ok(state)),
            Err(error) => (None, Err(error)),
        };
        let mut decision = ShareDecision::default();
        let body = match record.map(|record| record.encode()) {
            None => body,
            Some(Ok(stored)) => {
                decision.records.push(stored);
                body
            }
            Some(Err(_)) => Err(ErrorCode::INVALID_REQUEST),
        };
        decision.answers.push(Answer { token, body, after });
        decision
    }

    fn rule(
        &self,
        command: ShareCommand,
        before: Option<&Kept>,
        now: Now,
    ) -> Result<(Option<Record>, Option<ShareState>), ErrorCode> {
        match command {
            ShareCommand::Initialize {
                key,
                state_epoch,
                start,
            } => {
                let known = before.map(|kept| kept.state_epoch);
                let next = known.map_or(0, |epoch| epoch.saturating_add(1));
                let epoch = state_epoch.unwrap_or(next);
                if known.is_some_and(|known| epoch < known) {
                    return Err(ErrorCode::FENCED_STATE_EPOCH);
                }
                let kept = Kept {
                    snapshot_epoch: before.map_or(-1, |kept| kept.snapshot_epoch),
                    state_epoch: epoch,
                    start: start.0.max(-1),
                    created: now.wall_ms,
                    // Of this life, until a leader reads it.
                    leader_epoch: before.map_or(LeaderEpoch(0), |kept| kept.leader_epoch),
                    ..Kept::default()
                };
                Ok((Some(Record::Snapshot(key, Some(kept.snapshot(now)))), None))
            }
            ShareCommand::Read { key, leader_epoch } => {
                let mut kept = before.cloned().unwrap_or(Kept {
                    snapshot_epoch: -1,
                    leader_epoch: LeaderEpoch(-1),
                    start: -1,
                    created: now.wall_ms,
                    ..Kept::default()
                });
                if leader_epoch < kept.leader_epoch {
                    return Err(ErrorCode::FENCED_LEADER_EPOCH);
                }
                // From now on no earlier leader writes.
                let record = (leader_epoch > kept.leader_epoch || before.is_none()).then(|| {
                    kept.leader_epoch = leader_epoch;
                    Record::Snapshot(key, Some(kept.snapshot(now)))
                });
                let state = ShareState {
                    state_epoch: kept.state_epoch,
                    leader_epoch,
                    start: Offset(kept.start),
                    batches: kept.batches(),
                };
                Ok((record, Some(state)))
            }
            ShareCommand::Write {
                key,
                state_epoch,
                leader_epoch,
                update,
            } => {
                let before = before.ok_or(ErrorCode::INVALID_REQUEST)?;
                if state_epoch < before.state_epoch {
                    return Err(ErrorCode::FENCED_STATE_EPOCH);
                }
                if leader_epoch < before.leader_epoch {
                    return Err(ErrorCode::FENCED_LEADER_EPOCH);
                }
                if before.updates >= self.settings.updates_per_snapshot {
                    let mut kept = before.clone();
                    kept.leader_epoch = leader_epoch;
                    kept.complete = update.complete;
                    kept.merge(update.start.0, &update.batches);
                    return Ok((Some(Record::Snapshot(key, Some(kept.snapshot(now)))), None));
                }
                let update = Update {
                    snapshot_epoch: before.snapshot_epoch,
                    leader_epoch,
                    start: update.start,
                    complete: update.complete,
                    batches: update.batches,
                };
                Ok((Some(Record::Update(key, update)), None))
            }
            ShareCommand::Delete { key } => Ok((before.map(|_| Record::Snapshot(key, None)), None)),
        }
    }

    /// When [`ShareShard::decide_timers`] has something to do, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.walk.is_some() {
            return Some(self.held_until);
        }
        (self.end > self.looked_at).then_some(self.next_look.max(self.held_until))
    }

    /// What time brings: old records are cut off, states of deleted topics taken away.
    pub fn decide_timers(&self, topics: &dyn Topics, now: Now) -> ShareDecision {
        if self.next_deadline().is_none_or(|at| at > now.mono) {
            return ShareDecision::default();
        }
        if let Some(from) = &self.walk {
            return self.walk_topics(Some(from), topics);
        }
        let mut decision = ShareDecision::default();
        let begins = self.cut.unwrap_or(self.end);
        let is_long = self.end.0 - begins.0 > LONG;
        let mut floor = self.end;
        for (count, (at, key)) in self.snapshots.iter().enumerate() {
            let is_cold = *at < self.looked_at;
            let Some(kept) = self
                .kept
                .get(key)
                .filter(|_| is_long && is_cold && count < STEP)
            else {
                floor = floor.min(*at);
                break;
            };
            push(
                &mut decision.records,
                &Record::Snapshot((**key).clone(), Some(kept.snapshot(now))),
            );
        }
        if floor > begins {
            decision.effects.push(Effect {
                body: ShareEffect::CutOff(floor),
                after: self.end,
            });
        }
        let next = now.mono.saturating_add(PRUNE_INTERVAL);
        decision.soft.push(ShareSoft::Looked(floor, next));
        decision
    }

    /// Topics were made, grown or deleted.
    pub fn decide_topics_changed(&self, topics: &dyn Topics) -> ShareDecision {
        let mut decision = self.walk_topics(None, topics);
        let heard = self.heard.keys().map(|(key, _)| key.topic);
        let gone: BTreeSet<TopicId> = heard.filter(|id| topics.name_of(*id).is_none()).collect();
        if !gone.is_empty() {
            decision.soft.push(ShareSoft::Gone(gone));
        }
        decision
    }

    fn walk_topics(&self, from: Option<&ShareKey>, topics: &dyn Topics) -> ShareDecision {
        let mut decision = ShareDecision::default();
        let mut next = None;
        // In order of group, so that a topic's partitions are asked for one after the other.
        for key in self.kept.keys() {
            if from.is_some_and(|from| **key < *from) || topics.name_of(key.topic).is_some() {
                continue;
            }
            if decision.records.len() >= STEP {
                next = Some((**key).clone());
                break;
            }
            push(
                &mut decision.records,
                &Record::Snapshot((**key).clone(), None),
            );
        }
        if next.is_some() || self.walk.is_some() {
            decision.soft.push(ShareSoft::Walked(next));
        }
        decision
    }

    /// In short what is kept of a share partition, and the log position that must be durable before it is told.
    pub fn summary(&self, key: &ShareKey) -> (Option<ShareSummary>, Offset) {
        let Some(kept) = self.kept.get(key) else {
            return (None, self.removed_at);
        };
        let summary = ShareSummary {
            state_epoch: kept.state_epoch,
            leader_epoch: kept.leader_epoch,
            start: Offset(kept.start),
            complete: kept.complete,
        };
        (Some(summary), kept.changed_at)
    }
}

/// What was once stored can be written again.
fn push(records: &mut Vec<StoredRecord>, record: &Record) {
    if let Ok(stored) = record.encode() {
        records.push(stored);
    }
}

#[cfg(test)]
mod tests;
