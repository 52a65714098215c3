//! The box: what it consists of, and its doors.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::groups::{
    GroupAnswer, GroupCommand, GroupDescription, GroupShard, TopicPartition,
};
use riverlog_core::metadata::{AdminAnswer, AdminCommand, MetadataImage, TopicRef};
use riverlog_core::share::ShareShard;
use riverlog_core::transactions::TransactionShard;
use riverlog_log::{Disk, DiskError, Log, LogKey, OpenError, ProducerSummary, Volume};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId};

use crate::append::Rule;
use crate::budget::Budget;
use crate::cleaner::Cleaner;
use crate::command::{
    AppendAnswer, AppendCommand, AppendFailure, CommittedAnswer, FetchAnswer, FetchCommand,
    Isolation, OffsetAnswer, OffsetQuery, PartitionDescription, Reply, StableAnswer,
};
use crate::controller::{AdminReply, Controller};
use crate::departed::Departed;
use crate::fetch::ColdFetch;
use crate::flush::GroupCommit;
use crate::jobs::{Job, JobDone, Jobs};
use crate::losses::Losses;
use crate::membership::Membership;
use crate::metrics::Counters;
use crate::notice::{Damages, Notice};
use crate::open::open;
use crate::partition::{Owed, Partition, Role};
use crate::peers::Peers;
use crate::producers::ProducerIds;
use crate::quorum::Quorum;
use crate::replication::Replication;
use crate::reserve::Tight;
use crate::settings::{Entropy, NodeSettings};
use crate::shards::Shards;
use crate::share::Sharing;
use crate::tables::{Slot, Tables};
use crate::timers::{Timer, Timers};
use crate::transactional::Lanes;
use crate::unclaimed::Unclaimed;
use crate::upkeep::UpkeepQueue;

/// What a node asks of its host.
pub trait Host: Send + Sync {
    /// [`Node::take_jobs`] has something. Called without locks held, from any thread; must not call the node.
    fn jobs_ready(&self);
    /// [`Node::next_deadline`] came closer. Called without locks held, from any thread; must not call the node.
    fn deadline_changed(&self);
    /// [`Node::take_proposals`] has something; never for a node alone. From any thread, perhaps with locks held; must not
    /// call the node.
    fn proposals_ready(&self) {}
    /// [`Node::take_outbox`] has something; never for a node alone. From any thread, perhaps with locks held; must not call
    /// the node.
    fn outbox_ready(&self) {}
    /// Something happened that an operator should know. From any thread, and a lock may be held; must not call the node. A host
    /// that has nobody to tell does nothing: clients and callers get their errors all the same.
    fn notice(&self, _notice: Notice) {}
}

