//! What the volume knows of each log, and which part of the write-ahead log is still needed for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{LogKey, LogMark};
use crate::wal::{Lsn, Mark};

/// One log. There may be a hundred thousand.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogState {
    pub(super) mark: LogMark,
    /// Entries that end at or before it are in the mark and in synced segments.
    pub(super) covered: Lsn,
    /// End of its last entry.
    last: Lsn,
    /// Start of its first entry that isn't covered.
    pin: Option<Lsn>,
    /// Entries that end at or before it, and aren't covered, are in a file of their own.
    /// 0: there are none.
    kept: Lsn,
    /// Opened in this process's life.
    pub(super) opened: bool,
    /// The checkpoint, or the write-ahead log, had a mark for it.
    pub(super) known: bool,
}

impl LogState {
    pub(super) fn new(found: Option<Mark>, covered: Lsn) -> LogState {
        let none = LogMark {
            start: 0.into(),
            end: 0.into(),
            segments_synced: 0.into(),
            size_bytes: 0,
            last_epoch: riverlog_wire::LeaderEpoch(-1),
            check: Default::default(),
        };
        let covered = found.map_or(covered, |found| found.covered);
        LogState {
            mark: found.map_or(none, |found| found.mark),
            covered,
            last: covered,
            pin: None,
            kept: Lsn(0),
            opened: false,
            known: found.is_some(),
        }
    }
    /// What a checkpoint says of it.
    pub(super) fn found(&self) -> Mark {
        Mark {
            mark: self.mark,
            covered: self.covered,
        }
    }
}

/// Why a place of the write-ahead log is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// Entries that aren't in synced segments.
    Entries,
    /// Truncations, start offsets and marks that aren't in two checkpoints.
    Mark,
    /// A deletion that isn't in two checkpoints.
    Deleted,
}

/// Start of the oldest entry of one log that only a mark keeps, by how far the mark has come.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// Not in the mark yet.
    open: Option<(Lsn, Lsn)>,
    /// In the mark.
    marked: Option<Lsn>,
    /// In the checkpoint being written.
    writing: Option<Lsn>,
    /// In the last checkpoint; the one before must have it too.
    written: Option<Lsn>,
}

impl Marks {
    fn oldest(&self) -> Option<Lsn> {
        let open = self.open.map(|(start, _)| start);
        [open, self.marked, self.writing, self.written]
            .into_iter()
            .flatten()
            .min()
    }
}

fn older(a: Option<Lsn>, b: Option<Lsn>) -> Option<Lsn> {
    a.into_iter().chain(b).min()
}

#[derive(Clone, Copy, Debug)]
struct Deletion {
    start: Lsn,
    end: Lsn,
    /// Its folder has been removed, durably.
    gone: bool,
    writing: bool,
    checkpoints: u8,
    /// Place after the entry that says that the log was made anew.
    anew: Option<Lsn>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    logs: BTreeMap<LogKey, LogState>,
    pins: BTreeSet<(Lsn, Why, LogKey)>,
    marks: BTreeMap<LogKey, Marks>,
    deletions: BTreeMap<LogKey, Deletion>,
}

