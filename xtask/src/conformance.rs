//! `cargo xtask conformance`: other people's test suites against a broker.
//!
//! A suite is a folder with `run BOOTSTRAP OUT_DIR`, which writes `OUT_DIR/results.txt` (lines `PASS|FAIL|SKIP name`),
//! and `baseline-*.txt`, the same list as Apache Kafka scores it. What passes there and not here is LOST; what
//! Kafka itself fails isn't asked for. The suites aren't part of this repository: the caller says where they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::Result;
use crate::broker::{Kind, Spec};
use crate::long::{commit, today};
use crate::place::{self, Scratch};
use crate::run::program;
use crate::table::Table;

#[derive(Parser)]
pub(crate) struct Args {
    /// The folder that holds the suites
    #[arg(long, value_name = "DIR")]
    suites: PathBuf,
    /// Only these suites; all without
    names: Vec<String>,
    /// The broker under test; only Riverlog's results go into docs/conformance.md
    #[arg(long, value_enum, default_value = "riverlog")]
    broker: Kind,
    /// A broker setting on top of the suite's, as often as wanted
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = crate::peer::setting)]
    settings: Vec<(String, String)>,
    /// Seconds for one suite
    #[arg(long, default_value_t = 1500)]
    limit: u64,
}

/// What every suite wants.
const COMMON: &[(&str, &str)] = &[
    ("group.initial.rebalance.delay.ms", "0"),
    ("auto.create.topics.enable", "true"),
];

/// Riverlog has no access rules yet, refuses the keys that ask for them, and lets everybody in.
const EVERYBODY_IS_SUPER: [(&str, &str); 3] = [
    (
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
    ("super.users", "User:ANONYMOUS"),
    ("allow.everyone.if.no.acl.found", "true"),
];

/// What some suites want beyond that, by the name of their folder, and the port if it must be one.
fn wanted(suite: &str, broker: Kind) -> (Vec<(&'static str, &'static str)>, Option<u16>) {
    let super_users = match broker {
        Kind::Kafka => &EVERYBODY_IS_SUPER,
        Kind::Riverlog | Kind::Nats => &[][..],
    };
    match suite {
        "kafka-python" => {
            // One test commits an offset for partition 1 of a topic that is made on the way.
            let mut settings = vec![
                ("node.id", "0"),
                ("group.min.session.timeout.ms", "1000"),
                ("num.partitions", "2"),
            ];
            settings.extend(super_users);
            (settings, None)
        }
        "rdkafka-rs" => {
            let settings = vec![
                ("node.id", "0"),
                ("num.partitions", "3"),
                ("log.retention.ms", "-1"),
            ];
            (settings, Some(9092))
        }
        "librdkafka" => {
            let mut settings = vec![("num.partitions", "4")];
            settings.extend(super_users);
            (settings, None)
        }
        "java-tools" => {
            let settings = vec![
                ("log.cleaner.backoff.ms", "1000"),
                ("log.retention.check.interval.ms", "1000"),
                ("log.initial.task.delay.ms", "1000"),
                (
                    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
                    "1000",
                ),
            ];
            (settings, None)
        }
        _ => (Vec::new(), None),
    }
}

/// `PASS`, `FAIL` or `SKIP` by test.
type Results = BTreeMap<String, String>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let suites = suites(args)?;
    let mut lost = 0;
    let mut rows = Vec::new();
    for suite in suites {
        let row = run_suite(args, &suite)?;
        lost += row.lost;
        rows.push(row);
    }
    let mut table = Table::new(&[
        "suite",
        "Kafka passes#",
        "pass here too#",
        "lost#",
        "pass here only#",
    ]);
    for row in &rows {
        table.row([
            row.suite.clone(),
            row.baseline.to_string(),
            (row.baseline - row.lost).to_string(),
            row.lost.to_string(),
            row.won.to_string(),
        ]);
    }
    println!("\n{table}");
    if args.broker == Kind::Riverlog {
        let path = place::root().join("docs/conformance.md");
        let old = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, page(&old, &rows, &today()?, &commit()?))?;
        println!("written to {}", path.display());
    }
    match lost {
        0 => Ok(()),
        n => Err(format!("{n} tests pass on Kafka and not on {}", args.broker).into()),
    }
}

fn suites(args: &Args) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(&args.suites).map_err(|e| format!("{}: {e}", args.suites.display()))?
    {
        let path = std::path::absolute(entry?.path())?;
        let name = name_of(&path);
        if path.join("run").is_file() && (args.names.is_empty() || args.names.contains(&name)) {
            found.push(path);
        }
    }
    if let Some(name) = args
        .names
        .iter()
        .find(|name| found.iter().all(|p| name_of(p) != **name))
    {
        return Err(format!("{} has no suite '{name}'", args.suites.display()).into());
    }
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

struct Row {
    suite: String,
    baseline: usize,
    lost: usize,
    won: usize,
}

