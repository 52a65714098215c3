//! The wall clock jumps, back or ahead, and from then on goes at another rate. The monotonic clock does neither.

use riverlog_mutants::{Mark, sometimes};

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    let far = if core.random.chance(1, 2) {
        1_000
    } else {
        20 * 60_000
    };
    let jump = core.random.below(2 * far) as i64 - far as i64;
    core.wall
        .jump(core.clock, jump, core.random.below(400) as i64 - 200);
    core.note(format!("the wall clock jumps by {jump} ms"));
    sometimes(Mark::ClockJumped);
    Ok(())
}
