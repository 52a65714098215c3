//! The image, and how records change it.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverlog_wire::{BrokerId, Offset, TopicId};

use super::{BrokerImage, MetadataRecord, PartitionImage, Resource, Tenant, TopicImage};
use crate::groups::GroupConfigs;

/// Everything that is committed, at one position of the metadata log. A clone shares the topics and copies their names.
#[derive(Clone, Debug, Default)]
pub struct MetadataImage {
    /// Position in the metadata log (exclusive); answers never go back behind it.
    pub position: Offset,
    /// Drawn when the cluster was formed, in Kafka's base64 form.
    pub cluster_id: String,
    /// Topics by id.
    pub topics: BTreeMap<TopicId, Arc<TopicImage>>,
    /// Names, and aliases, to ids.
    pub names: BTreeMap<(Tenant, String), TopicId>,
    /// Registered nodes.
    pub brokers: BTreeMap<BrokerId, BrokerImage>,
    /// Dynamic broker configs: `None` for the cluster-wide default.
    pub broker_configs: BTreeMap<Option<BrokerId>, BTreeMap<String, String>>,
    /// Group configs.
    pub group_configs: BTreeMap<String, BTreeMap<String, String>>,
    /// Finalized feature levels.
    pub features: BTreeMap<String, i16>,
    /// The first producer id that has not been handed to a node.
    pub next_producer_id: i64,
}

impl MetadataImage {
    /// A topic by name, for the default tenant.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        let id = self.names.get(&(Tenant::DEFAULT, name.to_owned()))?;
        self.topics.get(id)
    }

    /// Applies a record of the metadata log at `position` (exclusive end). Can't fail: what makes no sense here changes
    /// nothing but the position.
    pub fn apply(&mut self, record: &MetadataRecord, position: Offset) {
        self.position = self.position.max(position);
        match record {
            MetadataRecord::Cluster { cluster_id } => self.cluster_id.clone_from(cluster_id),
            MetadataRecord::Broker(broker) => {
                self.brokers.insert(broker.id, broker.clone());
            }
            MetadataRecord::BrokerRemoved(id) => {
                self.brokers.remove(id);
            }
            MetadataRecord::Topic { id, tenant, name } => self.apply_topic(*id, *tenant, name),
            MetadataRecord::TopicRemoved(id) => {
                if let Some(topic) = self.topics.remove(id) {
                    self.forget_name(&topic);
                }
            }
            MetadataRecord::Partition {
                topic,
                index,
                partition,
            } => self.apply_partition(*topic, *index, partition),
            MetadataRecord::Config {
                resource,
                key,
                value,
            } => self.apply_config(resource, key, value.as_deref()),
            MetadataRecord::Feature { name, level: 0 } => {
                self.features.remove(name);
            }
            MetadataRecord::Feature { name, level } => {
                self.features.insert(name.clone(), *level);
            }
            MetadataRecord::ProducerIds { next } => {
                self.next_producer_id = self.next_producer_id.max(*next);
            }
        }
    }

    fn apply_topic(&mut self, id: TopicId, tenant: Tenant, name: &str) {
        match self.topics.get_mut(&id) {
            Some(topic) => {
                let before = Arc::clone(topic);
                let topic = Arc::make_mut(topic);
                topic.tenant = tenant;
                topic.name = name.to_owned();
                topic.internal = is_internal(name);
                self.forget_name(&before);
            }
            None => {
                let topic = TopicImage {
                    id,
                    tenant,
                    name: name.to_owned(),
                    partitions: Vec::new(),
                    configs: BTreeMap::new(),
                    internal: is_internal(name),
                };
                self.topics.insert(id, Arc::new(topic));
            }
        }
        self.names.insert((tenant, name.to_owned()), id);
    }

    /// Takes a topic's name out, unless another topic has taken it over.
    fn forget_name(&mut self, topic: &TopicImage) {
        let key = (topic.tenant, topic.name.clone());
        if self.names.get(&key) == Some(&topic.id) {
            self.names.remove(&key);
        }
    }

    fn apply_partition(&mut self, topic: TopicId, index: i32, partition: &PartitionImage) {
        let Some(topic) = self.topics.get_mut(&topic) else {
            return;
        };
        let Ok(index) = usize::try_from(index) else {
            return;
        };
        // Partitions are dense: a number beyond the next one must not make room for all those between.
        if index > topic.partitions.len() {
            return;
        }
        let partitions = &mut Arc::make_mut(topic).partitions;
        match partitions.get_mut(index) {
            Some(old) => old.clone_from(partition),
            None => partitions.push(partition.clone()),
        }
    }

    fn apply_config(&mut self, resource: &Resource, key: &str, value: Option<&str>) {
        match resource {
            Resource::Topic(id) => {
                if let Some(topic) = self.topics.get_mut(id) {
                    set(&mut Arc::make_mut(topic).configs, key, value);
                }
            }
            Resource::Broker(id) => set_of(&mut self.broker_configs, id, key, value),
            Resource::Group(group) => set_of(&mut self.group_configs, group, key, value),
        }
    }
}

impl crate::groups::Topics for MetadataImage {
    fn by_name(&self, name: &str) -> Option<(TopicId, i32)> {
        let topic = self.topic(name)?;
        Some((topic.id, i32::try_from(topic.partitions.len()).ok()?))
    }
    fn name_of(&self, id: TopicId) -> Option<&str> {
        self.topics.get(&id).map(|t| t.name.as_str())
    }
    fn names(&self) -> Vec<&str> {
        self.names
            .keys()
            .filter(|(t, _)| *t == Tenant::DEFAULT)
            .map(|(_, n)| n.as_str())
            .collect()
    }
    fn configs_of_group(&self, group: &str) -> GroupConfigs<'_> {
        GroupConfigs::new(self.group_configs.get(group))
    }
}

/// Sets or takes back a config of one resource; a resource without configs leaves no trace.
fn set_of<R: Ord + Clone>(
    of: &mut BTreeMap<R, BTreeMap<String, String>>,
    resource: &R,
    key: &str,
    value: Option<&str>,
) {
    match of.get_mut(resource) {
        Some(configs) => {
            set(configs, key, value);
            if configs.is_empty() {
                of.remove(resource);
            }
        }
        None => {
            if let Some(value) = value {
                let configs = BTreeMap::from([(key.to_owned(), value.to_owned())]);
                of.insert(resource.clone(), configs);
            }
        }
    }
}

fn set(configs: &mut BTreeMap<String, String>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => configs.insert(key.to_owned(), value.to_owned()),
        None => configs.remove(key),
    };
}

/// Topics that the brokers keep for themselves, by Kafka's names.
pub(super) fn is_internal(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}
