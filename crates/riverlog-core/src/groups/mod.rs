//! Consumer groups and their offsets: one shard for each partition of `__consumer_offsets`.
//!
//! Classic groups (KIP-62, 345, 394, 429, 559, 800, 814) and the consumer protocol (KIP-848), which the embedded library
//! uses too: the broker assigns, and only what must move moves. Share groups (KIP-932) and streams groups (KIP-1071). Records are
//! Kafka's own, so that its tools read them.

mod assign;
mod classic;
mod configs;
mod consumer;
mod draft;
mod effects;
mod members;
mod migrate;
mod offsets;
mod pattern;
pub mod records;
mod shape;
mod shard;
mod share;
mod streams;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use riverlog_wire::{
    ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId,
};

pub use crate::coordinator::{StoredRecord, Token};
pub use configs::GroupConfigs;
pub use migrate::MigrationPolicy;
pub(crate) use pattern::Pattern;
pub use shape::AnswerShape;
pub use shard::GroupShard;
pub use streams::topology;
pub use streams::{STREAMS_ASSIGNOR, StreamsDescription, StreamsMemberDescription, TaskOffsets};

use crate::coordinator;

/// What a decision about groups asks the host to do.
pub type Decision = coordinator::Decision<Soft, GroupAnswer>;

/// An answer about a group, and when it may be sent.
pub type Answer = coordinator::Answer<GroupAnswer>;

/// A change that a fail-over may forget. Made by `decide`, given back to [`GroupShard::soft`].
#[derive(Clone, Debug)]
pub struct Soft(effects::SoftChange);

/// What groups need to know of topics.
pub trait Topics {
    /// Id and number of partitions of a topic; `None` when it doesn't exist.
    fn by_name(&self, name: &str) -> Option<(TopicId, i32)>;
    /// Name of a topic.
    fn name_of(&self, id: TopicId) -> Option<&str>;
    /// Names of all topics, in order (for patterns).
    fn names(&self) -> Vec<&str>;
    /// The configs that were set for a group.
    fn configs_of_group(&self, _group: &str) -> GroupConfigs<'_> {
        GroupConfigs::default()
    }
}

