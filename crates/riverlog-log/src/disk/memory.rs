//! Files in memory: for the broker inside a process, and for tests that need no faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::{Disk, DiskFile, Entry, OpenMode, read_only, split};

/// A tree of files in memory. Nothing is ever synced, and everything is gone when the last handle is.
/// Cloning gives another handle to the same files.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    tree: RwLock<Tree>,
    locks: Mutex<BTreeSet<String>>,
}

/// Folders by full path, each with its entries, so that listing one doesn't walk the others.
#[derive(Debug)]
struct Tree {
    folders: BTreeMap<String, BTreeMap<String, Node>>,
}

#[derive(Clone, Debug)]
enum Node {
    File(Arc<Content>),
    Folder,
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            folders: BTreeMap::from([(String::new(), BTreeMap::new())]),
        }
    }
}

impl Tree {
    fn entry(&self, path: &str) -> io::Result<Option<&Node>> {
        let (dir, name) = split(path)?;
        match self.folders.get(dir) {
            Some(entries) => Ok(entries.get(name)),
            None => match self.no_folder(dir) {
                Errno::NOENT => Ok(None),
                e => Err(e.into()),
            },
        }
    }
    /// Why `dir` is not there: it, or one above it, is a file, or nothing.
    fn no_folder(&self, dir: &str) -> Errno {
        let ends = dir.match_indices('/').map(|(at, _)| at);
        let file = ends.chain([dir.len()]).find_map(|end| {
            let (above, name) = dir[..end].rsplit_once('/').unwrap_or(("", &dir[..end]));
            match self.folders.get(above)?.get(name)? {
                Node::File(_) => Some(Errno::NOTDIR),
                Node::Folder => None,
            }
        });
        file.unwrap_or(Errno::NOENT)
    }
    /// The folders below `path`, and itself.
    fn take_folders(&mut self, path: &str) -> Vec<(String, BTreeMap<String, Node>)> {
        let below = format!("{path}/");
        let names: Vec<String> = std::iter::once(path.to_owned())
            .chain(
                self.folders
                    .range(below.clone()..)
                    .map(|(name, _)| name.clone())
                    .take_while(|name| name.starts_with(&below)),
            )
            .collect();
        names
            .into_iter()
            .filter_map(|name| self.folders.remove_entry(&name))
            .collect()
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let (dir, name) = split(path)?;
        let found = match self.shared.tree.read().entry(path)? {
            Some(Node::File(content)) => Some(content.clone()),
            Some(Node::Folder) => return Err(Errno::ISDIR.into()),
            None => None,
        };
        let content = match (found, mode) {
            (Some(content), _) => content,
            (None, OpenMode::Read | OpenMode::Write) => return Err(Errno::NOENT.into()),
            (None, OpenMode::Create) => {
                let mut tree = self.shared.tree.write();
                let entries = tree.folders.get_mut(dir).ok_or(Errno::NOENT)?;
                match entries
                    .entry(name.to_owned())
                    .or_insert_with(|| Node::File(Arc::default()))
                {
                    Node::File(content) => content.clone(),
                    Node::Folder => return Err(Errno::ISDIR.into()),
                }
            }
        };
        Ok(Arc::new(MemoryFile {
            content,
            writable: mode != OpenMode::Read,
        }))
    }
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let tree = self.shared.tree.read();
        let Some(entries) = tree.folders.get(dir) else {
            return match tree.no_folder(dir) {
                Errno::NOENT => Ok(Vec::new()),
                e => Err(e.into()),
            };
        };
        Ok(entries
            .iter()
            .map(|(name, node)| Entry {
                name: name.clone(),
                is_dir: matches!(node, Node::Folder),
            })
            .collect())
    }
    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        let mut tree = self.shared.tree.write();
        let mut path = String::new();
        for name in dir.split('/').filter(|_| !dir.is_empty()) {
            let at = path.len();
            if at > 0 {
                path.push('/');
            }
            path.push_str(name);
            split(&path)?;
            let parent = path[..at].to_owned();
            let entries = tree.folders.entry(parent).or_default();
            match entries.entry(name.to_owned()).or_insert(Node::Folder) {
                Node::Folder => {}
                Node::File(_) => return Err(Errno::NOTDIR.into()),
            }
            tree.folders.entry(path.clone()).or_default();
        }
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from_dir, from_name), (to_dir, to_name)) = (split(from)?, split(to)?);
        let mut tree = self.shared.tree.write();
        let node = tree.entry(from)?.ok_or(Errno::NOENT)?.clone();
        if !tree.folders.contains_key(to_dir) {
            return Err(tree.no_folder(to_dir).into());
        }
        if from == to {
            return Ok(());
        }
        match (&node, tree.entry(to)?) {
            (Node::File(_), Some(Node::Folder)) => return Err(Errno::ISDIR.into()),
            (Node::Folder, Some(Node::File(_))) => return Err(Errno::NOTDIR.into()),
            (Node::Folder, Some(Node::Folder))
                if tree.folders.get(to).is_some_and(|e| !e.is_empty()) =>
            {
                return Err(Errno::NOTEMPTY.into());
            }
            _ => {}
        }
        if matches!(node, Node::Folder) {
            if to.starts_with(&format!("{from}/")) {
                return Err(Errno::INVAL.into());
            }
            for (path, entries) in tree.take_folders(from) {
                let moved = format!("{to}{}", &path[from.len()..]);
                tree.folders.insert(moved, entries);
            }
        }
        if let Some(entries) = tree.folders.get_mut(from_dir) {
            entries.remove(from_name);
        }
        if let Some(entries) = tree.folders.get_mut(to_dir) {
            entries.insert(to_name.to_owned(), node);
        }
        Ok(())
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        let (dir, name) = split(path)?;
        let mut tree = self.shared.tree.write();
        if let Some(Node::Folder) = tree.entry(path)? {
            return Err(Errno::ISDIR.into());
        }
        if let Some(entries) = tree.folders.get_mut(dir) {
            entries.remove(name);
        }
        Ok(())
    }
    fn remove_dir_all(&self, dir: &str) -> io::Result<()> {
        let (parent, name) = split(dir)?;
        let mut tree = self.shared.tree.write();
        match tree.entry(dir)? {
            None => return Ok(()),
            Some(Node::File(_)) => return Err(Errno::NOTDIR.into()),
            Some(Node::Folder) => {}
        }
        tree.take_folders(dir);
        if let Some(entries) = tree.folders.get_mut(parent) {
            entries.remove(name);
        }
        Ok(())
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let tree = self.shared.tree.read();
        match tree.folders.contains_key(dir) {
            true => Ok(()),
            false => Err(tree.no_folder(dir).into()),
        }
    }
    fn available(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.open(path, OpenMode::Create)?;
        if !self.shared.locks.lock().insert(path.to_owned()) {
            return Err(Errno::WOULDBLOCK.into());
        }
        Ok(Box::new(Held {
            shared: self.shared.clone(),
            path: path.to_owned(),
        }))
    }
}

