//! `cargo xtask long PART`: what takes too long, or needs too much, for every change. Each run appends a line to
//! docs/reliability/ledger.md, to be committed: that line is the proof that it was done.

use std::fs;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::Result;
use crate::place;
use crate::run::{Outcome, cargo, program};
use crate::tools;

#[derive(Parser)]
pub(crate) struct Args {
    /// `asan`: the tests of the crates below the server under AddressSanitizer, with a nightly compiler. `deny`: cargo-deny over licences, bans and sources. `mutants`, `cluster-mutants`: each planted fault must be found by the
    /// simulator within five minutes. `seeds`, `cluster-seeds`: half an hour of simulation.
    #[arg(value_parser = part_names())]
    part: String,
}

struct Part {
    name: &'static str,
    run: fn() -> Result<Verdict>,
}

/// What goes into the ledger.
pub(crate) struct Verdict {
    pub(crate) passed: bool,
    /// In one line: how much was done, what was found.
    pub(crate) result: String,
}

const PARTS: &[Part] = &[
    Part {
        name: "asan",
        run: asan,
    },
    Part {
        name: "deny",
        run: deny,
    },
    Part {
        name: "mutants",
        run: || simulate(&["--mutants"], 4 * 3600),
    },
    Part {
        name: "seeds",
        run: || half_an_hour(&[]),
    },
    Part {
        name: "cluster-mutants",
        run: || simulate(&["--mutants", "--cluster"], 4 * 3600),
    },
    Part {
        name: "cluster-seeds",
        run: || half_an_hour(&["--cluster"]),
    },
];

/// Seeds that nobody has played before.
fn half_an_hour(of: &[&str]) -> Result<Verdict> {
    let first = u64::from(place::commit_number()?) << 20;
    let seeds = format!("{first}..{}", first + (1 << 20));
    let mut args = of.to_vec();
    args.extend(["--seeds", &seeds, "--seconds", "1800", "--keep-going"]);
    simulate(&args, 2 * 3600)
}

/// The simulator, optimised and with all its checks; the last lines of what it says, which are no table, are the result.
fn simulate(args: &[&str], limit_s: u64) -> Result<Verdict> {
    let out = cargo()
        .args([
            "run",
            "--quiet",
            "--locked",
            "--profile",
            "sim",
            "--package",
            "riverlog-sim",
            "--",
        ])
        .args(args)
        .limit(limit_s)
        .outcome()?;
    print!("{}", out.stdout);
    eprint!("{}", out.stderr);
    let words = out.stdout.lines().filter(|line| {
        // Neither rows of a table nor counts of marks.
        line.starts_with(|c: char| c.is_ascii_alphanumeric())
    });
    let mut result = words.collect::<Vec<_>>().join("; ");
    if result.is_empty() || !out.ok() {
        // Of several that break the list says more than the first of them.
        let mut said = out.stderr.lines();
        let all = said.clone().find(|line| line.starts_with("broken: "));
        let why = all.or_else(|| said.next()).unwrap_or("no word");
        result = format!("{} {why} {result}", out.how_it_ended());
    }
    Ok(Verdict {
        passed: out.ok(),
        result,
    })
}

fn part_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(PARTS.iter().map(|p| p.name))
}

const HEAD: &str = "# Ledger of long runs\n\n\
    What `cargo xtask long PART` and `cargo xtask drill --long` did, oldest first. CI doesn't repeat these.\n\n\
    | date | commit | part | seconds | result |\n|---|---|---|---|---|\n";

pub(crate) fn run(args: &Args) -> Result<()> {
    let part = PARTS
        .iter()
        .find(|p| p.name == args.part)
        .ok_or("no such part")?;
    let start = Instant::now();
    let commit = commit()?;
    let verdict = (part.run)()?;
    record(part.name, &commit, start.elapsed(), &verdict)?;
    if verdict.passed {
        Ok(())
    } else {
        Err(format!("{}: {}", part.name, verdict.result).into())
    }
}

/// Appends a line to the ledger, however it ended. `commit`: what was checked out when it began.
pub(crate) fn record(part: &str, commit: &str, took: Duration, verdict: &Verdict) -> Result<()> {
    let seconds = took.as_secs_f64();
    let path = place::root().join("docs/reliability/ledger.md");
    let mut text = fs::read_to_string(&path).unwrap_or_else(|_| HEAD.to_owned());
    let word = if verdict.passed { "passed" } else { "FAILED" };
    let date = today()?;
    let result = &verdict.result;
    let line = format!("| {date} | {commit} | {part} | {seconds:.0} | {word}: {result} |\n");
    text.push_str(&line);
    fs::write(&path, text)?;
    print!("{line}");
    Ok(())
}

