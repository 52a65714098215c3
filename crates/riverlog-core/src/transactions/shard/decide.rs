//! Commands: what they are answered, and what is written.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId};

use super::{MAX_PARKED, Out, PATIENCE, Parked, SoftChange, TransactionShard};
use crate::Now;
use crate::transactions::value::{TransactionState, TransactionValue, is_exhausted};
use crate::transactions::{
    Answer, Decision, Place, Soft, Token, TransactionAnswer, TransactionCommand, TransactionVersion,
};

/// What a command comes to.
pub(super) enum Outcome {
    /// Nothing changes.
    Answer(TransactionAnswer),
    /// A new value, and what is answered when it is durable.
    Change(Box<TransactionValue>, TransactionAnswer),
}

impl From<TransactionAnswer> for Outcome {
    fn from(answer: TransactionAnswer) -> Outcome {
        Outcome::Answer(answer)
    }
}

impl TransactionAnswer {
    /// An error of Init or End.
    pub fn no_producer(error: ErrorCode) -> TransactionAnswer {
        TransactionAnswer::Producer {
            error,
            producer_id: ProducerId::NONE,
            epoch: ProducerEpoch::NONE,
        }
    }

    /// The same kind of answer, refused.
    pub fn with_error(self, error: ErrorCode) -> TransactionAnswer {
        match self {
            TransactionAnswer::NeedsProducerId | TransactionAnswer::Producer { .. } => {
                TransactionAnswer::no_producer(error)
            }
            TransactionAnswer::Error(_) => TransactionAnswer::Error(error),
            TransactionAnswer::Partitions(each) => {
                TransactionAnswer::Partitions(vec![error; each.len()])
            }
        }
    }

    fn producer((producer_id, epoch): (ProducerId, ProducerEpoch)) -> TransactionAnswer {
        TransactionAnswer::Producer {
            error: ErrorCode::NONE,
            producer_id,
            epoch,
        }
    }
}

impl TransactionCommand {
    /// Gives it a producer id that nobody has.
    pub fn set_fresh(&mut self, id: ProducerId) {
        if let TransactionCommand::Init { fresh, .. } | TransactionCommand::End { fresh, .. } = self
        {
            *fresh = Some(id);
        }
    }

    /// What it is answered when it can't be carried out.
    pub fn refused(&self, error: ErrorCode) -> TransactionAnswer {
        match self {
            TransactionCommand::Init { .. } | TransactionCommand::End { .. } => {
                TransactionAnswer::no_producer(error)
            }
            TransactionCommand::Add { .. } | TransactionCommand::MarkersWritten { .. } => {
                TransactionAnswer::Error(error)
            }
            TransactionCommand::Verify { partitions, .. } => {
                TransactionAnswer::Partitions(vec![error; partitions.len()])
            }
        }
    }
}

/// Who acts on a transaction.
#[derive(Clone, Copy)]
struct Producer {
    id: ProducerId,
    epoch: ProducerEpoch,
}

