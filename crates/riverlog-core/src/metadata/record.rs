//! A metadata record's bytes: `docs/format/metadata.md`.

use bytes::Bytes;
use riverlog_wire::primitives::{DecodeError, Reader, Writer};
use riverlog_wire::{BrokerId, LeaderEpoch};

use super::{BrokerImage, MetadataError, MetadataRecord, PartitionImage, Resource, Tenant};

const FRAME: u32 = 1;

/// A release that doesn't know a kind from here on may skip it.
const FIRST_IGNORABLE: u32 = 128;

mod kind {
    pub(super) const CLUSTER: u32 = 1;
    pub(super) const BROKER: u32 = 2;
    pub(super) const BROKER_REMOVED: u32 = 3;
    pub(super) const TOPIC: u32 = 4;
    pub(super) const TOPIC_REMOVED: u32 = 5;
    pub(super) const PARTITION: u32 = 6;
    pub(super) const CONFIG: u32 = 7;
    pub(super) const FEATURE: u32 = 8;
    pub(super) const PRODUCER_IDS: u32 = 9;
}

/// The newest version of a kind.
fn newest(kind: u32) -> u32 {
    match kind {
        kind::PARTITION => MOVING,
        _ => 0,
    }
}

/// The version of a partition that is being reassigned. An older release would neither finish it nor keep it, so it must not read
/// the record; all others are written as ever.
const MOVING: u32 = 1;

mod tag {
    pub(super) const INCARNATION: u32 = 0;
    pub(super) const DISK: u32 = 1;
    pub(super) const STOPPING: u32 = 2;
    pub(super) const AILING: u32 = 3;
    pub(super) const ELR: u32 = 0;
}

/// Kafka's numbers of config resources.
mod resource {
    pub(super) const TOPIC: i8 = 2;
    pub(super) const BROKER: i8 = 4;
    pub(super) const GROUP: i8 = 32;
}

/// Stands for "no leader" and "all nodes".
const NO_BROKER: i32 = -1;

