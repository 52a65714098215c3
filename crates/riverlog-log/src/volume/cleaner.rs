//! `cleaner-offset-checkpoint`: up to where each compacted log has been cleaned. Its layout: `docs/format/volume.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crc_fast::crc32_iscsi;
use riverlog_wire::{Offset, PartitionIndex, TopicId};

use super::{LogKey, Volume, start};
use crate::DiskError;

/// Kafka's name for it.
pub(super) const FILE: &str = "cleaner-offset-checkpoint";

/// Up to where each log has been cleaned. What isn't known is cleaned from its start again: that costs time and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanerOffsets {
    offsets: BTreeMap<LogKey, Offset>,
}

impl CleanerOffsets {
    /// What the file says; nothing when it is missing, damaged or can't be read. Does I/O.
    pub fn load(volume: &Volume) -> CleanerOffsets {
        let bytes = start::read(&**volume.disk(), FILE).ok().flatten();
        CleanerOffsets {
            offsets: bytes.and_then(|bytes| parse(&bytes)).unwrap_or_default(),
        }
    }
    /// Replaces the file. What it says of a log must be durable before. Does I/O.
    pub fn store(&self, volume: &Volume) -> Result<(), DiskError> {
        start::replace(&**volume.disk(), FILE, self.encode().as_bytes())
    }
    /// Everything before it is clean; 0 where nothing is known.
    pub fn get(&self, key: LogKey) -> Offset {
        self.offsets.get(&key).copied().unwrap_or_default()
    }
    /// Everything before `offset` is clean.
    pub fn set(&mut self, key: LogKey, offset: Offset) {
        self.offsets.insert(key, offset);
    }
    /// Forgets logs for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(LogKey) -> bool) {
        self.offsets.retain(|key, _| keep(*key));
    }

    fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.offsets.len());
        for (key, offset) in &self.offsets {
            let _ = writeln!(text, "{} {} {offset}", key.topic, key.partition);
        }
        let crc = crc32_iscsi(text.as_bytes());
        let _ = writeln!(text, "crc32c {crc:08x}");
        text
    }
}

fn parse(bytes: &[u8]) -> Option<BTreeMap<LogKey, Offset>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let at = text.strip_suffix('\n')?.rfind('\n')? + 1;
    let (lines, crc) = text.split_at(at);
    // A wrong offset would let tombstones go before what they delete.
    if crc != format!("crc32c {:08x}\n", crc32_iscsi(lines.as_bytes())) {
        return None;
    }
    let mut lines = lines.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut out = BTreeMap::new();
    for line in lines {
        let mut fields = line.split(' ');
        let key = LogKey {
            topic: TopicId::parse(fields.next()?)?,
            partition: PartitionIndex(fields.next()?.parse().ok()?),
        };
        out.insert(key, Offset(fields.next()?.parse().ok()?));
    }
    (out.len() == count).then_some(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::{CrashDisk, Disk, OpenMode};
    use crate::{DiskFile, VolumeSettings};

    fn key(partition: i32) -> LogKey {
        LogKey {
            topic: TopicId([7; 16]),
            partition: PartitionIndex(partition),
        }
    }

    #[test]
    fn what_was_stored_survives_and_any_damage_means_that_nothing_is_known() {
        let disk = CrashDisk::new(1);
        let open = |disk: &CrashDisk| {
            Volume::open(Arc::new(disk.clone()), VolumeSettings::default()).unwrap()
        };
        let volume = open(&disk);
        assert_eq!(CleanerOffsets::load(&volume), CleanerOffsets::default());
        let mut offsets = CleanerOffsets::default();
        offsets.set(key(0), Offset(17));
        offsets.set(key(3), Offset(4_000_000_000));
        offsets.store(&volume).unwrap();
        let disk = disk.crash(2);
        let volume = open(&disk);
        let loaded = CleanerOffsets::load(&volume);
        assert_eq!(loaded, offsets);
        assert_eq!(loaded.get(key(3)), Offset(4_000_000_000));
        assert_eq!(loaded.get(key(4)), Offset(0));

        let file: Arc<dyn DiskFile> = disk.open(FILE, OpenMode::Write).unwrap();
        let len = file.len().unwrap();
        for at in 0..len {
            disk.flip(FILE, at, 1).unwrap();
            assert_eq!(CleanerOffsets::load(&volume).get(key(0)), Offset(0));
            disk.flip(FILE, at, 1).unwrap();
        }
        for cut in (0..len).rev() {
            file.set_len(cut).unwrap();
            assert_eq!(CleanerOffsets::load(&volume).get(key(0)), Offset(0));
        }
    }

    #[test]
    fn logs_that_are_gone_are_forgotten() {
        let mut offsets = CleanerOffsets::default();
        offsets.set(key(0), Offset(1));
        offsets.set(key(1), Offset(2));
        offsets.retain(|k| k == key(1));
        assert_eq!(offsets.encode().lines().nth(1), Some("1"));
        assert_eq!(parse(offsets.encode().as_bytes()), Some(offsets.offsets));
    }
}