/// Why a node can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data folder.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The folder is another node's. Its partitions would be looked for elsewhere, and what is here taken for leftovers.
    #[error(
        "the data folder belongs to node {}, and this is node {}; start with node.id={}, or name another folder", found.0, asked.0, found.0
    )]
    OtherNode {
        /// Whose it is.
        found: BrokerId,
        /// Who wants to open it.
        asked: BrokerId,
    },
    /// The folder is that of a member of a cluster: what its topics are isn't in its own metadata log, and its logs would be taken
    /// for leftovers.
    #[error(
        "the data folder belongs to a member of a cluster (it has quorum/journal), and can't be opened alone; start it with `riverlog serve`, or name another folder"
    )]
    ClusterMember,
    /// The metadata log.
    #[error("the metadata log can't be read: {reason}; {remedy}")]
    Metadata {
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// A partition that is led here; found once, used many times. Stays valid when the topic is deleted (calls then answer
/// UNKNOWN_TOPIC_OR_PARTITION).
#[derive(Clone, Debug)]
pub struct PartitionRef(pub(crate) Arc<Partition>);

impl PartitionRef {
    /// The topic, for life.
    pub fn topic(&self) -> TopicId {
        self.0.key.topic
    }
    /// The partition's number.
    pub fn index(&self) -> i32 {
        self.0.key.partition.0
    }
}

/// One node.
pub struct Node {
    pub(crate) settings: NodeSettings,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The data folder.
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) image: ArcSwap<MetadataImage>,
    pub(crate) tables: Tables,
    pub(crate) controller: Controller,
    pub(crate) shards: ArcSwapOption<Shards<GroupShard>>,
    pub(crate) transactions: ArcSwapOption<Shards<TransactionShard>>,
    pub(crate) share_shards: ArcSwapOption<Shards<ShareShard>>,
    pub(crate) sharing: Sharing,
    pub(crate) lanes: Lanes,
    pub(crate) peers: Peers,
    pub(crate) replication: Replication,
    pub(crate) membership: Membership,
    pub(crate) departed: Departed,
    pub(crate) unclaimed: Unclaimed,
    /// Itself, for what comes back later.
    pub(crate) this: Weak<Node>,
    pub(crate) producers: ProducerIds,
    pub(crate) jobs: Jobs,
    pub(crate) commit: GroupCommit,
    pub(crate) timers: Timers,
    pub(crate) upkeep: UpkeepQueue,
    pub(crate) cleaner: Cleaner,
    pub(crate) losses: Losses,
    pub(crate) append_bytes: Budget,
    /// Fetches that wait.
    pub(crate) parked: Budget,
    /// What waits for coordinators and producer ids: no number of readers keeps groups from working.
    pub(crate) coordinating: Budget,
    pub(crate) cold_bytes: Budget,
    pub(crate) cold_queue: Mutex<std::collections::VecDeque<ColdFetch>>,
    pub(crate) metrics: Counters,
    /// `producer.id.expiration.ms`.
    pub(crate) producer_expiration_ms: i64,
    /// Topics with `riverlog.max.records` or `riverlog.max.bytes`.
    pub(crate) bounded_topics: AtomicUsize,
    /// The error after which nothing becomes durable any more.
    pub(crate) failure: Mutex<Option<DiskError>>,
    /// Whether there is one.
    pub(crate) failed: AtomicBool,
    /// The write-ahead log found no room; it is tried again.
    pub(crate) disk_full: AtomicBool,
    pub(crate) retrying: AtomicBool,
    pub(crate) tight: Tight,
    pub(crate) damages: Damages,
    /// The log of some partition could not be opened since the last attempt.
    pub(crate) broken: AtomicBool,
    /// Held while partitions take the roles that an image gives them, until that image counts.
    pub(crate) roles: Mutex<()>,
    pub(crate) registered: AtomicBool,
    closing: AtomicBool,
    latest: AtomicU64,
}

/// What [`Node::new`] is made of.
pub(crate) struct Parts {
    pub(crate) settings: NodeSettings,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) image: MetadataImage,
    pub(crate) controller: Controller,
    pub(crate) producer_expiration_ms: i64,
    /// Drawn for this life.
    pub(crate) incarnation: u128,
}

impl Node {
    pub(crate) fn new(parts: Parts, this: Weak<Node>) -> Node {
        let budgets = &parts.settings.budgets;
        let cleaner = Cleaner::new(&parts.volume);
        Node {
            append_bytes: Budget::new(budgets.append_bytes),
            parked: Budget::new(budgets.parked),
            coordinating: Budget::new(budgets.parked),
            cold_bytes: Budget::new(budgets.cold_read_bytes),
            host: parts.host,
            entropy: parts.entropy,
            volume: parts.volume,
            image: ArcSwap::from_pointee(parts.image),
            tables: Tables::default(),
            controller: parts.controller,
            shards: ArcSwapOption::empty(),
            transactions: ArcSwapOption::empty(),
            share_shards: ArcSwapOption::empty(),
            sharing: Sharing::default(),
            lanes: Lanes::default(),
            peers: Peers::default(),
            replication: Replication::default(),
            membership: Membership::new(parts.incarnation, parts.settings.quorum),
            departed: Departed::default(),
            unclaimed: Unclaimed::default(),
            this,
            producers: ProducerIds::default(),
            jobs: Jobs::default(),
            // Half of what others wait for a follower.
            commit: GroupCommit::new(parts.settings.cluster.max_lag / 2),
            tight: Tight::default(),
            damages: Damages::default(),
            disk: parts.disk,
            timers: Timers::default(),
            upkeep: UpkeepQueue::default(),
            cleaner,
            losses: Losses::default(),
            cold_queue: Mutex::default(),
            metrics: Counters::default(),
            producer_expiration_ms: parts.producer_expiration_ms,
            bounded_topics: AtomicUsize::new(0),
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
            disk_full: AtomicBool::new(false),
            retrying: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            roles: Mutex::new(()),
            registered: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            latest: AtomicU64::new(0),
            settings: parts.settings,
        }
    }

