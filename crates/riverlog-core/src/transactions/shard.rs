//! The transactional ids of one partition of `__transaction_state`.

mod decide;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::primitives::EncodeError;
use riverlog_wire::{ErrorCode, Offset};

use super::value::{TransactionState, TransactionValue};
use super::{
    Answer, Decision, Place, Soft, Token, TransactionAnswer, TransactionCommand,
    TransactionSettings, TransactionVersion, WriteMarkers, records,
};
use crate::Now;
use crate::coordinator::{Effect, StoredRecord};

/// Markers that weren't taken are written again after this time.
const RETRY: Duration = Duration::from_millis(100);

/// How long partitions of the next transaction wait for the end of the one before, and how many such requests of one id.
///
/// A client that is told CONCURRENT_TRANSACTIONS instead sleeps, and when it gives its transaction up meanwhile, it asks for the
/// end of one that never began: librdkafka takes the answer INVALID_TXN_STATE as fatal.
const PATIENCE: Duration = Duration::from_secs(1);
const MAX_PARKED: usize = 100;

/// What is left to a transaction that a load finds open, at the least, unless its own time-out is shorter; and to an id that nobody has
/// used for long.
///
/// How long nobody served is told by the wall clock alone, and that may have been set meanwhile: who has a transaction open must not
/// be fenced for it. Nor for an outage, in which nobody could end a transaction. Bounded, so that one which nobody will end goes also where
/// coordinators come and go.
const TRANSACTION_AFTER_LOAD: Duration = Duration::from_secs(60);
const ID_AFTER_LOAD: Duration = Duration::from_secs(60 * 60);

/// Transactional ids that one decision of time looks at, and records after which it stops.
const STEP_IDS: usize = 1_000;
const STEP_RECORDS: usize = 200;

/// The transactional ids of one partition of `__transaction_state`.
///
/// The host keeps the order: it performs a decision (soft changes, append, `apply` of each record at the offset it was given)
/// before it asks for the next one. It need not wait for durability in between; answers and effects do that.
#[derive(Debug)]
pub struct TransactionShard {
    settings: TransactionSettings,
    ids: BTreeMap<Arc<str>, Entry>,
    /// One for each id that time will change.
    alarms: BTreeSet<(Duration, Arc<str>)>,
    /// Nothing runs out before.
    held_until: Duration,
    loading: bool,
    /// Log position (exclusive) where an id was last forgotten: "no such id" is read up to there.
    removed_at: Offset,
}

#[derive(Debug)]
struct Entry {
    value: TransactionValue,
    /// Log position (exclusive) of the last record.
    changed_at: Offset,
    /// While the outcome is decided: where markers are missing.
    waiting: BTreeSet<Place>,
    /// When they are to be written; `None` while the host is at it.
    write_at: Option<Duration>,
    /// Requests for the next transaction, in the order in which they came.
    parked: VecDeque<Parked>,
    /// Of the ongoing transaction, by the time at which it was begun: when it runs out. The wall clock is asked once: one that
    /// jumps while it is under way neither ends it nor keeps it open.
    runs_out: Option<(i64, Duration)>,
    alarm: Option<Duration>,
}

/// [`TransactionCommand::Add`] that came before the end of the last transaction was through.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    token: Token,
    command: TransactionCommand,
    until: Duration,
}

/// A change that a fail-over may forget.
#[derive(Clone, Debug)]
pub(super) enum SoftChange {
    /// The host has been asked to write markers.
    Writing(Arc<str>),
    /// Some markers are written; the others are tried again.
    Written {
        id: Arc<str>,
        done: Vec<Place>,
        again: Duration,
    },
    /// A request waits.
    Parked(Arc<str>, Parked),
    /// The first one that waits has its answer.
    Unparked(Arc<str>),
}

impl TransactionShard {
    /// An empty shard; feed it the partition's records by [`TransactionShard::apply`], then call [`TransactionShard::loaded`].
    pub fn new(settings: TransactionSettings) -> TransactionShard {
        TransactionShard {
            settings,
            ids: BTreeMap::new(),
            alarms: BTreeSet::new(),
            held_until: Duration::ZERO,
            loading: true,
            removed_at: Offset::ZERO,
        }
    }

    /// All records have been applied: what is half done goes on at the next [`TransactionShard::decide_timers`].
    pub fn loaded(&mut self, now: Now) {
        self.loading = false;
        let ids: Vec<Arc<str>> = self.ids.keys().cloned().collect();
        for id in ids {
            if let Some(entry) = self.ids.get_mut(&id)
                && entry.value.state.is_prepared()
                && !active(Mutant::MarkersNotResumed)
            {
                // Which markers are written isn't stored: writing one twice does no harm.
                entry.write_at = Some(now.mono);
            }
            self.rearm(&id, now);
        }
    }

