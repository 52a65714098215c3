//! `cargo xtask fuzz`: each fuzz target for a moment, on the stable compiler.
//!
//! The targets are the programs of `fuzz/Cargo.toml`. Where a run begins is drawn from the commit, so that a commit's run
//! can be repeated and the next one's looks elsewhere. New inputs stay in `target/fuzz-corpus`, findings in `target/fuzz-findings`.

use std::fs;
use std::path::PathBuf;

use clap::Parser;

use crate::Result;
use crate::place;
use crate::run::{cargo, program};

#[derive(Parser)]
pub(crate) struct Args {
    /// Only these targets; all without
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seconds for all together: each gets 15 of them, in an order that begins elsewhere with each commit, until they are over
    #[arg(long)]
    slice: Option<u64>,
}

/// What each target gets of a slice.
const TURN_S: u64 = 15;

impl Default for Args {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            seconds: 20,
            slice: Some(150),
        }
    }
}

/// Seconds that CI gives all targets together.
const SHORT_S: u64 = 26;

/// What CI runs: the same targets from a test of the workspace, which has been built already. It plays what is kept in `fuzz/seeds`, and
/// then changes it at random, beginning at a number of the commit; without coverage to guide it, which takes a build of its own
/// (`cargo xtask fuzz`).
pub(crate) fn short() -> Result<()> {
    let seed = place::commit_number()?;
    cargo()
        .env("RIVERLOG_FUZZ_SEED", seed.to_string())
        .env("RIVERLOG_FUZZ_SECONDS", SHORT_S.to_string())
        .args(["test", "--quiet", "--locked", "--workspace"])
        .args(["--test", "fuzz_targets", "--", "--nocapture"])
        .limit(900)
        .shown_live()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = place::root().join("fuzz");
    let all = targets(&fs::read_to_string(folder.join("Cargo.toml"))?)?;
    if let Some(name) = args.targets.iter().find(|name| !all.contains(name)) {
        return Err(format!("no target '{name}'; there are {}", all.join(", ")).into());
    }
    let build_in = place::target().join("fuzz");
    cargo()
        .dir(&folder)
        .args(["build", "--release", "--quiet", "--locked", "--target-dir"])
        .arg(&build_in)
        .limit(900)
        .output()?;
    // libFuzzer reads 0 as "any".
    let seed = place::commit_number()?.max(1);
    let mut found = Vec::new();
    let mut chosen = all;
    chosen.retain(|name| args.targets.is_empty() || args.targets.contains(name));
    let seconds = match args.slice {
        None => args.seconds,
        Some(slice) => {
            let first = seed as usize % chosen.len().max(1);
            chosen.rotate_left(first);
            chosen.truncate(usize::try_from(slice / TURN_S)?.max(1));
            TURN_S
        }
    };
    for name in chosen {
        let corpus = made(format!("fuzz-corpus/{name}"))?;
        let findings = made(format!("fuzz-findings/{name}"))?;
        let out = program(binary(&build_in, &name)?)
            .arg(corpus)
            .arg(folder.join("seeds").join(&name))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-seed={seed}"))
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .args(["-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=1"])
            .limit(seconds + 60)
            .outcome()?;
        if out.ok() {
            let tries = stat(&out.stderr, "stat::number_of_executed_units:").unwrap_or("?");
            println!(
                "fuzz: {name}: {tries} inputs in {:.0} s",
                out.took.as_secs_f64()
            );
        } else {
            eprintln!("{}", crate::run::last_lines(&out.stderr, 40));
            found.push(name);
        }
    }
    match found.as_slice() {
        [] => Ok(()),
        names => Err(format!("findings in {} (seed {seed})", names.join(", ")).into()),
    }
}

/// A folder below `target`.
fn made(path: String) -> Result<PathBuf> {
    let folder = place::target().join(path);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn targets(manifest: &str) -> Result<Vec<String>> {
    let toml: toml::Table = manifest.parse()?;
    let bins = toml.get("bin").and_then(toml::Value::as_array);
    let name = |bin: &toml::Value| Some(bin.get("name")?.as_str()?.to_owned());
    Ok(bins.into_iter().flatten().filter_map(name).collect())
}

/// The program of a target: the folder between depends on the machine (`fuzz/.cargo/config.toml` names a target).
fn binary(build_in: &std::path::Path, name: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(build_in)? {
        let path = entry?.path().join("release").join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    Err(format!("no program {name} below {}", build_in.display()).into())
}

fn stat<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|l| l.strip_prefix(name))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_the_programs_of_the_manifest() {
        let manifest = "[package]\nname = \"f\"\n[[bin]]\nname = \"a\"\n[[bin]]\nname = \"b\"\n";
        assert_eq!(targets(manifest).unwrap(), ["a", "b"]);
        assert!(targets("[package]\nname = \"f\"\n").unwrap().is_empty());
    }

    #[test]
    fn a_figure_is_found_by_its_name() {
        let text = "x\nstat::number_of_executed_units: 12\n";
        assert_eq!(stat(text, "stat::number_of_executed_units:"), Some("12"));
    }
}
