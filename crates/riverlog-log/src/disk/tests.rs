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
