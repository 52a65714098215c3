//! The disks against each other, and what a crash leaves against what was synced.

use std::io;
use std::sync::Arc;

use super::*;

/// One random call on two disks; both must answer alike.
struct Pair {
    random: Random,
    disks: [Arc<dyn Disk>; 2],
    files: Vec<(String, [Arc<dyn DiskFile>; 2])>,
}

/// Which error a confusion of files and folders gives is nobody's business.
fn alike(a: &io::Error, b: &io::Error) -> bool {
    let confused = |e: &io::Error| {
        matches!(
            e.kind(),
            io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::DirectoryNotEmpty
                | io::ErrorKind::InvalidInput
        )
    };
    a.kind() == b.kind() || confused(a) || confused(b)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, answers: [io::Result<T>; 2]) -> Option<T> {
    match answers {
        [Ok(a), Ok(b)] => {
            assert_eq!(a, b, "{what}");
            Some(a)
        }
        [Err(a), Err(b)] => {
            assert!(alike(&a, &b), "{what}: {a} / {b}");
            None
        }
        [a, b] => panic!("{what}: {a:?} / {b:?}"),
    }
}

impl Pair {
    fn path(&mut self) -> String {
        let depth = 1 + self.random.below(3);
        let parts: Vec<String> = (0..depth)
            .map(|_| format!("n{}", self.random.below(4)))
            .collect();
        parts.join("/")
    }
    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.random.below(4) {
            0 => self.random.below(4),
            1 => self.random.below(5_000),
            2 => self.random.below(600),
            _ => self.random.below(50_000),
        };
        let mut bytes = vec![0; len as usize];
        self.random.fill(&mut bytes);
        bytes
    }
    fn step(&mut self) {
        let path = self.path();
        let other = self.path();
        let at = self.random.below(20_000);
        let bytes = self.bytes();
        let file = self.random.below(self.files.len().max(1) as u64) as usize;
        let disks = self.disks.clone();
        let each = |f: &dyn Fn(&dyn Disk) -> io::Result<()>| {
            let [a, b] = &disks;
            [f(&**a), f(&**b)]
        };
        match self.random.below(14) {
            0 | 1 => {
                let mode = match self.random.below(3) {
                    0 => OpenMode::Read,
                    1 => OpenMode::Write,
                    _ => OpenMode::Create,
                };
                let [a, b] = &disks;
                match (a.open(&path, mode), b.open(&path, mode)) {
                    (Ok(a), Ok(b)) => self.files.push((path, [a, b])),
                    (Err(a), Err(b)) => assert!(alike(&a, &b), "open {path}: {a} / {b}"),
                    (a, b) => panic!("open {path} {mode:?}: {a:?} / {b:?}"),
                }
                if self.files.len() > 12 {
                    self.files.remove(0);
                }
            }
            2 => {
                same("list", [disks[0].list(&path), disks[1].list(&path)]);
            }
            3 => {
                same("create_dir_all", each(&|d| d.create_dir_all(&path)));
            }
            4 => {
                same(
                    &format!("rename {path} {other}"),
                    each(&|d| d.rename(&path, &other)),
                );
            }
            5 => {
                same("remove_file", each(&|d| d.remove_file(&path)));
            }
            6 if self.random.chance(1, 4) => {
                same("remove_dir_all", each(&|d| d.remove_dir_all(&path)));
            }
            7 => {
                same("sync_dir", each(&|d| d.sync_dir(&path)));
            }
            _ if self.files.is_empty() => {}
            8 | 9 if !bytes.is_empty() => {
                let (path, [a, b]) = &self.files[file];
                let end = a.len().unwrap();
                let at = if at.is_multiple_of(3) { at } else { end };
                let (x, y) = bytes.split_at(bytes.len() / 3);
                let bufs = [x, &[], y];
                same(path, [a.write_at(&bufs, at), b.write_at(&bufs, at)]);
            }
            10 => {
                let (path, [a, b]) = &self.files[file];
                same(path, [a.set_len(at), b.set_len(at)]);
            }
            11 => {
                let (path, [a, b]) = &self.files[file];
                same(path, [a.sync(), b.sync()]);
            }
            _ => {
                let (path, [a, b]) = &self.files[file];
                let read = |f: &dyn DiskFile| {
                    let mut buf = vec![0; bytes.len()];
                    let n = f.read_at(&mut buf, at)?;
                    buf.truncate(n);
                    Ok(buf)
                };
                same(path, [read(&**a), read(&**b)]);
                same(path, [a.len(), b.len()]);
            }
        }
    }
}

