//! What leaders and coordinators of share groups say to each other.

use riverlog_core::share::{
    DeliveryState, ShareCommand, ShareKey, ShareState, ShareSummary, StateBatch, StateUpdate,
};
use riverlog_wire::primitives::{DecodeError, Reader};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use super::{MessageError, Out, unknown};
use crate::share::{ShareQuestion, ShareSaid};

/// Bytes that a batch takes at least.
const BATCH_BYTES: usize = 28;

/// The tag of how far away a batch's time was, which builds before it existed don't say.
const REST: u32 = 0;

mod question {
    pub(super) const INITIALIZE: u8 = 0;
    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const SUMMARY: u8 = 4;
    pub(super) const END: u8 = 5;
    pub(super) const FORGET: u8 = 6;
    pub(super) const BURY: u8 = 7;
}

mod said {
    pub(super) const FAILED: u8 = 0;
    pub(super) const DONE: u8 = 1;
    pub(super) const STATE: u8 = 2;
    pub(super) const SUMMARY: u8 = 3;
    pub(super) const NOTHING: u8 = 4;
    pub(super) const END: u8 = 5;
}

fn write_key(w: &mut Out<'_>, key: &ShareKey) {
    w.compact_string(&key.group);
    w.uuid(key.topic);
    w.i32(key.partition);
}

fn read_key(r: &mut Reader<'_>) -> Result<ShareKey, DecodeError> {
    Ok(ShareKey {
        group: r.compact_string()?.to_owned(),
        topic: r.uuid()?,
        partition: r.i32()?,
    })
}

fn write_batches(w: &mut Out<'_>, batches: &[StateBatch]) {
    w.compact_array_len(batches.len());
    for batch in batches {
        w.i64(batch.first.0);
        w.i64(batch.last.0);
        w.i8(batch.state.number());
        w.i16(batch.delivery_count);
        w.i64(batch.not_before);
        match batch.rest {
            0 => w.empty_tagged_fields(),
            rest => {
                w.tagged_fields_len(1);
                w.tagged_field(REST, |w| w.i64(rest));
            }
        }
    }
}

fn read_batches(r: &mut Reader<'_>) -> Result<Vec<StateBatch>, MessageError> {
    let len = r.compact_array_len(BATCH_BYTES)?;
    let mut batches = Vec::new();
    for _ in 0..len {
        let (first, last) = (Offset(r.i64()?), Offset(r.i64()?));
        let number = r.i8()?;
        let state = DeliveryState::from_number(number);
        let mut batch = StateBatch {
            first,
            last,
            state: state.ok_or_else(|| unknown("delivery state", number.unsigned_abs().into()))?,
            delivery_count: r.i16()?,
            not_before: r.i64()?,
            rest: 0,
        };
        r.tagged_fields(|tag, r| {
            if tag == REST {
                batch.rest = r.i64()?;
            }
            Ok(tag == REST)
        })?;
        batches.push(batch);
    }
    Ok(batches)
}

pub(super) fn write_question(w: &mut Out<'_>, question: &ShareQuestion) {
    let key = question.key();
    match question {
        ShareQuestion::Tell(ShareCommand::Initialize {
            state_epoch, start, ..
        }) => {
            w.u8(question::INITIALIZE);
            write_key(w, key);
            w.i32(state_epoch.unwrap_or(-1));
            w.i64(start.0);
        }
        ShareQuestion::Tell(ShareCommand::Read { leader_epoch, .. }) => {
            w.u8(question::READ);
            write_key(w, key);
            w.i32(leader_epoch.0);
        }
        ShareQuestion::Tell(ShareCommand::Write {
            state_epoch,
            leader_epoch,
            update,
            ..
        }) => {
            w.u8(question::WRITE);
            write_key(w, key);
            w.i32(*state_epoch);
            w.i32(leader_epoch.0);
            w.i64(update.start.0);
            w.i32(update.complete);
            write_batches(w, &update.batches);
        }
        ShareQuestion::Tell(ShareCommand::Delete { .. }) => {
            w.u8(question::DELETE);
            write_key(w, key);
        }
        ShareQuestion::Summary(_) => {
            w.u8(question::SUMMARY);
            write_key(w, key);
        }
        ShareQuestion::End(_) => {
            w.u8(question::END);
            write_key(w, key);
        }
        ShareQuestion::Forget(_) => {
            w.u8(question::FORGET);
            write_key(w, key);
        }
        ShareQuestion::Bury(_, batch) => {
            w.u8(question::BURY);
            write_key(w, key);
            w.compact_bytes(batch);
        }
    }
}

