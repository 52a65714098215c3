//! The records of `__consumer_offsets`, byte for byte as Kafka 4.4 lays them out, so that its tools read ours and we read
//! the folders of a stopped Kafka.
//!
//! A key begins with an i16 that names its kind, a value with an i16 version. Written versions are those that Kafka
//! 4.4 writes; every older one is read. A value of null is a tombstone.
//!
//! | kind | key | value |
//! |--:|---|---|
//! | 0, 1 | group, topic, partition | [`OffsetValue`] v0–v4; written v4, v1 with an expiry of its own |
//! | 2 | group | [`GroupValue`] v0–v4; written v3 |
//! | 3 | group | [`ConsumerGroupValue`] |
//! | 4, 16 | group; group, pattern | skipped: Kafka's copies of what metadata says anyway |
//! | 5 | group, member | [`ConsumerMemberValue`] |
//! | 6 | group | [`TargetEpochValue`] |
//! | 7 | group, member | [`TargetMemberValue`] |
//! | 8 | group, member | [`CurrentMemberValue`] |
//! | 10–15 | of share groups | [`ShareRecord`] |
//! | 17–23 | of streams groups | [`StreamsRecord`] |

use bytes::Bytes;
use riverlog_wire::primitives::{DecodeError, EncodeError, Reader, Writer};
use riverlog_wire::{LeaderEpoch, Offset, TopicId};

use super::StoredRecord;

mod share;
mod streams;
#[cfg(test)]
pub(super) mod tests;

pub use share::{
    ShareCurrentValue, ShareGroupValue, ShareMemberValue, ShareRecord, ShareTopic, ShareTopicsValue,
};
pub use streams::{
    CopartitionGroup, EpochTaskList, NO_TOPOLOGY, StreamsCurrentValue, StreamsGroupValue,
    StreamsMemberValue, StreamsRecord, StreamsTargetValue, StreamsTopology, Subtopology, TaskList,
    TopicInfo,
};

/// One record, key and value. `value: None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A committed offset.
    Offset {
        /// Group.
        group: String,
        /// Topic, by name as in Kafka's key.
        topic: String,
        /// Partition.
        partition: i32,
        /// The commit.
        value: Option<OffsetValue>,
    },
    /// A classic group with its members and their assignments.
    Group {
        /// Group.
        group: String,
        /// A generation.
        value: Option<GroupValue>,
    },
    /// Consumer protocol: the group's epoch.
    ConsumerGroup {
        /// Group.
        group: String,
        /// Epoch.
        value: Option<ConsumerGroupValue>,
    },
    /// Consumer protocol: what a member said of itself.
    ConsumerMember {
        /// Group.
        group: String,
        /// Member.
        member: String,
        /// What it said.
        value: Option<ConsumerMemberValue>,
    },
    /// Consumer protocol: the epoch that the target assignment was made for.
    TargetEpoch {
        /// Group.
        group: String,
        /// Epoch.
        value: Option<TargetEpochValue>,
    },
    /// Consumer protocol: what a member shall hold.
    TargetMember {
        /// Group.
        group: String,
        /// Member.
        member: String,
        /// Partitions.
        value: Option<TargetMemberValue>,
    },
    /// Consumer protocol: what a member holds.
    CurrentMember {
        /// Group.
        group: String,
        /// Member.
        member: String,
        /// Epoch and partitions.
        value: Option<CurrentMemberValue>,
    },
    /// A record of a share group.
    Share {
        /// Group.
        group: String,
        /// What it says.
        record: ShareRecord,
    },
    /// A record of a streams group.
    Streams {
        /// Group.
        group: String,
        /// What it says.
        record: StreamsRecord,
    },
}

