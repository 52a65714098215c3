//! The node is stopped as it should be, and started again.

use riverlog_mutants::{Mark, sometimes};

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    stop(world)?;
    world.die("after its stop")
}

/// The process is still there afterwards.
pub(super) fn stop(world: &mut World) -> Result<(), Violation> {
    let Some((node, now)) = world.core.node() else {
        return Ok(());
    };
    world.core.note("the node is stopped");
    world.core.finish_jobs();
    // A disk that fails or is full keeps it from being clean; the next start recovers.
    if node.close(now).is_ok() {
        sometimes(Mark::StoppedCleanly);
    }
    world.deliver()
}
