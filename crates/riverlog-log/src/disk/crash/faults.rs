//! Which calls fail.

use std::io;

/// Which calls a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// `read_at`, `list`.
    Read,
    /// `write_at`, `set_len`.
    Write,
    /// `sync`, `sync_dir`.
    Sync,
    /// Making, renaming and removing files and folders.
    Folder,
}

/// How often a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// At the next call that matches.
    Once,
    /// At each call that matches.
    Forever,
}

type Matches = Box<dyn Fn(&str) -> bool + Send>;

struct Fault {
    on: FaultOn,
    times: Times,
    error: io::ErrorKind,
    matches: Matches,
}

#[derive(Default)]
pub(super) struct Faults {
    off: bool,
    changes_left: Option<u64>,
    /// From the first change of a path that matches on, so many are left.
    until_met: Option<(Matches, u64)>,
    faults: Vec<Fault>,
    misdirect: Option<(Matches, String, u64)>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults")
            .field("off", &self.off)
            .field("changes_left", &self.changes_left)
            .field("until_met", &self.until_met.is_some())
            .field("faults", &self.faults.len())
            .finish_non_exhaustive()
    }
}

/// What becomes of a call.
pub(super) enum Verdict {
    Go,
    Fail(io::Error),
    /// The power goes while it is under way: it counts as unsynced, and fails.
    FailAfter(io::Error),
}

impl Verdict {
    pub(super) fn or_fail(self) -> io::Result<()> {
        match self {
            Verdict::Go => Ok(()),
            Verdict::Fail(e) | Verdict::FailAfter(e) => Err(e),
        }
    }
}

fn no_power() -> io::Error {
    io::Error::other("the power is off")
}

impl Faults {
    pub(super) fn power_off(&mut self) {
        self.off = true;
    }
    pub(super) fn fail_after(&mut self, changes: u64) {
        self.changes_left = Some(changes);
    }
    pub(super) fn fail_after_meeting(&mut self, changes: u64, matches: Matches) {
        self.until_met = Some((matches, changes));
    }
    /// A change of `path` is about to be asked for.
    pub(super) fn meet(&mut self, path: &str) {
        if self.until_met.as_ref().is_some_and(|(m, _)| m(path)) {
            self.changes_left = self.until_met.take().map(|(_, changes)| changes);
        }
    }
    pub(super) fn is_off(&self) -> bool {
        self.off
    }
    pub(super) fn add(
        &mut self,
        on: FaultOn,
        times: Times,
        error: io::ErrorKind,
        matches: Matches,
    ) {
        self.faults.push(Fault {
            on,
            times,
            error,
            matches,
        });
    }
    pub(super) fn misdirect(&mut self, matches: Matches, path: &str, at: u64) {
        self.misdirect = Some((matches, path.to_owned(), at));
    }
    pub(super) fn heal(&mut self) {
        self.faults.clear();
        self.until_met = None;
        self.misdirect = None;
    }
    pub(super) fn alive(&self) -> io::Result<()> {
        if self.off { Err(no_power()) } else { Ok(()) }
    }
    pub(super) fn ask(&mut self, on: FaultOn, path: &str) -> Verdict {
        if self.off {
            return Verdict::Fail(no_power());
        }
        if on != FaultOn::Read {
            self.meet(path);
        }
        if on != FaultOn::Read
            && let Some(left) = &mut self.changes_left
        {
            if *left == 0 {
                self.off = true;
                return Verdict::FailAfter(no_power());
            }
            *left -= 1;
        }
        let hit = self
            .faults
            .iter()
            .position(|fault| fault.on == on && (fault.matches)(path));
        match hit {
            None => Verdict::Go,
            Some(i) => {
                let error = io::Error::new(self.faults[i].error, "a fault was asked for");
                if self.faults[i].times == Times::Once {
                    self.faults.remove(i);
                }
                Verdict::Fail(error)
            }
        }
    }
    /// Where a write to `path` goes instead.
    pub(super) fn misdirected(&mut self, path: &str) -> Option<(String, u64)> {
        if !self.misdirect.as_ref().is_some_and(|(m, _, _)| m(path)) {
            return None;
        }
        self.misdirect.take().map(|(_, path, at)| (path, at))
    }
}
