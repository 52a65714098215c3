//! The power goes while the next cleaned segment takes the place of those that it was made from: in this life of the process, or in a
//! later one, perhaps while a start finishes what a crash has left of that.

use crate::model::Violation;
use crate::world::World;

/// Changes of the disk from the new name of the cleaned segment on, and a few more: files of two old segments go.
const CHANGES: u64 = 10;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    let changes = core.random.below(CHANGES);
    core.note(format_args!(
        "the power is to go {changes} changes after the next segment is replaced"
    ));
    core.swap_cut = Some(changes);
    core.await_swap();
    Ok(())
}
