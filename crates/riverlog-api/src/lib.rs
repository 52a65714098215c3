//! The doors: request bytes to node calls, and back.

pub mod configs;
pub mod kafka;
pub mod lag;
