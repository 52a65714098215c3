//! The hand-over between threads, in every order that chance finds: who commits for whom, who is woken, and what a stop leaves.
//!
//! The files under test are those of the crates themselves. Only what threads meet at (`crate::sync`) is another: shuttle runs
//! one thread at a time and chooses who is next, so that a lost wake-up is a deadlock that it sees. Instead of a node there is a
//! [`Model`] that hands out commits and reads as the node does.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the files are included, with items that only the crates use"
)]

#[path = "../../riverlog-node/src/gate.rs"]
mod gate;
#[path = "../src/signals.rs"]
mod signals;
#[path = "../src/slot.rs"]
mod slot;
#[path = "../src/waiting.rs"]
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::{Config, Runner, thread};

use gate::Gate;
use signals::{Driven, Signals, finish, flush_loop, work_loop};
use slot::{Answer, NodeGone};
use sync::{Condvar, Mutex};
use waiting::Waiting;

/// What the crates' own `sync` modules offer, over shuttle's.
mod sync {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use shuttle::thread_local;

    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    /// `None` only while a condition variable has it.
    pub(crate) struct Guard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(shuttle::sync::Condvar::new())
        }
        pub(crate) fn wait<T>(&self, guard: &mut Guard<'_, T>) {
            let inner = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(inner).unwrap());
        }
        pub(crate) fn wait_for<T>(&self, _: &mut Guard<'_, T>, _: Duration) {
            panic!("deadlines of these tests are over when they are set");
        }
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

/// Orders tried at random, and as many with few changes of thread at places drawn.
const TRIES: usize = 1_500;

fn explore(test: impl Fn() + Send + Sync + Copy + 'static) {
    let config = || {
        let mut config = Config::new();
        config.stack_size = 0x2_0000;
        config
    };
    Runner::new(RandomScheduler::new_from_seed(1, TRIES), config()).run(test);
    Runner::new(PctScheduler::new_from_seed(1, 3, TRIES), config()).run(test);
}

enum Job {
    Commit(Vec<Answer<u32>>),
    Read(Answer<u32>),
}

/// Hands out jobs as the node does (`Node::take_flush`, `Node::want_flush`, `Node::flush_done`).
struct Model {
    signals: Arc<Signals<Job>>,
    gate: Gate,
    entry: Mutex<()>,
    /// What waits for a commit; `None`: the node is closed.
    queue: Mutex<Option<Vec<Answer<u32>>>>,
    reads: Mutex<Vec<Answer<u32>>>,
    due: Mutex<Option<Answer<u32>>>,
    committing: AtomicBool,
    commits: AtomicUsize,
    /// A commit ends only after so many reads.
    reads_first: usize,
    reads_done: Mutex<usize>,
    read_done: Condvar,
}

impl Driven for Model {
    type Job = Job;

    fn take_jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        {
            let _one = self.entry.lock();
            if self.gate.enter() {
                let mut queue = self.queue.lock();
                let group = queue.as_mut().map(std::mem::take).unwrap_or_default();
                if !group.is_empty() {
                    self.gate.out();
                    jobs.push(Job::Commit(group));
                }
            }
        }
        jobs.extend(self.reads.lock().drain(..).map(Job::Read));
        jobs
    }

    fn is_flush(job: &Job) -> bool {
        matches!(job, Job::Commit(_))
    }

    fn run(&self, job: Job) {
        match job {
            Job::Commit(group) => {
                let other = self.committing.swap(true, Ordering::SeqCst);
                assert!(!other, "two commits at once");
                {
                    let mut done = self.reads_done.lock();
                    while *done < self.reads_first {
                        self.read_done.wait(&mut done);
                    }
                }
                self.committing.store(false, Ordering::SeqCst);
                self.commits.fetch_add(1, Ordering::SeqCst);
                let more = {
                    let _one = self.entry.lock();
                    self.gate.back()
                };
                if more {
                    self.signals.jobs_ready();
                }
                for answer in group {
                    answer.put(1);
                }
            }
            Job::Read(answer) => {
                *self.reads_done.lock() += 1;
                self.read_done.notify_all();
                answer.put(2);
            }
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.due.lock().as_ref().map(|_| Duration::ZERO)
    }

    fn tick(&self) {
        let due = self.due.lock().take();
        if let Some(answer) = due {
            answer.put(3);
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl Model {
    fn publish(&self, helping: bool) -> Waiting<'_, Model, u32> {
        Waiting::ask(self, &self.signals, helping, |answer| {
            match self.queue.lock().as_mut() {
                Some(queue) => queue.push(answer),
                None => return,
            }
            if self.gate.want() {
                self.signals.jobs_ready();
            }
        })
    }

    fn read(&self) -> Waiting<'_, Model, u32> {
        Waiting::ask(self, &self.signals, false, |answer| {
            self.reads.lock().push(answer);
            self.signals.jobs_ready();
        })
    }

    fn soon(&self) -> Waiting<'_, Model, u32> {
        Waiting::ask(self, &self.signals, false, |answer| {
            *self.due.lock() = Some(answer);
            self.signals.deadline_changed();
        })
    }

    /// As the node at a stop: nothing is taken any more, and who waits is told.
    fn close(&self) {
        let left = self.queue.lock().take();
        drop(left);
    }
}

