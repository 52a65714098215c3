//! A copy of a group that a decision changes.

use super::GroupSettings;
use super::effects::Out;
use super::records::Record;
use crate::Now;

/// A group whose members the broker gives their parts.
pub(super) trait Drafted: Clone {
    /// What is kept of it.
    type Record;
    /// As if it had been read.
    fn draft(&mut self, record: &Self::Record, now: Now, settings: &GroupSettings);
    /// As it is kept.
    fn kept(group: &str, record: Self::Record) -> Record;
}

/// A copy of a group that a decision changes by the very records that it asks to append.
pub(super) struct Draft<'a, G> {
    pub(super) group: &'a str,
    pub(super) state: G,
    pub(super) now: Now,
    pub(super) settings: &'a GroupSettings,
    pub(super) out: &'a mut Out,
}

impl<'a, G: Drafted> Draft<'a, G> {
    pub(super) fn new(
        group: &'a str,
        state: &G,
        now: Now,
        settings: &'a GroupSettings,
        out: &'a mut Out,
    ) -> Self {
        Draft {
            group,
            state: state.clone(),
            now,
            settings,
            out,
        }
    }

    pub(super) fn record(&mut self, record: G::Record) {
        self.state.draft(&record, self.now, self.settings);
        self.out.record(&G::kept(self.group, record));
    }
}
