//! Stories of one log.

mod basic;
mod model;
mod support;
