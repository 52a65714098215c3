//! The cleaner: which compacted partitions are worth a pass, and the passes themselves, as chains of short jobs.
//!
//! A partition is looked at after it was appended to; the one with the largest dirty share comes first. A pass works beside
//! reads and writes; only the moment in which a cleaned segment takes its place is upkeep of the log. What can't be read sets
//! that one partition aside, and no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::config::{BrokerValues, TopicConfig};
use riverlog_log::{
    Clean, CleanDone, CleanError, CleanRules, CleanStep, Cleanable, Cleaned, CleanerOffsets,
    DiskError, LogKey, Volume,
};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::{Offset, TopicId};

use crate::jobs::Work;
use crate::node::Node;
use crate::notice::Notice;
use crate::partition::{Owed, Partition, Role};
use crate::timers::Timer;

/// Bytes that one job of a pass reads and writes: others wait for the thread meanwhile.
const STEP_BYTES: u64 = 2 << 20;

/// A pass that found nothing synced has asked for it, and is tried again after this time; then after twice as long, and so on.
const SYNC: Duration = Duration::from_millis(500);

/// What the cleaner remembers.
#[derive(Default)]
pub(crate) struct Cleaner {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    offsets: CleanerOffsets,
    /// May have something to clean.
    candidates: BTreeMap<LogKey, Candidate>,
    /// Under way; `None` while a job has it.
    passes: BTreeMap<LogKey, Option<Box<Pass>>>,
    /// Can't be cleaned, and why. Until a restart, or until the topic's settings change.
    aside: BTreeMap<LogKey, String>,
    looking: bool,
    /// The next time to look; entries of the timer for other times count nothing.
    look_at: Option<Duration>,
    /// When the bound on bytes a second lets the passes go on.
    go_on_at: Duration,
}

struct Candidate {
    partition: Arc<Partition>,
    /// Up to where the last look saw: the next one is worth its time when the last stable offset is another, or after `again_ms`
    /// (wall clock).
    seen: Offset,
    again_ms: i64,
    dirty_ratio: f64,
    /// Passes in a row that found nothing that was synced.
    unsynced: u32,
}

/// The broker's keys.
struct Settings {
    threads: usize,
    backoff: Duration,
    map_bytes: usize,
    bytes_per_second: f64,
}

/// A pass over one partition.
pub(crate) struct Pass {
    partition: Arc<Partition>,
    rules: CleanRules,
    clean: Option<Clean>,
}

/// What became of a step.
pub(crate) struct Stepped {
    pass: Box<Pass>,
    moved: u64,
    outcome: Outcome,
}

enum Outcome {
    /// Nothing is dirty in what is synced.
    NotYet,
    Step(CleanStep),
    Failed(CleanError),
}

/// A look at one partition.
pub(crate) struct Look {
    partition: Arc<Partition>,
    rules: CleanRules,
}

/// What it saw; `None`: there is no log any more.
pub(crate) struct Seen {
    partition: Arc<Partition>,
    /// What is appended and not stable or not written yet is for the next look.
    upto: Offset,
    /// There is nothing behind that.
    whole: bool,
    found: Option<Result<Cleanable, DiskError>>,
}

impl Look {
    pub(crate) fn run(self) -> Seen {
        let (upto, whole, found) = {
            let mut state = self.partition.state.lock();
            match &mut state.log {
                Some(log) => {
                    let upto = self.rules.until.min(log.written());
                    let whole = upto == log.log_end_offset();
                    (upto, whole, Some(log.cleanable(&self.rules)))
                }
                None => (Offset(-1), true, None),
            }
        };
        Seen {
            partition: self.partition,
            upto,
            whole,
            found,
        }
    }
}

impl Pass {
    pub(crate) fn run(mut self: Box<Self>) -> Stepped {
        let mut clean = match self.clean.take() {
            Some(clean) => clean,
            None => {
                let begun = {
                    let mut state = self.partition.state.lock();
                    let log = state.log.as_mut();
                    log.map_or(Ok(None), |log| log.clean(self.rules.clone()))
                };
                match begun {
                    Ok(Some(clean)) => clean,
                    Ok(None) => return self.stepped(0, Outcome::NotYet),
                    Err(error) => return self.stepped(0, Outcome::Failed(error.into())),
                }
            }
        };
        let before = clean.moved_bytes();
        let outcome = match clean.step(STEP_BYTES) {
            Ok(step) => Outcome::Step(step),
            Err(error) => Outcome::Failed(error),
        };
        let moved = clean.moved_bytes() - before;
        if matches!(outcome, Outcome::Failed(_)) {
            clean.abandon(None);
        } else {
            self.clean = Some(clean);
        }
        self.stepped(moved, outcome)
    }
    fn stepped(self: Box<Self>, moved: u64, outcome: Outcome) -> Stepped {
        Stepped {
            pass: self,
            moved,
            outcome,
        }
    }
    /// Removes what was being written.
    pub(crate) fn abandon(self, cleaned: Option<Cleaned>) {
        if let Some(clean) = self.clean {
            clean.abandon(cleaned);
        }
    }
}

