//! What the write-ahead log holds of logs that are out of order, put into files of their own, so that the others can use it
//! again. `docs/format/volume.md` says what is in them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes};
use crc_fast::crc32_iscsi;
use riverlog_wire::{PartitionIndex, TopicId};

use super::{LogKey, OpenError, Volume, start};
use crate::disk::failed;
use crate::wal::{Lsn, REMEDY, WalEntry};
use crate::{Disk, DiskError};

/// The folder with the files.
pub(super) const FOLDER: &str = "wal.kept";

const MAGIC: u32 = u32::from_be_bytes(*b"RLKE");
const VERSION: u16 = 1;
/// Bytes before the entries, and behind them.
const HEAD: usize = 32;
const CRC: usize = 4;

/// Everything of one log up to a place, as recovery would find it in the write-ahead log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) until: Lsn,
    /// In order, each with the place after it.
    pub(super) entries: Vec<(Lsn, WalEntry)>,
}

/// The files that are there: what they hold, or why that can't be told.
pub(super) type Found = BTreeMap<LogKey, Result<Kept, String>>;

fn path(key: LogKey) -> String {
    format!("{FOLDER}/{}.{}", key.topic, key.partition.0)
}

fn key_of(name: &str) -> Option<LogKey> {
    let (topic, partition) = name.split_once('.')?;
    let key = LogKey {
        topic: TopicId::parse(topic)?,
        partition: PartitionIndex(partition.parse().ok()?),
    };
    path(key).ends_with(name).then_some(key)
}

fn encode(volume: u128, kept: &Kept) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(MAGIC);
    out.put_u16(VERSION);
    out.put_u16(0);
    out.put_u128(volume);
    out.put_u64(kept.until.0);
    for (end, entry) in &kept.entries {
        out.put_u64(end.0);
        entry.encode(&mut out);
    }
    out.put_u32(crc32_iscsi(&out));
    out
}

fn decode(volume: u128, key: LogKey, bytes: Vec<u8>) -> Result<Kept, &'static str> {
    let mut rest = Bytes::from(bytes);
    if rest.len() < HEAD + CRC {
        return Err("it is too short");
    }
    let mut crc = rest.split_off(rest.len() - CRC);
    if crc32_iscsi(&rest) != crc.get_u32() {
        return Err("its checksum is wrong");
    }
    if (rest.get_u32(), rest.get_u16(), rest.get_u16()) != (MAGIC, VERSION, 0) {
        return Err("it is of a release that isn't known here");
    }
    if rest.get_u128() != volume {
        return Err("it belongs to another data folder");
    }
    let mut kept = Kept {
        until: Lsn(rest.get_u64()),
        entries: Vec::new(),
    };
    while !rest.is_empty() {
        let end = rest.try_get_u64().map_err(|_| "an entry is cut off")?;
        let entry = WalEntry::decode(&mut rest).filter(|entry| entry.key() == key);
        kept.entries
            .push((Lsn(end), entry.ok_or("an entry is not one of its log")?));
    }
    Ok(kept)
}

/// All that is there.
pub(super) fn find(disk: &dyn Disk, volume: u128) -> Result<Found, DiskError> {
    let entries = disk.list(FOLDER).map_err(failed("list", FOLDER))?;
    let keys = entries.iter().filter_map(|entry| key_of(&entry.name));
    let mut found = Found::new();
    for key in keys {
        let result = match start::read(disk, &path(key)) {
            Ok(bytes) => decode(volume, key, bytes.unwrap_or_default()).map_err(str::to_owned),
            // A bad sector is of no concern to the others.
            Err(error) => Err(error.to_string()),
        };
        found.insert(key, result);
    }
    Ok(found)
}

/// Why a log whose file can't be read isn't opened.
pub(super) fn damaged(key: LogKey, reason: String) -> OpenError {
    OpenError::Damaged {
        path: path(key),
        reason,
        remedy: REMEDY,
    }
}

