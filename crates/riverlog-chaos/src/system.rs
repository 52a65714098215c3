//! Other programs, processes by id, the clock that clients share, and chance.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::{Failure, Result};

/// Runs a program to its end; what it wrote. An end other than 0 is a failure with its last words.
pub(crate) fn run(name: &str, args: &[impl AsRef<OsStr>]) -> Result<String> {
    let output = Command::new(name)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Lacks(format!("{name} can't be run: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Broken(format!(
        "{name}: {}: {}",
        output.status,
        words.trim()
    )))
}

/// Whether a program is on the path.
pub(crate) fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Whether we may mount.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Sends a signal to one process; one that has ended already is no failure.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Nanoseconds on the monotonic clock, as all processes of this machine see it.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits until something holds. False: it didn't within `limit`.
pub(crate) fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Chance from a seed (SplitMix64).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Below `bound`, which isn't 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    /// Sleeps for a while drawn from these milliseconds.
    pub(crate) fn pause_ms(&mut self, from: u64, to: u64) {
        let ms = from + self.below(to - from + 1);
        std::thread::sleep(Duration::from_millis(ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_tells_why_and_one_that_is_missing_is_lacking() {
        let Err(Failure::Broken(why)) = run("sh", &["-c", "echo no such luck >&2; exit 3"]) else {
            panic!("it failed");
        };
        assert!(why.contains("no such luck"), "{why}");
        let none: [&str; 0] = [];
        assert!(matches!(
            run("no-such-program-here", &none),
            Err(Failure::Lacks(_))
        ));
        assert!(has("sh") && !has("no-such-program-here"));
    }

    #[test]
    fn chance_is_the_same_from_the_same_seed() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.below(10), random.next()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
