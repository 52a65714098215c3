//! The configs of a resource, for the handlers that show them.

use std::collections::BTreeMap;

use riverlog_core::config::{ConfigSource, Described, Layers, Scope, describe};
use riverlog_core::metadata::{ConfigChange, MetadataImage};

use crate::kafka::door::KafkaDoor;

/// Kafka's numbers of resources.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
pub(super) const BROKER_LOGGER: i8 = 8;
pub(super) const CLIENT_METRICS: i8 = 16;
pub(super) const GROUP: i8 = 32;

/// A topic's configs over the node's over the defaults.
pub(super) fn of_topic(door: &KafkaDoor, own: &BTreeMap<String, String>) -> Vec<Described> {
    layered(door, Scope::Topic, own)
}

/// The value of a topic's key, where it or a node key of the same name is set.
pub(super) fn topic_value(door: &KafkaDoor, topic: &str, key: &str) -> Option<String> {
    let image = door.node.image();
    let this = Some(door.node.settings().broker);
    let dynamic = |broker| image.broker_configs.get(&broker)?.get(key);
    let set = image.topic(topic)?.configs.get(key);
    set.or_else(|| dynamic(this))
        .or_else(|| dynamic(None))
        .or_else(|| door.node.settings().configs.get(key))
        .cloned()
}

/// A group's configs.
pub(super) fn of_group(door: &KafkaDoor, group: &str) -> Vec<Described> {
    let image = door.node.image();
    let none = BTreeMap::new();
    layered(
        door,
        Scope::Group,
        image.group_configs.get(group).unwrap_or(&none),
    )
}

/// The configs of this node.
pub(super) fn of_broker(door: &KafkaDoor) -> Vec<Described> {
    layered(door, Scope::Broker, &BTreeMap::new())
}

/// What was set for all nodes; not the defaults behind it, as in Kafka.
pub(super) fn of_all_brokers(door: &KafkaDoor) -> Vec<Described> {
    let (image, none) = (door.node.image(), BTreeMap::new());
    let layers = Layers {
        own: &none,
        dynamic_broker: &none,
        dynamic_default: image.broker_configs.get(&None).unwrap_or(&none),
        static_broker: &none,
        computed: &BTreeMap::new(),
    };
    let set = ConfigSource::DynamicDefaultBroker;
    let mut described = describe(Scope::Broker, &layers);
    described.retain(|d| d.source == set);
    for d in &mut described {
        d.synonyms.retain(|synonym| synonym.source == set);
    }
    described
}

/// The data folder, as DescribeLogDirs names it.
pub(super) fn log_dir(door: &KafkaDoor) -> String {
    let described = of_broker(door);
    let value = |name: &str| {
        let mut all = described.iter();
        all.find(|d| d.key.name == name)?.value.clone()
    };
    value("log.dirs")
        .filter(|dir| !dir.is_empty())
        .or_else(|| value("log.dir"))
        .unwrap_or_default()
}

/// What the cluster's size gives where nothing is set.
fn computed(image: &MetadataImage, scope: Scope) -> BTreeMap<&'static str, String> {
    let replicas = image.brokers.len().clamp(1, 3);
    let min_isr = (replicas / 2 + 1).to_string();
    match scope {
        Scope::Topic => BTreeMap::from([("min.insync.replicas", min_isr)]),
        Scope::Broker => BTreeMap::from([
            ("default.replication.factor", replicas.to_string()),
            ("min.insync.replicas", min_isr),
        ]),
        Scope::Group => BTreeMap::new(),
    }
}

fn layered(door: &KafkaDoor, scope: Scope, own: &BTreeMap<String, String>) -> Vec<Described> {
    let image = door.node.image();
    let none = BTreeMap::new();
    let this = door.node.settings().broker;
    let computed = computed(&image, scope);
    let layers = Layers {
        own,
        dynamic_broker: image.broker_configs.get(&Some(this)).unwrap_or(&none),
        dynamic_default: image.broker_configs.get(&None).unwrap_or(&none),
        static_broker: &door.node.settings().configs,
        computed: &computed,
    };
    describe(scope, &layers)
}

/// IncrementalAlterConfigs' operations by their numbers.
pub(super) fn change(operation: i8, name: String, value: Option<String>) -> Option<ConfigChange> {
    match operation {
        0 => Some(ConfigChange::Set(name, value)),
        1 => Some(ConfigChange::Delete(name)),
        2 => Some(ConfigChange::Append(name, value)),
        3 => Some(ConfigChange::Subtract(name, value)),
        _ => None,
    }
}
