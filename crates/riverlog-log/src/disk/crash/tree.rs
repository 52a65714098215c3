//! Folders as a disk sees them: entries are durable once their folder has been synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Survivors;
use super::content::Content;
use crate::disk::{Entry, Random, split};

type FolderId = u64;
const ROOT: FolderId = 0;

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<Mutex<Content>>),
    Folder(FolderId),
}

#[derive(Clone, Debug, Default)]
struct Folder {
    durable: BTreeMap<String, Node>,
    current: BTreeMap<String, Node>,
}

/// Where an entry is.
type Place = (FolderId, String);

#[derive(Clone, Debug)]
enum Change {
    Link(Place, Node),
    Unlink(Place),
    Move(Place, Place, Node),
}

impl Change {
    fn places(&self) -> impl Iterator<Item = &Place> {
        let (a, b) = match self {
            Change::Link(at, _) | Change::Unlink(at) => (at, None),
            Change::Move(from, to, _) => (from, Some(to)),
        };
        std::iter::once(a).chain(b)
    }
}

#[derive(Debug)]
pub(super) struct Tree {
    folders: BTreeMap<FolderId, Folder>,
    pending: Vec<Change>,
    next: FolderId,
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            folders: BTreeMap::from([(ROOT, Folder::default())]),
            pending: Vec::new(),
            next: ROOT + 1,
        }
    }
}

