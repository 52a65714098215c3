//! Stories of one log.

mod basic;
mod clean;
mod cleaning;
mod damage;
mod faults;
mod hostile;
mod idle;
mod later_lives;
mod model;
mod model_transactions;
mod producers;
mod proof;
mod retention;
mod stuck;
mod support;
mod switching;
mod tails;
mod times;
mod transactions;