impl TransactionShard {
    /// Decides a command. `cluster`: the level of the feature `transaction.version`.
    pub fn decide(
        &self,
        command: TransactionCommand,
        token: Token,
        cluster: TransactionVersion,
        now: Now,
    ) -> Decision {
        let mut out = Out::new(cluster);
        let (value, after) = self.find(command.id());
        let refused = move |answer| {
            vec![Answer {
                token,
                body: answer,
                after: Offset::ZERO,
            }]
        };
        if command.id().is_empty() {
            let answers = refused(command.refused(ErrorCode::INVALID_REQUEST));
            return Decision {
                answers,
                ..Decision::default()
            };
        }
        let outcome = match &command {
            TransactionCommand::Init {
                timeout_ms,
                resume,
                fresh,
                ..
            } => self.init(value, *timeout_ms, *resume, *fresh, cluster, now),
            TransactionCommand::Add { id, .. } => {
                let outcome = added(value, &command, now);
                if let Outcome::Answer(TransactionAnswer::Error(error)) = &outcome
                    && *error == ErrorCode::CONCURRENT_TRANSACTIONS
                    && let Some(parked) = self.parked(id, token, &command, now)
                {
                    out.soft.push(parked);
                    return out.finish(|_| Vec::new());
                }
                outcome
            }
            TransactionCommand::Verify {
                producer_id: id,
                epoch,
                partitions,
                ..
            } => {
                let who = Producer {
                    id: *id,
                    epoch: *epoch,
                };
                verify(value, who, partitions).into()
            }
            TransactionCommand::End {
                producer_id: id,
                epoch,
                commit,
                version,
                fresh,
                ..
            } => {
                let who = Producer {
                    id: *id,
                    epoch: *epoch,
                };
                end(value, who, *commit, *version, *fresh, now)
            }
            TransactionCommand::MarkersWritten {
                id,
                prepared_at,
                done,
            } => {
                self.markers_written(id, *prepared_at, done, now, &mut out);
                TransactionAnswer::Error(ErrorCode::NONE).into()
            }
        };
        match outcome {
            Outcome::Answer(answer) => out.answer(token, after, answer),
            Outcome::Change(value, answer) => {
                out.record(command.id(), Some(&value));
                out.answer(token, after, answer);
            }
        }
        out.finish(|error| refused(command.refused(error)))
    }

    fn init(
        &self,
        value: Option<&TransactionValue>,
        timeout_ms: i32,
        resume: Option<(ProducerId, ProducerEpoch)>,
        fresh: Option<ProducerId>,
        cluster: TransactionVersion,
        now: Now,
    ) -> Outcome {
        let allowed = u64::try_from(timeout_ms)
            .is_ok_and(|ms| ms > 0 && u128::from(ms) <= self.settings.max_timeout.as_millis());
        if !allowed {
            let error = ErrorCode::INVALID_TRANSACTION_TIMEOUT;
            return TransactionAnswer::no_producer(error).into();
        }
        let change = |value: TransactionValue| {
            let answer = TransactionAnswer::producer((value.producer_id, value.epoch));
            Outcome::Change(Box::new(value), answer)
        };
        let Some(value) = value else {
            // Also for a client that goes on: what it was is forgotten, and nobody else has it.
            let Some(fresh) = fresh else {
                return TransactionAnswer::NeedsProducerId.into();
            };
            let value = TransactionValue::new(fresh, timeout_ms, now.wall_ms);
            let none = ProducerEpoch::NONE;
            return change(value.initialised(ProducerEpoch(0), none, timeout_ms, now.wall_ms));
        };
        let fenced = TransactionAnswer::no_producer(ErrorCode::PRODUCER_FENCED);
        if let Some((id, epoch)) = resume {
            // A client that was given a new producer id, and missed the answer, still has the last epoch of the old one.
            let missed = id == value.previous_producer_id && is_exhausted(epoch);
            if id != value.producer_id && !missed {
                return fenced.into();
            }
        }
        let wait = TransactionAnswer::no_producer(ErrorCode::CONCURRENT_TRANSACTIONS);
        match value.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => wait.into(),
            // Also for an old instance that goes on: as in Kafka it aborts the transaction of the one that fenced it, and is
            // refused when it comes again.
            TransactionState::Ongoing => {
                if value.epoch.0 == i16::MAX {
                    let error = ErrorCode::UNKNOWN_SERVER_ERROR;
                    return TransactionAnswer::no_producer(error).into();
                }
                // The epoch that fences is never given out: whoever asked comes again, and gets the one after it. But for the producer that
                // gives its own transaction up, having no answer to its end: that one goes on with it, as with the answer to an abort.
                let mut fence = value.fenced(cluster, now.wall_ms);
                if resume == Some((value.producer_id, value.epoch)) {
                    fence.last_epoch = value.epoch;
                }
                Outcome::Change(Box::new(fence), wait)
            }
            _ => {
                let expected = resume.map(|(_, epoch)| epoch);
                if is_exhausted(value.epoch) && expected.is_none_or(|e| e == value.epoch) {
                    let Some(fresh) = fresh else {
                        return TransactionAnswer::NeedsProducerId.into();
                    };
                    let resumes = expected.is_some();
                    return change(value.rotated(fresh, resumes, timeout_ms, now.wall_ms));
                }
                let by = i16::from(!active(Mutant::InstanceNotFenced));
                let bumped = ProducerEpoch(value.epoch.0.saturating_add(by));
                let (epoch, last) = match expected {
                    None => (bumped, ProducerEpoch::NONE),
                    Some(e) if e == value.epoch => (bumped, value.epoch),
                    // It missed the answer to a bump; nobody was initialised since.
                    Some(e) if e == value.last_epoch => (value.epoch, value.last_epoch),
                    Some(_) => return fenced.into(),
                };
                change(value.initialised(epoch, last, timeout_ms, now.wall_ms))
            }
        }
    }

    /// Lets a request wait for the end of the transaction before its own; `None` when too many do.
    fn parked(
        &self,
        id: &str,
        token: Token,
        command: &TransactionCommand,
        now: Now,
    ) -> Option<Soft> {
        let (id, entry) = self.ids.get_key_value(id)?;
        let parked = Parked {
            token,
            command: command.clone(),
            until: now.mono.saturating_add(PATIENCE),
        };
        (entry.parked.len() < MAX_PARKED).then(|| Soft(SoftChange::Parked(id.clone(), parked)))
    }

    fn markers_written(
        &self,
        id: &str,
        prepared_at: Offset,
        done: &[Place],
        now: Now,
        out: &mut Out,
    ) {
        let Some((id, entry)) = self.ids.get_key_value(id) else {
            return;
        };
        // An answer to an earlier decision, or to an earlier life of this one.
        if !entry.value.state.is_prepared() || entry.changed_at != prepared_at {
            return;
        }
        // The end itself is written by the timers that follow: it is tried again when there is no room for it.
        let taken: BTreeSet<&Place> = done.iter().collect();
        let missing = entry.waiting.iter().any(|place| !taken.contains(place));
        let wait = if missing {
            super::RETRY
        } else {
            Duration::ZERO
        };
        out.soft.push(Soft(SoftChange::Written {
            id: id.clone(),
            done: done.to_vec(),
            again: now.mono.saturating_add(wait),
        }));
    }
}