/// Whether a question of that kind does no harm when it comes twice: all do but batches of dead letters, which would be there twice.
pub(super) fn may_come_twice(kind: u8) -> bool {
    matches!(
        kind,
        question::INITIALIZE
            | question::READ
            | question::WRITE
            | question::DELETE
            | question::SUMMARY
            | question::END
            | question::FORGET
    )
}

pub(super) fn read_question(r: &mut Reader<'_>) -> Result<ShareQuestion, MessageError> {
    let kind = r.u8()?;
    let key = read_key(r)?;
    Ok(match kind {
        question::INITIALIZE => ShareQuestion::Tell(ShareCommand::Initialize {
            key,
            state_epoch: Some(r.i32()?).filter(|epoch| *epoch >= 0),
            start: Offset(r.i64()?),
        }),
        question::READ => ShareQuestion::Tell(ShareCommand::Read {
            key,
            leader_epoch: LeaderEpoch(r.i32()?),
        }),
        question::WRITE => ShareQuestion::Tell(ShareCommand::Write {
            key,
            state_epoch: r.i32()?,
            leader_epoch: LeaderEpoch(r.i32()?),
            update: StateUpdate {
                start: Offset(r.i64()?),
                complete: r.i32()?,
                batches: read_batches(r)?,
            },
        }),
        question::DELETE => ShareQuestion::Tell(ShareCommand::Delete { key }),
        question::SUMMARY => ShareQuestion::Summary(key),
        question::END => ShareQuestion::End(key),
        question::FORGET => ShareQuestion::Forget(key),
        question::BURY => ShareQuestion::Bury(key, r.compact_shared_bytes()?),
        value => return Err(unknown("question of share groups", value.into())),
    })
}

pub(super) fn write_answer(w: &mut Out<'_>, answer: &Result<ShareSaid, ErrorCode>) {
    match answer {
        Err(error) => {
            w.u8(said::FAILED);
            w.i16(error.0);
        }
        Ok(ShareSaid::Done) => w.u8(said::DONE),
        Ok(ShareSaid::State(state)) => {
            w.u8(said::STATE);
            w.i32(state.state_epoch);
            w.i32(state.leader_epoch.0);
            w.i64(state.start.0);
            write_batches(w, &state.batches);
        }
        Ok(ShareSaid::Summary(Some(summary))) => {
            w.u8(said::SUMMARY);
            w.i32(summary.state_epoch);
            w.i32(summary.leader_epoch.0);
            w.i64(summary.start.0);
            w.i32(summary.complete);
        }
        Ok(ShareSaid::Summary(None)) => w.u8(said::NOTHING),
        Ok(ShareSaid::End(end)) => {
            w.u8(said::END);
            w.i64(end.0);
        }
    }
}

pub(super) fn read_answer(
    r: &mut Reader<'_>,
) -> Result<Result<ShareSaid, ErrorCode>, MessageError> {
    Ok(match r.u8()? {
        said::FAILED => Err(ErrorCode(r.i16()?)),
        said::DONE => Ok(ShareSaid::Done),
        said::STATE => Ok(ShareSaid::State(ShareState {
            state_epoch: r.i32()?,
            leader_epoch: LeaderEpoch(r.i32()?),
            start: Offset(r.i64()?),
            batches: read_batches(r)?,
        })),
        said::SUMMARY => Ok(ShareSaid::Summary(Some(ShareSummary {
            state_epoch: r.i32()?,
            leader_epoch: LeaderEpoch(r.i32()?),
            start: Offset(r.i64()?),
            complete: r.i32()?,
        }))),
        said::NOTHING => Ok(ShareSaid::Summary(None)),
        said::END => Ok(ShareSaid::End(Offset(r.i64()?))),
        value => return Err(unknown("answer about share groups", value.into())),
    })
}
