//! A commit that was answered is kept, until a later one.

use riverlog_wire::Offset;

use super::{Model, Place, Violation};

/// The commits of a group in a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Commits {
    /// The last one that was answered with success.
    answered: Option<i64>,
    /// Sent, and not answered with success: any of them may have been stored after it.
    perhaps: Vec<Perhaps>,
    /// Nothing is remembered of what was answered before: any of it may be read.
    forgotten: bool,
}

impl Commits {
    /// What the members had read may be gone, and they begin anew.
    pub(super) fn forget(&mut self) {
        *self = Commits {
            forgotten: true,
            ..Commits::default()
        };
    }
}

#[derive(Clone, Copy, Debug)]
struct Perhaps {
    number: u64,
    offset: i64,
    /// It can have no effect later: the number of the first commit that was sent after that was known.
    settled: Option<u64>,
}

impl Model {
    /// A commit is on its way. Returns its number.
    pub(crate) fn commit_sent(&mut self, group: &str, place: Place, offset: Offset) -> u64 {
        self.next_commit += 1;
        let number = self.next_commit;
        let known = self.known(place);
        known.committed_to = known.committed_to.max(offset.0);
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
        commits.forgotten = false;
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
        let possible = commits.forgotten
            || read == commits.answered
            || commits.perhaps.iter().any(|p| Some(p.offset) == read);
        if !possible {
            let what =
                format!("{group} {place:?}: {commits:?} was answered or sent, {read:?} is read");
            return Err(Violation::new("a commit that was answered is kept", what));
        }
        Ok(())
    }
}