/// A committed offset as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetValue {
    /// The next record to read.
    pub offset: Offset,
    /// Epoch of the last record read, −1 unknown. v3+.
    pub leader_epoch: LeaderEpoch,
    /// The client's own words.
    pub metadata: String,
    /// ms since the epoch.
    pub commit_timestamp: i64,
    /// ms since the epoch; only v1 has it, so that a record with it carries neither leader epoch nor topic id.
    pub expire_timestamp: Option<i64>,
    /// Of which topic by that name; [`TopicId::ZERO`] unknown. v4.
    pub topic_id: TopicId,
}

/// A generation of a classic group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupValue {
    /// "consumer", "connect", …
    pub protocol_type: String,
    /// Generation.
    pub generation: i32,
    /// The chosen protocol.
    pub protocol: Option<String>,
    /// Member id of the leader.
    pub leader: Option<String>,
    /// When the group came into this state, ms since the epoch; −1 unknown. v2+.
    pub state_timestamp: i64,
    /// Members with their assignments.
    pub members: Vec<GroupMemberValue>,
}

/// A member of a classic group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberValue {
    /// Id.
    pub member: String,
    /// Static name. v3+.
    pub instance: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// ms; −1 unknown. v1+.
    pub rebalance_timeout_ms: i32,
    /// ms.
    pub session_timeout_ms: i32,
    /// Its metadata for the chosen protocol.
    pub subscription: Bytes,
    /// What the leader gave it.
    pub assignment: Bytes,
}

/// The epoch of a group of the consumer protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ConsumerGroupValue {
    /// Grows whenever the assignment has to be made anew.
    pub epoch: i32,
    /// A hash of the subscribed topics' ids and partition counts; Kafka and Riverlog hash differently, and each takes the
    /// other's value for a change.
    pub metadata_hash: i64,
    /// Riverlog's own tagged field: when the group lost its last member, ms since the epoch. Kafka skips it.
    pub empty_since: Option<i64>,
}

/// What a member of the consumer protocol said of itself.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ConsumerMemberValue {
    /// Static name.
    pub instance: Option<String>,
    /// Rack.
    pub rack: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// Topics by name.
    pub topics: Vec<String>,
    /// Topics by pattern.
    pub pattern: Option<String>,
    /// ms; −1 unknown.
    pub rebalance_timeout_ms: i32,
    /// The assignor it votes for.
    pub assignor: Option<String>,
    /// Set by Kafka for members that still speak the classic protocol (online migration): session time-out in ms, and
    /// protocols with metadata. Kept as found.
    pub classic: Option<(i32, Vec<(String, Bytes)>)>,
}

/// For which group epoch the target assignment was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TargetEpochValue {
    /// Group epoch.
    pub epoch: i32,
    /// When, ms since the epoch; 0 unknown.
    pub timestamp: i64,
}

/// What a member shall hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TargetMemberValue {
    /// Topics and partitions.
    pub partitions: Vec<(TopicId, Vec<i32>)>,
}

/// What a member holds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CurrentMemberValue {
    /// Its epoch; −2 while a static member is away.
    pub epoch: i32,
    /// The epoch before, still accepted once when an answer was lost.
    pub previous_epoch: i32,
    /// 0 stable, 1 has partitions to give up, 2 waits for partitions of others.
    pub state: i8,
    /// Partitions it may use, each with the epoch at which it got it.
    pub assigned: Vec<(TopicId, Vec<(i32, i32)>)>,
    /// Partitions it has to give up, likewise.
    pub revoking: Vec<(TopicId, Vec<(i32, i32)>)>,
}

const LEGACY_OFFSET: i16 = 0;
const OFFSET: i16 = 1;
const GROUP: i16 = 2;
const CONSUMER_GROUP: i16 = 3;
const CONSUMER_MEMBER: i16 = 5;
const TARGET_EPOCH: i16 = 6;
const TARGET_MEMBER: i16 = 7;
const CURRENT_MEMBER: i16 = 8;

/// Far above Kafka's own tags, which count from 0.
const TAG_EMPTY_SINCE: u32 = 1_000;

