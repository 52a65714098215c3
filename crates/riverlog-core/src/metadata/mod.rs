//! Cluster metadata: the image that every node answers from, the records that change it, and the controller that decides them.

mod decide;
mod departures;
mod detours;
mod features;
mod fenced_lately;
mod image;
mod record;
mod sessions;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};

pub use decide::{check_topic_name, decide};
pub use departures::{Departures, Way};
pub use detours::{Detours, Roundabout, UNANSWERED};
pub use features::{Feature, SUPPORTED};
pub use fenced_lately::FencedLately;
pub use image::MetadataImage;
pub use sessions::Sessions;

/// A tenant; every key of metadata carries one. The only one so far is [`Tenant::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tenant(pub u32);

impl Tenant {
    /// The tenant of everyone who didn't say.
    pub const DEFAULT: Tenant = Tenant(0);
}

/// One topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicImage {
    /// For life.
    pub id: TopicId,
    /// Whose.
    pub tenant: Tenant,
    /// Its name now.
    pub name: String,
    /// By number, dense from 0.
    pub partitions: Vec<PartitionImage>,
    /// The values set on the topic itself.
    pub configs: BTreeMap<String, String>,
    /// `__consumer_offsets`, `__transaction_state` and the like.
    pub internal: bool,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Assigned nodes, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas.
    pub isr: Vec<BrokerId>,
    /// The leader; `None` while offline.
    pub leader: Option<BrokerId>,
    /// Grows with each new leader and each restart of it.
    pub leader_epoch: LeaderEpoch,
    /// Grows with each change.
    pub partition_epoch: i32,
    /// Replicas outside the ISR that have everything that was acknowledged: they left it when fewer than min ISR stayed, and
    /// the high watermark has rested since (KIP-966). In order of id.
    pub elr: Vec<BrokerId>,
    /// While it is reassigned (KIP-455): of the replicas, those that it didn't have before. In order of id.
    pub adding: Vec<BrokerId>,
    /// While it is reassigned: of the replicas, those that it won't have in the end. In order of id.
    pub removing: Vec<BrokerId>,
}

impl PartitionImage {
    /// Whether it is being reassigned.
    pub fn is_moving(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The replicas that it is to have in the end, the preferred leader first; those that it has unless it is reassigned.
    pub fn target(&self) -> Vec<BrokerId> {
        let stays = |b: &&BrokerId| !self.removing.contains(b);
        self.replicas.iter().filter(stays).copied().collect()
    }

    /// The replicas that it had before it was reassigned.
    pub fn original(&self) -> Vec<BrokerId> {
        let was = |b: &&BrokerId| !self.adding.contains(b);
        self.replicas.iter().filter(was).copied().collect()
    }

    /// The replicas that min ISR is counted from: as many as it had or is to have, whichever are fewer. Those that are added
    /// for a while make it no harder to write.
    pub fn factor(&self) -> usize {
        let moving = self.adding.len().max(self.removing.len());
        self.replicas.len().saturating_sub(moving)
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Its id.
    pub id: BrokerId,
    /// Grows with each registration.
    pub epoch: i64,
    /// Where clients reach it: listener name, host, port.
    pub listeners: Vec<(String, String, u16)>,
    /// Rack.
    pub rack: Option<String>,
    /// Not to be given leaderships.
    pub fenced: bool,
    /// About to stop: leads nothing and joins no ISR any more.
    pub stopping: bool,
    /// Its disk takes nothing, or too slowly: it leads only where nobody else can.
    pub ailing: bool,
    /// Drawn at each start, so that a registration that comes twice is one; 0: not said.
    pub incarnation: u128,
    /// The data folder's own id; another one has none of what the node had. 0: not said.
    pub disk: u128,
}

/// A change of metadata, as stored (`docs/format/metadata.md`: kind, version, fields with tags, so that a later release can add to it).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetadataRecord {
    /// The cluster was formed.
    Cluster {
        /// Its id.
        cluster_id: String,
    },
    /// A node registered.
    Broker(BrokerImage),
    /// A node is gone for good.
    BrokerRemoved(BrokerId),
    /// A topic was made.
    Topic {
        /// Id.
        id: TopicId,
        /// Whose.
        tenant: Tenant,
        /// Name.
        name: String,
    },
    /// A topic was deleted.
    TopicRemoved(TopicId),
    /// A partition was made or changed.
    Partition {
        /// Topic.
        topic: TopicId,
        /// Number.
        index: i32,
        /// What it is from now on.
        partition: PartitionImage,
    },
    /// A config was set or (`None`) taken back.
    Config {
        /// What it belongs to.
        resource: Resource,
        /// Key.
        key: String,
        /// Value.
        value: Option<String>,
    },
    /// A feature level was finalized.
    Feature {
        /// Name.
        name: String,
        /// Level.
        level: i16,
    },
    /// Producer ids below this one have been handed to nodes.
    ProducerIds {
        /// The next.
        next: i64,
    },
}

/// What a config belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A topic.
    Topic(TopicId),
    /// A node, or all of them.
    Broker(Option<BrokerId>),
    /// A group.
    Group(String),
}

/// A metadata record that can't be read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "metadata record can't be read: {reason}; start the release that wrote it, or restore the metadata log"
)]
pub struct MetadataError {
    /// What is wrong.
    pub reason: String,
}

