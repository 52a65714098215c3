//! Going on with what can be read, when an operator has said so with the file `accept-loss`.

use std::collections::BTreeMap;

use super::LogKey;
use super::checkpoint::Checkpoint;
use crate::disk::failed;
use crate::wal::{Lsn, Recovered, Wal, WalSettings, WalStart};
use crate::{Disk, DiskError, OpenError};

const ACCEPT: &str = "accept-loss";
/// The damaged write-ahead log while a new one is made from it; and afterwards, for whoever wants to look.
const DAMAGED: &str = "wal.damaged";
const LOST: &str = "wal.lost";

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

/// Makes a new write-ahead log from what can be read of the damaged one.
pub(super) fn rebuild(
    disk: &dyn Disk,
    settings: WalSettings,
    start: &WalStart,
    checkpoint: &Checkpoint,
) -> Result<(), OpenError> {
    let (mut left, place) = Wal::salvage(disk, start)?;
    // The new log has new places: what is not needed can't be told by them any more.
    let marks = checkpoint.logs.iter();
    forget(
        &mut left,
        &marks.map(|(key, mark)| (*key, mark.covered)).collect(),
    );
    move_folder(disk, "wal", DAMAGED)?;
    Wal::rebuild(disk, settings, start.volume, place, left)?;
    Ok(move_folder(disk, DAMAGED, LOST)?)
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
