//! Each seed draws its own configuration, some of it very small, so that rare paths are common.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_log::VolumeSettings;
use riverlog_log::disk::Random;
use riverlog_node::NodeSettings;

use crate::groups::GroupsPlan;
use crate::groups::mixed::MixedPlan;
use crate::groups::streams::StreamsPlan;
use crate::model::Place;
use crate::shares::SharePlan;

/// What a seed decides before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) topics: Vec<TopicPlan>,
    pub(crate) producers: usize,
    pub(crate) consumers: usize,
    /// Transactional producers; not drawn, so that seeds from before there were any play as they did.
    pub(crate) transactors: usize,
    /// Transactional producers of the node's coordinator; four share two transactional ids.
    pub(crate) managed: usize,
    /// Whether a topic is compacted.
    pub(crate) keyed: Option<Keyed>,
    /// Members of a classic group.
    pub(crate) classic: usize,
    /// Members of a group of the consumer protocol that do nothing but to share.
    pub(crate) subscribers: usize,
    /// Whether there is a share group.
    pub(crate) shares: Option<SharePlan>,
    /// Groups whose members are those of clusters as well.
    pub(crate) groups: GroupsPlan,
    pub(crate) operations: u64,
    pub(crate) settings: NodeSettings,
    /// Of 1,000 steps, how many are which fault.
    pub(crate) kill: u64,
    pub(crate) power_cut: u64,
    pub(crate) disk_error: u64,
    pub(crate) full_disk: u64,
    /// Virtual time of a sync on a healthy disk.
    pub(crate) sync: Duration,
    /// How much slower a slow disk is.
    pub(crate) slow: u32,
    pub(crate) clean_stop: u64,
    /// Whether the machine is switched off a while after its disk has failed: the node stops as it should, and the power goes.
    pub(crate) unplugs: bool,
    /// Of 1,000 steps, in how many the power is to go while the next cleaned segment takes the place of others.
    pub(crate) swap_cut: u64,
    /// The same for the next group of the write-ahead log.
    pub(crate) group_cut: u64,
    /// The same for a full disk that meets the next cleaned segment.
    pub(crate) full_clean: u64,
    pub(crate) freeze: u64,
    pub(crate) clock: u64,
    pub(crate) reset: u64,
    /// Of 1,000 requests, how many are late, lost, answered to nobody or come twice.
    pub(crate) network: u64,
    /// Whether the process often dies soon after all records of a partition were deleted.
    pub(crate) lost_heads: bool,
    /// How many clients delete records. Many of them do nothing else, in small steps.
    pub(crate) trimmers: usize,
    /// Whether a client makes and deletes a topic over and over.
    pub(crate) maker: bool,
    /// Whether bytes of files beside the segments rot.
    pub(crate) flips: bool,
    /// The mean time that a client thinks.
    pub(crate) think: Duration,
    /// The longest time that a job waits for a thread, in us.
    pub(crate) lag: u64,
    /// Of 1,000 steps of members of groups, in how many they leave, die, or stand still for longer than their session.
    pub(crate) churn: u64,
    /// What becomes of the disk in the end.
    pub(crate) ending: Ending,
    /// Whether clients speak Kafka's protocol.
    pub(crate) wire: bool,
    /// Whether a client changes settings of topics.
    pub(crate) tuner: bool,
}

/// What becomes of the disk in the end, after everything has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Nothing,
    /// Bits flip anywhere.
    Flips,
    /// A file is one that it was earlier.
    Older,
    /// Another disk, with nothing on it.
    Replaced,
}

/// A topic of a run.
#[derive(Clone, Debug)]
pub(crate) struct TopicPlan {
    pub(crate) name: String,
    pub(crate) partitions: i32,
    pub(crate) sync: bool,
    /// Whether clients call DeleteRecords on it, or it has retention by count.
    pub(crate) trimmed: bool,
    /// `riverlog.retention.records`.
    pub(crate) keeps: Option<i64>,
    /// `riverlog.max.records`: appends wait until everyone has committed what is to go.
    pub(crate) bound: Option<i64>,
    pub(crate) configs: Vec<(String, Option<String>)>,
}

/// A compacted topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    /// `cleanup.policy=compact,delete`, with a small `retention.bytes`.
    pub(crate) deletes: bool,
    /// `delete.retention.ms`.
    pub(crate) tombstones_ms: u64,
    /// `min.compaction.lag.ms`.
    pub(crate) min_lag_ms: u64,
    /// `max.compaction.lag.ms`.
    pub(crate) max_lag_ms: Option<u64>,
}

