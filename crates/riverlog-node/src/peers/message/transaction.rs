//! Questions about transactions as bytes.

use riverlog_core::transactions::{
    Place, TransactionAnswer, TransactionCommand, TransactionVersion,
};
use riverlog_log::Marker;
use riverlog_wire::primitives::{DecodeError, Reader};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use super::{MessageError, Out, unknown};

const ADD: u8 = 1;
const VERIFY: u8 = 2;

const ERROR: u8 = 0;
const PARTITIONS: u8 = 1;

/// `None` for what leaders don't ask.
pub(super) fn write_command(w: &mut Out<'_>, command: &TransactionCommand) -> Option<()> {
    let (what, id, producer_id, epoch, partitions, version) = match command {
        TransactionCommand::Add {
            id,
            producer_id,
            epoch,
            partitions,
            version,
        } => (ADD, id, producer_id, epoch, partitions, *version),
        TransactionCommand::Verify {
            id,
            producer_id,
            epoch,
            partitions,
        } => {
            let any = TransactionVersion::default();
            (VERIFY, id, producer_id, epoch, partitions, any)
        }
        _ => return None,
    };
    w.u8(what);
    w.compact_string(id);
    w.i64(producer_id.0);
    w.i16(epoch.0);
    w.i16(version.0);
    w.compact_array_len(partitions.len());
    for (topic, partition) in partitions {
        w.compact_string(topic);
        w.i32(*partition);
    }
    Some(())
}

pub(super) fn read_command(r: &mut Reader<'_>) -> Result<TransactionCommand, MessageError> {
    let what = r.u8()?;
    let id = r.compact_string()?.to_owned();
    let (producer_id, epoch) = (ProducerId(r.i64()?), ProducerEpoch(r.i16()?));
    let version = TransactionVersion(r.i16()?);
    let len = r.compact_array_len(5)?;
    let partitions = r.elements(len, |r| -> Result<Place, DecodeError> {
        Ok((r.compact_string()?.to_owned(), r.i32()?))
    })?;
    match what {
        ADD => Ok(TransactionCommand::Add {
            id,
            producer_id,
            epoch,
            partitions,
            version,
        }),
        VERIFY => Ok(TransactionCommand::Verify {
            id,
            producer_id,
            epoch,
            partitions,
        }),
        value => Err(unknown("question", u32::from(value))),
    }
}

pub(super) fn write_marker(w: &mut Out<'_>, marker: &Marker) {
    w.i64(marker.producer_id.0);
    w.i16(marker.producer_epoch.0);
    w.i32(marker.coordinator_epoch);
    w.i16(marker.transaction_version);
    w.bool(marker.committed);
}

pub(super) fn read_marker(r: &mut Reader<'_>) -> Result<Marker, DecodeError> {
    Ok(Marker {
        producer_id: ProducerId(r.i64()?),
        producer_epoch: ProducerEpoch(r.i16()?),
        coordinator_epoch: r.i32()?,
        transaction_version: r.i16()?,
        committed: r.bool()?,
    })
}

/// `None` for what isn't an answer to a leader.
pub(super) fn write_answer(w: &mut Out<'_>, answer: &TransactionAnswer) -> Option<()> {
    match answer {
        TransactionAnswer::Error(error) => {
            w.u8(ERROR);
            w.i16(error.0);
        }
        TransactionAnswer::Partitions(each) => {
            w.u8(PARTITIONS);
            w.compact_array_len(each.len());
            for error in each {
                w.i16(error.0);
            }
        }
        TransactionAnswer::NeedsProducerId | TransactionAnswer::Producer { .. } => return None,
    }
    Some(())
}

pub(super) fn read_answer(r: &mut Reader<'_>) -> Result<TransactionAnswer, MessageError> {
    match r.u8()? {
        ERROR => Ok(TransactionAnswer::Error(ErrorCode(r.i16()?))),
        PARTITIONS => {
            let len = r.compact_array_len(2)?;
            let each = r.elements(len, |r| Ok::<_, DecodeError>(ErrorCode(r.i16()?)))?;
            Ok(TransactionAnswer::Partitions(each))
        }
        value => Err(unknown("answer", u32::from(value))),
    }
}
