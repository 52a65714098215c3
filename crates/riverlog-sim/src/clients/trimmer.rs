//! Deletes the head of partitions now and then.

use riverlog_wire::Offset;

use crate::model::{Place, Violation};
use crate::world::{Core, Outcome};

#[derive(Debug, Default)]
pub(crate) struct Trimmer {
    pub(crate) waits: bool,
    asked: Option<Place>,
}

impl Trimmer {
    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        if !core.random.chance(1, 10) {
            return;
        }
        let places: Vec<Place> = core
            .places()
            .into_iter()
            .filter(|p| core.swarm.topics[p.0].trimmed)
            .collect();
        let place = places[core.random.below(places.len() as u64) as usize];
        let Some(reference) = core.partition(place) else {
            return;
        };
        let Some((node, now)) = core.operate() else {
            return;
        };
        let seen = node.describe_partition(&reference);
        let span = (seen.high_watermark - seen.log_start_offset).max(0) as u64;
        let before = seen.log_start_offset + core.random.below(span + 1) as i64;
        let before = if core.random.chance(1, 5) {
            Offset(-1)
        } else {
            before
        };
        self.waits = true;
        self.asked = Some(place);
        core.note(&format!("records of {place:?} before {before} are deleted"));
        node.delete_records(&reference, before, now, core.reply(me, Outcome::Deleted));
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        if let (Some(place), Outcome::Deleted(Ok(start))) = (self.asked.take(), outcome) {
            core.model.deleted(place, start);
        }
        Ok(())
    }
}
