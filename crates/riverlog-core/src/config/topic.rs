//! A topic's settings, typed.

use std::collections::BTreeMap;

use riverlog_wire::compression::Compression;

use super::values::{items, times};
use super::{Key, Scope, key};

/// A topic's settings, typed: its own values over the node's over the defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`: delete.
    pub delete: bool,
    /// `cleanup.policy`: compact.
    pub compact: bool,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`, 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `segment.bytes`.
    pub segment_bytes: i32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: i32,
    /// `retention.ms`; −1 for ever.
    pub retention_ms: i64,
    /// `retention.bytes`; −1 all.
    pub retention_bytes: i64,
    /// `riverlog.retention.records`; −1 all.
    pub retention_records: i64,
    /// `riverlog.max.records`; −1 no bound.
    pub max_records: i64,
    /// `riverlog.max.bytes`; −1 no bound.
    pub max_bytes: i64,
    /// `riverlog.when.full`: `true` for block, `false` for error.
    pub block_when_full: bool,
    /// `riverlog.when.full.timeout.ms`.
    pub when_full_timeout_ms: i64,
    /// `riverlog.durability`: `true` for sync, `false` for page-cache.
    pub sync: bool,
    /// `max.message.bytes`.
    pub max_message_bytes: i32,
    /// `message.timestamp.type` is LogAppendTime.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `min.insync.replicas`; `None`: RF/2+1.
    pub min_insync_replicas: Option<i32>,
    /// `compression.type`: `None` for producer's own.
    pub compression: Option<Compression>,
}

impl TopicConfig {
    /// From a topic's own values and the node's (dynamic ones laid over those it was started with). Values have been
    /// checked; one that hasn't and can't be read counts as not set.
    pub fn new(topic: &BTreeMap<String, String>, node: &BTreeMap<String, String>) -> TopicConfig {
        let read = Reading { topic, node };
        let policy = read.text("cleanup.policy");
        let durability = read.text("riverlog.durability");
        TopicConfig {
            delete: items(&policy).any(|p| p == "delete"),
            compact: items(&policy).any(|p| p == "compact"),
            min_compaction_lag_ms: read.long("min.compaction.lag.ms"),
            max_compaction_lag_ms: read.long("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio: read.fraction("min.cleanable.dirty.ratio"),
            delete_retention_ms: read.long("delete.retention.ms"),
            segment_bytes: read.int("segment.bytes"),
            segment_ms: read.long("segment.ms"),
            index_interval_bytes: read.int("index.interval.bytes"),
            retention_ms: read.long("retention.ms"),
            retention_bytes: read.long("retention.bytes"),
            retention_records: read.long("riverlog.retention.records"),
            max_records: read.long("riverlog.max.records"),
            max_bytes: read.long("riverlog.max.bytes"),
            block_when_full: read.text("riverlog.when.full") == "block",
            when_full_timeout_ms: read.long("riverlog.when.full.timeout.ms"),
            sync: durability != "page-cache",
            max_message_bytes: read.int("max.message.bytes"),
            log_append_time: read.text("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms: read.long("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: read.long("message.timestamp.after.max.ms"),
            min_insync_replicas: read.set("min.insync.replicas", |v| v.parse().ok()),
            compression: match read.text("compression.type").as_str() {
                "uncompressed" => Some(Compression::None),
                "gzip" => Some(Compression::Gzip),
                "snappy" => Some(Compression::Snappy),
                "lz4" => Some(Compression::Lz4),
                "zstd" => Some(Compression::Zstd),
                _ => None,
            },
        }
    }

    /// The in-sync replicas that acks=all needs, of a topic with that many replicas. More than there are means all.
    pub fn min_isr(&self, replicas: usize) -> usize {
        match self.min_insync_replicas {
            Some(n) => usize::try_from(n).unwrap_or(1).clamp(1, replicas.max(1)),
            None => replicas / 2 + 1,
        }
    }
}

impl Default for TopicConfig {
    /// What a topic has when nothing was set anywhere.
    fn default() -> TopicConfig {
        TopicConfig::new(&BTreeMap::new(), &BTreeMap::new())
    }
}

struct Reading<'a> {
    topic: &'a BTreeMap<String, String>,
    node: &'a BTreeMap<String, String>,
}

impl Reading<'_> {
    /// The strongest value that was set and can be read.
    fn set<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let own = self.topic.get(name).and_then(|v| parse(v.trim()));
        own.or_else(|| {
            key(Scope::Topic, name)?.synonyms.iter().find_map(|s| {
                let value = self.node.get(s.name)?.trim();
                match s.factor {
                    1 => parse(value),
                    factor => parse(&times(value.parse().ok()?, factor).to_string()),
                }
            })
        })
    }

    fn default_of(name: &str) -> &'static str {
        key(Scope::Topic, name)
            .and_then(|k: &Key| k.default)
            .unwrap_or_default()
    }

    fn text(&self, name: &str) -> String {
        self.set(name, |v| Some(v.to_owned()))
            .unwrap_or_else(|| Self::default_of(name).to_owned())
    }

    fn long(&self, name: &str) -> i64 {
        self.set(name, |v| v.parse().ok())
            .or_else(|| Self::default_of(name).parse().ok())
            .unwrap_or(-1)
    }

    fn fraction(&self, name: &str) -> f64 {
        self.set(name, |v| v.parse().ok())
            .or_else(|| Self::default_of(name).parse().ok())
            .unwrap_or(0.5)
    }

    fn int(&self, name: &str) -> i32 {
        self.set(name, |v| v.parse().ok())
            .or_else(|| Self::default_of(name).parse().ok())
            .unwrap_or(-1)
    }
}
