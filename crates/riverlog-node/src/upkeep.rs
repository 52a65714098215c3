//! What time brings to logs: retention, expiry of producers, syncs of segments, checkpoints.
//!
//! Nothing here looks at all partitions. Those that were appended to since the last look are in a list; those whose oldest segment or
//! producer expires at a known time are in a queue by that time. A hundred thousand idle partitions cost nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_log::{LogKey, UpkeepDone};
use riverlog_wire::ProducerId;

use crate::jobs::Work;
use crate::losses::Losing;
use crate::node::Node;
use crate::partition::{Owed, Partition, State};
use crate::timers::Timer;

/// The longest time between two looks: how old a checkpoint may be, and how long a `page-cache` topic stays unsynced.
const LONGEST: Duration = Duration::from_secs(60);

/// How long recent batches stay in memory, at most twice that, when nobody uses them and others need the room.
const COOLING: Duration = Duration::from_secs(5);

/// Partitions that one job looks after.
const LOOKS: usize = 256;

#[derive(Default)]
pub(crate) struct UpkeepQueue {
    /// Appended to since the last look, in order of their first append.
    dirty: Mutex<Vec<Arc<Partition>>>,
    /// By the wall clock at which there is something to do without an append.
    expiry: Mutex<BTreeMap<(i64, LogKey), Arc<Partition>>>,
    looks: Mutex<Looks>,
    /// Have recent batches in memory.
    warm: Mutex<Vec<Arc<Partition>>>,
}

/// Partitions to look after, a few at a time.
#[derive(Default)]
struct Looks {
    queue: VecDeque<Arc<Partition>>,
    out: bool,
}

impl UpkeepQueue {
    pub(crate) fn mark_dirty(&self, partition: Arc<Partition>) {
        self.dirty.lock().push(partition);
    }

    /// Sets the time of a partition's next look.
    pub(crate) fn schedule(&self, partition: &Arc<Partition>, state: &mut State, at: Option<i64>) {
        let mut expiry = self.expiry.lock();
        if let Some(old) = state.upkeep.look_at {
            expiry.remove(&(old, partition.key));
        }
        if let Some(at) = at {
            expiry.insert((at, partition.key), partition.clone());
        }
        state.upkeep.look_at = at;
    }
}

impl Node {
    /// The time between two looks.
    pub(crate) fn upkeep_interval(&self) -> Duration {
        Duration::from_millis(self.settings.retention_check_ms.max(1)).min(LONGEST)
    }

    /// One look.
    pub(crate) fn upkeep(&self, now: Now) {
        let mut partitions = std::mem::take(&mut *self.upkeep.dirty.lock());
        let written = !partitions.is_empty();
        for partition in &partitions {
            partition.state.lock().upkeep.dirty = false;
            // It may have been looked at before its last append.
            self.note_for_cleaner(partition, false, now);
        }
        {
            let mut expiry = self.upkeep.expiry.lock();
            let later = expiry.split_off(&(now.wall_ms.saturating_add(1), MIN_KEY));
            partitions.extend(std::mem::replace(&mut *expiry, later).into_values());
        }
        partitions.extend(self.losses.partitions());
        self.look_after(&partitions, now);
        if written {
            self.run_job(Work::Checkpoint(self.volume.clone()));
        }
        self.remove_again();
        self.open_broken(now);
        self.snapshot_metadata(now);
        self.arm_upkeep(now);
    }

    pub(crate) fn arm_upkeep(&self, now: Now) {
        let at = now.mono.saturating_add(self.upkeep_interval());
        let (_, first) = self.timers.add(at, Timer::Upkeep);
        if first {
            self.host.deadline_changed();
        }
    }

    /// Retention and expiry of some partitions. A job does it: a log that has slept since a clean start reads its folder.
    pub(crate) fn look_after(&self, partitions: &[Arc<Partition>], now: Now) {
        {
            let mut looks = self.upkeep.looks.lock();
            for partition in partitions {
                if !std::mem::replace(&mut partition.state.lock().upkeep.looked_for, true) {
                    looks.queue.push_back(partition.clone());
                }
            }
        }
        self.next_looks(now);
    }