fn compare(make: impl Fn(&std::path::Path) -> [Arc<dyn Disk>; 2]) {
    for seed in 0..30 {
        let dir = tempfile::tempdir().unwrap();
        let mut pair = Pair {
            random: Random::new(seed),
            disks: make(dir.path()),
            files: Vec::new(),
        };
        for _ in 0..300 {
            pair.step();
        }
    }
}

#[test]
fn memory_answers_as_the_system_does() {
    compare(|root| {
        [
            Arc::new(SystemDisk::open(root).unwrap()),
            Arc::new(MemoryDisk::new()),
        ]
    });
}

#[test]
fn the_crash_disk_answers_as_memory_does() {
    compare(|_| [Arc::new(MemoryDisk::new()), Arc::new(CrashDisk::new(1))]);
}

fn content(disk: &dyn Disk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

fn names(disk: &dyn Disk, dir: &str) -> Vec<String> {
    let entries = disk.list(dir).unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

/// A file `a` that is durable, with that content.
fn with_file(bytes: &[u8]) -> (CrashDisk, Arc<dyn DiskFile>) {
    let disk = CrashDisk::new(1);
    let file = disk.open("a", OpenMode::Create).unwrap();
    file.write_at(&[bytes], 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    (disk, file)
}

#[test]
fn a_power_cut_leaves_what_was_synced_and_any_sectors_of_the_rest() {
    let (disk, file) = with_file(&[1; 2048]);
    // Two versions of the sectors in the middle, and an end that grows.
    file.write_at(&[&[2; 1024]], 512).unwrap();
    file.write_at(&[&[3; 512]], 1024).unwrap();
    file.write_at(&[&[4; 1100]], 2048).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..3_000 {
        let left = content(&disk.crash(seed), "a").unwrap();
        assert!([2048, 3148].contains(&left.len()), "{}", left.len());
        let sectors: Vec<Vec<u8>> = left
            .chunks(512)
            .map(|sector| {
                let mut kinds = sector.to_vec();
                kinds.dedup();
                kinds
            })
            .collect();
        // A sector is whole, the version of one moment.
        let allowed: [&[u8]; 7] = [&[1], &[1, 2], &[1, 2, 3], &[1], &[0, 4], &[0, 4], &[0, 4]];
        for (sector, allowed) in sectors.iter().zip(allowed) {
            assert!(
                sector.len() == 1 && allowed.contains(&sector[0]),
                "{sectors:?}"
            );
        }
        seen.insert(sectors.concat());
    }
    // Nothing, everything, and the mixtures.
    assert!(seen.contains(&vec![1, 1, 1, 1]));
    assert!(seen.contains(&vec![1, 2, 3, 1, 4, 4, 4]));
    assert!(seen.contains(&vec![1, 2, 1, 1, 0, 4, 0]));
    assert!(seen.len() > 40, "{}", seen.len());
    assert_eq!(
        content(&disk.crash_with(0, Survivors::Nothing), "a").unwrap(),
        [1; 2048]
    );
    let all = content(&disk.crash_with(0, Survivors::Everything), "a");
    assert_eq!(all, content(&disk, "a"));
    // A seed is an outcome.
    assert_eq!(content(&disk.crash(5), "a"), content(&disk.crash(5), "a"));
}

#[test]
fn a_cut_is_not_durable_either_until_it_is_synced() {
    let (disk, file) = with_file(&[1; 1000]);
    file.set_len(100).unwrap();
    file.write_at(&[&[2; 50]], 100).unwrap();
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..500 {
        let left = content(&disk.crash(seed), "a").unwrap();
        assert_eq!(left[..100], [1; 100]);
        lengths.insert(left.len());
        if left.len() == 100 + 50 {
            assert!(left[100..].iter().all(|b| [0, 1, 2].contains(b)));
        }
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [100, 150, 1000]);
    file.sync().unwrap();
    assert_eq!(content(&disk.crash(1), "a").unwrap().len(), 150);
}

#[test]
fn entries_of_folders_are_durable_once_the_folder_is_synced() {
    let disk = CrashDisk::new(1);
    disk.create_dir_all("d/e").unwrap();
    disk.open("d/e/f", OpenMode::Create)
        .unwrap()
        .sync()
        .unwrap();
    let nothing = |disk: &CrashDisk| disk.crash_with(1, Survivors::Nothing);
    assert!(names(&nothing(&disk), "").is_empty());
    disk.sync_dir("d/e").unwrap();
    assert!(names(&nothing(&disk), "").is_empty());
    disk.sync_dir("").unwrap();
    assert!(names(&nothing(&disk), "d").is_empty());
    disk.sync_dir("d").unwrap();
    assert_eq!(names(&nothing(&disk), "d/e"), ["f"]);
    // Removed, and it comes back.
    disk.remove_dir_all("d").unwrap();
    assert_eq!(names(&nothing(&disk), "d/e"), ["f"]);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let left = disk.crash(seed);
        seen.insert((names(&left, ""), names(&left, "d/e")));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    disk.sync_dir("").unwrap();
    assert!(names(&disk.crash(1), "").is_empty());
}

#[test]
fn a_rename_happened_or_not_and_the_file_is_never_lost() {
    let (disk, _) = with_file(b"old");
    let file = disk.open("a.tmp", OpenMode::Create).unwrap();
    file.write_at(&[b"new"], 0).unwrap();
    file.sync().unwrap();
    disk.rename("a.tmp", "a").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let left = disk.crash(seed);
        seen.insert((content(&left, "a").unwrap(), content(&left, "a.tmp")));
    }
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    let allowed = [
        (new.clone(), None),
        (old.clone(), None),
        (old, Some(new.clone())),
    ];
    assert_eq!(seen, allowed.into());
    disk.sync_dir("").unwrap();
    assert_eq!(content(&disk.crash(1), "a").unwrap(), new);
}

#[test]
fn after_a_failed_sync_another_one_makes_nothing_durable_that_was_not_written_again() {
    let (disk, file) = with_file(&[1; 1024]);
    file.write_at(&[&[2; 1024]], 0).unwrap();
    disk.fail(FaultOn::Sync, Times::Once, io::ErrorKind::Other, |path| {
        path == "a"
    });
    file.sync().unwrap_err();
    // The system shows it.
    assert_eq!(content(&disk, "a").unwrap(), [2; 1024]);
    file.write_at(&[&[3; 512]], 512).unwrap();
    file.sync().unwrap();
    let left = content(&disk.crash_with(1, Survivors::Nothing), "a").unwrap();
    assert_eq!(left, [[1; 512], [3; 512]].concat());
    // It may have been written before the sync failed.
    let any = (0..100).map(|seed| content(&disk.crash(seed), "a").unwrap()[0]);
    assert_eq!(
        any.collect::<std::collections::BTreeSet<u8>>(),
        [1, 2].into()
    );
    let killed = disk.kill();
    assert_eq!(
        content(&killed, "a").unwrap(),
        [[2; 512], [3; 512]].concat()
    );
}

#[test]
fn when_the_power_is_gone_every_call_fails_also_on_old_handles() {
    let (disk, file) = with_file(b"x");
    disk.fail_after(1);
    file.write_at(&[b"y"], 0).unwrap();
    file.sync().unwrap_err();
    let mut byte = [0];
    file.read_at(&mut byte, 0).unwrap_err();
    file.len().unwrap_err();
    disk.open("a", OpenMode::Read).unwrap_err();
    disk.list("").unwrap_err();
    disk.sync_dir("").unwrap_err();
    disk.available().unwrap_err();
    let after = disk.crash(1);
    let file_after = after.open("a", OpenMode::Write).unwrap();
    file_after.write_at(&[b"z"], 0).unwrap();
    file.write_at(&[b"w"], 0).unwrap_err();
    // A process that died leaves its handles useless too, and what it wrote.
    let killed = after.kill();
    file_after.sync().unwrap_err();
    assert_eq!(content(&killed, "a").unwrap(), b"z");
}

#[test]
fn the_power_goes_so_many_changes_after_a_name_was_met() {
    for (changes, last) in [(0, 1), (1, 2), (2, 3)] {
        let (disk, file) = with_file(b"x");
        disk.fail_after_meeting(changes, |path| path == "b");
        file.write_at(&[b"y"], 0).unwrap();
        let mut done = 1;
        let mut after = |result: io::Result<()>| done += u64::from(result.is_ok());
        after(disk.rename("a", "b"));
        after(disk.sync_dir(""));
        assert_eq!(disk.is_off(), changes < 2);
        after(disk.remove_file("b"));
        assert_eq!((done, disk.is_off()), (last, true));
    }
}

#[test]
fn faults_happen_where_and_as_often_as_asked() {
    let (disk, file) = with_file(&[1; 8]);
    let other = disk.open("b", OpenMode::Create).unwrap();
    disk.fail(
        FaultOn::Read,
        Times::Forever,
        io::ErrorKind::Other,
        |path| path == "a",
    );
    disk.fail(FaultOn::Write, Times::Once, io::ErrorKind::Other, |path| {
        path == "a"
    });
    for _ in 0..3 {
        file.read_at(&mut [0], 0).unwrap_err();
    }
    other.read_at(&mut [0], 0).unwrap();
    // Half of it is written.
    file.write_at(&[&[2; 4]], 0).unwrap_err();
    file.write_at(&[&[3; 1]], 7).unwrap();
    disk.heal();
    assert_eq!(content(&disk, "a").unwrap(), [2, 2, 1, 1, 1, 1, 1, 3]);
    disk.fail(FaultOn::Folder, Times::Once, io::ErrorKind::Other, |path| {
        path == "a"
    });
    disk.rename("a", "c").unwrap_err();
    disk.rename("a", "c").unwrap();
    // Damage, and a block that lands elsewhere.
    disk.flip("c", 1, 0xff).unwrap();
    disk.zero("c", 4, 100).unwrap();
    disk.misdirect(|path| path == "b", "c", 6);
    other.write_at(&[b"bb"], 0).unwrap();
    assert_eq!(
        content(&disk, "c").unwrap(),
        [2, 253, 1, 1, 0, 0, b'b', b'b']
    );
    assert_eq!(content(&disk, "b").unwrap(), b"");
    // Damage is on the medium; the misplaced write isn't durable.
    let left = content(&disk.crash_with(1, Survivors::Nothing), "a").unwrap();
    assert_eq!(left, [1, 253, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn a_full_disk_takes_what_fits() {
    let (disk, file) = with_file(&[1; 100]);
    disk.set_capacity(Some(150));
    assert_eq!(disk.available().unwrap(), 50);
    let error = file.write_at(&[&[2; 40], &[3; 40]], 90).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(
        content(&disk, "a").unwrap()[88..],
        [&[1, 1][..], &[2; 40], &[3; 20]].concat()
    );
    disk.open("b", OpenMode::Create).unwrap_err();
    // In place there is room.
    file.write_at(&[&[4; 150]], 0).unwrap();
    file.set_len(10).unwrap();
    file.write_at(&[&[5; 140]], 10).unwrap();
}

#[test]
fn counts_say_what_was_asked_of_the_disk() {
    let (disk, file) = with_file(&[1; 100]);
    let before = disk.counts();
    file.write_at(&[&[1; 30], &[2; 12]], 0).unwrap();
    file.read_at(&mut [0; 200], 0).unwrap();
    file.sync().unwrap();
    disk.remove_file("a").unwrap();
    let after = disk.counts();
    assert_eq!(after.writes - before.writes, 1);
    assert_eq!(after.bytes_written - before.bytes_written, 42);
    assert_eq!(after.reads - before.reads, 1);
    assert_eq!(after.bytes_read - before.bytes_read, 100);
    assert_eq!(after.syncs - before.syncs, 1);
    assert_eq!(after.folder_changes - before.folder_changes, 1);
}

#[test]
fn the_system_writes_any_number_of_buffers() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SystemDisk::open(&dir.path().join("made/below")).unwrap();
    let file = disk.open("f", OpenMode::Create).unwrap();
    let pieces: Vec<Vec<u8>> = (0..5_000).map(|n| vec![n as u8; n % 7]).collect();
    let bufs: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    file.write_at(&bufs, 3).unwrap();
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    let written = content(&disk, "f").unwrap();
    assert_eq!(written[..3], [0; 3]);
    assert_eq!(written[3..], pieces.concat());
    assert!(file.fd().is_some());
    assert!(disk.available().unwrap() > 0);
}

#[test]
fn no_path_leads_out_of_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let disks: [Arc<dyn Disk>; 3] = [
        Arc::new(SystemDisk::open(dir.path()).unwrap()),
        Arc::new(MemoryDisk::new()),
        Arc::new(CrashDisk::new(1)),
    ];
    for disk in disks {
        for path in ["", "/etc", "..", "a/../b", "a//b", "./a", "a/", "a\0"] {
            let error = disk.open(path, OpenMode::Create).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::InvalidInput,
                "{disk:?} {path:?}"
            );
            assert!(disk.remove_dir_all(path).is_err(), "{path:?}");
        }
    }
}

#[test]
fn a_lock_is_held_until_its_guard_goes() {
    let dir = tempfile::tempdir().unwrap();
    let disks: [Arc<dyn Disk>; 3] = [
        Arc::new(SystemDisk::open(dir.path()).unwrap()),
        Arc::new(MemoryDisk::new()),
        Arc::new(CrashDisk::new(1)),
    ];
    for disk in disks {
        let held = disk.lock("lock").unwrap();
        let again = disk.lock("lock").err().map(|e| e.kind());
        assert_eq!(again, Some(io::ErrorKind::WouldBlock));
        drop(disk.lock("other").unwrap());
        drop(held);
        drop(disk.lock("lock").unwrap());
    }
    // Another process is another description of the file, and flock tells them apart.
    let disk = SystemDisk::open(dir.path()).unwrap();
    let foreign = std::fs::File::open(dir.path().join("lock")).unwrap();
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&foreign, exclusive).unwrap();
    let refused = disk.lock("lock").err().map(|e| e.kind());
    assert_eq!(refused, Some(io::ErrorKind::WouldBlock));
    drop(foreign);
    disk.lock("lock").unwrap();
}

#[test]
fn numbers_of_a_seed_are_the_same_everywhere() {
    let mut random = Random::new(42);
    let numbers = [random.next_u64(), random.next_u64(), random.next_u64()];
    let known = [
        13679457532755275413,
        2949826092126892291,
        5139283748462763858,
    ];
    assert_eq!(numbers, known);
    let mut below = [0; 10];
    for _ in 0..10_000 {
        below[random.below(10) as usize] += 1;
    }
    assert!(below.iter().all(|n| (800..1_200).contains(n)), "{below:?}");
    assert_eq!(random.below(0), 0);
    let mut bytes = [0; 13];
    random.fork().fill(&mut bytes);
    assert_ne!(bytes, [0; 13]);
}
