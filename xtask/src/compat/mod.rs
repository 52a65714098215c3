//! `cargo xtask compat`: real client libraries, each in a small program of its own (`tests/compat/`), run the
//! same cases against Riverlog and against Apache Kafka in the same run.
//!
//! A program takes `BOOTSTRAP PREFIX` and prints a line for each of [`CASES`]: `PASS name`, `FAIL name reason` or
//! `SKIP name reason`; that of raw frames has cases of its own. Between client and broker stands a relay that counts the requests, so that each
//! client's table of APIs and versions comes out as well.

mod clients;
mod relay;
mod report;

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Parser;

use crate::Result;
use crate::broker::{self, Broker, Kind, Spec, free_port};
use crate::place::Scratch;
use crate::run::{last_lines, program};
use crate::tools::{self, Missing};

use clients::Client;
use relay::{Relay, Requests};

#[derive(Default, Parser)]
pub(crate) struct Args {
    /// Only these clients; all without
    clients: Vec<String>,
    /// The brokers to run against
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["riverlog", "kafka"])]
    against: Vec<Kind>,
    /// A broker setting, as often as wanted
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = crate::peer::setting)]
    settings: Vec<(String, String)>,
    /// Brokers of each kind that are one cluster; without a relay, so that requests aren't counted when there are several
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Prints which requests each client sent
    #[arg(long)]
    requests: bool,
}

/// What every client program reports, in the order of the table.
const CASES: &[&str] = &[
    "create-topic",
    "codec-none",
    "codec-gzip",
    "codec-snappy",
    "codec-lz4",
    "codec-zstd",
    "idempotent",
    "transactions",
    "transaction-offsets",
    "compaction",
    "group-rebalance",
    "group-resumes",
    "group-kip848",
    "group-migration",
    "group-migration-cooperative",
    "share-group",
    "share-dead-letters",
    "offsets-by-time",
    "groups-listed",
    "delete-topic",
];

/// Stands in for a case when the program as a whole went wrong.
const WHOLE: &str = "(program)";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail(String),
    Skip(String),
}

/// What one client scored on one broker.
struct Score {
    cases: BTreeMap<String, Verdict>,
    seconds: f64,
}

/// Everything that came out of one broker.
struct Run {
    kind: Kind,
    scores: BTreeMap<&'static str, Score>,
    requests: Requests,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let against = match args.against.as_slice() {
        [] => vec![Kind::Riverlog, Kind::Kafka],
        some => some.to_vec(),
    };
    let chosen = choose(&args.clients)?;
    let mut ready = Vec::new();
    let mut lacking = None;
    for client in chosen {
        let start = Instant::now();
        match (client.prepare)() {
            Ok(command) => ready.push((client, command)),
            Err(why) if why.is::<Missing>() && !tools::in_ci() => {
                eprintln!("xtask: NOT TESTED: {}: {why}", client.name);
                lacking = Some(why);
            }
            Err(why) => return Err(format!("{}: {why}", client.name).into()),
        }
        let seconds = start.elapsed().as_secs_f64();
        if seconds > 1.0 {
            eprintln!("compat: {} prepared in {seconds:.1} s", client.name);
        }
    }
    if ready.is_empty() {
        return Err(lacking.unwrap_or_else(|| "no client to run".into()));
    }
    let mut scratch = Scratch::new("compat")?;
    let runs: Result<Vec<Run>> = std::thread::scope(|scope| {
        let tasks: Vec<_> = against
            .iter()
            .map(|&kind| {
                let (dir, ready) = (scratch.path().join(kind.to_string()), &ready);
                scope.spawn(move || {
                    run_on(kind, dir, args, ready).map_err(|e| format!("{kind}: {e}"))
                })
            })
            .collect();
        let done = tasks
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err("a run panicked".into())));
        done.map(|r| r.map_err(Into::into)).collect()
    });
    let runs = runs.inspect_err(|_| scratch.keep())?;
    let verdict = report::print(&runs, args.requests)?;
    if verdict.is_err() {
        scratch.keep();
        eprintln!(
            "compat: what brokers and programs wrote is kept in {}",
            scratch.path().display()
        );
    }
    verdict.map_err(Into::into)
}