    fn next_looks(&self, now: Now) {
        let some: Vec<_> = {
            let mut looks = self.upkeep.looks.lock();
            if looks.out || looks.queue.is_empty() {
                return;
            }
            looks.out = true;
            let some = looks.queue.len().min(LOOKS);
            looks.queue.drain(..some).collect()
        };
        self.run_job(Work::Look(some, now, self.loss_warning_ms()));
    }

    /// Partitions were looked after.
    pub(crate) fn looked(&self, done: Vec<(Arc<Partition>, Owed)>, now: Now) {
        self.upkeep.looks.lock().out = false;
        self.next_looks(now);
        let warning_ms = self.loss_warning_ms();
        for (partition, mut owed) in done {
            let losing;
            {
                let mut state = partition.state.lock();
                state.upkeep.looked_for = false;
                losing = state.upkeep.losing.take();
                let next = state.next_look(self.producer_expiration_ms, warning_ms, now);
                self.upkeep.schedule(&partition, &mut state, next);
                state.unblock(now, &mut owed);
            }
            self.settle(&partition, owed, now);
            if let Some(losing) = losing {
                self.watch_losses(&partition, losing, now);
            }
        }
    }

    /// A partition has batches in memory from now on.
    pub(crate) fn mark_warm(&self, partition: Arc<Partition>, now: Now) {
        let first = {
            let mut warm = self.upkeep.warm.lock();
            warm.push(partition);
            warm.len() == 1
        };
        if first {
            self.arm_tails(now);
        }
    }

    fn arm_tails(&self, now: Now) {
        let (_, first) = self.timers.add(now.mono + COOLING, Timer::Tails);
        if first {
            self.host.deadline_changed();
        }
    }

    /// Takes the memory of recent batches back from logs that nobody has used for a while, once half of it is taken:
    /// otherwise they keep it for ever, and logs that are in use get none.
    pub(crate) fn cool_tails(&self, now: Now) {
        let (used, budget) = self.volume.tail_bytes();
        if used <= budget / 2 {
            return self.arm_tails(now);
        }
        let mut warm = std::mem::take(&mut *self.upkeep.warm.lock());
        warm.retain(|partition| {
            let mut state = partition.state.lock();
            let state = &mut *state;
            let in_use = std::mem::take(&mut state.upkeep.used);
            match &mut state.log {
                None => false,
                Some(_) if in_use => true,
                Some(log) => {
                    log.release_tail();
                    state.upkeep.warm = false;
                    false
                }
            }
        });
        let some = {
            let mut list = self.upkeep.warm.lock();
            list.append(&mut warm);
            !list.is_empty()
        };
        if some {
            self.arm_tails(now);
        }
    }

    /// Syncs the segments that hold the oldest part of the write-ahead log.
    pub(crate) fn sync_oldest(&self, now: Now) {
        for key in self.volume.wants_sync() {
            let Some(partition) = self.by_key(key) else {
                continue;
            };
            let mut owed = Owed::default();
            partition.state.lock().sync_segments(&mut owed);
            self.settle(&partition, owed, now);
        }
    }

    /// Upkeep syncs the write-ahead log too. When that fails no group commit follows, and whoever waits for one must hear
    /// of it here.
    pub(crate) fn upkeep_failed(&self, now: Now) {
        self.metrics.upkeep_failures.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = self.volume.failed().filter(|error| !error.is_full()) {
            self.flush_failed(&error, now);
        }
    }

