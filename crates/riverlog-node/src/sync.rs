//! What the gate of the group commit is made of. The tests of the hand-over between threads (those of `riverlog-host`) put another
//! in its place, which tries one order of steps after the other.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
