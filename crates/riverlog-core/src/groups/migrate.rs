//! Groups that move between the classic and the consumer protocol while their members work (KIP-848).
//!
//! *Up*: the first member of the consumer protocol comes to a classic group of consumers. The others stay as they are. What they
//! read and have is taken from the metadata that they sent to each other, and from now on the broker assigns to everybody.
//! *Down*: the last member of the consumer protocol has gone, and the others assign for themselves again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// Which way groups may move (`group.consumer.migration.policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrationPolicy {
    /// Both.
    #[default]
    Bidirectional,
    /// From the classic to the consumer protocol.
    Upgrade,
    /// From the consumer to the classic protocol.
    Downgrade,
    /// Neither: a group has to be empty first.
    Disabled,
}

impl MigrationPolicy {
    /// By Kafka's name, in upper or lower case.
    pub fn parse(name: &str) -> Option<MigrationPolicy> {
        let policies = [
            ("bidirectional", MigrationPolicy::Bidirectional),
            ("upgrade", MigrationPolicy::Upgrade),
            ("downgrade", MigrationPolicy::Downgrade),
            ("disabled", MigrationPolicy::Disabled),
        ];
        let found = policies.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, policy)| *policy)
    }

    pub(super) fn upgrades(self) -> bool {
        matches!(
            self,
            MigrationPolicy::Bidirectional | MigrationPolicy::Upgrade
        )
    }

    pub(super) fn downgrades(self) -> bool {
        matches!(
            self,
            MigrationPolicy::Bidirectional | MigrationPolicy::Downgrade
        )
    }
}

/// A member of the classic protocol, on its way from one kind of group to the other.
pub(super) struct Moving {
    pub(super) member: Arc<str>,
    pub(super) instance: Option<Arc<str>>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    /// Name and metadata, the favourite first.
    pub(super) protocols: Vec<(String, Bytes)>,
    /// That of the chosen protocol; empty where none was chosen yet.
    pub(super) metadata: Bytes,
    /// What it may work on, in the client's encoding.
    pub(super) assignment: Bytes,
}
