//! The fingerprint of a run.

use std::fmt::{self, Display, Write};
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
    pub(crate) fn note(&mut self, at: Duration, what: impl Display) {
        at.hash(&mut self.hasher);
        // Nothing that is noted refuses to be written.
        let _always_ok = writeln!(Hashed(&mut self.hasher), "{what}");
        self.show(at, what);
    }
    /// A job: its time says which, for the fingerprint.
    pub(crate) fn job(&mut self, at: Duration, name: &str, cost: Duration) {
        at.hash(&mut self.hasher);
        cost.hash(&mut self.hasher);
        if self.show {
            self.show(at, format_args!("{name}, for {cost:?}"));
        }
    }
    /// Prints it, with `show`; nothing of it goes into the fingerprint.
    pub(crate) fn show(&self, at: Duration, what: impl Display) {
        if self.show {
            println!("{:>12.6} {what}", at.as_secs_f64());
        }
    }
    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}

/// Text goes into the fingerprint without being put together first.
struct Hashed<'a>(&'a mut DefaultHasher);

impl Write for Hashed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
