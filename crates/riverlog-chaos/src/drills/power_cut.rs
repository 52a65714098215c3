//! The power goes: everything that was not synced is gone, at any moment, also while the server starts (RC-03, RC-04, RC-28).
//!
//! The server is frozen first. Otherwise a sync in flight could return success while the file system is being shut down under
//! it, and its answer would be a promise about a disk that is no more.

use crate::Result;
use crate::stage::{Drill, Stage};
use crate::workload::Load;

pub(super) const DRILL: Drill = Drill {
    name: "power-cut",
    disk_mib: Some(512),
    rounds: 3,
    run,
};

fn run(stage: &mut Stage) -> Result<()> {
    stage.begin(&Load::for_rounds(stage.rounds))?;
    let mut early = 0;
    for round in 0..stage.rounds {
        stage.random.pause_ms(200, 1_200);
        stage.fault(&format!("power cut {round}"));
        cut(stage)?;
        if stage.random.below(4) == 0 {
            stage.server = Some(stage.launch.spawn()?);
            stage.random.pause_ms(0, 120);
            cut(stage)?;
            early += 1;
        }
        stage.start()?;
    }
    let cuts = stage.rounds + early;
    stage
        .notes
        .push(format!("{cuts} power cuts, {early} of them during a start"));
    Ok(())
}

/// Freezes, cuts, kills, and brings the disk back.
fn cut(stage: &mut Stage) -> Result<()> {
    stage.server()?.freeze()?;
    stage.disk()?.shut_down()?;
    stage.kill();
    stage.disk()?.unmount()?;
    stage.disk()?.mount()
}
