//! The simulator's side of a node: flags instead of threads.

use std::sync::atomic::{AtomicBool, Ordering};

use riverlog_node::Host;

/// Remembers that the node has jobs or another deadline.
#[derive(Debug, Default)]
pub(crate) struct SimHost {
    jobs: AtomicBool,
    deadline: AtomicBool,
}

impl SimHost {
    pub(crate) fn take_jobs(&self) -> bool {
        self.jobs.swap(false, Ordering::Relaxed)
    }
    pub(crate) fn take_deadline(&self) -> bool {
        self.deadline.swap(false, Ordering::Relaxed)
    }
}

impl Host for SimHost {
    fn jobs_ready(&self) {
        self.jobs.store(true, Ordering::Relaxed);
    }
    fn deadline_changed(&self) {
        self.deadline.store(true, Ordering::Relaxed);
    }
}
