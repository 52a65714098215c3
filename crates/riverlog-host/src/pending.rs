//! A call that waits for its answer.

use crate::OnClock;
use crate::slot::NodeGone;
use crate::waiting::Waiting;

/// A call whose answer may still be on its way.
pub struct Pending<'a, T>(pub(crate) Waiting<'a, OnClock, T>);

impl<T> std::fmt::Debug for Pending<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<T> Pending<'_, T> {
    /// Blocks until the answer is there.
    pub fn wait(self) -> Result<T, NodeGone> {
        self.0.wait()
    }
}
