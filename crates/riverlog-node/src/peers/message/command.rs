//! Commands as bytes.

use riverlog_core::metadata::{
    AdminCommand, BrokerImage, ConfigChange, ConfigResource, IsrChange, MorePartitions, NewTopic,
    Reassignment, TopicRef,
};
use riverlog_wire::primitives::{DecodeError, Reader};
use riverlog_wire::{BrokerId, LeaderEpoch, Offset};

use super::{MessageError, Out, unknown};

const REGISTER: u32 = 1;
const PRODUCER_IDS: u32 = 2;
const CREATE_TOPICS: u32 = 3;
const HEARTBEAT: u32 = 4;
const ALTER_PARTITIONS: u32 = 5;
const DELETE_TOPICS: u32 = 6;
const CREATE_PARTITIONS: u32 = 7;
const ALTER_CONFIGS: u32 = 8;
const UPDATE_FEATURES: u32 = 9;
const UNREGISTER: u32 = 10;
const ELECT_LEADERS: u32 = 11;
const REASSIGN: u32 = 12;

/// `None` for a command that isn't forwarded.
pub(super) fn write(w: &mut Out<'_>, command: &AdminCommand) -> Option<()> {
    match command {
        AdminCommand::Register { broker, cluster_id } => {
            w.unsigned_varint(REGISTER);
            write_broker(w, broker);
            w.compact_string(cluster_id);
        }
        AdminCommand::AllocateProducerIds { count } => {
            w.unsigned_varint(PRODUCER_IDS);
            w.i64(*count);
        }
        AdminCommand::CreateTopics {
            topics,
            validate_only,
        } => {
            w.unsigned_varint(CREATE_TOPICS);
            w.bool(*validate_only);
            w.compact_array_len(topics.len());
            for topic in topics {
                write_topic(w, topic);
            }
        }
        AdminCommand::Heartbeat {
            broker,
            epoch,
            position,
            stopping,
            // A tagged field of the message.
            ailing: _,
        } => {
            w.unsigned_varint(HEARTBEAT);
            w.i32(broker.0);
            w.i64(*epoch);
            w.i64(position.0);
            w.bool(*stopping);
        }
        AdminCommand::AlterPartitions {
            broker,
            epoch,
            changes,
        } => {
            w.unsigned_varint(ALTER_PARTITIONS);
            w.i32(broker.0);
            w.i64(*epoch);
            w.compact_array_len(changes.len());
            for change in changes {
                write_change(w, change);
            }
        }
        AdminCommand::DeleteTopics { topics } => {
            w.unsigned_varint(DELETE_TOPICS);
            w.compact_array_len(topics.len());
            for topic in topics {
                match topic {
                    TopicRef::Name(name) => {
                        w.u8(0);
                        w.compact_string(name);
                    }
                    TopicRef::Id(id) => {
                        w.u8(1);
                        w.uuid(*id);
                    }
                }
            }
        }
        AdminCommand::CreatePartitions {
            topics,
            validate_only,
        } => {
            w.unsigned_varint(CREATE_PARTITIONS);
            w.bool(*validate_only);
            w.compact_array_len(topics.len());
            for topic in topics {
                write_more(w, topic);
            }
        }
        AdminCommand::AlterConfigs {
            resources,
            replace,
            validate_only,
        } => {
            w.unsigned_varint(ALTER_CONFIGS);
            w.bool(*replace);
            w.bool(*validate_only);
            w.compact_array_len(resources.len());
            for (resource, changes) in resources {
                write_resource(w, resource);
                w.compact_array_len(changes.len());
                for change in changes {
                    write_config(w, change);
                }
            }
        }
        AdminCommand::UpdateFeatures {
            features,
            validate_only,
        } => {
            w.unsigned_varint(UPDATE_FEATURES);
            w.bool(*validate_only);
            w.compact_array_len(features.len());
            for (name, level) in features {
                w.compact_string(name);
                w.i16(*level);
            }
        }
        AdminCommand::Unregister { broker } => {
            w.unsigned_varint(UNREGISTER);
            w.i32(broker.0);
        }
        AdminCommand::ElectLeaders {
            partitions,
            unclean,
        } => {
            w.unsigned_varint(ELECT_LEADERS);
            w.bool(*unclean);
            w.compact_array_len(partitions.len());
            for (topic, index) in partitions {
                w.compact_string(topic);
                w.i32(*index);
            }
        }
        AdminCommand::Reassign {
            partitions,
            factor_may_change,
        } => {
            w.unsigned_varint(REASSIGN);
            w.bool(*factor_may_change);
            w.compact_array_len(partitions.len());
            for partition in partitions {
                write_reassignment(w, partition);
            }
        }
        _ => return None,
    }
    Some(())
}

