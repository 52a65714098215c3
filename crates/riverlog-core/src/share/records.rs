//! The records of `__share_group_state`, byte for byte as Kafka 4.4 lays them out.
//!
//! A key begins with an i16 that names its kind, a value with an i16 version, which is 0. A null value is a tombstone.
//!
//! | kind | key | value |
//! |--:|---|---|
//! | 0 | group, topic id, partition | a snapshot: all there is to say |
//! | 1 | group, topic id, partition | an update: what is new since the snapshot of that epoch |

use riverlog_wire::primitives::{DecodeError, EncodeError, Reader, Writer};
use riverlog_wire::{LeaderEpoch, Offset};

use super::key::ShareKey;
use crate::coordinator::StoredRecord;

const SNAPSHOT: i16 = 0;
const UPDATE: i16 = 1;
const VERSION: i16 = 0;

/// The tag of a batch's time before which it isn't given out. Kafka has no such thing and skips it.
const NOT_BEFORE: u32 = 1_000;

/// The tag of how long that was when it was told. Kafka has no such thing either.
const REST: u32 = 1_001;

/// Bytes that a batch takes in a value.
const BATCH_BYTES: usize = 20;

/// What has become of a record, as far as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// 0: to be given out.
    Available,
    /// 2: accepted.
    Acknowledged,
    /// 3: it is to become a dead letter (KIP-1191).
    Archiving,
    /// 4: nobody gets it any more.
    Archived,
}

impl DeliveryState {
    /// As stored.
    pub fn number(self) -> i8 {
        match self {
            DeliveryState::Available => 0,
            DeliveryState::Acknowledged => 2,
            DeliveryState::Archiving => 3,
            DeliveryState::Archived => 4,
        }
    }

    /// From storage or a request.
    pub fn from_number(number: i8) -> Option<DeliveryState> {
        match number {
            0 => Some(DeliveryState::Available),
            2 => Some(DeliveryState::Acknowledged),
            3 => Some(DeliveryState::Archiving),
            4 => Some(DeliveryState::Archived),
            _ => None,
        }
    }
}

