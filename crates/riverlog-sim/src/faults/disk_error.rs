//! Calls to the disk fail, once or until it heals; after that the node is restarted, which reads what is really there.

use std::io::ErrorKind;

use riverlog_log::disk::{FaultOn, Times};

use crate::model::Violation;
use crate::world::{Event, World};

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    let on = match core.random.below(3) {
        0 => FaultOn::Read,
        1 => FaultOn::Write,
        _ => FaultOn::Sync,
    };
    let times = if core.random.chance(1, 2) {
        Times::Once
    } else {
        Times::Forever
    };
    let only_wal = core.random.chance(1, 2);
    core.note(format!(
        "the disk fails on {on:?} {times:?}, only the write-ahead log: {only_wal}"
    ));
    core.disk.fail(on, times, ErrorKind::Other, move |path| {
        !only_wal || path.contains("wal")
    });
    core.faulty = true;
    core.erred = true;
    core.schedule_in(500_000, Event::HealDisk);
    Ok(())
}
