//! The small files of the folder, each damaged in every way.

use super::*;
use crate::OpenMode;
use crate::disk::CrashDisk;

fn content(disk: &CrashDisk, path: &str) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn put(disk: &CrashDisk, path: &str, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::Create).unwrap();
    file.set_len(0).unwrap();
    file.write_at(&[bytes], 0).unwrap();
}

/// Every single-bit flip, every shorter length, zeros, and nothing.
fn damages(bytes: &[u8]) -> impl Iterator<Item = Option<Vec<u8>>> {
    let at = 0..bytes.len();
    let flips = at.clone().flat_map(|at| (0..8).map(move |bit| (at, bit)));
    let flips = flips.map(|(at, bit)| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1 << bit;
        bytes
    });
    let cuts = at.clone().map(|len| bytes[..len].to_vec());
    let zeros = at.map(|at| {
        let mut bytes = bytes.to_vec();
        bytes[at..].fill(0);
        bytes
    });
    let longer = [bytes, b"\n"].concat();
    let all = flips.chain(cuts).chain(zeros).chain([longer]);
    let differs = move |damaged: &Vec<u8>| damaged != bytes;
    all.filter(differs).map(Some).chain([None])
}

/// A folder with one log of two records: the first in synced segments and its start in the newest checkpoint, the second in
/// the write-ahead log.
fn folder() -> CrashDisk {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    let start = WalEntry::StartOffset {
        key: key(0),
        to: Offset(1),
    };
    let at = [append(0, 0), start].map(|entry| volume.submit(entry));
    flush(&volume);
    volume.segments_synced(key(0), mark(1, 1), at[1]);
    volume.checkpoint(false).unwrap();
    volume.submit(append(0, 1));
    flush(&volume);
    disk.crash(1)
}

/// Start offset and the entries to be done again.
fn found(disk: &CrashDisk) -> (i64, Vec<WalEntry>) {
    let volume = open(disk);
    let handed = hand(&volume, 0);
    let mut start = handed.mark.map_or(0, |mark| mark.start.0);
    let entries: Vec<WalEntry> = handed.entries.into_iter().map(|(_, e)| e).collect();
    for entry in &entries {
        if let WalEntry::StartOffset { to, .. } = entry {
            start = start.max(to.0);
        }
    }
    (start, entries)
}

#[test]
fn any_damage_to_one_small_file_loses_nothing() {
    let disk = folder();
    let newest = checkpoint::path(2);
    assert!(disk.open(newest, OpenMode::Read).is_ok());
    let mut tried = 0;
    for path in ["format", "checkpoint.0", "checkpoint.1", "lock"] {
        for damaged in damages(&content(&disk, path)) {
            let hurt = disk.crash(1);
            match damaged {
                Some(bytes) => put(&hurt, path, &bytes),
                None => hurt.remove_file(path).unwrap(),
            }
            let (start, entries) = found(&hurt);
            assert_eq!(start, 1, "{path}");
            assert_eq!(entries.last(), Some(&append(0, 1)), "{path}");
            // What could be made whole again is.
            assert_eq!(content(&hurt, "format"), content(&disk, "format"));
            tried += 1;
        }
    }
    assert!(tried > 2_500, "{tried}");
}

#[test]
fn a_damaged_mark_of_a_clean_stop_means_recovery() {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    let at = volume.submit(append(0, 0));
    volume.segments_synced(key(0), mark(0, 1), at);
    volume.checkpoint(true).unwrap();
    let disk = disk.crash(1);
    let handed = hand(&open(&disk.crash(1)), 0);
    assert!(handed.untouched);
    for damaged in damages(&content(&disk, CLEAN)) {
        let hurt = disk.crash(1);
        match damaged {
            Some(bytes) => put(&hurt, CLEAN, &bytes),
            None => hurt.remove_file(CLEAN).unwrap(),
        }
        let handed = hand(&open(&hurt), 0);
        assert!(!handed.untouched);
        assert_eq!(handed.mark, Some(mark(0, 1)));
    }
    // It belongs to one checkpoint; the other is as good, but not known to be.
    let hurt = disk.crash(1);
    hurt.remove_file(checkpoint::path(3)).unwrap();
    let handed = hand(&open(&hurt), 0);
    assert!(!handed.untouched);
    assert_eq!(handed.mark, Some(mark(0, 1)));
}

