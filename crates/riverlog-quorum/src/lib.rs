//! The metadata quorum of a cluster: a Raft library (openraft) behind the seam that `riverlog_node::quorum` describes.
//!
//! [`Quorum::open`] opens a voter's files in the folder `quorum` of a data folder (`docs/format/quorum.md`); [`Opened::start`] runs it
//! on the tokio runtime that it is called on, which may have one thread. It speaks to other nodes through a [`Carrier`], and to
//! its node by [`Step`]s, which somebody takes in order. [`forming::decide`] says how empty nodes become a cluster.
//!
//! The crate knows no partitions, groups or doors: entries are records that it doesn't read.

mod encode;
mod error;
pub mod forming;
mod leadership;
mod machine;
mod members;
mod message;
mod network;
mod quorum;
mod raft;
mod step;
mod store;
mod succession;

pub use error::QuorumError;
pub use network::Carrier;
pub use quorum::{MemberStatus, Opened, Quorum, QuorumSettings, Status};
pub use raft::{DiskId, Member};
pub use step::{SnapshotWanted, Step};
pub use store::Writes;
