//! A model of the quorum: what Raft guarantees, and nothing beyond.
//!
//! One leader for each term; what is committed stays, in one order; a proposal is committed in its term or never. Everything else
//! may happen: leaderships end at any moment, proposals are lost with them or committed without their leader hearing of it, entries
//! reach nodes late, and a node that starts is given a snapshot and what came after it.

use std::time::Duration;

use bytes::Bytes;
use riverlog_core::metadata::MetadataRecord;
use riverlog_node::quorum::{MetadataSnapshot, Proposal, QuorumEvent};
use riverlog_wire::BrokerId;

use super::world::{Event, World};
use crate::model::Violation;

/// How long a quorum without a leader takes to find one, at least.
const ELECTION: Duration = Duration::from_millis(150);

/// How often the leader hears that a majority still takes it for that.
const CONFIRMED: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Quorum {
    pub(super) term: u64,
    /// Of the term; the node may be dead.
    pub(super) leader: Option<usize>,
    pub(super) entries: Vec<(u64, Vec<Bytes>)>,
    electing: bool,
}

/// What a node has been told, in its present life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    entries: usize,
    /// The term and whether there is a leader.
    led: (u64, Option<usize>),
    /// The next piece is on its way.
    on_its_way: bool,
    /// When a majority took it for the leader.
    confirmed: Option<Duration>,
}

impl Told {
    /// Whether it was told all of so many entries.
    pub(super) fn knows(&self, entries: usize) -> bool {
        self.entries == entries
    }
}

impl World {
    /// Whether a node can talk with a majority, both ways, itself included.
    fn has_majority(&self, at: usize) -> bool {
        let talks = |to: &usize| *to == at || (self.is_up(*to) && self.is_linked(at, *to));
        let all = self.machines.len();
        self.is_up(at) && (0..all).filter(talks).count() > all / 2
    }

    /// Looks whether the quorum has a leader that a majority hears, and whom still has to be told what.
    pub(super) fn look_after_quorum(&mut self) {
        let leads = self.quorum.leader.filter(|at| self.has_majority(*at));
        if leads.is_none() && !self.quorum.electing {
            self.quorum.electing = true;
            let later = ELECTION + self.within(400_000);
            self.schedule(self.clock + later, Event::Elect);
        }
        for at in 0..self.machines.len() {
            self.tell_node(at);
        }
        if let Some(at) = leads {
            self.confirm(at);
        }
    }

    /// The leader hears that a majority still takes it for that.
    fn confirm(&mut self, at: usize) {
        let confirmed = self.machines[at].told.confirmed;
        if confirmed.is_some_and(|confirmed| self.clock < confirmed + CONFIRMED) {
            return;
        }
        self.machines[at].told.confirmed = Some(self.clock);
        if let Some((node, now)) = self.node(at) {
            let silent = Duration::ZERO;
            node.on_quorum(QuorumEvent::Majority { silent }, now);
        }
    }

    pub(super) fn elect(&mut self) {
        self.quorum.electing = false;
        if self.quorum.leader.is_some_and(|at| self.has_majority(at)) {
            return;
        }
        let can: Vec<usize> = (0..self.machines.len())
            .filter(|at| self.has_majority(*at))
            .collect();
        self.quorum.term += 1;
        self.quorum.leader = match can.len() {
            0 => None,
            n => Some(can[self.random.below(n as u64) as usize]),
        };
        let (term, leader) = (self.quorum.term, self.quorum.leader);
        self.note(format!("term {term} is led by {leader:?}"));
    }

    /// The leader loses its leadership though nothing is wrong with it.
    pub(super) fn depose(&mut self) {
        self.quorum.leader = None;
    }

    /// The next piece for a node, if it can hear it: entries from whoever leads, one after the other; who leads, once it has all.
    fn tell_node(&mut self, at: usize) {
        if !self.is_up(at) || self.machines[at].told.on_its_way {
            return;
        }
        let hears = match self.quorum.leader {
            Some(leader) => leader == at || (self.is_up(leader) && self.is_linked(leader, at)),
            None => false,
        };
        let told = self.machines[at].told;
        let led = (self.quorum.term, self.quorum.leader.filter(|_| hears));
        let has_all = told.entries == self.quorum.entries.len();
        let news = match (hears, has_all) {
            (true, false) => true,
            (true, true) => told.led != led,
            // One that hears nothing for a while knows of no leader.
            (false, _) => told.led.1.is_some(),
        };
        if news {
            self.machines[at].told.on_its_way = true;
            let later = match hears {
                true => self.within(3_000),
                false => self.within(600_000),
            };
            let life = self.machines[at].life;
            self.schedule(self.clock + later, Event::Tell { at, life });
        }
    }

