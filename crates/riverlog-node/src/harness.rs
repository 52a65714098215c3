//! A host on the caller's thread, with a clock that moves when it is told to: for tests, examples and simulation.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use riverlog_node::{NodeSettings, harness::Harness};
//! # use riverlog_log::disk::MemoryDisk;
//! let mut host = Harness::open(Arc::new(MemoryDisk::new()), NodeSettings::default(), 7)?;
//! let producer = host.get(|node, now, reply| node.init_producer(now, reply));
//! host.advance(Duration::from_secs(1));
//! # Ok::<(), riverlog_node::StartError>(())
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_log::Disk;
use riverlog_log::disk::Random;

use crate::command::Reply;
use crate::jobs::{Job, Lane};
use crate::node::{Host, Node, StartError};
use crate::notice::Notice;
use crate::settings::{Entropy, NodeSettings};

/// The wall clock at which a harness starts: a day in November 2023, ms since the epoch.
pub const START_MS: i64 = 1_700_000_000_000;

/// How long [`Harness::get`] lets the clock run for an answer.
const PATIENCE: Duration = Duration::from_secs(600);

/// Random bits from a seed.
#[derive(Debug)]
pub struct Seeded(Mutex<Random>);

impl Seeded {
    /// The same seed gives the same bits.
    pub fn new(seed: u64) -> Seeded {
        Seeded(Mutex::new(Random::new(seed)))
    }
}

impl Entropy for Seeded {
    fn next_u128(&self) -> u128 {
        let mut random = self.0.lock();
        u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
    }
}

#[derive(Debug, Default)]
struct Signals {
    jobs: AtomicBool,
    deadline: AtomicBool,
    notices: Mutex<Vec<Notice>>,
}

impl Host for Signals {
    fn jobs_ready(&self) {
        self.jobs.store(true, Ordering::Relaxed);
    }
    fn deadline_changed(&self) {
        self.deadline.store(true, Ordering::Relaxed);
    }
    fn notice(&self, notice: Notice) {
        self.notices.lock().push(notice);
    }
}

/// An answer that may come later.
#[derive(Debug)]
pub struct Answer<T>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> Answer<T> {
    /// An answer to come, and what completes it.
    pub fn new() -> (Answer<T>, Reply<T>) {
        let slot = Arc::new(Mutex::new(None));
        let given = slot.clone();
        let reply = Reply::new(move |answer| *given.lock() = Some(answer));
        (Answer(slot), reply)
    }
    /// Takes the answer when it is there.
    pub fn take(&self) -> Option<T> {
        self.0.lock().take()
    }
    /// Whether it is there.
    pub fn is_ready(&self) -> bool {
        self.0.lock().is_some()
    }
    /// The reply was dropped without an answer: none will come.
    pub fn is_lost(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && !self.is_ready()
    }
}

/// One node, its jobs and its clock.
pub struct Harness {
    node: Arc<Node>,
    signals: Arc<Signals>,
    jobs: VecDeque<Job>,
    held: Option<Lane>,
    now: Now,
}

impl Harness {
    /// Opens a node at [`START_MS`].
    pub fn open(
        disk: Arc<dyn Disk>,
        settings: NodeSettings,
        seed: u64,
    ) -> Result<Harness, StartError> {
        let now = Now {
            mono: Duration::from_secs(1),
            wall_ms: START_MS,
        };
        Harness::open_at(disk, settings, seed, now)
    }
    /// Opens a node at any time.
    pub fn open_at(
        disk: Arc<dyn Disk>,
        settings: NodeSettings,
        seed: u64,
        now: Now,
    ) -> Result<Harness, StartError> {
        let signals = Arc::new(Signals::default());
        let entropy = Arc::new(Seeded::new(seed));
        let node = Node::open(disk, entropy, signals.clone(), settings, now)?;
        Ok(Harness {
            node,
            signals,
            jobs: VecDeque::new(),
            held: None,
            now,
        })
    }
    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
    /// The time.
    pub fn now(&self) -> Now {
        self.now
    }
    /// Lets the wall clock jump; the monotonic one goes on as before.
    pub fn set_wall_clock(&mut self, wall_ms: i64) {
        self.now.wall_ms = wall_ms;
    }
    /// What the node has told its operator since the last call.
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.signals.notices.lock())
    }
    /// Sends a command without running anything.
    pub fn ask<T: Send + 'static>(&self, send: impl FnOnce(&Node, Now, Reply<T>)) -> Answer<T> {
        let (answer, reply) = Answer::new();
        send(&self.node, self.now, reply);
        answer
    }
    /// Sends a command, runs jobs and lets time pass until it is answered; `None` when no answer came in ten minutes.
    pub fn get<T: Send + 'static>(&mut self, send: impl FnOnce(&Node, Now, Reply<T>)) -> Option<T> {
        let answer = self.ask(send);
        let until = self.now.mono + PATIENCE;
        loop {
            self.run();
            if let Some(answer) = answer.take() {
                return Some(answer);
            }
            let next = self.node.next_deadline().filter(|at| *at <= until)?;
            self.tick_at(next);
        }
    }
    /// Jobs that wait to be run, in the order in which they came.
    pub fn jobs(&mut self) -> &VecDeque<Job> {
        self.collect();
        &self.jobs
    }
    /// Runs one of them; `false` when there is none at that place.
    pub fn run_job(&mut self, at: usize) -> bool {
        self.collect();
        let Some(job) = self.jobs.remove(at) else {
            return false;
        };
        let done = job.run();
        self.node.on_job_done(done, self.now);
        true
    }
    /// Leaves the jobs of a lane lying from now on, as a disk does that is slow; `None`: of no lane any more.
    pub fn hold(&mut self, lane: Option<Lane>) {
        self.held = lane;
    }
    /// Runs jobs in order until none is left that isn't held.
    pub fn run(&mut self) {
        loop {
            self.collect();
            let held = self.held;
            let Some(at) = self.jobs.iter().position(|job| Some(job.lane()) != held) else {
                return;
            };
            self.run_job(at);
        }
    }
    /// Lets time pass, deadline by deadline, running all jobs.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now.mono + by;
        loop {
            self.run();
            match self.node.next_deadline() {
                Some(at) if at <= until => self.tick_at(at),
                _ => break,
            }
        }
        self.tick_at(until);
        self.run();
    }
    /// A clean stop.
    pub fn close(mut self) -> Result<(), riverlog_log::OpenError> {
        self.run();
        self.node.close(self.now)
    }

    fn tick_at(&mut self, at: Duration) {
        let passed = at.saturating_sub(self.now.mono);
        self.now.mono += passed;
        let ms = self.now.mono.as_millis() - (self.now.mono - passed).as_millis();
        self.now.wall_ms += i64::try_from(ms).unwrap_or(i64::MAX);
        self.signals.deadline.store(false, Ordering::Relaxed);
        self.node.tick(self.now);
    }

    fn collect(&mut self) {
        // A node that has jobs and doesn't say so would stand still under a host with threads.
        if self.signals.jobs.swap(false, Ordering::Relaxed) {
            self.jobs.extend(self.node.take_jobs());
        }
    }
}