/// Whether it is the producer that the transactional id has now.
fn check(value: Option<&TransactionValue>, who: Producer) -> Result<&TransactionValue, ErrorCode> {
    let value = value.ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
    if value.producer_id != who.id {
        return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    }
    if value.epoch != who.epoch && !active(Mutant::FencedMayAdd) {
        return Err(ErrorCode::PRODUCER_FENCED);
    }
    if value.state.is_prepared() {
        return Err(ErrorCode::CONCURRENT_TRANSACTIONS);
    }
    Ok(value)
}

/// What a [`TransactionCommand::Add`] comes to.
pub(super) fn added(
    value: Option<&TransactionValue>,
    command: &TransactionCommand,
    now: Now,
) -> Outcome {
    let TransactionCommand::Add {
        producer_id: id,
        epoch,
        partitions,
        version,
        ..
    } = command
    else {
        return command.refused(ErrorCode::INVALID_REQUEST).into();
    };
    let who = Producer {
        id: *id,
        epoch: *epoch,
    };
    let answer = TransactionAnswer::Error;
    match check(value, who) {
        Err(error) => answer(error).into(),
        Ok(value)
            if value.state == TransactionState::Ongoing
                && partitions.iter().all(|p| value.partitions.contains(p)) =>
        {
            answer(ErrorCode::NONE).into()
        }
        Ok(value) => {
            let value = value.with(partitions.clone(), *version, now.wall_ms);
            Outcome::Change(Box::new(value), answer(ErrorCode::NONE))
        }
    }
}

fn verify(
    value: Option<&TransactionValue>,
    who: Producer,
    partitions: &[Place],
) -> TransactionAnswer {
    let each = match check(value, who) {
        Err(error) => vec![error; partitions.len()],
        Ok(value) => {
            let open = value.state == TransactionState::Ongoing;
            let one = |place: &Place| match open && value.partitions.contains(place) {
                true => ErrorCode::NONE,
                false => ErrorCode::TRANSACTION_ABORTABLE,
            };
            partitions.iter().map(one).collect()
        }
    };
    TransactionAnswer::Partitions(each)
}