impl Volume {
    /// A log that nobody can sync: it could not be opened, or has failed. What the write-ahead log holds of it is put aside when
    /// the room is wanted.
    pub(crate) fn is_stuck(&self, key: LogKey) {
        self.stuck.lock().insert(key);
    }
    /// Puts entries aside that keep the write-ahead log from being used again before `before`, and that no sync will
    /// cover. Whether there were any.
    pub(super) fn keep_aside(&self, before: Lsn) -> Result<bool, DiskError> {
        let stuck = self.stuck.lock().clone();
        if stuck.is_empty() {
            return Ok(false);
        }
        let mut files = self.kept.lock();
        let (keys, from) = {
            let table = self.table.lock();
            let wanted = table.needed_before(before);
            let wanted = wanted.filter(|(_, key)| stuck.contains(key));
            // Without its first part the rest is of no use.
            let wanted = wanted.filter(|(_, key)| !matches!(files.get(key), Some(Err(_))));
            let (pins, keys): (BTreeSet<Lsn>, BTreeSet<LogKey>) = wanted.unzip();
            (keys, pins.first().copied().unwrap_or_default())
        };
        if keys.is_empty() {
            return Ok(false);
        }
        let (recovered, until) = self.wal.read_back(from)?;
        let mut by_log: BTreeMap<LogKey, Vec<(Lsn, WalEntry)>> = BTreeMap::new();
        for (end, entry) in recovered.entries {
            if keys.contains(&entry.key()) {
                by_log.entry(entry.key()).or_default().push((end, entry));
            }
        }
        self.disk
            .create_dir_all(FOLDER)
            .map_err(failed("make", FOLDER))?;
        for key in keys {
            let mut kept = match files.get(&key) {
                Some(Ok(())) => self.read_kept(key)?,
                _ => Kept::default(),
            };
            let new = by_log.remove(&key).unwrap_or_default();
            let known = kept.until;
            kept.entries
                .extend(new.into_iter().filter(|(end, _)| *end > known));
            kept.until = until;
            // Its place in the folder must be durable before the folder's in the root is.
            start::write_new(&*self.disk, &path(key), &encode(self.id, &kept))?;
            self.disk.sync_dir(FOLDER).map_err(failed("sync", FOLDER))?;
            self.disk.sync_dir("").map_err(failed("sync", ""))?;
            files.insert(key, Ok(()));
            if !self.table.lock().kept(key, until) {
                // Deleted meanwhile.
                self.remove_kept(&mut files, key)?;
            }
        }
        let table = self.table.lock();
        self.release(&table);
        Ok(true)
    }
    fn read_kept(&self, key: LogKey) -> Result<Kept, DiskError> {
        let path = path(key);
        let bytes = start::read(&*self.disk, &path)?.unwrap_or_default();
        decode(self.id, key, bytes).map_err(|reason| {
            let damage = std::io::Error::new(std::io::ErrorKind::InvalidData, reason);
            failed("read", &path)(damage)
        })
    }
    fn remove_kept(&self, files: &mut KeptFiles, key: LogKey) -> Result<(), DiskError> {
        let path = path(key);
        self.disk
            .remove_file(&path)
            .map_err(failed("remove", &path))?;
        self.disk.sync_dir(FOLDER).map_err(failed("sync", FOLDER))?;
        files.remove(&key);
        Ok(())
    }
    /// Removes what was put aside of deleted logs, before the entries go that say that they are.
    pub(super) fn forget_kept(&self, keys: &[LogKey]) -> Result<(), DiskError> {
        let mut files = self.kept.lock();
        for key in keys {
            self.stuck.lock().remove(key);
            if files.contains_key(key) {
                self.remove_kept(&mut files, *key)?;
            }
        }
        Ok(())
    }
    /// Removes files that recovery doesn't need any more. What can't be removed does no harm.
    pub(super) fn tidy_kept(&self) {
        let mut files = self.kept.lock();
        let needless: Vec<LogKey> = {
            let table = self.table.lock();
            let sound = files.iter().filter(|(_, file)| file.is_ok());
            let needless = sound.filter(|(key, _)| !table.needs_kept(**key));
            needless.map(|(key, _)| *key).collect()
        };
        for key in needless {
            let _ = self.remove_kept(&mut files, key);
        }
    }
}

/// The files that are there; an error: why one can't be read.
pub(super) type KeptFiles = BTreeMap<LogKey, Result<(), String>>;

#[cfg(test)]
mod tests {
    use riverlog_wire::Offset;

    use super::*;

    #[test]
    fn a_file_reads_back_only_whole_and_only_as_what_it_is() {
        let key = LogKey {
            topic: TopicId(*b"riverlog-log-tst"),
            partition: PartitionIndex(3),
        };
        let kept = Kept {
            until: Lsn(900),
            entries: vec![
                (
                    Lsn(500),
                    WalEntry::Append {
                        key,
                        base: Offset(7),
                        next: Offset(9),
                        batches: Bytes::from_static(b"whole batches"),
                    },
                ),
                (Lsn(600), WalEntry::Truncate { key, to: Offset(8) }),
                (Lsn(700), WalEntry::StartOffset { key, to: Offset(7) }),
            ],
        };
        let bytes = encode(5, &kept);
        assert_eq!(decode(5, key, bytes.clone()), Ok(kept));
        assert!(decode(6, key, bytes.clone()).is_err());
        let other = LogKey {
            partition: PartitionIndex(4),
            ..key
        };
        assert!(decode(5, other, bytes.clone()).is_err());
        for at in 0..bytes.len() {
            let mut hurt = bytes.clone();
            hurt[at] ^= 1;
            assert!(decode(5, key, hurt).is_err(), "byte {at}");
            assert!(decode(5, key, bytes[..at].to_vec()).is_err());
        }
        assert_eq!(key_of(&path(key)[FOLDER.len() + 1..]), Some(key));
        for name in ["", ".", "x.1", "..", "wal.1", "AAAAAAAAAAAAAAAAAAAAAA.01"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }
}
