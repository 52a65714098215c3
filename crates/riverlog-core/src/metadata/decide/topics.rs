//! CreateTopics and DeleteTopics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverlog_wire::{BrokerId, ErrorCode, TopicId};

use super::placement::{Placement, assigned, default_replication_factor};
use super::{Outcome, PartitionBudget, Refusal, answer, configs, names, refuse, repeated};
use crate::config::BrokerValues;
use crate::metadata::image::is_internal;
use crate::metadata::{
    AdminAnswer, ControllerSettings, MetadataImage, MetadataRecord, NewTopic, PartitionImage,
    Resource, Tenant, TopicImage, TopicRef,
};

pub(super) fn create(
    image: &MetadataImage,
    settings: &ControllerSettings,
    topics: &[NewTopic],
    validate_only: bool,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let mut creation = Creation {
        image,
        settings,
        repeated: repeated(topics.iter().map(|t| t.name.as_str())),
        made: BTreeSet::new(),
        ids: BTreeSet::new(),
        budget: PartitionBudget::new(settings),
    };
    let mut records = Vec::new();
    let outcomes = topics
        .iter()
        .map(|new| {
            let topic = creation.topic(new)?;
            creation.made.insert(topic.name.clone());
            creation.ids.insert(topic.id);
            write(&topic, &mut records);
            Ok(Some(Arc::new(topic)))
        })
        .collect();
    answer(records, outcomes, validate_only)
}

/// What the topics of one request have in common.
struct Creation<'a> {
    image: &'a MetadataImage,
    settings: &'a ControllerSettings,
    repeated: BTreeSet<&'a str>,
    made: BTreeSet<String>,
    ids: BTreeSet<TopicId>,
    budget: PartitionBudget,
}

impl Creation<'_> {
    fn topic(&mut self, new: &NewTopic) -> Result<TopicImage, Refusal> {
        let name = &new.name;
        if self.repeated.contains(name.as_str()) {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "topic '{}' comes twice in the request; name it once",
                    name.escape_debug()
                ),
            );
        }
        if name == METADATA_TOPIC && !new.internal {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                format!("{METADATA_TOPIC} is the cluster's own log; choose another name"),
            );
        }
        names::check(name)?;
        if self.image.topic(name).is_some() {
            return refuse(
                ErrorCode::TOPIC_ALREADY_EXISTS,
                format!("topic '{name}' already exists"),
            );
        }
        if let Some(other) = names::collision(self.image, &self.made, name) {
            return refuse(
                ErrorCode::INVALID_TOPIC_EXCEPTION,
                format!(
                    "topic '{name}' collides with '{other}': names that differ only in . and _ are one in metrics; choose another name"
                ),
            );
        }
        let configs = configs::new_topic(self.settings, &new.configs)?;
        if new.id == TopicId::ZERO
            || self.image.topics.contains_key(&new.id)
            || self.ids.contains(&new.id)
        {
            return refuse(
                ErrorCode::UNKNOWN_SERVER_ERROR,
                format!(
                    "the id {} drawn for topic '{name}' is taken; try again",
                    new.id
                ),
            );
        }
        let partitions = self.partitions(new)?;
        Ok(TopicImage {
            id: new.id,
            tenant: Tenant::DEFAULT,
            name: name.clone(),
            partitions,
            configs,
            internal: is_internal(name),
        })
    }

    fn partitions(&mut self, new: &NewTopic) -> Result<Vec<PartitionImage>, Refusal> {
        if !new.assignments.is_empty() {
            return self.assigned_partitions(new);
        }
        let replication_factor = match new.replication_factor {
            -1 => default_replication_factor(self.image, self.settings),
            n if n < 1 => {
                return refuse(
                    ErrorCode::INVALID_REPLICATION_FACTOR,
                    format!("replication factor {n}; give 1 or more, or -1 for the default"),
                );
            }
            n => n,
        };
        let partitions = match new.partitions {
            -1 => self.settings.num_partitions.max(1),
            n if n < 1 => {
                return refuse(
                    ErrorCode::INVALID_PARTITIONS,
                    format!("{n} partitions; give 1 or more, or -1 for the default"),
                );
            }
            n => n,
        };
        let placement = Placement::new(self.image, new.id, replication_factor)?;
        let count = usize::try_from(partitions).unwrap_or(usize::MAX);
        self.budget.take(count)?;
        Ok((0..count).map(|i| placement.partition(i)).collect())
    }

    fn assigned_partitions(&mut self, new: &NewTopic) -> Result<Vec<PartitionImage>, Refusal> {
        if new.replication_factor != -1 || new.partitions != -1 {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "{} partitions and replication factor {} together with an assignment; set both to -1, or leave the assignment out",
                    new.partitions, new.replication_factor
                ),
            );
        }
        self.budget.take(new.assignments.len())?;
        let mut by_index: BTreeMap<i32, &[BrokerId]> = BTreeMap::new();
        for (index, replicas) in &new.assignments {
            if by_index.insert(*index, replicas).is_some() {
                return refuse(
                    ErrorCode::INVALID_REPLICA_ASSIGNMENT,
                    format!("partition {index} is assigned twice"),
                );
            }
        }
        let mut replicas_of_others = None;
        let mut partitions = Vec::with_capacity(by_index.len());
        for (expected, (index, replicas)) in (0..).zip(by_index) {
            if index != expected {
                return refuse(
                    ErrorCode::INVALID_REPLICA_ASSIGNMENT,
                    format!(
                        "the assignment goes from partition {expected} to {index}; number partitions from 0 without gaps"
                    ),
                );
            }
            partitions.push(assigned(self.image, replicas, replicas_of_others)?);
            replicas_of_others = Some(replicas.len());
        }
        Ok(partitions)
    }
}