    /// Opens the data folder, recovers its logs, reads the metadata log, registers this node (a new leader epoch for all
    /// it leads), loads its coordinators lazily. Does I/O on the calling thread.
    ///
    /// On a full disk it starts too: reads are served, appends are refused until there is room for the registration.
    pub fn open(
        disk: Arc<dyn Disk>,
        entropy: Arc<dyn Entropy>,
        host: Arc<dyn Host>,
        settings: NodeSettings,
        now: Now,
    ) -> Result<Arc<Node>, StartError> {
        open(disk, entropy, host, settings, now)
    }
    /// Settings it was opened with.
    pub fn settings(&self) -> &NodeSettings {
        &self.settings
    }
    /// Committed metadata.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }
    /// A partition that is led here; UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, or
    /// KAFKA_STORAGE_ERROR when its log can't be opened.
    pub fn partition(&self, topic: &TopicRef, partition: i32) -> Result<PartitionRef, ErrorCode> {
        let found = self.tables.find(topic, partition);
        found
            .map(PartitionRef)
            .map_err(|error| self.or_not_yet(error))
    }
    /// Partitions that should be here but can't be opened: topic, number, and why. In order.
    pub fn broken_partitions(&self) -> Vec<(TopicId, i32, String)> {
        let mut broken = Vec::new();
        for topic in self.tables.all() {
            for (index, slot) in (0..).zip(topic.partitions.read().iter()) {
                if let Slot::Broken(why) = slot {
                    broken.push((topic.info.id, index, why.clone()));
                }
            }
        }
        broken
    }
    /// Appends a batch. Checks size, timestamps, bounds and epochs; answers by `acks`. The calling thread writes to the page
    /// cache; group commit is a job.
    pub fn append(
        &self,
        partition: &PartitionRef,
        command: AppendCommand,
        now: Now,
        reply: Reply<Result<AppendAnswer, AppendFailure>>,
    ) {
        self.append_one(&partition.0, command, Rule::Plain, now, reply);
    }
    /// [`Node::append`], if the batch's first record gets the offset `next`; OFFSET_OUT_OF_RANGE, and nothing stored, otherwise.
    pub fn append_at(
        &self,
        partition: &PartitionRef,
        next: Offset,
        command: AppendCommand,
        now: Now,
        reply: Reply<Result<AppendAnswer, AppendFailure>>,
    ) {
        self.append_one(&partition.0, command, Rule::At(next), now, reply);
    }
    /// Reads, or parks until there is enough to read. Hot data is answered on the calling thread; cold reads are jobs.
    pub fn fetch(&self, command: FetchCommand, now: Now, reply: Reply<FetchAnswer>) {
        self.saw(now);
        self.fetch_partitions(command, now, reply);
    }
    /// ListOffsets for one partition. NOT_LEADER_OR_FOLLOWER also where another node may lead by [now](Node::saw): an end that is told is
    /// not older than `broker.session.timeout.ms`.
    pub fn offset(
        &self,
        partition: &PartitionRef,
        query: OffsetQuery,
        isolation: Isolation,
        current_leader_epoch: LeaderEpoch,
        reply: Reply<OffsetAnswer>,
    ) {
        self.find_offset(&partition.0, query, isolation, current_leader_epoch, reply);
    }
    /// OffsetForLeaderEpoch for one partition: epoch and end offset, (−1, −1) where unknown.
    pub fn epoch_end(
        &self,
        partition: &PartitionRef,
        epoch: LeaderEpoch,
        current_leader_epoch: LeaderEpoch,
    ) -> Result<(LeaderEpoch, Offset), ErrorCode> {
        self.find_epoch_end(&partition.0, epoch, current_leader_epoch)
    }
    /// DeleteRecords for one partition: nothing before `before` (−1: the high watermark) can be read any more; answers the new
    /// log start offset once that is durable, and all copies that are in sync begin there too.
    pub fn delete_records(
        &self,
        partition: &PartitionRef,
        before: Offset,
        now: Now,
        reply: Reply<Result<Offset, ErrorCode>>,
    ) {
        self.saw(now);
        self.delete_before(&partition.0, before, now, reply);
    }
    /// A partition as it is now.
    pub fn describe_partition(&self, partition: &PartitionRef) -> PartitionDescription {
        let mut description = partition.0.state.lock().describe(&partition.0);
        if description.failed.is_none() {
            description.failed = self
                .failure
                .lock()
                .as_ref()
                .map(|error| format!("the volume takes no writes until a restart: {error}"));
        }
        description
    }
    /// The idempotent and transactional producers that a partition knows, in order of their ids.
    pub fn describe_producers(&self, partition: &PartitionRef) -> Vec<ProducerSummary> {
        let state = partition.0.state.lock();
        state.log.as_ref().map_or_else(Vec::new, Log::producers)
    }
    /// The log start offset and the high watermark: of [`Node::describe_partition`], what is asked most.
    pub fn positions(&self, partition: &PartitionRef) -> (Offset, Offset) {
        let state = partition.0.state.lock();
        let start = state.log.as_ref().map_or(Offset(-1), Log::log_start_offset);
        let high_watermark = match state.log {
            Some(_) => state.high_watermark(),
            None => Offset(-1),
        };
        (start, high_watermark)
    }
    /// A fresh producer id with epoch 0 (InitProducerId without a transactional id).
    pub fn init_producer(
        &self,
        now: Now,
        reply: Reply<Result<(ProducerId, ProducerEpoch), ErrorCode>>,
    ) {
        self.saw(now);
        self.new_producer(now, reply);
    }
    /// A command to a group; loads its shard (and makes `__consumer_offsets`) when needed. While it loads: COORDINATOR_LOAD_IN_PROGRESS.
    pub fn group(&self, command: GroupCommand, now: Now, reply: Reply<GroupAnswer>) {
        self.saw(now);
        self.group_command(command, now, reply);
    }
    /// OffsetFetch for one group: durable commits only, in the order asked; `None`: all. An offset that was never committed is `None`.
    pub fn committed(
        &self,
        group: &str,
        partitions: Option<Vec<TopicPartition>>,
        member: Option<(String, i32)>,
        now: Now,
        reply: Reply<CommittedAnswer>,
    ) {
        self.saw(now);
        self.committed_offsets(group, partitions, member, now, reply);
    }
    /// [`Node::committed`] for those who want stable offsets (`require_stable`): a partition whose offset an open transaction
    /// is to change is answered UNSTABLE_OFFSET_COMMIT.
    pub fn committed_stable(
        &self,
        group: &str,
        partitions: Option<Vec<TopicPartition>>,
        member: Option<(String, i32)>,
        now: Now,
        reply: Reply<StableAnswer>,
    ) {
        self.saw(now);
        self.stable_offsets(group, partitions, member, now, reply);
    }
    /// All groups, in order of name.
    pub fn groups(&self, now: Now, reply: Reply<Result<Vec<GroupDescription>, ErrorCode>>) {
        self.saw(now);
        reply.send(self.all_groups(now));
    }
    /// One group; `None` when there is none.
    pub fn describe_group(
        &self,
        group: &str,
        now: Now,
        reply: Reply<Result<Option<GroupDescription>, ErrorCode>>,
    ) {
        self.saw(now);
        reply.send(self.one_group(group, now));
    }
    /// A command to the controller. Answered once the change is committed and applied here.
    pub fn admin(
        &self,
        command: AdminCommand,
        now: Now,
        reply: Reply<Result<AdminAnswer, ErrorCode>>,
    ) {
        self.saw(now);
        if self.is_closing() {
            return reply.send(Err(ErrorCode::NOT_CONTROLLER));
        }
        let makes = matches!(
            command,
            AdminCommand::CreateTopics {
                validate_only: false,
                ..
            } | AdminCommand::CreatePartitions {
                validate_only: false,
                ..
            }
        );
        // Refused before anything is written: later nobody could say whether it is made once there is room.
        if makes && !self.has_room() {
            return reply.send(Err(ErrorCode::KAFKA_STORAGE_ERROR));
        }
        self.submit(command, AdminReply::Client(reply), now);
    }
    /// Bytes that the data folder's disk has in all, and that are free; `None` where it has no end of its own, or doesn't say.
    pub fn disk_space(&self) -> Option<(u64, u64)> {
        let total = self.disk.total().ok().filter(|total| *total < u64::MAX)?;
        Some((total, self.disk.available().ok()?))
    }
    /// An id for a new topic. It never begins with a dash, which commands would take for a flag; Kafka's don't either.
    pub fn new_topic_id(&self) -> TopicId {
        let mut bytes = self.entropy.next_u128().to_be_bytes();
        let id = TopicId(bytes);
        if id.to_string().starts_with('-') {
            bytes[0] &= 0x7f;
        }
        TopicId(bytes)
    }
    /// 128 fresh random bits (for ids that are part of commands).
    pub fn random(&self) -> u128 {
        self.entropy.next_u128()
    }
    /// Partitions of compacted topics that the cleaner has set aside, and why.
    pub fn uncleanable(&self) -> Vec<(TopicId, i32, String)> {
        let aside = self.cleaner.aside().into_iter();
        aside
            .map(|(key, reason)| (key.topic, key.partition.0, reason))
            .collect()
    }
    /// Jobs to run. Jobs of one lane may run side by side, except [`crate::Lane::Flush`].
    pub fn take_jobs(&self) -> Vec<Job> {
        self.jobs_to_run()
    }
    /// Takes a finished job back; completes what waited for it.
    pub fn on_job_done(&self, done: JobDone, now: Now) {
        self.saw(now);
        self.job_done(done, now);
    }
    /// Does what time brings: parked answers, sessions, retention, checkpoints. Returns the next deadline on the monotonic clock.
    pub fn tick(&self, now: Now) -> Option<Duration> {
        self.saw(now);
        while let Some(timer) = self.timers.pop(now.mono) {
            match timer {
                Timer::Partition(partition) => {
                    let mut owed = Owed::default();
                    partition.state.lock().expire(now, &mut owed);
                    self.settle(&partition, owed, now);
                }
                Timer::Fetch(waiting) => self.fetch_timed_out(&waiting, now),
                Timer::ShareFetch(waiting) => self.share_timed_out(&waiting, now),
                Timer::Share(held) => self.share_timer(&held, now),
                Timer::ShareState(index) => self.shard_timer::<ShareShard>(index, now),
                Timer::Cold => self.expire_cold(now),
                Timer::Shard(index) => self.shard_timer::<GroupShard>(index, now),
                Timer::Transactions(index) => self.shard_timer::<TransactionShard>(index, now),
                Timer::Upkeep => self.upkeep(now),
                Timer::Tails => self.cool_tails(now),
                Timer::Retry => self.retry(now),
                Timer::Forwards => self.expire_forwards(now),
                Timer::Asked => self.asked_due(now),
                Timer::ShareAsks => self.share_asks_due(now),
                Timer::Burial(burial) => self.bury_again(&burial, now),
                Timer::Heartbeat => self.beat_and_go_on(now),
                Timer::Silence => self.fence_the_silent(now.mono, now),
                Timer::BeatSoon => {
                    self.beat(now);
                    self.answer_waiting_to_be_let_in(now);
                }
                Timer::Ask(leader, lane) => self.ask_again(leader, lane, now),
                Timer::PeerWait(follower, lane) => self.answer_late(follower, lane, now),
                Timer::InSync => self.look_after_isrs(now),
                Timer::InSyncAgain => self.ask_for_isrs(now),
                Timer::Trims => self.look_at_trims(now),
                Timer::Cleaner => self.clean_now(now),
                Timer::CleanOn => self.go_on_cleaning(now),
            }
        }
        self.timers.next()
    }
    /// The next deadline on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }
    /// A clean stop: refuses new commands, answers the parked ones, syncs everything and writes a clean checkpoint. Does I/O on
    /// the calling thread, after the host has run its last jobs.
    pub fn close(&self, now: Now) -> Result<(), OpenError> {
        self.saw(now);
        self.closing.store(true, Ordering::SeqCst);
        self.stop(now)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Whether this node has its leader epochs.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    pub(crate) fn registered(&self, answer: Result<AdminAnswer, ErrorCode>, now: Now) {
        if self.settings.quorum == Quorum::Shared {
            return self.joined(answer);
        }
        if answer.is_ok() {
            self.registered.store(true, Ordering::Relaxed);
        } else {
            self.retry_later(now);
        }
    }

    /// The host's clocks say `now`. Most calls say so; one that has no time goes by the latest that was said.
    ///
    /// A process that stood still serves what waits at its sockets before any of its timers. What others have done meanwhile it doesn't know
    /// yet: it steps aside first, as after any session in which nobody heard it.
    pub fn saw(&self, now: Now) {
        let nanos = u64::try_from(now.mono.as_nanos()).unwrap_or(u64::MAX);
        let before = self.latest.fetch_max(nanos, Ordering::Relaxed);
        let stood = Duration::from_nanos(nanos.saturating_sub(before));
        let cluster = &self.settings.cluster;
        let noticed = cluster.session.min(cluster.max_lag / 2);
        if stood > noticed && self.settings.quorum == Quorum::Shared {
            self.commit.stood_still(stood, now);
            self.step_aside(now);
        }
    }

    /// The latest time that a call has brought.
    pub(crate) fn latest(&self) -> Duration {
        Duration::from_nanos(self.latest.load(Ordering::Relaxed))
    }

    /// What `then` has become meanwhile, for what comes back without a time of its own.
    pub(crate) fn as_of(&self, then: Now) -> Now {
        let mono = self.latest().max(then.mono);
        let passed = i64::try_from((mono - then.mono).as_millis()).unwrap_or(0);
        Now {
            mono,
            wall_ms: then.wall_ms.saturating_add(passed),
        }
    }

    /// Also finds the metadata log.
    pub(crate) fn by_key(&self, key: LogKey) -> Option<Arc<Partition>> {
        if key == self.controller.partition.key {
            return Some(self.controller.partition.clone());
        }
        self.tables.by_key(key)
    }

    /// Whether a sync has failed: nothing becomes durable any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether records of the node's own can be appended.
    pub(crate) fn takes_own(&self, partition: &Partition) -> bool {
        !self.disk_full.load(Ordering::Relaxed)
            && !self.has_failed()
            && self.volume.queued_bytes() as u64 <= self.settings.volume.wal_bytes
            && partition
                .state
                .lock()
                .log
                .as_ref()
                .is_some_and(|log| log.failed().is_none())
    }

    /// Does what a partition owes; no lock is held.
    pub(crate) fn settle(&self, partition: &Arc<Partition>, owed: Owed, now: Now) {
        if owed.flush {
            self.want_flush();
        }
        if let Some(at) = owed.timer {
            let (_, first) = self.timers.add(at, Timer::Partition(partition.clone()));
            if first {
                self.host.deadline_changed();
            }
        }
        if owed.dirty {
            self.upkeep.mark_dirty(partition.clone());
            self.note_for_cleaner(partition, false, now);
        }
        if owed.warm {
            self.mark_warm(partition.clone(), now);
        }
        if let Some(upkeep) = owed.upkeep {
            self.jobs
                .push(crate::jobs::Work::Upkeep(partition.clone(), upkeep));
            self.host.jobs_ready();
        }
        for (ack, answer) in owed.acks {
            self.acknowledge(ack, answer);
        }
        if owed.moved {
            match partition.role {
                Role::Data => {}
                Role::Metadata => self.metadata_moved(now),
                Role::Offsets(index) => self.shard_moved::<GroupShard>(index, now),
                Role::Transactions(index) => self.shard_moved::<TransactionShard>(index, now),
                Role::ShareState(index) => self.shard_moved::<ShareShard>(index, now),
            }
        }
        if owed.lost {
            match partition.role {
                Role::Data => {}
                Role::Metadata => self.metadata_lost(now),
                Role::Offsets(index) => self.shard_lost::<GroupShard>(index, now),
                Role::Transactions(index) => self.shard_lost::<TransactionShard>(index, now),
                Role::ShareState(index) => self.shard_lost::<ShareShard>(index, now),
            }
        }
        if owed.report {
            self.tell_leader_later(partition);
        }
        if owed.replicate {
            self.wake_followers(partition, now);
        }
        if owed.isr {
            self.change_isr(partition, now);
        }
        for waiting in owed.woken.iter().filter_map(Weak::upgrade) {
            self.look_again(&waiting, now);
        }
        for waiting in owed.woken_shares.iter().filter_map(Weak::upgrade) {
            self.share_look_again(&waiting, now);
        }
        if let Some(write) = owed.write {
            self.drain(partition, write, now);
        }
        if owed.room {
            self.ask_for_room(partition, false, now);
        }
        if owed.retain {
            self.look_after(std::slice::from_ref(partition), now);
        }
        if owed.remove {
            self.remove_files(partition.key);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Who still holds a partition doesn't hold the data folder.
        self.let_go_of_logs();
    }
}