impl Cleaner {
    pub(crate) fn new(volume: &Volume) -> Cleaner {
        let offsets = CleanerOffsets::load(volume);
        Cleaner {
            state: Mutex::new(State {
                offsets,
                ..State::default()
            }),
        }
    }
    /// A topic is gone.
    pub(crate) fn forget(&self, topic: TopicId) {
        let mut state = self.state.lock();
        let other = |key: &LogKey| key.topic != topic;
        state.offsets.retain(|key| key.topic != topic);
        state.candidates.retain(|key, _| other(key));
        state.aside.retain(|key, _| other(key));
    }
    /// What was cleaned of a log behind `end` is there no more: nothing is known of what comes in its place. Returns what is to be stored, if anything.
    fn cut(&self, key: LogKey, end: Offset) -> Option<CleanerOffsets> {
        let mut state = self.state.lock();
        if state.offsets.get(key) <= end {
            return None;
        }
        match end {
            Offset::ZERO => state.offsets.retain(|other| other != key),
            end => state.offsets.set(key, end),
        }
        Some(state.offsets.clone())
    }
    /// Largest dirty share of the partitions that wait, partitions set aside, and passes under way.
    pub(crate) fn gauges(&self) -> (f64, usize, usize) {
        let state = self.state.lock();
        let ratios = state.candidates.values().map(|c| c.dirty_ratio);
        let most = ratios.fold(0.0, f64::max);
        (most, state.aside.len(), state.passes.len())
    }
    /// Partitions that are set aside, and why.
    pub(crate) fn aside(&self) -> Vec<(LogKey, String)> {
        let state = self.state.lock();
        state.aside.iter().map(|(k, r)| (*k, r.clone())).collect()
    }
}

impl Node {
    /// A copy was cut, or has gone (then to 0). One that comes in its place must not be taken for clean: its tombstones would go before what they delete.
    pub(crate) fn cut_cleaned(&self, key: LogKey, end: Offset) {
        if let Some(offsets) = self.cleaner.cut(key, end) {
            self.run_job(Work::CleanStore(self.volume.clone(), offsets));
        }
    }

    /// A partition was appended to, opened, or configured anew: it may have something to clean.
    pub(crate) fn note_for_cleaner(&self, partition: &Arc<Partition>, anew: bool, now: Now) {
        if partition.role == Role::Metadata {
            return;
        }
        let compact = partition.topic.config.load().compact;
        let arm = {
            let mut state = self.cleaner.state.lock();
            if anew {
                state.aside.remove(&partition.key);
                state.candidates.remove(&partition.key);
            }
            if !compact {
                return;
            }
            let candidate = state.candidates.entry(partition.key);
            let candidate = candidate.or_insert_with(|| Candidate {
                partition: partition.clone(),
                seen: Offset(-1),
                again_ms: i64::MAX,
                dirty_ratio: 0.0,
                unsynced: 0,
            });
            candidate.seen = Offset(-1);
            state.look_at.is_none()
        };
        if arm {
            self.look_for_dirt_after(self.cleaner_settings().backoff, now);
        }
    }

    /// Looks for dirt in a while, unless it is done sooner.
    fn look_for_dirt_after(&self, pause: Duration, now: Now) {
        let at = now.mono.saturating_add(pause);
        {
            let mut state = self.cleaner.state.lock();
            if state.look_at.is_some_and(|set| set <= at) {
                return;
            }
            state.look_at = Some(at);
        }
        let (_, first) = self.timers.add(at, Timer::Cleaner);
        if first {
            self.host.deadline_changed();
        }
    }