impl Record {
    /// As stored. Fails when a string is longer than 32,767 bytes.
    pub fn encode(&self) -> Result<StoredRecord, EncodeError> {
        let mut key = Vec::with_capacity(64);
        let mut w = Writer::new(&mut key);
        let mut value = Vec::with_capacity(64);
        let mut v = Writer::new(&mut value);
        let lives = match self {
            Record::Offset {
                group,
                topic,
                partition,
                value,
            } => {
                w.i16(OFFSET);
                w.string(group);
                w.string(topic);
                w.i32(*partition);
                encode(value, |value| value.encode(&mut v))
            }
            Record::Group { group, value } => {
                w.i16(GROUP);
                w.string(group);
                encode(value, |value| value.encode(&mut v))
            }
            Record::ConsumerGroup { group, value } => {
                w.i16(CONSUMER_GROUP);
                w.string(group);
                encode(value, |value| value.encode(&mut v))
            }
            Record::ConsumerMember {
                group,
                member,
                value,
            } => {
                w.i16(CONSUMER_MEMBER);
                w.string(group);
                w.string(member);
                encode(value, |value| value.encode(&mut v))
            }
            Record::TargetEpoch { group, value } => {
                w.i16(TARGET_EPOCH);
                w.string(group);
                encode(value, |value| value.encode(&mut v))
            }
            Record::TargetMember {
                group,
                member,
                value,
            } => {
                w.i16(TARGET_MEMBER);
                w.string(group);
                w.string(member);
                encode(value, |value| value.encode(&mut v))
            }
            Record::CurrentMember {
                group,
                member,
                value,
            } => {
                w.i16(CURRENT_MEMBER);
                w.string(group);
                w.string(member);
                encode(value, |value| value.encode(&mut v))
            }
            Record::Share { group, record } => record.encode(group, &mut w, &mut v),
            Record::Streams { group, record } => record.encode(group, &mut w, &mut v),
        };
        w.finish()?;
        v.finish()?;
        Ok(StoredRecord {
            key: key.into(),
            value: lives.then(|| value.into()),
        })
    }

    /// From storage. `Ok(None)` for kinds that hold nothing we need, or that a newer release made.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, DecodeError> {
        let mut k = Reader::new(key);
        let record = match k.i16()? {
            LEGACY_OFFSET | OFFSET => Record::Offset {
                group: k.string()?.to_owned(),
                topic: k.string()?.to_owned(),
                partition: k.i32()?,
                value: decode(value, OffsetValue::decode)?,
            },
            GROUP => Record::Group {
                group: k.string()?.to_owned(),
                value: decode(value, GroupValue::decode)?,
            },
            CONSUMER_GROUP => Record::ConsumerGroup {
                group: k.string()?.to_owned(),
                value: decode(value, ConsumerGroupValue::decode)?,
            },
            CONSUMER_MEMBER => Record::ConsumerMember {
                group: k.string()?.to_owned(),
                member: k.string()?.to_owned(),
                value: decode(value, ConsumerMemberValue::decode)?,
            },
            TARGET_EPOCH => Record::TargetEpoch {
                group: k.string()?.to_owned(),
                value: decode(value, TargetEpochValue::decode)?,
            },
            TARGET_MEMBER => Record::TargetMember {
                group: k.string()?.to_owned(),
                member: k.string()?.to_owned(),
                value: decode(value, TargetMemberValue::decode)?,
            },
            CURRENT_MEMBER => Record::CurrentMember {
                group: k.string()?.to_owned(),
                member: k.string()?.to_owned(),
                value: decode(value, CurrentMemberValue::decode)?,
            },
            kind if share::SHARE_KINDS.contains(&kind) => {
                let (group, record) = ShareRecord::decode(kind, &mut k, value)?;
                Record::Share { group, record }
            }
            kind if StreamsRecord::has(kind) => {
                let (group, record) = StreamsRecord::decode(kind, &mut k, value)?;
                Record::Streams { group, record }
            }
            _ => return Ok(None),
        };
        Ok(Some(record))
    }

    /// The group it belongs to.
    pub fn group(&self) -> &str {
        match self {
            Record::Offset { group, .. }
            | Record::Group { group, .. }
            | Record::ConsumerGroup { group, .. }
            | Record::ConsumerMember { group, .. }
            | Record::TargetEpoch { group, .. }
            | Record::TargetMember { group, .. }
            | Record::CurrentMember { group, .. }
            | Record::Share { group, .. }
            | Record::Streams { group, .. } => group,
        }
    }
}

