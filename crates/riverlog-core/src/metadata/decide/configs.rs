//! AlterConfigs in both forms, and the configs of new topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverlog_wire::{BrokerId, ErrorCode};

use super::{Outcome, Refusal, answer, names, refuse, repeated};
use crate::config::{self, BrokerValues, Change, Key, Kind, Scope, Standing};
use crate::metadata::{
    AdminAnswer, ConfigChange, ConfigResource, ControllerSettings, MetadataImage, MetadataRecord,
    Resource, TopicImage,
};

/// Longest key and value: what a metadata record can hold.
const MAX_LEN: usize = riverlog_wire::primitives::MAX_STRING_LEN;

type Configs = BTreeMap<String, String>;

/// The configs of a topic that is to be made.
pub(super) fn new_topic(
    settings: &ControllerSettings,
    given: &[(String, Option<String>)],
) -> Result<Configs, Refusal> {
    let mut configs = Configs::new();
    for (name, value) in given {
        let Some(value) = value else {
            return refuse(
                ErrorCode::INVALID_CONFIG,
                format!(
                    "{} has no value; give one, or leave the key out",
                    name.escape_debug()
                ),
            );
        };
        let key = known(Scope::Topic, name, value)?;
        configs.insert(name.clone(), key.normal(value));
    }
    check_together(&configs, settings)?;
    Ok(configs)
}

pub(super) fn alter(
    image: &MetadataImage,
    settings: &ControllerSettings,
    resources: &[(ConfigResource, Vec<ConfigChange>)],
    replace: bool,
    validate_only: bool,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let repeated = repeated(resources.iter().map(|(r, _)| sort_key(r)));
    let mut records = Vec::new();
    let outcomes = resources
        .iter()
        .map(|(resource, changes)| -> Outcome {
            if repeated.contains(&sort_key(resource)) {
                return refuse(
                    ErrorCode::INVALID_REQUEST,
                    "the resource comes twice in the request; put its changes together",
                );
            }
            let target = Target::find(image, resource)?;
            let configs = target.changed(settings, changes, replace)?;
            target.write(&configs, &mut records);
            Ok(target.topic.cloned())
        })
        .collect();
    answer(records, outcomes, validate_only)
}

fn sort_key(resource: &ConfigResource) -> (i16, &str) {
    match resource {
        ConfigResource::Topic(name) => (256, name),
        ConfigResource::Broker(name) => (257, name),
        ConfigResource::Group(name) => (258, name),
        ConfigResource::Other(kind, name) => (i16::from(*kind), name),
    }
}

/// What is to be changed.
struct Target<'a> {
    resource: Resource,
    scope: Scope,
    now: Option<&'a Configs>,
    topic: Option<&'a Arc<TopicImage>>,
}

