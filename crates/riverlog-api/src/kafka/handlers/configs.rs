//! The configs of a resource, for the handlers that show them.

use std::collections::BTreeMap;

use riverlog_core::config::{Described, Layers, Scope, describe};
use riverlog_core::metadata::{ConfigChange, MetadataImage};
use riverlog_wire::BrokerId;

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

/// The configs of this node, or (`None`) those that all nodes share.
pub(super) fn of_broker(door: &KafkaDoor, broker: Option<BrokerId>) -> Vec<Described> {
    let described = layered(door, Scope::Broker, &BTreeMap::new());
    if broker.is_some() {
        return described;
    }
    // Kafka shows what was set for all nodes, and nothing else.
    let image = door.node.image();
    let set = image.broker_configs.get(&None);
    described
        .into_iter()
        .filter(|d| set.is_some_and(|set| set.contains_key(d.key.name)))
        .collect()
}

fn layered(door: &KafkaDoor, scope: Scope, own: &BTreeMap<String, String>) -> Vec<Described> {
    let image: std::sync::Arc<MetadataImage> = door.node.image();
    let none = BTreeMap::new();
    let this = door.node.settings().broker;
    let computed = BTreeMap::new();
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
