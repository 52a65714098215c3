//! Whether a node's disk is up to what leading takes.
//!
//! A leader whose disk takes nothing, or takes it slowly, holds up everyone who writes to it, while others that are in sync could go on. So
//! the node tells the controller, which lets others lead. A disk is ailing from the moment at which it refuses writes, or a group commit
//! has been out for longer than `slow`; and until neither was seen for a while, which grows each time that it falls ill again soon: a
//! disk at the edge must not send leaderships to and fro.
//!
//! A node that stood still (a stopped process, a paused machine) finds its commit out for as long as that. It isn't the disk's fault, and is left
//! out. That it stood still shows in all that it does: a single thread may be late because it waits for the disk.

use std::time::Duration;

/// How long a disk has to be well until it may lead again, the first time: so many times as long as a commit may take.
const REST: u32 = 2;
/// The most that this grows to.
const LONGEST_REST: u32 = 16;
/// After being well for so long it begins anew.
const FORGOTTEN: u32 = 120;

/// The health of the disk of one node. All times are of the monotonic clock.
#[derive(Clone, Debug)]
pub struct DiskHealth {
    slow: Duration,
    rest: Duration,
    /// When the group commit that is out went out.
    out: Option<Duration>,
    ailing: bool,
    /// When something was wrong last, or it was found well again.
    since: Option<Duration>,
}

impl DiskHealth {
    /// A disk of which nothing is known. `slow`: a group commit that takes longer is too slow for a leader.
    pub fn new(slow: Duration) -> DiskHealth {
        DiskHealth {
            slow,
            rest: slow * REST,
            out: None,
            ailing: false,
            since: None,
        }
    }

    /// A group commit goes out.
    pub fn began(&mut self, now: Duration) {
        self.out = Some(now);
    }

    /// It came back.
    pub fn ended(&mut self, now: Duration) {
        if let Some(began) = self.out.take() {
            // Half of what it takes to fall ill keeps it so.
            let most = if self.ailing {
                self.slow / 2
            } else {
                self.slow
            };
            if now.saturating_sub(began) > most {
                self.fall_ill(now);
            }
        }
    }

    /// Whether others had better lead, as of now. `takes`: whether it takes writes at all.
    pub fn is_ailing(&mut self, takes: bool, now: Duration) -> bool {
        let late = self
            .out
            .is_some_and(|began| now.saturating_sub(began) > self.slow);
        if late || !takes {
            self.fall_ill(now);
        } else if self.ailing
            && self
                .since
                .is_none_or(|at| now.saturating_sub(at) >= self.rest)
        {
            self.ailing = false;
            self.since = Some(now);
        }
        self.ailing
    }

    /// For so long the node has done nothing at all, until now.
    pub fn stood_still(&mut self, stood: Duration, now: Duration) {
        if let Some(began) = &mut self.out {
            *began = began.saturating_add(stood).min(now);
        }
    }

    fn fall_ill(&mut self, now: Duration) {
        if !self.ailing {
            let soon = |at: Duration| now.saturating_sub(at) < self.slow * FORGOTTEN;
            self.rest = match self.since.is_some_and(soon) {
                true => (self.rest * 2).min(self.slow * LONGEST_REST),
                false => self.slow * REST,
            };
        }
        self.ailing = true;
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_disk_that_refuses_writes_is_ailing_at_once_and_until_it_has_taken_them_for_a_while() {
        let mut disk = DiskHealth::new(s(5));
        assert!(!disk.is_ailing(true, s(1)));
        assert!(disk.is_ailing(false, s(2)));
        assert!(disk.is_ailing(false, s(20)));
        assert!(disk.is_ailing(true, s(29)));
        assert!(!disk.is_ailing(true, s(30)));
    }

    #[test]
    fn a_commit_that_is_out_for_too_long_need_not_come_back_to_tell() {
        let mut disk = DiskHealth::new(s(5));
        disk.began(s(1));
        assert!(!disk.is_ailing(true, s(6)));
        assert!(disk.is_ailing(true, s(7)));
        disk.ended(s(8));
        // Half as slow is slow enough to stay.
        disk.began(s(10));
        disk.ended(s(13));
        assert!(disk.is_ailing(true, s(22)));
        disk.began(s(22));
        disk.ended(s(24));
        assert!(!disk.is_ailing(true, s(23)));
        disk.began(s(25));
        disk.ended(s(28));
        assert!(!disk.is_ailing(true, s(28)));
    }

    #[test]
    fn a_node_that_stood_still_does_not_take_its_disk_for_slow() {
        let mut disk = DiskHealth::new(s(5));
        for at in 1..10 {
            assert!(!disk.is_ailing(true, s(at)));
        }
        disk.began(s(9));
        // It stood still from 10 to 60, and looks before the commit comes back, or when it does.
        disk.stood_still(s(50), s(60));
        let mut other = disk.clone();
        assert!(!disk.is_ailing(true, s(60)));
        disk.ended(s(61));
        assert!(!disk.is_ailing(true, s(61)));
        other.ended(s(60));
        assert!(!other.is_ailing(true, s(61)));
        // Who looks may itself wait for the disk.
        let mut late = disk.clone();
        late.began(s(61));
        assert!(late.is_ailing(true, s(90)));
        // Slow is what takes long while the node looks.
        disk.began(s(62));
        for at in 62..67 {
            assert!(!disk.is_ailing(true, s(at)));
        }
        assert!(disk.is_ailing(true, s(68)));
    }

    #[test]
    fn one_that_falls_ill_again_soon_rests_for_longer_each_time() {
        let mut disk = DiskHealth::new(s(5));
        let mut at = s(1);
        let mut rests = Vec::new();
        for _ in 0..5 {
            assert!(disk.is_ailing(false, at));
            let ill = at;
            while disk.is_ailing(true, at) {
                at += s(1);
            }
            rests.push((at - ill).as_secs());
            at += s(1);
        }
        assert_eq!(rests, [10, 20, 40, 80, 80]);
        at += s(600);
        assert!(disk.is_ailing(false, at));
        assert!(!disk.is_ailing(true, at + s(10)));
    }
}
