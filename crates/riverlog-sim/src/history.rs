//! What clients did and were told, in the form that the checker reads: the simulator is judged by the rules that judge real
//! processes.
//!
//! Topics that opt out of syncing aren't in it: what a power cut may take of them is known to the model alone.

use std::time::Duration;

use riverlog_checker::{Event, What, place};
use riverlog_wire::Offset;

use crate::model::Place;
use crate::swarm::Swarm;
use crate::transactions::TOPIC;

/// Remembers events; nothing when nobody asked for a history.
#[derive(Debug, Default)]
pub(crate) struct History {
    events: Option<Vec<Event>>,
    /// By number of the topic: whether it is in the history.
    kept: Vec<bool>,
}

/// The one who looks at everything in the end.
const AUDITOR: &str = "auditor";

impl History {
    pub(crate) fn new(wanted: bool, swarm: &Swarm) -> History {
        let mut history = History {
            events: wanted.then(Vec::new),
            kept: swarm.topics.iter().map(|t| t.sync).collect(),
        };
        for (topic, plan) in swarm.topics.iter().enumerate() {
            // Retention may take records at any time.
            if plan.keeps.is_some() || plan.bound.is_some() {
                for partition in 0..plan.partitions {
                    history.deleting(Duration::ZERO, swarm, (topic, partition), None);
                }
            }
        }
        history
    }

    pub(crate) fn take(&mut self) -> Vec<Event> {
        self.events.take().unwrap_or_default()
    }

    /// Whether something about this partition is kept.
    pub(crate) fn keeps(&self, place: Place) -> bool {
        self.events.is_some() && self.kept.get(place.0).copied().unwrap_or(false)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.events.is_some()
    }

    pub(crate) fn note(&mut self, at: Duration, client: &str, what: What) {
        if let Some(events) = &mut self.events {
            events.push(Event {
                at: nanos(at),
                client: client.to_owned(),
                what,
            });
        }
    }

    /// Records before `to` may go; `None`: any.
    pub(crate) fn deleting(&mut self, at: Duration, swarm: &Swarm, there: Place, to: Option<i64>) {
        if self.keeps(there) {
            let place = place_of(swarm, there);
            self.note(at, AUDITOR, What::Deleting { place, to });
        }
    }

    /// A partition was read from start to end, after all clients had stopped.
    pub(crate) fn whole(
        &mut self,
        at: Duration,
        place: riverlog_checker::Place,
        start: Offset,
        records: Vec<(i64, String)>,
        read_committed: bool,
    ) {
        let end = records.last().map_or(start.0, |(offset, _)| offset + 1);
        let what = What::Whole {
            since: nanos(at),
            place,
            start: start.0,
            end,
            records,
            read_committed,
        };
        self.note(at, AUDITOR, what);
    }

    pub(crate) fn fault(&mut self, at: Duration, what: &str) {
        let what = what.to_owned();
        self.note(at, AUDITOR, What::Fault { what });
    }

    pub(crate) fn healed(&mut self, at: Duration) {
        self.note(at, AUDITOR, What::Healed);
    }
}

/// A time in the history.
pub(crate) fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

/// A partition, as the history calls it.
pub(crate) fn place_of(swarm: &Swarm, (topic, partition): Place) -> riverlog_checker::Place {
    let name = swarm.topics.get(topic).map_or("", |t| t.name.as_str());
    place(name, partition)
}

/// A partition that transactors write to.
pub(crate) fn transactional(partition: i32) -> riverlog_checker::Place {
    place(TOPIC, partition)
}
