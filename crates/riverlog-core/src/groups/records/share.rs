//! The records of share groups.
//!
//! | kind | key | value |
//! |--:|---|---|
//! | 10 | group, member | [`ShareMemberValue`] |
//! | 11 | group | [`ShareGroupValue`] |
//! | 12 | group | [`TargetEpochValue`] |
//! | 13 | group, member | [`TargetMemberValue`] |
//! | 14 | group, member | [`ShareCurrentValue`] |
//! | 15 | group | [`ShareTopicsValue`] |

use riverlog_wire::TopicId;
use riverlog_wire::primitives::{DecodeError, Reader, Writer};

use super::{TargetEpochValue, TargetMemberValue, decode, encode, known};

pub(super) const SHARE_KINDS: std::ops::RangeInclusive<i16> = MEMBER..=TOPICS;

const MEMBER: i16 = 10;
const GROUP: i16 = 11;
const TARGET_EPOCH: i16 = 12;
const TARGET_MEMBER: i16 = 13;
const CURRENT_MEMBER: i16 = 14;
const TOPICS: i16 = 15;

/// A record of a share group; `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareRecord {
    /// What a member said of itself.
    Member(String, Option<ShareMemberValue>),
    /// The group's epoch.
    Group(Option<ShareGroupValue>),
    /// The epoch that the target assignment was made for.
    TargetEpoch(Option<TargetEpochValue>),
    /// What a member shall read.
    TargetMember(String, Option<TargetMemberValue>),
    /// What a member reads.
    CurrentMember(String, Option<ShareCurrentValue>),
    /// Partitions of which something is kept for the group.
    Topics(Option<ShareTopicsValue>),
}

/// The epoch of a share group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ShareGroupValue {
    /// Grows whenever the assignment has to be made anew.
    pub epoch: i32,
    /// A hash of the subscribed topics' ids and partition counts.
    pub metadata_hash: i64,
}

/// What a member of a share group said of itself.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShareMemberValue {
    /// Rack.
    pub rack: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// Topics by name.
    pub topics: Vec<String>,
}

/// What a member of a share group reads.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShareCurrentValue {
    /// Its epoch.
    pub epoch: i32,
    /// The epoch before, still accepted when an answer was lost.
    pub previous_epoch: i32,
    /// Topics and partitions.
    pub assigned: Vec<(TopicId, Vec<i32>)>,
}

/// Partitions of which something is kept for a share group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShareTopicsValue {
    /// Kafka's, while it has yet to tell the coordinator of the state.
    pub initializing: Vec<ShareTopic>,
    /// Those that the coordinator of the state knows, or will when a leader asks for them.
    pub initialized: Vec<ShareTopic>,
    /// Kafka's, while it takes their state away.
    pub deleting: Vec<(TopicId, String)>,
}

/// A topic of a share group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShareTopic {
    /// Id.
    pub id: TopicId,
    /// Name.
    pub name: String,
    /// In order.
    pub partitions: Vec<i32>,
    /// ms since the epoch.
    pub created: i64,
}

impl ShareRecord {
    /// Writes key and value; false for a tombstone.
    pub(super) fn encode(&self, group: &str, k: &mut Writer<'_>, v: &mut Writer<'_>) -> bool {
        let mut key = |kind: i16, member: Option<&String>| {
            k.i16(kind);
            k.string(group);
            if let Some(member) = member {
                k.string(member);
            }
        };
        match self {
            ShareRecord::Member(member, value) => {
                key(MEMBER, Some(member));
                encode(value, |value| value.encode(v))
            }
            ShareRecord::Group(value) => {
                key(GROUP, None);
                encode(value, |value| value.encode(v))
            }
            ShareRecord::TargetEpoch(value) => {
                key(TARGET_EPOCH, None);
                encode(value, |value| value.encode(v))
            }
            ShareRecord::TargetMember(member, value) => {
                key(TARGET_MEMBER, Some(member));
                encode(value, |value| value.encode(v))
            }
            ShareRecord::CurrentMember(member, value) => {
                key(CURRENT_MEMBER, Some(member));
                encode(value, |value| value.encode(v))
            }
            ShareRecord::Topics(value) => {
                key(TOPICS, None);
                encode(value, |value| value.encode(v))
            }
        }
    }

