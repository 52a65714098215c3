//! The records of streams groups (KIP-1071, 1331).
//!
//! | kind | key | value |
//! |--:|---|---|
//! | 17 | group | [`StreamsGroupValue`] |
//! | 18 | group | skipped: an early Kafka's copy of what metadata says anyway |
//! | 19 | group, member | [`StreamsMemberValue`] |
//! | 20 | group | [`TargetEpochValue`] |
//! | 21 | group, member | [`StreamsTargetValue`] |
//! | 22 | group, member | [`StreamsCurrentValue`] |
//! | 23 | group | [`StreamsTopology`] |

use bytes::Bytes;
use riverlog_wire::primitives::{DecodeError, Reader, Writer};

use super::{TAG_EMPTY_SINCE, TargetEpochValue, decode, encode, known};

const GROUP: i16 = 17;
const MEMBER: i16 = 19;
const TARGET_EPOCH: i16 = 20;
const TARGET_MEMBER: i16 = 21;
const CURRENT_MEMBER: i16 = 22;
const TOPOLOGY: i16 = 23;

/// Riverlog's own tagged fields, which Kafka skips.
const TAG_DELAY: u32 = TAG_EMPTY_SINCE + 1;
const TAG_DESCRIPTION: u32 = TAG_EMPTY_SINCE;

/// No epoch of a topology.
pub const NO_TOPOLOGY: i32 = -1;

/// A record of a streams group; `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamsRecord {
    /// The group's epoch.
    Group(Option<StreamsGroupValue>),
    /// What a member said of itself.
    Member(String, Option<StreamsMemberValue>),
    /// The epoch that the target assignment was made for.
    TargetEpoch(Option<TargetEpochValue>),
    /// The tasks that a member shall have.
    TargetMember(String, Option<StreamsTargetValue>),
    /// The tasks that a member has.
    CurrentMember(String, Option<StreamsCurrentValue>),
    /// What the application is made of.
    Topology(Option<StreamsTopology>),
}

/// The epoch of a streams group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsGroupValue {
    /// Grows whenever the assignment has to be made anew.
    pub epoch: i32,
    /// A hash of the topology's topics with their ids and partition counts.
    pub metadata_hash: i64,
    /// The topology epoch whose topics were found to be there and right; −1 none.
    pub validated_topology_epoch: i32,
    /// The configs that the last assignment was made by, in order of key.
    pub assignment_configs: Vec<(String, String)>,
    /// The topology epoch that a description is stored of; −1 none.
    pub described_epoch: i32,
    /// The topology epoch whose description can't be stored; −1 none.
    pub undescribable_epoch: i32,
    /// When the group lost its last member, ms since the epoch.
    pub empty_since: Option<i64>,
    /// How long, in ms, the first assignment waits for more members.
    pub delay_ms: Option<i64>,
}

impl Default for StreamsGroupValue {
    fn default() -> Self {
        StreamsGroupValue {
            epoch: 0,
            metadata_hash: 0,
            validated_topology_epoch: NO_TOPOLOGY,
            assignment_configs: Vec::new(),
            described_epoch: NO_TOPOLOGY,
            undescribable_epoch: NO_TOPOLOGY,
            empty_since: None,
            delay_ms: None,
        }
    }
}

/// What a member of a streams group said of itself.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StreamsMemberValue {
    /// Static name.
    pub instance: Option<String>,
    /// Rack.
    pub rack: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// ms; −1 unknown.
    pub rebalance_timeout_ms: i32,
    /// Epoch of the topology that it runs.
    pub topology_epoch: i32,
    /// The process that it is a thread of: members of one process share its disk.
    pub process_id: String,
    /// Host and port where its process answers interactive queries.
    pub endpoint: Option<(String, u16)>,
    /// Client tags, in order of key.
    pub tags: Vec<(String, String)>,
}

/// Subtopologies and partitions, in order.
pub type TaskList = Vec<(String, Vec<i32>)>;

/// Likewise, with the epoch at which each was assigned.
pub type EpochTaskList = Vec<(String, Vec<(i32, i32)>)>;

/// The tasks that a member of a streams group shall have.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StreamsTargetValue {
    /// Those that process records.
    pub active: TaskList,
    /// Those that follow the state of another's.
    pub standby: TaskList,
    /// Those that fetch the state of a task that will move here.
    pub warmup: TaskList,
}

