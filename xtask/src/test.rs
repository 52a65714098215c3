//! `cargo xtask test`: everything CI runs.
//!
//! A step is a row of [`STEPS`]; they run in that order, what fails fast first, and the first failure ends
//! the run. Everything is built once, in the dev profile.

use std::time::Instant;

use clap::Parser;

use crate::Result;
use crate::metadata::Workspace;
use crate::run::cargo;
use crate::table::Table;
use crate::tools::{self, Missing, Tool};
use crate::{
    codegen, compat, console, contract, drill, flights, fuzz, monitoring, mutants, packaging,
    readme, tidy,
};

#[derive(Parser)]
pub(crate) struct Args {
    /// Only what needs nothing but Rust and crates.io
    #[arg(long)]
    quick: bool,
    /// Only the steps with these names
    #[arg(value_name = "STEP")]
    only: Vec<String>,
    /// Runs the other steps after one has failed
    #[arg(long)]
    keep_going: bool,
}

struct Step {
    name: &'static str,
    /// Needs nothing but Rust and crates.io.
    quick: bool,
    what: What,
    /// Why there is nothing to run yet, if so. That is no failure, in CI neither.
    not_yet: fn(&Workspace) -> Result<Option<&'static str>>,
}

enum What {
    /// `cargo` with these words.
    Cargo(&'static [&'static str]),
    /// `cargo` with an environment variable set and these words.
    CargoWith(&'static str, &'static str, &'static [&'static str]),
    Own(fn() -> Result<()>),
}

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        quick: true,
        what: What::Cargo(&["fmt", "--all", "--check"]),
        not_yet: always,
    },
    Step {
        name: "tidy",
        quick: true,
        what: What::Own(|| tidy::run(&tidy::Args {})),
        not_yet: always,
    },
    Step {
        name: "clippy",
        quick: true,
        what: What::Cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]),
        not_yet: always,
    },
    Step {
        name: "test",
        quick: true,
        // The same cases in every run: what new cases find is for `cargo xtask long`, not for whoever runs this next.
        what: What::CargoWith(
            "PROPTEST_RNG_SEED",
            "1",
            &["test", "--workspace", "--locked", "--no-fail-fast"],
        ),
        not_yet: always,
    },
    Step {
        name: "doc",
        quick: true,
        what: What::CargoWith(
            "RUSTDOCFLAGS",
            "-D warnings",
            &["doc", "--workspace", "--no-deps", "--locked"],
        ),
        not_yet: always,
    },
    Step {
        name: "sim",
        quick: true,
        what: What::Own(sim),
        not_yet: always,
    },
    Step {
        name: "fuzz-short",
        quick: true,
        what: What::Own(fuzz::short),
        not_yet: always,
    },
    Step {
        name: "console",
        quick: false,
        what: What::Own(|| console::run(&console::Args::default())),
        not_yet: |_| console::not_here(),
    },
    Step {
        name: "console-browser",
        quick: false,
        what: What::Own(|| console::run(&console::Args::in_a_browser())),
        not_yet: |_| console::not_here(),
    },
    Step {
        name: "flights",
        quick: false,
        what: What::Own(flights::main_job),
        not_yet: always,
    },
    Step {
        name: "server-flights",
        quick: false,
        what: What::Own(flights::server_job),
        not_yet: always,
    },
    Step {
        name: "drills",
        quick: false,
        what: What::Own(drill::short),
        not_yet: always,
    },
    Step {
        name: "fuzz",
        quick: false,
        what: What::Own(|| fuzz::run(&fuzz::Args::default())),
        not_yet: always,
    },
    Step {
        name: "codegen",
        quick: false,
        what: What::Own(|| {
            tools::ensure(&[Tool::Java, Tool::Maven])?;
            codegen::run(&["--check".to_owned()])
        }),
        not_yet: always,
    },
    Step {
        name: "readme",
        quick: false,
        what: What::Own(|| readme::run(&readme::Args::default())),
        not_yet: always,
    },
    Step {
        name: "packaging",
        quick: false,
        what: What::Own(packaging::run),
        not_yet: always,
    },
    Step {
        name: "contract",
        quick: false,
        what: What::Own(contract::run),
        not_yet: always,
    },
    Step {
        name: "monitoring",
        quick: false,
        what: What::Own(monitoring::run),
        not_yet: always,
    },
    Step {
        name: "compat",
        quick: false,
        what: What::Own(|| compat::run(&compat::Args::default())),
        not_yet: always,
    },
];

/// Steps that have not been shown to pass on an idle machine from a cold start yet: run when they are named
/// (`cargo xtask test console-browser fuzz codegen compat`), and with the others once they have been.
const BY_NAME: &[&str] = &["console-browser", "fuzz", "codegen", "compat"];

