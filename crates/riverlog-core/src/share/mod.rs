//! Share groups (KIP-932): records are handed out one by one, and each is accepted, given back or refused on its own.
//!
//! The leader of a partition holds what is in flight for each group ([`SharePartition`]). What must outlive it is kept by a
//! coordinator, in the records of `__share_group_state` ([`ShareShard`]). Members and their partitions are a matter of
//! [`crate::groups`].

mod key;
mod partition;
mod ranges;
mod records;
mod reset;
mod state;

pub use key::ShareKey;
pub use partition::{
    Acknowledge, Acknowledgement, Acquire, AcquireMode, Acquired, Dead, DeathCause, FetchedBatch,
    ShareLimits, SharePartition, StateUpdate,
};
pub use records::{DeliveryState, StateBatch};
pub use reset::OffsetReset;
pub use state::{
    ShareAnswer, ShareCommand, ShareDecision, ShareEffect, ShareSettings, ShareShard, ShareSoft,
    ShareState, ShareSummary, ShareTold, ShareTurn,
};