pub(super) fn read(r: &mut Reader<'_>) -> Result<AdminCommand, MessageError> {
    Ok(match r.unsigned_varint()? {
        REGISTER => AdminCommand::Register {
            broker: read_broker(r)?,
            cluster_id: r.compact_string()?.to_owned(),
        },
        PRODUCER_IDS => AdminCommand::AllocateProducerIds { count: r.i64()? },
        CREATE_TOPICS => AdminCommand::CreateTopics {
            validate_only: r.bool()?,
            topics: {
                let len = r.compact_array_len(26)?;
                r.elements(len, read_topic)?
            },
        },
        HEARTBEAT => AdminCommand::Heartbeat {
            broker: BrokerId(r.i32()?),
            epoch: r.i64()?,
            position: Offset(r.i64()?),
            stopping: r.bool()?,
            ailing: false,
        },
        ALTER_PARTITIONS => AdminCommand::AlterPartitions {
            broker: BrokerId(r.i32()?),
            epoch: r.i64()?,
            changes: {
                let len = r.compact_array_len(29)?;
                r.elements(len, read_change)?
            },
        },
        DELETE_TOPICS => AdminCommand::DeleteTopics {
            topics: {
                let len = r.compact_array_len(2)?;
                let mut topics = Vec::new();
                for _ in 0..len {
                    topics.push(match r.u8()? {
                        0 => TopicRef::Name(r.compact_string()?.to_owned()),
                        1 => TopicRef::Id(r.uuid()?),
                        value => return Err(unknown("way to name a topic", u32::from(value))),
                    });
                }
                topics
            },
        },
        CREATE_PARTITIONS => AdminCommand::CreatePartitions {
            validate_only: r.bool()?,
            topics: {
                let len = r.compact_array_len(6)?;
                r.elements(len, read_more)?
            },
        },
        ALTER_CONFIGS => AdminCommand::AlterConfigs {
            replace: r.bool()?,
            validate_only: r.bool()?,
            resources: {
                let len = r.compact_array_len(3)?;
                let mut resources = Vec::new();
                for _ in 0..len {
                    let resource = read_resource(r)?;
                    let changes = r.compact_array_len(2)?;
                    let mut all = Vec::new();
                    for _ in 0..changes {
                        all.push(read_config(r)?);
                    }
                    resources.push((resource, all));
                }
                resources
            },
        },
        UPDATE_FEATURES => AdminCommand::UpdateFeatures {
            validate_only: r.bool()?,
            features: {
                let len = r.compact_array_len(3)?;
                r.elements(len, |r| Ok((r.compact_string()?.to_owned(), r.i16()?)))?
            },
        },
        UNREGISTER => AdminCommand::Unregister {
            broker: BrokerId(r.i32()?),
        },
        ELECT_LEADERS => AdminCommand::ElectLeaders {
            unclean: r.bool()?,
            partitions: {
                let len = r.compact_array_len(5)?;
                r.elements(len, |r| Ok((r.compact_string()?.to_owned(), r.i32()?)))?
            },
        },
        REASSIGN => AdminCommand::Reassign {
            factor_may_change: r.bool()?,
            partitions: {
                let len = r.compact_array_len(6)?;
                r.elements(len, read_reassignment)?
            },
        },
        value => return Err(unknown("command", value)),
    })
}

fn write_reassignment(w: &mut Out<'_>, reassignment: &Reassignment) {
    w.compact_string(&reassignment.topic);
    w.i32(reassignment.index);
    w.bool(reassignment.replicas.is_some());
    if let Some(replicas) = &reassignment.replicas {
        write_brokers(w, replicas);
    }
}

fn read_reassignment(r: &mut Reader<'_>) -> Result<Reassignment, DecodeError> {
    Ok(Reassignment {
        topic: r.compact_string()?.to_owned(),
        index: r.i32()?,
        replicas: match r.bool()? {
            true => Some(read_brokers(r)?),
            false => None,
        },
    })
}

fn write_change(w: &mut Out<'_>, change: &IsrChange) {
    w.uuid(change.topic);
    w.i32(change.index);
    w.i32(change.leader_epoch.0);
    w.i32(change.partition_epoch);
    w.compact_array_len(change.isr.len());
    for (broker, epoch) in &change.isr {
        w.i32(broker.0);
        w.i64(*epoch);
    }
}

fn read_change(r: &mut Reader<'_>) -> Result<IsrChange, DecodeError> {
    Ok(IsrChange {
        topic: r.uuid()?,
        index: r.i32()?,
        leader_epoch: LeaderEpoch(r.i32()?),
        partition_epoch: r.i32()?,
        isr: {
            let len = r.compact_array_len(12)?;
            r.elements(len, |r| Ok((BrokerId(r.i32()?), r.i64()?)))?
        },
    })
}

fn write_broker(w: &mut Out<'_>, broker: &BrokerImage) {
    w.i32(broker.id.0);
    w.raw(&broker.incarnation.to_be_bytes());
    w.raw(&broker.disk.to_be_bytes());
    w.compact_nullable_string(broker.rack.as_deref());
    w.compact_array_len(broker.listeners.len());
    for (name, host, port) in &broker.listeners {
        w.compact_string(name);
        w.compact_string(host);
        w.u16(*port);
    }
}