struct Held {
    shared: Arc<Shared>,
    path: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.locks.lock().remove(&self.path);
    }
}

/// Content of one file. Chunks double from 4 KiB to 1 MiB: a hundred thousand small logs stay small, and a large file
/// never moves.
#[derive(Debug, Default)]
struct Content {
    chunks: RwLock<Chunks>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// All are full but the last; a chunk's capacity is taken when its first byte is written.
    chunks: Vec<Vec<u8>>,
    len: u64,
}

const FIRST: u64 = 4096;
const LARGEST: u64 = 1 << 20;
/// Chunks that are smaller than the largest, and the bytes in them.
const SMALL_CHUNKS: u32 = (LARGEST / FIRST).ilog2();
const SMALL_BYTES: u64 = LARGEST - FIRST;

/// Which chunk holds a position, where in it, and how large the chunk is when full.
fn locate(at: u64) -> (usize, usize, usize) {
    if at < SMALL_BYTES {
        let chunk = (at / FIRST + 1).ilog2();
        let size = FIRST << chunk;
        (
            chunk as usize,
            (at - (size - FIRST)) as usize,
            size as usize,
        )
    } else {
        let past = at - SMALL_BYTES;
        let chunk = u64::from(SMALL_CHUNKS) + past / LARGEST;
        (chunk as usize, (past % LARGEST) as usize, LARGEST as usize)
    }
}

impl Chunks {
    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (chunk, within, size) = locate(self.len);
            if chunk == self.chunks.len() {
                self.chunks.push(Vec::with_capacity(size));
            }
            let n = bytes.len().min(size - within);
            self.chunks[chunk].extend_from_slice(&bytes[..n]);
            self.len += n as u64;
            bytes = &bytes[n..];
        }
    }
    fn extend_with_zeros(&mut self, len: u64) {
        const ZEROS: &[u8] = &[0; 4096];
        while self.len < len {
            let n = (len - self.len).min(ZEROS.len() as u64);
            self.append(&ZEROS[..n as usize]);
        }
    }
    fn write(&mut self, mut bytes: &[u8], mut at: u64) {
        if bytes.is_empty() {
            return;
        }
        self.extend_with_zeros(at);
        while at < self.len && !bytes.is_empty() {
            let (chunk, within, _) = locate(at);
            let room = &mut self.chunks[chunk][within..];
            let n = bytes.len().min(room.len());
            room[..n].copy_from_slice(&bytes[..n]);
            at += n as u64;
            bytes = &bytes[n..];
        }
        self.append(bytes);
    }
    fn read(&self, buf: &mut [u8], mut at: u64) -> usize {
        let mut done = 0;
        while at < self.len && done < buf.len() {
            let (chunk, within, _) = locate(at);
            let stored = &self.chunks[chunk][within..];
            let n = stored.len().min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&stored[..n]);
            at += n as u64;
            done += n;
        }
        done
    }
    fn truncate(&mut self, len: u64) {
        let (chunk, within, _) = locate(len);
        self.chunks.truncate(chunk + usize::from(within > 0));
        if within > 0 {
            self.chunks[chunk].truncate(within);
        }
        self.len = len;
    }
}

#[derive(Debug)]
struct MemoryFile {
    content: Arc<Content>,
    writable: bool,
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(self.content.chunks.read().read(buf, at))
    }
    fn write_at(&self, bufs: &[&[u8]], mut at: u64) -> io::Result<()> {
        if !self.writable {
            return Err(read_only());
        }
        let mut chunks = self.content.chunks.write();
        for buf in bufs {
            chunks.write(buf, at);
            at += buf.len() as u64;
        }
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.content.chunks.read().len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        if !self.writable {
            return Err(read_only());
        }
        let mut chunks = self.content.chunks.write();
        if len < chunks.len {
            chunks.truncate(len);
        } else {
            chunks.extend_with_zeros(len);
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
