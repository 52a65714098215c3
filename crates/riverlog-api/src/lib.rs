//! The doors: request bytes to node calls, and back.

pub mod kafka;
