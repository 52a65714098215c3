//! There is no room on the disk for a while.

use crate::model::Violation;
use crate::world::{Event, World};

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    core.note("the disk is full");
    core.disk.fill_up();
    core.schedule_in(2_000_000, Event::HealDisk);
    Ok(())
}
