//! Calls to the disk fail, once or until it heals; after that the node is restarted, which reads what is really there.

use std::io::ErrorKind;

use riverlog_log::disk::{FaultOn, Times};

use crate::model::Violation;
use crate::world::{Event, World};

/// Which files it is about.
#[derive(Clone, Copy, Debug)]
enum Place {
    Everywhere,
    Wal,
    Segments,
}

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
    let place = [Place::Everywhere, Place::Wal, Place::Segments][core.random.below(3) as usize];
    core.note(format_args!(
        "the disk fails on {on:?} {times:?}, {place:?}"
    ));
    core.disk.fail(on, times, ErrorKind::Other, move |path| {
        let wal = path.contains("wal");
        match place {
            Place::Everywhere => true,
            Place::Wal => wal,
            Place::Segments => !wal,
        }
    });
    core.faulty = true;
    core.erred = true;
    core.schedule_in(500_000, Event::HealDisk);
    Ok(())
}
