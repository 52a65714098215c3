//! What goes wrong, and how often.

use std::io::ErrorKind;

use riverlog_log::disk::{FaultOn, Times};
use riverlog_log::{Disk, OpenMode};

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
    /// The process dies, and a byte of a file that can be made again flips.
    Flip,
}

/// Whether a fault begins, by the weights of the seed.
pub(crate) fn draw(core: &mut Core) -> Option<Fault> {
    core.node()?;
    let at = core.random.below(1_000);
    let swarm = &core.swarm;
    let (kill, cut, error, full) = (
        swarm.kill,
        swarm.power_cut,
        swarm.disk_error,
        swarm.full_disk,
    );
    if at < kill {
        return Some(Fault::Kill);
    }
    if at < kill + cut {
        if core.random.chance(1, 2) {
            return Some(Fault::PowerFails {
                changes: core.random.below(6),
            });
        }
        return Some(Fault::PowerCut);
    }
    if at < kill + cut + error {
        let on = match core.random.below(3) {
            0 => FaultOn::Read,
            1 => FaultOn::Write,
            _ => FaultOn::Sync,
        };
        let times = if core.random.chance(1, 2) {
            Times::Once
        } else {
            Times::Forever
        };
        let only_wal = core.random.chance(1, 2);
        core.note(&format!(
            "the disk fails on {on:?} {times:?}, only the write-ahead log: {only_wal}"
        ));
        core.disk.fail(on, times, ErrorKind::Other, move |path| {
            !only_wal || path.contains("wal")
        });
        return Some(Fault::Disk);
    }
    if at < kill + cut + error + full {
        core.note("the disk is full");
        core.disk.fill_up();
        return Some(Fault::Full);
    }
    if swarm.slow > 1 && at >= 990 {
        return Some(Fault::Slow);
    }
    (swarm.flips && at >= 980).then_some(Fault::Flip)
}

/// Damages a file beside a segment: nothing may depend on it. Bits that rot don't ask whether the process lives.
pub(crate) fn flip(core: &mut Core) {
    const BESIDE: [&str; 4] = [".index", ".timeindex", ".check", "leader-epoch-checkpoint"];
    let list = |dir: &str| core.disk.list(dir).unwrap_or_default();
    let mut files = Vec::new();
    for topic in list("").into_iter().filter(|e| e.is_dir && e.name != "wal") {
        for partition in list(&topic.name).into_iter().filter(|e| e.is_dir) {
            let dir = format!("{}/{}", topic.name, partition.name);
            let names = list(&dir).into_iter().map(|e| e.name);
            let beside = names.filter(|name| BESIDE.iter().any(|end| name.ends_with(end)));
            files.extend(beside.map(|name| format!("{dir}/{name}")));
        }
    }
    if files.is_empty() {
        return;
    }
    let path = files.swap_remove(core.random.below(files.len() as u64) as usize);
    let len = core
        .disk
        .open(&path, OpenMode::Read)
        .and_then(|f| f.len())
        .unwrap_or(0);
    let at = core.random.below(len.max(1));
    let mask = 1 << core.random.below(8);
    core.note(&format!("byte {at} of {path} rots"));
    // Nothing happens where the disk fails at the moment.
    let _failed = core.disk.flip(&path, at, mask);
}
