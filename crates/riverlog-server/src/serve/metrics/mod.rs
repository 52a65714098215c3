//! `/metrics`: the node's own families and kafka_exporter's names always; those of other tools when they are asked for.

mod aliases;
mod family;
mod snapshot;

use std::collections::BTreeMap;
use std::fmt;

use riverlog_node::MetricKind;

use super::http::Health;
use aliases::{jmx, kminion, lag_exporter};
use family::Family;
use snapshot::{Commit, Snapshot, TopicState};

pub(crate) use snapshot::Times;

/// How much of it: `riverlog.metrics.detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Detail {
    /// Sums.
    Cluster,
    /// By topic and group.
    Topic,
    /// By partition.
    #[default]
    Partition,
}

/// What is told by which names.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricsSettings {
    pub(crate) detail: Detail,
    /// Names of other tools: `kminion`, `lag-exporter`, `jmx`.
    pub(crate) aliases: Vec<String>,
}

impl MetricsSettings {
    pub(crate) fn new(detail: &str, aliases: &str) -> MetricsSettings {
        MetricsSettings {
            detail: match detail {
                "cluster" => Detail::Cluster,
                "topic" => Detail::Topic,
                _ => Detail::Partition,
            },
            aliases: aliases
                .split(',')
                .map(|a| a.trim().to_owned())
                .filter(|a| !a.is_empty())
                .collect(),
        }
    }
}

/// All families, in OpenMetrics' text form.
pub(crate) async fn text(health: &Health) -> Result<String, fmt::Error> {
    let snapshot = Snapshot::take(health).await;
    let detail = health.metrics.detail;
    let mut families = own(health);
    cluster(&snapshot, &mut families);
    topics(&snapshot, detail, &mut families);
    groups(&snapshot, detail, &mut families);
    for alias in &health.metrics.aliases {
        match alias.as_str() {
            "kminion" => kminion(&snapshot, detail, &mut families),
            "lag-exporter" => lag_exporter(&snapshot, &mut families),
            "jmx" => jmx(health, &snapshot, &mut families),
            _ => {}
        }
    }
    family::text(families)
}

/// What the node and its sockets count.
fn own(health: &Health) -> Vec<Family> {
    let mut families = Vec::new();
    for metric in health.driver.node.metrics() {
        let counter = metric.kind == MetricKind::Counter;
        let name = metric.name.strip_suffix("_total").filter(|_| counter);
        let name = format!("riverlog_{}", name.unwrap_or(metric.name));
        let family = match counter {
            true => Family::counter(name, metric.help),
            false => Family::gauge(name, metric.help),
        };
        families.push(family.of(metric.value));
    }
    let (all, web) = (health.limits.connected(), health.web.connected());
    let mut gauge = |name: &str, help, value: f64| {
        families.push(Family::gauge(name, help).of(value));
    };
    gauge(
        "riverlog_connections",
        "Connections of Kafka clients",
        all as f64,
    );
    gauge(
        "riverlog_http_connections",
        "Connections of HTTP clients",
        web as f64,
    );
    gauge(
        "riverlog_receive_bytes_held",
        "Bytes of requests that haven't come in whole",
        health.limits.received() as f64,
    );
    if let Some((total, free)) = health.driver.node.disk_space() {
        gauge(
            "riverlog_disk_total_bytes",
            "Bytes of the data folder's disk",
            total as f64,
        );
        gauge(
            "riverlog_disk_free_bytes",
            "Bytes of it that are free",
            free as f64,
        );
    }
    for (name, help, samples) in health.door.counts() {
        let mut family = Family::counter(name, help);
        for (labels, value) in samples {
            family.add(labels, value);
        }
        families.push(family);
    }
    families
}

