//! The fingerprint of a run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Hashes what happens, in order; with `show` also prints it.
#[derive(Debug)]
pub(crate) struct Trace {
    // SipHash with fixed keys: the same in every process.
    hasher: DefaultHasher,
    show: bool,
}

impl Trace {
    pub(crate) fn new(show: bool) -> Trace {
        Trace {
            hasher: DefaultHasher::new(),
            show,
        }
    }
    pub(crate) fn shows(&self) -> bool {
        self.show
    }
    pub(crate) fn note(&mut self, at: Duration, what: &str) {
        self.hash_of(at, what);
        self.show(at, what);
    }
    /// A job: its time says which, for the fingerprint.
    pub(crate) fn job(&mut self, at: Duration, name: &str, cost: Duration) {
        at.hash(&mut self.hasher);
        cost.hash(&mut self.hasher);
        if self.show {
            self.show(at, &format!("{name}, for {cost:?}"));
        }
    }
    fn hash_of(&mut self, at: Duration, what: &str) {
        at.hash(&mut self.hasher);
        what.hash(&mut self.hasher);
    }
    fn show(&self, at: Duration, what: &str) {
        if self.show {
            println!("{:>12.6} {what}", at.as_secs_f64());
        }
    }
    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}
