//! Questions about transactions (KIP-664, 994, 1152).

use std::collections::BTreeSet;

use riverlog_wire::{ErrorCode, Offset, ProducerId};

use super::TransactionShard;
use super::value::{TransactionState, TransactionValue};
use crate::Now;
use crate::groups::Pattern;

/// What can be seen of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// Transactional id.
    pub id: String,
    /// All that is stored of it.
    pub value: TransactionValue,
}

/// Which transactions to list: those that fit everything that is given.
#[derive(Debug, Default)]
pub struct TransactionFilter {
    /// In one of these states. `Some` of none fits nothing: all the names that were asked for are unknown.
    pub states: Option<BTreeSet<TransactionState>>,
    /// With one of these producer ids; none: any.
    pub producers: BTreeSet<ProducerId>,
    /// Begun longer than this many ms ago; below zero: any.
    pub running_longer_than_ms: i64,
    /// Whose id fits as a whole.
    pattern: Option<Pattern>,
}

impl TransactionFilter {
    /// Everything.
    pub fn all() -> TransactionFilter {
        TransactionFilter {
            running_longer_than_ms: -1,
            ..TransactionFilter::default()
        }
    }

    /// By a pattern in RE2's syntax that the whole transactional id has to fit.
    ///
    /// - Errors: INVALID_REGULAR_EXPRESSION.
    pub fn set_pattern(&mut self, pattern: &str) -> Result<(), ErrorCode> {
        let pattern = Pattern::new(pattern).ok_or(ErrorCode::INVALID_REGULAR_EXPRESSION)?;
        self.pattern = Some(pattern);
        Ok(())
    }

    fn fits(&self, id: &str, value: &TransactionValue, now: Now) -> bool {
        let states = self.states.as_ref();
        let running = now.wall_ms.saturating_sub(value.started_ms);
        states.is_none_or(|states| states.contains(&value.state))
            && (self.producers.is_empty() || self.producers.contains(&value.producer_id))
            && (self.running_longer_than_ms < 0 || running > self.running_longer_than_ms)
            && self.pattern.as_ref().is_none_or(|p| p.matches(id))
    }
}

impl TransactionShard {
    /// Those that fit, in order of their ids.
    pub fn list(&self, filter: &TransactionFilter, now: Now) -> Vec<TransactionDescription> {
        let all = self.iter();
        all.filter(|(id, value)| filter.fits(id, value, now))
            .map(|(id, value)| TransactionDescription {
                id: id.to_owned(),
                value: value.clone(),
            })
            .collect()
    }

    /// One of them, and the position that must be durable before it is told. TRANSACTIONAL_ID_NOT_FOUND.
    pub fn describe(&self, id: &str) -> (Result<TransactionDescription, ErrorCode>, Offset) {
        let (value, after) = self.find(id);
        let described = value.ok_or(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND);
        let described = described.map(|value| TransactionDescription {
            id: id.to_owned(),
            value: value.clone(),
        });
        (described, after)
    }
}
