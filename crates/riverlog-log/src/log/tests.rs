//! Stories of one log.

mod basic;
mod support;
