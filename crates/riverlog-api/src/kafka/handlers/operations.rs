//! Authorized operations (KIP-430): without access rules everybody may do everything that the kind of resource knows.
//! Each is a bit field; bit `n` is Kafka's operation number `n`.

/// What a field of authorized operations says when nobody asked.
pub(super) const NOT_ASKED: i32 = i32::MIN;

const READ: u32 = 3;
const WRITE: u32 = 4;
const CREATE: u32 = 5;
const DELETE: u32 = 6;
const ALTER: u32 = 7;
const DESCRIBE: u32 = 8;
const CLUSTER_ACTION: u32 = 9;
const DESCRIBE_CONFIGS: u32 = 10;
const ALTER_CONFIGS: u32 = 11;
const IDEMPOTENT_WRITE: u32 = 12;

const TOPIC: &[u32] = &[
    READ,
    WRITE,
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
];
const GROUP: &[u32] = &[READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS];
const CLUSTER: &[u32] = &[
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
];

/// Of a topic.
pub(super) fn on_topic(asked: bool) -> i32 {
    field(asked, TOPIC)
}

/// Of a group.
pub(super) fn on_group(asked: bool) -> i32 {
    field(asked, GROUP)
}

/// Of the cluster.
pub(super) fn on_cluster(asked: bool) -> i32 {
    field(asked, CLUSTER)
}

fn field(asked: bool, operations: &[u32]) -> i32 {
    if asked {
        operations.iter().fold(0, |field, n| field | 1 << n)
    } else {
        NOT_ASKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_a_kafka_without_authorizer() {
        assert_eq!(on_topic(true), 3576);
        assert_eq!(on_group(true), 3400);
        assert_eq!(on_cluster(true), 8096);
        assert_eq!(on_cluster(false), i32::MIN);
    }
}
