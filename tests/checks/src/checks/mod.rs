//! The table.

mod admin;
mod cluster;
mod commits;
mod compaction;
mod consumer_groups;
mod fetch;
mod groups;
mod metadata;
mod migration;
mod offsets;
mod produce;
mod producers;
mod sessions;
mod share_groups;
mod streams_groups;
mod tools;
mod transactional_offsets;
mod transactions;
mod wire;

pub use cluster::{CLUSTER_CHECKS, ClusterCheck};

use crate::client::{Client, Outcome};
use crate::wire::Broker;

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its number in the list of conformance checks, or its own name for what isn't in that list.
    pub number: &'static str,
    /// What the broker does when it passes.
    pub name: &'static str,
    run: fn(&mut Client<'_>) -> Outcome,
}

impl Check {
    /// Number and name, without blanks.
    pub fn title(&self) -> String {
        format!("{}-{}", self.number, self.name)
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.title())
    }
}

/// All checks, in the order in which they are best run.
pub fn all() -> impl Iterator<Item = &'static Check> {
    let tables: [&'static [Check]; 18] = [
        wire::CHECKS,
        metadata::CHECKS,
        admin::CHECKS,
        produce::CHECKS,
        producers::CHECKS,
        transactions::CHECKS,
        transactional_offsets::CHECKS,
        compaction::CHECKS,
        fetch::CHECKS,
        sessions::CHECKS,
        offsets::CHECKS,
        groups::CHECKS,
        consumer_groups::CHECKS,
        migration::CHECKS,
        share_groups::CHECKS,
        streams_groups::CHECKS,
        commits::CHECKS,
        tools::CHECKS,
    ];
    tables.into_iter().flatten()
}

/// Runs a check with names that begin with `prefix` and its number.
pub fn run(check: &Check, broker: &mut dyn Broker, prefix: &str) -> Outcome {
    let mut client = Client::new(broker, format!("{prefix}-{}", check.number))?;
    (check.run)(&mut client)
}
