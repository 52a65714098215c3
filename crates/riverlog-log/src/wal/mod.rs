//! The write-ahead log of a volume: batches of all `sync` partitions in one recycled file set, one
//! `fdatasync` a group. Format and recovery: `docs/format/wal.md`.

mod format;
mod ring;
mod scan;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_wire::Offset;

pub(crate) use self::format::Mark;
use self::format::{BLOCK, Crc, ENTRY_HEAD, GROUP_HEADER, GroupHeader, Logged, group_bytes};
use self::ring::{Ring, Segment, Slot, slot_of, slot_path};
use crate::disk::failed;
use crate::volume::LogKey;
use crate::{Disk, DiskError, DiskFile, OpenError, OpenMode};

/// A place in the write-ahead log: counts bytes since the volume was made and never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Lsn(pub u64);

/// What recovery must do again. Entries of one log are in the order in which they were submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalEntry {
    /// One or more whole batches, as they lie in the segment, `base..next`.
    Append {
        /// The log.
        key: LogKey,
        /// Offset of the first record.
        base: Offset,
        /// Offset after the last record.
        next: Offset,
        /// Their bytes.
        batches: Bytes,
    },
    /// The log was cut: nothing at or after `to` is left.
    Truncate {
        /// The log.
        key: LogKey,
        /// The new end.
        to: Offset,
    },
    /// Nothing before `to` can be read any more; `to` may be the end, or beyond it (start anew there).
    StartOffset {
        /// The log.
        key: LogKey,
        /// The new start.
        to: Offset,
    },
}

impl WalEntry {
    /// Whose entry it is.
    pub(crate) fn key(&self) -> LogKey {
        match self {
            WalEntry::Append { key, .. }
            | WalEntry::Truncate { key, .. }
            | WalEntry::StartOffset { key, .. } => *key,
        }
    }
    /// Bytes that it takes in the stream of entries.
    pub(crate) fn stream_bytes(&self) -> u64 {
        let batches = match self {
            WalEntry::Append { batches, .. } => batches.len(),
            WalEntry::Truncate { .. } | WalEntry::StartOffset { .. } => 0,
        };
        (ENTRY_HEAD + batches) as u64
    }
}

/// The write-ahead log. Its calls may come from several threads; at most one flush runs at a time.
#[derive(Debug)]
pub(crate) struct Wal {
    settings: WalSettings,
    volume: u128,
    state: Mutex<State>,
    /// Held by the one flush that runs.
    flushing: Mutex<()>,
}

/// Settings of the write-ahead log.
#[derive(Clone, Debug)]
pub(crate) struct WalSettings {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes of each recycled file; rounded to blocks, and so that there are at least two files.
    pub segment_bytes: u64,
}

impl WalSettings {
    fn rounded(self) -> WalSettings {
        let segment_bytes = self.segment_bytes.next_multiple_of(BLOCK).max(4 * BLOCK);
        WalSettings {
            capacity: self.capacity.max(2 * segment_bytes),
            segment_bytes,
        }
    }
    fn slots(&self) -> usize {
        (self.capacity / self.segment_bytes).min(u64::from(u16::MAX)) as usize
    }
}

/// What a checkpoint knows of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalPlace {
    /// End of its last durable group.
    pub durable: Lsn,
    /// The segment being written.
    pub segment: u64,
    /// Header CRC of the last group.
    pub previous: u32,
}

/// What must be known to open a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalStart {
    /// Whose log it is.
    pub volume: u128,
    /// From the checkpoint.
    pub place: WalPlace,
    /// From the checkpoint: entries before it are not needed.
    pub released: Lsn,
    /// From the checkpoint: no new entry may get a place before it.
    pub beyond: Lsn,
    /// The log was closed at `place`, with all released: nothing need be read.
    pub clean: bool,
}

