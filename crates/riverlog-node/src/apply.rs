//! What committed metadata means here: partitions that open, change and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::config::TopicConfig;
use riverlog_core::groups::GroupShard;
use riverlog_core::metadata::{
    MetadataImage, MetadataRecord, PartitionImage, Resource, TopicImage,
};
use riverlog_core::share::ShareShard;
use riverlog_core::transactions::TransactionShard;
use riverlog_log::{LogKey, LogSettings};
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{PartitionIndex, TopicId};

use crate::groups::OFFSETS_TOPIC;
use crate::node::Node;
use crate::notice::Notice;
use crate::partition::{Owed, Partition, Role, State, retention_records};
use crate::quorum::Quorum;
use crate::share::SHARE_TOPIC;
use crate::tables::{Slot, Topic, TopicInfo, is_bounded};
use crate::transactions::TRANSACTIONS_TOPIC;

impl Node {
    /// Makes an image the current one. Partitions are there before the image names them, and gone after it has forgotten them.
    pub(crate) fn apply_metadata(
        &self,
        image: Arc<MetadataImage>,
        records: &[MetadataRecord],
        now: Now,
    ) {
        self.apply_changes(image, records, false, now);
    }

    /// As [`Node::apply_metadata`], of an image that doesn't come from the one before: records say all that it holds.
    pub(crate) fn apply_metadata_anew(
        &self,
        image: Arc<MetadataImage>,
        records: &[MetadataRecord],
        now: Now,
    ) {
        self.apply_changes(image, records, true, now);
    }

    /// `anew`: configs may have gone that no record speaks of.
    fn apply_changes(
        &self,
        image: Arc<MetadataImage>,
        records: &[MetadataRecord],
        anew: bool,
        now: Now,
    ) {
        let mut touched = BTreeSet::new();
        let mut configured = BTreeSet::new();
        let mut removed = Vec::new();
        let mut all_configured = anew;
        for record in records {
            match record {
                MetadataRecord::Topic { id, .. } => {
                    touched.insert(*id);
                }
                MetadataRecord::Partition { topic, .. } => {
                    touched.insert(*topic);
                }
                MetadataRecord::TopicRemoved(id) => removed.push(*id),
                MetadataRecord::Config { resource, .. } => match resource {
                    Resource::Topic(id) => {
                        configured.insert(*id);
                    }
                    Resource::Broker(_) => all_configured = true,
                    Resource::Group(_) => {}
                },
                _ => {}
            }
        }
        let node_configs = self.node_configs(&image);
        if all_configured {
            self.follow_rates(&node_configs);
        }
        let life = self.membership.broker_epoch();
        let may_lead = self.is_registered_in(&image, now);
        if self.membership.broker_epoch() != life {
            // What images before this one took away was kept, see below.
            touched.extend(image.topics.keys());
        }
        // Whoever tries broken partitions again does it with this image or the one before, and not with one while the other counts.
        let roles = self.roles.lock();
        for topic in touched.iter().filter_map(|id| image.topics.get(id)) {
            self.open_topic(topic, &node_configs, may_lead, now);
        }
        for topic in image.topics.values() {
            let known = all_configured || configured.contains(&topic.id);
            if known && let Some(here) = self.tables.topic(topic.id) {
                self.configure(&here, topic, &node_configs, now);
            }
        }
        self.image.store(image);
        drop(roles);
        for id in &removed {
            self.remove_topic(*id, now);
        }
        if !touched.is_empty() || !removed.is_empty() {
            self.tell_shards_of_topics(!removed.is_empty(), now);
        }
        if !removed.is_empty() {
            self.tell_share_state_of_topics(now);
        }
        if self.settings.quorum == Quorum::Shared {
            self.drop_moved_held(now);
            self.share_asks_moved(now);
            self.metadata_applied(now);
        }
    }