impl Keyed {
    fn draw(random: &mut Random) -> Keyed {
        let mut keyed = Keyed {
            deletes: random.chance(1, 4),
            max_lag_ms: None,
            tombstones_ms: one_of(random, &[500, 5_000, 60_000, 3_600_000]),
            min_lag_ms: one_of(random, &[0, 0, 0, 86_400_000]),
        };
        if keyed.min_lag_ms == 0 {
            keyed.max_lag_ms = one_of(random, &[None, Some(100), Some(5_000)]);
        }
        keyed
    }

    /// The topic's settings.
    pub(crate) fn configs(&self) -> Vec<(String, Option<String>)> {
        let policy = match self.deletes {
            true => "compact,delete",
            false => "compact",
        };
        let mut all = vec![
            ("cleanup.policy", policy.to_owned()),
            ("min.cleanable.dirty.ratio", "0.01".to_owned()),
            ("delete.retention.ms", self.tombstones_ms.to_string()),
            ("min.compaction.lag.ms", self.min_lag_ms.to_string()),
        ];
        if let Some(lag) = self.max_lag_ms {
            all.push(("max.compaction.lag.ms", lag.to_string()));
        }
        if self.deletes {
            all.push(("retention.bytes", "4000".to_owned()));
        }
        let owned = |(key, value): (&str, String)| (key.to_owned(), Some(value));
        all.into_iter().map(owned).collect()
    }
}

fn one_of<T: Clone>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize].clone()
}

impl Swarm {
    pub(crate) fn draw(random: &mut Random) -> Swarm {
        let count = 1 + random.below(3);
        let trimmers = one_of(random, &[1, 1, 1, 24]);
        let topics = (0..count)
            .map(|n| TopicPlan::draw(random, n, trimmers > 1))
            .collect();
        let mut configs = BTreeMap::new();
        configs.insert(
            "log.segment.bytes".to_owned(),
            one_of(random, &["1024", "4096", "65536", "1048576"]).to_owned(),
        );
        let settings = NodeSettings {
            configs,
            volume: VolumeSettings {
                wal_bytes: one_of(random, &[64 << 10, 256 << 10, 4 << 20]),
                tail_cache_bytes: one_of(random, &[0, 2_000, 64 << 10, 8 << 20]),
                open_files: one_of(random, &[4, 16, 1_000]),
            },
            offsets_partitions: one_of(random, &[1, 3, 50]),
            retention_check_ms: one_of(random, &[50, 1_000, 60_000]),
            ..NodeSettings::default()
        };
        Swarm {
            topics,
            producers: 1 + random.below(5) as usize,
            consumers: 1 + random.below(4) as usize,
            transactors: 0,
            managed: 0,
            keyed: None,
            classic: 0,
            subscribers: 0,
            shares: None,
            groups: GroupsPlan::default(),
            operations: 200 + random.below(1_200),
            settings,
            kill: one_of(random, &[0, 2, 10]),
            power_cut: one_of(random, &[0, 2, 10, 20]),
            disk_error: one_of(random, &[0, 0, 2, 5]),
            full_disk: one_of(random, &[0, 0, 2, 5]),
            sync: Duration::from_micros(one_of(random, &[100, 1_000, 20_000])),
            slow: one_of(random, &[1, 1, 10, 100]),
            clean_stop: one_of(random, &[0, 0, 2]),
            unplugs: false,
            swap_cut: 0,
            group_cut: 0,
            full_clean: 0,
            freeze: one_of(random, &[0, 0, 2]),
            clock: one_of(random, &[0, 0, 3]),
            reset: one_of(random, &[0, 0, 3]),
            network: one_of(random, &[0, 0, 10, 50]),
            lost_heads: false,
            trimmers,
            maker: random.chance(1, 3),
            flips: random.chance(1, 3),
            think: Duration::from_micros(one_of(random, &[200, 2_000, 50_000, 400_000])),
            lag: 50,
            churn: 0,
            ending: Ending::Flips,
            wire: false,
            tuner: false,
        }
    }
}

impl Swarm {
    /// Three of seven seeds have transactions, in a topic of their own.
    pub(crate) fn with_transactions(mut self, seed: u64) -> Swarm {
        self.transactors = match seed % 7 {
            4 => 1,
            5 => 4,
            6 => 2,
            _ => 0,
        };
        self
    }

