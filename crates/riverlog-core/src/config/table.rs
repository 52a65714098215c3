//! The table: topic and group keys. Broker keys are in `table_broker.rs`.
//!
//! A row: name, type and range, default (`none`: none, or one that the cluster's size decides), `kafka` and Kafka's
//! default where it is another, the broker keys behind it, `used` or `idle` (accepted and shown, without effect), words.

use super::{Change, Key, Kind, Kind::*, Scope, Synonym};

pub(super) const I: i32 = i32::MAX;
pub(super) const L: i64 = i64::MAX;

pub(super) const COMPRESSION: Kind =
    OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);
pub(super) const TIMESTAMP: Kind = OneOf(&["CreateTime", "LogAppendTime"]);
pub(super) const DURABILITY: Kind = OneOf(&["sync", "page-cache"]);
pub(super) const WHEN_FULL: Kind = OneOf(&["block", "error"]);

const MINUTES: i64 = 60_000;
const HOURS: i64 = 3_600_000;

macro_rules! default {
    (none) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}
pub(super) use default;

macro_rules! in_use {
    (used) => {
        true
    };
    (idle) => {
        false
    };
}
pub(super) use in_use;

macro_rules! kafka {
    () => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}
pub(super) use kafka;

macro_rules! factor {
    () => {
        1
    };
    ($factor:expr) => {
        $factor
    };
}

macro_rules! keys {
    ($scope:ident: $($name:literal, $kind:expr, $default:tt $(kafka $kafka:literal)?,
        [$($synonym:literal $(* $factor:ident)?),*], $used:ident, $doc:literal;)*) => {
        &[$(Key {
            name: $name,
            scope: Scope::$scope,
            kind: $kind,
            default: default!($default),
            kafka_default: kafka!($($kafka)?),
            synonyms: &[$(Synonym { name: $synonym, factor: factor!($($factor)?) }),*],
            change: Change::Any,
            used: in_use!($used),
            doc: $doc,
        }),*]
    };
}

