//! A call whose answer is still on its way, and who commits for it.

use std::sync::Arc;

use crate::signals::{Driven, Signals, run_jobs, with_help};
use crate::slot::{Answer, NodeGone, Slot};

/// A caller that has asked and not waited yet.
pub(crate) struct Waiting<'a, D: Driven, T> {
    driven: &'a D,
    signals: &'a Signals<D::Job>,
    slot: Arc<Slot<T>>,
    /// There are jobs that nobody else has been woken for.
    wanted: bool,
}

impl<'a, D: Driven, T> Waiting<'a, D, T> {
    /// Asks. `helping`: this thread is going to wait, and would rather run the group commit itself than wake another thread
    /// for it.
    pub(crate) fn ask(
        driven: &'a D,
        signals: &'a Signals<D::Job>,
        helping: bool,
        call: impl FnOnce(Answer<T>),
    ) -> Waiting<'a, D, T> {
        let slot = Slot::new();
        let answer = Answer(Arc::clone(&slot));
        let wanted = with_help(helping, || call(answer));
        Waiting {
            driven,
            signals,
            slot,
            wanted,
        }
    }

    /// Blocks until the answer is there.
    pub(crate) fn wait(mut self) -> Result<T, NodeGone> {
        if self.wanted && !self.slot.is_ready() {
            self.wanted = false;
            run_jobs(self.driven, self.signals, true);
        }
        self.slot.wait()
    }
}

impl<D: Driven, T> Drop for Waiting<'_, D, T> {
    fn drop(&mut self) {
        if self.wanted {
            self.signals.jobs_ready();
        }
    }
}
