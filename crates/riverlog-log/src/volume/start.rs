//! Opening a data folder: which of its files can be trusted, and what they say together.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::TopicId;

use super::checkpoint::{self, Checkpoint, FORMAT, Format, Head};
use super::cleaner;
use super::files::{CLEAN, Files};
use super::kept;
use super::loss;
use super::table::{LogState, Table};
use super::{LogKey, OpenError, Recovery, Volume, VolumeSettings};
use crate::disk::failed;
use crate::wal::{Lsn, Mark, REMEDY, Recovered, Wal, WalEntry, WalPlace, WalSettings, WalStart};
use crate::{Disk, DiskError, OpenMode};

const LOCK: &str = "lock";
const FORMAT_FILE: &str = "format";
/// The host's, to have some room on a full disk.
const RESERVE: &str = "reserve";
const CHECKPOINTS: [&str; 2] = ["checkpoint.0", "checkpoint.1"];

/// Replaces a file of the root folder: afterwards the new one is durable; after a crash it is the old or the new.
pub(super) fn replace(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), DiskError> {
    write_new(disk, path, bytes)?;
    disk.sync_dir("").map_err(failed("sync", ""))
}

/// As [`replace`]; the caller syncs the folder.
pub(super) fn write_new(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = format!("{path}.tmp");
    let write = || {
        let file = disk.open(&temporary, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[bytes], 0)?;
        match active(Mutant::ReplacedNotSynced) {
            true => Ok(()),
            false => file.sync(),
        }
    };
    if let Err(error) = write() {
        // Nothing rests on it; what it took may be missed elsewhere.
        let _ = disk.remove_file(&temporary);
        return Err(failed("write", &temporary)(error));
    }
    disk.rename(&temporary, path)
        .map_err(failed("rename to", path))
}

/// The whole content; `None` when there is no such file.
pub(super) fn read(disk: &dyn Disk, path: &str) -> Result<Option<Vec<u8>>, DiskError> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("open", path)(e)),
    };
    let len = file.len().map_err(failed("read", path))?;
    let mut bytes = vec![0; len as usize];
    let n = file.read_at(&mut bytes, 0).map_err(failed("read", path))?;
    bytes.truncate(n);
    Ok(Some(bytes))
}

/// What the folder says of itself, before logs and write-ahead log are looked at.
struct Found {
    id: u128,
    /// The newest whole checkpoint.
    checkpoint: Checkpoint,
    clean: bool,
    /// What is wrong, when that has been accepted.
    loss: Option<String>,
}

fn damaged(path: &str, reason: impl Into<String>) -> OpenError {
    OpenError::Damaged {
        path: path.to_owned(),
        reason: reason.into(),
        remedy: REMEDY,
    }
}