fn cluster(snapshot: &Snapshot, families: &mut Vec<Family>) {
    families
        .push(Family::gauge("kafka_brokers", "Registered nodes").of(snapshot.brokers.len() as f64));
    let mut info = Family::gauge("kafka_broker_info", "A registered node");
    let mut fenced = Family::gauge(
        "riverlog_broker_fenced",
        "1 while the controller takes a node for gone, which leads nothing then",
    );
    let mut ailing = Family::gauge(
        "riverlog_broker_disk_ailing",
        "1 while a node says that its disk is full, has failed or is slow: others lead what they can",
    );
    for broker in &snapshot.brokers {
        let id = || ("id", broker.id.to_string());
        info.add(vec![("address", broker.address.clone()), id()], 1.0);
        fenced.add(vec![id()], f64::from(u8::from(broker.fenced)));
        ailing.add(vec![id()], f64::from(u8::from(broker.ailing)));
    }
    families.extend([info, fenced, ailing]);
    let partitions = || snapshot.topics.iter().flat_map(|t| &t.partitions);
    let mut count = |name: &str, help, n: usize| {
        families.push(Family::gauge(name, help).of(n as f64));
    };
    count(
        "riverlog_partitions_under_replicated",
        "Partitions with a replica that isn't in sync",
        partitions().filter(|p| p.isr < p.replicas).count(),
    );
    count(
        "riverlog_partitions_under_min_isr",
        "Partitions with fewer replicas in sync than acks=all needs",
        partitions().filter(|p| p.isr < p.min_isr).count(),
    );
    count(
        "riverlog_partitions_offline",
        "Partitions without a leader",
        partitions().filter(|p| p.leader < 0).count(),
    );
    count(
        "riverlog_partitions_failed",
        "Partitions that take no writes until a restart",
        partitions()
            .filter(|p| p.positions.is_some_and(|p| p.failed))
            .count(),
    );
    let sizes = partitions().filter_map(|p| p.positions);
    let bytes: u64 = sizes.map(|p| p.size_bytes).sum();
    families
        .push(Family::gauge("riverlog_log_size_bytes", "Bytes of all segments").of(bytes as f64));
}

fn of_partition(topic: &str, partition: usize) -> Vec<(&'static str, String)> {
    vec![
        ("partition", partition.to_string()),
        ("topic", topic.to_owned()),
    ]
}

fn topics(snapshot: &Snapshot, detail: Detail, families: &mut Vec<Family>) {
    if detail < Detail::Topic {
        return;
    }
    let mut counts = Family::gauge("kafka_topic_partitions", "Partitions of a topic");
    let mut sizes = Family::gauge("riverlog_topic_size_bytes", "Bytes of a topic's segments");
    let mut records = Family::counter(
        "riverlog_topic_records_appended",
        "Records that a topic was given since it was made: the sum of its partitions' ends",
    );
    for topic in &snapshot.topics {
        let labels = || vec![("topic", topic.name.clone())];
        counts.add(labels(), topic.partitions.len() as f64);
        let positions = || topic.partitions.iter().filter_map(|p| p.positions);
        let bytes: u64 = positions().map(|p| p.size_bytes).sum();
        sizes.add(labels(), bytes as f64);
        let ends: i64 = positions().map(|p| p.high_watermark).sum();
        records.add(labels(), ends as f64);
    }
    families.extend([counts, sizes, records]);
    if detail == Detail::Partition {
        partitions(&snapshot.topics, families);
    }
}

fn partitions(topics: &[TopicState], families: &mut Vec<Family>) {
    let family = |name: &str, help| Family::gauge(format!("kafka_topic_partition_{name}"), help);
    let mut ends = family("current_offset", "The next offset of a partition");
    let mut starts = family("oldest_offset", "The first offset of a partition");
    let mut leaders = family("leader", "The leader of a partition");
    let mut preferred = family("leader_is_preferred", "1 when the first replica leads");
    let mut replicas = family("replicas", "Replicas of a partition");
    let mut in_sync = family("in_sync_replica", "In-sync replicas of a partition");
    let mut under = family(
        "under_replicated_partition",
        "1 when a replica isn't in sync",
    );
    let mut sizes = Family::gauge(
        "riverlog_partition_size_bytes",
        "Bytes of a partition's segments",
    );
    let one = |yes: bool| f64::from(u8::from(yes));
    for topic in topics {
        for (index, partition) in topic.partitions.iter().enumerate() {
            let labels = || of_partition(&topic.name, index);
            leaders.add(labels(), f64::from(partition.leader));
            preferred.add(labels(), one(partition.preferred));
            replicas.add(labels(), partition.replicas as f64);
            in_sync.add(labels(), partition.isr as f64);
            under.add(labels(), one(partition.isr < partition.replicas));
            if let Some(positions) = partition.positions {
                ends.add(labels(), positions.high_watermark as f64);
                starts.add(labels(), positions.start as f64);
                sizes.add(labels(), positions.size_bytes as f64);
            }
        }
    }
    families.extend([
        ends, starts, leaders, preferred, replicas, in_sync, under, sizes,
    ]);
}