/// The tasks that a member of a streams group has.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StreamsCurrentValue {
    /// Its epoch; −2 while a static member is away.
    pub epoch: i32,
    /// The epoch before, still accepted when an answer was lost.
    pub previous_epoch: i32,
    /// 1 stable, 2 has tasks to give up, 3 waits for tasks of others.
    pub state: i8,
    /// Tasks that process records.
    pub active: EpochTaskList,
    /// Standby tasks.
    pub standby: TaskList,
    /// Warm-up tasks.
    pub warmup: TaskList,
    /// Tasks to give up that process records.
    pub revoking_active: EpochTaskList,
    /// Standby tasks to give up.
    pub revoking_standby: TaskList,
    /// Warm-up tasks to give up.
    pub revoking_warmup: TaskList,
}

/// What a streams application is made of.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StreamsTopology {
    /// Its epoch.
    pub epoch: i32,
    /// In order of id.
    pub subtopologies: Vec<Subtopology>,
    /// Riverlog's own tagged field: nodes and stores, as a StreamsGroupTopologyDescriptionUpdate request v0 without
    /// names of group and member.
    pub description: Option<Bytes>,
}

/// A part of a topology, whose tasks run apart from those of others.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Subtopology {
    /// Unique within the topology.
    pub id: String,
    /// Topics that users make.
    pub source_topics: Vec<String>,
    /// Patterns of such topics.
    pub source_topic_regex: Vec<String>,
    /// Topics that keep the state of its stores.
    pub changelogs: Vec<TopicInfo>,
    /// Repartition topics that it writes to.
    pub repartition_sinks: Vec<String>,
    /// Repartition topics that it reads.
    pub repartition_sources: Vec<TopicInfo>,
    /// Sources that must have as many partitions as each other.
    pub copartition_groups: Vec<CopartitionGroup>,
}

/// A topic that the application wants to be made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TopicInfo {
    /// Name.
    pub name: String,
    /// 0: as many as follow from the topics that feed it.
    pub partitions: i32,
    /// 0: the default.
    pub replication_factor: i16,
    /// Configs, in order of key.
    pub configs: Vec<(String, String)>,
}

/// Sources that belong together, by their places in the subtopology's lists.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CopartitionGroup {
    /// Into `source_topics`.
    pub source_topics: Vec<i16>,
    /// Into `source_topic_regex`.
    pub source_topic_regex: Vec<i16>,
    /// Into `repartition_sources`.
    pub repartition_sources: Vec<i16>,
}

impl StreamsRecord {
    /// Whether a kind is one of ours.
    pub(super) fn has(kind: i16) -> bool {
        kind == GROUP || (MEMBER..=TOPOLOGY).contains(&kind)
    }

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
            StreamsRecord::Group(value) => {
                key(GROUP, None);
                encode(value, |value| value.encode(v))
            }
            StreamsRecord::Member(member, value) => {
                key(MEMBER, Some(member));
                encode(value, |value| value.encode(v))
            }
            StreamsRecord::TargetEpoch(value) => {
                key(TARGET_EPOCH, None);
                encode(value, |value| value.encode(v))
            }
            StreamsRecord::TargetMember(member, value) => {
                key(TARGET_MEMBER, Some(member));
                encode(value, |value| value.encode(v))
            }
            StreamsRecord::CurrentMember(member, value) => {
                key(CURRENT_MEMBER, Some(member));
                encode(value, |value| value.encode(v))
            }
            StreamsRecord::Topology(value) => {
                key(TOPOLOGY, None);
                encode(value, |value| value.encode(v))
            }
        }
    }

    /// What follows the kind in a key, and the value.
    pub(super) fn decode(
        kind: i16,
        k: &mut Reader<'_>,
        value: Option<&[u8]>,
    ) -> Result<(String, StreamsRecord), DecodeError> {
        let group = k.string()?.to_owned();
        let record = match kind {
            GROUP => StreamsRecord::Group(decode(value, StreamsGroupValue::decode)?),
            MEMBER => StreamsRecord::Member(
                k.string()?.to_owned(),
                decode(value, StreamsMemberValue::decode)?,
            ),
            TARGET_EPOCH => StreamsRecord::TargetEpoch(decode(value, TargetEpochValue::decode)?),
            TARGET_MEMBER => StreamsRecord::TargetMember(
                k.string()?.to_owned(),
                decode(value, StreamsTargetValue::decode)?,
            ),
            CURRENT_MEMBER => StreamsRecord::CurrentMember(
                k.string()?.to_owned(),
                decode(value, StreamsCurrentValue::decode)?,
            ),
            _ => StreamsRecord::Topology(decode(value, StreamsTopology::decode)?),
        };
        Ok((group, record))
    }

    /// Whether it is a tombstone.
    pub(crate) fn is_tombstone(&self) -> bool {
        match self {
            StreamsRecord::Group(value) => value.is_none(),
            StreamsRecord::Member(_, value) => value.is_none(),
            StreamsRecord::TargetEpoch(value) => value.is_none(),
            StreamsRecord::TargetMember(_, value) => value.is_none(),
            StreamsRecord::CurrentMember(_, value) => value.is_none(),
            StreamsRecord::Topology(value) => value.is_none(),
        }
    }
}

