//! The table: broker keys.
//!
//! A row: name, type and range, default (`none`: none, or one that the cluster's size decides), `kafka` and Kafka's
//! default where it is another, when it may change (`fixed`: with a restart; `node`: for one node; `live`: for one or all; `all`: for all),
//! `used` or `idle` (accepted and shown, without effect), words.

use super::table::{COMPRESSION, DURABILITY, I, L, TIMESTAMP, WHEN_FULL, default, in_use, kafka};
use super::{Change, Key, Kind::*, Scope};

macro_rules! change {
    (fixed) => {
        Change::Restart
    };
    (node) => {
        Change::PerBroker
    };
    (live) => {
        Change::Any
    };
    (all) => {
        Change::Cluster
    };
}

macro_rules! keys {
    ($($name:literal, $kind:expr, $default:tt $(kafka $kafka:literal)?, $change:ident, $used:ident, $doc:literal;)*) => {
        &[$(Key {
            name: $name,
            scope: Scope::Broker,
            kind: $kind,
            default: default!($default),
            kafka_default: kafka!($($kafka)?),
            synonyms: &[],
            change: change!($change),
            used: in_use!($used),
            doc: $doc,
        }),*]
    };
}

#[rustfmt::skip]
pub(super) const BROKER: &[Key] = keys! {
    "advertised.listeners", List(&[]), none, fixed, used,
        "Where clients are told to connect: NAME://host:port, …; unless set, the listeners.";
    "authorizer.class.name", String, "", fixed, idle,
        "Kafka's plug-in for access rules. Must be empty: there are none yet, and they are not dropped silently.";
    "auto.create.topics.enable", Bool, "true", fixed, used,
        "Whether a topic that a client asks for is made when it isn't there.";
    "auto.leader.rebalance.enable", Bool, "true", fixed, idle,
        "Whether leaderships go back to the preferred replicas by themselves.";
    "background.threads", Int(1, I), "10", live, idle,
        "Kafka's pool for upkeep; the pools here size themselves.";
    "broker.heartbeat.interval.ms", Int(1, I), "500" kafka "2000", fixed, used,
        "How often a node tells the controller that it lives: at least three times in broker.session.timeout.ms. The same on all nodes.";
    "broker.id", Int(-1, I), none, fixed, used,
        "Kafka's old name of node.id.";
    "broker.rack", String, none, fixed, used,
        "The rack or zone of this node, for spreading replicas and reading from near ones.";
    "broker.session.timeout.ms", Int(1, I), "2500" kafka "9000", fixed, used,
        "Silence after which the controller takes a node's leaderships away. The same on all nodes.";
    "cluster.id", String, none, fixed, used,
        "The cluster's id when the data folder is new; unless set, it is drawn. Riverlog's own key.";
    "compression.gzip.level", Int(-1, 9), "-1", live, idle,
        "Default of the topic key of that name.";
    "compression.lz4.level", Int(1, 17), "9", live, idle,
        "Default of the topic key of that name.";
    "compression.type", COMPRESSION, "producer", live, used,
        "Default of the topic key of that name.";
    "compression.zstd.level", Int(-131_072, 22), "3", live, idle,
        "Default of the topic key of that name.";
    "connections.max.idle.ms", Long(i64::MIN, L), "600000", fixed, used,
        "Silence after which a connection is closed.";
    "controlled.shutdown.enable", Bool, "true", fixed, idle,
        "Whether a node hands its leaderships over before it stops.";
    "controller.listener.names", List(&[]), none, fixed, used,
        "Listeners for other nodes of a cluster; unless set, they come to the first listener. A single node needs none.";
    "controller.quorum.bootstrap.servers", List(&[]), "", fixed, used,
        "The nodes that form a cluster, as host:port (--seeds). A single node needs none.";
    "controller.quorum.voters", List(&[]), "", fixed, used,
        "The same as id@host:port. One that names this node alone makes no cluster.";
    "default.replication.factor", Int(1, 32_767), none kafka "1", fixed, used,
        "Replicas of a new topic that doesn't say. Unless set: one for each registered node, at most 3.";
    "delete.topic.enable", Bool, "true", fixed, used,
        "Whether topics can be deleted.";
    "errors.deadletterqueue.auto.create.topics.enable", Bool, "false", live, used,
        "Whether the topic for a share group's dead letters is made when there is none.";
    "errors.deadletterqueue.topic.name.prefix", String, "dlq.", live, used,
        "How the names of topics for share groups' dead letters must begin.";
    "fetch.max.bytes", Int(1024, I), "57671680", fixed, idle,
        "The largest answer to a fetch; the first batch comes whole even when larger.";
    "follower.replication.throttled.rate", Long(0, L), none, live, used,
        "Bytes a second that a node takes for copies that catch up; no bound unless set. Holds for all of them, unlike in Kafka.";
    "group.consumer.assignment.interval.ms", Int(0, I), "1000", live, idle,
        "Default of the group key consumer.assignment.interval.ms.";
    "group.consumer.assignors", List(&[]), "uniform,range", fixed, idle,
        "Assignors of the consumer protocol, the default one first.";
    "group.consumer.heartbeat.interval.ms", Int(1, I), "5000", fixed, used,
        "Default of the group key consumer.heartbeat.interval.ms.";
    "group.consumer.max.heartbeat.interval.ms", Int(1, I), "15000", fixed, used,
        "The largest consumer.heartbeat.interval.ms that a group may set.";
    "group.consumer.max.session.timeout.ms", Int(1, I), "60000", fixed, used,
        "The largest consumer.session.timeout.ms that a group may set.";
    "group.consumer.max.size", Int(1, I), "2147483647", fixed, idle,
        "The most members of a group of the consumer protocol.";
    "group.consumer.migration.policy", String, "bidirectional", fixed, used,
        "Which way groups may move between the classic and the consumer protocol with their members: bidirectional, upgrade, downgrade or disabled.";
    "group.consumer.min.heartbeat.interval.ms", Int(1, I), "5000", fixed, used,
        "The smallest consumer.heartbeat.interval.ms that a group may set.";
    "group.consumer.min.session.timeout.ms", Int(1, I), "45000", fixed, used,
        "The smallest consumer.session.timeout.ms that a group may set.";
    "group.consumer.session.timeout.ms", Int(1, I), "45000", fixed, used,
        "Default of the group key consumer.session.timeout.ms.";
    "group.coordinator.rebalance.protocols", List(&["classic", "consumer", "share", "streams"]), "classic,consumer,streams", fixed, idle,
        "The group protocols that are served.";
    "group.initial.rebalance.delay.ms", Int(0, I), "100" kafka "3000", fixed, used,
        "How long a new classic group waits for more members before it assigns.";
    "group.max.session.timeout.ms", Int(i32::MIN, I), "1800000", fixed, used,
        "The largest session time-out that a classic member may ask for.";
    "group.max.size", Int(1, I), "2147483647", fixed, used,
        "The most members of a classic group.";
    "group.min.session.timeout.ms", Int(i32::MIN, I), "6000", fixed, used,
        "The smallest session time-out that a classic member may ask for.";
    "group.share.assignment.interval.ms", Int(0, I), "1000", live, idle,
        "Default of the group key share.assignment.interval.ms.";
    "group.share.delivery.count.limit", Int(2, 10), "5", fixed, used,
        "Default of the group key share.delivery.count.limit.";
    "group.share.heartbeat.interval.ms", Int(1, I), "5000", fixed, used,
        "Default of the group key share.heartbeat.interval.ms.";
    "group.share.max.delivery.count.limit", Int(5, 25), "10", fixed, used,
        "The largest share.delivery.count.limit that a group may set.";
    "group.share.max.heartbeat.interval.ms", Int(1, I), "15000", fixed, used,
        "The largest share.heartbeat.interval.ms that a group may set.";
    "group.share.max.partition.max.record.locks", Int(2_000, 10_000), "4000", fixed, used,
        "The largest share.partition.max.record.locks that a group may set.";
    "group.share.max.record.lock.duration.ms", Int(30_000, 3_600_000), "60000", fixed, used,
        "The largest share.record.lock.duration.ms that a group may set.";
    "group.share.max.session.timeout.ms", Int(1, I), "60000", fixed, used,
        "The largest share.session.timeout.ms that a group may set.";
    "group.share.max.share.sessions", Int(1, I), "2000", fixed, used,
        "The most share sessions of a listener: members of share groups that read here.";
    "group.share.max.size", Int(1, I), "200", fixed, used,
        "The most members of a share group.";
    "group.share.min.delivery.count.limit", Int(2, 5), "2", fixed, used,
        "The smallest share.delivery.count.limit that a group may set.";
    "group.share.min.heartbeat.interval.ms", Int(1, I), "5000", fixed, used,
        "The smallest share.heartbeat.interval.ms that a group may set.";
    "group.share.min.partition.max.record.locks", Int(100, 2_000), "100", fixed, used,
        "The smallest share.partition.max.record.locks that a group may set.";
    "group.share.min.record.lock.duration.ms", Int(1_000, 30_000), "15000", fixed, used,
        "The smallest share.record.lock.duration.ms that a group may set.";
    "group.share.min.session.timeout.ms", Int(1, I), "45000", fixed, used,
        "The smallest share.session.timeout.ms that a group may set.";
    "group.share.partition.max.record.locks", Int(100, 10_000), "2000", fixed, used,
        "Default of the group key share.partition.max.record.locks.";
    "group.share.record.lock.duration.ms", Int(1000, 3_600_000), "30000", fixed, used,
        "Default of the group key share.record.lock.duration.ms.";
    "group.share.session.timeout.ms", Int(1, I), "45000", fixed, used,
        "Default of the group key share.session.timeout.ms.";
    "group.streams.acceptable.recovery.lag", Long(0, L), "10000", fixed, used,
        "Offsets that the state of a task may be behind to count as caught up: what members of streams groups are told.";
    "group.streams.assignment.interval.ms", Int(0, I), "1000", live, idle,
        "Default of the group key streams.assignment.interval.ms.";
    "group.streams.heartbeat.interval.ms", Int(1, I), "5000", fixed, used,
        "Default of the group key streams.heartbeat.interval.ms.";
    "group.streams.initial.rebalance.delay.ms", Int(0, I), "100" kafka "3000", fixed, used,
        "Default of the group key streams.initial.rebalance.delay.ms.";
    "group.streams.max.heartbeat.interval.ms", Int(1, I), "15000", fixed, used,
        "The largest streams.heartbeat.interval.ms that a group may have.";
    "group.streams.max.session.timeout.ms", Int(1, I), "60000", fixed, used,
        "The largest streams.session.timeout.ms that a group may have.";
    "group.streams.max.size", Int(1, I), "2147483647", fixed, used,
        "The most members of a streams group.";
    "group.streams.max.standby.replicas", Int(0, I), "2", fixed, used,
        "The largest streams.num.standby.replicas that a group may have.";
    "group.streams.min.heartbeat.interval.ms", Int(1, I), "5000", fixed, used,
        "The smallest streams.heartbeat.interval.ms that a group may have.";
    "group.streams.min.session.timeout.ms", Int(1, I), "45000", fixed, used,
        "The smallest streams.session.timeout.ms that a group may have.";
    "group.streams.num.standby.replicas", Int(0, I), "0", fixed, used,
        "Default of the group key streams.num.standby.replicas.";
    "group.streams.rack.aware.assignment.tags", List(&[]), "", fixed, used,
        "Default of the group key streams.rack.aware.assignment.tags.";
    "group.streams.session.timeout.ms", Int(1, I), "45000", fixed, used,
        "Default of the group key streams.session.timeout.ms.";
    "group.streams.task.offset.interval.ms", Int(1, I), "60000", fixed, used,
        "How often members of streams groups are told to say how far the state of their tasks is.";
    "inter.broker.listener.name", String, none, fixed, idle,
        "The listener that nodes use among each other.";
    "leader.replication.throttled.rate", Long(0, L), none, live, used,
        "Bytes a second that a node gives to copies that catch up; no bound unless set. Holds for all of them, unlike in Kafka.";
    "listener.security.protocol.map", String, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", node, used,
        "The protocol of each listener by name. Listeners that are used must be PLAINTEXT.";
    "listeners", List(&[]), "PLAINTEXT://127.0.0.1:9092" kafka "PLAINTEXT://:9092", node, used,
        "Where the node listens: NAME://host:port, …. Loopback unless set.";
    "log.cleaner.backoff.ms", Long(0, L), "15000", live, used,
        "How often the cleaner looks for compacted partitions that wait.";
    "log.cleaner.dedupe.buffer.size", Long(0, L), "134217728", live, used,
        "Bytes that the maps of keys of all passes of the cleaner may take: 24 for each key that is new.";
    "log.cleaner.delete.retention.ms", Long(0, L), "86400000", live, used,
        "Default of the topic key delete.retention.ms.";
    "log.cleaner.enable", Bool, "true", fixed, used,
        "Whether compacted topics are compacted.";
    "log.cleaner.io.max.bytes.per.second", Double(0.0, f64::MAX), "1.7976931348623157E308", live, used,
        "Bytes that the cleaner reads and writes a second, at most.";
    "log.cleaner.max.compaction.lag.ms", Long(1, L), "9223372036854775807", live, used,
        "Default of the topic key max.compaction.lag.ms.";
    "log.cleaner.min.cleanable.ratio", Double(0.0, 1.0), "0.5", live, used,
        "Default of the topic key min.cleanable.dirty.ratio.";
    "log.cleaner.min.compaction.lag.ms", Long(0, L), "0", live, used,
        "Default of the topic key min.compaction.lag.ms.";
    "log.cleaner.threads", Int(0, I), "1", live, used,
        "Partitions that are compacted at the same time; 0: none.";
    "log.cleanup.policy", List(&["compact", "delete"]), "delete", live, used,
        "Default of the topic key cleanup.policy.";
    "log.dir", List(&[]), "./riverlog-data" kafka "/tmp/kafka-logs", fixed, used,
        "The data folder, when log.dirs isn't set.";
    "log.dirs", List(&[]), none, fixed, used,
        "The data folder. One folder; several are refused.";
    "log.flush.interval.messages", Long(1, L), "9223372036854775807", live, idle,
        "Default of the topic key flush.messages.";
    "log.flush.interval.ms", Long(i64::MIN, L), none, live, idle,
        "Default of the topic key flush.ms.";
    "log.flush.scheduler.interval.ms", Long(i64::MIN, L), "9223372036854775807", fixed, idle,
        "How often Kafka looks whether a log is due to be synced.";
    "log.index.interval.bytes", Int(0, I), "4096", live, used,
        "Default of the topic key index.interval.bytes.";
    "log.index.size.max.bytes", Int(4, I), "10485760", live, idle,
        "Default of the topic key segment.index.bytes.";
    "log.local.retention.bytes", Long(-2, L), "-2", live, idle,
        "Default of the topic key local.retention.bytes.";
    "log.local.retention.ms", Long(-2, L), "-2", live, idle,
        "Default of the topic key local.retention.ms.";
    "log.message.timestamp.after.max.ms", Long(0, L), "3600000", live, used,
        "Default of the topic key message.timestamp.after.max.ms.";
    "log.message.timestamp.before.max.ms", Long(0, L), "9223372036854775807", live, used,
        "Default of the topic key message.timestamp.before.max.ms.";
    "log.message.timestamp.type", TIMESTAMP, "CreateTime", live, used,
        "Default of the topic key message.timestamp.type.";
    "log.preallocate", Bool, "false", live, idle,
        "Default of the topic key preallocate.";
    "log.remote.copy.lag.bytes", Long(-1, L), "-1", live, idle,
        "Default of the topic key remote.copy.lag.bytes.";
    "log.remote.copy.lag.ms", Long(-1, L), "0", live, idle,
        "Default of the topic key remote.copy.lag.ms.";
    "log.retention.bytes", Long(i64::MIN, L), "-1", live, used,
        "Default of the topic key retention.bytes.";
    "log.retention.check.interval.ms", Long(1, L), "300000", fixed, used,
        "How often retention is looked at.";
    "log.retention.hours", Int(i32::MIN, I), "168", fixed, used,
        "Default of the topic key retention.ms in hours; log.retention.minutes and log.retention.ms are stronger.";
    "log.retention.minutes", Int(i32::MIN, I), none, fixed, used,
        "Default of the topic key retention.ms in minutes; log.retention.ms is stronger.";
    "log.retention.ms", Long(i64::MIN, L), none, live, used,
        "Default of the topic key retention.ms.";
    "log.roll.hours", Int(1, I), "168", fixed, used,
        "Default of the topic key segment.ms in hours; log.roll.ms is stronger.";
    "log.roll.jitter.hours", Int(0, I), "0", fixed, idle,
        "Default of the topic key segment.jitter.ms in hours; log.roll.jitter.ms is stronger.";
    "log.roll.jitter.ms", Long(i64::MIN, L), none, live, idle,
        "Default of the topic key segment.jitter.ms.";
    "log.roll.ms", Long(i64::MIN, L), none, live, used,
        "Default of the topic key segment.ms.";
    "log.segment.bytes", Int(1_048_576, I), "1073741824", live, used,
        "Default of the topic key segment.bytes.";
    "log.segment.delete.delay.ms", Long(0, L), "60000", live, idle,
        "Default of the topic key file.delete.delay.ms.";
    "max.connection.creation.rate", Int(0, I), "2147483647", live, idle,
        "New connections a second that a listener takes.";
    "max.connections", Int(0, I), "2147483647", live, used,
        "The most connections of this node.";
    "max.connections.per.ip", Int(0, I), "2147483647", live, used,
        "The most connections from one address.";
    "max.connections.per.ip.overrides", String, "", live, idle,
        "The most connections from some addresses: host:count, ….";
    "max.decompressed.message.bytes", Int(1, 2_147_483_639), "2147483639", live, idle,
        "Default of the topic key of that name.";
    "max.incremental.fetch.session.cache.slots", Int(0, I), "1000", fixed, used,
        "Incremental fetch sessions kept at once.";
    "max.request.partition.size.limit", Int(1, I), "2000", fixed, used,
        "The most partitions in one answer to DescribeTopicPartitions.";
    "message.max.bytes", Int(0, I), "1048588", live, used,
        "Default of the topic key max.message.bytes.";
    "metadata.log.dir", String, none, fixed, idle,
        "Kafka's separate folder of the metadata log; here it is in the data folder.";
    "metric.reporters", List(&[]), "" kafka "org.apache.kafka.common.metrics.JmxReporter", live, idle,
        "Kafka's plug-ins for metrics; here they are served over HTTP.";
    "min.insync.replicas", Int(1, I), none kafka "1", all, used,
        "Default of the topic key of that name. Unless set: more than half of a topic's replicas. The same on all nodes.";
    "node.id", Int(0, I), "1" kafka "must be set", fixed, used,
        "This node's id in the cluster.";
    "num.io.threads", Int(1, I), "8", live, idle,
        "Kafka's pool for requests; the pools here size themselves.";
    "num.network.threads", Int(1, I), "3", live, idle,
        "Kafka's pool for sockets; the pools here size themselves.";
    "num.partitions", Int(1, I), "1", fixed, used,
        "Partitions of a new topic that doesn't say.";
    "num.recovery.threads.per.data.dir", Int(1, I), "2", live, idle,
        "Kafka's pool for opening logs; the pools here size themselves.";
    "num.replica.fetchers", Int(1, I), "1", live, idle,
        "Kafka's fetcher threads for each other node; here one stream carries all partitions.";
    "offset.metadata.max.bytes", Int(0, I), "4096", fixed, used,
        "The most bytes of a consumer's own words beside a committed offset.";
    "offsets.commit.timeout.ms", Int(1, I), "5000", fixed, used,
        "How long a commit, or another change of a group, waits for its copies; then COORDINATOR_NOT_AVAILABLE.";
    "offsets.retention.check.interval.ms", Long(1, L), "600000", fixed, idle,
        "How often expired offsets are looked for.";
    "offsets.retention.minutes", Int(1, I), "10080", fixed, used,
        "How long the offsets of an empty group are kept.";
    "offsets.topic.compression.codec", Int(0, 4), "0", fixed, idle,
        "The codec of __consumer_offsets: 0 is none.";
    "offsets.topic.num.partitions", Int(1, I), "50", fixed, used,
        "Partitions of __consumer_offsets when it is made. A group's partition follows from it, so it can't change.";
    "offsets.topic.replication.factor", Short(1, i16::MAX), none kafka "3", fixed, idle,
        "Replicas of __consumer_offsets. Unless set: one for each registered node, at most 3.";
    "offsets.topic.segment.bytes", Int(1, I), "104857600", fixed, used,
        "segment.bytes of __consumer_offsets.";
    "process.roles", List(&["broker", "controller"]), "broker,controller" kafka "must be set", fixed, used,
        "What the node is; a single node is both.";
    "producer.id.expiration.ms", Int(1, I), "86400000", live, used,
        "Silence after which a partition forgets an idempotent producer.";
    "queued.max.requests", Int(1, I), "500", fixed, idle,
        "Kafka's bound of requests that wait; here budgets of bytes hold readers back.";
    "record.validation", OneOf(&["header", "full"]), "header" kafka "full, always", fixed, idle,
        "How far a produced batch is looked at: `header` also compares its CRC, `full` also opens each record. Riverlog's own key.";
    "replica.alter.log.dirs.io.max.bytes.per.second", Long(0, L), none, live, idle,
        "Bytes a second for moving replicas between folders.";
    "replica.fetch.max.bytes", Int(1, I), "1048576", fixed, used,
        "Bytes of one partition that a leader gives to a follower at once; the first batch comes whole even when larger.";
    "replica.fetch.response.max.bytes", Int(1, I), "10485760", fixed, used,
        "Bytes of all partitions that a leader gives to a follower at once.";
    "replica.fetch.wait.max.ms", Int(1, I), "500", fixed, used,
        "How long a leader keeps a follower's request when there is nothing new; less than replica.lag.time.max.ms.";
    "replica.lag.time.max.ms", Long(1, L), "10000" kafka "30000", fixed, used,
        "How long a follower may lack records before it leaves the in-sync replicas.";
    "replica.selector.class", String, none, fixed, used,
        "Kafka's RackAwareReplicaSelector lets consumers that say their rack read from a copy in it; unless set, they read from the leader.";
    "request.timeout.ms", Int(0, I), "30000", fixed, idle,
        "How long nodes wait for each other's answers.";
    "riverlog.append.memory.bytes", Long(1_048_576, L), "134217728", fixed, used,
        "Memory for batches between their arrival and their answer; beyond it requests wait.";
    "riverlog.cold.read.bytes", Long(1_048_576, L), "67108864", fixed, used,
        "Memory for reads of old data; beyond it they wait.";
    "riverlog.console.read.only", Bool, "false", fixed, used,
        "Browsers change nothing: the console shows no actions, and what a browser would write is refused.";
    "riverlog.durability", DURABILITY, "sync", live, used,
        "Default of the topic key of that name.";
    "riverlog.http.address", String, "127.0.0.1:8082", fixed, used,
        "Where HTTP (/v1, health, metrics) is served: host:port, or none.";
    "riverlog.http.cors.origins", List(&[]), "", fixed, used,
        "Origins whose web pages may use HTTP, as a browser says them: https://console.example:8443.";
    "riverlog.http.hosts", List(&[]), "", fixed, used,
        "Names besides this machine's own that HTTP on loopback answers to.";
    "riverlog.http.request.max.bytes", Long(1_024, L), "16777216", fixed, used,
        "The largest body of an HTTP request, as sent and decompressed; of a stream, the largest line.";
    "riverlog.loss.warning.ms", Long(-1, L), "3600000", live, used,
        "How long before retention by age deletes what a group has not committed the log says so; -1: never. At most a quarter of retention.ms.";
    "riverlog.max.bytes", Long(-1, L), "-1", live, used,
        "Default of the topic key of that name.";
    "riverlog.max.records", Long(-1, L), "-1", live, used,
        "Default of the topic key of that name.";
    "riverlog.metrics.aliases", List(&["kminion", "lag-exporter", "jmx"]), "", fixed, used,
        "Names of other tools by which /metrics tells the same: kminion, lag-exporter, jmx (Kafka's own by way of the JMX exporter).";
    "riverlog.metrics.detail", OneOf(&["cluster", "topic", "partition"]), "partition", fixed, used,
        "How much /metrics tells: cluster (sums), topic (topics and groups), partition (all).";
    "riverlog.open.files", Int(16, I), "4000", fixed, used,
        "Files of the data folder that may be open at once.";
    "riverlog.parked.max", Int(1, I), "100000", fixed, used,
        "Fetches that may wait for data at once, and as many commands to coordinators besides.";
    "riverlog.rebalance", Bool, "false", live, used,
        "Whether copies and leaderships are spread evenly by themselves, so that a new node takes its share; not while a node is down.";
    "riverlog.receive.memory.bytes", Long(1_048_576, L), "268435456", fixed, used,
        "Memory for requests that have not come in whole; beyond it connections wait.";
    "riverlog.retention.records", Long(-1, L), "-1", live, used,
        "Default of the topic key of that name.";
    "riverlog.tail.cache.bytes", Long(0, L), "67108864", fixed, used,
        "Memory for the newest batches of all partitions.";
    "riverlog.wal.bytes", Long(8_388_608, L), "67108864", fixed, used,
        "Size of the volume's write-ahead log.";
    "riverlog.when.full", WHEN_FULL, "block", live, used,
        "Default of the topic key of that name.";
    "riverlog.when.full.timeout.ms", Long(0, L), "30000", live, used,
        "Default of the topic key of that name.";
    "sasl.enabled.mechanisms", List(&[]), "" kafka "GSSAPI", node, idle,
        "SASL mechanisms. Listeners with SASL are refused until there are any.";
    "security.inter.broker.protocol", OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), "PLAINTEXT", fixed, idle,
        "The protocol that nodes use among each other.";
    "share.coordinator.snapshot.update.records.per.snapshot", Int(0, 500), "500", fixed, used,
        "Updates of a share group's partition after which all that is kept of it is written anew.";
    "share.coordinator.state.topic.num.partitions", Int(1, I), "50", fixed, used,
        "Partitions of __share_group_state, which keeps what share groups have done.";
    "share.coordinator.state.topic.segment.bytes", Int(1, I), "104857600", fixed, used,
        "The size of a segment of __share_group_state.";
    "socket.listen.backlog.size", Int(1, I), "50", fixed, used,
        "Connections that may wait to be accepted.";
    "socket.receive.buffer.bytes", Int(-1, I), "102400", fixed, idle,
        "Receive buffer of a connection; -1 leaves it to the operating system.";
    "socket.request.max.bytes", Int(1, I), "104857600", fixed, used,
        "The largest request; a connection that announces more is closed.";
    "socket.send.buffer.bytes", Int(-1, I), "102400", fixed, idle,
        "Send buffer of a connection; -1 leaves it to the operating system.";
    "ssl.keystore.location", String, none, node, idle,
        "The file with the node's key. Listeners with TLS are refused until there is TLS.";
    "super.users", String, "", fixed, idle,
        "Users whom access rules don't bind.";
    "transaction.max.timeout.ms", Int(1, I), "900000", fixed, used,
        "The longest time-out that a transactional producer may ask for.";
    "transaction.state.log.min.isr", Int(1, I), none kafka "2", fixed, idle,
        "min.insync.replicas of __transaction_state. Unless set: more than half of its replicas.";
    "transaction.state.log.num.partitions", Int(1, I), "50", fixed, used,
        "Partitions of __transaction_state when it is made. A transactional id's partition follows from it, so it can't change.";
    "transaction.state.log.replication.factor", Short(1, i16::MAX), none kafka "3", fixed, idle,
        "Replicas of __transaction_state. Unless set: one for each registered node, at most 3.";
    "transaction.state.log.segment.bytes", Int(1, I), "104857600", fixed, used,
        "segment.bytes of __transaction_state.";
    "transactional.id.expiration.ms", Int(1, I), "604800000", fixed, used,
        "Silence after which a transactional id is forgotten.";
    "unclean.leader.election.enable", Bool, "false", live, idle,
        "Default of the topic key of that name.";
};
