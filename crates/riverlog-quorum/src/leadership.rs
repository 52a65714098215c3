//! When the node hears who leads.
//!
//! That another node leads is told as soon as it is known. That this one leads is told once an entry of its term has been handed
//! in, and so everything before it: decisions are never made against an older image.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_mutants::{Mutant, active};
use riverlog_node::quorum::QuorumEvent;
use riverlog_wire::BrokerId;
use tokio::time::Instant;

use crate::step::Steps;

/// How often the node is told that a majority answers, at most.
const OFTEN: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Leadership {
    broker: BrokerId,
    steps: Steps,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    term: u64,
    leader: Option<BrokerId>,
    /// The term of the last entry that was handed in.
    handed: u64,
    told: (u64, Option<BrokerId>),
    /// What the node was told last of when a majority was asked that has answered.
    answered: Option<Instant>,
}

impl Leadership {
    pub(crate) fn new(broker: BrokerId, steps: Steps) -> Leadership {
        Leadership {
            broker,
            steps,
            state: Arc::default(),
        }
    }

    /// What the library knows of the leader.
    pub(crate) fn seen(&self, term: u64, leader: Option<BrokerId>) {
        let mut state = self.state.lock();
        if term >= state.term {
            (state.term, state.leader) = (term, leader);
            self.tell(&mut state);
        }
    }

    /// When a majority was asked that has confirmed that this node leads.
    pub(crate) fn answered(&self, at: Instant) {
        let mut state = self.state.lock();
        if state.answered.is_none_or(|told| at >= told + OFTEN) {
            state.answered = Some(at);
            self.steps.answered(at);
        }
    }

    /// An entry of this term was handed in.
    pub(crate) fn handed(&self, term: u64) {
        let mut state = self.state.lock();
        state.handed = state.handed.max(term);
        self.tell(&mut state);
    }

    /// Whom the node takes for the leader, and in which term.
    pub(crate) fn told(&self) -> (u64, Option<BrokerId>) {
        self.state.lock().told
    }

    fn tell(&self, state: &mut State) {
        let (term, mut leader) = (state.term, state.leader);
        let behind = state.handed < term && !active(Mutant::LeadsTooEarly);
        if leader == Some(self.broker) && behind {
            leader = None;
        }
        if state.told != (term, leader) {
            state.told = (term, leader);
            self.steps.event(QuorumEvent::Leader { term, leader });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Step;

    #[test]
    fn the_own_lead_is_told_after_what_was_committed_before() {
        let (sender, mut steps) = tokio::sync::mpsc::unbounded_channel();
        let leadership = Leadership::new(BrokerId(1), Steps(sender));
        let mut told = || {
            let mut all = Vec::new();
            while let Ok(step) = steps.try_recv() {
                if let Step::Event(QuorumEvent::Leader { term, leader }) = step {
                    all.push((term, leader.map(|l| l.0)));
                }
            }
            all
        };
        leadership.seen(2, Some(BrokerId(2)));
        assert_eq!(told(), [(2, Some(2))]);
        leadership.seen(3, Some(BrokerId(1)));
        leadership.handed(2);
        assert_eq!(told(), [(3, None)]);
        leadership.handed(3);
        assert_eq!(told(), [(3, Some(1))]);
        // Late news of an older term changes nothing.
        leadership.seen(2, Some(BrokerId(2)));
        leadership.handed(2);
        assert_eq!(told(), []);
        leadership.seen(4, None);
        assert_eq!(told(), [(4, None)]);
    }
}
