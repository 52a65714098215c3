//! What the leaders of bounded partitions and coordinators of groups say to each other.

use riverlog_wire::primitives::{DecodeError, Reader};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use super::{MessageError, Out, read_key, unknown, write_key};
use crate::groups::least::{Least, LeastAsk};

/// Stands for no offset.
const NONE: Offset = Offset(-1);

/// Bytes that a shard takes.
const SHARD_BYTES: usize = 8;

const FAILED: u8 = 0;
const LEAST: u8 = 1;

pub(super) fn write_ask(w: &mut Out<'_>, ask: &LeastAsk) {
    write_key(w, ask.key);
    w.i64(ask.start.0);
    w.i64(ask.drops.unwrap_or(NONE).0);
    w.compact_array_len(ask.shards.len());
    for (index, epoch) in &ask.shards {
        w.i32(*index);
        w.i32(epoch.0);
    }
}

pub(super) fn read_ask(r: &mut Reader<'_>) -> Result<LeastAsk, DecodeError> {
    Ok(LeastAsk {
        key: read_key(r)?,
        start: Offset(r.i64()?),
        drops: read_offset(r)?,
        shards: {
            let len = r.compact_array_len(SHARD_BYTES)?;
            r.elements(len, |r| {
                Ok::<_, DecodeError>((r.i32()?, LeaderEpoch(r.i32()?)))
            })?
        },
    })
}

pub(super) fn write_answer(w: &mut Out<'_>, answer: Least) {
    match answer {
        Err(error) => {
            w.u8(FAILED);
            w.i16(error.0);
        }
        Ok(least) => {
            w.u8(LEAST);
            w.i64(least.unwrap_or(NONE).0);
        }
    }
}

pub(super) fn read_answer(r: &mut Reader<'_>) -> Result<Least, MessageError> {
    match r.u8()? {
        FAILED => Ok(Err(ErrorCode(r.i16()?))),
        LEAST => Ok(Ok(read_offset(r)?)),
        value => Err(unknown("answer about commits", u32::from(value))),
    }
}

fn read_offset(r: &mut Reader<'_>) -> Result<Option<Offset>, DecodeError> {
    Ok(Some(Offset(r.i64()?)).filter(|offset| *offset >= Offset::ZERO))
}