    /// A record was appended at `at`. Unknown or damaged records are skipped.
    pub fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, now: Now) {
        let Ok(Some((id, value))) = records::decode(key, value) else {
            return;
        };
        let end = at.plus(1);
        let value = value.filter(|v| v.state != TransactionState::Dead);
        let Some(value) = value else {
            if let Some((id, entry)) = self.ids.remove_entry(id.as_str()) {
                self.removed_at = self.removed_at.max(end);
                if let Some(alarm) = entry.alarm {
                    self.alarms.remove(&(alarm, id));
                }
            }
            return;
        };
        let (waiting, write_at) = match value.state.is_prepared() {
            true if active(Mutant::MarkersNotResumed) && self.loading => {
                (value.partitions.clone(), None)
            }
            true => (value.partitions.clone(), Some(now.mono)),
            false => (BTreeSet::new(), None),
        };
        let id: Arc<str> = match self.ids.get_key_value(id.as_str()) {
            Some((id, _)) => id.clone(),
            None => id.into(),
        };
        let before = self.ids.remove(&id);
        let (alarm, parked, runs_out) = before
            .map(|e| (e.alarm, e.parked, e.runs_out))
            .unwrap_or_default();
        let entry = Entry {
            value,
            changed_at: end,
            waiting,
            write_at,
            parked,
            runs_out,
            alarm,
        };
        self.ids.insert(id.clone(), entry);
        if !self.loading {
            self.rearm(&id, now);
        }
    }

    /// Performs a soft change of a decision of this shard.
    pub fn soft(&mut self, change: Soft, now: Now) {
        let id = match change.0 {
            SoftChange::Writing(id) => {
                if let Some(entry) = self.ids.get_mut(&id) {
                    entry.write_at = None;
                }
                id
            }
            SoftChange::Written { id, done, again } => {
                if let Some(entry) = self.ids.get_mut(&id) {
                    for place in &done {
                        entry.waiting.remove(place);
                    }
                    entry.write_at = Some(again);
                }
                id
            }
            SoftChange::Parked(id, parked) => {
                if let Some(entry) = self.ids.get_mut(&id) {
                    entry.parked.push_back(parked);
                }
                id
            }
            SoftChange::Unparked(id) => {
                if let Some(entry) = self.ids.get_mut(&id) {
                    entry.parked.pop_front();
                }
                id
            }
        };
        self.rearm(&id, now);
    }

    fn rearm(&mut self, id: &Arc<str>, now: Now) {
        let Some(entry) = self.ids.get_mut(id) else {
            return;
        };
        entry.note_when_it_runs_out(now);
        let at = entry.deadline(&self.settings, now);
        if let Some(before) = std::mem::replace(&mut entry.alarm, at) {
            self.alarms.remove(&(before, id.clone()));
        }
        if let Some(at) = at {
            self.alarms.insert((at, id.clone()));
        }
    }

    /// While appends lag, or can't be made, no transaction runs out: none does before `until`.
    pub fn hold(&mut self, until: Duration) {
        self.held_until = self.held_until.max(until);
    }

    /// What time brings: transactions that ran out, markers that are to be written (again), ids that nobody uses. Call it at
    /// [`TransactionShard::next_deadline`], and after each decision that was performed, for as long as that deadline is not
    /// after `now`. `cluster`: the level of the feature `transaction.version`.
    pub fn decide_timers(&self, cluster: TransactionVersion, now: Now) -> Decision {
        let mut out = Out::new(cluster);
        if self.held_until > now.mono {
            return out.finish(|_| Vec::new());
        }
        let due = self.alarms.iter().take_while(|(at, _)| *at <= now.mono);
        for (_, id) in due.take(STEP_IDS) {
            if out.records.len() >= STEP_RECORDS {
                break;
            }
            let Some(entry) = self.ids.get(id) else {
                continue;
            };
            match entry.value.state {
                TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                    if let Some(first) = entry.parked.front().filter(|p| p.until <= now.mono) {
                        let error = TransactionAnswer::Error(ErrorCode::CONCURRENT_TRANSACTIONS);
                        entry.unpark(id, first, error, &mut out);
                    }
                    if entry.write_at.is_some_and(|at| at <= now.mono) {
                        entry.go_on(id, now, &mut out);
                    }
                }
                _ if let Some(first) = entry.parked.front() => {
                    entry.let_in(id, first, now, &mut out);
                }
                TransactionState::Ongoing => {
                    sometimes(Mark::TransactionRanOut);
                    let aborted = entry.value.fenced(cluster, now.wall_ms);
                    out.record(id, Some(&aborted));
                }
                _ => out.record(id, None),
            }
        }
        // What was once stored can be written again.
        out.finish(|_| Vec::new())
    }

    /// When [`TransactionShard::decide_timers`] has something to do, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        let (at, _) = self.alarms.first()?;
        Some((*at).max(self.held_until))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &TransactionValue)> {
        self.ids.iter().map(|(id, entry)| (&**id, &entry.value))
    }

    /// What is known of an id, and the position up to which that was read.
    pub(super) fn find(&self, id: &str) -> (Option<&TransactionValue>, Offset) {
        match self.ids.get(id) {
            Some(entry) => (Some(&entry.value), entry.changed_at),
            None => (None, self.removed_at),
        }
    }
}

