//! Start and stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::config::TopicConfig;
use riverlog_core::groups::GroupShard;
use riverlog_core::metadata::{ControllerSettings, MetadataImage, MetadataRecord};
use riverlog_core::share::ShareShard;
use riverlog_core::transactions::TransactionShard;
use riverlog_log::{Disk, LogKey, OpenError, OpenMode, Volume};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::{LeaderEpoch, Offset, PartitionIndex, TopicId};

use crate::apply::metadata_settings;
use crate::command::AppendFailure;
use crate::controller::Controller;
use crate::node::{Host, Node, Parts, StartError};
use crate::partition::{Owed, Partition, Role, State};
use crate::quorum::Quorum;
use crate::reserve::give_up_where_full;
use crate::settings::{Entropy, NodeSettings};
use crate::shards::{Replayed, replay};
use crate::tables::TopicInfo;

const DAY_MS: i64 = 24 * 3_600_000;

/// Partitions that one request may make.
const PARTITIONS_PER_REQUEST: usize = 100_000;

/// What a member of a cluster has: its part of the quorum's log (`docs/format/quorum.md`).
const JOURNAL: &str = "quorum/journal";

/// Rounds of jobs at start and stop.
const JOB_ROUNDS: usize = 10_000;

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    entropy: Arc<dyn Entropy>,
    host: Arc<dyn Host>,
    settings: NodeSettings,
    now: Now,
) -> Result<Arc<Node>, StartError> {
    if settings.quorum == Quorum::Own && disk.open(JOURNAL, OpenMode::Read).is_ok() {
        return Err(StartError::ClusterMember);
    }
    let volume = Volume::open(disk.clone(), settings.volume.clone())?;
    give_up_where_full(&*disk);
    let metadata = open_metadata(&volume, &settings)?;
    let image = match settings.quorum {
        Quorum::Own => read_metadata(&metadata)?,
        Quorum::Shared => MetadataImage::default(),
    };
    if let Some((found, _)) = image.brokers.first_key_value()
        && !image.brokers.contains_key(&settings.broker)
    {
        return Err(StartError::OtherNode {
            found: *found,
            asked: settings.broker,
        });
    }
    let controller = Controller::new(metadata, controller_settings(&settings));
    let producer_expiration_ms = number(&settings, "producer.id.expiration.ms").unwrap_or(DAY_MS);
    // A node alone registers once in its life.
    let incarnation = match settings.quorum {
        Quorum::Own => 0,
        Quorum::Shared => entropy.next_u128().max(1),
    };
    let parts = Parts {
        settings,
        host,
        entropy,
        disk,
        volume,
        image,
        controller,
        producer_expiration_ms,
        incarnation,
    };
    let node = Arc::new_cyclic(|this| Node::new(parts, this.clone()));
    let image = node.image();
    let configs = node.node_configs(&image);
    for topic in image.topics.values() {
        node.open_topic(topic, &configs, true, now);
    }
    if node.settings.quorum == Quorum::Shared {
        node.open_unclaimed()?;
        if active(Mutant::StraysRemovedEarly) {
            node.remove_strays(&image);
        }
    }
    node.volume.recovered()?;
    node.tell_accepted_loss();
    let metadata = node.controller.partition.clone();
    if metadata.state.lock().own_behind() {
        node.is_behind(metadata);
    }
    match node.settings.quorum {
        Quorum::Own => node.register(now),
        Quorum::Shared => node.join(now),
    }
    node.run_all_jobs(now);
    // Left to the host: it may write the whole of a new write-ahead log.
    node.upkeep_of_wal(true);
    node.make_reserve();
    node.arm_upkeep(now);
    Ok(node)
}

fn open_metadata(
    volume: &Arc<Volume>,
    settings: &NodeSettings,
) -> Result<Arc<Partition>, StartError> {
    let key = LogKey {
        topic: TopicId::METADATA,
        partition: PartitionIndex(0),
    };
    let log = volume.open_log(key, metadata_settings())?;
    let mut config = TopicConfig::new(&Default::default(), &settings.configs);
    config.sync = true;
    config.min_insync_replicas = Some(1);
    config.max_records = -1;
    config.max_bytes = -1;
    config.retention_records = -1;
    // The one voter's term never changes.
    let state = State::new(log, LeaderEpoch(0), 1, 1, &config);
    let name = "__cluster_metadata".to_owned();
    Ok(Arc::new(Partition {
        leads: AtomicBool::new(true),
        key,
        topic: TopicInfo::new(key.topic, name, true, config),
        role: Role::Metadata,
        state: Mutex::new(state),
    }))
}

