//! What lies on the disk of a node.

use riverlog_log::Disk;
use riverlog_log::disk::CrashDisk;

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
