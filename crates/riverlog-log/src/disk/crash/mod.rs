//! A disk that is played: it remembers what has been synced, so that power cuts, deaths of the process and faults
//! of the device can be had at any moment, from a seed.

mod content;
mod faults;
mod tree;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use self::content::Content;
pub use self::faults::{FaultOn, Times};
use self::faults::{Faults, Verdict};
use self::tree::{Node, Tree};
use super::{Disk, DiskFile, Entry, OpenMode, Random, read_only};

/// Which unsynced changes a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// None: only what was synced.
    Nothing,
    /// All: the disk happened to be done.
    Everything,
    /// Drawn: any sectors of 512 bytes, any length that the file had since its last sync (with zeros where bytes
    /// were lost), any folder changes (in order for each name).
    Any,
}

/// How many calls a disk has answered since it was made; what a simulator charges time for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `read_at`.
    pub reads: u64,
    /// `write_at` and `set_len`.
    pub writes: u64,
    /// `sync` and `sync_dir`.
    pub syncs: u64,
    /// Files and folders made, renamed, removed.
    pub folder_changes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// A disk in memory for tests and the simulator. Cloning gives another handle to the same disk.
///
/// ```
/// use riverlog_log::disk::{CrashDisk, Disk, OpenMode};
///
/// let disk = CrashDisk::new(7);
/// let file = disk.open("a", OpenMode::Create)?;
/// disk.sync_dir("")?;
/// file.write_at(&[b"kept"], 0)?;
/// file.sync()?;
/// file.write_at(&[b"perhaps"], 4)?;
///
/// let after = disk.crash(1);
/// assert!(after.open("a", OpenMode::Read)?.len()? >= 4);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CrashDisk {
    world: Arc<Mutex<World>>,
}

#[derive(Debug)]
struct World {
    tree: Tree,
    faults: Faults,
    locks: BTreeSet<String>,
    counts: Counts,
    capacity: Option<u64>,
    random: Random,
}

