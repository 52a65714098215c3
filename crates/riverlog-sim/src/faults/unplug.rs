//! The machine is switched off: the node stops as it should, and then there is no power. What the next start finds is what the stop
//! made durable.

use super::clean_stop;
use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    clean_stop::stop(world)?;
    world.power_cut()
}