fn run_suite(args: &Args, suite: &Path) -> Result<Row> {
    let name = name_of(suite);
    let baseline = results(&fs::read_to_string(baseline_file(suite)?)?);
    let mut scratch = Scratch::new(&format!("conformance-{name}"))?;
    let (settings, port) = wanted(&name, args.broker);
    let mut spec = Spec::new(args.broker, scratch.path().join("broker"))?;
    spec.port = port.unwrap_or(spec.port);
    spec.settings.extend(
        COMMON
            .iter()
            .chain(&settings)
            .map(|(k, v)| ((*k).into(), (*v).into())),
    );
    spec.settings.extend(args.settings.iter().cloned());
    let broker = spec.start(false)?;
    let out = scratch.path().join("out");
    eprintln!(
        "conformance: {name} against {} at {}",
        args.broker,
        broker.bootstrap()
    );
    let ended = program("bash")
        .arg(suite.join("run"))
        .arg(broker.bootstrap())
        .arg(&out)
        .dir(suite)
        .limit(args.limit)
        .outcome()?;
    drop(broker);
    let here = results(&fs::read_to_string(out.join("results.txt")).unwrap_or_default());
    if here.is_empty() {
        scratch.keep();
        let said = crate::run::last_lines(&format!("{}{}", ended.stdout, ended.stderr), 20);
        return Err(format!("{name} gave no results: {}\n{said}", ended.how_it_ended()).into());
    }
    let (lost, won) = compare(&baseline, &here);
    for test in &lost {
        println!(
            "LOST {name} {test} ({})",
            here.get(*test).map_or("not run", String::as_str)
        );
    }
    if !lost.is_empty() {
        scratch.keep();
        println!(
            "what broker and suite wrote is kept in {}",
            scratch.path().display()
        );
    }
    let passed = baseline.values().filter(|v| *v == "PASS").count();
    Ok(Row {
        suite: name,
        baseline: passed,
        lost: lost.len(),
        won: won.len(),
    })
}

fn baseline_file(suite: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(suite)? {
        let path = entry?.path();
        let name = name_of(&path);
        if name.starts_with("baseline-") && name.ends_with(".txt") {
            return Ok(path);
        }
    }
    Err(format!("{} has no baseline-*.txt", suite.display()).into())
}

fn results(text: &str) -> Results {
    let line = |line: &str| -> Option<(String, String)> {
        let (word, name) = line.split_once(' ')?;
        ["PASS", "FAIL", "SKIP"]
            .contains(&word)
            .then(|| (name.to_owned(), word.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// What passes in the baseline and not here, and the reverse.
fn compare<'a>(baseline: &'a Results, here: &'a Results) -> (Vec<&'a str>, Vec<&'a str>) {
    let passes_only_in = |a: &'a Results, b: &Results| -> Vec<&'a str> {
        let passing = a.iter().filter(|(_, word)| *word == "PASS");
        let only = passing.filter(|(name, _)| b.get(*name).is_none_or(|word| word != "PASS"));
        only.map(|(name, _)| name.as_str()).collect()
    };
    (
        passes_only_in(baseline, here),
        passes_only_in(here, baseline),
    )
}

const HEAD: &str = "# Conformance\n\n\
    Test suites of the Kafka ecosystem against Riverlog, compared with what Apache Kafka scores on the same kind of\n\
    machine. A test that Kafka itself fails or skips isn't counted. Written by `cargo xtask conformance`.\n\n\
    | suite | Kafka passes | pass here too | lost | pass here only | date | commit |\n\
    |---|---:|---:|---:|---:|---|---|\n";

/// The page with the new rows; those of suites that weren't run stay, and so does what people wrote below the table.
fn page(old: &str, rows: &[Row], date: &str, commit: &str) -> String {
    let is_note = |line: &&str| line.starts_with("## ");
    let table = old.lines().take_while(|line| !is_note(line));
    let kept = table.filter_map(|line| {
        let suite = line.strip_prefix("| ")?.split(" |").next()?;
        (suite != "suite").then(|| (suite.to_owned(), line.to_owned()))
    });
    let mut lines: BTreeMap<String, String> = kept.collect();
    for r in rows {
        let passed = r.baseline - r.lost;
        let cells = format!(
            "| {} | {} | {passed} | {} | {} | {date} | {commit} |",
            r.suite, r.baseline, r.lost, r.won
        );
        lines.insert(r.suite.clone(), cells);
    }
    let mut page = HEAD.to_owned();
    for line in lines.values() {
        page.push_str(line);
        page.push('\n');
    }
    let notes = old.lines().skip_while(|line| !is_note(line));
    for (at, line) in notes.enumerate() {
        page.push_str(if at == 0 { "\n" } else { "" });
        page.push_str(line);
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_is_what_passes_there_and_not_here() {
        let baseline = results("# head\nPASS a\nPASS b\nPASS c\nFAIL d\nSKIP e\n");
        let here = results("PASS a\nFAIL b\nPASS d\n");
        let (lost, won) = compare(&baseline, &here);
        assert_eq!(lost, ["b", "c"]);
        assert_eq!(won, ["d"]);
    }

    #[test]
    fn a_suite_that_was_not_run_keeps_its_row() {
        let row = |suite: &str, lost| Row {
            suite: suite.into(),
            baseline: 10,
            lost,
            won: 0,
        };
        let first = page("", &[row("a", 1), row("b", 2)], "2026-01-01", "c1");
        let second = page(&first, &[row("b", 0)], "2026-01-02", "c2");
        assert!(
            second.contains("| a | 10 | 9 | 1 | 0 | 2026-01-01 | c1 |"),
            "{second}"
        );
        assert!(
            second.contains("| b | 10 | 10 | 0 | 0 | 2026-01-02 | c2 |"),
            "{second}"
        );
        assert_eq!(second.matches("| b |").count(), 1);
        let noted = format!("{second}\n## Lost\n\n| test | why |\n\nEnd.\n");
        let third = page(&noted, &[row("a", 0)], "2026-01-03", "c3");
        assert!(
            third.ends_with("| c2 |\n\n## Lost\n\n| test | why |\n\nEnd.\n"),
            "{third}"
        );
        assert!(!third.contains("c1"), "{third}");
    }
}