fn encode<T>(value: &Option<T>, write: impl FnOnce(&T)) -> bool {
    value.as_ref().map(write).is_some()
}

fn decode<T>(
    value: Option<&[u8]>,
    read: impl FnOnce(&mut Reader<'_>, i16) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    let Some(bytes) = value else { return Ok(None) };
    let mut r = Reader::new(bytes);
    let version = r.i16()?;
    read(&mut r, version).map(Some)
}

/// Fails for versions that may be laid out in any way.
fn known(r: &Reader<'_>, version: i16, highest: i16) -> Result<(), DecodeError> {
    if (0..=highest).contains(&version) {
        return Ok(());
    }
    Err(DecodeError::Value {
        at: r.position(),
        what: "version of the value",
        value: i64::from(version),
    })
}

impl OffsetValue {
    fn encode(&self, w: &mut Writer<'_>) {
        // Only v1 has a place for an expiry; Kafka too gives up epoch and id for it.
        if let Some(expire) = self.expire_timestamp {
            w.i16(1);
            w.i64(self.offset.0);
            w.string(&self.metadata);
            w.i64(self.commit_timestamp);
            w.i64(expire);
            return;
        }
        w.i16(4);
        w.i64(self.offset.0);
        w.i32(self.leader_epoch.0);
        w.compact_string(&self.metadata);
        w.i64(self.commit_timestamp);
        if self.topic_id == TopicId::ZERO {
            w.empty_tagged_fields();
        } else {
            w.tagged_fields_len(1);
            w.tagged_field(0, |w| w.uuid(self.topic_id));
        }
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<OffsetValue, DecodeError> {
        known(r, version, 4)?;
        let mut value = OffsetValue {
            offset: Offset(r.i64()?),
            leader_epoch: match version {
                3.. => LeaderEpoch(r.i32()?),
                _ => LeaderEpoch::NONE,
            },
            metadata: match version {
                4.. => r.compact_string()?,
                _ => r.string()?,
            }
            .to_owned(),
            commit_timestamp: r.i64()?,
            expire_timestamp: None,
            topic_id: TopicId::ZERO,
        };
        if version == 1 {
            value.expire_timestamp = Some(r.i64()?).filter(|at| *at >= 0);
        }
        if version >= 4 {
            r.tagged_fields(|tag, r| {
                if tag == 0 {
                    value.topic_id = r.uuid()?;
                }
                Ok(tag == 0)
            })?;
        }
        Ok(value)
    }
}

impl GroupValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(3);
        w.string(&self.protocol_type);
        w.i32(self.generation);
        w.nullable_string(self.protocol.as_deref());
        w.nullable_string(self.leader.as_deref());
        w.i64(self.state_timestamp);
        w.array_len(self.members.len());
        for member in &self.members {
            w.string(&member.member);
            w.nullable_string(member.instance.as_deref());
            w.string(&member.client_id);
            w.string(&member.client_host);
            w.i32(member.rebalance_timeout_ms);
            w.i32(member.session_timeout_ms);
            w.bytes(&member.subscription);
            w.bytes(&member.assignment);
        }
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<GroupValue, DecodeError> {
        known(r, version, 4)?;
        let flexible = version >= 4;
        let string = |r: &mut Reader<'_>| -> Result<String, DecodeError> {
            let text = if flexible {
                r.compact_string()?
            } else {
                r.string()?
            };
            Ok(text.to_owned())
        };
        let nullable = |r: &mut Reader<'_>| -> Result<Option<String>, DecodeError> {
            let text = if flexible {
                r.compact_nullable_string()?
            } else {
                r.nullable_string()?
            };
            Ok(text.map(str::to_owned))
        };
        let bytes = |r: &mut Reader<'_>| {
            if flexible {
                r.compact_shared_bytes()
            } else {
                r.shared_bytes()
            }
        };
        let protocol_type = string(r)?;
        let generation = r.i32()?;
        let protocol = nullable(r)?;
        let leader = nullable(r)?;
        let state_timestamp = if version >= 2 { r.i64()? } else { -1 };
        let len = if flexible {
            r.compact_array_len(14)?
        } else {
            r.array_len(18)?
        };
        let members = r.elements(len, |r| {
            let member = GroupMemberValue {
                member: string(r)?,
                instance: if version >= 3 { nullable(r)? } else { None },
                client_id: string(r)?,
                client_host: string(r)?,
                rebalance_timeout_ms: if version >= 1 { r.i32()? } else { -1 },
                session_timeout_ms: r.i32()?,
                subscription: bytes(r)?,
                assignment: bytes(r)?,
            };
            if flexible {
                r.skip_tagged_fields()?;
            }
            Ok(member)
        })?;
        if flexible {
            r.skip_tagged_fields()?;
        }
        Ok(GroupValue {
            protocol_type,
            generation,
            protocol,
            leader,
            state_timestamp,
            members,
        })
    }
}

