//! The disk is slow for a while.

use std::time::Duration;

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    core.slow_until = core.clock + Duration::from_millis(core.random.below(3_000));
    Ok(())
}
