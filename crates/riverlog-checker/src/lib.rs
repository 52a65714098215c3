//! Judges a run by its history: what clients sent, read, committed and were told, and when.
//!
//! The checker knows nothing of the log, the server or the faults: it takes what clients saw and says which promise that
//! breaks. So the simulator, tests over simulated sockets, and real processes with real clients are judged by one rule.
//!
//! ```
//! use riverlog_checker::{Event, What, check, place};
//!
//! let there = place("orders", 0);
//! let event = |at, what| Event { at, client: "p".into(), what };
//! let history = [
//!     event(1, What::Send { place: there.clone(), value: "a".into(), txn: None }),
//!     event(2, What::Ack { place: there.clone(), value: "a".into(), offset: 0 }),
//!     event(9, What::Whole { since: 8, place: there, start: 0, end: 0, records: vec![], read_committed: false }),
//! ];
//! let report = check(&history);
//! assert_eq!(report.anomalies[0].kind.name(), "lost");
//! ```
//!
//! What is legal, and no anomaly: interleaved writes of different transactions, gaps in the offsets, skips and repeats
//! across a rebalance, duplicates of a producer that sends again without idempotence, and anything about an operation of
//! unknown outcome.

mod anomaly;
mod history;
mod known;
mod rules;

pub use anomaly::{Anomaly, Kind};
pub use history::{Event, HistoryError, Place, What, place, read, write};

use known::Known;

/// Nanoseconds after the last fault within which every client must have moved again (promise P11: 30 s).
pub const STUCK_AFTER_NS: u64 = 30_000_000_000;

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Values that were sent.
    pub sent: usize,
    /// Of these, acknowledged.
    pub acknowledged: usize,
    /// Records that polls and whole reads returned.
    pub read: usize,
    /// Transactions.
    pub transactions: usize,
    /// Offset commits that were acknowledged.
    pub committed: usize,
    /// Faults.
    pub faults: usize,
}

/// What a history shows.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In order of kind; empty when the history keeps every promise.
    pub anomalies: Vec<Anomaly>,
    /// How much was looked at: a run that did nothing finds nothing.
    pub counts: Counts,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// Lines of one kind; the rest is counted.
        const MOST: usize = 10;
        let Counts {
            sent,
            acknowledged,
            read,
            transactions,
            committed,
            faults,
        } = self.counts;
        write!(
            f,
            "{sent} sent, {acknowledged} acknowledged, {read} read, {transactions} transactions, {committed} commits, \
             {faults} faults: "
        )?;
        if self.anomalies.is_empty() {
            return write!(f, "no anomaly");
        }
        write!(f, "{} anomalies", self.anomalies.len())?;
        for of_kind in self.anomalies.chunk_by(|a, b| a.kind == b.kind) {
            for anomaly in of_kind.iter().take(MOST) {
                write!(f, "\n  {anomaly}")?;
            }
            if let Some(more) = of_kind.len().checked_sub(MOST).filter(|more| *more > 0) {
                write!(f, "\n  … and {more} more like these")?;
            }
        }
        Ok(())
    }
}

/// Judges a history. The events may come in any order: they are sorted by time first, equal times as given.
pub fn check(events: &[Event]) -> Report {
    let mut sorted: Vec<&Event> = events.iter().collect();
    sorted.sort_by_key(|event| event.at);
    let known = Known::new(sorted);
    let mut anomalies = rules::all(&known);
    anomalies.sort_by_key(|anomaly| anomaly.kind);
    Report {
        anomalies,
        counts: known.counts(),
    }
}