impl ConsumerGroupValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        w.tagged_fields_len(
            usize::from(self.metadata_hash != 0) + usize::from(self.empty_since.is_some()),
        );
        if self.metadata_hash != 0 {
            w.tagged_field(0, |w| w.i64(self.metadata_hash));
        }
        if let Some(since) = self.empty_since {
            w.tagged_field(TAG_EMPTY_SINCE, |w| w.i64(since));
        }
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<ConsumerGroupValue, DecodeError> {
        known(r, version, 0)?;
        let mut value = ConsumerGroupValue {
            epoch: r.i32()?,
            ..ConsumerGroupValue::default()
        };
        r.tagged_fields(|tag, r| {
            match tag {
                0 => value.metadata_hash = r.i64()?,
                TAG_EMPTY_SINCE => value.empty_since = Some(r.i64()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(value)
    }
}

impl ConsumerMemberValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.compact_nullable_string(self.instance.as_deref());
        w.compact_nullable_string(self.rack.as_deref());
        w.compact_string(&self.client_id);
        w.compact_string(&self.client_host);
        w.compact_array_len(self.topics.len());
        for topic in &self.topics {
            w.compact_string(topic);
        }
        w.compact_nullable_string(self.pattern.as_deref());
        w.i32(self.rebalance_timeout_ms);
        w.compact_nullable_string(self.assignor.as_deref());
        let Some((session_timeout_ms, protocols)) = &self.classic else {
            w.empty_tagged_fields();
            return;
        };
        w.tagged_fields_len(1);
        w.tagged_field(0, |w| {
            // A nullable struct is preceded by 1, or −1 for null.
            w.i8(1);
            w.i32(*session_timeout_ms);
            w.compact_array_len(protocols.len());
            for (name, metadata) in protocols {
                w.compact_string(name);
                w.compact_bytes(metadata);
                w.empty_tagged_fields();
            }
            w.empty_tagged_fields();
        });
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<ConsumerMemberValue, DecodeError> {
        known(r, version, 0)?;
        let own = |text: Option<&str>| text.map(str::to_owned);
        let instance = own(r.compact_nullable_string()?);
        let rack = own(r.compact_nullable_string()?);
        let client_id = r.compact_string()?.to_owned();
        let client_host = r.compact_string()?.to_owned();
        let len = r.compact_array_len(1)?;
        let topics = r.elements(len, |r| Ok(r.compact_string()?.to_owned()))?;
        let pattern = own(r.compact_nullable_string()?);
        let rebalance_timeout_ms = r.i32()?;
        let assignor = own(r.compact_nullable_string()?);
        let mut classic = None;
        r.tagged_fields(|tag, r| {
            if tag != 0 {
                return Ok(false);
            }
            if r.i8()? < 0 {
                return Ok(true);
            }
            let session_timeout_ms = r.i32()?;
            let len = r.compact_array_len(3)?;
            let protocols = r.elements(len, |r| {
                let protocol = (r.compact_string()?.to_owned(), r.compact_shared_bytes()?);
                r.skip_tagged_fields()?;
                Ok(protocol)
            })?;
            r.skip_tagged_fields()?;
            classic = Some((session_timeout_ms, protocols));
            Ok(true)
        })?;
        Ok(ConsumerMemberValue {
            instance,
            rack,
            client_id,
            client_host,
            topics,
            pattern,
            rebalance_timeout_ms,
            assignor,
            classic,
        })
    }
}

impl TargetEpochValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        if self.timestamp == 0 {
            w.empty_tagged_fields();
        } else {
            w.tagged_fields_len(1);
            w.tagged_field(0, |w| w.i64(self.timestamp));
        }
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<TargetEpochValue, DecodeError> {
        known(r, version, 0)?;
        let mut value = TargetEpochValue {
            epoch: r.i32()?,
            timestamp: 0,
        };
        r.tagged_fields(|tag, r| {
            if tag == 0 {
                value.timestamp = r.i64()?;
            }
            Ok(tag == 0)
        })?;
        Ok(value)
    }
}

impl TargetMemberValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        share::encode_partitions(w, &self.partitions);
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<TargetMemberValue, DecodeError> {
        known(r, version, 0)?;
        let partitions = share::decode_partitions(r)?;
        r.skip_tagged_fields()?;
        Ok(TargetMemberValue { partitions })
    }
}