    /// What came later, drawn beside the rest for the same reason.
    pub(crate) fn with_more(mut self, seed: u64) -> Swarm {
        let mut random = Random::new(seed.rotate_left(32) ^ 0x006d_6f72_6521);
        self.lag = one_of(&mut random, &[50, 50, 50, 2_000, 20_000]);
        self.churn = one_of(&mut random, &[0, 0, 5, 30]);
        self.tuner = random.chance(1, 3);
        self.wire = random.chance(1, 3);
        self.ending = one_of(
            &mut random,
            &[
                Ending::Nothing,
                Ending::Flips,
                Ending::Older,
                Ending::Older,
                Ending::Replaced,
            ],
        );
        if self.churn > 0 {
            let session = Duration::from_secs(one_of(&mut random, &[2, 10]));
            self.settings.groups.consumer_session_timeout = session;
        }
        self
    }

    /// Some seeds have producers of the node's own coordinator, a compacted topic, a classic group. From another source of
    /// chance than the rest, so that what else a seed plays stays.
    pub(crate) fn with_coordinators(mut self, seed: u64) -> Swarm {
        let mut random = Random::new(seed ^ 0x6b65_7965_6421);
        let (managed, keyed, classic) = match seed % 11 {
            0 => (true, true, false),
            4 => (true, false, true),
            5 => (false, true, true),
            7 => (true, true, true),
            _ => (false, false, false),
        };
        if managed {
            self.managed = one_of(&mut random, &[1, 2, 3, 4]);
            self.settings.transactions_partitions = one_of(&mut random, &[1, 3]);
        }
        if keyed {
            let keyed = Keyed::draw(&mut random);
            let configs = &mut self.settings.configs;
            configs.insert("log.segment.bytes".to_owned(), "1024".to_owned());
            configs.insert(
                "log.cleaner.backoff.ms".to_owned(),
                one_of(&mut random, &["20", "500"]).to_owned(),
            );
            configs.insert(
                "log.cleaner.dedupe.buffer.size".to_owned(),
                one_of(&mut random, &["134217728", "120"]).to_owned(),
            );
            self.keyed = Some(keyed);
        }
        if classic {
            self.classic = one_of(&mut random, &[2, 3, 5]);
        }
        self
    }

    /// Three of thirteen seeds have a group of the consumer protocol whose members come and go; drawn beside the rest, too.
    pub(crate) fn with_subscribers(mut self, seed: u64) -> Swarm {
        let mut random = Random::new(seed ^ 0x7375_6273_6372);
        if matches!(seed % 13, 2 | 5 | 10) {
            self.subscribers = one_of(&mut random, &[2, 3, 5]);
            let session = Duration::from_secs(one_of(&mut random, &[2, 10]));
            self.settings.groups.consumer_session_timeout = session;
        }
        self
    }

    /// Four of seventeen seeds have a share group, half of them with keys in order; drawn beside the rest, too.
    pub(crate) fn with_shares(mut self, seed: u64) -> Swarm {
        let mut random = Random::new(seed ^ 0x0073_6861_7265_7321);
        if matches!(seed % 17, 1 | 6 | 9 | 14) {
            self.shares = Some(SharePlan {
                members: one_of(&mut random, &[1, 2, 4]),
                key_order: random.chance(1, 2),
                backoff: Duration::from_millis(one_of(&mut random, &[0, 0, 100, 700])),
            });
            let configs = &mut self.settings.configs;
            let mut set = |key: &str, value: &str| {
                configs.insert(format!("share.coordinator.{key}"), value.to_owned());
            };
            set(
                "state.topic.num.partitions",
                one_of(&mut random, &["1", "3"]),
            );
            set(
                "snapshot.update.records.per.snapshot",
                one_of(&mut random, &["2", "10", "500"]),
            );
            let least = "group.share.min.record.lock.duration.ms";
            configs.insert(least.to_owned(), "1000".to_owned());
        }
        self
    }

    /// One of nine seeds has a group that goes to and fro between the protocols, another one a streams group; drawn beside the rest, too.
    pub(crate) fn with_groups(mut self, seed: u64) -> Swarm {
        let mut random = Random::new(seed ^ 0x0067_726f_7570_7321);
        match seed % 9 {
            1 => self.groups.mixed = Some(MixedPlan::draw(&mut random, 5)),
            8 => self.groups.streams = Some(StreamsPlan::draw(&mut random, 1)),
            _ => return self,
        }
        self.groups.set(&mut self.settings.groups);
        self
    }

