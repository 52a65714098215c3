//! Whole nodes and their clients on one thread, from one seed.
//!
//! Time jumps from event to event. The disk loses what wasn't synced, in any subset; processes die and stand still, devices fail,
//! fill up and slow down, clocks jump, connections lose what they carry. Clients write unique values and remember what they were
//! told; after each step invariants are checked, and in the end, with all faults healed, everything must move again and all that
//! was acknowledged must be there.
//!
//! The same seed gives the same run, to the bit: the trace hash says so.

mod classic;
mod clients;
mod cluster;
mod core;
mod end;
mod faults;
mod files;
mod groups;
mod history;
mod host;
mod keyed;
mod model;
mod network;
mod shares;
mod subscribers;
mod swarm;
mod trace;
mod transactions;
mod wall;
mod wire;
mod world;

pub use cluster::{ClusterReport, run_cluster};
pub use model::Violation;
pub use world::{Options, Report, run};
