//! Stories of one log.

mod basic;
mod damage;
mod faults;
mod hostile;
mod later_lives;
mod model;
mod producers;
mod retention;
mod support;
mod switching;
mod tails;
mod times;
mod transactions;