    /// Some seeds have faults that come when they hurt most.
    pub(crate) fn with_timed_faults(mut self, seed: u64) -> Swarm {
        self.unplugs = seed % 4 == 3;
        if seed % 3 == 1 && self.keyed.is_some() {
            self.swap_cut = 10;
            // The cleaner must get somewhere.
            self.think = self.think.max(Duration::from_millis(50));
            self.kill = self.kill.min(2);
            self.power_cut = self.power_cut.min(2);
        } else if seed % 5 == 2 {
            self.group_cut = 10;
            // Several entries in a group, and soon another one in its place.
            self.producers = self.producers.max(5);
            self.think = self.think.min(Duration::from_millis(2));
            self.sync = Duration::from_millis(20);
            self.settings.volume.wal_bytes = 64 << 10;
            for topic in &mut self.topics {
                topic.partitions = topic.partitions.max(3);
                topic.sync = true;
                for (key, value) in &mut topic.configs {
                    if key == "riverlog.durability" {
                        *value = Some("sync".to_owned());
                    }
                }
            }
        }
        if seed % 3 == 2 && self.keyed.is_some() {
            self.full_clean = 10;
            self.think = self.think.max(Duration::from_millis(50));
            // What was set aside for lack of room stays so for as long as the process lives: it lives on.
            self.kill = 0;
            self.power_cut = 0;
            self.clean_stop = 0;
            self.disk_error = 0;
            self.group_cut = 0;
        }
        self
    }

    /// One of seven seeds loses the heads of partitions whose records lie in segments alone, with all that those say of producers, and a process that dies soon afterwards.
    pub(crate) fn with_lost_heads(mut self, seed: u64) -> Swarm {
        if seed % 7 != 3 || self.keyed.is_some() {
            return self;
        }
        self.lost_heads = true;
        self.trimmers = 1;
        self.producers = 5;
        self.think = self.think.min(Duration::from_millis(20));
        self.kill = 0;
        self.power_cut = 0;
        let configs = &mut self.settings.configs;
        configs.insert("log.segment.bytes".to_owned(), "1024".to_owned());
        // Nothing else syncs what is left.
        self.settings.retention_check_ms = 60_000;
        self.topics.truncate(1);
        for topic in &mut self.topics {
            topic.partitions = topic.partitions.min(2);
            topic.sync = false;
            topic.trimmed = true;
            topic.keeps = None;
            topic.bound = None;
            let own = [
                "riverlog.durability",
                "riverlog.retention.records",
                "riverlog.max.records",
            ];
            topic
                .configs
                .retain(|(key, _)| !own.contains(&key.as_str()));
            let durability = (
                "riverlog.durability".to_owned(),
                Some("page-cache".to_owned()),
            );
            topic.configs.push(durability);
        }
        self
    }

    /// Whether two instances share each transactional id.
    pub(crate) fn is_paired(&self) -> bool {
        self.managed == 4
    }

    /// Whether anyone writes to the topic of transactions.
    pub(crate) fn has_transactions(&self) -> bool {
        self.transactors + self.managed > 0
    }

    /// All partitions of all topics.
    pub(crate) fn places(&self) -> Vec<Place> {
        let topics = self.topics.iter().enumerate();
        topics
            .flat_map(|(t, plan)| (0..plan.partitions).map(move |p| (t, p)))
            .collect()
    }
}

impl TopicPlan {
    fn draw(random: &mut Random, number: u64, many_trimmers: bool) -> TopicPlan {
        let mut configs = Vec::new();
        let mut set =
            |key: &str, value: &str| configs.push((key.to_owned(), Some(value.to_owned())));
        let sync = !random.chance(1, 4);
        set(
            "riverlog.durability",
            if sync { "sync" } else { "page-cache" },
        );
        set(
            "index.interval.bytes",
            one_of(random, &["0", "200", "4096"]),
        );
        let trimmed = random.chance(1, 3) || (many_trimmers && number == 0);
        let mut keeps = None;
        if trimmed && random.chance(1, 2) {
            keeps = Some(one_of(random, &[5, 50, 500]));
        }
        let mut bound = None;
        if sync && !trimmed && random.chance(1, 4) {
            bound = Some(one_of(random, &[10, 100]));
        }
        if let Some(keep) = keeps {
            set("riverlog.retention.records", &keep.to_string());
        }
        if let Some(bound) = bound {
            set("riverlog.max.records", &bound.to_string());
        }
        TopicPlan {
            name: format!("topic-{number}"),
            partitions: match many_trimmers && number == 0 {
                true => 8,
                false => 1 + random.below(4) as i32,
            },
            sync,
            trimmed,
            keeps,
            bound,
            configs,
        }
    }
}
