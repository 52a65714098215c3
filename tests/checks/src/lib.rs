//! What every Kafka broker must answer, as frames.
//!
//! One table of checks, numbered as in `docs/protocol`, each a small conversation over a [`Broker`]: the Kafka door on
//! virtual time in the tests of `riverlog-api`, or any broker over TCP with the program `riverlog-checks`. A check that only
//! passes on one of them tests the wrong thing. [`CLUSTER_CHECKS`] take several brokers, over TCP only.

mod checks;
mod client;
mod records;
mod tcp;
mod trio;
mod wire;

pub use checks::{CLUSTER_CHECKS, Check, ClusterCheck, all, run};
pub use client::{Client, Failure, Line, Outcome, Topic, same};
pub use records::{Batches, keyed, numbered};
pub use tcp::TcpBroker;
pub use trio::Cluster;
pub use wire::{Broker, Connection, Received};
