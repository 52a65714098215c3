//! The process dies: what it has written stays.

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    world.die("killed")
}
