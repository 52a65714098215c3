//! Sectors of a closed segment can't be read any more (RC-07): that range is answered with an error, everything else is
//! served, also behind it in the same partition, and the server lives on.
//!
//! No device here can be told to fail at one place. So a closed segment is moved to the end of the disk, and the image behind
//! the loop device is cut just before it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riverlog_checker::{What, place};

use crate::stage::{Drill, Stage};
use crate::system::{has, run as command};
use crate::workload::Load;
use crate::{Failure, Result, broken, raw};

pub(super) const DRILL: Drill = Drill {
    name: "bad-sector",
    disk_mib: Some(MIB),
    rounds: 2,
    run,
};

const BLOCK: u64 = 4096;
const MIB: u64 = 1024;
/// CORRUPT_MESSAGE and KAFKA_STORAGE_ERROR.
const CODES: [i16; 2] = [2, 56];

fn run(stage: &mut Stage) -> Result<()> {
    if !has("filefrag") {
        return Err(Failure::Lacks("needs filefrag (package e2fsprogs)".into()));
    }
    let load = Load {
        rate: 100,
        most_bytes: 12_000,
        ..Load::default()
    };
    stage.begin(&load)?;
    let mut codes = Vec::new();
    for round in 0..stage.rounds {
        let victim = closed_segment(stage, round as usize)?;
        // Both in turn.
        let killed = round % 2 == 1;
        let how = if killed {
            "after a kill"
        } else {
            "after a stop"
        };
        stage.fault(&format!("bad sectors {round}, {how}"));
        if killed {
            // The recovery meets them.
            stage.kill();
        } else {
            // The segments are all there is of these records: the write-ahead log doesn't have them.
            stage.stop()?;
        }
        let size = fs::metadata(&victim.path)?.len();
        let cut = move_to_the_end(stage, &victim.path, size)?;
        stage.note(What::Damaged {
            place: place("drill", victim.partition),
            from: victim.base,
            to: victim.next,
        });
        // From here on reads there fail; the file system itself knows nothing of it.
        let image = fs::OpenOptions::new()
            .write(true)
            .open(&stage.disk()?.file)?;
        image.set_len(cut)?;
        stage.start()?;
        let (partition, base, next) = (victim.partition, victim.base, victim.next);
        let code = raw::fetch_error(stage.launch.port, "drill", partition, base)?;
        // After a kill the write-ahead log may still have the records, and the recovery have written them anew.
        if !(CODES.contains(&code) || killed && code == 0) {
            return broken(format!(
                "{how} drill-{partition} from offset {base} on is answered with code {code}, not with one of {CODES:?}"
            ));
        }
        codes.push(format!("{code} {how}"));
        stage.tell(&format!("damaged {partition} {base} {next}"), 0)?;
        stage.read_whole(10)?;
        if stage.server()?.ended().is_some() {
            return broken("the server ended because of a bad sector");
        }
        // As after the disk was replaced: the range stays damaged.
        image.set_len(MIB << 20)?;
    }
    let codes = codes.join(", ");
    stage
        .notes
        .push(format!("a closed segment answered with code {codes}"));
    Ok(())
}

struct Closed {
    path: PathBuf,
    partition: i32,
    base: i64,
    next: i64,
}

/// A segment behind which others have begun, by the time it has been written to.
fn closed_segment(stage: &mut Stage, number: usize) -> Result<Closed> {
    let data = stage.launch.data.clone();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(200));
        if let Some(closed) = find_closed(&data, number)? {
            return Ok(closed);
        }
    }
    broken("no segment was closed")
}

