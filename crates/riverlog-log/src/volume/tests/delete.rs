//! Logs that are deleted, and made anew.

use super::*;
use crate::OpenMode;
use crate::disk::{CrashDisk, FaultOn, Times};

fn with_file(volume: &Volume, log: u64) {
    let folder = key(log).folder();
    volume.disk().create_dir_all(&folder).unwrap();
    let path = format!("{folder}/data");
    let file = volume.file(&path, OpenMode::Create).unwrap();
    file.write_at(&[b"data"], 0).unwrap();
    file.sync().unwrap();
    for dir in [folder, key(log).topic.to_string(), String::new()] {
        volume.disk().sync_dir(&dir).unwrap();
    }
}

fn has_file(volume: &Volume, log: u64) -> bool {
    let path = format!("{}/data", key(log).folder());
    volume.disk().open(&path, OpenMode::Read).is_ok()
}

/// A log with a mark in both checkpoints, an entry in the write-ahead log, and a file.
fn with_log(disk: &CrashDisk) -> Arc<Volume> {
    let volume = open(disk);
    hand(&volume, 0);
    let at = volume.submit(append(0, 0));
    volume.segments_synced(key(0), mark(0, 1), at);
    volume.submit(append(0, 1));
    flush(&volume);
    with_file(&volume, 0);
    volume.checkpoint(false).unwrap();
    volume.checkpoint(false).unwrap();
    volume
}

#[test]
fn a_deleted_log_stays_deleted_whenever_the_power_goes() {
    for changes in 0..12 {
        let disk = CrashDisk::new(1);
        let volume = with_log(&disk);
        disk.fail_after(changes);
        let deleted = volume.delete_log(key(0)).is_ok();
        for seed in 0..20 {
            // The host opens it again: it was made anew meanwhile, or the deletion was not over.
            let volume = open(&disk.crash(seed));
            let handed = hand(&volume, 0);
            if deleted {
                assert!(handed.mark.is_none() && handed.entries.is_empty());
                assert!(!has_file(&volume, 0));
            }
            match handed.mark {
                Some(_) => assert_eq!(handed.entries.len(), 1),
                None => assert!(handed.entries.is_empty() && !has_file(&volume, 0)),
            }
        }
    }
}

#[test]
fn a_log_made_anew_keeps_its_files() {
    let disk = CrashDisk::new(1);
    let volume = with_log(&disk);
    volume.delete_log(key(0)).unwrap();
    assert!(
        volume
            .disk()
            .list(&key(0).topic.to_string())
            .unwrap()
            .is_empty()
    );
    // Without an entry or a checkpoint that would tell, as a log without `sync`.
    hand(&volume, 0);
    with_file(&volume, 0);
    let volume = open(&disk.crash_with(1, Survivors::Nothing));
    let handed = hand(&volume, 0);
    assert!(handed.entries.is_empty() && handed.mark.is_some_and(|m| m.end == Offset(0)));
    assert!(has_file(&volume, 0));
    volume.recovered().unwrap();
    assert!(has_file(&volume, 0));
}

#[test]
fn folders_of_logs_that_nobody_opens_are_removed_and_others_left_alone() {
    let disk = CrashDisk::new(1);
    let volume = with_log(&disk);
    for log in 1..4 {
        hand(&volume, log);
        with_file(&volume, log);
    }
    for dir in ["backup/0", "AQEBAQEBAQEBAQEBAQEBAQ/extra"] {
        volume.disk().create_dir_all(dir).unwrap();
        volume
            .disk()
            .sync_dir(dir.split('/').next().unwrap())
            .unwrap();
    }
    volume.disk().sync_dir("").unwrap();
    let volume = open(&disk.crash_with(1, Survivors::Nothing));
    hand(&volume, 2);
    volume.recovered().unwrap();
    assert_eq!(volume.folders().unwrap(), [key(2)]);
    let names: Vec<String> = disk
        .list("AQEBAQEBAQEBAQEBAQEBAQ")
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["0", "extra"]);
    assert!(!volume.disk().list("backup").unwrap().is_empty());
    assert!(has_file(&volume, 2) && !has_file(&volume, 1));
    // What the write-ahead log held for them is forgotten too.
    assert!(volume.table.lock().oldest().is_some());
    for _ in 0..2 {
        volume.checkpoint(false).unwrap();
    }
    assert_eq!(volume.table.lock().oldest(), None);
}

#[test]
fn deleting_makes_room_on_a_full_disk() {
    let disk = CrashDisk::new(1);
    let volume = with_log(&disk);
    hand(&volume, 1);
    // The write-ahead log still grows, and can't.
    disk.set_capacity(Some(0));
    volume.submit(append(1, 0));
    let done = volume.take_flush().unwrap().run();
    assert!(done.error.unwrap().is_full());
    assert!(volume.failed().is_none());
    volume.delete_log(key(0)).unwrap();
    assert!(!has_file(&volume, 0));
    // Starting needs none either.
    let volume = open(&disk.crash_with(1, Survivors::Nothing));
    hand(&volume, 1);
    volume.recovered().unwrap();
    disk.set_capacity(None);
}

#[test]
fn a_failed_removal_can_be_tried_again() {
    let disk = CrashDisk::new(1);
    let volume = with_log(&disk);
    let folder = key(0).folder();
    let error = std::io::ErrorKind::Other;
    disk.fail(FaultOn::Folder, Times::Once, error, move |path| {
        path == folder
    });
    volume.delete_log(key(0)).unwrap_err();
    assert!(has_file(&volume, 0));
    volume.delete_log(key(0)).unwrap();
    assert!(!has_file(&volume, 0));
    for _ in 0..2 {
        volume.checkpoint(false).unwrap();
    }
    assert_eq!(volume.table.lock().oldest(), None);
}

#[test]
fn many_logs_go_with_one_flush() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    let keys: Vec<LogKey> = (0..50)
        .map(|n| LogKey {
            partition: PartitionIndex(n),
            ..key(0)
        })
        .collect();
    for key in &keys {
        volume.disk().create_dir_all(&key.folder()).unwrap();
    }
    let before = disk.counts();
    volume.delete_logs(&keys).unwrap();
    // The write-ahead log, the folder of the topic, the root.
    assert_eq!(disk.counts().syncs - before.syncs, 3);
    assert!(disk.list(&key(0).topic.to_string()).unwrap().is_empty());
}

#[test]
fn checkpoints_were_written_without_end_while_a_deleted_folder_could_not_be_removed() {
    let disk = CrashDisk::new(1);
    let volume = with_log(&disk);
    hand(&volume, 1);
    let folder = key(0).folder();
    let error = std::io::ErrorKind::Other;
    disk.fail(FaultOn::Folder, Times::Forever, error, move |path| {
        path.starts_with(&folder)
    });
    volume.delete_log(key(0)).unwrap_err();
    for base in 0.. {
        volume.submit(append(1, base));
        match volume.take_flush() {
            Some(flush) => assert!(flush.run().error.is_none()),
            None => break,
        }
    }
    assert!(volume.is_pressed());
    assert!((0..10).any(|_| !volume.upkeep().unwrap()));
    disk.heal();
    volume.delete_log(key(0)).unwrap();
    assert!((0..10).any(|_| !volume.upkeep().unwrap()));
    // There was no room for a second entry about the deletion, and none came while the first was kept for it.
    let flush = volume.take_flush().unwrap();
    assert!(flush.run().error.is_none());
}