    /// The node's own configs: static ones under the dynamic ones.
    pub(crate) fn node_configs(&self, image: &MetadataImage) -> BTreeMap<String, String> {
        let mut configs = self.settings.configs.clone();
        for level in [None, Some(self.settings.broker)] {
            if let Some(dynamic) = image.broker_configs.get(&level) {
                configs.extend(dynamic.iter().map(|(k, v)| (k.clone(), v.clone())));
            }
        }
        configs
    }

    /// Opens the partitions of a topic of which copies are here and that aren't open yet; gives the others their new roles and
    /// epochs. `may_lead`: the image knows of this life of the node.
    pub(crate) fn open_topic(
        &self,
        image: &TopicImage,
        node_configs: &BTreeMap<String, String>,
        may_lead: bool,
        now: Now,
    ) {
        let here = self.tables.topic(image.id);
        let is_new = here.is_none();
        // The settings of this image, which the topic takes over after this: who leads counts min ISR by them from the first moment, as the
        // controller did when it decided who is in sync.
        let config = TopicConfig::new(&image.configs, node_configs);
        let here = here.unwrap_or_else(|| {
            self.count_bounded(None, Some(&config));
            let name = image.name.clone();
            let info = TopicInfo::new(image.id, name, image.internal, config.clone());
            Arc::new(Topic::new(info))
        });
        let mut led = Vec::new();
        let mut opened = is_new;
        here.reserve(image.partitions.len());
        for (at, partition) in image.partitions.iter().enumerate() {
            match here.slot(at) {
                Some(Slot::Here(open)) => {
                    let mut owed = Owed::default();
                    // An image from before this life may be old: what it takes away may have come back since, and count. Nothing is given up
                    // before an image knows of this life.
                    let stays = !may_lead && !active(Mutant::OldImageTakesAway);
                    if stays || self.is_replica(partition) {
                        opened |=
                            self.take_role(&open, partition, &config, may_lead, now, &mut owed);
                    } else {
                        here.put(at, Slot::Elsewhere);
                        self.give_up(&open, &mut owed);
                        opened = true;
                    }
                    led.push((open, owed));
                }
                before => {
                    // May read and write much of the disk, and find it slow: nobody waits for another partition of the topic meanwhile.
                    let slot =
                        self.open_partition(&here.info, at, partition, &config, may_lead, now);
                    self.tell_of_slot(&here.info, at, before.as_ref(), &slot);
                    if before.is_some() && matches!(slot, Slot::Here(_)) {
                        sometimes(Mark::LogOpenedLater);
                        opened = true;
                    }
                    here.put(at, slot);
                }
            }
        }
        if is_new {
            self.tables.insert(here.clone());
        }
        if opened {
            for partition in here.here() {
                self.note_for_cleaner(&partition, false, now);
            }
        }
        for (partition, owed) in led {
            self.settle(&partition, owed, now);
        }
        self.follow_leaders(&here.here(), now);
        if opened && here.info.internal {
            self.open_coordinators(&here, now);
        }
    }

    /// Coordinates what the partitions of an internal topic keep that are led here, and nothing else of it any more.
    pub(crate) fn open_coordinators(&self, topic: &Topic, now: Now) {
        let (id, led) = (topic.info.id, topic.led());
        match topic.info.name.as_str() {
            OFFSETS_TOPIC => self.open_shards::<GroupShard>(id, led, now),
            TRANSACTIONS_TOPIC => self.open_shards::<TransactionShard>(id, led, now),
            SHARE_TOPIC => self.open_shards::<ShareShard>(id, led, now),
            _ => {}
        }
    }

    /// Tries those again whose logs could not be opened: the disk may have room now, or read again.
    pub(crate) fn open_broken(&self, now: Now) {
        let _roles = self.roles.lock();
        if !self.broken.swap(false, Ordering::Relaxed) {
            return;
        }
        let image = self.image.load_full();
        let configs = self.node_configs(&image);
        for topic in image.topics.values() {
            if self
                .tables
                .topic(topic.id)
                .is_some_and(|here| here.has_broken())
            {
                self.open_topic(topic, &configs, self.is_known_in(&image), now);
            }
        }
    }