#[rustfmt::skip]
pub(super) const TOPIC: &[Key] = keys! { Topic:
    "cleanup.policy", List(&["compact", "delete"]), "delete", ["log.cleanup.policy"], used,
        "What becomes of old records: `delete` drops them by retention, `compact` keeps the newest of each key, both do both; with an empty list all are kept.";
    "compression.gzip.level", Int(-1, 9), "-1", ["compression.gzip.level"], idle,
        "Level of gzip when the broker compresses; -1 is the codec's own default.";
    "compression.lz4.level", Int(1, 17), "9", ["compression.lz4.level"], idle,
        "Level of LZ4 when the broker compresses.";
    "compression.type", COMPRESSION, "producer", ["compression.type"], used,
        "The codec that batches are stored with; `producer` keeps the producer's own.";
    "compression.zstd.level", Int(-131_072, 22), "3", ["compression.zstd.level"], idle,
        "Level of Zstandard when the broker compresses.";
    "delete.retention.ms", Long(0, L), "86400000", ["log.cleaner.delete.retention.ms"], used,
        "How long a compacted topic keeps tombstones (and the markers of transactions) once they are all that is left, so that slow readers still see them.";
    "errors.deadletterqueue.group.enable", Bool, "false", [], used,
        "Whether share groups may put records here that they could not deliver.";
    "file.delete.delay.ms", Long(0, L), "60000", ["log.segment.delete.delay.ms"], idle,
        "Kafka's pause between dropping a segment and removing its files; here files go when their last reader is done.";
    "flush.messages", Long(1, L), "9223372036854775807", ["log.flush.interval.messages"], idle,
        "Kafka's count of records between syncs; here `riverlog.durability` decides.";
    "flush.ms", Long(0, L), "9223372036854775807", ["log.flush.interval.ms", "log.flush.scheduler.interval.ms"], idle,
        "Kafka's time between syncs; here `riverlog.durability` decides.";
    "follower.replication.throttled.replicas", List(&[]), "", [], idle,
        "Replicas (partition:broker, or *) whose catching up is throttled on the follower.";
    "index.interval.bytes", Int(0, I), "4096", ["log.index.interval.bytes"], used,
        "Bytes of log between two entries of the offset and time index.";
    "leader.replication.throttled.replicas", List(&[]), "", [], idle,
        "Replicas (partition:broker, or *) whose catching up is throttled on the leader.";
    "local.retention.bytes", Long(-2, L), "-2", ["log.local.retention.bytes"], idle,
        "Tiered topics: bytes kept on the broker's disk; -2 is retention.bytes.";
    "local.retention.ms", Long(-2, L), "-2", ["log.local.retention.ms"], idle,
        "Tiered topics: time that records stay on the broker's disk; -2 is retention.ms.";
    "max.compaction.lag.ms", Long(1, L), "9223372036854775807", ["log.cleaner.max.compaction.lag.ms"], used,
        "The longest a record may wait for compaction, whatever min.cleanable.dirty.ratio says. Segments are rolled at least that often.";
    "max.decompressed.message.bytes", Int(1, 2_147_483_639), "2147483639", ["max.decompressed.message.bytes"], idle,
        "The largest single record, decompressed, where the broker looks inside batches.";
    "max.message.bytes", Int(0, I), "1048588", ["message.max.bytes"], used,
        "The largest record batch, as stored: compressed if the producer compressed it.";
    "message.timestamp.after.max.ms", Long(0, L), "3600000", ["log.message.timestamp.after.max.ms"], used,
        "How far a record's own time may be ahead of the broker's.";
    "message.timestamp.before.max.ms", Long(0, L), "9223372036854775807", ["log.message.timestamp.before.max.ms"], used,
        "How far a record's own time may be behind the broker's.";
    "message.timestamp.type", TIMESTAMP, "CreateTime", ["log.message.timestamp.type"], used,
        "Whose time a record carries: the producer's, or the broker's when it was appended.";
    "min.cleanable.dirty.ratio", Double(0.0, 1.0), "0.5", ["log.cleaner.min.cleanable.ratio"], used,
        "The share of a compacted log that must be new before it is compacted again.";
    "min.compaction.lag.ms", Long(0, L), "0", ["log.cleaner.min.compaction.lag.ms"], used,
        "The shortest time before a record may be compacted away.";
    "min.insync.replicas", Int(1, I), none kafka "1", ["min.insync.replicas"], used,
        "In-sync replicas that a write with acks=all needs. Unless set: more than half of the topic's replicas.";
    "preallocate", Bool, "false", ["log.preallocate"], idle,
        "Kafka's reservation of whole segment files; here the write-ahead log is what is written in advance.";
    "remote.copy.lag.bytes", Long(-1, L), "-1", ["log.remote.copy.lag.bytes"], idle,
        "Tiered topics: bytes of newer data before a closed segment is copied; -1 follows the local retention.";
    "remote.copy.lag.ms", Long(-1, L), "0", ["log.remote.copy.lag.ms"], idle,
        "Tiered topics: age before a closed segment is copied; -1 follows the local retention.";
    "remote.log.copy.disable", Bool, "false", [], idle,
        "Tiered topics: copy no more segments, go on reading those that were copied.";
    "remote.log.delete.on.disable", Bool, "false", [], idle,
        "Tiered topics: delete what was copied when tiering is turned off.";
    "remote.storage.enable", Bool, "false", [], idle,
        "Whether closed segments are copied to object storage. Only `false` is accepted until there is tiering.";
    "retention.bytes", Long(i64::MIN, L), "-1", ["log.retention.bytes"], used,
        "Bytes that a partition keeps, in whole segments; -1 keeps all.";
    "retention.ms", Long(-1, L), "604800000", ["log.retention.ms", "log.retention.minutes" * MINUTES, "log.retention.hours" * HOURS], used,
        "How long records are kept, in whole segments; -1 is for ever.";
    "riverlog.durability", DURABILITY, "sync", ["riverlog.durability"], used,
        "What an acknowledgement promises: `sync`, written through to the disk; `page-cache`, handed to the operating system, as Kafka does.";
    "riverlog.max.bytes", Long(-1, L), "-1", ["riverlog.max.bytes"], used,
        "The most bytes a partition may hold; then `riverlog.when.full` decides. -1 is no bound.";
    "riverlog.max.records", Long(-1, L), "-1", ["riverlog.max.records"], used,
        "The most records a partition may hold; then `riverlog.when.full` decides. -1 is no bound.";
    "riverlog.retention.records", Long(-1, L), "-1", ["riverlog.retention.records"], used,
        "How many of the newest records a partition keeps, to the record; -1 keeps all.";
    "riverlog.when.full", WHEN_FULL, "block", ["riverlog.when.full"], used,
        "What a partition at its bound does with a write: `block` makes the producer wait, `error` refuses.";
    "riverlog.when.full.timeout.ms", Long(0, L), "30000", ["riverlog.when.full.timeout.ms"], used,
        "How long a write to a partition at its bound waits for room, when `riverlog.when.full` is `block`.";
    "segment.bytes", Int(1_048_576, I), "1073741824", ["log.segment.bytes"], used,
        "Bytes after which a segment is closed and the next begun. Retention drops whole segments.";
    "segment.index.bytes", Int(4, I), "10485760", ["log.index.size.max.bytes"], idle,
        "Kafka's bound of an index file; here an index grows with its segment.";
    "segment.jitter.ms", Long(0, L), "0", ["log.roll.jitter.ms", "log.roll.jitter.hours" * HOURS], idle,
        "A random part taken off segment.ms, so that not all segments end at once.";
    "segment.ms", Long(1, L), "604800000", ["log.roll.ms", "log.roll.hours" * HOURS], used,
        "Age after which a segment is closed even when it is small.";
    "unclean.leader.election.enable", Bool, "false", ["unclean.leader.election.enable"], idle,
        "Whether a replica that is not in sync may lead on its own, which loses records. Here that takes a command.";
};

