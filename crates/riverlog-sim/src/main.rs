//! `riverlog-sim`: runs seeds, replays one, hunts planted faults.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use riverlog_mutants::Mutant;
use riverlog_sim::{Report, run};

/// Runs the log and its clients on virtual time, with faults drawn from a seed.
#[derive(Parser)]
struct Args {
    /// Run this seed, and print its trace with --show.
    #[arg(long)]
    seed: Option<u64>,
    /// Run these seeds: A..B.
    #[arg(long, default_value = "0..20")]
    seeds: String,
    /// Stop after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run each seed twice and compare the traces.
    #[arg(long)]
    twice: bool,
    /// Print what happens.
    #[arg(long)]
    show: bool,
    /// Plant this fault.
    #[arg(long)]
    mutant: Option<String>,
    /// Fail when a rare path was never taken.
    #[arg(long)]
    require_marks: bool,
    /// Plant each fault in turn, and say after how many seconds it was noticed.
    #[arg(long)]
    mutants: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.mutants {
        return hunt_all(args.seconds.unwrap_or(300));
    }
    if let Some(name) = &args.mutant {
        let Some(mutant) = Mutant::ALL.iter().find(|m| m.name() == name) else {
            let names: Vec<_> = Mutant::ALL.iter().map(|m| m.name()).collect();
            eprintln!(
                "there is no planted fault {name:?}; known: {}",
                names.join(", ")
            );
            return ExitCode::from(2);
        };
        riverlog_mutants::plant(Some(*mutant));
    }
    let seeds = match (args.seed, parse_range(&args.seeds)) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(range)) => range,
        (None, None) => {
            eprintln!("--seeds {:?}: expected A..B with A < B", args.seeds);
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let mut totals = Totals::default();
    riverlog_mutants::take_counts();
    for seed in seeds {
        if args
            .seconds
            .is_some_and(|s| began.elapsed() >= Duration::from_secs(s))
        {
            break;
        }
        let report = run(seed, args.show);
        if args.twice && run(seed, false).trace != report.trace {
            eprintln!("seed {seed} gave two different traces: something outside the seed decides");
            return ExitCode::FAILURE;
        }
        if let Some(violation) = &report.violation {
            eprintln!(
                "seed {seed}: broken: {}: {}",
                violation.invariant, violation.what
            );
            eprintln!("again: cargo run -p riverlog-sim -- --seed {seed} --show");
            return ExitCode::FAILURE;
        }
        totals.add(&report);
    }
    totals.print(began.elapsed());
    let mut never = false;
    for (mark, count) in riverlog_mutants::take_counts() {
        println!("{count:>10}  {}", mark.doc().trim());
        never |= count == 0;
    }
    if args.require_marks && never {
        eprintln!(
            "a rare path was never taken: more seeds are needed, or the simulator can't get there any more"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn parse_range(text: &str) -> Option<std::ops::Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// What a seed breaks; an assertion of the code's own counts too.
fn noticed(seed: u64) -> Option<String> {
    match std::panic::catch_unwind(|| run(seed, false)) {
        Ok(report) => report.violation.map(|v| v.invariant.to_owned()),
        Err(_) => Some("an assertion".to_owned()),
    }
}

/// Looks for each planted fault until a seed notices it.
fn hunt_all(limit: u64) -> ExitCode {
    let mut escaped = 0;
    for mutant in Mutant::ALL {
        riverlog_mutants::plant(Some(*mutant));
        let began = Instant::now();
        let found = (0u64..)
            .take_while(|_| began.elapsed() < Duration::from_secs(limit))
            .find_map(|seed| noticed(seed).map(|what| (seed, what)));
        let seconds = began.elapsed().as_secs_f64();
        match found {
            Some((seed, violation)) => {
                println!(
                    "{:<24} caught after {seconds:>6.1} s by seed {seed}: {violation}",
                    mutant.name(),
                );
            }
            None => {
                println!(
                    "{:<24} NOT caught in {seconds:.0} s: {}",
                    mutant.name(),
                    mutant.doc().trim()
                );
                escaped += 1;
            }
        }
    }
    if escaped == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    virtual_time: Duration,
    operations: u64,
    checked: u64,
    crashes: u64,
    power_cuts: u64,
    trace: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.virtual_time += report.virtual_time;
        self.operations += report.operations;
        self.checked += report.checked;
        self.crashes += report.crashes;
        self.power_cuts += report.power_cuts;
        self.trace = self.trace.rotate_left(1) ^ report.trace;
    }
    fn print(&self, took: Duration) {
        let seconds = took.as_secs_f64().max(1e-9);
        println!(
            "{} seeds, {} operations, {} checks, {} deaths, {} power cuts in {seconds:.1} s; {:.0} s of virtual time, {:.0} times real time; trace {:016x}",
            self.seeds,
            self.operations,
            self.checked,
            self.crashes,
            self.power_cuts,
            self.virtual_time.as_secs_f64(),
            self.virtual_time.as_secs_f64() / seconds,
            self.trace
        );
    }
}
