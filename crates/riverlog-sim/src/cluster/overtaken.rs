//! A coordinator that others have gone beyond, and that doesn't know so yet.
//!
//! It hears nobody but for what is under way, and nobody hears it while another node is made to lead what it has led, and its session isn't over: whoever still takes it for the
//! coordinator is answered. What it would refuse for good then it may not tell, for clients give up when they hear that.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_log::disk::Random;
use riverlog_wire::BrokerId;

use super::swarm::Swarm;
use super::transactors::STATE;
use super::world::{Event, World};

/// Of 100 ends of transactions, before how many it is brought about.
const OFTEN: u64 = 60;

/// Draws from a source of its own.
pub(super) struct Overtaken {
    random: Random,
    plays: bool,
    now: Option<Past>,
}

struct Past {
    at: usize,
    until: Duration,
    /// Who was told of the next epoch by its successor.
    ahead: BTreeSet<usize>,
}

impl Overtaken {
    /// In seeds with transactional producers. Who is cut off there is out of the in-sync sets, and others get on without it, long before its session is over.
    pub(super) fn draw(seed: u64, transacts: bool, swarm: &mut Swarm) -> Overtaken {
        let random = Random::new(seed ^ 0x6f_76_65_72);
        let plays = transacts;
        if plays {
            let cluster = &mut swarm.settings.cluster;
            cluster.session = Duration::from_secs(3);
            cluster.max_lag = Duration::from_millis(300);
            // There must be some transactions, and little else in their way.
            swarm.think = swarm.think.min(Duration::from_millis(5));
            swarm.operations = swarm.operations.max(600);
            swarm.faults = swarm.faults.min(10);
        }
        Overtaken {
            random,
            plays,
            now: None,
        }
    }
}

impl World {
    /// Before a transactional producer ends its transaction. Whether its coordinator is overtaken now, and another one is to be found soon.
    pub(super) fn is_overtaken(&mut self, id: &str) -> bool {
        let is_over = |past: &Past| past.until <= self.clock;
        if !self.overtaken.plays
            || self.healing
            || !self.overtaken.now.as_ref().is_none_or(is_over)
            || !self.overtaken.random.chance(OFTEN, 100)
        {
            return false;
        }
        let Some(controller) = self.controller() else {
            return false;
        };
        let Some((node, now)) = self.node(controller) else {
            return false;
        };
        let Some(broker) = node.transaction_coordinator(id, now) else {
            return false;
        };
        let at = broker.0 as usize - 1;
        if at == controller || !self.is_up(at) {
            return false;
        }
        let image = node.image();
        let partitions = image.topic(STATE).map_or(0, |topic| topic.partitions.len());
        let topic = TopicRef::Name(STATE.to_owned());
        for index in 0..partitions as i32 {
            if self.led_now(&topic, index).is_none_or(|led| led.at != at) {
                continue;
            }
            let found = image
                .topic(STATE)
                .and_then(|t| t.partitions.get(index as usize));
            let in_sync = found.map_or(&[][..], |p| &p.isr);
            let others: Vec<BrokerId> = in_sync.iter().copied().filter(|b| *b != broker).collect();
            if others.is_empty() {
                return false;
            }
            let next = others[self.overtaken.random.below(others.len() as u64) as usize];
            self.let_lead(STATE, index, next.0 as usize - 1);
        }
        self.note(format_args!("coordinator {at} is cut off and overtaken"));
        self.faults += 1;
        self.cut_off(at, true, true);
        let until = self.clock + self.swarm.settings.cluster.session;
        self.overtaken.now = Some(Past {
            at,
            until,
            ahead: BTreeSet::new(),
        });
        self.schedule(until, Event::Link(at));
        true
    }

    /// By whose metadata a client looks for the coordinator instead of `any`'s, and where it doesn't ask: first the next one, then often the one before, which takes
    /// itself for it.
    pub(super) fn looks_by(&mut self, me: usize, any: usize) -> (usize, Option<usize>) {
        let past = self.overtaken.now.as_ref();
        let Some(past) = past.filter(|past| self.clock < past.until) else {
            return (any, None);
        };
        let at = past.at;
        match past.ahead.contains(&me) {
            true if self.overtaken.random.chance(1, 2) => (at, None),
            true => (any, None),
            false => (any, Some(at)),
        }
    }

    /// A client was told its next epoch by a coordinator.
    pub(super) fn gets_ahead(&mut self, me: usize) {
        if let Some(past) = &mut self.overtaken.now {
            past.ahead.insert(me);
        }
    }
}
