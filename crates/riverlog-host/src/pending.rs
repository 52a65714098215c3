//! An answer on its way to a waiting thread.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use riverlog_node::Host;

use crate::{Driver, run_jobs};

/// The node was dropped before it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is closed")]
pub struct NodeGone;

/// A call whose answer may still be on its way.
pub struct Pending<'a, T> {
    pub(crate) driver: &'a Driver,
    pub(crate) slot: Arc<Slot<T>>,
    /// There are jobs that nobody else has been woken for.
    pub(crate) wanted: bool,
}

impl<T> std::fmt::Debug for Pending<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

impl<T> Pending<'_, T> {
    /// Blocks until the answer is there.
    pub fn wait(mut self) -> Result<T, NodeGone> {
        if self.wanted && !self.slot.is_ready() {
            self.wanted = false;
            run_jobs(
                &self.driver.node,
                &self.driver.signals,
                self.driver.clock,
                true,
            );
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

/// Where the answer is put.
pub(crate) struct Slot<T> {
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
    pub(crate) fn new() -> Arc<Slot<T>> {
        Arc::new(Slot {
            state: Mutex::new(SlotState::Waiting),
            ready: Condvar::new(),
        })
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
    fn wait(&self) -> Result<T, NodeGone> {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, SlotState::Waiting) {
                SlotState::Ready(value) => return Ok(value),
                SlotState::Dropped => return Err(NodeGone),
                SlotState::Waiting => self.ready.wait(&mut state),
            }
        }
    }
}

/// Fills a slot, or tells it that nothing will come.
pub(crate) struct Answer<T>(pub(crate) Arc<Slot<T>>);

impl<T> Answer<T> {
    pub(crate) fn put(self, value: T) {
        self.0.set(SlotState::Ready(value));
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.0.set(SlotState::Dropped);
    }
}