impl<'a> Target<'a> {
    fn find(image: &'a MetadataImage, resource: &ConfigResource) -> Result<Target<'a>, Refusal> {
        let nameless = |what: &str| {
            refuse(
                ErrorCode::INVALID_REQUEST,
                format!("no {what} is named, and {what}s have no common configs; name one"),
            )
        };
        match resource {
            ConfigResource::Topic(name) if name.is_empty() => nameless("topic"),
            ConfigResource::Topic(name) => {
                names::check(name)?;
                let Some(topic) = image.topic(name) else {
                    return refuse(
                        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                        format!("there is no topic '{name}'"),
                    );
                };
                Ok(Target {
                    resource: Resource::Topic(topic.id),
                    scope: Scope::Topic,
                    now: Some(&topic.configs),
                    topic: Some(topic),
                })
            }
            ConfigResource::Broker(name) => {
                let id = broker(image, name)?;
                Ok(Target {
                    resource: Resource::Broker(id),
                    scope: Scope::Broker,
                    now: image.broker_configs.get(&id),
                    topic: None,
                })
            }
            ConfigResource::Group(name) if name.is_empty() => nameless("group"),
            ConfigResource::Group(name) if name.len() > MAX_LEN => refuse(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "the group's name has {} bytes, the most is {MAX_LEN}",
                    name.len()
                ),
            ),
            ConfigResource::Group(name) => Ok(Target {
                resource: Resource::Group(name.clone()),
                scope: Scope::Group,
                now: image.group_configs.get(name),
                topic: None,
            }),
            ConfigResource::Other(kind, _) => refuse(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "resources of type {kind} have no configs here; topics (2), brokers (4) and groups (32) have"
                ),
            ),
        }
    }

    /// The configs after the changes.
    fn changed(
        &self,
        settings: &ControllerSettings,
        changes: &[ConfigChange],
        replace: bool,
    ) -> Result<Configs, Refusal> {
        let repeated = repeated(changes.iter().map(name_of));
        if let Some(name) = repeated.first() {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "{} comes twice for one resource; name it once",
                    name.escape_debug()
                ),
            );
        }
        let mut configs = match (self.now, replace) {
            (Some(now), false) => now.clone(),
            _ => Configs::new(),
        };
        for change in changes {
            self.change(change, &mut configs)?;
        }
        match self.scope {
            Scope::Topic => check_together(&configs, settings)?,
            Scope::Group => check_group_bounds(&configs, settings)?,
            Scope::Broker => {}
        }
        Ok(configs)
    }

    fn change(&self, change: &ConfigChange, configs: &mut Configs) -> Result<(), Refusal> {
        let value_of = |name: &str, value: &Option<String>| match value {
            Some(value) => Ok(value.clone()),
            None => refuse(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "{} has no value; give one, or delete the key",
                    name.escape_debug()
                ),
            ),
        };
        match change {
            ConfigChange::Delete(name) => {
                configs.remove(name);
            }
            ConfigChange::Set(name, value) => {
                let value = value_of(name, value)?;
                let key = self.key(name, &value)?;
                configs.insert(name.clone(), key.normal(&value));
            }
            ConfigChange::Append(name, value) | ConfigChange::Subtract(name, value) => {
                let value = value_of(name, value)?;
                let key = match config::key(self.scope, name) {
                    Some(key) if matches!(key.kind, Kind::List(_)) => key,
                    _ => {
                        return refuse(
                            ErrorCode::INVALID_CONFIG,
                            format!("{} is no list; set it as a whole", name.escape_debug()),
                        );
                    }
                };
                let now = configs.get(name).map(String::as_str).or(key.default);
                let mut list: Vec<&str> = config::items(now.unwrap_or_default()).collect();
                if matches!(change, ConfigChange::Append(..)) {
                    for item in config::items(&value) {
                        if !list.contains(&item) {
                            list.push(item);
                        }
                    }
                } else {
                    list.retain(|have| !config::items(&value).any(|item| item == *have));
                }
                let list = list.join(",");
                self.key(name, &list)?;
                configs.insert(name.clone(), list);
            }
        }
        Ok(())
    }

    /// The key, when it may be set here to this value.
    fn key(&self, name: &str, value: &str) -> Result<&'static Key, Refusal> {
        if self.scope != Scope::Broker {
            return known(self.scope, name, value);
        }
        let fixed = |message: String| refuse(ErrorCode::INVALID_REQUEST, message);
        match config::standing(name) {
            Standing::Known(key) if key.change == Change::Restart => {
                fixed(format!("{name} can only be changed with a restart"))
            }
            Standing::Known(key)
                if key.change == Change::PerBroker && self.resource == Resource::Broker(None) =>
            {
                fixed(format!(
                    "{name} can't be set for all brokers at once; name a broker"
                ))
            }
            Standing::Known(key)
                if key.change == Change::Cluster
                    && matches!(self.resource, Resource::Broker(Some(_))) =>
            {
                fixed(format!(
                    "{name} can't be set for one broker: the controller and all leaders go by the same value; set it for all of them (kafka-configs --entity-default), or for a topic"
                ))
            }
            // Kafka answers bad values of brokers with this code, those of topics with INVALID_CONFIG.
            Standing::Known(_) => known(self.scope, name, value).map_err(|refusal| Refusal {
                error: ErrorCode::INVALID_REQUEST,
                ..refusal
            }),
            Standing::Ignored(why) | Standing::Refused(why) => {
                fixed(format!("{name} has no effect here: {why}"))
            }
            Standing::Unknown(_) => known(self.scope, name, value),
        }
    }

    /// Records for what differs from now.
    fn write(&self, configs: &Configs, records: &mut Vec<MetadataRecord>) {
        let empty = Configs::new();
        let now = self.now.unwrap_or(&empty);
        let set = configs
            .iter()
            .filter(|(key, value)| now.get(*key) != Some(*value))
            .map(|(key, value)| (key, Some(value.clone())));
        let taken_back = now
            .keys()
            .filter(|key| !configs.contains_key(*key))
            .map(|key| (key, None));
        records.extend(
            set.chain(taken_back)
                .map(|(key, value)| MetadataRecord::Config {
                    resource: self.resource.clone(),
                    key: key.clone(),
                    value,
                }),
        );
    }
}

