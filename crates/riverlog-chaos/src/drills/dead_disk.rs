//! The disk dies while the server runs: every call on it fails (RC-06). Nothing is acknowledged from then on; with the disk
//! back, a start finds everything that was.

use std::time::Duration;

use crate::stage::{Drill, Stage};
use crate::workload::Load;
use crate::{Result, broken};

pub(super) const DRILL: Drill = Drill {
    name: "dead-disk",
    disk_mib: Some(512),
    rounds: 1,
    run,
};

/// How long answers may be on their way to clients that have little of a processor.
const SILENT: Duration = Duration::from_secs(10);
/// How long an answer to a request that touches no disk may take.
const ANSWERS: Duration = Duration::from_secs(20);

fn run(stage: &mut Stage) -> Result<()> {
    stage.begin(&Load::default())?;
    let mut survived = 0;
    for round in 0..stage.rounds {
        stage.random.pause_ms(200, 1_000);
        stage.fault(&format!("dead disk {round}"));
        stage.disk()?.shut_down()?;
        if !stage.falls_silent(SILENT)? {
            return broken("records go on being acknowledged by a dead disk");
        }
        // It may end, and it may go on serving what it has in memory; it may not hang.
        let server = stage.server()?;
        if server.ended().is_none() {
            survived += 1;
            if !server.ready(ANSWERS) {
                return broken("the server neither ends nor answers");
            }
        }
        stage.kill();
        stage.disk()?.unmount()?;
        stage.disk()?.mount()?;
        stage.start()?;
        stage.progress()?;
    }
    let rounds = stage.rounds;
    stage.notes.push(format!(
        "{rounds} dead disks, {survived} survived by the process"
    ));
    Ok(())
}