/// `None`: there is nothing yet. `accept`: go on without a checkpoint.
fn look(disk: &dyn Disk, accept: bool) -> Result<Option<Found>, OpenError> {
    let format = match read(disk, FORMAT_FILE)? {
        None => Err("it is missing"),
        Some(bytes) => match checkpoint::decode_format(&bytes) {
            Format::Known(id) => Ok(id),
            Format::Newer(found) => {
                return Err(OpenError::Newer {
                    found,
                    known: FORMAT,
                });
            }
            Format::Damaged(reason) => Err(reason),
        },
    };
    let mut whole: Vec<Checkpoint> = Vec::new();
    let mut reasons = Vec::new();
    for path in CHECKPOINTS {
        // A bad sector is damage like any other: the other checkpoint may be whole.
        let result = match read(disk, path) {
            Ok(Some(bytes)) => checkpoint::decode(&bytes).map_err(str::to_owned),
            Ok(None) => Err("it is missing".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match result {
            Ok(checkpoint) if format.is_ok_and(|id| id != checkpoint.head.volume) => {
                reasons.push(format!("{path}: it belongs to another data folder"));
            }
            Ok(checkpoint) => whole.push(checkpoint),
            Err(reason) => reasons.push(format!("{path}: {reason}")),
        }
    }
    let newest = whole.into_iter().max_by_key(|c| c.head.sequence);
    let Some(checkpoint) = newest else {
        let error = match format {
            Ok(_) => damaged("checkpoint.0 and checkpoint.1", reasons.join("; ")),
            // Until the first start has written `format`, no log has been opened.
            Err(_) if is_new(disk)? => return Ok(None),
            Err(reason) => damaged(FORMAT_FILE, reason),
        };
        let found = match accept {
            true => without_checkpoint(disk, format.ok(), &error)?,
            false => None,
        };
        return found.map(Some).ok_or(error);
    };
    let id = checkpoint.head.volume;
    if format.is_err() {
        replace_format(disk, id)?;
    }
    let clean = matches!(read(disk, CLEAN),
        Ok(Some(bytes)) if checkpoint::is_clean(&bytes, &checkpoint));
    Ok(Some(Found {
        id,
        checkpoint,
        clean,
        loss: None,
    }))
}

/// What is left when no checkpoint is.
fn without_checkpoint(
    disk: &dyn Disk,
    id: Option<u128>,
    why: &OpenError,
) -> Result<Option<Found>, DiskError> {
    let Some(volume) = id.map_or_else(|| Wal::volume_of(disk), |id| Ok(Some(id)))? else {
        return Ok(None);
    };
    let head = Head {
        volume,
        sequence: 0,
        place: WalPlace::default(),
        released: Lsn(0),
    };
    Ok(Some(Found {
        id: volume,
        checkpoint: Checkpoint {
            head,
            crc: 0,
            logs: Vec::new(),
        },
        clean: false,
        loss: Some(damage_alone(why)),
    }))
}

fn replace_format(disk: &dyn Disk, id: u128) -> Result<(), DiskError> {
    replace(disk, FORMAT_FILE, checkpoint::encode_format(id).as_bytes())
}

/// Whether no log was ever written here: an interrupted first start leaves one block in the write-ahead log.
fn is_new(disk: &dyn Disk) -> Result<bool, DiskError> {
    let entries = disk.list("").map_err(failed("list", ""))?;
    let any_log = entries
        .iter()
        .any(|entry| entry.is_dir && TopicId::parse(&entry.name).is_some());
    Ok(!any_log && !Wal::was_used(disk)?)
}

/// Something in a new folder that isn't ours: whoever named it may have meant another. An interrupted first start leaves
/// only what is known here, and a file system its own.
fn foreign(disk: &dyn Disk) -> Result<Option<String>, DiskError> {
    let entries = disk.list("").map_err(failed("list", ""))?;
    let ours = |name: &str| {
        let known = [
            LOCK,
            FORMAT_FILE,
            CLEAN,
            cleaner::FILE,
            loss::ACCEPT,
            loss::DAMAGED,
            loss::LOST,
            kept::FOLDER,
            RESERVE,
            // The host's too: what a voter of a cluster's metadata has promised.
            "quorum",
            "wal",
            "lost+found",
        ];
        known.contains(&name)
            || CHECKPOINTS.contains(&name)
            || name.starts_with('.')
            || name.ends_with(".tmp")
            || TopicId::parse(name).is_some()
    };
    let mut names = entries.into_iter().map(|entry| entry.name);
    Ok(names.find(|name| !ours(name)))
}

/// The first start. The file `format` comes last: where it is, the others must be.
fn make(disk: &dyn Disk, settings: &VolumeSettings) -> Result<(Found, Wal), DiskError> {
    let id = disk.draw_id().map_err(failed("draw an id for", ""))?;
    let wal = Wal::create(disk, wal_settings(settings), id)?;
    let (place, released) = wal.place();
    let head = Head {
        volume: id,
        sequence: 1,
        place,
        released,
    };
    let (first, _) = checkpoint::encode(&head, std::iter::empty());
    replace(disk, checkpoint::path(head.sequence), &first)?;
    replace_format(disk, id)?;
    let found = Found {
        id,
        checkpoint: Checkpoint {
            head,
            crc: 0,
            logs: Vec::new(),
        },
        clean: false,
        loss: None,
    };
    Ok((found, wal))
}

fn wal_settings(settings: &VolumeSettings) -> WalSettings {
    WalSettings {
        capacity: settings.wal_bytes,
        segment_bytes: (settings.wal_bytes / 8).min(8 << 20),
    }
}

/// Opens the write-ahead log; a damaged one is made anew when the loss is accepted.
fn open_wal(
    disk: &dyn Disk,
    settings: &VolumeSettings,
    found: &mut Found,
    accept: bool,
) -> Result<(Wal, Recovered), OpenError> {
    let head = &found.checkpoint.head;
    let marks = found.checkpoint.logs.iter();
    let start = WalStart {
        volume: found.id,
        place: head.place,
        released: head.released,
        beyond: marks.fold(Lsn(0), |beyond, (_, mark)| beyond.max(mark.covered)),
        clean: found.clean,
    };
    let settings = wal_settings(settings);
    match Wal::open(disk, settings.clone(), start) {
        Err(error) if accept && error.is_damage() => {
            let unread = loss::rebuild(disk, settings.clone(), &start, &found.checkpoint)?;
            let earlier = found.loss.take();
            let all = earlier.into_iter().chain([damage_alone(&error), unread]);
            found.loss = Some(all.collect::<Vec<_>>().join("; "));
            Wal::open(disk, settings, start)
        }
        other => other,
    }
}

/// What is wrong, without what to do about it: that has been done.
fn damage_alone(error: &OpenError) -> String {
    match error {
        OpenError::Damaged { path, reason, .. } => format!("{path} is damaged: {reason}"),
        other => other.to_string(),
    }
}

pub(super) fn open(
    disk: Arc<dyn Disk>,
    settings: VolumeSettings,
) -> Result<Arc<Volume>, OpenError> {
    // Before anything is made in it.
    let made = |path| disk.open(path, OpenMode::Read).is_ok();
    if !made(FORMAT_FILE)
        && !CHECKPOINTS.into_iter().any(made)
        && let Some(found) = foreign(&*disk)?
    {
        return Err(OpenError::Foreign { found });
    }
    let lock = disk.lock(LOCK).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => OpenError::InUse,
        _ => failed("lock", LOCK)(e).into(),
    })?;
    let accept = loss::accepted(&*disk)?;
    let (mut found, wal, recovered, new) = match look(&*disk, accept)? {
        None => {
            let (found, wal) = make(&*disk, &settings)?;
            (found, wal, Recovered::default(), true)
        }
        Some(mut found) => {
            let (wal, recovered) = open_wal(&*disk, &settings, &mut found, accept)?;
            (found, wal, recovered, false)
        }
    };
    if accept {
        replace_format(&*disk, found.id)?;
    }
    // Also one that is damaged, or belongs to another checkpoint, goes before the first change.
    let marked = !matches!(read(&*disk, CLEAN), Ok(None));
    let wal = Arc::new(wal);
    let files = Arc::new(Files::new(disk, wal.clone(), settings.open_files, marked));
    let sequence = found.checkpoint.head.sequence;
    let clean = found.clean;
    let mut aside = match new {
        true => kept::Found::new(),
        false => kept::find(&*files, found.id)?,
    };
    if accept {
        aside.retain(|key, kept| {
            let Err(reason) = kept else { return true };
            let told = damage_alone(&kept::damaged(*key, std::mem::take(reason)));
            let earlier = found.loss.take().into_iter();
            found.loss = Some(earlier.chain([told]).collect::<Vec<_>>().join("; "));
            false
        });
    }
    let loss = found.loss;
    let kept = aside.iter().map(|(key, kept)| {
        let known = kept.as_ref().map(drop).map_err(String::clone);
        (*key, known)
    });
    let kept = kept.collect();
    let (table, entries, leftovers) = merge(found.checkpoint, recovered, aside);
    let volume = Volume {
        settings,
        id: found.id,
        loss,
        lost: Mutex::default(),
        disk: files.clone(),
        files,
        wal,
        recovery: Mutex::new(Recovery {
            clean,
            entries,
            leftovers,
            failed: BTreeSet::new(),
        }),
        table: Mutex::new(table),
        kept: Mutex::new(kept),
        stuck: Mutex::default(),
        flushing: AtomicBool::new(false),
        checkpoint: Mutex::new(sequence),
        tail_bytes: AtomicUsize::new(0),
        lock: Mutex::new(Some(lock)),
    };
    let mut known = clean || new;
    if !known {
        // From now on the older checkpoint must lead to the same as the newest, and what is made from now on must not be
        // taken by it for something that it remembers.
        match volume.write_checkpoint(&mut volume.checkpoint.lock(), false) {
            Err(error) if error.is_full() => {}
            other => known = other.map(|_| true)?,
        }
    }
    if accept && known {
        loss::done(&*volume.disk)?;
    }
    Ok(Arc::new(volume))
}