fn name_of(change: &ConfigChange) -> &str {
    match change {
        ConfigChange::Set(name, _)
        | ConfigChange::Delete(name)
        | ConfigChange::Append(name, _)
        | ConfigChange::Subtract(name, _) => name,
    }
}

/// A broker by its number in text; empty: all.
fn broker(image: &MetadataImage, name: &str) -> Result<Option<BrokerId>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    let id = match name.parse::<i32>() {
        Ok(id) if id >= 0 => BrokerId(id),
        _ => {
            return refuse(
                ErrorCode::INVALID_REQUEST,
                format!(
                    "'{}' is no broker id; give a number, or nothing for all brokers",
                    name.escape_debug()
                ),
            );
        }
    };
    if !image.brokers.contains_key(&id) {
        return refuse(
            ErrorCode::BROKER_ID_NOT_REGISTERED,
            format!("no broker {id} is registered"),
        );
    }
    Ok(Some(id))
}

/// The key of that name, when it takes the value.
fn known(scope: Scope, name: &str, value: &str) -> Result<&'static Key, Refusal> {
    let bad = |message: String| refuse(ErrorCode::INVALID_CONFIG, message);
    if name.len() > MAX_LEN || value.len() > MAX_LEN {
        return bad(format!(
            "a key of {} bytes with a value of {}; the most is {MAX_LEN} each",
            name.len(),
            value.len()
        ));
    }
    if let Err(error) = config::check(scope, name, value) {
        return bad(error.to_string());
    }
    match config::key(scope, name) {
        Some(key) => Ok(key),
        None => bad(format!("there is no key {}", name.escape_debug())),
    }
}

/// Rules between a topic's keys.
fn check_together(configs: &Configs, settings: &ControllerSettings) -> Result<(), Refusal> {
    let node = BrokerValues(&settings.node_configs);
    let value = |name: &str, broker_name: &str| match configs.get(name) {
        Some(own) => own.parse().ok(),
        None => node.number(broker_name),
    };
    let least = value("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms");
    let most = value("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms");
    match (least, most) {
        (Some(least), Some(most)) if least > most => refuse(
            ErrorCode::INVALID_CONFIG,
            format!(
                "min.compaction.lag.ms {least} is more than max.compaction.lag.ms {most}; lower the one or raise the other"
            ),
        ),
        _ => Ok(()),
    }
}

/// A node bounds what a group may ask for.
fn check_group_bounds(configs: &Configs, settings: &ControllerSettings) -> Result<(), Refusal> {
    let node = BrokerValues(&settings.node_configs);
    for (kind, what) in [
        ("consumer", "session.timeout.ms"),
        ("consumer", "heartbeat.interval.ms"),
        ("share", "session.timeout.ms"),
        ("share", "heartbeat.interval.ms"),
        ("share", "delivery.count.limit"),
        ("share", "partition.max.record.locks"),
        ("share", "record.lock.duration.ms"),
        ("streams", "session.timeout.ms"),
        ("streams", "heartbeat.interval.ms"),
    ] {
        let name = format!("{kind}.{what}");
        let Some(value) = configs.get(&name).and_then(|v| v.parse::<i64>().ok()) else {
            continue;
        };
        let bound = |side: &str| node.number(&format!("group.{kind}.{side}.{what}"));
        if let (Some(from), Some(to)) = (bound("min"), bound("max"))
            && !(from..=to).contains(&value)
        {
            return refuse(
                ErrorCode::INVALID_CONFIG,
                format!(
                    "{name} = {value}: the brokers allow {from} to {to} (group.{kind}.min.{what} and max)"
                ),
            );
        }
    }
    let standbys = configs.get("streams.num.standby.replicas");
    let standbys = standbys.and_then(|v| v.parse::<i64>().ok());
    match (standbys, node.number("group.streams.max.standby.replicas")) {
        (Some(asked), Some(most)) if asked > most => refuse(
            ErrorCode::INVALID_CONFIG,
            format!(
                "streams.num.standby.replicas = {asked}: the brokers allow {most} (group.streams.max.standby.replicas)"
            ),
        ),
        _ => Ok(()),
    }
}
