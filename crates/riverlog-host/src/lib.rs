//! Drives a node with threads and the system's clocks: one thread for the group commit, others for everything else and
//! for time. The embedded library and the server use it alike.

mod pending;
mod signals;
mod slot;
mod sync;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_node::{Entropy, Host, Job, Lane, Node, NodeSettings, Notice, Reply, StartError};

pub use pending::Pending;
use signals::{Driven, Signals, finish, flush_loop, work_loop};
pub use slot::NodeGone;
use waiting::Waiting;

/// Wakes the threads, and hands notices on.
struct Wakes {
    signals: Arc<Signals<Job>>,
    notices: Box<dyn Fn(Notice) + Send + Sync>,
    neighbours: Option<Neighbours>,
}

impl Host for Wakes {
    fn jobs_ready(&self) {
        self.signals.jobs_ready();
    }
    fn deadline_changed(&self) {
        self.signals.deadline_changed();
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

/// A node on the clocks of this process.
#[derive(Clone)]
struct OnClock {
    node: Arc<Node>,
    clock: Clock,
}

impl Driven for OnClock {
    type Job = Job;
    fn take_jobs(&self) -> Vec<Job> {
        self.node.take_jobs()
    }
    fn is_flush(job: &Job) -> bool {
        job.lane() == Lane::Flush
    }
    fn run(&self, job: Job) {
        self.node.on_job_done(job.run(), self.clock.now());
    }
    fn next_deadline(&self) -> Option<Duration> {
        self.node.next_deadline()
    }
    fn tick(&self) {
        self.node.tick(self.clock.now());
    }
    fn elapsed(&self) -> Duration {
        self.clock.start.elapsed()
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
    driven: OnClock,
    signals: Arc<Signals<Job>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    closed: AtomicBool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("clock", &self.driven.clock)
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
        let signals = Arc::new(Signals::new());
        let host = Arc::new(Wakes {
            signals: Arc::clone(&signals),
            notices: Box::new(notices),
            neighbours,
        });
        let node = Node::open(disk, Arc::new(SystemEntropy), host, settings, clock.now())?;
        let driver = Arc::new(Driver {
            driven: OnClock {
                node: Arc::clone(&node),
                clock,
            },
            node,
            signals,
            threads: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        driver.spawn("riverlog-flush", flush_loop)?;
        for _ in 0..workers.max(1) {
            driver.spawn("riverlog-work", work_loop)?;
        }
        Ok(driver)
    }

    fn spawn(&self, name: &str, run: fn(&OnClock, &Signals<Job>)) -> std::io::Result<()> {
        let (driven, signals) = (self.driven.clone(), Arc::clone(&self.signals));
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&driven, &signals))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The two clocks at this moment.
    pub fn now(&self) -> Now {
        self.driven.clock.now()
    }

    /// Calls the node with a reply. `helping`: this thread is going to wait, and would rather run the group commit itself than
    /// wake another thread for it.
    pub fn begin<T: Send + 'static>(
        &self,
        helping: bool,
        f: impl FnOnce(&Node, Now, Reply<T>),
    ) -> Pending<'_, T> {
        Pending(Waiting::ask(
            &self.driven,
            &self.signals,
            helping,
            |answer| match self.closed.load(Ordering::Acquire) {
                true => drop(answer),
                false => f(
                    &self.node,
                    self.now(),
                    Reply::new(move |value| answer.put(value)),
                ),
            },
        ))
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
        self.signals.stop();
        for thread in self.threads.lock().drain(..) {
            // A panic there has already been reported by the panic hook.
            let _ = thread.join();
        }
        finish(&self.driven, &self.signals);
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
