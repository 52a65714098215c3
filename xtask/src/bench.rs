//! `cargo xtask bench`: measurements, of Riverlog alone or turn about with Apache Kafka.
//!
//! A benchmark is a row of [`list::BENCHES`]. Each run's raw numbers are appended to `target/bench/NAME.json` (a JSON object
//! a line); the table shows medians, the spread, and the median of the ratios of neighbouring runs, which a
//! machine that grows slower or faster meanwhile doesn't bend.

mod cap;
mod cluster;
mod list;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

use crate::Result;
use crate::broker::{Broker, Kind, Spec};
use crate::long::{commit, today};
use crate::peer::{kafka, nats};
use crate::place::{self, Scratch};
use crate::proc;
use crate::run::{cargo, program};
use crate::table::Table;

use list::{BENCHES, Bench, Target, What};

#[derive(Parser)]
pub(crate) struct Args {
    /// Only these benchmarks; all without
    names: Vec<String>,
    /// Measures this beside Riverlog, A-B-A-B; NATS where a benchmark has a program for it
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Leaves Riverlog out
    #[arg(long, requires = "peer")]
    only_peer: bool,
    /// Runs of each
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// Lists the benchmarks
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Peer {
    Kafka,
    Nats,
}

/// A number with its unit.
#[derive(Clone, Debug, PartialEq)]
struct Measure {
    value: f64,
    unit: String,
}

/// The measures of one run, by name.
type Measures = BTreeMap<String, Measure>;

/// One run with a broker of that kind.
type Turn<'a> = Box<dyn FnMut(Kind) -> Result<Measures> + 'a>;

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        let mut table = Table::new(&["benchmark", "measures"]);
        for bench in BENCHES {
            table.row([bench.name, bench.about]);
        }
        print!("{table}");
        return Ok(());
    }
    if let Some(name) = args
        .names
        .iter()
        .find(|n| BENCHES.iter().all(|b| b.name != **n))
    {
        return Err(format!("no benchmark '{name}'; see --list").into());
    }
    let mut kinds = Vec::new();
    if !args.only_peer {
        kinds.push(Kind::Riverlog);
    }
    kinds.extend(args.peer.map(|peer| match peer {
        Peer::Kafka => Kind::Kafka,
        Peer::Nats => Kind::Nats,
    }));
    let mut table = table(&kinds);
    for bench in BENCHES
        .iter()
        .filter(|b| args.names.is_empty() || args.names.iter().any(|n| n == b.name))
    {
        // What a peer doesn't have is run without it.
        let has = |kind: &&Kind| match (kind, &bench.what) {
            (Kind::Riverlog, _) => true,
            (Kind::Kafka, what) => !matches!(what, What::Embedded(_) | What::Door(..)),
            (Kind::Nats, what) => matches!(what, What::Door(_, Some(_))),
        };
        let here: Vec<Kind> = kinds.iter().filter(has).copied().collect();
        let runs = measure(bench, &here, args.pairs)?;
        rows(bench.name, &kinds, &runs, &mut table);
    }
    println!("\n{}", machine());
    match args.peer {
        Some(Peer::Kafka) => println!("Kafka: Apache Kafka {}", kafka::version()?),
        Some(Peer::Nats) => println!("NATS: nats-server {}", nats::version()?),
        None => {}
    }
    println!("\n{table}");
    Ok(())
}

/// Runs a benchmark turn about and returns each turn's measures, in the order of `kinds`.
fn measure(bench: &Bench, kinds: &[Kind], pairs: u32) -> Result<Vec<Vec<Measures>>> {
    let scratch = Scratch::new("bench")?;
    let mut turn: Turn<'_> = match &bench.what {
        What::Start => Box::new(|kind| start_once(kind, &scratch)),
        What::Embedded(target) => {
            let binary = target.build()?;
            Box::new(move |_| Ok(target.run(&binary, None)?.0))
        }
        What::Restart(fill, then) => {
            let binary = fill.build()?;
            Box::new(move |kind| restart_once(kind, &scratch, fill, then, &binary))
        }
        What::Load {
            target,
            settings,
            warm_up,
        } => loaded(move |_| target, settings, *warm_up, kinds, &scratch)?,
        What::Cluster(cluster) => {
            let (binary, scratch) = (cluster.target.build()?, &scratch);
            Box::new(move |kind| cluster.once(kind, scratch, &binary))
        }
        What::Door(http, nats) => {
            let program = move |kind| match (kind, nats) {
                (Kind::Nats, Some(nats)) => nats,
                _ => http,
            };
            loaded(program, &[], 1, kinds, &scratch)?
        }
    };
    let mut runs = Vec::new();
    for n in 0..pairs {
        let mut pair = Vec::new();
        for &kind in kinds {
            let measures = turn(kind)?;
            record(bench.name, kind, n, &measures)?;
            eprintln!("bench: {} {kind} {}/{pairs}", bench.name, n + 1);
            pair.push(measures);
        }
        runs.push(pair);
    }
    Ok(runs)
}

