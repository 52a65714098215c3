//! `/metrics`: the node's own families, and kafka_exporter's names for topics and groups.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use riverlog_core::groups::{CommittedOffset, GroupDescription, TopicPartition};
use riverlog_core::metadata::TopicRef;
use riverlog_node::{MetricKind, Reply};
use riverlog_wire::ErrorCode;

use super::http::Health;

/// How long groups may take to answer; without them the rest is still told.
const GROUPS_WAIT: Duration = Duration::from_secs(2);

type Committed = Vec<(TopicPartition, Option<CommittedOffset>)>;

/// One sample of a family: labels and value.
type Sample = (Vec<(&'static str, String)>, f64);

/// A family of samples.
#[derive(Debug)]
struct Family {
    name: String,
    help: &'static str,
    counter: bool,
    samples: Vec<Sample>,
}

/// All families, in OpenMetrics' text form.
pub(crate) async fn text(health: &Health) -> Result<String, fmt::Error> {
    let mut families = Vec::new();
    let mut one = |name: &str, help, counter, value: f64| {
        families.push(Family {
            name: name.to_owned(),
            help,
            counter,
            samples: vec![(Vec::new(), value)],
        });
    };
    for metric in health.driver.node.metrics() {
        let counter = metric.kind == MetricKind::Counter;
        // The encoder writes counters' `_total` itself.
        let name = metric
            .name
            .strip_suffix("_total")
            .filter(|_| counter)
            .unwrap_or(metric.name);
        one(
            &format!("riverlog_{name}"),
            metric.help,
            counter,
            metric.value,
        );
    }
    one(
        "riverlog_connections",
        "Connections of clients",
        false,
        health.limits.connected() as f64,
    );
    one(
        "riverlog_http_connections",
        "Connections of HTTP clients",
        false,
        health.web.connected() as f64,
    );
    one(
        "riverlog_receive_bytes_held",
        "Bytes of requests that haven't come in whole",
        false,
        health.limits.received() as f64,
    );
    let image = health.driver.node.image();
    one(
        "kafka_brokers",
        "Registered nodes",
        false,
        image.brokers.len() as f64,
    );
    drop(image);
    let ends = partitions(health, &mut families);
    groups(health, &ends, &mut families).await;
    write(&families)
}

/// Families of partitions; returns where each partition ends.
fn partitions(health: &Health, families: &mut Vec<Family>) -> BTreeMap<(String, i32), i64> {
    let node = &health.driver.node;
    let image = node.image();
    let family = |name: &str, help| Family {
        name: name.to_owned(),
        help,
        counter: false,
        samples: Vec::new(),
    };
    let mut counts = family("kafka_topic_partitions", "Partitions of a topic");
    let mut ends = family(
        "kafka_topic_partition_current_offset",
        "The next offset of a partition",
    );
    let mut starts = family(
        "kafka_topic_partition_oldest_offset",
        "The first offset of a partition",
    );
    let mut leaders = family("kafka_topic_partition_leader", "The leader of a partition");
    let mut replicas = family("kafka_topic_partition_replicas", "Replicas of a partition");
    let mut in_sync = family(
        "kafka_topic_partition_in_sync_replica",
        "In-sync replicas of a partition",
    );
    let mut under = family(
        "kafka_topic_partition_under_replicated_partition",
        "1 when a replica isn't in sync",
    );
    let mut sizes = family(
        "riverlog_partition_size_bytes",
        "Bytes of a partition's segments",
    );
    let mut out = BTreeMap::new();
    for topic in image.topics.values() {
        counts.samples.push((
            vec![("topic", topic.name.clone())],
            topic.partitions.len() as f64,
        ));
        for (index, partition) in (0..).zip(&topic.partitions) {
            let labels = || {
                vec![
                    ("partition", format!("{index}")),
                    ("topic", topic.name.clone()),
                ]
            };
            let leader = partition.leader.map_or(-1, |b| b.0);
            leaders.samples.push((labels(), f64::from(leader)));
            replicas
                .samples
                .push((labels(), partition.replicas.len() as f64));
            in_sync.samples.push((labels(), partition.isr.len() as f64));
            let missing = partition.isr.len() < partition.replicas.len();
            under.samples.push((labels(), f64::from(u8::from(missing))));
            let Ok(found) = node.partition(&TopicRef::Id(topic.id), index) else {
                continue;
            };
            let description = node.describe_partition(&found);
            ends.samples
                .push((labels(), description.high_watermark.0 as f64));
            starts
                .samples
                .push((labels(), description.log_start_offset.0 as f64));
            sizes
                .samples
                .push((labels(), description.size_bytes as f64));
            out.insert((topic.name.clone(), index), description.high_watermark.0);
        }
    }
    families.extend([
        counts, ends, starts, leaders, replicas, in_sync, under, sizes,
    ]);
    out
}

/// Asks the node, and waits without holding up a thread.
async fn asked<T: Send + 'static>(ask: impl FnOnce(Reply<T>)) -> Option<T> {
    let (send, receive) = tokio::sync::oneshot::channel();
    ask(Reply::new(move |answer| {
        // Nobody waits any more: the answer came too late.
        let _ = send.send(answer);
    }));
    tokio::time::timeout(GROUPS_WAIT, receive).await.ok()?.ok()
}

async fn groups(health: &Health, ends: &BTreeMap<(String, i32), i64>, families: &mut Vec<Family>) {
    let (node, driver) = (&health.driver.node, &health.driver);
    let answer: Option<Result<Vec<GroupDescription>, ErrorCode>> =
        asked(|reply| node.groups(driver.now(), reply)).await;
    let Some(Ok(groups)) = answer else { return };
    let family = |name: &str, help| Family {
        name: name.to_owned(),
        help,
        counter: false,
        samples: Vec::new(),
    };
    let mut members = family("kafka_consumergroup_members", "Members of a group");
    let mut offsets = family(
        "kafka_consumergroup_current_offset",
        "The committed offset of a partition",
    );
    let mut lags = family(
        "kafka_consumergroup_lag",
        "Records that a group hasn't committed yet",
    );
    let mut sums = family(
        "kafka_consumergroup_lag_sum",
        "Records of a topic that a group hasn't committed yet",
    );
    for group in groups {
        members.samples.push((
            vec![("consumergroup", group.group.clone())],
            group.members.len() as f64,
        ));
        let answer: Option<Result<Committed, ErrorCode>> =
            asked(|reply| node.committed(&group.group, None, None, driver.now(), reply)).await;
        let Some(Ok(committed)) = answer else {
            continue;
        };
        let mut of_topic: BTreeMap<String, i64> = BTreeMap::new();
        for (at, offset) in committed {
            let Some(offset) = offset else { continue };
            let labels = || {
                vec![
                    ("consumergroup", group.group.clone()),
                    ("partition", at.partition.to_string()),
                    ("topic", at.topic.clone()),
                ]
            };
            offsets.samples.push((labels(), offset.offset.0 as f64));
            if let Some(end) = ends.get(&(at.topic.clone(), at.partition)) {
                let lag = (end - offset.offset.0).max(0);
                lags.samples.push((labels(), lag as f64));
                *of_topic.entry(at.topic.clone()).or_default() += lag;
            }
        }
        for (topic, lag) in of_topic {
            sums.samples.push((
                vec![("consumergroup", group.group.clone()), ("topic", topic)],
                lag as f64,
            ));
        }
    }
    families.extend([members, offsets, lags, sums]);
}

fn write(families: &[Family]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(
        families.iter().map(Family::copy).collect(),
    )));
    encode(&mut out, &registry)?;
    Ok(out)
}

impl Family {
    fn copy(&self) -> Family {
        Family {
            name: self.name.clone(),
            help: self.help,
            counter: self.counter,
            samples: self.samples.clone(),
        }
    }
}

/// Families that were just collected.
#[derive(Debug)]
struct Collected(Vec<Family>);

impl prometheus_client::collector::Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = if family.counter {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let mut out = encoder.encode_descriptor(&family.name, family.help, None, kind)?;
            if let [(labels, value)] = family.samples.as_slice()
                && labels.is_empty()
            {
                if family.counter {
                    ConstCounter::new(*value).encode(out)?;
                } else {
                    ConstGauge::new(*value).encode(out)?;
                }
                continue;
            }
            for (labels, value) in &family.samples {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
                ConstGauge::new(*value).encode(out.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
