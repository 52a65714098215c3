//! All connections are cut: no client hears whether what it asked was done.

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    world.core.note("all connections are reset");
    world.lose_answers()
}