/// What recovery must do.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// Oldest first, each with the place that [`Wal::submit`] returned for it.
    pub entries: Vec<(Lsn, WalEntry)>,
    /// Logs that were deleted, and where it says so: what the checkpoint knows of them from before is void.
    pub deleted: BTreeMap<LogKey, Range<Lsn>>,
    /// The newest mark of logs that have one here, and where.
    pub marks: BTreeMap<LogKey, (Range<Lsn>, Mark)>,
}

/// Durable ends by log, of those that moved.
pub(crate) type SyncedEnds = BTreeMap<LogKey, Offset>;

#[derive(Debug)]
struct State {
    ring: Ring,
    queue: VecDeque<(Lsn, Logged)>,
    queued_bytes: usize,
    /// Ends that became durable and that nobody has asked for yet.
    synced: SyncedEnds,
    submitted: Lsn,
    durable: Lsn,
    released: Lsn,
    /// What the last durable group says of `released`.
    persisted: Lsn,
    /// Header CRC, and end, of the last durable group. The end can lie before `durable`, at a start that skipped places.
    previous: u32,
    group_end: Lsn,
    /// A flush found no free slot; cleared when one may be.
    blocked: bool,
    failed: Option<DiskError>,
}

/// A group to be written.
struct Group {
    file: Arc<dyn DiskFile>,
    slot: usize,
    header: GroupHeader,
    entries: Vec<Logged>,
}

const DAMAGED: &str = "restore the data folder from a backup, or empty it and let the node copy \
                       its partitions from the other replicas";