/// Committed offsets and lag of a group, by topic.
fn by_topic(commits: &[Commit]) -> BTreeMap<&str, (i64, i64)> {
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for commit in commits {
        let sum = sums.entry(&commit.topic).or_default();
        sum.0 += commit.offset;
        sum.1 += commit.lag.unwrap_or(0);
    }
    sums
}

/// The longest wait of a group.
fn longest(commits: &[Commit]) -> Option<f64> {
    commits.iter().filter_map(|c| c.seconds).reduce(f64::max)
}

fn groups(snapshot: &Snapshot, detail: Detail, families: &mut Vec<Family>) {
    let kafka = |name: &str, help| Family::gauge(format!("kafka_consumergroup_{name}"), help);
    let lag_of_all = snapshot.groups.iter().flat_map(|g| &g.commits);
    let all: i64 = lag_of_all.filter_map(|c| c.lag).sum();
    families
        .push(Family::gauge("riverlog_consumergroups", "Groups").of(snapshot.groups.len() as f64));
    families.push(
        Family::gauge(
            "riverlog_consumergroups_lag_records",
            "Records that groups haven't committed yet, of all groups",
        )
        .of(all as f64),
    );
    if detail < Detail::Topic {
        return;
    }
    let mut members = kafka("members", "Members of a group");
    let mut offset_sums = kafka(
        "current_offset_sum",
        "Committed offsets of a topic, summed up",
    );
    let mut sums = kafka(
        "lag_sum",
        "Records of a topic that a group hasn't committed yet",
    );
    let mut seconds = Family::gauge(
        "riverlog_consumergroup_lag_seconds",
        "How long the first record that a group hasn't committed waits, at most over its partitions",
    );
    let mut info = Family::gauge("riverlog_consumergroup_info", "A group and its state");
    let mut offsets = kafka("current_offset", "The committed offset of a partition");
    let mut lags = kafka("lag", "Records that a group hasn't committed yet");
    let mut waits = Family::gauge(
        "riverlog_consumergroup_partition_lag_seconds",
        "How long the first record that a group hasn't committed waits in a partition",
    );
    for group in &snapshot.groups {
        let name = &group.description.group;
        let of_group = || vec![("consumergroup", name.clone())];
        members.add(of_group(), group.description.members.len() as f64);
        let mut labels = of_group();
        labels.push(("state", group.description.state.to_owned()));
        labels.push(("type", group.description.group_type.to_owned()));
        info.add(labels, 1.0);
        if let Some(longest) = longest(&group.commits) {
            seconds.add(of_group(), longest);
        }
        for (topic, (offset, lag)) in by_topic(&group.commits) {
            let labels = || vec![("consumergroup", name.clone()), ("topic", topic.to_owned())];
            offset_sums.add(labels(), offset as f64);
            sums.add(labels(), lag as f64);
        }
        if detail < Detail::Partition {
            continue;
        }
        for commit in &group.commits {
            let labels = || {
                vec![
                    ("consumergroup", name.clone()),
                    ("partition", commit.partition.to_string()),
                    ("topic", commit.topic.clone()),
                ]
            };
            offsets.add(labels(), commit.offset as f64);
            if let Some(lag) = commit.lag {
                lags.add(labels(), lag as f64);
            }
            if let Some(wait) = commit.seconds {
                waits.add(labels(), wait);
            }
        }
    }
    families.extend([
        members,
        offsets,
        lags,
        offset_sums,
        sums,
        seconds,
        waits,
        info,
    ]);
}