type Held = Vec<(TopicId, Vec<(i32, i32)>)>;

impl CurrentMemberValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        w.i32(self.previous_epoch);
        w.i8(self.state);
        for held in [&self.assigned, &self.revoking] {
            w.compact_array_len(held.len());
            for (topic, partitions) in held {
                w.uuid(*topic);
                w.compact_array_len(partitions.len());
                for (partition, _) in partitions {
                    w.i32(*partition);
                }
                w.tagged_fields_len(1);
                w.tagged_field(0, |w| {
                    w.compact_array_len(partitions.len());
                    for (_, epoch) in partitions {
                        w.i32(*epoch);
                    }
                });
            }
        }
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<CurrentMemberValue, DecodeError> {
        known(r, version, 0)?;
        let epoch = r.i32()?;
        let previous_epoch = r.i32()?;
        let state = r.i8()?;
        let assigned = decode_held(r, epoch)?;
        let revoking = decode_held(r, epoch)?;
        r.skip_tagged_fields()?;
        Ok(CurrentMemberValue {
            epoch,
            previous_epoch,
            state,
            assigned,
            revoking,
        })
    }
}

/// Partitions with the epochs at which they were assigned; records from before Kafka 4.3 have none, and then the member's
/// own epoch is the only one that is surely recent enough.
fn decode_held(r: &mut Reader<'_>, member_epoch: i32) -> Result<Held, DecodeError> {
    let len = r.compact_array_len(18)?;
    r.elements(len, |r| {
        let topic = r.uuid()?;
        let len = r.compact_array_len(4)?;
        let partitions = r.elements(len, Reader::i32)?;
        let mut epochs = Vec::new();
        r.tagged_fields(|tag, r| {
            if tag == 0
                && let Some(len) = r.compact_nullable_array_len(4)?
            {
                epochs = r.elements(len, Reader::i32)?;
            }
            Ok(tag == 0)
        })?;
        if epochs.len() != partitions.len() {
            epochs = vec![member_epoch; partitions.len()];
        }
        Ok((topic, partitions.into_iter().zip(epochs).collect()))
    })
}
