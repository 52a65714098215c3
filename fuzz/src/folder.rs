//! A whole data folder, damaged as the input says, and then opened and read as a server does.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use riverlog_log::disk::MemoryDisk;
use riverlog_log::{
    AppendAs, Disk, Log, LogKey, LogSettings, OpenMode, Read, ReadError, Volume, VolumeSettings,
};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use super::files::{CHECKED, crc32c};

const KEY: LogKey = CHECKED.key;

/// Path and bytes of each file.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A folder and what its log holds.
pub struct Image {
    /// The files.
    pub files: Files,
    /// Each batch by its first offset.
    batches: BTreeMap<i64, Vec<u8>>,
}

fn volume_settings() -> VolumeSettings {
    VolumeSettings {
        wal_bytes: 32 << 10,
        tail_cache_bytes: 0,
        open_files: 8,
    }
}

fn log_settings() -> LogSettings {
    LogSettings {
        segment_bytes: 1_500,
        index_interval_bytes: 200,
        retention_ms: None,
        ..LogSettings::default()
    }
}

/// A folder that was closed (`true`) or left as a killed process leaves it.
pub fn image(closed: bool) -> &'static Image {
    static IMAGES: [OnceLock<Image>; 2] = [OnceLock::new(), OnceLock::new()];
    IMAGES[usize::from(closed)].get_or_init(|| make(closed))
}

fn make(closed: bool) -> Image {
    let disk = MemoryDisk::new();
    let volume = Volume::open(Arc::new(disk.clone()), volume_settings()).expect("a new folder");
    let mut log = volume.open_log(KEY, log_settings()).expect("a new log");
    volume.recovered().expect("nothing to recover");
    for n in 0..24 {
        let mut builder = BatchBuilder::new(Compression::None);
        if n % 3 == 0 {
            let sequence = Sequence(n / 3 * 2);
            builder.producer(ProducerId(7), ProducerEpoch(1), sequence);
        }
        for i in 0..2 {
            let value = [n as u8; 70];
            builder.push(1_000 + i64::from(n * 2 + i), Some(b"k"), Some(&value), &[]);
        }
        append(&mut log, builder.build(), n / 8).expect("room for it");
        write(&volume, &mut log);
        if n == 14 {
            sync(&mut log);
            volume.checkpoint(false).expect("memory takes everything");
        }
    }
    if closed {
        sync(&mut log);
        sync(&mut log);
        write(&volume, &mut log);
        volume.checkpoint(true).expect("memory takes everything");
    }
    let end = log.log_end_offset();
    let mut held = BTreeMap::new();
    let mut at = log.log_start_offset();
    while at < end {
        let (bytes, next) = read(&mut log, at).expect("nothing is damaged");
        for batch in batches(&bytes) {
            let batch = batch.expect("nothing is damaged");
            held.insert(batch.header.base_offset.0, batch.bytes.to_vec());
        }
        at = next;
    }
    drop((log, volume));
    let mut files = Files::new();
    collect(&disk, "", &mut files);
    Image {
        files,
        batches: held,
    }
}

fn collect(disk: &MemoryDisk, dir: &str, files: &mut Files) {
    for entry in disk.list(dir).expect("memory") {
        let path = match dir {
            "" => entry.name,
            dir => format!("{dir}/{}", entry.name),
        };
        if entry.is_dir {
            collect(disk, &path, files);
        } else if path != "lock" {
            let file = disk.open(&path, OpenMode::Read).expect("memory");
            let mut bytes = vec![0; file.len().expect("memory") as usize];
            file.read_at(&mut bytes, 0).expect("memory");
            files.insert(path, bytes);
        }
    }
}

fn append(log: &mut Log, batch: Vec<u8>, epoch: i32) -> Option<Offset> {
    let how = AppendAs::Leader {
        epoch: LeaderEpoch(epoch),
        now_ms: 1_000_000,
    };
    log.append(batch, how).ok().map(|appended| appended.first)
}

fn write(volume: &Arc<Volume>, log: &mut Log) {
    while let Some(write) = log.take_write() {
        if log.write_done(write.run()).is_err() {
            break;
        }
    }
    while let Some(flush) = volume.take_flush() {
        let done = flush.run();
        for synced in done.synced {
            log.on_synced(synced.to);
        }
        if done.error.is_some() {
            break;
        }
    }
}

fn sync(log: &mut Log) {
    if let Some(upkeep) = log.sync_segments() {
        // An error fences the log; what follows shows whether it holds to that.
        let _ = log.upkeep_done(upkeep.run());
    }
}

fn read(log: &mut Log, from: Offset) -> Result<(bytes::Bytes, Offset), ReadError> {
    let end = log.log_end_offset();
    let slices = match log.read(from, end, 1 << 20)? {
        Read::Ready(slices) => slices,
        Read::Plan(plan) => plan.run()?,
    };
    let next = slices.next;
    Ok((slices.into_bytes()?, next))
}

