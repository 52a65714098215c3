//! From a configuration to what the node gets.

use std::time::Duration;

use riverlog_core::groups::GroupSettings;
use riverlog_log::VolumeSettings;
use riverlog_node::{Budgets, NodeSettings};
use riverlog_wire::BrokerId;

use crate::config::Config;

/// Values of a node; its listeners are added once they are bound.
pub(crate) fn node_settings(config: &Config) -> NodeSettings {
    let values = config.broker();
    let number = |name: &str| values.number(name).unwrap_or_default();
    let size = |name: &str| usize::try_from(number(name)).unwrap_or(usize::MAX);
    let millis =
        |name: &str| Duration::from_millis(u64::try_from(number(name)).unwrap_or_default());
    let id = match (config.values.get("node.id"), config.values.get("broker.id")) {
        (None, Some(id)) if id != "-1" => id.parse().unwrap_or(1),
        _ => i32::try_from(number("node.id")).unwrap_or(1),
    };
    NodeSettings {
        broker: BrokerId(id),
        rack: values.text("broker.rack").map(str::to_owned),
        cluster_id: values
            .text("cluster.id")
            .filter(|id| !id.is_empty())
            .map(str::to_owned),
        configs: config.values.clone(),
        groups: GroupSettings {
            min_session_timeout: millis("group.min.session.timeout.ms"),
            max_session_timeout: millis("group.max.session.timeout.ms"),
            initial_rebalance_delay: millis("group.initial.rebalance.delay.ms"),
            max_size: size("group.max.size"),
            offsets_retention: Duration::from_secs(
                u64::try_from(number("offsets.retention.minutes")).unwrap_or_default() * 60,
            ),
            metadata_max_bytes: size("offset.metadata.max.bytes"),
            consumer_session_timeout: millis("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval: millis("group.consumer.heartbeat.interval.ms"),
        },
        volume: VolumeSettings {
            wal_bytes: size("riverlog.wal.bytes") as u64,
            tail_cache_bytes: size("riverlog.tail.cache.bytes"),
            open_files: size("riverlog.open.files"),
        },
        budgets: Budgets {
            append_bytes: size("riverlog.append.memory.bytes"),
            parked: size("riverlog.parked.max"),
            cold_read_bytes: size("riverlog.cold.read.bytes"),
        },
        offsets_partitions: i32::try_from(number("offsets.topic.num.partitions")).unwrap_or(50),
        retention_check_ms: u64::try_from(number("log.retention.check.interval.ms"))
            .unwrap_or(300_000),
        ..NodeSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_table_are_those_of_the_node() {
        let got = node_settings(&Config::default());
        let want = NodeSettings::default();
        assert_eq!(format!("{:?}", got.volume), format!("{:?}", want.volume));
        assert_eq!(format!("{:?}", got.budgets), format!("{:?}", want.budgets));
        assert_eq!(
            (got.broker, got.offsets_partitions),
            (want.broker, want.offsets_partitions)
        );
        assert_eq!(got.retention_check_ms, want.retention_check_ms);
        assert_eq!(
            got.groups.initial_rebalance_delay,
            want.groups.initial_rebalance_delay
        );
        assert_eq!(got.groups.offsets_retention, want.groups.offsets_retention);
    }
}
