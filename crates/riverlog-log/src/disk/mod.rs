//! The seam below everything: files that are read and written at positions, folders whose entries are
//! synced on their own. Paths are relative to the volume, with `/`, made of our own names only.

mod crash;
mod memory;
mod random;
mod system;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

pub use crash::{Counts, CrashDisk, FaultOn, Survivors, Times};
pub use memory::MemoryDisk;
pub use random::Random;
pub use system::SystemDisk;

/// How [`Disk::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; for reading only.
    Read,
    /// Must exist.
    Write,
    /// Made when missing, kept when there.
    Create,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name without the folder.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
}

/// A tree of files. Nothing but what [`DiskFile::sync`] and [`Disk::sync_dir`] made durable survives a power cut.
pub trait Disk: Send + Sync + Debug {
    /// Opens or makes a file.
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// The entries of a folder in order of name; empty when the folder is missing.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>>;
    /// Makes a folder and those above it. The entries are durable after `sync_dir` of each parent.
    fn create_dir_all(&self, dir: &str) -> io::Result<()>;
    /// Replaces `to` atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Missing is not an error.
    fn remove_file(&self, path: &str) -> io::Result<()>;
    /// Missing is not an error.
    fn remove_dir_all(&self, dir: &str) -> io::Result<()>;
    /// Makes the folder's entries durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Bytes that can still be written.
    fn available(&self) -> io::Result<u64>;
    /// Bytes that the disk has in all; `u64::MAX` for one without an end of its own.
    fn total(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Takes the lock file at `path` for as long as the returned guard lives; an error of kind `WouldBlock` when
    /// another process (or another volume of this one) holds it.
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>>;
    /// Random bits for the id of a new data folder: the system's, or for a played disk from its seed, so that a
    /// simulated run is the same each time.
    fn draw_id(&self) -> io::Result<u128> {
        random::from_system()
    }
}

/// An open file. All calls may come from several threads at once.
pub trait DiskFile: Send + Sync + Debug {
    /// Reads at a position; fewer bytes than asked only at the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all buffers, one after the other, at a position; the file grows as needed.
    fn write_at(&self, bufs: &[&[u8]], at: u64) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros).
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes content and length durable (`fdatasync`). After an error nothing about the file's unsynced bytes is known.
    fn sync(&self) -> io::Result<()>;
    /// For sendfile; `None` for disks that are not the system's.
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// Splits a path into its folder and its name; refuses what could leave the volume.
fn split(path: &str) -> io::Result<(&str, &str)> {
    let sound =
        |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    if !path.split('/').all(sound) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{path:?} is not a path within the volume"),
        ));
    }
    Ok(path.rsplit_once('/').unwrap_or(("", path)))
}

/// The error for a call on a handle that was opened for reading.
fn read_only() -> io::Error {
    rustix::io::Errno::BADF.into()
}

/// Names the call and the file of an error.
pub(crate) fn failed(
    action: &'static str,
    path: &str,
) -> impl FnOnce(io::Error) -> crate::DiskError {
    let path = path.to_owned();
    move |source| crate::DiskError {
        action,
        path,
        source: Arc::new(source),
    }
}
