//! What the checker finds in the histories of runs with planted faults. A process has one planted fault at a time, so this is
//! one test.

use std::collections::BTreeSet;

use riverlog_checker::{Kind, check};
use riverlog_mutants::{Mutant, plant};
use riverlog_sim::{Options, run};

/// The kinds of anomalies in the histories of the first seeds.
fn anomalies(mutant: Mutant, seeds: u64) -> BTreeSet<Kind> {
    let options = Options {
        history: true,
        ..Options::default()
    };
    plant(Some(mutant));
    let runs = (0..seeds).map(|seed| check(&run(seed, options).history));
    let found = runs.flat_map(|report| report.anomalies);
    let kinds = found.map(|anomaly| anomaly.kind).collect();
    plant(None);
    kinds
}

#[test]
fn the_checker_finds_planted_faults_in_histories_of_the_simulator() {
    let early = anomalies(Mutant::AckBeforeSync, 20);
    assert!(early.contains(&Kind::InconsistentOffset), "{early:?}");
    let doubled = anomalies(Mutant::DuplicateStored, 20);
    assert!(doubled.contains(&Kind::Duplicate), "{doubled:?}");
    let open = anomalies(Mutant::OpenTransactionStable, 40);
    assert!(
        open.contains(&Kind::PrecommittedRead) || open.contains(&Kind::AbortedRead),
        "{open:?}"
    );
}
