//! There is no room for the next cleaned segment, and room for all else: what the cleaner put off for that must be done later, by the
//! same process.

use std::io::ErrorKind;

use riverlog_log::disk::{FaultOn, Times};

use crate::model::Violation;
use crate::world::World;

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    core.note("there is to be no room for the next cleaned segment");
    let cleaned = |path: &str| path.ends_with(".log.cleaned");
    core.disk
        .fail(FaultOn::Write, Times::Once, ErrorKind::StorageFull, cleaned);
    Ok(())
}