impl Wal {
    /// Makes the log of a new volume; what an earlier attempt left is overwritten.
    pub(crate) fn create(
        disk: &dyn Disk,
        settings: WalSettings,
        volume: u128,
    ) -> Result<Wal, DiskError> {
        let start = WalStart {
            volume,
            place: WalPlace::default(),
            released: Lsn(0),
            beyond: Lsn(0),
            clean: true,
        };
        let wal = Wal::with(disk, settings.rounded(), &start, None)?;
        let first = {
            let mut state = wal.state.lock();
            state.ring.next_number = 0;
            state.ring.begin(Lsn(0));
            wal.group(&state, 0)
        };
        if let Some(first) = first {
            wal.write(&first)?;
        }
        Ok(wal)
    }
    /// Whether more than an interrupted [`Wal::create`] was ever written.
    pub(crate) fn was_used(disk: &dyn Disk) -> Result<bool, DiskError> {
        for file in existing(disk)?.into_iter().flatten() {
            if file.len().map_err(failed("read", "wal"))? > BLOCK {
                return Ok(true);
            }
        }
        Ok(false)
    }
    /// Opens the log, and returns what recovery must do again. Damage that a torn last write explains ends the log
    /// there; an entry is only returned whole and with its checksum right.
    pub(crate) fn open(
        disk: &dyn Disk,
        settings: WalSettings,
        start: WalStart,
    ) -> Result<(Wal, Recovered), OpenError> {
        let settings = settings.rounded();
        if start.clean {
            let wal = Wal::with(disk, settings, &start, None)?;
            return Ok((wal, Recovered::default()));
        }
        let found = scan::scan(&existing(disk)?, &start)?;
        if let Some(damage) = found.damage {
            return Err(OpenError::Damaged {
                path: damage.path,
                reason: damage.reason,
                remedy: DAMAGED,
            });
        }
        if let Some((slot, offset, bytes)) = &found.last_group {
            write_again(disk, *slot, *offset, bytes)?;
        }
        let mut recovered = Recovered::default();
        for (end, logged) in &found.entries {
            let range = Lsn(end.0 - logged.len())..*end;
            match logged {
                Logged::Entry(entry) => recovered.entries.push((*end, entry.clone())),
                Logged::Deleted(key) => {
                    recovered.deleted.insert(*key, range);
                    recovered.marks.remove(key);
                }
                Logged::Mark(key, mark) => {
                    recovered.marks.insert(*key, (range, *mark));
                }
            }
        }
        let (deleted, marks) = (&recovered.deleted, &recovered.marks);
        recovered.entries.retain(|(end, entry)| {
            let key = entry.key();
            deleted.get(&key).is_none_or(|deleted| *end > deleted.end)
                && marks.get(&key).is_none_or(|(_, mark)| *end > mark.covered)
        });
        let wal = Wal::with(disk, settings, &start, Some(&found))?;
        Ok((wal, recovered))
    }
    fn with(
        disk: &dyn Disk,
        settings: WalSettings,
        start: &WalStart,
        found: Option<&scan::Scan>,
    ) -> Result<Wal, DiskError> {
        let files = all_slots(disk, settings.slots())?;
        let mut slots = Vec::new();
        for (i, file) in files.into_iter().enumerate() {
            let written = file.len().map_err(failed("read", &slot_path(i)))?;
            slots.push(Slot {
                file,
                written,
                used: found.is_some_and(|f| f.segments.iter().any(|s| s.slot == i)),
                preparing: false,
            });
        }
        // Marks may cover entries that never became durable: their places are not used again.
        let marks = found.into_iter().flat_map(|f| &f.entries);
        let covered = marks.filter_map(|(_, logged)| match logged {
            Logged::Mark(_, mark) => Some(mark.covered),
            _ => None,
        });
        let end = covered
            .chain([start.place.durable, start.released, start.beyond])
            .chain(found.iter().flat_map(|f| [f.end, f.released]))
            .fold(Lsn(0), Lsn::max);
        let released = found.map_or(end, |f| f.released);
        let last = found.and_then(|f| f.last_number).unwrap_or(0);
        Ok(Wal {
            volume: start.volume,
            flushing: Mutex::new(()),
            state: Mutex::new(State {
                ring: Ring {
                    slots,
                    segments: found.map(|f| f.segments.clone()).unwrap_or_default(),
                    next_number: last.max(start.place.segment) + 1,
                    segment_bytes: settings.segment_bytes,
                    limit: settings.slots(),
                },
                queue: VecDeque::new(),
                queued_bytes: 0,
                synced: SyncedEnds::new(),
                submitted: end,
                durable: end,
                released,
                persisted: released,
                previous: found.map_or(start.place.previous, |f| f.previous),
                group_end: found.map_or(start.place.durable, |f| f.end),
                blocked: false,
                failed: None,
            }),
            settings,
        })
    }
    /// Queues the end of a log's life: recovery forgets its earlier entries.
    pub(crate) fn submit_deleted(&self, key: LogKey) -> Range<Lsn> {
        self.push(Logged::Deleted(key))
    }
    /// Queues what is known of a log: recovery begins there.
    pub(crate) fn submit_mark(&self, key: LogKey, mark: Mark) -> Range<Lsn> {
        self.push(Logged::Mark(key, mark))
    }
    /// Queues an entry in memory (no I/O) and returns the places before and after it. The entry is durable once
    /// [`Wal::durable`] has reached the latter. After the log has failed, entries are dropped: they can't become durable.
    pub(crate) fn submit(&self, entry: WalEntry) -> Range<Lsn> {
        self.push(Logged::Entry(entry))
    }
    fn push(&self, logged: Logged) -> Range<Lsn> {
        let mut state = self.state.lock();
        let start = state.submitted;
        let end = Lsn(start.0 + logged.len());
        state.submitted = end;
        if state.failed.is_none() {
            state.queued_bytes += logged.len() as usize;
            state.queue.push_back((end, logged));
        }
        start..end
    }
    /// Bytes queued that are not durable yet, in a flush or waiting for one.
    pub(crate) fn queued(&self) -> usize {
        self.state.lock().queued_bytes
    }
    /// Whether a flush has something to do and could do it, or something to tell.
    pub(crate) fn wants_flush(&self) -> bool {
        let state = self.state.lock();
        let could = !state.queue.is_empty() && !state.blocked && state.failed.is_none();
        could || !state.synced.is_empty()
    }
    /// The durable ends of logs that have moved since the last call, by all flushes together.
    pub(crate) fn take_synced(&self) -> SyncedEnds {
        std::mem::take(&mut self.state.lock().synced)
    }
    /// Everything before this place survives a power cut.
    pub(crate) fn durable(&self) -> Lsn {
        self.state.lock().durable
    }
    /// The place after the last entry that was submitted.
    pub(crate) fn submitted(&self) -> Lsn {
        self.state.lock().submitted
    }
    /// For a checkpoint: the durable place, and the place up to which entries were released.
    pub(crate) fn place(&self) -> (WalPlace, Lsn) {
        let state = self.state.lock();
        let place = WalPlace {
            durable: state.group_end,
            segment: match state.ring.current() {
                Some(segment) => segment.number,
                None => state.ring.next_number.saturating_sub(1),
            },
            previous: state.previous,
        };
        (place, state.released)
    }
    /// The error that ended the log.
    pub(crate) fn failed(&self) -> Option<DiskError> {
        self.state.lock().failed.clone()
    }
    /// Writes what is queued: for each group one vectored write and one sync (the host runs it on its own thread,
    /// without locks of partitions). Returns the new durable place; see also [`Wal::take_synced`], after an error too.
    /// `Full`: the oldest part is still needed, see [`Wal::release`]; the queue is kept and the call can be made again, as
    /// after a full disk. Any other error ends the log for good: later flushes give the same error.
    pub(crate) fn flush(&self) -> Result<Lsn, FlushError> {
        let _one = self.flushing.lock();
        let until = self.submitted();
        loop {
            let group = {
                let mut state = self.state.lock();
                if let Some(error) = &state.failed {
                    return Err(error.clone().into());
                }
                if state.durable >= until {
                    return Ok(state.durable);
                }
                let group = self.next_group(&mut state);
                state.blocked = group.is_none();
                group.ok_or(FlushError::Full)?
            };
            self.write(&group)?;
        }
    }
    /// The next group, in the next segment when the current one has no room; `None`: no slot is free.
    fn next_group(&self, state: &mut State) -> Option<Group> {
        let needed = group_bytes(state.queue.front().map_or(0, |(_, entry)| entry.len()));
        let fits = state.ring.room() >= needed
            // A segment that holds nothing yet takes an entry of any size.
            || state.ring.current().is_some_and(|s| s.bytes == 0);
        if !fits && !state.ring.begin(state.durable) {
            if !state.ring.reclaimable(state.released) {
                return None;
            }
            // Once this group is durable, recovery knows that the oldest segment isn't needed.
            return self.group(state, 0);
        }
        let room = state.ring.room().max(needed);
        let mut bytes = 0;
        let mut count = 0;
        for (_, entry) in &state.queue {
            if group_bytes(bytes + entry.len()) > room && count > 0 {
                break;
            }
            bytes += entry.len();
            count += 1;
        }
        self.group(state, count)
    }
    /// A group of the first `count` entries, at the end of the current segment.
    fn group(&self, state: &State, count: usize) -> Option<Group> {
        let Segment {
            number,
            slot,
            bytes: offset,
            ..
        } = *state.ring.current()?;
        let entries: Vec<Logged> = state
            .queue
            .iter()
            .take(count)
            .map(|(_, entry)| entry.clone())
            .collect();
        Some(Group {
            file: state.ring.slots.get(slot)?.file.clone(),
            slot,
            header: GroupHeader {
                slots: state.ring.slots.len() as u16,
                volume: self.volume,
                segment: number,
                offset,
                lsn: state.durable,
                released: state.released,
                entries: count as u32,
                len: entries.iter().map(Logged::len).sum::<u64>() as u32,
                previous: state.previous,
                body_crc: 0,
            },
            entries,
        })
    }
    /// Writes and syncs a group, then takes its entries off the queue.
    fn write(&self, group: &Group) -> Result<(), DiskError> {
        let (bytes, crc) = match write_group(group) {
            Ok(done) => done,
            Err(error) => {
                // Without room nothing has been relied on: the group is written again, whole, where it was.
                if !error.is_full() {
                    self.end(error.clone());
                }
                return Err(error);
            }
        };
        let mut state = self.state.lock();
        for _ in &group.entries {
            if let Some((end, entry)) = state.queue.pop_front() {
                state.queued_bytes -= entry.len() as usize;
                state.durable = end;
                note_synced(&mut state.synced, &entry);
            }
        }
        state.previous = crc;
        state.group_end = group.header.end();
        state.persisted = group.header.released;
        if let Some(segment) = state.ring.segments.back_mut() {
            segment.bytes += bytes;
        }
        if let Some(slot) = state.ring.slots.get_mut(group.slot) {
            slot.written = slot.written.max(group.header.offset + bytes);
        }
        let persisted = state.persisted;
        state.ring.reclaim(persisted);
        Ok(())
    }
    fn end(&self, error: DiskError) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        state.queue.clear();
        state.queued_bytes = 0;
    }
    /// Nothing before `before` is needed any more: every log's segments are synced beyond it.
    pub(crate) fn release(&self, before: Lsn) {
        let mut state = self.state.lock();
        state.released = state.released.max(before);
        if state.ring.reclaimable(state.released) {
            state.blocked = false;
        }
    }
    /// Bytes of the files that hold the oldest needed entry to the newest.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().ring.used()
    }
    /// The place before which the older half of the segments lies, once more than half of the capacity is used.
    pub(crate) fn pressing(&self) -> Option<Lsn> {
        let state = self.state.lock();
        let segments = &state.ring.segments;
        if state.ring.used() <= self.settings.capacity / 2 && !state.blocked {
            return None;
        }
        // One segment alone can be over half: with an entry larger than a segment.
        let newer = segments.get(segments.len().div_ceil(2));
        Some(newer.map_or(state.submitted, |segment| segment.first))
    }
    /// Bytes that the log may take.
    pub(crate) fn capacity(&self) -> u64 {
        self.settings.capacity
    }
    /// Makes the next recycled file ready (written through, so that a later `fdatasync` has no metadata to write).
    /// Cheap when there is nothing to do; the host calls it from upkeep. Returns whether there may be more to do.
    pub(crate) fn prepare(&self) -> Result<bool, DiskError> {
        let taken = {
            let mut state = self.state.lock();
            if state.failed.is_some() {
                return Ok(false);
            }
            state.ring.take_unready()
        };
        let Some(unready) = taken else {
            return Ok(false);
        };
        let result = fit(&unready);
        let mut state = self.state.lock();
        if let Some(slot) = state.ring.slots.get_mut(unready.slot) {
            slot.preparing = false;
            if result.is_ok() {
                slot.written = unready.wanted;
            }
        }
        state.blocked = false;
        drop(state);
        match result {
            Ok(()) => Ok(true),
            Err(error) => {
                if !error.is_full() {
                    self.end(error.clone());
                }
                Err(error)
            }
        }
    }
}