/// Damages a folder, and opens it: it opens or says why not, and never serves what was not in it.
///
/// The first byte chooses the folder; then come edits, see [`edit`].
pub fn folder(data: &[u8]) {
    let Some((&first, mut edits)) = data.split_first() else {
        return;
    };
    let closed = first & 1 == 1;
    let image = image(closed);
    let mut files = image.files.clone();
    // In a folder that was not closed a segment may have no checksums of its blocks yet, and a batch's own doesn't cover its
    // offset.
    let mut forged = !closed;
    for _ in 0..8 {
        match edit(&mut files, &mut edits) {
            Some(forges) => forged |= forges,
            None => break,
        }
    }
    // They are what a block in the wrong place is told by.
    let checks = |files: &Files| -> Files {
        let all = files.clone().into_iter();
        all.filter(|(path, _)| path.ends_with(".check")).collect()
    };
    forged |= checks(&files) != checks(&image.files);
    let disk = MemoryDisk::new();
    for (path, bytes) in &files {
        if let Some((dir, _)) = path.rsplit_once('/') {
            disk.create_dir_all(dir).expect("memory");
        }
        let file = disk.open(path, OpenMode::Create).expect("memory");
        file.write_at(&[bytes], 0).expect("memory");
    }
    // Twice: what the first start did to the folder, the second must understand.
    for _ in 0..2 {
        let Ok(volume) = Volume::open(Arc::new(disk.clone()), volume_settings()) else {
            return;
        };
        let Ok(mut log) = volume.open_log(KEY, log_settings()) else {
            return;
        };
        if volume.recovered().is_err() {
            return;
        }
        look(&mut log, image, forged);
        let _ = log.producers();
        let mut builder = BatchBuilder::new(Compression::None);
        builder.push(2_000, None, Some(b"after the damage"), &[]);
        if let Some(base) = append(&mut log, builder.build(), 9) {
            write(&volume, &mut log);
            if log.failed().is_none() && log.written() > base {
                let (bytes, _) = read(&mut log, base).expect("what was just written");
                let batch = batches(&bytes)
                    .next()
                    .expect("a batch")
                    .expect("a sound one");
                assert_eq!(batch.header.base_offset, base);
            }
        }
        sync(&mut log);
        let _ = volume.checkpoint(false);
        // Only the first start sees the folder as it was.
        forged = true;
    }
}

/// Reads what there is; passes over what is damaged.
fn look(log: &mut Log, image: &Image, forged: bool) {
    let end = log.log_end_offset();
    let mut at = log.log_start_offset();
    assert!(at <= end);
    let mut steps = 0;
    while at < end && steps < 1_000 {
        steps += 1;
        let Ok((bytes, next)) = read(log, at) else {
            at = at + 1;
            continue;
        };
        if bytes.is_empty() {
            break;
        }
        assert!(next > at, "a reader comes on");
        for batch in batches(&bytes) {
            let batch = batch.expect("what is served can be read");
            batch.check_crc().expect("what is served is sound");
            let base = batch.header.base_offset.0;
            if !forged && let Some(stored) = image.batches.get(&base) {
                assert_eq!(batch.bytes, stored, "offset {base} was something else");
            }
        }
        at = next;
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(usize::from(*first))
    }
    fn place(&mut self, len: usize) -> Option<usize> {
        let place = self.byte()? << 8 | self.byte()?;
        Some(place % (len + 1))
    }
}

/// One edit: its kind, the number of a file, and what the kind asks for. `Some(true)`: it makes something that no disk
/// makes by itself, a CRC that fits. `None`: the input is at its end.
pub fn edit(files: &mut Files, input: &mut &[u8]) -> Option<bool> {
    let mut from = Input(input);
    let (kind, file) = (from.byte()? % 10, from.byte()?);
    let paths: Vec<String> = files.keys().cloned().collect();
    let path = paths.get(file % paths.len().max(1))?;
    let bytes = files.get_mut(path)?;
    let at = from.place(bytes.len())?;
    let mut forges = false;
    match kind {
        0 => {
            let bit = from.byte()? % 8;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        1 => {
            let len = from.byte()? % 16 + 1;
            for byte in bytes.iter_mut().skip(at).take(len) {
                *byte = from.byte()? as u8;
            }
            // Eight bytes can be a CRC.
            forges = true;
        }
        2 => bytes.truncate(at),
        3 => {
            let len = from.byte()? * 16;
            bytes.iter_mut().skip(at).take(len).for_each(|b| *b = 0);
        }
        4 => {
            files.remove(path);
        }
        5 => bytes.resize(bytes.len() + from.byte()? * 16, 0),
        // A block of one place at another, as a disk does that mistakes the address.
        6 => {
            let other = paths.get(from.byte()? % paths.len())?;
            let source = files.get(other)?.clone();
            let begin = from.place(source.len())?;
            let len = 64 << (from.byte()? % 8);
            let piece = &source[begin..(begin + len).min(source.len())];
            let bytes = files.get_mut(path)?;
            let room = bytes.len() - at;
            let piece = &piece[..piece.len().min(room)];
            bytes[at..at + piece.len()].copy_from_slice(piece);
        }
        7 => {
            let other = paths.get(from.byte()? % paths.len())?.clone();
            let (mine, others) = (bytes.clone(), files.get(&other)?.clone());
            files.insert(other, mine);
            files.insert(path.clone(), others);
        }
        // Makes the CRC of a checkpoint or of a group's header fit again.
        8 => {
            if let Some(body) = bytes.len().checked_sub(4) {
                let crc = crc32c(&bytes[..body]);
                bytes[body..].copy_from_slice(&crc.to_be_bytes());
            }
            forges = true;
        }
        _ => {
            let at = at / 4096 * 4096;
            if let Some(header) = bytes.get_mut(at..at + 80) {
                let crc = crc32c(&header[..76]);
                header[76..].copy_from_slice(&crc.to_be_bytes());
            }
            forges = true;
        }
    }
    *input = from.0;
    Some(forges)
}
