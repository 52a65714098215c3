//! Settings (values) of a node, and the seams (things that work) that its host gives it.

use std::collections::BTreeMap;

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
    /// Fetches and other commands that may be parked. Default 100,000.
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

/// Values that a host chooses.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// `node.id`.
    pub broker: BrokerId,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Who agrees on metadata. Default: the node alone.
    pub quorum: Quorum,
    /// Listener name, host and port that clients are told.
    pub listeners: Vec<(String, String, u16)>,
    /// Used when the data folder is new; drawn when `None`.
    pub cluster_id: Option<String>,
    /// Broker configs as set by the host (by Kafka's names); defaults of topics come from here.
    pub configs: BTreeMap<String, String>,
    /// Groups.
    pub groups: GroupSettings,
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
            listeners: Vec::new(),
            cluster_id: None,
            configs: BTreeMap::new(),
            groups: GroupSettings::default(),
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