fn choose(names: &[String]) -> Result<Vec<&'static Client>> {
    let known = || {
        clients::ALL
            .iter()
            .map(|c| c.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    if names.is_empty() {
        return Ok(clients::ALL.iter().collect());
    }
    let find = |name: &String| clients::ALL.iter().find(|c| c.name == name);
    names
        .iter()
        .map(|name| {
            find(name).ok_or_else(|| format!("no client '{name}'; there are {}", known()).into())
        })
        .collect()
}

/// Brokers of one kind that run, and where clients find them.
struct Place {
    brokers: Vec<Broker>,
    relay: Option<Relay>,
    bootstrap: String,
    /// Without the relay.
    direct: String,
}

impl Place {
    const SETTINGS: &[(&str, &str)] = &[
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.num.partitions", "5"),
        // Members hear of a rebalance with their next heartbeat; five seconds apart is too slow to watch.
        ("group.consumer.min.heartbeat.interval.ms", "500"),
        ("group.consumer.heartbeat.interval.ms", "500"),
        ("group.streams.min.heartbeat.interval.ms", "500"),
        ("group.streams.heartbeat.interval.ms", "500"),
        // Applications are killed, and what they had must be free soon.
        ("group.streams.min.session.timeout.ms", "6000"),
        ("group.streams.session.timeout.ms", "6000"),
        ("group.streams.initial.rebalance.delay.ms", "0"),
        ("log.cleaner.backoff.ms", "200"),
    ];

    fn alone(kind: Kind, dir: &std::path::Path, args: &Args) -> Result<Place> {
        let port = free_port()?;
        let relay = Relay::start(port)?;
        let mut spec = Spec::new(kind, dir)?;
        for (key, value) in Self::SETTINGS {
            spec = spec.set(key, value);
        }
        spec.port = port;
        spec.advertised = Some(relay.port());
        spec.settings.extend(args.settings.iter().cloned());
        let broker = spec.start(false)?;
        let after = broker.ready_after.as_secs_f64();
        eprintln!("compat: {kind} answers after {after:.2} s");
        Ok(Place {
            bootstrap: format!("127.0.0.1:{}", relay.port()),
            direct: broker.bootstrap(),
            relay: Some(relay),
            brokers: vec![broker],
        })
    }

    /// Each broker in a rack of its own, `rack-1` and so on.
    fn cluster(kind: Kind, dir: &std::path::Path, nodes: usize, args: &Args) -> Result<Place> {
        let mut settings = Self::SETTINGS.to_vec();
        let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
        settings.push(("replica.selector.class", selector));
        // Topics that don't say otherwise have three copies, as they do here by default.
        settings.push(("default.replication.factor", "3"));
        let more = args.settings.iter();
        settings.extend(more.map(|(key, value)| (key.as_str(), value.as_str())));
        let brokers = Spec::start_cluster(kind, dir, nodes, &settings, &[])?;
        let all: Vec<String> = brokers.iter().map(Broker::bootstrap).collect();
        Ok(Place {
            relay: None,
            bootstrap: all.join(","),
            direct: all.join(","),
            brokers,
        })
    }

    /// `PID@PORT,…`.
    fn pids(&self) -> String {
        broker::pids(&self.brokers)
    }
}

/// Starts brokers and runs the clients one after another.
fn run_on(
    kind: Kind,
    dir: std::path::PathBuf,
    args: &Args,
    clients: &[(&'static Client, Vec<String>)],
) -> std::result::Result<Run, String> {
    let words = |e: Box<dyn std::error::Error>| e.to_string();
    let place = match args.nodes {
        0 | 1 => Place::alone(kind, &dir, args),
        nodes => Place::cluster(kind, &dir, nodes, args),
    };
    let place = place.map_err(words)?;
    let mut scores = BTreeMap::new();
    for (client, command) in clients {
        if let Some(relay) = &place.relay {
            relay.label(client.name);
        }
        let prefix = format!("{}-{}", client.name, std::process::id());
        let log = dir.join(format!("{}.log", client.name));
        // What isn't Kafka's protocol doesn't come through the relay.
        let (known, at) = match client.own_cases {
            true => (&[][..], &place.direct),
            false => (CASES, &place.bootstrap),
        };
        let pids = place.pids();
        let score = run_client(command, at, &prefix, &log, known, &pids).map_err(words)?;
        let counts = score.counts();
        eprintln!(
            "compat: {kind:8} {:16} {counts} in {:.1} s",
            client.name, score.seconds
        );
        scores.insert(client.name, score);
    }
    Ok(Run {
        kind,
        scores,
        requests: place
            .relay
            .as_ref()
            .map(Relay::requests)
            .unwrap_or_default(),
    })
}

/// Seconds that a client program may take in all. Kafka Streams in the long form, killed ten times, takes the longest.
const CLIENT_LIMIT_S: u64 = 600;

fn run_client(
    command: &[String],
    bootstrap: &str,
    prefix: &str,
    log: &std::path::Path,
    known: &[&str],
    pids: &str,
) -> Result<Score> {
    let (name, words) = command.split_first().ok_or("an empty command")?;
    let out = program(name)
        .env("BROKER_PIDS", pids)
        .args(words)
        .args([bootstrap, prefix])
        .limit(CLIENT_LIMIT_S)
        .outcome()?;
    std::fs::write(log, format!("{}{}", out.stdout, out.stderr))?;
    let mut cases = parse(&out.stdout, known);
    // Its own cases tell by themselves why a program of raw frames didn't end with 0.
    let told = known.is_empty() && cases.values().any(|v| matches!(v, Verdict::Fail(_)));
    if !out.ok() && !told || cases.is_empty() {
        let said = last_lines(&out.stderr, 3).replace('\n', " / ");
        cases.insert(
            WHOLE.to_owned(),
            Verdict::Fail(format!("{}: {said}", out.how_it_ended())),
        );
    }
    Ok(Score {
        cases,
        seconds: out.took.as_secs_f64(),
    })
}

/// The verdicts in a program's output; a known case that it says nothing about has failed. With none known, all that are
/// reported count.
fn parse(stdout: &str, known: &[&str]) -> BTreeMap<String, Verdict> {
    let silent = |case: &&str| ((*case).to_owned(), Verdict::Fail("not reported".into()));
    let mut cases: BTreeMap<String, Verdict> = known.iter().map(silent).collect();
    for line in stdout.lines() {
        let mut words = line.splitn(3, ' ');
        let (word, name, reason) = (words.next(), words.next(), words.next().unwrap_or_default());
        let Some(case) = name.filter(|case| known.is_empty() || known.contains(case)) else {
            continue;
        };
        let verdict = match word {
            Some("PASS") => Verdict::Pass,
            Some("FAIL") => Verdict::Fail(reason.to_owned()),
            Some("SKIP") => Verdict::Skip(reason.to_owned()),
            _ => continue,
        };
        cases.insert(case.to_owned(), verdict);
    }
    cases
}

impl Score {
    fn counts(&self) -> String {
        let count = |which: fn(&Verdict) -> bool| self.cases.values().filter(|v| which(v)).count();
        let passed = count(|v| *v == Verdict::Pass);
        let failed = count(|v| matches!(v, Verdict::Fail(_)));
        let skipped = count(|v| matches!(v, Verdict::Skip(_)));
        format!("{passed:2} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_nobody_reports_has_failed() {
        let cases = parse(
            "noise\nPASS create-topic\nFAIL codec-gzip it broke\nSKIP idempotent no such thing\nPASS x\n",
            CASES,
        );
        assert_eq!(cases.len(), CASES.len());
        assert_eq!(cases["create-topic"], Verdict::Pass);
        assert_eq!(cases["codec-gzip"], Verdict::Fail("it broke".into()));
        assert_eq!(cases["idempotent"], Verdict::Skip("no such thing".into()));
        assert_eq!(cases["delete-topic"], Verdict::Fail("not reported".into()));
    }

    #[test]
    fn a_program_with_cases_of_its_own_tells_which() {
        let cases = parse("PASS 1-a\nFAIL 2-b it broke\nall done\n", &[]);
        assert_eq!(cases.len(), 2);
        assert_eq!(cases["2-b"], Verdict::Fail("it broke".into()));
    }

    #[test]
    fn a_program_that_dies_is_a_failure_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let command = [
            "sh",
            "-c",
            "echo PASS create-topic; echo broken >&2; exit 7",
        ]
        .map(str::to_owned);
        let log = dir.path().join("log");
        let score = run_client(&command, "b", "p", &log, CASES, "").unwrap();
        assert_eq!(score.cases["create-topic"], Verdict::Pass);
        assert!(matches!(&score.cases[WHOLE], Verdict::Fail(why) if why.contains("broken")));
    }

    #[test]
    fn an_unknown_client_is_an_error_that_lists_the_others() {
        let error = choose(&["kcta".into()]).err().unwrap().to_string();
        assert!(error.contains("kcat"), "{error}");
    }
}
