//! The disk as the logs see it: open files are kept, up to a number, and the mark of a clean stop goes before the
//! first change.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::disk::Entry;
use crate::wal::{FlushError, Wal};
use crate::{Disk, DiskFile, OpenMode};

/// The mark of a clean stop.
pub(super) const CLEAN: &str = "clean";

#[derive(Debug)]
pub(super) struct Files {
    inner: Arc<dyn Disk>,
    wal: Arc<Wal>,
    cache: Mutex<Cache>,
    /// Whether the mark of a clean stop may be there.
    clean: AtomicBool,
    cleaning: Mutex<()>,
    /// Held while a folder is made, and while one is removed because it is empty.
    folders: Mutex<()>,
}

#[derive(Debug)]
struct Cache {
    files: BTreeMap<String, Cached>,
    /// Least recently used first.
    order: BTreeMap<u64, String>,
    tick: u64,
    limit: usize,
    /// Goes up with each name that begins to mean something else.
    changes: u64,
}

#[derive(Debug)]
struct Cached {
    file: Arc<dyn DiskFile>,
    writable: bool,
    tick: u64,
}

impl Cache {
    fn get(&mut self, path: &str, mode: OpenMode) -> Option<Arc<dyn DiskFile>> {
        let cached = self.files.get_mut(path)?;
        if mode != OpenMode::Read && !cached.writable {
            return None;
        }
        self.tick += 1;
        if let Some(path) = self.order.remove(&cached.tick) {
            self.order.insert(self.tick, path);
        }
        cached.tick = self.tick;
        Some(cached.file.clone())
    }
    fn put(&mut self, path: &str, file: Arc<dyn DiskFile>, writable: bool) {
        self.forget(path);
        while self.files.len() >= self.limit {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.files.remove(&oldest);
        }
        self.tick += 1;
        let tick = self.tick;
        self.order.insert(tick, path.to_owned());
        let cached = Cached {
            file,
            writable,
            tick,
        };
        self.files.insert(path.to_owned(), cached);
    }
    fn forget(&mut self, path: &str) {
        if let Some(cached) = self.files.remove(path) {
            self.order.remove(&cached.tick);
        }
    }
    /// The name, and those below it, are about to mean other files.
    fn renamed(&mut self, path: &str) {
        self.changes += 1;
        self.forget(path);
        let below = format!("{path}/");
        let names: Vec<String> = self
            .files
            .range(below.clone()..)
            .map(|(name, _)| name.clone())
            .take_while(|name| name.starts_with(&below))
            .collect();
        for name in names {
            self.forget(&name);
        }
    }
}

impl Files {
    /// `clean`: the mark of a clean stop may be there.
    pub(super) fn new(inner: Arc<dyn Disk>, wal: Arc<Wal>, limit: usize, clean: bool) -> Files {
        Files {
            inner,
            wal,
            cache: Mutex::new(Cache {
                files: BTreeMap::new(),
                order: BTreeMap::new(),
                tick: 0,
                limit: limit.max(1),
                changes: 0,
            }),
            clean: AtomicBool::new(clean),
            cleaning: Mutex::new(()),
            folders: Mutex::new(()),
        }
    }
    /// An open file from the cache.
    pub(super) fn file(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode != OpenMode::Read {
            self.will_change()?;
        }
        let changes = {
            let mut cache = self.cache.lock();
            if let Some(file) = cache.get(path, mode) {
                return Ok(file);
            }
            cache.changes
        };
        let file = self.inner.open(path, mode)?;
        let mut cache = self.cache.lock();
        // Renamed or removed meanwhile: the name may already mean another file.
        if cache.changes == changes {
            cache.put(path, file.clone(), mode != OpenMode::Read);
        }
        Ok(file)
    }
    /// Takes the mark of a clean stop away, durably, before anything changes.
    pub(super) fn will_change(&self) -> io::Result<()> {
        let kept = riverlog_mutants::active(riverlog_mutants::Mutant::CleanMarkKept);
        if !self.clean.load(Ordering::Acquire) || kept {
            return Ok(());
        }
        let _one = self.cleaning.lock();
        if self.clean.load(Ordering::Acquire) {
            self.inner.remove_file(CLEAN)?;
            self.inner.sync_dir("")?;
            self.wal.note_released().map_err(|error| match error {
                FlushError::Disk(error) => io::Error::new(error.source.kind(), error),
                FlushError::Full => io::Error::new(io::ErrorKind::StorageFull, error),
            })?;
            self.clean.store(false, Ordering::Release);
        }
        Ok(())
    }
    /// The mark has been written.
    pub(super) fn marked_clean(&self) {
        self.clean.store(true, Ordering::Release);
    }
    /// Removes a folder when nothing is in it. Whether it is gone.
    pub(super) fn remove_if_empty(&self, dir: &str) -> io::Result<bool> {
        let _no_new = self.folders.lock();
        if !self.inner.list(dir)?.is_empty() {
            return Ok(false);
        }
        self.remove_dir_all(dir)?;
        Ok(true)
    }
    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        self.cache.lock().files.len()
    }
}

impl Disk for Files {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode != OpenMode::Read {
            self.will_change()?;
        }
        self.inner.open(path, mode)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        self.inner.list(dir)
    }
    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        self.will_change()?;
        let _one = self.folders.lock();
        self.inner.create_dir_all(dir)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.will_change()?;
        let result = self.inner.rename(from, to);
        let mut cache = self.cache.lock();
        cache.renamed(from);
        cache.renamed(to);
        result
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        self.will_change()?;
        let result = self.inner.remove_file(path);
        self.cache.lock().renamed(path);
        result
    }
    fn remove_dir_all(&self, dir: &str) -> io::Result<()> {
        self.will_change()?;
        let result = self.inner.remove_dir_all(dir);
        self.cache.lock().renamed(dir);
        result
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn available(&self) -> io::Result<u64> {
        self.inner.available()
    }
    fn total(&self) -> io::Result<u64> {
        self.inner.total()
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.inner.lock(path)
    }
    fn draw_id(&self) -> io::Result<u128> {
        self.inner.draw_id()
    }
}
