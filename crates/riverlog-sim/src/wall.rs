//! The wall clock of a node: it may be wrong, and be set right.

use std::time::Duration;

/// A clock that goes at its own rate from where it last jumped to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wall {
    /// Where it stood, in ms since the epoch, at this moment of the monotonic clock.
    at: (i64, Duration),
    /// Parts of a million that it goes too fast.
    drift_ppm: i64,
}

/// How far it may be wrong: brokers refuse records of producers whose clock is an hour off.
const MOST_MS: i64 = 25 * 60_000;
const BEGIN_MS: i64 = 1_700_000_000_000;

impl Wall {
    pub(crate) fn new() -> Wall {
        Wall {
            at: (BEGIN_MS, Duration::ZERO),
            drift_ppm: 0,
        }
    }
    /// In ms since the epoch.
    pub(crate) fn at(&self, clock: Duration) -> i64 {
        let passed = clock.saturating_sub(self.at.1).as_micros() as i64;
        let drift = passed / 1_000 * self.drift_ppm / 1_000_000;
        self.at.0 + passed / 1_000 + drift
    }
    pub(crate) fn jump(&mut self, clock: Duration, by_ms: i64, drift_ppm: i64) {
        let right = BEGIN_MS + clock.as_millis() as i64;
        let to = (self.at(clock) + by_ms).clamp(right - MOST_MS, right + MOST_MS);
        self.at = (to, clock);
        self.drift_ppm = drift_ppm;
    }
}
