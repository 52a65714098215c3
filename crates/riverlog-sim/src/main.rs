//! `riverlog-sim`: runs seeds, replays one, hunts planted faults.

mod clusters;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use riverlog_mutants::{Mutant, Stage};
use riverlog_sim::{Options, Report, run, run_cluster};

/// Runs the log and its clients on virtual time, with faults drawn from a seed.
#[derive(Parser)]
struct Args {
    /// Run this seed, and print its trace with --show.
    #[arg(long)]
    seed: Option<u64>,
    /// Run these seeds: A..B.
    #[arg(long, default_value = "0..20")]
    seeds: String,
    /// Play clusters instead of single nodes.
    #[arg(long)]
    cluster: bool,
    /// Stop after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run each seed twice and compare the traces.
    #[arg(long)]
    twice: bool,
    /// Write what the clients of --seed did and were told to this file, for riverlog-checker.
    #[arg(long, requires = "seed")]
    history: Option<std::path::PathBuf>,
    /// Print what happens.
    #[arg(long)]
    show: bool,
    /// All clients together begin so many operations a second, instead of what the seed draws.
    #[arg(long)]
    pace: Option<u64>,
    /// Plant this fault.
    #[arg(long)]
    mutant: Option<String>,
    /// Go on after a seed that breaks something; it still counts as a failure in the end.
    #[arg(long)]
    keep_going: bool,
    /// Fail when a rare path was never taken.
    #[arg(long)]
    require_marks: bool,
    /// Plant each fault in turn, and print who noticed it, by which seed, after how many seconds of a core: those that one node
    /// is enough for, or with --cluster those that take several.
    #[arg(long)]
    mutants: bool,
    /// Only those of --mutants, with commas.
    #[arg(long, requires = "mutants", value_delimiter = ',')]
    only: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.mutants {
        let stage = match args.cluster {
            true => Stage::Cluster,
            false => Stage::Node,
        };
        let named = |m: &Mutant| args.only.is_empty() || args.only.iter().any(|n| n == m.name());
        let wanted = |m: &&Mutant| m.stage() == stage && named(m);
        let mutants: Vec<Mutant> = Mutant::ALL.iter().filter(wanted).copied().collect();
        return hunt(&mutants, args.seconds.unwrap_or(300));
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
    if args.cluster {
        let how = clusters::How {
            twice: args.twice,
            show: args.show,
            require_marks: args.require_marks,
            keep_going: args.keep_going,
        };
        let began = Instant::now();
        let over = |seconds: u64| began.elapsed() >= Duration::from_secs(seconds);
        return clusters::run(seeds, how, || args.seconds.is_some_and(over));
    }
    let options = Options {
        show: args.show,
        history: args.history.is_some(),
        pace: args.pace,
    };
    let (began, core_began) = (Instant::now(), core_time());
    let mut totals = Totals::default();
    let mut broken = Vec::new();
    riverlog_mutants::take_counts();
    for seed in seeds {
        if args
            .seconds
            .is_some_and(|s| began.elapsed() >= Duration::from_secs(s))
        {
            break;
        }
        let Some(report) = or_panicked(seed, "", || run(seed, options)) else {
            broken.push(seed);
            if args.keep_going {
                continue;
            }
            return ExitCode::FAILURE;
        };
        let again = Options {
            show: false,
            ..options
        };
        if args.twice && run(seed, again).trace != report.trace {
            eprintln!("seed {seed} gave two different traces: something outside the seed decides");
            return ExitCode::FAILURE;
        }
        if let Some(path) = &args.history
            && let Err(error) = write_history(path, &report)
        {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
        if let Some(violation) = &report.violation {
            eprintln!(
                "seed {seed}: broken: {}: {}",
                violation.invariant, violation.what
            );
            eprintln!("again: cargo run -p riverlog-sim -- --seed {seed} --show");
            if !args.keep_going {
                return ExitCode::FAILURE;
            }
            broken.push(seed);
        }
        totals.add(&report);
    }
    let took = core_time() - core_began;
    let missed = missed(Stage::Node, args.require_marks);
    totals.print(took);
    if !broken.is_empty() {
        eprintln!("broken: {broken:?}");
    }
    match missed || !broken.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Plays a seed; `None`, and a word of it, when an assertion of the code's own ended it.
fn or_panicked<T>(
    seed: u64,
    how: &str,
    play: impl FnOnce() -> T + std::panic::UnwindSafe,
) -> Option<T> {
    let played = std::panic::catch_unwind(play);
    if played.is_err() {
        eprintln!("seed {seed}: broken: an assertion");
        eprintln!("again: cargo run -p riverlog-sim -- {how}--seed {seed} --show");
    }
    played.ok()
}

/// Prints how often the rare paths of a stage were taken since the last time. Whether one never was that had to be.
fn missed(stage: Stage, all_required: bool) -> bool {
    let mut never = false;
    let counts = riverlog_mutants::take_counts().into_iter();
    for (mark, count) in counts.filter(|(mark, _)| mark.stage() == stage) {
        println!("{count:>10}  {}", mark.doc().trim());
        never |= count == 0;
    }
    if never && all_required {
        eprintln!(
            "a rare path was never taken: more seeds are needed, or the simulator can't get there any more"
        );
    }
    never && all_required
}

fn write_history(path: &std::path::Path, report: &Report) -> std::io::Result<()> {
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    riverlog_checker::write(file, &report.history)
}

fn parse_range(text: &str) -> Option<std::ops::Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// What a seed breaks; an assertion of the code's own counts too.
fn noticed(seed: u64, stage: Stage) -> Option<String> {
    let play = || match stage {
        Stage::Cluster => run_cluster(seed, false).violation,
        _ => run(seed, Options::default()).violation,
    };
    match std::panic::catch_unwind(play) {
        Ok(violation) => violation.map(|v| v.invariant.to_owned()),
        Err(_) => Some("an assertion".to_owned()),
    }
}

/// Looks for each planted fault until a seed notices it; a line of a table for each.
fn hunt(mutants: &[Mutant], limit: u64) -> ExitCode {
    // What a planted fault breaks isn't news.
    std::panic::set_hook(Box::new(|_| {}));
    let mut times = Vec::new();
    for mutant in mutants {
        riverlog_mutants::plant(Some(*mutant));
        let began = core_time();
        let found = (0u64..)
            .take_while(|_| core_time() - began < Duration::from_secs(limit))
            .find_map(|seed| {
                let what = noticed(seed, mutant.stage())?;
                // What breaks without it says nothing of it.
                riverlog_mutants::plant(None);
                let own = noticed(seed, mutant.stage());
                riverlog_mutants::plant(Some(*mutant));
                if let Some(own) = &own {
                    eprintln!("seed {seed} breaks without a planted fault: {own}");
                }
                own.is_none().then_some((seed, what))
            });
        let seconds = (core_time() - began).as_secs_f64();
        let what = mutant.doc().trim();
        match found {
            Some((seed, violation)) => {
                println!(
                    "| {} | {what} | {violation} | {seed} | {seconds:.2} |",
                    mutant.name()
                );
                times.push(seconds);
            }
            None => println!(
                "| {} | {what} | **nobody** | | {seconds:.0} |",
                mutant.name()
            ),
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let longest = times.last().copied().unwrap_or_default();
    println!(
        "{} of {} planted faults were noticed; core-seconds until then: median {median:.2}, at most {longest:.2}",
        times.len(),
        mutants.len()
    );
    if times.len() == mutants.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What this process has used of processors.
fn core_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    virtual_time: Duration,
    operations: u64,
    checked: u64,
    faults: u64,
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
        self.faults += report.faults;
        self.crashes += report.crashes;
        self.power_cuts += report.power_cuts;
        self.trace = self.trace.rotate_left(1) ^ report.trace;
    }
    fn print(&self, took: Duration) {
        let seconds = took.as_secs_f64().max(1e-9);
        let time = self.virtual_time.as_secs_f64().max(1e-9);
        let rate = |n: u64| n as f64 / seconds;
        println!(
            "{} seeds, {} operations, {} checks, {} faults, {} deaths, {} power cuts; trace {:016x}",
            self.seeds,
            self.operations,
            self.checked,
            self.faults,
            self.crashes,
            self.power_cuts,
            self.trace
        );
        println!(
            "a virtual second: {:.1} operations, {:.2} faults",
            self.operations as f64 / time,
            self.faults as f64 / time
        );
        println!(
            "a core-second: {:.0} operations, {:.0} checks, {:.0} deaths and power cuts",
            rate(self.operations),
            rate(self.checked),
            rate(self.crashes + self.power_cuts)
        );
        println!(
            "{time:.0} s of virtual time in {seconds:.1} s of a core: {:.0} times real time",
            time / seconds
        );
    }
}
