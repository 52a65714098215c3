//! Going on with what can be read, when an operator has said so with the file `accept-loss`.

use std::collections::BTreeMap;
use std::ops::Range;

use super::LogKey;
use super::checkpoint::Checkpoint;
use crate::disk::failed;
use crate::wal::{Lsn, Recovered, Wal, WalSettings, WalStart};
use crate::{Disk, DiskError, OpenError};

pub(super) const ACCEPT: &str = "accept-loss";
/// The damaged write-ahead log while a new one is made from it; and afterwards, for whoever wants to look.
pub(super) const DAMAGED: &str = "wal.damaged";
pub(super) const LOST: &str = "wal.lost";

fn move_folder(disk: &dyn Disk, from: &str, to: &str) -> Result<(), DiskError> {
    disk.remove_dir_all(to).map_err(failed("remove", to))?;
    disk.rename(from, to).map_err(failed("rename to", to))?;
    disk.sync_dir("").map_err(failed("sync", ""))
}

/// Whether loss is accepted. An earlier attempt that was interrupted is taken back.
pub(super) fn accepted(disk: &dyn Disk) -> Result<bool, DiskError> {
    let root = disk.list("").map_err(failed("list", ""))?;
    let has = |name: &str| root.iter().any(|entry| entry.name == name);
    if has(ACCEPT) && has(DAMAGED) {
        move_folder(disk, DAMAGED, "wal")?;
    }
    Ok(has(ACCEPT))
}

/// Makes a new write-ahead log from what can be read of the damaged one; says what can't.
pub(super) fn rebuild(
    disk: &dyn Disk,
    settings: WalSettings,
    start: &WalStart,
    checkpoint: &Checkpoint,
) -> Result<String, OpenError> {
    let (mut left, place, lost) = Wal::salvage(disk, start)?;
    // The new log has new places: what is not needed can't be told by them any more.
    let marks = checkpoint.logs.iter();
    forget(
        &mut left,
        &marks.map(|(key, mark)| (*key, mark.covered)).collect(),
    );
    move_folder(disk, "wal", DAMAGED)?;
    Wal::rebuild(disk, settings, start.volume, place, left)?;
    move_folder(disk, DAMAGED, LOST)?;
    Ok(told(&lost))
}

/// At most so many places are named.
const NAMED: usize = 20;

fn told(lost: &[Range<Lsn>]) -> String {
    let bytes: u64 = lost.iter().map(|range| range.end.0 - range.start.0).sum();
    let named = lost.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|range| format!("{}..{}", range.start.0, range.end.0))
        .collect();
    if named.is_empty() {
        return "every place of the write-ahead log that is still needed could be read".to_owned();
    }
    let more = if lost.len() > NAMED { ", …" } else { "" };
    format!(
        "of the write-ahead log {bytes} bytes can't be read: places {}{more}; the damaged one is kept in {LOST}",
        named.join(", ")
    )
}

/// Drops what the checkpoint covers.
fn forget(left: &mut Recovered, covered: &BTreeMap<LogKey, Lsn>) {
    let is_covered = |key: &LogKey, place: Lsn| covered.get(key).is_some_and(|c| place <= *c);
    left.entries
        .retain(|(end, entry)| !is_covered(&entry.key(), *end));
    left.deleted
        .retain(|key, range| !is_covered(key, range.end));
    left.marks
        .retain(|key, (_, mark)| !is_covered(key, mark.covered));
}

/// The folder has been opened.
pub(super) fn done(disk: &dyn Disk) -> Result<(), DiskError> {
    disk.remove_file(ACCEPT).map_err(failed("remove", ACCEPT))?;
    disk.sync_dir("").map_err(failed("sync", ""))
}
