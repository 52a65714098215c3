//! Settings (values) of a node, and the seams (things that work) that its host gives it.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_core::groups::GroupSettings;
use riverlog_core::transactions::TransactionSettings;
use riverlog_log::VolumeSettings;
use riverlog_wire::BrokerId;

use crate::quorum::Quorum;

/// Where randomness comes from: the system, or a simulator's seed.
pub trait Entropy: Send + Sync {
    /// 128 fresh random bits.
    fn next_u128(&self) -> u128;
}

/// Memory budgets. Over a budget a request waits or is refused.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bytes that batches may take between their arrival and their answer. Default 128 MiB.
    pub append_bytes: usize,
    /// Fetches that may be parked, and as many commands of coordinators besides. Default 100,000.
    pub parked: usize,
    /// Bytes that cold reads may hold. Default 64 MiB.
    pub cold_read_bytes: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Budgets {
            append_bytes: 128 << 20,
            parked: 100_000,
            cold_read_bytes: 64 << 20,
        }
    }
}

/// How nodes of a cluster keep in touch. The same on all of them.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// `broker.heartbeat.interval.ms`. Default 500 ms.
    pub heartbeat: Duration,
    /// `broker.session.timeout.ms`: a node that was silent for longer leads nothing any more. Default 2.5 s.
    pub session: Duration,
    /// `replica.lag.time.max.ms`: a follower that hasn't had everything for longer leaves the in-sync set. Default 10 s.
    pub max_lag: Duration,
    /// `replica.fetch.wait.max.ms`: how long a leader keeps a follower's ask when there is nothing new. Default 500 ms.
    pub fetch_wait: Duration,
    /// `replica.fetch.response.max.bytes`: of one answer to a follower; soft for the first batch. Default 10 MiB.
    pub fetch_bytes: usize,
    /// `replica.fetch.max.bytes`: of one partition in it. Default 1 MiB.
    pub partition_bytes: usize,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            heartbeat: Duration::from_millis(500),
            session: Duration::from_millis(2_500),
            max_lag: Duration::from_secs(10),
            fetch_wait: Duration::from_millis(500),
            fetch_bytes: 10 << 20,
            partition_bytes: 1 << 20,
        }
    }
}

/// Values that a host chooses.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// `node.id`.
    pub broker: BrokerId,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Who agrees on metadata. Default: the node alone.
    pub quorum: Quorum,
    /// How nodes of a cluster keep in touch.
    pub cluster: ClusterSettings,
    /// Listener name, host and port that clients are told.
    pub listeners: Vec<(String, String, u16)>,
    /// Used when the data folder is new; drawn when `None`.
    pub cluster_id: Option<String>,
    /// Broker configs as set by the host (by Kafka's names); defaults of topics come from here.
    pub configs: BTreeMap<String, String>,
    /// Groups.
    pub groups: GroupSettings,
    /// `offsets.commit.timeout.ms`: how long an answer of a coordinator of groups waits for what it tells to become durable. Default 5 s.
    pub commit_timeout: Duration,
    /// Transactions.
    pub transactions: TransactionSettings,
    /// The data folder.
    pub volume: VolumeSettings,
    /// Memory.
    pub budgets: Budgets,
    /// `offsets.topic.num.partitions`.
    pub offsets_partitions: i32,
    /// `transaction.state.log.num.partitions`.
    pub transactions_partitions: i32,
    /// How often retention, checkpoints and expiry are looked at: `log.retention.check.interval.ms`.
    pub retention_check_ms: u64,
    /// Segments are no larger than this, whatever topics say. `None`; a simulation makes them small, so that what
    /// happens at their ends happens often.
    pub segment_bytes_limit: Option<u64>,
}

impl Default for NodeSettings {
    fn default() -> Self {
        NodeSettings {
            broker: BrokerId(1),
            rack: None,
            quorum: Quorum::Own,
            cluster: ClusterSettings::default(),
            listeners: Vec::new(),
            cluster_id: None,
            configs: BTreeMap::new(),
            groups: GroupSettings::default(),
            commit_timeout: Duration::from_secs(5),
            transactions: TransactionSettings::default(),
            volume: VolumeSettings::default(),
            budgets: Budgets::default(),
            offsets_partitions: 50,
            transactions_partitions: 50,
            retention_check_ms: 300_000,
            segment_bytes_limit: None,
        }
    }
}
