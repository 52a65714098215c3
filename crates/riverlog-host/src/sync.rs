//! What threads meet at. The tests of the hand-over between threads put others in their place, which try one order of steps
//! after the other (`tests/interleavings`).

pub(crate) use std::thread_local;

pub(crate) use parking_lot::{Condvar, Mutex};