/// The name that Kafka gives the metadata log.
const METADATA_TOPIC: &str = "__cluster_metadata";

fn write(topic: &TopicImage, records: &mut Vec<MetadataRecord>) {
    records.push(MetadataRecord::Topic {
        id: topic.id,
        tenant: topic.tenant,
        name: topic.name.clone(),
    });
    for (index, partition) in (0..).zip(&topic.partitions) {
        records.push(MetadataRecord::Partition {
            topic: topic.id,
            index,
            partition: partition.clone(),
        });
    }
    for (key, value) in &topic.configs {
        records.push(MetadataRecord::Config {
            resource: Resource::Topic(topic.id),
            key: key.clone(),
            value: Some(value.clone()),
        });
    }
}

pub(super) fn delete(
    image: &MetadataImage,
    settings: &ControllerSettings,
    topics: &[TopicRef],
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let enabled = BrokerValues(&settings.node_configs).is_true("delete.topic.enable");
    let found: Vec<Option<&Arc<TopicImage>>> = topics.iter().map(|t| find(image, t)).collect();
    // A topic may be named by name and by id; a name or id may be one that nobody has.
    let same_topic = repeated(found.iter().flatten().map(|t| t.id));
    let same_words = repeated(topics.iter());
    let mut records = Vec::new();
    let outcomes = topics
        .iter()
        .zip(found)
        .map(|(asked, found)| -> Outcome {
            if !enabled {
                return refuse(
                    ErrorCode::TOPIC_DELETION_DISABLED,
                    "delete.topic.enable is false on this cluster; set it to true to delete topics",
                );
            }
            if same_words.contains(asked) || found.is_some_and(|t| same_topic.contains(&t.id)) {
                return refuse(
                    ErrorCode::INVALID_REQUEST,
                    "the topic comes twice in the request; name it once, by name or by id",
                );
            }
            match (asked, found) {
                (_, Some(topic)) => {
                    records.push(MetadataRecord::TopicRemoved(topic.id));
                    Ok(Some(Arc::clone(topic)))
                }
                (TopicRef::Name(name), None) => refuse(
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    format!("there is no topic '{}'", name.escape_debug()),
                ),
                (TopicRef::Id(TopicId::ZERO), None) => refuse(
                    ErrorCode::INVALID_REQUEST,
                    "neither a topic's name nor its id was given",
                ),
                (TopicRef::Id(id), None) => refuse(
                    ErrorCode::UNKNOWN_TOPIC_ID,
                    format!("there is no topic with id {id}; it may have been deleted"),
                ),
            }
        })
        .collect();
    answer(records, outcomes, false)
}

fn find<'a>(image: &'a MetadataImage, topic: &TopicRef) -> Option<&'a Arc<TopicImage>> {
    match topic {
        TopicRef::Name(name) => image.topic(name),
        TopicRef::Id(id) => image.topics.get(id),
    }
}
