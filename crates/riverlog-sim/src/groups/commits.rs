//! What a group has committed: what was answered is kept, whoever coordinates the group.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Violation;

/// What is known of the offsets of a group. No two commits have the same offset, and later ones have a higher one.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Of which partition each was sent.
    sent: BTreeMap<i64, (String, i32)>,
    /// Of each partition, when which was answered.
    answered: BTreeMap<(String, i32), Vec<(Duration, i64)>>,
}

impl Commits {
    /// The next offset, for this partition.
    pub(crate) fn next(&mut self, topic: &str, partition: i32) -> i64 {
        let next = self.sent.last_key_value().map_or(1, |(last, _)| last + 1);
        self.sent.insert(next, (topic.to_owned(), partition));
        next
    }

    /// It was told that this is committed.
    pub(crate) fn answered(&mut self, offset: i64, now: Duration) {
        let Some(place) = self.sent.get(&offset) else {
            return;
        };
        let answered = self.answered.entry(place.clone()).or_default();
        if answered.last().is_none_or(|(_, last)| *last < offset) {
            answered.push((now, offset));
        }
    }

    /// Somebody was told what is committed: no less than what had been answered by then.
    pub(crate) fn read(
        &self,
        topic: &str,
        partition: i32,
        found: Option<i64>,
        by: Duration,
    ) -> Result<(), Violation> {
        let place = (topic.to_owned(), partition);
        let mut answered = self.answered.get(&place).into_iter().flatten().rev();
        let least = answered
            .find(|(at, _)| *at <= by)
            .map(|(_, offset)| *offset);
        if found < least {
            let what = format!("{topic}-{partition}: {found:?} after {least:?}");
            return Err(Violation::new("a commit that was answered is kept", what));
        }
        if let Some(found) = found
            && self.sent.get(&found) != Some(&place)
        {
            let what = format!("{topic}-{partition}: {found}");
            return Err(Violation::new("what was committed was sent", what));
        }
        Ok(())
    }
}