    /// What follows the kind in a key, and the value.
    pub(super) fn decode(
        kind: i16,
        k: &mut Reader<'_>,
        value: Option<&[u8]>,
    ) -> Result<(String, ShareRecord), DecodeError> {
        let group = k.string()?.to_owned();
        let record = match kind {
            MEMBER => ShareRecord::Member(
                k.string()?.to_owned(),
                decode(value, ShareMemberValue::decode)?,
            ),
            GROUP => ShareRecord::Group(decode(value, ShareGroupValue::decode)?),
            TARGET_EPOCH => ShareRecord::TargetEpoch(decode(value, TargetEpochValue::decode)?),
            TARGET_MEMBER => ShareRecord::TargetMember(
                k.string()?.to_owned(),
                decode(value, TargetMemberValue::decode)?,
            ),
            CURRENT_MEMBER => ShareRecord::CurrentMember(
                k.string()?.to_owned(),
                decode(value, ShareCurrentValue::decode)?,
            ),
            _ => ShareRecord::Topics(decode(value, ShareTopicsValue::decode)?),
        };
        Ok((group, record))
    }

    /// Whether it is a tombstone.
    pub(crate) fn is_tombstone(&self) -> bool {
        match self {
            ShareRecord::Member(_, value) => value.is_none(),
            ShareRecord::Group(value) => value.is_none(),
            ShareRecord::TargetEpoch(value) => value.is_none(),
            ShareRecord::TargetMember(_, value) => value.is_none(),
            ShareRecord::CurrentMember(_, value) => value.is_none(),
            ShareRecord::Topics(value) => value.is_none(),
        }
    }
}

impl ShareGroupValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        w.i64(self.metadata_hash);
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<ShareGroupValue, DecodeError> {
        known(r, version, 0)?;
        let value = ShareGroupValue {
            epoch: r.i32()?,
            metadata_hash: r.i64()?,
        };
        r.skip_tagged_fields()?;
        Ok(value)
    }
}

impl ShareMemberValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.compact_nullable_string(self.rack.as_deref());
        w.compact_string(&self.client_id);
        w.compact_string(&self.client_host);
        w.compact_array_len(self.topics.len());
        for topic in &self.topics {
            w.compact_string(topic);
        }
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<ShareMemberValue, DecodeError> {
        known(r, version, 0)?;
        let rack = r.compact_nullable_string()?.map(str::to_owned);
        let client_id = r.compact_string()?.to_owned();
        let client_host = r.compact_string()?.to_owned();
        let len = r.compact_array_len(1)?;
        let topics = r.elements(len, |r| Ok(r.compact_string()?.to_owned()))?;
        r.skip_tagged_fields()?;
        Ok(ShareMemberValue {
            rack,
            client_id,
            client_host,
            topics,
        })
    }
}

impl ShareCurrentValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        w.i32(self.previous_epoch);
        // Members of share groups are always stable: nothing has to be given back.
        w.i8(0);
        encode_partitions(w, &self.assigned);
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<ShareCurrentValue, DecodeError> {
        known(r, version, 0)?;
        let epoch = r.i32()?;
        let previous_epoch = r.i32()?;
        r.i8()?;
        let assigned = decode_partitions(r)?;
        r.skip_tagged_fields()?;
        Ok(ShareCurrentValue {
            epoch,
            previous_epoch,
            assigned,
        })
    }
}

impl ShareTopicsValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        for topics in [&self.initializing, &self.initialized] {
            w.compact_array_len(topics.len());
            for topic in topics {
                w.uuid(topic.id);
                w.compact_string(&topic.name);
                encode_numbers(w, &topic.partitions);
                w.i64(topic.created);
                w.empty_tagged_fields();
            }
        }
        w.compact_array_len(self.deleting.len());
        for (id, name) in &self.deleting {
            w.uuid(*id);
            w.compact_string(name);
            w.empty_tagged_fields();
        }
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<ShareTopicsValue, DecodeError> {
        known(r, version, 0)?;
        let mut topics = || {
            let len = r.compact_array_len(27)?;
            r.elements(len, |r| {
                let topic = ShareTopic {
                    id: r.uuid()?,
                    name: r.compact_string()?.to_owned(),
                    partitions: decode_numbers(r)?,
                    created: r.i64()?,
                };
                r.skip_tagged_fields()?;
                Ok(topic)
            })
        };
        let initializing = topics()?;
        let initialized = topics()?;
        let len = r.compact_array_len(18)?;
        let deleting = r.elements(len, |r| {
            let topic = (r.uuid()?, r.compact_string()?.to_owned());
            r.skip_tagged_fields()?;
            Ok(topic)
        })?;
        r.skip_tagged_fields()?;
        Ok(ShareTopicsValue {
            initializing,
            initialized,
            deleting,
        })
    }
}