/// A model, and the threads that drive it.
struct Threads {
    model: Arc<Model>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Threads {
    fn start(workers: usize, reads_first: usize) -> Threads {
        let model = Arc::new(Model {
            signals: Arc::new(Signals::new()),
            gate: Gate::default(),
            entry: Mutex::new(()),
            queue: Mutex::new(Some(Vec::new())),
            reads: Mutex::new(Vec::new()),
            due: Mutex::new(None),
            committing: AtomicBool::new(false),
            commits: AtomicUsize::new(0),
            reads_first,
            reads_done: Mutex::new(0),
            read_done: Condvar::new(),
        });
        let mut threads = Vec::new();
        let driven = Arc::clone(&model);
        threads.push(thread::spawn(move || flush_loop(&*driven, &driven.signals)));
        for _ in 0..workers {
            let driven = Arc::clone(&model);
            threads.push(thread::spawn(move || work_loop(&*driven, &driven.signals)));
        }
        Threads { model, threads }
    }

    /// As `Driver::close`.
    fn stop(self) {
        self.model.signals.stop();
        for thread in self.threads {
            thread.join().unwrap();
        }
        finish(&*self.model, &self.model.signals);
        self.model.close();
    }
}

type Told = Result<u32, NodeGone>;

/// Each on a thread of its own.
fn callers(model: &Arc<Model>, calls: &[fn(&Model) -> Told]) -> Vec<thread::JoinHandle<Told>> {
    let start = |call: &fn(&Model) -> Told| {
        let (model, call) = (Arc::clone(model), *call);
        thread::spawn(move || call(&model))
    };
    calls.iter().map(start).collect()
}

fn answers(callers: Vec<thread::JoinHandle<Told>>) -> Vec<Option<u32>> {
    callers
        .into_iter()
        .map(|caller| caller.join().unwrap().ok())
        .collect()
}

#[test]
fn every_publisher_is_answered_whoever_commits() {
    explore(|| {
        let threads = Threads::start(1, 0);
        let helping = |model: &Model| model.publish(true).wait();
        let twice = |model: &Model| {
            model.publish(true).wait()?;
            model.publish(false).wait()
        };
        let callers = callers(&threads.model, &[helping, helping, twice]);
        assert_eq!(answers(callers), [Some(1); 3]);
        let commits = threads.model.commits.load(Ordering::SeqCst);
        assert!((1..=4).contains(&commits), "{commits} commits for 4");
        threads.stop();
    });
}

#[test]
fn who_asks_and_does_not_wait_leaves_the_commit_to_others() {
    explore(|| {
        let threads = Threads::start(1, 0);
        let leaving = |model: &Model| {
            drop(model.publish(true));
            Ok(0)
        };
        // It finds the commit wanted already, and waits for whoever was woken.
        let waiting = |model: &Model| model.publish(false).wait();
        let callers = callers(&threads.model, &[leaving, waiting]);
        assert_eq!(answers(callers), [Some(0), Some(1)]);
        threads.stop();
    });
}

#[test]
fn reads_are_done_while_a_commit_is_under_way() {
    explore(|| {
        let threads = Threads::start(2, 2);
        let publish = |model: &Model| model.publish(false).wait();
        let read = |model: &Model| model.read().wait();
        let callers = callers(&threads.model, &[publish, read, read]);
        assert_eq!(answers(callers), [Some(1), Some(2), Some(2)]);
        threads.stop();
    });
}

#[test]
fn a_helping_publisher_leaves_reads_to_the_workers() {
    explore(|| {
        let threads = Threads::start(2, 1);
        // Its own thread is in the commit, which ends only after the read.
        let publish = |model: &Model| model.publish(true).wait();
        let read = |model: &Model| model.read().wait();
        let callers = callers(&threads.model, &[publish, read]);
        assert_eq!(answers(callers), [Some(1), Some(2)]);
        threads.stop();
    });
}

#[test]
fn a_deadline_that_comes_closer_is_kept() {
    explore(|| {
        let threads = Threads::start(2, 0);
        let soon = |model: &Model| model.soon().wait();
        let read = |model: &Model| model.read().wait();
        let publish = |model: &Model| model.publish(true).wait();
        let callers = callers(&threads.model, &[soon, read, publish]);
        assert_eq!(answers(callers), [Some(3), Some(2), Some(1)]);
        threads.stop();
    });
}

#[test]
fn a_stop_leaves_nobody_waiting() {
    explore(|| {
        let threads = Threads::start(1, 0);
        let model = Arc::clone(&threads.model);
        let publish = |model: &Model| model.publish(false).wait();
        let helping = |model: &Model| model.publish(true).wait();
        let callers = callers(&model, &[publish, helping]);
        threads.stop();
        for answer in answers(callers) {
            assert!(matches!(answer, None | Some(1)), "{answer:?}");
        }
    });
}

#[test]
fn what_was_asked_before_a_stop_is_done() {
    explore(|| {
        let threads = Threads::start(1, 0);
        let model = Arc::clone(&threads.model);
        // A publisher that helps takes the read with its commit, perhaps after the workers have ended.
        let helping = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.publish(true).wait())
        };
        let read = model.read();
        threads.stop();
        assert_eq!(read.wait().ok(), Some(2));
        assert!(helping.join().is_ok());
    });
}
