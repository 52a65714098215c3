//! One node without sockets: logs, rules, parked answers and jobs in a box.
//!
//! What goes in: commands with a [`Reply`], finished jobs, time. What comes out: replies (each completed exactly once, now
//! or later), jobs to run, the next deadline. Three hosts drive the same box: the server, the embedded library and the
//! simulator. All calls take `&self` and may come from several threads; there is one lock for each partition and one for
//! each coordinator shard, never two of a kind at once, and none across a job or a reply.

mod admit;
mod append;
mod apply;
mod aside;
mod bounded;
mod budget;
mod caller;
mod cleaner;
mod command;
mod controller;
mod departed;
mod doubts;
mod errors;
mod fetch;
mod flush;
mod gate;
mod groups;
pub mod harness;
mod jobs;
mod losses;
mod markers;
mod membership;
mod metrics;
mod node;
mod notice;
mod offsets;
mod open;
mod partition;
mod peers;
mod producers;
pub mod quorum;
mod rebalance;
mod replication;
mod reserve;
mod settings;
mod shards;
mod share;
mod sync;
mod tables;
mod timers;
mod transactional;
mod transactions;
mod unclaimed;
mod upkeep;

pub use caller::Caller;
pub use command::{
    AppendAnswer, AppendCommand, AppendFailure, AppendTo, CommittedAnswer, CopyDescription,
    FetchAnswer, FetchCommand, FetchPartition, FetchedPartition, Isolation, OffsetAnswer,
    OffsetQuery, PartitionDescription, Reply, StableAnswer,
};
pub use jobs::{Job, JobDone, Lane};
pub use markers::OpenTransaction;
pub use metrics::{Metric, MetricKind};
pub use node::{Host, Node, PartitionRef, StartError};
pub use notice::{Damage, LostRange, Notice};
pub use peers::PeerMessage;
// What a door hands on, or shows, without knowing the log behind it.
pub use riverlog_log::{Marker, ProducerSummary, Slice, Slices};
pub use settings::{Budgets, ClusterSettings, Entropy, NodeSettings};
pub use share::{ShareFetchAnswer, ShareFetchCommand, ShareFetched};
