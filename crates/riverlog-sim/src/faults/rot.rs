//! A byte of a file beside a segment flips: nothing may depend on it. Bits that rot don't ask whether the process lives.

use riverlog_log::{Disk, OpenMode};

use crate::files;
use crate::model::Violation;
use crate::world::World;

const BESIDE: [&str; 4] = [".index", ".timeindex", ".check", "leader-epoch-checkpoint"];

pub(crate) fn begin(world: &mut World) -> Result<(), Violation> {
    let core = &mut world.core;
    let mut files = files::of_logs(&core.disk);
    files.retain(|path| BESIDE.iter().any(|end| path.ends_with(end)));
    if files.is_empty() {
        return Ok(());
    }
    let path = files.swap_remove(core.random.below(files.len() as u64) as usize);
    let len = core
        .disk
        .open(&path, OpenMode::Read)
        .and_then(|f| f.len())
        .unwrap_or(0);
    let at = core.random.below(len.max(1));
    let mask = 1 << core.random.below(8);
    core.note(format!("byte {at} of {path} rots"));
    // Nothing happens where the disk fails at the moment.
    let _failed = core.disk.flip(&path, at, mask);
    Ok(())
}