    fn cleaner_settings(&self) -> Settings {
        let configs = self.node_configs(&self.image());
        let values = BrokerValues(&configs);
        let number = |name| values.number(name).and_then(|n| u64::try_from(n).ok());
        let threads = match values.text("log.cleaner.enable") {
            Some("false") => 0,
            _ => number("log.cleaner.threads").unwrap_or(1),
        };
        let rate = values.text("log.cleaner.io.max.bytes.per.second");
        Settings {
            threads: usize::try_from(threads).unwrap_or(usize::MAX),
            backoff: Duration::from_millis(
                number("log.cleaner.backoff.ms").unwrap_or(15_000).max(1),
            ),
            map_bytes: usize::try_from(
                number("log.cleaner.dedupe.buffer.size").unwrap_or(128 << 20),
            )
            .unwrap_or(usize::MAX),
            bytes_per_second: rate.and_then(|r| r.parse().ok()).unwrap_or(f64::MAX),
        }
    }

    /// The time between two looks is over.
    pub(crate) fn clean_now(&self, now: Now) {
        {
            let mut state = self.cleaner.state.lock();
            if state.look_at.is_none_or(|at| at > now.mono) {
                return;
            }
            state.look_at = None;
        }
        if self.is_closing() {
            return;
        }
        self.go_on_cleaning(now);
        self.look_for_dirt(now);
        let some = {
            let state = self.cleaner.state.lock();
            !state.candidates.is_empty() || !state.passes.is_empty()
        };
        if some {
            self.look_for_dirt_after(self.cleaner_settings().backoff, now);
        }
    }

    /// Looks at the candidates, unless all threads have a pass.
    fn look_for_dirt(&self, now: Now) {
        let settings = self.cleaner_settings();
        let candidates: Vec<(Arc<Partition>, Offset, i64, Offset)> = {
            let state = self.cleaner.state.lock();
            if state.looking || state.passes.len() >= settings.threads {
                return;
            }
            let waiting = state.candidates.iter().filter(|(key, _)| {
                !state.passes.contains_key(key) && !state.aside.contains_key(key)
            });
            waiting
                .map(|(key, c)| {
                    let cleaned = state.offsets.get(*key);
                    (c.partition.clone(), c.seen, c.again_ms, cleaned)
                })
                .collect()
        };
        let mut looks = Vec::new();
        for (partition, seen, again_ms, cleaned) in candidates {
            let config = partition.topic.config.load();
            let state = partition.state.lock();
            let stable = state.last_stable_offset();
            if stable == seen && now.wall_ms < again_ms {
                continue;
            }
            let rules = rules(&config, &settings, stable, cleaned, now);
            drop(state);
            looks.push(Look { partition, rules });
        }
        if !looks.is_empty() {
            self.cleaner.state.lock().looking = true;
            self.run_job(Work::CleanLook(looks));
        }
    }

    /// The candidates were looked at: the dirtiest get a pass.
    pub(crate) fn looked_for_dirt(&self, seen: Vec<Seen>, now: Now) {
        let settings = self.cleaner_settings();
        let mut due = Vec::new();
        let mut start = Vec::new();
        let mut clean = Vec::new();
        // Only the first append after a look of the upkeep is told to the cleaner.
        let written = |partition: &Partition| partition.state.lock().upkeep.dirty;
        let written_to: Vec<bool> = seen.iter().map(|s| written(&s.partition)).collect();
        {
            let mut state = self.cleaner.state.lock();
            state.looking = false;
            for (seen, written_to) in seen.into_iter().zip(written_to) {
                let Seen {
                    partition,
                    upto,
                    whole,
                    found,
                } = seen;
                let key = partition.key;
                let config = partition.topic.config.load();
                let found = match found {
                    Some(Ok(found)) if config.compact => found,
                    // It is looked at again at the next time.
                    Some(Err(_)) => continue,
                    _ => {
                        state.candidates.remove(&key);
                        continue;
                    }
                };
                let again_ms = again(&config, &found, now);
                let overdue = again_ms.is_some_and(|at| at <= now.wall_ms);
                let ratio = found.dirty_ratio();
                if found.dirty_bytes > 0 && (ratio > config.min_cleanable_dirty_ratio || overdue) {
                    due.push((ratio, partition.clone()));
                } else if again_ms.is_none() && found.dirty_bytes == 0 && whole && !written_to {
                    // The next append brings it back.
                    state.candidates.remove(&key);
                    clean.push(partition);
                    continue;
                }
                if let Some(candidate) = state.candidates.get_mut(&key) {
                    candidate.seen = upto;
                    candidate.again_ms = again_ms.unwrap_or(i64::MAX);
                    candidate.dirty_ratio = ratio;
                }
            }
            // Those of one share in the order of their keys.
            due.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            for (_, partition) in due {
                if let Some(candidate) = state.candidates.get_mut(&partition.key) {
                    candidate.seen = Offset(-1);
                }
                if state.passes.len() < settings.threads {
                    state.passes.insert(partition.key, None);
                    start.push((state.offsets.get(partition.key), partition));
                }
            }
        }
        for partition in clean {
            // Unless it came in between.
            if written(&partition) {
                self.note_for_cleaner(&partition, false, now);
            }
        }
        for (cleaned, partition) in start {
            let rules = {
                let config = partition.topic.config.load();
                let mut state = partition.state.lock();
                state.upkeep.out += 1;
                rules(&config, &settings, state.last_stable_offset(), cleaned, now)
            };
            self.run_job(Work::Clean(Box::new(Pass {
                partition,
                rules,
                clean: None,
            })));
        }
    }