/// Settings of groups (Kafka's broker keys).
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// `group.min.session.timeout.ms`, default 6 s.
    pub min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`, default 30 min.
    pub max_session_timeout: Duration,
    /// `group.initial.rebalance.delay.ms`, default 100 ms.
    pub initial_rebalance_delay: Duration,
    /// `group.max.size`.
    pub max_size: usize,
    /// `offsets.retention.minutes`, default 7 days.
    pub offsets_retention: Duration,
    /// `offset.metadata.max.bytes`, default 4096.
    pub metadata_max_bytes: usize,
    /// `group.consumer.session.timeout.ms`, default 45 s.
    pub consumer_session_timeout: Duration,
    /// `group.consumer.heartbeat.interval.ms`, default 5 s.
    pub consumer_heartbeat_interval: Duration,
    /// `group.consumer.migration.policy`.
    pub migration: MigrationPolicy,
    /// `group.share.session.timeout.ms`, default 45 s.
    pub share_session_timeout: Duration,
    /// `group.share.heartbeat.interval.ms`, default 5 s.
    pub share_heartbeat_interval: Duration,
    /// `group.share.max.size`, default 200.
    pub share_max_size: usize,
    /// `group.streams.session.timeout.ms`, default 45 s.
    pub streams_session_timeout: Duration,
    /// `group.streams.heartbeat.interval.ms`, default 5 s.
    pub streams_heartbeat_interval: Duration,
    /// `group.streams.initial.rebalance.delay.ms`, default 100 ms.
    pub streams_initial_rebalance_delay: Duration,
    /// `group.streams.task.offset.interval.ms`, default 60 s.
    pub streams_task_offset_interval: Duration,
    /// `group.streams.acceptable.recovery.lag`, in offsets, default 10,000.
    pub streams_acceptable_recovery_lag: i64,
    /// `group.streams.num.standby.replicas`, default 0.
    pub streams_standbys: usize,
    /// `group.streams.rack.aware.assignment.tags`, with commas between.
    pub streams_tags: String,
    /// `group.streams.max.size`.
    pub streams_max_size: usize,
}

impl Default for GroupSettings {
    fn default() -> Self {
        GroupSettings {
            min_session_timeout: Duration::from_secs(6),
            max_session_timeout: Duration::from_secs(1800),
            initial_rebalance_delay: Duration::from_millis(100),
            max_size: usize::MAX,
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            metadata_max_bytes: 4096,
            consumer_session_timeout: Duration::from_secs(45),
            consumer_heartbeat_interval: Duration::from_secs(5),
            migration: MigrationPolicy::Bidirectional,
            share_session_timeout: Duration::from_secs(45),
            share_heartbeat_interval: Duration::from_secs(5),
            share_max_size: 200,
            streams_session_timeout: Duration::from_secs(45),
            streams_heartbeat_interval: Duration::from_secs(5),
            streams_initial_rebalance_delay: Duration::from_millis(100),
            streams_task_offset_interval: Duration::from_secs(60),
            streams_acceptable_recovery_lag: 10_000,
            streams_standbys: 0,
            streams_tags: String::new(),
            streams_max_size: usize::MAX,
        }
    }
}

/// A partition of a topic, by name and id (the id is [`TopicId::ZERO`] where the client gave only a name).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// Name.
    pub topic: String,
    /// Id.
    pub id: TopicId,
    /// Partition.
    pub partition: i32,
}

/// An offset as committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record to read.
    pub offset: Offset,
    /// Epoch of the last record read; −1 unknown.
    pub leader_epoch: LeaderEpoch,
    /// The client's own words.
    pub metadata: String,
    /// When it was committed, ms since the epoch.
    pub commit_timestamp: i64,
    /// `retention_time_ms` of old clients (OffsetCommit v2–v4).
    pub expire_timestamp: Option<i64>,
}

/// Partitions of which something is kept for a share group, by topic.
pub type ShareTopics = Vec<(TopicId, Vec<i32>)>;

/// What OffsetFetch answers: partitions in the order asked, `None` where nothing was ever committed.
pub type FetchedOffsets = Vec<(TopicPartition, Option<CommittedOffset>)>;

/// What OffsetFetch answers to those who want stable offsets: UNSTABLE_OFFSET_COMMIT where a transaction may change it.
pub type StableOffsets = Vec<(TopicPartition, Result<Option<CommittedOffset>, ErrorCode>)>;

/// A command to a group.
#[derive(Clone, Debug)]
pub enum GroupCommand {
    /// Classic: JoinGroup.
    Join(Join),
    /// Classic: SyncGroup.
    Sync(Sync),
    /// Classic: Heartbeat.
    Heartbeat {
        /// Group.
        group: String,
        /// Generation of the member's last join.
        generation: Generation,
        /// The member.
        member: String,
        /// Static member's own name.
        instance: Option<String>,
    },
    /// Classic and static members: LeaveGroup.
    Leave {
        /// Group.
        group: String,
        /// Who leaves: member id (may be empty with an instance), instance, reason.
        members: Vec<(String, Option<String>, Option<String>)>,
    },
    /// Consumer protocol: ConsumerGroupHeartbeat.
    ConsumerHeartbeat(ConsumerHeartbeat),
    /// Share groups: ShareGroupHeartbeat.
    ShareHeartbeat(ShareHeartbeat),
    /// Streams groups: StreamsGroupHeartbeat.
    StreamsHeartbeat(Box<StreamsHeartbeat>),
    /// Streams groups: StreamsGroupTopologyDescriptionUpdate (KIP-1331).
    DescribeTopology {
        /// Group.
        group: String,
        /// Who describes it.
        member: String,
        /// Epoch of the topology that is described.
        epoch: i32,
        /// As it is kept (see [`records::StreamsTopology`]); `None`: one that is too large.
        description: Option<Bytes>,
    },
    /// Share groups without members: partitions of which something is kept for the group.
    ShareTopics {
        /// Group.
        group: String,
        /// Partitions that it is kept of from now on.
        add: Vec<(TopicId, i32)>,
        /// Topics that it is no longer kept of.
        remove: Vec<TopicId>,
    },
    /// OffsetCommit.
    Commit {
        /// Group.
        group: String,
        /// Generation (classic) or member epoch (consumer); −1 for commits from outside.
        generation: Generation,
        /// The member; empty for commits from outside.
        member: String,
        /// Static member's own name.
        instance: Option<String>,
        /// What to commit; `CommittedOffset::commit_timestamp` is set by the group.
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        /// The version of the request: some errors depend on it.
        version: i16,
    },
    /// TxnOffsetCommit: offsets that count once the producer's transaction is committed.
    TxnCommit {
        /// Group.
        group: String,
        /// Generation (classic) or member epoch (consumer); −1 where the producer doesn't say.
        generation: Generation,
        /// The member; empty where the producer doesn't say.
        member: String,
        /// Static member's own name.
        instance: Option<String>,
        /// What to commit; `CommittedOffset::commit_timestamp` is set by the group.
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        /// The version of the request: some errors depend on it.
        version: i16,
        /// Whose transaction.
        transaction: InTransaction,
    },
    /// OffsetDelete (KIP-496).
    DeleteOffsets {
        /// Group.
        group: String,
        /// Which.
        partitions: Vec<TopicPartition>,
    },
    /// DeleteGroups, one group.
    DeleteGroup {
        /// Group.
        group: String,
    },
}

/// The transaction that records are part of. Its coordinator has said that the group's partition of `__consumer_offsets` is
/// part of it, or a transaction is open there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// The producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// Where that partition ended before the coordinator was asked: a marker since then refuses the commit.
    pub verified: Offset,
}

/// Classic: JoinGroup.
#[derive(Clone, Debug, Default)]
pub struct Join {
    /// Group.
    pub group: String,
    /// Empty for a new member.
    pub member: String,
    /// Static member's own name (KIP-345).
    pub instance: Option<String>,
    /// From the request header.
    pub client_id: String,
    /// Address, as Kafka shows it: `/127.0.0.1`.
    pub client_host: String,
    /// Session time-out.
    pub session_timeout: Duration,
    /// Rebalance time-out.
    pub rebalance_timeout: Duration,
    /// "consumer", "connect", …
    pub protocol_type: String,
    /// Name and metadata, the member's favourite first.
    pub protocols: Vec<(String, Bytes)>,
    /// KIP-394: a new dynamic member must come again with the id that it is given (v4+).
    pub require_known_member: bool,
    /// KIP-814: the client can be told to skip the assignment (v9+).
    pub can_skip_assignment: bool,
    /// Random; becomes part of a new member's id.
    pub random: u128,
}

/// Classic: SyncGroup.
#[derive(Clone, Debug, Default)]
pub struct Sync {
    /// Group.
    pub group: String,
    /// Generation of the member's last join.
    pub generation: Generation,
    /// The member.
    pub member: String,
    /// Static member's own name.
    pub instance: Option<String>,
    /// v5+: must match when given.
    pub protocol_type: Option<String>,
    /// v5+: must match when given.
    pub protocol_name: Option<String>,
    /// From the leader: member and assignment.
    pub assignments: Vec<(String, Bytes)>,
}

/// Consumer protocol (KIP-848): ConsumerGroupHeartbeat. `None` fields are unchanged since the last heartbeat.
#[derive(Clone, Debug, Default)]
pub struct ConsumerHeartbeat {
    /// Group.
    pub group: String,
    /// Made by the client (v1), or empty for the group to draw one from `random` (v0).
    pub member: String,
    /// 0 joins, −1 leaves, −2 leaves for a while (static).
    pub member_epoch: i32,
    /// Static member's own name.
    pub instance: Option<String>,
    /// Rack.
    pub rack: Option<String>,
    /// How long the member may take to give partitions back.
    pub rebalance_timeout: Option<Duration>,
    /// Topics.
    pub subscribed_topics: Option<Vec<String>>,
    /// RE2 pattern that must match the whole name.
    pub subscribed_pattern: Option<String>,
    /// "uniform" or "range".
    pub assignor: Option<String>,
    /// What the member holds.
    pub owned: Option<Vec<(TopicId, Vec<i32>)>>,
    /// From the request header.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// Random; becomes a new member's id when it has none.
    pub random: u128,
    /// Version of the request.
    pub version: i16,
}

/// Share groups (KIP-932): ShareGroupHeartbeat. `None` fields are unchanged since the last heartbeat.
#[derive(Clone, Debug, Default)]
pub struct ShareHeartbeat {
    /// Group.
    pub group: String,
    /// Made by the client.
    pub member: String,
    /// 0 joins, −1 leaves.
    pub member_epoch: i32,
    /// Rack.
    pub rack: Option<String>,
    /// Topics.
    pub subscribed_topics: Option<Vec<String>>,
    /// From the request header.
    pub client_id: String,
    /// Address.
    pub client_host: String,
}

/// Streams groups (KIP-1071): StreamsGroupHeartbeat. `None` fields are unchanged since the last heartbeat.
#[derive(Clone, Debug, Default)]
pub struct StreamsHeartbeat {
    /// Group.
    pub group: String,
    /// Made by the client.
    pub member: String,
    /// 0 joins, −1 leaves, −2 leaves for a while (static).
    pub member_epoch: i32,
    /// Of the last endpoint information that the member was told.
    pub endpoint_epoch: i32,
    /// Static member's own name.
    pub instance: Option<String>,
    /// Rack.
    pub rack: Option<String>,
    /// How long the member may take to give tasks back.
    pub rebalance_timeout: Option<Duration>,
    /// What the application is made of; only when joining.
    pub topology: Option<records::StreamsTopology>,
    /// What the member has.
    pub owned: Option<OwnedTasks>,
    /// Only some of the three kinds of tasks were given.
    pub incomplete_tasks: bool,
    /// The process that the member is a thread of.
    pub process: Option<String>,
    /// Host and port where the process answers interactive queries.
    pub endpoint: Option<(String, u16)>,
    /// Client tags.
    pub tags: Option<Vec<(String, String)>>,
    /// How far the state of tasks is: subtopology, partition, sum of offsets.
    pub offsets: Option<Vec<(String, i32, i64)>>,
    /// Where it ends.
    pub end_offsets: Option<Vec<(String, i32, i64)>>,
    /// The member asks that the whole application stops.
    pub shutdown: bool,
    /// From the request header.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// Version of the request.
    pub version: i16,
}

/// Tasks that a member says it has.
#[derive(Clone, Debug, Default)]
pub struct OwnedTasks {
    /// Those that process records.
    pub active: records::TaskList,
    /// Standby tasks.
    pub standby: records::TaskList,
    /// Warm-up tasks.
    pub warmup: records::TaskList,
}

/// The answer to a heartbeat of a streams group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StreamsHeartbeatAnswer {
    /// Error.
    pub error: ErrorCode,
    /// Its words.
    pub message: Option<String>,
    /// This member's id.
    pub member: String,
    /// Its epoch from now on.
    pub member_epoch: i32,
    /// When to come again.
    pub heartbeat_interval: Duration,
    /// How often to say how far the state of tasks is.
    pub task_offset_interval: Duration,
    /// How many offsets behind a task counts as caught up.
    pub acceptable_recovery_lag: i64,
    /// What keeps the group from running, or its members should know.
    pub status: Vec<StreamsStatus>,
    /// Active, standby and warm-up tasks that it may have now; `None`: unchanged.
    pub tasks: Option<[records::TaskList; 3]>,
    /// It is to send a description of the topology.
    pub describe: bool,
    /// Of what is known of endpoints now.
    pub endpoint_epoch: i32,
    /// Which partitions each endpoint has; `None`: unchanged.
    pub endpoints: Option<Vec<EndpointPartitions>>,
    /// Internal topics that are to be made, with the partitions that they get.
    pub missing_topics: Vec<records::TopicInfo>,
}

/// A code of KIP-1071 with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsStatus {
    /// Code.
    pub code: i8,
    /// Words.
    pub detail: String,
}

/// What the processes behind an endpoint have; several members of a process have one entry each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPartitions {
    /// Host and port.
    pub endpoint: (String, u16),
    /// Source partitions of active tasks, by topic.
    pub active: records::TaskList,
    /// Of standby and warm-up tasks.
    pub standby: records::TaskList,
}

/// The answer to a [`GroupCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupAnswer {
    /// JoinGroup.
    Join(JoinAnswer),
    /// SyncGroup: error, protocol type and name, assignment.
    Sync {
        /// Error.
        error: ErrorCode,
        /// Protocol type.
        protocol_type: Option<String>,
        /// Protocol.
        protocol_name: Option<String>,
        /// The member's assignment.
        assignment: Bytes,
    },
    /// Heartbeat, DeleteGroup, the topics of a share group, the description of a topology.
    Error(ErrorCode),
    /// LeaveGroup: an error for each member asked, in order.
    Leave(ErrorCode, Vec<ErrorCode>),
    /// ConsumerGroupHeartbeat, ShareGroupHeartbeat.
    ConsumerHeartbeat(ConsumerHeartbeatAnswer),
    /// StreamsGroupHeartbeat.
    StreamsHeartbeat(Box<StreamsHeartbeatAnswer>),
    /// OffsetCommit, TxnOffsetCommit, OffsetDelete: an error for each partition asked, in order.
    Partitions(ErrorCode, Vec<ErrorCode>),
}

