//! Bounds with names. Over one of them a request waits or is refused; nothing grows silently.

use std::sync::atomic::{AtomicUsize, Ordering};

/// So much of something, and no more.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Budget {
        Budget {
            used: AtomicUsize::new(0),
            limit,
        }
    }

    /// Takes `n`, unless that passes the limit. Something is always granted when nothing is taken, however
    /// large, so that a single request over the limit can still be served alone.
    #[must_use]
    pub(crate) fn take(&self, n: usize) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                let after = used.saturating_add(n);
                (used == 0 || after <= self.limit).then_some(after)
            })
            .is_ok()
    }

    /// Whether `n` more would leave half of it free: until then callers that can wait need not.
    pub(crate) fn is_calm(&self, n: usize) -> bool {
        let used = self.used();
        used == 0 || used.saturating_add(n) <= self.limit / 2
    }

    /// Gives `n` back.
    pub(crate) fn give(&self, n: usize) {
        let before = self.used.fetch_sub(n, Ordering::Relaxed);
        debug_assert!(before >= n, "a budget was given back more than was taken");
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_what_is_over_it_but_never_the_first() {
        let budget = Budget::new(10);
        assert!(budget.take(100));
        assert!(!budget.take(1));
        budget.give(100);
        assert!(budget.take(6));
        assert!(!budget.take(5));
        assert!(budget.take(4));
        assert!(!budget.is_calm(1));
        budget.give(7);
        assert!(budget.is_calm(2));
        assert!(!budget.is_calm(3));
        assert!(budget.take(7));
        budget.give(10);
        assert_eq!(budget.used(), 0);
    }
}
