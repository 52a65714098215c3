//! Nodes that were fenced a moment ago, which clients are still told of.
//!
//! A node that starts anew is fenced until the controller has let it in, and serves clients meanwhile. A client that isn't told of a node
//! gives up what it has with it: librdkafka 2.16 ends its connections, and one that waits there for the answer to a commit connects to nobody
//! any more. Kafka's clients are told of a node that has died for a session too, until the controller has noticed.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_wire::BrokerId;

use super::MetadataImage;

/// When nodes were fenced, as far as this one has seen.
#[derive(Debug, Default)]
pub struct FencedLately(BTreeMap<BrokerId, Duration>);

impl FencedLately {
    /// An image counts from `now` on, on the monotonic clock.
    pub fn applied(&mut self, image: &MetadataImage, now: Duration) {
        self.0
            .retain(|id, _| image.brokers.get(id).is_some_and(|b| b.fenced));
        for broker in image.brokers.values().filter(|b| b.fenced) {
            self.0.entry(broker.id).or_insert(now);
        }
    }

    /// Whether a node was fenced less than `time` ago.
    pub fn contains(&self, id: BrokerId, time: Duration, now: Duration) -> bool {
        let since = self.0.get(&id);
        since.is_some_and(|since| now.saturating_sub(*since) < time)
    }
}
