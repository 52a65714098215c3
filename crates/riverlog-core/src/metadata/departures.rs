//! Which nodes are gone: their processes have ended, and the systems that they ran on say so.
//!
//! A system whose process has ended ends its connections, and refuses new ones, as nobody listens there any more. That is known in a few
//! hundredths of a second, where silence takes a whole session. It isn't proof: something in between may refuse in a node's name.
//! So a node counts as gone only once its connection has ended and new ones were refused twice, some time apart, while nothing was
//! heard of it; and once for each connection, so that one which is refused for ever doesn't go and come back. Whoever is taken for gone and
//! isn't comes back with its next heartbeat; what keeps records safe meanwhile are epochs, as with one that is slow.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::BrokerId;

use super::{AdminCommand, MetadataImage};

/// How far apart two refusals are at least: one process may take the place of another, and listens a moment later.
const APART: Duration = Duration::from_millis(40);

/// What a host sees of its way to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A connection to it stands.
    Stands,
    /// That connection has ended.
    Ended,
    /// The system there refuses a new one: nobody listens at that port.
    Refused,
}

/// The ways of one node to all others.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    ways: BTreeMap<BrokerId, State>,
}

#[derive(Clone, Debug)]
enum State {
    Stands,
    /// The node was registered under this broker epoch when it ended; when it was first refused since, and since it was last heard of.
    Ended {
        epoch: i64,
        refused: Option<Duration>,
    },
    Gone {
        epoch: i64,
    },
    /// It was refused, and heard of all the same.
    Lives,
}

impl Departures {
    /// Takes note of what was seen of a way. `true`: the node counts as gone from now on.
    ///
    /// - `image`: what this node knows of the others.
    pub fn seen(
        &mut self,
        broker: BrokerId,
        way: Way,
        image: &MetadataImage,
        now: Duration,
    ) -> bool {
        match (way, self.ways.get_mut(&broker)) {
            (Way::Stands, _) => {
                self.ways.insert(broker, State::Stands);
            }
            (Way::Ended, Some(state @ State::Stands)) => match image.brokers.get(&broker) {
                Some(known) => {
                    *state = State::Ended {
                        epoch: known.epoch,
                        refused: None,
                    };
                }
                None => {
                    self.ways.remove(&broker);
                }
            },
            (Way::Refused, Some(state @ State::Ended { .. })) => {
                if let State::Ended { epoch, refused } = state {
                    let first = *refused.get_or_insert(now);
                    if now.saturating_sub(first) >= APART {
                        sometimes(Mark::NodeGone);
                        *state = State::Gone { epoch: *epoch };
                        return true;
                    }
                }
            }
            _ => {}
        }
        false
    }

    /// Something was heard of a node.
    pub fn heard(&mut self, broker: BrokerId) {
        match self.ways.get_mut(&broker) {
            Some(State::Ended { refused, .. }) => *refused = None,
            Some(state @ State::Gone { .. }) => {
                sometimes(Mark::GoneAndAlive);
                *state = State::Lives;
            }
            _ => {}
        }
    }

    /// Whether hearing of some node makes a difference.
    pub fn has_doubts(&self) -> bool {
        let mut states = self.ways.values();
        states.any(|state| matches!(state, State::Ended { .. } | State::Gone { .. }))
    }

    /// Nodes that are to be fenced, in order of id: those that are gone, and registered as they were then.
    pub fn to_fence(&self, image: &MetadataImage) -> Vec<AdminCommand> {
        if active(Mutant::SilentNeverFenced) {
            return Vec::new();
        }
        let gone = self.ways.iter().filter_map(|(id, state)| match state {
            State::Gone { epoch } => Some((*id, *epoch)),
            _ => None,
        });
        gone.filter(|(id, epoch)| {
            let known = image.brokers.get(id);
            known.is_some_and(|b| !b.fenced && b.epoch == *epoch)
        })
        .map(|(broker, epoch)| AdminCommand::Fence { broker, epoch })
        .collect()
    }
}