/// The files that are there, by slot.
fn existing(disk: &dyn Disk) -> Result<Vec<Option<Arc<dyn DiskFile>>>, DiskError> {
    let mut files = Vec::new();
    for entry in disk.list("wal").map_err(failed("list", "wal"))? {
        let Some(slot) = slot_of(&entry.name).filter(|_| !entry.is_dir) else {
            continue;
        };
        let path = slot_path(slot);
        let file = disk
            .open(&path, OpenMode::Read)
            .map_err(failed("open", &path))?;
        if files.len() <= slot {
            files.resize(slot + 1, None);
        }
        files[slot] = Some(file);
    }
    Ok(files)
}

/// Opens all files, at least `count`, and makes those that are missing.
fn all_slots(disk: &dyn Disk, count: usize) -> Result<Vec<Arc<dyn DiskFile>>, DiskError> {
    let there = existing(disk)?;
    if there.is_empty() {
        disk.create_dir_all("wal").map_err(failed("make", "wal"))?;
        disk.sync_dir("").map_err(failed("sync", ""))?;
    }
    let count = count.max(there.len());
    let mut files = Vec::with_capacity(count);
    for slot in 0..count {
        let path = slot_path(slot);
        let file = disk
            .open(&path, OpenMode::Create)
            .map_err(failed("open", &path))?;
        files.push(file);
    }
    if there.len() < count || there.iter().any(Option::is_none) {
        disk.sync_dir("wal").map_err(failed("sync", "wal"))?;
    }
    Ok(files)
}