fn always(_: &Workspace) -> Result<Option<&'static str>> {
    Ok(None)
}

/// What the simulator plays: seeds that are always the same, each twice for the same trace.
const PLAYED: &[&[&str]] = &[
    &["--seeds", "0..20", "--twice"],
    &["--cluster", "--seeds", "0..12", "--twice"],
];

/// [`PLAYED`], and the planted faults that are found at once. More are for `cargo xtask long` (`seeds`, `cluster-seeds`) and `cargo
/// xtask mutants`.
fn sim() -> Result<()> {
    for args in PLAYED {
        cargo()
            .args([
                "run",
                "--quiet",
                "--locked",
                "--package",
                "riverlog-sim",
                "--",
            ])
            .args(*args)
            .limit(900)
            .shown_live()?;
    }
    for cluster in [false, true] {
        mutants::run(&mutants::Args::short(cluster))?;
    }
    Ok(())
}

/// How a step ended.
enum End {
    Passed,
    Failed(String),
    Skipped(String),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(name) = args
        .only
        .iter()
        .find(|name| STEPS.iter().all(|s| s.name != **name))
    {
        let names: Vec<&str> = STEPS.iter().map(|s| s.name).collect();
        return Err(format!("there is no step '{name}'; steps: {}", names.join(", ")).into());
    }
    let workspace = Workspace::load()?;
    let mut table = Table::new(&["step", "seconds#", "result"]);
    let [mut passed, mut failed, mut skipped] = [0; 3];
    let begin = Instant::now();
    for step in STEPS {
        let named = args.only.iter().any(|name| name == step.name);
        let wanted = named || args.only.is_empty() && !BY_NAME.contains(&step.name);
        if !wanted {
            continue;
        }
        let start = Instant::now();
        let end = if args.quick && !step.quick {
            End::Skipped("needs more than Rust".into())
        } else if failed > 0 && !args.keep_going {
            End::Skipped("not run: a step before it failed".into())
        } else {
            eprintln!("\n=== {} ===", step.name);
            run_step(step, &workspace)
        };
        let result = match end {
            End::Passed => {
                passed += 1;
                "passed".to_owned()
            }
            End::Failed(why) => {
                failed += 1;
                eprintln!("xtask: {}: {why}", step.name);
                let first = why.lines().next().unwrap_or_default();
                format!("FAILED: {first}")
            }
            End::Skipped(why) => {
                skipped += 1;
                format!("skipped: {why}")
            }
        };
        table.row([
            step.name.to_owned(),
            format!("{:.1}", start.elapsed().as_secs_f64()),
            result,
        ]);
    }
    table.row([
        "all".to_owned(),
        format!("{:.1}", begin.elapsed().as_secs_f64()),
        String::new(),
    ]);
    println!("\n{table}");
    println!("steps: {passed} passed, {failed} failed, {skipped} skipped");
    match failed {
        0 => Ok(()),
        _ => Err("not all steps passed".into()),
    }
}

fn run_step(step: &Step, workspace: &Workspace) -> End {
    match (step.not_yet)(workspace) {
        Ok(None) => {}
        Ok(Some(why)) => return End::Skipped(why.to_owned()),
        Err(why) => return End::Failed(why.to_string()),
    }
    // The slowest step on a cold machine builds everything.
    const LIMIT_S: u64 = 2400;
    let result = match step.what {
        What::Cargo(words) => cargo().args(words).limit(LIMIT_S).shown_live(),
        What::CargoWith(key, value, words) => cargo()
            .env(key, value)
            .args(words)
            .limit(LIMIT_S)
            .shown_live(),
        What::Own(run) => run(),
    };
    match result {
        Ok(()) => End::Passed,
        Err(why) if why.is::<Missing>() && !tools::in_ci() => {
            eprintln!("xtask: NOT TESTED: {}: {why}", step.name);
            End::Skipped(why.to_string().replace('\n', "; "))
        }
        Err(why) => End::Failed(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_exist_is_an_error_that_lists_those_that_do() {
        let args = Args {
            quick: false,
            only: vec!["fmtt".into()],
            keep_going: false,
        };
        let error = run(&args).unwrap_err().to_string();
        assert!(
            error.contains("fmtt") && error.contains("clippy"),
            "{error}"
        );
    }

    #[test]
    fn what_needs_only_rust_comes_first() {
        let quick: Vec<bool> = STEPS.iter().map(|s| s.quick).collect();
        let mut sorted = quick.clone();
        sorted.sort_by_key(|quick| !quick);
        assert_eq!(quick, sorted);
    }
}