    /// A step of a pass is done.
    pub(crate) fn cleaned_some(&self, stepped: Stepped, now: Now) {
        let Stepped {
            pass,
            moved,
            outcome,
        } = stepped;
        self.metrics.cleaner_io.fetch_add(moved, Ordering::Relaxed);
        self.throttle(moved, now);
        let partition = pass.partition.clone();
        let mut owed = Owed::default();
        let wanted = partition.topic.config.load().compact && !self.is_closing();
        let mut unused = None;
        let ended = {
            let mut state = partition.state.lock();
            state.came_back(&mut owed);
            match (&mut state.log, outcome) {
                (None, _) => Some(Err(CleanError::Void)),
                (Some(log), Outcome::Step(CleanStep::Done(done))) => {
                    log.clean_over();
                    Some(Ok(Some(done)))
                }
                (Some(log), Outcome::Failed(error)) => {
                    log.clean_over();
                    Some(Err(error))
                }
                (Some(log), outcome) if !wanted => {
                    if let Outcome::Step(CleanStep::Replace(cleaned)) = outcome {
                        unused = Some(cleaned);
                    }
                    log.clean_over();
                    Some(Err(CleanError::Void))
                }
                (Some(_), Outcome::Step(CleanStep::More)) => None,
                (Some(_), Outcome::NotYet) => {
                    // What isn't synced waits for another look.
                    state.sync_segments(&mut owed);
                    Some(Ok(None))
                }
                (Some(log), Outcome::Step(CleanStep::Replace(cleaned))) => {
                    match log.replace_cleaned(cleaned) {
                        Some(upkeep) => {
                            state.hand_out(upkeep, &mut owed);
                            None
                        }
                        None if log.is_replacing() => {
                            // Another upkeep is out: the next one takes it along.
                            state.upkeep.sync_wanted = true;
                            None
                        }
                        None => {
                            log.clean_over();
                            Some(Err(CleanError::Void))
                        }
                    }
                }
            }
        };
        self.settle(&partition, owed, now);
        match ended {
            None => {
                let mut state = self.cleaner.state.lock();
                state.passes.insert(partition.key, Some(pass));
            }
            Some(result) => {
                self.pass_ended(&partition, result, now);
                if pass.clean.is_some() {
                    self.run_job(Work::CleanAbandon(pass, unused));
                }
            }
        }
        self.go_on_cleaning(now);
    }

