//! `riverlog-sim --cluster`.

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use riverlog_sim::{ClusterReport, run_cluster};

/// Runs seeds of clusters, and says what they did.
pub(crate) fn run(seeds: Range<u64>, seconds: Option<u64>, twice: bool, show: bool) -> ExitCode {
    let began = Instant::now();
    let mut totals: Vec<ClusterReport> = Vec::new();
    for seed in seeds {
        if seconds.is_some_and(|s| began.elapsed() >= Duration::from_secs(s)) {
            break;
        }
        let report = run_cluster(seed, show);
        if twice && run_cluster(seed, false).trace != report.trace {
            eprintln!("seed {seed} gave two different traces: something outside the seed decides");
            return ExitCode::FAILURE;
        }
        if let Some(violation) = &report.violation {
            eprintln!(
                "seed {seed}: broken: {}: {}",
                violation.invariant, violation.what
            );
            eprintln!("again: cargo run -p riverlog-sim -- --cluster --seed {seed} --show");
            return ExitCode::FAILURE;
        }
        totals.push(report);
    }
    let sum = |of: fn(&ClusterReport) -> u64| totals.iter().map(of).sum::<u64>();
    let time: Duration = totals.iter().map(|r| r.virtual_time).sum();
    println!(
        "{} seeds, {:.1} h of cluster time in {:.1} s: {} operations, {} acknowledged, {} reads checked, {} changes of leaders, {} deaths, {} power cuts, {} disks lost",
        totals.len(),
        time.as_secs_f64() / 3_600.0,
        began.elapsed().as_secs_f64(),
        sum(|r| r.operations),
        sum(|r| r.acknowledged),
        sum(|r| r.read),
        sum(|r| r.leaders),
        sum(|r| r.crashes),
        sum(|r| r.power_cuts),
        sum(|r| r.disks_lost),
    );
    ExitCode::SUCCESS
}