fn read_metadata(partition: &Partition) -> Result<MetadataImage, StartError> {
    let (start, end) = {
        let state = partition.state.lock();
        state
            .log
            .as_ref()
            .map_or((Offset::ZERO, Offset::ZERO), |log| {
                (log.log_start_offset(), log.log_end_offset())
            })
    };
    let mut image = MetadataImage::default();
    let mut damaged = None;
    replay(partition, start, end, |replayed, at| {
        let Replayed::Record(_, _, value) = replayed else {
            return;
        };
        match MetadataRecord::decode(value.unwrap_or_default()) {
            Ok(Some(record)) => image.apply(&record, at + 1),
            Ok(None) => {}
            Err(error) => {
                damaged.get_or_insert_with(|| format!("record {at}: {error}"));
            }
        }
    })
    .map_err(|error| metadata_error(error.to_string()))?;
    if let Some(reason) = damaged {
        return Err(metadata_error(reason));
    }
    image.position = end;
    Ok(image)
}

fn metadata_error(reason: String) -> StartError {
    StartError::Metadata {
        reason,
        remedy: "restore the data folder from a backup, or start the release that wrote it",
    }
}

fn controller_settings(settings: &NodeSettings) -> ControllerSettings {
    let narrow = |key| number(settings, key).and_then(|n| i32::try_from(n).ok());
    ControllerSettings {
        num_partitions: narrow("num.partitions").unwrap_or(1),
        replication_factor: narrow("default.replication.factor")
            .and_then(|n| i16::try_from(n).ok()),
        node_configs: settings.configs.clone(),
        max_partitions_per_request: PARTITIONS_PER_REQUEST,
    }
}

/// A static config that is a number; the host has checked it.
fn number(settings: &NodeSettings, key: &str) -> Option<i64> {
    settings.configs.get(key)?.parse().ok()
}

impl Node {
    /// Runs jobs on the calling thread until none is left: at start and stop, when the host has no threads for them.
    fn run_all_jobs(&self, now: Now) {
        // A failing disk may make work for ever; what matters is done in a few rounds.
        for _ in 0..JOB_ROUNDS {
            let jobs = self.take_jobs();
            if jobs.is_empty() {
                return;
            }
            for job in jobs {
                self.on_job_done(job.run(), now);
            }
        }
    }

    pub(crate) fn stop(&self, now: Now) -> Result<(), OpenError> {
        // What is under way becomes durable and is answered as ever.
        self.run_all_jobs(now);
        self.answer_parked_fetches(now);
        self.answer_parked_share_fetches(now);
        self.run_all_jobs(now);
        self.stop_controller(now);
        self.give_up_trims();
        self.answer_waiting_to_be_let_in(now);
        self.close_shards::<GroupShard>(None, now);
        self.close_shards::<TransactionShard>(None, now);
        self.close_sharing(None, now);
        self.close_shards::<ShareShard>(None, now);
        let mut partitions: Vec<_> = self.tables.all().iter().flat_map(|t| t.here()).collect();
        partitions.push(self.controller.partition.clone());
        for partition in &partitions {
            let mut owed = Owed::default();
            {
                let mut state = partition.state.lock();
                state.stop(&mut owed);
                state.sync_segments(&mut owed);
            }
            self.settle(partition, owed, now);
        }
        self.run_all_jobs(now);
        self.sync_unclaimed();
        let failure = self.failure.lock().clone();
        let closed = match failure {
            Some(error) => Err(error.into()),
            None => self.volume.checkpoint(true).map_err(OpenError::from),
        };
        self.let_go_of_logs();
        self.volume.close();
        closed
    }

    pub(crate) fn let_go_of_logs(&self) {
        for partition in self.tables.all().iter().flat_map(|t| t.here()) {
            let log = partition.state.lock().log.take();
            drop(log);
        }
        let log = self.controller.partition.state.lock().log.take();
        drop(log);
        self.let_go_of_unclaimed();
    }
}

impl State {
    /// The node stops: appends that still wait aren't answered by anyone else.
    fn stop(&mut self, owed: &mut Owed) {
        let blocked = self.bound.take().map(|b| b.blocked).unwrap_or_default();
        for blocked in blocked {
            owed.acks
                .push((blocked.ack, Err(AppendFailure::stopping())));
        }
        for queue in [&mut self.acks_all, &mut self.acks_leader] {
            for parked in std::mem::take(queue) {
                let failure = AppendFailure::new(
                    riverlog_wire::ErrorCode::REQUEST_TIMED_OUT,
                    "this node is stopping; the batch may have become durable",
                );
                owed.acks.push((parked.ack, Err(failure)));
            }
        }
    }
}
