//! Features: what the whole cluster has agreed to use (KIP-584).

/// A feature with the levels that this release can work at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Kafka's name.
    pub name: &'static str,
    /// Lowest level; 0 means that the feature may be off.
    pub min: i16,
    /// Highest level, and the one that a new cluster begins with.
    pub max: i16,
}

/// All that this release supports, in order of name; other features are refused.
pub const SUPPORTED: &[Feature] = &[
    Feature {
        name: "group.version",
        min: 0,
        max: 1,
    },
    // Kafka 4.4's range: user interfaces read Kafka's release from it.
    Feature {
        name: "metadata.version",
        min: 7,
        max: 33,
    },
    Feature {
        name: "share.version",
        min: 0,
        max: 1,
    },
    Feature {
        name: "streams.version",
        min: 0,
        max: 1,
    },
    Feature {
        name: "transaction.version",
        min: 0,
        max: 2,
    },
];
