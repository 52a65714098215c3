//! Work on the disk that the host runs, and what happens when it comes back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_log::{
    DiskError, Flush, FlushDone, LogKey, Upkeep, UpkeepDone, Volume, Write, Written,
};
use riverlog_wire::{ErrorCode, Offset};

use crate::command::Reply;
use crate::fetch::{ColdFetch, ColdFetched};
use crate::groups::{ShardLoad, ShardLoaded};
use crate::node::Node;
use crate::offsets::{TimeFound, TimeLookup};
use crate::partition::{Owed, Partition, Role};
use crate::timers::Timer;

/// How long after a full disk the next attempt comes.
const RETRY: Duration = Duration::from_millis(250);

/// The write-ahead log gets its upkeep after each such part of it was used.
const WAL_PARTS: u64 = 16;

/// Which jobs may hold each other up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The group commit: one thread of its own.
    Flush,
    /// Writes of segments that a caller didn't do itself.
    Write,
    /// Reads from files.
    Read,
    /// Syncs of segments, retention, checkpoints.
    Upkeep,
}

/// Work on the disk, to be run by the host without any lock, and handed back to [`Node::on_job_done`].
pub struct Job(Work);

/// What a job did.
pub struct JobDone(Done);

pub(crate) enum Work {
    Flush(u64, Flush),
    Write(Arc<Partition>, Write),
    Read(Box<ColdFetch>),
    Time(Box<TimeLookup>),
    Load(Box<ShardLoad>),
    Upkeep(Arc<Partition>, Upkeep),
    /// Retention and expiry, as of a time.
    Look(Vec<Arc<Partition>>, Now),
    Checkpoint(Arc<Volume>),
    /// Upkeep of the write-ahead log.
    Volume(Arc<Volume>),
    Remove(Arc<Volume>, Vec<LogKey>),
}

enum Done {
    Flush(u64, FlushDone),
    Write(Arc<Partition>, Written),
    Read(Box<ColdFetched>),
    Time(Box<TimeFound>),
    Load(Box<ShardLoaded>),
    Upkeep(Arc<Partition>, UpkeepDone),
    Look(Vec<(Arc<Partition>, Owed)>),
    Checkpoint(Result<(), DiskError>),
    Volume(Result<(), DiskError>),
    Remove(Vec<LogKey>, Result<(), DiskError>),
}

impl Job {
    /// Where it runs.
    pub fn lane(&self) -> Lane {
        match &self.0 {
            Work::Flush(..) => Lane::Flush,
            Work::Write(..) => Lane::Write,
            Work::Read(_) | Work::Time(_) | Work::Load(_) => Lane::Read,
            Work::Upkeep(..)
            | Work::Look(..)
            | Work::Checkpoint(_)
            | Work::Volume(_)
            | Work::Remove(..) => Lane::Upkeep,
        }
    }

    /// Does it. Blocking.
    pub fn run(self) -> JobDone {
        JobDone(match self.0 {
            Work::Flush(number, flush) => Done::Flush(number, flush.run()),
            Work::Write(partition, write) => Done::Write(partition, write.run()),
            Work::Read(cold) => Done::Read(Box::new(cold.run())),
            Work::Time(lookup) => Done::Time(Box::new(lookup.run())),
            Work::Load(load) => Done::Load(Box::new(load.run())),
            Work::Upkeep(partition, upkeep) => Done::Upkeep(partition, upkeep.run()),
            Work::Look(partitions, now) => {
                let look = |partition: Arc<Partition>| {
                    let mut owed = Owed::default();
                    partition.state.lock().look_after(now, &mut owed);
                    (partition, owed)
                };
                Done::Look(partitions.into_iter().map(look).collect())
            }
            Work::Checkpoint(volume) => Done::Checkpoint(volume.checkpoint(false)),
            Work::Volume(volume) => Done::Volume(loop {
                match volume.upkeep() {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            }),
            Work::Remove(volume, keys) => {
                let result = volume.delete_logs(&keys);
                Done::Remove(keys, result)
            }
        })
    }

    fn name(&self) -> &'static str {
        match &self.0 {
            Work::Flush(..) => "group commit",
            Work::Write(..) => "segment write",
            Work::Read(_) => "read",
            Work::Time(_) => "look-up by time",
            Work::Load(_) => "load of groups",
            Work::Upkeep(..) => "segment upkeep",
            Work::Look(..) => "retention",
            Work::Checkpoint(_) => "checkpoint",
            Work::Volume(_) => "upkeep of the write-ahead log",
            Work::Remove(..) => "removal",
        }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Debug for JobDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobDone")
    }
}

