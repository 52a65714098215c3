//! Appends that wait for room in a bounded partition, in order of arrival.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use riverlog_wire::batch::BatchHeader;
use riverlog_wire::{ProducerEpoch, ProducerId};

use crate::append::Appending;

type Numbered = (ProducerId, ProducerEpoch);

#[derive(Default)]
pub(crate) struct Blocked {
    queue: VecDeque<Appending>,
    /// How many batches of each idempotent producer wait.
    numbered: BTreeMap<Numbered, usize>,
}

fn numbered(header: &BatchHeader) -> Option<Numbered> {
    (header.producer_id.0 >= 0).then_some((header.producer_id, header.producer_epoch))
}

impl Blocked {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// When the first of them has waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.queue.iter().map(|b| b.blocked_until).min()
    }

    /// Whether a batch of the same producer and epoch waits.
    pub(super) fn holds_producer_of(&self, header: &BatchHeader) -> bool {
        numbered(header).is_some_and(|of| self.numbered.contains_key(&of))
    }

    pub(super) fn push_back(&mut self, appending: Appending) {
        self.count(&appending);
        self.queue.push_back(appending);
    }

    /// Puts back what was taken from the front.
    pub(super) fn push_front(&mut self, appending: Appending) {
        self.count(&appending);
        self.queue.push_front(appending);
    }

    pub(super) fn pop_front(&mut self) -> Option<Appending> {
        let first = self.queue.pop_front()?;
        self.discount(&first);
        Some(first)
    }

    /// Takes out those that are over, and with them what their producers have sent behind them: without those before
    /// it, it would be out of order, or be taken for the first of its producer.
    pub(super) fn end(&mut self, is_over: impl Fn(&Appending) -> bool) -> Vec<Appending> {
        let mut ended = Vec::new();
        if !self.queue.iter().any(&is_over) {
            return ended;
        }
        let mut cut_off = BTreeSet::new();
        for blocked in std::mem::take(&mut self.queue) {
            let of = numbered(&blocked.header);
            let behind = of.is_some_and(|of| cut_off.contains(&of));
            if behind || is_over(&blocked) {
                self.discount(&blocked);
                cut_off.extend(of);
                ended.push(blocked);
            } else {
                self.queue.push_back(blocked);
            }
        }
        ended
    }

    fn count(&mut self, appending: &Appending) {
        if let Some(of) = numbered(&appending.header) {
            *self.numbered.entry(of).or_default() += 1;
        }
    }

    fn discount(&mut self, appending: &Appending) {
        let of = numbered(&appending.header);
        if let Some(Entry::Occupied(mut entry)) = of.map(|of| self.numbered.entry(of)) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

impl IntoIterator for Blocked {
    type Item = Appending;
    type IntoIter = std::collections::vec_deque::IntoIter<Appending>;

    fn into_iter(self) -> Self::IntoIter {
        self.queue.into_iter()
    }
}
