//! The table of `riverlog-checks` against a node in memory. The same table runs against Apache Kafka and a real Riverlog over
//! TCP, with the program of that crate.

mod support;

use riverlog_checks::{all, run};
use support::InMemory;

/// Each check on a node of its own, so that none passes or fails by what another left behind.
#[test]
fn every_check_passes_on_a_new_node() {
    let mut failed = Vec::new();
    for check in all() {
        if let Err(failure) = run(check, &mut InMemory::new(), "check") {
            failed.push(format!("{}: {failure:?}", check.title()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// All checks one after the other on one node, as they run against a real broker.
#[test]
fn every_check_passes_on_a_node_in_use() {
    let mut broker = InMemory::new();
    let mut failed = Vec::new();
    for check in all() {
        if let Err(failure) = run(check, &mut broker, "check") {
            failed.push(format!("{}: {failure:?}", check.title()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