impl CrashDisk {
    /// An empty disk. The seed decides ids that are drawn, and nothing else; crashes bring their own.
    pub fn new(seed: u64) -> CrashDisk {
        CrashDisk::with(Tree::default(), None, Random::new(seed))
    }
    fn with(tree: Tree, capacity: Option<u64>, random: Random) -> CrashDisk {
        CrashDisk {
            world: Arc::new(Mutex::new(World {
                tree,
                faults: Faults::default(),
                locks: BTreeSet::new(),
                counts: Counts::default(),
                capacity,
                random,
            })),
        }
    }
    /// The disk that is found after a power cut at this moment. This one stays as it is, so that several outcomes of
    /// one moment can be looked at; call [`CrashDisk::power_off`] to make its handles fail.
    pub fn crash(&self, seed: u64) -> CrashDisk {
        self.crash_with(seed, Survivors::Any)
    }
    /// As [`CrashDisk::crash`], with the outcome chosen.
    pub fn crash_with(&self, seed: u64, how: Survivors) -> CrashDisk {
        let mut random = Random::new(seed);
        let world = self.world.lock();
        let tree = world.tree.after_crash(how, &mut random);
        CrashDisk::with(tree, world.capacity, random)
    }
    /// The disk that a new process finds after this one died: all that was written, durable or not (a power cut may
    /// still take what isn't). Locks are gone; handles of this disk fail from now on.
    pub fn kill(&self) -> CrashDisk {
        let mut world = self.world.lock();
        world.faults.power_off();
        let random = world.random.fork();
        CrashDisk::with(world.tree.after_kill(), world.capacity, random)
    }
    /// Every call fails from now on.
    pub fn power_off(&self) {
        self.world.lock().faults.power_off();
    }
    /// `changes` more calls that change something (write, set length, sync, make, rename, remove) are answered; the next
    /// one may or may not be done, fails, and with it every later call of any kind. A write that is cut off so is torn
    /// by [`CrashDisk::crash`].
    pub fn fail_after(&self, changes: u64) {
        self.world.lock().faults.fail_after(changes);
    }
    /// As [`CrashDisk::fail_after`], counted from the first change of a path that `matches` on, or of a file that gets such a name.
    pub fn fail_after_meeting(
        &self,
        changes: u64,
        matches: impl Fn(&str) -> bool + Send + 'static,
    ) {
        let mut world = self.world.lock();
        world.faults.fail_after_meeting(changes, Box::new(matches));
    }
    /// Whether every call fails: after [`CrashDisk::power_off`], [`CrashDisk::kill`], or when what was counted has run out.
    pub fn is_off(&self) -> bool {
        self.world.lock().faults.is_off()
    }
    /// Makes calls fail whose path `matches`: with a failed write half the bytes are written; after a failed sync what was
    /// unsynced is shown but can't be made durable by another sync, as on Linux.
    pub fn fail(
        &self,
        on: FaultOn,
        times: Times,
        error: io::ErrorKind,
        matches: impl Fn(&str) -> bool + Send + 'static,
    ) {
        self.world
            .lock()
            .faults
            .add(on, times, error, Box::new(matches));
    }
    /// Takes back all that [`CrashDisk::fail`], [`CrashDisk::fail_after_meeting`] and [`CrashDisk::misdirect`] asked for and that has
    /// not happened yet.
    pub fn heal(&self) {
        self.world.lock().faults.heal();
    }
    /// Bytes that all files together may have; a write beyond is done as far as it fits, then fails with
    /// [`io::ErrorKind::StorageFull`].
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world.lock().capacity = bytes;
    }
    /// No file can grow from now on; what is removed makes room.
    pub fn fill_up(&self) {
        let mut world = self.world.lock();
        world.capacity = Some(world.used());
    }
    /// Flips bits of one byte on the medium. Nothing happens behind the end of the file.
    pub fn flip(&self, path: &str, at: u64, mask: u8) -> io::Result<()> {
        self.damage(path, at, |byte| byte ^ mask)
    }
    /// Zeroes `len` bytes from `at` on the medium, at most to the end of the file.
    pub fn zero(&self, path: &str, at: u64, len: u64) -> io::Result<()> {
        (at..at + len).try_for_each(|at| self.damage(path, at, |_| 0))
    }
    fn damage(&self, path: &str, at: u64, change: impl Fn(u8) -> u8) -> io::Result<()> {
        let world = self.world.lock();
        match world.tree.get(path)? {
            Some(Node::File(content)) => {
                let mut content = content.lock();
                let mut byte = [0];
                if content.current().read(&mut byte, at) == 1 {
                    content.damage(&[change(byte[0])], at);
                }
                Ok(())
            }
            Some(Node::Folder(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }
    /// The next write to a file whose path `matches` lands at `at` of `path` instead, and is answered as if all were well.
    pub fn misdirect(&self, matches: impl Fn(&str) -> bool + Send + 'static, path: &str, at: u64) {
        let mut world = self.world.lock();
        world.faults.misdirect(Box::new(matches), path, at);
    }
    /// Calls answered so far.
    pub fn counts(&self) -> Counts {
        self.world.lock().counts
    }
}

impl World {
    fn used(&self) -> u64 {
        let files = self.tree.files();
        files.iter().map(|file| file.lock().current().len()).sum()
    }
    fn room(&self) -> u64 {
        match self.capacity {
            Some(capacity) => capacity.saturating_sub(self.used()),
            None => u64::MAX,
        }
    }
    /// Asks the faults, then changes the tree.
    fn folder_change<T>(
        &mut self,
        path: &str,
        change: impl FnOnce(&mut Tree) -> io::Result<T>,
    ) -> io::Result<T> {
        self.counts.folder_changes += 1;
        match self.faults.ask(FaultOn::Folder, path) {
            Verdict::Go => change(&mut self.tree),
            Verdict::Fail(e) => Err(e),
            Verdict::FailAfter(e) => {
                change(&mut self.tree)?;
                Err(e)
            }
        }
    }
}

impl Disk for CrashDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.world.lock();
        let content = match (world.tree.get(path)?, mode) {
            (Some(Node::Folder(_)), _) => return Err(Errno::ISDIR.into()),
            (Some(Node::File(content)), _) => {
                world.faults.alive()?;
                content
            }
            (None, OpenMode::Create) => {
                if world.capacity.is_some() && world.room() == 0 {
                    return Err(Errno::NOSPC.into());
                }
                world.folder_change(path, |tree| tree.create(path))?
            }
            (None, _) => {
                world.faults.alive()?;
                return Err(Errno::NOENT.into());
            }
        };
        Ok(Arc::new(CrashFile {
            world: self.world.clone(),
            path: path.to_owned(),
            content,
            writable: mode != OpenMode::Read,
        }))
    }
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let mut world = self.world.lock();
        world.faults.ask(FaultOn::Read, dir).or_fail()?;
        world.tree.list(dir)
    }
    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.folder_change(dir, |tree| tree.create_dir_all(dir))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.faults.meet(to);
        world.folder_change(from, |tree| tree.rename(from, to))
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.folder_change(path, |tree| tree.remove_file(path))
    }
    fn remove_dir_all(&self, dir: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.folder_change(dir, |tree| tree.remove_dir_all(dir))
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.counts.syncs += 1;
        world.faults.ask(FaultOn::Sync, dir).or_fail()?;
        world.tree.sync_dir(dir)
    }
    fn available(&self) -> io::Result<u64> {
        let world = self.world.lock();
        world.faults.alive()?;
        Ok(world.room())
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.open(path, OpenMode::Create)?;
        if !self.world.lock().locks.insert(path.to_owned()) {
            return Err(Errno::WOULDBLOCK.into());
        }
        Ok(Box::new(Held {
            world: self.world.clone(),
            path: path.to_owned(),
        }))
    }
    fn draw_id(&self) -> io::Result<u128> {
        let mut world = self.world.lock();
        let (high, low) = (world.random.next_u64(), world.random.next_u64());
        Ok(u128::from(high) << 64 | u128::from(low))
    }
}

