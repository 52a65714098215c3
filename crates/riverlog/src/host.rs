//! Drives a node with two threads: one for the group commit, one for everything else and for time.
//!
//! A publisher that would only wait for the group commit runs it itself when none is running: that saves two
//! thread switches for a lone publisher, and the next group forms meanwhile all the same.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use riverlog_core::Now;
use riverlog_node::{Entropy, Host, Job, Lane, Node, Reply};

use crate::{Error, Result};

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

/// Wakes the threads.
#[derive(Default)]
struct Signals {
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
    /// Jobs that another thread took and left for the worker.
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
}

/// Randomness of the operating system, by way of the standard library's hasher keys.
struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u128(&self) -> u128 {
        use std::hash::{BuildHasher, Hasher, RandomState};
        // Each RandomState of a process has fresh SipHash keys; hashing nothing with them gives 64 unpredictable bits.
        let half = || u128::from(RandomState::new().build_hasher().finish());
        half() << 64 | half()
    }
}

/// A node, and the threads that drive it until it is dropped.
pub(crate) struct Driver {
    pub(crate) node: Arc<Node>,
    signals: Arc<Signals>,
    clock: Clock,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// The two clocks of this process.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
}

impl Clock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: self.start.elapsed(), wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX) }
    }
}

impl Driver {
    pub(crate) fn start(
        disk: Arc<dyn riverlog_log::Disk>,
        settings: riverlog_node::NodeSettings,
    ) -> Result<Arc<Driver>> {
        let clock = Clock { start: Instant::now() };
        let signals = Arc::new(Signals::default());
        let node =
            Node::open(disk, Arc::new(SystemEntropy), Arc::clone(&signals) as Arc<dyn Host>, settings, clock.now())?;
        let driver = Arc::new(Driver { node, signals, clock, threads: Mutex::default() });
        let spawn = |name: &str, run: fn(&Node, &Signals, Clock)| {
            let (node, signals) = (Arc::clone(&driver.node), Arc::clone(&driver.signals));
            std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&node, &signals, clock))
        };
        for thread in [spawn("riverlog-flush", flush_loop), spawn("riverlog-work", work_loop)] {
            let thread = thread.map_err(|e| Error::Refused {
                code: riverlog_wire::ErrorCode::UNKNOWN_SERVER_ERROR,
                message: format!("the system gave no thread ({e}); raise the limit of processes"),
            });
            driver.threads.lock().push(thread?);
        }
        Ok(driver)
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Calls the node with a reply. `helping`: this thread is going to wait, and would rather run the group commit itself than
    /// wake another thread for it.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        helping: bool,
        f: impl FnOnce(&Node, Now, Reply<T>),
    ) -> Pending<'_, T> {
        let slot = Slot::new();
        let answer = Answer(Arc::clone(&slot));
        HELP.set(if helping { Help::Offered } else { Help::No });
        f(&self.node, self.now(), Reply::new(move |value| answer.put(value)));
        let wanted = HELP.replace(Help::No) == Help::Wanted;
        Pending { driver: self, slot, wanted }
    }

    /// [`Driver::begin`], and the wait.
    pub(crate) fn call<T: Send + 'static>(&self, helping: bool, f: impl FnOnce(&Node, Now, Reply<T>)) -> Result<T> {
        self.begin(helping, f).wait()
    }

    fn stop(&self) {
        self.signals.state.lock().stop = true;
        self.signals.flush.notify_all();
        self.signals.work.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A panic there has already been reported by the panic hook.
            let _ = thread.join();
        }
    }

    /// Stops the threads and closes the data folder cleanly. Further calls answer [`Error::Closed`].
    pub(crate) fn close(&self) -> Result<()> {
        self.stop();
        run_jobs(&self.node, &self.signals, self.clock, false);
        self.node.close(self.now()).map_err(|e| Error::Start(e.into()))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // What can't be closed cleanly is recovered at the next start; nobody is left to be told.
        let _ = self.close();
    }
}

