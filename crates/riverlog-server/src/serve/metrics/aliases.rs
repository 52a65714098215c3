//! The same values by the names that dashboards of other tools ask for; opt-in, since each name costs.

use riverlog_node::Node;

use super::family::Family;
use super::snapshot::{Commit, Snapshot};
use super::{Detail, by_topic, longest};
use crate::serve::http::Health;

type Labels = Vec<(&'static str, String)>;

/// kminion's names.
pub(super) fn kminion(snapshot: &Snapshot, detail: Detail, families: &mut Vec<Family>) {
    let family = |name: &str, help| Family::gauge(format!("kminion_kafka_{name}"), help);
    let mut cluster = family("cluster_info", "The cluster");
    cluster.add(
        vec![
            ("broker_count", snapshot.brokers.len().to_string()),
            ("cluster_id", snapshot.cluster_id.clone()),
            ("cluster_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("controller_id", snapshot.this.to_string()),
        ],
        1.0,
    );
    let mut brokers = family("broker_info", "A registered node");
    for broker in &snapshot.brokers {
        let address = &broker.address;
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let controller = broker.id == snapshot.this;
        brokers.add(
            vec![
                ("address", host.to_owned()),
                ("broker_id", broker.id.to_string()),
                ("is_controller", controller.to_string()),
                ("port", port.to_owned()),
                ("rack_id", broker.rack.clone()),
            ],
            1.0,
        );
    }
    let mut folder = family(
        "broker_log_dir_size_total_bytes",
        "Bytes of a node's segments",
    );
    let sizes = snapshot.topics.iter().flat_map(|t| &t.partitions);
    let bytes: u64 = sizes
        .filter_map(|p| p.positions)
        .map(|p| p.size_bytes)
        .sum();
    folder.add(vec![("broker_id", snapshot.this.to_string())], bytes as f64);
    let mut info = family("topic_info", "A topic");
    let mut dirs = family(
        "topic_log_dir_size_total_bytes",
        "Bytes of a topic's segments",
    );
    let mut high = family(
        "topic_partition_high_water_mark",
        "The next offset of a partition",
    );
    let mut low = family(
        "topic_partition_low_water_mark",
        "The first offset of a partition",
    );
    let mut high_sum = family(
        "topic_high_water_mark_sum",
        "The next offsets of a topic, summed up",
    );
    for topic in &snapshot.topics {
        let name = || ("topic_name", topic.name.clone());
        let replicas = topic.partitions.first().map_or(0, |p| p.replicas);
        info.add(
            vec![
                (
                    "cleanup_policy",
                    if topic.compact { "compact" } else { "delete" }.to_owned(),
                ),
                ("partition_count", topic.partitions.len().to_string()),
                ("replication_factor", replicas.to_string()),
                name(),
            ],
            1.0,
        );
        let positions = || topic.partitions.iter().filter_map(|p| p.positions);
        let bytes: u64 = positions().map(|p| p.size_bytes).sum();
        dirs.add(vec![name()], bytes as f64);
        let ends: i64 = positions().map(|p| p.high_watermark).sum();
        high_sum.add(vec![name()], ends as f64);
        if detail < Detail::Partition {
            continue;
        }
        for (index, partition) in topic.partitions.iter().enumerate() {
            let labels = || vec![("partition_id", index.to_string()), name()];
            if let Some(positions) = partition.positions {
                high.add(labels(), positions.high_watermark as f64);
                low.add(labels(), positions.start as f64);
            }
        }
    }
    families.extend([cluster, brokers, folder, info, dirs, high_sum, high, low]);
    kminion_groups(snapshot, detail, families);
}

fn kminion_groups(snapshot: &Snapshot, detail: Detail, families: &mut Vec<Family>) {
    let family =
        |name: &str, help| Family::gauge(format!("kminion_kafka_consumer_group_{name}"), help);
    let mut info = family("info", "A group");
    let mut members = family("members", "Members of a group");
    let mut lags = family(
        "topic_lag",
        "Records of a topic that a group hasn't committed yet",
    );
    let mut offsets = family(
        "topic_offset_sum",
        "Committed offsets of a topic, summed up",
    );
    let mut each = family(
        "topic_partition_lag",
        "Records that a group hasn't committed yet",
    );
    for group in &snapshot.groups {
        let of = &group.description;
        let id = || ("group_id", of.group.clone());
        info.add(
            vec![
                id(),
                ("protocol", of.protocol.clone()),
                ("protocol_type", of.protocol_type.clone()),
                ("state", of.state.to_owned()),
            ],
            1.0,
        );
        members.add(vec![id()], of.members.len() as f64);
        for (topic, (offset, lag)) in by_topic(&group.commits) {
            let labels = || vec![id(), ("topic_name", topic.to_owned())];
            lags.add(labels(), lag as f64);
            offsets.add(labels(), offset as f64);
        }
        for commit in group.commits.iter().filter(|_| detail == Detail::Partition) {
            let labels = vec![
                id(),
                ("partition_id", commit.partition.to_string()),
                ("topic_name", commit.topic.clone()),
            ];
            if let Some(lag) = commit.lag {
                each.add(labels, lag as f64);
            }
        }
    }
    families.extend([info, members, lags, offsets, each]);
}

/// kafka-lag-exporter's names.
pub(super) fn lag_exporter(snapshot: &Snapshot, families: &mut Vec<Family>) {
    let family =
        |name: &str, help| Family::gauge(format!("kafka_consumergroup_group_{name}"), help);
    let cluster = || ("cluster_name", snapshot.cluster_id.clone());
    let mut lag = family("lag", "Records that a group hasn't committed yet");
    let mut seconds = family("lag_seconds", "How long the first of them waits");
    let mut sum = family(
        "sum_lag",
        "Records that a group hasn't committed yet, of all its partitions",
    );
    let mut most = family("max_lag", "The same of the partition where they are most");
    let mut longest_of = family("max_lag_seconds", "The longest wait of a group");
    for group in &snapshot.groups {
        let name = || ("group", group.description.group.clone());
        let of_partition = |commit: &Commit| -> Labels {
            vec![
                cluster(),
                name(),
                ("partition", commit.partition.to_string()),
                ("topic", commit.topic.clone()),
            ]
        };
        for commit in &group.commits {
            if let Some(records) = commit.lag {
                lag.add(of_partition(commit), records as f64);
            }
            if let Some(wait) = commit.seconds {
                seconds.add(of_partition(commit), wait);
            }
        }
        let lags = || group.commits.iter().filter_map(|c| c.lag);
        let total: i64 = lags().sum();
        sum.add(vec![cluster(), name()], total as f64);
        most.add(vec![cluster(), name()], lags().max().unwrap_or(0) as f64);
        if let Some(longest) = longest(&group.commits) {
            longest_of.add(vec![cluster(), name()], longest);
        }
    }
    families.extend([lag, seconds, sum, most, longest_of]);
}

/// The names that the JMX exporter gives Kafka's own with the rules that Strimzi ships. What has no counterpart here is left out.
pub(super) fn jmx(health: &Health, snapshot: &Snapshot, families: &mut Vec<Family>) {
    let node: &Node = &health.driver.node;
    let counted = node.metrics();
    let value = |name: &str| {
        counted
            .iter()
            .find(|m| m.name == name)
            .map_or(0.0, |m| m.value)
    };
    for (name, help, from) in [
        (
            "bytesin",
            "Bytes of batches that were acknowledged",
            "bytes_in_total",
        ),
        (
            "bytesout",
            "Bytes of batches in answers to fetches",
            "bytes_out_total",
        ),
        (
            "totalproducerequests",
            "Batches that were sent",
            "append_requests_total",
        ),
        (
            "failedproducerequests",
            "Batches that were refused",
            "append_failures_total",
        ),
        ("totalfetchrequests", "Fetches", "fetch_requests_total"),
    ] {
        let name = format!("kafka_server_brokertopicmetrics_{name}");
        families.push(Family::counter(name, help).of(value(from)));
    }
    let mut messages = Family::counter(
        "kafka_server_brokertopicmetrics_messagesin",
        "Records that a topic was given",
    );
    let mut sizes = Family::gauge("kafka_log_log_size", "Bytes of a partition's segments");
    for topic in &snapshot.topics {
        let positions = topic.partitions.iter().filter_map(|p| p.positions);
        let ends: i64 = positions.map(|p| p.high_watermark).sum();
        messages.add(vec![("topic", topic.name.clone())], ends as f64);
        for (index, partition) in topic.partitions.iter().enumerate() {
            if let Some(positions) = partition.positions {
                let labels = vec![
                    ("partition", index.to_string()),
                    ("topic", topic.name.clone()),
                ];
                sizes.add(labels, positions.size_bytes as f64);
            }
        }
    }
    families.extend([messages, sizes]);
    let partitions = || snapshot.topics.iter().flat_map(|t| &t.partitions);
    let mut count = |name: &str, help, n: usize| {
        families.push(Family::gauge(name, help).of(n as f64));
    };
    count(
        "kafka_server_replicamanager_partitioncount",
        "Partitions",
        partitions().count(),
    );
    count(
        "kafka_server_replicamanager_leadercount",
        "Partitions that this node leads",
        partitions().filter(|p| p.leader == snapshot.this).count(),
    );
    count(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions with a replica that isn't in sync",
        partitions().filter(|p| p.isr < p.replicas).count(),
    );
    count(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions with too few replicas in sync",
        partitions().filter(|p| p.isr < p.min_isr).count(),
    );
    count(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 on the controller",
        1,
    );
    count(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions without a leader",
        partitions().filter(|p| p.leader < 0).count(),
    );
    count(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Data folders that take no writes",
        usize::from(value("disk_failed") > 0.0),
    );
    let topics = snapshot.topics.iter().filter(|t| !t.internal).count();
    count(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "Topics",
        topics,
    );
    let connections = health.limits.connected();
    count(
        "kafka_server_socket_server_metrics_connection_count",
        "Connections of clients",
        connections,
    );
}