    fn tell_of_slot(&self, topic: &TopicInfo, at: usize, before: Option<&Slot>, slot: &Slot) {
        let (topic, partition) = (topic.name.clone(), i32::try_from(at).unwrap_or(-1));
        match (before, slot) {
            (Some(Slot::Broken(_)), Slot::Here(_)) => {
                self.host.notice(Notice::Opened { topic, partition });
            }
            (Some(Slot::Broken(known)), Slot::Broken(reason)) if known == reason => {}
            (_, Slot::Broken(reason)) => self.host.notice(Notice::NotOpened {
                topic,
                partition,
                reason: reason.clone(),
            }),
            (_, Slot::Here(_) | Slot::Elsewhere) => {}
        }
    }

    fn open_partition(
        &self,
        topic: &Arc<TopicInfo>,
        at: usize,
        image: &PartitionImage,
        config: &TopicConfig,
        may_lead: bool,
        now: Now,
    ) -> Slot {
        if !self.is_replica(image) {
            return Slot::Elsewhere;
        }
        let Ok(index) = i32::try_from(at) else {
            return Slot::Elsewhere;
        };
        let key = LogKey {
            topic: topic.id,
            partition: PartitionIndex(index),
        };
        if self.jobs.is_going(key) {
            sometimes(Mark::CopyCameBack);
            self.broken.store(true, Ordering::Relaxed);
            let why = "the copy that was here before is being removed; it is made anew after that";
            return Slot::Broken(why.to_owned());
        }
        match self.claim_log(key, self.log_settings(config)) {
            Err(error) => {
                self.metrics.open_failures.fetch_add(1, Ordering::Relaxed);
                self.broken.store(true, Ordering::Relaxed);
                sometimes(Mark::LogNotOpened);
                Slot::Broken(error.to_string())
            }
            Ok(log) => {
                let role = match topic.name.as_str() {
                    OFFSETS_TOPIC if topic.internal => Role::Offsets(index),
                    TRANSACTIONS_TOPIC if topic.internal => Role::Transactions(index),
                    SHARE_TOPIC if topic.internal => Role::ShareState(index),
                    _ => Role::Data,
                };
                let next_look = log.next_retention_ms();
                let (replicas, factor) = (image.replicas.len(), image.factor());
                let state = State::new(log, image.leader_epoch, replicas, factor, config);
                let partition = Arc::new(Partition {
                    leads: AtomicBool::new(true),
                    key,
                    topic: topic.clone(),
                    role,
                    state: Mutex::new(state),
                });
                // Nobody waits for anything of it yet.
                self.take_role(
                    &partition,
                    image,
                    config,
                    may_lead,
                    now,
                    &mut Owed::default(),
                );
                if config.sync && partition.state.lock().own_behind() {
                    self.is_behind(partition.clone());
                }
                if next_look.is_some() {
                    let mut state = partition.state.lock();
                    self.upkeep.schedule(&partition, &mut state, next_look);
                }
                Slot::Here(partition)
            }
        }
    }

    fn configure(
        &self,
        here: &Arc<Topic>,
        image: &TopicImage,
        node_configs: &BTreeMap<String, String>,
        now: Now,
    ) {
        let config = Arc::new(TopicConfig::new(&image.configs, node_configs));
        let before = here.info.config.swap(config.clone());
        if *before == *config {
            return;
        }
        self.count_bounded(Some(&before), Some(&config));
        let settings = self.log_settings(&config);
        for partition in here.here() {
            let mut owed = Owed::default();
            partition
                .state
                .lock()
                .configure(&config, settings.clone(), now, &mut owed);
            self.settle(&partition, owed, now);
            self.note_for_cleaner(&partition, true, now);
        }
        self.look_after(&here.here(), now);
    }

