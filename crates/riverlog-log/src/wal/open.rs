//! Making the log, and opening it again.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::format::{BLOCK, Logged, Mark};
use super::ring::{Ring, Slot, slot_of, slot_path};
use super::write::padding;
use super::{FlushError, Lsn, State, SyncedEnds, Wal, WalEntry, WalPlace, WalSettings, scan};
use crate::disk::failed;
use crate::volume::LogKey;
use crate::{Disk, DiskError, DiskFile, OpenError, OpenMode};

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

impl Recovered {
    /// What the entries that were found come to.
    fn new(found: &[(Lsn, Logged)]) -> Recovered {
        let mut recovered = Recovered::default();
        for (end, logged) in found {
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
        recovered
    }
}

/// What to do about damage that loses acknowledged records.
pub(crate) const REMEDY: &str = "restore the data folder from a backup, or empty it and let the node copy its \
                                 partitions from the other replicas; to go on with what can be read, and lose the rest, \
                                 put an empty file named accept-loss into the folder";

/// See [`Wal::salvage`].
pub(crate) type Salvaged = (Recovered, WalPlace, Vec<Range<Lsn>>);

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
            if let Some(slot) = scan::slot_of_segment(&existing(disk)?, &start) {
                wal.state.lock().ring.hold(slot);
            }
            return Ok((wal, Recovered::default()));
        }
        let found = scan::scan(&existing(disk)?, &start)?;
        if let Some(damage) = found.damage {
            return Err(OpenError::Damaged {
                path: damage.path,
                reason: damage.reason,
                remedy: REMEDY,
            });
        }
        if let Some((slot, offset, bytes)) = &found.last_group {
            write_again(disk, *slot, *offset, bytes)?;
        }
        let recovered = Recovered::new(&found.entries);
        let wal = Wal::with(disk, settings, &start, Some(&found))?;
        Ok((wal, recovered))
    }
    /// What recovery would do again, as the files say it now, but for what ends before `from`; and the place up to which that is
    /// all. Waits for the disk; nothing is flushed meanwhile.
    pub(crate) fn read_back(&self, from: Lsn) -> Result<(Recovered, Lsn), DiskError> {
        let _no_flush = self.flushing.lock();
        let (files, segments, durable) = {
            let state = self.state.lock();
            let ring = &state.ring;
            let files: Vec<_> = ring.slots.iter().map(|s| Some(s.file.clone())).collect();
            let next = ring.segments.iter().skip(1).map(|s| s.first);
            let ends = next.chain([Lsn(u64::MAX)]);
            let needed = ring.segments.iter().zip(ends);
            let needed = needed.filter(|(_, end)| *end > from).map(|(s, _)| *s);
            (files, needed.collect::<Vec<_>>(), state.durable)
        };
        let found = scan::read_back(&files, self.volume, &segments)?;
        Ok((Recovered::new(&found), durable))
    }
    /// The id of the volume that a damaged log was written for.
    pub(crate) fn volume_of(disk: &dyn Disk) -> Result<Option<u128>, DiskError> {
        scan::volume_of(&existing(disk)?)
    }
    /// What can be read of a damaged log, the place and segment after which a new one must go on, and places of which nothing can
    /// be read.
    pub(crate) fn salvage(disk: &dyn Disk, start: &WalStart) -> Result<Salvaged, DiskError> {
        let left = scan::salvage(&existing(disk)?, start)?;
        let place = WalPlace {
            durable: left.beyond,
            segment: left.last_number,
            previous: 0,
        };
        Ok((Recovered::new(&left.entries), place, left.lost))
    }
    /// Makes a log that goes on at `place`, with nothing in it but what `recovered` says.
    pub(crate) fn rebuild(
        disk: &dyn Disk,
        settings: WalSettings,
        volume: u128,
        place: WalPlace,
        recovered: Recovered,
    ) -> Result<(), OpenError> {
        let start = WalStart {
            volume,
            place,
            released: place.durable,
            beyond: place.durable,
            clean: true,
        };
        let wal = Wal::with(disk, settings.rounded(), &start, None)?;
        let deleted = recovered.deleted.into_keys().map(Logged::Deleted);
        let marks = recovered.marks.into_iter();
        let marks = marks.map(|(key, (_, mark))| Logged::Mark(key, mark));
        let entries = recovered.entries.into_iter();
        let entries = entries.map(|(_, entry)| Logged::Entry(entry));
        let mut any = false;
        for logged in deleted.chain(marks).chain(entries) {
            wal.push(logged);
            any = true;
        }
        if !any {
            // A log has at least one group.
            let mut state = wal.state.lock();
            state.ring.begin(place.durable);
            let first = wal.group(&state, 0);
            drop(state);
            if let Some(first) = first {
                wal.write(&first)?;
            }
        }
        match wal.flush() {
            Ok(_) => Ok(()),
            Err(FlushError::Disk(error)) => Err(error.into()),
            Err(FlushError::Full) => Err(OpenError::Damaged {
                path: "wal".to_owned(),
                reason: "what can be read of it doesn't fit into a new one".to_owned(),
                remedy: "raise the size of the write-ahead log, then start again",
            }),
        }
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
                    held: None,
                },
                queue: VecDeque::new(),
                queued_bytes: 0,
                synced: SyncedEnds::new(),
                submitted: end,
                durable: end,
                released,
                persisted: found.map_or(released, |f| f.persisted),
                previous: found.map_or(start.place.previous, |f| f.previous),
                group_end: found.map_or(start.place.durable, |f| f.end),
                blocked: false,
                failed: None,
            }),
            settings,
        })
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
        match disk
            .open(&path, OpenMode::Create)
            .map_err(failed("open", &path))
        {
            Ok(file) => files.push(file),
            // The log was to become larger; a full disk must not keep the node from starting.
            Err(error) if error.is_full() && slot >= there.len().max(2) => break,
            Err(error) => return Err(error),
        }
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
