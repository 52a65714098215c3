//! What a decision is made of, while it is being made.

use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::primitives::EncodeError;
use riverlog_wire::{ErrorCode, Offset};

use super::classic::Classic;
use super::records::Record;
use super::streams::StreamsSoft;
use super::{Answer, Decision, GroupAnswer, Soft, StoredRecord, Token};

/// A change that a fail-over may forget.
#[derive(Clone, Debug)]
pub(super) enum SoftChange {
    /// The group is a classic one now, in this state.
    Classic {
        /// Group.
        group: Arc<str>,
        /// All of it but its offsets.
        state: Box<Classic>,
    },
    /// A member of either kind was heard of.
    Session {
        /// Group.
        group: Arc<str>,
        /// Member.
        member: Arc<str>,
        /// When it is taken for gone.
        until: Duration,
        /// It speaks the classic protocol, and has its assignment.
        synced: bool,
    },
    /// A streams group.
    Streams {
        /// Group.
        group: Arc<str>,
        /// What changes.
        change: StreamsSoft,
    },
    /// A member of the classic protocol in a group of the other has something to do.
    Due {
        /// Group.
        group: Arc<str>,
        /// Member.
        member: Arc<str>,
        /// By when.
        by: Duration,
        /// It has done what it had to do before; else the earlier time stands.
        anew: bool,
    },
    /// The group's alarm rang: find out when its next one is.
    Rearm(Arc<str>),
    /// Where the walk over all groups after a change of topics goes on; `None`: it is done.
    TopicsWalk(Option<String>),
    /// Where the walk that expires offsets goes on, and when.
    ExpiryWalk {
        /// The next group; `None`: from the start.
        from: Option<String>,
        /// When.
        at: Duration,
    },
}

/// Collects a [`Decision`].
#[derive(Debug, Default)]
pub(super) struct Out {
    records: Vec<StoredRecord>,
    soft: Vec<SoftChange>,
    answers: Vec<Answer>,
    failed: Option<EncodeError>,
}

impl Out {
    pub(super) fn record(&mut self, record: &Record) {
        match record.encode() {
            Ok(stored) => self.records.push(stored),
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    pub(super) fn soft(&mut self, change: SoftChange) {
        self.soft.push(change);
    }

    pub(super) fn answer(&mut self, token: Token, after: Offset, body: GroupAnswer) {
        self.answers.push(Answer { token, body, after });
    }

    /// And all of another decision, behind it.
    pub(super) fn append(&mut self, other: Out) {
        self.records.extend(other.records);
        self.soft.extend(other.soft);
        self.answers.extend(other.answers);
        if let Some(error) = other.failed {
            self.failed.get_or_insert(error);
        }
    }

    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    /// The decision. When a record can't be written (a name of more than 32,767 bytes), nothing happens at all, and
    /// `refused` tells the sender.
    pub(super) fn finish(self, refused: impl FnOnce(ErrorCode) -> Vec<Answer>) -> Decision {
        if self.failed.is_some() {
            return Decision {
                answers: refused(ErrorCode::INVALID_REQUEST),
                ..Decision::default()
            };
        }
        Decision {
            records: self.records,
            soft: self.soft.into_iter().map(Soft).collect(),
            answers: self.answers,
            ..Decision::default()
        }
    }
}