fn find_closed(data: &Path, number: usize) -> Result<Option<Closed>> {
    let mut found = Vec::new();
    for topic in folders(data)? {
        for folder in folders(&topic)? {
            let partition = name(&folder).parse::<i32>();
            let mut bases: Vec<(i64, PathBuf)> = fs::read_dir(&folder)?
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|e| e == "log"))
                .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
                .collect();
            bases.sort();
            // The clients' topic is the only one that has so many.
            if let (Ok(partition), [(base, path), (next, _), _, ..]) = (partition, &bases[..]) {
                found.push(Closed {
                    path: path.clone(),
                    partition,
                    base: *base,
                    next: *next,
                });
            }
        }
    }
    found.sort_by_key(|closed| closed.partition);
    Ok(if found.len() > number {
        Some(found.swap_remove(number))
    } else {
        None
    })
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    Ok(entries.filter(|path| path.is_dir()).collect())
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Makes the file lie behind everything else on the disk; returns the byte of the image where it begins. The server is
/// down.
fn move_to_the_end(stage: &Stage, path: &Path, size: u64) -> Result<u64> {
    let disk = stage.disk()?;
    let (ballast, end) = (disk.mount.join("ballast"), disk.mount.join("end"));
    // Of the round before.
    let _ = fs::remove_file(&end);
    // The ballast takes what lies before, and leaves the end.
    fill(&disk.mount, &ballast, size + (2 << 20))?;
    write_anew(path)?;
    // Nothing else is to be written there, neither now nor by the server once the sectors are gone.
    fill(&disk.mount, &end, 64 << 10)?;
    fs::remove_file(&ballast)?;
    disk.unmount()?;
    disk.mount()?;
    let begin = extents(path)?.iter().map(|(from, _)| *from).min();
    let begin = begin.unwrap_or(0);
    for _ in 0..5 {
        let mut behind = behind(&disk.mount, path, begin)?;
        behind.retain(|file| *file != end);
        if behind.is_empty() {
            disk.unmount()?;
            disk.mount()?;
            return Ok(begin);
        }
        // There is room before it now.
        for file in behind {
            write_anew(&file)?;
        }
    }
    broken(format!("other files lie behind {}", path.display()))
}

/// A file that takes all room of the disk but `left` bytes.
fn fill(mount: &Path, path: &Path, left: u64) -> Result<()> {
    let file = fs::File::create(path)?;
    let free = rustix::fs::statvfs(mount)?;
    let free = free.f_bavail * free.f_frsize;
    let most = free.saturating_sub(left).max(BLOCK);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, most)?;
    file.sync_all()?;
    Ok(())
}

/// The same file at another place of the disk.
fn write_anew(path: &Path) -> Result<()> {
    let copy = path.with_extension("moved");
    fs::copy(path, &copy)?;
    fs::File::open(&copy)?.sync_all()?;
    fs::rename(&copy, path)?;
    Ok(())
}

/// The files that have bytes behind a place of the disk.
fn behind(dir: &Path, but: &Path, begin: u64) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    visit(dir, &mut |path| {
        if path != but
            && let Ok(extents) = extents(path)
            && extents.iter().any(|(_, to)| *to > begin)
        {
            found.push(path.to_owned());
        }
    })?;
    Ok(found)
}

fn visit(dir: &Path, each: &mut dyn FnMut(&Path)) -> Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => visit(&path, each)?,
            false => each(&path),
        }
    }
    Ok(())
}

/// Where the bytes of a file lie on the device: from, to (exclusive).
fn extents(path: &Path) -> Result<Vec<(u64, u64)>> {
    let said = command(
        "filefrag",
        &["-v", &format!("-b{BLOCK}"), &path.display().to_string()],
    )?;
    Ok(said.lines().filter_map(extent).collect())
}

/// `0:        0..     255:      34816..     35071:    256:             last,eof`
fn extent(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split(':');
    fields.next()?.trim().parse::<u64>().ok()?;
    fields.next()?;
    let (from, to) = fields.next()?.split_once("..")?;
    let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    Some((from * BLOCK, (to + 1) * BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_told_from_the_lines_around_it() {
        let line = "   1:       10..      20:      34816..     34826:     11:        200: last,eof";
        assert_eq!(extent(line), Some((34_816 * BLOCK, 34_827 * BLOCK)));
        assert_eq!(
            extent(" ext:     logical_offset:        physical_offset: length:   expected: flags:"),
            None
        );
        assert_eq!(extent("/x/y.log: 1 extent found"), None);
    }

    #[test]
    fn a_closed_segment_has_two_behind_it() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("topic/3");
        fs::create_dir_all(&folder).unwrap();
        for base in [0, 70] {
            fs::write(folder.join(format!("{base:020}.log")), "").unwrap();
        }
        assert!(find_closed(data.path(), 0).unwrap().is_none());
        fs::write(folder.join(format!("{:020}.log", 140)), "").unwrap();
        let closed = find_closed(data.path(), 0).unwrap().unwrap();
        assert_eq!((closed.partition, closed.base, closed.next), (3, 0, 70));
    }
}
