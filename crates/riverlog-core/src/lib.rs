//! The rules: replicas, groups, transactions, cluster metadata, configuration keys.
//!
//! State machines that touch nothing: they take commands and the time, and give back records to append,
//! changes that a fail-over may forget, and answers. Machines that write records have three verbs:
//! `decide(&self, …)` never changes anything; `apply(&mut self, …)` runs in log order when a record has been
//! appended, and can't fail; `soft(&mut self, …)` is for sessions, pending joins and timers.
//! Recovery is `apply` over the log.

pub mod balance;
pub mod config;
pub mod coordinator;
pub mod disk_health;
pub mod groups;
pub mod metadata;
pub mod refusals;
pub mod replica;
pub mod share;
pub mod time;
pub mod transactions;

pub use time::Now;
