//! What the Kafka door's requests about configs have in common.

use riverlog_core::metadata::ConfigChange;

/// Kafka's numbers of resources.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
pub(super) const BROKER_LOGGER: i8 = 8;
pub(super) const CLIENT_METRICS: i8 = 16;
pub(super) const GROUP: i8 = 32;

/// IncrementalAlterConfigs' operations by their numbers.
pub(super) fn change(operation: i8, name: String, value: Option<String>) -> Option<ConfigChange> {
    match operation {
        0 => Some(ConfigChange::Set(name, value)),
        1 => Some(ConfigChange::Delete(name)),
        2 => Some(ConfigChange::Append(name, value)),
        3 => Some(ConfigChange::Subtract(name, value)),
        _ => None,
    }
}
