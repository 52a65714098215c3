//! What DescribeConfigs answers: each key's value, where it comes from, and what else would have given one.

use std::collections::BTreeMap;

use super::values::times;
use super::{Key, Scope, key, keys_of};

/// Where a value comes from, strongest first within a resource. The numbers are DescribeConfigs' (v1+).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i8)]
pub enum ConfigSource {
    /// Set on the topic.
    DynamicTopic = 1,
    /// Set on one node while it runs.
    DynamicBroker = 2,
    /// Set on all nodes while they run.
    DynamicDefaultBroker = 3,
    /// What the node was started with.
    StaticBroker = 4,
    /// The table's default, or what the cluster's size gives.
    Default = 5,
    /// Set on the group.
    DynamicGroup = 8,
}

/// One place that gives a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynonymValue {
    /// The key there: a topic's default may come from a broker key.
    pub name: &'static str,
    /// Its value there; `None` when it is never shown.
    pub value: Option<String>,
    /// The place.
    pub source: ConfigSource,
}

/// One key of a resource.
#[derive(Clone, Debug)]
pub struct Described {
    /// The key: name, type ([`super::Kind::number`]), words, whether sensitive.
    pub key: &'static Key,
    /// The value in effect; `None` when there is none, or it is never shown.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// All places that give one, the strongest first.
    pub synonyms: Vec<SynonymValue>,
    /// Whether it can't be changed while the node runs.
    pub read_only: bool,
}

/// Where values come from. What doesn't apply is empty.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// Set on the topic or the group itself.
    pub own: &'a BTreeMap<String, String>,
    /// Set on this node while it runs.
    pub dynamic_broker: &'a BTreeMap<String, String>,
    /// Set on all nodes while they run.
    pub dynamic_default: &'a BTreeMap<String, String>,
    /// What the node was started with.
    pub static_broker: &'a BTreeMap<String, String>,
    /// Defaults that the cluster's size decides, by key of the described scope: `min.insync.replicas`,
    /// `default.replication.factor`, ….
    pub computed: &'a BTreeMap<&'static str, String>,
}

/// All keys of a topic, a node or a group, in order of name.
pub fn describe(scope: Scope, layers: &Layers<'_>) -> Vec<Described> {
    keys_of(scope)
        .map(|key| describe_key(key, layers))
        .collect()
}

fn describe_key(key: &'static Key, layers: &Layers<'_>) -> Described {
    let shown = |value: &str| (!key.sensitive()).then(|| value.to_owned());
    let mut synonyms = Vec::new();
    // The value in effect, in this key's own unit.
    let mut effective: Option<(String, ConfigSource)> = None;
    let mut found = |name: &'static str, value: &str, factor: i64, source| {
        synonyms.push(SynonymValue {
            name,
            value: shown(value),
            source,
        });
        effective.get_or_insert_with(|| (in_unit(value, factor), source));
    };

    let own_source = match key.scope {
        Scope::Topic => Some(ConfigSource::DynamicTopic),
        Scope::Group => Some(ConfigSource::DynamicGroup),
        Scope::Broker => None,
    };
    if let (Some(source), Some(value)) = (own_source, layers.own.get(key.name)) {
        found(key.name, value, 1, source);
    }
    let family = family(key);
    let places = [
        (layers.dynamic_broker, ConfigSource::DynamicBroker),
        (layers.dynamic_default, ConfigSource::DynamicDefaultBroker),
        (layers.static_broker, ConfigSource::StaticBroker),
    ];
    for (place, source) in places {
        for (name, factor) in &family {
            if let Some(value) = place.get(*name) {
                found(name, value, *factor, source);
            }
        }
    }
    if let Some(value) = layers.computed.get(key.name) {
        found(key.name, value, 1, ConfigSource::Default);
    } else {
        for (name, factor) in &family {
            if let Some(value) = broker_default(name) {
                found(name, value, *factor, ConfigSource::Default);
            }
        }
    }

    let (value, source) = match effective {
        Some((value, source)) => (shown(&value), source),
        None => (key.default.and_then(shown), ConfigSource::Default),
    };
    Described {
        key,
        value,
        source,
        synonyms,
        read_only: !key.dynamic(),
    }
}

fn broker_default(name: &str) -> Option<&'static str> {
    key(Scope::Broker, name)?.default
}

/// The broker keys behind a key, strongest first, with the factor that brings their value into this key's unit.
fn family(of: &Key) -> Vec<(&'static str, i64)> {
    match of.scope {
        Scope::Broker => vec![(of.name, 1)],
        Scope::Topic | Scope::Group => of.synonyms.iter().map(|s| (s.name, s.factor)).collect(),
    }
}

fn in_unit(value: &str, factor: i64) -> String {
    match (factor, value.trim().parse::<i64>()) {
        (1, _) | (_, Err(_)) => value.to_owned(),
        (factor, Ok(n)) => times(n, factor).to_string(),
    }
}
