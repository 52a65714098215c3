//! What goes wrong: one file a fault, and how often each begins.

mod clean_stop;
mod clock;
mod disk_error;
mod freeze;
mod full_clean;
mod full_disk;
mod group_cut;
mod kill;
mod power_cut;
mod reset;
mod rot;
mod slow_disk;
mod swap_cut;
mod unplug;

use crate::model::Violation;
use crate::swarm::Swarm;
use crate::world::World;

pub(crate) use unplug::begin as unplug;

/// A fault: of 1,000 steps of clients, how many begin it in this swarm, and what it does.
type Fault = (fn(&Swarm) -> u64, fn(&mut World) -> Result<(), Violation>);

const ALL: &[Fault] = &[
    (|swarm| swarm.kill, kill::begin),
    (|swarm| swarm.power_cut, power_cut::begin),
    (|swarm| swarm.clean_stop, clean_stop::begin),
    (|swarm| swarm.disk_error, disk_error::begin),
    (|swarm| swarm.full_disk, full_disk::begin),
    (|swarm| swarm.freeze, freeze::begin),
    (|swarm| swarm.clock, clock::begin),
    (|swarm| swarm.reset, reset::begin),
    (|swarm| 10 * u64::from(swarm.slow > 1), slow_disk::begin),
    (|swarm| 10 * u64::from(swarm.flips), rot::begin),
    (|swarm| swarm.swap_cut, swap_cut::begin),
    (|swarm| swarm.group_cut, group_cut::begin),
    (|swarm| swarm.full_clean, full_clean::begin),
];

/// Perhaps a fault begins, by the weights of the seed.
pub(crate) fn perhaps(world: &mut World) -> Result<(), Violation> {
    if world.core.node().is_none() {
        return Ok(());
    }
    let mut at = world.core.random.below(1_000);
    for (weight, begin) in ALL {
        let weight = weight(&world.core.swarm);
        if at < weight {
            world.core.faults += 1;
            return begin(world);
        }
        at -= weight;
    }
    Ok(())
}