fn refused(disk: &CrashDisk) -> String {
    match Volume::open(Arc::new(disk.clone()), settings()) {
        Err(error @ OpenError::Damaged { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_lost_checkpoints_are_an_error_that_names_them() {
    let disk = folder();
    for path in ["checkpoint.0", "checkpoint.1"] {
        disk.flip(path, 40, 1).unwrap();
    }
    let message = refused(&disk);
    assert!(
        message.contains("checkpoint.1: its checksum is wrong"),
        "{message}"
    );
    assert!(message.contains("backup"), "{message}");
    // The format file isn't needed to see that something is missing.
    disk.remove_file("format").unwrap();
    assert!(refused(&disk).contains("format"));
    for path in ["checkpoint.0", "checkpoint.1"] {
        disk.remove_file(path).unwrap();
    }
    assert!(refused(&disk).contains("format"));
}

#[test]
fn a_lost_write_ahead_log_is_an_error_that_names_its_file() {
    let disk = folder();
    let hurt = disk.crash(1);
    hurt.remove_dir_all("wal").unwrap();
    let message = refused(&hurt);
    assert!(message.contains("wal/0000000000000000.wal"), "{message}");
    let hurt = disk.crash(1);
    let file = hurt.open("wal/0000000000000000.wal", OpenMode::Write);
    file.unwrap().set_len(0).unwrap();
    let message = refused(&hurt);
    assert!(message.contains("the files begin after them"), "{message}");
}

#[test]
fn a_folder_of_a_newer_release_is_refused_and_left_alone() {
    let disk = folder();
    let format = "riverlog format 7\nanything\n";
    let crc = crc_fast::crc32_iscsi(format.as_bytes());
    put(
        &disk,
        "format",
        format!("{format}crc32c {crc:08x}\n").as_bytes(),
    );
    let before = content(&disk, "format");
    match Volume::open(Arc::new(disk.clone()), settings()) {
        Err(OpenError::Newer { found: 7, known: 1 }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(content(&disk, "format"), before);
}

#[test]
fn checkpoints_of_another_folder_are_not_taken() {
    let (disk, other) = (folder(), CrashDisk::new(2));
    drop(open(&other));
    put(&disk, "checkpoint.0", &content(&other, "checkpoint.1"));
    assert_eq!(found(&disk).0, 1);
    put(&disk, "checkpoint.0", &content(&other, "checkpoint.1"));
    put(&disk, "checkpoint.1", &content(&other, "checkpoint.1"));
    assert!(refused(&disk).contains("another data folder"));
}

/// Five logs with one entry each, in a group of its own; the segments of the first are synced.
fn five_logs() -> CrashDisk {
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    for log in 0..5 {
        hand(&volume, log);
        let at = volume.submit(append(log, 0));
        flush(&volume);
        if log == 0 {
            volume.segments_synced(key(0), mark(0, 1), at);
            volume.checkpoint(false).unwrap();
        }
    }
    disk.crash(1)
}

/// Which of five logs have something to be done again.
fn with_entries(volume: &Arc<Volume>) -> Vec<u64> {
    let logs = (0..5).map(|log| (log, hand(volume, log)));
    let with = logs.filter(|(_, handed)| !handed.entries.is_empty());
    with.map(|(log, _)| log).collect()
}

fn accept_loss(disk: &CrashDisk) {
    disk.open("accept-loss", OpenMode::Create).unwrap();
    disk.sync_dir("").unwrap();
}

/// Flips a byte of the group that holds the entry of `log`.
fn hurt_entry(disk: &CrashDisk, log: u64) {
    for file in disk.list("wal").unwrap() {
        let path = format!("wal/{}", file.name);
        let bytes = content(disk, &path);
        let topic = key(log).topic.0;
        if let Some(at) = bytes.windows(16).position(|w| w == topic) {
            disk.flip(&path, at as u64 + 40, 1).unwrap();
            return;
        }
    }
    panic!("no entry of log {log}");
}

#[test]
fn whoever_accepts_the_loss_keeps_what_can_be_read_of_the_write_ahead_log() {
    let disk = five_logs();
    hurt_entry(&disk, 2);
    let message = refused(&disk);
    assert!(message.contains("accept-loss"), "{message}");
    accept_loss(&disk);
    // Interrupted anywhere, it is begun again.
    let mut whole = false;
    for changes in 0.. {
        let attempt = disk.crash_with(1, Survivors::Everything);
        attempt.fail_after(changes);
        if let Ok(volume) = Volume::open(Arc::new(attempt.clone()), settings()) {
            let told = volume.accepted_loss().unwrap_or_default();
            assert!(told.contains("wal/"), "{told}");
            // The entry of log 2, head and batch, between those of logs 1 and 3.
            let WalEntry::Append { batches, .. } = append(2, 0) else {
                panic!("not an append");
            };
            let bytes = 44 + batches.len();
            assert!(
                told.contains(&format!(" {bytes} bytes can't be read")),
                "{told}"
            );
            whole = true;
        }
        for seed in 0..6 {
            let left = attempt.crash(seed);
            let volume = open(&left);
            assert_eq!(with_entries(&volume), [1, 3, 4], "{changes} {seed}");
            drop(volume);
            // The file that said so is gone, and the folder sound.
            assert!(left.open("accept-loss", OpenMode::Read).is_err());
            let volume = open(&left.kill());
            assert_eq!(volume.accepted_loss(), None);
            assert_eq!(with_entries(&volume), [1, 3, 4]);
            assert_eq!(hand(&volume, 0).mark, Some(mark(0, 1)));
        }
        if whole {
            break;
        }
    }
}

#[test]
fn a_bad_sector_in_the_write_ahead_log_is_named_and_can_be_accepted() {
    let disk = five_logs();
    // The header at either start, then the first blocks; the new file of that name is another one.
    let left = std::sync::atomic::AtomicUsize::new(5);
    let bad = move |path: &str| {
        let one_less = |left: usize| left.checked_sub(1);
        path == "wal/0000000000000000.wal"
            && left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_ok()
    };
    let error = std::io::ErrorKind::Other;
    disk.fail(FaultOn::Read, Times::Forever, error, bad);
    match Volume::open(Arc::new(disk.clone()), settings()) {
        Err(OpenError::Disk(error)) => assert_eq!(error.path, "wal/0000000000000000.wal"),
        other => panic!("{other:?}"),
    }
    accept_loss(&disk);
    let volume = open(&disk);
    assert!(volume.accepted_loss().is_some());
    assert!(!with_entries(&volume).is_empty());
}

#[test]
fn without_any_checkpoint_the_segments_are_all_there_is() {
    for format_too in [false, true] {
        let disk = five_logs();
        // Where compaction has run, it has said how far.
        let volume = open(&disk);
        let mut cleaned = CleanerOffsets::default();
        cleaned.set(key(0), Offset(1));
        cleaned.store(&volume).unwrap();
        drop(volume);
        for path in ["checkpoint.0", "checkpoint.1"] {
            disk.remove_file(path).unwrap();
        }
        if format_too {
            disk.remove_file("format").unwrap();
        }
        refused(&disk);
        accept_loss(&disk);
        let volume = open(&disk);
        assert!(volume.accepted_loss().is_some());
        assert_eq!(with_entries(&volume), [1, 2, 3, 4]);
        // Of the log whose entries have gone the write-ahead log has the mark.
        assert_eq!(hand(&volume, 0).mark, Some(mark(0, 1)));
        drop(volume);
        let volume = open(&disk.crash_with(1, Survivors::Nothing));
        assert_eq!(volume.accepted_loss(), None);
    }
}

#[test]
fn a_folder_with_something_else_in_it_is_refused_and_left_alone() {
    let disk = CrashDisk::new(1);
    put(&disk, "meta.properties", b"cluster.id=x\n");
    match Volume::open(Arc::new(disk.clone()), settings()) {
        Err(OpenError::Foreign { found }) => assert_eq!(found, "meta.properties"),
        other => panic!("{other:?}"),
    }
    let names: Vec<String> = disk.list("").unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["meta.properties"]);
    // What systems and tools leave in a new folder doesn't matter.
    let disk = CrashDisk::new(1);
    put(&disk, ".gitkeep", b"");
    disk.create_dir_all("lost+found").unwrap();
    drop(open(&disk));
    // And what lies in a folder of ours later on doesn't either.
    put(&disk, "notes.txt", b"mine");
    drop(open(&disk));
}

#[test]
fn recovery_knows_how_far_segments_were_synced_when_their_entries_have_gone_before_any_checkpoint()
{
    let disk = CrashDisk::new(1);
    let volume = open(&disk);
    hand(&volume, 0);
    let at = volume.submit(append(0, 0));
    flush(&volume);
    volume.segments_synced(key(0), mark(0, 1), at);
    // Others go on, which makes it durable.
    volume.submit(append(1, 0));
    flush(&volume);
    let handed = hand(&open(&disk.kill()), 0);
    assert_eq!(handed.mark.unwrap().segments_synced, Offset(1));
    assert!(handed.entries.is_empty());
}
