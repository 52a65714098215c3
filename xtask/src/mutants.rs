//! `cargo xtask mutants`: which of the planted faults the simulator finds, and how soon.
//!
//! One build; each fault is planted in turn and seeds are played from 0 on until one breaks. The table goes to
//! `docs/reliability/mutants.md`. The short form, which CI runs, plants those that the table says are found at once.

use std::fs;
use std::path::PathBuf;

use clap::Parser;

use crate::Result;
use crate::place;
use crate::run::cargo;

/// Core-seconds within which a fault is found at once.
const AT_ONCE: f64 = 0.5;

#[derive(Parser)]
pub(crate) struct Args {
    /// Only those that the table says are found at once; writes nothing
    #[arg(long)]
    short: bool,
    /// Core-seconds for each fault
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

impl Args {
    /// What CI runs.
    pub(crate) fn short() -> Self {
        Self {
            short: true,
            seconds: 10,
        }
    }
}

const HEAD: &str = "# Planted faults\n\n\
    Each is a mistake that someone could make, behind a switch that only the simulator has\n\
    (`crates/riverlog-mutants/src/lib.rs`). Seeds are played from 0 on until one breaks. Written by `cargo xtask mutants`; a fault\n\
    that nobody notices is a hole in the simulator.\n\n\
    | fault | what it does | noticed by | seed | core-seconds |\n|---|---|---|---|---|\n";

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = cargo().args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "riverlog-sim",
        "--",
        "--mutants",
    ]);
    let mut seconds = args.seconds;
    if args.short {
        let known = fs::read_to_string(table())?;
        let names = at_once(&known);
        if names.is_empty() {
            return Err("the table of planted faults names none that is found at once".into());
        }
        seconds = 10;
        command = command.args(["--only", &names.join(",")]);
    }
    let out = command
        .args(["--seconds", &seconds.to_string()])
        .limit(4 * 3600)
        .outcome()?;
    print!("{}", out.stdout);
    if !args.short && out.stdout.starts_with('|') {
        let (rows, words): (Vec<_>, Vec<_>) = out.stdout.lines().partition(|l| l.starts_with('|'));
        let text = format!("{HEAD}{}\n\n{}.\n", rows.join("\n"), words.join("\n"));
        fs::write(table(), text)?;
    }
    if !out.ok() {
        return Err("a planted fault was not found".into());
    }
    Ok(())
}

fn table() -> PathBuf {
    place::root().join("docs/reliability/mutants.md")
}

/// The faults of a table that are found at once.
fn at_once(table: &str) -> Vec<&str> {
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let name = cells.next()?;
        let seconds: f64 = cells.nth(3)?.parse().ok()?;
        (seconds <= AT_ONCE && !line.contains("**nobody**")).then_some(name)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_found_at_once_are_for_the_short_form() {
        let table = format!(
            "{HEAD}| a | x | an assertion | 0 | 0.02 |\n| b | y | z | 40 | 7.10 |\n| c | y | **nobody** | | 300 |\n"
        );
        assert_eq!(at_once(&table), ["a"]);
    }
}