/// The day in UTC, `2026-01-31`.
pub(crate) fn today() -> Result<String> {
    Ok(program("date")
        .args(["-u", "+%F"])
        .output()?
        .trim()
        .to_owned())
}

/// The commit that is checked out, with a `+` when files differ from it.
pub(crate) fn commit() -> Result<String> {
    let git = || program("git").dir(place::root());
    let id = git().args(["rev-parse", "--short=10", "HEAD"]).output()?;
    let changed = git()
        .args(["status", "--porcelain", "--untracked-files=no"])
        .output()?;
    let mark = if changed.is_empty() { "" } else { "+" };
    Ok(format!("{}{mark}", id.trim()))
}

/// What decodes bytes from elsewhere, and what it is built from. Our own code has no unsafe; that of the crates it uses has.
const UNDER_ASAN: &[&str] = &[
    "riverlog-wire",
    "riverlog-log",
    "riverlog-core",
    "riverlog-node",
    "riverlog-api",
];

/// The tests under AddressSanitizer, which only a nightly compiler knows.
fn asan() -> Result<Verdict> {
    let version = program("rustup")
        .args(["run", "nightly", "rustc", "--version", "--verbose"])
        .limit(60)
        .outcome()?;
    let host = version
        .stdout
        .lines()
        .find_map(|l| l.strip_prefix("host: "));
    let Some(host) = host.filter(|_| version.ok()) else {
        return Err(
            "not played: only a nightly compiler knows AddressSanitizer, and there is none here; rustup toolchain install nightly"
                .into(),
        );
    };
    let mut passed = 0;
    for name in UNDER_ASAN {
        let out = program("rustup")
            .dir(place::root())
            // Own flags end the use of what is built already: it has a folder of its own.
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("CARGO_INCREMENTAL", "0")
            // Threads of the tests' own process are still there when it ends.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            // Each access is checked and costs several: fewer drawn cases of each property, and every line all the same.
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_CASES", "24")
            .args([
                "run",
                "nightly",
                "cargo",
                "test",
                "--locked",
                "--no-fail-fast",
            ])
            .args(["--lib", "--tests", "--package", name])
            // A target of its own, so that build scripts are built without.
            .args(["--target", host, "--target-dir"])
            .arg(place::target().join("asan"))
            .limit(3600)
            .outcome()?;
        let here: u64 = out.stdout.lines().filter_map(passed_of).sum();
        eprintln!(
            "asan: {name}: {here} tests in {:.0} s",
            out.took.as_secs_f64()
        );
        passed += here;
        let mut said = out.stderr.lines().chain(out.stdout.lines());
        if let Some(found) = said.find(|l| l.contains("ERROR: AddressSanitizer")) {
            eprint!("{}{}", out.stdout, out.stderr);
            return Ok(Verdict {
                passed: false,
                result: format!("{name}: {}", found.trim()),
            });
        }
        if !out.ok() || here == 0 {
            eprint!("{}{}", out.stdout, out.stderr);
            return Ok(Verdict {
                passed: false,
                result: format!("{name}: {}", out.how_it_ended()),
            });
        }
    }
    Ok(Verdict {
        passed: true,
        result: format!("{passed} tests of {}: nothing found", UNDER_ASAN.join(", ")),
    })
}

/// How many tests a summary of cargo's says have passed.
fn passed_of(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("test result: ")?;
    let (count, _) = rest.split_once(". ")?.1.split_once(" passed")?;
    count.parse().ok()
}

/// The advisories that cargo-deny could look up too lie in a git repository, outside the registries.
fn deny() -> Result<Verdict> {
    if tools::find("cargo-deny").is_none() {
        return Err(
            "cargo-deny isn't installed: cargo install cargo-deny --locked (about three minutes)"
                .into(),
        );
    }
    let version = program("cargo-deny").arg("--version").output()?;
    let out: Outcome = program("cargo-deny")
        .dir(place::root())
        .args(["--locked", "check", "licenses", "bans", "sources"])
        .limit(300)
        .outcome()?;
    eprint!("{}{}", out.stdout, out.stderr);
    // The verdicts come last on stdout, "licenses ok" say.
    let said = out.stdout.lines().rfind(|l| !l.trim().is_empty());
    let result = format!("{}; {}", version.trim(), said.unwrap_or_default().trim());
    Ok(Verdict {
        passed: out.ok(),
        result,
    })
}

#[cfg(test)]
mod tests {
    use super::passed_of;

    #[test]
    fn passed_tests_are_counted_from_what_cargo_says() {
        let line = "test result: ok. 41 passed; 0 failed; 0 ignored; 0 measured; 155 filtered out";
        assert_eq!(passed_of(line), Some(41));
        assert_eq!(passed_of("running 41 tests"), None);
    }
}
