//! What a seed decides before it begins.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_log::VolumeSettings;
use riverlog_log::disk::Random;
use riverlog_node::quorum::Quorum;
use riverlog_node::{ClusterSettings, NodeSettings};

use super::faults;

#[derive(Clone, Debug)]
pub(super) struct Swarm {
    pub(super) nodes: usize,
    /// Of one topic.
    pub(super) partitions: i32,
    /// `riverlog.durability=sync`. Otherwise the power stays.
    pub(super) sync: bool,
    pub(super) producers: usize,
    pub(super) readers: usize,
    pub(super) trims: bool,
    pub(super) operations: u64,
    pub(super) think: Duration,
    /// Of 1,000 steps of clients.
    pub(super) faults: u64,
    /// Of each fault among the others.
    pub(super) weights: Vec<u64>,
    /// Of 1,000 messages.
    pub(super) lost: u64,
    pub(super) twice: u64,
    pub(super) late: u64,
    /// Of a sync on a healthy disk.
    pub(super) sync_cost: Duration,
    pub(super) settings: NodeSettings,
}

fn one_of<T: Clone>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize].clone()
}

fn ms(random: &mut Random, choices: &[u64]) -> Duration {
    Duration::from_millis(one_of(random, choices))
}

impl Swarm {
    pub(super) fn draw(random: &mut Random) -> Swarm {
        let segment = one_of(random, &["1024", "4096", "1048576"]);
        let configs = BTreeMap::from([("log.segment.bytes".to_owned(), segment.to_owned())]);
        let settings = NodeSettings {
            quorum: Quorum::Shared,
            configs,
            cluster: ClusterSettings {
                heartbeat: ms(random, &[50, 200]),
                session: ms(random, &[600, 1_500, 3_000]),
                max_lag: ms(random, &[300, 1_000, 3_000]),
                fetch_wait: ms(random, &[5, 50, 500]),
                fetch_bytes: one_of(random, &[500, 10_000, 10 << 20]),
                partition_bytes: one_of(random, &[100, 2_000, 1 << 20]),
            },
            volume: VolumeSettings {
                wal_bytes: one_of(random, &[64 << 10, 256 << 10, 4 << 20]),
                tail_cache_bytes: one_of(random, &[0, 2_000, 8 << 20]),
                open_files: one_of(random, &[8, 1_000]),
            },
            offsets_partitions: 1,
            retention_check_ms: one_of(random, &[100, 1_000, 60_000]),
            ..NodeSettings::default()
        };
        Swarm {
            nodes: one_of(random, &[3, 3, 3, 5]),
            partitions: 1 + random.below(3) as i32,
            sync: !random.chance(1, 5),
            producers: 1 + random.below(4) as usize,
            readers: 1 + random.below(2) as usize,
            trims: random.chance(1, 4),
            operations: 150 + random.below(500),
            think: Duration::from_micros(one_of(random, &[500, 5_000, 100_000])),
            faults: one_of(random, &[10, 30, 60]),
            weights: faults::ALL
                .iter()
                .map(|_| one_of(random, &[0, 1, 1, 4]))
                .collect(),
            lost: one_of(random, &[0, 5, 50]),
            twice: one_of(random, &[0, 5, 50]),
            late: one_of(random, &[0, 20, 100]),
            sync_cost: Duration::from_micros(one_of(random, &[100, 1_000, 20_000])),
            settings,
        }
    }
}
