//! From a configuration to what the node gets.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use riverlog_core::config::BrokerValues;
use riverlog_core::groups::{GroupSettings, MigrationPolicy};
use riverlog_core::transactions::TransactionSettings;
use riverlog_http::HttpSettings;
use riverlog_log::VolumeSettings;
use riverlog_node::{Budgets, ClusterSettings, NodeSettings};
use riverlog_wire::BrokerId;

use crate::client::place;
use crate::config::Config;

/// Values of the HTTP door. `loopback`: it is served to this machine only.
pub(crate) fn http_settings(values: BrokerValues<'_>, loopback: bool) -> HttpSettings {
    let list = |name: &str| -> Vec<String> {
        let text = values.text(name).unwrap_or_default();
        let items = text.split(',').map(str::trim);
        items
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let size =
        |name: &str| usize::try_from(values.number(name).unwrap_or_default()).unwrap_or(usize::MAX);
    HttpSettings {
        max_body_bytes: size("riverlog.http.request.max.bytes"),
        max_held_bytes: size("riverlog.receive.memory.bytes"),
        loopback,
        hosts: list("riverlog.http.hosts"),
        origins: list("riverlog.http.cors.origins"),
        read_only: values.is_true("riverlog.console.read.only"),
        ..HttpSettings::default()
    }
}

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
            migration: values
                .text("group.consumer.migration.policy")
                .and_then(|name| MigrationPolicy::parse(name.trim()))
                .unwrap_or_default(),
            share_session_timeout: millis("group.share.session.timeout.ms"),
            share_heartbeat_interval: millis("group.share.heartbeat.interval.ms"),
            share_max_size: size("group.share.max.size"),
            streams_session_timeout: millis("group.streams.session.timeout.ms"),
            streams_heartbeat_interval: millis("group.streams.heartbeat.interval.ms"),
            streams_initial_rebalance_delay: millis("group.streams.initial.rebalance.delay.ms"),
            streams_task_offset_interval: millis("group.streams.task.offset.interval.ms"),
            streams_acceptable_recovery_lag: number("group.streams.acceptable.recovery.lag"),
            streams_standbys: size("group.streams.num.standby.replicas"),
            streams_tags: values
                .text("group.streams.rack.aware.assignment.tags")
                .unwrap_or_default()
                .to_owned(),
            streams_max_size: size("group.streams.max.size"),
        },
        commit_timeout: millis("offsets.commit.timeout.ms"),
        transactions: TransactionSettings {
            max_timeout: millis("transaction.max.timeout.ms"),
            id_expiration: millis("transactional.id.expiration.ms"),
        },
        cluster: ClusterSettings {
            heartbeat: millis("broker.heartbeat.interval.ms"),
            session: millis("broker.session.timeout.ms"),
            max_lag: millis("replica.lag.time.max.ms"),
            fetch_wait: millis("replica.fetch.wait.max.ms"),
            fetch_bytes: size("replica.fetch.response.max.bytes"),
            partition_bytes: size("replica.fetch.max.bytes"),
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
        transactions_partitions: i32::try_from(number("transaction.state.log.num.partitions"))
            .unwrap_or(50),
        retention_check_ms: u64::try_from(number("log.retention.check.interval.ms"))
            .unwrap_or(300_000),
        ..NodeSettings::default()
    }
}

/// Adds what this server chose by itself to the configs that it was started with: clients that ask for them want to know
/// what is in use, and Kafka, which can't start without most of these, always has them there.
///
/// `bound`: each listener's name and the address of its socket.
pub(crate) fn say_what_is_used(
    settings: &mut NodeSettings,
    bound: &[(&str, SocketAddr)],
    data: &Path,
) {
    let listeners = bound.iter().map(|(name, at)| format!("{name}://{at}"));
    let advertised = settings.listeners.iter();
    let advertised =
        advertised.map(|(name, host, port)| format!("{name}://{}", place(host, *port)));
    let used = [
        ("advertised.listeners", joined(advertised)),
        ("listeners", joined(listeners)),
        ("log.dirs", data.display().to_string()),
        ("node.id", settings.broker.0.to_string()),
        ("process.roles", "broker,controller".to_owned()),
    ];
    for (key, value) in used {
        // Port 0 or no host isn't what clients are told.
        if key == "advertised.listeners" {
            settings.configs.insert(key.to_owned(), value);
        } else {
            settings.configs.entry(key.to_owned()).or_insert(value);
        }
    }
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_configs_say_what_is_used() {
        let given = [
            ("listeners", "A://:0"),
            ("advertised.listeners", "A://host:0"),
        ];
        let mut settings = NodeSettings {
            broker: BrokerId(7),
            listeners: vec![
                ("A".to_owned(), "host".to_owned(), 9093),
                ("B".to_owned(), "::1".to_owned(), 9094),
            ],
            configs: given.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..NodeSettings::default()
        };
        let bound = [
            ("A", "0.0.0.0:9093".parse().unwrap()),
            ("B", "[::1]:9094".parse().unwrap()),
        ];
        say_what_is_used(&mut settings, &bound, Path::new("/data"));
        let got: Vec<String> = settings
            .configs
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        assert_eq!(
            got,
            [
                "advertised.listeners=A://host:9093,B://[::1]:9094",
                "listeners=A://:0",
                "log.dirs=/data",
                "node.id=7",
                "process.roles=broker,controller",
            ]
        );
        settings.configs.clear();
        say_what_is_used(&mut settings, &bound, Path::new("/data"));
        assert_eq!(
            settings.configs["listeners"],
            "A://0.0.0.0:9093,B://[::1]:9094"
        );
    }

    #[test]
    fn defaults_of_the_table_are_those_of_the_node() {
        let got = node_settings(&Config::default());
        let want = NodeSettings::default();
        assert_eq!(format!("{:?}", got.volume), format!("{:?}", want.volume));
        assert_eq!(format!("{:?}", got.budgets), format!("{:?}", want.budgets));
        assert_eq!(format!("{:?}", got.cluster), format!("{:?}", want.cluster));
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