impl Entry {
    /// A decided transaction: its missing markers, or its end.
    fn go_on(&self, id: &Arc<str>, now: Now, out: &mut Out) {
        let value = &self.value;
        let one_forgotten = active(Mutant::LastMarkerForgotten) && self.waiting.len() == 1;
        if self.waiting.is_empty() || one_forgotten {
            return out.record(id, Some(&value.completed(now.wall_ms)));
        }
        out.soft.push(Soft(SoftChange::Writing(id.clone())));
        out.effects.push(Effect {
            body: WriteMarkers {
                id: id.to_string(),
                prepared_at: self.changed_at,
                producer_id: value.producer_id,
                epoch: value.epoch,
                commit: value.state == TransactionState::PrepareCommit,
                version: value.version,
                partitions: self.waiting.clone(),
            },
            after: self.changed_at,
        });
    }

    /// The first request that waited: the transaction before its own is through.
    fn let_in(&self, id: &Arc<str>, first: &Parked, now: Now, out: &mut Out) {
        let answer = match decide::added(Some(&self.value), &first.command, now) {
            decide::Outcome::Answer(answer) => answer,
            decide::Outcome::Change(value, answer) => {
                out.record(id, Some(&value));
                answer
            }
        };
        self.unpark(id, first, answer, out);
    }

    fn unpark(&self, id: &Arc<str>, first: &Parked, answer: TransactionAnswer, out: &mut Out) {
        out.answer(first.token, self.changed_at, answer);
        out.soft.push(Soft(SoftChange::Unparked(id.clone())));
    }

    fn note_when_it_runs_out(&mut self, now: Now) {
        let value = &self.value;
        if value.state != TransactionState::Ongoing {
            self.runs_out = None;
            return;
        }
        let begun = value.started_ms;
        if self.runs_out.is_none_or(|(of, _)| of != begun) {
            let timeout = Duration::from_millis(u64::try_from(value.timeout_ms).unwrap_or(0));
            let left = left_of(timeout, begun, TRANSACTION_AFTER_LOAD, now);
            self.runs_out = Some((begun, now.mono.saturating_add(left)));
        }
    }

    /// When time changes this id.
    fn deadline(&self, settings: &TransactionSettings, now: Now) -> Option<Duration> {
        let value = &self.value;
        match value.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                let parked = self.parked.front().map(|first| first.until);
                parked.into_iter().chain(self.write_at).min()
            }
            _ if !self.parked.is_empty() => Some(now.mono),
            TransactionState::Ongoing if active(Mutant::TimeOutForgotten) => None,
            TransactionState::Ongoing => self.runs_out.map(|(_, at)| at),
            _ => {
                let expiration = settings.id_expiration;
                let left = left_of(expiration, value.updated_ms, ID_AFTER_LOAD, now);
                Some(now.mono.saturating_add(left))
            }
        }
    }
}

/// What is left of a time that began at `begun_ms` on the wall clock: `least` (or all of it, if that is less) however far that clock
/// went meanwhile, and never more than all of it when it was set back.
fn left_of(whole: Duration, begun_ms: i64, least: Duration, now: Now) -> Duration {
    let passed = u64::try_from(now.wall_ms.saturating_sub(begun_ms)).unwrap_or(0);
    let left = whole.saturating_sub(Duration::from_millis(passed));
    left.max(least.min(whole))
}

/// Collects a [`Decision`].
struct Out {
    cluster: TransactionVersion,
    records: Vec<StoredRecord>,
    soft: Vec<Soft>,
    answers: Vec<Answer>,
    effects: Vec<Effect<WriteMarkers>>,
    failed: Option<EncodeError>,
}

impl Out {
    fn new(cluster: TransactionVersion) -> Out {
        Out {
            cluster,
            records: Vec::new(),
            soft: Vec::new(),
            answers: Vec::new(),
            effects: Vec::new(),
            failed: None,
        }
    }

    fn record(&mut self, id: &str, value: Option<&TransactionValue>) {
        match records::encode(id, value, self.cluster) {
            Ok(stored) => self.records.push(stored),
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    fn answer(&mut self, token: Token, after: Offset, body: TransactionAnswer) {
        self.answers.push(Answer { token, body, after });
    }

    /// The decision. When a record can't be written (a name of more than 32,767 bytes), nothing happens at all, and
    /// `refused` tells the sender.
    fn finish(self, refused: impl FnOnce(ErrorCode) -> Vec<Answer>) -> Decision {
        if self.failed.is_some() {
            return Decision {
                answers: refused(ErrorCode::INVALID_REQUEST),
                ..Decision::default()
            };
        }
        Decision {
            records: self.records,
            soft: self.soft,
            answers: self.answers,
            effects: self.effects,
        }
    }
}