/// A command to the controller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AdminCommand {
    /// A node (re)starts: registers, takes a new broker epoch; the partitions that it leads get a new leader epoch.
    Register {
        /// Who, with `epoch` ignored.
        broker: BrokerImage,
        /// The cluster id to use when there is none yet.
        cluster_id: String,
    },
    /// CreateTopics; each topic has its own result.
    CreateTopics {
        /// What to make.
        topics: Vec<NewTopic>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// DeleteTopics.
    DeleteTopics {
        /// Which.
        topics: Vec<TopicRef>,
    },
    /// CreatePartitions.
    CreatePartitions {
        /// Topic name, new total, assignments of the new ones when given.
        topics: Vec<MorePartitions>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// IncrementalAlterConfigs, and AlterConfigs (`replace`: keys that aren't named go back to their default).
    AlterConfigs {
        /// Resource, operations.
        resources: Vec<(ConfigResource, Vec<ConfigChange>)>,
        /// AlterConfigs.
        replace: bool,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// UpdateFeatures.
    UpdateFeatures {
        /// Name, level (0 removes).
        features: Vec<(String, i16)>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// A block of producer ids for a node.
    AllocateProducerIds {
        /// How many.
        count: i64,
    },
    /// UnregisterBroker.
    Unregister {
        /// Who.
        broker: BrokerId,
    },
    /// A node of a cluster says that it lives.
    Heartbeat {
        /// Who.
        broker: BrokerId,
        /// Its broker epoch; another one is answered STALE_BROKER_EPOCH.
        epoch: i64,
        /// How much of the metadata it has applied. It stays fenced until that includes its registration.
        position: Offset,
        /// It wants to stop: its leaderships are to go elsewhere first.
        stopping: bool,
        /// Its disk takes nothing, or too slowly: others are to lead where they can.
        ailing: bool,
    },
    /// A node hasn't said for too long that it lives.
    Fence {
        /// Who.
        broker: BrokerId,
        /// The registration that is meant.
        epoch: i64,
    },
    /// Leaders ask for other in-sync sets.
    AlterPartitions {
        /// The leader of all of them.
        broker: BrokerId,
        /// Its broker epoch.
        epoch: i64,
        /// Each has its own result.
        changes: Vec<IsrChange>,
    },
    /// ElectLeaders.
    ElectLeaders {
        /// Topic name and partition.
        partitions: Vec<(String, i32)>,
        /// Anyone who is up, also without all that was acknowledged. Otherwise the first assigned replica.
        unclean: bool,
    },
    /// AlterPartitionReassignments; each partition has its own result.
    Reassign {
        /// Which, and where to.
        partitions: Vec<Reassignment>,
        /// They may come to have more replicas, or fewer.
        factor_may_change: bool,
    },
}

/// Where a partition is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub index: i32,
    /// Its replicas in the end, the preferred leader first; `None`: those that it had before a reassignment that is under way.
    pub replicas: Option<Vec<BrokerId>>,
}

/// The in-sync set that a leader asks for, and what it knew when it decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrChange {
    /// Topic.
    pub topic: TopicId,
    /// Partition.
    pub index: i32,
    /// Its leadership.
    pub leader_epoch: LeaderEpoch,
    /// The state of the partition that it changes.
    pub partition_epoch: i32,
    /// The new set, the leader included, with the broker epoch under which each has caught up.
    pub isr: Vec<(BrokerId, i64)>,
}

/// Topic name, new total, assignments of the new partitions when given.
pub type MorePartitions = (String, i32, Option<Vec<Vec<BrokerId>>>);

/// A topic by name or by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicRef {
    /// By name.
    Name(String),
    /// By id.
    Id(TopicId),
}

/// A resource named by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigResource {
    /// A topic.
    Topic(String),
    /// A node; empty: all.
    Broker(String),
    /// A group.
    Group(String),
    /// A kind (by Kafka's number) that has no configs here.
    Other(i8, String),
}

/// One change of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Set.
    Set(String, Option<String>),
    /// Back to the default.
    Delete(String),
    /// Add to a list.
    Append(String, Option<String>),
    /// Take from a list.
    Subtract(String, Option<String>),
}

/// A topic to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewTopic {
    /// Name.
    pub name: String,
    /// −1: the default.
    pub partitions: i32,
    /// −1: the default.
    pub replication_factor: i16,
    /// Partition → replicas; then the counts must be −1.
    pub assignments: Vec<(i32, Vec<BrokerId>)>,
    /// Configs.
    pub configs: Vec<(String, Option<String>)>,
    /// The id that it gets (randomness is part of the command).
    pub id: TopicId,
    /// Made by the node itself: names that clients may not use are allowed.
    pub internal: bool,
}

/// The result for one thing of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminResult {
    /// Error.
    pub error: ErrorCode,
    /// Its words: what was found, expected, what to do.
    pub message: Option<String>,
    /// The topic that was made or is meant.
    pub topic: Option<Arc<TopicImage>>,
}

/// The answer to an [`AdminCommand`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AdminAnswer {
    /// One result for each thing asked, in order.
    Results(Vec<AdminResult>),
    /// Register: the new broker epoch.
    Registered {
        /// Broker epoch.
        epoch: i64,
    },
    /// Heartbeat.
    Heartbeat {
        /// It is fenced still.
        fenced: bool,
        /// It leads nothing any more, and nobody counts on it.
        may_stop: bool,
        /// How much of the metadata the controller has applied: whoever has as much knows all that was ever committed
        /// before it asked.
        position: Offset,
        /// For how long no majority had answered the controller when it decided. It was the controller until then, and whoever is now counts
        /// all sessions anew from a later time. What [`decide`] knows nothing of: its caller says it.
        silent: Duration,
    },
    /// AllocateProducerIds: the first.
    ProducerIds {
        /// First of the block.
        first: i64,
        /// How many.
        count: i64,
    },
}

/// Defaults that the controller uses.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`; `None`: min(3, registered brokers).
    pub replication_factor: Option<i16>,
    /// The node's own configs (static), which topic configs are checked against.
    pub node_configs: BTreeMap<String, String>,
    /// Largest number of partitions one request may make.
    pub max_partitions_per_request: usize,
}
