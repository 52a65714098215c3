//! The configs of a resource, with where each value comes from: what every door shows.

use std::collections::BTreeMap;

use riverlog_core::config::{ConfigSource, Described, Layers, Scope, describe};
use riverlog_core::metadata::MetadataImage;
use riverlog_node::Node;

/// A topic's configs over the node's over the defaults.
pub fn of_topic(node: &Node, own: &BTreeMap<String, String>) -> Vec<Described> {
    layered(node, Scope::Topic, own)
}

/// The value of a topic's key, where it or a node key of the same name is set.
pub fn topic_value(node: &Node, topic: &str, key: &str) -> Option<String> {
    let image = node.image();
    let this = Some(node.settings().broker);
    let dynamic = |broker| image.broker_configs.get(&broker)?.get(key);
    let set = image.topic(topic)?.configs.get(key);
    set.or_else(|| dynamic(this))
        .or_else(|| dynamic(None))
        .or_else(|| node.settings().configs.get(key))
        .cloned()
}

/// A group's configs.
pub fn of_group(node: &Node, group: &str) -> Vec<Described> {
    let image = node.image();
    let none = BTreeMap::new();
    layered(
        node,
        Scope::Group,
        image.group_configs.get(group).unwrap_or(&none),
    )
}

/// The configs of this node.
pub fn of_broker(node: &Node) -> Vec<Described> {
    layered(node, Scope::Broker, &BTreeMap::new())
}

/// What was set for all nodes; not the defaults behind it, as in Kafka.
pub fn of_all_brokers(node: &Node) -> Vec<Described> {
    let (image, none) = (node.image(), BTreeMap::new());
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
pub fn log_dir(node: &Node) -> String {
    let described = of_broker(node);
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

fn layered(node: &Node, scope: Scope, own: &BTreeMap<String, String>) -> Vec<Described> {
    let image = node.image();
    let none = BTreeMap::new();
    let this = node.settings().broker;
    let computed = computed(&image, scope);
    let layers = Layers {
        own,
        dynamic_broker: image.broker_configs.get(&Some(this)).unwrap_or(&none),
        dynamic_default: image.broker_configs.get(&None).unwrap_or(&none),
        static_broker: &node.settings().configs,
        computed: &computed,
    };
    describe(scope, &layers)
}
