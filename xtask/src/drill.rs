//! `cargo xtask drill NAME`: a real server, real clients and a real fault; the work is done by `riverlog-chaos`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use clap::Parser;

use crate::Result;
use crate::long::{self, Verdict};
use crate::peer::kafka;
use crate::run::{Outcome, cargo, program};
use crate::tools::{self, Tool};
use crate::{broker, place};

#[derive(Parser, Default)]
pub(crate) struct Args {
    /// Which drills; all without
    names: Vec<String>,
    /// How often the fault comes
    #[arg(long)]
    rounds: Option<u32>,
    /// What is drawn at random begins here; without, at a number of the commit
    #[arg(long)]
    seed: Option<u32>,
    /// A setting of the server
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Keeps logs and histories also when all went well
    #[arg(long)]
    keep: bool,
    /// A setting of librdkafka's clients; what `debug=cgrp,protocol` has them tell is in clients.log
    #[arg(long, value_name = "KEY=VALUE")]
    client: Vec<String>,
    /// Those with three nodes, each with a network and a disk of its own; with names: of those, only these
    #[arg(long)]
    cluster: bool,
    /// Clients that take part beside librdkafka's
    #[arg(long, value_enum, value_delimiter = ',')]
    also: Vec<Also>,
    /// The long form (300 kills, 100 power cuts …); the result goes into docs/reliability/ledger.md
    #[arg(long)]
    long: bool,
}

/// Clients beside those of librdkafka.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq)]
enum Also {
    /// Kafka's own
    Java,
    /// franz-go
    Go,
}

impl Also {
    /// What `riverlog-chaos` is told, with all that it needs at its place.
    fn words(self) -> Result<[OsString; 2]> {
        match self {
            Also::Java => Ok(["--java".into(), kafka::jars()?.into()]),
            Also::Go => {
                let program = place::cache("drill-go")?.join("clients");
                tools::go_build(
                    &place::root().join("crates/riverlog-chaos/clients/go"),
                    ".",
                    &program,
                )?;
                Ok(["--go".into(), program.into()])
            }
        }
    }
}

struct Drill {
    name: &'static str,
    /// Rounds of the long form.
    long: u32,
    needs: &'static [Tool],
}

const DRILLS: &[Drill] = &[
    drill("kill", 300, &[]),
    drill("power-cut", 100, &[]),
    drill("dead-disk", 20, &[]),
    drill("slow-disk", 10, &[]),
    drill("full-disk", 10, &[]),
    drill("bad-sector", 4, &[]),
    drill("fd-limit", 10, &[]),
    drill("memory-limit", 10, &[]),
    drill("clock", 20, &[Tool::Faketime]),
];

/// Drills with three nodes.
const CLUSTERS: &[Drill] = &[
    drill("cluster-kill", 50, &[]),
    drill("cluster-freeze", 50, &[]),
    drill("cluster-one-way", 50, &[]),
    drill("cluster-bridge", 50, &[]),
    drill("cluster-minority", 50, &[]),
    drill("cluster-dead-disk", 50, &[]),
    drill("cluster-slow-disk", 50, &[]),
    drill("cluster-full-disk", 50, &[]),
    drill("cluster-power", 50, &[]),
    drill("cluster-mixed", 50, &[]),
];

/// Those with three nodes that CI plays too, one round of each: a death, and a process that doesn't know that it stood still. The others are for long runs.
const SHORT_CLUSTERS: &[&str] = &["cluster-freeze", "cluster-kill"];

const fn drill(name: &'static str, long: u32, needs: &'static [Tool]) -> Drill {
    Drill { name, long, needs }
}

/// What `riverlog-chaos` ends with when this machine can't play a drill.
const LACKS: i32 = 3;

/// Drills that are played at once in CI: they wait most of their time, for the clients and for faults to show.
const LANES: usize = 3;
/// The same of those with three nodes, beside the others.
const CLUSTER_LANES: usize = 2;

/// What drills are played with.
struct Stage {
    server: PathBuf,
    python: PathBuf,
    /// Words for the clients beside librdkafka's.
    also: Vec<OsString>,
}

impl Stage {
    fn build(also: &[Also]) -> Result<Stage> {
        let python = tools::python_env(
            "compat-python",
            &place::root().join("tests/compat/python/requirements.txt"),
        )?;
        let server = broker::riverlog_binary(false)?;
        cargo()
            .args([
                "build",
                "--quiet",
                "--locked",
                "--package",
                "riverlog-chaos",
            ])
            .limit(900)
            .output()?;
        let also: Result<Vec<_>> = also.iter().map(|client| client.words()).collect();
        Ok(Stage {
            server,
            python,
            also: also?.into_iter().flatten().collect(),
        })
    }
}

/// How drills ended.
#[derive(Default)]
struct Ends {
    played: usize,
    failed: Vec<String>,
    lacking: Vec<String>,
}

impl Ends {
    fn note(&mut self, drill: &Drill, out: &Outcome) {
        let said = format!("{}{}", out.stdout, out.stderr);
        print!("{said}");
        if lacks(out) {
            self.lacking.push(said.trim().to_owned());
            return;
        }
        self.played += 1;
        if !out.ok() {
            self.failed
                .push(format!("{} ({})", drill.name, out.how_it_ended()));
        }
    }

    fn verdict(&self) -> Result<()> {
        match self.failed.as_slice() {
            [] => Ok(()),
            failed => Err(format!("drills that failed: {}", failed.join(", ")).into()),
        }
    }
}

