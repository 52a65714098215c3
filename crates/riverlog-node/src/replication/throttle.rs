//! Bytes a second that catching up may take: `leader.replication.throttled.rate` of what a node gives, `follower.replication.throttled.rate` of
//! what it takes. Unlike in Kafka they hold for all copies that aren't in sync, also where no list names them.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::config::BrokerValues;

use crate::node::Node;

const LEADER: &str = "leader.replication.throttled.rate";
const FOLLOWER: &str = "follower.replication.throttled.rate";

/// How long at most is waited before it is looked at again: the rate may be another one by then.
const LOOK: Duration = Duration::from_secs(1);

/// One answer takes no more than what may pass in this time, so that it passes evenly.
const SHARE: Duration = Duration::from_millis(250);

/// The least that is asked for at once.
const LEAST: u64 = 16 << 10;

/// Both directions.
#[derive(Default)]
pub(super) struct Rates {
    pub(super) gives: Mutex<Throttle>,
    pub(super) takes: Mutex<Throttle>,
}

/// What is over the rate is paid for by waiting.
#[derive(Default)]
pub(super) struct Throttle {
    /// Bytes a second; `None`: no bound.
    rate: Option<u64>,
    /// When everything that passed is paid for.
    paid: Duration,
}

impl Throttle {
    fn set(&mut self, rate: Option<u64>) {
        if self.rate != rate {
            *self = Throttle {
                rate,
                paid: Duration::ZERO,
            };
        }
    }

    /// Bytes have passed.
    pub(super) fn passed(&mut self, bytes: usize, now: Now) {
        if let Some(rate) = self.rate.filter(|rate| *rate > 0) {
            let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate);
            let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.paid = self.paid.max(now.mono).saturating_add(takes);
        }
    }

    /// When to look again whether something may pass; `None`: something may now.
    pub(super) fn waits_until(&self, now: Now) -> Option<Duration> {
        let look = now.mono + LOOK;
        match self.rate {
            Some(0) => Some(look),
            // A wait of an instant isn't worth a timer.
            _ => (self.paid > now.mono + Duration::from_millis(1)).then_some(self.paid.min(look)),
        }
    }

    /// How much is to pass at once, at most.
    pub(super) fn at_once(&self, most: usize) -> usize {
        let Some(rate) = self.rate else {
            return most;
        };
        let share = u128::from(rate) * SHARE.as_millis() / 1_000;
        let share = u64::try_from(share).unwrap_or(u64::MAX).max(LEAST);
        usize::try_from(share).unwrap_or(most).min(most)
    }
}

impl Node {
    /// Takes the rates over from the node's own configs.
    pub(crate) fn follow_rates(&self, node_configs: &BTreeMap<String, String>) {
        let values = BrokerValues(node_configs);
        let rate = |key| values.text(key).and_then(|text| text.parse::<u64>().ok());
        let rates = &self.replication.rates;
        rates.gives.lock().set(rate(LEADER));
        rates.takes.lock().set(rate(FOLLOWER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now {
            mono: Duration::from_millis(ms),
            wall_ms: 0,
        }
    }

    #[test]
    fn what_is_over_the_rate_is_paid_for_by_waiting() {
        let mut throttle = Throttle::default();
        throttle.passed(1 << 30, at(0));
        assert_eq!(throttle.waits_until(at(0)), None);
        assert_eq!(throttle.at_once(5_000_000), 5_000_000);
        throttle.set(Some(1_000_000));
        assert_eq!(throttle.at_once(5_000_000), 250_000);
        throttle.passed(250_000, at(10));
        assert_eq!(
            throttle.waits_until(at(10)),
            Some(Duration::from_millis(260))
        );
        throttle.passed(500_000, at(20));
        assert_eq!(
            throttle.waits_until(at(20)),
            Some(Duration::from_millis(760))
        );
        assert_eq!(throttle.waits_until(at(760)), None);
        // Time in which nothing passed isn't saved up.
        throttle.passed(1_000_000, at(60_000));
        assert_eq!(
            throttle.waits_until(at(60_000)),
            Some(Duration::from_millis(61_000))
        );
        throttle.set(Some(0));
        assert!(throttle.waits_until(at(60_000)).is_some());
        throttle.set(None);
        assert_eq!(throttle.waits_until(at(60_000)), None);
    }
}
