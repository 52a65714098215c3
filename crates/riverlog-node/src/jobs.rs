//! Work on the disk that the host runs, and what happens when it comes back.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_log::{
    Cleaned, CleanerOffsets, DiskError, Flush, FlushDone, LogKey, Upkeep, UpkeepDone, Volume,
    Write, Written,
};

use crate::cleaner::{Look, Pass, Seen, Stepped};
use crate::fetch::{ColdFetch, ColdFetched};
use crate::node::Node;
use crate::offsets::{TimeFound, TimeLookup};
use crate::partition::{Owed, Partition};
use crate::replication::{PeerRead, PeerReadDone};
use crate::reserve::{Reserve, ReserveDone};
use crate::shards::{LoadDone, LoadJob};

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
    /// Steps of the cleaner's passes: a second of processor time now and then, in pieces.
    Clean,
}

/// Work on the disk, to be run by the host without any lock, and handed back to [`Node::on_job_done`].
pub struct Job(Work);

/// What a job did.
pub struct JobDone(Done);

pub(crate) enum Work {
    Flush(Flush),
    Write(Arc<Partition>, Write),
    Read(Box<ColdFetch>),
    Time(Box<TimeLookup>),
    /// What a follower asked for and isn't in memory.
    Replicate(Box<PeerRead>),
    Load(Box<dyn LoadJob>),
    Upkeep(Arc<Partition>, Upkeep),
    /// Retention and expiry, as of a time.
    /// Partitions to look after, and how long before a loss groups are told of.
    Look(Vec<Arc<Partition>>, Now, Option<i64>),
    Checkpoint(Arc<Volume>),
    /// Upkeep of the write-ahead log.
    Volume(Arc<Volume>),
    Remove(Arc<Volume>, Vec<LogKey>),
    Reserve(Reserve),
    CleanLook(Vec<Look>),
    Clean(Box<Pass>),
    CleanAbandon(Box<Pass>, Option<Cleaned>),
    CleanStore(Arc<Volume>, CleanerOffsets),
}

enum Done {
    Flush(FlushDone),
    Write(Arc<Partition>, Written),
    Read(Box<ColdFetched>),
    Time(Box<TimeFound>),
    Replicate(Box<PeerReadDone>),
    Load(Box<dyn LoadDone>),
    Upkeep(Arc<Partition>, UpkeepDone),
    Look(Vec<(Arc<Partition>, Owed)>),
    Checkpoint(Result<(), DiskError>),
    Volume(Result<(), DiskError>),
    Remove(Vec<LogKey>, Result<(), DiskError>),
    Reserve(ReserveDone),
    CleanLook(Vec<Seen>),
    Clean(Stepped),
    CleanAbandon,
}

impl Job {
    /// Where it runs.
    pub fn lane(&self) -> Lane {
        match &self.0 {
            Work::Flush(..) => Lane::Flush,
            Work::Write(..) => Lane::Write,
            Work::Read(_) | Work::Time(_) | Work::Load(_) | Work::Replicate(_) => Lane::Read,
            Work::Upkeep(..)
            | Work::Look(..)
            | Work::Checkpoint(_)
            | Work::Volume(_)
            | Work::Remove(..)
            | Work::Reserve(_)
            | Work::CleanStore(..) => Lane::Upkeep,
            Work::CleanLook(_) | Work::Clean(_) | Work::CleanAbandon(..) => Lane::Clean,
        }
    }