fn encode_numbers(w: &mut Writer<'_>, numbers: &[i32]) {
    w.compact_array_len(numbers.len());
    for number in numbers {
        w.i32(*number);
    }
}

fn decode_numbers(r: &mut Reader<'_>) -> Result<Vec<i32>, DecodeError> {
    let len = r.compact_array_len(4)?;
    r.elements(len, Reader::i32)
}

pub(super) fn encode_partitions(w: &mut Writer<'_>, of: &[(TopicId, Vec<i32>)]) {
    w.compact_array_len(of.len());
    for (topic, partitions) in of {
        w.uuid(*topic);
        encode_numbers(w, partitions);
        w.empty_tagged_fields();
    }
}

pub(super) fn decode_partitions(
    r: &mut Reader<'_>,
) -> Result<Vec<(TopicId, Vec<i32>)>, DecodeError> {
    let len = r.compact_array_len(18)?;
    r.elements(len, |r| {
        let of = (r.uuid()?, decode_numbers(r)?);
        r.skip_tagged_fields()?;
        Ok(of)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn records_are_laid_out_as_kafka_does() {
        let of = |record| Record::Share {
            group: "g".to_owned(),
            record,
        };
        let topic = TopicId([7; 16]);
        let id = "07".repeat(16);
        let member = || "m".to_owned();
        let cases = [
            (
                ShareRecord::Member(
                    member(),
                    Some(ShareMemberValue {
                        rack: None,
                        client_id: "c".to_owned(),
                        client_host: "/h".to_owned(),
                        topics: vec!["t".to_owned()],
                    }),
                ),
                "000a00016700016d",
                "0000000263032f6802027400".to_owned(),
            ),
            (
                ShareRecord::Group(Some(ShareGroupValue {
                    epoch: 3,
                    metadata_hash: 4,
                })),
                "000b000167",
                "000000000003000000000000000400".to_owned(),
            ),
            (
                ShareRecord::TargetEpoch(Some(TargetEpochValue {
                    epoch: 3,
                    timestamp: 0,
                })),
                "000c000167",
                "00000000000300".to_owned(),
            ),
            (
                ShareRecord::TargetMember(
                    member(),
                    Some(TargetMemberValue {
                        partitions: vec![(topic, vec![1])],
                    }),
                ),
                "000d00016700016d",
                format!("000002{id}02000000010000"),
            ),
            (
                ShareRecord::CurrentMember(
                    member(),
                    Some(ShareCurrentValue {
                        epoch: 3,
                        previous_epoch: 2,
                        assigned: vec![(topic, vec![1])],
                    }),
                ),
                "000e00016700016d",
                format!("000000000003000000020002{id}02000000010000"),
            ),
            (
                ShareRecord::Topics(Some(ShareTopicsValue {
                    initializing: Vec::new(),
                    initialized: vec![ShareTopic {
                        id: topic,
                        name: "t".to_owned(),
                        partitions: vec![1],
                        created: 5,
                    }],
                    deleting: vec![(topic, "u".to_owned())],
                })),
                "000f000167",
                format!("00000102{id}0274020000000100000000000000050002{id}02750000"),
            ),
            (ShareRecord::Group(None), "000b000167", String::new()),
        ];
        for (record, key, value) in cases {
            let record = of(record);
            let stored = record.encode().expect("short names");
            assert_eq!(hex(&stored.key), key);
            assert_eq!(hex(stored.value.as_deref().unwrap_or_default()), value);
            let read = Record::decode(&stored.key, stored.value.as_deref());
            assert_eq!(read, Ok(Some(record)));
        }
    }
}
