//! What nodes see of their ways to each other: connections that stand, end, and are refused.
//!
//! Where a process has died and its machine lives, the machine refuses; where the power is gone or the way is cut, nobody says anything. In every third seed
//! something on the way refuses in the name of a node that lives, now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_core::metadata::Way;
use riverlog_log::disk::Random;
use riverlog_wire::BrokerId;

use super::world::{Event, World};

/// How often, at most and at least, a node tries what has ended.
const DIALS_US: (u64, u64) = (20_000, 180_000);

/// Draws from a source of its own.
pub(super) struct Ways {
    random: Random,
    /// Of 1,000 looks at a way that stands, how many find a lie.
    lies: u64,
    /// The life of the node at the other end.
    stands: BTreeMap<(usize, usize), u64>,
    /// How often a node that lives is still refused, from where.
    lied: BTreeMap<(usize, usize), u64>,
}

impl Ways {
    pub(super) fn draw(seed: u64) -> Ways {
        let mut random = Random::new(seed ^ 0x77_61_79_73);
        let lies = match random.chance(1, 3) {
            true => 1 + random.below(10),
            false => 0,
        };
        Ways {
            random,
            lies,
            stands: BTreeMap::new(),
            lied: BTreeMap::new(),
        }
    }
}

impl World {
    /// A node begins to dial, or goes on.
    pub(super) fn dial_later(&mut self, at: usize) {
        let (least, most) = DIALS_US;
        let later = Duration::from_micros(least + self.ways.random.below(most - least));
        let life = self.machines[at].life;
        self.schedule(self.clock + later, Event::Dial { at, life });
    }

    /// A process that is gone has no connections.
    pub(super) fn hang_up(&mut self, at: usize) {
        self.ways.stands.retain(|(from, _), _| *from != at);
        self.ways.lied.retain(|(from, _), _| *from != at);
    }

    /// A node looks at its ways to all others.
    pub(super) fn dial(&mut self, at: usize) {
        for to in (0..self.machines.len()).filter(|to| *to != at) {
            if let Some(way) = self.way(at, to)
                && let Some((node, now)) = self.node(at)
                && node.on_way(BrokerId(to as i32 + 1), way, now)
            {
                let lives = self.machines[to].node.is_some();
                self.note(format_args!(
                    "node {at} takes {to} for gone; lives: {lives}"
                ));
                // The quorum elects another leader if enough voters have seen it.
                if self.quorum.leader == Some(to) && self.ways.random.chance(1, 2) {
                    self.depose();
                }
            }
        }
        self.dial_later(at);
    }

    /// What is seen of a way now, if that is new.
    fn way(&mut self, at: usize, to: usize) -> Option<Way> {
        let pair = (at, to);
        let linked = self.is_linked(at, to);
        let there = &self.machines[to];
        let ways = &mut self.ways;
        let stands = ways.stands.get(&pair).copied();
        if there.node.is_none() || stands.is_some_and(|life| life != there.life) {
            ways.lied.remove(&pair);
            return match ways.stands.remove(&pair) {
                Some(_) => Some(Way::Ended),
                // A kernel that is gone as well refuses nobody, and one that can't be reached isn't heard.
                None if there.powerless || !linked => None,
                None => Some(Way::Refused),
            };
        }
        if !linked {
            // What is cut for a while is given up.
            let given_up = stands.is_some() && ways.random.chance(1, 20);
            return given_up.then(|| {
                ways.stands.remove(&pair);
                Way::Ended
            });
        }
        if self.healing {
            ways.lied.clear();
        } else if let Some(left) = ways.lied.get_mut(&pair) {
            *left -= 1;
            if *left == 0 {
                ways.lied.remove(&pair);
            }
            return Some(Way::Refused);
        } else if stands.is_some() && ways.random.below(1_000) < ways.lies {
            ways.lied.insert(pair, 1 + ways.random.below(6));
            ways.stands.remove(&pair);
            return Some(Way::Ended);
        }
        stands.is_none().then(|| {
            ways.stands.insert(pair, there.life);
            Way::Stands
        })
    }
}
