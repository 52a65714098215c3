//! The disk becomes slow and never fails (RC-10): everything goes on, slowly, and at once when it is over.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::stage::{Drill, Stage};
use crate::workload::Load;
use crate::{Failure, Result, broken};

pub(super) const DRILL: Drill = Drill {
    name: "slow-disk",
    disk_mib: Some(512),
    rounds: 1,
    run,
};

/// Bytes a second that the disk takes while it is slow.
const SLOW: u64 = 128 << 10;

/// Cached writes are charged to the root of this hierarchy, whoever made them: so the limit stands there, for one device.
pub(crate) const CONTROL: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

fn run(stage: &mut Stage) -> Result<()> {
    if !Path::new(CONTROL).exists() {
        return Err(Failure::Lacks(format!(
            "needs the blkio controller of version 1 control groups at {CONTROL}"
        )));
    }
    stage.begin(&Load::default())?;
    let device = stage.disk()?.device()?;
    let mut rates = Vec::new();
    for round in 0..stage.rounds {
        stage.random.pause_ms(200, 600);
        stage.fault(&format!("slow disk {round}"));
        let slow = Throttle::new(&device)?;
        let before = stage.acknowledged()?;
        std::thread::sleep(Duration::from_secs(2));
        let acknowledged = stage.acknowledged()? - before;
        rates.push((acknowledged / 2).to_string());
        if stage.server()?.ended().is_some() {
            return broken("the server ended because its disk was slow");
        }
        drop(slow);
        stage.progress()?;
    }
    let rates = rates.join(" and ");
    stage.notes.push(format!(
        "a disk of {} KiB a second, {rates} records a second acknowledged",
        SLOW >> 10
    ));
    Ok(())
}

/// A slow device; as fast as before when dropped.
pub(crate) struct Throttle {
    device: String,
}

impl Throttle {
    pub(crate) fn new(device: &str) -> Result<Throttle> {
        fs::write(CONTROL, format!("{device} {SLOW}"))?;
        Ok(Throttle {
            device: device.to_owned(),
        })
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        if fs::write(CONTROL, format!("{} 0", self.device)).is_err() {
            eprintln!("riverlog-chaos: {} stays slow", self.device);
        }
    }
}
