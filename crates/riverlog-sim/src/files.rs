//! What lies on the disk of a node.

use std::collections::BTreeMap;
use std::io;

use riverlog_log::disk::CrashDisk;
use riverlog_log::{Disk, OpenMode};
use riverlog_wire::batch::batches;

/// The files in the folders of partitions, in order of name.
pub(crate) fn of_logs(disk: &CrashDisk) -> Vec<String> {
    let list = |dir: &str| disk.list(dir).unwrap_or_default();
    let mut files = Vec::new();
    for topic in list("").into_iter().filter(|e| e.is_dir && e.name != "wal") {
        for partition in list(&topic.name).into_iter().filter(|e| e.is_dir) {
            let dir = format!("{}/{}", topic.name, partition.name);
            let names = list(&dir).into_iter().map(|e| e.name);
            files.extend(names.map(|name| format!("{dir}/{name}")));
        }
    }
    files
}

/// What files hold now.
pub(crate) fn contents(disk: &CrashDisk, paths: Vec<String>) -> BTreeMap<String, Vec<u8>> {
    let read = |path: &String| {
        let file = disk.open(path, OpenMode::Read).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
        let n = file.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(n);
        Some(bytes)
    };
    let all = paths.into_iter();
    all.filter_map(|path| read(&path).map(|bytes| (path, bytes)))
        .collect()
}

/// Makes a file what it was.
pub(crate) fn put_back(disk: &CrashDisk, path: &str, bytes: &[u8]) -> io::Result<()> {
    let file = disk.open(path, OpenMode::Write)?;
    file.set_len(0)?;
    file.write_at(&[bytes], 0)?;
    file.sync()
}

/// All files but those of partitions: the write-ahead log, checkpoints, and what says which folder this is.
pub(crate) fn of_volume(disk: &CrashDisk) -> Vec<String> {
    let list = |dir: &str| disk.list(dir).unwrap_or_default();
    let plain = |dir: &str, prefix: &str| {
        let names = list(dir).into_iter().filter(|e| !e.is_dir);
        names
            .map(|e| format!("{prefix}{}", e.name))
            .collect::<Vec<_>>()
    };
    let mut files = plain("", "");
    files.extend(plain("wal", "wal/"));
    files
}

/// Two segments of a log's folder that hold the same offsets: a crash between them must leave the old ones or the new one. What
/// can't be read or isn't a batch ends the look at a segment.
pub(crate) fn overlap(disk: &CrashDisk, dir: &str) -> Option<String> {
    let names = disk.list(dir).unwrap_or_default();
    let segments = names.into_iter().filter(|e| e.name.ends_with(".log"));
    let paths = segments.map(|e| format!("{dir}/{}", e.name)).collect();
    let mut before: Option<(String, i64)> = None;
    // In order of base offset: the names have leading zeros.
    for (path, bytes) in contents(disk, paths) {
        let mut all = batches(&bytes).map_while(Result::ok);
        let Some(first) = all.next() else {
            continue;
        };
        let (base, end) = (first.header.base_offset.0, first.header.next_offset().0);
        let end = all.last().map_or(end, |b| b.header.next_offset().0);
        if let Some((other, other_end)) = before.filter(|(_, other_end)| *other_end > base) {
            return Some(format!(
                "{other} goes on to {other_end}, and {path} begins at {base}"
            ));
        }
        before = Some((path, end));
    }
    None
}
