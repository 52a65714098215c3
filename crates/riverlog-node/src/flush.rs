//! The group commit: at most one is out, the next group forms meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::disk_health::DiskHealth;
use riverlog_log::{DiskError, Flush, FlushDone};
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::{ErrorCode, Offset};

use crate::command::Reply;
use crate::gate::Gate;
use crate::jobs::Work;
use crate::node::Node;
use crate::notice::Notice;
use crate::partition::{Owed, Partition, Role};
use crate::quorum::Quorum;
use crate::timers::Timer;

/// How long after a full disk the next attempt comes.
const RETRY: Duration = Duration::from_millis(250);

/// The write-ahead log gets its upkeep after each such part of it was used.
const WAL_PARTS: u64 = 16;

pub(crate) struct GroupCommit {
    gate: Gate,
    state: Mutex<FlushState>,
    health: Mutex<Health>,
    /// Partitions whose segments are durable up to their end, which counts only once an entry of the log's own is, too.
    behind: Mutex<Vec<Arc<Partition>>>,
}

struct Health {
    disk: DiskHealth,
    /// What was told of it.
    ailing: bool,
}

impl GroupCommit {
    /// `slow`: a commit that takes longer is too slow for a leader.
    pub(crate) fn new(slow: Duration) -> GroupCommit {
        GroupCommit {
            gate: Gate::default(),
            state: Mutex::default(),
            health: Mutex::new(Health {
                disk: DiskHealth::new(slow),
                ailing: false,
            }),
            behind: Mutex::default(),
        }
    }

    /// What the node did not do for so long isn't the disk's fault.
    pub(crate) fn stood_still(&self, stood: Duration, now: Now) {
        self.health.lock().disk.stood_still(stood, now.mono);
    }
}

#[derive(Default)]
struct FlushState {
    /// When the one that is out was handed out.
    since: Duration,
    /// The place up to which the write-ahead log was filled when it last had its upkeep.
    kept: u64,
    /// That upkeep is out.
    upkeep: bool,
    /// It was asked for once more meanwhile: what has changed since it may have come too late for it.
    upkeep_again: bool,
    waiting: Vec<Waiting>,
}

/// An answer that waits until everything before a place in the write-ahead log is durable.
struct Waiting {
    place: u64,
    offset: Offset,
    reply: Reply<Result<Offset, ErrorCode>>,
}

impl Node {
    pub(crate) fn take_flush(&self) -> Option<Flush> {
        let commit = &self.commit;
        let flush = {
            let mut state = commit.state.lock();
            if !commit.gate.enter() {
                return None;
            }
            let flush = self.volume.take_flush();
            if flush.is_some() {
                state.since = self.latest();
                commit.health.lock().disk.began(state.since);
                commit.gate.out();
            }
            flush
        };
        if flush.is_none() {
            if self.volume.queued_bytes() == 0 {
                self.disk_full.store(false, Ordering::Relaxed);
            }
            self.release_flushed();
        }
        flush
    }

    /// Whether others had better lead what this node leads: its disk takes nothing, or too slowly.
    pub(crate) fn is_ailing(&self, now: Now) -> bool {
        let full = self.is_tight() || self.disk_full.load(Ordering::Relaxed);
        let takes = !full && !self.has_failed();
        let ailing = {
            let mut health = self.commit.health.lock();
            let ailing = health.disk.is_ailing(takes, now.mono);
            if std::mem::replace(&mut health.ailing, ailing) == ailing {
                return ailing;
            }
            ailing
        };
        let slow = takes && ailing;
        if slow || !ailing {
            self.host.notice(match ailing {
                true => Notice::DiskSlow,
                false => Notice::DiskWell,
            });
        }
        ailing
    }

    /// Entries were queued for the write-ahead log: the next group commit takes them along.
    pub(crate) fn want_flush(&self) {
        if self.commit.gate.want() {
            self.host.jobs_ready();
        }
    }

    /// Answers once everything that has been queued for the write-ahead log so far is durable.
    pub(crate) fn after_flush(&self, offset: Offset, reply: Reply<Result<Offset, ErrorCode>>) {
        let (durable, place) = self.volume.progress();
        if place <= durable {
            return reply.send(Ok(offset));
        }
        self.commit.state.lock().waiting.push(Waiting {
            place,
            offset,
            reply,
        });
        self.want_flush();
    }

