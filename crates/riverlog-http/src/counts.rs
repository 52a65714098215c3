//! What the door counts: calls, by what they are and how they ended, and the time they took.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

/// Name without `_total`, words, and samples with their labels.
pub type Counted = (
    &'static str,
    &'static str,
    Vec<(Vec<(&'static str, String)>, f64)>,
);

/// Calls by name and status: how many, and how long they took together.
type Calls = BTreeMap<(&'static str, u16), (u64, Duration)>;

/// Calls since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Calls>);

impl Counts {
    /// One more. A stream counts when it begins.
    pub(crate) fn add(&self, call: &'static str, status: u16, took: Duration) {
        let mut counts = self.0.lock();
        let count = counts.entry((call, status)).or_default();
        count.0 += 1;
        count.1 += took;
    }

    pub(crate) fn read(&self) -> Vec<Counted> {
        let counts = self.0.lock();
        let mut seconds: BTreeMap<&'static str, f64> = BTreeMap::new();
        let mut requests = Vec::new();
        for ((call, status), (count, took)) in counts.iter() {
            let labels = vec![("call", (*call).to_owned()), ("status", status.to_string())];
            requests.push((labels, *count as f64));
            *seconds.entry(call).or_default() += took.as_secs_f64();
        }
        let seconds = seconds
            .into_iter()
            .map(|(call, sum)| (vec![("call", call.to_owned())], sum));
        vec![
            (
                "riverlog_http_requests",
                "Calls of /v1, by what they are and how they ended",
                requests,
            ),
            (
                "riverlog_http_request_seconds",
                "Time until the answers to calls of /v1 began",
                seconds.collect(),
            ),
        ]
    }
}
