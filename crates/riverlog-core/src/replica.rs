//! One replica of a partition: what may be acknowledged and read.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_wire::{BrokerId, LeaderEpoch, Offset};

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Position {
    /// Everything before it is in that node's operating system.
    pub written: Offset,
    /// Everything before it survives a power cut of that node.
    pub synced: Offset,
}

/// The leader's view of a partition (design: the high watermark is the least `synced` over the whole ISR on a `sync`
/// topic, the least `written` on a `page-cache` topic).
#[derive(Clone, Debug)]
pub struct Leader {
    /// This leadership's epoch.
    pub epoch: LeaderEpoch,
    own: Position,
    high_watermark: Offset,
    sync: bool,
    followers: BTreeMap<BrokerId, Follower>,
}

#[derive(Clone, Debug)]
struct Follower {
    position: Position,
    caught_up: Duration,
    in_sync: bool,
}

impl Leader {
    /// A leadership that begins with a log `own`, and the high watermark known so far.
    pub fn new(epoch: LeaderEpoch, own: Position, high_watermark: Offset, sync: bool) -> Leader {
        Leader {
            epoch,
            own,
            high_watermark,
            sync,
            followers: BTreeMap::new(),
        }
    }
    /// Everything before it is on every in-sync replica; never goes back.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }
    /// In-sync replicas, this one included.
    pub fn isr_len(&self) -> usize {
        1 + self.followers.values().filter(|f| f.in_sync).count()
    }
    /// Our own log moved. Returns the new high watermark when it moved.
    pub fn on_own_position(&mut self, own: Position) -> Option<Offset> {
        // A log that was cut back after a failed write is shorter than before; what was acknowledged is below the
        // high watermark, which advance() never pulls down.
        self.own = own;
        self.advance()
    }
    /// The topic's durability changed.
    pub fn set_sync(&mut self, sync: bool) -> Option<Offset> {
        self.sync = sync;
        self.advance()
    }
    fn advance(&mut self) -> Option<Offset> {
        let at = |p: &Position| if self.sync { p.synced } else { p.written };
        let slowest = self
            .followers
            .values()
            .filter(|f| f.in_sync)
            .map(|f| at(&f.position))
            .fold(at(&self.own), Offset::min);
        let _ = self.followers.values().map(|f| f.caught_up).max();
        (slowest > self.high_watermark).then(|| {
            self.high_watermark = slowest;
            slowest
        })
    }
}