    pub(crate) fn upkeep_done(&self, partition: &Arc<Partition>, done: UpkeepDone, now: Now) {
        let mut owed = Owed::default();
        let (mut full, mut went_wrong) = (false, false);
        let mut behind = false;
        {
            let mut state = partition.state.lock();
            state.came_back(&mut owed);
            state.upkeep.running = false;
            if let Some(log) = &mut state.log {
                let result = log.upkeep_done(done);
                let failed = log.failed().is_some();
                state.moved(&mut owed);
                match result {
                    Err(error) => {
                        went_wrong = true;
                        // A full disk: nothing is lost, and it is tried again when there may be room.
                        full = error.is_full();
                        if failed {
                            state.fail(&error, &mut owed);
                        }
                    }
                    Ok(()) => {
                        behind = state.sync && state.own_behind();
                        let wanted = std::mem::take(&mut state.upkeep.sync_wanted);
                        state.upkeep.catching_up &= state.own_behind();
                        if wanted || state.upkeep.catching_up {
                            state.sync_segments(&mut owed);
                        }
                    }
                }
            }
        }
        self.settle(partition, owed, now);
        self.go_on_cleaning(now);
        if went_wrong {
            self.upkeep_failed(now);
        }
        if behind {
            self.is_behind(partition.clone());
        }
        // A group commit may have waited for the part of the write-ahead log that this made free, perhaps with the
        // help of a checkpoint.
        self.want_flush();
        if full {
            self.tighten(now);
        } else {
            self.upkeep_of_wal(self.volume.is_pressed());
        }
    }
}

const MIN_KEY: LogKey = LogKey {
    topic: riverlog_wire::TopicId::ZERO,
    partition: riverlog_wire::PartitionIndex(i32::MIN),
};

impl State {
    /// `warning_ms`: how long before records go groups that need them are told of.
    pub(crate) fn look_after(&mut self, now: Now, warning_ms: Option<i64>, owed: &mut Owed) {
        let high_watermark = self.high_watermark();
        let Some(log) = &mut self.log else { return };
        log.expire_producers(now.wall_ms, now.mono);
        if self.upkeep.running {
            // At most one job at a time; the next look finds it again.
            owed.dirty |= !std::mem::replace(&mut self.upkeep.dirty, true);
            return;
        }
        let start = log.log_start_offset();
        let upkeep = log.retain(now.wall_ms, high_watermark);
        let moved = log.log_start_offset() > start;
        if let Some(ahead) = warning_ms.map(|ms| log.warning_ms(ms)) {
            let at = now.wall_ms.saturating_add(ahead);
            // An error shows when the log is next used in earnest.
            let until = log.start_at(at, high_watermark).ok();
            self.upkeep.losing = until.map(|until| Losing {
                start: log.log_start_offset(),
                until,
                within: Duration::from_millis(u64::try_from(ahead).unwrap_or(0)),
            });
        }
        if let Some(upkeep) = upkeep {
            self.hand_out(upkeep, owed);
        } else if !self.sync {
            self.sync_segments(owed);
        }
        if moved {
            owed.flush = true;
            self.wake(owed);
        }
    }

    fn next_look(
        &self,
        producer_expiration_ms: i64,
        warning_ms: Option<i64>,
        now: Now,
    ) -> Option<i64> {
        let log = self.log.as_ref()?;
        let producers = self
            .upkeep
            .producers
            .then(|| producer_expiration_ms.min(ProducerId::KEYED_FOR_MS))
            .map(|silent| now.wall_ms.saturating_add(silent));
        let retention = log.next_retention_ms().map(|at| {
            let ahead = warning_ms.map_or(0, |ms| log.warning_ms(ms));
            let early = at.saturating_sub(ahead);
            // Once for the warning, once for the deed.
            if early > now.wall_ms { early } else { at }
        });
        retention.into_iter().chain(producers).min()
    }

    /// Makes the segments durable, now or after the upkeep that is out.
    pub(crate) fn sync_segments(&mut self, owed: &mut Owed) {
        if self.upkeep.running || owed.upkeep.is_some() {
            self.upkeep.sync_wanted = true;
            return;
        }
        if let Some(upkeep) = self.log.as_mut().and_then(|log| log.sync_segments()) {
            self.hand_out(upkeep, owed);
        }
    }

    pub(crate) fn hand_out(&mut self, upkeep: riverlog_log::Upkeep, owed: &mut Owed) {
        self.upkeep.running = true;
        self.upkeep.out += 1;
        owed.upkeep = Some(upkeep);
    }

    /// Whether something that was appended doesn't count yet.
    pub(crate) fn own_behind(&self) -> bool {
        self.log
            .as_ref()
            .is_some_and(|log| log.log_end_offset() > self.own_position())
    }
}