/// The answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinAnswer {
    /// Error.
    pub error: ErrorCode,
    /// Generation.
    pub generation: Generation,
    /// Protocol type.
    pub protocol_type: Option<String>,
    /// The chosen protocol.
    pub protocol_name: Option<String>,
    /// Member id of the leader.
    pub leader: String,
    /// KIP-814.
    pub skip_assignment: bool,
    /// This member's id.
    pub member: String,
    /// For the leader: member, instance, metadata of the chosen protocol.
    pub members: Vec<(String, Option<String>, Bytes)>,
}

/// The answer to a consumer protocol heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerHeartbeatAnswer {
    /// Error.
    pub error: ErrorCode,
    /// Its words.
    pub message: Option<String>,
    /// This member's id.
    pub member: String,
    /// Its epoch from now on.
    pub member_epoch: i32,
    /// When to come again.
    pub heartbeat_interval: Duration,
    /// What it may hold now; `None`: unchanged.
    pub assignment: Option<Vec<(TopicId, Vec<i32>)>>,
}

/// What can be seen of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Name.
    pub group: String,
    /// "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"; for the consumer protocol also "Assigning", "Reconciling"; for streams
    /// groups also "NotReady".
    pub state: &'static str,
    /// "classic", "consumer", "share" or "streams".
    pub group_type: &'static str,
    /// "consumer", "connect", …; empty for offsets alone.
    pub protocol_type: String,
    /// The chosen assignor.
    pub protocol: String,
    /// Generation or group epoch.
    pub generation: Generation,
    /// Assignment epoch (consumer protocol).
    pub assignment_epoch: i32,
    /// In order of id.
    pub members: Vec<MemberDescription>,
}

