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

use crate::stage::Drill;

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
