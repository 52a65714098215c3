//! Logs played on a volume against a model: appends, syncs, cuts, deletions, checkpoints, clean stops, power cuts in the
//! middle of anything, and damage to the files of the volume.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::OpenMode;
use crate::disk::{CrashDisk, Random};

/// A log of records of 8 bytes in one file. `records[i]` is at offset `i`, also before the start.
#[derive(Debug, Default)]
struct Played {
    start: i64,
    records: Vec<u64>,
    /// Where each entry leads, by its place.
    pending: Vec<(Lsn, i64, i64)>,
    last: Lsn,
    /// Acknowledged: start and end that were durable.
    durable_start: i64,
    durable_end: usize,
    /// What has ever been at an offset.
    ever: BTreeSet<(usize, u64)>,
    written: usize,
    segments_synced: i64,
    /// After a cut: until this is durable, recovery may cut again, so that synced segments promise nothing.
    cut: Option<Lsn>,
}

struct World {
    random: Random,
    disk: CrashDisk,
    volume: Arc<Volume>,
    logs: BTreeMap<u64, Played>,
    /// Being deleted when the power went: they may be there or not.
    maybe: BTreeMap<u64, Played>,
    next: u64,
}

/// The power is gone.
struct Gone;

impl<E: std::fmt::Debug> From<E> for Gone {
    fn from(_: E) -> Gone {
        Gone
    }
}

type Outcome = Result<(), Gone>;

const LOGS: u64 = 4;

fn file(volume: &Volume, log: u64, mode: OpenMode) -> Result<Arc<dyn crate::DiskFile>, DiskError> {
    volume.file(&format!("{}/data", key(log).folder()), mode)
}

fn batches(records: &[u64]) -> Bytes {
    records.iter().flat_map(|r| r.to_be_bytes()).collect()
}

fn cuts(entry: &WalEntry, base: usize) -> bool {
    matches!(entry, WalEntry::Truncate { to, .. } if to.0 as usize <= base)
}

