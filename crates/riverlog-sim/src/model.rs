//! What must be true: what clients were told, and what is read.

use std::collections::BTreeMap;

use riverlog_wire::Offset;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, what: String) -> Violation {
        Violation { invariant, what }
    }
}

/// A partition, by topic number in the swarm's list and partition index.
pub(crate) type Place = (usize, i32);

/// What is known of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Acknowledged or read: offset to value. A power cut takes those of page-cache topics that were not known to be synced.
    contents: BTreeMap<i64, String>,
    /// Offset of each value that is known to be stored.
    places: BTreeMap<String, i64>,
    high_watermark: i64,
    /// Where DeleteRecords was answered.
    deleted_to: i64,
}

/// The commits of a group in a partition.
#[derive(Clone, Debug, Default)]
struct Commits {
    /// The last one that was answered with success.
    answered: Option<i64>,
    /// Sent, and not answered with success: any of them may have been stored after it.
    perhaps: Vec<Perhaps>,
}

#[derive(Clone, Copy, Debug)]
struct Perhaps {
    number: u64,
    offset: i64,
    /// It can have no effect later: the number of the first commit that was sent after that was known.
    settled: Option<u64>,
}

/// All that clients know, checked as it grows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    partitions: BTreeMap<Place, Known>,
    /// Group, place: what was committed.
    commits: BTreeMap<(String, Place), Commits>,
    next_commit: u64,
    /// Operations that were checked.
    pub(crate) checked: u64,
}

impl Model {
    fn known(&mut self, place: Place) -> &mut Known {
        self.partitions.entry(place).or_default()
    }

    /// A publish was answered.
    pub(crate) fn acknowledged(
        &mut self,
        place: Place,
        base: Offset,
        values: &[String],
    ) -> Result<(), Violation> {
        for (i, value) in values.iter().enumerate() {
            self.content(place, base.0 + i as i64, value, "an acknowledgement")?;
        }
        Ok(())
    }

    /// A value was read at an offset, below the high watermark.
    pub(crate) fn read(
        &mut self,
        place: Place,
        offset: Offset,
        value: &str,
    ) -> Result<(), Violation> {
        self.content(place, offset.0, value, "a read")
    }

    fn content(
        &mut self,
        place: Place,
        offset: i64,
        value: &str,
        who: &str,
    ) -> Result<(), Violation> {
        self.checked += 1;
        let known = self.known(place);
        if let Some(before) = known.contents.get(&offset)
            && before != value
        {
            let what = format!("{place:?} offset {offset} was {before:?}, {who} says {value:?}");
            return Err(Violation::new("one content for each offset", what));
        }
        if let Some(before) = known.places.get(value)
            && *before != offset
        {
            let what = format!("{place:?} has {value:?} at {before} and, by {who}, at {offset}");
            return Err(Violation::new(
                "no duplicates from idempotent producers",
                what,
            ));
        }
        known.contents.insert(offset, value.to_owned());
        known.places.insert(value.to_owned(), offset);
        Ok(())
    }

    /// A value that was sent without idempotence may be stored more than once: it is not looked for twice.
    pub(crate) fn positions(
        &mut self,
        place: Place,
        log_start: Offset,
        high_watermark: Offset,
    ) -> Result<(), Violation> {
        let known = self.known(place);
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
        Ok(())
    }

    /// DeleteRecords was answered.
    pub(crate) fn deleted(&mut self, place: Place, to: Offset) {
        let known = self.known(place);
        known.deleted_to = known.deleted_to.max(to.0);
    }

    /// What a power cut may take of a topic that opted out of syncing: all that we can't know to be on the disk.
    pub(crate) fn power_cut_of_page_cache(&mut self, topic: usize) {
        for (place, known) in &mut self.partitions {
            if place.0 == topic {
                *known = Known::default();
            }
        }
        self.commits.retain(|(_, place), _| place.0 != topic);
    }

    /// A partition was read from its start to its high watermark: everything known must have been there.
    pub(crate) fn read_whole(
        &mut self,
        place: Place,
        log_start: Offset,
        found: &[(Offset, String)],
    ) -> Result<(), Violation> {
        for (offset, value) in found {
            self.read(place, *offset, value)?;
        }
        let offsets: std::collections::BTreeSet<i64> = found.iter().map(|(o, _)| o.0).collect();
        let known = self.known(place);
        for (offset, value) in known.contents.range(log_start.0..) {
            if !offsets.contains(offset) {
                let what = format!(
                    "{place:?} offset {offset}, {value:?}; start {log_start}, {} found",
                    offsets.len()
                );
                return Err(Violation::new("what was acknowledged is there", what));
            }
        }
        Ok(())
    }

    /// A commit is on its way. Returns its number.
    pub(crate) fn commit_sent(&mut self, group: &str, place: Place, offset: Offset) -> u64 {
        self.next_commit += 1;
        let number = self.next_commit;
        let commits = self.commits.entry((group.to_owned(), place)).or_default();
        commits.perhaps.push(Perhaps {
            number,
            offset: offset.0,
            settled: None,
        });
        number
    }

    /// A commit was answered: it is stored, or, without success, perhaps.
    pub(crate) fn commit_answered(&mut self, group: &str, place: Place, number: u64, stored: bool) {
        self.checked += 1;
        let next = self.next_commit + 1;
        let Some(commits) = self.commits.get_mut(&(group.to_owned(), place)) else {
            return;
        };
        let Some(at) = commits.perhaps.iter().position(|p| p.number == number) else {
            return;
        };
        if !stored {
            commits.perhaps[at].settled = Some(next);
            return;
        }
        commits.answered = Some(commits.perhaps.swap_remove(at).offset);
        // Whatever was over when this one was sent lies before it.
        commits
            .perhaps
            .retain(|p| p.settled.is_none_or(|settled| settled > number));
    }

    /// A committed offset was read.
    pub(crate) fn commit_read(
        &mut self,
        group: &str,
        place: Place,
        offset: Option<Offset>,
    ) -> Result<(), Violation> {
        self.checked += 1;
        let Some(commits) = self.commits.get(&(group.to_owned(), place)) else {
            return Ok(());
        };
        let read = offset.map(|o| o.0);
        let possible =
            read == commits.answered || commits.perhaps.iter().any(|p| Some(p.offset) == read);
        if !possible {
            let what =
                format!("{group} {place:?}: {commits:?} was answered or sent, {read:?} is read");
            return Err(Violation::new("a commit that was answered is kept", what));
        }
        Ok(())
    }
}
