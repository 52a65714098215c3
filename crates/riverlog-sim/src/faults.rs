//! What goes wrong, and how often.

use std::io::ErrorKind;

use riverlog_log::disk::{FaultOn, Times};

use crate::world::Core;

/// A fault that begins now.
pub(crate) enum Fault {
    /// The process dies.
    Kill,
    /// The power goes.
    PowerCut,
    /// The disk takes this many more changes, then fails; soon the power goes.
    PowerFails { changes: u64 },
    /// Calls to the disk fail until it heals.
    Disk,
    /// There is no room until it heals.
    Full,
    /// The disk is slow for a while.
    Slow,
}

/// Whether a fault begins, by the weights of the seed.
pub(crate) fn draw(core: &mut Core) -> Option<Fault> {
    core.node()?;
    let at = core.random.below(1_000);
    let swarm = &core.swarm;
    let (kill, cut, error, full) = (swarm.kill, swarm.power_cut, swarm.disk_error, swarm.full_disk);
    if at < kill {
        return Some(Fault::Kill);
    }
    if at < kill + cut {
        if core.random.chance(1, 2) {
            return Some(Fault::PowerFails { changes: core.random.below(6) });
        }
        return Some(Fault::PowerCut);
    }
    if at < kill + cut + error {
        let on = match core.random.below(3) {
            0 => FaultOn::Read,
            1 => FaultOn::Write,
            _ => FaultOn::Sync,
        };
        let times = if core.random.chance(1, 2) { Times::Once } else { Times::Forever };
        let only_wal = core.random.chance(1, 2);
        core.note(&format!("the disk fails on {on:?} {times:?}, only the write-ahead log: {only_wal}"));
        core.disk.fail(on, times, ErrorKind::Other, move |path| !only_wal || path.contains("wal"));
        return Some(Fault::Disk);
    }
    if at < kill + cut + error + full {
        core.note("the disk is full");
        core.disk.set_capacity(Some(0));
        return Some(Fault::Full);
    }
    (swarm.slow > 1 && at >= 990).then_some(Fault::Slow)
}
