//! Control records: markers of the log itself, alone in batches with the control attribute.
//!
//! ```text
//! key: version i16 = 0, type i16        value of abort and commit: version i16 = 0, coordinator epoch i32
//! ```

#[cfg(test)]
mod tests;

use super::{BatchBuilder, RecordRef};
use crate::compression::Compression;
use crate::primitives::{DecodeError, Reader};
use crate::{ProducerEpoch, ProducerId, Sequence};

/// What a control record marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlType {
    /// The producer's transaction was aborted: skip its records.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// A metadata leader took over (KIP-595).
    LeaderChange,
    /// A metadata snapshot begins (KIP-630).
    SnapshotHeader,
    /// A metadata snapshot ends (KIP-630).
    SnapshotFooter,
    /// The version of the quorum's protocol (KIP-853).
    KraftVersion,
    /// The quorum's voters (KIP-853).
    KraftVoters,
    /// A type that came after Kafka 4.4; skipped.
    Unknown(i16),
}

impl ControlType {
    /// The number in the record's key.
    pub fn id(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::LeaderChange => 2,
            ControlType::SnapshotHeader => 3,
            ControlType::SnapshotFooter => 4,
            ControlType::KraftVersion => 5,
            ControlType::KraftVoters => 6,
            ControlType::Unknown(id) => id,
        }
    }

    /// By its number.
    pub fn from_id(id: i16) -> ControlType {
        match id {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            2 => ControlType::LeaderChange,
            3 => ControlType::SnapshotHeader,
            4 => ControlType::SnapshotFooter,
            5 => ControlType::KraftVersion,
            6 => ControlType::KraftVoters,
            id => ControlType::Unknown(id),
        }
    }

    /// From a control record's key. Longer keys of later versions are read as far as they are known.
    pub fn parse(key: &[u8]) -> Result<ControlType, DecodeError> {
        let mut r = Reader::new(key);
        version(&mut r, "control record key's version")?;
        Ok(ControlType::from_id(r.i16()?))
    }

    /// A control record's key.
    pub fn key(self) -> [u8; 4] {
        let [high, low] = self.id().to_be_bytes();
        [0, 0, high, low]
    }
}

/// Versions count up from 0; later ones append fields.
fn version(r: &mut Reader<'_>, what: &'static str) -> Result<(), DecodeError> {
    let value = r.i16()?;
    if value < 0 {
        return Err(DecodeError::Value {
            at: r.position(),
            what,
            value: i64::from(value),
        });
    }
    Ok(())
}

/// The end of a transaction in one partition, as its coordinator had it written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndTxnMarker {
    /// Whether the records count.
    pub committed: bool,
    /// Epoch of the coordinator's partition leader; fences markers of older coordinators.
    pub coordinator_epoch: i32,
}

impl EndTxnMarker {
    /// From a control record; `None` when it marks something else.
    pub fn parse(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Option<EndTxnMarker>, DecodeError> {
        let committed = match ControlType::parse(key.unwrap_or_default())? {
            ControlType::Abort => false,
            ControlType::Commit => true,
            _ => return Ok(None),
        };
        let mut r = Reader::new(value.unwrap_or_default());
        version(&mut r, "end-transaction marker's version")?;
        Ok(Some(EndTxnMarker {
            committed,
            coordinator_epoch: r.i32()?,
        }))
    }

    /// As [`EndTxnMarker::parse`], of a whole record.
    pub fn of(record: &RecordRef<'_>) -> Result<Option<EndTxnMarker>, DecodeError> {
        EndTxnMarker::parse(record.key, record.value)
    }

    /// Which control record it is.
    pub fn control_type(&self) -> ControlType {
        if self.committed {
            ControlType::Commit
        } else {
            ControlType::Abort
        }
    }

    /// The record's value.
    pub fn value(&self) -> [u8; 6] {
        let [a, b, c, d] = self.coordinator_epoch.to_be_bytes();
        [0, 0, a, b, c, d]
    }

    /// The whole batch to append, with base offset 0 and leader epoch −1. It carries no sequence.
    pub fn batch(&self, id: ProducerId, epoch: ProducerEpoch, now_ms: i64) -> Vec<u8> {
        BatchBuilder::new(Compression::None)
            .producer(id, epoch, Sequence::NONE)
            .transactional()
            .control()
            .push(
                now_ms,
                Some(&self.control_type().key()),
                Some(&self.value()),
                &[],
            )
            .build()
    }
}