/// Jobs that the host hasn't taken yet, and the state of the group commit.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<VecDeque<Work>>,
    /// Entries may be queued for the write-ahead log.
    wanted: AtomicBool,
    /// A group commit is out; the next group forms meanwhile.
    out: AtomicBool,
    flush: Mutex<FlushState>,
    /// Logs of deleted partitions.
    removals: Mutex<Vec<LogKey>>,
    /// Those whose removal failed.
    not_removed: Mutex<Vec<LogKey>>,
}

#[derive(Default)]
struct FlushState {
    /// Group commits handed out so far.
    taken: u64,
    /// When the one that is out was handed out.
    since: Duration,
    /// Bytes handed out since the last upkeep of the write-ahead log.
    bytes: u64,
    /// That upkeep is out.
    upkeep: bool,
    /// Wait until a group commit of that number, or a later one, is done.
    waiting: Vec<(u64, Offset, Reply<Result<Offset, ErrorCode>>)>,
}

impl Jobs {
    pub(crate) fn push(&self, work: Work) {
        self.queue.lock().push_back(work);
    }
}

impl Node {
    pub(crate) fn jobs_to_run(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        self.take_flush(&mut jobs);
        let removals = std::mem::take(&mut *self.jobs.removals.lock());
        if !removals.is_empty() {
            jobs.push(Job(Work::Remove(self.volume.clone(), removals)));
        }
        jobs.extend(self.jobs.queue.lock().drain(..).map(Job));
        jobs
    }

    fn take_flush(&self, jobs: &mut Vec<Job>) {
        let mut state = self.jobs.flush.lock();
        if self.jobs.out.load(Ordering::SeqCst) || !self.jobs.wanted.swap(false, Ordering::SeqCst) {
            return;
        }
        let queued = self.volume.queued_bytes() as u64;
        if let Some(flush) = self.volume.take_flush() {
            state.taken += 1;
            state.since = self.latest();
            state.bytes += queued;
            self.jobs.out.store(true, Ordering::SeqCst);
            jobs.push(Job(Work::Flush(state.taken, flush)));
            return;
        }
        let failed = self.has_failed();
        if !failed && self.volume.queued_bytes() > 0 {
            // The write-ahead log is full. The syncs of segments that make room in it want a group commit when they
            // are done.
            return;
        }
        // Nothing is queued and nothing is out: whatever was submitted is durable, or never will be.
        self.disk_full.store(false, Ordering::Relaxed);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (_, offset, reply) in waiting {
            reply.send(if failed {
                Err(ErrorCode::KAFKA_STORAGE_ERROR)
            } else {
                Ok(offset)
            });
        }
    }

    /// Entries were queued for the write-ahead log: the next group commit takes them along.
    pub(crate) fn want_flush(&self) {
        if !self.jobs.wanted.swap(true, Ordering::SeqCst) && !self.jobs.out.load(Ordering::SeqCst) {
            self.host.jobs_ready();
        }
    }

    /// Answers once everything that has been queued for the write-ahead log so far is durable.
    pub(crate) fn after_flush(&self, offset: Offset, reply: Reply<Result<Offset, ErrorCode>>) {
        {
            let mut state = self.jobs.flush.lock();
            let number = state.taken + 1;
            state.waiting.push((number, offset, reply));
        }
        self.want_flush();
    }

    pub(crate) fn job_done(&self, done: JobDone, now: Now) {
        match done.0 {
            Done::Flush(number, done) => self.flush_done(number, done, now),
            Done::Write(partition, written) => {
                if let Some(next) = self.wrote(&partition, written, now) {
                    self.jobs.push(Work::Write(partition, next));
                    self.host.jobs_ready();
                }
            }
            Done::Read(cold) => self.cold_done(*cold),
            Done::Time(found) => found.send(),
            Done::Load(loaded) => self.shard_loaded(*loaded, now),
            Done::Upkeep(partition, done) => self.upkeep_done(&partition, done, now),
            Done::Look(done) => self.looked(done, now),
            Done::Checkpoint(result) => {
                if result.is_err() {
                    self.metrics.upkeep_failures.fetch_add(1, Ordering::Relaxed);
                }
            }
            Done::Volume(result) => {
                if result.is_err() {
                    self.metrics.upkeep_failures.fetch_add(1, Ordering::Relaxed);
                }
                self.jobs.flush.lock().upkeep = false;
                self.sync_oldest(now);
                self.want_flush();
            }
            Done::Remove(keys, result) => {
                if result.is_err() {
                    self.metrics.upkeep_failures.fetch_add(1, Ordering::Relaxed);
                    // The next look tries again; so would the next start.
                    self.jobs.not_removed.lock().extend(keys);
                }
                // Removing has a group commit of its own, and may have made other entries durable with it.
                self.want_flush();
            }
        }
    }

    /// Removes the files of a deleted partition; those of one topic go together.
    pub(crate) fn remove_files(&self, key: LogKey) {
        self.jobs.removals.lock().push(key);
        self.host.jobs_ready();
    }

