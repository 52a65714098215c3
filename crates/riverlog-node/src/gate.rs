//! At most one group commit is out; what is queued meanwhile is for the next one, and somebody must be woken for that.

use crate::sync::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Gate {
    /// Entries may be queued for the write-ahead log.
    wanted: AtomicBool,
    /// A group commit is out.
    out: AtomicBool,
}

impl Gate {
    /// Something was queued. True: the host is to be told; else it has been, or will be when the commit that is out comes back.
    pub(crate) fn want(&self) -> bool {
        !self.wanted.swap(true, Ordering::SeqCst) && !self.out.load(Ordering::SeqCst)
    }

    /// Whether the caller may look for a commit to hand out. Callers exclude each other until they have said whether one is
    /// [`Gate::out`].
    pub(crate) fn enter(&self) -> bool {
        !self.out.load(Ordering::SeqCst) && self.wanted.swap(false, Ordering::SeqCst)
    }

    /// A commit is handed out.
    pub(crate) fn out(&self) {
        self.out.store(true, Ordering::SeqCst);
    }

    /// It has come back; excludes those who [`Gate::enter`]. True: something was queued meanwhile, and the host is to be told.
    pub(crate) fn back(&self) -> bool {
        self.out.store(false, Ordering::SeqCst);
        self.wanted.load(Ordering::SeqCst)
    }
}
