//! Every configuration key: name, type, default, range, one line of words. One table feeds parser, `--help`, answers and docs.

use std::collections::BTreeMap;

/// What a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A topic (Kafka's topic keys, and `riverlog.…`).
    Topic,
    /// A node.
    Broker,
    /// A group (KIP-848 group configs).
    Group,
}

/// The type of a key's value, with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// 32 bits, from..=to.
    Int(i32, i32),
    /// 64 bits, from..=to.
    Long(i64, i64),
    /// A fraction, from..=to.
    Double(f64, f64),
    /// Any words.
    String,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Comma-separated; of these, when any are named.
    List(&'static [&'static str]),
    /// Words that are never shown.
    Password,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As Kafka writes it.
    pub name: &'static str,
    /// What it belongs to.
    pub scope: Scope,
    /// Type and range.
    pub kind: Kind,
    /// In text; `None`: no default.
    pub default: Option<&'static str>,
    /// For a topic key: the broker key that gives its default.
    pub synonym: Option<&'static str>,
    /// Whether it can be changed while the node runs.
    pub dynamic: bool,
    /// One line.
    pub doc: &'static str,
}

/// All keys in order of name.
pub fn keys() -> &'static [Key] {
    todo!()
}

/// The key of that name.
pub fn key(scope: Scope, name: &str) -> Option<&'static Key> {
    todo!("{scope:?} {name}")
}

/// A value that a key doesn't take.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("{key} = {value}: {reason}; {remedy}")]
pub struct ConfigError {
    /// The key.
    pub key: String,
    /// What was given.
    pub value: String,
    /// What is wrong.
    pub reason: String,
    /// Range, default, or the key that was probably meant.
    pub remedy: String,
}

/// Checks one value.
pub fn check(scope: Scope, name: &str, value: &str) -> Result<(), ConfigError> {
    todo!("{scope:?} {name} {value}")
}

/// A topic's settings, typed: its own values over the node's over the defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`: delete.
    pub delete: bool,
    /// `cleanup.policy`: compact.
    pub compact: bool,
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
    pub compression: Option<riverlog_wire::compression::Compression>,
}

impl TopicConfig {
    /// From a topic's own values and the node's. Values have been checked.
    pub fn new(topic: &BTreeMap<String, String>, node: &BTreeMap<String, String>) -> TopicConfig {
        todo!("{topic:?} {node:?}")
    }
}