    fn pass_ended(
        &self,
        partition: &Arc<Partition>,
        result: Result<Option<CleanDone>, CleanError>,
        now: Now,
    ) {
        let key = partition.key;
        let mut state = self.cleaner.state.lock();
        state.passes.remove(&key);
        let unsynced = state.candidates.get_mut(&key).map(|c| &mut c.unsynced);
        match result {
            Ok(None) => {
                let before = unsynced.map_or(0, |times| {
                    *times = times.saturating_add(1);
                    *times - 1
                });
                drop(state);
                let pause = SYNC.saturating_mul(1 << before.min(16));
                return self.look_for_dirt_after(pause.min(self.cleaner_settings().backoff), now);
            }
            Ok(Some(done)) => {
                if let Some(times) = unsynced {
                    *times = 0;
                }
                let more = done.cleaned > state.offsets.get(key);
                state.offsets.set(key, done.cleaned);
                let offsets = state.offsets.clone();
                drop(state);
                let less = |before: u64, after: u64| before.saturating_sub(after);
                self.metrics.cleaner_passes.fetch_add(1, Ordering::Relaxed);
                self.metrics
                    .cleaner_removed_bytes
                    .fetch_add(less(done.bytes_before, done.bytes_after), Ordering::Relaxed);
                self.metrics.cleaner_removed_records.fetch_add(
                    less(done.records_before, done.records_after),
                    Ordering::Relaxed,
                );
                self.run_job(Work::CleanStore(self.volume.clone(), offsets));
                if !more {
                    // Something holds it back: it waits for the next look.
                    return;
                }
            }
            Err(CleanError::Void) => return,
            // There is room later.
            Err(CleanError::Disk(error))
                if error.is_full() && !active(Mutant::FullDiskSetsAside) =>
            {
                self.metrics.upkeep_failures.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(error) => {
                let reason = error.to_string();
                state.aside.insert(key, reason.clone());
                drop(state);
                self.metrics
                    .cleaner_failures
                    .fetch_add(1, Ordering::Relaxed);
                self.host.notice(Notice::NotCompacted {
                    topic: partition.topic.name.clone(),
                    partition: partition.key.partition.0,
                    reason,
                });
            }
        }
        if !self.is_closing() {
            self.look_for_dirt(now);
        }
    }

    /// Counts bytes against the bound on bytes a second.
    fn throttle(&self, moved: u64, now: Now) {
        let rate = self.cleaner_settings().bytes_per_second;
        let pause = moved as f64 / rate.max(1.0);
        // A day is as good as for ever: the setting may change meanwhile.
        let pause = Duration::from_secs_f64(pause.clamp(0.0, 86_400.0));
        let mut state = self.cleaner.state.lock();
        state.go_on_at = state.go_on_at.max(now.mono).saturating_add(pause);
    }

    /// Hands out the next step of each pass that may go on.
    pub(crate) fn go_on_cleaning(&self, now: Now) {
        let (waiting, go_on_at): (Vec<LogKey>, Duration) = {
            let state = self.cleaner.state.lock();
            let waiting = state.passes.iter().filter(|(_, pass)| pass.is_some());
            (waiting.map(|(key, _)| *key).collect(), state.go_on_at)
        };
        if waiting.is_empty() {
            return;
        }
        if go_on_at > now.mono {
            let (_, first) = self.timers.add(go_on_at, Timer::CleanOn);
            if first {
                self.host.deadline_changed();
            }
            return;
        }
        for key in waiting {
            let pass = {
                let mut state = self.cleaner.state.lock();
                state.passes.get_mut(&key).and_then(Option::take)
            };
            if let Some(pass) = pass {
                self.next_step(pass, now);
            }
        }
    }

    fn next_step(&self, pass: Box<Pass>, now: Now) {
        let partition = pass.partition.clone();
        let mut owed = Owed::default();
        let ready = {
            let mut state = partition.state.lock();
            match &mut state.log {
                Some(log) if log.failed().is_some() => {
                    log.clean_over();
                    Err(())
                }
                None => Err(()),
                Some(log) if log.is_replacing() => {
                    if !state.upkeep.running {
                        // The disk was full.
                        state.sync_segments(&mut owed);
                    }
                    Ok(false)
                }
                Some(_) => {
                    state.upkeep.out += 1;
                    Ok(true)
                }
            }
        };
        match ready {
            Ok(true) => self.run_job(Work::Clean(pass)),
            Ok(false) => {
                let mut state = self.cleaner.state.lock();
                state.passes.insert(partition.key, Some(pass));
            }
            Err(()) => {
                self.pass_ended(&partition, Err(CleanError::Void), now);
                self.run_job(Work::CleanAbandon(pass, None));
            }
        }
        self.settle(&partition, owed, now);
    }
}

fn rules(
    config: &TopicConfig,
    settings: &Settings,
    until: Offset,
    cleaned: Offset,
    now: Now,
) -> CleanRules {
    CleanRules {
        now_ms: now.wall_ms,
        until,
        cleaned,
        max_lag_ms: (config.max_compaction_lag_ms < i64::MAX)
            .then(|| u64::try_from(config.max_compaction_lag_ms).unwrap_or(0)),
        min_lag_ms: u64::try_from(config.min_compaction_lag_ms).unwrap_or(0),
        delete_retention_ms: u64::try_from(config.delete_retention_ms).unwrap_or(0),
        map_bytes: settings.map_bytes / settings.threads.max(1),
    }
}

/// When time alone makes a pass due, or may: when a record has waited as long as it may, or when one is old enough to be
/// cleaned.
fn again(config: &TopicConfig, found: &Cleanable, now: Now) -> Option<i64> {
    let oldest = found.oldest_dirty_ms?;
    let overdue = (config.max_compaction_lag_ms < i64::MAX)
        .then(|| oldest.saturating_add(config.max_compaction_lag_ms));
    let old_enough = (config.min_compaction_lag_ms > 0).then(|| {
        now.wall_ms
            .saturating_add(config.min_compaction_lag_ms.clamp(1, 60_000))
    });
    overdue.into_iter().chain(old_enough).min()
}