/// A group that was found whole may be in the system's memory only.
fn write_again(disk: &dyn Disk, slot: usize, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
    let path = slot_path(slot);
    let file = disk
        .open(&path, OpenMode::Write)
        .map_err(failed("open", &path))?;
    let padding = padding(bytes.len() as u64);
    file.write_at(&[bytes, padding], offset)
        .map_err(failed("write", &path))?;
    file.sync().map_err(failed("sync", &path))
}

/// What fills the last block of a group.
fn padding(len: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    &ZEROS[..(len.next_multiple_of(BLOCK) - len) as usize]
}

/// Writes and syncs; the bytes that it took, and the CRC of its header.
fn write_group(group: &Group) -> Result<(u64, u32), DiskError> {
    let mut heads = Vec::with_capacity(group.entries.len() * ENTRY_HEAD);
    let mut bodies = Vec::with_capacity(group.entries.len());
    let mut crc = Crc::new();
    for entry in &group.entries {
        let head = entry.head();
        heads.extend_from_slice(&head);
        crc.update(&head);
        let body = entry.body();
        crc.update(&body);
        bodies.push(body);
    }
    let header = GroupHeader {
        body_crc: crc.finish(),
        ..group.header
    };
    let (header_bytes, header_crc) = header.encode();
    let mut bufs: Vec<&[u8]> = Vec::with_capacity(2 * group.entries.len() + 2);
    bufs.push(&header_bytes);
    for (head, body) in heads.chunks_exact(ENTRY_HEAD).zip(&bodies) {
        bufs.push(head);
        bufs.push(body);
    }
    let len = u64::from(header.len);
    bufs.push(padding(GROUP_HEADER as u64 + len));
    let path = slot_path(group.slot);
    group
        .file
        .write_at(&bufs, header.offset)
        .map_err(failed("write", &path))?;
    group.file.sync().map_err(failed("sync", &path))?;
    Ok((group_bytes(len), header_crc))
}