fn end(
    value: Option<&TransactionValue>,
    who: Producer,
    commit: bool,
    version: TransactionVersion,
    fresh: Option<ProducerId>,
    now: Now,
) -> Outcome {
    let checked = match value {
        None => Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING),
        Some(value) if version.bumps_epoch() => check_end(value, who, commit),
        Some(value) => check_end_of_one(value, who, commit),
    };
    let (Some(value), Ok(ends)) = (value, &checked) else {
        let error = checked.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
        return TransactionAnswer::no_producer(error).into();
    };
    if matches!(ends, Ends::Already) {
        sometimes(Mark::EndRepeated);
    }
    match ends {
        Ends::Already if active(Mutant::EndNotRepeatable) => {
            TransactionAnswer::no_producer(ErrorCode::PRODUCER_FENCED).into()
        }
        Ends::Already => TransactionAnswer::producer((value.producer_id, value.epoch)).into(),
        Ends::Now => {
            let mut next = ProducerId::NONE;
            if version.bumps_epoch() && is_exhausted(value.epoch) {
                let Some(fresh) = fresh else {
                    return TransactionAnswer::NeedsProducerId.into();
                };
                next = fresh;
            }
            let value = value.decided(commit, version, next, now.wall_ms);
            let answer = TransactionAnswer::producer(value.after());
            Outcome::Change(Box::new(value), answer)
        }
    }
}

enum Ends {
    Now,
    /// It was ended so before, and the answer was lost.
    Already,
}

/// Version 1: the state alone tells a repeated request.
fn check_end_of_one(
    value: &TransactionValue,
    who: Producer,
    commit: bool,
) -> Result<Ends, ErrorCode> {
    if value.producer_id != who.id {
        return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    }
    if value.epoch != who.epoch {
        return Err(ErrorCode::PRODUCER_FENCED);
    }
    match (value.state, commit) {
        (TransactionState::Ongoing, _) => Ok(Ends::Now),
        (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false) => {
            Ok(Ends::Already)
        }
        // The other decision too: a client whose next transaction didn't get in yet may give that one up, and can't tell
        // INVALID_TXN_STATE from a mistake of its own.
        (TransactionState::PrepareCommit | TransactionState::PrepareAbort, _) => {
            Err(ErrorCode::CONCURRENT_TRANSACTIONS)
        }
        _ => Err(ErrorCode::INVALID_TXN_STATE),
    }
}

/// Version 2: a repeated request has the epoch before the bump. With the same epoch it is the end of the next transaction, which
/// may be empty, and then can only be aborted.
fn check_end(value: &TransactionValue, who: Producer, commit: bool) -> Result<Ends, ErrorCode> {
    let same = value.epoch == who.epoch;
    let bumped = i32::from(value.epoch.0) == i32::from(who.epoch.0) + 1;
    let rotated = value.previous_producer_id == who.id
        && who.epoch.0 == i16::MAX - 1
        && value.epoch == ProducerEpoch(0);
    if value.producer_id != who.id && !rotated {
        return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    }
    let again = bumped || rotated;
    let valid = match value.state {
        // The same: its next transaction didn't get in before this one has ended, and is given up.
        TransactionState::PrepareCommit | TransactionState::PrepareAbort => bumped || same,
        TransactionState::CompleteCommit | TransactionState::CompleteAbort => again || same,
        _ => same,
    };
    if !valid {
        return Err(ErrorCode::PRODUCER_FENCED);
    }
    match (value.state, commit) {
        (TransactionState::Ongoing, _) => Ok(Ends::Now),
        (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false)
            if again =>
        {
            Ok(Ends::Already)
        }
        (TransactionState::PrepareCommit | TransactionState::PrepareAbort, _) => {
            Err(ErrorCode::CONCURRENT_TRANSACTIONS)
        }
        (
            TransactionState::Empty
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort,
            false,
        ) if !again => Ok(Ends::Now),
        _ => Err(ErrorCode::INVALID_TXN_STATE),
    }
}