struct Held {
    world: Arc<Mutex<World>>,
    path: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.world.lock().locks.remove(&self.path);
    }
}

struct CrashFile {
    world: Arc<Mutex<World>>,
    path: String,
    content: Arc<Mutex<Content>>,
    writable: bool,
}

impl std::fmt::Debug for CrashFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CrashFile({})", self.path)
    }
}

/// Writes the buffers one after the other, at most `limit` bytes.
fn write_some(content: &Mutex<Content>, bufs: &[&[u8]], mut at: u64, mut limit: u64) {
    let mut content = content.lock();
    for buf in bufs {
        let n = limit.min(buf.len() as u64) as usize;
        if n > 0 {
            content.write(&buf[..n], at);
        }
        at += n as u64;
        limit -= n as u64;
    }
}

impl DiskFile for CrashFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut world = self.world.lock();
        world.faults.ask(FaultOn::Read, &self.path).or_fail()?;
        let n = self.content.lock().current().read(buf, at);
        world.counts.reads += 1;
        world.counts.bytes_read += n as u64;
        Ok(n)
    }
    fn write_at(&self, bufs: &[&[u8]], at: u64) -> io::Result<()> {
        if !self.writable {
            return Err(read_only());
        }
        let mut world = self.world.lock();
        let total: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        world.counts.writes += 1;
        world.counts.bytes_written += total;
        match world.faults.ask(FaultOn::Write, &self.path) {
            Verdict::Go => {}
            Verdict::Fail(e) => {
                if world.faults.alive().is_ok() {
                    write_some(&self.content, bufs, at, total / 2);
                }
                return Err(e);
            }
            Verdict::FailAfter(e) => {
                write_some(&self.content, bufs, at, total);
                return Err(e);
            }
        }
        if let Some((path, at)) = world.faults.misdirected(&self.path) {
            if let Some(Node::File(content)) = world.tree.get(&path)? {
                write_some(&content, bufs, at, total);
            }
            return Ok(());
        }
        let len = self.content.lock().current().len();
        let grows = (at + total).saturating_sub(len);
        if total > 0 && world.capacity.is_some() && grows > world.room() {
            let fits = total.saturating_sub(grows - world.room());
            write_some(&self.content, bufs, at, fits);
            return Err(Errno::NOSPC.into());
        }
        write_some(&self.content, bufs, at, total);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        self.world.lock().faults.alive()?;
        Ok(self.content.lock().current().len())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        if !self.writable {
            return Err(read_only());
        }
        let mut world = self.world.lock();
        world.counts.writes += 1;
        match world.faults.ask(FaultOn::Write, &self.path) {
            Verdict::Go => self.content.lock().set_len(len),
            Verdict::Fail(e) => return Err(e),
            Verdict::FailAfter(e) => {
                self.content.lock().set_len(len);
                return Err(e);
            }
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        let mut world = self.world.lock();
        world.counts.syncs += 1;
        match world.faults.ask(FaultOn::Sync, &self.path) {
            Verdict::Go => {
                self.content.lock().sync();
                Ok(())
            }
            Verdict::Fail(e) => {
                if world.faults.alive().is_ok() {
                    self.content.lock().sync_failed();
                }
                Err(e)
            }
            Verdict::FailAfter(e) => Err(e),
        }
    }
}
