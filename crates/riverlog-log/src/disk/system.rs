//! Files of the operating system.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Disk, DiskFile, Entry, OpenMode, split};

/// A folder of the operating system's.
#[derive(Debug)]
pub struct SystemDisk {
    root: PathBuf,
}

impl SystemDisk {
    /// Makes the folder when it is missing; only its owner may enter it then.
    pub fn open(root: &Path) -> io::Result<SystemDisk> {
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(root)?;
        // The folder's own entry must survive a power cut like what is in it.
        let root = root.canonicalize()?;
        if let Some(parent) = root.parent() {
            // Not ours to open perhaps; then it is not ours to have made either.
            if let Ok(parent) = File::open(parent) {
                parent.sync_all()?;
            }
        }
        Ok(SystemDisk { root })
    }
    fn path(&self, path: &str) -> io::Result<PathBuf> {
        split(path)?;
        Ok(self.root.join(path))
    }
    fn folder(&self, dir: &str) -> io::Result<PathBuf> {
        if dir.is_empty() {
            return Ok(self.root.clone());
        }
        self.path(dir)
    }
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Disk for SystemDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        // std opens with O_CLOEXEC and tries again after EINTR.
        let file = OpenOptions::new()
            .read(true)
            .write(mode != OpenMode::Read)
            .create(mode == OpenMode::Create)
            .truncate(false)
            .mode(0o600)
            .open(self.path(path)?)?;
        if mode == OpenMode::Read && file.metadata()?.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        Ok(Arc::new(SystemFile { file }))
    }
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let found = match fs::read_dir(self.folder(dir)?) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut entries = Vec::new();
        for entry in found {
            let entry = entry?;
            // All our names are UTF-8; what isn't is not ours.
            if let Ok(name) = entry.file_name().into_string() {
                let is_dir = entry.file_type()?.is_dir();
                entries.push(Entry { name, is_dir });
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(self.folder(dir)?)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from)?, self.path(to)?)
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        missing_is_fine(fs::remove_file(self.path(path)?))
    }
    fn remove_dir_all(&self, dir: &str) -> io::Result<()> {
        missing_is_fine(fs::remove_dir_all(self.path(dir)?))
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let folder = rustix::io::retry_on_intr(|| {
            rustix::fs::open(
                &self.folder(dir).map_err(|_| Errno::INVAL)?,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        })?;
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&folder))?)
    }
    fn available(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
    fn total(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path(path)?)?;
        let meta = file.metadata()?;
        let id = (meta.dev(), meta.ino());
        // File systems that emulate flock with POSIX locks (NFS) give them to the process, so that a second
        // volume in it would get the lock too; and a copied descriptor would keep it.
        if !HELD.lock().insert(id) {
            return Err(Errno::WOULDBLOCK.into());
        }
        let held = Held { id, _file: file };
        rustix::io::retry_on_intr(|| {
            rustix::fs::flock(&held._file, FlockOperation::NonBlockingLockExclusive)
        })?;
        Ok(Box::new(held))
    }
}

/// Lock files that this process holds, by device and inode.
static HELD: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

struct Held {
    id: (u64, u64),
    _file: File,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before the file closes: who comes in between finds flock still taken, never both free.
        HELD.lock().remove(&self.id);
    }
}

#[derive(Debug)]
struct SystemFile {
    file: File,
}

/// Buffers that one call takes (IOV_MAX).
const MAX_BUFFERS: usize = 1024;

impl DiskFile for SystemFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
    fn write_at(&self, bufs: &[&[u8]], mut at: u64) -> io::Result<()> {
        if let [buf] = bufs {
            return self.file.write_all_at(buf, at);
        }
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(bufs.len());
        slices.extend(
            bufs.iter()
                .filter(|b| !b.is_empty())
                .map(|b| IoSlice::new(b)),
        );
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            let some = &left[..left.len().min(MAX_BUFFERS)];
            match rustix::io::pwritev(&self.file, some, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    at += n as u64;
                    IoSlice::advance_slices(&mut left, n);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}