    fn remove_topic(&self, id: TopicId, now: Now) {
        let Some(topic) = self.tables.remove(id) else {
            return;
        };
        self.count_bounded(Some(&topic.info.config.load()), None);
        self.cleaner.forget(id);
        self.losses.forget(id);
        self.close_shards::<GroupShard>(Some(id), now);
        self.close_shards::<TransactionShard>(Some(id), now);
        self.close_shards::<ShareShard>(Some(id), now);
        self.close_sharing(Some(id), now);
        for index in topic.broken() {
            self.remove_files(LogKey {
                topic: id,
                partition: PartitionIndex(index),
            });
        }
        for partition in topic.here() {
            let mut owed = Owed::default();
            {
                let mut state = partition.state.lock();
                self.upkeep.schedule(&partition, &mut state, None);
                state.delete(&mut owed);
            }
            self.unfollow(partition.key);
            self.settle(&partition, owed, now);
        }
    }

    fn count_bounded(&self, before: Option<&TopicConfig>, after: Option<&TopicConfig>) {
        let bounded = |c: Option<&TopicConfig>| usize::from(c.is_some_and(is_bounded));
        self.bounded_topics
            .fetch_add(bounded(after), Ordering::Relaxed);
        self.bounded_topics
            .fetch_sub(bounded(before), Ordering::Relaxed);
    }

    pub(crate) fn has_bounded_topics(&self) -> bool {
        self.bounded_topics.load(Ordering::Relaxed) > 0
    }

    /// Tries all blocked appends again.
    pub(crate) fn make_room_everywhere(&self, now: Now) {
        if !self.has_bounded_topics() {
            return;
        }
        for topic in self.tables.all() {
            if topic.info.is_bounded() {
                for partition in topic.here() {
                    self.make_room(&partition, now);
                }
            }
        }
    }

    /// A topic's settings as the log knows them.
    pub(crate) fn log_settings(&self, config: &TopicConfig) -> LogSettings {
        let mut segment_bytes = u64::try_from(config.segment_bytes).unwrap_or(1 << 30);
        if let Ok(max) = u64::try_from(config.max_bytes) {
            // Space comes back in whole segments, so a bounded partition has several.
            segment_bytes = segment_bytes.min((max / 4).max(64 << 10));
        }
        // Only what is in a closed segment can be compacted in time.
        let segment_ms = match config.compact {
            true => config.segment_ms.min(config.max_compaction_lag_ms),
            false => config.segment_ms,
        };
        segment_bytes = segment_bytes.min(self.settings.segment_bytes_limit.unwrap_or(u64::MAX));
        LogSettings {
            segment_bytes,
            segment_ms: u64::try_from(segment_ms).ok(),
            index_interval_bytes: u32::try_from(config.index_interval_bytes).unwrap_or(4096),
            retention_ms: u64::try_from(config.retention_ms).ok(),
            retention_bytes: u64::try_from(config.retention_bytes).ok(),
            retention_records: u64::try_from(config.retention_records).ok(),
            delete: config.delete,
            sync: config.sync,
            log_append_time: config.log_append_time,
            producer_expiration_ms: u64::try_from(self.producer_expiration_ms).unwrap_or(0),
        }
    }
}

impl State {
    fn configure(
        &mut self,
        config: &TopicConfig,
        settings: LogSettings,
        now: Now,
        owed: &mut Owed,
    ) {
        let Some(log) = &mut self.log else { return };
        log.set_settings(settings);
        self.min_isr = config.min_isr(self.factor);
        self.follow_min_isr(owed);
        self.retention_records = retention_records(config);
        if self.sync != config.sync {
            self.sync = config.sync;
            let moved = self.leader.set_sync(config.sync).is_some();
            if moved && self.leads() {
                self.watermark_moved(owed);
            }
            if config.sync {
                // What was written before this counts again once it is synced.
                self.upkeep.catching_up = true;
                self.sync_segments(owed);
            }
        }
        if self.leads() {
            self.set_bound(config, now, owed);
        }
    }
}

/// Settings of the metadata log: kept whole, always synced.
pub(crate) fn metadata_settings() -> LogSettings {
    LogSettings {
        segment_bytes: 64 << 20,
        retention_ms: None,
        retention_bytes: None,
        retention_records: None,
        delete: false,
        sync: true,
        ..LogSettings::default()
    }
}