fn lacks(out: &Outcome) -> bool {
    out.status.is_some_and(|s| s.code() == Some(LACKS))
}

/// What waits for a free lane.
type Waiting = Mutex<VecDeque<&'static Drill>>;

/// What CI runs: each drill with one node once, and some with three, a few at a time. One that this machine can't play is said and passed over; an error only
/// when none can be played.
pub(crate) fn short() -> Result<()> {
    let stage = Stage::build(&[])?;
    let one = Args::default();
    let three = Args {
        rounds: Some(1),
        ..Args::default()
    };
    let mut ends = Ends::default();
    let mut can = |drills: &mut dyn Iterator<Item = &'static Drill>| -> Waiting {
        let mut waiting = VecDeque::new();
        for drill in drills {
            match tools::ensure(drill.needs) {
                Ok(()) => waiting.push_back(drill),
                Err(why) => {
                    println!("{}: NOT PLAYED: {why}", drill.name);
                    ends.lacking.push(format!("{}: {why}", drill.name));
                }
            }
        }
        Mutex::new(waiting)
    };
    let alone = can(&mut DRILLS.iter());
    let clusters = SHORT_CLUSTERS.iter();
    let clusters = clusters.filter_map(|name| CLUSTERS.iter().find(|d| d.name == *name));
    let together = can(&mut clusters.into_iter());
    let shared = Mutex::new((ends, Vec::new()));
    let lane = |waiting: &Waiting, args: &Args| {
        while let Some(drill) = waiting.lock().ok().and_then(|mut w| w.pop_front()) {
            let out = play(drill, args, &stage).map_err(|why| why.to_string());
            let Ok(mut shared) = shared.lock() else {
                return;
            };
            match out {
                Ok(out) => shared.0.note(drill, &out),
                Err(why) => shared.1.push(format!("{}: {why}", drill.name)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CLUSTER_LANES {
            scope.spawn(|| lane(&together, &three));
        }
        for _ in 0..LANES {
            scope.spawn(|| lane(&alone, &one));
        }
    });
    let (mut ends, broken) = shared
        .into_inner()
        .map_err(|_| "a lane of drills panicked")?;
    ends.failed.extend(broken);
    println!(
        "drills: {} played, {} not played for lack of what they need",
        ends.played,
        ends.lacking.len()
    );
    ends.verdict()?;
    match ends.played {
        0 => Err(tools::Missing::new(ends.lacking.join("; ")).into()),
        _ => Ok(()),
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let all = || DRILLS.iter().chain(CLUSTERS);
    let names: Vec<&str> = all().map(|d| d.name).collect();
    if let Some(name) = args.names.iter().find(|n| !names.contains(&n.as_str())) {
        return Err(format!("there is no drill '{name}'; drills: {}", names.join(", ")).into());
    }
    let stage = Stage::build(&args.also)?;
    let commit = long::commit()?;
    let wanted = |d: &&Drill| {
        let is_clusters = CLUSTERS.iter().any(|c| c.name == d.name);
        (args.names.is_empty() || args.names.iter().any(|n| n == d.name))
            && (!args.cluster || is_clusters)
    };
    let mut ends = Ends::default();
    for drill in all().filter(wanted) {
        let started = Instant::now();
        tools::ensure(drill.needs)?;
        let out = play(drill, args, &stage)?;
        ends.note(drill, &out);
        if args.long && !lacks(&out) {
            // The first line without the drill's name.
            let line = out.stdout.lines().next().unwrap_or("no word");
            let words = line.strip_prefix(drill.name).unwrap_or(line);
            let words = words.trim_start_matches([':', ' ']);
            let words = words
                .trim_start_matches("passed: ")
                .trim_start_matches("FAILED: ");
            let verdict = Verdict {
                passed: out.ok(),
                result: words.to_owned(),
            };
            long::record(
                &format!("drill {}", drill.name),
                &commit,
                started.elapsed(),
                &verdict,
            )?;
        }
    }
    ends.verdict()?;
    match ends.lacking.as_slice() {
        [] => Ok(()),
        lacking => Err(tools::Missing::new(lacking.join("; ")).into()),
    }
}

fn play(drill: &Drill, args: &Args, stage: &Stage) -> Result<Outcome> {
    let seed = match args.seed {
        Some(seed) => seed,
        None => place::commit_number()?,
    };
    let mut run = program(place::target().join("debug/riverlog-chaos"))
        .arg(drill.name)
        .arg("--server")
        .arg(&stage.server)
        .arg("--python")
        .arg(&stage.python)
        .args(&stage.also)
        .arg("--work")
        .arg(place::target().join("drill"))
        .args(["--seed", &seed.to_string()])
        .args(args.set.iter().flat_map(|set| ["--set", set.as_str()]))
        .args(
            args.client
                .iter()
                .flat_map(|set| ["--client", set.as_str()]),
        );
    let rounds = args.rounds.or(args.long.then_some(drill.long));
    if let Some(rounds) = rounds {
        run = run.args(["--rounds", &rounds.to_string()]);
    }
    if args.keep {
        run = run.arg("--keep");
    }
    // Three nodes wait in each round until they are in sync again.
    let of_round = if drill.name.starts_with("cluster-") {
        60
    } else {
        10
    };
    let seconds = 300 + of_round * u64::from(rounds.unwrap_or(0));
    run.limit(seconds).outcome()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_drill_with_three_nodes_is_one_that_there_is() {
        let known = |name: &&str| CLUSTERS.iter().any(|d| d.name == *name);
        assert!(SHORT_CLUSTERS.iter().all(known));
    }
}
