//! Who is woken for what: one thread for the group commit, others for everything else and for time.
//!
//! A caller that would only wait for the group commit runs it itself when none is running: that saves two thread switches for
//! a lone publisher, and the next group forms meanwhile all the same.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// What the threads drive: a node, and its clock.
pub(crate) trait Driven {
    /// Work that takes time.
    type Job;
    /// What has come up since the last call.
    fn take_jobs(&self) -> Vec<Self::Job>;
    /// Whether it is a group commit.
    fn is_flush(job: &Self::Job) -> bool;
    /// Does it, and all that follows from it.
    fn run(&self, job: Self::Job);
    /// When [`Driven::tick`] is to be called next.
    fn next_deadline(&self) -> Option<Duration>;
    /// Does what time brings.
    fn tick(&self);
    /// The time, on the clock of the deadlines.
    fn elapsed(&self) -> Duration;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Help {
    No,
    /// This thread calls the node and will look at the jobs itself afterwards.
    Offered,
    /// There are jobs, and nobody else has been woken for them.
    Wanted,
}

crate::sync::thread_local! {
    static HELP: Cell<Help> = const { Cell::new(Help::No) };
}

/// Calls the node. `helping`: this thread will look at the jobs that come of it, and nobody is woken for them. Returns whether
/// there are any.
pub(crate) fn with_help(helping: bool, call: impl FnOnce()) -> bool {
    let offer = if helping { Help::Offered } else { Help::No };
    HELP.with(|help| help.set(offer));
    call();
    HELP.with(|help| help.replace(Help::No)) == Help::Wanted
}

/// Where the threads sleep.
pub(crate) struct Signals<J> {
    state: Mutex<State<J>>,
    flush: Condvar,
    work: Condvar,
}

struct State<J> {
    /// `take_jobs` has something that nobody has looked at.
    jobs: bool,
    /// The next deadline came closer.
    deadline: bool,
    /// Jobs that another thread took and left for the workers.
    queue: VecDeque<J>,
    flush_idle: bool,
    stop: bool,
}

impl<J> Signals<J> {
    pub(crate) fn new() -> Signals<J> {
        Signals {
            state: Mutex::new(State {
                jobs: false,
                deadline: false,
                queue: VecDeque::new(),
                flush_idle: false,
                stop: false,
            }),
            flush: Condvar::new(),
            work: Condvar::new(),
        }
    }

    /// There are jobs to take. Called by the node, on any thread.
    pub(crate) fn jobs_ready(&self) {
        let helped = HELP.with(|help| match help.get() {
            Help::No => false,
            Help::Offered | Help::Wanted => {
                help.set(Help::Wanted);
                true
            }
        });
        if helped {
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

    /// The next deadline came closer. Called by the node, on any thread.
    pub(crate) fn deadline_changed(&self) {
        self.state.lock().deadline = true;
        self.work.notify_one();
    }

    /// Ends the loops. What is in the workers' queue stays, for [`finish`]; who would leave something there from now on does
    /// it himself: nobody looks there any more.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.flush.notify_all();
        self.work.notify_all();
    }

    /// Leaves a job to the workers; gives it back when they have ended.
    fn leave(&self, job: J) -> Option<J> {
        {
            let mut state = self.state.lock();
            if state.stop {
                return Some(job);
            }
            state.queue.push_back(job);
        }
        self.work.notify_one();
        None
    }
}

/// Takes the jobs there are. Flushes run here; others too unless `leave_others` puts them in the workers' queue. Returns whether
/// there were any.
pub(crate) fn run_jobs<D: Driven>(
    driven: &D,
    signals: &Signals<D::Job>,
    leave_others: bool,
) -> bool {
    let jobs = driven.take_jobs();
    let any = !jobs.is_empty();
    let (flushes, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(D::is_flush);
    for job in others {
        let mine = match leave_others {
            true => signals.leave(job),
            false => Some(job),
        };
        if let Some(job) = mine {
            driven.run(job);
        }
    }
    // The next group, if any, is announced by `jobs_ready`: a publisher doesn't commit for others for ever.
    for job in flushes {
        driven.run(job);
    }
    any
}

/// The thread of the group commit, until [`Signals::stop`].
pub(crate) fn flush_loop<D: Driven>(driven: &D, signals: &Signals<D::Job>) {
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
        run_jobs(driven, signals, true);
    }
}

/// What a worker does next.
enum Next<J> {
    /// Looks at new jobs, at what is due, or when that will be.
    Look {
        jobs: bool,
        due: bool,
    },
    Run(J),
}

/// A thread for everything else, until [`Signals::stop`].
pub(crate) fn work_loop<D: Driven>(driven: &D, signals: &Signals<D::Job>) {
    loop {
        let deadline = driven.next_deadline();
        let next = {
            let mut state = signals.state.lock();
            loop {
                if state.stop {
                    return;
                }
                let due = deadline.is_some_and(|d| d <= driven.elapsed());
                // While the group commit runs, nobody else looks at new jobs (a cold read, say).
                let jobs = state.jobs && !state.flush_idle;
                // Who has said that it looks does so before a job that may take long: nobody else will.
                if jobs || due || state.deadline {
                    state.deadline = false;
                    if jobs {
                        state.jobs = false;
                    }
                    break Next::Look { jobs, due };
                }
                if let Some(job) = state.queue.pop_front() {
                    break Next::Run(job);
                }
                match deadline {
                    Some(at) => {
                        let wait = at
                            .saturating_sub(driven.elapsed())
                            .max(Duration::from_micros(100));
                        signals.work.wait_for(&mut state, wait);
                    }
                    None => signals.work.wait(&mut state),
                }
            }
        };
        match next {
            Next::Run(job) => driven.run(job),
            Next::Look { jobs, due } => {
                if jobs {
                    for job in driven.take_jobs() {
                        if let Some(job) = signals.leave(job) {
                            driven.run(job);
                        }
                    }
                }
                if due {
                    driven.tick();
                }
            }
        }
    }
}

/// After the loops have ended: does what was left, and what comes of it.
pub(crate) fn finish<D: Driven>(driven: &D, signals: &Signals<D::Job>) {
    let left: Vec<_> = signals.state.lock().queue.drain(..).collect();
    for job in left {
        driven.run(job);
    }
    while run_jobs(driven, signals, false) {}
}