impl Played {
    fn mark(&self) -> LogMark {
        LogMark {
            segments_synced: Offset(self.segments_synced),
            size_bytes: self.written as u64 * 8,
            ..mark(self.start, self.records.len() as i64)
        }
    }
    fn submit(&mut self, volume: &Volume, entry: WalEntry) {
        self.last = volume.submit(entry);
        let end = self.records.len() as i64;
        self.pending.push((self.last, self.start, end));
    }
    fn write(&mut self, volume: &Volume, log: u64) -> Outcome {
        if self.written < self.records.len() {
            let folder = key(log).folder();
            volume.disk().create_dir_all(&folder)?;
            let file = file(volume, log, OpenMode::Create)?;
            let bytes = batches(&self.records[self.written..]);
            file.write_at(&[&bytes], self.written as u64 * 8)?;
            self.written = self.records.len();
        }
        Ok(())
    }
    fn sync(&mut self, volume: &Volume, log: u64) -> Outcome {
        self.write(volume, log)?;
        if self.written > 0 {
            file(volume, log, OpenMode::Write)?.sync()?;
            volume.disk().sync_dir(&key(log).folder())?;
            volume.disk().sync_dir(&key(log).topic.to_string())?;
            volume.disk().sync_dir("")?;
        }
        self.segments_synced = self.records.len() as i64;
        volume.segments_synced(key(log), self.mark(), self.last);
        if self.cut == Some(Lsn(u64::MAX)) {
            self.cut = Some(volume.submitted());
        }
        if self.cut.is_none_or(|cut| cut <= volume.durable()) {
            self.cut = None;
            self.durable_end = self.records.len();
        }
        Ok(())
    }
    fn cut(&mut self, volume: &Volume, log: u64, to: usize) -> Outcome {
        self.write(volume, log)?;
        self.records.truncate(to);
        self.durable_end = self.durable_end.min(to);
        for (_, _, end) in &mut self.pending {
            *end = (*end).min(to as i64);
        }
        let entry = WalEntry::Truncate {
            key: key(log),
            to: Offset(to as i64),
        };
        self.cut = Some(Lsn(u64::MAX));
        self.submit(volume, entry);
        volume.make_durable(self.last)?;
        file(volume, log, OpenMode::Write)?.set_len(to as u64 * 8)?;
        self.written = to;
        self.segments_synced = self.segments_synced.min(to as i64);
        self.sync(volume, log)?;
        volume.make_durable(volume.submitted())?;
        Ok(())
    }
    fn hear(&mut self, durable: Lsn) {
        for (_, start, end) in self.pending.extract_if(.., |(lsn, ..)| *lsn <= durable) {
            self.durable_start = self.durable_start.max(start);
            self.durable_end = self.durable_end.max(end as usize);
        }
    }
    /// What recovery makes of what it finds.
    fn recover(volume: &Arc<Volume>, log: u64) -> Played {
        let handed = hand(volume, log);
        let (mut start, mut trusted) = match handed.mark {
            Some(mark) => (mark.start.0, mark.segments_synced.0),
            None => (0, 0),
        };
        for (_, entry) in &handed.entries {
            if let WalEntry::Truncate { to, .. } = entry {
                trusted = trusted.min(to.0);
            }
        }
        let bytes = match file(volume, log, OpenMode::Read) {
            Ok(file) => {
                let mut bytes = vec![0; file.len().unwrap() as usize / 8 * 8];
                file.read_at(&mut bytes, 0).unwrap();
                bytes
            }
            Err(_) => Vec::new(),
        };
        let mut records: Vec<u64> = bytes
            .chunks(8)
            .map(|r| u64::from_be_bytes(r.try_into().unwrap()))
            .take_while(|record| *record != 0)
            .collect();
        assert!(records.len() as i64 >= trusted, "synced records are gone");
        if handed.untouched {
            let end = handed.mark.map_or(0, |mark| mark.end.0);
            assert_eq!(records.len() as i64, end);
            assert!(handed.entries.is_empty());
        }
        let last = handed.entries.last().map_or(Lsn(0), |(lsn, _)| *lsn);
        let entries: Vec<WalEntry> = handed.entries.into_iter().map(|(_, e)| e).collect();
        for (n, entry) in entries.iter().enumerate() {
            match entry {
                WalEntry::Append { base, batches, .. } => {
                    let base = base.0 as usize;
                    // The file has been cut by what comes later.
                    if base > records.len() && entries[n..].iter().any(|e| cuts(e, base)) {
                        continue;
                    }
                    assert!(base <= records.len(), "a hole before {base}");
                    for (i, record) in batches.chunks(8).enumerate() {
                        let record = u64::from_be_bytes(record.try_into().unwrap());
                        if records.get(base + i) != Some(&record) {
                            records.truncate(base + i);
                            records.push(record);
                        }
                    }
                }
                WalEntry::Truncate { to, .. } => records.truncate(to.0 as usize),
                WalEntry::StartOffset { to, .. } => start = start.max(to.0),
            }
        }
        let was_cut = |entry: &WalEntry| matches!(entry, WalEntry::Truncate { .. });
        Played {
            start,
            durable_end: records.len(),
            records,
            last,
            cut: entries.iter().any(was_cut).then_some(Lsn(u64::MAX)),
            ..Played::default()
        }
    }
    /// Takes over what was found, after it has been compared with what must be there.
    fn check(self, mut found: Played, log: u64) -> Played {
        assert!(
            found.start >= self.durable_start,
            "log {log}: start went back"
        );
        assert!(found.start <= self.start, "log {log}: start from nowhere");
        assert!(
            found.records.len() >= self.durable_end,
            "log {log}: {} of {} acknowledged records",
            found.records.len(),
            self.durable_end
        );
        for i in 0..self.durable_end {
            assert_eq!(found.records[i], self.records[i], "log {log} at {i}");
        }
        for (i, record) in found.records.iter().enumerate() {
            assert!(self.ever.contains(&(i, *record)), "log {log}: invented");
        }
        found.ever = self.ever;
        found
    }
}