/// Brokers of these kinds that run from now on; what each turn does with one of them: the program that `target` names for its kind.
fn loaded<'a>(
    target: impl Fn(Kind) -> &'a Target + 'a,
    settings: &[(&str, &str)],
    warm_up: u32,
    kinds: &[Kind],
    scratch: &Scratch,
) -> Result<Turn<'a>> {
    let mut brokers = BTreeMap::new();
    let mut binary = std::path::PathBuf::new();
    for &kind in kinds {
        binary = target(kind).build()?;
        let mut spec = Spec::new(kind, scratch.path().join(kind.to_string()))?;
        spec.release = true;
        spec.settings
            .extend(settings.iter().map(|(k, v)| ((*k).into(), (*v).into())));
        let broker = spec.start(false)?;
        for _ in 0..warm_up {
            target(kind).run(&binary, Some(&broker))?;
        }
        brokers.insert(kind, broker);
    }
    Ok(Box::new(move |kind| {
        let broker = brokers.get(&kind).ok_or("a broker that wasn't started")?;
        let (mut measures, cpu) = target(kind).run(&binary, Some(broker))?;
        let (_, most) = proc::resident_kib(broker.pid())?;
        put(&mut measures, "broker CPU", cpu, "s");
        put(
            &mut measures,
            "broker memory, most",
            most as f64 / 1024.0,
            "MiB",
        );
        Ok(measures)
    }))
}

fn start_once(kind: Kind, scratch: &Scratch) -> Result<Measures> {
    let dir = scratch.path().join(kind.to_string());
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let mut spec = Spec::new(kind, dir)?;
    spec.release = true;
    let broker = spec.start(false)?;
    let at_start = proc::cpu_seconds(broker.pid())?;
    std::thread::sleep(Duration::from_secs(3));
    let idle = proc::cpu_seconds(broker.pid())? - at_start;
    let (resident, _) = proc::resident_kib(broker.pid())?;
    let mut measures = Measures::new();
    put(
        &mut measures,
        "start to first answer",
        broker.ready_after.as_secs_f64() * 1000.0,
        "ms",
    );
    put(&mut measures, "CPU until then", at_start, "s");
    put(&mut measures, "CPU of 3 idle seconds", idle, "s");
    put(
        &mut measures,
        "resident memory, idle",
        resident as f64 / 1024.0,
        "MiB",
    );
    Ok(measures)
}

/// Fills a broker, kills it, starts it again and measures; the start counts.
fn restart_once(
    kind: Kind,
    scratch: &Scratch,
    fill: &Target,
    then: &Target,
    binary: &std::path::Path,
) -> Result<Measures> {
    let dir = scratch.path().join(kind.to_string());
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let mut spec = Spec::new(kind, dir)?;
    spec.release = true;
    let broker = spec.start(false)?;
    fill.run(binary, Some(&broker))?;
    broker.kill()?;
    let broker = spec.start(false)?;
    let (mut measures, _) = then.run(binary, Some(&broker))?;
    put(
        &mut measures,
        "start to first answer",
        broker.ready_after.as_secs_f64() * 1000.0,
        "ms",
    );
    // All of it: a broker may load before anybody asks.
    let cpu = proc::cpu_seconds(broker.pid())?;
    put(&mut measures, "broker CPU", cpu, "s");
    Ok(measures)
}

fn put(measures: &mut Measures, name: &str, value: f64, unit: &str) {
    measures.insert(
        name.to_owned(),
        Measure {
            value,
            unit: unit.to_owned(),
        },
    );
}

impl Target {
    fn build(&self) -> Result<std::path::PathBuf> {
        cargo()
            .args(["build", "--release", "--quiet"])
            .args(self.build)
            .limit(1800)
            .output()?;
        Ok(place::target().join("release").join(self.binary))
    }

    /// Runs it; its measures, and the CPU seconds that the broker used meanwhile.
    fn run(&self, binary: &std::path::Path, broker: Option<&Broker>) -> Result<(Measures, f64)> {
        let cpu = || broker.map_or(Ok(0.0), |b| proc::cpu_seconds(b.pid()));
        let before = cpu()?;
        let address = broker.map(Broker::bootstrap);
        let pid = broker.map_or_else(String::new, |b| b.pid().to_string());
        let said = program(binary)
            .env("BROKER_PID", &pid)
            .args(self.args)
            .args(address)
            .limit(300)
            .output()?;
        let used = cpu()? - before;
        Ok((parse(&said)?, used))
    }
}

