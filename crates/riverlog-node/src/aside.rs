//! Leaderships that somebody else may have by now.
//!
//! A node of which the controller has confirmed nothing for a whole session (`broker.session.timeout.ms`) may have been taken for gone, and
//! another one may lead what it leads. Where followers still ask it that can't have come to anything: nothing is acknowledged elsewhere
//! without them ([`riverlog_core::replica::Leader::is_followed`]). The node goes on there, however long no controller is found. Elsewhere it
//! steps aside: it sends clients away with errors that have them look for the leader, tells nobody of ends and commits that may be old, and
//! serves readers what it has, which stays true. It stops when the controller confirms its session, or enough followers ask again.

use std::sync::atomic::Ordering;

use riverlog_core::Now;
use riverlog_log::LogKey;
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::{PartitionIndex, TopicId};

use crate::node::Node;
use crate::notice::Notice;
use crate::partition::{Owed, Partition, State};

impl Node {
    /// Whether this node leads a partition as far as it knows, and nobody who could tell hears it: clients are to look for the leader
    /// elsewhere.
    pub fn stands_aside(&self, topic: TopicId, partition: i32) -> bool {
        let key = LogKey {
            topic,
            partition: PartitionIndex(partition),
        };
        self.is_aside()
            && self
                .by_key(key)
                .is_some_and(|p| p.stands_aside(&p.state.lock()))
    }

    /// Whether who asks for metadata is to be turned away without an answer: every other time while something stands aside. Clients that have
    /// another node ask that one then, and would ask this one for ever otherwise; those who reach no other are answered the next time.
    pub fn turns_away(&self) -> bool {
        self.is_aside()
            && self
                .membership
                .asked_aside
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(2)
    }

    /// Whether there is any such partition.
    pub fn is_aside(&self) -> bool {
        self.membership.aside.load(Ordering::Relaxed)
    }

    /// Looks who follows while no controller confirms the session, and steps aside, or back.
    pub(crate) fn step_aside(&self, now: Now) {
        let lapsed = self.membership.has_lapsed(now.mono);
        if !lapsed && !self.is_aside() {
            return;
        }
        let session = self.settings.cluster.session;
        let mut aside = 0;
        {
            let _roles = self.roles.lock();
            for topic in self.tables.all() {
                let mut changed = false;
                for partition in topic.here() {
                    let mut owed = Owed::default();
                    {
                        let mut state = partition.state.lock();
                        if !state.leads() || state.log.is_none() {
                            continue;
                        }
                        let leads = !lapsed || state.leader.is_followed(session, now.mono);
                        aside += usize::from(!leads);
                        if partition.leads.swap(leads, Ordering::AcqRel) == leads {
                            continue;
                        }
                        changed = true;
                        if !leads {
                            // They would wait for those who have another leader.
                            state.refuse_all(&mut owed);
                            state.wake(&mut owed);
                        }
                    }
                    self.settle(&partition, owed, now);
                }
                if changed && topic.info.internal {
                    self.open_coordinators(&topic, now);
                }
            }
        }
        if self.membership.aside.swap(aside > 0, Ordering::Relaxed) != (aside > 0) {
            if aside > 0 {
                sometimes(Mark::SteppedAside);
            }
            self.host.notice(match aside {
                0 => Notice::HeardAgain,
                partitions => Notice::SteppedAside { partitions },
            });
        }
    }
}

impl Partition {
    /// `state` is this partition's.
    pub(crate) fn stands_aside(&self, state: &State) -> bool {
        state.leads() && state.log.is_some() && !self.leads.load(Ordering::Acquire)
    }
}
