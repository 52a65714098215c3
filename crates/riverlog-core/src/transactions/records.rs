//! The records of `__transaction_state`, byte for byte as Kafka 4.4 lays them out.
//!
//! A key begins with the i16 that names its kind, 0, and holds the transactional id. A value begins with an i16 version: 0, or 1 (flexible,
//! with the producer ids before and after, and the client's version) from level 1 of the feature `transaction.version` on. A
//! value of null is a tombstone.

use riverlog_wire::primitives::{DecodeError, EncodeError, Reader, Writer};
use riverlog_wire::{ProducerEpoch, ProducerId};

use super::value::{TransactionState, TransactionValue};
use super::{Place, StoredRecord, TransactionVersion};

const KEY: i16 = 0;

const TAG_PREVIOUS_ID: u32 = 0;
const TAG_NEXT_ID: u32 = 1;
const TAG_CLIENT_VERSION: u32 = 2;
/// Kafka's epoch of a prepared two-phase commit (KIP-939), which isn't served; read over.
const TAG_NEXT_EPOCH: u32 = 3;
/// Ours, far above Kafka's tags.
const TAG_LAST_EPOCH: u32 = 1_000;

/// As stored; `None` is a tombstone. `cluster` is the cluster's level of `transaction.version`. Fails when a name is longer than
/// 32,767 bytes.
pub fn encode(
    id: &str,
    value: Option<&TransactionValue>,
    cluster: TransactionVersion,
) -> Result<StoredRecord, EncodeError> {
    let mut key = Vec::with_capacity(id.len() + 4);
    let mut w = Writer::new(&mut key);
    w.i16(KEY);
    w.string(id);
    w.finish()?;
    let value = match value {
        None => None,
        Some(value) => {
            let mut bytes = Vec::with_capacity(64);
            let mut w = Writer::new(&mut bytes);
            if cluster.0 >= 1 {
                write_flexible(value, &mut w);
            } else {
                write_old(value, &mut w);
            }
            w.finish()?;
            Some(bytes.into())
        }
    };
    Ok(StoredRecord {
        key: key.into(),
        value,
    })
}

/// From storage: transactional id and value. `Ok(None)` for kinds that a newer release made.
pub fn decode(
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<Option<(String, Option<TransactionValue>)>, DecodeError> {
    let mut k = Reader::new(key);
    if k.i16()? != KEY {
        return Ok(None);
    }
    let id = k.string()?.to_owned();
    let Some(bytes) = value else {
        return Ok(Some((id, None)));
    };
    let mut r = Reader::new(bytes);
    let at = r.position();
    let value = match r.i16()? {
        version @ 0..=1 => read(&mut r, version == 1)?,
        version => {
            return Err(DecodeError::Value {
                at,
                what: "version of the value",
                value: i64::from(version),
            });
        }
    };
    Ok(Some((id, Some(value))))
}

/// Partitions by topic, as the records have them; null where there can't be any.
fn topics(value: &TransactionValue) -> Option<Vec<(&str, Vec<i32>)>> {
    if value.state == TransactionState::Empty {
        return None;
    }
    let mut topics: Vec<(&str, Vec<i32>)> = Vec::new();
    for (topic, partition) in &value.partitions {
        match topics.last_mut() {
            Some((last, partitions)) if last == topic => partitions.push(*partition),
            _ => topics.push((topic, vec![*partition])),
        }
    }
    Some(topics)
}

fn write_front(value: &TransactionValue, w: &mut Writer<'_>) {
    w.i64(value.producer_id.0);
    w.i16(value.epoch.0);
    w.i32(value.timeout_ms);
    w.i8(value.state as i8);
}

fn write_old(value: &TransactionValue, w: &mut Writer<'_>) {
    w.i16(0);
    write_front(value, w);
    let topics = topics(value);
    w.nullable_array_len(topics.as_ref().map(Vec::len));
    for (topic, partitions) in topics.unwrap_or_default() {
        w.string(topic);
        w.array_len(partitions.len());
        for partition in partitions {
            w.i32(partition);
        }
    }
    w.i64(value.updated_ms);
    w.i64(value.started_ms);
}

fn write_flexible(value: &TransactionValue, w: &mut Writer<'_>) {
    w.i16(1);
    write_front(value, w);
    let topics = topics(value);
    w.compact_nullable_array_len(topics.as_ref().map(Vec::len));
    for (topic, partitions) in topics.unwrap_or_default() {
        w.compact_string(topic);
        w.compact_array_len(partitions.len());
        for partition in partitions {
            w.i32(partition);
        }
        w.empty_tagged_fields();
    }
    w.i64(value.updated_ms);
    w.i64(value.started_ms);
    let previous = value.previous_producer_id;
    let next = value.next_producer_id;
    let present = [
        previous != ProducerId::NONE,
        next != ProducerId::NONE,
        value.version.0 != 0,
        value.last_epoch != ProducerEpoch::NONE,
    ];
    w.tagged_fields_len(present.into_iter().filter(|p| *p).count());
    if present[0] {
        w.tagged_field(TAG_PREVIOUS_ID, |w| w.i64(previous.0));
    }
    if present[1] {
        w.tagged_field(TAG_NEXT_ID, |w| w.i64(next.0));
    }
    if present[2] {
        w.tagged_field(TAG_CLIENT_VERSION, |w| w.i16(value.version.0));
    }
    if present[3] {
        w.tagged_field(TAG_LAST_EPOCH, |w| w.i16(value.last_epoch.0));
    }
}

fn read(r: &mut Reader<'_>, flexible: bool) -> Result<TransactionValue, DecodeError> {
    let producer_id = ProducerId(r.i64()?);
    let epoch = ProducerEpoch(r.i16()?);
    let timeout_ms = r.i32()?;
    let at = r.position();
    let state = r.i8()?;
    let state = TransactionState::from_id(state).ok_or(DecodeError::Value {
        at,
        what: "state of a transaction",
        value: i64::from(state),
    })?;
    let mut value = TransactionValue {
        state,
        epoch,
        ..TransactionValue::new(producer_id, timeout_ms, 0)
    };
    let topics = match flexible {
        true => r.compact_nullable_array_len(3)?,
        false => r.nullable_array_len(6)?,
    };
    for _ in 0..topics.unwrap_or(0) {
        let (topic, count) = match flexible {
            true => (r.compact_string()?, r.compact_array_len(4)?),
            false => (r.string()?, r.array_len(4)?),
        };
        for _ in 0..count {
            let place: Place = (topic.to_owned(), r.i32()?);
            value.partitions.insert(place);
        }
        if flexible {
            r.skip_tagged_fields()?;
        }
    }
    value.updated_ms = r.i64()?;
    value.started_ms = r.i64()?;
    if flexible {
        r.tagged_fields(|tag, r| {
            match tag {
                TAG_PREVIOUS_ID => value.previous_producer_id = ProducerId(r.i64()?),
                TAG_NEXT_ID => value.next_producer_id = ProducerId(r.i64()?),
                TAG_CLIENT_VERSION => value.version = TransactionVersion(r.i16()?),
                TAG_LAST_EPOCH => value.last_epoch = ProducerEpoch(r.i16()?),
                TAG_NEXT_EPOCH => {
                    r.i16()?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
    }
    Ok(value)
}
