//! Many want much at once and don't take it (RC-33): the server stays within its memory and is not ended by the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::stage::{Drill, Stage};
use crate::system::{is_root, until};
use crate::workload::Load;
use crate::{Failure, Result, broken, raw};

pub(super) const DRILL: Drill = Drill {
    name: "memory-limit",
    disk_mib: None,
    rounds: 1,
    run,
};

/// Memory of the server, all its pages of files included.
const LIMIT: u64 = 256 << 20;
/// Readers that ask for much and read nothing.
const READERS: usize = 150;
const PARTITIONS: u32 = 4;

fn run(stage: &mut Stage) -> Result<()> {
    let group = Group::new()?;
    let join = format!(
        "echo $$ > {} && exec \"$@\"",
        group.folder.join("cgroup.procs").display()
    );
    stage.keep_until_the_end(Box::new(group));
    stage.launch.under = ["sh", "-c", &join, "sh"].map(str::to_owned).to_vec();
    let load = Load {
        partitions: PARTITIONS,
        rate: 400,
        most_bytes: 40_000,
        ..Load::default()
    };
    stage.begin(&load)?;
    // More than there is memory for.
    stage.random.pause_ms(3_000, 4_000);
    for round in 0..stage.rounds {
        stage.fault(&format!("no memory {round}"));
        let mut readers = Vec::new();
        for _ in 0..READERS {
            if let Ok(mut reader) = raw::connect(stage.launch.port)
                && raw::ask_for_all(&mut reader, "drill", PARTITIONS, 64 << 20).is_ok()
            {
                readers.push(reader);
            }
        }
        std::thread::sleep(Duration::from_secs(2));
        if let Some(how) = stage.server()?.ended() {
            return broken(format!("the server ended under {} MiB: {how}", LIMIT >> 20));
        }
        stage.progress()?;
        drop(readers);
    }
    let resident = stage.server()?.resident_mib();
    stage.notes.push(format!(
        "{READERS} readers of 64 MiB each under {} MiB, {resident} MiB resident",
        LIMIT >> 20
    ));
    Ok(())
}

/// A control group of our own. Removed when dropped.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
}

impl Group {
    fn new() -> Result<Group> {
        if !is_root() {
            return Err(Failure::Lacks("needs root, to make a control group".into()));
        }
        let name = format!("riverlog-chaos-{}", std::process::id());
        for (root, limit) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(root).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Group { folder };
            if fs::write(group.folder.join(limit), LIMIT.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err(Failure::Lacks(
            "needs the memory controller of control groups".into(),
        ))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel lets go of an ended process a moment later.
        if !until(Duration::from_secs(5), || {
            fs::remove_dir(&self.folder).is_ok()
        }) {
            eprintln!("riverlog-chaos: {} is left", self.folder.display());
        }
    }
}
