//! Which fetched batches a reader of committed records passes over.

use std::collections::{BTreeSet, VecDeque};

use super::BatchHeader;
use crate::{Offset, ProducerId};

/// The aborted transactions of what was fetched from one partition, along the way through its batches.
#[derive(Debug, Default)]
pub struct Aborted {
    /// Producer and first offset, in order of the offsets; those that begin further on.
    ahead: VecDeque<(ProducerId, Offset)>,
    /// Whose batches are passed over until their marker comes.
    open: BTreeSet<ProducerId>,
}

impl Aborted {
    /// Of a new fetch.
    pub fn new(mut list: Vec<(i64, Offset)>) -> Aborted {
        list.sort_by_key(|(_, first)| *first);
        let ahead = list.into_iter().map(|(id, first)| (ProducerId(id), first));
        Aborted {
            ahead: ahead.collect(),
            open: BTreeSet::new(),
        }
    }

    /// Whether the next batch has nothing to hand out: a marker, or part of an aborted transaction.
    pub fn passes_over(&mut self, header: &BatchHeader) -> bool {
        while let Some((id, _)) = self
            .ahead
            .pop_front_if(|(_, first)| *first < header.next_offset())
        {
            self.open.insert(id);
        }
        let attributes = header.attributes;
        if attributes.is_control() {
            self.open.remove(&header.producer_id);
            return true;
        }
        attributes.is_transactional() && self.open.contains(&header.producer_id)
    }
}