impl StreamsGroupValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        w.i64(self.metadata_hash);
        let epochs = [
            (0, self.validated_topology_epoch),
            (2, self.described_epoch),
            (3, self.undescribable_epoch),
        ];
        let epoch = |w: &mut Writer<'_>, tag: u32| {
            let set = epochs.iter().find(|(t, e)| *t == tag && *e != NO_TOPOLOGY);
            if let Some((_, epoch)) = set {
                w.tagged_field(tag, |w| w.i32(*epoch));
            }
        };
        w.tagged_fields_len(
            epochs.iter().filter(|(_, e)| *e != NO_TOPOLOGY).count()
                + usize::from(!self.assignment_configs.is_empty())
                + usize::from(self.empty_since.is_some())
                + usize::from(self.delay_ms.is_some()),
        );
        epoch(w, 0);
        if !self.assignment_configs.is_empty() {
            w.tagged_field(1, |w| encode_pairs(w, &self.assignment_configs));
        }
        epoch(w, 2);
        epoch(w, 3);
        if let Some(since) = self.empty_since {
            w.tagged_field(TAG_EMPTY_SINCE, |w| w.i64(since));
        }
        if let Some(delay) = self.delay_ms {
            w.tagged_field(TAG_DELAY, |w| w.i64(delay));
        }
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<StreamsGroupValue, DecodeError> {
        known(r, version, 0)?;
        let mut value = StreamsGroupValue {
            epoch: r.i32()?,
            metadata_hash: r.i64()?,
            ..StreamsGroupValue::default()
        };
        r.tagged_fields(|tag, r| {
            match tag {
                0 => value.validated_topology_epoch = r.i32()?,
                1 => {
                    let len = r.compact_nullable_array_len(3)?.unwrap_or(0);
                    value.assignment_configs = r.elements(len, decode_pair)?;
                }
                2 => value.described_epoch = r.i32()?,
                3 => value.undescribable_epoch = r.i32()?,
                TAG_EMPTY_SINCE => value.empty_since = Some(r.i64()?),
                TAG_DELAY => value.delay_ms = Some(r.i64()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(value)
    }
}

impl StreamsMemberValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.compact_nullable_string(self.instance.as_deref());
        w.compact_nullable_string(self.rack.as_deref());
        w.compact_string(&self.client_id);
        w.compact_string(&self.client_host);
        w.i32(self.rebalance_timeout_ms);
        w.i32(self.topology_epoch);
        w.compact_string(&self.process_id);
        // A nullable struct is preceded by 1, or −1 for null.
        match &self.endpoint {
            None => w.i8(-1),
            Some((host, port)) => {
                w.i8(1);
                w.compact_string(host);
                w.u16(*port);
                w.empty_tagged_fields();
            }
        }
        encode_pairs(w, &self.tags);
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<StreamsMemberValue, DecodeError> {
        known(r, version, 0)?;
        let own = |text: Option<&str>| text.map(str::to_owned);
        let value = StreamsMemberValue {
            instance: own(r.compact_nullable_string()?),
            rack: own(r.compact_nullable_string()?),
            client_id: r.compact_string()?.to_owned(),
            client_host: r.compact_string()?.to_owned(),
            rebalance_timeout_ms: r.i32()?,
            topology_epoch: r.i32()?,
            process_id: r.compact_string()?.to_owned(),
            endpoint: match r.i8()? {
                ..0 => None,
                _ => {
                    let endpoint = (r.compact_string()?.to_owned(), r.u16()?);
                    r.skip_tagged_fields()?;
                    Some(endpoint)
                }
            },
            tags: decode_pairs(r)?,
        };
        r.skip_tagged_fields()?;
        Ok(value)
    }
}

impl StreamsTargetValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        for tasks in [&self.active, &self.standby, &self.warmup] {
            encode_tasks(w, tasks);
        }
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<StreamsTargetValue, DecodeError> {
        known(r, version, 0)?;
        let value = StreamsTargetValue {
            active: decode_tasks(r)?,
            standby: decode_tasks(r)?,
            warmup: decode_tasks(r)?,
        };
        r.skip_tagged_fields()?;
        Ok(value)
    }
}

impl StreamsCurrentValue {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        w.i32(self.previous_epoch);
        w.i8(self.state);
        encode_held(w, &self.active);
        encode_tasks(w, &self.standby);
        encode_tasks(w, &self.warmup);
        encode_held(w, &self.revoking_active);
        encode_tasks(w, &self.revoking_standby);
        encode_tasks(w, &self.revoking_warmup);
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<StreamsCurrentValue, DecodeError> {
        known(r, version, 0)?;
        let epoch = r.i32()?;
        let value = StreamsCurrentValue {
            epoch,
            previous_epoch: r.i32()?,
            state: r.i8()?,
            active: decode_held(r, epoch)?,
            standby: decode_tasks(r)?,
            warmup: decode_tasks(r)?,
            revoking_active: decode_held(r, epoch)?,
            revoking_standby: decode_tasks(r)?,
            revoking_warmup: decode_tasks(r)?,
        };
        r.skip_tagged_fields()?;
        Ok(value)
    }
}

impl StreamsTopology {
    fn encode(&self, w: &mut Writer<'_>) {
        w.i16(0);
        w.i32(self.epoch);
        w.compact_array_len(self.subtopologies.len());
        for subtopology in &self.subtopologies {
            subtopology.encode(w);
        }
        match &self.description {
            None => w.empty_tagged_fields(),
            Some(description) => {
                w.tagged_fields_len(1);
                w.tagged_field(TAG_DESCRIPTION, |w| w.compact_bytes(description));
            }
        }
    }

    fn decode(r: &mut Reader<'_>, version: i16) -> Result<StreamsTopology, DecodeError> {
        known(r, version, 0)?;
        let epoch = r.i32()?;
        let len = r.compact_array_len(8)?;
        let mut topology = StreamsTopology {
            epoch,
            subtopologies: r.elements(len, Subtopology::decode)?,
            description: None,
        };
        r.tagged_fields(|tag, r| {
            if tag == TAG_DESCRIPTION {
                topology.description = Some(r.compact_shared_bytes()?);
            }
            Ok(tag == TAG_DESCRIPTION)
        })?;
        Ok(topology)
    }
}

impl Subtopology {
    fn encode(&self, w: &mut Writer<'_>) {
        w.compact_string(&self.id);
        encode_strings(w, &self.source_topics);
        encode_strings(w, &self.source_topic_regex);
        encode_topics(w, &self.changelogs);
        encode_strings(w, &self.repartition_sinks);
        encode_topics(w, &self.repartition_sources);
        w.compact_array_len(self.copartition_groups.len());
        for group in &self.copartition_groups {
            for places in [
                &group.source_topics,
                &group.source_topic_regex,
                &group.repartition_sources,
            ] {
                w.compact_array_len(places.len());
                for place in places {
                    w.i16(*place);
                }
            }
            w.empty_tagged_fields();
        }
        w.empty_tagged_fields();
    }

    fn decode(r: &mut Reader<'_>) -> Result<Subtopology, DecodeError> {
        let id = r.compact_string()?.to_owned();
        let source_topics = decode_strings(r)?;
        let source_topic_regex = decode_strings(r)?;
        let changelogs = decode_topics(r)?;
        let repartition_sinks = decode_strings(r)?;
        let repartition_sources = decode_topics(r)?;
        let len = r.compact_array_len(4)?;
        let copartition_groups = r.elements(len, |r| {
            let mut places = || {
                let len = r.compact_array_len(2)?;
                r.elements(len, Reader::i16)
            };
            let group = CopartitionGroup {
                source_topics: places()?,
                source_topic_regex: places()?,
                repartition_sources: places()?,
            };
            r.skip_tagged_fields()?;
            Ok(group)
        })?;
        r.skip_tagged_fields()?;
        Ok(Subtopology {
            id,
            source_topics,
            source_topic_regex,
            changelogs,
            repartition_sinks,
            repartition_sources,
            copartition_groups,
        })
    }
}

fn encode_strings(w: &mut Writer<'_>, strings: &[String]) {
    w.compact_array_len(strings.len());
    for string in strings {
        w.compact_string(string);
    }
}

fn decode_strings(r: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
    let len = r.compact_array_len(1)?;
    r.elements(len, |r| Ok(r.compact_string()?.to_owned()))
}

fn encode_topics(w: &mut Writer<'_>, topics: &[TopicInfo]) {
    w.compact_array_len(topics.len());
    for topic in topics {
        w.compact_string(&topic.name);
        w.i32(topic.partitions);
        w.i16(topic.replication_factor);
        encode_pairs(w, &topic.configs);
        w.empty_tagged_fields();
    }
}

fn decode_topics(r: &mut Reader<'_>) -> Result<Vec<TopicInfo>, DecodeError> {
    let len = r.compact_array_len(9)?;
    r.elements(len, |r| {
        let topic = TopicInfo {
            name: r.compact_string()?.to_owned(),
            partitions: r.i32()?,
            replication_factor: r.i16()?,
            configs: decode_pairs(r)?,
        };
        r.skip_tagged_fields()?;
        Ok(topic)
    })
}

fn encode_pairs(w: &mut Writer<'_>, pairs: &[(String, String)]) {
    w.compact_array_len(pairs.len());
    for (key, value) in pairs {
        w.compact_string(key);
        w.compact_string(value);
        w.empty_tagged_fields();
    }
}

fn decode_pairs(r: &mut Reader<'_>) -> Result<Vec<(String, String)>, DecodeError> {
    let len = r.compact_array_len(3)?;
    r.elements(len, decode_pair)
}

fn decode_pair(r: &mut Reader<'_>) -> Result<(String, String), DecodeError> {
    let pair = (
        r.compact_string()?.to_owned(),
        r.compact_string()?.to_owned(),
    );
    r.skip_tagged_fields()?;
    Ok(pair)
}

fn encode_tasks(w: &mut Writer<'_>, tasks: &TaskList) {
    w.compact_array_len(tasks.len());
    for (subtopology, partitions) in tasks {
        w.compact_string(subtopology);
        w.compact_array_len(partitions.len());
        for partition in partitions {
            w.i32(*partition);
        }
        w.empty_tagged_fields();
    }
}

fn decode_tasks(r: &mut Reader<'_>) -> Result<TaskList, DecodeError> {
    let len = r.compact_array_len(3)?;
    r.elements(len, |r| {
        let subtopology = r.compact_string()?.to_owned();
        let len = r.compact_array_len(4)?;
        let partitions = r.elements(len, Reader::i32)?;
        r.skip_tagged_fields()?;
        Ok((subtopology, partitions))
    })
}

fn encode_held(w: &mut Writer<'_>, tasks: &EpochTaskList) {
    w.compact_array_len(tasks.len());
    for (subtopology, partitions) in tasks {
        w.compact_string(subtopology);
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

/// Tasks without epochs count as assigned at the member's own: the only one that is surely recent enough.
fn decode_held(r: &mut Reader<'_>, member_epoch: i32) -> Result<EpochTaskList, DecodeError> {
    let len = r.compact_array_len(3)?;
    r.elements(len, |r| {
        let subtopology = r.compact_string()?.to_owned();
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
        Ok((subtopology, partitions.into_iter().zip(epochs).collect()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn records_are_laid_out_as_kafka_does() {
        let tasks = || vec![(text("0"), vec![1])];
        let held = || vec![(text("0"), vec![(1, 3)])];
        let cases = [
            (
                StreamsRecord::Group(Some(StreamsGroupValue {
                    epoch: 3,
                    metadata_hash: 4,
                    ..StreamsGroupValue::default()
                })),
                "0011000167",
                "000000000003000000000000000400",
            ),
            (
                StreamsRecord::Group(Some(StreamsGroupValue {
                    epoch: 3,
                    metadata_hash: 4,
                    validated_topology_epoch: 0,
                    assignment_configs: vec![(text("a"), text("1"))],
                    described_epoch: 0,
                    undescribable_epoch: 5,
                    empty_since: None,
                    delay_ms: None,
                })),
                "0011000167",
                "00000000000300000000000000040400040000000001060202610231000204000000000304\
                 00000005",
            ),
            (
                StreamsRecord::Member(
                    text("m"),
                    Some(StreamsMemberValue {
                        instance: None,
                        rack: Some(text("r")),
                        client_id: text("c"),
                        client_host: text("/h"),
                        rebalance_timeout_ms: 5,
                        topology_epoch: 0,
                        process_id: text("p"),
                        endpoint: Some((text("e"), 80)),
                        tags: vec![(text("z"), text("1"))],
                    }),
                ),
                "001300016700016d",
                "00000002720263032f6800000005000000000270010265005000\
                 02027a02310000",
            ),
            (
                StreamsRecord::TargetEpoch(Some(TargetEpochValue {
                    epoch: 3,
                    timestamp: 0,
                })),
                "0014000167",
                "00000000000300",
            ),
            (
                StreamsRecord::TargetMember(
                    text("m"),
                    Some(StreamsTargetValue {
                        active: tasks(),
                        standby: Vec::new(),
                        warmup: tasks(),
                    }),
                ),
                "001500016700016d",
                "000002023002000000010001020230020000000100\
                 00",
            ),
            (
                StreamsRecord::CurrentMember(
                    text("m"),
                    Some(StreamsCurrentValue {
                        epoch: 3,
                        previous_epoch: 2,
                        state: 1,
                        active: held(),
                        standby: tasks(),
                        ..StreamsCurrentValue::default()
                    }),
                ),
                "001600016700016d",
                "00000000000300000002010202300200000001010005020000000302023002000000010001\
                 01010100",
            ),
            (
                StreamsRecord::Topology(Some(StreamsTopology {
                    epoch: 0,
                    subtopologies: vec![Subtopology {
                        id: text("0"),
                        source_topics: vec![text("s")],
                        source_topic_regex: Vec::new(),
                        changelogs: vec![TopicInfo {
                            name: text("c"),
                            partitions: 0,
                            replication_factor: 1,
                            configs: vec![(text("k"), text("v"))],
                        }],
                        repartition_sinks: vec![text("r")],
                        repartition_sources: Vec::new(),
                        copartition_groups: vec![CopartitionGroup {
                            source_topics: vec![0],
                            ..CopartitionGroup::default()
                        }],
                    }],
                    description: None,
                })),
                "0017000167",
                "000000000000020230020273010202630000000000010202\
                 6b02760000020272010202000001010000\
                 00",
            ),
            (StreamsRecord::Topology(None), "0017000167", ""),
        ];
        for (record, key, value) in cases {
            let record = Record::Streams {
                group: text("g"),
                record,
            };
            let stored = record.encode().expect("short names");
            assert_eq!(hex(&stored.key), key);
            assert_eq!(hex(stored.value.as_deref().unwrap_or_default()), value);
            let read = Record::decode(&stored.key, stored.value.as_deref());
            assert_eq!(read, Ok(Some(record)));
        }
    }

    #[test]
    fn what_is_ours_alone_is_read_back() {
        let records = [
            StreamsRecord::Group(Some(StreamsGroupValue {
                empty_since: Some(7),
                delay_ms: Some(9),
                ..StreamsGroupValue::default()
            })),
            StreamsRecord::Topology(Some(StreamsTopology {
                description: Some(Bytes::from_static(b"nodes")),
                ..StreamsTopology::default()
            })),
        ];
        for record in records {
            let record = Record::Streams {
                group: text("g"),
                record,
            };
            let stored = record.encode().expect("short names");
            let read = Record::decode(&stored.key, stored.value.as_deref());
            assert_eq!(read, Ok(Some(record)));
        }
    }

    #[test]
    fn tasks_without_epochs_get_that_of_their_member() {
        // As written by a release before assignment epochs.
        let value = "0000000000030000000201020230020000000100010101010100";
        let bytes: Vec<u8> = (0..value.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&value[at..at + 2], 16).expect("hex"))
            .collect();
        let key = [0, 22, 0, 1, b'g', 0, 1, b'm'];
        let read = Record::decode(&key, Some(&bytes)).expect("a record");
        let Some(Record::Streams {
            record: StreamsRecord::CurrentMember(_, Some(value)),
            ..
        }) = read
        else {
            panic!("{read:?}");
        };
        assert_eq!(value.active, vec![(text("0"), vec![(1, 3)])]);
    }
}