    pub(super) fn tell(&mut self, at: usize) -> Result<(), Violation> {
        self.machines[at].told.on_its_way = false;
        let Some((node, now)) = self.node(at) else {
            return Ok(());
        };
        let hears = match self.quorum.leader {
            Some(leader) => leader == at || (self.is_up(leader) && self.is_linked(leader, at)),
            None => false,
        };
        let told = self.machines[at].told;
        if hears && told.entries < self.quorum.entries.len() {
            let event = match self.snapshot_for(at) {
                Some(snapshot) => {
                    self.machines[at].told.entries = snapshot.index as usize;
                    QuorumEvent::Snapshot(snapshot)
                }
                None => {
                    self.machines[at].told.entries += 1;
                    let (term, records) = self.quorum.entries[told.entries].clone();
                    QuorumEvent::Committed {
                        index: told.entries as u64 + 1,
                        term,
                        records,
                    }
                }
            };
            if self.random.chance(1, 20) {
                node.on_quorum(event.clone(), now);
            }
            node.on_quorum(event, now);
            return self.check_image(at);
        }
        let (term, leader) = (self.quorum.term, self.quorum.leader.filter(|_| hears));
        if told.led != (term, leader) {
            self.machines[at].told.led = (term, leader);
            let leader = leader.map(|at| BrokerId(at as i32 + 1));
            node.on_quorum(QuorumEvent::Leader { term, leader }, now);
        }
        Ok(())
    }

    /// A node that begins, or is far behind, may get all at once from another one.
    fn snapshot_for(&mut self, at: usize) -> Option<MetadataSnapshot> {
        let behind = self.quorum.entries.len() - self.machines[at].told.entries;
        if behind < 5 || !self.random.chance(1, 3) {
            return None;
        }
        let donor = self.random.below(self.machines.len() as u64) as usize;
        let snapshot = self.machines[donor].node.as_ref()?.metadata_snapshot();
        (snapshot.index as usize > self.machines[at].told.entries).then_some(snapshot)
    }

    fn note_entry(&mut self, proposal: &Proposal) -> Result<(), Violation> {
        for bytes in &proposal.records {
            match MetadataRecord::decode(bytes) {
                Ok(Some(MetadataRecord::Partition {
                    topic,
                    index,
                    partition: p,
                })) => {
                    self.note(format_args!(
                        "partition {index}: leader {:?}, epochs {}/{}, isr {:?}, elr {:?}",
                        p.leader.map(|b| b.0),
                        p.leader_epoch,
                        p.partition_epoch,
                        p.isr.iter().map(|b| b.0).collect::<Vec<_>>(),
                        p.elr.iter().map(|b| b.0).collect::<Vec<_>>(),
                    ));
                    self.model.becomes((topic, index), p)?;
                }
                Ok(Some(MetadataRecord::Broker(b))) => {
                    self.note(format_args!(
                        "broker {}: epoch {}, fenced {}",
                        b.id, b.epoch, b.fenced
                    ));
                    self.listed.agreed(&b, self.clock);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A proposal has reached a majority, or not.
    pub(super) fn commit(&mut self, from: usize, proposal: Proposal) -> Result<(), Violation> {
        let leads = self.quorum.leader == Some(from) && self.quorum.term == proposal.term;
        if leads && self.has_majority(from) {
            self.note_entry(&proposal)?;
            self.quorum.entries.push((proposal.term, proposal.records));
            // Committed, and its leader may never hear of it.
            if !self.healing && self.random.chance(1, 60) {
                self.depose();
            }
        } else if leads && self.random.chance(1, 2) {
            // It may yet be, once the leader is heard again in its term.
            let later = self.within(50_000);
            self.schedule(self.clock + later, Event::Commit { from, proposal });
        } else if leads && let Some((node, now)) = self.node(from) {
            let number = proposal.number;
            node.on_quorum(QuorumEvent::Refused { number }, now);
        }
        Ok(())
    }
}
