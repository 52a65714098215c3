//! There are too few descriptors, and strangers take what there are (RC-35, P12): who is connected goes on, nothing is lost,
//! and when they leave all is as before.

use std::time::Duration;

use crate::stage::{Drill, Stage};
use crate::system::has;
use crate::workload::Load;
use crate::{Failure, Result, broken, raw};

pub(super) const DRILL: Drill = Drill {
    name: "fd-limit",
    disk_mib: None,
    rounds: 1,
    run,
};

/// Descriptors of the server.
const LIMIT: usize = 200;
/// Connections of the strangers.
const STRANGERS: usize = 300;

fn run(stage: &mut Stage) -> Result<()> {
    if !has("prlimit") {
        return Err(Failure::Lacks("needs prlimit (package util-linux)".into()));
    }
    stage.launch.under = vec!["prlimit".into(), format!("--nofile={LIMIT}")];
    stage.launch.settings.push("riverlog.open.files=24".into());
    let load = Load {
        partitions: 12,
        most_bytes: 6_000,
        ..Load::default()
    };
    stage.begin(&load)?;
    let mut connected = 0;
    for round in 0..stage.rounds {
        stage.fault(&format!("no descriptors {round}"));
        // Some wait in the listener's backlog; some may be refused.
        let strangers: Vec<_> = (0..STRANGERS)
            .filter_map(|_| raw::connect(stage.launch.port).ok())
            .collect();
        connected += strangers.len();
        std::thread::sleep(Duration::from_millis(500));
        let before = stage.acknowledged()?;
        std::thread::sleep(Duration::from_millis(1_500));
        // A busy machine may take longer over the first answer.
        let served = stage.goes_on(before, Duration::from_secs(20))?;
        if !served {
            return broken("those who were connected are not served while strangers are");
        }
        if stage.server()?.ended().is_some() {
            return broken("the server ended for lack of descriptors");
        }
        drop(strangers);
        stage.progress()?;
    }
    stage.notes.push(format!(
        "{LIMIT} descriptors, {connected} connections of strangers"
    ));
    Ok(())
}