impl MetadataRecord {
    /// As stored.
    ///
    /// # Panics
    /// When a string is longer than a compact string can be; `decide` makes no such record.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64);
        let mut w = Writer::new(&mut out);
        w.unsigned_varint(FRAME);
        w.unsigned_varint(self.kind());
        w.unsigned_varint(self.version());
        self.write_body(&mut w);
        self.write_tags(&mut w);
        let written = w.finish();
        assert!(
            written.is_ok(),
            "metadata record can't be stored: {written:?}"
        );
        out.into()
    }

    fn kind(&self) -> u32 {
        match self {
            MetadataRecord::Cluster { .. } => kind::CLUSTER,
            MetadataRecord::Broker(_) => kind::BROKER,
            MetadataRecord::BrokerRemoved(_) => kind::BROKER_REMOVED,
            MetadataRecord::Topic { .. } => kind::TOPIC,
            MetadataRecord::TopicRemoved(_) => kind::TOPIC_REMOVED,
            MetadataRecord::Partition { .. } => kind::PARTITION,
            MetadataRecord::Config { .. } => kind::CONFIG,
            MetadataRecord::Feature { .. } => kind::FEATURE,
            MetadataRecord::ProducerIds { .. } => kind::PRODUCER_IDS,
        }
    }

    fn version(&self) -> u32 {
        match self {
            MetadataRecord::Partition { partition, .. } if partition.is_moving() => MOVING,
            _ => 0,
        }
    }

    /// Left out where they say nothing, so that a node alone writes what it always wrote.
    fn write_tags(&self, w: &mut Writer<'_, Vec<u8>>) {
        match self {
            MetadataRecord::Broker(broker) => {
                let ids = [
                    (tag::INCARNATION, broker.incarnation),
                    (tag::DISK, broker.disk),
                ];
                let said = ids.iter().filter(|(_, id)| *id != 0);
                let flags = [
                    (tag::STOPPING, broker.stopping),
                    (tag::AILING, broker.ailing),
                ];
                let flags = flags.iter().filter(|(_, set)| *set);
                w.tagged_fields_len(said.clone().count() + flags.clone().count());
                for (tag, id) in said {
                    w.tagged_field(*tag, |w| w.raw(&id.to_be_bytes()));
                }
                for (tag, _) in flags {
                    w.tagged_field(*tag, |w| w.bool(true));
                }
            }
            MetadataRecord::Partition { partition, .. } if !partition.elr.is_empty() => {
                w.tagged_fields_len(1);
                w.tagged_field(tag::ELR, |w| write_brokers(w, &partition.elr));
            }
            _ => w.empty_tagged_fields(),
        }
    }

    fn write_body(&self, w: &mut Writer<'_, Vec<u8>>) {
        match self {
            MetadataRecord::Cluster { cluster_id } => w.compact_string(cluster_id),
            MetadataRecord::Broker(broker) => {
                w.i32(broker.id.0);
                w.i64(broker.epoch);
                w.compact_nullable_string(broker.rack.as_deref());
                w.bool(broker.fenced);
                w.compact_array_len(broker.listeners.len());
                for (name, host, port) in &broker.listeners {
                    w.compact_string(name);
                    w.compact_string(host);
                    w.u16(*port);
                    w.empty_tagged_fields();
                }
            }
            MetadataRecord::BrokerRemoved(id) => w.i32(id.0),
            MetadataRecord::Topic { id, tenant, name } => {
                w.uuid(*id);
                w.u32(tenant.0);
                w.compact_string(name);
            }
            MetadataRecord::TopicRemoved(id) => w.uuid(*id),
            MetadataRecord::Partition {
                topic,
                index,
                partition,
            } => {
                w.uuid(*topic);
                w.i32(*index);
                write_brokers(w, &partition.replicas);
                write_brokers(w, &partition.isr);
                w.i32(partition.leader.map_or(NO_BROKER, |b| b.0));
                w.i32(partition.leader_epoch.0);
                w.i32(partition.partition_epoch);
                if partition.is_moving() {
                    write_brokers(w, &partition.adding);
                    write_brokers(w, &partition.removing);
                }
            }
            MetadataRecord::Config {
                resource,
                key,
                value,
            } => {
                match resource {
                    Resource::Topic(id) => {
                        w.i8(resource::TOPIC);
                        w.uuid(*id);
                    }
                    Resource::Broker(id) => {
                        w.i8(resource::BROKER);
                        w.i32(id.map_or(NO_BROKER, |b| b.0));
                    }
                    Resource::Group(name) => {
                        w.i8(resource::GROUP);
                        w.compact_string(name);
                    }
                }
                w.compact_string(key);
                w.compact_nullable_string(value.as_deref());
            }
            MetadataRecord::Feature { name, level } => {
                w.compact_string(name);
                w.i16(*level);
            }
            MetadataRecord::ProducerIds { next } => w.i64(*next),
        }
    }

    /// From storage; `Ok(None)` for a kind of a newer release that may be skipped.
    ///
    /// A mandatory kind or version of a newer release, and bytes that aren't a record, are errors.
    pub fn decode(bytes: &[u8]) -> Result<Option<MetadataRecord>, MetadataError> {
        let mut r = Reader::new(bytes);
        let frame = r.unsigned_varint()?;
        if frame != FRAME {
            return Err(unreadable(format!(
                "it has frame {frame}, this release reads frame {FRAME}"
            )));
        }
        let kind = r.unsigned_varint()?;
        let version = r.unsigned_varint()?;
        let known = matches!(kind, kind::CLUSTER..=kind::PRODUCER_IDS);
        if kind >= FIRST_IGNORABLE && !known {
            return Ok(None);
        }
        if !known {
            return Err(unreadable(format!(
                "it is of kind {kind}, which this release doesn't know"
            )));
        }
        let newest = newest(kind);
        if version > newest {
            return Err(unreadable(format!(
                "it is of kind {kind} in version {version}, this release reads versions up to {newest}"
            )));
        }
        let mut record = read_body(kind, version, &mut r)?;
        read_tags(&mut record, &mut r)?;
        if r.remaining() > 0 {
            return Err(unreadable(format!(
                "it has {} bytes too many",
                r.remaining()
            )));
        }
        Ok(Some(record))
    }
}

