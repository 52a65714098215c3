//! Who leads a partition, told beside an error so that the client needn't ask for metadata first (KIP-951).

use std::collections::BTreeSet;

use riverlog_core::metadata::TopicRef;
use riverlog_wire::{BrokerId, TopicId};

use crate::kafka::door::KafkaDoor;

/// The leader of a partition; id −1 while there is none.
pub(super) struct Leader {
    pub(super) id: i32,
    pub(super) epoch: i32,
}

/// A node as clients reach it.
pub(super) struct Address {
    pub(super) id: i32,
    pub(super) host: String,
    pub(super) port: i32,
    pub(super) rack: Option<String>,
}

/// The leader of a partition; `None` when there is no such partition, or this node can't tell.
pub(super) fn of(door: &KafkaDoor, topic: &TopicRef, partition: i32) -> Option<Leader> {
    let image = door.node.image();
    let topic = match topic {
        TopicRef::Name(name) => image.topic(name)?,
        TopicRef::Id(id) => image.topics.get(id)?,
    };
    if door.node.stands_aside(topic.id, partition) {
        return None;
    }
    let partition = topic.partitions.get(usize::try_from(partition).ok()?)?;
    Some(Leader {
        id: partition.leader.map_or(-1, |b| b.0),
        epoch: partition.leader_epoch.0,
    })
}

/// Where the nodes with these ids are; those that this listener's clients can't reach are left out.
pub(super) fn addresses(door: &KafkaDoor, ids: &BTreeSet<i32>) -> impl Iterator<Item = Address> {
    // Most answers have no errors, and look nothing up.
    let image = (!ids.is_empty()).then(|| door.node.image());
    ids.iter().filter_map(move |id| {
        let broker = image.as_ref()?.brokers.get(&BrokerId(*id))?;
        let (host, port) = door.address(broker)?;
        Some(Address {
            id: *id,
            host,
            port: i32::from(port),
            rack: broker.rack.clone(),
        })
    })
}

/// Name and id as a message has them: one of the two is empty.
pub(super) fn parts(topic: TopicRef) -> (String, TopicId) {
    match topic {
        TopicRef::Name(name) => (name, TopicId::ZERO),
        TopicRef::Id(id) => (String::new(), id),
    }
}
