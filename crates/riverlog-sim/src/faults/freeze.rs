//! The node stands still, as a process that is stopped or a machine that is moved, and then goes on as if nothing had been:
//! its clocks have gone on.

use std::time::Duration;

use riverlog_mutants::{Mark, sometimes};

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    // Some of these are longer than a session of a group.
    let most = if core.random.chance(1, 4) {
        60_000
    } else {
        500
    };
    core.frozen_until = core.clock + Duration::from_millis(core.random.below(most));
    core.note(format!(
        "the node stands still until {:?}",
        core.frozen_until
    ));
    sometimes(Mark::Frozen);
    Ok(())
}