    /// Tries again what could not be removed.
    pub(crate) fn remove_again(&self) {
        let keys = std::mem::take(&mut *self.jobs.not_removed.lock());
        if !keys.is_empty() {
            self.jobs.removals.lock().extend(keys);
            self.host.jobs_ready();
        }
    }

    /// Hands out the upkeep of the write-ahead log after a part of it was used, and at the start.
    pub(crate) fn upkeep_of_wal(&self, always: bool) {
        {
            let (_, capacity) = self.volume.wal_bytes();
            let mut state = self.jobs.flush.lock();
            if state.upkeep || !(always || state.bytes >= capacity / WAL_PARTS) {
                return;
            }
            state.upkeep = true;
            state.bytes = 0;
        }
        self.jobs.push(Work::Volume(self.volume.clone()));
        self.host.jobs_ready();
    }

    fn flush_done(&self, number: u64, done: FlushDone, now: Now) {
        let since = {
            let state = self.jobs.flush.lock();
            self.jobs.out.store(false, Ordering::SeqCst);
            state.since
        };
        // First of all the next group: its sync runs while the answers of this one go out.
        if self.jobs.wanted.load(Ordering::SeqCst) {
            self.host.jobs_ready();
        }
        self.metrics.flushes.fetch_add(1, Ordering::Relaxed);
        let took = now.mono.saturating_sub(since);
        self.metrics.flush_nanos.fetch_add(
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        for synced in done.synced {
            let Some(partition) = self.by_key(synced.key) else {
                continue;
            };
            let mut owed = Owed::default();
            {
                let mut state = partition.state.lock();
                if let Some(log) = &mut state.log {
                    log.on_synced(synced.to);
                    state.moved(&mut owed);
                }
            }
            self.settle(&partition, owed, now);
        }
        match done.error {
            None => {
                self.disk_full.store(false, Ordering::Relaxed);
                self.release_flushed(number, Ok(()));
            }
            Some(error) => self.flush_failed(&error, now),
        }
        self.sync_oldest(now);
        self.upkeep_of_wal(false);
    }

    fn release_flushed(&self, number: u64, result: Result<(), ErrorCode>) {
        let mut done = Vec::new();
        {
            let mut state = self.jobs.flush.lock();
            let waiting = std::mem::take(&mut state.waiting);
            for (waits_for, offset, reply) in waiting {
                if waits_for <= number {
                    done.push((offset, reply));
                } else {
                    state.waiting.push((waits_for, offset, reply));
                }
            }
        }
        for (offset, reply) in done {
            reply.send(result.map(|()| offset));
        }
    }

    /// A full disk is tried again until there is room; after anything else nothing in this volume becomes durable any more.
    fn flush_failed(&self, error: &DiskError, now: Now) {
        self.metrics.flush_failures.fetch_add(1, Ordering::Relaxed);
        let mut first = true;
        if error.is_full() {
            first = !self.disk_full.swap(true, Ordering::Relaxed);
            self.retry_later(now);
        } else {
            self.failure.lock().get_or_insert_with(|| error.clone());
            first = !self.failed.swap(true, Ordering::Relaxed);
        }
        self.release_flushed(u64::MAX, Err(ErrorCode::KAFKA_STORAGE_ERROR));
        if !first {
            // Appends have been refused since.
            return;
        }
        // Rare enough for a look at all of them.
        for topic in self.tables.all() {
            for partition in topic.here() {
                self.fail_unsynced(&partition, error, now);
            }
        }
        self.fail_unsynced(&self.controller.partition, error, now);
    }

    fn fail_unsynced(&self, partition: &Arc<Partition>, error: &DiskError, now: Now) {
        let mut owed = Owed::default();
        {
            let mut state = partition.state.lock();
            // A full disk: the batches stay queued and may become durable yet, but nobody should wait for that.
            // Anything else: they never will, through the write-ahead log.
            state.give_up_waiting(error, &mut owed);
            owed.lost = partition.role != Role::Data && state.own_behind();
        }
        self.settle(partition, owed, now);
    }

    /// Sets the timer after which a full disk is tried again.
    pub(crate) fn retry_later(&self, now: Now) {
        if !self.retrying.swap(true, Ordering::Relaxed) {
            let (_, first) = self.timers.add(now.mono + RETRY, Timer::Retry);
            if first {
                self.host.deadline_changed();
            }
        }
    }

    /// The disk may have room again.
    pub(crate) fn retry(&self, now: Now) {
        self.retrying.store(false, Ordering::Relaxed);
        if self.disk_full.load(Ordering::Relaxed) {
            self.want_flush();
        }
        if !self.is_registered() {
            self.register(now);
            self.retry_later(now);
        }
    }
}
