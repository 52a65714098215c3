//! Drives a node with threads and the system's clocks: one thread for the group commit, others for everything else and
//! for time. The embedded library and the server use it alike.
//!
//! A caller that would only wait for the group commit runs it itself when none is running: that saves two thread switches for
//! a lone publisher, and the next group forms meanwhile all the same.

mod pending;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use riverlog_core::Now;
use riverlog_node::{Entropy, Host, Job, Lane, Node, NodeSettings, Notice, Reply, StartError};

use pending::{Answer, Slot};
pub use pending::{NodeGone, Pending};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Help {
    No,
    /// This thread calls the node and will look at the jobs itself afterwards.
    Offered,
    /// There are jobs, and nobody else has been woken for them.
    Wanted,
}

thread_local! {
    static HELP: Cell<Help> = const { Cell::new(Help::No) };
}

/// Wakes the threads, and hands notices on.
struct Signals {
    notices: Box<dyn Fn(Notice) + Send + Sync>,
    neighbours: Option<Neighbours>,
    state: Mutex<State>,
    flush: Condvar,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// `take_jobs` has something that nobody has looked at.
    jobs: bool,
    /// The next deadline came closer.
    deadline: bool,
    /// Jobs that another thread took and left for the workers.
    queue: VecDeque<Job>,
    flush_idle: bool,
    stop: bool,
}

impl Host for Signals {
    fn jobs_ready(&self) {
        if HELP.get() != Help::No {
            HELP.set(Help::Wanted);
            return;
        }
        let mut state = self.state.lock();
        state.jobs = true;
        if state.flush_idle {
            state.flush_idle = false;
            self.flush.notify_one();
        } else {
            self.work.notify_one();
        }
    }
    fn deadline_changed(&self) {
        self.state.lock().deadline = true;
        self.work.notify_one();
    }
    fn proposals_ready(&self) {
        if let Some(neighbours) = &self.neighbours {
            (neighbours.proposals)();
        }
    }
    fn outbox_ready(&self) {
        if let Some(neighbours) = &self.neighbours {
            (neighbours.outbox)();
        }
    }
    fn notice(&self, notice: Notice) {
        (self.notices)(notice);
    }
}

/// Whom to wake in a cluster. Called on any of the node's threads, perhaps with locks held: neither may call the node.
pub struct Neighbours {
    /// The node's controller has proposals: whoever runs the quorum takes them.
    pub proposals: Box<dyn Fn() + Send + Sync>,
    /// The node has messages for others: whoever is connected to them takes them.
    pub outbox: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Neighbours").finish_non_exhaustive()
    }
}

impl Signals {
    fn leave(&self, job: Job) {
        self.state.lock().queue.push_back(job);
        self.work.notify_one();
    }
}

/// Randomness of the operating system, by way of the standard library's hasher keys.
struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u128(&self) -> u128 {
        use std::hash::{BuildHasher, Hasher, RandomState};
        // The keys of a thread's first RandomState come from the system, later ones count on from it: hashing the time with
        // them keeps two draws apart, and unpredictable without the keys.
        let half = || {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_u128(
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_nanos(),
            );
            u128::from(hasher.finish())
        };
        half() << 64 | half()
    }
}

/// The two clocks of this process.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: Instant,
}

impl Clock {
    fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            mono: self.start.elapsed(),
            wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// Why a node can't be driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The node.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system gave no thread.
    #[error("the system gave no thread ({0}); raise the limit of processes")]
    Thread(#[from] std::io::Error),
}

impl DriveError {
    /// Whether the data folder is damaged so that acknowledged records may be missing.
    pub fn is_damage(&self) -> bool {
        match self {
            DriveError::Start(StartError::Open(error)) => error.is_damage(),
            _ => false,
        }
    }
}

/// A node, and the threads that drive it until it is closed or dropped.
pub struct Driver {
    /// The node; calls that need no wait can be made on it directly, with [`Driver::now`].
    pub node: Arc<Node>,
    signals: Arc<Signals>,
    clock: Clock,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    closed: AtomicBool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens a node on the calling thread, and starts its threads: one for the group commit, `workers` (at least one) for the rest.
    /// The node's notices become warnings of whatever collects the program's traces.
    pub fn start(
        disk: Arc<dyn riverlog_log::Disk>,
        settings: NodeSettings,
        workers: usize,
    ) -> Result<Arc<Driver>, DriveError> {
        Driver::start_telling(disk, settings, workers, |notice| {
            tracing::warn!("{notice}");
        })
    }

