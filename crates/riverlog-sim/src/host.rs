//! The simulator's side of a node: flags instead of threads.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riverlog_node::{Host, Notice};

/// Remembers that the node has jobs or another deadline.
#[derive(Debug, Default)]
pub(crate) struct SimHost {
    jobs: AtomicBool,
    deadline: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    said: AtomicBool,
}

impl SimHost {
    pub(crate) fn take_jobs(&self) -> bool {
        self.jobs.swap(false, Ordering::Relaxed)
    }
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock())
    }
    /// It has something for other nodes, or for the quorum.
    pub(crate) fn take_said(&self) -> bool {
        self.said.swap(false, Ordering::Relaxed)
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
    fn notice(&self, notice: Notice) {
        self.notices.lock().push(notice);
    }
    fn proposals_ready(&self) {
        self.said.store(true, Ordering::Relaxed);
    }
    fn outbox_ready(&self) {
        self.said.store(true, Ordering::Relaxed);
    }
}
