//! The step `monitoring`: Prometheus scrapes a broker that has something to tell, reads the rules, and evaluates every expression of rules
//! and dashboards; each metric that one names must have been told.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::broker::{self, Kind, Spec, address, free_port, riverlog_binary, terminate};
use crate::place::Scratch;
use crate::run::{self, Outcome, program};
use crate::tools::{self, Tool};

/// What a dashboard's variables stand for.
const VARIABLES: &[(&str, &str)] = &[
    ("$__rate_interval", "1m"),
    ("$topic", ".*"),
    ("$group", ".*"),
];
/// How names of ours begin.
const OURS: &[&str] = &["riverlog_", "kafka_"];
/// How long Prometheus may take to its first scrape.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run() -> Result<()> {
    tools::ensure(&[Tool::Promtool])?;
    let riverlog = riverlog_binary(false)?;
    let scratch = Scratch::new("monitoring")?;
    let dir = scratch.path();
    let rules = program(&riverlog)
        .args(["generate", "prometheus-rules"])
        .output()?;
    fs::write(dir.join("rules.yml"), &rules)?;
    program("promtool")
        .args(["check", "rules"])
        .arg(dir.join("rules.yml"))
        .shown_live()?;
    let boards = dir.join("dashboards");
    fs::create_dir(&boards)?;
    program(&riverlog)
        .args(["generate", "grafana", "--all"])
        .arg(&boards)
        .output()?;
    let mut queries = of_rules(&rules);
    for entry in fs::read_dir(&boards)? {
        let text = fs::read_to_string(entry?.path())?;
        expressions(&serde_json::from_str(&text)?, &mut queries);
    }
    let http = address(free_port()?);
    let broker = Spec::new(Kind::Riverlog, dir.join("broker"))?
        .set("riverlog.http.address", &http.to_string())
        .start(false)?;
    fill(&riverlog, &broker, http, dir)?;
    let prometheus = Prometheus::start(dir, http)?;
    let told = prometheus.told()?;
    let mut wrong = Vec::new();
    for query in &queries {
        let query = VARIABLES
            .iter()
            .fold(query.clone(), |q, (name, value)| q.replace(name, value));
        let answer = prometheus.ask(&["instant"], &[&query])?;
        if !answer.ok() {
            wrong.push(format!("{query}: {}", answer.stderr.trim()));
        }
        let absent = names(&query).filter(|name| !told.contains(*name));
        wrong.extend(absent.map(|name| format!("{query}: nothing is told as {name}")));
    }
    if !wrong.is_empty() {
        return Err(format!("expressions that can't be used:\n{}", wrong.join("\n")).into());
    }
    println!(
        "monitoring: Prometheus evaluates {} expressions",
        queries.len()
    );
    Ok(())
}

/// A topic, a group that is behind, and a call of `/v1`.
fn fill(riverlog: &Path, broker: &broker::Broker, http: SocketAddr, dir: &Path) -> Result<()> {
    let lines = dir.join("lines");
    fs::write(&lines, "a\nb\nc\n".repeat(100))?;
    let command = |words: &[&str]| {
        let run = program(riverlog).arg("-b").arg(broker.bootstrap());
        run.args(words).limit(60)
    };
    command(&["topic", "create", "orders", "-p", "2"]).output()?;
    command(&["produce", "orders"]).arg(&lines).output()?;
    command(&["consume", "orders", "--group", "billing", "-n", "10"]).output()?;
    let mut stream = TcpStream::connect(http)?;
    stream.write_all(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A Prometheus that scrapes one broker; ended when dropped.
struct Prometheus {
    child: Child,
    at: String,
}

impl Prometheus {
    fn start(dir: &Path, broker: SocketAddr) -> Result<Prometheus> {
        let config = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [rules.yml]\n\
             scrape_configs:\n- job_name: riverlog\n  static_configs:\n  - targets: ['{broker}']\n"
        );
        fs::write(dir.join("prometheus.yml"), config)?;
        let at = address(free_port()?);
        let child = program("prometheus")
            .arg(format!(
                "--config.file={}",
                dir.join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={at}"))
            .spawn_logged(&dir.join("prometheus.log"), false)?;
        Ok(Prometheus {
            child,
            at: format!("http://{at}"),
        })
    }

    fn ask(&self, kind: &[&str], words: &[&str]) -> Result<Outcome> {
        let run = program("promtool").arg("query").args(kind);
        run.arg(&self.at).args(words).limit(30).outcome()
    }

    /// The names of all that was told, once something was.
    fn told(&self) -> Result<BTreeSet<String>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(&["labels"], &["__name__"])?;
            let names: BTreeSet<String> = answer.stdout.lines().map(str::to_owned).collect();
            if names.iter().any(|name| name.starts_with("riverlog_")) {
                return Ok(names);
            }
            if Instant::now() >= end {
                return Err(format!("Prometheus has scraped nothing: {}", answer.stderr).into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        terminate(self.child.id());
        if !matches!(run::wait(&mut self.child, PATIENCE), Ok(Some(_))) {
            // An error means that it ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Our metrics that an expression names.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words.filter(|word| OURS.iter().any(|ours| word.starts_with(ours)))
}

/// The expressions of a file of rules as we write it: each on a line of its own.
fn of_rules(rules: &str) -> Vec<String> {
    let lines = rules.lines().map(str::trim_start);
    let found = lines.filter_map(|line| line.strip_prefix("expr: "));
    found.map(str::to_owned).collect()
}

fn expressions(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(expr)) = fields.get("expr") {
                out.push(expr.clone());
            }
            fields.values().for_each(|value| expressions(value, out));
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, out)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours_are_found_in_expressions() {
        let query = "sum by (topic) (rate(riverlog_a_total{topic!~\"__.*\"}[5m])) / up + kafka_b";
        let found: Vec<&str> = names(query).collect();
        assert_eq!(found, ["riverlog_a_total", "kafka_b"]);
        let rules = "- alert: A\n  expr: riverlog_x > 0\n  for: 1m\n- record: b\n  expr: sum(up)\n";
        assert_eq!(of_rules(rules), ["riverlog_x > 0", "sum(up)"]);
    }
}
