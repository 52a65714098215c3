//! The power goes: at once, or after a few more changes of the disk, in the middle of one.

use crate::model::Violation;
use crate::world::{Event, World};

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    if core.random.chance(1, 2) {
        return world.power_cut();
    }
    core.disk.fail_after(core.random.below(6));
    core.schedule_in(5_000, Event::PowerCut);
    Ok(())
}
