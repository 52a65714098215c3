//! What all connections of a listener share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use riverlog_core::metadata::BrokerImage;
use riverlog_node::Node;
use riverlog_wire::{BrokerId, ErrorCode};

use super::fetch_sessions::FetchSessions;
use super::metadata_cache::MetadataCache;
use super::share_sessions::ShareSessions;

/// Settings of a listener.
#[derive(Clone, Debug)]
pub struct KafkaSettings {
    /// Name of the listener, which chooses the addresses that clients are told.
    pub listener: String,
    /// What clients are told of this node in place of what it has registered; `None`: that. For a port that is opened
    /// later.
    pub advertised: Option<(String, u16)>,
    /// `socket.request.max.bytes`.
    pub max_frame_bytes: usize,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// Requests of one connection that may be under way before the host should stop reading from it.
    pub max_in_flight: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_sessions: usize,
    /// `group.share.max.share.sessions`.
    pub share_sessions: usize,
    /// `fetch.max.bytes`: the largest answer to a fetch, whatever the client asks for; soft for the first batch (KIP-74).
    pub max_fetch_bytes: usize,
    /// `max.request.partition.size.limit`: partitions in one answer to DescribeTopicPartitions.
    pub max_described_partitions: usize,
    /// Who agrees on metadata; `None`: the node alone.
    pub voters: Option<Voters>,
}

/// The quorum that agrees on a cluster's metadata, as the door asks it.
#[derive(Clone)]
pub struct Voters {
    /// Who agrees at this moment.
    pub now: Arc<dyn Fn() -> Electorate + Send + Sync>,
    /// Makes a change; answers once it is agreed on, or why it isn't.
    pub change: Arc<dyn Fn(VoterChange, ChangeAnswer) + Send + Sync>,
}

/// Gets what became of a [`VoterChange`]: Kafka's code, and words.
pub type ChangeAnswer = Box<dyn FnOnce(Result<(), (ErrorCode, String)>) + Send>;

/// A change of who votes: a node, and its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoterChange {
    /// An observer votes.
    Add(BrokerId, u64),
    /// A member is none any more.
    Remove(BrokerId, u64),
}

impl std::fmt::Debug for Voters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Voters(…)")
    }
}

/// Who agrees on a cluster's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Electorate {
    /// The term.
    pub term: u64,
    /// The node that leads, as far as this one knows.
    pub leader: Option<BrokerId>,
    /// Node, disk, and whether it votes, of each member.
    pub members: Vec<(BrokerId, u64, bool)>,
}

impl Default for KafkaSettings {
    fn default() -> Self {
        KafkaSettings {
            listener: "PLAINTEXT".to_owned(),
            advertised: None,
            max_frame_bytes: riverlog_wire::frame::DEFAULT_MAX_FRAME_BYTES,
            auto_create_topics: true,
            max_in_flight: 100,
            fetch_sessions: 1_000,
            share_sessions: 2_000,
            max_fetch_bytes: 57_671_680,
            max_described_partitions: 2_000,
            voters: None,
        }
    }
}

/// What all connections of a listener share.
pub struct KafkaDoor {
    /// The node behind it.
    pub node: Arc<Node>,
    /// Settings.
    pub settings: KafkaSettings,
    pub(crate) fetch_sessions: Mutex<FetchSessions>,
    pub(crate) share_sessions: Mutex<ShareSessions>,
    /// Connections that there were.
    pub(crate) connections: AtomicU64,
    pub(crate) metadata: MetadataCache,
}

impl std::fmt::Debug for KafkaDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaDoor")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl KafkaDoor {
    /// A door to a node.
    pub fn new(node: Arc<Node>, settings: KafkaSettings) -> Arc<KafkaDoor> {
        let fetch_sessions = Mutex::new(FetchSessions::new(settings.fetch_sessions));
        let share_sessions = Mutex::new(ShareSessions::new(settings.share_sessions));
        Arc::new(KafkaDoor {
            node,
            settings,
            fetch_sessions,
            share_sessions,
            connections: AtomicU64::new(0),
            metadata: MetadataCache::default(),
        })
    }

    /// Where clients of this listener reach a node; `None` when it isn't registered or has no such listener.
    pub(crate) fn address_of(&self, broker: BrokerId) -> Option<(String, u16)> {
        self.address(self.node.image().brokers.get(&broker)?)
    }

    /// Where clients of this listener reach that node.
    pub(crate) fn address(&self, broker: &BrokerImage) -> Option<(String, u16)> {
        let this = broker.id == self.node.settings().broker;
        if let Some(advertised) = self.settings.advertised.as_ref().filter(|_| this) {
            return Some(advertised.clone());
        }
        let mut listeners = broker.listeners.iter();
        let (_, host, port) = listeners.find(|(name, ..)| *name == self.settings.listener)?;
        Some((host.clone(), *port))
    }
}
