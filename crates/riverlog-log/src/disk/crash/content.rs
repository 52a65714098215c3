//! One file as a disk sees it: what is durable, what readers see, and the changes in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Survivors;
use crate::disk::Random;

/// What a disk writes whole or not at all.
const SECTOR: u64 = 512;
const CHUNK: u64 = 4096;

/// Bytes with holes. Chunks are shared between copies until one of them is written to.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    len: u64,
    chunks: BTreeMap<u64, Arc<[u8; CHUNK as usize]>>,
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.len
    }
    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> usize {
        let n = self.len.saturating_sub(at).min(buf.len() as u64) as usize;
        self.read_past_end(&mut buf[..n], at);
        n
    }
    /// As `read`, with zeros behind the end.
    fn read_past_end(&self, buf: &mut [u8], mut at: u64) {
        let mut done = 0;
        while done < buf.len() {
            let within = (at % CHUNK) as usize;
            let n = (CHUNK as usize - within).min(buf.len() - done);
            let out = &mut buf[done..done + n];
            match self.chunks.get(&(at / CHUNK)) {
                Some(chunk) => out.copy_from_slice(&chunk[within..within + n]),
                None => out.fill(0),
            }
            done += n;
            at += n as u64;
        }
    }
    pub(super) fn write(&mut self, bytes: &[u8], at: u64) {
        if bytes.is_empty() {
            return;
        }
        self.put(bytes, at);
        self.len = self.len.max(at + bytes.len() as u64);
    }
    /// As `write`, leaving the length.
    fn put(&mut self, mut bytes: &[u8], mut at: u64) {
        while !bytes.is_empty() {
            let within = (at % CHUNK) as usize;
            let n = (CHUNK as usize - within).min(bytes.len());
            let chunk = self
                .chunks
                .entry(at / CHUNK)
                .or_insert_with(|| Arc::new([0; CHUNK as usize]));
            Arc::make_mut(chunk)[within..within + n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            at += n as u64;
        }
    }
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.chunks.split_off(&len.div_ceil(CHUNK));
            let within = (len % CHUNK) as usize;
            if let Some(chunk) = self.chunks.get_mut(&(len / CHUNK)) {
                Arc::make_mut(chunk)[within..].fill(0);
            }
        }
        self.len = len;
    }
    fn sector(&self, sector: u64) -> [u8; SECTOR as usize] {
        let mut bytes = [0; SECTOR as usize];
        self.read_past_end(&mut bytes, sector * SECTOR);
        bytes
    }
    /// Takes over the chunks `from..` (up to `until`) of another image, holes too.
    fn take_chunks(&mut self, other: &Image, from: u64, until: Option<u64>) {
        let Some(until) = until else {
            self.chunks.split_off(&from);
            let taken = other.chunks.range(from..);
            self.chunks.extend(taken.map(|(n, c)| (*n, c.clone())));
            return;
        };
        // One by one: a sync takes few of the many that a file has.
        for n in from..until {
            match other.chunks.get(&n) {
                Some(chunk) => self.chunks.insert(n, chunk.clone()),
                None => self.chunks.remove(&n),
            };
        }
    }
}

#[derive(Clone, Debug)]
enum What {
    Write { at: u64, bytes: Vec<u8> },
    SetLen { from: u64, to: u64 },
}

#[derive(Clone, Debug)]
struct Change {
    what: What,
    /// A sync failed after it: the system shows the bytes but will not write them again (Linux marks the pages
    /// clean), so that no later sync makes them durable.
    stuck: bool,
}

impl What {
    /// The sectors whose content it may change.
    fn sectors(&self) -> std::ops::Range<u64> {
        match self {
            What::Write { bytes, .. } if bytes.is_empty() => 0..0,
            What::Write { at, bytes } => at / SECTOR..(at + bytes.len() as u64).div_ceil(SECTOR),
            What::SetLen { from, to } if to < from => to / SECTOR..from.div_ceil(SECTOR),
            What::SetLen { .. } => 0..0,
        }
    }
    fn apply_to_sector(&self, sector: u64, content: &mut [u8; SECTOR as usize]) {
        let first = sector * SECTOR;
        match self {
            What::Write { at, bytes } => {
                let from = first.max(*at);
                let to = (first + SECTOR).min(at + bytes.len() as u64);
                if from < to {
                    let source = &bytes[(from - at) as usize..(to - at) as usize];
                    content[(from - first) as usize..(to - first) as usize].copy_from_slice(source);
                }
            }
            What::SetLen { from, to } if to < from => {
                let keep = to.saturating_sub(first).min(SECTOR) as usize;
                content[keep..].fill(0);
            }
            What::SetLen { .. } => {}
        }
    }
    fn len_after(&self, len: u64) -> u64 {
        match self {
            What::Write { bytes, .. } if bytes.is_empty() => len,
            What::Write { at, bytes } => len.max(at + bytes.len() as u64),
            What::SetLen { to, .. } => *to,
        }
    }
}