fn read_tags(record: &mut MetadataRecord, r: &mut Reader<'_>) -> Result<(), MetadataError> {
    match record {
        MetadataRecord::Broker(broker) => r.tagged_fields(|tag, r| {
            match tag {
                tag::INCARNATION => broker.incarnation = read_u128(r)?,
                tag::DISK => broker.disk = read_u128(r)?,
                tag::STOPPING => broker.stopping = r.bool()?,
                tag::AILING => broker.ailing = r.bool()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?,
        MetadataRecord::Partition { partition, .. } => {
            let mut elr = None;
            r.tagged_fields(|tag, r| {
                if tag == tag::ELR {
                    let len = r.compact_array_len(4)?;
                    elr = Some(r.elements(len, Reader::i32)?);
                }
                Ok(tag == tag::ELR)
            })?;
            for id in elr.unwrap_or_default() {
                partition.elr.push(BrokerId(not_negative(id, "broker id")?));
            }
        }
        _ => r.skip_tagged_fields()?,
    }
    Ok(())
}

fn read_u128(r: &mut Reader<'_>) -> Result<u128, DecodeError> {
    Ok(u128::from_be_bytes(r.uuid()?.0))
}

fn read_body(kind: u32, version: u32, r: &mut Reader<'_>) -> Result<MetadataRecord, MetadataError> {
    Ok(match kind {
        kind::CLUSTER => MetadataRecord::Cluster {
            cluster_id: r.compact_string()?.to_owned(),
        },
        kind::BROKER => {
            let id = read_broker(r)?;
            let epoch = r.i64()?;
            let rack = r.compact_nullable_string()?.map(str::to_owned);
            let fenced = r.bool()?;
            // Two strings, a port and an empty tag section take at least five bytes.
            let len = r.compact_array_len(5)?;
            let listeners = r.elements(len, |r| {
                let listener = (
                    r.compact_string()?.to_owned(),
                    r.compact_string()?.to_owned(),
                    r.u16()?,
                );
                r.skip_tagged_fields()?;
                Ok(listener)
            })?;
            MetadataRecord::Broker(BrokerImage {
                id,
                epoch,
                listeners,
                rack,
                fenced,
                stopping: false,
                ailing: false,
                incarnation: 0,
                disk: 0,
            })
        }
        kind::BROKER_REMOVED => MetadataRecord::BrokerRemoved(read_broker(r)?),
        kind::TOPIC => MetadataRecord::Topic {
            id: r.uuid()?,
            tenant: Tenant(r.u32()?),
            name: r.compact_string()?.to_owned(),
        },
        kind::TOPIC_REMOVED => MetadataRecord::TopicRemoved(r.uuid()?),
        kind::PARTITION => MetadataRecord::Partition {
            topic: r.uuid()?,
            index: not_negative(r.i32()?, "partition")?,
            partition: PartitionImage {
                replicas: read_brokers(r)?,
                isr: read_brokers(r)?,
                leader: read_broker_or_none(r)?,
                leader_epoch: LeaderEpoch(not_negative(r.i32()?, "leader epoch")?),
                partition_epoch: not_negative(r.i32()?, "partition epoch")?,
                adding: read_brokers_from(MOVING, version, r)?,
                removing: read_brokers_from(MOVING, version, r)?,
                elr: Vec::new(),
            },
        },
        kind::CONFIG => MetadataRecord::Config {
            resource: match r.i8()? {
                resource::TOPIC => Resource::Topic(r.uuid()?),
                resource::BROKER => Resource::Broker(read_broker_or_none(r)?),
                resource::GROUP => Resource::Group(r.compact_string()?.to_owned()),
                other => {
                    return Err(unreadable(format!(
                        "it configures a resource of type {other}"
                    )));
                }
            },
            key: r.compact_string()?.to_owned(),
            value: r.compact_nullable_string()?.map(str::to_owned),
        },
        kind::FEATURE => MetadataRecord::Feature {
            name: r.compact_string()?.to_owned(),
            level: r.i16()?,
        },
        kind::PRODUCER_IDS => MetadataRecord::ProducerIds { next: r.i64()? },
        other => {
            return Err(unreadable(format!(
                "it is of kind {other}, which this release doesn't know"
            )));
        }
    })
}

fn write_brokers(w: &mut Writer<'_, Vec<u8>>, brokers: &[BrokerId]) {
    w.compact_array_len(brokers.len());
    for broker in brokers {
        w.i32(broker.0);
    }
}

fn read_brokers(r: &mut Reader<'_>) -> Result<Vec<BrokerId>, MetadataError> {
    let len = r.compact_array_len(4)?;
    let ids = r.elements(len, Reader::i32)?;
    ids.into_iter()
        .map(|id| Ok(BrokerId(not_negative(id, "broker id")?)))
        .collect()
}

/// What is there from a version on.
fn read_brokers_from(
    from: u32,
    version: u32,
    r: &mut Reader<'_>,
) -> Result<Vec<BrokerId>, MetadataError> {
    match version >= from {
        true => read_brokers(r),
        false => Ok(Vec::new()),
    }
}

fn read_broker(r: &mut Reader<'_>) -> Result<BrokerId, MetadataError> {
    Ok(BrokerId(not_negative(r.i32()?, "broker id")?))
}

fn read_broker_or_none(r: &mut Reader<'_>) -> Result<Option<BrokerId>, MetadataError> {
    match r.i32()? {
        NO_BROKER => Ok(None),
        id => Ok(Some(BrokerId(not_negative(id, "broker id")?))),
    }
}

fn not_negative(value: i32, what: &str) -> Result<i32, MetadataError> {
    if value < 0 {
        return Err(unreadable(format!("its {what} is {value}")));
    }
    Ok(value)
}

fn unreadable(reason: String) -> MetadataError {
    MetadataError { reason }
}

impl From<DecodeError> for MetadataError {
    fn from(error: DecodeError) -> MetadataError {
        MetadataError {
            reason: error.to_string(),
        }
    }
}