/// Gives a free file its length: zeros behind what has been written, or the cut.
fn fit(unready: &ring::Unready) -> Result<(), DiskError> {
    let path = slot_path(unready.slot);
    let file = &unready.file;
    if unready.written > unready.wanted {
        file.set_len(unready.wanted).map_err(failed("cut", &path))?;
    } else {
        let zeros = vec![0; 1 << 20];
        let mut at = unready.written;
        while at < unready.wanted {
            let n = (unready.wanted - at).min(zeros.len() as u64);
            file.write_at(&[&zeros[..n as usize]], at)
                .map_err(failed("write", &path))?;
            at += n;
        }
    }
    file.sync().map_err(failed("sync", &path))
}

fn note_synced(synced: &mut SyncedEnds, entry: &Logged) {
    match entry {
        Logged::Entry(WalEntry::Append { key, next, .. }) => {
            synced.insert(*key, *next);
        }
        Logged::Entry(WalEntry::Truncate { key, to }) => {
            synced.insert(*key, *to);
        }
        Logged::Entry(WalEntry::StartOffset { key, to }) => {
            let end = synced.entry(*key).or_insert(*to);
            *end = (*end).max(*to);
        }
        Logged::Deleted(key) => {
            synced.remove(key);
        }
        Logged::Mark(..) => {}
    }
}

/// Why a flush could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum FlushError {
    /// The oldest part is still needed.
    #[error("the write-ahead log is full until the oldest segments are synced")]
    Full,
    /// The disk failed, or had no room.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
