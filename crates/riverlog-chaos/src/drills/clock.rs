//! The wall clock jumps, forwards and backwards, by up to a day: nothing that was promised hangs on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::stage::{Drill, Stage};
use crate::workload::Load;
use crate::{Failure, Result, broken};

pub(super) const DRILL: Drill = Drill {
    name: "clock",
    disk_mib: None,
    rounds: 2,
    run,
};

fn run(stage: &mut Stage) -> Result<()> {
    let Some(library) = library() else {
        return Err(Failure::Lacks(
            "needs libfaketime (package faketime): apt-get install faketime".into(),
        ));
    };
    let file = stage.folder.join("clock");
    fs::write(&file, "+0s")?;
    let environment = [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        // Read anew this often, in seconds.
        ("FAKETIME_CACHE_DURATION", "1".into()),
        // Time-outs run on the other clock, which no operator sets.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ];
    // By Kafka's rule records of more than an hour ahead of the server's clock are refused.
    let rule = "log.message.timestamp.after.max.ms=9223372036854775807";
    stage.launch.settings.push(rule.into());
    stage.launch.environment = environment.map(|(k, v)| (k.to_owned(), v)).to_vec();
    stage.begin(&Load::default())?;
    let mut jumps = Vec::new();
    for round in 0..stage.rounds {
        // By two hours at least: the hours in the server's log show that it jumped.
        let (least, most) = (2 * 3600, 24 * 3600);
        let far = (least + stage.random.below(most - least + 1)) as i64;
        let seconds = if stage.random.below(2) == 0 {
            far
        } else {
            -far
        };
        stage.fault(&format!("clock {seconds:+} s"));
        fs::write(&file, format!("{seconds:+}s"))?;
        jumps.push(format!("{seconds:+}"));
        // Until the library has read it.
        std::thread::sleep(Duration::from_millis(1_100));
        stage.progress()?;
        if round % 2 == 1 {
            stage.kill();
            stage.start()?;
        }
    }
    if !jumped(stage)? {
        return broken("the server's clock never jumped: the library is not in force");
    }
    stage.notes.push(format!("clock at {} s", jumps.join(", ")));
    Ok(())
}

fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|e| e.path());
    let folders = folders.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")]);
    folders
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .find(|path: &PathBuf| Path::new(path).exists())
}

/// Whether the times in the server's log go back somewhere or leap: without it the drill would show nothing.
fn jumped(stage: &Stage) -> Result<bool> {
    let log = fs::read_to_string(&stage.launch.log)?;
    let hour = |line: &str| Some(line.split_once("\"timestamp\":\"")?.1.get(..13)?.to_owned());
    let hours: std::collections::BTreeSet<String> = log.lines().filter_map(hour).collect();
    Ok(hours.len() > 1)
}
