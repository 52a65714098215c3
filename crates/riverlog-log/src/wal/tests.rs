//! The write-ahead log against a list of what was submitted, on a disk that is cut off at any moment.

use bytes::Bytes;
use riverlog_wire::{Offset, PartitionIndex, TopicId};

use super::*;
use crate::disk::{CrashDisk, Random};

const SETTINGS: WalSettings = WalSettings {
    capacity: 8 * 16 * 1024,
    segment_bytes: 16 * 1024,
};
const VOLUME: u128 = 0x5eed;

fn key(n: u64) -> LogKey {
    LogKey {
        topic: TopicId([n as u8; 16]),
        partition: PartitionIndex(n as i32),
    }
}

fn append(log: u64, base: i64, len: usize) -> WalEntry {
    let bytes: Vec<u8> = (0..len).map(|i| (i as i64 * 7 + base) as u8).collect();
    WalEntry::Append {
        key: key(log),
        base: Offset(base),
        next: Offset(base + 1),
        batches: Bytes::from(bytes),
    }
}

fn start() -> WalStart {
    WalStart {
        volume: VOLUME,
        place: WalPlace::default(),
        released: Lsn(0),
        beyond: Lsn(0),
        clean: false,
    }
}

fn flush(wal: &Wal) -> Result<Lsn, FlushError> {
    wal.flush(&mut SyncedEnds::new())
}

fn create(disk: &CrashDisk) -> Wal {
    Wal::create(disk, SETTINGS, VOLUME).unwrap()
}

fn open(disk: &CrashDisk, start: WalStart) -> (Wal, Vec<(Lsn, WalEntry)>) {
    let (wal, recovered) = Wal::open(disk, SETTINGS, start).unwrap();
    (wal, recovered.entries)
}

/// What was submitted, and what the log promised about it.
struct Model {
    random: Random,
    disk: CrashDisk,
    wal: Wal,
    submitted: Vec<(Lsn, WalEntry)>,
    durable: Lsn,
    released: Lsn,
    checkpoint: WalStart,
    next: i64,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut random = Random::new(seed);
        let disk = CrashDisk::new(random.next_u64());
        let wal = create(&disk);
        Model {
            random,
            disk,
            wal,
            submitted: Vec::new(),
            durable: Lsn(0),
            released: Lsn(0),
            checkpoint: start(),
            next: 0,
        }
    }
    fn entry(&mut self) -> WalEntry {
        self.next += 1;
        let log = self.random.below(3);
        let to = Offset(self.next);
        match self.random.below(20) {
            0 => WalEntry::Truncate { key: key(log), to },
            1 => WalEntry::StartOffset { key: key(log), to },
            n => {
                let bound = match n {
                    2 => 40_000,
                    3..7 => 9_000,
                    _ => 700,
                };
                let len = self.random.below(bound) as usize;
                append(log, self.next, len)
            }
        }
    }
    fn submit(&mut self) {
        let entry = self.entry();
        let lsn = self.wal.submit(entry.clone()).end;
        self.submitted.push((lsn, entry));
    }
    fn flush(&mut self) {
        match flush(&self.wal) {
            Ok(durable) => {
                assert_eq!(durable, self.wal.submitted());
                self.durable = durable;
            }
            Err(FlushError::Full) => {
                assert!(!self.wal.wants_flush());
                self.durable = self.wal.durable();
                // Nothing but what is still needed can be in the way.
                let used: u64 = self.wal.used();
                assert!(used + 45_000 + 2 * SETTINGS.segment_bytes > SETTINGS.capacity);
                self.release(self.durable);
                assert!(self.wal.wants_flush());
            }
            Err(FlushError::Disk(_)) => self.durable = self.wal.durable(),
        }
    }
    fn release(&mut self, to: Lsn) {
        self.released = self.released.max(to);
        self.wal.release(to);
    }
    /// Entries that must be found, and how many more may be.
    fn reopen(&mut self, disk: CrashDisk) {
        self.disk = disk;
        let released = self.released;
        let (wal, found) = open(&self.disk, self.checkpoint);
        let end = found.last().map_or(self.durable, |(lsn, _)| *lsn);
        assert!(end >= self.durable.min(end.max(self.released)));
        let must: Vec<_> = self
            .submitted
            .iter()
            .filter(|(lsn, _)| *lsn > released && *lsn <= self.durable)
            .cloned()
            .collect();
        let got: Vec<_> = found
            .iter()
            .filter(|(lsn, _)| *lsn > released && *lsn <= self.durable)
            .cloned()
            .collect();
        assert_eq!(must, got, "what was durable and not released");
        // All of it in order, without a hole, and nothing else.
        if let Some((first, _)) = found.first() {
            let from = self.submitted.iter().position(|(lsn, _)| lsn == first);
            let from = from.expect("only what was submitted");
            assert_eq!(found[..], self.submitted[from..from + found.len()]);
        }
        self.submitted.retain(|(lsn, _)| *lsn <= end);
        self.durable = wal.durable();
        assert!(self.durable >= end);
        assert_eq!(self.durable, wal.submitted());
        self.wal = wal;
    }
    fn step(&mut self) {
        match self.random.below(24) {
            0..10 => self.submit(),
            10..16 => self.flush(),
            16 | 17 => {
                let until = self.wal.durable().0;
                let to = Lsn(self.random.below(until + 1));
                self.release(to);
            }
            18 => {
                self.wal.prepare().unwrap();
            }
            19 => {
                let (place, released) = self.wal.place();
                self.checkpoint.place = place;
                self.checkpoint.released = released;
            }
            20 => {
                let disk = self.disk.kill();
                self.reopen(disk);
            }
            21 => {
                let disk = self.disk.crash(self.random.next_u64());
                self.disk.power_off();
                self.reopen(disk);
            }
            _ => {
                // In the middle of a flush.
                self.disk.fail_after(self.random.below(6));
                self.flush();
                let disk = self.disk.crash(self.random.next_u64());
                self.disk.power_off();
                self.reopen(disk);
            }
        }
    }
}

#[test]
fn whatever_happens_what_was_durable_is_there_and_nothing_else() {
    for seed in 0..2_000 {
        let mut model = Model::new(seed);
        for _ in 0..60 {
            model.step();
        }
    }
}