impl Table {
    /// `logs` in order of key.
    pub(super) fn new(logs: impl Iterator<Item = (LogKey, LogState)>) -> Table {
        Table {
            // Built at once, so that the nodes of the map are full.
            logs: logs.collect(),
            ..Table::default()
        }
    }
    pub(super) fn get(&self, key: LogKey) -> Option<&LogState> {
        self.logs.get(&key)
    }
    pub(super) fn get_mut(&mut self, key: LogKey) -> Option<&mut LogState> {
        self.logs.get_mut(&key)
    }
    pub(super) fn insert(&mut self, key: LogKey, state: LogState) {
        self.logs.insert(key, state);
    }
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&LogKey, &LogState)> {
        self.logs.iter()
    }
    /// An entry of `key` lies at `range`; `marked`: it lives on in the log's mark only.
    pub(super) fn submitted(&mut self, key: LogKey, range: Range<Lsn>, marked: bool) {
        let state = self
            .logs
            .entry(key)
            .or_insert_with(|| LogState::new(None, range.start));
        state.last = range.end;
        if state.pin.is_none() {
            state.pin = Some(range.start);
            self.pins.insert((range.start, Why::Entries, key));
        }
        if marked {
            self.change_marks(key, |marks| {
                let start = marks.open.map_or(range.start, |(start, _)| start);
                marks.open = Some((start, range.end));
            });
        }
    }
    fn change_marks(&mut self, key: LogKey, change: impl FnOnce(&mut Marks)) {
        let marks = self.marks.entry(key).or_default();
        let before = marks.oldest();
        change(marks);
        let after = marks.oldest();
        if after.is_none() {
            self.marks.remove(&key);
        }
        if before != after {
            if let Some(lsn) = before {
                self.pins.remove(&(lsn, Why::Mark, key));
            }
            if let Some(lsn) = after {
                self.pins.insert((lsn, Why::Mark, key));
            }
        }
    }
    /// Everything of `key` before `before` is covered by `mark` and synced segments. Returns what must be written to
    /// the write-ahead log: when the entries there could do harm to what came after them, and when entries are released,
    /// since from then on nothing else tells recovery that the segments hold acknowledged records up to there. Damage in
    /// them would look like a tail that was never synced.
    pub(super) fn covered(&mut self, key: LogKey, mark: LogMark, before: Lsn) -> Option<Mark> {
        let state = self.logs.get_mut(&key)?;
        let backwards = mark.end < state.mark.end
            || mark.segments_synced < state.mark.segments_synced
            || mark.start < state.mark.start;
        state.mark = mark;
        state.known = true;
        state.covered = state.covered.max(before);
        let covered = state.covered;
        // What is in a file of its own must not be done again on what comes later.
        let mut released = state.kept > Lsn(0) && state.kept <= covered;
        let mut behind_kept = None;
        if released {
            state.kept = Lsn(0);
            // A group may make the release durable and the mark not: recovery then does what is in the file again, a cut
            // perhaps, and nothing but these entries brings back what came behind it.
            behind_kept = state.pin.filter(|pin| *pin < covered);
        }
        if let Some(pin) = state.pin.filter(|pin| *pin < covered) {
            released = true;
            self.pins.remove(&(pin, Why::Entries, key));
            state.pin = (covered < state.last).then_some(covered);
            if let Some(pin) = state.pin {
                self.pins.insert((pin, Why::Entries, key));
            }
        }
        let mut newly = false;
        if behind_kept.is_some() || self.marks.contains_key(&key) {
            self.change_marks(key, |marks| {
                marks.marked = older(marks.marked, behind_kept);
                if let Some((start, end)) = marks.open.filter(|(start, _)| *start < covered) {
                    newly = true;
                    marks.marked = older(marks.marked, Some(start));
                    marks.open = (covered < end).then_some((covered, end));
                }
            });
        }
        (newly || backwards || released).then_some(Mark { mark, covered })
    }
    /// A mark of `key` lies at `range` of the write-ahead log.
    pub(super) fn mark_submitted(&mut self, key: LogKey, range: Range<Lsn>) {
        self.change_marks(key, |marks| {
            marks.marked = older(marks.marked, Some(range.start));
        });
    }
    /// The entries of `key` that end at or before `until` are in a file of their own, durably: the write-ahead log isn't needed
    /// for them. Whether the log is there.
    pub(super) fn kept(&mut self, key: LogKey, until: Lsn) -> bool {
        let Some(state) = self.logs.get_mut(&key) else {
            return false;
        };
        if state.covered < until {
            state.kept = until;
            state.last = state.last.max(until);
        }
        if let Some(pin) = state.pin.filter(|pin| *pin < until) {
            self.pins.remove(&(pin, Why::Entries, key));
            state.pin = (until < state.last).then_some(until);
            if let Some(pin) = state.pin {
                self.pins.insert((pin, Why::Entries, key));
            }
        }
        if self.marks.contains_key(&key) {
            self.change_marks(key, |marks| {
                if let Some((_, end)) = marks.open.filter(|(start, _)| *start < until) {
                    marks.open = (until < end).then_some((until, end));
                }
            });
        }
        true
    }
    /// Whether recovery needs the file in which entries of `key` are.
    pub(super) fn needs_kept(&self, key: LogKey) -> bool {
        let kept = self.logs.get(&key).is_some_and(|s| s.kept > Lsn(0));
        // The mark that covers them must be in two checkpoints.
        kept || self.marks.contains_key(&key)
    }
    /// The log is no more; the entry that says so follows.
    pub(super) fn remove(&mut self, key: LogKey) {
        if let Some(LogState { pin: Some(pin), .. }) = self.logs.remove(&key) {
            self.pins.remove(&(pin, Why::Entries, key));
        }
        self.change_marks(key, |marks| *marks = Marks::default());
    }
    pub(super) fn deletion_submitted(&mut self, key: LogKey, range: Range<Lsn>) {
        let start = match self.deletions.get(&key) {
            Some(earlier) if earlier.checkpoints < 2 => earlier.start,
            _ => range.start,
        };
        self.pins.insert((start, Why::Deleted, key));
        let deletion = Deletion {
            start,
            end: range.end,
            gone: false,
            writing: false,
            checkpoints: 0,
            anew: None,
        };
        self.deletions.insert(key, deletion);
    }
    pub(super) fn folder_gone(&mut self, key: LogKey) {
        if let Some(deletion) = self.deletions.get_mut(&key) {
            deletion.gone = true;
        }
    }
    /// Start has removed all folders that don't belong to a log, but of those that it could not look at.
    pub(super) fn folders_gone_except(&mut self, failed: &BTreeSet<LogKey>) {
        for (key, deletion) in &mut self.deletions {
            deletion.gone |= !failed.contains(key);
        }
    }
    /// Whether recovery may still find in the write-ahead log that `key` was deleted.
    pub(super) fn deleted_lately(&self, key: LogKey) -> bool {
        self.deletions.contains_key(&key)
    }
    /// Whether an entry before `durable` says that `key` was deleted, and nothing has come of it since.
    pub(super) fn deletion_is_durable(&self, key: LogKey, durable: Lsn) -> bool {
        let said = |d: &Deletion| d.end <= durable && d.anew.is_none();
        !self.logs.contains_key(&key) && self.deletions.get(&key).is_some_and(said)
    }
    /// The place that must be durable before a log that was deleted lately can be used again.
    pub(super) fn anew(&mut self, key: LogKey) -> Option<&mut Option<Lsn>> {
        let deletion = self.deletions.get_mut(&key)?;
        Some(&mut deletion.anew)
    }
    /// Recovery finds nothing any more that ends before `released`.
    pub(super) fn released(&mut self, released: Lsn) {
        // Those that are still needed end behind it.
        self.deletions.retain(|_, d| d.end > released);
    }
    /// The oldest place that is needed.
    pub(super) fn oldest(&self) -> Option<Lsn> {
        self.pins.first().map(|(lsn, ..)| *lsn)
    }
    /// Whether segments of some log must be synced before the write-ahead log isn't needed.
    pub(super) fn any_entries(&self) -> bool {
        let needed = |state: &LogState| state.pin.is_some() || state.kept > Lsn(0);
        self.logs.values().any(needed)
    }
    /// The logs that need entries before `before`, oldest first.
    pub(super) fn unsynced_before(&self, before: Lsn) -> Vec<LogKey> {
        let needed = self.pins.iter().take_while(|(lsn, ..)| *lsn < before);
        needed
            .filter(|(_, why, _)| *why == Why::Entries)
            .map(|(.., key)| *key)
            .collect()
    }
    /// What keeps the write-ahead log from being used again before `before`, but for deletions.
    pub(super) fn needed_before(&self, before: Lsn) -> impl Iterator<Item = (Lsn, LogKey)> {
        let needed = self.pins.iter().take_while(move |(lsn, ..)| *lsn < before);
        needed
            .filter(|(_, why, _)| *why != Why::Deleted)
            .map(|(lsn, _, key)| (*lsn, *key))
    }
    /// Whether a checkpoint would free something before `before`, or lead to it; the write-ahead log is durable up to `durable`.
    pub(super) fn unmarked_before(&self, before: Lsn, durable: Lsn) -> bool {
        let mut needed = self.pins.iter().take_while(|(lsn, ..)| *lsn < before);
        needed.any(|(_, why, key)| match why {
            Why::Entries => false,
            // Before its folder is gone and its entry durable, no number of checkpoints ends the need for it.
            Why::Deleted => {
                let deletion = self.deletions.get(key);
                deletion.is_some_and(|d| d.gone && d.end <= durable)
            }
            // What isn't in a mark yet waits for its log, not for a checkpoint.
            Why::Mark => self
                .marks
                .get(key)
                .is_some_and(|m| older(m.marked, m.written).is_some()),
        })
    }
    /// The table as it is now is being written; the write-ahead log is durable up to `durable`.
    pub(super) fn checkpoint_begun(&mut self, durable: Lsn) {
        let keys: Vec<LogKey> = self.marks.keys().copied().collect();
        for key in keys {
            self.change_marks(key, |marks| marks.writing = marks.marked.take());
        }
        for deletion in self.deletions.values_mut() {
            // Until its entry is durable, entries from before it may come back.
            deletion.writing = deletion.gone && deletion.end <= durable;
        }
    }
    pub(super) fn checkpoint_done(&mut self, written: bool) {
        let keys: Vec<LogKey> = self.marks.keys().copied().collect();
        for key in keys {
            self.change_marks(key, |marks| {
                let writing = marks.writing.take();
                if written {
                    marks.written = writing;
                } else {
                    marks.marked = older(marks.marked, writing);
                }
            });
        }
        for (key, deletion) in &mut self.deletions {
            if written && deletion.writing {
                deletion.checkpoints = deletion.checkpoints.saturating_add(1);
                if deletion.checkpoints == 2 {
                    self.pins.remove(&(deletion.start, Why::Deleted, *key));
                }
            }
            deletion.writing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use riverlog_wire::{LeaderEpoch, Offset, PartitionIndex, TopicId};

    use super::*;

    const KEY: LogKey = LogKey {
        topic: TopicId(*b"riverlog-log-tst"),
        partition: PartitionIndex(3),
    };

    fn mark(end: i64) -> LogMark {
        LogMark {
            start: Offset(0),
            end: Offset(end),
            segments_synced: Offset(end),
            size_bytes: 0,
            last_epoch: LeaderEpoch(0),
            check: Default::default(),
        }
    }

    #[test]
    fn entries_behind_what_was_put_aside_are_kept_until_two_checkpoints_have_the_mark() {
        let mut table = Table::default();
        table.submitted(KEY, Lsn(0)..Lsn(100), false);
        table.submitted(KEY, Lsn(100)..Lsn(144), true);
        assert!(table.kept(KEY, Lsn(200)));
        assert_eq!(table.oldest(), None);
        table.submitted(KEY, Lsn(200)..Lsn(300), false);
        table.submitted(KEY, Lsn(300)..Lsn(400), false);

        // Segments that don't hold all that was put aside release nothing.
        assert_eq!(table.covered(KEY, mark(1), Lsn(150)), None);
        assert_eq!(table.oldest(), Some(Lsn(200)));

        let told = table.covered(KEY, mark(2), Lsn(400)).expect("a mark");
        assert_eq!((told.mark, told.covered), (mark(2), Lsn(400)));
        table.mark_submitted(KEY, Lsn(400)..Lsn(500));
        assert_eq!(table.oldest(), Some(Lsn(200)));
        assert!(table.needs_kept(KEY));
        assert!(table.unmarked_before(Lsn(300), Lsn(500)));
        for needed in [Some(Lsn(200)), None] {
            table.checkpoint_begun(Lsn(500));
            table.checkpoint_done(true);
            assert_eq!(table.oldest(), needed);
        }
        assert!(!table.needs_kept(KEY));
    }

    #[test]
    fn entries_of_a_log_of_which_nothing_was_put_aside_go_when_they_are_covered() {
        let mut table = Table::default();
        table.submitted(KEY, Lsn(200)..Lsn(300), false);
        assert!(table.covered(KEY, mark(2), Lsn(300)).is_some());
        table.mark_submitted(KEY, Lsn(300)..Lsn(400));
        assert_eq!(table.oldest(), Some(Lsn(300)));
    }
}
