//! What can be wrong with a history.

/// Which promise is broken, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An acknowledged record is not where it was acknowledged.
    Lost,
    /// One offset had two contents.
    InconsistentOffset,
    /// A value was read that nobody sent, or not there.
    NeverSent,
    /// A value was stored whose send was refused for certain.
    RefusedButStored,
    /// A value lies at more offsets than it was sent.
    Duplicate,
    /// An idempotent producer's records lie in another order than they were sent.
    NonMonotonicSend,
    /// A reader of committed records got a record of an aborted transaction.
    AbortedRead,
    /// A reader of committed records got a record before its commit was even asked for.
    PrecommittedRead,
    /// Some records of a transaction are visible and others, also acknowledged, are not.
    TornTransaction,
    /// Transactions that each read what the next one wrote, in a circle.
    G1c,
    /// A consumer passed over a record between two that it got.
    PollSkip,
    /// A consumer got an offset again, or an earlier one, without a rebalance.
    NonMonotonicPoll,
    /// An acknowledged offset commit is not there any more.
    CommitLost,
    /// A start offset or an end offset went back, or they crossed.
    WentBack,
    /// A group that says it has read everything never got a record.
    Unseen,
    /// A client didn't move again after the last fault.
    Stuck,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 16] = [
        Kind::Lost,
        Kind::InconsistentOffset,
        Kind::NeverSent,
        Kind::RefusedButStored,
        Kind::Duplicate,
        Kind::NonMonotonicSend,
        Kind::AbortedRead,
        Kind::PrecommittedRead,
        Kind::TornTransaction,
        Kind::G1c,
        Kind::PollSkip,
        Kind::NonMonotonicPoll,
        Kind::CommitLost,
        Kind::WentBack,
        Kind::Unseen,
        Kind::Stuck,
    ];

    /// In the words of the field.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lost => "lost",
            Kind::InconsistentOffset => "inconsistent offset",
            Kind::NeverSent => "never sent",
            Kind::RefusedButStored => "refused but stored",
            Kind::Duplicate => "duplicate",
            Kind::NonMonotonicSend => "non-monotonic send",
            Kind::AbortedRead => "aborted read",
            Kind::PrecommittedRead => "precommitted read",
            Kind::TornTransaction => "torn transaction",
            Kind::G1c => "G1c",
            Kind::PollSkip => "poll skip",
            Kind::NonMonotonicPoll => "non-monotonic poll",
            Kind::CommitLost => "commit lost",
            Kind::WentBack => "went back",
            Kind::Unseen => "unseen",
            Kind::Stuck => "stuck",
        }
    }
}

/// A broken promise, and what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Which promise.
    pub kind: Kind,
    /// Who saw what, where and when.
    pub what: String,
}

impl Anomaly {
    pub(crate) fn new(kind: Kind, what: String) -> Anomaly {
        Anomaly { kind, what }
    }
}

impl std::fmt::Display for Anomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.what)
    }
}