/// A file's durable content, its current content, and how one became the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    durable: Image,
    current: Image,
    pending: Vec<Change>,
}

impl Content {
    pub(super) fn current(&self) -> &Image {
        &self.current
    }
    pub(super) fn write(&mut self, bytes: &[u8], at: u64) {
        self.current.write(bytes, at);
        self.pending.push(Change {
            what: What::Write {
                at,
                bytes: bytes.to_vec(),
            },
            stuck: false,
        });
    }
    pub(super) fn set_len(&mut self, len: u64) {
        self.pending.push(Change {
            what: What::SetLen {
                from: self.current.len,
                to: len,
            },
            stuck: false,
        });
        self.current.set_len(len);
    }
    /// Damage on the medium itself: readers see it and no crash undoes it.
    pub(super) fn damage(&mut self, bytes: &[u8], at: u64) {
        self.current.put(bytes, at);
        self.durable.put(bytes, at);
    }
    pub(super) fn sync(&mut self) {
        // What was cut or written after a failed sync reaches the disk; what was stuck before does not.
        let mut stuck: BTreeMap<u64, [u8; SECTOR as usize]> = BTreeMap::new();
        for change in &self.pending {
            for sector in change.what.sectors() {
                if change.stuck {
                    stuck.insert(sector, self.durable.sector(sector));
                } else {
                    stuck.remove(&sector);
                }
            }
        }
        for change in &self.pending {
            match &change.what {
                What::Write { at, bytes } => {
                    let until = (at + bytes.len() as u64).div_ceil(CHUNK);
                    self.durable
                        .take_chunks(&self.current, at / CHUNK, Some(until));
                }
                What::SetLen { from, to } => {
                    self.durable
                        .take_chunks(&self.current, *from.min(to) / CHUNK, None);
                }
            }
        }
        self.durable.len = self.current.len;
        self.pending.clear();
        for (sector, durable) in stuck {
            let at = sector * SECTOR;
            if at >= self.current.len {
                continue;
            }
            let until = (at + SECTOR).min(self.current.len);
            let shown = self.current.sector(sector);
            self.durable.put(&durable[..(until - at) as usize], at);
            self.pending.push(Change {
                what: What::Write {
                    at,
                    bytes: shown[..(until - at) as usize].to_vec(),
                },
                stuck: true,
            });
        }
    }
    pub(super) fn sync_failed(&mut self) {
        for change in &mut self.pending {
            change.stuck = true;
        }
    }
    /// What is on the disk after a power cut.
    pub(super) fn after_crash(&self, how: Survivors, random: &mut Random) -> Content {
        let left = match how {
            Survivors::Nothing => self.durable.clone(),
            Survivors::Everything => self.current.clone(),
            // Whole outcomes are much more likely on real disks than mixed ones, and find other mistakes.
            Survivors::Any => match random.below(6) {
                0 => self.durable.clone(),
                1 => self.current.clone(),
                2 => self.after_prefix(random),
                _ => self.after_any(random),
            },
        };
        Content {
            durable: left.clone(),
            current: left,
            pending: Vec::new(),
        }
    }
    /// The changes reached the disk in order, up to one of them.
    fn after_prefix(&self, random: &mut Random) -> Image {
        let kept = random.below(self.pending.len() as u64 + 1) as usize;
        let mut left = self.durable.clone();
        for change in &self.pending[..kept] {
            match &change.what {
                What::Write { at, bytes } => left.write(bytes, *at),
                What::SetLen { to, .. } => left.set_len(*to),
            }
        }
        left
    }
    /// Each sector, and the length, is that of some moment since the last sync.
    fn after_any(&self, random: &mut Random) -> Image {
        let mut touched: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (i, change) in self.pending.iter().enumerate() {
            for sector in change.what.sectors() {
                touched.entry(sector).or_default().push(i);
            }
        }
        let kept = random.below(self.pending.len() as u64 + 1) as usize;
        let len = self.pending[..kept]
            .iter()
            .fold(self.durable.len, |len, change| change.what.len_after(len));
        let mut left = self.durable.clone();
        left.set_len(len.max(left.len));
        for (sector, changes) in touched {
            let mut content = self.durable.sector(sector);
            let kept = random.below(changes.len() as u64 + 1) as usize;
            for i in &changes[..kept] {
                self.pending[*i].what.apply_to_sector(sector, &mut content);
            }
            if sector * SECTOR < len {
                left.put(&content, sector * SECTOR);
            }
        }
        // Also zeroes what a kept sector holds behind the length.
        left.len = left.len.max(len.next_multiple_of(SECTOR));
        left.set_len(len);
        left
    }
}
