//! How far a group is behind in one partition: the same numbers at every door.

/// What is known of a group in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The next offset that the group reads; `None` without a commit.
    pub committed: Option<i64>,
    /// First offset, and the next to be written (exclusive); `None` while nobody knows them.
    pub bounds: Option<(i64, i64)>,
    /// Time of the first record that isn't committed, ms since the epoch; `None` when there is none or it isn't known.
    pub waits_since: Option<i64>,
    /// `retention.ms` where records go by age.
    pub retention_ms: Option<i64>,
}

impl Standing {
    /// Records that wait; never negative. `None` without a commit, or where the bounds aren't known.
    pub fn lag(&self) -> Option<i64> {
        let (start, end) = self.bounds?;
        // What is deleted already won't be read.
        Some((end - self.committed?.max(start)).max(0))
    }

    /// Records that wait; all that there are where nothing was committed yet.
    pub fn waiting(&self) -> i64 {
        match (self.committed, self.bounds) {
            (None, Some((start, end))) => end - start,
            _ => self.lag().unwrap_or(0),
        }
    }

    /// Records that retention took before they were committed.
    pub fn lost(&self) -> i64 {
        match (self.bounds, self.committed) {
            (Some((start, _)), Some(committed)) => (start - committed).max(0),
            _ => 0,
        }
    }

    /// How long the first waiting record waits, in seconds.
    pub fn behind(&self, now_ms: i64) -> Option<f64> {
        match self.lag()? {
            0 => Some(0.0),
            _ => Some(now_ms.saturating_sub(self.waits_since?).max(0) as f64 / 1e3),
        }
    }

    /// Seconds until the first waiting record is old enough to be deleted; `None` when age deletes nothing that waits.
    pub fn time_to_loss(&self, now_ms: i64) -> Option<f64> {
        let loss = self.waits_since?.saturating_add(self.retention_ms?);
        Some(loss.saturating_sub(now_ms).max(0) as f64 / 1e3)
    }
}