fn read_broker(r: &mut Reader<'_>) -> Result<BrokerImage, DecodeError> {
    let id = BrokerId(r.i32()?);
    let incarnation = u128::from_be_bytes(r.uuid()?.0);
    let disk = u128::from_be_bytes(r.uuid()?.0);
    let rack = r.compact_nullable_string()?.map(str::to_owned);
    let len = r.compact_array_len(4)?;
    let listeners = r.elements(len, |r| {
        let name = r.compact_string()?.to_owned();
        Ok((name, r.compact_string()?.to_owned(), r.u16()?))
    })?;
    Ok(BrokerImage {
        id,
        epoch: 0,
        listeners,
        rack,
        // Whoever comes from elsewhere is let in by a heartbeat.
        fenced: true,
        stopping: false,
        ailing: false,
        incarnation,
        disk,
    })
}

fn write_topic(w: &mut Out<'_>, topic: &NewTopic) {
    w.uuid(topic.id);
    w.compact_string(&topic.name);
    w.i32(topic.partitions);
    w.i16(topic.replication_factor);
    w.bool(topic.internal);
    w.compact_array_len(topic.assignments.len());
    for (partition, replicas) in &topic.assignments {
        w.i32(*partition);
        write_brokers(w, replicas);
    }
    w.compact_array_len(topic.configs.len());
    for (key, value) in &topic.configs {
        w.compact_string(key);
        w.compact_nullable_string(value.as_deref());
    }
}

fn read_topic(r: &mut Reader<'_>) -> Result<NewTopic, DecodeError> {
    Ok(NewTopic {
        id: r.uuid()?,
        name: r.compact_string()?.to_owned(),
        partitions: r.i32()?,
        replication_factor: r.i16()?,
        internal: r.bool()?,
        assignments: {
            let len = r.compact_array_len(5)?;
            r.elements(len, |r| Ok((r.i32()?, read_brokers(r)?)))?
        },
        configs: {
            let len = r.compact_array_len(2)?;
            r.elements(len, |r| {
                let key = r.compact_string()?.to_owned();
                Ok((key, r.compact_nullable_string()?.map(str::to_owned)))
            })?
        },
    })
}

fn write_brokers(w: &mut Out<'_>, brokers: &[BrokerId]) {
    w.compact_array_len(brokers.len());
    for broker in brokers {
        w.i32(broker.0);
    }
}

fn read_brokers(r: &mut Reader<'_>) -> Result<Vec<BrokerId>, DecodeError> {
    let len = r.compact_array_len(4)?;
    r.elements(len, |r| Ok(BrokerId(r.i32()?)))
}

fn write_more(w: &mut Out<'_>, (name, total, assignments): &MorePartitions) {
    w.compact_string(name);
    w.i32(*total);
    w.bool(assignments.is_some());
    if let Some(assignments) = assignments {
        w.compact_array_len(assignments.len());
        for replicas in assignments {
            write_brokers(w, replicas);
        }
    }
}

fn read_more(r: &mut Reader<'_>) -> Result<MorePartitions, DecodeError> {
    let (name, total) = (r.compact_string()?.to_owned(), r.i32()?);
    let assignments = match r.bool()? {
        true => {
            let len = r.compact_array_len(1)?;
            Some(r.elements(len, read_brokers)?)
        }
        false => None,
    };
    Ok((name, total, assignments))
}

/// Kinds of resources by Kafka's numbers.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

fn write_resource(w: &mut Out<'_>, resource: &ConfigResource) {
    let (kind, name) = match resource {
        ConfigResource::Topic(name) => (TOPIC, name),
        ConfigResource::Broker(name) => (BROKER, name),
        ConfigResource::Group(name) => (GROUP, name),
        ConfigResource::Other(kind, name) => (*kind, name),
    };
    w.i8(kind);
    w.compact_string(name);
}

fn read_resource(r: &mut Reader<'_>) -> Result<ConfigResource, DecodeError> {
    let kind = r.i8()?;
    let name = r.compact_string()?.to_owned();
    Ok(match kind {
        TOPIC => ConfigResource::Topic(name),
        BROKER => ConfigResource::Broker(name),
        GROUP => ConfigResource::Group(name),
        other => ConfigResource::Other(other, name),
    })
}

fn write_config(w: &mut Out<'_>, change: &ConfigChange) {
    let (kind, key, value) = match change {
        ConfigChange::Set(key, value) => (0, key, value.as_deref()),
        ConfigChange::Delete(key) => (1, key, None),
        ConfigChange::Append(key, value) => (2, key, value.as_deref()),
        ConfigChange::Subtract(key, value) => (3, key, value.as_deref()),
    };
    w.u8(kind);
    w.compact_string(key);
    w.compact_nullable_string(value);
}

fn read_config(r: &mut Reader<'_>) -> Result<ConfigChange, MessageError> {
    let kind = r.u8()?;
    let key = r.compact_string()?.to_owned();
    let value = r.compact_nullable_string()?.map(str::to_owned);
    Ok(match kind {
        0 => ConfigChange::Set(key, value),
        1 => ConfigChange::Delete(key),
        2 => ConfigChange::Append(key, value),
        3 => ConfigChange::Subtract(key, value),
        kind => return Err(unknown("change of a config", u32::from(kind))),
    })
}