    /// [`Driver::start`], with somebody to be told of the node's notices, on any of its threads. It must not call the node.
    pub fn start_telling(
        disk: Arc<dyn riverlog_log::Disk>,
        settings: NodeSettings,
        workers: usize,
        notices: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Arc<Driver>, DriveError> {
        Driver::start_in_cluster(disk, settings, workers, notices, None)
    }

    /// [`Driver::start_telling`], with those who carry what the node proposes and says to others.
    pub fn start_in_cluster(
        disk: Arc<dyn riverlog_log::Disk>,
        settings: NodeSettings,
        workers: usize,
        notices: impl Fn(Notice) + Send + Sync + 'static,
        neighbours: Option<Neighbours>,
    ) -> Result<Arc<Driver>, DriveError> {
        let clock = Clock {
            start: Instant::now(),
        };
        let signals = Arc::new(Signals {
            notices: Box::new(notices),
            neighbours,
            state: Mutex::default(),
            flush: Condvar::new(),
            work: Condvar::new(),
        });
        let host = Arc::clone(&signals) as Arc<dyn Host>;
        let node = Node::open(disk, Arc::new(SystemEntropy), host, settings, clock.now())?;
        let driver = Arc::new(Driver {
            node,
            signals,
            clock,
            threads: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        driver.spawn("riverlog-flush", flush_loop)?;
        for _ in 0..workers.max(1) {
            driver.spawn("riverlog-work", work_loop)?;
        }
        Ok(driver)
    }

    fn spawn(&self, name: &str, run: fn(&Node, &Signals, Clock)) -> std::io::Result<()> {
        let (node, signals, clock) = (
            Arc::clone(&self.node),
            Arc::clone(&self.signals),
            self.clock,
        );
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&node, &signals, clock))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The two clocks at this moment.
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// Calls the node with a reply. `helping`: this thread is going to wait, and would rather run the group commit itself than
    /// wake another thread for it.
    pub fn begin<T: Send + 'static>(
        &self,
        helping: bool,
        f: impl FnOnce(&Node, Now, Reply<T>),
    ) -> Pending<'_, T> {
        let slot = Slot::new();
        let answer = Answer(Arc::clone(&slot));
        HELP.set(if helping { Help::Offered } else { Help::No });
        match self.closed.load(Ordering::Acquire) {
            true => drop(answer),
            false => f(
                &self.node,
                self.now(),
                Reply::new(move |value| answer.put(value)),
            ),
        }
        let wanted = HELP.replace(Help::No) == Help::Wanted;
        Pending {
            driver: self,
            slot,
            wanted,
        }
    }

    /// [`Driver::begin`], and the wait.
    pub fn call<T: Send + 'static>(
        &self,
        helping: bool,
        f: impl FnOnce(&Node, Now, Reply<T>),
    ) -> Result<T, NodeGone> {
        self.begin(helping, f).wait()
    }

    /// Stops the threads and closes the data folder cleanly; the second call does nothing. Calls made afterwards don't reach the
    /// node: whoever waits for their answers is told that it is gone.
    pub fn close(&self) -> Result<(), DriveError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.signals.state.lock().stop = true;
        self.signals.flush.notify_all();
        self.signals.work.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A panic there has already been reported by the panic hook.
            let _ = thread.join();
        }
        let left: Vec<Job> = self.signals.state.lock().queue.drain(..).collect();
        for job in left {
            self.node.on_job_done(job.run(), self.clock.now());
        }
        while run_jobs(&self.node, &self.signals, self.clock, false) {}
        self.node
            .close(self.now())
            .map_err(|e| DriveError::Start(e.into()))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // What can't be closed cleanly is recovered at the next start; nobody is left to be told.
        let _ = self.close();
    }
}

/// Takes the node's jobs. Flushes run here; others too unless `leave_others` puts them in the workers' queue. Returns whether
/// there were any.
fn run_jobs(node: &Node, signals: &Signals, clock: Clock, leave_others: bool) -> bool {
    let jobs = node.take_jobs();
    let any = !jobs.is_empty();
    let (flushes, others): (Vec<Job>, Vec<Job>) =
        jobs.into_iter().partition(|job| job.lane() == Lane::Flush);
    for job in others {
        if leave_others {
            signals.leave(job);
        } else {
            node.on_job_done(job.run(), clock.now());
        }
    }
    // The next group, if any, is announced by `jobs_ready`: a publisher doesn't commit for others for ever.
    for job in flushes {
        node.on_job_done(job.run(), clock.now());
    }
    any
}

fn flush_loop(node: &Node, signals: &Signals, clock: Clock) {
    loop {
        {
            let mut state = signals.state.lock();
            while !state.jobs && !state.stop {
                state.flush_idle = true;
                signals.flush.wait(&mut state);
            }
            state.flush_idle = false;
            if state.stop {
                return;
            }
            state.jobs = false;
        }
        run_jobs(node, signals, clock, true);
    }
}

fn work_loop(node: &Node, signals: &Signals, clock: Clock) {
    loop {
        let deadline = node.next_deadline();
        let (job, look, due) = {
            let mut state = signals.state.lock();
            loop {
                let due = deadline.is_some_and(|d| d <= clock.start.elapsed());
                // While the group commit runs, nobody else looks at new jobs (a cold read, say).
                let look = state.jobs && !state.flush_idle;
                if state.stop {
                    return;
                }
                if look || due || state.deadline || !state.queue.is_empty() {
                    state.deadline = false;
                    if look {
                        state.jobs = false;
                    }
                    break (state.queue.pop_front(), look, due);
                }
                match deadline {
                    Some(at) => {
                        let wait = at
                            .saturating_sub(clock.start.elapsed())
                            .max(Duration::from_micros(100));
                        signals.work.wait_for(&mut state, wait);
                    }
                    None => signals.work.wait(&mut state),
                }
            }
        };
        if let Some(job) = job {
            node.on_job_done(job.run(), clock.now());
        }
        if look {
            for job in node.take_jobs() {
                signals.leave(job);
            }
        }
        if due {
            node.tick(clock.now());
        }
    }
}