/// What can be seen of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberDescription {
    /// Id.
    pub member: String,
    /// Static name.
    pub instance: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// Rack.
    pub rack: Option<String>,
    /// Member epoch, or the group's generation.
    pub member_epoch: i32,
    /// It speaks the classic protocol, in whatever group.
    pub classic: bool,
    /// Topics it asked for (consumer protocol).
    pub subscribed_topics: Vec<String>,
    /// Pattern it asked for (consumer protocol).
    pub subscribed_pattern: Option<String>,
    /// Classic: its metadata for the chosen protocol.
    pub metadata: Bytes,
    /// Classic: its assignment, in the client's encoding.
    pub assignment: Bytes,
    /// Consumer protocol: what it holds.
    pub assigned: Vec<(TopicId, Vec<i32>)>,
    /// Consumer protocol: what it shall hold.
    pub target: Vec<(TopicId, Vec<i32>)>,
    /// Streams groups: the partitions that its active tasks read, by topic. A topic may have fewer.
    pub reads: Vec<(String, Vec<i32>)>,
}

/// Changes when one of the topics is made, deleted or grown (FNV-1a over name, id, partitions).
fn metadata_hash<'a>(topics: impl Iterator<Item = (&'a str, TopicId, i32)>) -> i64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (name, id, partitions) in topics {
        eat(name.as_bytes());
        eat(&[0]);
        eat(&id.0);
        eat(&partitions.to_be_bytes());
    }
    hash.cast_signed()
}

/// Which partition of `__consumer_offsets` (or of `__transaction_state`) keeps `name`: Java's string hash, made
/// positive, modulo the number of partitions.
pub fn partition_for(name: &str, partitions: i32) -> i32 {
    let mut hash: i32 = 0;
    for unit in name.encode_utf16() {
        hash = hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    }
    // Kafka's Utils.abs clears the sign bit's worth by mapping MIN to 0.
    let positive = if hash == i32::MIN { 0 } else { hash.abs() };
    positive % partitions.max(1)
}
