//! The write-ahead log against a list of what was submitted, on a disk that is cut off at any moment.

use std::io::ErrorKind;

use bytes::Bytes;
use riverlog_wire::{Offset, PartitionIndex, TopicId};

use super::format::GROUP_HEADER;
use super::ring::slot_path;
use super::*;
use crate::disk::{CrashDisk, FaultOn, Random, Survivors, Times};
use crate::{Disk, OpenError, OpenMode};

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
        self.wal.take_synced();
        match self.wal.flush() {
            Ok(durable) => {
                assert_eq!(durable, self.wal.submitted());
                self.durable = durable;
            }
            Err(FlushError::Full) => {
                self.durable = self.wal.durable();
                self.wal.take_synced();
                assert!(!self.wal.wants_flush());
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

/// A log with `groups` of one entry each, all durable.
fn filled(disk: &CrashDisk, groups: i64, len: usize) -> (Wal, Vec<(Lsn, WalEntry)>) {
    let wal = create(disk);
    let mut entries = Vec::new();
    for base in 0..groups {
        let entry = append(1, base, len);
        entries.push((wal.submit(entry.clone()).end, entry));
        wal.flush().unwrap();
    }
    (wal, entries)
}

fn content(disk: &CrashDisk, slot: usize) -> Vec<u8> {
    let file = disk.open(&slot_path(slot), OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn damage(disk: &CrashDisk, start: WalStart) -> (String, String) {
    match Wal::open(disk, SETTINGS, start) {
        Err(OpenError::Damaged { path, reason, .. }) => (path, reason),
        Err(other) => panic!("{other:?}"),
        Ok((_, found)) => panic!("{} entries and no damage", found.entries.len()),
    }
}

#[test]
fn a_last_group_torn_at_any_byte_is_not_there_and_those_before_are() {
    let disk = CrashDisk::new(1);
    let (_, entries) = filled(&disk, 2, 100);
    let bytes = content(&disk, 0);
    // An empty group, then one block for each.
    let last = 2 * BLOCK as usize;
    let used = GROUP_HEADER + ENTRY_HEAD + 100;
    for cut in 0..used {
        let torn = disk.crash(1);
        let file = torn.open(&slot_path(0), OpenMode::Write).unwrap();
        file.set_len((last + cut) as u64).unwrap();
        let (wal, found) = open(&torn, start());
        assert_eq!(found, entries[..1], "cut at {cut}");
        // The log goes on where it ends.
        let next = append(1, 9, 10);
        let end = wal.submit(next.clone()).end;
        wal.flush().unwrap();
        let (_, found) = open(&torn.crash_with(1, Survivors::Nothing), start());
        assert_eq!(found[1..], [(end, next)]);

        let torn = disk.crash(1);
        torn.flip(&slot_path(0), (last + cut) as u64, 0x10).unwrap();
        let (_, found) = open(&torn, start());
        assert_eq!(found, entries[..1], "flipped at {cut}");
    }
    // What fills the block is nobody's.
    disk.flip(&slot_path(0), (last + used) as u64, 1).unwrap();
    assert_eq!(open(&disk, start()).1, entries);
    assert_eq!(bytes.len(), last + BLOCK as usize);
}

#[test]
fn damage_before_the_last_group_is_an_error_with_the_file() {
    let disk = CrashDisk::new(1);
    let (wal, _) = filled(&disk, 12, 2_000);
    assert!(wal.used() > 3 * SETTINGS.segment_bytes);
    // All groups but the last, in all files, at the header and in the entries.
    for slot in 0..4 {
        for offset in (0..content(&disk, slot).len() as u64).step_by(BLOCK as usize) {
            if slot == 4 - 1 && offset > 0 {
                break;
            }
            for within in [0, 30, 45, 79, 80, 1_000] {
                let hurt = disk.crash(1);
                let at = offset + within;
                hurt.flip(&slot_path(slot), at, 4).unwrap();
                if slot == 0 && offset == 0 && within >= 80 {
                    // The group of the beginning is empty.
                    open(&hurt, start());
                    continue;
                }
                let (path, reason) = damage(&hurt, start());
                assert!(path.starts_with("wal"), "{slot} {at}: {path} {reason}");
            }
        }
    }
}

#[test]
fn many_laps_reuse_the_files_and_recovery_reads_only_what_is_needed() {
    let disk = CrashDisk::new(1);
    let wal = create(&disk);
    while wal.prepare().unwrap() {}
    let mut entries = Vec::new();
    let mut longest = 0;
    for base in 0..2_000 {
        let entry = append(base as u64 % 5, base, 900);
        entries.push((wal.submit(entry.clone()).end, entry));
        wal.flush().unwrap();
        if base > 10 {
            wal.release(entries[base as usize - 10].0);
        }
        longest = longest.max(wal.used());
        wal.prepare().unwrap();
    }
    assert!(longest <= SETTINGS.capacity);
    assert!(wal.submitted().0 > 10 * SETTINGS.capacity);
    let files = disk.list("wal").unwrap();
    assert_eq!(files.len(), 8);
    for slot in 0..8 {
        assert_eq!(content(&disk, slot).len() as u64, SETTINGS.segment_bytes);
    }
    let (_, found) = open(&disk.crash_with(1, Survivors::Nothing), start());
    // The last release is in no group yet.
    assert_eq!(found, entries[2_000 - 11..]);
}

#[test]
fn a_full_log_keeps_the_queue_until_it_is_released() {
    let disk = CrashDisk::new(1);
    let wal = create(&disk);
    let mut base = 0;
    let full = loop {
        wal.submit(append(1, base, 3_000));
        base += 1;
        match wal.flush() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(full, FlushError::Full), "{full}");
    assert_eq!(wal.take_synced(), [(key(1), Offset(base - 1))].into());
    assert!(!wal.wants_flush());
    assert!(wal.queued() > 3_000);
    assert!(wal.pressing().is_some());
    assert!(matches!(wal.flush(), Err(FlushError::Full)));

    // What is needed last can't be told apart from the rest by half.
    wal.release(Lsn(3_044));
    assert!(!wal.wants_flush());
    wal.release(Lsn(5 * 3_044));
    assert!(wal.wants_flush());
    wal.flush().unwrap();
    assert_eq!(wal.take_synced(), [(key(1), Offset(base))].into());
    // The release is durable before what it freed is written over.
    let (_, found) = open(&disk.crash_with(1, Survivors::Nothing), start());
    assert_eq!(found.len() as i64, base - 5);
}

#[test]
fn an_entry_larger_than_the_log_fits_and_its_file_shrinks_again() {
    let disk = CrashDisk::new(1);
    let wal = create(&disk);
    let small = append(1, 0, 10);
    let large = append(1, 1, 3 * SETTINGS.capacity as usize);
    let after = append(1, 2, 10);
    for entry in [&small, &large, &after] {
        wal.submit(entry.clone());
        wal.flush().unwrap();
    }
    let (wal, found) = open(&disk.crash_with(1, Survivors::Nothing), start());
    let found: Vec<WalEntry> = found.into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(found, [small, large, after]);
    assert!(wal.pressing().is_some());
    wal.release(wal.submitted());
    wal.submit(append(1, 3, 10));
    wal.flush().unwrap();
    while wal.prepare().unwrap() {}
    assert!(wal.used() <= SETTINGS.segment_bytes);
}

#[test]
fn a_failed_sync_ends_the_log_for_good() {
    for on in [FaultOn::Write, FaultOn::Sync] {
        let disk = CrashDisk::new(1);
        let (wal, entries) = filled(&disk, 2, 100);
        let error = ErrorKind::Other;
        disk.fail(on, Times::Once, error, |path| path.starts_with("wal"));
        let range = wal.submit(append(1, 2, 100));
        assert!(matches!(wal.flush(), Err(FlushError::Disk(_))));
        assert_eq!(wal.durable(), range.start);
        wal.take_synced();
        // The disk is well again; the log isn't, and takes no memory for what can't be kept.
        wal.submit(append(1, 3, 100));
        assert!(matches!(wal.flush(), Err(FlushError::Disk(_))));
        assert!(!wal.wants_flush());
        assert_eq!(wal.queued(), 0);
        assert!(wal.failed().is_some());
        let (wal, found) = open(&disk.kill(), start());
        assert_eq!(found[..2], entries);
        assert!(found.len() <= 3);
        assert!(wal.failed().is_none());
    }
}

#[test]
fn a_group_that_only_the_system_has_is_written_again_at_the_next_start() {
    let disk = CrashDisk::new(1);
    let (wal, entries) = filled(&disk, 2, 100);
    disk.fail(FaultOn::Sync, Times::Once, ErrorKind::Other, |_| true);
    let late = append(1, 2, 100);
    let end = wal.submit(late.clone()).end;
    wal.flush().unwrap_err();
    // The process dies; the system still shows the group, and no longer knows that it isn't on the disk.
    let disk = disk.kill();
    let (wal, found) = open(&disk, start());
    assert_eq!(found[..2], entries);
    assert_eq!(found[2..], [(end, late.clone())]);
    let next = append(1, 3, 100);
    let next_end = wal.submit(next.clone()).end;
    wal.flush().unwrap();
    let (_, found) = open(&disk.crash_with(1, Survivors::Nothing), start());
    assert_eq!(found[2..], [(end, late), (next_end, next)]);
}

#[test]
fn without_room_the_queue_is_kept_and_written_when_there_is_some() {
    for fits in (0..3 * BLOCK).step_by(512) {
        let disk = CrashDisk::new(1);
        let (wal, mut entries) = filled(&disk, 2, 100);
        disk.set_capacity(Some(3 * BLOCK + fits));
        let mut submit = |base, len| {
            let entry = append(1, base, len);
            entries.push((wal.submit(entry.clone()).end, entry));
            wal.flush()
        };
        let Err(FlushError::Disk(error)) = submit(2, 3 * BLOCK as usize) else {
            panic!("{fits} bytes were enough");
        };
        assert!(error.is_full());
        assert!(wal.wants_flush() && wal.failed().is_none());
        // More is queued meanwhile, and the process may die.
        submit(3, 10).unwrap_err();
        let (_, found) = open(&disk.crash(fits), start());
        assert_eq!(found, entries[..2]);
        let again = disk.clone();
        again.set_capacity(None);
        wal.flush().unwrap();
        let (_, found) = open(&disk.crash_with(1, Survivors::Nothing), start());
        assert_eq!(found, entries);
    }
}

#[test]
fn files_written_through_need_no_room() {
    let disk = CrashDisk::new(1);
    let wal = create(&disk);
    while wal.prepare().unwrap() {}
    wal.release(wal.submitted());
    // The file that was in use meanwhile comes last.
    for base in 0..4 {
        wal.submit(append(1, base, 5_000));
        wal.flush().unwrap();
        wal.release(wal.durable());
    }
    while wal.prepare().unwrap() {}
    disk.set_capacity(Some(0));
    for base in 4..200 {
        wal.submit(append(1, base, 5_000));
        wal.flush().unwrap();
        wal.release(wal.durable());
    }
    // Nor does the start.
    let (wal, found) = open(&disk.kill(), start());
    assert_eq!(found.len(), 1);
    wal.submit(append(1, 200, 5_000));
    wal.flush().unwrap();
}

#[test]
fn a_missing_or_emptied_file_is_noticed() {
    let disk = CrashDisk::new(1);
    let (wal, entries) = filled(&disk, 12, 2_000);
    let (place, _) = wal.place();
    for slot in 0..8 {
        let hurt = disk.crash(1);
        hurt.remove_file(&slot_path(slot)).unwrap();
        let (path, _) = damage(&hurt, start());
        assert!(path.starts_with("wal"));
        // Without its last file the log looks like one that ended earlier: the checkpoint knows better.
        let hurt = disk.crash(1);
        let file = hurt.open(&slot_path(slot), OpenMode::Write).unwrap();
        let needed = file.len().unwrap() > 0;
        file.set_len(0).unwrap();
        if needed {
            damage(&hurt, WalStart { place, ..start() });
        } else {
            assert_eq!(open(&hurt, start()).1, entries);
        }
    }
    let hurt = disk.crash(1);
    hurt.remove_dir_all("wal").unwrap();
    assert_eq!(damage(&hurt, start()).0, slot_path(0));
    // After a clean stop nothing in them is needed.
    let clean = WalStart {
        place,
        released: place.durable,
        clean: true,
        ..start()
    };
    let (wal, found) = open(&hurt, clean);
    assert!(found.is_empty());
    let end = wal.submit(append(1, 50, 10)).end;
    wal.flush().unwrap();
    let checkpoint = WalStart {
        clean: false,
        ..clean
    };
    let (_, found) = open(&hurt.crash_with(1, Survivors::Nothing), checkpoint);
    assert_eq!(found, [(end, append(1, 50, 10))]);
}

#[test]
fn another_volumes_log_and_misplaced_groups_are_not_taken() {
    let disk = CrashDisk::new(1);
    filled(&disk, 2, 100);
    let other = WalStart {
        volume: VOLUME + 1,
        ..start()
    };
    damage(&disk, other);
    // The disk writes a group over the file of another lap.
    let disk = CrashDisk::new(1);
    let (wal, entries) = filled(&disk, 5, 2_000);
    disk.misdirect(|path| path == slot_path(2), &slot_path(0), 2 * BLOCK);
    wal.submit(append(1, 5, 2_000));
    wal.flush().unwrap();
    assert_eq!(wal.place().0.segment, 2);
    let (path, _) = damage(&disk, start());
    assert_eq!(path, slot_path(0));
    assert_eq!(entries.len(), 5);
}

#[test]
fn the_log_can_grow_and_shrink_between_starts() {
    let disk = CrashDisk::new(1);
    let (_, mut entries) = filled(&disk, 12, 2_000);
    let mut disk = disk.crash(1);
    let sizes = [(2, 16), (20, 16), (3, 64), (8, 32), (2, 16)];
    for (round, (slots, kib)) in sizes.into_iter().enumerate() {
        let settings = WalSettings {
            capacity: slots * kib * 1024,
            segment_bytes: kib * 1024,
        };
        let (wal, recovered) = Wal::open(&disk, settings, start()).unwrap();
        assert_eq!(recovered.entries, entries);
        wal.release(recovered.entries[4].0);
        entries.drain(..5);
        for n in 0..5 {
            while wal.prepare().unwrap() {}
            let base = round as i64 * 5 + n + 12;
            let entry = append(2, base, 2_000);
            entries.push((wal.submit(entry.clone()).end, entry));
            if wal.flush().is_err() {
                // It is smaller than what is needed.
                let keep = entries.split_off(entries.len() - 1);
                wal.release(entries.last().unwrap().0);
                entries = keep;
                wal.flush().unwrap();
            }
        }
        // A later group says that the first five aren't needed.
        disk = disk.crash_with(1, Survivors::Nothing);
    }
}

#[test]
fn deletions_and_marks_void_what_came_before() {
    let disk = CrashDisk::new(1);
    let wal = create(&disk);
    wal.submit(append(1, 0, 10));
    wal.submit(append(2, 0, 10));
    wal.submit_deleted(key(1));
    let covered = wal.submit(append(2, 1, 10)).end;
    let mark = Mark {
        mark: crate::volume::LogMark {
            start: Offset(1),
            end: Offset(2),
            segments_synced: Offset(2),
            size_bytes: 20,
            last_epoch: 4.into(),
            check: Default::default(),
        },
        covered,
    };
    let mark_range = wal.submit_mark(key(2), mark);
    let anew = wal.submit(append(1, 7, 10)).end;
    let after = wal.submit(append(2, 2, 10)).end;
    wal.flush().unwrap();
    let (_, recovered) = Wal::open(&disk.kill(), SETTINGS, start()).unwrap();
    let expected = [(anew, append(1, 7, 10)), (after, append(2, 2, 10))];
    assert_eq!(recovered.entries, expected);
    assert_eq!(recovered.deleted.len(), 1);
    assert_eq!(recovered.marks, [(key(2), (mark_range, mark))].into());
}

#[test]
fn a_mark_of_entries_that_never_became_durable_is_not_taken_for_one_of_later_entries() {
    let disk = CrashDisk::new(1);
    let (wal, _) = filled(&disk, 1, 10);
    let lost = wal.submit(append(1, 1, 5_000)).end;
    drop(wal);
    let beyond = WalStart {
        beyond: lost,
        ..start()
    };
    let (wal, _) = open(&disk.crash_with(1, Survivors::Nothing), beyond);
    assert_eq!(wal.submitted(), lost);
    assert_eq!(wal.durable(), lost);
}

#[test]
fn a_group_of_another_history_is_not_taken_for_the_next_one() {
    // Two histories with the same places after the first group.
    let disk = CrashDisk::new(1);
    filled(&disk, 1, 100);
    let other = disk.crash(1);
    let write = |disk: &CrashDisk, fill: i64| {
        let (wal, _) = open(disk, start());
        for n in 0..2 {
            wal.submit(append(1, fill + n, 1_000));
            wal.flush().unwrap();
        }
    };
    write(&disk, 10);
    write(&other, 50);
    // The last write of one was lost after it had been acknowledged, and what lies there is the other's.
    let place = (slot_path(1), 0);
    assert_eq!(content(&disk, 1).len(), BLOCK as usize);
    let stale = other.open(&place.0, OpenMode::Read).unwrap();
    let mut block = vec![0; BLOCK as usize];
    stale.read_at(&mut block, place.1).unwrap();
    let file = disk.open(&place.0, OpenMode::Write).unwrap();
    file.write_at(&[&block], place.1).unwrap();
    let (path, reason) = damage(&disk, start());
    assert!(reason.contains("another file"), "{path}: {reason}");
}

#[test]
fn a_file_is_reused_only_when_a_durable_group_says_so() {
    let disk = CrashDisk::new(1);
    let (wal, entries) = filled(&disk, 20, 2_000);
    // Released, but no group has told yet: a crash finds the log whole, and all of it needed.
    wal.release(entries[18].0);
    assert!(wal.used() > 6 * 3 * BLOCK);
    let (_, found) = open(&disk.crash_with(1, Survivors::Nothing), start());
    assert_eq!(found, entries);
    wal.submit(append(1, 20, 2_000));
    wal.flush().unwrap();
    assert!(wal.used() <= 2 * 3 * BLOCK);
    let (_, found) = open(&disk.crash_with(1, Survivors::Nothing), start());
    assert_eq!(found.len(), 2);
}

#[test]
fn preparing_never_takes_the_last_file_that_a_flush_could_use() {
    let disk = CrashDisk::new(1);
    let settings = WalSettings {
        capacity: 2 * SETTINGS.segment_bytes,
        ..SETTINGS
    };
    let wal = Wal::create(&disk, settings, VOLUME).unwrap();
    let before = disk.counts();
    assert!(!wal.prepare().unwrap());
    assert_eq!(disk.counts(), before);
    wal.submit(append(1, 0, 14_000));
    wal.flush().unwrap();
}

#[test]
fn a_larger_log_on_a_full_disk_goes_on_with_the_files_it_has() {
    let disk = CrashDisk::new(1);
    let (_, entries) = filled(&disk, 2, 100);
    let disk = disk.crash(1);
    disk.set_capacity(Some(0));
    let settings = WalSettings {
        capacity: 2 * SETTINGS.capacity,
        ..SETTINGS
    };
    let (_, recovered) = Wal::open(&disk, settings.clone(), start()).unwrap();
    assert_eq!(recovered.entries, entries);
    assert_eq!(disk.list("wal").unwrap().len(), 8);
    disk.set_capacity(None);
    Wal::open(&disk, settings, start()).unwrap();
    assert_eq!(disk.list("wal").unwrap().len(), 16);
}