impl World {
    fn step(&mut self) -> Outcome {
        let log = self.random.below(LOGS);
        let volume = self.volume.clone();
        if !self.logs.contains_key(&log) {
            let handed = volume.hand_over(key(log))?;
            assert!(handed.entries.is_empty());
        }
        let played = self.logs.entry(log).or_default();
        match self.random.below(40) {
            0..16 => {
                let base = played.records.len();
                for i in 0..1 + self.random.below(120) as usize {
                    self.next += 1;
                    played.records.push(self.next);
                    played.ever.insert((base + i, self.next));
                }
                let entry = WalEntry::Append {
                    key: key(log),
                    base: Offset(base as i64),
                    next: Offset(played.records.len() as i64),
                    batches: batches(&played.records[base..]),
                };
                played.submit(&volume, entry);
                if self.random.chance(1, 2) {
                    played.write(&volume, log)?;
                }
            }
            16..26 => self.flush()?,
            26..30 => played.sync(&volume, log)?,
            30 | 31 => {
                let to = played.start + self.random.below(5) as i64;
                if to <= played.records.len() as i64 && to > played.start {
                    played.start = to;
                    let to = Offset(to);
                    played.submit(&volume, WalEntry::StartOffset { key: key(log), to });
                }
            }
            32 => {
                let start = played.start as usize;
                if played.records.len() > start {
                    let room = (played.records.len() - start) as u64;
                    let to = start + self.random.below(room) as usize;
                    played.cut(&volume, log, to)?;
                }
            }
            33 | 34 => volume.checkpoint(false)?,
            35 => drop(volume.upkeep()?),
            36 => {
                if let Some(played) = self.logs.remove(&log) {
                    self.maybe.insert(log, played);
                    volume.delete_log(key(log))?;
                    self.maybe.remove(&log);
                }
            }
            n @ (37 | 38) => {
                drop(volume);
                self.stop(n == 37)?;
                self.disk.fail_after(u64::MAX);
                self.restart(true);
                self.disk.fail_after(self.random.below(60));
                return Ok(());
            }
            _ => return Err(Gone),
        }
        for log in volume.wants_sync() {
            let log = log.partition.0 as u64;
            if let Some(played) = self.logs.get_mut(&log) {
                played.sync(&volume, log)?;
            }
        }
        Ok(())
    }
    fn flush(&mut self) -> Outcome {
        if let Some(flush) = self.volume.take_flush() {
            let done = flush.run();
            let durable = self.volume.durable();
            for log in self.logs.values_mut() {
                log.hear(durable);
            }
            if done.error.is_some() {
                return Err(Gone);
            }
        }
        Ok(())
    }
    fn stop(&mut self, clean: bool) -> Outcome {
        let volume = self.volume.clone();
        for (log, played) in &mut self.logs {
            played.sync(&volume, *log)?;
        }
        volume.checkpoint(clean)?;
        for played in self.logs.values_mut() {
            played.durable_end = played.records.len();
            played.durable_start = played.start;
            played.pending.clear();
        }
        Ok(())
    }
    fn power_cut(&mut self) {
        let durable = self.volume.durable();
        for log in self.logs.values_mut() {
            log.hear(durable);
        }
        let disk = self.disk.crash(self.random.next_u64());
        self.disk.power_off();
        self.disk = disk;
        self.restart(false);
    }
    /// One of the small files may be damaged meanwhile.
    fn hurt(&mut self, newest: &str) {
        let path = match self.random.below(6) {
            0 => "format",
            1 => "clean",
            2 | 3 => newest,
            _ => return,
        };
        let Ok(file) = self.disk.open(path, OpenMode::Write) else {
            return;
        };
        let len = file.len().unwrap();
        match self.random.below(4) {
            0 => self.disk.remove_file(path).unwrap(),
            1 => file.set_len(self.random.below(len.max(1))).unwrap(),
            2 => self.disk.zero(path, self.random.below(len), len).unwrap(),
            _ => {
                let at = self.random.below(len);
                let bit = 1 << self.random.below(8);
                self.disk.flip(path, at, bit).unwrap();
            }
        }
    }
    fn restart(&mut self, stopped: bool) {
        // The lock goes with the process.
        let none: Arc<dyn Disk> = Arc::new(crate::disk::MemoryDisk::new());
        self.volume = Volume::open(none, settings()).unwrap();
        if !stopped {
            let newest = newest_checkpoint(&self.disk);
            self.hurt(newest);
        }
        self.volume = open(&self.disk);
        for (log, played) in std::mem::take(&mut self.logs) {
            let found = Played::recover(&self.volume, log);
            self.logs.insert(log, played.check(found, log));
        }
        // What the host deletes it doesn't open again.
        self.maybe.clear();
        self.volume.recovered().unwrap();
        let there: Vec<LogKey> = self.volume.folders().unwrap();
        for found in there {
            assert!(self.logs.contains_key(&(found.partition.0 as u64)));
        }
        // A real log writes what it did again; this one makes its file anew.
        let volume = self.volume.clone();
        for (log, played) in &mut self.logs {
            if let Ok(file) = file(&volume, *log, OpenMode::Write) {
                file.set_len(0).unwrap();
            }
            let again = played.write(&volume, *log);
            assert!(again.is_ok() && played.sync(&volume, *log).is_ok());
            played.durable_start = played.start;
        }
        self.flush().ok().unwrap();
    }
}

fn newest_checkpoint(disk: &CrashDisk) -> &'static str {
    let sequence = |path: &str| -> Option<u64> {
        let file = disk.open(path, OpenMode::Read).ok()?;
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        Some(checkpoint::decode(&bytes).ok()?.head.sequence)
    };
    let (a, b) = (sequence("checkpoint.0"), sequence("checkpoint.1"));
    match (a, b) {
        (Some(a), Some(b)) if a > b => "checkpoint.0",
        (Some(_), Some(_)) => "checkpoint.1",
        // The other is all there is.
        _ => "clean",
    }
}

#[test]
fn whatever_happens_what_was_acknowledged_is_there() {
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let disk = CrashDisk::new(random.next_u64());
        let mut world = World {
            volume: open(&disk),
            disk,
            random,
            logs: BTreeMap::new(),
            maybe: BTreeMap::new(),
            next: 0,
        };
        world.volume.recovered().unwrap();
        for _ in 0..12 {
            let until = world.random.below(60);
            world.disk.fail_after(until);
            for _ in 0..60 {
                if world.step().is_err() {
                    break;
                }
            }
            world.power_cut();
        }
    }
}