    /// Does it. Blocking.
    pub fn run(self) -> JobDone {
        JobDone(match self.0 {
            Work::Flush(flush) => Done::Flush(flush.run()),
            Work::Write(partition, write) => Done::Write(partition, write.run()),
            Work::Read(cold) => Done::Read(Box::new(cold.run())),
            Work::Time(lookup) => Done::Time(Box::new(lookup.run())),
            Work::Replicate(read) => Done::Replicate(Box::new(read.run())),
            Work::Load(load) => Done::Load(load.run()),
            Work::Upkeep(partition, upkeep) => Done::Upkeep(partition, upkeep.run()),
            Work::Look(partitions, now, warning_ms) => {
                let look = |partition: Arc<Partition>| {
                    let mut owed = Owed::default();
                    let mut state = partition.state.lock();
                    state.look_after(now, warning_ms, &mut owed);
                    drop(state);
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
            Work::Reserve(reserve) => Done::Reserve(reserve.run()),
            Work::CleanLook(looks) => Done::CleanLook(looks.into_iter().map(Look::run).collect()),
            Work::Clean(pass) => Done::Clean(pass.run()),
            Work::CleanAbandon(pass, cleaned) => {
                pass.abandon(cleaned);
                Done::CleanAbandon
            }
            // What isn't stored is cleaned again after a restart.
            Work::CleanStore(volume, offsets) => Done::Checkpoint(offsets.store(&volume)),
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
            Work::Replicate(_) => "read for a follower",
            Work::Load(_) => "load of a coordinator",
            Work::Upkeep(..) => "segment upkeep",
            Work::Look(..) => "retention",
            Work::Checkpoint(_) => "checkpoint",
            Work::Volume(_) => "upkeep of the write-ahead log",
            Work::Remove(..) => "removal",
            Work::Reserve(_) => "reserve",
            Work::CleanLook(_) => "look for what to clean",
            Work::Clean(_) => "cleaning",
            Work::CleanAbandon(..) => "end of cleaning",
            Work::CleanStore(..) => "checkpoint of the cleaner",
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

/// Jobs that the host hasn't taken yet.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<VecDeque<Work>>,
    /// Logs of deleted partitions.
    removals: Mutex<Vec<LogKey>>,
    /// Those whose removal failed.
    not_removed: Mutex<Vec<LogKey>>,
    /// Copies that were given up, and whose files are still there: nothing is opened in their place.
    going: Mutex<BTreeSet<LogKey>>,
}

impl Jobs {
    pub(crate) fn push(&self, work: Work) {
        self.queue.lock().push_back(work);
    }

    /// A copy is given up.
    pub(crate) fn goes(&self, key: LogKey) {
        self.going.lock().insert(key);
    }

    /// Files are gone; whether there were some of copies that had been given up.
    fn are_gone(&self, keys: &[LogKey]) -> bool {
        let mut going = self.going.lock();
        keys.iter().filter(|key| going.remove(key)).count() > 0
    }

    /// Whether a copy that was given up is still there.
    pub(crate) fn is_going(&self, key: LogKey) -> bool {
        self.going.lock().contains(&key)
    }
}

impl Node {
    /// Hands out a job.
    pub(crate) fn run_job(&self, work: Work) {
        self.jobs.push(work);
        self.host.jobs_ready();
    }

    pub(crate) fn jobs_to_run(&self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self
            .take_flush()
            .map(Work::Flush)
            .map(Job)
            .into_iter()
            .collect();
        let removals = std::mem::take(&mut *self.jobs.removals.lock());
        if !removals.is_empty() {
            jobs.push(Job(Work::Remove(self.volume.clone(), removals)));
        }
        jobs.extend(self.jobs.queue.lock().drain(..).map(Job));
        jobs
    }

    pub(crate) fn job_done(&self, done: JobDone, now: Now) {
        match done.0 {
            Done::Flush(done) => self.flush_done(done, now),
            Done::Write(partition, written) => {
                if let Some(next) = self.wrote(&partition, written, now) {
                    self.run_job(Work::Write(partition, next));
                }
            }
            Done::Read(cold) => self.cold_done(*cold),
            Done::Time(found) => {
                if let Some((partition, error)) = found.failed() {
                    self.read_failed(partition, error);
                }
                found.send();
            }
            Done::Replicate(done) => self.peer_read(*done, now),
            Done::Load(loaded) => loaded.done(self, now),
            Done::Upkeep(partition, done) => self.upkeep_done(&partition, done, now),
            Done::Look(done) => self.looked(done, now),
            Done::Checkpoint(result) => {
                if result.is_err() {
                    self.upkeep_failed(now);
                }
                // A group commit may have waited for the part of the write-ahead log that it made free.
                self.want_flush();
            }
            Done::Volume(result) => {
                if let Err(error) = result {
                    self.upkeep_failed(now);
                    if error.is_full() {
                        self.tighten(now);
                    }
                }
                self.wal_upkeep_done(now);
            }
            Done::Reserve(done) => self.reserve_done(done, now),
            Done::CleanLook(seen) => self.looked_for_dirt(seen, now),
            Done::Clean(stepped) => self.cleaned_some(stepped, now),
            Done::CleanAbandon => {}
            Done::Remove(keys, result) => {
                if result.is_err() {
                    self.upkeep_failed(now);
                    // The next look tries again; so would the next start.
                    self.jobs.not_removed.lock().extend(keys);
                } else if self.jobs.are_gone(&keys) {
                    // One of them may be wanted here again.
                    self.open_broken(now);
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
}
