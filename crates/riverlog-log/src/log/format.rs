//! The files of a partition, as pure functions from bytes: for tools, and for fuzzing. None of them panics, whatever the
//! bytes are, or reserves more memory than the bytes take.

pub use super::check::{CheckSeed, Difference, Summary, compare};
pub use super::epochs::{EpochStart, parse_epochs};
pub use super::index::{IndexEntry, TimeEntry, parse_offset_index, parse_time_index};
pub use super::snapshot::{SnapshotEntry, parse_snapshot};
pub use super::transactions::parse_aborted;