/// Neighbouring records with the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBatch {
    /// First offset.
    pub first: Offset,
    /// Last offset.
    pub last: Offset,
    /// What has become of them.
    pub state: DeliveryState,
    /// How often they were given out.
    pub delivery_count: i16,
    /// Available, but not before this time: ms since the epoch, 0 for at once.
    pub not_before: i64,
    /// How far away that time was when it was told, ms: it is kept back for no longer, whatever the wall clock says later. 0: nobody
    /// has said so, as builds before this field existed.
    pub rest: i64,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// `None` is a tombstone.
    Snapshot(ShareKey, Option<Snapshot>),
    Update(ShareKey, Update),
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Snapshot {
    pub(super) snapshot_epoch: i32,
    pub(super) state_epoch: i32,
    pub(super) leader_epoch: LeaderEpoch,
    /// −1: nowhere yet.
    pub(super) start: Offset,
    /// −1 unknown.
    pub(super) complete: i32,
    /// ms since the epoch.
    pub(super) created: i64,
    /// ms since the epoch.
    pub(super) written: i64,
    pub(super) batches: Vec<StateBatch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Update {
    pub(super) snapshot_epoch: i32,
    pub(super) leader_epoch: LeaderEpoch,
    /// −1: as it was.
    pub(super) start: Offset,
    /// −1 unknown.
    pub(super) complete: i32,
    pub(super) batches: Vec<StateBatch>,
}

impl Record {
    /// As stored. Fails when a string is longer than 32,767 bytes.
    pub(super) fn encode(&self) -> Result<StoredRecord, EncodeError> {
        let mut key = Vec::with_capacity(64);
        let mut k = Writer::new(&mut key);
        let mut value = Vec::with_capacity(64);
        let mut v = Writer::new(&mut value);
        let (kind, of) = match self {
            Record::Snapshot(of, _) => (SNAPSHOT, of),
            Record::Update(of, _) => (UPDATE, of),
        };
        k.i16(kind);
        k.string(&of.group);
        k.uuid(of.topic);
        k.i32(of.partition);
        let lives = match self {
            Record::Snapshot(_, None) => false,
            Record::Snapshot(_, Some(snapshot)) => {
                v.i16(VERSION);
                v.i32(snapshot.snapshot_epoch);
                v.i32(snapshot.state_epoch);
                v.i32(snapshot.leader_epoch.0);
                v.i64(snapshot.start.0);
                v.i64(snapshot.created);
                v.i64(snapshot.written);
                encode_batches(&mut v, &snapshot.batches, snapshot.complete);
                true
            }
            Record::Update(_, update) => {
                v.i16(VERSION);
                v.i32(update.snapshot_epoch);
                v.i32(update.leader_epoch.0);
                v.i64(update.start.0);
                encode_batches(&mut v, &update.batches, update.complete);
                true
            }
        };
        k.finish()?;
        v.finish()?;
        Ok(StoredRecord {
            key: key.into(),
            value: lives.then(|| value.into()),
        })
    }

    /// From storage. `Ok(None)` for what a newer release made.
    pub(super) fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, DecodeError> {
        let mut k = Reader::new(key);
        let kind = k.i16()?;
        if !matches!(kind, SNAPSHOT | UPDATE) {
            return Ok(None);
        }
        let of = ShareKey {
            group: k.string()?.to_owned(),
            topic: k.uuid()?,
            partition: k.i32()?,
        };
        let Some(value) = value else {
            return Ok((kind == SNAPSHOT).then_some(Record::Snapshot(of, None)));
        };
        let mut v = Reader::new(value);
        if v.i16()? != VERSION {
            return Ok(None);
        }
        let record = if kind == SNAPSHOT {
            let mut snapshot = Snapshot {
                snapshot_epoch: v.i32()?,
                state_epoch: v.i32()?,
                leader_epoch: LeaderEpoch(v.i32()?),
                start: Offset(v.i64()?),
                created: v.i64()?,
                written: v.i64()?,
                ..Snapshot::default()
            };
            (snapshot.batches, snapshot.complete) = decode_batches(&mut v)?;
            Record::Snapshot(of, Some(snapshot))
        } else {
            let mut update = Update {
                snapshot_epoch: v.i32()?,
                leader_epoch: LeaderEpoch(v.i32()?),
                start: Offset(v.i64()?),
                ..Update::default()
            };
            (update.batches, update.complete) = decode_batches(&mut v)?;
            Record::Update(of, update)
        };
        Ok(Some(record))
    }
}

/// The batches, and behind them in a tagged field (KIP-1226) how many offsets are complete.
fn encode_batches(w: &mut Writer<'_>, batches: &[StateBatch], complete: i32) {
    w.compact_array_len(batches.len());
    for batch in batches {
        w.i64(batch.first.0);
        w.i64(batch.last.0);
        w.i8(batch.state.number());
        w.i16(batch.delivery_count);
        match (batch.not_before, batch.rest) {
            (0, _) => w.empty_tagged_fields(),
            (time, rest) => {
                w.tagged_fields_len(1 + usize::from(rest > 0));
                w.tagged_field(NOT_BEFORE, |w| w.i64(time));
                if rest > 0 {
                    w.tagged_field(REST, |w| w.i64(rest));
                }
            }
        }
    }
    if complete < 0 {
        w.empty_tagged_fields();
    } else {
        w.tagged_fields_len(1);
        w.tagged_field(0, |w| w.i32(complete));
    }
}

fn decode_batches(r: &mut Reader<'_>) -> Result<(Vec<StateBatch>, i32), DecodeError> {
    let len = r.compact_array_len(BATCH_BYTES)?;
    let batches = r.elements(len, |r| {
        let (first, last) = (Offset(r.i64()?), Offset(r.i64()?));
        let (at, number) = (r.position(), r.i8()?);
        let state = DeliveryState::from_number(number).ok_or(DecodeError::Value {
            at,
            what: "delivery state",
            value: i64::from(number),
        })?;
        let delivery_count = r.i16()?;
        let (mut not_before, mut rest) = (0, 0);
        r.tagged_fields(|tag, r| {
            match tag {
                NOT_BEFORE => not_before = r.i64()?,
                REST => rest = r.i64()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(StateBatch {
            first,
            last,
            state,
            delivery_count,
            not_before,
            rest,
        })
    })?;
    let mut complete = -1;
    r.tagged_fields(|tag, r| {
        if tag == 0 {
            complete = r.i32()?;
        }
        Ok(tag == 0)
    })?;
    Ok((batches, complete))
}

#[cfg(test)]
mod tests {
    use riverlog_wire::TopicId;

    use super::*;

    fn key() -> ShareKey {
        ShareKey {
            group: "g".to_owned(),
            topic: TopicId([7; 16]),
            partition: 3,
        }
    }

    fn batch() -> StateBatch {
        StateBatch {
            first: Offset(5),
            last: Offset(6),
            state: DeliveryState::Archived,
            delivery_count: 2,
            not_before: 0,
            rest: 0,
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn round(record: &Record) -> (String, String) {
        let stored = record.encode().expect("short names");
        let read = Record::decode(&stored.key, stored.value.as_deref());
        assert_eq!(read, Ok(Some(record.clone())));
        (hex(&stored.key), hex(&stored.value.unwrap_or_default()))
    }

    #[test]
    fn a_snapshot_is_laid_out_as_kafka_does() {
        let snapshot = Snapshot {
            snapshot_epoch: 1,
            state_epoch: 2,
            leader_epoch: LeaderEpoch(3),
            start: Offset(4),
            complete: 2,
            created: 8,
            written: 9,
            batches: vec![batch()],
        };
        let (key, value) = round(&Record::Snapshot(key(), Some(snapshot)));
        let topic = "07".repeat(16);
        assert_eq!(key, format!("0000000167{topic}00000003"));
        let epochs = "0000000000010000000200000003";
        let offsets = "000000000000000400000000000000080000000000000009";
        let batches = "020000000000000005000000000000000604000200";
        assert_eq!(value, format!("{epochs}{offsets}{batches}01000400000002"));
    }

    #[test]
    fn the_time_before_which_a_record_is_kept_back_is_a_field_that_kafka_skips() {
        let update = |rest| Update {
            batches: vec![StateBatch {
                state: DeliveryState::Available,
                not_before: 9,
                rest,
                ..batch()
            }],
            complete: -1,
            ..Update::default()
        };
        let epochs = "000000000000000000000000000000000000";
        let batch = "0200000000000000050000000000000006000002";
        let (_, value) = round(&Record::Update(key(), update(7)));
        let tagged = "02e807080000000000000009e907080000000000000007";
        assert_eq!(value, format!("{epochs}{batch}{tagged}00"));
        // Before it was known how long.
        let (_, value) = round(&Record::Update(key(), update(0)));
        let tagged = "01e807080000000000000009";
        assert_eq!(value, format!("{epochs}{batch}{tagged}00"));
    }

    #[test]
    fn an_update_and_a_tombstone_are_laid_out_as_kafka_does() {
        let update = Update {
            snapshot_epoch: 1,
            leader_epoch: LeaderEpoch(3),
            start: Offset(-1),
            complete: -1,
            batches: Vec::new(),
        };
        let (id, value) = round(&Record::Update(key(), update));
        assert!(id.starts_with("000100016707"));
        assert_eq!(value, "00000000000100000003ffffffffffffffff0100");
        let (id, value) = round(&Record::Snapshot(key(), None));
        assert!(id.starts_with("000000016707"));
        assert_eq!(value, "");
    }

    #[test]
    fn what_is_damaged_or_newer_is_no_record() {
        let record = Record::Update(key(), Update::default());
        let stored = record.encode().expect("short names");
        let value = stored.value.expect("no tombstone");
        for len in 0..value.len() {
            assert!(Record::decode(&stored.key, Some(&value[..len])).is_err());
        }
        assert_eq!(Record::decode(&stored.key, Some(&[0, 9])), Ok(None));
        assert_eq!(Record::decode(&[0, 7], None), Ok(None));
        assert_eq!(Record::decode(&stored.key, None), Ok(None));
    }
}
