//! Deletes the head of partitions: now and then, or all the time in small steps.

use riverlog_wire::Offset;

use crate::model::{Place, Violation};
use crate::wire;
use crate::world::{Core, Event, Outcome};

#[derive(Debug, Default)]
pub(crate) struct Trimmer {
    pub(crate) waits: bool,
    asked: Option<(Place, Offset)>,
}

impl Trimmer {
    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        // What others have to get done then isn't that records go.
        if core.healing {
            core.back_off = true;
            return;
        }
        let eager = core.swarm.trimmers > 1;
        let often = match core.swarm.lost_heads {
            true => 4,
            false if eager => 2,
            false => 10,
        };
        if !core.random.chance(1, often) {
            return;
        }
        let places: Vec<Place> = core
            .places()
            .into_iter()
            .filter(|p| core.swarm.topics[p.0].trimmed)
            .collect();
        let place = places[core.random.below(places.len() as u64) as usize];
        let Some((reference, (node, _))) = core.partition(place).zip(core.node()) else {
            return;
        };
        let seen = node.describe_partition(&reference);
        let span = (seen.high_watermark - seen.log_start_offset).max(0) as u64;
        let step = if eager { span.min(2) } else { span };
        let mut before = seen.log_start_offset + core.random.below(step + 1) as i64;
        if !eager
            && core
                .random
                .chance(1, if core.swarm.lost_heads { 2 } else { 5 })
        {
            before = Offset(-1);
        }
        self.waits = true;
        self.asked = Some((place, before));
        core.note(format_args!(
            "records of {place:?} before {before} are deleted"
        ));
        core.model.deleting(place, before);
        let to = (before.0 >= 0).then_some(before.0);
        core.history.deleting(core.clock, &core.swarm, place, to);
        let (door, topic) = (core.door.clone(), core.swarm.topics[place.0].name.clone());
        core.ask(me, Outcome::Deleted, move |node, now, reply| match &door {
            Some(door) => wire::delete_records(door, topic, place.1, before, now, reply),
            None => node.delete_records(&reference, before, now, reply),
        });
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        if let Some((place, before)) = self.asked.take() {
            let to = match outcome {
                Outcome::Deleted(Ok(start)) => Some(start),
                _ => None,
            };
            if core.swarm.lost_heads && before == Offset(-1) && to.is_some() {
                // Before its producers have written much more.
                let soon = 2 * core.swarm.think.as_micros() as u64 + core.swarm.lag;
                core.schedule_in(soon, Event::Kill);
            }
            core.model.deleted(place, before, to);
        }
        Ok(())
    }
}
