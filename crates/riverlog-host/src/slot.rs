//! An answer on its way from one thread to another.

use std::sync::Arc;

use crate::sync::{Condvar, Mutex};

/// The node was dropped before it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is closed")]
pub struct NodeGone;

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
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(*self.state.lock(), SlotState::Waiting)
    }
    fn set(&self, value: SlotState<T>) {
        let mut state = self.state.lock();
        if matches!(*state, SlotState::Waiting) {
            *state = value;
            self.ready.notify_one();
        }
    }
    pub(crate) fn wait(&self) -> Result<T, NodeGone> {
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