/// Lines `MEASURE name value unit`; blanks in a name are written `_`.
fn parse(said: &str) -> Result<Measures> {
    let mut measures = Measures::new();
    for line in said.lines().filter_map(|l| l.strip_prefix("MEASURE ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, value, unit] = words[..] else {
            return Err(format!("not a measure: {line}").into());
        };
        put(&mut measures, &name.replace('_', " "), value.parse()?, unit);
    }
    if measures.is_empty() {
        return Err("the program printed no measure".into());
    }
    Ok(measures)
}

/// Appends one run to `target/bench/NAME.json`.
fn record(bench: &str, kind: Kind, n: u32, measures: &Measures) -> Result<()> {
    let dir = place::target().join("bench");
    fs::create_dir_all(&dir)?;
    let measures: BTreeMap<&String, Value> = measures
        .iter()
        .map(|(k, m)| (k, json!({ "value": m.value, "unit": m.unit })))
        .collect();
    let line = json!({
        "date": today()?, "commit": commit()?, "machine": machine(), "benchmark": bench,
        "broker": kind.to_string(), "run": n, "measures": measures,
    });
    let path = dir.join(format!("{bench}.json"));
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    writeln!(file, "{line}")?;
    Ok(())
}

/// Processor, cores, memory and kernel.
fn machine() -> String {
    let line = |file: &str, name: &str| -> String {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text
            .lines()
            .find(|l| l.starts_with(name))
            .unwrap_or_default();
        line.split_once(':')
            .map_or("?", |(_, v)| v.trim())
            .to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kib: u64 = line("/proc/meminfo", "MemTotal")
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{}, {cores} cores, {:.0} GiB, Linux {}",
        line("/proc/cpuinfo", "model name"),
        kib as f64 / f64::from(1 << 20),
        kernel.trim()
    )
}

fn table(kinds: &[Kind]) -> Table {
    let mut head = vec![
        "benchmark".to_owned(),
        "measure".to_owned(),
        "unit".to_owned(),
    ];
    for kind in kinds {
        head.extend([format!("{kind}#"), "least–most#".to_owned()]);
    }
    if kinds.len() == 2 {
        head.push(format!("{} / {}#", kinds[0], kinds[1]));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    Table::new(&head)
}

fn rows(bench: &str, kinds: &[Kind], runs: &[Vec<Measures>], table: &mut Table) {
    let first = runs.first().and_then(|pair| pair.first());
    for (name, measure) in first.into_iter().flatten() {
        let values = |i: usize| -> Vec<f64> {
            runs.iter()
                .filter_map(|pair| pair.get(i)?.get(name))
                .map(|m| m.value)
                .collect()
        };
        let mut row = vec![bench.to_owned(), name.clone(), measure.unit.clone()];
        for i in 0..kinds.len() {
            let all = values(i);
            if all.is_empty() {
                row.extend(["-".to_owned(), "-".to_owned()]);
                continue;
            }
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.extend([
                figure(median(&all)),
                format!("{}–{}", figure(least), figure(most)),
            ]);
        }
        if kinds.len() == 2 {
            let (ours, theirs) = (values(0), values(1));
            let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
            row.push(match ratios.is_empty() {
                true => "-".to_owned(),
                false => format!("{:.3}", median(&ratios)),
            });
        }
        table.row(row);
    }
}

/// The middle one; of an even number the mean of the two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Three significant digits or the whole number.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn measures_are_read_from_a_programs_output() {
        let measures = parse("noise\nMEASURE records_a_second 1.5e6 1/s\n").unwrap();
        assert_eq!(
            measures["records a second"],
            Measure {
                value: 1.5e6,
                unit: "1/s".into()
            }
        );
        assert!(parse("nothing\n").is_err());
        assert!(parse("MEASURE a 1\n").is_err());
        assert!(parse("MEASURE a b c\n").is_err());
    }

    #[test]
    fn the_ratio_is_that_of_neighbours() {
        let run = |value| {
            Measures::from([(
                "t".to_owned(),
                Measure {
                    value,
                    unit: "s".into(),
                },
            )])
        };
        let runs = [
            vec![run(1.0), run(10.0)],
            vec![run(2.0), run(20.0)],
            vec![run(3.0), run(300.0)],
        ];
        let kinds = [Kind::Riverlog, Kind::Kafka];
        let mut t = table(&kinds);
        rows("b", &kinds, &runs, &mut t);
        let text = t.to_string();
        let last = text.lines().last().unwrap();
        let cells: Vec<&str> = last.split('|').map(str::trim).collect();
        assert_eq!(
            cells,
            [
                "",
                "b",
                "t",
                "s",
                "2.00",
                "1.00–3.00",
                "20.0",
                "10.0–300",
                "0.100",
                ""
            ]
        );
    }
}
