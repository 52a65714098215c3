//! The high watermark never goes back, nor does what was deleted; nothing is deleted that nobody wanted to be; and a bounded
//! topic holds no more than its bound.

use riverlog_wire::Offset;

use super::{Model, Place, Violation};

impl Model {
    /// Where a log begins and how far it can be read, after each step.
    pub(crate) fn positions(
        &mut self,
        place: Place,
        log_start: Offset,
        high_watermark: Offset,
    ) -> Result<(), Violation> {
        let rules = self.rules.get(place.0).copied().unwrap_or_default();
        let known = self.known(place);
        if known.seen == Some((log_start.0, high_watermark.0)) {
            return Ok(());
        }
        known.seen = Some((log_start.0, high_watermark.0));
        if high_watermark.0 < known.high_watermark {
            let what = format!(
                "{place:?} from {} to {high_watermark}",
                known.high_watermark
            );
            return Err(Violation::new("the high watermark never goes back", what));
        }
        // A start that retention moved, or DeleteRecords before its answer, may be found again after a crash.
        if log_start.0 < known.deleted_to {
            let what = format!("{place:?} from {} to {log_start}", known.deleted_to);
            return Err(Violation::new("what was deleted stays deleted", what));
        }
        if log_start > high_watermark {
            let what = format!("{place:?} start {log_start}, high watermark {high_watermark}");
            return Err(Violation::new(
                "the log start is at or below the high watermark",
                what,
            ));
        }
        known.high_watermark = high_watermark.0;
        known.highest = known.highest.max(high_watermark.0);
        if known.deleting > 0 {
            // All of it, perhaps.
            known.asked_to = known.highest;
        }
        let by_count = rules.keeps.map_or(0, |keep| known.highest - keep);
        let by_commit = match rules.bound {
            Some(_) => known.committed_to,
            None => 0,
        };
        let most = known.asked_to.max(by_count).max(by_commit);
        if log_start.0 > most {
            let what = format!("{place:?} begins at {log_start}, asked for was {most} at most");
            return Err(Violation::new("nothing is deleted unasked", what));
        }
        if let Some(bound) = rules.bound
            && high_watermark.0 > (log_start.0 + bound).max(known.opened_to)
        {
            let what = format!("{place:?} holds {log_start}..{high_watermark}, at most {bound}");
            return Err(Violation::new(
                "a bounded topic holds no more than its bound",
                what,
            ));
        }
        Ok(())
    }

    /// A node has opened a log that ends there. What was appended, and not acknowledged, may be found again without the move of the
    /// start that made room for it.
    pub(crate) fn opened(&mut self, place: Place, end: Offset) {
        self.known(place).opened_to = end.0;
    }

    /// DeleteRecords is on its way.
    pub(crate) fn deleting(&mut self, place: Place, before: Offset) {
        let known = self.known(place);
        known.asked_to = known.asked_to.max(before.0);
        // −1 means the high watermark of the moment when it arrives.
        known.deleting += u64::from(before.0 < 0);
        if before.0 < 0 {
            known.asked_to = known.asked_to.max(known.highest);
        }
    }

    /// It was answered, or never will be.
    pub(crate) fn deleted(&mut self, place: Place, before: Offset, to: Option<Offset>) {
        let known = self.known(place);
        if before.0 < 0 {
            known.deleting = known.deleting.saturating_sub(1);
            known.asked_to = known.asked_to.max(known.highest);
        }
        if let Some(to) = to {
            known.deleted_to = known.deleted_to.max(to.0);
            known.asked_to = known.asked_to.max(to.0);
        }
    }
}
