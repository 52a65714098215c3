//! The process is killed at any moment, also while it starts (RC-01, RC-02).

use crate::Result;
use crate::stage::{Drill, Stage};
use crate::workload::Load;

pub(super) const DRILL: Drill = Drill {
    name: "kill",
    disk_mib: None,
    rounds: 3,
    run,
};

fn run(stage: &mut Stage) -> Result<()> {
    stage.begin(&Load::for_rounds(stage.rounds))?;
    let mut early = 0;
    for round in 0..stage.rounds {
        stage.random.pause_ms(200, 1_000);
        stage.fault(&format!("kill {round}"));
        stage.kill();
        // Now and then once more in the middle of its recovery.
        if stage.random.below(4) == 0 {
            stage.server = Some(stage.launch.spawn()?);
            stage.random.pause_ms(0, 120);
            stage.kill();
            early += 1;
        }
        stage.random.pause_ms(0, 100);
        stage.start()?;
    }
    let kills = stage.rounds + early;
    stage
        .notes
        .push(format!("{kills} kills, {early} of them during a start"));
    Ok(())
}
