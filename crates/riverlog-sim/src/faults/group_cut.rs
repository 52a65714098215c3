//! The power goes while the next group of the write-ahead log is written or synced: of its sectors any are there afterwards, and
//! recovery must not take one for whole whose head alone is.

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    let changes = core.random.below(2);
    core.note("the power is to go with the next group of the write-ahead log");
    core.group_cut = true;
    core.disk
        .fail_after_meeting(changes, |path| path.starts_with("wal/"));
    Ok(())
}
