//! What a voter must not forget: its vote, its entries, a snapshot in place of those that are gone. All of them are in memory as well:
//! metadata since the last snapshot is small.

mod committed;
mod frame;
mod journal;
mod lane;
mod snapshot;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::iter::Peekable;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use parking_lot::Mutex;
use riverlog_log::Disk;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::BrokerId;

use crate::encode::entry_size;
use crate::error::QuorumError;
use crate::raft::{
    DiskId, Entry, LogId, Membership, SnapshotMeta, StoredMembership, Term, Types, Vote, vote,
};
use journal::{Identity, Journal, Line};
use lane::{Hand, Lane, Task};

pub(crate) use snapshot::{State, decode as decode_snapshot, encode as encode_snapshot};

const LOCK: &str = "quorum/lock";

/// Bytes of the entries that are sent, or written, at once, unless a single one is longer.
const TOGETHER: usize = 1 << 20;

/// How the files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// By a thread of their own.
    Thread,
    /// At once, by whoever asks: for a simulated run.
    Inline,
}

/// The open folder of a voter.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    identity: Identity,
    memory: Mutex<Memory>,
    lane: Lane,
    _lock: Box<dyn Send + Sync>,
}

/// What the files say together.
#[derive(Clone, Debug, Default)]
struct Memory {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
    committed: Option<LogId>,
    snapshot: Option<(SnapshotMeta, State)>,
}

impl Memory {
    fn last(&self) -> Option<LogId> {
        let last = self.entries.last_key_value();
        last.map(|(_, entry)| entry.log_id).or(self.purged)
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Identity(_) => {}
            Line::Vote(vote) => self.vote = Some(vote),
            Line::Cut(after) => self.cut(after),
            Line::Purged(upto) => self.purge(upto),
            Line::Entries(entries) => {
                for entry in entries {
                    let expected = self.last().map_or(0, |last| last.index + 1);
                    if entry.log_id.index != expected {
                        return Err(format!(
                            "entry {} follows where {expected} is due",
                            entry.log_id.index
                        ));
                    }
                    self.entries.insert(entry.log_id.index, entry);
                }
            }
        }
        Ok(())
    }

    fn cut(&mut self, after: Option<u64>) {
        let _gone = self.entries.split_off(&after.map_or(0, |index| index + 1));
    }

    fn purge(&mut self, upto: LogId) {
        self.entries = self.entries.split_off(&(upto.index + 1));
        self.purged = Some(upto);
    }

    /// The shortest journal that says the same.
    fn lines(&self, identity: &Identity) -> Vec<Line> {
        let mut lines = vec![Line::Identity(identity.clone())];
        lines.extend(self.vote.map(Line::Vote));
        lines.extend(self.purged.map(Line::Purged));
        // In pieces, none of which is longer than a frame can be.
        let mut rest = self.entries.values().peekable();
        loop {
            let some = first_of(&mut rest);
            if some.is_empty() {
                return lines;
            }
            lines.push(Line::Entries(some));
        }
    }
}

/// Entries of [`TOGETHER`] bytes at most, or one that is longer; none where there are none.
fn first_of<'a>(entries: &mut Peekable<impl Iterator<Item = &'a Entry>>) -> Vec<Entry> {
    let (mut some, mut bytes) = (Vec::new(), 0);
    while let Some(entry) = entries.next_if(|next| {
        bytes += entry_size(next);
        some.is_empty() || bytes <= TOGETHER
    }) {
        some.push(entry.clone());
    }
    some
}

