//! `riverlog-sim --cluster`.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use riverlog_mutants::Stage;
use riverlog_sim::{ClusterReport, run_cluster};

use crate::{core_time, missed, or_panicked};

/// How clusters are played.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) twice: bool,
    pub(crate) show: bool,
    pub(crate) require_marks: bool,
    pub(crate) keep_going: bool,
}

/// Runs seeds of clusters until the time is over, and says what they did.
pub(crate) fn run(seeds: Range<u64>, how: How, over: impl Fn() -> bool) -> ExitCode {
    let core_began = core_time();
    let mut totals: Vec<ClusterReport> = Vec::new();
    let (mut broken, mut trace) = (0, 0u64);
    riverlog_mutants::take_counts();
    for seed in seeds {
        if over() {
            break;
        }
        let played = or_panicked(seed, "--cluster ", || run_cluster(seed, how.show));
        let Some(report) = played else {
            broken += 1;
            if how.keep_going {
                continue;
            }
            return ExitCode::FAILURE;
        };
        if how.twice && run_cluster(seed, false).trace != report.trace {
            eprintln!("seed {seed} gave two different traces: something outside the seed decides");
            return ExitCode::FAILURE;
        }
        if let Some(violation) = &report.violation {
            eprintln!(
                "seed {seed}: broken: {}: {}",
                violation.invariant, violation.what
            );
            eprintln!("again: cargo run -p riverlog-sim -- --cluster --seed {seed} --show");
            broken += 1;
            if !how.keep_going {
                return ExitCode::FAILURE;
            }
        }
        trace = trace.rotate_left(1) ^ report.trace;
        totals.push(report);
    }
    let took = (core_time() - core_began).as_secs_f64().max(1e-9);
    let missed = missed(Stage::Cluster, how.require_marks);
    let sum = |of: fn(&ClusterReport) -> u64| totals.iter().map(of).sum::<u64>();
    let time: Duration = totals.iter().map(|r| r.virtual_time).sum();
    println!(
        "{} seeds of clusters, {} operations, {} acknowledged, {} reads checked, {} checks, {} changes of leaders, {} faults, {} deaths, {} power cuts, {} disks lost; trace {trace:016x}",
        totals.len(),
        sum(|r| r.operations),
        sum(|r| r.acknowledged),
        sum(|r| r.read),
        sum(|r| r.checked),
        sum(|r| r.leaders),
        sum(|r| r.faults),
        sum(|r| r.crashes),
        sum(|r| r.power_cuts),
        sum(|r| r.disks_lost),
    );
    println!(
        "{:.1} h of cluster time in {took:.1} s of a core: {:.0} times real time; a core-second: {:.0} operations, {:.0} checks, {:.1} deaths",
        time.as_secs_f64() / 3_600.0,
        time.as_secs_f64() / took,
        sum(|r| r.operations) as f64 / took,
        sum(|r| r.checked) as f64 / took,
        sum(|r| r.crashes) as f64 / took,
    );
    match broken > 0 || missed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
