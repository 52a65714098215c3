//! The only disk is full (RC-09): writes are refused, reads go on, the server starts on a full disk, and takes writes again
//! without a restart once there is room.

use std::fs;
use std::time::Duration;

use crate::stage::{Drill, Stage};
use crate::workload::Load;
use crate::{Failure, Result, broken};

pub(super) const DRILL: Drill = Drill {
    name: "full-disk",
    disk_mib: Some(160),
    rounds: 2,
    run,
};

/// Bytes that are left for the clients to fill.
const LEFT: u64 = 6 << 20;
/// How long it may take to fill them.
const REFUSES: Duration = Duration::from_secs(45);

fn run(stage: &mut Stage) -> Result<()> {
    let load = Load {
        most_bytes: 6_000,
        ..Load::default()
    };
    stage.begin(&load)?;
    for round in 0..stage.rounds {
        stage.random.pause_ms(200, 600);
        stage.fault(&format!("full disk {round}"));
        let ballast = stage.disk()?.mount.join("ballast");
        let file = fs::File::create(&ballast)?;
        let free = rustix::fs::statvfs(&stage.disk()?.mount)?;
        let free = free.f_bavail * free.f_frsize;
        let most = free.saturating_sub(LEFT);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, most)?;
        if !stage.falls_silent(REFUSES)? {
            return broken("a full disk goes on taking records");
        }
        // All that was acknowledged can be read, and groups go on.
        stage.read_whole(20)?;
        if round % 2 == 1 {
            stage.kill();
            stage.start()?;
            stage.read_whole(20)?;
        }
        if stage.server()?.ended().is_some() {
            return broken("the server ended because its disk was full");
        }
        drop(file);
        fs::remove_file(&ballast)?;
        stage.progress().map_err(|_| {
            Failure::Broken("no writes are taken though there is room again".into())
        })?;
    }
    let rounds = stage.rounds;
    stage.notes.push(format!("{rounds} full disks"));
    Ok(())
}