/// Takes the node's jobs. Flushes run here; others too unless `leave_others` puts them in the worker's queue.
fn run_jobs(node: &Node, signals: &Signals, clock: Clock, leave_others: bool) {
    loop {
        let jobs = node.take_jobs();
        if jobs.is_empty() {
            return;
        }
        for job in jobs {
            if leave_others && job.lane() != Lane::Flush {
                signals.state.lock().queue.push_back(job);
                signals.work.notify_one();
            } else {
                node.on_job_done(job.run(), clock.now());
            }
        }
        if leave_others {
            // The next group, if any, is announced by `jobs_ready`: a publisher doesn't commit for others for ever.
            return;
        }
    }
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
    let mut deadline = node.tick(clock.now());
    loop {
        let (job, look) = {
            let mut state = signals.state.lock();
            loop {
                let due = deadline.is_some_and(|d| d <= clock.start.elapsed());
                if state.stop || state.jobs || state.deadline || !state.queue.is_empty() || due {
                    break;
                }
                match deadline {
                    Some(at) => {
                        signals.work.wait_for(&mut state, at.saturating_sub(clock.start.elapsed()));
                    }
                    None => signals.work.wait(&mut state),
                }
            }
            if state.stop {
                return;
            }
            state.deadline = false;
            (state.queue.pop_front(), std::mem::take(&mut state.jobs))
        };
        if let Some(job) = job {
            node.on_job_done(job.run(), clock.now());
        }
        if look {
            for job in node.take_jobs() {
                node.on_job_done(job.run(), clock.now());
            }
        }
        deadline = node.next_deadline();
        if deadline.is_some_and(|d| d <= clock.start.elapsed()) {
            deadline = node.tick(clock.now());
        }
    }
}

/// A call whose answer may still be on its way.
pub(crate) struct Pending<'a, T> {
    driver: &'a Driver,
    slot: Arc<Slot<T>>,
    /// There are jobs that nobody else has been woken for.
    wanted: bool,
}

impl<T> Pending<'_, T> {
    pub(crate) fn wait(mut self) -> Result<T> {
        if self.wanted && !self.slot.is_ready() {
            self.wanted = false;
            run_jobs(&self.driver.node, &self.driver.signals, self.driver.clock, true);
        }
        self.slot.wait()
    }
}

impl<T> Drop for Pending<'_, T> {
    fn drop(&mut self) {
        if self.wanted {
            self.driver.signals.jobs_ready();
        }
    }
}

/// One answer on its way to a waiting thread.
struct Slot<T> {
    state: Mutex<SlotState<T>>,
    ready: Condvar,
}

enum SlotState<T> {
    Waiting,
    Ready(T),
    /// The reply was dropped: the node is gone.
    Dropped,
}

impl<T> Slot<T> {
    fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { state: Mutex::new(SlotState::Waiting), ready: Condvar::new() })
    }
    fn is_ready(&self) -> bool {
        !matches!(*self.state.lock(), SlotState::Waiting)
    }
    fn set(&self, value: SlotState<T>) {
        let mut state = self.state.lock();
        if matches!(*state, SlotState::Waiting) {
            *state = value;
            self.ready.notify_one();
        }
    }
    fn wait(&self) -> Result<T> {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, SlotState::Waiting) {
                SlotState::Ready(value) => return Ok(value),
                SlotState::Dropped => return Err(Error::Closed),
                SlotState::Waiting => self.ready.wait(&mut state),
            }
        }
    }
}

/// Fills a slot, or tells it that nothing will come.
struct Answer<T>(Arc<Slot<T>>);

impl<T> Answer<T> {
    fn put(self, value: T) {
        self.0.set(SlotState::Ready(value));
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.0.set(SlotState::Dropped);
    }
}

/// How long an append may take before it counts as unanswered.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