type EntriesByLog = BTreeMap<LogKey, Vec<(Lsn, WalEntry)>>;

/// Checkpoint and write-ahead log as one: the newer mark counts, and entries that it covers don't. Entries that were put aside
/// come before those that weren't.
fn merge(
    checkpoint: Checkpoint,
    recovered: Recovered,
    aside: kept::Found,
) -> (Table, EntriesByLog, BTreeSet<LogKey>) {
    let mut marks: BTreeMap<LogKey, Mark> = checkpoint.logs.into_iter().collect();
    let is_void = |key: &LogKey, mark: &Mark| {
        let deleted = recovered.deleted.get(key);
        deleted.is_some_and(|deleted| mark.covered < deleted.end)
    };
    marks.retain(|key, mark| !is_void(key, mark));
    for (key, (_, mark)) in &recovered.marks {
        let known = marks.entry(*key).or_insert(*mark);
        if known.covered < mark.covered {
            *known = *mark;
        }
    }
    let mut entries = EntriesByLog::new();
    let mut covered = Vec::new();
    let mut until: BTreeMap<LogKey, Lsn> = BTreeMap::new();
    for (key, kept) in aside {
        let gone = recovered
            .deleted
            .get(&key)
            .map_or(Lsn(0), |range| range.end);
        let done = marks.get(&key).map_or(Lsn(0), |mark| mark.covered);
        let Ok(mut kept) = kept else { continue };
        kept.entries.retain(|(end, _)| *end > gone.max(done));
        if !kept.entries.is_empty() {
            until.insert(key, kept.until);
            entries.insert(key, kept.entries);
        }
    }
    for (end, entry) in recovered.entries {
        let key = entry.key();
        if until.get(&key).is_some_and(|until| end <= *until) {
            continue;
        }
        if marks.get(&key).is_none_or(|mark| mark.covered < end) {
            entries.entry(key).or_default().push((end, entry));
        } else if !matches!(entry, WalEntry::Append { .. }) {
            // Needed until two checkpoints have it.
            covered.push((key, Lsn(end.0 - entry.stream_bytes())..end));
        }
    }
    let leftovers = recovered
        .deleted
        .keys()
        .filter(|key| !marks.contains_key(key) && !entries.contains_key(key))
        .copied()
        .collect();
    let known = marks
        .into_iter()
        .map(|(key, mark)| (key, LogState::new(Some(mark), mark.covered)));
    let mut table = Table::new(known);
    let marks = recovered.marks.into_iter();
    for (key, range) in marks.map(|(key, (range, _))| (key, range)).chain(covered) {
        table.mark_submitted(key, range);
    }
    for (key, range) in recovered.deleted {
        table.deletion_submitted(key, range);
    }
    for (key, entries) in &entries {
        let kept = until.get(key).copied();
        if let (Some(until), Some((first, entry))) = (kept, entries.first()) {
            if table.get(*key).is_none() {
                let start = Lsn(first.0 - entry.stream_bytes().min(first.0));
                table.insert(*key, LogState::new(None, start));
            }
            table.kept(*key, until);
        }
        let logged = |end: &Lsn| kept.is_none_or(|until| *end > until);
        for (end, entry) in entries.iter().filter(|(end, _)| logged(end)) {
            let marked = !matches!(entry, WalEntry::Append { .. });
            let start = Lsn(end.0 - entry.stream_bytes());
            table.submitted(*key, start..*end, marked);
        }
    }
    (table, entries, leftovers)
}
