//! `cargo xtask mutants`: which of the planted faults are noticed, and how soon.
//!
//! One build; each fault is planted in turn and seeds are played from 0 on until one breaks: of one node by the simulator, of clusters
//! (`--cluster`) by its clusters and by the short lives of the quorum's own test. Each part has a section of
//! `docs/reliability/mutants.md`. The short form, which CI runs, plants those that the tables say are found at once.

use std::fs;
use std::path::PathBuf;

use clap::Parser;

use crate::Result;
use crate::place;
use crate::run::{Run, cargo};

/// Core-seconds within which a fault is found at once.
const AT_ONCE: f64 = 0.5;

#[derive(Parser)]
pub(crate) struct Args {
    /// Those that it takes several nodes to notice, instead of those of one node
    #[arg(long)]
    cluster: bool,
    /// Only those that the table says are found at once; writes nothing
    #[arg(long)]
    short: bool,
    /// Core-seconds for each fault
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

impl Args {
    /// What CI runs.
    pub(crate) fn short(cluster: bool) -> Self {
        Self {
            cluster,
            short: true,
            seconds: 10,
        }
    }
}

const HEAD: &str = "# Planted faults\n\n\
    Each is a mistake that someone could make, behind a switch that only the simulator has\n\
    (`crates/riverlog-mutants/src/lib.rs`). Seeds are played from 0 on until one breaks. Written by `cargo xtask mutants`; a fault\n\
    that nobody notices is a hole in the simulator.\n\n";

const CLUSTERS: &str = "## Clusters\n\n\
    Faults that it takes several nodes to notice, and what clusters from seeds notice of them. Written by `cargo xtask mutants --cluster`;\n\
    the last rows are those of the metadata quorum, which its own short lives notice (`crates/riverlog-quorum/tests/planted.rs`).\n\n";

const COLUMNS: &str =
    "| fault | what it does | noticed by | seed | core-seconds |\n|---|---|---|---|---|\n";

pub(crate) fn run(args: &Args) -> Result<()> {
    let known = fs::read_to_string(table())?;
    let (nodes, clusters) = sections(&known);
    let mut hunt = simulator();
    let mut seconds = args.seconds;
    if args.cluster {
        hunt = hunt.args(["--cluster"]);
    }
    if args.short {
        let names = at_once(if args.cluster { clusters } else { nodes });
        if names.is_empty() {
            return Err("the table of planted faults names none that is found at once".into());
        }
        seconds = 10;
        hunt = hunt.args(["--only", &names.join(",")]);
    }
    let out = hunt
        .args(["--seconds", &seconds.to_string()])
        .limit(6 * 3600)
        .outcome()?;
    print!("{}", out.stdout);
    let mut found = out.stdout.clone();
    let mut ok = out.ok();
    if args.cluster && !args.short {
        let quorum = quorum().limit(3600).outcome()?;
        let rows = quorum.stdout.lines().filter(|l| l.starts_with('|'));
        found = rows.fold(found, |text, row| format!("{text}{row}\n"));
        ok &= quorum.ok();
    }
    if !args.short && found.starts_with('|') {
        let part = part_of(&found);
        let text = match args.cluster {
            true => format!("{}\n\n{CLUSTERS}{part}", nodes.trim_end()),
            false if clusters.is_empty() => format!("{HEAD}{part}"),
            false => format!("{HEAD}{part}\n{clusters}"),
        };
        fs::write(table(), text)?;
    }
    if !ok {
        return Err("a planted fault was not found".into());
    }
    Ok(())
}

fn simulator() -> Run {
    cargo().args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "riverlog-sim",
        "--",
        "--mutants",
    ])
}

fn quorum() -> Run {
    cargo().args([
        "test",
        "--quiet",
        "--locked",
        "--package",
        "riverlog-quorum",
        "--test",
        "planted",
        "--",
        "--ignored",
        "--nocapture",
    ])
}

fn table() -> PathBuf {
    place::root().join("docs/reliability/mutants.md")
}

/// What there is of single nodes, with the head of the page, and of clusters.
fn sections(page: &str) -> (&str, &str) {
    let at = page.find("## Clusters").unwrap_or(page.len());
    page.split_at(at)
}

/// A table, and the words below it.
fn part_of(found: &str) -> String {
    let (rows, words): (Vec<_>, Vec<_>) = found.lines().partition(|l| l.starts_with('|'));
    format!("{COLUMNS}{}\n\n{}.\n", rows.join("\n"), words.join("\n"))
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
            "{HEAD}{COLUMNS}| a | x | an assertion | 0 | 0.02 |\n| b | y | z | 40 | 7.10 |\n| c | y | **nobody** | | 300 |\n"
        );
        assert_eq!(at_once(&table), ["a"]);
    }

    #[test]
    fn nodes_and_clusters_have_their_own_sections() {
        let page = format!(
            "{HEAD}{}\n{CLUSTERS}{}",
            part_of("| a | x | y | 0 | 0.02 |\n1 of 1\n"),
            part_of("| b | x | y | 0 | 0.02 |\n1 of 1\n")
        );
        let (nodes, clusters) = sections(&page);
        assert_eq!(at_once(nodes), ["a"]);
        assert_eq!(at_once(clusters), ["b"]);
        assert!(clusters.ends_with("| b | x | y | 0 | 0.02 |\n\n1 of 1.\n"));
    }
}
