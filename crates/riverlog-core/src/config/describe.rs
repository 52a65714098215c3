//! What DescribeConfigs answers: each key's value, where it comes from, and what else would have given one.
//!
//! Order and sources are Kafka's. On purpose different: a topic key that gets its value from a key in another unit
//! (`retention.ms` from `log.retention.hours`) names that key and its source, where Kafka names none.

use std::collections::BTreeMap;

use super::values::times;
use super::{Key, Scope, Synonym, key, keys_of};

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

/// What was set for all nodes while they run; not the defaults behind it, as in Kafka.
pub fn describe_cluster_default(dynamic_default: &BTreeMap<String, String>) -> Vec<Described> {
    let none = BTreeMap::new();
    let computed = BTreeMap::new();
    let layers = Layers {
        own: &none,
        dynamic_broker: &none,
        dynamic_default,
        static_broker: &none,
        computed: &computed,
    };
    keys_of(Scope::Broker)
        .filter(|key| dynamic_default.contains_key(key.name))
        .map(|key| {
            let mut described = describe_key(key, &layers);
            described
                .synonyms
                .retain(|s| s.source == ConfigSource::DynamicDefaultBroker);
            described
        })
        .collect()
}

fn describe_key(key: &'static Key, layers: &Layers<'_>) -> Described {
    let mut found: Vec<(Synonym, &str, ConfigSource)> = Vec::new();
    let itself = Synonym {
        name: key.name,
        factor: 1,
    };
    let (own_source, family) = match key.scope {
        Scope::Topic => (Some(ConfigSource::DynamicTopic), key.synonyms),
        Scope::Group => (Some(ConfigSource::DynamicGroup), key.synonyms),
        Scope::Broker => (None, broker_family(key, &itself)),
    };
    if let (Some(source), Some(value)) = (own_source, layers.own.get(key.name)) {
        found.push((itself, value, source));
    }
    for (place, source) in [
        (layers.dynamic_broker, ConfigSource::DynamicBroker),
        (layers.dynamic_default, ConfigSource::DynamicDefaultBroker),
        (layers.static_broker, ConfigSource::StaticBroker),
    ] {
        let set = |s: &Synonym| Some((*s, place.get(s.name)?.as_str(), source));
        found.extend(family.iter().filter_map(set));
    }
    match layers.computed.get(key.name) {
        Some(value) => found.push((itself, value, ConfigSource::Default)),
        None => {
            let default = |s: &Synonym| Some((*s, broker_default(s.name)?, ConfigSource::Default));
            found.extend(family.iter().filter_map(default));
        }
    }
    if key.scope == Scope::Broker {
        // Another unit's value that is stronger isn't this key's own.
        let own = found.iter().position(|(s, ..)| s.name == key.name);
        found.drain(..own.unwrap_or(found.len()));
    }
    if key.scope == Scope::Group
        && family.is_empty()
        && let Some(default) = key.default
    {
        found.push((itself, default, ConfigSource::Default));
    }

    let shown = |value: &str| (!key.sensitive()).then(|| value.to_owned());
    let (value, source) = match found.first() {
        // A broker key is shown in its own unit.
        Some((_, value, source)) if key.scope == Scope::Broker => (shown(value), *source),
        Some((s, value, source)) => (shown(&in_unit(value, s.factor)), *source),
        None => (key.default.and_then(shown), ConfigSource::Default),
    };
    Described {
        key,
        value,
        source,
        synonyms: found
            .into_iter()
            .map(|(s, value, source)| SynonymValue {
                name: s.name,
                value: shown(value),
                source,
            })
            .collect(),
        read_only: !key.dynamic(),
    }
}

fn broker_default(name: &str) -> Option<&'static str> {
    key(Scope::Broker, name)?.default
}

/// A broker key together with those that say the same in other units, strongest first: those that stand together behind one
/// topic key.
fn broker_family<'a>(of: &Key, itself: &'a Synonym) -> &'a [Synonym] {
    keys_of(Scope::Topic)
        .map(|k| k.synonyms)
        .find(|family| family.len() > 1 && family.iter().any(|s| s.name == of.name))
        .unwrap_or(std::slice::from_ref(itself))
}

fn in_unit(value: &str, factor: i64) -> String {
    match (factor, value.trim().parse::<i64>()) {
        (1, _) | (_, Err(_)) => value.to_owned(),
        (factor, Ok(n)) => times(n, factor).to_string(),
    }
}