impl Store {
    /// Opens the folder `quorum` of a data folder, and makes it when it isn't there.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        broker: BrokerId,
        writes: Writes,
    ) -> Result<Store, QuorumError> {
        disk.create_dir_all(journal::FOLDER)
            .map_err(QuorumError::disk(journal::FOLDER))?;
        let lock = disk.lock(LOCK).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => QuorumError::InUse,
            _ => QuorumError::disk(LOCK)(error),
        })?;
        let mut memory = Memory {
            snapshot: snapshot::load(&*disk)?,
            ..Memory::default()
        };
        let (identity, journal) = match Journal::open(Arc::clone(&disk))? {
            Some((journal, lines)) => {
                let mut identity = None;
                for line in lines {
                    if let Line::Identity(found) = &line {
                        identity = Some(found.clone());
                    }
                    memory
                        .take(line)
                        .map_err(|why| QuorumError::damaged("quorum/journal", why))?;
                }
                let identity =
                    identity.ok_or_else(|| QuorumError::damaged("quorum/journal", "nobody's"))?;
                (identity, journal)
            }
            None if memory.snapshot.is_some() => {
                // The snapshot comes after the journal, and never alone.
                return Err(QuorumError::damaged("quorum/journal", "it is missing"));
            }
            None => {
                let drawn = disk.draw_id().map_err(QuorumError::disk("quorum"))?;
                let identity = Identity {
                    disk: DiskId(drawn as u64),
                    broker,
                };
                let first = [Line::Identity(identity.clone())];
                (identity, Journal::create(Arc::clone(&disk), &first)?)
            }
        };
        let held = memory
            .snapshot
            .as_ref()
            .and_then(|(meta, _)| meta.last_log_id);
        if memory.purged > held {
            return Err(QuorumError::damaged(
                "quorum/snapshot",
                "entries are gone that it doesn't hold",
            ));
        }
        memory.committed = committed::read(&*disk).filter(|upto| Some(*upto) <= memory.last());
        let hand = Hand {
            disk,
            journal,
            held,
        };
        let lane = match writes {
            Writes::Inline => Lane::inline(hand),
            Writes::Thread => Lane::thread(hand).map_err(QuorumError::disk("quorum"))?,
        };
        Ok(Store {
            shared: Arc::new(Shared {
                identity,
                memory: Mutex::new(memory),
                lane,
                _lock: lock,
            }),
        })
    }

    pub(crate) fn disk_id(&self) -> DiskId {
        self.shared.identity.disk
    }

    pub(crate) fn broker(&self) -> BrokerId {
        self.shared.identity.broker
    }

    /// Whether it has never been part of a quorum: neither voted nor heard of an entry.
    pub(crate) fn is_blank(&self) -> bool {
        let memory = self.shared.memory.lock();
        memory.vote.is_none() && memory.last().is_none() && memory.snapshot.is_none()
    }

    /// Begins a log whose first entries are already in a snapshot.
    pub(crate) async fn found(&self, state: State, members: Membership) -> Result<(), QuorumError> {
        let first = LogId::new(Term::new(1), 1);
        let meta = SnapshotMeta {
            last_log_id: Some(first),
            last_membership: StoredMembership::new(Some(first), members),
        };
        self.save_snapshot(meta, state)
            .await
            .map_err(QuorumError::disk("quorum/snapshot"))?;
        let lines = {
            let mut memory = self.shared.memory.lock();
            memory.purge(first);
            memory.vote = Some(vote(1, self.disk_id(), true));
            memory.lines(&self.shared.identity)
        };
        self.shared
            .lane
            .durable(|done| Task::Rewrite(lines, done))
            .await
            .map_err(QuorumError::disk("quorum/journal"))
    }

    /// Keeps a snapshot, unless what is kept reaches as far: one that was made here may be done only after the leader has sent a newer one.
    pub(crate) async fn save_snapshot(&self, meta: SnapshotMeta, state: State) -> io::Result<()> {
        let encoded = encode_snapshot(&meta, &state)?;
        let upto = meta.last_log_id;
        self.shared
            .lane
            .durable(|done| Task::Snapshot(upto, encoded, done))
            .await?;
        // The files have had them in order; who waited for them goes on in any.
        let mut memory = self.shared.memory.lock();
        let held = memory.snapshot.as_ref().map(|(held, _)| held.last_log_id);
        if held.is_none_or(|held| upto > held) {
            memory.snapshot = Some((meta, state));
        }
        Ok(())
    }

    pub(crate) fn snapshot(&self) -> Option<(SnapshotMeta, State)> {
        self.shared.memory.lock().snapshot.clone()
    }
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<R>(&mut self, range: R) -> io::Result<Vec<Entry>>
    where
        R: RangeBounds<u64> + Clone + Debug + Send,
    {
        let memory = self.shared.memory.lock();
        Ok(memory
            .entries
            .range(range)
            .map(|(_, e)| e.clone())
            .collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.memory.lock().vote)
    }

    /// What goes into one Append: the library counts entries, and the time that they take on a slow link hangs on their bytes.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let memory = self.shared.memory.lock();
        let range = memory.entries.range(start..end).map(|(_, entry)| entry);
        Ok(first_of(&mut range.peekable()))
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let memory = self.shared.memory.lock();
        Ok(LogState {
            last_purged_log_id: memory.purged,
            last_log_id: memory.last(),
        })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let line = Line::Vote(*vote);
        let lane = &self.shared.lane;
        if !active(Mutant::VoteNotStored) {
            lane.durable(|done| Task::Append(line, done)).await?;
        }
        self.shared.memory.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let mut memory = self.shared.memory.lock();
        if let Some(upto) = committed.filter(|_| committed > memory.committed) {
            memory.committed = committed;
            drop(memory);
            self.shared.lane.put(Task::Committed(upto));
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.shared.memory.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        {
            let mut memory = self.shared.memory.lock();
            for entry in &entries {
                memory.entries.insert(entry.log_id.index, entry.clone());
            }
        }
        let done = Box::new(move |result| flushed.io_completed(result));
        self.shared
            .lane
            .put(Task::Append(Line::Entries(entries), done));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let after = last.map(|last| last.index);
        self.shared.memory.lock().cut(after);
        let lane = &self.shared.lane;
        lane.durable(|done| Task::Append(Line::Cut(after), done))
            .await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let lines = {
            let mut memory = self.shared.memory.lock();
            memory.purge(upto);
            memory.lines(&self.shared.identity)
        };
        let lane = &self.shared.lane;
        lane.durable(|done| Task::Rewrite(lines, done)).await
    }
}
