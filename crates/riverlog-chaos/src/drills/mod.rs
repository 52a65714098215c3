//! One file a fault.

mod bad_sector;
mod clock;
mod dead_disk;
mod fd_limit;
mod full_disk;
mod kill;
mod memory_limit;
mod power_cut;
pub(crate) mod slow_disk;

use crate::Result;
use crate::stage::Stage;

/// A fault that can be played.
#[derive(Debug)]
pub(crate) struct Drill {
    pub(crate) name: &'static str,
    /// Size of the image that the data lies on; `None`: an ordinary folder is enough.
    pub(crate) disk_mib: Option<u64>,
    /// How often the fault comes unless that is said.
    pub(crate) rounds: u32,
    pub(crate) run: fn(&mut Stage) -> Result<()>,
}

pub(crate) const ALL: &[Drill] = &[
    kill::DRILL,
    power_cut::DRILL,
    dead_disk::DRILL,
    slow_disk::DRILL,
    full_disk::DRILL,
    bad_sector::DRILL,
    fd_limit::DRILL,
    memory_limit::DRILL,
    clock::DRILL,
];