impl Tree {
    fn folder(&self, dir: &str) -> io::Result<FolderId> {
        let mut at = ROOT;
        for name in dir.split('/').filter(|_| !dir.is_empty()) {
            match self.entries(at).and_then(|entries| entries.get(name)) {
                Some(Node::Folder(id)) => at = *id,
                Some(Node::File(_)) => return Err(Errno::NOTDIR.into()),
                None => return Err(Errno::NOENT.into()),
            }
        }
        Ok(at)
    }
    fn entries(&self, folder: FolderId) -> Option<&BTreeMap<String, Node>> {
        self.folders.get(&folder).map(|folder| &folder.current)
    }
    fn place(&self, path: &str) -> io::Result<Place> {
        let (dir, name) = split(path)?;
        Ok((self.folder(dir)?, name.to_owned()))
    }
    fn node(&self, place: &Place) -> Option<&Node> {
        self.entries(place.0)?.get(&place.1)
    }
    pub(super) fn get(&self, path: &str) -> io::Result<Option<Node>> {
        match self.place(path) {
            Ok(place) => Ok(self.node(&place).cloned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
    fn change(&mut self, change: Change) {
        apply(&mut self.folders, &change, |folder| &mut folder.current);
        self.pending.push(change);
    }
    pub(super) fn create(&mut self, path: &str) -> io::Result<Arc<Mutex<Content>>> {
        let place = self.place(path)?;
        let content = Arc::<Mutex<Content>>::default();
        self.change(Change::Link(place, Node::File(content.clone())));
        Ok(content)
    }
    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let folder = match self.folder(dir) {
            Ok(folder) => folder,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let entries = self.entries(folder).into_iter().flatten();
        Ok(entries
            .map(|(name, node)| Entry {
                name: name.clone(),
                is_dir: matches!(node, Node::Folder(_)),
            })
            .collect())
    }
    pub(super) fn create_dir_all(&mut self, dir: &str) -> io::Result<()> {
        if dir.is_empty() {
            return Ok(());
        }
        split(dir)?;
        let mut at = ROOT;
        for name in dir.split('/') {
            let place = (at, name.to_owned());
            at = match self.node(&place) {
                Some(Node::Folder(id)) => *id,
                Some(Node::File(_)) => return Err(Errno::NOTDIR.into()),
                None => {
                    let id = self.next;
                    self.next += 1;
                    self.folders.insert(id, Folder::default());
                    self.change(Change::Link(place, Node::Folder(id)));
                    id
                }
            };
        }
        Ok(())
    }
    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (from_place, to_place) = (self.place(from)?, self.place(to)?);
        let node = self.node(&from_place).ok_or(Errno::NOENT)?.clone();
        if from == to {
            return Ok(());
        }
        match (&node, self.node(&to_place)) {
            (Node::File(_), Some(Node::Folder(_))) => return Err(Errno::ISDIR.into()),
            (Node::Folder(_), Some(Node::File(_))) => return Err(Errno::NOTDIR.into()),
            (Node::Folder(_), Some(Node::Folder(id)))
                if self.entries(*id).is_some_and(|e| !e.is_empty()) =>
            {
                return Err(Errno::NOTEMPTY.into());
            }
            _ => {}
        }
        if matches!(node, Node::Folder(_)) && to.starts_with(&format!("{from}/")) {
            return Err(Errno::INVAL.into());
        }
        self.change(Change::Move(from_place, to_place, node));
        Ok(())
    }
    pub(super) fn remove_file(&mut self, path: &str) -> io::Result<()> {
        match self.get(path)? {
            None => Ok(()),
            Some(Node::Folder(_)) => Err(Errno::ISDIR.into()),
            Some(Node::File(_)) => {
                let place = self.place(path)?;
                self.change(Change::Unlink(place));
                Ok(())
            }
        }
    }
    pub(super) fn remove_dir_all(&mut self, dir: &str) -> io::Result<()> {
        match self.get(dir)? {
            None => Ok(()),
            Some(Node::File(_)) => Err(Errno::NOTDIR.into()),
            Some(Node::Folder(id)) => {
                self.empty(id);
                let place = self.place(dir)?;
                self.change(Change::Unlink(place));
                Ok(())
            }
        }
    }
    fn empty(&mut self, folder: FolderId) {
        let entries = self.entries(folder).cloned().unwrap_or_default();
        for (name, node) in entries {
            if let Node::Folder(inner) = node {
                self.empty(inner);
            }
            self.change(Change::Unlink((folder, name)));
        }
    }
    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        let folder = self.folder(dir)?;
        let chosen: Vec<bool> = self
            .pending
            .iter()
            .map(|change| change.places().any(|(at, _)| *at == folder))
            .collect();
        if !chosen.contains(&true) {
            return Ok(());
        }
        let chosen = self.with_earlier(chosen);
        let mut kept = Vec::new();
        for (change, durable) in std::mem::take(&mut self.pending).into_iter().zip(chosen) {
            if durable {
                apply(&mut self.folders, &change, |folder| &mut folder.durable);
            } else {
                kept.push(change);
            }
        }
        self.pending = kept;
        Ok(())
    }
    /// No file system forgets an earlier change of a name while it keeps a later one.
    fn with_earlier(&self, mut chosen: Vec<bool>) -> Vec<bool> {
        let mut names: BTreeSet<&Place> = BTreeSet::new();
        for (change, chosen) in self.pending.iter().zip(&mut chosen).rev() {
            *chosen |= change.places().any(|place| names.contains(place));
            if *chosen {
                names.extend(change.places());
            }
        }
        chosen
    }
    /// All files that the current tree has.
    pub(super) fn files(&self) -> Vec<Arc<Mutex<Content>>> {
        let mut files = Vec::new();
        let mut folders = vec![ROOT];
        while let Some(folder) = folders.pop() {
            for node in self.entries(folder).into_iter().flat_map(BTreeMap::values) {
                match node {
                    Node::File(content) => files.push(content.clone()),
                    Node::Folder(id) => folders.push(*id),
                }
            }
        }
        files
    }
    /// A copy as it is now, with everything that isn't durable still not durable.
    pub(super) fn after_kill(&self) -> Tree {
        let mut copies = Copies::new(|content| content.clone());
        Tree {
            folders: copies.folders(&self.folders),
            pending: self.pending.iter().map(|c| copies.change(c)).collect(),
            next: self.next,
        }
    }
    /// What a power cut leaves.
    pub(super) fn after_crash(&self, how: Survivors, random: &mut Random) -> Tree {
        let n = self.pending.len();
        let chosen = match how {
            Survivors::Nothing => vec![false; n],
            Survivors::Everything => vec![true; n],
            Survivors::Any if random.chance(1, 2) => {
                // As a journal does.
                let kept = random.below(n as u64 + 1) as usize;
                (0..n).map(|i| i < kept).collect()
            }
            Survivors::Any => {
                let of = 2 + random.below(4);
                let times = 1 + random.below(of - 1);
                (0..n).map(|_| random.chance(times, of)).collect()
            }
        };
        let chosen = self.with_earlier(chosen);
        let mut copies = Copies::new(|content| content.after_crash(how, random));
        let mut folders = copies.folders(&self.folders);
        for (change, _) in self.pending.iter().zip(chosen).filter(|(_, c)| *c) {
            let change = copies.change(change);
            apply(&mut folders, &change, |folder| &mut folder.durable);
        }
        for folder in folders.values_mut() {
            folder.current = folder.durable.clone();
        }
        Tree {
            folders,
            pending: Vec::new(),
            next: self.next,
        }
    }
}

fn apply(
    folders: &mut BTreeMap<FolderId, Folder>,
    change: &Change,
    side: impl Fn(&mut Folder) -> &mut BTreeMap<String, Node>,
) {
    let mut set = |(folder, name): &Place, node: Option<&Node>| {
        if let Some(folder) = folders.get_mut(folder) {
            match node {
                Some(node) => side(folder).insert(name.clone(), node.clone()),
                None => side(folder).remove(name),
            };
        }
    };
    match change {
        Change::Link(at, node) => set(at, Some(node)),
        Change::Unlink(at) => set(at, None),
        Change::Move(from, to, node) => {
            set(from, None);
            set(to, Some(node));
        }
    }
}

/// Copies a tree so that a file with two names stays one file.
struct Copies<F> {
    done: BTreeMap<usize, Arc<Mutex<Content>>>,
    copy: F,
}

impl<F: FnMut(&Content) -> Content> Copies<F> {
    fn new(copy: F) -> Self {
        Copies {
            done: BTreeMap::new(),
            copy,
        }
    }
    fn node(&mut self, node: &Node) -> Node {
        match node {
            Node::Folder(id) => Node::Folder(*id),
            Node::File(content) => {
                // The key is only looked up, never walked: addresses don't show in what comes out.
                let key = Arc::as_ptr(content) as usize;
                let copy = match self.done.get(&key) {
                    Some(copy) => copy.clone(),
                    None => {
                        let copy = Arc::new(Mutex::new((self.copy)(&content.lock())));
                        self.done.insert(key, copy.clone());
                        copy
                    }
                };
                Node::File(copy)
            }
        }
    }
    fn entries(&mut self, entries: &BTreeMap<String, Node>) -> BTreeMap<String, Node> {
        entries
            .iter()
            .map(|(name, node)| (name.clone(), self.node(node)))
            .collect()
    }
    fn folders(&mut self, folders: &BTreeMap<FolderId, Folder>) -> BTreeMap<FolderId, Folder> {
        folders
            .iter()
            .map(|(id, folder)| {
                let copy = Folder {
                    durable: self.entries(&folder.durable),
                    current: self.entries(&folder.current),
                };
                (*id, copy)
            })
            .collect()
    }
    fn change(&mut self, change: &Change) -> Change {
        match change {
            Change::Link(at, node) => Change::Link(at.clone(), self.node(node)),
            Change::Unlink(at) => Change::Unlink(at.clone()),
            Change::Move(from, to, node) => Change::Move(from.clone(), to.clone(), self.node(node)),
        }
    }
}
