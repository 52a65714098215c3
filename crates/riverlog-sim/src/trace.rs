//! The fingerprint of a run.

use std::hash::{DefaultHasher, Hash, Hasher};

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
    pub(crate) fn note(&mut self, at: std::time::Duration, what: &str) {
        at.hash(&mut self.hasher);
        what.hash(&mut self.hasher);
        if self.show {
            println!("{:>12.6} {what}", at.as_secs_f64());
        }
    }
    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}