    /// Answers those whose place is durable, and all of them after a failed sync.
    fn release_flushed(&self) {
        let (durable, _) = self.volume.progress();
        let failed = self.has_failed();
        let mut done = Vec::new();
        {
            let mut state = self.commit.state.lock();
            if state.waiting.is_empty() {
                return;
            }
            let waiting = std::mem::take(&mut state.waiting);
            for one in waiting {
                if one.place <= durable || failed {
                    done.push(one);
                } else {
                    state.waiting.push(one);
                }
            }
        }
        for one in done {
            one.reply.send(if one.place <= durable {
                Ok(one.offset)
            } else {
                Err(ErrorCode::KAFKA_STORAGE_ERROR)
            });
        }
    }

    /// Nobody waits for a full disk.
    fn refuse_waiting(&self) {
        let waiting = std::mem::take(&mut self.commit.state.lock().waiting);
        for one in waiting {
            one.reply.send(Err(ErrorCode::KAFKA_STORAGE_ERROR));
        }
    }

    /// Hands out the upkeep of the write-ahead log after a part of it was used, and at the start.
    pub(crate) fn upkeep_of_wal(&self, always: bool) {
        {
            let (_, capacity) = self.volume.wal_bytes();
            let (_, submitted) = self.volume.progress();
            let mut state = self.commit.state.lock();
            let used = submitted.saturating_sub(state.kept);
            if !(always || used >= capacity / WAL_PARTS) {
                return;
            }
            if state.upkeep {
                state.upkeep_again = true;
                return;
            }
            state.upkeep = true;
            state.kept = submitted;
        }
        self.run_job(Work::Volume(self.volume.clone()));
    }

    pub(crate) fn wal_upkeep_done(&self, now: Now) {
        let again = {
            let mut state = self.commit.state.lock();
            state.upkeep = false;
            std::mem::take(&mut state.upkeep_again)
        };
        if again {
            self.upkeep_of_wal(true);
        }
        self.sync_oldest(now);
        self.want_flush();
    }

    pub(crate) fn flush_done(&self, done: FlushDone, now: Now) {
        let (since, more) = {
            let state = self.commit.state.lock();
            (state.since, self.commit.gate.back())
        };
        // First of all the next group: its sync runs while the answers of this one go out.
        if more {
            self.host.jobs_ready();
        }
        self.commit.health.lock().disk.ended(now.mono);
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
        self.catch_up(now);
        let well = done.error.is_none();
        match done.error {
            None => {
                self.disk_full.store(false, Ordering::Relaxed);
                self.release_flushed();
            }
            Some(error) => self.flush_failed(&error, now),
        }
        self.sync_oldest(now);
        // Groups fill whole blocks, however little is in them: what counts is the room that they take. Where only marks
        // keep it, nothing but a checkpoint gives it back.
        self.upkeep_of_wal(well && self.volume.is_pressed());
    }

    /// A log's end may become durable with a group commit that has no batch of it: after a recovery, or after a sync of
    /// its segments.
    pub(crate) fn is_behind(&self, partition: Arc<Partition>) {
        let known = {
            let mut state = partition.state.lock();
            std::mem::replace(&mut state.upkeep.behind, true)
        };
        if !known {
            self.commit.behind.lock().push(partition);
            self.want_flush();
        }
    }

    fn catch_up(&self, now: Now) {
        let mut behind = std::mem::take(&mut *self.commit.behind.lock());
        behind.retain(|partition| {
            let mut owed = Owed::default();
            let still = {
                let mut state = partition.state.lock();
                state.moved(&mut owed);
                state.upkeep.behind = state.own_behind();
                state.upkeep.behind
            };
            self.settle(partition, owed, now);
            still
        });
        self.commit.behind.lock().append(&mut behind);
    }

    /// A full disk is tried again until there is room; after anything else nothing in this volume becomes durable any more.
    pub(crate) fn flush_failed(&self, error: &DiskError, now: Now) {
        self.metrics.flush_failures.fetch_add(1, Ordering::Relaxed);
        let first = if error.is_full() {
            self.tighten(now);
            !self.disk_full.swap(true, Ordering::Relaxed)
        } else {
            sometimes(Mark::SyncFailureFenced);
            self.failure.lock().get_or_insert_with(|| error.clone());
            let first = !self.failed.swap(true, Ordering::Relaxed);
            if first {
                self.host.notice(Notice::DiskFailed {
                    error: error.clone(),
                });
            }
            first
        };
        self.refuse_waiting();
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
        if self.is_tight() {
            self.sync_oldest(now);
        }
        self.look_for_room(now);
        if !self.is_registered() && self.settings.quorum == Quorum::Own {
            self.register(now);
            self.retry_later(now);
        }
    }
}
