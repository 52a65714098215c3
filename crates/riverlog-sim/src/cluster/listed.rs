//! Whom Metadata names. A client ends what it has with a node that is left out, so that one that serves again after a moment must not be: whoever was let in is
//! named, and for a session after it was fenced.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_core::metadata::BrokerImage;
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::BrokerId;

use super::world::World;
use crate::model::Violation;

/// Since when nodes have been fenced, by what the quorum has agreed on.
#[derive(Default)]
pub(super) struct Listed {
    fenced: BTreeMap<BrokerId, Duration>,
}

impl Listed {
    pub(super) fn agreed(&mut self, broker: &BrokerImage, clock: Duration) {
        match broker.fenced {
            true => {
                self.fenced.entry(broker.id).or_insert(clock);
            }
            false => {
                self.fenced.remove(&broker.id);
            }
        }
    }
}

impl World {
    /// A client asks a node that knows all there is to know for the list of nodes.
    pub(super) fn check_listed(&mut self, at: usize) -> Result<(), Violation> {
        let knows_all = self.machines[at].told.knows(self.quorum.entries.len());
        let Some((node, now)) = self.node(at).filter(|_| knows_all && self.is_up(at)) else {
            return Ok(());
        };
        node.saw(now);
        for broker in node.image().brokers.values() {
            self.model.checked += 1;
            let listed = node.lists(broker);
            let out = self.listed.fenced.get(&broker.id);
            let out = out.map(|since| self.clock.saturating_sub(*since));
            match out {
                Some(_) if listed => sometimes(Mark::FencedListed),
                None | Some(_) if listed => {}
                Some(out) if out >= self.swarm.settings.cluster.session => {
                    sometimes(Mark::FencedLeftOut);
                }
                _ => {
                    let what = format!("node {at} leaves out {}, fenced for {out:?}", broker.id);
                    return Err(Violation::new(
                        "a node is listed until it has been out for a session",
                        what,
                    ));
                }
            }
        }
        Ok(())
    }
}