#[rustfmt::skip]
pub(super) const GROUP: &[Key] = keys! { Group:
    "consumer.assignment.interval.ms", Int(0, I), "1000", ["group.consumer.assignment.interval.ms"], idle,
        "The least time between two assignments of a consumer group.";
    "consumer.heartbeat.interval.ms", Int(1, I), "5000", ["group.consumer.heartbeat.interval.ms"], used,
        "How often members of a consumer group are told to send a heartbeat.";
    "consumer.session.timeout.ms", Int(1, I), "45000", ["group.consumer.session.timeout.ms"], used,
        "Silence after which a member of a consumer group is taken out.";
    "errors.deadletterqueue.copy.record.enable", Bool, "false", [], used,
        "Whether a share group's dead letters carry the record itself, or only say which it was.";
    "errors.deadletterqueue.topic.name", String, "", [], used,
        "The topic for records that a share group could not deliver; empty for none.";
    "riverlog.share.backoff.max.ms", Long(0, 86_400_000), "300000", [], used,
        "The longest that a record is kept back before a share group tries it again, however often it has failed.";
    "riverlog.share.backoff.ms", Long(0, 86_400_000), "0", [], used,
        "How long a share group keeps a record back that was given back or not acknowledged in time; twice as long after each further try.";
    "riverlog.share.key.order", Bool, "false", [], used,
        "Whether a share group gets the records of each key in order: the next one comes when the one before is accepted, rejected or given up.";
    "share.assignment.interval.ms", Int(0, I), "1000", ["group.share.assignment.interval.ms"], idle,
        "The least time between two assignments of a share group.";
    "share.auto.offset.reset", String, "latest", [], used,
        "Where a new share group begins: latest, earliest, or by_duration: and an ISO 8601 duration.";
    "share.delivery.count.limit", Int(2, I), "5", ["group.share.delivery.count.limit"], used,
        "How often a share group tries to deliver a record.";
    "share.heartbeat.interval.ms", Int(1, I), "5000", ["group.share.heartbeat.interval.ms"], used,
        "How often members of a share group are told to send a heartbeat.";
    "share.isolation.level", OneOf(&["read_committed", "read_uncommitted"]), "read_uncommitted", [], used,
        "Whether a share group sees records of transactions that are open or were aborted.";
    "share.partition.max.record.locks", Int(100, I), "2000", ["group.share.partition.max.record.locks"], used,
        "Records of one partition that a share group may have handed out at once.";
    "share.record.lock.duration.ms", Int(1000, I), "30000", ["group.share.record.lock.duration.ms"], used,
        "How long a member of a share group keeps a record before it is offered again.";
    "share.renew.acknowledge.enable", Bool, "true", [], used,
        "Whether members of a share group may ask for more time for a record.";
    "share.session.timeout.ms", Int(1, I), "45000", ["group.share.session.timeout.ms"], used,
        "Silence after which a member of a share group is taken out.";
    "streams.assignment.interval.ms", Int(0, I), "1000", ["group.streams.assignment.interval.ms"], idle,
        "The least time between two assignments of a streams group.";
    "streams.assignor.name", String, none, [], idle,
        "The task assignor of a streams group; unless set, the first of group.streams.assignors.";
    "streams.heartbeat.interval.ms", Int(1, I), "5000", ["group.streams.heartbeat.interval.ms"], used,
        "How often members of a streams group are told to send a heartbeat.";
    "streams.initial.rebalance.delay.ms", Int(0, I), "100" kafka "3000", ["group.streams.initial.rebalance.delay.ms"], used,
        "How long a new streams group waits for more members before it assigns.";
    "streams.num.standby.replicas", Int(0, I), "0", ["group.streams.num.standby.replicas"], used,
        "Standby copies of each task of a streams group.";
    "streams.rack.aware.assignment.tags", List(&[]), "", ["group.streams.rack.aware.assignment.tags"], used,
        "Client tags over which standby copies of a streams group are spread.";
    "streams.session.timeout.ms", Int(1, I), "45000", ["group.streams.session.timeout.ms"], used,
        "Silence after which a member of a streams group is taken out.";
};
