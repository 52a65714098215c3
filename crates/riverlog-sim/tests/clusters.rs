//! Clusters from seeds: a few of each run, and those that once found something.

use riverlog_sim::run_cluster;

#[track_caller]
fn holds(seed: u64) {
    let report = run_cluster(seed, false);
    assert_eq!(
        report.violation, None,
        "riverlog-sim --cluster --seed {seed} --show"
    );
}

#[test]
fn a_few_seeds_hold() {
    let (mut leaders, mut cuts) = (0, 0);
    for seed in 0..12 {
        holds(seed);
        let report = run_cluster(seed, false);
        leaders += report.leaders;
        cuts += report.power_cuts;
    }
    assert!(
        leaders > 10 && cuts > 5,
        "nothing happened: {leaders} {cuts}"
    );
}

#[test]
fn a_seed_gives_one_run() {
    assert_eq!(run_cluster(3, false).trace, run_cluster(3, false).trace);
}
