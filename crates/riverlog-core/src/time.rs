//! Time as an argument.

use std::time::Duration;

/// The two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Since the host started; never goes back. Deadlines are in this clock.
    pub mono: Duration,
    /// Wall clock, ms since the epoch; may jump. Timestamps of records and retention are in this clock.
    pub wall_ms: i64,
}
