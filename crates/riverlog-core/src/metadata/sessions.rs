//! Which nodes were heard of lately: what the controller may forget.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::BrokerId;

use super::{AdminCommand, MetadataImage};
use crate::Now;

/// When each registered node was last heard of, on the controller's monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    heard: BTreeMap<BrokerId, (i64, Duration)>,
}

impl Sessions {
    /// A controller that takes over knows of nobody: each node has a whole session from now on.
    pub fn begin(&mut self) {
        self.heard.clear();
    }

    /// A node of that broker epoch was heard of.
    pub fn heard(&mut self, broker: BrokerId, epoch: i64, now: Now) {
        self.heard.insert(broker, (epoch, now.mono));
    }

    /// Nodes that are to be fenced, in order of id: those that aren't, and of which nothing was heard for `timeout`.
    pub fn expired(
        &mut self,
        image: &MetadataImage,
        timeout: Duration,
        now: Now,
    ) -> Vec<AdminCommand> {
        self.heard.retain(|id, _| image.brokers.contains_key(id));
        let mut expired = Vec::new();
        for broker in image.brokers.values().filter(|b| !b.fenced) {
            let (epoch, last) = self
                .heard
                .entry(broker.id)
                .or_insert((broker.epoch, now.mono));
            if *epoch != broker.epoch {
                (*epoch, *last) = (broker.epoch, now.mono);
            }
            let silent = now.mono.saturating_sub(*last) > timeout;
            if silent && !active(Mutant::SilentNeverFenced) {
                expired.push(AdminCommand::Fence {
                    broker: broker.id,
                    epoch: broker.epoch,
                });
            }
        }
        expired
    }

    /// When the next of those sessions ends that haven't, unless its node is heard of: a moment behind it. As of the last look at
    /// [`Sessions::expired`].
    pub fn next(&self, image: &MetadataImage, timeout: Duration, now: Now) -> Option<Duration> {
        let unfenced = image.brokers.values().filter(|b| !b.fenced);
        let ends = unfenced.filter_map(|b| {
            let (_, last) = self.heard.get(&b.id)?;
            Some(*last + timeout + Duration::from_millis(1))
        });
        ends.filter(|at| *at > now.mono).min()
    }
}
